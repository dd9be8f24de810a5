"""Produce and consume with one librdkafka client (confluent-kafka) against any broker.

The client is the same for every broker, so its own cost is in every figure: the ratio says
how much the broker adds.  Rounds alternate between the brokers and the median is reported.
"""

import statistics
import time
from collections.abc import Callable
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .machine import cpu_seconds, resident_mib
from .report import Row
from .servers import Server, mock_broker, segbroker

PARTITIONS = 4
ROUNDS = 3
DEADLINE_S = 120


def create_topic(server: Server, durability: str) -> str:
    name = f"bench-{uuid4().hex[:12]}"
    if server.name == "mock":  # it has no CreateTopics, and makes a topic of 4 on first use
        Producer({"bootstrap.servers": server.address}).list_topics(name, timeout=10)
        return name
    admin = AdminClient({"bootstrap.servers": server.address})
    topic = NewTopic(name, PARTITIONS, 1, config={"durability": durability})
    admin.create_topics([topic])[name].result(30)
    return name


def produce(server: Server, topic: str, count: int, size: int) -> float:
    """Send `count` records of `size` bytes and wait for every ack; records per second."""
    producer = Producer(
        {
            "bootstrap.servers": server.address,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "linger.ms": 5,
            "acks": "all",
        }
    )
    producer.list_topics(topic, timeout=10)
    value = bytes(range(256)) * (size // 256 + 1)
    value = value[:size]
    send = producer.produce
    began = time.perf_counter()
    for _ in range(count):
        send(topic, value)
    left = producer.flush(DEADLINE_S)
    took = time.perf_counter() - began
    assert left == 0, f"{left} records were not delivered to {server.name}"
    return count / took


def consume(server: Server, topic: str, count: int) -> float:
    """Read `count` records from the start of every partition; records per second."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
        }
    )
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen = 0
    while seen < count:
        messages = consumer.consume(10_000, timeout=DEADLINE_S)
        assert messages, f"{server.name} went quiet after {seen} of {count}"
        for message in messages:
            assert message.error() is None, message.error()
            message.value()
        seen += len(messages)
    took = time.perf_counter() - began
    consumer.close()
    return count / took


def _rate(records: float, size: int) -> str:
    return f"{records / 1e3:,.0f} k records/s ({records * size / 1e6:,.0f} MB/s)"


def rows(quick: bool = False) -> list[Row]:
    """100 B and 1 KiB against the mock broker, both ways, for `disk` and `fsync` topics."""
    found: list[Row] = []
    works = ((100, 1_000_000), (1024, 300_000), (16 * 1024, 30_000))
    with segbroker() as ours, mock_broker() as mock:
        for size, full in works:
            count = full // 20 if quick else full
            measured: dict[str, list[float]] = {}

            def note(
                key: str, run: Callable[[], float], into: dict[str, list[float]] = measured
            ) -> None:
                into.setdefault(key, []).append(run())

            cpu = 0.0
            for _ in range(1 if quick else ROUNDS):
                topics = {
                    "mock": create_topic(mock, ""),
                    "disk": create_topic(ours, "disk"),
                    "fsync": create_topic(ours, "fsync"),
                }
                for key, topic in topics.items():
                    server = mock if key == "mock" else ours
                    before = cpu_seconds(server.pid)
                    note(f"produce {key}", lambda s=server, t=topic: produce(s, t, count, size))
                    if key == "disk":
                        cpu = cpu_seconds(server.pid) - before
                    note(f"consume {key}", lambda s=server, t=topic: consume(s, t, count))
            median = {key: statistics.median(values) for key, values in measured.items()}
            goal = {100: "≥ 0.7", 1024: "≥ 0.8"}.get(size, "–")
            for key in ("disk", "fsync"):
                mine, peer = median[f"produce {key}"], median["produce mock"]
                found.append(
                    Row(
                        f"produce {count:,} × {size} B, one librdkafka producer",
                        key,
                        _rate(mine, size),
                        f"mock {_rate(peer, size)}",
                        f"{mine / peer:.2f}",
                        goal if key == "disk" else "–",
                        f"{cpu * 1e6 / count:.2f} µs CPU/record, {resident_mib(ours.pid):.0f} MiB"
                        if key == "disk"
                        else "–",
                    )
                )
            mine, peer = median["consume disk"], median["consume mock"]
            found.append(
                Row(
                    f"consume {count:,} × {size} B, one librdkafka consumer",
                    "disk",
                    _rate(mine, size),
                    f"mock {_rate(peer, size)}",
                    f"{mine / peer:.2f}",
                    "≥ 0.8" if size <= 1024 else "–",
                )
            )
    return found

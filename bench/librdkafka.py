"""Produce and consume with one librdkafka client (confluent-kafka) against any broker.

The client is the same for every broker, so its own cost is in every figure: the ratio says
how much the broker adds.  Rounds alternate between the brokers and the median is reported.

The mock broker keeps only 5 MiB of each of its 4 partitions, so consuming from it means reading
what fits again and again; ours then does the same.  The row without a peer reads everything once.
"""

import time
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .machine import cpu_seconds, resident_mib
from .report import Entry, Row, Runs, rate
from .servers import Server, mock_broker, segbroker

PARTITIONS = 4
ROUNDS = 3
DEADLINE_S = 120
MOCK_BYTES = 4 << 20  # a partition of the mock holds 5 MiB, and batches have headers
WORKS = ((100, 1_000_000), (1024, 300_000), (16 * 1024, 30_000))


def create_topic(server: Server, durability: str) -> str:
    """A topic of 4 partitions and the durability class."""
    name = f"bench-{uuid4().hex[:12]}"
    if server.name == "mock":  # it has no CreateTopics, and makes a topic of 4 on first use
        Producer({"bootstrap.servers": server.address}).list_topics(name, timeout=10)
        return name
    admin = AdminClient({"bootstrap.servers": server.address})
    topic = NewTopic(name, PARTITIONS, 1, config={"durability": durability})
    admin.create_topics([topic])[name].result(30)
    return name


def producer(address: str, queue_kib: int = 2_000_000) -> Producer:
    """A producer; by default with room for every record of a round."""
    return Producer(
        {
            "bootstrap.servers": address,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": queue_kib,
            "linger.ms": 5,
            "acks": "all",
        }
    )


def produce(address: str, topic: str, count: int, size: int) -> float:
    """Send `count` records of `size` bytes and wait for every ack; records per second."""
    sink = producer(address)
    sink.list_topics(topic, timeout=10)
    value = bytes(size)
    send = sink.produce
    began = time.perf_counter()
    for _ in range(count):
        send(topic, value)
    left = sink.flush(DEADLINE_S)
    took = time.perf_counter() - began
    assert left == 0, f"{left} records were not delivered"
    return count / took


def fill(address: str, topic: str, count: int, size: int) -> None:
    """The same number of records into every partition."""
    sink = producer(address)
    value = bytes(size)
    for n in range(count):
        sink.produce(topic, value, partition=n % PARTITIONS)
    left = sink.flush(DEADLINE_S)
    assert left == 0, f"{left} records were not delivered"


def consume(address: str, topic: str, count: int, rounds: int = 1) -> float:
    """Read `count` records from the start of every partition, `rounds` times; records/s."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.list_topics(topic, timeout=10)
    took = 0.0
    for _ in range(rounds):
        began = time.perf_counter()
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        seen = 0
        while seen < count:
            # It waits until it has as many as asked for.
            messages = consumer.consume(min(10_000, count - seen), timeout=DEADLINE_S)
            assert messages, f"quiet after {seen} of {count}"
            for message in messages:
                assert message.error() is None, message.error()
                message.value()
            seen += len(messages)
        took += time.perf_counter() - began
        consumer.unassign()
    consumer.close()
    return count * rounds / took


def rows(quick: bool = False) -> list[Entry]:
    """100 B, 1 KiB and 16 KiB against the mock broker, both ways, for `disk` and `fsync`."""
    found: list[Entry] = []
    with segbroker() as ours, mock_broker() as mock:
        for size, full in WORKS:
            count = full // 20 if quick else full
            small = MOCK_BYTES // (size + 16) * PARTITIONS
            again = max(1, count // small)
            runs = Runs()
            cpu: dict[str, float] = {}
            for _ in range(1 if quick else ROUNDS):
                for key, server in (("mock", mock), ("disk", ours), ("fsync", ours)):
                    topic = create_topic(server, key)
                    before = cpu_seconds(server.pid)
                    runs.note(f"produce {key}", produce(server.address, topic, count, size))
                    cpu[f"produce {key}"] = cpu_seconds(server.pid) - before
                    if key == "disk":
                        before = cpu_seconds(server.pid)
                        runs.note("consume", consume(server.address, topic, count))
                        cpu["consume"] = cpu_seconds(server.pid) - before
                for key, server in (("mock", mock), ("disk", ours)):
                    topic = create_topic(server, key)
                    fill(server.address, topic, small, size)
                    runs.note(f"again {key}", consume(server.address, topic, small, again))
            for key in ("disk", "fsync"):
                mine, peer = runs.median(f"produce {key}"), runs.median("produce mock")
                found.append(
                    Row(
                        f"produce {count:,} × {size} B, one librdkafka producer",
                        key,
                        rate(mine, size),
                        f"mock {rate(peer, size)}",
                        f"{mine / peer:.2f}",
                        {100: "≥ 0.7", 1024: "≥ 0.8"}.get(size, "–") if key == "disk" else "–",
                        f"{cpu[f'produce {key}'] * 1e6 / count:.2f} µs CPU/record (mock "
                        f"{cpu['produce mock'] * 1e6 / count:.2f}), "
                        f"{resident_mib(ours.pid):.0f} MiB",
                    )
                )
            mine, peer = runs.median("again disk"), runs.median("again mock")
            found.append(
                Row(
                    f"consume {small:,} × {size} B, {again} times, one librdkafka consumer",
                    "disk",
                    rate(mine, size),
                    f"mock {rate(peer, size)}",
                    f"{mine / peer:.2f}",
                    "≥ 0.8" if size <= 1024 else "–",
                )
            )
            found.append(
                Row(
                    f"consume {count:,} × {size} B once, one librdkafka consumer",
                    "disk",
                    rate(runs.median("consume"), size),
                    server=f"{cpu['consume'] * 1e6 / count:.2f} µs CPU/record",
                )
            )
    return found

"""Our client beside confluent-kafka on the same broker and the same records.

Wall time decides; the client's own CPU is given too, because librdkafka's threads use a second
core where ours uses one.
"""

import statistics
import time
from collections.abc import Callable

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from segbroker.client import Consumer, Producer

from . import librdkafka
from .report import Row
from .servers import Server, segbroker

ROUNDS = 3


def _timed(run: Callable[[], int]) -> tuple[float, float]:
    """Records per second of wall time, and the client's CPU in µs a record."""
    cpu, wall = time.process_time(), time.perf_counter()
    count = run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return count / wall, cpu * 1e6 / count


def _send(server: Server, topic: str, value: bytes, count: int) -> int:
    with Producer(server.address) as producer:
        send = producer.send
        for _ in range(count):
            send(topic, value)
    return count


def _send_many(server: Server, topic: str, value: bytes, count: int) -> int:
    chunk = [value] * 10_000
    with Producer(server.address) as producer:
        for _ in range(count // len(chunk)):
            producer.send_many(topic, chunk)
    return count // len(chunk) * len(chunk)


def _records(server: Server, topic: str, count: int) -> int:
    seen = 0
    with Consumer(server.address, topic, start="start", stop_at_end=True) as consumer:
        for record in consumer:
            assert record.value is not None
            seen += 1
    assert seen == count, f"{seen} of {count}"
    return seen


def _values(server: Server, topic: str, count: int) -> int:
    seen = 0
    with Consumer(server.address, topic, start="start", stop_at_end=True) as consumer:
        for batch in consumer.batches():
            seen += len(batch.values())
    assert seen == count, f"{seen} of {count}"
    return seen


def _arrow(server: Server, topic: str, count: int) -> int:
    seen = 0
    with Consumer(server.address, topic, start="start", stop_at_end=True) as consumer:
        for batch in consumer.batches():
            seen += batch.to_arrow().num_rows
    assert seen == count, f"{seen} of {count}"
    return seen


def _confluent_poll(server: Server, topic: str, count: int) -> int:
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([ConfluentPartition(topic, n, 0) for n in range(librdkafka.PARTITIONS)])
    for _ in range(count):
        message = consumer.poll(30)
        assert message is not None
        message.value()
    consumer.close()
    return count


def _confluent_consume(server: Server, topic: str, count: int) -> int:
    librdkafka.consume(server, topic, count)
    return count


def _confluent_produce(server: Server, topic: str, value: bytes, count: int) -> int:
    librdkafka.produce(server, topic, count, len(value))
    return count


def rows(quick: bool = False) -> list[Row]:
    """send, send_many, values, Arrow and record iteration at 100 B and 1 KiB."""
    found: list[Row] = []
    with segbroker() as server:
        for size, full in ((100, 500_000), (1024, 150_000)):
            count = full // 20 if quick else full
            count -= count % 10_000 if count >= 10_000 else 0
            value = bytes(size)
            runs: dict[str, list[tuple[float, float]]] = {}
            for _ in range(1 if quick else ROUNDS):
                for name, work in (
                    ("confluent produce", _confluent_produce),
                    ("send", _send),
                    ("send_many", _send_many),
                ):
                    topic = librdkafka.create_topic(server, "disk")
                    runs.setdefault(name, []).append(
                        _timed(lambda w=work, t=topic: w(server, t, value, count))
                    )
                topic = librdkafka.create_topic(server, "disk")
                _send_many(server, topic, value, count)
                for name, read in (
                    ("confluent poll()", _confluent_poll),
                    ("confluent consume(10000)", _confluent_consume),
                    ("records", _records),
                    ("batches().values()", _values),
                    ("batches().to_arrow()", _arrow),
                ):
                    runs.setdefault(name, []).append(
                        _timed(lambda r=read, t=topic: r(server, t, count))
                    )
            wall = {name: statistics.median(r[0] for r in runs[name]) for name in runs}
            cpu = {name: statistics.median(r[1] for r in runs[name]) for name in runs}
            for name, peer, goal in (
                ("send", "confluent produce", "≥ 2"),
                ("send_many", "confluent produce", "≥ 2"),
                ("records", "confluent poll()", "≥ 2"),
                ("records", "confluent consume(10000)", "≥ 1"),
                ("batches().values()", "confluent consume(10000)", "≥ 2"),
                ("batches().to_arrow()", "confluent consume(10000)", "≥ 2"),
            ):
                found.append(
                    Row(
                        f"our client, {name}, {count:,} × {size} B",
                        "disk",
                        f"{wall[name] / 1e3:,.0f} k records/s, {cpu[name]:.2f} µs CPU each",
                        f"{peer} {wall[peer] / 1e3:,.0f} k records/s, {cpu[peer]:.2f} µs",
                        f"{wall[name] / wall[peer]:.2f}",
                        goal,
                    )
                )
    return found

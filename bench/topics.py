"""Clients of thousands of topics: the first record to each, and one record seen among them all.

first   a new producer sends a record to each topic and waits for all acknowledgements
seen    a consumer of all topics waits; from the send of a record to a topic drawn at random to
        the moment that the consumer hands it out.  With a fetch session (KIP-227) a fetch names
        what changed; librdkafka has none and names all of them each time.
all     a new consumer reads a few records of each of many partitions, from the start
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from random import Random

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from segbroker.client import Consumer, Producer

from . import librdkafka
from .machine import cpu_seconds
from .report import Entry, Row, Runs, latency
from .servers import Server, segbroker

TOPICS = 2_000
ROUNDS = 3
RECORDS = 300
SIZE = 100
PARTITIONS = 10_000
RECORDS_OF_EACH = 3
CREATED_AT_ONCE = 500
DEADLINE_S = 120.0

# Waits a moment at most and hands out how many records there were.
Poll = Callable[[], int]


def _create(server: Server, names: Sequence[str], partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": server.address})
    for first in range(0, len(names), CREATED_AT_ONCE):
        wanted = [
            NewTopic(name, partitions, 1, config={"durability": "disk"})
            for name in names[first : first + CREATED_AT_ONCE]
        ]
        for made in admin.create_topics(wanted, request_timeout=DEADLINE_S).values():
            made.result(DEADLINE_S)


def _first_records(address: str, names: Sequence[str]) -> None:
    with Producer(address) as producer:
        for name in names:
            producer.send(name, bytes(SIZE))


def _first_records_confluent(address: str, names: Sequence[str]) -> None:
    producer = librdkafka.producer(address)
    for name in names:
        producer.produce(name, bytes(SIZE))
    left = producer.flush(DEADLINE_S)
    assert left == 0, f"{left} records were not delivered"


@contextmanager
def _reading(address: str, names: Sequence[str]) -> Iterator[Poll]:
    with Consumer(address, *names, start="end") as consumer:
        consumer.positions()  # or a first record comes before its end was looked up
        yield lambda: len(consumer.poll(timeout_ms=100))


@contextmanager
def _reading_confluent(address: str, names: Sequence[str]) -> Iterator[Poll]:
    settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    with closing(ConfluentConsumer(settings)) as consumer:
        ends = (
            consumer.get_watermark_offsets(ConfluentPartition(name, 0), DEADLINE_S)
            for name in names
        )
        consumer.assign(
            [ConfluentPartition(name, 0, end) for name, (_, end) in zip(names, ends, strict=True)]
        )
        # consume() waits for as many as it is asked for; one is all there is.
        yield lambda: len(consumer.consume(1, 0.1))


def _seen(
    server: Server, names: Sequence[str], poll: Poll, records: int
) -> tuple[list[float], float]:
    """Seconds to see each of `records` records; the daemon's processor seconds for each."""
    draw = Random(len(names))
    latencies = []
    with Producer(server.address, linger_ms=0) as producer:
        # Until then the consumer may not have asked for all topics, nor the producer know them.
        for name in names:
            producer.send(name, bytes(SIZE))
        producer.flush()
        deadline, left = time.monotonic() + DEADLINE_S, len(names)
        while left > 0:
            left -= poll()
            assert time.monotonic() < deadline, f"{left} records of {len(names)} were not seen"
        before = cpu_seconds(server.pid)
        for _ in range(records):
            began = time.perf_counter()
            producer.send(draw.choice(names), bytes(SIZE))
            producer.flush()
            while not poll():
                assert time.perf_counter() < began + DEADLINE_S, "the record was not seen"
            latencies.append(time.perf_counter() - began)
        spent = cpu_seconds(server.pid) - before
    return latencies, spent / records


def _read_all(address: str, topic: str, count: int) -> None:
    with Consumer(address, topic, start="start") as consumer:
        for seen, _ in enumerate(consumer, 1):
            if seen == count:
                return


def _read_all_confluent(address: str, topic: str, count: int) -> None:
    settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    with closing(ConfluentConsumer(settings)) as consumer:
        partitions = range(count // RECORDS_OF_EACH)
        consumer.assign([ConfluentPartition(topic, number, 0) for number in partitions])
        deadline = time.monotonic() + DEADLINE_S
        while count > 0:
            count -= len(consumer.consume(10_000, 0.1))
            assert time.monotonic() < deadline, f"{count} records were not read"


def _wide(server: Server, partitions: int, turns: int) -> Entry:
    """Everything of a topic of many partitions, read by new clients by turns."""
    _create(server, ["wide"], partitions)
    with Producer(server.address) as producer:
        for _ in range(RECORDS_OF_EACH):
            for number in range(partitions):
                producer.send("wide", bytes(SIZE), partition=number)
            producer.flush()
    runs, count = Runs(), partitions * RECORDS_OF_EACH
    for _ in range(turns):
        for who, read in (("ours", _read_all), ("peer", _read_all_confluent)):
            began = time.perf_counter()
            read(server.address, "wide", count)
            runs.note(who, time.perf_counter() - began)
    ours, peer = runs.median("ours"), runs.median("peer")
    return Row(
        f"{count:,} records of {partitions:,} partitions, our consumer",
        "disk",
        f"{ours:.1f} s",
        f"confluent-kafka {peer:.1f} s",
        f"{peer / ours:.2f}",
    )


def rows(quick: bool = False) -> list[Entry]:
    """One daemon; rounds of the two clients by turns, the median of each."""
    count = TOPICS // 20 if quick else TOPICS
    records = RECORDS // 20 if quick else RECORDS
    runs = Runs()
    with segbroker() as server:
        names: list[str] = []
        for turn in range(1 if quick else ROUNDS):
            for who, send in (("ours", _first_records), ("peer", _first_records_confluent)):
                names = [f"first-{turn}-{who}-{n}" for n in range(count)]
                _create(server, names)
                began = time.perf_counter()
                send(server.address, names)
                runs.note(who, time.perf_counter() - began)
        ours, peer = runs.median("ours"), runs.median("peer")
        found: list[Entry] = [
            Row(
                f"first record to each of {count:,} topics, our producer",
                "disk",
                f"{ours:.1f} s",
                f"confluent-kafka {peer:.1f} s",
                f"{peer / ours:.2f}",
            )
        ]
        with _reading(server.address, names) as poll:
            seen, spent = _seen(server, names, poll, records)
        with _reading_confluent(server.address, names) as poll:
            beside, beside_spent = _seen(server, names, poll, records)
        wide = _wide(server, PARTITIONS // 20 if quick else PARTITIONS, 1 if quick else ROUNDS)
    found.append(
        Row(
            f"one record seen by our consumer of {count:,} topics, with a fetch session",
            "disk",
            latency(seen),
            f"confluent-kafka, which has none, {latency(beside)}",
            f"{sorted(beside)[records // 2] / sorted(seen)[records // 2]:.2f}",
            server=(
                f"{spent * 1e3:.1f} ms of its processor for each, "
                f"{beside_spent * 1e3:.1f} with the peer"
            ),
        )
    )
    found.append(wide)
    return found

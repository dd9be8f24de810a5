"""Python clients beside ours on the same broker and the same records: confluent-kafka, aiokafka.

The client has one core and the broker the other, where there are two: librdkafka's threads would
take the second, and the broker's share of it, where our client uses one.  Wall time decides; the
client's own CPU is given too.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from segbroker.client import AsyncConsumer, Consumer, Producer
from segbroker.client.settings import ProducerSettings

from . import librdkafka
from .peers.programs import Missing, module
from .report import Entry, Note, Row, Runs
from .servers import segbroker

ROUNDS = 3
CHUNK = 1_000
AIOKAFKA_SHARE = 10  # it is so much slower that a tenth of the records will do


@contextmanager
def _a_core_each(server: int) -> Iterator[bool]:
    """This thread and those it starts on the first core, the server's on the last; whether so."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        for thread in Path(f"/proc/{server}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores[-1:])
        os.sched_setaffinity(0, cores[:1])
    try:
        yield len(cores) > 1
    finally:
        os.sched_setaffinity(0, cores)


def _timed(runs: Runs, name: str, count: int, run: Callable[[], object]) -> None:
    """Notes records per second of wall time, and the client's CPU in µs a record."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    runs.note(name, count / wall)
    runs.note(f"{name} cpu", cpu * 1e6 / count)


def _send(address: str, topic: str, count: int, size: int) -> None:
    value = bytes(size)
    with Producer(address) as producer:
        send = producer.send
        for _ in range(count):
            send(topic, value)


def _send_many(address: str, topic: str, count: int, size: int) -> None:
    chunk = [bytes(size)] * CHUNK
    with Producer(address) as producer:
        for _ in range(count // CHUNK):
            producer.send_many(topic, chunk)


def _records(address: str, topic: str, count: int) -> None:
    seen = 0
    with Consumer(address, topic, start="start", stop_at_end=True) as consumer:
        for record in consumer:
            assert record.value is not None
            seen += 1
    assert seen == count, f"{seen} of {count}"


def _async_records(address: str, topic: str, count: int, *, backend: str) -> None:
    async def run() -> None:
        seen = 0
        async with AsyncConsumer(address, topic, start="start", stop_at_end=True) as consumer:
            async for record in consumer:
                assert record.value is not None
                seen += 1
        assert seen == count, f"{seen} of {count}"

    anyio.run(run, backend=backend)


def _values(address: str, topic: str, count: int) -> None:
    seen = 0
    with Consumer(address, topic, start="start", stop_at_end=True) as consumer:
        for batch in consumer.batches():
            seen += len(batch.values())
    assert seen == count, f"{seen} of {count}"


def _arrow(address: str, topic: str, count: int) -> None:
    seen = 0
    with Consumer(address, topic, start="start", stop_at_end=True) as consumer:
        for batch in consumer.batches():
            seen += batch.to_arrow().num_rows
    assert seen == count, f"{seen} of {count}"


def _confluent_produce(address: str, topic: str, count: int, size: int) -> None:
    """As much may wait as in our producer: what is queued without a limit costs it fresh pages."""
    producer = librdkafka.producer(address, ProducerSettings().buffer_bytes >> 10)
    value = bytes(size)
    send = producer.produce
    for _ in range(count):
        while True:
            try:
                send(topic, value)
                break
            except BufferError:
                producer.poll(0.005)
    left = producer.flush(librdkafka.DEADLINE_S)
    assert left == 0, f"{left} records were not delivered"


def _confluent_poll(address: str, topic: str, count: int) -> None:
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": address,
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


def _aiokafka_send(address: str, topic: str, count: int, size: int) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        value = bytes(size)
        producer = AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5)
        await producer.start()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.stop()

    asyncio.run(run())


def _aiokafka_records(address: str, topic: str, count: int) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id=None, enable_auto_commit=False
        )
        await consumer.start()
        partitions = [TopicPartition(topic, n) for n in range(librdkafka.PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        for _ in range(count):
            await consumer.getone()
        await consumer.stop()

    asyncio.run(run())


COMPARED = (
    ("send", "confluent produce", "≥ 2"),
    ("send_many", "confluent produce", "≥ 2"),
    ("records", "confluent poll()", "≥ 2"),
    ("records", "confluent consume(10000)", "≥ 1"),
    ("async for, trio", "records", "≥ 1"),
    ("async for, asyncio", "records", "≥ 1"),
    ("batches().values()", "confluent consume(10000)", "≥ 2"),
    ("batches().to_arrow()", "confluent consume(10000)", "≥ 2"),
    ("send", "aiokafka send", "–"),
    ("records", "aiokafka getone()", "–"),
)


def rows(quick: bool = False) -> list[Entry]:
    """send, send_many, values, Arrow and record iteration at 100 B and 1 KiB."""
    found: list[Entry] = []
    try:
        module("aiokafka", "aiokafka")
        compared = list(COMPARED)
    except Missing as exc:
        compared = list(COMPARED[:-2])
        found.append(Note(f"aiokafka left out: {exc}"))
    with segbroker() as server, _a_core_each(server.pid) as is_apart:
        address = server.address
        if not is_apart:
            found.append(Note("one core for the client and the broker together"))
        for size, full in ((100, 500_000), (1024, 150_000)):
            count = (full // 20 if quick else full) // CHUNK * CHUNK
            few = count // AIOKAFKA_SHARE
            runs = Runs()
            for _ in range(1 if quick else ROUNDS):
                for name, number, send in (
                    ("confluent produce", count, _confluent_produce),
                    ("send", count, _send),
                    ("send_many", count, _send_many),
                    ("aiokafka send", few, _aiokafka_send),
                ):
                    if any(name in pair[:2] for pair in compared):
                        topic = librdkafka.create_topic(server, "disk")
                        _timed(runs, name, number, partial(send, address, topic, number, size))
                topic = librdkafka.create_topic(server, "disk")
                librdkafka.fill(address, topic, count, size)
                for name, number, read in (
                    ("confluent poll()", count, _confluent_poll),
                    ("confluent consume(10000)", count, librdkafka.consume),
                    ("records", count, _records),
                    ("async for, trio", count, partial(_async_records, backend="trio")),
                    ("async for, asyncio", count, partial(_async_records, backend="asyncio")),
                    ("batches().values()", count, _values),
                    ("batches().to_arrow()", count, _arrow),
                    ("aiokafka getone()", few, _aiokafka_records),
                ):
                    if any(name in pair[:2] for pair in compared):
                        _timed(runs, name, number, partial(read, address, topic, number))
            for name, peer, goal in compared:
                mine, theirs = runs.median(name), runs.median(peer)
                found.append(
                    Row(
                        f"our client, {name}, {count:,} × {size} B",
                        "disk",
                        f"{mine / 1e3:,.0f} k records/s, "
                        f"{runs.median(f'{name} cpu'):.2f} µs CPU each",
                        f"{peer} {theirs / 1e3:,.0f} k records/s, "
                        f"{runs.median(f'{peer} cpu'):.2f} µs",
                        f"{mine / theirs:.2f}",
                        goal,
                    )
                )
    return found

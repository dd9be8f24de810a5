"""Transactions of clients that we did not write: all of a transaction is seen, or nothing."""

import asyncio
import re
import secrets
import signal
from itertools import islice
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.structs import OffsetAndMetadata

from segbroker.client import Admin

from ..support.daemon import start
from ..support.scenario import ROOT
from .conftest import Play
from .test_java_client import each_release
from .test_java_client import report_of as java_report

DEADLINE_S = 60.0
PARTITIONS = 2
JAVA_SOURCE = ROOT / "tests/support/clients/TransactionSteps.java"
JAVA_STEPS = re.findall(r'steps\.put\("(\w+)"', JAVA_SOURCE.read_text())


def topic(address: str) -> str:
    name = f"tx-{secrets.token_hex(4)}"
    with Admin(address) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    return name


def producer(address: str, transactional_id: str, **conf: object) -> Producer:
    made = Producer(
        {"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 0, **conf}
    )
    made.init_transactions(DEADLINE_S)
    return made


def send(one: Producer, name: str, prefix: str, count: int = 6) -> list[bytes]:
    values = [f"{prefix}{n}".encode() for n in range(count)]
    for n, value in enumerate(values):
        one.produce(name, value, partition=n % PARTITIONS)
    return values


def read(address: str, name: str, isolation: str = "read_committed") -> list[bytes]:
    """What a new reader sees up to the end, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": secrets.token_hex(4),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(name, n, 0) for n in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "no end of the partition"
        if message.error() is not None:
            ended.add(message.partition() or 0)
        else:
            values.append(message.value() or b"")
    consumer.close()
    return sorted(values)


def test_readers_of_committed_records_see_what_was_committed_alone(bootstrap: str) -> None:
    name = topic(bootstrap)
    one = producer(bootstrap, name)
    one.begin_transaction()
    committed = send(one, name, "committed-")
    one.commit_transaction(DEADLINE_S)
    one.begin_transaction()
    aborted = send(one, name, "aborted-")
    assert one.flush(DEADLINE_S) == 0
    one.abort_transaction(DEADLINE_S)
    one.begin_transaction()
    committed += send(one, name, "again-")
    one.commit_transaction(DEADLINE_S)
    assert read(bootstrap, name) == sorted(committed)
    one.begin_transaction()
    still_open = send(one, name, "open-")
    assert one.flush(DEADLINE_S) == 0
    assert read(bootstrap, name) == sorted(committed)
    everything = sorted(committed + aborted + still_open)
    assert read(bootstrap, name, "read_uncommitted") == everything
    one.abort_transaction(DEADLINE_S)


def test_a_second_instance_fences_the_first(bootstrap: str) -> None:
    name = topic(bootstrap)
    first = producer(bootstrap, name)
    first.begin_transaction()
    send(first, name, "first-")
    assert first.flush(DEADLINE_S) == 0
    second = producer(bootstrap, name)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(DEADLINE_S)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    values = send(second, name, "second-")
    second.commit_transaction(DEADLINE_S)
    assert read(bootstrap, name) == sorted(values)


def test_a_commit_survives_a_kill_and_what_was_open_is_not_seen(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    name = topic(daemon.address)
    one, other = (producer(daemon.address, f"{name}-{n}") for n in range(2))
    one.begin_transaction()
    committed = send(one, name, "committed-")
    one.commit_transaction(DEADLINE_S)
    other.begin_transaction()
    send(other, name, "open-")
    assert other.flush(DEADLINE_S) == 0
    address = daemon.address
    daemon.stop(signal.SIGKILL)
    daemon.again()
    try:
        assert read(address, name) == sorted(committed)
        other.abort_transaction(DEADLINE_S)
        one.begin_transaction()
        committed += send(one, name, "behind-")
        one.commit_transaction(DEADLINE_S)
        assert read(address, name) == sorted(committed)
    finally:
        daemon.stop()


def test_offsets_stand_when_their_transaction_commits(bootstrap: str) -> None:
    name = topic(bootstrap)
    group = f"{name}-group"
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    one = producer(bootstrap, name)
    place = [TopicPartition(name, 0, 3)]

    def stands() -> int:
        return consumer.committed([TopicPartition(name, 0)], DEADLINE_S)[0].offset

    for commits in (False, True):
        one.begin_transaction()
        send(one, name, "record-")
        one.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), DEADLINE_S)
        if commits:
            one.commit_transaction(DEADLINE_S)
        else:
            one.abort_transaction(DEADLINE_S)
        assert stands() == (3 if commits else OFFSET_INVALID)
    consumer.close()


@each_release
@pytest.mark.parametrize("step", JAVA_STEPS)
def test_java_client(release: str, step: str, play_once: Play, release_cache: Path) -> None:
    java_report(release, play_once, release_cache, JAVA_SOURCE).check(step)


def test_kafka_python_commits_aborts_and_sends_offsets(bootstrap: str) -> None:
    name = topic(bootstrap)
    one = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{name}-kafka-python")
    one.init_transactions()
    expected: list[bytes] = []
    for n, commits in enumerate((True, False, True)):
        one.begin_transaction()
        values = [b"%d-%d" % (n, k) for k in range(4)]
        for k, value in enumerate(values):
            one.send(name, value, partition=k % PARTITIONS)
        offsets = {KafkaPartition(name, 0): OffsetAndMetadata(10 + n, "", -1)}
        one.send_offsets_to_transaction(offsets, f"{name}-group")
        if commits:
            one.commit_transaction()
            expected += values
        else:
            one.flush()
            one.abort_transaction()
    one.close()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"{name}-group",
        isolation_level="read_committed",
        enable_auto_commit=False,
        consumer_timeout_ms=int(DEADLINE_S * 1000),
    )
    places = [KafkaPartition(name, n) for n in range(PARTITIONS)]
    assert consumer.committed(places[0]) == 12
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    assert sorted(record.value for record in islice(consumer, len(expected))) == sorted(expected)
    consumer.close()


def test_aiokafka_commits_aborts_and_sends_offsets(bootstrap: str) -> None:
    name = topic(bootstrap)

    async def run() -> None:
        one = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{name}-aiokafka")
        await one.start()
        expected: list[bytes] = []
        for n, commits in enumerate((True, False, True)):
            await one.begin_transaction()
            values = [b"%d-%d" % (n, k) for k in range(4)]
            for k, value in enumerate(values):
                await one.send(name, value, partition=k % PARTITIONS)
            await one.send_offsets_to_transaction({AioPartition(name, 0): 20 + n}, f"{name}-group")
            if commits:
                await one.commit_transaction()
                expected += values
            else:
                await one.flush()
                await one.abort_transaction()
        await one.stop()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=f"{name}-group",
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        await consumer.start()
        places = [AioPartition(name, n) for n in range(PARTITIONS)]
        assert await consumer.committed(places[0]) == 22
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        seen: list[bytes] = []
        while len(seen) < len(expected):
            records = await asyncio.wait_for(consumer.getmany(timeout_ms=1000), DEADLINE_S)
            seen += [record.value for rows in records.values() for record in rows]
        await consumer.stop()
        assert sorted(seen) == sorted(expected)

    asyncio.run(run())

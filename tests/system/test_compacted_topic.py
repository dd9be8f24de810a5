"""A compacted topic, cleaned while it is written, as clients of Kafka read it."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # in its __init__ all the same
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from segbroker.client import Consumer as OurConsumer
from segbroker.client import Record

from ..support.daemon import Daemon, running
from ..support.java import program
from ..support.tools import require

TIMEOUT_S = 120
TOPIC = "state"
KEYS = 7
COUNT = 300
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "4096",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "max.compaction.lag.ms": "1000",
    "segment.ms": "1000",
}
Row = tuple[int, str, str | None]


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, list[Row]]]:
    """A broker with a topic that was cleaned, and what confluent-kafka reads of it.

    The first three keys are deleted at the end, and a transaction was aborted.
    """
    data = tmp_path_factory.mktemp("compacted") / "data"
    with running(data, "--cleaner-backoff-ms", "50", "--log-format", "json") as daemon:
        admin = AdminClient({"bootstrap.servers": daemon.address})
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)]).values():
            future.result(TIMEOUT_S)
        write(daemon.address)
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(rows := read(daemon.address)) > KEYS:
            assert time.monotonic() < deadline_s, f"{len(rows)} records are left"
            time.sleep(0.2)
        yield daemon, rows


def write(address: str) -> None:
    plain = Producer({"bootstrap.servers": address, "linger.ms": 5, "compression.type": "lz4"})
    for n in range(COUNT):
        plain.produce(TOPIC, key=b"k%d" % (n % KEYS), value=b"%d" % n + bytes(60), partition=0)
        if n % 20 == 0:
            assert plain.flush(TIMEOUT_S) == 0
    transactional = Producer({"bootstrap.servers": address, "transactional.id": "t"})
    transactional.init_transactions(TIMEOUT_S)
    transactional.begin_transaction()
    for n in range(KEYS):
        transactional.produce(TOPIC, key=b"k%d" % n, value=b"aborted", partition=0)
    transactional.abort_transaction(TIMEOUT_S)
    for n in range(3):
        plain.produce(TOPIC, key=b"k%d" % n, value=None, partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    # A segment is full when segment.ms has passed and something comes behind it: no condition but
    # the time itself.
    time.sleep(1.2)
    for n in range(3, KEYS):
        plain.produce(TOPIC, key=b"k%d" % n, value=b"last %d" % n, partition=0)
    assert plain.flush(TIMEOUT_S) == 0


def read(address: str, offset: int = 0) -> list[Row]:
    """(offset, key, value) of the committed records, as librdkafka reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    rows: list[Row] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        while time.monotonic() < deadline_s:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return rows
            assert error is None, error
            rows.append(row(message.offset() or 0, message.key(), message.value()))
    finally:
        consumer.close()
    raise AssertionError(f"no end of the partition after {len(rows)} records")


def row(offset: int, key: object, value: object) -> Row:
    assert isinstance(key, bytes)
    assert value is None or isinstance(value, bytes)
    return offset, key.decode(), None if value is None else value.decode()


def test_the_last_of_each_key_is_left_and_what_was_deleted_and_aborted_is_not(
    compacted: tuple[Daemon, list[Row]],
) -> None:
    _, rows = compacted
    assert {key: value for _, key, value in rows if value is not None} == {
        f"k{n}": f"last {n}" for n in range(3, KEYS)
    }
    assert [offset for offset, _, _ in rows] == sorted(offset for offset, _, _ in rows)
    assert rows[-1][0] >= COUNT, "offsets are those that were given"


def test_a_position_whose_record_is_gone_goes_on_at_the_next(
    compacted: tuple[Daemon, list[Row]],
) -> None:
    daemon, rows = compacted
    for offset in (1, COUNT // 2, rows[0][0] - 1, rows[-1][0]):
        found = read(daemon.address, offset)
        assert [row for row in found if row[2] is not None] == [
            row for row in rows if row[0] >= offset and row[2] is not None
        ]


def test_kafka_python_reads_it(compacted: tuple[Daemon, list[Row]]) -> None:
    daemon, rows = compacted
    consumer = KafkaConsumer(bootstrap_servers=daemon.address, enable_auto_commit=False)
    try:
        partition = KafkaTopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        found: list[Row] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline_s, f"it stands at {consumer.position(partition)}"
            for records in consumer.poll(1_000).values():
                found += [row(one.offset, one.key, one.value) for one in records]
    finally:
        consumer.close()
    assert [row for row in found if row[2] is not None] == [row for row in rows if row[2]]


def test_kcat_reads_it(compacted: tuple[Daemon, list[Row]]) -> None:
    daemon, rows = compacted
    command = [
        require("kcat"),
        "-b",
        daemon.address,
        "-C",
        "-t",
        TOPIC,
        "-p",
        "0",
        "-o",
        "beginning",
    ]
    command += ["-e", "-q", "-J", "-X", "isolation.level=read_committed"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert run.returncode == 0, run.stderr
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert [(one["offset"], one["key"], one["payload"]) for one in found if one["payload"]] == [
        row for row in rows if row[2] is not None
    ]


def test_our_client_reads_it_and_takes_no_offset_for_lost(
    compacted: tuple[Daemon, list[Row]],
) -> None:
    daemon, rows = compacted
    with OurConsumer(daemon.address, TOPIC, start="start", stop_at_end=True) as consumer:
        found = list(consumer)
    assert all(isinstance(one, Record) for one in found), "no gap is told"
    assert [row(one.offset, one.key, one.value) for one in found if one.value is not None] == [
        row for row in rows if row[2] is not None
    ]


@pytest.mark.matrix
def test_the_java_client_reads_it(compacted: tuple[Daemon, list[Row]], release_cache: Path) -> None:
    daemon, rows = compacted
    command = [*program("ReadAll", release_cache), daemon.address, TOPIC]
    run = subprocess.run(command, capture_output=True, text=True, timeout=4 * TIMEOUT_S)
    assert run.returncode == 0, run.stderr
    found = [line.split("\t") for line in run.stdout.splitlines()]
    assert [(int(at), key, value) for at, key, value in found if value != "null"] == [
        row for row in rows if row[2] is not None
    ]


def test_kafkas_tools_see_and_change_its_settings(compacted: tuple[Daemon, list[Row]]) -> None:
    daemon, _ = compacted
    admin = AdminClient({"bootstrap.servers": daemon.address})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]).values()
    shown = {name: entry.value for name, entry in future.result(TIMEOUT_S).items()}
    assert shown["cleanup.policy"] == "compact"
    assert shown["min.cleanable.dirty.ratio"] == "0.01"
    assert shown["min.compaction.lag.ms"] == "0"
    assert shown["delete.retention.ms"] == "0"


def test_a_record_without_a_key_fails_at_its_producer(
    compacted: tuple[Daemon, list[Row]],
) -> None:
    daemon, _ = compacted
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": daemon.address})
    producer.produce(TOPIC, value=b"no key", partition=0, callback=lambda e, _: told.append(e))
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = told
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    assert not isinstance(error, KafkaException)

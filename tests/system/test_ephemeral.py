"""Class `ephemeral` over the wire: gone with the process, bounded, no offset given twice."""

import os
import signal
from pathlib import Path

import confluent_kafka
import pytest

from segbroker.client import Admin, Consumer, Gap, Producer, Record, TopicPartition

from ..support.daemon import Daemon, start

BLOCK = 1 << 20
MIB = 1 << 20
DEADLINE_POLLS = 120


def made(daemon: Daemon, **config: str) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1, config={"durability": "ephemeral", **config})


def produce(daemon: Daemon, *values: bytes) -> list[int]:
    with Producer(daemon.address, linger_ms=0) as producer:
        return [producer.send("t", value, partition=0).result().offset for value in values]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_reader_that_stays_over_a_restart_is_told_what_is_gone_and_goes_on(
    tmp_path: Path, how: signal.Signals
) -> None:
    daemon = start(tmp_path / "data")
    try:
        made(daemon)
        assert produce(daemon, b"a", b"b", b"c") == [0, 1, 2]
        first = 3 if how is signal.SIGTERM else BLOCK
        with Consumer(daemon.address, "t", on_gap="yield") as consumer:
            seen: list[Record | Gap] = []
            while len(seen) < 3:
                seen += consumer.poll(10, 1_000)
            daemon.stop(how)
            daemon.again()
            (offset,) = produce(daemon, b"d")
            assert offset >= first, "no offset is given twice"
            for _ in range(DEADLINE_POLLS):
                seen += consumer.poll(10, 1_000)
                if isinstance(seen[-1], Record) and seen[-1].value == b"d":
                    break
        records = [(one.offset, one.value) for one in seen if isinstance(one, Record)]
        assert records == [(0, b"a"), (1, b"b"), (2, b"c"), (offset, b"d")]
        lost = sum(one.lost_count for one in seen if isinstance(one, Gap))
        assert 3 + lost >= offset, "what it did not read it was told of"
    finally:
        daemon.stop()


@pytest.mark.timeout(300)
def test_librdkafka_that_stays_over_a_restart_goes_on(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": daemon.address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        made(daemon)
        produce(daemon, b"a")
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[bytes | None] = []
        for _ in range(DEADLINE_POLLS):
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value())
            if found == [b"a"]:
                daemon.stop(signal.SIGKILL)
                daemon.again()
                produce(daemon, b"b")
                found.append(b"restarted")
            if found[-1:] == [b"b"]:
                break
        assert found == [b"a", b"restarted", b"b"]
    finally:
        consumer.close()
        daemon.stop()


@pytest.mark.timeout(300)
def test_it_keeps_to_its_ceiling_in_memory_and_leaves_no_file(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    try:
        made(daemon, **{"retention.bytes": str(2 * MIB), "segment.bytes": str(MIB // 2)})
        with Producer(daemon.address, batch_bytes=MIB // 8) as producer:
            for _ in range(16):
                producer.send("t", os.urandom(MIB // 16), partition=0)
            producer.flush()
            before = resident_bytes(daemon)
            for number in range(16 * 64):
                producer.send("t", b"%d" % number + os.urandom(MIB // 16), partition=0)
        grown = resident_bytes(daemon) - before
        assert grown < 32 * MIB, f"64 MiB went through a topic of 2 MiB; {grown / MIB:.0f} more"
        with Admin(daemon.address) as admin:
            partition = TopicPartition("t", 0)
            start_offset = admin.offsets("t", "start")[partition].offset
            end = admin.offsets("t", "end")[partition].offset
        assert end == 16 * 65
        assert 0 < end - start_offset <= 16 * 4, "about 2 MiB are left"
        assert not list((tmp_path / "data").rglob("*.log.*"))
        assert not (tmp_path / "data" / "topics" / "t").exists()
    finally:
        daemon.stop()


def resident_bytes(daemon: Daemon) -> int:
    pages = Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

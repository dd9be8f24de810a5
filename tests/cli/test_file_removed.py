"""A file is removed or replaced under a running broker, one of a segment, of the write-ahead log or
of the metadata: what was acknowledged is put back from what else has it, or its loss is told at
once, not at the next start."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from segbroker.cli.exit_codes import ExitCode
from segbroker.client import Admin, Consumer, Producer
from segbroker.client.errors import GapError

from ..support.daemon import Daemon, running, start
from ..support.waiting import until
from .conftest import in_process


def send(daemon: Daemon, value: bytes) -> None:
    with Producer(daemon.address) as producer:
        producer.send("t", value, partition=0)


def stored(daemon: Daemon) -> list[bytes | None]:
    with Consumer(daemon.address, "t", start="start", stop_at_end=True) as consumer:
        return [record.value for record in consumer]


def truncate(path: Path) -> None:
    path.write_bytes(b"")


def begin(data: Path, durability: str, go_away: Callable[[Path], object] = Path.unlink) -> Daemon:
    """A broker with a topic of one record, whose segments, also those made ahead, were removed.
    It does not look after them before it is stopped."""
    daemon = start(data, "--housekeeping-interval-ms", "600000")
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1, config={"durability": durability})
    send(daemon, b"before")
    for path in data.glob("topics/t/partition_0/*.log"):
        go_away(path)
    return daemon


def test_an_orderly_stop_keeps_what_the_write_ahead_log_has(data: Path) -> None:
    daemon = begin(data, "fsync")
    send(daemon, b"behind")
    assert daemon.stop() == ExitCode.SYSTEM
    assert any("removed" in event["error"] for event in daemon.events("partition_failed"))
    with running(data) as again:
        assert stored(again) == [b"before", b"behind"]
    assert in_process("verify", str(data)).returncode == ExitCode.OK


def test_so_it_does_where_an_older_copy_was_put_in_its_place(data: Path) -> None:
    daemon = start(data)
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1)
    send(daemon, b"before")
    for path in data.glob("topics/t/partition_0/*.log"):
        copy = shutil.copy(path, data.with_name("copy"))
        send(daemon, b"between")
        Path(copy).rename(path)
    send(daemon, b"behind")
    assert daemon.stop() == ExitCode.SYSTEM
    with running(data) as again:
        assert stored(again) == [b"before", b"between", b"behind"]
    assert in_process("verify", str(data)).returncode == ExitCode.OK


def test_so_it_does_where_its_file_was_cut(data: Path) -> None:
    daemon = start(data)
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1)
    send(daemon, b"before")
    for path in data.glob("topics/t/partition_0/*.log"):
        truncate(path)
    assert daemon.stop() == ExitCode.SYSTEM
    assert any("cut" in event["error"] for event in daemon.events("partition_failed"))
    with running(data) as again:
        assert stored(again) == [b"before"]
    assert in_process("verify", str(data)).returncode == ExitCode.OK


def test_the_status_says_where_only_a_restart_makes_a_partition_writable(data: Path) -> None:
    daemon = start(data)
    with Admin(daemon.address) as admin:
        config = {"segment.bytes": "512", "max.message.bytes": "512"}
        admin.create_topic("t", partitions=1, config=config)
    send(daemon, b"before")
    for path in data.glob("topics/t/partition_0/*.log"):
        truncate(path)
    send(daemon, bytes(400))  # into the next segment: this one is synced
    until(lambda: b"restart" in in_process("broker", "status", "-b", daemon.address).stdout)
    daemon.stop()
    with running(data) as again:
        assert stored(again) == [b"before", bytes(400)]
        assert b"no problems" in in_process("broker", "status", "-b", again.address).stdout


@pytest.mark.parametrize("go_away", [Path.unlink, truncate])
def test_another_file_of_the_write_ahead_log_takes_the_place_of_one_that_is_away(
    data: Path, go_away: Callable[[Path], object]
) -> None:
    flags = ("--wal-file-bytes", "65536", "--wal-bytes-max", "131072")
    daemon = start(data, *flags, "--housekeeping-interval-ms", "20")
    with Admin(daemon.address) as admin:
        admin.create_topic("t", partitions=1)
    send(daemon, b"before")
    wal = data / "wal" / "shard-00"
    in_use = sorted(path.name for path in wal.iterdir())
    for name in in_use:
        go_away(wal / name)
    until(lambda: len(daemon.events("wal_file_removed")) == len(in_use))
    until(lambda: not (data / "wal" / "shard-00.wal-0").exists())  # nothing needs it any more
    with Producer(daemon.address) as producer:  # more than there is room for
        sent = [bytes([number]) * 40_000 for number in range(8)]
        for value in sent:
            producer.send("t", value, partition=0)
            producer.flush()
    daemon.stop(signal.SIGKILL)
    with running(data) as again:
        assert stored(again) == [b"before", *sent]
        assert not again.events("wal_frames_missing")


def cut_snapshots(meta: Path) -> None:
    for path in meta.glob("snapshot-*.msgpack"):
        truncate(path)


@pytest.mark.parametrize("take", [shutil.rmtree, cut_snapshots])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_metadata_that_was_removed_is_written_anew(
    data: Path, how: signal.Signals, take: Callable[[Path], None]
) -> None:
    with running(data) as daemon:
        with Admin(daemon.address) as admin:
            admin.create_topic("t", partitions=1)
        send(daemon, b"before")
    daemon = start(data)  # nothing has changed since
    meta = data / "meta"
    there = set(meta.glob("snapshot-*.msgpack"))
    take(meta)
    if how is signal.SIGKILL:
        until(lambda: not there >= set(meta.glob("snapshot-*.msgpack")))
        assert daemon.events("snapshot_removed")
    assert daemon.stop(how) == (ExitCode.OK if how is signal.SIGTERM else -how)
    with running(data) as again:
        assert stored(again) == [b"before"]


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_without_a_copy_the_stop_writes_anew_what_is_open(data: Path, durability: str) -> None:
    daemon = begin(data, durability)
    assert daemon.stop() == ExitCode.SYSTEM
    assert any("removed" in event["error"] for event in daemon.events("partition_failed"))
    with running(data) as again:
        assert stored(again) == [b"before"]
    assert in_process("verify", str(data)).returncode == ExitCode.OK


def test_a_segment_that_is_cut_and_has_no_copy_is_told_by_the_stop(data: Path) -> None:
    daemon = begin(data, "disk", truncate)
    assert daemon.stop() == ExitCode.SYSTEM
    with running(data) as again:
        with pytest.raises(GapError):
            stored(again)
        assert again.events("recovery_gap")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"

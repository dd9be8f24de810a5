"""The segmented log as a library."""

import errno
import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from segbroker.protocol.record_batch import InvalidBatch, encode_batch, read_header
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.errors import (
    BatchTooLarge,
    LogClosed,
    LogInUse,
    OffsetOutOfRange,
    PartitionReadOnly,
)
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import SMALL, offsets_in, values_of


def open_small(disk: MemoryStorage, **settings: str) -> SegmentedLog:
    config = TopicConfig({**SMALL.overrides, **settings})
    return SegmentedLog.open(disk, "/log", "t", config, now_ms=1_000)


def test_records_come_back_in_order_from_posix_files(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    with SegmentedLog.open(PosixStorage(), folder, "t", SMALL, now_ms=1) as log:
        for i in range(100):
            assert log.append([b"%d" % i], now_ms=i) == i
    with SegmentedLog.open(PosixStorage(), folder, "t", SMALL, now_ms=1) as log:
        assert values_of(log) == [b"%d" % i for i in range(100)]
        assert log.log_end_offset == 100
    assert (tmp_path / "log" / "t_segment_0.log").stat().st_size <= 512


def test_a_log_is_open_once_at_a_time(tmp_path: Path) -> None:
    path = f"{tmp_path}/log"
    with SegmentedLog.open(PosixStorage(), path, now_ms=1) as log:
        with pytest.raises(LogInUse, match="open already, here or in another process"):
            SegmentedLog.open(PosixStorage(), path, now_ms=1)
        log.append([b"one"], now_ms=1)
    with SegmentedLog.open(PosixStorage(), path, now_ms=1) as log:
        assert values_of(log) == [b"one"]
        log.remove()
    with SegmentedLog.open(PosixStorage(), path, now_ms=1) as log:
        assert values_of(log) == []


def close_it(log: SegmentedLog) -> None:
    log.close()


def expire(log: SegmentedLog) -> None:
    log.expire(100, now_ms=100)


def truncate(log: SegmentedLog) -> None:
    log.truncate(5, now_ms=100)


def remove_it(log: SegmentedLog) -> None:
    log.remove()


@pytest.mark.parametrize("do", [close_it, expire, truncate, remove_it])
def test_a_log_whose_directory_was_replaced_changes_nothing_in_the_other(
    tmp_path: Path, do: Callable[[SegmentedLog], None]
) -> None:
    # A backup that was put back under a process that has the log open.
    folder, backup = tmp_path / "log", tmp_path / "backup"
    log = SegmentedLog.open(PosixStorage(), str(folder), "t", SMALL, now_ms=1)
    for value in range(30):
        log.append([b"%30d" % value], now_ms=1)
    shutil.copytree(folder, backup)
    for value in range(30):
        log.append([b"%30d" % value], now_ms=1)
    folder.rename(tmp_path / "away")
    shutil.copytree(backup, folder)
    with pytest.raises((OSError, PartitionReadOnly), match="moved, replaced"):
        do(log)
    log.close()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in backup.iterdir()
    }


class Watched(PosixStorage):
    """Of the log `path` nothing is removed that another could open."""

    path = ""

    def unlink(self, path: str) -> None:
        with pytest.raises(LogInUse):
            SegmentedLog.open(PosixStorage(), self.path, now_ms=1)
        super().unlink(path)


class Unremovable(PosixStorage):
    def unlink(self, path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)


def test_what_is_being_removed_is_opened_by_nobody(tmp_path: Path) -> None:
    disk = Watched()
    log = SegmentedLog.open(disk, f"{tmp_path}/log", now_ms=1)
    log.append([b"one"], now_ms=1)
    disk.path = f"{tmp_path}/log"
    log.remove()
    assert not (tmp_path / "log").exists()


def test_who_had_the_lock_file_of_a_log_that_was_removed_does_not_have_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/log"
    first = SegmentedLog.open(PosixStorage(), path, now_ms=1)
    others: list[SegmentedLog] = []
    lock = fcntl.flock

    def flock(file: int, how: int) -> None:
        monkeypatch.undo()
        first.remove()
        others.append(SegmentedLog.open(PosixStorage(), path, now_ms=1))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(LogInUse):
        SegmentedLog.open(PosixStorage(), path, now_ms=1)
    others[0].close()


def test_a_log_that_could_not_be_removed_can_be_opened(tmp_path: Path) -> None:
    path = f"{tmp_path}/log"
    log = SegmentedLog.open(Unremovable(), path, now_ms=1)
    with pytest.raises(OSError, match="Input/output error"):
        log.remove()
    SegmentedLog.open(PosixStorage(), path, now_ms=1).close()


FORKED = """
import os, sys
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.library.log import SegmentedLog
log = SegmentedLog.open(PosixStorage(), sys.argv[1], now_ms=1)
ended, end = os.pipe()
if not os.fork():
    os.close(end)
    os.read(ended, 1)
    os._exit(0)
log.close()
SegmentedLog.open(PosixStorage(), sys.argv[1], now_ms=1).close()
"""


def test_a_log_that_was_closed_is_not_open_in_a_child_of_the_process(tmp_path: Path) -> None:
    """As those of multiprocessing are, which live on."""
    subprocess.run([sys.executable, "-c", FORKED, f"{tmp_path}/log"], check=True)


def test_a_segment_rolls_before_the_write_that_would_pass_its_size() -> None:
    disk = MemoryStorage()
    batch = encode_batch([b"x" * 182], timestamps_ms=0)
    with open_small(disk) as log:
        for _ in range(3):
            log.append(batch, now_ms=0)
        sizes = [
            disk.open(f"/log/t_segment_{k}.log").size()
            for k in range(3)
            if disk.exists(f"/log/t_segment_{k}.log")
        ]
    assert max(sizes) <= 512
    assert sizes[0] == 2 * len(batch)
    assert sizes[1] == len(batch)


def test_a_segment_rolls_by_records_and_by_age() -> None:
    with open_small(MemoryStorage(), **{"segment.records": "2"}) as log:
        for _ in range(4):
            log.append([b""], now_ms=0)
        assert log.segments_count == 2
    with open_small(MemoryStorage(), **{"segment.ms": "50"}) as log:
        log.append([b""], now_ms=100)
        log.append([b""], now_ms=149)
        assert log.segments_count == 1
        log.append([b""], now_ms=150)
        assert log.segments_count == 2


def test_a_segment_rolls_by_the_size_of_its_index() -> None:
    config = {"segment.bytes": "1000000", "segment.index.bytes": "96"}
    with open_small(MemoryStorage(), **config) as log:
        for _ in range(3):
            log.append([b"x" * 5_000], now_ms=0)
        assert log.segments_count == 2


def test_a_batch_that_fits_no_segment_is_refused_before_it_has_an_offset() -> None:
    with open_small(MemoryStorage()) as log:
        with pytest.raises(BatchTooLarge, match=r"batch of \d+ bytes.*segment.bytes.* is 512"):
            log.append([b"x" * 600], now_ms=0)
        assert log.append([b"y"], now_ms=0) == 0


def test_damaged_batches_are_not_appended() -> None:
    batch = bytearray(encode_batch([b"abc"], timestamps_ms=0))
    batch[-2] ^= 1
    with open_small(MemoryStorage()) as log:
        with pytest.raises(InvalidBatch):
            log.append(batch, now_ms=0)
        assert log.log_end_offset == 0


def test_a_read_begins_at_the_batch_that_holds_the_offset() -> None:
    with open_small(MemoryStorage()) as log:
        for _ in range(20):
            log.append([b"a", b"b", b"c"], now_ms=0)
        for offset in range(60):
            found = log.read(offset)
            assert read_header(found).base_offset == offset // 3 * 3
        assert len(log.read(60)) == 0


def test_a_read_spans_segments_and_keeps_its_limit() -> None:
    with open_small(MemoryStorage()) as log:
        for _ in range(20):
            log.append([b"x" * 100], now_ms=0)
        assert log.segments_count > 3
        assert offsets_in(log.read(0, 1 << 20)) == list(range(20))
        size = len(log.read(0, 1))
        assert offsets_in(log.read(0, 1)) == [0]
        # Blocks are read whole, so what lies before the offset may cost a batch of the limit.
        found = log.read(3, size * 4 + 3)
        assert len(found) <= size * 4 + 3
        assert offsets_in(found) in ([3, 4, 5], [3, 4, 5, 6])


def test_a_read_of_segments_that_nobody_has_read_yet_spans_them_and_keeps_its_limit() -> None:
    disk = MemoryStorage()
    with open_small(disk) as log:
        for _ in range(20):
            log.append([b"x" * 100], now_ms=0)
        full = len(log.read(0, 1 << 20))
    for limit, offsets in ((1 << 20, range(20)), (full // 2, range(9))):
        with open_small(disk) as log:
            found = log.read(0, limit)
            assert len(found) <= limit
            assert offsets_in(found) == list(offsets)
    with open_small(disk) as log:
        assert offsets_in(log.read(1, 1 << 20))[0] == 1, "the plan begins inside a segment"
        assert offsets_in(log.read(1, 1 << 20)) == list(range(1, 20))


def test_offsets_outside_the_log_are_refused() -> None:
    with open_small(MemoryStorage()) as log:
        log.append([b"a"], now_ms=0)
        for offset in (-1, 2):
            with pytest.raises(OffsetOutOfRange, match=rf"offset {offset} outside \[0, 1\)"):
                log.read(offset)


def test_a_stream_has_exactly_the_range_asked_for() -> None:
    with open_small(MemoryStorage()) as log:
        for i in range(30):
            log.append([b"%d" % (2 * i), b"%d" % (2 * i + 1)], now_ms=i)
        assert [r.offset for r in log.stream(7, 51)] == list(range(7, 51))


def test_offsets_are_found_by_time_in_sealed_and_active_segments() -> None:
    with open_small(MemoryStorage()) as log:
        for i in range(40):
            log.append([b"x" * 50], now_ms=100 + 10 * i)
        assert log.offset_for_timestamp(0) == (0, 100)
        assert log.offset_for_timestamp(111) == (2, 120)
        assert log.offset_for_timestamp(490) == (39, 490)
        assert log.offset_for_timestamp(491) is None


@pytest.mark.parametrize("offset", [0, 1, 7, 20, 39])
def test_truncate_cuts_the_end_and_the_log_goes_on(offset: int) -> None:
    disk = MemoryStorage()
    with open_small(disk) as log:
        for i in range(40):
            log.append([b"%d" % i], now_ms=i)
        assert log.truncate(offset, now_ms=0) == offset
        assert log.append([b"new"], now_ms=0) == offset
    with open_small(disk.after_power_cut()) as log:
        assert values_of(log) == [*(b"%d" % i for i in range(offset)), b"new"]


def test_expire_deletes_whole_old_segments_and_their_files() -> None:
    disk = MemoryStorage()
    with open_small(disk) as log:
        for i in range(40):
            log.append([b"x" * 50], now_ms=i)
        assert log.expire(20, now_ms=100) > 0
        start = log.log_start_offset
        assert 0 < start <= 20
        assert not disk.exists("/log/t_segment_0.log")
        assert [r.offset for r in log.stream()] == list(range(start, 40))
    with open_small(disk.after_power_cut()) as log:
        assert log.log_start_offset == start
        assert [r.offset for r in log.stream()] == list(range(start, 40))


def test_remove_leaves_nothing() -> None:
    disk = MemoryStorage()
    log = open_small(disk)
    log.append([b"a"], now_ms=0)
    log.remove()
    assert not disk.exists("/log")
    with pytest.raises(LogClosed):
        log.append([b"a"], now_ms=0)

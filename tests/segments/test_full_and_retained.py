"""A volume that has room for small files and for none of the write-ahead log, and retention.

full -> the log opened again: seals, writes its manifest -> no BARRIER: as it was
     -> retention goes on in the log of before            -> opened again, ...
"""

import errno

import pytest

from segbroker.protocol.record_batch import GapReason
from segbroker.segments.background import Housekeeper, Task
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Buffer
from segbroker.segments.errors import DiskFull
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .tools import SMALL, append, batch_of, offsets_in, read_from

SEGMENT_SIZE = 3 * 129


class _FullDisk(MemoryStorage):
    """No file with one of `full` in its path takes another byte."""

    full: tuple[str, ...] = ()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        return _FullFile(path, super().open(path, create=create, read_only=read_only)._inode, self)


class _FullFile(MemoryFile):
    def pwrite(self, data: Buffer, position: int) -> int:
        assert isinstance(self._disk, _FullDisk)
        if any(part in self.path for part in self._disk.full):
            raise OSError(errno.ENOSPC, "no space", self.path)
        return super().pwrite(data, position)


class _Busy(Housekeeper):
    """Has not come to what was submitted."""

    is_threaded = True

    def submit(self, task: Task) -> None:
        pass


def _write(handler: DiskHandler, number: int) -> None:
    append(handler, batch_of(b"%03d" % number + b"x" * 57))


def _retain(handler: DiskHandler, segments: int) -> None:
    """Have retention take all but so many segments, and the active one."""
    size = str(segments * SEGMENT_SIZE)
    handler._log.reconfigure(TopicConfig({**SMALL.overrides, "retention.bytes": size}))
    handler.keep_house(60_000)


def test_what_retention_takes_of_a_log_that_could_not_be_opened_again_is_told_as_that() -> None:
    disk = _FullDisk()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in range(220):
        _write(handler, number)
        _retain(handler, 15)  # of which the manifest has the history
    handler._rolling._housekeeper = _Busy(threaded=False)
    for number in range(220, 230):
        _write(handler, number)
    assert len(handler._log.rotating) == 3
    disk.full = ("_segment_", "/wal/")
    with pytest.raises(DiskFull):
        _write(handler, 230)
    disk.full = ("/wal/",)
    for count, segments in enumerate((15, 12), 1):
        assert not handler.try_recover(100_000 * count), "the shard has no other file"
        _retain(handler, segments)
    start = handler.log_start_offset
    assert start == 192
    again = DiskManager("/data", storage=disk.after_kill(), flushers=0, now_ms=1_000)
    again.open()
    for one in (again.get_handler("t", 0), handler):
        disk.full = ()
        assert one is not handler or handler.try_recover(300_000)
        assert (one.log_start_offset, one.evict_floor) == (start, start)
        assert one.evict_reason is GapReason.CAP
        assert offsets_in(read_from(one, start)) == list(range(start, 230))


@pytest.mark.parametrize("cause", [errno.EIO, errno.ENOSPC])
def test_no_row_is_written_behind_those_of_an_opening_that_could_not_sync_them(cause: int) -> None:
    disk = RecordingStorage()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in range(40):
        _write(handler, number)
    _retain(handler, 8)  # of which the manifest has a row that an opening writes once more
    disk.faults = [
        Fault("pwrite", ".log", 0, errno.ENOSPC),
        Fault("fdatasync", ".manifest", 0, cause),
    ]
    with pytest.raises(DiskFull):
        _write(handler, 40)
    assert not handler.try_recover(100_000), "the sync of its manifest fails"
    _retain(handler, 4)
    start = handler.log_start_offset
    assert start == 27
    assert handler.try_recover(300_000)
    _write(handler, 40)
    assert not disk.violations
    for image in Images(disk).now():
        again = DiskManager("/data", storage=image.build(), flushers=0, now_ms=1_000)
        again.open()
        one = again.get_handler("t", 0)
        assert (one.log_start_offset, one.evict_reason) == (start, GapReason.CAP)
        assert offsets_in(read_from(one, start)) == list(range(start, 41))

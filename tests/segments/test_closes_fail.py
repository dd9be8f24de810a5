"""A close that fails (a network file system tells there what it could not write) is no reason to
stay read-only, to wait for ever or to keep others open."""

import errno
from itertools import count

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Buffer
from segbroker.segments.errors import DiskFull
from segbroker.segments.log.log_storage import LogStorage, NamesNotSynced
from segbroker.segments.log.ready import ReadySegments
from segbroker.segments.log.sealing import seal
from segbroker.segments.names import LogPaths
from segbroker.segments.partition.handler import DiskHandler

from .compacted import Compacted
from .tools import SMALL, append, batch_of, offsets_in, read_from


class _Disk(MemoryStorage):
    """The close of an open file of this `suffix` fails, the `failing`-th from 0, and each until
    there were `most`; no segment takes a byte while `is_full`."""

    is_full = False
    failing = 1_000_000
    most = 1
    suffix = ""

    def __init__(self) -> None:
        super().__init__()
        self.open_files: list[str] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = super().open(path, create=create, read_only=read_only)
        self.open_files.append(path)
        return _File(path, file._inode, self)


class _File(MemoryFile):
    _disk: _Disk

    def pwrite(self, data: Buffer, position: int) -> int:
        if self._disk.is_full and "_segment_" in self.path:
            raise OSError(errno.ENOSPC, "no space", self.path)
        return super().pwrite(data, position)

    def close(self) -> None:
        disk = self._disk
        if self._closed:
            return
        super().close()
        disk.open_files.remove(self.path)
        disk.failing -= self.path.endswith(disk.suffix)
        if self.path.endswith(disk.suffix) and -disk.most <= disk.failing < 0:
            raise OSError(errno.EIO, "what was written before", self.path)


def _site(disk: _Disk) -> tuple[DiskManager, DiskHandler]:
    """A partition that a full disk has made read-only, with several segments."""
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in range(20):
        append(handler, batch_of(b"%060d" % number))
    disk.is_full = True
    with pytest.raises(DiskFull):
        append(handler, batch_of(bytes(60)))
    disk.is_full = False
    return manager, handler


def test_a_partition_is_writable_again_whichever_close_fails_on_the_way() -> None:
    for number in count():
        disk = _Disk()
        manager, handler = _site(disk)
        disk.failing = number
        for try_ in range(1, 4):
            manager.housekeeping(100_000 * try_)
        has_failed = disk.failing < 0
        assert handler.read_only is None, f"close {number}"
        assert offsets_in(read_from(handler, 0)) == list(range(20))
        manager.close()
        if not has_failed:
            break
    assert number > 20


def test_a_log_is_closed_whole_where_each_close_fails() -> None:
    disk = _Disk()
    manager, handler = _site(disk)
    disk.failing, disk.most = 0, 1_000
    handler.close(checkpoint=False)
    assert not [path for path in disk.open_files if "_segment_" in path]
    disk.most = 0
    manager.close()


def test_who_closes_a_log_does_not_wait_for_segments_that_could_not_be_made() -> None:
    disk = _Disk()
    disk.mkdir("/log")
    paths = LogPaths("/log", "log")
    storage = LogStorage(disk, paths.folder, lambda exc: None)
    ready = ReadySegments(storage, paths, -1, ahead_max=4)
    ready.target = 2
    disk.failing = 0

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "planned", path)

    disk.fsync_dir = refuse  # type: ignore[method-assign]
    with pytest.raises(NamesNotSynced, match="planned"):
        ready.make(0)
    ready.close()


def test_a_read_that_is_over_closes_all_that_were_sealed_meanwhile() -> None:
    disk = _Disk()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in range(2):
        append(handler, batch_of(b"%060d" % number))
        with handler._log.append_lock:
            handler._log.roll(1_000)
    plan = handler.plan_read(0, 1 << 20)
    assert plan is not None
    assert len(handler._log.rotating) == 2
    seal(handler._log)
    disk.failing, disk.most = 0, 1_000
    plan.release()
    disk.most = 0
    manager.close()
    assert not [path for path in disk.open_files if "_segment_" in path]


def test_who_opens_a_segment_is_not_told_what_the_close_of_another_says() -> None:
    disk = _Disk()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000, open_files_max=1)
    manager.open()
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    disk.failing, disk.most, disk.suffix = 0, 1_000, ".log"
    for number in range(6):
        append(handler, batch_of(b"%060d" % number))
        with handler._log.append_lock:
            handler._log.roll(1_000)
    seal(handler._log)
    assert len(manager.files) == 1, "the others have gone for it"
    for number in range(6):
        assert offsets_in(read_from(handler, number, 1)) == [number]
    handler.close(checkpoint=False)
    assert not [path for path in disk.open_files if "_segment_" in path]
    disk.most = 0
    manager.close()


def test_who_opens_a_partition_is_not_told_what_the_close_of_another_says() -> None:
    disk = _Disk()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    manager.create_topic("t", 2, SMALL)
    manager.limit_open(files_max=64, logs_max=64, logs_most=1)
    first = manager.get_handler("t", 0)
    append(first, batch_of(b"one"))
    first.sync()
    disk.failing, disk.most, disk.suffix = 0, 1_000, ".log"
    append(manager.get_handler("t", 1), batch_of(b"two"))
    assert disk.failing < 0, "the first has parked"
    disk.most = 0
    manager.close()
    assert not [path for path in disk.open_files if "_segment_" in path]


def test_what_is_deleted_goes_from_the_disk_where_each_close_fails() -> None:
    disk = _Disk()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    for number in range(6):
        append(handler, batch_of(b"%060d" % number))
        with handler._log.append_lock:
            handler._log.roll(1_000)
    seal(handler._log)
    disk.failing, disk.most, disk.suffix = 0, 1_000, ".log"
    assert handler.delete_records_before(4) == 4
    assert disk.failing < 0, "files of what is deleted were open"
    paths = handler._log.paths
    assert [disk.exists(paths.log(number)) for number in range(6)] == [False] * 4 + [True] * 2
    disk.most = 0
    manager.close()


def test_a_log_is_cleaned_where_the_close_of_what_was_synced_fails() -> None:
    disk = _Disk()
    log = Compacted(disk)
    for number in range(20):
        log.send((b"%d" % (number % 3), b"%060d" % number))
    disk.failing, disk.most, disk.suffix = 0, 1_000, ".cleaned"
    log.clean()
    assert disk.failing < 0, "a new segment was closed"
    compacting = log.handler.compacting
    assert (compacting.failures_count, compacting.cleanings_count) == (0, 1)
    disk.most = 0
    log.manager.close()

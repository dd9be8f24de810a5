"""A data directory that cannot be opened: nothing of it stays open, and it can be tried again."""

import errno
import threading
from contextlib import suppress

import pytest

from segbroker.segments.directory.manager import SMALL_WAL, DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.errors import CorruptMetadata, StorageError
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import append, batch_of, offsets_in, read_from


class FailingStorage(MemoryStorage):
    """Its n-th sync from now on fails, the first being 1; knows which files are open."""

    def __init__(self, image: MemoryStorage) -> None:
        super().__init__()
        self._root, self._boot = image._root, image._boot
        self.failing = 0
        self.files: list[MemoryFile] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _File(path, plain._inode, self)
        file.owner = self
        self.files.append(file)
        return file

    @property
    def open_count(self) -> int:
        return sum(not file._closed for file in self.files)


class _File(MemoryFile):
    owner: FailingStorage

    def fdatasync(self) -> None:
        self.owner.failing -= 1
        if not self.owner.failing:
            raise OSError(errno.EIO, "planted", self.path)
        super().fdatasync()


def a_disk_that_lost_power() -> MemoryStorage:
    """Two topics of which a start has something to put back, and something to find out."""
    disk = MemoryStorage()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    for durability in ("fsync", "disk"):
        manager.create_topic(durability, 2, TopicConfig({"durability": durability}))
        for partition in range(2):
            append(manager.get_handler(durability, partition), batch_of(b"x"))
    return disk.after_power_cut()


def test_whatever_sync_of_a_start_fails_no_file_and_no_thread_stays() -> None:
    image = a_disk_that_lost_power()
    threads = set(threading.enumerate())
    failures = 0
    for number in range(1, 1_000):
        disk = FailingStorage(image.after_kill())
        disk.failing = number
        manager = DiskManager("/data", storage=disk, wal=SMALL_WAL, now_ms=2_000)
        try:
            manager.open()
        except (StorageError, OSError):
            failures += 1
        else:
            with suppress(ExceptionGroup):  # a sync of the closing failed
                manager.close()
            if disk.failing > 0:
                break
        assert disk.open_count == 0
        assert not set(threading.enumerate()) - threads
    assert failures > 3  # threads sync as well, and what is theirs does not end a start


def test_a_start_that_the_system_gives_too_few_threads_for_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FailingStorage(a_disk_that_lost_power())
    threads = set(threading.enumerate())
    starts, left, failures = threading.Thread.start, 0, 0

    def start(thread: threading.Thread) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise RuntimeError("can't start new thread")
        starts(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    manager = DiskManager("/data", storage=disk, wal=SMALL_WAL, now_ms=2_000)
    while True:
        left = failures
        try:
            manager.open()
        except RuntimeError:
            failures += 1
        else:
            break
        assert disk.open_count == 0
        assert not set(threading.enumerate()) - threads
    monkeypatch.undo()
    manager.close()
    assert failures > 5


def test_a_start_that_failed_is_tried_again_by_the_same_manager() -> None:
    image = a_disk_that_lost_power()
    disk = FailingStorage(image)
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=2_000)
    disk.failing = 1
    with pytest.raises((StorageError, OSError), match="planted"):
        manager.open()
    manager.open()
    assert offsets_in(read_from(manager.get_handler("fsync", 0), 0)) == [0]
    manager.close()


def test_closing_what_could_not_be_opened_does_nothing() -> None:
    disk = a_disk_that_lost_power()
    for name in disk.listdir("/data/meta"):
        disk.unlink(f"/data/meta/{name}")
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=2_000)
    with pytest.raises(CorruptMetadata):
        manager.open()
    manager.close()

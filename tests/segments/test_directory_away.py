"""A data directory that is away for a while: what was opened or made meanwhile is not used behind
that, and nothing waits for its return."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.scrubbing import Scrubber
from segbroker.segments.directory.upkeep import VISITS_MAX
from segbroker.segments.disk.memory import MemoryLock, MemoryStorage
from segbroker.segments.errors import DataDirectoryGone, StorageError
from segbroker.segments.log.deleting import delete_records_before, unlink_doomed
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .tools import SMALL, append, batch_of, offsets_in, read_from

CLASSES = ("fsync", "disk", "memory")


class MountedLock(MemoryLock):
    disk: "Mounted"

    def is_in_place(self) -> bool:
        return next(self.disk.looks, False)


class Mounted(MemoryStorage):
    """One that is unmounted as soon as `looks` says so."""

    looks: Iterator[bool] = repeat(True)

    def lock(self, path: str, *, only_looks: bool = False) -> MountedLock:
        super().lock(path, only_looks=only_looks)
        lock = MountedLock(self._locks, path)
        lock.disk = self
        return lock


def fill(handler: DiskHandler) -> None:
    for _ in range(1_000):
        append(handler, batch_of(b"x" * 200))
        handler.flush_soon()


def files_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


@contextmanager
def replaced(data: Path, backup: Path) -> Iterator[None]:
    """Meanwhile a backup is in the place of the data directory."""
    away = data.rename(data.with_name("away"))
    shutil.copytree(backup, data)
    try:
        yield
    finally:
        data.rename(data.with_name("was-in-its-place"))
        away.rename(data)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[DiskManager]:
    """Of a data directory `data`, with a topic of each class and a record in its partition 1;
    `backup` beside it is a copy."""
    data = tmp_path / "data"
    with DiskManager(str(data), flushers=0) as made:
        for name in CLASSES:
            made.create_topic(name, 2, TopicConfig({**SMALL.overrides, "durability": name}))
            append(made.get_handler(name, 1), batch_of(b"saved"))
    shutil.copytree(data, tmp_path / "backup")
    with DiskManager(str(data), flushers=0) as opened:
        yield opened


def stored(manager: DiskManager, name: str, partition: int) -> list[int]:
    """The offsets that the next process finds."""
    manager.close()
    with DiskManager(manager.root, flushers=0) as again:
        return offsets_in(read_from(again.get_handler(name, partition), 0))


def test_what_was_to_be_unlinked_meanwhile_is_unlinked_when_it_is_back(
    manager: DiskManager, tmp_path: Path
) -> None:
    handler = manager.get_handler("memory", 0)
    for _ in range(10):
        append(handler, batch_of(b"x" * 200))
    first = Path(handler._log.paths.log(0))
    delete_records_before(handler._log, 8)
    away = (tmp_path / "data").rename(tmp_path / "away")
    unlink_doomed(handler._log)
    away.rename(tmp_path / "data")
    assert first.exists()
    unlink_doomed(handler._log)
    assert not first.exists()


@pytest.mark.parametrize("name", CLASSES)
def test_what_was_opened_in_its_place_is_not_written_to_behind_that(
    manager: DiskManager, tmp_path: Path, name: str
) -> None:
    with replaced(tmp_path / "data", tmp_path / "backup"):
        with pytest.raises(StorageError):  # before the next round of housekeeping
            append(manager.get_handler(name, 1), batch_of(b"meanwhile"))
        manager.housekeeping(2_000)
    manager.housekeeping(4_000)
    handler = manager.get_handler(name, 1)
    append(handler, batch_of(b"behind that"))
    handler.flush_soon()
    assert handler.high_watermark == 2
    assert stored(manager, name, 1) == [0, 1]


def test_what_is_rolled_or_made_ahead_meanwhile_is_not_in_its_place(
    manager: DiskManager, tmp_path: Path
) -> None:
    handler = manager.get_handler("fsync", 0)
    append(handler, batch_of(b"before"))
    handler.flush_soon()
    with replaced(tmp_path / "data", tmp_path / "backup"):
        with pytest.raises(StorageError):  # the next segment, or file of the write-ahead log
            fill(handler)
        manager.housekeeping(2_000)
        assert files_in(tmp_path / "data") == files_in(tmp_path / "backup")
    manager.housekeeping(4_000)
    append(handler, batch_of(b"behind that"))
    handler.flush_soon()
    end = handler.high_watermark
    assert end == handler.log_end_offset
    assert stored(manager, "fsync", 0) == list(range(end))


def test_what_a_deleted_topic_has_left_is_removed_when_it_is_back(
    manager: DiskManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not only by the next start: of a directory that is away nobody has removed anything.
    removals: list[Callable[[], None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(manager.partitions.threads.housekeeper, "submit", removals.append)
        manager.delete_topic("fsync")
    with replaced(tmp_path / "data", tmp_path / "backup"):
        for remove in removals:
            remove()
        manager.housekeeping(2_000)
    topics = tmp_path / "data" / "topics"
    assert len(list(topics.iterdir())) == len(CLASSES)
    manager.housekeeping(100_000)
    assert {path.name for path in topics.iterdir()} == {"disk", "memory"}


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_scrub_takes_nothing_for_damage_meanwhile(
    manager: DiskManager, tmp_path: Path, is_empty: bool
) -> None:
    handler = manager.get_handler("fsync", 0)
    for _ in range(10):
        append(handler, batch_of(b"x" * 200))
        handler.flush_soon()
    manager.keep_house_now(1_500)
    sealed = len(handler.sealed_numbers())
    assert sealed
    with replaced(tmp_path / "data", tmp_path / "backup"):
        if is_empty:
            shutil.rmtree(tmp_path / "data" / "topics" / "fsync")
        before = files_in(tmp_path / "data")
        scrubber = Scrubber(manager, 1 << 30, 0)
        scrubber.step(2_000)
        assert scrubber.statistics.errors == sealed, "not readable"
        assert files_in(tmp_path / "data") == before
    assert handler.read_only is None
    assert stored(manager, "fsync", 0) == list(range(10))


def test_a_round_of_housekeeping_ends_without_it() -> None:
    disk = Mounted()
    with DiskManager("/data", storage=disk, flushers=0) as manager:
        manager.create_topic("t", VISITS_MAX + 1, TopicConfig({"durability": "ephemeral"}))
        for partition in range(VISITS_MAX + 1):
            manager.get_handler("t", partition)
        disk.looks = iter((True,))  # at the beginning of the round alone
        manager.keep_house_now(2_000)
        disk.looks = repeat(True)


def test_a_manager_that_was_closed_without_it_can_be_opened_again(
    manager: DiskManager, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    away = data.rename(tmp_path / "away")
    with pytest.raises(DataDirectoryGone):
        manager.close()
    away.rename(data)
    manager.open()
    assert offsets_in(read_from(manager.get_handler("fsync", 1), 0)) == [0]

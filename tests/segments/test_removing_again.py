"""What of a deleted topic cannot be removed is removed as soon as it can be, without a start."""

import errno
from pathlib import Path
from types import MappingProxyType
from unittest.mock import patch

import pytest

from segbroker.segments.background import Housekeeper
from segbroker.segments.directory import manager as directory_manager
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.posix import PosixStorage
from segbroker.segments.disk.storage import remove_tree
from segbroker.segments.errors import StorageError
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.metadata.metadata import TopicMeta

from .tools import SMALL, append, batch_of


class Stubborn(MemoryStorage):
    """One kind of call fails, as on a file system that became read-only."""

    refuses = ""

    def _refuse(self, call: str, path: str) -> None:
        if call == self.refuses and "/topics" in path:
            raise OSError(errno.EROFS, "read-only", path)

    def rename(self, source: str, target: str) -> None:
        self._refuse("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._refuse("unlink", path)
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        if path.endswith("/topics"):
            self._refuse("fsync_dir", path)
        super().fsync_dir(path)


@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("call", ["rename", "unlink", "fsync_dir"])
def test_the_files_of_a_deleted_topic_go_when_the_disk_lets_them(
    call: str, made_again: bool
) -> None:
    disk = Stubborn()
    with DiskManager("/data", storage=disk, flushers=0) as manager:
        manager.create_topic("t", 1, SMALL)
        append(manager.get_handler("t", 0), batch_of(b"old"))
        disk.refuses = call
        manager.delete_topic("t")
        assert disk.listdir("/data/topics"), "they are still there"
        assert manager.statistics().not_removed_count == 1
        manager.housekeeping(60_000)
        assert disk.listdir("/data/topics")
        disk.refuses = ""
        if made_again:
            manager.create_topic("t", 1, SMALL)
            append(manager.get_handler("t", 0), batch_of(b"new"))
        manager.housekeeping(120_000)
        assert manager.statistics().not_removed_count == 0
        assert disk.listdir("/data/topics") == ["t"] * made_again
        if made_again:
            assert manager.get_handler("t", 0).log_end_offset == 1


def test_what_somebody_else_has_removed_is_not_tried_again() -> None:
    disk = Stubborn()
    with DiskManager("/data", storage=disk, flushers=0) as manager:
        manager.create_topic("t", 1, SMALL)
        append(manager.get_handler("t", 0), batch_of(b"old"))
        disk.refuses = "unlink"
        manager.delete_topic("t")
        disk.refuses = ""
        (grave,) = disk.listdir("/data/topics")
        remove_tree(disk, f"/data/topics/{grave}")
        manager.housekeeping(60_000)
        assert not manager._registry._not_removed


class Unclosable(MemoryStorage):
    """A close tells of an error, as that of a file on a network may; the file is closed."""

    fails = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = _Unclosable(path, plain._inode, self)
        file.owner = self
        return file


class _Unclosable(MemoryFile):
    owner: Unclosable

    def close(self) -> None:
        super().close()
        if self.owner.fails and self.path.endswith(".log") and "/topics/" in self.path:
            raise OSError(errno.EIO, "Input/output error", self.path)


def test_a_file_of_a_deleted_topic_that_cannot_be_closed_keeps_nothing_from_going() -> None:
    disk = Unclosable()
    manager = DiskManager("/data", storage=disk, flushers=0)
    manager.open()
    for name in ("one", "two"):
        manager.create_topic(name, 1, SMALL)
        for _ in range(3):
            append(manager.get_handler(name, 0), batch_of(bytes(300)))
    assert len(manager.files) == 4, "of the segments that are full"
    disk.fails = True
    outcomes = manager.delete_topics(["one", "two"])
    disk.fails = False
    assert not [one for one in outcomes if isinstance(one, StorageError)], "they are gone"
    assert not manager.topics
    assert not manager.handlers
    assert not len(manager.files), "they would be taken for those of the next topic of the name"
    assert not disk.listdir("/data/topics")


@pytest.mark.parametrize("linked", ["topics/t", "topics/t/partition_0"])
def test_a_deleted_topic_goes_though_a_directory_of_it_was_moved_and_linked(
    linked: str, tmp_path: Path
) -> None:
    data, moved = tmp_path / "data", tmp_path / "moved"
    with DiskManager(str(data), flushers=0, now_ms=1_000) as manager:
        manager.create_topic("t", 1, SMALL)
        append(manager.get_handler("t", 0), batch_of(b"old"))
    folder = data / linked
    folder.rename(moved)
    folder.symlink_to(moved)
    with DiskManager(str(data), flushers=0, now_ms=1_000) as manager:
        assert manager.get_handler("t", 0).log_end_offset == 1
        manager.delete_topic("t")
        assert not [*(data / "topics").iterdir()]
    assert not [*moved.iterdir()]


def test_a_link_among_the_files_of_a_partition_goes_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("not of a topic")
    with DiskManager(str(tmp_path / "data"), flushers=0, now_ms=1_000) as manager:
        manager.create_topic("t", 1, SMALL)
        append(manager.get_handler("t", 0), batch_of(b"old"))
        (tmp_path / "data/topics/t/partition_0/link").symlink_to(elsewhere)
        manager.delete_topic("t")
        assert not [*(tmp_path / "data/topics").iterdir()]
    assert (elsewhere / "mine").read_text() == "not of a topic"


def test_a_link_in_the_directory_of_a_library_log_goes_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("not of the log")
    log = SegmentedLog.open(PosixStorage(), str(tmp_path / "log"), now_ms=1)
    (tmp_path / "log/link").symlink_to(elsewhere)
    log.remove()
    assert [one.name for one in tmp_path.iterdir()] == ["elsewhere"]
    assert (elsewhere / "mine").read_text() == "not of the log"


@pytest.mark.parametrize(
    ("topic", "partition"), [("t", "partition_1"), ("partition_1", "partition_1"), ("t", "~0")]
)
def test_a_link_in_a_partition_that_was_not_finished_goes_alone(
    topic: str, partition: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("not of a topic")
    with DiskManager(str(tmp_path / "data"), flushers=0, now_ms=1_000) as manager:
        manager.create_topic(topic, 1, SMALL)
    folder = tmp_path / "data/topics" / topic / partition
    folder.mkdir()
    (folder / "quarantine").symlink_to(elsewhere)
    with DiskManager(str(tmp_path / "data"), flushers=0, now_ms=1_000) as manager:
        assert [row.what for row in manager.report.rows] == ["orphan_removed"]
    assert not folder.exists()
    assert (elsewhere / "mine").read_text() == "not of a topic"


@pytest.mark.parametrize("linked", ["topics/t", "topics/t/partition_0"])
def test_a_topic_that_a_kill_left_goes_though_a_directory_of_it_was_moved_and_linked(
    linked: str, tmp_path: Path
) -> None:
    data, moved = tmp_path / "data", tmp_path / "moved"
    with DiskManager(str(data), flushers=0, now_ms=1_000) as manager:
        manager.create_topic("t", 1, SMALL)
        append(manager.get_handler("t", 0), batch_of(b"old"))
    folder = data / linked
    folder.rename(moved)
    folder.symlink_to(moved)
    manager = DiskManager(str(data), flushers=0, now_ms=1_000)
    manager.open()
    manager._registry._move_away = lambda metas: []  # type: ignore[method-assign]
    manager.delete_topic("t")
    manager.close()
    with DiskManager(str(data), flushers=0, now_ms=1_000):
        assert not [*(data / "topics").iterdir()]
    assert not [*moved.iterdir()]


def test_what_nobody_could_be_asked_to_remove_is_removed_later() -> None:
    disk = MemoryStorage()
    with DiskManager("/data", storage=disk, flushers=0) as manager:
        manager.create_topic("t", 1, SMALL)
        append(manager.get_handler("t", 0), batch_of(b"old"))
        with patch.object(Housekeeper, "submit", side_effect=MemoryError):
            manager.delete_topic("t")
        assert disk.listdir("/data/topics")
        manager.housekeeping(60_000)
        assert not disk.listdir("/data/topics")


def test_a_topic_that_was_made_is_seen_when_there_is_memory_for_that() -> None:
    with DiskManager("/data", storage=MemoryStorage(), flushers=0) as manager:
        outcomes = [MemoryError, MappingProxyType]

        def proxy(topics: dict[str, TopicMeta]) -> MappingProxyType[str, TopicMeta]:
            made = outcomes.pop(0)
            if made is MemoryError:
                raise MemoryError
            return MappingProxyType(topics)

        with patch.object(directory_manager, "MappingProxyType", proxy):
            manager.create_topic("t", 1, SMALL)
        assert list(manager.topics) == ["t"]

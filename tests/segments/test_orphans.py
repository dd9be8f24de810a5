"""Directories of no topic: what a start removes, and what it never does."""

import errno
import os
import threading
from contextlib import suppress
from unittest.mock import patch

import pytest

from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory import topic_registry
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage, _Directory
from segbroker.segments.disk.storage import make_dirs, remove_tree
from segbroker.segments.errors import StorageError

from .crash.images import Images
from .crash.recording import Fault, RecordingStorage
from .crashing import Killed
from .test_putting_back import dies_behind
from .tools import SMALL, append, batch_of, manager_on, offsets_in, read_from


def disk_with_topics(*names: str) -> MemoryStorage:
    disk = MemoryStorage()
    manager = manager_on(disk)
    for name in names:
        manager.create_topic(name, 1, SMALL)
        append(manager.get_handler(name, 0), batch_of(b"value"))
    manager.close()
    return disk


def what(manager: DiskManager) -> list[tuple[str, str]]:
    return [(row.what, row.path.partition("~")[0]) for row in manager.report.rows]


def test_a_topic_that_was_not_created_in_the_end_is_removed() -> None:
    disk = disk_with_topics("t")
    disk.mkdir("/data/topics/u")
    disk.mkdir("/data/topics/u/partition_0")
    manager = manager_on(disk)
    assert what(manager) == [("orphan_removed", "/data/topics/u")]
    assert disk.listdir("/data/topics") == ["t"]


def test_a_topic_whose_deletion_was_interrupted_is_removed_with_its_records() -> None:
    disk = disk_with_topics("t", "u")
    manager = manager_on(disk)
    before = disk.after_kill()
    manager.delete_topic("u")
    after = disk.after_kill()
    # The metadata of after the deletion, the directories of before it.
    data, earlier = (image._root.names["data"] for image in (after, before))
    assert isinstance(data, _Directory)
    assert isinstance(earlier, _Directory)
    data.names["topics"] = earlier.names["topics"]
    manager = manager_on(after)
    assert what(manager) == [("orphan_removed", "/data/topics/u")]
    assert after.listdir("/data/topics") == ["t"]


def renames_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overlay, where a lower layer has it: an image of a container with topics."""
    rename = MemoryStorage.rename

    def files_only(disk: MemoryStorage, source: str, target: str) -> None:
        with suppress(NotADirectoryError):
            disk.listdir(source)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)
        rename(disk, source, target)

    monkeypatch.setattr(MemoryStorage, "rename", files_only)


def test_a_directory_that_its_file_system_does_not_rename_is_removed_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = disk_with_topics("t", "u", "v")
    renames_no_directory(monkeypatch)
    manager = manager_on(disk)
    before = disk.after_kill()
    manager.delete_topic("u")
    assert disk.listdir("/data/topics") == ["t", "v"]
    manager.create_topic("u", 1, SMALL)
    assert manager.get_handler("u", 0).log_end_offset == 0
    disk.mkdir("/data/topics/w")  # of a creation that failed
    manager.create_topic("w", 1, SMALL)
    assert what(manager_on(disk.after_kill())) == []
    manager = manager_on(before)
    with monkeypatch.context() as patch_:
        patch_.setattr(topic_registry, "move_to_grave", lambda *_, **__: False)
        manager.delete_topic("u")  # killed before it is removed
    after = before.after_kill()
    assert what(manager_on(after)) == [("orphan_removed", "/data/topics/u")]
    assert after.listdir("/data/topics") == ["t", "v"]


def test_a_directory_where_something_is_mounted_keeps_nobody_from_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rename, rmdir = MemoryStorage.rename, MemoryStorage.rmdir

    def refuse(path: str) -> None:
        if path == "/data/topics/u":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)

    def busy_rename(disk: MemoryStorage, source: str, target: str) -> None:
        refuse(source)
        rename(disk, source, target)

    def busy_rmdir(disk: MemoryStorage, path: str) -> None:
        refuse(path)
        rmdir(disk, path)

    disk = disk_with_topics("t", "u")
    monkeypatch.setattr(MemoryStorage, "rename", busy_rename)
    monkeypatch.setattr(MemoryStorage, "rmdir", busy_rmdir)
    manager = manager_on(disk)
    manager.delete_topic("u")
    assert disk.listdir("/data/topics/u") == [], "its room is given back"
    with pytest.raises(StorageError, match="Device or resource busy"):
        manager.create_topic("u", 1, SMALL)
    after = disk.after_kill()
    manager = manager_on(after)
    assert what(manager) == []
    assert manager.get_handler("t", 0).log_end_offset == 1
    monkeypatch.undo()
    manager.create_topic("u", 1, SMALL)
    assert manager.get_handler("u", 0).log_end_offset == 0


@pytest.mark.parametrize("is_renamed", [True, False])
def test_records_of_a_topic_that_nobody_deleted_are_set_aside_and_not_removed(
    monkeypatch: pytest.MonkeyPatch, *, is_renamed: bool
) -> None:
    # A directory copied in, or metadata put back from a backup.
    disk = disk_with_topics("t")
    other = disk_with_topics("u")
    folder = "/data/topics/u"
    disk._root.names["data"].names["topics"].names["u"] = other._directory(folder)  # type: ignore[union-attr]
    if not is_renamed:
        renames_no_directory(monkeypatch)
    manager = manager_on(disk)
    assert what(manager) == [("unknown_topic", "/data/quarantine/u")]
    disk = disk.after_power_cut()
    assert disk.listdir("/data/topics") == ["t"]
    (kept,) = disk.listdir("/data/quarantine")
    log = f"/data/quarantine/{kept}/partition_0/u_partition_0_segment_0.log"
    assert disk.open(log).size() > 0
    assert manager_on_again(disk, manager) == []


def manager_on_again(disk: MemoryStorage, manager: DiskManager) -> list[tuple[str, str]]:
    manager.close()
    return what(manager_on(disk))


class _Interrupted(MemoryStorage):
    """Ends the process, or fails, at the next sync of one directory."""

    at = ""
    failure: BaseException | None = None

    def fsync_dir(self, path: str) -> None:
        if self.failure is not None and path == self.at:
            failure, self.failure = self.failure, None
            raise failure
        super().fsync_dir(path)


@pytest.mark.parametrize("at", ["/data", "/data/quarantine", "/data/topics"])
@pytest.mark.parametrize("failure", [Killed, OSError])
def test_what_is_set_aside_outlives_an_interrupted_start_and_a_power_cut(
    failure: type[BaseException], at: str
) -> None:
    disk = _Interrupted()
    manager_on(disk).close()
    disk.mkdir("/data/topics/mine")
    file = disk.open("/data/topics/mine/backup.tar", create=True)
    file.pwrite(b"x", 0)
    file.fdatasync()
    for folder in ("/data/topics/mine", "/data/topics"):
        disk.fsync_dir(folder)
    disk.at, disk.failure = at, failure(errno.EIO, "not synced")
    with pytest.raises((Killed, StorageError)):
        manager_on(disk)
    disk._locks.clear()  # they end with the process
    manager_on(disk).create_topic("t", 1, SMALL)  # syncs topics/
    image = disk.after_power_cut()
    (kept,) = image.listdir("/data/quarantine")
    assert image.listdir(f"/data/quarantine/{kept}") == ["backup.tar"]


def test_a_directory_whose_number_is_written_otherwise_is_none_of_a_partition() -> None:
    disk = disk_with_topics("t")
    disk.mkdir("/data/topics/t/partition_07")
    disk.mkdir("/data/topics/mine")
    disk.mkdir("/data/topics/mine/partition_00")
    assert [one.text for one in DirectoryChecker(disk, "/data", 1_000).check() if one.is_damage]
    manager = manager_on(disk)
    assert what(manager) == [("unknown_topic", "/data/quarantine/mine")]
    assert disk.listdir("/data/topics/t") == ["partition_0", "partition_07"]


def test_what_somebody_put_beside_the_topics_is_set_aside_and_not_removed() -> None:
    # A copy of a topic has its records in files of the other's name.
    disk = disk_with_topics("t")
    topics = disk._root.names["data"].names["topics"]  # type: ignore[union-attr]
    topics.names["copy"] = disk_with_topics("t")._directory("/data/topics/t")  # type: ignore[union-attr]
    disk.mkdir("/data/topics/mine")
    disk.open("/data/topics/mine/backup.tar", create=True).pwrite(b"x", 0)
    manager = manager_on(disk)
    assert what(manager) == [
        ("unknown_topic", "/data/quarantine/copy"),
        ("unknown_topic", "/data/quarantine/mine"),
    ]
    assert disk.listdir("/data/topics") == ["t"]
    copy, mine = disk.listdir("/data/quarantine")
    log = f"/data/quarantine/{copy}/partition_0/t_partition_0_segment_0.log"
    assert disk.open(log).size() > 0
    assert disk.listdir(f"/data/quarantine/{mine}") == ["backup.tar"]
    assert manager_on_again(disk, manager) == []


@pytest.mark.parametrize("fault", [None, "/quarantine"])
def test_what_is_set_aside_outlives_a_power_cut(fault: str | None) -> None:
    before = disk_with_topics("t")
    before.mkdir("/data/topics/mine")
    before.open("/data/topics/mine/backup.tar", create=True).pwrite(b"x", 0)
    disk = RecordingStorage.over(before.after_kill())
    if fault is None:
        with patch.object(disk, "on_change", dies_behind(0)), pytest.raises(Killed):
            manager_on(disk)
        assert disk.listdir("/data/quarantine") == []
    else:
        disk.faults.append(Fault("fsync_dir", fault, 0))
        with pytest.raises(StorageError, match="planned"):
            manager_on(disk)
    disk.restart()
    manager = manager_on(disk)
    assert what(manager) == [("unknown_topic", "/data/quarantine/mine")]
    manager.create_topic("u", 1, SMALL)
    for image in Images(disk).now():
        assert [path for path in image.files() if path.endswith("backup.tar")]


def test_a_file_among_the_topics_is_left_alone() -> None:
    disk = disk_with_topics("t")
    disk.open("/data/topics/.DS_Store", create=True).pwrite(b"x", 0)
    manager = manager_on(disk)
    assert what(manager) == []
    assert disk.listdir("/data/topics") == [".DS_Store", "t"]
    assert offsets_in(read_from(manager.get_handler("t", 0), 0)) == [0]


def test_a_partition_past_the_topics_is_removed_or_set_aside() -> None:
    disk = disk_with_topics("t")
    disk.mkdir("/data/topics/t/partition_7")
    first = manager_on(disk)
    assert what(first) == [("orphan_removed", "/data/topics/t/partition_7")]
    first.close()
    disk.mkdir("/data/topics/t/partition_7")
    file = disk.open("/data/topics/t/partition_7/t_partition_7_segment_0.log", create=True)
    file.pwrite(b"records", 0)
    manager = manager_on(disk)
    assert what(manager) == [("unknown_topic", "/data/quarantine/t-7")]
    assert offsets_in(read_from(manager.get_handler("t", 0), 0)) == [0]


class HeldStorage(MemoryStorage):
    """The first file of a deleted topic is removed when `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go = threading.Event(), threading.Event()

    def unlink(self, path: str) -> None:
        if "/topics/~" in path:
            self.began.set()
            assert self.go.wait(60)
        super().unlink(path)


def test_a_stop_leaves_what_deleted_topics_left_to_the_next_start() -> None:
    disk = HeldStorage()
    others = set(threading.enumerate())
    manager = DiskManager("/data", storage=disk, flushers=1, now_ms=1_000)
    manager.open()
    (maker,) = (one for one in set(threading.enumerate()) - others if one.name == "segment-maker")
    for name in ("t", "u", "v"):
        manager.create_topic(name, 3, SMALL)
        append(manager.get_handler(name, 0), batch_of(b"value"))
    for name in ("u", "v"):
        manager.delete_topic(name)
    assert disk.began.wait(60)
    stopping = threading.Thread(target=manager.close)
    stopping.start()
    maker.join()  # then the stop is past the word that nothing more is to be removed
    disk.go.set()
    stopping.join()
    left = [name for name in disk.listdir("/data/topics") if name.startswith("~")]
    assert len(left) == 2, "one file of one of them is gone"
    findings = DirectoryChecker(disk, "/data", 1_000).check()
    assert not [one for one in findings if one.is_damage]
    again = manager_on(disk)
    assert set(again.topics) == {"t"}
    assert what(again) == [("orphan_removed", "/data/topics/")] * 2
    assert disk.listdir("/data/topics") == ["t"]
    assert offsets_in(read_from(again.get_handler("t", 0), 0)) == [0]


def test_of_many_deleted_topics_no_more_is_removed_at_once_than_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_registry, "REMOVED_AT_ONCE", 3)
    disk = HeldStorage()
    for number in range(4):
        make_dirs(disk, f"/data/topics/~{number}")
        for file in range(5):
            disk.open(f"/data/topics/~{number}/{file}", create=True)
    manager = DiskManager("/data", storage=disk, flushers=1, now_ms=1_000)
    manager.open()
    assert disk.began.wait(60)
    left: list[int] = []

    def look() -> None:
        names = disk.listdir("/data/topics")
        left.append(sum(len(disk.listdir(f"/data/topics/{name}")) for name in names))

    housekeeper = manager.partitions.threads.housekeeper
    housekeeper.submit(look)
    disk.go.set()
    housekeeper.wait_idle()
    assert left == [4 * 5 - 3]
    assert disk.listdir("/data/topics") == []
    manager.close()


def test_a_partition_that_gets_its_directory_from_the_write_ahead_log_is_not_missing() -> None:
    disk = disk_with_topics("t", "u")
    manager = manager_on(disk)
    append(manager.get_handler("t", 0), batch_of(b"only in the write-ahead log"))
    left = disk.after_kill()
    for name in ("t", "u"):
        remove_tree(left, f"/data/topics/{name}/partition_0")
    manager = manager_on(left)
    assert set(manager.partitions.failed_at_start) == {("u", 0)}
    assert manager.get_handler("t", 0).log_end_offset == 2

"""What a start syncs after a kill: once what it put back, and several partitions at a time."""

import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import StorageError
from segbroker.segments.settings.topic_config import TopicConfig

from .crash.observing import see_handler
from .crash.recording import Fault, RecordingStorage
from .test_putting_back import FIRST, ROOT, append, ends, manager_on

FOLDER = f"{ROOT}/topics/t/partition_0"


def killed() -> MemoryStorage:
    """A disk after a kill: the write-ahead log has records of two partitions."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 2, TopicConfig({"durability": "fsync"}))
    for number in range(3):
        append(manager, "t", 0, b"in the first %d" % number)
        append(manager, "t", 1, b"in the second %d" % number)
    return disk.after_kill()


def counted(disk: MemoryStorage) -> tuple[RecordingStorage, Counter[tuple[str, str]]]:
    """The disk, and what is synced on it in the directory of the first partition."""
    recording = RecordingStorage.over(disk)
    seen: Counter[tuple[str, str]] = Counter()

    def synced(call: str, path: str) -> None:
        if path.startswith(FOLDER):
            seen[call, path.rpartition("/")[2]] += 1

    recording.on_sync = synced
    return recording, seen


ONCE = {
    ("fdatasync", "t_partition_0_segment_0.log"): 1,
    ("fdatasync", "t_partition_0.manifest"): 1,
    ("fsync_dir", "partition_0"): 1,
}


def test_what_a_start_puts_back_is_synced_once() -> None:
    disk, seen = counted(killed())
    manager = manager_on(disk)
    assert seen == ONCE
    assert ends(manager) == [(3, 3), (3, 3)]
    assert seen == ONCE, "whoever asks for it finds it open"
    assert ends(manager_on(disk.after_power_cut())) == [(3, 3), (3, 3)]


def test_a_torn_write_behind_what_is_put_back_is_cut_and_that_is_synced() -> None:
    disk = killed()
    manager = manager_on(disk)
    append(manager, "t", 0, b"put back as well")
    file = disk.open(FOLDER + FIRST.removeprefix("/partition_0"))
    file.pwrite(bytes([255]) * 40, file.size())
    file.fdatasync()
    disk, seen = counted(disk.after_power_cut())
    manager = manager_on(disk)
    assert manager.report.counts["cut"] == 1
    assert seen["fdatasync", "t_partition_0_segment_0.log"] > 1
    again = manager_on(disk.after_power_cut())
    assert ends(again) == [(4, 4), (3, 3)]
    assert "cut" not in again.report.counts


def test_a_partition_that_could_not_be_opened_is_put_into_new_files_by_who_opens_it_later() -> None:
    disk, seen = counted(killed())
    disk.faults.append(Fault("fdatasync", "t_partition_0.manifest", 0))
    manager = manager_on(disk)
    assert not manager.handler_if_open("t", 0)
    assert manager.handler_if_open("t", 1)
    assert seen["fdatasync", "t_partition_0_segment_0.log"] == 1
    assert ends(manager) == [(3, 3), (3, 3)]
    assert seen["fdatasync", "t_partition_0_segment_0.log"] == 1
    assert seen["fdatasync", "t_partition_0_segment_0.log.tmp"] == 1


def copy_running(root: Path, left: Path) -> None:
    """Copy what a kill would leave; anew when a spare file of the WAL was renamed meanwhile."""
    for _ in range(50):
        with suppress(shutil.Error):
            shutil.copytree(root, left)
            return
        shutil.rmtree(left)
    raise AssertionError("its files have new names all the time")


def test_partitions_that_are_put_back_together_are_told_by_name(tmp_path: Path) -> None:
    root = tmp_path / "running"
    left = tmp_path / "killed"
    with DiskManager(str(root), now_ms=1_000) as manager:
        manager.create_topic("t", 20, TopicConfig({"durability": "fsync"}))
        for partition in range(20):
            batch = memoryview(bytearray(encode_batch([b"x"], timestamps_ms=1_000)))
            manager.get_handler("t", partition).append(batch, check_batch(batch), 1_000)
        for partition in range(20):
            manager.wal.barrier(bytes(16), partition)  # behind every record: all are durable
        copy_running(root, left)
    refused = left / "topics/t/partition_7/t_partition_7_segment_0.log"
    refused.unlink()
    refused.mkdir()
    with DiskManager(str(left), now_ms=1_000) as manager:
        (row,) = [row for row in manager.report.rows if row.what == "not_served"]
        assert (row.topic, row.partition) == ("t", 7)
        with pytest.raises(StorageError, match="partition 7 of 't' is not served"):
            manager.get_handler("t", 7)
        for partition in set(range(20)) - {7}:
            handler = manager.handler_if_open("t", partition)
            assert handler is not None, "opened before anybody asks"
            assert see_handler(handler).end == 1
        refused.rmdir()
        assert see_handler(manager.get_handler("t", 7)).end == 1

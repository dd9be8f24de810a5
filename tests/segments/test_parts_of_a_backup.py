"""A part of a backup put over newer files: the log ends earlier, and nothing in it says so.

    life      | 0 1 2 | backup | 3 4 5 | ends: in order, killed, by a power cut
    restored  the partition, wal/, meta/, or two of them, as they were at the backup

Either the start refuses, or what is missing is a gap or begins a leader epoch; and verify says so.
Nothing of that is told where nothing is missing.
"""

import errno
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.checks.findings import Finding
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Storage, make_dirs, read_file, remove_tree, replace_file
from segbroker.segments.errors import (
    CorruptMetadata,
    PartitionMissing,
    PartitionReadOnly,
    PartitionRefused,
)
from segbroker.segments.metadata.metadata import SETTLED, Ceiling
from segbroker.segments.names import partition_paths
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.files import list_files
from segbroker.segments.witness import WAL_FROM, least

from .crash.observing import see_handler
from .tools import append, batch_of, manager_on

PARTITION = partition_paths("/data", "t", 0).folder
WAL = "/data/wal"
META = "/data/meta"
PARTS = {
    "partition": [PARTITION],
    "wal": [WAL],
    "meta": [META],
    "wal and meta": [WAL, META],
    "partition and wal": [PARTITION, WAL],
    "partition and meta": [PARTITION, META],
}


def damage(disk: MemoryStorage) -> list[Finding]:
    """What verify tells as damage."""
    return [one for one in DirectoryChecker(disk.after_kill(), "/data", 0).check() if one.is_damage]


def is_folder(disk: Storage, path: str) -> bool:
    try:
        disk.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def put_over(disk: Storage, older: Storage, path: str) -> None:
    """Let `path` be what it is on the other disk."""
    if is_folder(disk, path):
        remove_tree(disk, path)
    copy(older, disk, path)


def copy(source: Storage, target: Storage, path: str) -> None:
    make_dirs(target, path)
    for name in source.listdir(path):
        below = f"{path}/{name}"
        if is_folder(source, below):
            copy(source, target, below)
        else:
            replace_file(target, below, bytes(read_file(source, below)))


def write(manager: DiskManager, topic: str, numbers: range) -> None:
    for number in numbers:
        append(manager.get_handler(topic, 0), batch_of(b"%d" % number))


def stopped(manager: DiskManager, disk: MemoryStorage) -> MemoryStorage:
    manager.close()
    return disk.after_power_cut()


def killed(manager: DiskManager, disk: MemoryStorage) -> MemoryStorage:
    return disk.after_kill()


def cut_off(manager: DiskManager, disk: MemoryStorage) -> MemoryStorage:
    return disk.after_power_cut()


def killed_after_a_start(manager: DiskManager, disk: MemoryStorage) -> MemoryStorage:
    manager.close()
    manager_on(disk).get_handler("t", 0)
    return disk.after_kill()


def killed_after_a_checkpoint(manager: DiskManager, disk: MemoryStorage) -> MemoryStorage:
    for _ in range(200):
        append(manager.get_handler("u", 0), batch_of(bytes(1_000)))
    manager.housekeeping(500_000)
    return disk.after_kill()


ENDS: list[Callable[[DiskManager, MemoryStorage], MemoryStorage]] = [
    stopped,
    killed,
    cut_off,
    killed_after_a_start,
    killed_after_a_checkpoint,
]


def life(
    durability: str,
    *,
    orderly: bool,
    ends: Callable[[DiskManager, MemoryStorage], MemoryStorage],
) -> tuple[MemoryStorage, MemoryStorage]:
    """(what is left, the backup); orderly: the broker was stopped for the backup."""
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": durability, "segment.bytes": "512"}))
    manager.create_topic("u", 1, TopicConfig({}))
    write(manager, "t", range(3))
    manager.housekeeping(100_000)
    if orderly:
        manager.close()
    older = disk.after_power_cut()
    if orderly:
        manager = manager_on(disk)
    write(manager, "t", range(3, 6))
    manager.housekeeping(300_000)
    manager.allocate_producer_ids(10)
    return ends(manager, disk), older


@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_a_backup_takes_records_without_a_word(
    part: str,
    ends: Callable[[DiskManager, MemoryStorage], MemoryStorage],
    durability: str,
    *,
    orderly: bool,
) -> None:
    disk, older = life(durability, orderly=orderly, ends=ends)
    newest = max(disk.listdir(META))
    for path in PARTS[part]:
        put_over(disk, older, path)
    told = damage(disk)
    if "meta" in part and max(older.listdir(META)) < newest:
        with pytest.raises(CorruptMetadata, match="was written after it"):
            manager_on(disk)
        assert any("was written after it" in one.text for one in told)
        return
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    seen = see_handler(handler)
    begins = [row.from_offset for row in manager.report.rows if row.what == "gap"]
    has_all = seen.end >= 6 and not begins
    assert has_all or told or durability == "disk", "verify says it"
    assert seen.end >= 6 or handler.leader_epoch > 0, "no offset is given again in its epoch"
    manager.close()
    manager = manager_on(disk)
    assert see_handler(manager.get_handler("t", 0)).end == seen.end
    assert not manager.report.rows, "told once"


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("ends", ENDS)
def test_a_whole_backup_is_no_damage(
    ends: Callable[[DiskManager, MemoryStorage], MemoryStorage], *, orderly: bool
) -> None:
    disk, older = life("fsync", orderly=orderly, ends=ends)
    for one in (disk, older):
        assert not damage(one)
        end = see_handler(manager_on(one.after_kill()).get_handler("t", 0)).end
        assert end == (3 if one is older else 6)


def test_a_partition_that_is_newer_than_what_vouches_for_it_has_lost_nothing() -> None:
    disk, older = life("fsync", orderly=True, ends=stopped)
    put_over(older, disk, PARTITION)
    assert not damage(older)
    manager = manager_on(older)
    handler = manager.get_handler("t", 0)
    assert (see_handler(handler).end, handler.leader_epoch) == (6, 0)
    assert not manager.report.rows


def test_what_an_orderly_stop_has_settled_vouches_in_every_later_life() -> None:
    disk, older = life("fsync", orderly=True, ends=stopped)
    manager = manager_on(disk)
    key = manager.topics["t"].topic_id, 0
    write(manager, "t", range(6, 9))
    assert manager._metadata.state.ceiling(key) == Ceiling(6, SETTLED)
    manager.close()
    manager = manager_on(disk)
    assert manager._metadata.state.ceiling(key) == Ceiling(9, SETTLED)
    snapshots = disk.listdir(META)
    manager.get_handler("t", 0)
    manager.close()
    assert disk.listdir(META) == snapshots, "a log that was only read costs no snapshot"
    put_over(disk, older, PARTITION)
    (told,) = damage(disk)
    assert (told.from_offset, told.to_offset) == (3, 9)
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    gaps = [(row.from_offset, row.to_offset, row.reason) for row in manager.report.rows]
    assert gaps == [(3, 9, "corruption")]
    assert append(handler, batch_of(b"next")).base_offset == 9
    assert handler.leader_epoch == 1


def test_the_gap_of_an_older_copy_sends_nobody_to_a_quarantine_that_is_not_there() -> None:
    disk, older = life("fsync", orderly=True, ends=stopped)
    put_over(disk, older, PARTITION)
    with capture_logs() as told:
        manager_on(disk).get_handler("t", 0)
    (gap,) = [line for line in told if line["event"] == "recovery_gap"]
    assert not disk.exists(f"{PARTITION}/quarantine")
    assert "quarantine" not in gap["advice"]
    assert "an older copy" in gap["advice"]


def test_a_class_that_changes_goes_on_behind_what_was_settled() -> None:
    disk, _ = life("fsync", orderly=True, ends=stopped)
    manager = manager_on(disk)
    write(manager, "t", range(6, 9))
    manager.alter_topic("t", {"durability": "disk"})
    write(manager, "t", range(9, 12))
    assert manager.get_handler("t", 0).high_watermark == 12
    disk = disk.after_power_cut()
    manager = manager_on(disk)
    assert see_handler(manager.get_handler("t", 0)).end > 12, "to its ceiling"


@pytest.mark.parametrize("policy", ["readonly", "refuse"])
def test_what_is_missing_is_damage_to_who_has_to_look_first(policy: str) -> None:
    disk, older = life("fsync", orderly=True, ends=stopped)
    manager = manager_on(disk)
    manager.alter_topic("t", {"on.corruption": policy})
    manager.close()
    put_over(disk, older, PARTITION)
    manager = manager_on(disk)
    if policy == "refuse":
        with pytest.raises(PartitionRefused, match=r"offsets lost: \[3, 6\)"):
            manager.get_handler("t", 0)
        assert not [row for row in manager.report.rows if row.what == "gap"]
        return
    handler = manager.get_handler("t", 0)
    assert see_handler(handler).end == 6
    with pytest.raises(PartitionReadOnly, match=r"offsets lost: \[3, 6\)"):
        append(handler, batch_of(b"next"))


def test_an_older_snapshot_is_taken_by_who_says_so() -> None:
    disk, older = life("fsync", orderly=True, ends=stopped)
    put_over(disk, older, META)
    for name in disk.listdir("/data/witness"):
        if name.startswith("snapshot-"):
            disk.unlink(f"/data/witness/{name}")
    assert not damage(disk)
    assert see_handler(manager_on(disk).get_handler("t", 0)).end == 6


def test_metadata_that_is_gone_is_no_new_data_directory() -> None:
    disk = MemoryStorage()
    manager_on(disk).close()
    remove_tree(disk, META)
    assert [one.path for one in damage(disk)] == [META]
    with pytest.raises(CorruptMetadata, match="the newest snapshot is none"):
        manager_on(disk)


def test_a_write_ahead_log_that_is_gone_is_told_though_there_is_no_topic_yet() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({}))
    disk = disk.after_power_cut()
    remove_tree(disk, WAL)
    make_dirs(disk, WAL)
    assert "the write-ahead log is missing" in damage(disk)[0].text
    assert manager_on(disk).report.counts["wal_damaged"] == 1


def test_a_directory_of_an_earlier_version_has_no_witness() -> None:
    disk, _ = life("fsync", orderly=True, ends=killed)
    remove_tree(disk, "/data/witness")
    assert not damage(disk)
    manager = manager_on(disk)
    assert see_handler(manager.get_handler("t", 0)).end == 6
    assert manager.report.counts["wal_damaged"] == 0
    assert least(disk, "/data/witness", "snapshot") > 0


def test_a_directory_of_an_earlier_version_is_opened_where_nothing_can_be_said_of_it() -> None:
    """No room for the directory, say."""
    disk, _ = life("fsync", orderly=True, ends=stopped)
    remove_tree(disk, "/data/witness")
    plain = disk.mkdir

    def mkdir(path: str) -> None:
        if path == "/data/witness":
            raise OSError(errno.ENOSPC, "planted", path)
        plain(path)

    vars(disk)["mkdir"] = mkdir
    manager = manager_on(disk)
    assert see_handler(manager.get_handler("t", 0)).end == 6
    assert not manager.report.rows


def test_a_file_of_the_write_ahead_log_that_is_removed_with_its_marker_is_told() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({}))
    manager.housekeeping(100_000)  # a snapshot has it
    folder = f"{WAL}/shard-00"
    while len(list_files(disk, folder)["wal"]) < 3:
        append(manager.get_handler("t", 0), batch_of(bytes(1_000)))
    disk = disk.after_kill()
    for number in list_files(disk, folder)["wal"]:
        image = disk.after_kill()
        image.unlink(f"{folder}/wal-{number}.log")
        image.unlink(f"{folder}.wal-{number}")
        assert any(one.path == f"{folder}/wal-{number}.log" for one in damage(image)), number
        manager = manager_on(image)
        assert manager.report.counts["wal_damaged"]
        assert manager.get_handler("t", 0).leader_epoch == 1


def test_the_end_of_a_file_in_use_is_known_after_a_minute() -> None:
    # An older copy of the one file that was in use all the time, and the power took the rest.
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({}))
    write(manager, "t", range(3))
    older = disk.after_power_cut()
    write(manager, "t", range(3, 6))
    manager.housekeeping(100_000)
    disk = disk.after_power_cut()
    assert not damage(disk)
    put_over(disk, older, WAL)
    (told,) = damage(disk)
    assert "all frames in bytes" in told.text
    manager = manager_on(disk)
    assert manager.report.counts["wal_damaged"] == 1
    handler = manager.get_handler("t", 0)
    assert (see_handler(handler).end, handler.leader_epoch) == (3, 1)


def test_no_number_of_a_file_is_used_in_two_lives() -> None:
    disk = MemoryStorage()
    seen: list[int] = []
    for _ in range(4):
        manager = manager_on(disk)
        if not seen:
            manager.create_topic("t", 1, TopicConfig({}))
        write(manager, "t", range(3))
        numbers = list_files(disk, f"{WAL}/shard-00")["wal"]
        assert min(numbers) > max(seen, default=-1)
        seen += numbers
        manager.close()
        assert least(disk, "/data/witness", WAL_FROM) > max(seen)
        said = [name.rpartition("-")[0] for name in disk.listdir("/data/witness")]
        assert sorted(said) == ["snapshot", WAL_FROM], "the highest number of each"


@pytest.mark.parametrize("ends", [stopped, killed])
@pytest.mark.parametrize("count", [3, 300])
def test_verify_says_whether_a_start_makes_a_missing_partition_again(
    ends: Callable[[DiskManager, MemoryStorage], MemoryStorage], count: int
) -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({}))
    write(manager, "t", range(count))
    disk = ends(manager, disk)
    remove_tree(disk, PARTITION)
    (told,) = damage(disk)
    assert told.path == PARTITION
    manager = manager_on(disk)
    if ends is stopped:
        assert told.action.startswith("the partition is not opened")
        with pytest.raises(PartitionMissing):
            manager.get_handler("t", 0)
        return
    assert told.action.startswith("it is made again with these")
    assert see_handler(manager.get_handler("t", 0)).end == count
    lost = [(row.from_offset, row.to_offset) for row in manager.report.rows if row.what == "gap"]
    assert lost == ([(told.from_offset, told.to_offset)] if told.from_offset >= 0 else [])
    assert bool(lost) is (count == 300), "the log ahead has only the end of it"

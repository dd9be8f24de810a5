"""What the metadata says that was synced and given out: settled ceilings, events without a WAL."""

import pytest

from segbroker.protocol.record_batch import GapReason
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.errors import CorruptMetadata, OutOfOrderSequence
from segbroker.segments.metadata.ceilings import BLOCK
from segbroker.segments.settings.topic_config import TopicConfig

from .classes import gaps_in, manager_on, topic_with
from .tools import append, batch_of, flip, lose_wal

FOLDER = "/data/topics/t/partition_0"
LOG = f"{FOLDER}/t_partition_0_segment_0.log"


def lose(disk: MemoryStorage, *suffixes: str) -> None:
    """Unlink files of the partition, durably."""
    for suffix in suffixes:
        disk.unlink(f"{FOLDER}/t_partition_0{suffix}")
    disk.fsync_dir(FOLDER)


def cut(disk: MemoryStorage, size: int) -> None:
    """Let the first segment end there."""
    file = disk.open(LOG)
    file.truncate(size)
    file.fdatasync()
    file.close()


def test_what_a_start_has_told_as_lost_is_synced_and_lost_again_only_by_corruption() -> None:
    disk = MemoryStorage()
    topic_with(disk, "disk")
    disk = disk.after_power_cut()
    manager_on(disk).get_handler("t", 0)  # [0, BLOCK + 1) is a lost tail, written and synced
    disk = disk.after_power_cut()
    lose(disk, ".manifest", "_segment_0.log")
    handler = manager_on(disk).get_handler("t", 0)
    # In the epoch that it was in before: the end of the log is where it was.
    assert gaps_in(handler) == [(0, BLOCK + 1, GapReason.CORRUPTION, 1)]


def test_a_topic_that_became_fsync_and_was_settled_loses_by_corruption_alone() -> None:
    # | 0 1 2 | 3 | 4 | 5 |   the first three of class disk; byte of 4 flipped, the WAL is gone
    disk = MemoryStorage()
    manager = topic_with(disk, "disk")
    manager.alter_topic("t", {"durability": "fsync"})
    manager.close()
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    for number in range(3, 6):
        append(handler, batch_of(b"%d" % number))
    size = len(batch_of(b"0"))
    disk = disk.after_kill()
    lose_wal(disk)
    flip(disk, LOG, 4 * size + 65)
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert [gap[:3] for gap in gaps_in(handler)] == [(4, 5, GapReason.CORRUPTION)]
    told = [row.what for row in manager.report.rows if row.topic == "t"]
    assert told == ["quarantined", "repaired", "gap"]


@pytest.mark.parametrize("lost", [(".manifest", ".producers"), (".manifest",)])
def test_a_producer_that_lost_synced_batches_goes_on_with_its_sequence_over_a_kill(
    lost: tuple[str, ...],
) -> None:
    # | 0 | 1 | of a producer, and 2, which was synced, closed over, and is gone; a snapshot that
    # knows of it is one of more than the log has
    disk = MemoryStorage()
    manager = topic_with(disk, "disk", 0)
    for sequence in range(3):
        append(manager.get_handler("t", 0), batch_of(b"x", producer=(7, 0, sequence)))
    manager.close()
    cut(disk, 2 * len(batch_of(b"x")))
    lose(disk, *lost)
    handler = manager_on(disk.after_kill()).get_handler("t", 0)
    assert not append(handler, batch_of(b"x", producer=(7, 0, 2))).duplicate
    handler = manager_on(disk).get_handler("t", 0)
    assert [gap[:3] for gap in gaps_in(handler)] == [(2, 3, GapReason.CORRUPTION)]
    for image in (disk.after_kill(), disk.after_power_cut()):
        handler = manager_on(image).get_handler("t", 0)
        assert append(handler, batch_of(b"x", producer=(7, 0, 1))).duplicate
        assert not append(handler, batch_of(b"x", producer=(7, 0, 3))).duplicate
        with pytest.raises(OutOfOrderSequence):
            append(handler, batch_of(b"x", producer=(7, 0, 6)))


def test_what_was_synced_is_vouched_for_by_the_write_ahead_log_also_of_class_disk() -> None:
    # | 0 | 1 | 2 |   synced, and killed; 2 is damaged, which looks like a torn write
    disk = MemoryStorage()
    manager = topic_with(disk, "disk")
    manager.create_topic("u", 1, TopicConfig({"durability": "fsync"}))
    manager.get_handler("t", 0).sync()
    append(manager.get_handler("u", 0), batch_of(b"its group says so"))
    disk = disk.after_kill()
    flip(disk, LOG, 2 * len(batch_of(b"0")) + 65)
    handler = manager_on(disk).get_handler("t", 0)
    assert [gap[:3] for gap in gaps_in(handler)] == [(2, 3, GapReason.CORRUPTION)]
    assert append(handler, batch_of(b"next")).base_offset == 3


@pytest.mark.parametrize("then", ["fsync", "disk", "memory"])
def test_what_the_write_ahead_log_vouches_for_outlives_it_also_where_the_class_has_changed(
    then: str,
) -> None:
    # | 0 | 1 | 2 |   of class fsync, not opened any more, and the disk loses 2 of it
    disk = MemoryStorage()
    topic_with(disk, "fsync")
    disk = disk.after_kill()
    manager_on(disk)  # all of it is synced, which the WAL says from here on
    disk = disk.after_kill()
    manager = manager_on(disk)
    assert not manager.handlers
    manager.alter_topic("t", {"durability": then})
    manager.close()
    cut(disk, 2 * len(batch_of(b"0")))
    handler = manager_on(disk).get_handler("t", 0)
    assert [gap[:3] for gap in gaps_in(handler)] == [(2, 3, GapReason.CORRUPTION)]
    assert append(handler, batch_of(b"next")).base_offset == 3


def test_what_is_cut_off_is_told_with_its_size() -> None:
    disk = MemoryStorage()
    topic_with(disk, "fsync")
    disk = disk.after_kill()
    file = disk.open(LOG)
    file.pwrite(b"torn", file.size())
    manager = manager_on(disk)
    assert manager.get_handler("t", 0).high_watermark == 3
    (row,) = [row for row in manager.report.rows if row.what == "cut"]
    assert (row.path, row.bytes) == (LOG, 4)


@pytest.mark.parametrize("left", ["events", "frames"])
def test_a_write_ahead_log_without_a_snapshot_is_not_taken_for_a_new_data_directory(
    left: str,
) -> None:
    # Nothing is left under topics/; the WAL has control events alone, or records alone.
    disk = MemoryStorage()
    manager = topic_with(disk, "fsync", 0)
    if left == "frames":
        manager.close()
        append(manager_on(disk).get_handler("t", 0), batch_of(b"0"))
    disk = disk.after_kill()
    for name in disk.listdir("/data/meta"):
        disk.unlink(f"/data/meta/{name}")
    for name in disk.listdir(FOLDER):
        disk.unlink(f"{FOLDER}/{name}")
    disk.rmdir(FOLDER)
    disk.rmdir("/data/topics/t")
    wal = {name: bytes(read_file(disk, name)) for name in wal_files(disk)}
    with pytest.raises(CorruptMetadata, match="there is no snapshot"):
        manager_on(disk)
    assert {name: bytes(read_file(disk, name)) for name in wal_files(disk)} == wal


def wal_files(disk: MemoryStorage) -> list[str]:
    folder = "/data/wal/shard-00"
    return [f"{folder}/{name}" for name in disk.listdir(folder) if name.startswith("wal")]

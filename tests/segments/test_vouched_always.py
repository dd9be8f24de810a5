"""There is no moment in which nothing vouches for a log: whenever the process dies, what a disk
loses of the end of a log that was synced is told, and does not pass for a torn write."""

import errno

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.files import list_files
from segbroker.segments.wal.journal import WalConfig
from segbroker.segments.wal.kept import kept_path
from segbroker.segments.wal.replay import scan_wal_file

from .crashing import CrashingStorage, Killed
from .test_vouched_at_start import killed_after_a_start, lose_the_last, started
from .tools import append, batch_of
from .wal_writing import ROOT, SMALL, TOPIC, FailingStorage, Writer, begun, replayed

FOLDER = f"{ROOT}/shard-00"


def lost(disk: MemoryStorage) -> list[tuple[int, int]]:
    """What the next start tells of `t`, of which the disk has lost the last batch."""
    lose_the_last(disk)
    manager = started(disk)
    assert manager.get_handler("t", 0).log_end_offset == 3, "no offset is given again"
    return [(row.from_offset, row.to_offset) for row in manager.report.rows if row.what == "gap"]


def test_a_checkpoint_says_how_far_a_log_is_synced_before_its_frames_go() -> None:
    disk = MemoryStorage()
    manager = started(disk)
    for name in "tu":
        manager.create_topic(name, 1, TopicConfig({}))
    manager.housekeeping(100_000)
    for number in range(3):
        append(manager.get_handler("t", 0), batch_of(b"%d" % number))
    (first,) = list_files(disk, FOLDER)["wal"][:1]
    while list_files(disk, FOLDER)["wal"][0] == first:
        append(manager.get_handler("u", 0), batch_of(bytes(1_000)))
    for image in (disk.after_kill(), disk.after_power_cut()):
        assert lost(image) == [(2, 3)]


def test_a_checkpoint_may_be_interrupted_anywhere() -> None:
    for dies_at in range(10_000):
        disk = CrashingStorage()
        manager = started(disk)
        manager.create_topic("t", 1, TopicConfig({}))
        manager.housekeeping(100_000)
        for number in range(3):
            append(manager.get_handler("t", 0), batch_of(b"%d" % number))
        shard = manager.wal.shard_of(manager.topics["t"].topic_id.bytes, 0)
        shard._retire(trusted=True)
        disk.dies_at = len(disk.operations) + dies_at
        try:
            manager.wal.checkpoint()
        except Killed:
            image = disk.after_kill()
            lose_the_last(image)
            manager = started(image)
            assert manager.get_handler("t", 0).log_end_offset == 3
            # Told by a gap, or put back where the frames are still there.
            assert manager.report.counts["gap"] + manager.report.counts["replayed"] == 1, dies_at
        else:
            break
    assert dies_at > 8


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_start_that_is_killed_anywhere_has_not_forgotten_how_far_a_log_reaches(
    durability: str,
) -> None:
    begin = killed_after_a_start(durability)
    for dies_at in range(10_000):
        disk = CrashingStorage(dies_at)
        disk._root = begin.after_kill()._root
        try:
            manager = DiskManager("/data", storage=disk, flushers=0)
            manager.open()
        except Killed:
            image = disk.after_kill()
        else:
            break
        assert lost(image) == [(2, 3)], dies_at
    assert dies_at > 8


def test_a_start_on_a_damaged_disk_that_is_killed_anywhere_tells_it_all_the_same() -> None:
    begin = killed_after_a_start("fsync")
    lose_the_last(begin)
    for dies_at in range(10_000):
        disk = CrashingStorage(dies_at)
        disk._root = begin.after_kill()._root
        try:
            manager = DiskManager("/data", storage=disk, flushers=0)
            manager.open()
        except Killed:
            pass
        else:
            break
        manager = started(disk.after_kill())
        assert manager.get_handler("t", 0).log_end_offset == 3
        assert [row.from_offset for row in manager.report.rows if row.what == "gap"] == [2]
    assert dies_at > 8


def test_what_class_disk_has_synced_is_vouched_for_within_a_second() -> None:
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": "disk"}))
    manager.housekeeping(100_000)  # what is due by the minute
    for number in range(3):
        append(manager.get_handler("t", 0), batch_of(b"%d" % number), now_ms=100_500)
    for now_ms in (101_000, 102_000):
        manager.housekeeping(now_ms)
    assert lost(disk.after_kill()) == [(2, 3)]


def test_a_batch_too_large_for_the_write_ahead_log_is_vouched_for_as_it_is_acknowledged() -> None:
    disk = MemoryStorage()
    manager = DiskManager(
        "/data", storage=disk, flushers=0, wal=WalConfig(file_bytes=8192, shard_bytes=4 * 8192)
    )
    manager.open()
    manager.create_topic("t", 1, TopicConfig({}))
    handler = manager.get_handler("t", 0)
    for number in range(3):
        append(handler, batch_of(b"%d" % number * 10_000))
    assert handler.high_watermark == 3
    assert lost(disk.after_kill()) == [(2, 3)]


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
def test_a_log_that_is_opened_again_after_a_failure_is_vouched_for_at_once(durability: str) -> None:
    disk = MemoryStorage()
    manager = started(disk)
    manager.create_topic("t", 1, TopicConfig({"durability": durability}))
    handler = manager.get_handler("t", 0)
    for number in range(3):
        append(handler, batch_of(b"%d" % number))
    handler.sync()
    handler._poison(OSError(errno.EIO, "the disk is gone"))
    assert handler.try_recover(1_000)
    assert lost(disk.after_kill()) == [(2, 3)]


def test_a_log_that_is_opened_again_after_a_failure_is_vouched_for_at_every_moment() -> None:
    """Whatever the process dies at: there is no BARRIER without what is said behind it."""
    for dies_at in range(10_000):
        disk = CrashingStorage()
        manager = started(disk)
        manager.create_topic("t", 1, TopicConfig({}))
        handler = manager.get_handler("t", 0)
        for number in range(3):
            append(handler, batch_of(b"%d" % number))
        handler.sync()
        disk.dies_at = len(disk.operations) + dies_at
        try:
            handler._begin_anew(handler._log)
        except Killed:
            image = disk.after_kill()
            lose_the_last(image)
            manager = started(image)
            assert manager.get_handler("t", 0).log_end_offset == 3, "no offset is given again"
            # Told by a gap, or put back where the frames still count.
            assert manager.report.counts["gap"] + manager.report.counts["replayed"] == 1, dies_at
        else:
            break
    assert dies_at >= 2, "the write and the sync"


def test_what_vouches_is_in_one_file_that_each_checkpoint_replaces() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    for partition in range(1, 100):
        wal.end_soon(TOPIC, partition, 3, 4096, 70 + partition)
    writer = Writer(wal)
    before = 0
    while writer.checkpoints < 4:
        writer.append(bytes(1_000))
        if writer.checkpoints > before:
            before = writer.checkpoints
            wal.end_soon(TOPIC, 7, 3, 4096, 1_000 + before)
            assert len(list_files(disk, FOLDER)["kept"]) == 1
    found = replayed(disk.after_power_cut())
    assert not found.missing
    assert max(frame.base_offset for frame in found.partitions[TOPIC, 7]) == 1_003
    for partition in range(8, 100):
        assert [frame.base_offset for frame in found.partitions[TOPIC, partition]][:1] == [
            70 + partition
        ]
    assert found.next_sequence > max(list_files(disk, FOLDER)["kept"])


def test_what_vouches_is_replaced_without_a_moment_in_which_nothing_does() -> None:
    for dies_at in range(10_000):
        disk = CrashingStorage()
        wal, _ = begun(disk)
        wal.end_soon(TOPIC, 5, 3, 4096, 77)
        shard = wal.shard_of(TOPIC, 5)
        shard.keep_ends()
        wal.end_soon(TOPIC, 6, 3, 4096, 88)
        disk.dies_at = len(disk.operations) + dies_at
        try:
            shard.keep_ends()
        except Killed:
            for image in (disk.after_kill(), disk.after_power_cut()):
                found = replayed(image)
                assert not found.missing
                assert (TOPIC, 5) in found.partitions, dies_at
        else:
            break
    assert dies_at > 8
    assert len(list_files(disk, FOLDER)["kept"]) == 1


def test_ends_take_no_room_in_the_files_of_the_log_when_these_are_freed() -> None:
    """More ENDs than a file of the log has room for, and files that are freed again and again."""
    disk = MemoryStorage()
    wal, _ = begun(disk)
    for partition in range(1, 300):
        wal.end_soon(TOPIC, partition, 3, 4096, 70)
    writer = Writer(wal)
    writer.append(b"first")
    while writer.checkpoints < 10:
        writer.append(bytes(1_000))
    written = wal.statistics().frames_written
    for _ in range(100):
        writer.append(bytes(1_000))
    assert wal.statistics().frames_written == written + 100
    assert len(replayed(disk.after_power_cut()).partitions) == 300


def test_a_kept_file_that_cannot_be_written_is_made_up_for_by_the_next_group() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    writer = Writer(wal)
    writer.append(b"first")
    folder = disk.rename
    fails = True

    def rename(source: str, target: str) -> None:
        if fails and "/kept-" in target:
            raise OSError(28, "planted")
        folder(source, target)

    vars(disk)["rename"] = rename
    while writer.checkpoints < 3:
        writer.append(bytes(1_000))
    assert not list_files(disk, FOLDER)["kept"]
    writer.append(b"the next group")
    frames = replayed(disk.after_power_cut()).partitions[TOPIC, 5]
    assert {frame.base_offset for frame in frames} == {77}
    fails = False
    while writer.checkpoints < 5:
        writer.append(bytes(1_000))
    (number,) = list_files(disk, FOLDER)["kept"]
    scanned = scan_wal_file(disk, kept_path(FOLDER, number))
    assert scanned is not None
    assert [frame.base_offset for frame in scanned.frames] == [77]
    assert not writer.failures


def test_a_log_that_was_opened_again_is_vouched_for_behind_its_barrier() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    wal.barrier(TOPIC, 5)
    wal.end_soon(TOPIC, 5, 3, 4096, 77)
    shard = wal.shard_of(TOPIC, 5)
    shard.keep_ends()  # with the file of the BARRIER still in use: kept files count as older
    wal.say_ends()
    frames = replayed(disk.after_power_cut(), SMALL).partitions.get((TOPIC, 5), [])
    assert {frame.base_offset for frame in frames} == {77}

"""What the classes beside `fsync` keep through a kill and through a power cut."""

from threading import Thread

import pytest

from segbroker.protocol.record_batch import GapReason, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, write_temporary
from segbroker.segments.errors import (
    CorruptMetadata,
    InvalidConfig,
    InvalidProducerEpoch,
    OffsetOutOfRange,
    OutOfOrderSequence,
)
from segbroker.segments.log.producers import ProducerTable
from segbroker.segments.metadata.ceilings import BLOCK, IDLE_MS
from segbroker.segments.settings.topic_config import Durability, TopicConfig

from .classes import gaps_in, manager_on, topic_with
from .crashing import CrashingStorage, Killed
from .tools import append, batch_of, flip

UNSYNCED = ("disk", "memory")


@pytest.mark.parametrize("durability", UNSYNCED)
def test_a_power_cut_leaves_a_gap_up_to_the_ceiling_in_a_new_leader_epoch(durability: str) -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, durability)
    assert manager.get_handler("t", 0).high_watermark == 3
    again = manager_on(disk.after_power_cut())
    handler = again.get_handler("t", 0)
    # The log was made, nothing of it was synced: 0 was recovered, and one block was reserved.
    assert gaps_in(handler) == [(0, BLOCK + 1, GapReason.LOST_TAIL, 1)]
    assert again.report.summary()["offsets_lost_at_most"] == BLOCK + 1
    assert (handler.high_watermark, handler.leader_epoch) == (BLOCK + 1, 1)
    assert handler.end_offset_for_epoch(0) == (0, 0)
    assert append(handler, batch_of(b"next")).base_offset == BLOCK + 1
    assert handler.high_watermark == BLOCK + 2


@pytest.mark.parametrize("durability", UNSYNCED)
def test_a_process_that_dies_on_the_same_boot_loses_nothing(durability: str) -> None:
    disk = MemoryStorage()
    topic_with(disk, durability)
    handler = manager_on(disk.after_kill()).get_handler("t", 0)
    assert (handler.high_watermark, handler.leader_epoch, gaps_in(handler)) == (3, 0, [])
    assert append(handler, batch_of(b"next")).base_offset == 3


def test_without_a_boot_id_every_start_counts_as_another_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryStorage, "boot_id", lambda self, path: "")
    disk = MemoryStorage()
    topic_with(disk, "disk")
    handler = manager_on(disk.after_kill()).get_handler("t", 0)
    assert gaps_in(handler) == [(3, BLOCK + 1, GapReason.LOST_TAIL, 1)]


def test_another_disk_in_the_same_boot_has_lost_what_was_not_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An image of the disk of a broker that ran, or a disk that was taken away and given back.  A
    version before 0.5.10 has noted the machine's boot alone."""
    boots = iter(["boot", "boot 7:0#1", "boot 7:0#1", "boot 7:1#2"])
    noted = next(boots)
    monkeypatch.setattr(MemoryStorage, "boot_id", lambda self, path: noted)
    disk = MemoryStorage()
    topic_with(disk, "memory")
    for noted in boots:
        manager = manager_on(disk := disk.after_kill())
        assert not manager.is_new_boot, "who is on this machine may be alive"
        gaps = [(3, BLOCK + 1, GapReason.LOST_TAIL, 1)] if noted == "boot 7:1#2" else []
        assert gaps_in(manager.get_handler("t", 0)) == gaps


def test_a_memory_partition_is_judged_by_the_boot_that_reserved_its_offsets() -> None:
    # Power cut, a start that does not open it, kill, another start on that same boot.
    disk = MemoryStorage()
    topic_with(disk, "memory")
    manager = manager_on(disk := disk.after_power_cut())
    assert manager.handlers == {}, "recovered lazily: readiness does not wait for it"
    handler = manager_on(disk.after_kill()).get_handler("t", 0)
    assert gaps_in(handler) == [(0, BLOCK + 1, GapReason.LOST_TAIL, 1)]


def test_a_disk_partition_is_recovered_before_anybody_asks() -> None:
    disk = MemoryStorage()
    topic_with(disk, "disk")
    manager = manager_on(disk.after_power_cut())
    assert [handler.log_end_offset for handler in manager.handlers.values()] == [BLOCK + 1]
    assert manager.leader_epoch(manager.topics["t"], 0) == 1


def test_what_a_killed_process_left_unsynced_in_class_disk_is_synced_by_the_next() -> None:
    """In the same boot, and nobody asks for the partition: the power goes later."""
    disk = MemoryStorage()
    killed = topic_with(disk, "disk")
    assert killed.get_handler("t", 0).high_watermark == 3
    assert killed._lock_file is not None
    killed._lock_file.release()
    manager_on(disk)
    handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert gaps_in(handler) == [(3, BLOCK + 1, GapReason.LOST_TAIL, 1)]


def test_what_class_disk_left_unsynced_is_synced_by_a_start_that_finds_it_to_be_fsync() -> None:
    """The process was killed while it synced what the topic had as `disk`, wherever in that."""
    is_altered = False
    for operations in range(1, 100):
        disk = CrashingStorage()
        killed = topic_with(disk, "disk")
        disk.dies_at = len(disk.operations) + operations
        try:
            killed.alter_topic("t", {"durability": "fsync"})
        except Killed:
            disk.dies_at = -1
        else:
            assert operations > 3
            break
        assert killed._lock_file is not None
        killed._lock_file.release()
        is_altered |= manager_on(disk).topics["t"].config.durability is Durability.FSYNC
        handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
        assert [gap[0] for gap in gaps_in(handler)] in ([], [3]), operations
    assert is_altered


@pytest.mark.parametrize("durability", UNSYNCED)
def test_a_second_power_cut_after_the_gap_adds_nothing(durability: str) -> None:
    disk = MemoryStorage()
    topic_with(disk, durability)
    disk = disk.after_power_cut()
    expected = gaps_in(manager_on(disk).get_handler("t", 0))
    disk = disk.after_power_cut()
    handler = manager_on(disk).get_handler("t", 0)
    assert gaps_in(handler) == expected
    assert handler.leader_epoch == 1


def test_what_was_synced_is_kept_before_the_gap() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "disk")
    manager.housekeeping(10_000)  # the tick
    append(manager.get_handler("t", 0), batch_of(b"3"))
    handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert gaps_in(handler) == [(3, BLOCK + 1, GapReason.LOST_TAIL, 1)]
    assert handler.end_offset_for_epoch(0) == (0, 3)


def test_an_idle_disk_partition_gives_its_reservation_back() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "disk")
    manager.housekeeping(10_000)  # the tick
    manager.housekeeping(10_000 + IDLE_MS)
    cut = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert (cut.high_watermark, cut.leader_epoch, gaps_in(cut)) == (3, 0, [])
    # And takes another when it goes on.
    assert append(manager.get_handler("t", 0), batch_of(b"3")).base_offset == 3
    assert manager.get_handler("t", 0).high_watermark == 4
    cut = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert gaps_in(cut) == [(3, 4 + BLOCK, GapReason.LOST_TAIL, 1)]


@pytest.mark.parametrize("durability", UNSYNCED)
def test_a_clean_close_loses_nothing_and_reserves_nothing(durability: str) -> None:
    disk = MemoryStorage()
    topic_with(disk, durability).close()
    handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert (handler.high_watermark, handler.leader_epoch, gaps_in(handler)) == (3, 0, [])


def test_the_reservation_is_renewed_at_half_use_and_the_high_watermark_never_passes_it() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "disk", 1)
    handler = manager.get_handler("t", 0)
    ceiling = handler.ceiling
    assert ceiling is not None
    assert ceiling.durable == BLOCK + 1
    ceiling.durable, ceiling.renew_at = 40, 20
    for _ in range(30):
        append(handler, batch_of(b"x"))
        assert handler.high_watermark <= ceiling.durable
    assert ceiling.durable == 21 + BLOCK


def test_nothing_is_acknowledged_when_no_offsets_can_be_reserved() -> None:
    disk = CrashingStorage()
    manager = topic_with(disk, "disk", 0)
    handler = manager.get_handler("t", 0)
    failures: list[str] = []
    handler.on_failure = lambda _, error: failures.append(str(error))
    disk.sync_fails = True
    append(handler, batch_of(b"x"))
    assert (handler.high_watermark, len(failures)) == (0, 1)
    assert "sync failed" in failures[0]


def test_producers_whose_last_batches_are_lost_go_on_with_their_sequence() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "disk", 0)
    append(manager.get_handler("t", 0), batch_of(b"a", producer=(7, 0, 0)))
    manager.close()  # saves the producers
    append(manager_on(disk).get_handler("t", 0), batch_of(b"b", producer=(7, 0, 1)))  # not synced
    disk = disk.after_power_cut()
    append(manager_on(disk).get_handler("t", 0), batch_of(b"c", producer=(7, 0, 2)))
    # Also when what was saved before the loss is replayed over the log.
    handler = manager_on(disk.after_kill()).get_handler("t", 0)
    assert append(handler, batch_of(b"c", producer=(7, 0, 2))).duplicate
    assert not append(handler, batch_of(b"d", producer=(7, 0, 3))).duplicate


def power_cut_after(
    synced: list[tuple[int, int, int]], lost: list[tuple[int, int, int]]
) -> tuple[MemoryStorage, DiskManager]:
    """A log of class disk with a batch of each (producer, epoch, sequence), as it comes back, and
    its disk."""
    disk = MemoryStorage()
    handler = topic_with(disk, "disk", 0).get_handler("t", 0)
    for producer in synced:
        append(handler, batch_of(b"x", producer=producer))
    handler.sync()
    for producer in lost:
        append(handler, batch_of(b"x", producer=producer))
    disk = disk.after_power_cut()
    return disk, manager_on(disk)


def test_a_batch_that_survived_a_power_cut_unanswered_is_no_second_record_when_sent_again() -> None:
    _, manager = power_cut_after([(7, 0, 0), (7, 0, 1)], [(7, 0, 2)])
    handler = manager.get_handler("t", 0)
    assert append(handler, batch_of(b"x", producer=(7, 0, 1))).duplicate
    assert not append(handler, batch_of(b"x", producer=(7, 0, 2))).duplicate
    assert not append(handler, batch_of(b"x", producer=(7, 0, 3))).duplicate


def test_after_a_lost_tail_one_batch_of_a_producer_is_taken_at_its_word_and_no_other() -> None:
    disk, manager = power_cut_after([(7, 0, 0)], [(7, 0, 1), (7, 0, 2)])
    append(manager.get_handler("t", 0), batch_of(b"x", producer=(7, 0, 3)))
    manager.close()
    handler = manager_on(disk.after_kill()).get_handler("t", 0)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 5, expected 4"):
        append(handler, batch_of(b"x", producer=(7, 0, 5)))


def test_that_a_producer_lost_its_tail_is_in_the_snapshot() -> None:
    disk, manager = power_cut_after([(7, 0, 0)], [(7, 0, 1), (7, 0, 2)])
    assert manager.get_handler("t", 0).high_watermark == BLOCK + 1
    manager.close()
    handler = manager_on(disk.after_kill()).get_handler("t", 0)
    assert append(handler, batch_of(b"x", producer=(7, 0, 0))).duplicate
    assert not append(handler, batch_of(b"x", producer=(7, 0, 3))).duplicate


def test_a_lost_tail_may_have_held_a_new_epoch_and_lets_nobody_back_in() -> None:
    handler = power_cut_after([(7, 1, 0)], [(7, 2, 0)])[1].get_handler("t", 0)
    with pytest.raises(InvalidProducerEpoch):
        append(handler, batch_of(b"x", producer=(7, 0, 1)))
    assert not append(handler, batch_of(b"x", producer=(7, 2, 1))).duplicate


def test_a_batch_lost_between_two_that_survived_may_be_sent_again_and_they_count_as_sent() -> None:
    table = ProducerTable()

    def sent(sequence: int) -> bool:
        header = read_header(batch_of(b"x", producer=(7, 0, sequence)))
        if table.check(header) is not None:
            return False
        table.apply(header, 100 + sequence, batch_of(b"x"))
        return True

    assert sent(4)
    table.lose_tail()  # 5 went with it
    assert sent(6)
    table.lose_tail()  # a second gap, from the end of the log on
    assert [sent(sequence) for sequence in (5, 6, 7, 8)] == [True, False, True, True]
    with pytest.raises(OutOfOrderSequence, match="expected 9"):
        sent(11)


def test_a_recreated_topic_starts_above_the_epochs_that_its_predecessor_came_to() -> None:
    disk = MemoryStorage()
    old = topic_with(disk, "disk").topics["t"]
    disk = disk.after_power_cut()
    manager_on(disk)
    disk = disk.after_power_cut()
    manager = manager_on(disk)
    manager.delete_topic("t")
    new = manager.create_topic("t", 1, TopicConfig({}))
    assert new.topic_id != old.topic_id
    assert new.epoch == 2
    assert manager.get_handler("t", 0).leader_epoch == 2


@pytest.mark.parametrize("cut", ["kill", "power"])
def test_an_ephemeral_topic_is_gone_at_restart_and_begins_at_its_ceiling(cut: str) -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "ephemeral")
    handler = manager.get_handler("t", 0)
    assert (handler.high_watermark, handler.size_bytes > 0) == (3, True)
    disk = disk.after_kill() if cut == "kill" else disk.after_power_cut()
    handler = manager_on(disk).get_handler("t", 0)
    assert (handler.log_start_offset, handler.high_watermark) == (BLOCK + 1, BLOCK + 1)
    assert handler.leader_epoch == 1
    with pytest.raises(OffsetOutOfRange):
        handler.plan_read(0, 100)
    assert append(handler, batch_of(b"next")).base_offset == BLOCK + 1
    assert handler.end_offset_for_epoch(0) == (0, BLOCK + 1)


def test_an_ephemeral_topic_leaves_nothing_on_the_disk() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "ephemeral")
    assert disk.listdir("/data/topics") == []
    manager.close()
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert (handler.log_start_offset, handler.log_end_offset) == (3, 3), "a clean close says 3"
    manager.create_partitions("t", 2)
    manager.delete_topic("t")
    assert disk.listdir("/data/topics") == []
    assert manager.create_topic("t", 1, TopicConfig({})).epoch == 2


def test_two_partitions_of_an_ephemeral_topic_are_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = manager_on(MemoryStorage())
    manager.create_topic("t", 2, TopicConfig({"durability": "ephemeral"}))
    mkdir = MemoryStorage.mkdir
    others: list[Thread] = []

    def beside_another(disk: MemoryStorage, path: str) -> None:
        if path.endswith("/t") and not others:
            others.append(Thread(target=manager.get_handler, args=("t", 1)))
            others[0].start()
            others[0].join(1)  # it may wait for us in its turn
        mkdir(disk, path)

    monkeypatch.setattr(MemoryStorage, "mkdir", beside_another)
    assert manager.get_handler("t", 0).log_end_offset == 0
    others[0].join()
    assert len(manager.handlers) == 2


def test_a_topic_does_not_move_between_memory_and_disk() -> None:
    manager = topic_with(MemoryStorage(), "ephemeral")
    with pytest.raises(InvalidConfig, match="durability=disk: the topic is ephemeral"):
        manager.alter_topic("t", {"durability": "disk"})


def test_a_topic_may_change_between_the_classes_of_the_disk() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "disk")
    handler = manager.get_handler("t", 0)
    manager.alter_topic("t", {"durability": "fsync"})
    append(handler, batch_of(b"3"))
    assert handler.high_watermark == 4
    cut = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert (cut.high_watermark, gaps_in(cut)) == (4, [])
    manager.alter_topic("t", {"durability": "memory"})
    append(handler, batch_of(b"4"))
    assert handler.high_watermark == 5
    cut = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert gaps_in(cut) == [(4, 5 + BLOCK, GapReason.LOST_TAIL, 1)]


@pytest.mark.parametrize("then", ["at once", "opened", "killed"])
@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_a_class_that_reserves_reserves_nothing_before_the_first_append(
    durability: str, then: str
) -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "fsync")
    if then != "at once":
        manager.close()
        manager = manager_on(disk)  # nobody has opened the partition when it is altered
    manager.alter_topic("t", {"durability": durability})
    if then != "at once":
        manager.get_handler("t", 0)
    if then == "killed":
        disk = disk.after_kill()
        assert manager_on(disk).get_handler("t", 0).high_watermark == 3
    disk = disk.after_power_cut()
    manager = manager_on(disk)
    cut = manager.get_handler("t", 0)
    assert (gaps_in(cut), cut.leader_epoch, cut.high_watermark) == ([], 0, 3)
    assert not manager.report.counts["gap"]
    # With the first append there is something to lose: what may have been acknowledged is told.
    append(cut, batch_of(b"lost"))
    assert cut.high_watermark == 4
    cut = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert gaps_in(cut) == [(3, 4 + BLOCK, GapReason.LOST_TAIL, 1)]


def test_synced_bytes_that_are_missing_are_corruption_not_a_lost_tail() -> None:
    disk = MemoryStorage()
    topic_with(disk, "disk").close()
    for suffix in (".manifest", ".producers", "_segment_0.log"):
        disk.unlink(f"/data/topics/t/partition_0/t_partition_0{suffix}")
    disk.fsync_dir("/data/topics/t/partition_0")
    handler = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert gaps_in(handler) == [(0, 3, GapReason.CORRUPTION, 1)]


@pytest.mark.parametrize("durability", UNSYNCED)
def test_what_lies_behind_a_batch_that_is_damaged_twice_is_no_torn_write(durability: str) -> None:
    # One of the two is in its length, which then claims all that is behind it.
    disk = MemoryStorage()
    topic_with(disk, durability, count=20)
    path = "/data/topics/t/partition_0/t_partition_0_segment_0.log"
    killed = disk.after_kill()
    size = len(read_file(killed, path)) // 20
    for place in (9, size - 10):
        flip(killed, path, 5 * size + place)
    handler = manager_on(killed).get_handler("t", 0)
    (gap,) = gaps_in(handler)
    assert gap[:2] == (5, 6)
    assert handler.log_end_offset == 20


def test_a_damaged_snapshot_opens_nothing_and_changes_nothing() -> None:
    disk = MemoryStorage()
    topic_with(disk, "fsync").close()
    (name,) = disk.listdir("/data/meta")
    flip(disk, f"/data/meta/{name}", 40)
    with pytest.raises(CorruptMetadata, match="no existing file was changed"):
        manager_on(disk)
    assert disk.listdir("/data/topics") == ["t"]


def test_a_missing_snapshot_is_not_taken_for_a_new_data_directory() -> None:
    disk = MemoryStorage()
    topic_with(disk, "fsync").close()
    (name,) = disk.listdir("/data/meta")
    disk.unlink(f"/data/meta/{name}")
    with pytest.raises(CorruptMetadata, match="there is no snapshot, but there are topics"):
        manager_on(disk)
    assert disk.listdir("/data/topics/t") == ["partition_0"]


def without_wal(disk: MemoryStorage) -> MemoryStorage:
    """The disk after a kill, without the files of the write-ahead log."""
    image = disk.after_kill()
    for name in image.listdir("/data/wal/shard-00"):
        image.unlink(f"/data/wal/shard-00/{name}")
    return image


def test_records_of_a_topic_that_the_metadata_has_lost_are_put_aside_not_removed() -> None:
    disk = MemoryStorage()
    topic_with(disk, "fsync")
    image = without_wal(disk)
    manager = manager_on(image)
    assert dict(manager.topics) == {}
    (kept,) = image.listdir("/data/quarantine")
    assert kept.startswith("t~")
    assert {row.what for row in manager.report.rows} == {"unknown_topic", "wal_damaged"}
    folder = f"/data/quarantine/{kept}/partition_0"
    assert image.open(f"{folder}/t_partition_0_segment_0.log").size() > 0


def test_partitions_that_the_metadata_has_lost_are_put_aside_if_they_have_records() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "fsync")
    manager.housekeeping(100_000)  # a snapshot
    manager.create_partitions("t", 3)
    append(manager.get_handler("t", 1), batch_of(b"x"))
    image = without_wal(disk)
    assert manager_on(image).topics["t"].partitions == 1
    (kept,) = image.listdir("/data/quarantine")
    assert kept.startswith("t-1~")
    assert image.listdir("/data/topics/t") == ["partition_0"]


@pytest.mark.parametrize("again", [False, True])
def test_a_deletion_that_was_not_finished_is_finished_at_the_next_start(again: bool) -> None:
    # The event is durable, the directory has its old name still.
    disk = MemoryStorage()
    manager = topic_with(disk, "fsync")
    manager.get_handler("t", 0).sync()
    image = disk.after_kill()
    manager.delete_topic("t")
    manager.close()
    if again:  # a snapshot says so, without the event
        manager_on(disk).close()
    (snapshot,) = disk.listdir("/data/meta")
    write_temporary(image, f"/data/meta/{snapshot}", read_file(disk, f"/data/meta/{snapshot}"))
    manager = manager_on(image)
    assert [row.what for row in manager.report.rows] == ["orphan_removed"]
    assert image.listdir("/data/topics") == []


def test_a_gap_has_no_time_of_its_own() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    config = TopicConfig({"durability": "disk", "message.timestamp.type": "LogAppendTime"})
    manager.create_topic("t", 1, config)
    append(manager.get_handler("t", 0), batch_of(b"a"), 700)
    manager.housekeeping(10_000)  # the tick
    disk = disk.after_power_cut()
    for image in (disk, disk.after_power_cut()):  # as written, as read back
        handler = manager_on(image, now_ms=9_000).get_handler("t", 0)
        assert gaps_in(handler) == [(1, BLOCK + 1, GapReason.LOST_TAIL, 1)]
        assert handler.greatest_timestamp() == (0, 700)
        assert handler.offset_for_timestamp(701) is None


def dying_copy(disk: MemoryStorage, dies_at: int) -> CrashingStorage:
    image = CrashingStorage(dies_at)
    image._root, image._boot = disk.after_kill()._root, disk._boot
    return image


@pytest.mark.parametrize("then", ["kill", "power"])
@pytest.mark.parametrize("durability", UNSYNCED)
def test_a_recovery_that_dies_anywhere_never_gives_an_offset_out_twice(
    durability: str, then: str
) -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, durability)
    manager.get_handler("t", 0).sync()
    append(manager.get_handler("t", 0), batch_of(b"lost"))
    disk = disk.after_power_cut()
    dies_at = 0
    while True:
        image = dying_copy(disk, dies_at)
        try:
            handler = manager_on(image).get_handler("t", 0)
            acked = append(handler, batch_of(b"next")).base_offset
            finished = True
        except Killed:
            finished, acked = False, -1
        left = image.after_kill() if then == "kill" else image.after_power_cut()
        handler = manager_on(left).get_handler("t", 0)
        # What was readable before is, what was acknowledged has one payload or a gap.
        gaps = gaps_in(handler)
        assert gaps[0][:3] == (3, BLOCK + 1, GapReason.LOST_TAIL), (dies_at, gaps)
        assert handler.end_offset_for_epoch(0) == (0, 3), dies_at
        offset = append(handler, batch_of(b"after")).base_offset
        assert offset > max(BLOCK, acked), (dies_at, offset, acked)
        if finished:
            break
        dies_at += 1
    assert dies_at > 15, "it died at every operation"


@pytest.mark.parametrize("then", ["kill", "power"])
def test_administration_that_dies_anywhere_happened_or_did_not(then: str) -> None:
    disk = MemoryStorage()
    manager_on(disk).close()
    dies_at = 0
    while True:
        image = dying_copy(disk, dies_at)
        done: list[str] = []
        try:
            manager = manager_on(image)
            manager.create_topic("a", 1, TopicConfig({}))
            done.append("created a")
            append(manager.get_handler("a", 0), batch_of(b"x"))
            manager.create_partitions("a", 2)
            done.append("grown")
            manager.create_topic("b", 1, TopicConfig({}))
            manager.delete_topic("b")
            done.append("deleted b")
            manager.close()
            done.append("closed")
        except Killed:
            pass
        left = image.after_kill() if then == "kill" else image.after_power_cut()
        again = manager_on(left)
        topics = again.topics
        assert "a" in topics or "created a" not in done, dies_at
        assert "grown" not in done or topics["a"].partitions == 2, dies_at
        assert "deleted b" not in done or "b" not in topics, dies_at
        assert left.listdir("/data/topics") == sorted(topics), dies_at
        assert not left.exists("/data/quarantine"), dies_at
        for name, meta in topics.items():
            folders = [f"partition_{number}" for number in range(meta.partitions)]
            assert left.listdir(f"/data/topics/{name}") == folders, dies_at
            for number in range(meta.partitions):
                again.get_handler(name, number)
        if "closed" in done:
            break
        dies_at += 1
    assert dies_at > 30, "it died at every operation"


def test_an_event_that_damage_took_may_have_reserved_a_block() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "disk", 0)
    manager.close()
    manager = manager_on(disk)
    append(manager.get_handler("t", 0), batch_of(b"lost"))  # one event: ceilings
    for _ in range(3):
        manager.allocate_producer_ids(1)  # groups behind it, which vouch for it
    disk = disk.after_power_cut()
    name = next(one for one in disk.listdir("/data/wal/shard-00") if one.startswith("wal-"))
    flip(disk, f"/data/wal/shard-00/{name}", 4096 + 70)
    handler = manager_on(disk).get_handler("t", 0)
    assert append(handler, batch_of(b"next")).base_offset >= BLOCK + 1


def test_what_class_memory_left_unsynced_is_synced_once_the_topic_is_of_class_disk() -> None:
    disk = MemoryStorage()
    manager = topic_with(disk, "memory")
    manager.alter_topic("t", {"durability": "disk"})
    manager.housekeeping(10_000)
    cut = manager_on(disk.after_power_cut()).get_handler("t", 0)
    ((begin, *_),) = gaps_in(cut)
    assert begin == 3, "nothing that was appended is lost, only what was reserved is unknown"

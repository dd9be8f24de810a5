"""Damage that is found while the log is in use, and what the write-ahead log still has of it.

| 0 1 2 | 3 4 5 | 6 7 8 | ...   three batches to a segment, all of them in the WAL as well
"""

import errno

import pytest

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.errors import CorruptSegment, SegmentReplaced
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.frames import Frame
from segbroker.segments.wal.group import Source

from .crashing import CrashingStorage, Killed
from .test_restoring import ALL, FOLDER, KINDS, LOG_1, LOST, damage, manager_on, rows, seen
from .tools import SMALL, append, batch_of, flip, read_from, read_once

KEYED = TopicConfig({**SMALL.overrides, "cleanup.policy": "compact"})


def in_use(
    disk: MemoryStorage, config: TopicConfig = SMALL, batches: int = len(ALL)
) -> tuple[DiskManager, DiskHandler]:
    manager = manager_on(disk)
    manager.create_topic("t", 1, config)
    handler = manager.get_handler("t", 0)
    for number in range(batches):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    return manager, handler


def forget_indexes(handler: DiskHandler) -> None:
    handler._log.files.indexes.drop(FOLDER)
    handler._log.files.files.drop(FOLDER)


def read_on(handler: DiskHandler) -> tuple[list[int], list[tuple[int, int]]]:
    """`seen`, as a reader who comes again when a segment was damaged."""
    while True:
        try:
            return seen(handler)
        except (CorruptSegment, SegmentReplaced):
            continue


@pytest.mark.parametrize("policy", ["gap", "readonly", "refuse"])
@pytest.mark.parametrize("how", KINDS)
def test_what_the_log_ahead_has_is_no_loss(how: str, policy: str) -> None:
    disk = MemoryStorage()
    manager, handler = in_use(disk, TopicConfig({**SMALL.overrides, "on.corruption": policy}))
    whole = bytes(read_file(disk, LOG_1))
    damage(disk, how)
    forget_indexes(handler)
    assert handler.check_segment(CorruptSegment(LOG_1, 0, "what the scrub found"))
    assert bytes(read_file(disk, LOG_1)) == whole
    assert read_on(handler) == (ALL, [])
    assert rows(manager, "replayed") == [LOST.get(how, (3, 6))]
    assert rows(manager, "gap") == []
    assert handler.read_only is None
    assert append(handler, batch_of(b"more")).base_offset == 15
    again = manager_on(disk.after_power_cut())
    assert seen(again.get_handler("t", 0)) == ([*ALL, 15], [])


@pytest.mark.parametrize("ends", ["stop", "checkpoint", "the checkpoint behind it", "opened again"])
@pytest.mark.parametrize("how", ["away", "longer", "with something behind it"])
def test_a_sealed_segment_that_is_away_is_put_back_before_its_frames_go(
    how: str, ends: str
) -> None:
    disk = MemoryStorage()
    manager, handler = in_use(disk)
    if ends == "the checkpoint behind it":  # the file that was written at the first is kept by it
        assert handler.wal_checkpoint()
    if how == "away":
        disk.unlink(LOG_1)
    elif how == "longer":
        disk.open(LOG_1).pwrite(bytes(2_000), 0)
    else:
        disk.open(LOG_1).pwrite(bytes(100), len(read_file(disk, LOG_1)))
    if ends == "stop":
        manager.close()
    elif ends == "opened again":  # which voids its frames
        disk.unlink(handler._log.active.path)
        for second in range(6, 9):
            manager.housekeeping(second * 1_000)
        assert read_on(handler) == (ALL, [])
    else:
        assert handler.wal_checkpoint()
    assert rows(manager, "replayed") == ([] if how.startswith("with") else [(3, 6)])
    assert rows(manager, "gap") == []
    if ends != "stop":
        manager.close()
    assert seen(manager_on(disk.after_power_cut()).get_handler("t", 0)) == (ALL, [])


def test_its_frames_stay_where_it_cannot_be_put_back_yet() -> None:
    disk = CrashingStorage()
    manager, handler = in_use(disk)
    handler.sync()
    disk.unlink(LOG_1)
    disk.sync_fails = True
    assert not handler.wal_checkpoint()
    assert rows(manager, "gap") == []
    disk.sync_fails = False
    assert seen(manager_on(disk.after_kill()).get_handler("t", 0)) == (ALL, [])


def test_frames_stay_of_a_closed_file_that_is_away_and_needs_no_sync() -> None:
    disk = MemoryStorage()
    _, handler = in_use(disk, batches=14)
    handler.sync()
    handler.park()
    disk.unlink(handler._log.active.path)
    assert not handler.wal_checkpoint()
    assert seen(manager_on(disk.after_kill()).get_handler("t", 0)) == (ALL[:14], [])


@pytest.mark.parametrize("ends", ["checkpoint", "stop"])
def test_its_frames_stay_where_they_cannot_be_read_yet(ends: str) -> None:
    disk = UnreadableWal()
    manager, handler = in_use(disk)
    handler.sync()
    disk.unlink(LOG_1)
    disk.is_bad = True
    if ends == "checkpoint":
        assert not handler.wal_checkpoint()
    else:
        with pytest.raises(ExceptionGroup):
            manager.close()
    assert rows(manager, "gap") == []
    disk.is_bad = False
    assert seen(manager_on(disk.after_kill()).get_handler("t", 0)) == (ALL, [])


def test_its_frames_are_found_where_a_checkpoint_has_copied_them_to() -> None:
    disk = UnreadableWal()
    manager, handler = in_use(disk)
    manager.create_topic("u", 1, TopicConfig({}))
    handler.sync()
    disk.unlink(LOG_1)
    disk.is_bad = True
    while not disk.exists("/data/wal/shard-00/kept-0.log"):
        append(manager.get_handler("u", 0), batch_of(bytes(4_000)))
    disk.is_bad = False
    append(handler, batch_of(b"of another file"))
    assert handler.wal_checkpoint()
    assert (rows(manager, "replayed"), rows(manager, "gap")) == ([(3, 6)], [])
    assert read_on(handler) == ([*ALL, 15], [])


def test_what_was_copied_is_void_where_the_log_was_opened_again() -> None:
    disk = MemoryStorage()
    manager, handler = in_use(disk)
    manager.create_topic("u", 1, TopicConfig({}))
    handler.fail(OSError(errno.EIO, "planted"))
    while not disk.exists("/data/wal/shard-00/kept-0.log"):
        append(manager.get_handler("u", 0), batch_of(bytes(4_000)))
    assert manager.wal.recall(handler._journaling)
    assert handler.try_recover(60_000)
    assert manager.wal.recall(handler._journaling) == []


def test_a_reader_who_has_the_damaged_file_open_gets_the_records() -> None:
    disk = MemoryStorage()
    _, handler = in_use(disk)
    assert read_from(handler, 3, 1)  # its file is open from here on
    flip(disk, LOG_1, 200)
    assert read_on(handler) == (ALL, [])


def test_damage_in_the_segment_that_is_written_is_put_back_too() -> None:
    disk = MemoryStorage()
    manager, handler = in_use(disk, batches=14)
    active = LOG_1.replace("_1", "_4")
    flip(disk, active, 40)
    handler.check_segment(CorruptSegment(active, 0, "what a read found"))
    assert read_on(handler) == (ALL[:14], [])
    assert append(handler, batch_of(b"more")).base_offset == 14
    assert rows(manager, "gap") == []


def test_what_it_has_not_is_a_gap_all_the_same() -> None:
    disk = MemoryStorage()
    in_use(disk, batches=14)
    disk = disk.after_kill()
    manager = manager_on(disk)  # the WAL begins anew behind 13
    handler = manager.get_handler("t", 0)
    for number in range(14, 18):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    segment = LOG_1.replace("_1", "_4")  # | 12 13 14 |
    for batch in (0, 2):
        flip(disk, segment, batch * 129 + 100)
    forget_indexes(handler)
    assert read_on(handler) == ([n for n in range(18) if n != 12], [(12, 13)])
    assert rows(manager, "replayed") == [(14, 15)]
    assert rows(manager, "gap") == [(12, 13)]


def test_frames_that_a_failure_has_made_void_are_not_used() -> None:
    disk = CrashingStorage()
    manager, handler = in_use(disk)
    disk.sync_fails = True
    append(handler, batch_of(b"never acknowledged"))
    disk.sync_fails = False
    manager.keep_house_now(60_000)
    assert handler.read_only is None, "opened again, and a BARRIER written"
    assert manager.wal.recall(handler._journaling) == []
    append(handler, batch_of(b"after it"))
    (frame,) = manager.wal.recall(handler._journaling)
    assert b"after it" in bytes(frame.payload)


def test_nothing_is_put_into_a_compacted_segment_unless_it_is_as_it_was() -> None:
    disk = MemoryStorage()
    manager, handler = in_use(disk)
    manager.alter_topic("t", KEYED.overrides)
    lost = [frame for frame in manager.wal.recall(handler._journaling) if frame.base_offset != 4]
    vars(manager.wal)["recall"] = lambda source: lost
    for batch in (0, 1):
        flip(disk, LOG_1, batch * 129 + 100)
    forget_indexes(handler)
    assert read_on(handler)[1] == [(3, 5)], "3 alone is not put back"
    flip(disk, LOG_1.replace("_1", "_2"), 100)
    forget_indexes(handler)
    assert read_on(handler)[1] == [(3, 5)], "the whole segment is"


def test_a_reader_who_has_a_file_open_that_somebody_has_replaced_reads_the_new_one() -> None:
    disk = MemoryStorage()
    manager, handler = in_use(disk)
    whole = bytes(read_file(disk, LOG_1))
    assert read_from(handler, 3, 1)  # its file is open from here on
    flip(disk, LOG_1, 200)
    replace_file(disk, LOG_1, whole)  # put back by hand, or by a repair whose last sync failed
    with pytest.raises(SegmentReplaced):
        read_once(handler, 4, 1)
    assert read_once(handler, 4, 1)
    assert seen(handler) == (ALL, [])
    assert rows(manager, "gap") == []


class UnreadableWal(MemoryStorage):
    """A disk that cannot read the write-ahead log."""

    is_bad = False
    why = errno.EIO

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if self.is_bad and read_only and "/wal/" in path:
            raise OSError(self.why, "planted", path)
        return super().open(path, create=create, read_only=read_only)


def test_a_log_ahead_that_cannot_be_read_keeps_nobody_from_a_repair() -> None:
    disk = UnreadableWal()
    manager, handler = in_use(disk)
    flip(disk, LOG_1, 200)
    forget_indexes(handler)
    disk.is_bad = True
    assert read_on(handler) == ([n for n in ALL if n != 4], [(4, 5)])
    assert rows(manager, "replayed") == []


def test_for_want_of_a_descriptor_to_read_it_with_nothing_is_given_up() -> None:
    disk = UnreadableWal()
    manager, handler = in_use(disk)
    flip(disk, LOG_1, 200)
    forget_indexes(handler)
    disk.is_bad, disk.why = True, errno.EMFILE
    assert not handler.check_segment(CorruptSegment(LOG_1, 0, "what the scrub found"))
    assert rows(manager, "gap") == []
    disk.is_bad = False
    assert read_on(handler) == (ALL, [])


def test_the_files_are_not_read_for_every_segment_that_is_older_than_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryStorage()
    in_use(disk, batches=14)
    disk = disk.after_kill()
    manager = manager_on(disk)  # the WAL begins anew behind 13
    handler = manager.get_handler("t", 0)
    for number in range(14, 18):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    reads: list[Source] = []
    recall = manager.wal.recall

    def counted(source: Source) -> list[Frame]:
        reads.append(source)
        return recall(source)

    monkeypatch.setattr(manager.wal, "recall", counted)
    for number in range(5):
        flip(disk, LOG_1.replace("_1", f"_{number}"), 2 * 129 + 100)
    forget_indexes(handler)
    gaps = [(2, 3), (5, 6), (8, 9), (11, 12)]
    assert read_on(handler)[1] == gaps, "of the last segment nothing is lost"
    assert rows(manager, "replayed") == [(14, 15)]
    assert len(reads) == 2, "once for the old ones, once for the one that they may have"


def test_nobody_waits_for_the_writer_who_may_wait_for_room() -> None:
    # The writer holds its lock while it waits for a checkpoint, which waits for who repairs.
    disk = MemoryStorage()
    manager, handler = in_use(disk)
    shard = manager.wal.shard_of(*handler._journaling.wal_key)
    with shard._writing:
        assert len(manager.wal.recall(handler._journaling)) == len(ALL)


def test_a_file_that_is_used_again_meanwhile_has_nothing() -> None:
    disk = MemoryStorage()
    manager, handler = in_use(disk)
    (path,) = manager.wal.shard_of(*handler._journaling.wal_key).files_since(handler._journaling)
    disk.rename(path, path.replace("wal-", "free-"))
    assert manager.wal.recall(handler._journaling) == []


def test_an_interruption_anywhere_loses_nothing() -> None:
    dies_at = 0
    while True:
        disk = CrashingStorage()
        _, handler = in_use(disk)
        whole = bytes(read_file(disk, LOG_1))
        flip(disk, LOG_1, 200)
        forget_indexes(handler)
        before = len(disk.operations)
        disk.dies_at = before + dies_at
        try:
            handler.check_segment(CorruptSegment(LOG_1, 0, "what the scrub found"))
        except Killed:
            for image in (disk.after_kill(), disk.after_power_cut()):
                assert seen(manager_on(image).get_handler("t", 0)) == (ALL, []), dies_at
            dies_at += 1
            continue
        assert dies_at > 5, "copy, replace, index: it was interrupted everywhere"
        assert bytes(read_file(disk, LOG_1)) == whole
        return

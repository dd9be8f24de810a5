"""What is whole is kept, also where what says its place is damaged, older, or gone.

no manifest     | 0? 1 2 | 3 4 5 | ...      and the first batch, or its offset, is damaged
a file is gone  | 0 | 1 | 2 | ... | 4 |     one batch in each
a manifest from before a leader epoch       put back by hand
a directory from before 180 segments        put back by hand, and the write-ahead log has the end
"""

import pytest

from segbroker.protocol.record_batch import GapReason, iter_batches, read_header
from segbroker.segments.background import Housekeeper
from segbroker.segments.checks.directory_check import DirectoryChecker
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, remove_tree, replace_file
from segbroker.segments.files.index import OFFSET_SPAN_MAX
from segbroker.segments.names import owner_of, partition_paths
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.recovery.lost_tail import begin_at

from .compacted import Compacted
from .test_restoring import manager_on, rows, seen
from .tools import SMALL, append, batch_of, flip, lose_wal, read_from

PATHS = partition_paths("/data", "t", 0)
COUNT = 15


def filled(disk: MemoryStorage, begin: int = 0) -> DiskManager:
    """Three batches to a segment."""
    manager = manager_on(disk)
    meta = manager.create_topic("t", 1, SMALL)
    if begin:
        remove_tree(disk, PATHS.folder)
        owned = partition_paths("/data", "t", 0, owner_of(meta.topic_id, 0))
        begin_at(disk, owned, begin, 0, 1_000)
    write(manager, COUNT)
    return manager


def write(manager: DiskManager, count: int, size: int = 57) -> None:
    for number in range(count):
        append(manager.get_handler("t", 0), batch_of(b"%03d" % number + b"x" * size))


def lost(disk: MemoryStorage) -> list[tuple[int, int]]:
    """What verify says that is lost."""
    told = [one for one in DirectoryChecker(disk, "/data", 0).check() if one.is_damage]
    return [(one.from_offset, one.to_offset) for one in told if one.from_offset >= 0]


def behind_rows(disk: MemoryStorage, content: bytes) -> None:
    """Write behind the rows of the manifest."""
    rows = bytes(read_file(disk, PATHS.manifest))
    replace_file(disk, PATHS.manifest, rows + content)


@pytest.mark.parametrize("rest", [b"\1" * 10, b"\2", bytes(64), bytes(640)])
@pytest.mark.parametrize("gone", [[0], [0, 1], [0, 2]])
def test_a_row_that_was_not_written_whole_hides_no_segment_that_is_gone(
    rest: bytes, gone: list[int]
) -> None:
    disk = MemoryStorage()
    filled(disk).close()
    behind_rows(disk, rest)
    for number in gone:
        disk.unlink(PATHS.log(number))
    holes = [(3 * number, 3 * number + 3) for number in gone]
    assert lost(disk) == holes
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert handler.log_start_offset == 0
    assert records_of(handler) == [n for n in range(COUNT) if n // 3 not in gone]
    assert rows(manager, "gap") == holes


def test_a_log_that_nobody_has_written_to_has_lost_nothing_with_its_manifest() -> None:
    disk = MemoryStorage()
    manager_on(disk).create_topic("t", 1, SMALL)
    disk = disk.after_power_cut()
    assert lost(disk) == []
    assert not [one for one in DirectoryChecker(disk, "/data", 0).check() if one.is_damage]


def test_a_segment_that_is_gone_is_put_back_though_the_last_row_is_torn() -> None:
    disk = MemoryStorage()
    filled(disk)
    disk = disk.after_kill()
    behind_rows(disk, b"\1" * 10)
    disk.unlink(PATHS.log(0))
    assert lost(disk) == []
    manager = manager_on(disk)
    assert seen(manager.get_handler("t", 0)) == (list(range(COUNT)), [])


def test_where_a_row_is_damaged_that_may_have_said_so_it_is_told_where_the_log_begins_now() -> None:
    disk = MemoryStorage()
    filled(disk).close()
    behind_rows(disk, b"\1" * 64)
    disk.unlink(PATHS.log(0))
    (_, told) = [one for one in DirectoryChecker(disk, "/data", 0).check() if one.is_damage]
    assert told.text.startswith("no segment in front of offset 3 is there")
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert (handler.log_start_offset, handler._log.floor.reason) == (3, GapReason.CORRUPTION)
    manager.close()
    assert not [one for one in DirectoryChecker(disk, "/data", 0).check() if one.is_damage]


FAR = 3 * OFFSET_SPAN_MAX


@pytest.mark.parametrize("begin", [0, 1_000, FAR])
@pytest.mark.parametrize("bit", [0, 1, 12, 20, 31, 32, 40, 62, 63])
def test_without_a_manifest_a_flipped_bit_of_the_first_offset_costs_its_batch(
    begin: int, bit: int
) -> None:
    disk = MemoryStorage()
    filled(disk, begin).close()
    disk.unlink(PATHS.manifest)
    flip(disk, PATHS.log(0), 7 - bit // 8, 1 << bit % 8)
    told = lost(disk)
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert seen(handler)[0] == list(range(begin + 1, begin + COUNT))
    assert rows(manager, "gap") == told
    (gap,) = told
    assert gap[0] <= begin, "it is told"
    assert gap[1] == begin + 1


@pytest.mark.parametrize("begin", [0, 1_000, FAR])
def test_without_a_manifest_a_damaged_first_batch_is_all_that_is_lost(begin: int) -> None:
    disk = MemoryStorage()
    filled(disk, begin).close()
    disk.unlink(PATHS.manifest)
    flip(disk, PATHS.log(0), 100)
    told = lost(disk)
    manager = manager_on(disk)
    assert seen(manager.get_handler("t", 0))[0] == list(range(begin + 1, begin + COUNT))
    assert rows(manager, "gap") == told
    assert [end for _, end in told] == [begin + 1]


@pytest.mark.parametrize("begin", [0, 1_000, FAR])
def test_without_a_manifest_and_a_whole_first_segment_the_others_are_kept(begin: int) -> None:
    disk = MemoryStorage()
    filled(disk, begin).close()
    disk.unlink(PATHS.manifest)
    replace_file(disk, PATHS.log(0), bytes(300))
    manager = manager_on(disk)
    assert seen(manager.get_handler("t", 0))[0] == list(range(begin + 3, begin + COUNT))
    assert [end for _, end in rows(manager, "gap")] == [begin + 3]


def test_without_a_manifest_the_first_batch_is_believed_where_a_file_is_missing_behind_it() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    write(manager, 4, size=400)
    manager.close()
    disk.unlink(PATHS.manifest)
    disk.unlink(PATHS.log(1))
    manager = manager_on(disk)
    assert seen(manager.get_handler("t", 0)) == ([0, 2, 3], [(1, 2)])


class _Busy(Housekeeper):
    """It never comes round to sealing anything."""

    def __init__(self) -> None:
        super().__init__(threaded=False)

    def submit(self, task: object) -> None:
        pass


@pytest.mark.parametrize("gone", [1, 3])
@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_segment_of_one_batch_behind_one_that_is_gone_is_kept(
    gone: int, *, is_emptied: bool
) -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    handler = manager.get_handler("t", 0)
    handler._rolling._housekeeper = _Busy()
    write(manager, 5, size=400)
    handler.sync()
    assert len(handler._log.rotating) == 4
    disk = disk.after_kill()
    lose_wal(disk)
    if is_emptied:
        replace_file(disk, PATHS.log(gone), b"")
    else:
        disk.unlink(PATHS.log(gone))
    assert lost(disk) == [(gone, gone + 1)]
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert seen(handler) == ([n for n in range(5) if n != gone], [(gone, gone + 1)])
    assert append(handler, batch_of(b"more")).base_offset == 5


def test_a_manifest_from_before_a_leader_epoch_costs_no_record_of_that_epoch() -> None:
    disk = MemoryStorage()
    manager = filled(disk)
    manager.close()
    older = bytes(read_file(disk, PATHS.manifest))
    manager = manager_on(disk)
    manager._resuming.begin_epoch(manager.topics["t"], 0)
    write(manager, COUNT)
    manager.close()
    replace_file(disk, PATHS.manifest, older)
    assert lost(disk) == []
    for _ in range(2):
        manager = manager_on(disk)
        handler = manager.get_handler("t", 0)
        assert seen(handler) == (list(range(2 * COUNT)), [])
        assert handler._log.epochs == [(0, 0), (1, COUNT)]
        assert rows(manager, "gap") == []
        manager.close()


def test_a_leader_epoch_that_nobody_has_begun_is_damage_as_before() -> None:
    disk = MemoryStorage()
    manager = filled(disk)
    manager._resuming.begin_epoch(manager.topics["t"], 0)
    disk = disk.after_kill()
    lose_wal(disk)
    log = PATHS.log(COUNT // 3 - 1)
    flip(disk, log, 2 * 129 + 15, 4)  # epoch 4 at the last batch of all
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert seen(handler) == (list(range(COUNT - 1)), [(COUNT - 1, COUNT)])


@pytest.mark.parametrize("of", [0, 1, 3])
@pytest.mark.parametrize("has_manifest", [True, False])
def test_the_leader_epoch_of_a_stranger_with_lower_offsets_is_not_that_of_the_log(
    of: int, has_manifest: bool
) -> None:
    """| 12 13 14 | 3 4 5 |: a copy of another partition's, of an epoch that this one begins now."""
    disk = MemoryStorage()
    manager = filled(disk)
    manager._resuming.begin_epoch(manager.topics["t"], 0)
    disk = disk.after_kill()
    lose_wal(disk)
    other = bytearray(read_file(disk, PATHS.log(of)))
    for position in range(0, len(other), 129):
        other[position + 15] = 1  # the leader epoch
    replace_file(disk, PATHS.log(COUNT // 3), bytes(other))
    if not has_manifest:
        disk.unlink(PATHS.manifest)
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert records_of(handler) == list(range(COUNT))


@pytest.mark.parametrize("count", [600, 601, 602])
def test_what_the_write_ahead_log_has_behind_a_much_older_directory_is_kept(count: int) -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, SMALL)
    write(manager, 4)
    manager.close()
    older = {name: bytes(read_file(disk, f"{PATHS.folder}/{name}")) for name in files(disk)}
    manager = manager_on(disk)
    write(manager, count - 4)
    disk = disk.after_kill()
    remove_tree(disk, PATHS.folder)
    disk.mkdir(PATHS.folder)
    for name, content in older.items():
        replace_file(disk, f"{PATHS.folder}/{name}", content)
    (told,) = lost(disk)
    assert told[0] == 4
    assert told[1] < count
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert rows(manager, "gap") == [told]
    assert records_of(handler) == [*range(4), *range(told[1], count)]


def files(disk: MemoryStorage) -> list[str]:
    return disk.listdir(PATHS.folder)


def records_of(handler: DiskHandler) -> list[int]:
    """Offsets of what is there, over many reads."""
    found: list[int] = []
    offset = handler.log_start_offset
    while offset < handler.high_watermark:
        for batch in iter_batches(read_from(handler, offset)):
            header = read_header(batch)
            if not header.is_control:
                found.append(header.base_offset)
            offset = header.next_offset
    return found


def test_newer_segments_that_a_backup_was_put_over_are_kept() -> None:
    """Its files came back, and those that it did not have stayed; a cleaning had left a hole."""
    disk = MemoryStorage()
    manager = filled(disk)
    manager.close()
    older = {name: bytes(read_file(disk, f"{PATHS.folder}/{name}")) for name in files(disk)}
    manager = manager_on(disk)
    write(manager, COUNT)
    manager.close()
    number = COUNT // 3
    disk.unlink(PATHS.log(number))  # as if it were part of the one behind it
    for name, content in older.items():
        replace_file(disk, f"{PATHS.folder}/{name}", content)
    (told,) = lost(disk)
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert rows(manager, "gap") == [told] == [(COUNT, COUNT + 3)]
    assert handler.log_end_offset == 2 * COUNT
    assert seen(handler)[0] == [*range(COUNT), *range(COUNT + 3, 2 * COUNT)]
    assert [row.reason for row in manager.report.rows if row.what == "gap"] == [
        GapReason.CORRUPTION.name.lower()
    ]


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(("older", "newer"), [(9, 3), (3, 6), (4, 12), (6, 1)])
def test_a_cleaned_segment_keeps_its_records_where_older_ones_were_put_in_front_of_it(
    older: int, newer: int, *, is_killed: bool
) -> None:
    """| 0 | 1 | ... | 8 | 0 .. 9 | 10 | ...: the backup has 0 to 8, and 0 to 9 became one."""
    disk = MemoryStorage()
    log = Compacted(disk)
    for number in range(older):
        log.send((b"%d" % (number % 3), b"x" * 380))
    log.manager.close()
    backup = {name: bytes(read_file(disk, f"{PATHS.folder}/{name}")) for name in files(disk)}
    log.open()
    for number in range(newer):
        log.send((b"%d" % (number % 3), b"y" * 380))
    log.clean()
    log.send((b"0", b"z" * 380))
    cleaned = records_of(log.handler)
    if is_killed:
        disk = disk.after_kill()
    else:
        log.manager.close()
    for name, content in backup.items():
        replace_file(disk, f"{PATHS.folder}/{name}", content)
    told = lost(disk)
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    assert set(records_of(handler)) >= set(cleaned)
    assert rows(manager, "gap") == told

"""Where a log begins, and how much of what was in front is lost: durable, told why, never back."""

import errno
from collections.abc import Callable

import pytest

from segbroker.protocol.record_batch import GapReason
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Storage, read_file
from segbroker.segments.files.manifest import Row, RowKind
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.log.accounting import Missing, account
from segbroker.segments.log.columns import SealedSegments
from segbroker.segments.log.deleting import (
    compact_manifest,
    delete_records_before,
    evict,
    unlink_doomed,
)
from segbroker.segments.log.sealing import seal
from segbroker.segments.names import LogPaths

from .crash.images import Images
from .crash.recording import RecordingStorage
from .crash.second_life import left_by
from .crashing import CrashingStorage
from .tools import SMALL, flip, values_of

PATHS = LogPaths("/log", "t")


def _closed(log: SegmentedLog, disk: MemoryStorage) -> MemoryStorage:
    log.close()
    return disk


OPENINGS: list[Callable[[SegmentedLog, MemoryStorage], MemoryStorage]] = [
    _closed,
    lambda log, disk: disk.after_kill(),
    lambda log, disk: disk.after_power_cut(),
]


def open_log(disk: Storage) -> SegmentedLog:
    return SegmentedLog.open(disk, "/log", "t", SMALL, now_ms=1_000)


def record(number: int) -> bytes:
    return b"record %03d " % number + bytes(140)


def log_with(disk: MemoryStorage, count: int = 10) -> SegmentedLog:
    """Two records per segment, all but the last sealed."""
    log = open_log(disk)
    for i in range(count):
        log.append([record(i)], now_ms=1_000)
    seal(log._log)
    return log


def floors_of(log: SegmentedLog) -> tuple[int, int, int]:
    """(evict floor, reason, log start)."""
    return (*log._log.floor, log.log_start_offset)


def segments_on(disk: MemoryStorage) -> list[int]:
    found = (PATHS.segment_number(name) for name in disk.listdir("/log"))
    return sorted(number for number in found if number is not None)


def indexes_on(disk: MemoryStorage) -> list[int]:
    found = (PATHS.index_number(name) for name in disk.listdir("/log"))
    return sorted(number for number in found if number is not None)


@pytest.mark.parametrize("again", OPENINGS, ids=["closed", "killed", "power"])
def test_what_retention_takes_moves_both_floors_and_what_somebody_deletes_one(
    again: Callable[[SegmentedLog, MemoryStorage], MemoryStorage],
) -> None:
    # | 0 1 | 2 3 | 4 5 | 6 7 | 8 9
    disk = MemoryStorage()
    log = log_with(disk)
    assert floors_of(log) == (0, 0, 0)
    evict(log._log, 1, GapReason.CAP)
    assert floors_of(log) == (2, GapReason.CAP, 2)
    delete_records_before(log._log, 5)
    assert floors_of(log) == (2, GapReason.CAP, 5)
    disk = again(log, disk)
    log = open_log(disk)
    assert floors_of(log) == (2, GapReason.CAP, 5)
    assert values_of(log) == [record(i) for i in range(5, 10)]
    evict(log._log, 1, GapReason.TTL)  # 4 was deleted before, 5 was not
    assert floors_of(log) == (6, GapReason.TTL, 6)


def test_taking_away_what_was_deleted_is_no_loss() -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    log._log.log_start_offset = 5  # as an earlier version left it: the files are still there
    evict(log._log, 2, GapReason.CAP)
    assert floors_of(log) == (0, 0, 5)
    assert log._log.sealed.first_number == 2


@pytest.mark.parametrize("again", OPENINGS, ids=["closed", "killed", "power"])
def test_files_in_front_of_the_start_are_gone_after_the_next_opening_at_the_latest(
    again: Callable[[SegmentedLog, MemoryStorage], MemoryStorage],
) -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    log.close()
    log = open_log(disk)
    delete_records_before(log._log, 5)
    assert segments_on(disk) == [0, 1, 2, 3, 4]
    disk = again(log, disk)
    log = open_log(disk)
    assert segments_on(disk) == [2, 3, 4]
    assert indexes_on(disk) == [2, 3], "the last one has none yet"
    assert floors_of(log) == (0, 0, 5)


@pytest.mark.parametrize("start", [1, 5])
def test_a_log_start_that_a_process_was_killed_before_it_had_synced_is_synced_before_it_is_gone_by(
    start: int,
) -> None:
    """Up to 1 no segment goes, up to 5 two of them; the power goes behind each, or later."""
    disk = RecordingStorage()
    log_with(disk).close()
    killed: list[RecordingStorage] = []

    def kill(call: str, path: str) -> None:
        if (call, path) == ("pwrite", PATHS.manifest):
            killed.append(left_by(disk))

    log = open_log(disk)
    disk.on_change = kill
    delete_records_before(log._log, start)
    (left,) = killed

    def cut(*starts: int) -> None:
        for image in Images(left).now():
            with open_log(image.build()) as found:
                assert floors_of(found) in [(0, 0, offset) for offset in starts]
                assert values_of(found) == [record(i) for i in range(found.log_start_offset, 10)]

    left.on_change = lambda call, path: cut(0, start) if call == "unlink" else None
    with open_log(left) as log:
        assert floors_of(log) == (0, 0, start)
        cut(start)


def test_an_index_whose_segment_is_gone_is_gone_after_the_next_opening() -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    evict(log._log, 2, GapReason.TTL)
    disk.unlink(PATHS.log(0))  # and the process ends, in the middle
    disk = disk.after_kill()
    log = open_log(disk)
    assert (segments_on(disk), indexes_on(disk)) == ([2, 3, 4], [2, 3])
    assert values_of(log) == [record(i) for i in range(4, 10)]


def test_doomed_files_go_a_few_at_a_time() -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    evict(log._log, 3, GapReason.TTL)
    assert unlink_doomed(log._log, 2) == 1
    assert segments_on(disk) == [2, 3, 4]
    assert unlink_doomed(log._log, 2) == 0
    assert segments_on(disk) == [3, 4]


def test_a_request_to_delete_survives_the_loss_of_the_manifest() -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    evict(log._log, 1, GapReason.CAP)
    delete_records_before(log._log, 5)
    log.close()
    disk.unlink(PATHS.manifest)
    log = open_log(disk)
    assert floors_of(log) == (2, GapReason.CAP, 5)
    assert values_of(log) == [record(i) for i in range(5, 10)]
    log.close()
    with open_log(disk) as log:
        assert floors_of(log) == (2, GapReason.CAP, 5)


@pytest.mark.parametrize("lost", ["missing", "damaged"])
def test_a_request_to_delete_all_survives_the_loss_of_the_manifest(lost: str) -> None:
    """No segment has a batch that says where it begins; its offsets were given all the same."""
    disk = MemoryStorage()
    log = log_with(disk)
    with log._log.append_lock:
        log._log.roll(1_000)
    seal(log._log)
    delete_records_before(log._log, 10)
    assert unlink_doomed(log._log) == 0
    log.close()
    if lost == "missing":
        disk.unlink(PATHS.manifest)
    else:
        flip(disk, PATHS.manifest, 10)
    for told in (["manifest_rebuilt"], []):
        with open_log(disk) as log:
            assert floors_of(log) == (0, 0, 10)
            assert log.log_end_offset == 10
            assert [row.what for row in log.report._report.rows] == told
    with open_log(disk) as log:
        log.append([record(10)], now_ms=1_000)
        assert values_of(log) == [record(10)]
        assert log.log_end_offset == 11


def test_a_request_to_delete_survives_damage_in_the_manifest() -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    delete_records_before(log._log, 5)
    log.close()
    flip(disk, PATHS.manifest, 32 + 70)  # its second row
    with open_log(disk) as log:
        assert log.log_start_offset == 5


def test_why_records_went_is_known_when_a_later_row_of_the_manifest_is_damaged() -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    evict(log._log, 2, GapReason.TTL)
    log.close()
    before = read_file(disk, PATHS.manifest)
    flip(disk, PATHS.manifest, len(before) - 10)  # the checkpoint behind it
    for _ in range(2):
        with open_log(disk) as log:
            assert floors_of(log) == (4, GapReason.TTL, 4)
            assert values_of(log) == [record(i) for i in range(4, 10)]


def test_what_went_with_a_lost_manifest_is_told_as_lost() -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    delete_records_before(log._log, 3)
    evict(log._log, 3, GapReason.TTL)
    log.close()
    disk.unlink(PATHS.manifest)
    with open_log(disk) as log:
        assert floors_of(log) == (8, GapReason.CORRUPTION, 8)


def test_a_damaged_copy_is_not_believed() -> None:
    disk = MemoryStorage()
    log = log_with(disk)
    delete_records_before(log._log, 9)
    log.close()
    flip(disk, PATHS.start, 40)
    disk.unlink(PATHS.manifest)
    with open_log(disk) as log:  # the segment that holds 9 is whole again
        assert floors_of(log) == (8, GapReason.CORRUPTION, 8)


def test_a_full_disk_can_be_made_room_on() -> None:
    disk = CrashingStorage()
    log = log_with(disk)
    assert disk.exists(PATHS.index(0))
    disk.room = 0
    with pytest.raises(OSError, match="no space"):
        evict(log._log, 2, GapReason.CAP)
    assert not disk.exists(PATHS.index(0)), "an index can be made again, a record cannot"
    assert values_of(log) == [record(i) for i in range(10)]
    disk.room = None
    evict(log._log, 2, GapReason.CAP)
    assert floors_of(log) == (4, GapReason.CAP, 4)


class FullDisk(CrashingStorage):
    """Who unlinks a file has its bytes."""

    def unlink(self, path: str) -> None:
        size = self.open(path).size()
        super().unlink(path)
        if self.room is not None:
            self.room += size


def test_a_request_to_delete_makes_the_room_that_it_needs_itself() -> None:
    rehearsed = MemoryStorage()
    log = log_with(rehearsed)
    before = len(read_file(rehearsed, PATHS.manifest))
    delete_records_before(log._log, 5)
    row_size = len(read_file(rehearsed, PATHS.manifest)) - before

    disk = FullDisk()
    log = log_with(disk)
    disk.room = row_size  # for the row in the manifest, and not a byte for its copy
    assert delete_records_before(log._log, 5) == 5
    assert not disk.exists(PATHS.log(0))
    disk.room = None
    log.close()
    disk.unlink(PATHS.manifest)
    with open_log(disk) as log:
        assert log.log_start_offset == 5


def test_a_manifest_that_could_not_be_synced_is_replaced_and_costs_nothing() -> None:
    disk = CrashingStorage()
    log = log_with(disk)
    disk.sync_fails = True
    with pytest.raises(OSError, match="sync failed"):
        evict(log._log, 1, GapReason.CAP)
    assert floors_of(log) == (0, 0, 0)
    disk.sync_fails = False
    before = len(disk.operations)
    evict(log._log, 1, GapReason.CAP)
    assert "rename" in disk.operations[before:], "a new file: the old one is never synced again"
    assert floors_of(log) == (2, GapReason.CAP, 2)
    log = open_log(disk.after_power_cut())
    assert floors_of(log) == (2, GapReason.CAP, 2)
    assert values_of(log) == [record(i) for i in range(2, 10)]


def test_the_manifest_stays_bounded_however_often_the_start_moves() -> None:
    disk = MemoryStorage()
    log = log_with(disk, 4)
    for i in range(4, 1_000):
        log.append([record(i)], now_ms=1_000)
        seal(log._log)
        if len(log._log.sealed) > 2:
            evict(log._log, 1, GapReason.CAP)
            compact_manifest(log._log, 1_000)
        assert disk.open(PATHS.manifest).size() < 32 + 64 * 80
    log = open_log(disk.after_power_cut())
    assert floors_of(log) == (994, GapReason.CAP, 994)


def test_columns_stay_right_when_their_front_goes() -> None:
    stamps = [5, 90, -1, 7, 8, 95, 6]
    rows = [
        Row(RowKind.SEGMENT, n, 10 * n, 10 * n + 10, 100 + n, 10, stamp)
        for n, stamp in enumerate(stamps)
    ]
    for count in range(len(rows) + 1):
        columns, expected = SealedSegments(0, 0), SealedSegments(count, 10 * count)
        columns.fill(rows)
        columns.drop_front(count)
        expected.fill(rows[count:])
        assert columns.rows() == rows[count:]
        assert columns.running_max_timestamps == expected.running_max_timestamps
        assert columns.total_size == expected.total_size
        assert columns.total_records == expected.total_records


@pytest.mark.parametrize(
    ("stamps", "count"),
    [
        ([10, 20, 30], 2),
        ([40, 10, 10], 0),  # the front holds the others back, as they were written in this order
        ([-1, -1], 0),
        ([-1, 10, -1], 2),
        ([10, -1, 40], 1),
        ([], 0),
    ],
)
def test_segments_without_a_timestamp_never_go_on_their_own(stamps: list[int], count: int) -> None:
    columns = SealedSegments(0, 0)
    columns.fill(
        [Row(RowKind.SEGMENT, n, n, n + 1, 100, 1, stamp) for n, stamp in enumerate(stamps)]
    )
    assert columns.count_older(25) == count


def test_the_account_of_a_log_leaves_no_offset_out() -> None:
    # | 0 1 | 2 3 | 4 5 | 6 ? | 8 9      evicted up to 2, deleted up to 5, 7 damaged
    disk = MemoryStorage()
    log = log_with(disk)
    evict(log._log, 1, GapReason.CAP)
    delete_records_before(log._log, 5)
    flip(disk, PATHS.log(3), disk.open(PATHS.log(3)).size() - 10)
    assert values_of(log) == [record(i) for i in (5, 6, 8, 9)]
    found = account(log._log, 0, 10)
    assert found.next is None
    assert found.missing == [
        Missing(0, 2, GapReason.CAP),
        Missing(2, 5, GapReason.DELETED),
        Missing(7, 8, GapReason.CORRUPTION),
    ]
    assert account(log._log, 3, 8).missing == [
        Missing(3, 5, GapReason.DELETED),
        Missing(7, 8, GapReason.CORRUPTION),
    ]
    assert log._log.records_count >= 4


def test_no_space_is_told_apart_from_a_broken_disk() -> None:
    disk = CrashingStorage()
    log = log_with(disk)
    disk.room = 10
    with pytest.raises(OSError, match="no space") as caught:
        delete_records_before(log._log, 1)
    assert caught.value.errno == errno.ENOSPC
    disk.room = None
    before = len(disk.operations)
    assert delete_records_before(log._log, 1) == 1
    assert disk.operations[before : before + 2] == ["pwrite", "fdatasync"], "over the torn row"

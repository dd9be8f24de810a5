"""Files that are missing, copied in, swapped, or of numbers that cannot be: found, kept, told."""

import pytest

from segbroker.protocol.record_batch import GapReason, gap_reason, read_header
from segbroker.segments.decisions import Decision, Tail
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file, write_all
from segbroker.segments.files.manifest import Row, RowKind, decode_manifest, encode_manifest
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.log.deleting import delete_records_before
from segbroker.segments.log.ready import AHEAD_MAX
from segbroker.segments.log.sealing import seal
from segbroker.segments.names import LogPaths
from segbroker.segments.recovery.survey import Circumstances, survey
from segbroker.segments.settings.topic_config import TopicConfig

from .classes import manager_on
from .tools import SMALL, append, batch_of, flip, offsets_in, read_from, values_of

PATHS = LogPaths("/log", "t")


def open_log(disk: MemoryStorage, config: TopicConfig = SMALL) -> SegmentedLog:
    return SegmentedLog.open(disk, "/log", "t", config, now_ms=1_000)


def record(number: int) -> bytes:
    return b"record %013d" % number


def disk_with(
    count: int, *, closed: bool = False, config: TopicConfig = SMALL, first: int = 0
) -> MemoryStorage:
    """A log of `count` records of which five fit a segment."""
    disk = MemoryStorage()
    log = open_log(disk, config)
    for i in range(first, first + count):
        log.append([record(i)], now_ms=1_000 + i)
    if closed:
        log.close()
    return disk.after_kill()


def gaps_of(log: SegmentedLog) -> list[tuple[int, int, GapReason | None]]:
    headers = [read_header(batch) for batch in log.batches()]
    return [(h.base_offset, h.next_offset, gap_reason(h)) for h in headers if h.is_control]


def accounted(log: SegmentedLog) -> None:
    """Every offset is a record that was written there, or in a gap."""
    due = log.log_start_offset
    for batch in log.batches():
        header = read_header(batch)
        assert header.base_offset == due
        due = header.next_offset
    assert due == log.log_end_offset
    assert all(one.value == record(one.offset) for one in log.stream())


def content_of(disk: MemoryStorage) -> dict[str, bytes]:
    names = [name for name in disk.listdir("/log") if name != "quarantine"]
    return {name: bytes(read_file(disk, f"/log/{name}")) for name in names}


def base_of(disk: MemoryStorage, number: int) -> int:
    return read_header(read_file(disk, PATHS.log(number))).base_offset


def test_a_batch_whose_offset_lost_a_bit_is_a_gap_even_at_the_very_end() -> None:
    # | 0 | 1 | 2 |  the last: right checksum, offset 2 ^ 64.  No write leaves that behind.
    disk = disk_with(3)
    size = disk.open(PATHS.log(0)).size() // 3
    flip(disk, PATHS.log(0), 2 * size + 7, 64)
    found = survey(disk, PATHS, Circumstances(1_000))
    assert [(step.scan.tail, step.decision) for step in found.steps[:1]] == [
        (Tail.FOREIGN, Decision.REPAIR)
    ]
    with open_log(disk) as log:
        assert gaps_of(log) == [(2, 3, GapReason.CORRUPTION)]
        assert log.append([record(3)], now_ms=0) == 3
        accounted(log)


def test_a_batch_whose_leader_epoch_lost_a_bit_is_a_gap_even_at_the_very_end() -> None:
    disk = disk_with(3)
    size = disk.open(PATHS.log(0)).size() // 3
    flip(disk, PATHS.log(0), 2 * size + 15)
    with open_log(disk) as log:
        assert gaps_of(log) == [(2, 3, GapReason.CORRUPTION)]
        accounted(log)


@pytest.mark.parametrize("wrong", [(0, 128), (12, 128)])
def test_a_first_batch_that_nobody_expects_is_kept_aside(wrong: tuple[int, int]) -> None:
    # Its offset or its epoch is negative, and no manifest says what is due.
    disk = disk_with(1)
    disk.unlink(PATHS.manifest)
    position, bits = wrong
    flip(disk, PATHS.log(0), position, bits)
    damaged = bytes(read_file(disk, PATHS.log(0)))
    with open_log(disk) as log:
        assert values_of(log) == []
    with open_log(disk) as log:
        log.append([record(log.log_end_offset)], now_ms=0)
        accounted(log)
    kept = [read_file(disk, f"/log/quarantine/{name}") for name in disk.listdir("/log/quarantine")]
    assert damaged in kept


def test_two_bits_are_no_slip_of_a_disk_and_cost_no_offset() -> None:
    # | 0 | 1 | 1 |  the last, of another log: offset 1 where 2 is due.
    disk = disk_with(3)
    size = disk.open(PATHS.log(0)).size() // 3
    flip(disk, PATHS.log(0), 2 * size + 7, 3)
    with open_log(disk) as log:
        assert gaps_of(log) == []
        assert log.log_end_offset == 2
        accounted(log)
    assert len(disk.listdir("/log/quarantine")) == 1


@pytest.mark.parametrize("hole", [0, 1, AHEAD_MAX])
def test_an_older_segment_copied_in_as_the_last_is_kept_aside_and_costs_no_offset(
    hole: int,
) -> None:
    disk = disk_with(20)
    last = max(n for n in range(20) if disk.exists(PATHS.log(n)) and disk.open(PATHS.log(n)).size())
    replace_file(disk, PATHS.log(last + 1 + hole), read_file(disk, PATHS.log(0)))
    for records in (20, 21):
        with open_log(disk) as log:
            assert (log.log_end_offset, gaps_of(log)) == (records, [])
            assert values_of(log) == [record(i) for i in range(records)]
            log.append([record(records)], now_ms=0)
    assert len(disk.listdir("/log/quarantine")) == 1


@pytest.mark.parametrize("number", [40, 500, 10**18])
def test_a_file_of_a_number_that_cannot_be_is_kept_aside(number: int) -> None:
    disk = disk_with(8)
    replace_file(disk, PATHS.log(number), read_file(disk, PATHS.log(0)))
    with open_log(disk) as log:
        assert values_of(log) == [record(i) for i in range(8)]
        assert log.append([record(8)], now_ms=0) == 8
    assert not disk.exists(PATHS.log(number))
    assert len(disk.listdir("/log/quarantine")) == 1


def test_the_manifest_of_another_log_is_not_believed() -> None:
    disk = disk_with(40, closed=True)
    other = MemoryStorage()
    with SegmentedLog.open(other, "/log", "t", SMALL, now_ms=1_000) as log:
        for _ in range(90):
            log.append([b"x"], now_ms=1_000)
    with open_log(disk) as log:
        assert log.log_end_offset == 40
    replace_file(disk, PATHS.manifest, read_file(other, PATHS.manifest))
    with open_log(disk) as log:
        assert values_of(log) == [record(i) for i in range(40)]
        assert gaps_of(log) == []


def test_a_manifest_from_a_backup_is_caught_up_with() -> None:
    disk = disk_with(20)
    old = read_file(disk, PATHS.manifest)
    log = open_log(disk)
    for i in range(20, 60):
        log.append([record(i)], now_ms=1_000)
    log.close()
    replace_file(disk, PATHS.manifest, old)
    with open_log(disk) as log:
        assert values_of(log) == [record(i) for i in range(60)]


def test_the_last_segment_gone_is_a_gap_up_to_what_the_checkpoint_vouches_for() -> None:
    disk = disk_with(12, closed=True)
    last = max(n for n in range(12) if disk.exists(PATHS.log(n)))
    begin = base_of(disk, last)
    disk.unlink(PATHS.log(last))
    with open_log(disk) as log:
        assert gaps_of(log) == [(begin, 12, GapReason.CORRUPTION)]
        assert log.append([record(12)], now_ms=0) == 12
        accounted(log)


def test_what_an_end_mark_vouches_for_is_never_cut() -> None:
    # | 0 | 1 | ba   and somebody knows that offset 2 was synced
    disk = disk_with(3)
    size = disk.open(PATHS.log(0)).size()
    disk.open(PATHS.log(0)).truncate(size - 5)
    plain = survey(disk, PATHS, Circumstances(1_000))
    assert plain.steps[0].decision is Decision.CUT
    assert plain.gaps == []
    vouched = survey(disk, PATHS, Circumstances(1_000, durable_end=3))
    assert vouched.steps[0].decision is Decision.REPAIR
    assert vouched.gaps == [(2, 3, GapReason.CORRUPTION)]


def test_in_class_disk_a_hole_above_what_was_synced_is_a_lost_tail() -> None:
    # | 0 | 000 | 2 |   written back out of order before the power went
    config = TopicConfig({**SMALL.overrides, "durability": "disk"})
    disk = disk_with(3, config=config)
    size = disk.open(PATHS.log(0)).size() // 3
    write_all(disk.open(PATHS.log(0)), bytes(size), size)
    image = disk.after_kill()
    with open_log(image, config) as log:
        assert gaps_of(log) == [(1, 2, GapReason.LOST_TAIL)]
        accounted(log)
    with open_log(disk) as log:  # class fsync: nothing acknowledged is lost but by damage
        assert gaps_of(log) == [(1, 2, GapReason.CORRUPTION)]


def test_a_checkpoint_does_not_hide_what_was_written_behind_it() -> None:
    # checkpoint at 3, then 3 4 5, and batch 4 damaged: 5 stays
    disk = disk_with(2, closed=True)
    log = open_log(disk)
    for i in range(2, 5):
        log.append([record(i)], now_ms=1_000)
    image = disk.after_kill()
    size = image.open(PATHS.log(0)).size() // 5
    flip(image, PATHS.log(0), 3 * size + 70)
    with open_log(image) as log:
        assert gaps_of(log) == [(3, 4, GapReason.CORRUPTION)]
        assert values_of(log) == [record(i) for i in (0, 1, 2, 4)]


def test_a_start_row_says_where_an_unsealed_segment_begins() -> None:
    # log start 2 inside the only segment, and its first batch is damaged
    disk = MemoryStorage()
    log = open_log(disk)
    for i in range(4):
        log.append([record(i)], now_ms=1_000)
    delete_records_before(log._log, 2)
    image = disk.after_kill()
    flip(image, PATHS.log(0), 70)
    with open_log(image) as log:
        assert log.log_start_offset == 2
        assert values_of(log) == [record(2), record(3)]
        assert log.log_end_offset == 4


def test_the_start_row_of_an_earlier_version_may_lie_anywhere_in_its_segment() -> None:
    # It says that the log starts at 2, and not that its segment begins at 0.
    disk = MemoryStorage()
    log = open_log(disk)
    for i in range(4):
        log.append([record(i)], now_ms=1_000)
    delete_records_before(log._log, 2)
    image = disk.after_kill()
    manifest = decode_manifest(read_file(image, PATHS.manifest))
    assert manifest is not None
    rows = [
        row._replace(max_timestamp=-1) if row.kind == RowKind.START else row
        for row in manifest.rows
    ]
    replace_file(image, PATHS.manifest, encode_manifest(1_000, rows))
    with open_log(image) as log:
        assert log.log_start_offset == 2
        assert values_of(log) == [record(2), record(3)]
        assert log.append([record(4)], now_ms=0) == 4
    assert not image.exists("/log/quarantine")


def test_the_start_row_of_an_earlier_version_and_a_damaged_first_batch_open_all_the_same() -> None:
    disk = MemoryStorage()
    log = open_log(disk)
    for i in range(5):
        log.append([record(i)], now_ms=1_000)
    image = disk.after_kill()
    replace_file(
        image,
        PATHS.manifest,
        encode_manifest(1_000, [Row(RowKind.START, base_offset=2, max_timestamp=-1)]),
    )
    flip(image, PATHS.log(0), 70)
    with open_log(image) as log:
        assert (log.log_start_offset, log.log_end_offset) == (2, 5)
        assert values_of(log)[-2:] == [record(3), record(4)]
        accounted(log)
    assert image.exists("/log/quarantine")


def test_the_start_row_of_an_earlier_version_is_enough_without_a_segment() -> None:
    disk = MemoryStorage()
    disk.mkdir("/log")
    start = Row(RowKind.START, base_offset=5)
    replace_file(disk, PATHS.manifest, encode_manifest(1_000, [start]))
    with open_log(disk) as log:
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        assert log.append([record(5)], now_ms=0) == 5


def test_what_lies_in_a_file_made_ahead_is_kept_aside_and_out_of_the_way() -> None:
    disk = disk_with(3)
    replace_file(disk, PATHS.log(1), b"?" * 3_000)
    with open_log(disk) as log:
        assert disk.open(PATHS.log(1)).size() == 0
        assert len(disk.listdir("/log/quarantine")) == 1
        for i in range(3, 20):
            log.append([record(i)], now_ms=1_000)
        accounted(log)


def test_rows_that_do_not_go_on_where_the_last_one_ended_are_not_believed() -> None:
    disk = disk_with(40, closed=True)
    manifest = decode_manifest(read_file(disk, PATHS.manifest))
    assert manifest is not None
    rows = list(manifest.rows)
    rows.remove([row for row in rows if row.kind == RowKind.SEGMENT][2])
    replace_file(disk, PATHS.manifest, encode_manifest(1_000, rows))
    with open_log(disk) as log:
        assert values_of(log) == [record(i) for i in range(40)]
        assert gaps_of(log) == []
        assert log.append([record(40)], now_ms=0) == 40


def test_a_row_that_begins_inside_of_another_stands_for_none() -> None:
    # | 0 .. 4 | 5 .. 9 | 10 .. 14 |   and a row that says: segment 2 is [7, 15)
    disk = disk_with(40, closed=True)
    manifest = decode_manifest(read_file(disk, PATHS.manifest))
    assert manifest is not None
    rows = list(manifest.rows)
    second, third = [row for row in rows if row.kind == RowKind.SEGMENT][1:3]
    strange = third._replace(base_offset=second.base_offset + 2)
    assert rows[-1].kind == RowKind.CHECKPOINT
    replace_file(disk, PATHS.manifest, encode_manifest(1_000, [*rows[:-1], strange, rows[-1]]))
    with open_log(disk) as log:
        assert log._log.sealed.base_offsets[2] == third.base_offset
        assert values_of(log) == [record(i) for i in range(40)]
        assert gaps_of(log) == []


def test_a_survey_changes_no_byte() -> None:
    disk = disk_with(20)
    flip(disk, PATHS.log(3), 70)
    before = content_of(disk)
    survey(disk, PATHS, Circumstances(1_000))
    assert content_of(disk) == before


def test_opening_twice_is_opening_once() -> None:
    disk = disk_with(20)
    flip(disk, PATHS.log(3), 70)
    flip(disk, PATHS.log(1), 170)
    open_log(disk)
    once = content_of(disk)
    image = disk.after_kill()
    open_log(image)
    assert content_of(image) == once


def test_one_stale_segment_and_no_last_one_leave_the_manifest_and_its_checkpoint_believed() -> None:
    disk = disk_with(20, closed=True)
    numbers = [n for n in range(20) if disk.exists(PATHS.log(n))]
    stale = read_file(disk, PATHS.log(numbers[-2]))[: disk.open(PATHS.log(0)).size() // 3]
    replace_file(disk, PATHS.log(numbers[-2]), stale)
    disk.unlink(PATHS.log(numbers[-1]))
    with open_log(disk) as log:
        assert log.log_end_offset == 20
        values_of(log)  # the reader finds the stale one, and it is repaired
        assert gaps_of(log)[-1][1] == 20
        accounted(log)


def test_a_segment_of_another_place_is_kept_aside_whole() -> None:
    # Segment 1 holds what segment 3 did: valid batches, none of which belongs there.
    disk = disk_with(20, closed=True)
    begin, end = base_of(disk, 1), base_of(disk, 2)
    replace_file(disk, PATHS.log(1), read_file(disk, PATHS.log(3)))
    with open_log(disk) as log:
        values_of(log)
        assert gaps_of(log) == [(begin, end, GapReason.CORRUPTION)]
        accounted(log)


def test_another_logs_last_segment_is_not_taken_for_the_one_of_the_checkpoint() -> None:
    disk = disk_with(2, closed=True)
    other = MemoryStorage()
    with SegmentedLog.open(other, "/log", "t", SMALL, now_ms=1_000) as log:
        log.append([b"not ours"], now_ms=1_000)
    replace_file(disk, PATHS.log(0), read_file(other, PATHS.log(0)))
    with open_log(disk) as log:
        assert values_of(log) == []
        assert gaps_of(log) == [(0, 2, GapReason.CORRUPTION)]


def test_a_file_of_another_kind_is_no_segment_whatever_is_in_it() -> None:
    disk = disk_with(3)
    content = read_file(disk, PATHS.log(0))
    replace_file(disk, PATHS.log(0), b"SBWL" + bytes(60) + content)
    with open_log(disk) as log:
        assert values_of(log) == []
    assert len(disk.listdir("/log/quarantine")) == 1


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize("damage", ["bit", "offset", "zeros", "missing"])
def test_what_is_whole_behind_a_hole_is_kept_where_the_next_file_has_no_front(
    has_manifest: bool, damage: str
) -> None:
    # | 5 | ? | 7 8 9 |   and  | ? | 11 12 13 14 |, or no file, and then 15
    disk = disk_with(20)
    if has_manifest:  # in which no segment is sealed yet
        replace_file(disk, PATHS.manifest, read_file(disk_with(1), PATHS.manifest))
    else:
        disk.unlink(PATHS.manifest)
    size = disk.open(PATHS.log(1)).size() // 5
    flip(disk, PATHS.log(1), size + 70)
    match damage:
        case "bit":
            flip(disk, PATHS.log(2), 70)
        case "offset":
            flip(disk, PATHS.log(2), 7, 8)  # 10 says that it is 2
        case "zeros":
            replace_file(disk, PATHS.log(2), bytes(5 * size))
        case "missing":
            disk.unlink(PATHS.log(2))
    end = 11 if damage in ("bit", "offset") else 15
    for _ in range(2):
        with open_log(disk) as log:
            assert [(begin, to) for begin, to, _ in gaps_of(log)] == [(6, 7), (10, end)]
            assert log.log_end_offset == 20
            accounted(log)


def test_a_batch_behind_a_hole_that_a_later_file_has_as_well_is_that_files() -> None:
    # | 5 | ? | 7 8 9 | 0 ... of an older copy, appended |   and then 10
    disk = disk_with(20)
    disk.unlink(PATHS.manifest)
    size = disk.open(PATHS.log(1)).size() // 5
    flip(disk, PATHS.log(1), size + 70)
    content = bytes(read_file(disk, PATHS.log(1)))
    replace_file(disk, PATHS.log(1), content + bytes(read_file(disk, PATHS.log(3))))
    disk.unlink(PATHS.log(2))
    with open_log(disk) as log:
        assert [(begin, end) for begin, end, _ in gaps_of(log)] == [(6, 7), (10, 15)]
        accounted(log)


def test_what_was_deleted_stays_so_where_the_manifest_is_lost_and_a_hole_before_it() -> None:
    disk = MemoryStorage()
    log = open_log(disk)
    for i in range(8):
        log.append([record(i)], now_ms=1_000)
    delete_records_before(log._log, 7)
    disk = disk.after_kill()
    disk.unlink(PATHS.manifest)
    flip(disk, PATHS.log(1), 70)  # offset 5 of | 5 6 7 |
    with open_log(disk) as log:
        assert log.log_start_offset == 7
        assert values_of(log) == [record(7)]


def test_a_log_whose_last_batch_is_damaged_behind_its_start_does_not_end_before_it() -> None:
    disk = MemoryStorage()
    manager = manager_on(disk)
    manager.create_topic("t", 1, TopicConfig({**SMALL.overrides, "durability": "disk"}))
    handler = manager.get_handler("t", 0)
    append(handler, batch_of(b"first"))
    append(handler, batch_of(b"second", b"third"))
    handler.delete_records_before(2)
    disk = disk.after_kill()
    flip(disk, "/data/topics/t/partition_0/t_partition_0_segment_0.log", -3)
    handler = manager_on(disk).get_handler("t", 0)
    assert handler.log_start_offset == 2
    assert handler.log_end_offset >= 2
    offset = append(handler, batch_of(b"new")).base_offset
    assert offsets_in(read_from(handler, 2))[-1] == offset


def test_a_log_whose_last_file_is_gone_behind_its_start_does_not_end_before_it() -> None:
    disk = MemoryStorage()
    log = open_log(disk)
    log.append([record(0)], now_ms=1_000)
    with log._log.append_lock:
        log._log.roll(1_000)
    seal(log._log)
    log.append([record(1)], now_ms=1_000)
    log.append([record(2)], now_ms=1_000)
    delete_records_before(log._log, 3)
    disk = disk.after_kill()
    disk.unlink(PATHS.log(1))
    with open_log(disk) as log:
        assert log.log_start_offset == 3
        log.append([record(3)], now_ms=1_000)
        assert values_of(log) == [record(3)]

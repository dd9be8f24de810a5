"""Where the front of a log is drawn to the offset and to the millisecond: columns, aborted ranges,
ages, caps."""

import random

import pytest

from segbroker.protocol.markers import Outcome
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import PartitionFull, PartitionReadOnly, StorageError
from segbroker.segments.files.manifest import Row, RowKind
from segbroker.segments.log.columns import SealedSegments
from segbroker.segments.log.producers import KnownBatch, Producer, ProducerTable, decode_producers
from segbroker.segments.log.salvaging import FIRST_RETRY_MS, Retry
from segbroker.segments.log.transaction_index import NONE_OPEN, Aborted, TransactionIndex

from .crash.recording import Fault, RecordingStorage
from .test_retention import manager_on, partition_on
from .tools import SMALL, append, batch_of, read_from

NOW = 1_700_000_000_000


def columns() -> SealedSegments:
    """| 0 .. 9 | 10 .. 19 | 20 .. 29 |, numbers 3, 5 and 6, newest at 100, 50 and 200 ms."""
    sealed = SealedSegments(3, 0)
    for number, base, stamp in ((3, 0, 100), (5, 10, 50), (6, 20, 200)):
        sealed.add(
            Row(RowKind.SEGMENT, number, base, base + 10, 1_000, records=10, max_timestamp=stamp)
        )
    return sealed


@pytest.mark.parametrize(
    ("offset", "below", "place"),
    [(0, 0, 0), (9, 0, 0), (10, 1, 1), (19, 1, 1), (20, 2, 2), (29, 2, 2), (30, 3, 2), (31, 3, 2)],
)
def test_a_segment_lies_below_an_offset_when_its_last_one_does(
    offset: int, below: int, place: int
) -> None:
    assert (columns().count_below(offset), columns().find(offset)) == (below, place)


@pytest.mark.parametrize(("before_ms", "count"), [(50, 0), (100, 0), (101, 2), (200, 2), (201, 3)])
def test_a_segment_is_older_when_its_newest_record_is_and_no_earlier_one_is_newer(
    before_ms: int, count: int
) -> None:
    assert (columns().count_older(before_ms), columns().find_time(before_ms)) == (count, count)


@pytest.mark.parametrize(("number", "place"), [(2, None), (3, 0), (4, None), (6, 2), (7, None)])
def test_a_segment_is_found_by_its_number(number: int, place: int | None) -> None:
    sealed = columns()
    assert sealed.place_of(number) == place
    row = sealed.row(number)
    assert (None if row is None else (row.base_offset, row.end_offset)) == (
        None if place is None else (10 * place, 10 * place + 10)
    )


def index() -> TransactionIndex:
    """7 was aborted from 10 to 15, 8 from 12 to 30; 9 is open from 20 on, 7 again from 25."""
    made = TransactionIndex()
    made.began(7, 10)
    made.began(8, 12)
    made.began(7, 13)
    made.ended(7, Outcome.ABORT, 15)
    made.began(9, 20)
    made.began(7, 25)
    made.ended(8, Outcome.ABORT, 30)
    return made


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        (0, 10, []),
        (0, 11, [7]),
        (0, 12, [7]),
        (0, 13, [7, 8]),
        (15, 16, [7, 8]),
        (16, 17, [8]),
        (30, 31, [8]),
        (31, 99, []),
    ],
)
def test_an_aborted_range_is_told_to_who_reads_any_of_its_offsets(
    begin: int, end: int, found: list[int]
) -> None:
    made = index()
    assert [row.producer_id for row in made.ranges().between(begin, end)] == found
    assert [row.producer_id for row in made.copy().ranges().between(begin, end)] == found


def test_a_range_is_forgotten_when_the_log_begins_behind_its_marker() -> None:
    made = index()
    assert made.forget_before(15) == 0
    assert made.forget_before(16) == 1
    assert made.aborted == [Aborted(8, 12, 30)]
    assert made.forget_marked(30, set()) == 0, "it ends at what was not cleaned"
    assert made.forget_marked(31, {30}) == 0
    assert made.forget_marked(31, set()) == 1
    assert (made.aborted, made.ranges().between(0, 99)) == ([], [])
    assert (made.open, made.first_open_offset) == ({9: 20, 7: 25}, 20)


def test_the_first_open_offset_is_that_of_the_oldest_open_transaction() -> None:
    made = index()
    made.ended(9, Outcome.COMMIT, 40)
    assert made.first_open_offset == 25
    made.ended(9, Outcome.ABORT, 41)
    made.ended(7, Outcome.COMMIT, 42)
    assert (made.first_open_offset, made.open) == (NONE_OPEN, {})
    assert [row.producer_id for row in made.aborted] == [7, 8]


def test_as_old_as_it_may_be_stays_and_a_millisecond_more_goes() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=1_000)
    append(handler, batch_of(b"x", now_ms=NOW), NOW)
    handler.keep_house(NOW + 1_000, NOW + 1_000)
    assert (handler.log_start_offset, handler.high_watermark) == (0, 1)
    handler.keep_house(NOW + 1_001, NOW + 1_001)
    assert (handler.log_start_offset, handler.high_watermark) == (1, 1)
    manager.close()


def test_a_topic_that_came_to_reject_drops_nothing_that_it_has() -> None:
    manager, handler = partition_on(MemoryStorage(), 10, retention_ms=-1)
    capped = {"retention.records": "4", "retention.full.policy": "reject", "retention.ms": "-1"}
    manager.alter_topic("t", {**SMALL.overrides, **capped})
    manager.housekeeping(NOW)
    assert (handler.log_start_offset, handler.evict_floor) == (0, 0)
    with pytest.raises(PartitionFull):
        append(handler, batch_of(b"x", now_ms=NOW), NOW)


def test_no_segment_goes_while_its_producers_cannot_be_saved() -> None:
    disk = RecordingStorage()
    _, handler = partition_on(disk, retention_ms=1_000, durability="disk")
    append(handler, batch_of(bytes(400), now_ms=NOW, producer=(7, 0, 0)), NOW)
    append(handler, batch_of(bytes(400), now_ms=NOW + 5_000), NOW)
    disk.faults.append(Fault("fdatasync", ".producers.tmp", 0))
    handler.keep_house(NOW + 2_000, NOW + 2_000)
    assert handler.log_start_offset == 0
    handler.keep_house(NOW + 2_000, NOW + 2_000)
    assert handler.log_start_offset == 1
    # What they have seen is durable before the snapshot is, or that would be of more than the log.
    for image in (disk.after_kill(), disk.after_power_cut()):
        again = manager_on(image).get_handler("t", 0)
        assert [producer_id for producer_id, _ in again.producers()] == [7]


def test_a_log_start_whose_sync_failed_is_not_taken_for_durable_by_a_recovery() -> None:
    disk = RecordingStorage()
    _, handler = partition_on(disk, 6, retention_ms=-1)
    disk.faults.append(Fault("fdatasync", ".manifest", 0))
    with pytest.raises(StorageError, match="cannot delete records"):
        handler.delete_records_before(3)
    disk.faults.append(Fault("fdatasync", handler._log.active.path.rpartition("/")[2], 0))
    with pytest.raises(PartitionReadOnly):
        handler.sync()
    handler.attend(NOW)
    assert not handler.wants_attention, "it was opened again"
    start = handler.log_start_offset
    again = manager_on(disk.after_power_cut()).get_handler("t", 0)
    assert (again.log_start_offset, again.high_watermark) == (start, 6)


def test_what_has_gone_keeps_no_descriptor_that_would_keep_its_space() -> None:
    manager, handler = partition_on(MemoryStorage(), 6, retention_ms=-1)
    read_from(handler, 0)
    before = manager.statistics().open_files
    assert before > 1
    handler.delete_records_before(4)
    assert manager.statistics().open_files == before - 2


def test_a_transaction_whose_producer_is_not_known_stays_open_in_the_snapshot() -> None:
    made = ProducerTable({}, index())
    decoded = decode_producers(made.encode(99))
    assert decoded is not None
    table, end = decoded
    assert (end, len(table)) == (99, 0)
    assert table.transactions.open == {9: 20, 7: 25}
    assert table.transactions.aborted == made.transactions.aborted
    assert table.transactions.first_open_offset == 20


def test_the_first_of_the_open_transactions_is_known_behind_a_snapshot_as_well() -> None:
    # 9 began before 7, and is known since later.
    known = {
        number: Producer(0, (KnownBatch(0, 0, offset, NOW),))
        for number, offset in ((7, 25), (9, 20))
    }
    decoded = decode_producers(ProducerTable(known, index()).encode(99))
    assert decoded is not None
    transactions = decoded[0].transactions
    assert transactions.first_open_offset == 20
    transactions.began(8, 99)
    transactions.ended(9, Outcome.COMMIT, 100)
    assert transactions.first_open_offset == 25
    transactions.ended(8, Outcome.COMMIT, 101)
    assert transactions.first_open_offset == 25
    transactions.ended(7, Outcome.COMMIT, 102)
    assert transactions.first_open_offset == NONE_OPEN


def test_after_a_recovery_the_next_one_is_tried_at_once() -> None:
    retry = Retry()
    assert retry.is_due(NOW)
    retry.failed(NOW, passes=False)
    assert not retry.is_due(NOW + FIRST_RETRY_MS)
    assert retry.is_due(NOW + FIRST_RETRY_MS + 1)
    retry.failed(NOW, passes=False)
    assert not retry.is_due(NOW + 2 * FIRST_RETRY_MS)
    retry.succeeded()
    assert retry.is_due(NOW)


@pytest.mark.parametrize("seed", range(20))
def test_columns_that_were_changed_are_those_that_are_made_anew(seed: int) -> None:
    rng = random.Random(seed)
    sealed, end_offset = SealedSegments(0, 0), 0
    for number in range(30):
        begin, end_offset = end_offset, end_offset + rng.randrange(1, 20)
        sealed.add(row_of(rng, number, begin, end_offset))
    while len(sealed) > 1:
        rows = sealed.rows()
        first = rng.randrange(len(rows))
        last = min(len(rows) - 1, first + rng.randrange(4))
        if rng.randrange(4):
            sealed.splice(
                row_of(rng, rows[last].number, rows[first].base_offset, rows[last].end_offset)
            )
        else:
            sealed.drop_front(rng.randrange(1, 3))
        anew = SealedSegments(0, 0)
        anew.fill(sealed.rows())
        assert list(sealed.running_max_timestamps) == list(anew.running_max_timestamps)
        assert (sealed.total_size, sealed.total_records) == (anew.total_size, anew.total_records)


def row_of(rng: random.Random, number: int, begin: int, end: int) -> Row:
    size, records = rng.randrange(1_000), rng.randrange(end - begin + 1)
    stamp = rng.randrange(-1, 9)
    return Row(RowKind.SEGMENT, number, begin, end, size, records, max_timestamp=stamp)

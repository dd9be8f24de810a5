"""What happens to a compacted log while it is cleaned, and to one that was: kills, retention, a
changed policy, batches that no sane client sends."""

import errno
import struct
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from segbroker.protocol.batch_pure import write_varint
from segbroker.protocol.checksums import crc32c
from segbroker.protocol.markers import Outcome
from segbroker.protocol.record_batch import GapReason, read_header
from segbroker.segments.compaction import cleaning, compacting
from segbroker.segments.compaction.compacting import RETRY_MS
from segbroker.segments.compaction.survivors import Survivors
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import CorruptSegment, SegmentReplaced
from segbroker.segments.files.index import BlockIndex
from segbroker.segments.files.manifest import Row
from segbroker.segments.log import transaction_index
from segbroker.segments.log.columns import SealedSegments
from segbroker.segments.log.deleting import evict, unlink_doomed
from segbroker.segments.log.partition_log import PartitionLog
from segbroker.segments.log.sealed import SealedFiles
from segbroker.segments.log.sealing import seal
from segbroker.segments.log.transaction_index import Aborted
from segbroker.segments.settings.topic_config import TopicConfig

from .compacted import Compacted
from .tools import append


def roll(log: Compacted) -> None:
    """Everything written so far lies in sealed segments, the last one in its own."""
    opened = log.handler._log
    with opened.append_lock:
        opened.roll(log.now_ms)
    seal(opened)


def steps_of(log: Compacted) -> Iterator[int]:
    return log.handler.compacting.clean(log.now_ms, log.now_ms, 1 << 20)


def offsets_of(log: Compacted, start: int = 0) -> list[int]:
    return [record.offset for record in log.records(start)]


def test_producers_behind_the_snapshot_are_replayed_where_numbers_have_holes() -> None:
    # segments 1 3 5 8 after merging | 9: producer 5 | 10: aborted, of 7 | 11: open, of 8 | kill
    disk = MemoryStorage()
    log = Compacted(disk)
    for key in range(8):
        log.send((b"k%d" % key, b"v" * 120))
        roll(log)
    log.send((b"z", b"1"), producer=(4, 0, 0))
    log.clean()
    numbers = log.handler.sealed_numbers()
    assert list(numbers) != list(range(numbers[0], numbers[-1] + 1)), "numbers have holes"
    log.send((b"a", b"idempotent"), producer=(5, 0, 0))
    roll(log)
    aborted = log.send((b"b", b"aborted"), producer=(7, 0, 0), transactional=True)
    log.end(Outcome.ABORT, (7, 0), [aborted])
    roll(log)
    opened = log.send((b"c", b"open"), producer=(8, 0, 0), transactional=True)
    roll(log)
    end = log.handler.log_end_offset

    again = Compacted(disk.after_kill())
    assert [producer_id for producer_id, _ in again.handler.producers()] == [4, 5, 7, 8]
    assert again.handler.transactions.aborted == [Aborted(7, aborted, aborted + 1)]
    assert again.handler.transactions.open == {8: opened}
    assert again.handler.last_stable_offset == opened
    again.send((b"a", b"idempotent"), producer=(5, 0, 0))
    assert again.handler.log_end_offset == end, "a retry is known"


def has_marker(log: Compacted, offset: int) -> bool:
    headers = map(read_header, log.batches())
    return any(h.base_offset == offset and h.is_control and h.records_count for h in headers)


def test_an_aborted_range_goes_before_its_marker_also_when_the_broker_is_killed() -> None:
    # a | aborted of 7 | its marker | committed of 7 | ...: without its marker the aborted range
    # would reach on, and take what was committed from the readers.
    disk = MemoryStorage()
    log = Compacted(disk, delete_retention_ms=0)
    log.send((b"a", b"x" * 200))
    aborted = log.send((b"b", b"aborted"), producer=(7, 0, 0), transactional=True)
    log.end(Outcome.ABORT, (7, 0), [aborted])
    committed = log.send((b"c", b"committed"), producer=(7, 0, 1), transactional=True)
    roll(log)
    for key in range(4):
        log.send((b"f%d" % key, b"y" * 300))
        roll(log)
    log.end(Outcome.COMMIT, (7, 0), [committed])
    log.clean()
    assert has_marker(log, aborted + 1)
    assert log.handler.transactions.aborted == [Aborted(7, aborted, aborted + 1)]
    log.now_ms += 1
    log.send((b"g", b"z"))
    roll(log)
    steps = steps_of(log)
    for _ in steps:
        if not has_marker(log, aborted + 1):
            break
    assert next(steps, None) is not None, "the cleaning is still under way"
    assert log.handler.transactions.aborted == []
    for crashed in (disk.after_kill(), disk.after_power_cut()):
        again = Compacted(crashed, delete_retention_ms=0)
        assert not has_marker(again, aborted + 1)
        assert again.handler.transactions.aborted == []
        assert committed in offsets_of(again)


def record(delta: int, offset: int, key: bytes, value: bytes) -> bytes:
    body = bytearray(1)
    for number, text in ((delta, b""), (offset, b""), (len(key), key), (len(value), value)):
        write_varint(body, number)
        body += text
    body += b"\0"  # no headers
    sized = bytearray()
    write_varint(sized, len(body))
    return bytes(sized + body)


def strange_batch(records: list[bytes]) -> memoryview:
    """A batch whose times are deltas of 0, with a CRC-32C that is right."""
    rest = struct.pack(">hiqqqhii", 0, len(records) - 1, 0, 0, -1, -1, -1, len(records))
    rest += b"".join(records)
    head = struct.pack(">qiibI", 0, 9 + len(rest), 0, 2, crc32c(rest))
    return memoryview(bytearray(head + rest))


@pytest.mark.parametrize(
    "delta", [-(2**63), 2**63 - 1], ids=["the-least-delta", "the-greatest-delta"]
)
def test_timestamps_that_no_sane_client_sends_end_no_cleaning(
    delta: int,
) -> None:
    log = Compacted(MemoryStorage())
    rows = [record(delta, 0, b"a", b"1"), record(0, 1, b"b", b"1")]
    append(log.handler, strange_batch(rows), log.now_ms)
    log.send((b"b", b"2"))
    log.clean()
    assert log.handler.compacting.failures_count == 0
    assert log.handler.compacting.clean_offset == 3
    kept = [read_header(batch) for batch in log.batches()]
    assert [(h.base_offset, h.records_count) for h in kept] == [(0, 1), (2, 1)]


def test_a_batch_that_cannot_be_opened_needs_no_room_for_the_keys_that_it_claims_to_have() -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="delete")
    count = 2**31 - 1
    rest = struct.pack(">hiqqqhii", 1, count - 1, 0, 0, -1, -1, -1, count) + b"no gzip"
    head = struct.pack(">qiibI", 0, 9 + len(rest), 0, 2, crc32c(rest))
    append(log.handler, memoryview(bytearray(head + rest)), log.now_ms)
    log.manager.alter_topic("t", {**log.config.overrides, "cleanup.policy": "compact"})
    log.send((b"a", b"1"))
    log.send((b"a", b"2"))
    log.clean()
    assert log.handler.compacting.failures_count == 0
    assert log.handler.compacting.clean_offset == count + 2
    last = log.handler.compacting.last
    assert last is not None
    assert (last.keys, last.counts.unopened, last.is_whole) == (1, 1, True)
    assert offsets_of(log, count) == [count + 1]


def test_a_cleaning_looks_at_the_segments_of_a_log_only_while_nobody_takes_any_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Compacted(MemoryStorage())
    for _ in range(3):
        log.send((b"k", b"v" * 200))
        roll(log)
    opened, row = log.handler._log, SealedSegments.row

    def guarded(sealed: SealedSegments, number: int) -> Row | None:
        assert opened.state_lock.locked() or opened.seal_lock.locked()
        return row(sealed, number)

    monkeypatch.setattr(SealedSegments, "row", guarded)
    log.clean_sealed()
    assert (log.handler.compacting.cleanings_count, log.handler.compacting.failures_count) == (1, 0)


def test_a_cleaning_lists_the_segments_of_a_log_while_appends_and_reads_wait_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Compacted(MemoryStorage())
    log.send((b"k", b"v"), (b"k", b"v"))
    roll(log)
    opened, rows = log.handler._log, SealedSegments.rows
    listed: list[int] = []

    def guarded(sealed: SealedSegments) -> list[Row]:
        """A microsecond for each segment: there may be 100,000 of them."""
        assert not opened.state_lock.locked()
        assert not opened.append_lock.locked()
        assert opened.seal_lock.locked(), "nobody takes any out meanwhile"
        listed.append(len(sealed))
        return rows(sealed)

    monkeypatch.setattr(SealedSegments, "rows", guarded)
    log.clean_sealed()
    assert listed
    assert log.handler.compacting.failures_count == 0


def test_an_exception_that_nobody_thought_of_ends_one_cleaning_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Compacted(MemoryStorage())
    log.send((b"a", b"1"))
    log.send((b"a", b"2"))
    roll(log)

    def broken(*_: object) -> Iterator[int]:
        yield 1
        raise AssertionError("nobody thought of this")

    with monkeypatch.context() as patched:
        patched.setattr(compacting, "clean", broken)
        log.clean_sealed()
    owner = log.handler.compacting
    assert owner.failures_count == log.cleaner.statistics.failures == 1
    assert log.handler.read_only is None
    assert owner.wants(log.now_ms, log.now_ms) is None
    log.now_ms += RETRY_MS
    assert owner.wants(log.now_ms, log.now_ms) is not None
    log.clean_sealed()
    assert offsets_of(log) == [1]


def mistake(*_: object) -> None:
    raise AssertionError("nobody thought of this")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (MemoryStorage, "rename"),
        (SealedFiles, "write_index"),
        (SealedSegments, "splice"),
    ],
    ids=["before-the-rename", "before-the-index", "before-readers-see-it"],
)
def test_an_exception_behind_the_decision_fails_the_log_and_recovery_ends_the_swap(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    log = Compacted(MemoryStorage())
    for value in range(6):
        log.send((b"k", b"%d" % value * 300), (b"key %d" % value, b"v"))
        roll(log)
    before = log.handler.log_end_offset
    with monkeypatch.context() as patched:
        patched.setattr(where, name, mistake)
        log.clean_sealed()
        assert log.handler.compacting.failures_count == 1
        refused = log.handler.read_only
        assert refused is not None, "readers and appends went on beside what was decided"
        assert "nobody thought of this" in str(refused)
    log.now_ms += RETRY_MS
    log.handler.attend(log.now_ms)
    assert log.handler.read_only is None
    assert {offset for offset, _ in log.latest().values()} <= set(offsets_of(log))
    log.send((b"k", b"last"))
    log.clean()
    log.check()
    assert offsets_of(log)[-1] == before
    again = Compacted(log.disk.after_power_cut())
    assert [one.offset for one in again.records()] == offsets_of(log)


def cleaned_files(log: Compacted) -> list[str]:
    return [one for one in log.disk.listdir(log.handler._log.paths.folder) if ".cleaned" in one]


def test_a_cleaning_that_is_abandoned_leaves_no_file_and_may_begin_anew() -> None:
    log = Compacted(MemoryStorage(), segment_bytes=4 << 20)
    for key in range(6):
        log.send((b"k", b"v" * 200), (b"%d" % key, b"v" * (512 << 10)))
        roll(log)
    log.cleaner.reconfigure(256 << 10, 1 << 20, 0)
    for _ in range(100):
        log.cleaner.step(log.now_ms)
        log.now_ms += 1_000
        if cleaned_files(log):
            break
    assert log.cleaner.is_running
    assert cleaned_files(log)
    log.cleaner.abandon()
    assert not log.cleaner.is_running
    assert not cleaned_files(log)
    log.clean_sealed()
    assert (log.handler.compacting.cleanings_count, log.handler.read_only) == (1, None)
    log.check()


@pytest.mark.parametrize("taken", [1, 3])
@pytest.mark.parametrize("reads", [1, 7, 9])
def test_retention_takes_the_beginning_of_a_log_that_is_being_cleaned(
    reads: int, taken: int
) -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="compact,delete")
    for _ in range(6):
        log.send((b"k", b"v" * 200))
        roll(log)
    kept = log.send((b"k", b"v" * 200))
    roll(log)
    steps = steps_of(log)
    for _ in range(reads):
        next(steps)
    evict(log.handler._log, taken, GapReason.TTL)
    for _ in steps:
        pass
    assert log.handler.compacting.cleanings_count == 1
    assert log.handler.compacting.clean_offset == kept + 1
    assert offsets_of(log, log.handler.log_start_offset) == [kept]


def test_retention_takes_all_of_a_log_that_is_about_to_be_cleaned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="compact,delete")
    for _ in range(3):
        log.send((b"k", b"v" * 200))
        roll(log)
    survivors = cleaning._survivors

    def evicted_first(
        opened: PartitionLog, limits: cleaning.Limits, keys: int, end: int
    ) -> Survivors:
        evict(opened, 3, GapReason.TTL)
        return survivors(opened, limits, keys, end)

    monkeypatch.setattr(cleaning, "_survivors", evicted_first)
    log.clean_sealed()
    assert log.handler.log_start_offset == 3
    assert log.handler.compacting.failures_count == 0, "no buffer was too small"
    assert log.handler.compacting.clean_offset == 3


def test_a_segment_that_retention_takes_before_a_cleaning_has_opened_it_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="compact,delete")
    for _ in range(3):
        log.send((b"k", b"v" * 200))
        roll(log)
    opened, index_of = log.handler._log, SealedFiles.index

    def taken_first(files: SealedFiles, row: Row) -> BlockIndex:
        if opened.sealed.first_number <= row.number:
            evict(opened, 1, GapReason.TTL)
            unlink_doomed(opened)
        return index_of(files, row)

    with monkeypatch.context() as patched, capture_logs() as told:
        patched.setattr(SealedFiles, "index", taken_first)
        log.clean_sealed()
    assert log.handler.log_start_offset == 1
    assert log.handler.compacting.failures_count == 0
    assert [entry["event"] for entry in told] == ["cleaning_interrupted"]
    log.clean_sealed()
    assert log.handler.compacting.clean_offset == 3
    assert offsets_of(log, 1) == [2]


def test_a_topic_that_is_deleted_while_it_is_cleaned_is_no_failure() -> None:
    log = Compacted(MemoryStorage())
    for _ in range(3):
        log.send((b"k", b"v" * 200))
        roll(log)
    steps, compacting = steps_of(log), log.handler.compacting
    for _ in range(6):  # everything was read, and nothing written yet
        next(steps)
    with capture_logs() as told:
        log.manager.delete_topic("t")
        log.manager.housekeeping(log.now_ms)
        for _ in steps:
            pass
    assert compacting.failures_count == 0
    assert [entry["event"] for entry in told if "cleaning" in entry["event"]] == [
        "cleaning_interrupted"
    ]


@pytest.mark.parametrize("reads", [1, 6, 7])
def test_a_cleaning_stops_when_the_topic_is_no_longer_compacted(reads: int) -> None:
    log = Compacted(MemoryStorage())
    for _ in range(6):
        log.send((b"k", b"v" * 200))
        roll(log)
    steps = steps_of(log)
    for _ in range(reads):
        next(steps)
    before = offsets_of(log)
    rest = {key: text for key, text in log.config.overrides.items() if key != "cleanup.policy"}
    log.handler.reconfigure(TopicConfig(rest), None)
    for _ in steps:
        pass
    assert offsets_of(log) == before
    assert log.handler.compacting.cleanings_count == 0
    assert not [
        name for name in log.disk.listdir(log.handler._log.paths.folder) if "cleaned" in name
    ]


def cold(log: Compacted) -> None:
    """Nobody has read the log for long: no index of it is in memory, and no file is open."""
    log.handler._log.files.indexes.drop(log.handler._log.paths.folder)
    log.handler._log.files.files.drop(log.handler._log.paths.folder)


def test_a_read_that_was_planned_before_a_marker_went_gets_nothing_of_the_cleaned_segment() -> None:
    # Its reader has the list of aborted transactions of then, and would find no end of that one.
    log = Compacted(MemoryStorage(), delete_retention_ms=0)
    log.send((b"stays", bytes(240)))
    base = log.send((b"a", b"1"), producer=(7, 0, 0), transactional=True)
    log.end(Outcome.ABORT, (7, 0), [base])
    roll(log)
    committed = log.send((b"b", bytes(240)), producer=(7, 0, 1), transactional=True)
    log.end(Outcome.COMMIT, (7, 0), [])
    roll(log)
    log.clean_sealed()
    cold(log)
    ranges = log.handler.transactions.ranges()
    plan = log.handler.plan_read(base, 1 << 20)
    assert plan is not None
    log.now_ms += 1
    log.send((b"c", b"1"))
    roll(log)
    log.clean_sealed()
    assert not has_marker(log, base + 1)
    assert [row.last_offset for row in ranges.between(base, committed)] == [base + 1]
    with pytest.raises(SegmentReplaced):
        plan.read(memoryview(bytearray(plan.size_max)))
    plan.release()


def test_an_offset_by_time_is_found_in_the_segment_that_is_there_when_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Compacted(MemoryStorage(), segment_bytes=1 << 17)
    for number in range(40):
        log.send((b"once%d" % number, bytes(1_000)), (b"k", bytes(1_000)))
        log.now_ms += 1
        if number == 19:
            roll(log)
    at_ms, wanted = log.now_ms - 10, 60
    roll(log)
    cold(log)
    index_of = SealedFiles.index

    def cleaned_first(files: SealedFiles, row: Row) -> BlockIndex:
        monkeypatch.setattr(SealedFiles, "index", index_of)
        log.clean_sealed()
        return index_of(files, row)

    assert log.handler.offset_for_timestamp(at_ms) == (wanted, at_ms)
    cold(log)
    monkeypatch.setattr(SealedFiles, "index", cleaned_first)
    assert log.handler.offset_for_timestamp(at_ms) == (wanted, at_ms)
    assert len(log.handler._log.sealed) == 1, "it was cleaned"


def test_a_read_that_was_planned_before_a_topic_was_made_again_gets_nothing_of_the_new_one() -> (
    None
):
    log = Compacted(MemoryStorage())
    log.send((b"old", b"1" * 200))
    roll(log)
    cold(log)
    plan = log.handler.plan_read(0, 1 << 20)
    assert plan is not None
    log.manager.delete_topic("t")
    log.manager.create_topic("t", 1, log.config)
    log.send((b"new", b"2" * 150))
    roll(log)
    with pytest.raises(CorruptSegment):
        plan.read(memoryview(bytearray(plan.size_max)))
    plan.release()


def test_a_cleaning_of_a_log_that_was_opened_again_takes_nothing_from_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for a lock that is not that of appends any more, and forgets beside one."""
    log = Compacted(MemoryStorage())
    first = log.send((b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    log.end(Outcome.ABORT, (7, 0), [first])
    log.send((b"a", b"1"))
    roll(log)
    second = log.send((b"b", b"aborted"), producer=(8, 0, 0), transactional=True)
    note = cleaning._note

    rows_of = transaction_index._Rows.of

    def appended(kept: list[Aborted]) -> transaction_index._Rows:
        log.end(Outcome.ABORT, (8, 0), [second])
        return rows_of(kept)

    def noted(opened: PartitionLog, survivors: Survivors, limits: cleaning.Limits) -> None:
        log.handler.fail(OSError(errno.EIO, "planted"))
        assert log.handler.try_recover(log.now_ms)
        survivors.markers.clear()
        with monkeypatch.context() as beside:
            beside.setattr(transaction_index._Rows, "of", appended)
            note(opened, survivors, limits)

    monkeypatch.setattr(cleaning, "_note", noted)
    for _ in steps_of(log):
        pass
    assert log.handler.transactions.aborted[-1] == Aborted(8, second, second + 1)

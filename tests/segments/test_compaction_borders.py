"""Compaction at its limits: segments that just fit into one, ages, producers without a batch."""

import errno
import random
from collections import deque
from collections.abc import Callable
from itertools import pairwise

import pytest

from segbroker.protocol.markers import Outcome
from segbroker.protocol.record_batch import read_header
from segbroker.segments.compaction.offset_map import OffsetMap
from segbroker.segments.compaction.survivors import Survivors
from segbroker.segments.compaction.swapping import NewSegment
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.errors import CorruptSegment
from segbroker.segments.files.clean_points import NEVER_CLEANED, POINTS_MAX
from segbroker.segments.files.index import ENTRY_SIZE, OFFSET_SPAN_MAX, BlockBuilder
from segbroker.segments.files.manifest import Row, RowKind

from .compacted import DAY, NOW, Compacted
from .tools import as_after_a_checkpoint, flip


def sizes(log: Compacted) -> list[int]:
    """Records of each sealed segment."""
    return [row.records for row in log.handler._log.sealed.rows()]


@pytest.mark.parametrize(
    ("limit", "together"),
    [
        ({"segment_bytes": 512}, True),  # two batches of 256 bytes
        ({"segment_bytes": 513}, True),
        ({"segment_bytes": 1024, "segment_records": 2}, True),
        ({"segment_bytes": 1024, "segment_records": 1}, False),
    ],
)
def test_segments_that_just_fit_become_one(limit: dict[str, int], together: bool) -> None:
    log = Compacted(MemoryStorage(), **limit)
    for key in (b"a", b"b"):
        log.send((key, bytes(256 - 61 - 10)))
        assert len(log.batches()[-1]) == 256
        log.seal()
    log.clean_sealed()
    assert sizes(log) == ([2] if together else [1, 1])
    log.check()


def test_one_byte_more_than_fits_stays_in_a_segment_of_its_own() -> None:
    log = Compacted(MemoryStorage(), segment_bytes=512)
    for key, size in ((b"a", 256), (b"b", 257)):
        log.send((key, bytes(size - 61 - 10)))
        log.seal()
    log.clean_sealed()
    assert sizes(log) == [1, 1]
    log.check()


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("limit", ["bytes", "records", "index", "span", "epoch"])
def test_a_segment_takes_the_next_one_up_to_each_limit_and_not_beyond(
    limit: str, more: int
) -> None:
    log = Compacted(
        MemoryStorage(),
        segment_bytes=1 << 20 if limit == "index" else 4096,
        segment_records=10,
        segment_index_bytes=96,
    )
    log.send((b"a", b"v"))
    log.seal()
    (first,) = log.handler._log.sealed.rows()
    new = NewSegment(log.handler._log)
    new.begin(first)
    (batch,) = log.batches()
    new.add(batch)
    builder = BlockBuilder(0, 4096)
    builder.add(batch, 0, 1, NOW)
    assert builder.index_size + ENTRY_SIZE == 96, "one block more, and the index is full"
    following = Row(
        RowKind.SEGMENT,
        number=first.number + 1,
        base_offset=1,
        end_offset=OFFSET_SPAN_MAX + more if limit == "span" else 2,
        size={"bytes": 4096 - new.size, "index": 4095}.get(limit, 100) + more,  # blocks of 4,096
        records=9 + more if limit == "records" else 1,
        leader_epoch=first.leader_epoch + more if limit == "epoch" else first.leader_epoch,
    )
    assert new.has_room(following) == (not more)


def test_without_a_manifest_a_cleaned_segment_in_the_middle_stands_for_those_that_came_back() -> (
    None
):
    # | once, full | k | k | k | k |: the first stays as it is, of the others one is made
    log = Compacted(MemoryStorage())
    log.send((b"once", bytes(400)))
    for _ in range(4):
        log.send((b"k", bytes(300)))
    log.seal()
    folder = "/data/topics/t/partition_0"
    before = {name: read_file(log.disk, f"{folder}/{name}") for name in log.disk.listdir(folder)}
    log.clean_sealed()
    assert len(sizes(log)) == 2
    expected = [(record.offset, record.key) for record in log.records()]
    assert expected == [(0, b"once"), (4, b"k")]
    disk = log.disk.after_kill()
    for name, content in before.items():
        if name.endswith(".log") and not disk.exists(f"{folder}/{name}"):
            replace_file(disk, f"{folder}/{name}", content)
    disk.unlink(next(f"{folder}/{name}" for name in before if name.endswith(".manifest")))
    log.disk = disk
    log.open()
    assert [(record.offset, record.key) for record in log.records()] == expected
    assert not disk.exists("/data/quarantine")
    log.check()


def test_a_cleaned_segment_goes_when_its_last_record_is_too_old_and_not_before() -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="compact,delete", retention_ms=DAY)
    for value in (b"1", b"2"):
        log.send((b"a", value), (b"b", value))
    log.clean()
    log.now_ms += 1
    log.send((b"c", b"3"))
    log.seal()
    for _ in range(2):
        log.handler.keep_house(NOW + DAY, NOW + DAY)
        assert [record.offset for record in log.records()] == [2, 3, 4]
        log.manager.close()
        log.open()
    log.handler.keep_house(NOW + DAY + 1, NOW + DAY + 1)
    assert log.handler.log_start_offset == 4


def test_what_a_cleaning_before_the_start_left_behind_goes_with_the_first_one_after_it() -> None:
    log = Compacted(MemoryStorage())
    log.send((b"a", b"1"))
    stray = log.handler._log.paths.cleaned(99)
    log.manager.close()
    replace_file(log.disk, stray, b"of a cleaning that was not decided")
    log.open()
    log.send((b"a", b"2"))
    assert log.disk.exists(stray), "the log was closed in order: its directory was not listed"
    log.clean()
    assert not log.disk.exists(stray)
    assert [record.offset for record in log.records()] == [1]


def test_a_producer_that_a_marker_of_a_new_epoch_left_without_a_batch_is_cleaned_over() -> None:
    # 0: b of epoch 0 | 1: its commit | 2: a of epoch 0 | 3: aborted by epoch 1 | 4: a b
    log = Compacted(MemoryStorage(), delete_retention_ms=DAY)
    log.send((b"b", b"1"), producer=(7, 0, 0), transactional=True)
    log.end(Outcome.COMMIT, (7, 0), [0])
    log.send((b"a", b"1"), producer=(7, 0, 1), transactional=True)
    log.end(Outcome.ABORT, (7, 1), [2])
    log.send((b"a", b"2"), (b"b", b"2"))
    log.clean()
    assert log.handler.compacting.failures_count == 0
    assert [record.offset for record in log.records()] == [4, 5]
    log.now_ms += DAY
    log.send((b"c", b"1"))
    log.clean()
    markers = [h.base_offset for h in map(read_header, log.batches()) if h.producer_id == 7]
    assert markers == [3], "the last one says which epoch it has"
    log.manager.close()
    log.open()
    assert [(number, known.epoch) for number, known in log.handler.producers()] == [(7, 1)]


def test_what_is_left_of_a_producer_counts_at_the_very_end_of_a_segment() -> None:
    # | a | of a producer, emptied |  b, a segment of its own |
    log = Compacted(MemoryStorage())
    log.send((b"a", b"1" * 200))
    log.send((b"b", b"1" * 100), producer=(7, 0, 0))
    log.seal()
    log.send((b"b", b"2" * 400))
    log.clean()
    assert sizes(log) == [1, 1]
    assert len(log.batches()[1]) == 61
    disk = log.disk.after_kill()
    disk.unlink("/data/topics/t/partition_0/t_partition_0.producers")
    log.disk = disk
    log.open()
    assert [producer_id for producer_id, _ in log.handler.producers()] == [7]


def test_of_many_cleanings_the_closest_become_one_and_none_is_taken_for_an_earlier_one() -> None:
    points, now_ms = NEVER_CLEANED, NOW
    true_ms: dict[int, int] = {}
    for number in range(POINTS_MAX + 8):
        now_ms += 10 + number % 7
        points = points.reached(number + 1, now_ms, DAY)
        true_ms[number] = now_ms
        assert points.reached(number + 1, now_ms + 1, DAY) is points, "no further than before"
    assert len(points.points) == POINTS_MAX
    assert (points.end_offset, points.cleaned_ms) == (len(true_ms), now_ms)
    told = [points.since(offset) for offset in true_ms]
    late = [ms - true_ms[offset] for offset, ms in enumerate(told) if ms is not None]
    assert len(late) == len(true_ms)
    assert all(0 <= one <= 3 * 17 for one in late)
    assert sum(one > 0 for one in late) >= 8
    # A clock that was set back: the log is clean so far all the same.
    back = points.reached(points.end_offset + 1, NOW - DAY, DAY)
    assert (back.end_offset, back.cleaned_ms) == (points.end_offset + 1, now_ms)
    pauses = [later.cleaned_ms - earlier.cleaned_ms for earlier, later in pairwise(points.points)]
    assert max(pauses) <= 23, "those went first that were closest to both their neighbours"


@pytest.mark.parametrize("jitter", [0, 2, 1_000])
def test_a_tombstone_of_a_log_that_is_cleaned_all_the_time_stays_a_little_longer_and_goes(
    jitter: int,
) -> None:
    # As often as the cleaner looks: every 15 seconds, 5,760 times within delete.retention.ms.
    points, now_ms, chance = NEVER_CLEANED, NOW, random.Random(jitter)
    waiting: deque[tuple[int, int]] = deque()
    longest = 0
    for offset in range(3 * 5_760):
        now_ms += 15_000 + chance.randrange(jitter + 1)
        points = points.reached(offset + 1, now_ms, DAY)
        waiting.append((offset, now_ms))
        while (since := points.since(waiting[0][0])) is not None and since + DAY <= now_ms:
            stayed = now_ms - waiting.popleft()[1]
            assert stayed >= DAY
            longest = max(longest, stayed)
    assert DAY <= longest <= 1.05 * DAY
    assert now_ms - waiting[0][1] <= 1.05 * DAY


@pytest.mark.parametrize("place", ["rename", "unlink"])
def test_a_disk_that_fails_behind_the_decision_costs_that_cleaning_alone(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    log = Compacted(MemoryStorage())
    for value in (b"1", b"2", b"3"):
        log.send((b"k", value * 300))
    log.seal()

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "the disk said no")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryStorage, place, fails)
        log.clean_sealed()
    assert log.handler.read_only is None
    if place == "rename":  # whoever starts now makes up for it
        assert [record.offset for record in log.records()] == [0, 1, 2]
        again = Compacted(log.disk.after_power_cut())
        assert [record.offset for record in again.records()] == [2]
        assert again.manager.report.counts["cleaning_finished"] == 1
        log.now_ms += DAY
    log.send((b"k", b"4"))
    log.clean()
    log.check()
    assert [record.offset for record in log.records()] == [3]


class Interrupting(MemoryStorage):
    """Calls `meanwhile`, once, while a segment is read, `at_end` when a cleaned one is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], object]] = []
        self.at_end: list[Callable[[], object]] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = InterruptingFile(path, plain._inode, self)
        file.disk = self
        return file


class InterruptingFile(MemoryFile):
    disk: Interrupting

    def pread(self, buffer: memoryview, position: int) -> int:
        count = super().pread(buffer, position)
        while self.disk.meanwhile:
            self.disk.meanwhile.pop()()
        return count

    def fdatasync(self) -> None:
        super().fdatasync()
        while self.path.endswith(".cleaned") and self.disk.at_end:
            self.disk.at_end.pop()()


def test_damage_that_a_reader_repairs_under_a_cleaning_is_no_failure_of_the_cleaning() -> None:
    disk = Interrupting()
    log = Compacted(disk)
    for value in (b"1", b"2"):
        log.send((b"a", value * 100), (b"b", value * 100))
        log.seal()
    handler = log.handler
    path = handler._log.paths.log(handler.sealed_numbers()[0])
    flip(disk, path, 100)
    steps = handler.compacting.clean(log.now_ms, log.now_ms, 1 << 20)
    disk.meanwhile.append(lambda: handler.mend(CorruptSegment(path, 0, "a reader met it")))
    for _ in steps:
        pass
    assert (handler.compacting.failures_count, handler.repairs_count) == (0, 1)
    assert handler.compacting.cleanings_count == 0, "interrupted, it is due again"
    log.clean_sealed()
    assert [record.offset for record in log.records()] == [2, 3]


def test_a_segment_that_is_repaired_while_its_cleaned_one_is_written_is_not_clean() -> None:
    disk = Interrupting()
    log = Compacted(disk)
    as_after_a_checkpoint(log.manager)
    for value in (b"1", b"2"):
        log.send((b"a", value * 200))
    log.send((b"b", b"1"))
    log.seal()
    handler = log.handler
    path = handler._log.paths.log(handler.sealed_numbers()[-1])

    def damage() -> None:
        flip(disk, path, 100)
        assert handler.mend(CorruptSegment(path, 0, "a reader met it"))

    disk.at_end.append(damage)
    log.clean_sealed()
    assert (handler.compacting.cleanings_count, handler.compacting.clean_offset) == (0, 0)
    log.clean_sealed()
    assert handler.compacting.clean_offset == 3
    assert [record.offset for record in log.records()] == [0, 2], (
        "1 was lost, 0 is the last a again"
    )


def test_records_that_a_cleaning_took_are_not_taken_off_the_number_of_records_again() -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="compact,delete")
    for _ in range(50):
        log.send((b"k", b"1"), (b"k", b"2"))
    log.clean()
    for number in range(20):
        log.send((b"%d" % number, b"v"))
        if number == 17:
            with log.handler._log.append_lock:
                log.handler._log.roll(log.now_ms)
    assert log.handler._log.rotating, "of the segments one is full and not sealed yet"
    for start, count in ((0, 21), (60, 21), (99, 21), (100, 20), (103, 17), (119, 1), (120, 0)):
        log.handler.delete_records_before(start)
        assert log.handler.records_count == count == len(log.records(start))


def test_a_cleaning_remembers_the_markers_of_aborted_transactions_and_no_others() -> None:
    """There may be millions of the others, and each would cost 65 bytes of memory."""
    log = Compacted(MemoryStorage())
    for sequence in range(20):
        at = log.send((b"k%d" % sequence, b"v"), producer=(7, 0, sequence), transactional=True)
        log.end(Outcome.ABORT if sequence == 9 else Outcome.COMMIT, (7, 0), [at])
    aborted = log.handler.transactions.ranges().rows
    survivors = Survivors(
        OffsetMap(1 << 16, 20, bytes(16)),
        NEVER_CLEANED,
        log.handler._log.producers.rows(),
        aborted,
        age_ms=NOW,
        delete_retention_ms=DAY,
        now_ms=NOW,
    )
    batches = log.batches()
    for batch in batches:
        assert survivors.learn(batch)
    for batch in batches:
        survivors.filter(batch)
    assert survivors.counts.aborted == 1
    assert survivors.markers == {row.last_offset for row in aborted}

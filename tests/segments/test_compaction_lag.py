"""How long what was written last may wait for its cleaning: max.compaction.lag.ms, as in Kafka."""

import pytest

from segbroker.segments.directory.unopened import Unopened
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.log.sealing import seal

from .compacted import DAY, NOW, Compacted
from .test_compaction_meanwhile import offsets_of, roll

LAZY = {"max_compaction_lag_ms": DAY, "min_cleanable_dirty_ratio": 1}


def wants(log: Compacted, at_ms: int) -> bool:
    return log.handler.compacting.wants(at_ms, at_ms) is not None


def test_it_counts_from_the_first_batch_of_a_segment_not_from_its_last() -> None:
    log = Compacted(MemoryStorage(), **LAZY)
    log.send((b"a", b"1"))
    log.now_ms = NOW + DAY - 1
    log.send((b"a", b"2"))
    roll(log)
    assert not wants(log, NOW + DAY)
    assert wants(log, NOW + DAY + 1)
    log.now_ms = NOW + DAY + 1
    log.cleaner.step(log.now_ms)
    log.now_ms += 1_000
    log.cleaner.step(log.now_ms)
    assert offsets_of(log) == [1]
    assert not wants(log, NOW + 9 * DAY), "nothing is dirty any more"


def test_the_oldest_of_the_dirty_segments_counts_whichever_it_is() -> None:
    log = Compacted(MemoryStorage(), **LAZY)
    for sent_ms in (NOW + DAY, NOW, NOW + DAY):
        log.now_ms = sent_ms
        log.send((b"a", b"%d" % sent_ms))
        roll(log)
    assert not wants(log, NOW + DAY)
    assert wants(log, NOW + DAY + 1)


def test_without_a_lag_no_file_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Compacted(MemoryStorage(), min_cleanable_dirty_ratio=1)
    log.send((b"a", b"1"))
    roll(log)

    def read(*_: object) -> int:
        raise AssertionError("a file is read")

    monkeypatch.setattr(MemoryFile, "pread", read)
    assert not wants(log, NOW + 9_999 * DAY)


def test_each_file_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Compacted(MemoryStorage(), **LAZY)
    for number in range(3):
        log.send((b"%d" % number, b"1"))
        roll(log)
    reads: list[str] = []
    pread = MemoryFile.pread

    def read(file: MemoryFile, buffer: memoryview, position: int) -> int:
        reads.append(file.path)
        return pread(file, buffer, position)

    monkeypatch.setattr(MemoryFile, "pread", read)
    for hour in range(20):
        assert not wants(log, NOW + hour * 3_600_000)
    assert len(reads) == len(set(reads)) == 3


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "not-sealed"])
def test_a_partition_that_nobody_opens_is_opened_and_cleaned_when_it_is_due(
    *, is_sealed: bool
) -> None:
    disk = MemoryStorage()
    log = Compacted(disk, **LAZY)
    log.send((b"a", b"1"))
    log.send((b"a", b"2"))
    if is_sealed:
        roll(log)
    log.manager.close()
    log.open()
    unopened = Unopened(disk, "/data")
    for at_ms in (NOW, NOW + DAY):
        assert not unopened.step(log.manager.topics, lambda *_: False, at_ms)
    for second in range(0, 1_200, 300):
        log.manager.housekeeping(NOW + DAY + 1 + second * 1_000)
    assert ("t", 0) in log.manager.handlers
    seal(log.handler._log)
    log.cleaner.step(NOW + DAY + 1_300_000)
    log.cleaner.step(NOW + DAY + 1_301_000)
    assert offsets_of(log) == [1]


def test_a_closed_partition_without_a_lag_is_left_alone() -> None:
    disk = MemoryStorage()
    log = Compacted(disk, min_cleanable_dirty_ratio=1)
    log.send((b"a", b"1"))
    log.manager.close()
    log.open()
    assert not Unopened(disk, "/data").step(log.manager.topics, lambda *_: False, NOW + 9_999 * DAY)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_tombstone_stays_when_the_cleaner_sees_a_jump_of_the_clock_before_anybody_else(
    restarted: bool,
) -> None:
    log = Compacted(MemoryStorage(), delete_retention_ms=DAY)
    log.manager.housekeeping(NOW, 0)
    log.send((b"k", b"1"))
    tombstone = log.send((b"k", None))
    log.clean()
    log.send((b"l", b"1"))
    log.seal()
    log.manager.housekeeping(NOW + 1_000, 1_000)
    if restarted:
        log.manager.close()
        log.open()
        assert log.handler.log_end_offset == tombstone + 2
    for second in range(2, 5):  # by a clock that nobody set 1 s has gone by
        log.cleaner.step(NOW + 400 * DAY + second * 1_000, second * 1_000)
    assert log.handler.compacting.clean_offset == tombstone + 2
    assert log.handler.compacting.cleaned_ms == NOW, "that time is not written down"
    assert tombstone in [record.offset for record in log.records()]
    log.manager.housekeeping(NOW + 400 * DAY + 5_000, 5_000)
    assert not log.manager.believes_clock


@pytest.mark.parametrize("restarted", [False, True], ids=["open", "opened-again"])
def test_a_cleaning_at_a_time_that_is_not_believed_keeps_no_later_tombstone(
    *, restarted: bool
) -> None:
    """The clock is 400 days ahead for some seconds."""
    log = Compacted(MemoryStorage(), delete_retention_ms=DAY)
    log.manager.housekeeping(NOW, 0)
    log.send((b"k", b"1"))
    first = log.send((b"k", None))
    log.seal()
    for step in range(1, 4):
        log.cleaner.step(NOW + 400 * DAY + step * 1_000, step * 1_000)
    assert log.handler.compacting.clean_offset == first + 1
    log.now_ms = NOW + 5_000
    if restarted:
        log.manager.close()
        log.open()
    second = log.send((b"l", None))
    log.clean()
    assert tombstones(log) == [first, second], "nobody has waited for a day"
    log.now_ms += DAY - 1
    log.send((b"m", b"1"))
    log.clean()
    assert tombstones(log) == [first, second]
    log.now_ms += 1
    log.send((b"m", b"2"))
    log.clean()
    assert tombstones(log) == []


def tombstones(log: Compacted) -> list[int]:
    return [record.offset for record in log.records() if record.value is None]

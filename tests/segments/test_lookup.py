"""Offsets by time where the timestamps that a log knows are not those of its records."""

import random
import struct

import pytest

from segbroker.protocol.checksums import crc32c
from segbroker.protocol.compression import Codec
from segbroker.protocol.markers import Outcome
from segbroker.protocol.record_batch import encode_batch
from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.log import lookup

from ..support.steps import calls_of
from .compacted import NOW, Compacted
from .tools import append, flip, lose_wal


def test_the_greatest_timestamp_is_that_of_a_record_and_not_of_a_marker() -> None:
    log = Compacted(MemoryStorage())
    for sequence, step in enumerate((3, 5, 4)):
        log.now_ms = NOW + step
        at = log.send((b"k", b"%d" % step), producer=(7, 0, sequence), transactional=True)
        log.now_ms = NOW + 100 - step
        log.end(Outcome.COMMIT, (7, 0), [at])
        log.seal()
    assert log.handler.greatest_timestamp() == (2, NOW + 5)


def test_the_greatest_timestamp_costs_no_more_where_there_are_more_old_segments() -> None:
    """In a log of transactions, whose newest timestamp is that of a marker."""
    counts = []
    for old in (100, 300):
        log = Compacted(MemoryStorage(), cleanup_policy="delete", segment_records=1)
        for _ in range(old):
            log.send((b"k", b"old"))
        log.now_ms = NOW + 5
        at = log.send((b"k", b"new"), producer=(7, 0, 0), transactional=True)
        log.now_ms = NOW + 9
        log.end(Outcome.COMMIT, (7, 0), [at])
        log.seal()
        assert len(log.handler.sealed_numbers()) > old
        assert log.handler.greatest_timestamp() == (at, NOW + 5)
        counts.append(calls_of(log.handler.greatest_timestamp))
    assert counts[1] == counts[0]


def test_the_greatest_timestamp_is_that_of_a_record_that_can_be_read() -> None:
    log = Compacted(MemoryStorage())
    for step in (9, 3, 5, 5, 4):
        log.now_ms = NOW + step
        log.send((b"k", b"%d" % step))
    assert log.handler.greatest_timestamp() == (0, NOW + 9)
    log.handler.delete_records_before(1)
    assert log.handler.greatest_timestamp() == (2, NOW + 5)
    log.seal()
    assert log.handler.greatest_timestamp() == (2, NOW + 5)
    log.handler.delete_records_before(5)
    assert log.handler.greatest_timestamp() is None


def test_the_greatest_timestamp_is_found_when_its_record_was_lost_to_damage() -> None:
    disk = MemoryStorage()
    log = Compacted(disk)
    for step in (3, 9, 5):
        log.now_ms = NOW + step
        log.send((b"k", b"%d" % step * 50))
    log.seal()
    lose_wal(disk)
    flip(disk, "/data/topics/t/partition_0/t_partition_0_segment_0.log", 200)
    assert [record.offset for record in log.records()] == [0, 2]
    assert log.handler.greatest_timestamp() == (2, NOW + 5)
    assert log.handler.offset_for_timestamp(NOW + 4) == (2, NOW + 5)


def wrongly_compressed(now_ms: int) -> memoryview:
    """A batch that says gzip, with a CRC-32C that is right."""
    batch = bytearray(encode_batch([b"v"], timestamps_ms=now_ms))
    struct.pack_into(">h", batch, 21, Codec.GZIP)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return memoryview(batch)


def test_a_batch_that_nobody_can_open_has_no_record_to_find() -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="delete")
    log.send((b"k", b"a"))
    append(log.handler, wrongly_compressed(NOW + 9), NOW)
    log.now_ms = NOW + 5
    log.send((b"k", b"b"))
    assert log.handler.offset_for_timestamp(NOW + 1) == (2, NOW + 5)
    assert log.handler.offset_for_timestamp(NOW + 6) is None
    assert log.handler.greatest_timestamp() == (2, NOW + 5)


def boastful(now_ms: int, says_ms: int, value: bytes = b"v") -> memoryview:
    """A compressed batch whose header promises a later timestamp than its records have."""
    batch = bytearray(encode_batch([value], timestamps_ms=now_ms, codec=Codec.ZSTD))
    struct.pack_into(">q", batch, 35, says_ms)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return memoryview(batch)


def test_headers_that_promise_too_much_are_opened_some_times_and_then_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "OPENED_IN_VAIN_MAX", 3)
    log = Compacted(MemoryStorage(), cleanup_policy="delete")
    for _ in range(3):
        append(log.handler, boastful(NOW, NOW + 9), NOW)
    assert log.handler.offset_for_timestamp(NOW + 5) is None
    log.now_ms = NOW + 7
    log.send((b"k", b"a"))
    append(log.handler, boastful(NOW, NOW + 9), NOW)
    assert log.handler.offset_for_timestamp(NOW) == (0, NOW)
    assert log.handler.offset_for_timestamp(NOW + 6) == (3, NOW + 7), "as its header says"
    assert log.handler.offset_for_timestamp(NOW + 8) == (4, NOW + 9), "as its header says"


def test_a_batch_that_opens_to_very_much_is_found_by_its_header(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "OPENED_SIZE_MAX", 1_000)
    log = Compacted(MemoryStorage(), cleanup_policy="delete")
    log.send((b"k", b"a"))
    append(log.handler, boastful(NOW + 3, NOW + 9, bytes(2_000)), NOW)
    assert log.handler.offset_for_timestamp(NOW + 1) == (1, NOW + 9)
    assert log.handler.greatest_timestamp() == (1, NOW + 9)


def test_the_search_for_the_greatest_timestamp_opens_so_many_bytes_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="delete")
    for step in (3, 9, 5):
        append(log.handler, boastful(NOW + step, NOW + 20 + step, bytes(1_000)), NOW)
    assert log.handler.greatest_timestamp() == (1, NOW + 9)
    monkeypatch.setattr(lookup, "OPENED_BYTES_MAX", 1_000)
    assert log.handler.greatest_timestamp() == (1, NOW + 29), "the second is not opened any more"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read, read by read."""
    paths: list[str] = []
    pread = MemoryFile.pread

    def read(file: MemoryFile, buffer: memoryview, position: int) -> int:
        if len(buffer) > 1:  # else it is asked whether it is in the page cache
            paths.append(file.path)
        return pread(file, buffer, position)

    monkeypatch.setattr(MemoryFile, "pread", read)
    return paths


def test_a_promise_that_is_not_kept_has_no_segment_read_that_promises_nothing(
    reads: list[str],
) -> None:
    # 0: +9, deleted, +1 | 1 ... 40: +2 | 41: +8 | active: +3
    log = Compacted(MemoryStorage())
    for step in (9, 1):
        log.now_ms = NOW + step
        log.send((b"k", b"v"))
    for step in (*[2] * 40, 8, 3):
        log.seal()
        log.now_ms = NOW + step
        log.send((b"k", b"v"))
    log.handler.delete_records_before(1)
    reads.clear()
    assert log.handler.offset_for_timestamp(NOW + 7) == (42, NOW + 8)
    assert {path.rpartition("_")[2].partition(".")[0] for path in reads} <= {"0", "41"}
    assert log.handler.offset_for_timestamp(NOW + 9) is None
    log.seal()
    assert log.handler.offset_for_timestamp(NOW + 3) == (42, NOW + 8)
    assert log.handler.offset_for_timestamp(NOW + 9) is None


def test_old_records_in_transactions_are_not_all_read_for_a_time_that_only_markers_reach(
    reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Compacted(MemoryStorage())
    for sequence in range(100):
        log.now_ms = NOW - 100 + sequence
        at = log.send((b"k", bytes(100)), producer=(7, 0, sequence), transactional=True)
        log.now_ms = NOW + sequence
        log.end(Outcome.COMMIT, (7, 0), [at])
        log.seal()
    log.now_ms = NOW + 200
    last = log.send((b"k", b"v"))
    assert log.handler.offset_for_timestamp(NOW) == (last, NOW + 200), "it is exact where it can be"
    monkeypatch.setattr(lookup, "READ_IN_VAIN_MAX", 1_000)
    reads.clear()
    found = log.handler.offset_for_timestamp(NOW)
    assert found is not None
    assert 0 < found[0] < last, "a reader who begins there finds it"
    assert found[1] >= NOW
    assert len(set(reads)) < 20
    assert log.handler.greatest_timestamp() == (last, NOW + 200)
    log.handler.delete_records_before(last)
    assert log.handler.greatest_timestamp() == (last, NOW + 200)


def test_the_greatest_timestamp_is_no_markers_however_much_is_read_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "READ_IN_VAIN_MAX", 0)
    log = Compacted(MemoryStorage())
    at = log.send((b"k", b"v"), producer=(7, 0, 0), transactional=True)
    log.now_ms = NOW + 9
    log.end(Outcome.COMMIT, (7, 0), [at])
    assert log.handler.greatest_timestamp() == (at, NOW)
    log.seal()
    assert log.handler.greatest_timestamp() == (at, NOW)


@pytest.mark.parametrize("seed", range(8))
def test_any_time_is_found_where_a_reader_of_everything_finds_it(seed: int) -> None:
    """Times that do not rise, both types of timestamps, transactions, cleanings, a log start inside
    a segment, starts: at any moment, for any time."""
    rng = random.Random(seed)
    log = Compacted(MemoryStorage(), cleanup_policy=rng.choice(["delete", "compact"]))
    sequence = 0
    for _ in range(rng.randrange(30, 60)):
        log.now_ms = NOW + rng.choice([-1, rng.randrange(40), rng.randrange(400)])
        records = [(b"k%d" % rng.randrange(9), bytes(rng.randrange(60))) for _ in range(3)]
        codec = rng.choice([Codec.NONE, Codec.ZSTD])
        match rng.randrange(12):
            case 0:
                log.clean()
            case 1:
                log.seal()
            case 2 if rng.randrange(4) == 0:
                handler = log.handler
                start, end = handler.log_start_offset, handler.log_end_offset
                handler.delete_records_before(rng.randint(start, min(start + 9, end)))
            case 3:
                log.manager.close()
                log.open()
            case 4:
                kind = rng.choice(["CreateTime", "LogAppendTime"])
                now = log.manager.topics["t"].config.overrides
                log.manager.alter_topic("t", {**now, "message.timestamp.type": kind})
            case 5 | 6:
                at = log.send(*records, producer=(7, 0, sequence), transactional=True, codec=codec)
                sequence += 3
                log.now_ms += rng.randrange(200)
                outcome = rng.choice([Outcome.COMMIT, Outcome.ABORT])
                log.end(outcome, (7, 0), range(at, at + 3))
            case _:
                log.send(*records, codec=codec)
        stamps = [
            (record.offset, record.timestamp_ms)
            for record in log.records(log.handler.log_start_offset)
        ]
        for time_ms in (NOW - 2, *(NOW + rng.randrange(500) for _ in range(8)), NOW + 2_000):
            wanted = next((one for one in stamps if one[1] >= time_ms), None)
            assert log.handler.offset_for_timestamp(time_ms) == wanted
        greatest = max(stamps, key=lambda one: (one[1], -one[0]), default=None)
        assert log.handler.greatest_timestamp() == greatest

"""What stays of a compacted log, and what its readers see of it."""

import random

import pytest

from segbroker.protocol.compression import Codec
from segbroker.protocol.markers import Outcome
from segbroker.protocol.record_batch import GapReason, gap_reason, read_header
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file
from segbroker.segments.errors import KeylessRecords, SegmentReplaced
from segbroker.segments.log.sealing import seal
from segbroker.segments.names import partition_paths

from .compacted import DAY, Compacted
from .tools import append, as_after_a_checkpoint, batch_of, flip


def keyed(*pairs: str) -> list[tuple[bytes, bytes | None]]:
    """ "k=v" is a record, "k" a tombstone."""
    found: list[tuple[bytes, bytes | None]] = []
    for pair in pairs:
        key, _, value = pair.partition("=")
        found.append((key.encode(), value.encode() if value else None))
    return found


def said(log: Compacted) -> list[str]:
    """What is in the log, as "offset:key=value"."""
    return [
        f"{record.offset}:{(record.key or b'').decode()}={(record.value or b'-').decode()}"
        for record in log.records()
    ]


def test_of_each_key_the_last_record_stays_where_it_was() -> None:
    # | a=1 b=1 | a=2 | c=1 a=3 |   ->   | . b=1 | . | c=1 a=3 |
    log = Compacted(MemoryStorage())
    log.send(*keyed("a=1", "b=1"))
    log.send(*keyed("a=2"))
    log.send(*keyed("c=1", "a=3"))
    log.clean()
    assert said(log) == ["1:b=1", "3:c=1", "4:a=3"]
    assert log.handler.log_start_offset == 0
    assert log.handler.high_watermark == 5
    headers = [read_header(batch) for batch in log.batches()]
    assert [(h.base_offset, h.next_offset, h.records_count) for h in headers] == [
        (0, 2, 1),
        (2, 3, 0),
        (3, 5, 2),
    ]
    assert gap_reason(headers[1]) is GapReason.DELETED
    log.check()


def test_what_is_written_meanwhile_is_not_looked_at() -> None:
    log = Compacted(MemoryStorage())
    log.send(*keyed("a=1"))
    log.clean()
    log.send(*keyed("a=2"))
    log.clean_sealed()
    assert said(log) == ["0:a=1", "1:a=2"]  # a=2 is in the active segment
    log.clean()
    assert said(log) == ["1:a=2"]


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    log = Compacted(MemoryStorage(), delete_retention_ms=DAY)
    log.send(*keyed("a=1", "b=1"))
    log.send(*keyed("a"))
    log.clean()
    assert said(log) == ["1:b=1", "2:a=-"]
    log.now_ms += DAY - 1
    log.send(*keyed("c=1"))
    log.clean()
    assert said(log) == ["1:b=1", "2:a=-", "3:c=1"]
    log.now_ms += 1
    log.send(*keyed("d=1"))
    log.clean()
    assert said(log) == ["1:b=1", "3:c=1", "4:d=1"]


def test_the_time_of_a_tombstone_counts_over_a_restart() -> None:
    log = Compacted(MemoryStorage(), delete_retention_ms=DAY)
    log.send(*keyed("a=1"))
    log.send(*keyed("a"))
    log.clean()
    log.manager.close()
    log.now_ms += DAY
    log.open()
    assert said(log) == ["1:a=-"]
    log.send(*keyed("b=1"))
    log.clean()
    assert said(log) == ["2:b=1"]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_batches_are_opened_and_compressed_again(codec: Codec) -> None:
    log = Compacted(MemoryStorage())
    log.send(*keyed("a=1", "b=1", "c=1"), codec=codec)
    log.send(*keyed("a=2", "c=2"), codec=codec)
    log.clean()
    assert said(log) == ["1:b=1", "3:a=2", "4:c=2"]
    assert [read_header(batch).codec for batch in log.batches()] == [codec, codec]


def test_records_of_aborted_transactions_go_and_neither_hide_nor_replace_others() -> None:
    log = Compacted(MemoryStorage())
    log.send(*keyed("a=1", "b=1"))
    log.send(*keyed("a=2"), producer=(7, 0, 0), transactional=True)
    log.end(Outcome.ABORT, (7, 0), [2])
    log.send(*keyed("b=2"), producer=(7, 0, 1), transactional=True)
    log.end(Outcome.COMMIT, (7, 0), [])
    log.clean()
    assert said(log) == ["0:a=1", "4:b=2"]
    log.check()


def test_nothing_is_cleaned_from_an_open_transaction_on() -> None:
    log = Compacted(MemoryStorage())
    log.send(*keyed("a=1"))
    log.send(*keyed("a=2"))
    log.send(*keyed("b=1"), producer=(7, 0, 0), transactional=True)
    log.send(*keyed("a=3"))
    log.clean()
    assert said(log) == ["0:a=1", "1:a=2", "2:b=1", "3:a=3"]  # one segment, which is not stable
    log.end(Outcome.COMMIT, (7, 0), [])
    log.clean()
    assert said(log) == ["2:b=1", "3:a=3"]


def test_a_marker_goes_when_its_records_are_gone_and_its_time_is_over() -> None:
    log = Compacted(MemoryStorage(), delete_retention_ms=DAY)
    log.send(*keyed("a=1"), producer=(7, 0, 0), transactional=True)
    log.end(Outcome.ABORT, (7, 0), [0])
    log.send(*keyed("a=2"), producer=(7, 0, 1), transactional=True)
    log.end(Outcome.COMMIT, (7, 0), [])
    log.clean()
    assert [h.base_offset for h in map(read_header, log.batches())] == [0, 1, 2, 3]
    assert len(log.handler.transactions.aborted) == 1
    log.now_ms += DAY
    log.send(*keyed("c=1"))
    log.clean()
    found = [(h.base_offset, h.next_offset) for h in map(read_header, log.batches())]
    assert found == [(0, 2), (2, 3), (3, 4), (4, 5)]  # the marker at 3 is its producer's last
    assert log.handler.transactions.aborted == []
    log.manager.close()
    log.open()
    assert log.handler.transactions.aborted == []
    assert said(log) == ["2:a=2", "4:c=1"]


def test_what_a_producer_sent_last_is_known_after_its_records_are_gone() -> None:
    disk = MemoryStorage()
    log = Compacted(disk)
    log.send(*keyed("a=1", "b=1"), producer=(7, 3, 0))
    log.send(*keyed("a=2", "b=2"))
    log.clean()
    assert said(log) == ["2:a=2", "3:b=2"]
    log.manager.close()
    disk.unlink("/data/topics/t/partition_0/t_partition_0.producers")
    log.open()
    ((producer_id, known),) = log.handler.producers()
    assert (producer_id, known.epoch, known.batches[-1].last_sequence) == (7, 3, 1)
    again = batch_of(b"x", b"y", producer=(7, 3, 0))
    with pytest.raises(KeylessRecords):
        append(log.handler, batch_of(b"x", producer=(7, 3, 2)))
    assert append(log.handler, again).duplicate


def test_small_segments_become_one() -> None:
    log = Compacted(MemoryStorage())
    for n in range(40):
        log.send((b"k%d" % (n % 3), b"%02d" % n + bytes(180)))
    before = log.handler.segments_count
    log.clean()
    assert before > 15
    assert log.handler.segments_count == 3  # three records, and the active one
    log.check()
    names = log.disk.listdir("/data/topics/t/partition_0")
    kept = [name for name in names if name.endswith(".log")][:2]
    assert kept == [f"t_partition_0_segment_{n}.log" for n in log.handler.sealed_numbers()]
    log.manager.close()
    log.open()
    log.check()


def test_a_record_without_a_key_is_refused_whole_with_its_place() -> None:
    log = Compacted(MemoryStorage())
    with pytest.raises(KeylessRecords) as caught:
        append(log.handler, batch_of(b"a", b"b"))
    assert caught.value.indexes == [0, 1]
    assert log.handler.log_end_offset == 0


def test_without_delete_nothing_goes_by_age_bytes_or_records() -> None:
    log = Compacted(MemoryStorage(), retention_ms=1, retention_bytes=1, retention_records=1)
    for n in range(6):
        log.send((b"%d" % n, bytes(200)))
    log.now_ms += 30 * DAY
    log.manager.keep_house_now(log.now_ms)
    assert log.handler.log_start_offset == 0
    assert len(log.records()) == 6


def test_with_delete_old_segments_go_as_well() -> None:
    log = Compacted(MemoryStorage(), cleanup_policy="compact,delete", retention_bytes=600)
    for n in range(20):
        log.send((b"k%d" % (n % 10), bytes(200)))
    log.clean()
    log.manager.keep_house_now(log.now_ms)
    assert log.handler.log_start_offset > 0
    assert log.handler.evict_reason is GapReason.CAP


def test_keys_that_do_not_fit_are_cleaned_in_further_rounds() -> None:
    log = Compacted(MemoryStorage())
    log.cleaner._buffer_bytes = 64 * 24
    for n in range(200):
        log.send((b"k%d" % (n % 100), b"%d" % n))
    log.clean()
    compacting = log.handler.compacting
    assert compacting.cleanings_count > 2
    log.check()
    # Who was written in the first hundred was written again: nothing of it stays.
    assert [record.offset for record in log.records()] == list(range(100, 200))


def test_nothing_young_is_cleaned() -> None:
    log = Compacted(MemoryStorage(), min_compaction_lag_ms=DAY)
    log.send(*keyed("a=1"))
    log.send(*keyed("a=2"))
    log.clean()
    assert len(log.records()) == 2
    log.now_ms += DAY
    log.clean()
    assert said(log) == ["1:a=2"]


@pytest.mark.parametrize("seed", range(6))
def test_reading_from_anywhere_gives_what_was_written_last(seed: int) -> None:
    rng = random.Random(seed)
    log = Compacted(MemoryStorage(), segment_bytes=rng.choice([512, 1024, 4096]))
    sequences = dict.fromkeys((7, 8), 0)
    for _ in range(rng.randrange(20, 60)):
        records = [
            (b"k%d" % rng.randrange(8), rng.choice([None, bytes(rng.randrange(60))]))
            for _ in range(rng.randrange(1, 4))
        ]
        codec = rng.choice([Codec.NONE, Codec.LZ4, Codec.ZSTD])
        match rng.randrange(8):
            case 0:
                log.clean()
            case 1:
                log.clean_sealed()
            case 2:
                log.manager.close()
                log.open()
            case 3 | 4:
                one = rng.choice((7, 8))
                base = log.send(
                    *records, codec=codec, producer=(one, 0, sequences[one]), transactional=True
                )
                sequences[one] += len(records)
                offsets = range(base, base + len(records))
                log.end(rng.choice(list(Outcome)), (one, 0), offsets)
            case _:
                log.send(*records, codec=codec)
        log.now_ms += rng.randrange(DAY)
        log.check(rng.randrange(log.handler.high_watermark + 1))
    log.clean()
    log.check()
    end = log.handler.high_watermark
    everywhere = [record.offset for record in log.records()]
    for offset in range(end):
        found = [record.offset for record in log.records(offset, 1)]
        assert found == [one for one in everywhere if one >= offset]


@pytest.mark.parametrize("lost", [".manifest", ".producers", ".index", ".manifest .producers"])
def test_a_cleaned_log_is_read_again_without_what_it_says_of_itself(lost: str) -> None:
    # The write-ahead log still has the frames of what the cleaning took.
    log = Compacted(MemoryStorage())
    for n in range(30):
        log.send((b"k%d" % (n % 4), b"%02d" % n + bytes(60)), (b"once%d" % n, bytes(60)))
    log.clean()
    for n in range(3):
        log.send((b"new%d" % n, bytes(150)))
    before = said(log)
    disk = log.disk.after_kill()
    folder = "/data/topics/t/partition_0"
    for name in disk.listdir(folder):
        if name.endswith(tuple(lost.split())):
            disk.unlink(f"{folder}/{name}")
    log.disk = disk
    log.open()
    assert said(log) == before
    assert log.handler.log_start_offset == 0
    log.check()
    log.clean()
    log.check()


@pytest.mark.parametrize("before_a_start", [2, 3, 8])
@pytest.mark.parametrize("behind_it", [3, 4, 9, 11])
@pytest.mark.parametrize("whole", [False, True])
def test_without_a_manifest_the_log_ahead_brings_back_nothing_that_a_cleaning_took(
    before_a_start: int, behind_it: int, whole: bool
) -> None:
    # Of segments that became one it has the later ones only, the first perhaps without its front.
    log = Compacted(MemoryStorage())
    for n in range(before_a_start):
        log.send((b"k%d" % (n % 2), bytes(150)), (b"once%d" % n, b""))
    log.disk = log.disk.after_kill()
    log.open()
    for n in range(behind_it):
        log.send((b"k%d" % (n % 2), bytes(150)))
    if whole:
        log.clean()
    else:
        log.clean_sealed()
    log.send((b"new", bytes(150)))
    before = said(log)
    disk = log.disk.after_kill()
    disk.unlink(partition_paths("/data", "t", 0).manifest)
    log.disk = disk
    log.open()
    assert log.handler.log_start_offset == 0, "what only the cleaned segment has is there"
    assert said(log) == before
    assert {row.what for row in log.manager.report.rows} <= {"replayed", "manifest_rebuilt"}
    log.check()


def test_without_a_manifest_a_cleaned_segment_stands_for_those_that_came_back() -> None:
    # No unlink is synced: with the power gone all of the old segments may be there again.
    log = Compacted(MemoryStorage())
    for n in range(12):
        log.send((b"k%d" % (n % 2), bytes(150)))
    log.seal()
    folder = "/data/topics/t/partition_0"
    files = {name: read_file(log.disk, f"{folder}/{name}") for name in log.disk.listdir(folder)}
    log.clean_sealed()
    log.send((b"new", bytes(150)))
    before = said(log)
    disk = log.disk.after_kill()
    gone = [name for name in files if name.endswith(".log") and not disk.exists(f"{folder}/{name}")]
    assert len(gone) > 1
    for name in gone:
        replace_file(disk, f"{folder}/{name}", files[name])
    disk.unlink(next(f"{folder}/{name}" for name in files if name.endswith(".manifest")))
    log.disk = disk
    log.open()
    assert said(log) == before
    reasons = {gap_reason(read_header(batch)) for batch in log.batches()}
    assert reasons == {None, GapReason.DELETED}
    log.check()


def test_a_reader_finishes_what_it_holds_while_it_is_cleaned() -> None:
    log = Compacted(MemoryStorage())
    for n in range(12):
        log.send((b"k", b"%02d" % n + bytes(150)))
    handler = log.handler
    seal(handler._log)
    number = handler.sealed_numbers()[0]
    plan = handler.plan_read(0, 1 << 20)
    assert plan is not None
    buffer = memoryview(bytearray(plan.size_max))
    first = plan.read(buffer)  # its file is open, and its index in memory
    file = handler._log.files.pin(number)
    before = bytearray(200)
    file.pread(memoryview(before), 0)
    log.clean()
    again = bytearray(200)
    file.pread(memoryview(again), 0)
    assert again == before
    handler._log.files.unpin(number, file)
    with pytest.raises(SegmentReplaced):
        plan.read(buffer)
    plan.release()
    assert first
    assert said(log)[-1].startswith("11:")


def test_damage_ends_a_cleaning_and_is_repaired_where_it_is() -> None:
    log = Compacted(MemoryStorage())
    as_after_a_checkpoint(log.manager)
    for n in range(12):
        log.send((b"k%d" % n, bytes(150)))
    seal(log.handler._log)
    number = log.handler.sealed_numbers()[1]
    flip(log.disk, f"/data/topics/t/partition_0/t_partition_0_segment_{number}.log", 100)
    log.clean()
    assert log.handler.compacting.failures_count == 1
    assert log.handler.repairs_count == 1
    assert log.handler.compacting.clean_offset == 0
    log.now_ms += 120_000
    log.clean()
    assert log.handler.compacting.clean_offset == 12
    reasons = {gap_reason(read_header(batch)) for batch in log.batches()}
    assert reasons == {None, GapReason.CORRUPTION}
    assert len(log.records()) == 11


def test_a_damaged_marker_is_told_and_not_written_anew_under_a_right_checksum() -> None:
    # Nobody opens a marker to look for keys in it: the checksum of its block alone knows.
    log = Compacted(MemoryStorage())
    as_after_a_checkpoint(log.manager)
    log.send(*keyed("a=1"))
    log.send(*keyed("a=2"), producer=(7, 0, 0), transactional=True)
    log.end(Outcome.COMMIT, (7, 0), [])
    log.send(*keyed("b=1"))
    position = sum(len(batch) for batch in log.batches()[:3]) - 2
    log.seal()
    (number,) = log.handler.sealed_numbers()
    flip(log.disk, f"/data/topics/t/partition_0/t_partition_0_segment_{number}.log", position)
    log.clean_sealed()
    assert log.handler.compacting.failures_count == 1
    assert log.handler.repairs_count == 1
    log.now_ms += 120_000
    log.clean()
    found = [(h.base_offset, gap_reason(h)) for h in map(read_header, log.batches())]
    assert (2, GapReason.CORRUPTION) in found
    assert said(log) == ["1:a=2", "3:b=1"]


def test_a_decision_without_its_segment_is_taken_back() -> None:
    # | 0 | 1 |  and a row that says: segment 1 stands for both, of which there is no file
    log = Compacted(MemoryStorage())
    log.send((b"a", b"1" * 360))
    log.send((b"b", b"2" * 360))
    log.send((b"c", b"3" * 360))
    opened = log.handler._log
    seal(opened)
    first, second = opened.sealed.rows()
    with opened.seal_lock:
        opened.note([second._replace(base_offset=first.base_offset, size=61, tag=9)], sync=True)
    log.disk = log.disk.after_kill()
    log.open()
    assert [record.key for record in log.records()] == [b"a", b"b", b"c"]
    assert log.handler.sealed_numbers()[:2] == [first.number, second.number]
    log.clean()
    log.check()

"""What recovery makes of damage: torn tails are cut, holes become gaps, nothing is silent."""

import pytest

from segbroker.protocol.record_batch import GapReason, gap_reason, iter_batches, read_header
from segbroker.segments.decisions import Decision, Tail, decide
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, write_all
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.settings.topic_config import TopicConfig

from .crashing import CrashingStorage, Killed
from .tools import SMALL, flip, values_of

LOG_0 = "/log/t_segment_0.log"


def open_log(disk: MemoryStorage) -> SegmentedLog:
    return SegmentedLog.open(disk, "/log", "t", SMALL, now_ms=1_000)


def disk_with(count: int, *, closed: bool = False) -> MemoryStorage:
    """A disk whose process died after `count` appends of one record of 20 bytes each."""
    disk = MemoryStorage()
    log = open_log(disk)
    for i in range(count):
        log.append([b"record %013d" % i], now_ms=1_000 + i)
    if closed:
        log.close()
    return disk.after_kill()


def records(*numbers: int) -> list[bytes | None]:
    return [b"record %013d" % i for i in numbers]


def gaps_of(log: SegmentedLog) -> list[tuple[int, int, GapReason | None]]:
    headers = [read_header(batch) for batch in log.batches()]
    return [(h.base_offset, h.next_offset, gap_reason(h)) for h in headers if h.is_control]


@pytest.mark.parametrize(
    ("tail", "is_last", "is_short", "decision"),
    [
        (Tail.WHOLE, True, False, Decision.KEEP),
        (Tail.WHOLE, False, False, Decision.KEEP),
        (Tail.WHOLE, False, True, Decision.REPAIR),
        (Tail.ZEROS, True, False, Decision.CUT),
        (Tail.TORN, True, False, Decision.CUT),
        (Tail.TORN, True, True, Decision.REPAIR),
        (Tail.TORN, False, False, Decision.REPAIR),
        (Tail.HOLE, True, False, Decision.REPAIR),
        (Tail.HOLE, False, False, Decision.REPAIR),
    ],
)
def test_the_decision_table(tail: Tail, is_last: bool, is_short: bool, decision: Decision) -> None:
    assert decide(tail, is_last=is_last, is_short=is_short) is decision


@pytest.mark.parametrize("torn", [1, 4, 8, 60, 61, 80])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(torn: int) -> None:
    # | batch 0 | batch 1 | bat
    disk = disk_with(2)
    content = read_file(disk, LOG_0)
    file = disk.open(LOG_0)
    write_all(file, content[:torn], len(content))
    with open_log(disk) as log:
        assert values_of(log) == records(0, 1)
        assert log.append([b"next"], now_ms=0) == 2
    with open_log(disk) as log:
        assert values_of(log) == [*records(0, 1), b"next"]


def test_a_tail_of_zeros_is_cut() -> None:
    disk = disk_with(2)
    size = disk.open(LOG_0).size()
    disk.open(LOG_0).truncate(size + 100)
    with open_log(disk) as log:
        assert values_of(log) == records(0, 1)
    assert disk.open(LOG_0).size() == size


def test_damage_before_a_valid_batch_becomes_a_gap_and_the_original_is_kept() -> None:
    # | batch 0 | b?tch 1 | batch 2 |   ->   | batch 0 | gap [1, 2) | batch 2 |
    disk = disk_with(3)
    size = len(read_file(disk, LOG_0)) // 3
    flip(disk, LOG_0, size + 70)
    damaged = bytes(read_file(disk, LOG_0))
    with open_log(disk) as log:
        assert values_of(log) == records(0, 2)
        assert gaps_of(log) == [(1, 2, GapReason.CORRUPTION)]
        assert log.log_end_offset == 3
    (name,) = disk.listdir("/log/quarantine")
    assert read_file(disk, f"/log/quarantine/{name}") == damaged


@pytest.mark.parametrize("left", [1, 2, 60, 61, 62])
def test_a_batch_is_found_behind_whatever_is_left_of_the_one_before_it(left: int) -> None:
    # | batch 0 | ? | batch 2 | batch 3 |
    disk = disk_with(4)
    content = read_file(disk, LOG_0)
    size = len(content) // 4
    disk.open(LOG_0).truncate(0)
    write_all(disk.open(LOG_0), content[:size] + bytes(left) + content[2 * size :], 0)
    with open_log(disk) as log:
        assert values_of(log) == records(0, 2, 3)
        assert gaps_of(log) == [(1, 2, GapReason.CORRUPTION)]


def test_damage_in_a_log_that_was_closed_is_a_gap_even_at_its_end() -> None:
    # The checkpoint vouches for what a torn tail would not.
    disk = disk_with(3, closed=True)
    flip(disk, LOG_0, disk.open(LOG_0).size() - 2)
    with open_log(disk) as log:
        assert values_of(log) == records(0, 1)
        assert gaps_of(log) == [(2, 3, GapReason.CORRUPTION)]
        assert log.append([b"next"], now_ms=0) == 3


def test_a_missing_segment_between_others_becomes_a_gap() -> None:
    disk = disk_with(20)
    disk.unlink("/log/t.manifest")
    whole = read_header(read_file(disk, "/log/t_segment_1.log")).base_offset
    after = read_header(read_file(disk, "/log/t_segment_2.log")).base_offset
    disk.unlink("/log/t_segment_1.log")
    with open_log(disk) as log:
        assert values_of(log) == records(*range(whole), *range(after, 20))
        assert gaps_of(log) == [(whole, after, GapReason.CORRUPTION)]


def test_deleting_every_index_and_the_manifest_changes_nothing_visible() -> None:
    disk = disk_with(40, closed=True)
    with open_log(disk) as log:
        before = [bytes(batch) for batch in log.batches()]
    for name in disk.listdir("/log"):
        if not name.endswith(".log"):
            disk.unlink(f"/log/{name}")
    with open_log(disk) as log:
        assert [bytes(batch) for batch in log.batches()] == before
        assert log.log_end_offset == 40


def test_every_flipped_bit_of_an_index_is_noticed_and_mended() -> None:
    disk = disk_with(12, closed=True)
    path = "/log/t_segment_0.index"
    original = bytes(read_file(disk, path))
    for position in range(len(original)):
        flip(disk, path, position)
        with open_log(disk) as log:
            assert values_of(log) == records(*range(12))
        # created_ms alone is taken from the batches when an index is rebuilt.
        assert read_file(disk, path)[32:] == original[32:]


def test_every_flipped_bit_of_a_sealed_segment_is_one_gap_of_one_batch() -> None:
    disk = disk_with(12, closed=True)
    size = disk.open(LOG_0).size()
    count = read_header(read_file(disk, LOG_0.replace("_0", "_1"))).base_offset
    for position in range(size):
        image = disk.after_kill()
        flip(image, LOG_0, position)
        hit = position * count // size
        with open_log(image) as log:
            assert values_of(log) == records(*(i for i in range(12) if i != hit))
            assert gaps_of(log) == [(hit, hit + 1, GapReason.CORRUPTION)]


def test_every_flipped_bit_of_an_unsealed_segment_costs_one_batch_at_most() -> None:
    disk = disk_with(4)
    size = disk.open(LOG_0).size()
    for position in range(size):
        image = disk.after_kill()
        flip(image, LOG_0, position)
        hit = position * 4 // size
        with open_log(image) as log:
            found = values_of(log)
            assert found == records(*(i for i in range(4) if i != hit))
            if hit < 3:
                assert gaps_of(log) == [(hit, hit + 1, GapReason.CORRUPTION)]


def workload(disk: MemoryStorage, acked: list[int]) -> None:
    log = open_log(disk)
    for i in range(12):
        acked.append(log.append([b"record %013d" % i], now_ms=1_000 + i))  # noqa: PERF401
    log.close()
    log = open_log(disk)
    for i in range(12, 16):
        acked.append(log.append([b"record %013d" % i], now_ms=1_000 + i))  # noqa: PERF401


def check(disk: MemoryStorage, acked: int) -> None:
    """Nothing acked is lost, nothing was never sent, and the log goes on."""
    with open_log(disk) as log:
        found = values_of(log)
        assert found == records(*range(len(found)))
        assert acked <= len(found) <= 16
        assert gaps_of(log) == []
        assert log.append([b"more"], now_ms=0) == len(found)
    with open_log(disk.after_power_cut()) as log:
        assert values_of(log) == [*found, b"more"]


def test_no_acked_record_is_lost_wherever_the_process_or_the_power_goes() -> None:
    whole = CrashingStorage()
    workload(whole, [])
    assert len(whole.operations) > 60
    for dies_at in range(len(whole.operations)):
        disk = CrashingStorage(dies_at)
        acked: list[int] = []
        with pytest.raises(Killed):
            workload(disk, acked)
        check(disk.after_kill(), len(acked))
        check(disk.after_power_cut(), len(acked))


def test_repair_may_be_interrupted_anywhere() -> None:
    # | batch 0 | b?tch 1 | batch 2 |   with the power going at each operation of the repair
    damaged = disk_with(3)
    flip(damaged, LOG_0, 90 + 60)
    dies_at = 0
    while True:
        disk = CrashingStorage(dies_at)
        disk._root = damaged.after_kill()._root
        try:
            open_log(disk)
        except Killed:
            for image in (disk.after_kill(), disk.after_power_cut()):
                with open_log(image) as log:
                    assert values_of(log) == records(0, 2)
                    assert gaps_of(log) == [(1, 2, GapReason.CORRUPTION)]
                assert len(image.listdir("/log/quarantine")) == 1
            dies_at += 1
        else:
            break
    assert dies_at > 8


def test_batches_inside_values_are_not_taken_for_batches() -> None:
    disk = MemoryStorage()
    log = open_log(disk)
    inner = bytearray(next(iter_batches(_one_batch())))
    for i in range(3):
        log.append([bytes(inner)], now_ms=i)
    image = disk.after_kill()
    size = image.open(LOG_0).size() // 3
    flip(image, LOG_0, size + 20)
    with open_log(image) as log:
        assert gaps_of(log) == [(1, 2, GapReason.CORRUPTION)]


def _one_batch() -> memoryview:
    from segbroker.protocol.record_batch import encode_batch

    return memoryview(encode_batch([b"inner"], timestamps_ms=0))


def test_what_was_written_after_a_log_was_closed_empty_survives_the_process() -> None:
    # CHECKPOINT: 0 bytes, end 0 | batch 0 |   killed: no batch ends where the checkpoint says
    disk = MemoryStorage()
    open_log(disk).close()
    open_log(disk).append([b"first"], now_ms=1_000)
    with open_log(disk.after_kill()) as log:
        assert values_of(log) == [b"first"]


def test_what_crashes_left_of_replacements_goes_and_what_is_not_the_logs_own_stays() -> None:
    disk = disk_with(40)
    own = [
        *("t_segment_0.log.tmp", "t_segment_0.index.tmp", "t.manifest.tmp", "t.start.tmp"),
        "t_segment_1.cleaned.tmp",
        *("t.producers.tmp", "t.damaged.tmp"),
    ]
    others = ["t.tmp", "t_segment_x.log.tmp", "u.manifest.tmp", "notes.tmp", "t.manifest.tmp.tmp"]
    for name in (*own, *others):
        write_all(disk.open(f"/log/{name}", create=True), b"whatever", 0)
    log = open_log(disk)
    assert values_of(log) == records(*range(40))
    names = disk.listdir("/log")
    assert not set(own) & set(names)
    assert set(others) <= set(names)


def test_an_interrupted_mark_of_damage_is_no_hindrance_to_the_next_one() -> None:
    settings = TopicConfig({"on.corruption": "readonly"})
    disk = disk_with(3)
    flip(disk, LOG_0, 70)
    write_all(disk.open("/log/t.damaged.tmp", create=True), b"whatever", 0)
    log = SegmentedLog.open(disk, "/log", "t", settings, now_ms=1_000)
    log.close()
    names = disk.listdir("/log")
    assert "t.damaged" in names
    assert "t.damaged.tmp" not in names

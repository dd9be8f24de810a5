"""What a partition remembers of a producer, at the limits: five batches, the last sequence, epochs,
the exact millisecond."""

import errno
from collections.abc import Sequence
from unittest.mock import Mock

import pytest

from segbroker.protocol.markers import Outcome, encode_marker
from segbroker.protocol.record_batch import (
    GapReason,
    check_batch,
    encode_batch,
    gap_batches,
    iter_batches,
)
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file, replace_file, write_all
from segbroker.segments.errors import InvalidProducerEpoch, OutOfOrderSequence
from segbroker.segments.log import deleting
from segbroker.segments.log.producers import WINDOW
from segbroker.segments.log.transaction_index import Aborted
from segbroker.segments.partition.handler import PRODUCER_EXPIRATION_MS, DiskHandler

from .compacted import Compacted
from .test_retention import manager_on, partition_on
from .tools import append, batch_of, flip, lose_wal

LAST = 2**31 - 1
NOW = 1_700_000_000_000
FOLDER = "/data/topics/t/partition_0"
SEGMENT = f"{FOLDER}/t_partition_0_segment_0.log"
SNAPSHOT = f"{FOLDER}/t_partition_0.producers"


def send(
    handler: DiskHandler, sequence: int, *, records: int = 1, epoch: int = 0, at: int = NOW
) -> bool:
    """Whether it was taken for a repetition."""
    values = [b"x"] * records
    return append(
        handler, batch_of(*values, producer=(7, epoch, sequence), now_ms=at), at
    ).duplicate


def again(disk: MemoryStorage, manager: DiskManager, how: str) -> DiskHandler:
    """The partition after a start."""
    if how == "closed":
        manager.close()
        return manager_on(disk).get_handler("t", 0)
    if how == "killed":
        return manager_on(disk.after_kill()).get_handler("t", 0)
    return manager.get_handler("t", 0)


@pytest.mark.parametrize("how", ["open", "closed", "killed"])
def test_the_last_five_batches_are_known_and_the_one_before_is_out_of_order(how: str) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    for sequence in range(WINDOW + 1):
        assert not send(handler, sequence)
    handler = again(disk, manager, how)
    for sequence in range(1, WINDOW + 1):
        assert send(handler, sequence)
    with pytest.raises(OutOfOrderSequence, match=f"sent sequence 0, expected {WINDOW + 1}"):
        send(handler, 0)
    assert not send(handler, WINDOW + 1)
    with pytest.raises(OutOfOrderSequence):
        send(handler, 1)
    assert send(handler, 2)


def torn(
    disk: MemoryStorage, manager: DiskManager, lost: Sequence[int], path: str = SEGMENT
) -> None:
    """A power cut did not let these batches get to the disk, by their places."""
    manager.close()
    disk.unlink(SNAPSHOT)
    sizes = [len(batch) for batch in iter_batches(memoryview(read_file(disk, path)))]
    for place in lost:
        disk.open(path).pwrite(b"?", sum(sizes[: place + 1]) - 1)


def test_what_is_missing_between_batches_that_survived_may_be_sent_again() -> None:
    # Of five that nobody was told of a power cut left the first and the last but one.
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    for sequence in range(5):
        send(handler, sequence)
    torn(disk, manager, (1, 2, 4))
    handler = manager_on(disk).get_handler("t", 0)
    with pytest.raises(OutOfOrderSequence):
        send(handler, 2)
    assert [send(handler, sequence) for sequence in range(6)] == [
        *(True, False, False, True, False, False)
    ]
    with pytest.raises(OutOfOrderSequence, match="expected 6"):
        send(handler, 7)


@pytest.mark.parametrize("how", ["open", "closed", "killed"])
@pytest.mark.parametrize("before", ["", "another-epoch", "a-marker"])
@pytest.mark.parametrize("lost", [[0], [0, 1], [0, 2], [0, 3], [0, 1, 2, 3]])
def test_what_is_missing_in_front_of_the_first_batch_may_be_sent_again(
    how: str, before: str, lost: list[int]
) -> None:
    # Of five that nobody was told of, the first ones of their producer or of its epoch.
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    if before == "another-epoch":
        send(handler, 0)
    elif before == "a-marker":
        marker = memoryview(encode_marker(Outcome.ABORT, 7, 1, NOW))
        handler.append(marker, check_batch(marker, stored=True), NOW)
    epoch = 1 if before else 0
    for sequence in range(5):
        send(handler, sequence, epoch=epoch)
    torn(disk, manager, [epoch + place for place in lost])
    manager = manager_on(disk)
    record = batch_of(b"x", now_ms=NOW)
    append(manager.get_handler("t", 0), record, NOW)  # a snapshot when it is closed
    handler = again(disk, manager, how)
    assert disk.exists(SNAPSHOT) == (how == "closed")
    assert [send(handler, sequence, epoch=epoch) for sequence in range(6)] == [
        *(sequence not in lost for sequence in range(5)),
        False,
    ]
    with pytest.raises(OutOfOrderSequence, match="expected 6"):
        send(handler, 7, epoch=epoch)


@pytest.mark.parametrize("how", ["open", "closed", "killed"])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("begin", [0, 1, LAST - 3])
@pytest.mark.parametrize("lost", [[0], [1], [3], [0, 2], [1, 3], [0, 1, 3]])
def test_the_five_that_are_known_are_the_last_in_sequence_whatever_was_sent_again(
    how: str, begin: int, before: int, lost: list[int]
) -> None:
    # What was missing is appended behind what comes after it, and is not the last to be forgotten.
    sequences = [(begin + place) % (LAST + 1) for place in range(14)]
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    for sequence in sequences[: before + 5]:
        send(handler, sequence)
    torn(disk, manager, [before + place for place in lost])
    manager = manager_on(disk)
    handler = manager.get_handler("t", 0)
    if begin and not before and 0 in lost:
        with pytest.raises(OutOfOrderSequence):
            send(handler, begin)
        return
    for end, sequence in enumerate(sequences[before:]):
        assert send(handler, sequence) == (end < 5 and end not in lost)
        if end >= 4:
            for one in sequences[before:][end - 4 : end + 1]:
                assert send(handler, one)
    handler = again(disk, manager, how)
    for one in sequences[-5:]:
        assert send(handler, one)
    with pytest.raises(OutOfOrderSequence):
        send(handler, sequences[-6])


def test_in_front_of_an_epoch_that_began_with_a_gap_only_what_has_room_there_is_taken() -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    for sequence in range(3):
        send(handler, sequence)
    torn(disk, manager, [0, 1])
    handler = manager_on(disk).get_handler("t", 0)
    for sequence, records in ((0, 3), (1, 1)):
        with pytest.raises(OutOfOrderSequence, match="expected 3"):
            send(handler, sequence, records=records)
    assert not send(handler, 0, records=2)
    with pytest.raises(OutOfOrderSequence, match="expected 3"):
        send(handler, 0)


def test_nothing_in_front_of_an_epoch_is_taken_where_more_is_lost_of_it_than_the_gap_has() -> None:
    # It was not known and began with 2, or not all that there is of it is among the five.
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    append(handler, batch_of(b"x", now_ms=NOW), NOW)
    send(handler, 2)
    torn(disk, manager, [0])
    with pytest.raises(OutOfOrderSequence, match="expected 3"):
        send(manager_on(disk).get_handler("t", 0), 0)
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    for sequence in range(WINDOW + 2):
        send(handler, sequence)
    torn(disk, manager, [0])
    with pytest.raises(OutOfOrderSequence, match=f"expected {WINDOW + 2}"):
        send(manager_on(disk).get_handler("t", 0), 0)


def begun_behind_a_gap() -> tuple[MemoryStorage, DiskManager]:
    """| a record | gap 1 .. 3 | sequence 2 |   and nothing says what the producer did but that."""
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    append(handler, batch_of(b"x", now_ms=NOW), NOW)
    for sequence in range(3):
        send(handler, sequence)
    torn(disk, manager, [1, 2])
    manager = manager_on(disk)
    assert manager.get_handler("t", 0).high_watermark == 4
    return disk, manager


@pytest.mark.parametrize("reason", [GapReason.DELETED, GapReason.CAP, GapReason.TTL, None])
def test_nothing_in_front_of_an_epoch_is_taken_behind_what_went_on_purpose(
    reason: GapReason | None,
) -> None:
    disk, manager = begun_behind_a_gap()
    manager.close()
    disk.unlink(SNAPSHOT)
    if reason is not None:
        data = read_file(disk, SEGMENT)
        first = next(iter_batches(memoryview(data)))
        (gap,) = gap_batches(0, 1, reason, NOW, 0)
        disk.open(SEGMENT).truncate(0)
        write_all(disk.open(SEGMENT), gap + data[len(first) :], 0)
    handler = manager_on(disk).get_handler("t", 0)
    if reason is None:
        assert not send(handler, 0)
    else:
        with pytest.raises(OutOfOrderSequence, match="expected 3"):
            send(handler, 0)


def test_nothing_in_front_of_an_epoch_is_taken_where_five_are_known_behind_it() -> None:
    """A sixth would push out one that may be sent again; clients have five under way at most."""
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    for sequence in range(WINDOW + 1):
        send(handler, sequence)
    torn(disk, manager, [0])
    handler = manager_on(disk).get_handler("t", 0)
    with pytest.raises(OutOfOrderSequence):
        send(handler, 0)
    assert all(send(handler, sequence) for sequence in range(1, WINDOW + 1))


def test_nothing_in_front_of_an_epoch_is_taken_where_the_begin_of_the_log_is_not_known() -> None:
    disk, manager = begun_behind_a_gap()
    manager.get_handler("t", 0).delete_records_before(1)
    manager.close()
    snapshot = read_file(disk, SNAPSHOT)
    disk.unlink(SNAPSHOT)
    with pytest.raises(OutOfOrderSequence, match="expected 3"):
        send(manager_on(disk.after_kill()).get_handler("t", 0), 0)
    replace_file(disk, SNAPSHOT, snapshot)
    assert not send(manager_on(disk).get_handler("t", 0), 0)


def test_in_front_of_an_epoch_is_taken_what_a_snapshot_of_the_begin_of_the_log_says() -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    append(handler, batch_of(b"x", producer=(8, 0, 0), now_ms=NOW), NOW)
    handler.delete_records_before(1)
    manager.close()
    snapshot = read_file(disk, SNAPSHOT)
    manager = manager_on(disk)
    for sequence in range(3):
        send(manager.get_handler("t", 0), sequence)
    torn(disk, manager, [1, 2])
    replace_file(disk, SNAPSHOT, snapshot)
    handler = manager_on(disk).get_handler("t", 0)
    assert [send(handler, sequence) for sequence in range(4)] == [False, False, True, False]


def test_nothing_in_front_of_an_epoch_is_taken_behind_a_segment_that_cannot_be_read() -> None:
    # | 0 1 and five records | two records, 2 |   what it sent first is in the first segment
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    for place in range(10):
        if place in (0, 1, 9):
            send(handler, min(place, 2))
        else:
            append(handler, batch_of(b"x", now_ms=NOW), NOW)
    torn(disk, manager, [0, 1], SEGMENT.replace("segment_0", "segment_1"))
    disk.unlink(SEGMENT)
    handler = manager_on(disk).get_handler("t", 0)
    with pytest.raises(OutOfOrderSequence, match="expected 3"):
        send(handler, 0)


@pytest.mark.parametrize("place", [43, 50, 51, 52, 53, 56, 57, 66])
@pytest.mark.parametrize("sequence", [0, 2, 3])
def test_damage_in_a_sealed_segment_makes_no_other_producer_and_no_other_sequence(
    place: int, sequence: int
) -> None:
    # A bit of the producer's id, of its epoch, of the sequence, or behind them; 0 to 3 were sent.
    disk = MemoryStorage()
    _, handler = partition_on(disk, retention_ms=-1)
    for number in range(4):
        send(handler, number)
    for _ in range(20):
        append(handler, batch_of(b"x", now_ms=NOW), NOW)
    assert 0 in handler.sealed_numbers()
    image = disk.after_kill()
    lose_wal(image)
    size = len(next(iter_batches(memoryview(read_file(image, SEGMENT)))))
    flip(image, SEGMENT, sequence * size + place)
    handler = manager_on(image).get_handler("t", 0)
    others = [number for number in range(4) if number != sequence]
    if sequence in (0, 3):  # in the middle the one that is missing would be taken
        assert not send(handler, 4)
    assert [send(handler, number) for number in others] == [True] * 3


def test_a_repetition_has_as_many_records_as_the_batch_that_it_repeats() -> None:
    _, handler = partition_on(MemoryStorage(), retention_ms=-1)
    send(handler, 0, records=3)
    for records in (2, 4):
        with pytest.raises(OutOfOrderSequence, match="sent sequence 0, expected 3"):
            send(handler, 0, records=records)
    assert send(handler, 0, records=3)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 2, expected 3"):
        send(handler, 2)


@pytest.mark.parametrize("how", ["open", "closed", "killed"])
@pytest.mark.parametrize(("records", "following"), [(1, LAST), (2, 0), (3, 1)])
def test_behind_the_greatest_sequence_comes_zero(how: str, records: int, following: int) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    assert not send(handler, LAST - 1, records=records)
    handler = again(disk, manager, how)
    assert send(handler, LAST - 1, records=records)
    with pytest.raises(OutOfOrderSequence, match=f"expected {following}"):
        send(handler, following + 1 if following != LAST else 0)
    assert not send(handler, following)


@pytest.mark.parametrize("how", ["open", "closed", "killed"])
def test_a_new_epoch_begins_with_sequence_zero_and_ends_the_old_one(how: str) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    send(handler, 0, epoch=3)
    handler = again(disk, manager, how)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 1, expected 0"):
        send(handler, 1, epoch=4)
    assert not send(handler, 0, epoch=4)
    with pytest.raises(InvalidProducerEpoch):
        send(handler, 0, epoch=3)
    assert send(handler, 0, epoch=4)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 2, expected 1"):
        send(handler, 2, epoch=4)


def test_a_batch_without_a_sequence_says_nothing_of_its_producer() -> None:
    _, handler = partition_on(MemoryStorage(), retention_ms=-1)
    batch = encode_batch([b"x"], timestamps_ms=NOW)
    for _ in range(2):
        assert not append(handler, memoryview(bytearray(batch)), NOW).duplicate
    assert list(handler.producers()) == []


@pytest.mark.parametrize("how", ["open", "closed", "killed"])
def test_what_is_open_and_what_was_aborted_is_known_after_a_start(how: str) -> None:
    disk = MemoryStorage()
    manager, handler = partition_on(disk, retention_ms=-1)
    send(handler, 0)
    for offset, producer_id in ((1, 8), (2, 9), (3, 8)):
        batch = encode_batch(
            [b"x"],
            timestamps_ms=NOW,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=offset // 3,
            transactional=True,
        )
        append(handler, memoryview(bytearray(batch)), NOW)
    marker = memoryview(encode_marker(Outcome.ABORT, 8, 0, NOW))
    handler.append(marker, check_batch(marker, stored=True), NOW)
    handler = again(disk, manager, how)
    assert (handler.last_stable_offset, handler.high_watermark) == (2, 5)
    assert handler.transactions.open == {9: 2}
    assert handler.transactions.aborted == [Aborted(8, 1, 4)]


def test_a_producer_is_known_to_the_millisecond() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=-1)
    send(handler, 0)
    manager.keep_house_now(NOW + PRODUCER_EXPIRATION_MS)
    assert [producer_id for producer_id, _ in handler.producers()] == [7]
    manager.keep_house_now(NOW + PRODUCER_EXPIRATION_MS + 1)
    assert list(handler.producers()) == []


def test_a_producer_with_an_open_transaction_is_known_however_long_that_takes() -> None:
    manager, handler = partition_on(MemoryStorage(), retention_ms=-1)
    batch = encode_batch(
        [b"x"],
        timestamps_ms=NOW,
        producer_id=8,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    append(handler, memoryview(bytearray(batch)), NOW)
    send(handler, 0)
    manager.keep_house_now(NOW + PRODUCER_EXPIRATION_MS + 1)
    assert [producer_id for producer_id, _ in handler.producers()] == [8]
    marker = memoryview(encode_marker(Outcome.COMMIT, 8, 0, NOW))
    handler.append(marker, check_batch(marker, stored=True), NOW)
    manager.keep_house_now(NOW + 2 * PRODUCER_EXPIRATION_MS)
    assert list(handler.producers()) == []


def test_a_producer_of_whom_only_a_marker_is_left_goes_on() -> None:
    """Its batches were deleted, and then what was saved of it was lost: only its next batch can
    say where it is."""
    log = Compacted(MemoryStorage(), cleanup_policy="delete")
    first = log.send((b"k", b"1"), (b"k", b"2"), producer=(7, 0, 0), transactional=True)
    log.seal()
    log.end(Outcome.COMMIT, (7, 0), [])
    log.handler.delete_records_before(first + 2)
    log.manager.housekeeping(log.now_ms)
    log.manager.close()
    log.disk.unlink(f"{FOLDER}/t_partition_0.producers")
    log.open()
    assert [(known.batches, known.resumes) for _, known in log.handler.producers()] == [((), True)]
    assert log.send((b"k", b"3"), producer=(7, 0, 2), transactional=True) == first + 3
    with pytest.raises(OutOfOrderSequence):
        log.send((b"k", b"5"), producer=(7, 0, 4), transactional=True)


@pytest.mark.parametrize("has_markers", [False, True])
@pytest.mark.parametrize("has_older", [False, True])
def test_a_producer_whose_batches_went_on_a_full_disk_goes_on_after_a_kill(
    monkeypatch: pytest.MonkeyPatch, *, has_older: bool, has_markers: bool
) -> None:
    """There was no room to save what is known of it, and space comes first."""
    log = Compacted(MemoryStorage(), cleanup_policy="delete")
    log.send((b"k", b"1"), producer=(7, 0, 0), transactional=has_markers)
    if has_older:
        log.manager.close()
        log.open()
    log.send((b"k", b"2"), producer=(7, 0, 1), transactional=has_markers)
    if has_markers:
        log.end(Outcome.COMMIT, (7, 0), [])
    log.send((b"k", b"3"), producer=(7, 0, 2), transactional=has_markers)
    log.seal()
    if has_markers:
        log.end(Outcome.COMMIT, (7, 0), [])
    full = OSError(errno.ENOSPC, "no space")
    monkeypatch.setattr(deleting, "save_producers", Mock(side_effect=full))
    log.handler.delete_records_before(log.handler.log_end_offset - has_markers)
    log.manager.housekeeping(log.now_ms)
    log.disk = log.disk.after_kill()
    log.open()
    end = log.handler.log_end_offset
    assert log.send((b"k", b"4"), producer=(7, 0, 3), transactional=has_markers) == end
    with pytest.raises(OutOfOrderSequence):
        log.send((b"k", b"6"), producer=(7, 0, 5), transactional=has_markers)

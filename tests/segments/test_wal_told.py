"""A damaged log ahead tells what is lost, and no more than that."""

import errno

import pytest
from structlog.testing import capture_logs

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.wal.frames import (
    AFTER_FAILURE,
    FRAME_MAGIC,
    FRAME_SIZE,
    FRAMES_BEGIN,
    HEADER_SIZE,
    OVERHEAD,
    Frame,
    FrameType,
)

from .test_wal_given_up import FOLDER, SIZE, batches, failed, old_file
from .test_wal_torn import LARGE, PATH, scanned, written
from .wal_writing import (
    ROOT,
    SMALL,
    TOPIC,
    FailingStorage,
    Writer,
    begun,
    content,
    replayed,
)

FIRST = f"{ROOT}/shard-00/wal-0.log"


def test_a_damaged_frame_that_says_what_it_was_stands_in_front_of_all_others() -> None:
    # | kept. | (given up) |   | given up | after |   of the first its trailer is left
    disk = FailingStorage()
    wal, _ = failed(disk)
    wal.revive()
    wal.shard_of(TOPIC, 0).write([batches(5, b"after")])
    disk.open(FIRST).pwrite(b"?", FRAMES_BEGIN + FRAME_SIZE)
    found = replayed(disk)
    assert content(found) == b"after"
    assert [(one.lsn, one.frames, one.durable) for one in found.missing] == [(0, 1, True)]
    assert found.lost_below == {(TOPIC, 0): 5}
    assert (found.unnamed, found.torn, found.control_lost) == (set(), set(), 0)


def test_events_may_have_been_in_every_file_in_front_of_the_one_that_failed() -> None:
    # | 30 events |   | batches | (given up) |   | given up | after |   two files are empty now
    disk = FailingStorage()
    wal, _ = begun(disk)
    for _ in range(30):
        wal.control(b"event")()
    shard = wal.shard_of(TOPIC, 0)
    shard.write([batches(0, b"kept.")])
    shard.supply.prepare_soon()
    disk.fail_sync = errno.EIO
    with pytest.raises(OSError, match="wal-1"):
        shard.write([batches(5, b"lost.")])
    disk.fail_sync = 0
    wal.revive()
    shard.write([batches(5, b"after")])
    for number in range(2):
        file = disk.open(f"{FOLDER}/wal-{number}.log")
        file.pwrite(bytes(SMALL.file_bytes - FRAMES_BEGIN - HEADER_SIZE), FRAMES_BEGIN)
    found = replayed(disk)
    assert content(found) == b"after"
    assert [(one.what, one.durable) for one in found.missing] == [("frames below lsn 31", True)]
    assert (found.unnamed, found.control_lost) == ({0}, 31)


def test_in_files_of_version_3_a_flag_excuses_a_frame_in_front_of_it_that_is_damaged() -> None:
    for flags in (0, AFTER_FAILURE):
        disk = MemoryStorage()
        old_file(disk, "wal-0", 8192, [(batches(0, b"kept."), 0, 0), (batches(5, b"lost."), 1, 0)])
        old_file(disk, "wal-1", 8192, [(batches(5, b"after"), 2, flags)])
        for number in range(2):
            disk.open(f"{FOLDER}/wal-{number}.log").truncate(8192)
        disk.open(FIRST).pwrite(b"?", FRAMES_BEGIN + SIZE + FRAME_SIZE)
        found = replayed(disk)
        assert content(found) == b"kept.after"
        assert found.lost_below == ({} if flags else {(TOPIC, 0): 10})
        assert len(found.missing) == (0 if flags else 1)


def test_what_is_missing_in_front_of_a_group_that_a_later_one_vouches_for_was_durable() -> None:
    # | A B, one group | C |   nothing is left of A
    disk = MemoryStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 0)
    shard.write([batches(0, b"AAAAA"), batches(5, b"BBBBB")])
    shard.write([batches(10, b"CCCCC")])
    disk.open(FIRST).pwrite(bytes(SIZE), FRAMES_BEGIN)
    found = replayed(disk)
    assert content(found) == b"BBBBBCCCCC"
    assert [(one.what, one.durable) for one in found.missing] == [("frames below lsn 1", True)]
    assert (found.unnamed, found.torn) == ({0}, set())


def test_what_a_barrier_made_void_is_not_lost() -> None:
    # | void | barrier | after |   the first is damaged
    disk = MemoryStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 0)
    shard.write([batches(0, b"void.")])
    wal.barrier(TOPIC, 0)
    shard.write([batches(0, b"after")])
    assert replayed(disk).lost_below == {}
    disk.open(FIRST).pwrite(b"?", FRAMES_BEGIN + FRAME_SIZE)
    found = replayed(disk)
    assert content(found) == b"after"
    assert len(found.missing) == 1
    assert found.lost_below == {}


def test_events_of_a_torn_group_are_not_in_doubt() -> None:
    # | before | A B C D E F, awaiting a mark |   a page in the middle is missing, and the mark
    disk, _ = written()
    whole = scanned(disk)
    file = disk.open(PATH)
    file.pwrite(bytes(OVERHEAD), whole.positions[-1])
    assert whole.frames[-1].type is FrameType.MARK
    file.pwrite(bytes(100), whole.positions[3])
    file.pwrite(bytes(OVERHEAD), whole.positions[4] - OVERHEAD)
    found = replayed(disk, LARGE)
    assert [(one.lsn, one.frames, one.is_in_doubt) for one in found.missing] == [(3, 1, False)]
    assert (found.unnamed, found.torn, found.control_lost) == (set(), set(), 0)


def test_a_header_is_told_as_damaged_when_it_is() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    for damaged in (False, True):
        if damaged:
            disk.open(FIRST).pwrite(b"?", 0)
        with capture_logs() as told:
            assert content(replayed(disk)) == b"one"
        assert [one["event"] for one in told] == ["wal_header_damaged"] * damaged


def without_headers(disk: MemoryStorage) -> None:
    file = disk.open(FIRST)
    file.pwrite(bytes(FRAMES_BEGIN), 0)
    file.pwrite(bytes(HEADER_SIZE), SMALL.file_bytes - HEADER_SIZE)


def test_of_a_file_without_headers_only_events_are_counted_as_such() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    wal.control(b"event")()
    Writer(wal).append(b"records")
    wal.shard_of(TOPIC, 0).write([Frame(FrameType.BARRIER, TOPIC, 1)])
    without_headers(disk)
    found = replayed(disk)
    assert found.control_lost == 1 + 1, "one may be damaged itself"


@pytest.mark.parametrize("room", [FRAME_SIZE, FRAME_SIZE - 1])
def test_the_last_bytes_of_a_file_without_headers_are_looked_at_as_far_as_they_go(
    room: int,
) -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    wal.control(b"event")()
    without_headers(disk)
    disk.open(FIRST).pwrite(FRAME_MAGIC, SMALL.file_bytes - room)
    assert replayed(disk).control_lost == 1 + 1


@pytest.mark.parametrize("flags", [0, AFTER_FAILURE])
def test_in_files_of_version_3_a_flag_excuses_a_file_in_front_of_which_nothing_is_left(
    flags: int,
) -> None:
    disk = MemoryStorage()
    old_file(disk, "wal-0", 8192, [(batches(0, b"lost."), 0, 0)])
    old_file(disk, "wal-1", 8192, [(batches(0, b"after"), 1, flags)])
    for number in range(2):
        disk.open(f"{FOLDER}/wal-{number}.log").truncate(8192)
    disk.open(FIRST).pwrite(bytes(SIZE), FRAMES_BEGIN)
    found = replayed(disk)
    assert content(found) == b"after"
    assert len(found.missing) == (0 if flags else 1)


def test_a_frame_of_this_file_in_a_record_does_not_come_back_in_the_place_of_a_damaged_one() -> (
    None
):
    # | 0 | 1 | 2: somebody stored what the log had of 1 | 3 |   the head of 2 is damaged
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"first")
    writer.append(b"other")
    writer.append(bytes(read_file(disk, FIRST)[FRAMES_BEGIN + SIZE : FRAMES_BEGIN + 2 * SIZE]))
    writer.append(b"third")
    disk.open(FIRST).pwrite(b"?", FRAMES_BEGIN + 2 * SIZE)
    found = replayed(disk)
    assert content(found) == b"firstotherthird"
    assert [(one.lsn, one.frames) for one in found.missing] == [(2, 1)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_trailer_of_version_2_does_not_say_that_its_frame_began_a_group(version: int) -> None:
    # | lost | damaged |   nothing is left of the first, of the second its trailer
    disk = MemoryStorage()
    frames = [(batches(0, b"lost."), 0, 0), (batches(5, b"lost."), 1, 0)]
    old_file(disk, "wal-0", 8192, frames, version)
    disk.open(FIRST).truncate(8192)
    disk.open(FIRST).pwrite(bytes(SIZE), FRAMES_BEGIN)
    disk.open(FIRST).pwrite(b"?", FRAMES_BEGIN + SIZE + FRAME_SIZE)
    found = replayed(disk)
    assert found.lost_below == {(TOPIC, 0): 10}
    in_front = [one.durable for one in found.missing if not one.frames]
    assert in_front == [version == 3], "nobody may have been told of it"

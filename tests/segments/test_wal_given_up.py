"""What a write or a sync that failed has left of its group is neither applied nor missed, once the
log goes on in another file; what was acknowledged in front of it is missed."""

import errno
from itertools import product
from typing import NoReturn
from unittest.mock import patch

import pytest

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager, NewTopic
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import PAGE, make_dirs, read_file
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal import shard
from segbroker.segments.wal.frames import (
    AFTER_FAILURE,
    FRAMES_BEGIN,
    OVERHEAD,
    Frame,
    FrameType,
    Header,
    encode_frame,
    encode_header,
    header_of,
)
from segbroker.segments.wal.group import Group, Request
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.scanning import Scanned, scan_file
from segbroker.segments.wal.trailers import TRAILER_SIZE

from .crash.observing import see_handler
from .crash.recording import Fault, RecordingStorage
from .wal_writing import (
    ROOT,
    SMALL,
    TOPIC,
    FailingStorage,
    Writer,
    at_once,
    begun,
    content,
    no_memory_for_lines,
    replayed,
)

FOLDER = f"{ROOT}/shard-00"
SIZE = OVERHEAD + 5
LARGE = WalConfig(file_bytes=1 << 16, shard_bytes=4 << 16)


def batches(place: int, payload: bytes) -> Frame:
    return Frame(FrameType.BATCHES, TOPIC, 0, 0, place, place, 1, payload, end_offset=place + 5)


LOST = [batches(5, b"lost1"), Frame(FrameType.CONTROL, payload=b"lost2"), batches(10, b"lost3")]


def failed(
    disk: FailingStorage, *, acknowledged: bool = True, config: WalConfig = SMALL
) -> tuple[Wal, int]:
    """A group of three whose sync failed; and the byte where it begins in wal-0.log."""
    wal, _ = begun(disk, config)
    shard = wal.shard_of(TOPIC, 0)
    shard.supply.prepare_soon()
    begin = FRAMES_BEGIN
    if acknowledged:
        shard.write([batches(0, b"kept.")])
        begin += SIZE
    disk.fail_sync = errno.EIO
    with pytest.raises(OSError, match="planted"):
        shard.write(LOST)
    disk.fail_sync = 0
    return wal, begin


def scanned(disk: MemoryStorage, number: int) -> Scanned:
    data = read_file(disk, f"{FOLDER}/wal-{number}.log")
    header = header_of(data)
    assert header is not None
    return scan_file(memoryview(data), header)


def leave_of(disk: MemoryStorage, begin: int, parts: tuple[bool, ...], number: int = 0) -> None:
    """Of the halves of the frames that were given up only these are on the disk: a half is what
    stands before the trailer, or the trailer."""
    file = disk.open(f"{FOLDER}/wal-{number}.log")
    for place, is_there in enumerate(parts):
        frame, half = divmod(place, 2)
        low = begin + frame * SIZE + half * (SIZE - TRAILER_SIZE)
        if not is_there:
            file.pwrite(bytes(TRAILER_SIZE if half else SIZE - TRAILER_SIZE), low)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_nothing_that_a_failure_left_of_its_group_is_applied_or_missed(acknowledged: bool) -> None:
    for parts in product((False, True), repeat=2 * len(LOST)):
        disk = FailingStorage()
        wal, begin = failed(disk, acknowledged=acknowledged)
        leave_of(disk, begin, parts)
        wal.revive()
        wal.shard_of(TOPIC, 0).write([batches(5, b"after")])
        found = replayed(disk)
        assert content(found) == (b"kept.after" if acknowledged else b"after"), parts
        assert (found.missing, found.lost_below, found.control) == ([], {}, [])
        assert (found.control_lost, found.unnamed, found.torn) == (0, set(), set())


def test_what_was_acknowledged_in_front_of_a_failure_is_missed() -> None:
    # | kept. | (given up) |   | given up | after |   nothing is left of the first
    disk = FailingStorage()
    wal, begin = failed(disk)
    wal.revive()
    wal.shard_of(TOPIC, 0).write([batches(5, b"after")])
    disk.open(f"{FOLDER}/wal-0.log").pwrite(bytes(begin + 3 * SIZE - FRAMES_BEGIN), FRAMES_BEGIN)
    found = replayed(disk)
    assert content(found) == b"after"
    assert [one.durable for one in found.missing] == [True]
    assert (found.control_lost, found.unnamed) == (1, {0})


def test_an_acknowledged_frame_between_others_and_a_failure_is_missed() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 0)
    for place in (0, 5):
        shard.write([batches(place, b"kept.")])
    disk.fail_sync = errno.EIO
    with pytest.raises(OSError, match="planted"):
        shard.write([batches(10, b"lost1")])
    disk.fail_sync = 0
    wal.revive()
    shard.write([batches(10, b"after")])
    disk.open(f"{FOLDER}/wal-0.log").pwrite(bytes(2 * SIZE), FRAMES_BEGIN + SIZE)
    found = replayed(disk)
    assert content(found) == b"kept.after"
    assert [(one.lsn, one.frames, one.durable) for one in found.missing] == [(1, 1, True)]
    assert found.unnamed == {0}


def test_every_damaged_byte_of_what_says_that_frames_were_given_up_leaves_what_it_says() -> None:
    disk = FailingStorage()
    wal, begin = failed(disk)
    leave_of(disk, begin, (False, False, True, True, False, True))
    wal.revive()
    wal.shard_of(TOPIC, 0).write([batches(5, b"after")])
    said, after = scanned(disk, 1).frames
    assert (said.type, said.base_offset, said.lsn) == (FrameType.GIVEN_UP, 1, 4)
    assert (said.segment, said.position) == (0, begin)
    assert (after.lsn, after.ordinal) == (5, 0)
    path = f"{FOLDER}/wal-1.log"
    file, before = disk.open(path), read_file(disk, path)
    for place in range(FRAMES_BEGIN, FRAMES_BEGIN + OVERHEAD):
        file.pwrite(bytes([before[place] ^ 0x41]), place)
        found = replayed(disk)
        assert content(found) == b"kept.after"
        assert (found.missing, found.lost_below, found.control) == ([], {}, [])
        file.pwrite(before[place : place + 1], place)
    # Where nothing is left of it what it spoke of is told as lost: too much, and not too little.
    file.pwrite(bytes(OVERHEAD), FRAMES_BEGIN)
    assert all(one.durable for one in replayed(disk).missing)
    assert replayed(disk).missing


def test_a_group_that_fails_in_the_next_file_too_is_given_up_with_the_first() -> None:
    disk = FailingStorage()
    wal, begin = failed(disk)
    wal.revive()
    disk.fail_sync = errno.EIO
    with pytest.raises(OSError, match="planted"):
        wal.shard_of(TOPIC, 0).write(LOST[:1])
    disk.fail_sync = 0
    leave_of(disk, begin, (False, True, True, True, False, True))
    leave_of(disk, FRAMES_BEGIN + OVERHEAD, (False, True), 1)
    wal.revive()
    wal.shard_of(TOPIC, 0).write([batches(5, b"after")])
    found = replayed(disk)
    assert content(found) == b"kept.after"
    assert (found.missing, found.lost_below, found.control) == ([], {}, [])


def test_a_file_that_has_nothing_but_what_was_given_up_leaves_no_room_in_front() -> None:
    # wal-0 is full and freed; all of wal-1 was given up, and nothing is left of it; wal-2 goes on
    disk = FailingStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 0)
    size = SMALL.batch_bytes_max
    shard.write([batches(0, bytes(size))])
    disk.fail_sync = errno.EIO
    with pytest.raises(OSError, match="planted"):
        shard.write([batches(size, b"lost1"), batches(size + 5, bytes(1_000))])
    disk.fail_sync = 0
    shard.free_oldest()
    wal.revive()
    shard.write([batches(size, b"after")])
    for parts in product((False, True), repeat=2):
        leave_of(disk, FRAMES_BEGIN, (*parts, False, False), 1)
        found = replayed(disk)
        assert content(found) == b"after"
        assert (found.missing, found.lost_below, found.unnamed) == ([], {}, set())


@pytest.mark.parametrize("acknowledged", [True, False])
def test_of_a_torn_first_group_after_a_failure_nothing_is_told_as_lost(acknowledged: bool) -> None:
    # | given up |   | 5,000 bytes ... | after |   two pages, and power goes while these are written
    path = f"{FOLDER}/wal-1.log"
    for missing in product((False, True), repeat=2):
        disk = FailingStorage()
        wal, _ = failed(disk, acknowledged=acknowledged, config=LARGE)
        wal.revive()
        shard = wal.shard_of(TOPIC, 0)
        shard.write([batches(5, bytes(5_000)), batches(5_005, b"after")])
        assert disk.durable is not None
        before = read_file(disk.durable, path)
        file = disk.open(path)
        for page, is_missing in enumerate(missing, FRAMES_BEGIN // PAGE):
            if is_missing:
                file.pwrite(before[page * PAGE : (page + 1) * PAGE], page * PAGE)
        found = replayed(disk)
        assert content(found) == (
            (b"kept." if acknowledged else b"")
            + (b"" if any(missing) else bytes(5_000))
            + (b"" if missing[1] else b"after")
        )
        # (A batch nobody was told of, whose trailer is left, is told as a gap: too much, not less.)
        assert (found.control, found.control_lost, found.unnamed) == ([], 0, set()), missing
        assert not any(
            one.durable for one in found.missing if one.lsn < (5 if acknowledged else 4)
        ), missing


def test_what_was_given_up_begins_where_the_group_did_also_if_it_failed_in_the_next_file() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 0)
    shard.write([batches(0, b"kept.")])
    for _ in range(2):
        shard.supply.prepare_soon()
    disk.fail_write, disk.writes_before_failure = errno.EIO, 1
    with pytest.raises(OSError, match="planted"):
        shard.write([batches(5, bytes(3_000)), batches(3_005, bytes(3_000))])
    disk.fail_write = 0
    assert shard.full_count == 1, "the group went over two files"
    wal.revive()
    shard.write([batches(5, b"after")])
    said, _ = scanned(disk, 2).frames
    assert (said.base_offset, said.segment, said.position) == (1, 0, FRAMES_BEGIN + SIZE)
    found = replayed(disk.after_power_cut())
    assert content(found) == b"kept.after"
    assert not found.missing


def test_what_rode_with_a_group_that_failed_rides_with_the_next_that_is_written() -> None:
    # wal-0 fails with both ENDs in it, and stays: its logs cannot be synced for now
    disk = FailingStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 0)
    shard.write([batches(0, b"kept.")])
    wal.end_soon(TOPIC, 0, 0, 5, 5)
    wal.end_soon(TOPIC, 1, 0, 7, 7)
    disk.fail_sync = errno.EIO
    for _ in range(2):
        with pytest.raises(OSError, match="planted"):
            shard.write([batches(5, b"lost!")])
    disk.fail_sync = 0
    wal.end_soon(TOPIC, 0, 0, 9, 9)  # what is newer is what counts
    wal.revive()
    shard.write([batches(5, b"after")])
    said = [(one.type, one.base_offset) for one in scanned(disk, 1).frames[1:]]
    assert sorted(said[:2]) == [(FrameType.END, 7), (FrameType.END, 9)]
    assert said[2:] == [(FrameType.BATCHES, 5)]
    shard.write([batches(10, b"again")])
    assert len(scanned(disk, 1).frames) == 5, "it rides once"


def test_a_lone_writer_leaves_the_first_group_after_one_that_found_no_file_to_the_thread() -> None:
    disk = FailingStorage()
    wal = Wal(disk, ROOT, SMALL, threaded=False, call_soon=at_once, clock=lambda: 0.0)
    wal.open()
    wal.absorbed()
    writer = Writer(wal)
    for _ in range(40):
        writer.append(b"1")
    writer.shard.supply.release()
    disk.fail_write, disk.writes_before_failure = errno.ENOSPC, 1
    fits, needs_a_file = b"fits", bytes(SMALL.batch_bytes_max)
    told: list[OSError | None] = []
    frames = [Frame(FrameType.CONTROL, payload=payload) for payload in (fits, needs_a_file)]
    writer.shard.put(frames, told.append)
    assert isinstance(told[0], OSError)
    assert (wal.statistics().shards_failed, writer.shard.failure) == (1, None)
    disk.fail_write = 0
    writer.pending.add(b"after", 0, 40, 40, 45, 1)
    assert not writer.shard.commit_here(writer, writer.pending.frames_size)
    writer.shard.submit(writer)
    writer.pending.add(b"here", 0, 45, 45, 49, 1)
    assert writer.shard.commit_here(writer, writer.pending.frames_size)
    assert content(replayed(disk.after_power_cut())) == b"1" * 40 + b"afterhere"


def test_frames_that_were_given_up_are_not_kept_for_a_log_that_cannot_be_synced() -> None:
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.can_checkpoint = False
    writer.append(b"kept.")
    disk.fail_sync = errno.EIO
    writer.append(b"lost!")
    disk.fail_sync = 0
    wal.revive()
    wal.checkpoint()
    assert not disk.exists(f"{FOLDER}/wal-0.log")
    found = replayed(disk.after_power_cut())
    assert content(found) == b"kept."
    assert not found.missing


def test_a_shard_counts_as_writable_when_another_file_has_been_written_not_when_there_is_one() -> (
    None
):
    disk = FailingStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"kept.")
    disk.fail_sync = errno.EIO
    writer.append(b"lost!")
    for _ in range(2):
        with pytest.raises(OSError, match="planted"):
            wal.revive()
        assert wal.statistics().shards_failed == 1
    disk.fail_sync = 0
    wal.revive()
    assert wal.statistics().shards_failed == 0
    writer.append(b"after")
    found = replayed(disk.after_power_cut())
    assert content(found) == b"kept.after"
    assert not found.missing


def test_a_crash_after_a_failure_that_passed_costs_no_partition_an_offset() -> None:
    # Topic d reserves; the event cannot be synced, the log goes on in another file, then the cut.
    disk = RecordingStorage()
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    classes = {"d": "disk", "e": "disk", "t": "fsync"}
    manager.create_topics(
        [NewTopic(name, 1, TopicConfig({"durability": kind})) for name, kind in classes.items()]
    )
    batch = encode_batch([b"r"], timestamps_ms=1_000)

    def append(topic: str) -> None:
        data = memoryview(bytearray(batch))
        manager.get_handler(topic, 0).append(data, check_batch(data), 1_000)

    append("t")
    disk.faults.append(Fault("fdatasync", "wal-0.log", 0))
    disk.counts[0] = 0
    append("d")  # its reservation fails
    assert manager.wal.statistics().shards_failed == 1
    manager.wal.revive()
    manager.allocate_producer_ids(1)  # an event behind the one that nobody wrote
    append("t")
    assert manager.get_handler("t", 0).high_watermark == 2
    again = DiskManager("/data", storage=disk.after_power_cut(), flushers=0, now_ms=1_000)
    again.open()
    assert not {"wal_damaged", "wal_torn", "gap"} & again.report.counts.keys()
    assert see_handler(again.get_handler("t", 0)).end == 2
    assert again.get_handler("e", 0).log_end_offset == 0
    assert not again.report.counts["gap"]


def old_file(
    disk: MemoryStorage,
    name: str,
    size: int,
    frames: list[tuple[Frame, int, int]],
    version: int = 3,
) -> None:
    """A file as an earlier version wrote it: (frame, lsn, flags) each, a group of its own."""
    salt = 7
    encoded = encode_header(Header(0, size, int(name.partition("-")[2]), salt, version))
    parts = [encoded.ljust(FRAMES_BEGIN, b"\0")]
    for frame, lsn, flags in frames:
        parts += map(bytes, encode_frame(frame, lsn, 0, salt, flags))
    make_dirs(disk, FOLDER)
    disk.open(f"{FOLDER}/{name}.log", create=True).pwrite(b"".join(parts), 0)


def test_in_files_of_version_3_a_flag_excuses_what_is_missing_in_front_of_it() -> None:
    for flags in (0, AFTER_FAILURE):
        disk = MemoryStorage()
        old_file(disk, "wal-0", 8192, [(batches(0, b"kept."), 0, 0)])
        old_file(disk, "wal-1", 8192, [(batches(5, b"after"), 2, flags)])
        for number in range(2):
            disk.open(f"{FOLDER}/wal-{number}.log").truncate(8192)
        found = replayed(disk)
        assert content(found) == b"kept.after"
        assert len(found.missing) == (0 if flags else 1)


def test_a_kept_file_of_version_3_says_the_size_of_the_file_that_it_was_copied_from() -> None:
    disk = MemoryStorage()
    old_file(disk, "kept-0", 8192, [(batches(0, b"kept."), 0, 0)])
    found = replayed(disk)
    assert content(found) == b"kept."
    assert not found.missing


def test_what_was_given_up_is_said_though_there_was_no_memory_for_that_when_it_failed() -> None:
    def runs_out(*_: object) -> NoReturn:
        raise MemoryError

    disk = FailingStorage()
    with patch.object(shard, "given_up", runs_out):
        wal, _ = failed(disk)
    wal.revive()
    wal.shard_of(TOPIC, 0).write([batches(5, b"after")])
    found = replayed(disk)
    assert content(found) == b"kept.after"
    assert not found.missing


def test_who_stands_behind_one_that_cannot_be_told_is_told_though_no_line_can_be_written() -> None:
    told: list[OSError | None] = []

    def runs_out(_: OSError | None) -> NoReturn:
        raise MemoryError

    group = Group()
    for done in (runs_out, told.append):
        group.add_request(Request([], done))
    with no_memory_for_lines():
        group.settle(None, at_once)
    assert told == [None]

"""The write-ahead log at its limits: files that are full to the byte, groups that just fit."""

from collections.abc import Callable

import pytest

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.errors import UnsupportedFormat
from segbroker.segments.wal.frames import (
    AWAITS_MARK,
    FRAMES_BEGIN,
    HEADER,
    HEADER_COPY,
    HEADER_SIZE,
    MAGIC,
    ORDINAL_MAX,
    OVERHEAD,
    VERSION,
    Frame,
    FrameType,
    Header,
    encode_header,
    frames_end,
    header_of,
)
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.replay import scan_wal_file
from segbroker.segments.wal.scanning import Scanned, scan_file
from segbroker.segments.wal.shard import GROUP_BYTES_MAX, HERE_BYTES_MAX

from ..support.gated_storage import GatedStorage
from .wal_writing import ROOT, SMALL, TOPIC, Writer, at_once, begun, content, replayed, until

FRAMES_END = frames_end(SMALL.file_bytes)
ROOM = FRAMES_END - FRAMES_BEGIN
"""Bytes of frames in a file."""


def quick(disk: MemoryStorage, config: WalConfig) -> Wal:
    """A WAL whose disk takes no time at all."""
    wal = Wal(disk, ROOT, config, threaded=False, call_soon=at_once, clock=lambda: 0.0)
    wal.open()
    wal.absorbed()
    return wal


def scanned(disk: MemoryStorage, number: int) -> Scanned:
    data = read_file(disk, f"{ROOT}/shard-00/wal-{number}.log")
    header = header_of(data)
    assert header is not None
    return scan_file(memoryview(data), header)


def lengths(disk: MemoryStorage, number: int) -> list[int]:
    """The payloads of one file."""
    return [len(frame.payload) for frame in scanned(disk, number).frames]


@pytest.mark.parametrize("spare", [0, 1])
def test_a_frame_that_just_fits_fills_its_file_and_one_byte_more_goes_to_the_next(
    spare: int,
) -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(bytes(100))
    rest = ROOM - 2 * OVERHEAD - 100
    writer.append(bytes(rest + 1 - spare))
    expected = [[100], [rest + 1]] if not spare else [[100, rest], []]
    assert [lengths(disk, 0), lengths(disk, 1)] == expected
    writer.append(b"x")
    assert lengths(disk, 1)[-1] == 1
    found = replayed(disk.after_power_cut())
    assert len(content(found)) == writer.durable == writer.end
    assert not found.missing


def test_a_batch_as_large_as_a_file_may_hold_has_one_of_its_own() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    for _ in range(2):
        writer.append(bytes(SMALL.batch_bytes_max))
    assert [lengths(disk, number) for number in range(2)] == [[SMALL.batch_bytes_max]] * 2
    assert scanned(disk, 0).end == FRAMES_END == 8192 - 40
    assert len(content(replayed(disk.after_power_cut()))) == writer.durable == writer.end


@pytest.mark.parametrize("fits", [True, False])
def test_a_lone_writer_fills_a_file_to_its_last_byte_and_begins_none(fits: bool) -> None:
    disk = MemoryStorage()
    wal = quick(disk, WalConfig(file_bytes=8192, shard_bytes=4 * 8192, quick_after=1))
    writer = Writer(wal)
    writer.append(b"first")
    rest = ROOM - 3 * OVERHEAD - 5  # of two frames: the second is of another segment
    writer.pending.add(bytes(100), 0, 5, 5, 6, 1)
    writer.pending.add(bytes(rest - 100 + (not fits)), 1, 0, 6, 7, 1)
    assert writer.shard.commit_here(writer, writer.pending.frames_size) == fits
    assert writer.durable == (7 if fits else 5)
    assert scanned(disk, 0).end == (FRAMES_END if fits else FRAMES_BEGIN + OVERHEAD + 5)
    writer.shard.submit(writer)
    assert writer.durable == 7
    assert len(content(replayed(disk.after_power_cut()))) == 5 + rest + (not fits)


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_too_large_to_stand_still_for_is_left_to_the_thread(more: int) -> None:
    disk = MemoryStorage()
    wal = quick(disk, WalConfig(file_bytes=1 << 18, shard_bytes=1 << 19, quick_after=1))
    writer = Writer(wal)
    writer.append(b"first")
    for segment, size in ((0, 4_000), (1, HERE_BYTES_MAX - 4_000 - 2 * OVERHEAD + more)):
        writer.pending.add(bytes(size), segment, 0, 5, 6, 1)
    size = writer.pending.frames_size
    assert size == HERE_BYTES_MAX + more
    assert writer.shard.commit_here(writer, size) == (not more)


def test_a_lone_writer_hears_of_its_sync_by_the_way_that_it_names() -> None:
    disk = MemoryStorage()
    wal = quick(disk, WalConfig(file_bytes=8192, shard_bytes=4 * 8192, quick_after=1))
    writer = Writer(wal)
    writer.append(b"first")
    soon: list[Callable[[], None]] = []
    writer.pending.add(b"later", 0, 5, 5, 10, 1)
    assert writer.shard.commit_here(writer, writer.pending.frames_size, soon.append)
    assert writer.durable == 5
    (report,) = soon
    report()
    assert writer.durable == 10


def test_a_source_that_has_more_than_a_group_may_hold_is_written_and_told() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk, WalConfig(file_bytes=8 << 20, shard_bytes=16 << 20))
    writer = Writer(wal)
    half = GROUP_BYTES_MAX // 8 - OVERHEAD
    for number in range(9):
        writer.pending.add(bytes(half), number, 0, number, number + 1, 1)
    writer.shard.submit(writer)
    assert writer.durable == 9
    assert len(content(replayed(disk.after_power_cut()))) == 9 * half


def test_frames_that_are_asked_for_count_towards_what_a_group_may_hold() -> None:
    disk = GatedStorage()
    config = WalConfig(file_bytes=16 << 20, shard_bytes=32 << 20)
    wal = Wal(disk, ROOT, config, threaded=True, call_soon=at_once)
    wal.open()
    wal.absorbed()
    shard = wal.shard_of(TOPIC, 0)
    shard.write([Frame(FrameType.MARK)])
    done: list[OSError | None] = []
    disk.syncs.clear()
    shard.put([Frame(FrameType.MARK)], done.append)
    until(lambda: len(scanned(disk, 0).frames) == 2)  # the writer is at it, and takes no more
    for _ in range(6):
        frame = Frame(FrameType.BATCHES, TOPIC, payload=bytes(GROUP_BYTES_MAX // 4))
        shard.put([frame], done.append)
    disk.syncs.set()
    until(lambda: len(done) == 7)
    wal.stop()
    assert wal.statistics().syncs == 4  # of one, one, four and two
    wal.close(empty=False)


def test_more_frames_than_an_ordinal_can_count_take_a_second_sync_and_lack_none() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk, WalConfig(file_bytes=1 << 24, shard_bytes=1 << 25))
    shard = wal.shard_of(TOPIC, 0)
    frames = [Frame(FrameType.END, TOPIC, base_offset=n) for n in range(ORDINAL_MAX + 2)]
    shard.write(frames)
    assert (shard.syncs, shard.frames_written) == (2, len(frames))
    found = scanned(disk, 0).frames
    assert [frame.base_offset for frame in found] == list(range(len(frames)))
    assert [frame.ordinal for frame in found[-2:]] == [ORDINAL_MAX, 0]


def test_the_end_of_a_file_and_the_counters_are_those_of_what_was_written() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    for size in (1, 20, 300):
        writer.append(bytes(size))
    wal.control(b"event")()
    size = 4 * OVERHEAD + 1 + 20 + 300 + 5
    found = scanned(disk, 0)
    assert (found.end, found.suspects) == (FRAMES_BEGIN + size, [])
    assert found.positions[1:3] == [FRAMES_BEGIN + OVERHEAD + 1, FRAMES_BEGIN + 2 * OVERHEAD + 21]
    told = wal.statistics()
    assert (told.syncs, told.frames_written, told.bytes_written) == (4, 4, size)


@pytest.mark.parametrize("spare", [0, 1])
def test_an_event_that_fills_a_file_of_two_pages_to_the_byte_awaits_a_mark(spare: int) -> None:
    # | event, in pages 1 and 2, up to the header at the end |   | MARK |   in the next file
    config = WalConfig(file_bytes=12_288, shard_bytes=4 * 12_288)
    disk = MemoryStorage()
    wal, _ = begun(disk, config)
    wal.control(bytes(config.batch_bytes_max - spare))()
    (event,) = scanned(disk, 0).frames
    assert event.flags == AWAITS_MARK
    (mark,) = scanned(disk, 1).frames
    assert mark.type is FrameType.MARK


def test_a_lone_writer_leaves_the_first_file_to_the_thread() -> None:
    disk = MemoryStorage()
    config = WalConfig(file_bytes=8192, shard_bytes=4 * 8192, quick_after=0)
    writer = Writer(quick(disk, config))
    writer.pending.add(b"first", 0, 0, 0, 5, 1)
    assert not writer.shard.commit_here(writer, writer.pending.frames_size)
    writer.shard.submit(writer)
    assert writer.durable == 5
    writer.pending.add(b"second", 0, 5, 5, 11, 1)
    assert writer.shard.commit_here(writer, writer.pending.frames_size)


def test_a_lone_writer_that_cannot_say_what_it_has_is_told_and_the_shard_has_failed() -> None:
    class Mistaken(Writer):
        def take_frames(self) -> tuple[list[Frame], int]:
            if self.durable:
                raise ValueError("a mistake")
            return super().take_frames()

    disk = MemoryStorage()
    wal = quick(disk, WalConfig(file_bytes=8192, shard_bytes=4 * 8192, quick_after=1))
    writer = Mistaken(wal)
    writer.append(b"first")
    writer.pending.add(b"later", 0, 5, 5, 10, 1)
    assert writer.shard.commit_here(writer, writer.pending.frames_size)
    (failure,) = writer.failures
    assert "a mistake" in str(failure)
    assert wal.statistics().shards_failed == 1


@pytest.mark.parametrize("place", [0, HEADER_COPY])
def test_a_header_alone_says_of_what_version_its_file_is(place: int) -> None:
    disk = MemoryStorage()
    disk.mkdir("/wal")
    header = Header(0, 8192, 0, 1)
    file = disk.open("/wal/wal-0.log", create=True)
    file.truncate(8192)
    file.pwrite(encode_header(header._replace(version=VERSION + 1)), place)
    with pytest.raises(UnsupportedFormat, match=f"has format {VERSION + 1}"):
        scan_wal_file(disk, "/wal/wal-0.log")
    file.pwrite(encode_header(header), place)
    scanned = scan_wal_file(disk, "/wal/wal-0.log")
    assert scanned is not None
    assert scanned.header == header


def test_the_last_bytes_of_another_file_are_no_header_and_of_no_later_version() -> None:
    disk = MemoryStorage()
    disk.mkdir("/wal")
    file = disk.open("/wal/wal-0.log", create=True)
    file.truncate(8192)
    file.pwrite(encode_header(Header(0, 16_384, 0, 1)), 8192 - HEADER_SIZE)
    assert scan_wal_file(disk, "/wal/wal-0.log") is None
    # Nor is a damaged header that looks like one.
    file.pwrite(HEADER.pack(MAGIC, VERSION + 1, 0, 0, 8192, 0, 1, 2), 0)
    assert scan_wal_file(disk, "/wal/wal-0.log") is None

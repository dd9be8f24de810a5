"""Control events of several pages: what a torn write has left of them is no loss, damage is one."""

from collections.abc import Iterator
from itertools import product

import pytest

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import PAGE, read_file
from segbroker.segments.wal.frames import (
    AWAITS_MARK,
    FRAMES_BEGIN,
    OVERHEAD,
    Frame,
    FrameType,
    header_of,
)
from segbroker.segments.wal.group import crosses_a_page
from segbroker.segments.wal.journal import Wal, WalConfig
from segbroker.segments.wal.scanning import Scanned, scan_file
from segbroker.segments.wal.trailers import TRAILER_SIZE

from .tools import batch_of, flip
from .wal_writing import ROOT, TOPIC, Writer, begun, content, replayed

LARGE = WalConfig(file_bytes=1 << 16, shard_bytes=4 << 16)
EVENTS = [bytes([65 + number]) * 2_000 for number in range(6)]
PATH = f"{ROOT}/shard-00/wal-0.log"


def scanned(disk: MemoryStorage) -> Scanned:
    data = read_file(disk, PATH)
    header = header_of(data)
    assert header is not None
    return scan_file(memoryview(data), header)


def written() -> tuple[MemoryStorage, Wal]:
    """An event, then six that were written at once."""
    disk = MemoryStorage()
    wal, _ = begun(disk, LARGE)
    wal.control(b"before")()
    wal.control(*EVENTS)()
    return disk, wal


def without_pages(disk: MemoryStorage, missing: tuple[bool, ...], begin: int, old: bytes) -> None:
    """Leave out some of the pages of what was written from `begin` on."""
    file = disk.open(PATH)
    for number, is_missing in enumerate(missing, FRAMES_BEGIN // PAGE):
        low = max(begin, number * PAGE)
        if is_missing:
            file.pwrite(old[low : (number + 1) * PAGE], low)


def first_missing(missing: tuple[bool, ...], whole: Scanned) -> int:
    """How many frames end in front of the first page that is missing, or begin the write."""
    border = FRAMES_BEGIN + missing.index(True) * PAGE
    return max(1, sum(end <= border for end in whole.positions[1:]))


def torn() -> Iterator[tuple[bool, ...]]:
    """Every set of pages that six events of 2,000 bytes behind a small one may lack."""
    return (missing for missing in product((False, True), repeat=4) if any(missing))


@pytest.mark.parametrize("byte", [0, 0x5A])
def test_no_torn_write_of_events_is_told_as_a_loss(byte: int) -> None:
    whole, _ = written()
    frames = scanned(whole)
    group = frames.positions[1]
    mark = frames.positions[-1]
    assert frames.frames[-1].type is FrameType.MARK
    old = bytes([byte]) * (1 << 16)
    for missing in torn():
        disk, _ = written()
        disk.open(PATH).pwrite(old[mark:], mark)  # the group is synced before it is written
        without_pages(disk, missing, group, old)
        found = replayed(disk, LARGE)
        assert found.control == [b"before", *EVENTS][: len(found.control)]
        assert len(found.control) <= first_missing(missing, frames)
        assert not [one for one in found.missing if one.durable]
        assert (found.control_lost, found.unnamed) == (0, set())


def test_every_page_that_is_missing_in_front_of_the_mark_is_told_as_damage() -> None:
    whole, _ = written()
    frames = scanned(whole)
    group, mark = frames.positions[1], frames.positions[-1]
    for missing in torn():
        disk, _ = written()
        without_pages(disk, missing, group, bytes(1 << 16))
        disk.open(PATH).pwrite(bytes(read_file(whole, PATH))[mark:], mark)
        found = replayed(disk, LARGE)
        lost = len(EVENTS) + 1 - len(found.control)
        assert lost > 0
        assert found.control_lost == sum(one.frames for one in found.missing) == lost
        assert all(one.durable for one in found.missing)


def test_every_flipped_byte_of_the_mark_leaves_what_it_says() -> None:
    disk, _ = written()
    mark = scanned(disk).positions[-1]
    file, before = disk.open(PATH), read_file(disk, PATH)
    for place in range(mark, mark + OVERHEAD):
        file.pwrite(bytes([before[place] ^ 0x41]), place)
        found = replayed(disk, LARGE)
        assert found.control == [b"before", *EVENTS]
        assert not found.missing
        file.pwrite(before[place : place + 1], place)


def test_events_that_are_whole_count_though_nothing_is_left_of_their_mark() -> None:
    disk, _ = written()
    mark = scanned(disk).positions[-1]
    disk.open(PATH).pwrite(bytes(OVERHEAD), mark)
    found = replayed(disk, LARGE)
    assert found.control == [b"before", *EVENTS]
    assert not found.missing
    assert found.next_lsn == 1 + len(EVENTS)


def test_a_later_group_says_what_a_mark_says() -> None:
    disk, wal = written()
    wal.control(b"after")()
    mark = scanned(disk).positions[-2]
    disk.open(PATH).pwrite(bytes(OVERHEAD), mark)
    found = replayed(disk, LARGE)
    assert found.control == [b"before", *EVENTS, b"after"]
    assert [(one.frames, one.durable) for one in found.missing] == [(1, True)]


def test_events_on_one_page_need_no_mark() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk, LARGE)
    wal.control(*(b"event %d" % number for number in range(20)))()
    assert wal.statistics().syncs == 1
    assert not any(frame.flags for frame in scanned(disk).frames)


@pytest.mark.parametrize(
    ("size", "crosses"), [(PAGE - OVERHEAD, False), (PAGE - OVERHEAD + 1, True)]
)
def test_the_border_of_a_page(size: int, crosses: bool) -> None:
    event = Frame(FrameType.CONTROL, payload=bytes(size))
    batches = Frame(FrameType.BATCHES, TOPIC, payload=bytes(3 * PAGE - OVERHEAD))
    assert crosses_a_page([event], PAGE, 1 << 20) is crosses
    assert crosses_a_page([batches, event, batches], PAGE, 1 << 20) is crosses
    assert not crosses_a_page([batches, event], PAGE, 4 * PAGE), "it goes into the next file"


def test_batches_beside_events_that_await_a_mark_are_not_told_as_lost() -> None:
    # | batches | event, two pages |   the batches have their trailer, the mark was never written
    disk = MemoryStorage()
    wal, _ = begun(disk, LARGE)
    batches = Frame(FrameType.BATCHES, TOPIC, 0, 0, 0, 0, 1, b"12345", end_offset=5)
    wal.shard_of(TOPIC, 0).write([batches, Frame(FrameType.CONTROL, payload=bytes(9_000))])
    found = scanned(disk)
    assert [frame.flags for frame in found.frames] == [AWAITS_MARK, AWAITS_MARK, 0]
    file = disk.open(PATH)
    file.pwrite(bytes(OVERHEAD), found.positions[-1])
    file.pwrite(bytes(20), FRAMES_BEGIN)
    assert not replayed(disk, LARGE).lost_below
    Writer(wal).append(b"later")
    told = replayed(disk, LARGE)
    assert told.lost_below == {(TOPIC, 0): 5}
    assert content(told) == b"later"


def test_a_frame_that_is_made_again_from_its_trailer_vouches_for_no_more_than_it_did() -> None:
    # | event | batches, barrier: one group |   nothing is left of the batches: they may be torn
    disk = MemoryStorage()
    wal, _ = begun(disk, LARGE)
    wal.control(b"event")()
    batches = Frame(FrameType.BATCHES, TOPIC, 0, 0, 0, 0, 1, b"12345", end_offset=5)
    wal.shard_of(TOPIC, 0).write([batches, Frame(FrameType.BARRIER, TOPIC, 1)])
    begin, end = scanned(disk).positions[1], scanned(disk).end
    disk.open(PATH).pwrite(bytes(end - TRAILER_SIZE - begin), begin)
    found = replayed(disk, LARGE)
    assert [(one.lsn, one.frames, one.durable) for one in found.missing] == [(1, 1, False)]
    assert (found.control_lost, found.unnamed) == (0, set())


def test_batches_that_name_themselves_in_the_last_group_may_be_torn_and_are_not_told_as_lost() -> (
    None
):
    # | first: damaged, its trailer too | second |    one group: nobody may have been told of it
    disk = MemoryStorage()
    wal, _ = begun(disk)
    batches = [bytes(batch_of(b"first")), bytes(batch_of(b"second"))]
    frames = [
        Frame(FrameType.BATCHES, TOPIC, n, payload=batch, end_offset=1)
        for n, batch in enumerate(batches)
    ]
    wal.shard_of(TOPIC, 0).write(frames)
    path = f"{ROOT}/shard-00/wal-0.log"
    end = FRAMES_BEGIN + frames[0].size
    disk.open(path).pwrite(bytes(TRAILER_SIZE), end - TRAILER_SIZE)
    assert content(replayed(disk)) == batches[0], "a trailer alone costs nothing"
    flip(disk, path, end - TRAILER_SIZE - 1)
    found = replayed(disk)
    assert (content(found, 0), content(found, 1)) == (b"", batches[1])
    assert found.lost_below == {}
    assert [missing.is_in_doubt for missing in found.missing] == [True]

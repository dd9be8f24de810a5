from random import Random

import pytest

from segbroker.protocol import limits
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.frames import FrameReader

#                      size     key  ver  correlation id
API_VERSIONS = bytes.fromhex("0000000d 0012 0000 00000007 0003") + b"abc"
STREAM = API_VERSIONS + bytes.fromhex("00000004 0000002a") + API_VERSIONS
FRAMES = [API_VERSIONS[4:], bytes.fromhex("0000002a"), API_VERSIONS[4:]]


def frames_of(reader: FrameReader) -> list[bytes]:
    out = []
    while (frame := reader.next_frame()) is not None:
        out.append(bytes(frame))
    return out


def size_prefix(size: int) -> bytes:
    return size.to_bytes(4, "big", signed=True)


def test_frames_are_the_same_however_the_network_cuts_them() -> None:
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1):
            reader = FrameReader()
            out = []
            for piece in (STREAM[:first], STREAM[first:second], STREAM[second:]):
                reader.receive_data(piece)
                out += frames_of(reader)
            assert out == FRAMES, (first, second)
            assert reader.buffered == 0


def test_frames_that_wait_are_those_that_come_next_and_stay_where_they_are() -> None:
    for cut in range(len(STREAM) + 1):
        reader = FrameReader()
        reader.receive_data(STREAM[:cut])
        waiting = [bytes(frame) for frame in reader.waiting_frames()]
        assert reader.buffered == cut
        assert waiting == frames_of(reader), cut
        assert list(reader.waiting_frames()) == []


def test_what_a_frame_lacks_is_known_as_soon_as_its_size_is() -> None:
    reader = FrameReader()
    lacks = []
    for byte in API_VERSIONS + size_prefix(4):
        reader.receive_data(bytes([byte]))
        while reader.next_frame() is not None:
            pass
        lacks.append(reader.missing_bytes)
    assert lacks == [0, 0, 0, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 4]


def test_frames_behind_one_that_is_refused_do_not_wait() -> None:
    reader = FrameReader(100)
    reader.receive_data(API_VERSIONS + size_prefix(101) + bytes(101) + API_VERSIONS)
    assert [bytes(frame) for frame in reader.waiting_frames()] == FRAMES[:1]


def test_receiving_into_the_buffer_is_the_same_as_receiving_data() -> None:
    reader = FrameReader()
    out = []
    for byte in STREAM:
        space = reader.get_buffer()
        assert len(space) >= limits.RECEIVE_SIZE_MIN
        space[0] = byte
        reader.buffer_updated(1)
        out += frames_of(reader)
    assert out == FRAMES


def test_random_frames_in_random_pieces_come_out_whole() -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    random = Random(seed)
    sent = [
        random.randbytes(random.choice((4, 10, 100, 5_000, 70_000, 300_000))) for _ in range(120)
    ]
    stream = memoryview(b"".join(size_prefix(len(frame)) + frame for frame in sent))
    reader = FrameReader()
    received = []
    position = 0
    while position < len(stream):
        space = reader.get_buffer()
        piece = stream[position : position + random.randint(1, len(space))]
        space[: len(piece)] = piece
        reader.buffer_updated(len(piece))
        position += len(piece)
        received += frames_of(reader)
    assert received == sent


def test_a_size_is_refused_before_its_payload_arrives() -> None:
    reader = FrameReader(size_max=1000)
    reader.receive_data(size_prefix(1001))
    with pytest.raises(RemoteProtocolError, match=r"1001 bytes.*4 to 1000"):
        reader.next_frame()


def test_a_size_at_the_limit_passes() -> None:
    reader = FrameReader(size_max=1000, size_min=8)
    for size in (8, 1000):
        reader.receive_data(size_prefix(size) + bytes(size))
        assert frames_of(reader) == [bytes(size)]


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 7, 1001, (1 << 31) - 1])
def test_a_size_outside_the_limits_is_refused(size: int) -> None:
    reader = FrameReader(size_max=1000, size_min=8)
    reader.receive_data(size_prefix(size))
    with pytest.raises(RemoteProtocolError):
        reader.next_frame()


def test_a_claimed_size_takes_no_more_memory_than_has_arrived_and_a_step() -> None:
    reader = FrameReader()
    reader.receive_data(size_prefix(limits.FRAME_SIZE_MAX))
    assert reader.next_frame() is None
    arrived = 4
    piece = bytes(50_000)
    for _ in range(60):
        reader.receive_data(piece)
        arrived += len(piece)
        assert reader.next_frame() is None
        assert reader.capacity <= 2 * arrived + limits.RECEIVE_GROWTH_MAX + limits.RECEIVE_SIZE


def test_the_buffer_shrinks_at_once_after_a_very_large_frame() -> None:
    reader = FrameReader()
    size = limits.RECEIVE_KEEP_MAX + 1
    reader.receive_data(size_prefix(size) + bytes(size))
    assert len(frames_of(reader)) == 1
    reader.get_buffer()
    assert reader.capacity == limits.RECEIVE_SIZE


def test_who_may_keep_more_does_not_grow_again_for_the_next_very_large_frame() -> None:
    reader = FrameReader(keep_max=limits.REPLY_KEEP_MAX)
    size = limits.RECEIVE_KEEP_MAX + 1
    for _ in range(2):
        reader.receive_data(size_prefix(size) + bytes(size))
        assert len(frames_of(reader)) == 1
        reader.get_buffer()
        assert size < reader.capacity <= limits.REPLY_KEEP_MAX


@pytest.mark.parametrize("size", [1 << 20, limits.RECEIVE_KEEP_MAX + 1])
def test_the_buffer_shrinks_when_large_frames_stop_coming(size: int) -> None:
    reader = FrameReader(keep_max=limits.REPLY_KEEP_MAX)
    reader.receive_data(size_prefix(size) + bytes(size))
    assert len(frames_of(reader)) == 1
    for _ in range(200):
        reader.receive_data(API_VERSIONS)
        assert frames_of(reader) == FRAMES[:1]
    assert reader.capacity == limits.RECEIVE_SIZE


def test_large_frames_in_a_row_keep_one_buffer() -> None:
    reader = FrameReader()
    frame = size_prefix(1 << 20) + bytes(1 << 20)
    capacities = set()
    for _ in range(200):
        reader.receive_data(frame)
        assert len(frames_of(reader)) == 1
        capacities.add(reader.capacity)
    assert len(capacities) == 1


def test_a_frame_is_a_writable_view_and_not_a_copy() -> None:
    reader = FrameReader()
    space = reader.get_buffer()
    space[: len(API_VERSIONS)] = API_VERSIONS
    reader.buffer_updated(len(API_VERSIONS))
    frame = reader.next_frame()
    assert frame is not None
    frame[0] = 0xFF
    assert space[4] == 0xFF


def test_many_small_frames_of_one_receive_move_no_bytes() -> None:
    reader = FrameReader()
    space = reader.get_buffer()
    count = len(space) // len(API_VERSIONS)
    space[: count * len(API_VERSIONS)] = API_VERSIONS * count
    reader.buffer_updated(count * len(API_VERSIONS))
    frames = [reader.next_frame() for _ in range(count)]
    assert reader.next_frame() is None
    # All are valid at once: nothing was compacted between them.
    assert [bytes(frame or b"") for frame in frames] == [API_VERSIONS[4:]] * count


def test_a_partial_frame_at_the_end_is_moved_only_when_space_runs_out() -> None:
    reader = FrameReader()
    reader.receive_data(API_VERSIONS + API_VERSIONS[:5])
    assert frames_of(reader) == FRAMES[:1]
    before = reader.get_buffer()
    assert reader.buffered == 5
    reader.receive_data(API_VERSIONS[5:])
    assert bytes(before[: len(API_VERSIONS) - 5]) == API_VERSIONS[5:]
    assert frames_of(reader) == FRAMES[:1]


def test_reporting_more_bytes_than_there_was_space_for_is_a_bug() -> None:
    reader = FrameReader()
    with pytest.raises(AssertionError):
        reader.buffer_updated(len(reader.get_buffer()) + 1)


@pytest.mark.parametrize("begun", [0, 5, limits.RECEIVE_SIZE, limits.RECEIVE_SIZE + 1])
def test_a_buffer_that_fits_has_the_same_frames(begun: int) -> None:
    first, second = bytes(range(200)) * 5_000, bytes(reversed(range(200))) * 5_000
    stream = b"".join(len(one).to_bytes(4, "big") + one for one in (first, second))
    reader, cut = FrameReader(), 4 + len(first) + begun
    reader.receive_data(stream[:cut])
    frame = reader.next_frame()
    assert frame is not None
    reader.fit()
    assert bytes(frame) == first
    assert (reader.capacity == limits.RECEIVE_SIZE) == (begun <= limits.RECEIVE_SIZE)
    assert reader.buffered == begun
    assert reader.next_frame() is None
    reader.receive_data(stream[cut:])
    frame = reader.next_frame()
    assert frame is not None
    assert bytes(frame) == second

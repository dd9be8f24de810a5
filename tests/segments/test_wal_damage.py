"""Damage in the files of the write-ahead log: it costs the frames that it hits, and is told."""

import pytest
import xxhash

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import read_file
from segbroker.segments.errors import UnsupportedFormat
from segbroker.segments.wal.frames import (
    FRAME,
    FRAME_MAGIC,
    FRAME_SIZE,
    FRAMES_BEGIN,
    HEADER_COPY,
    HEADER_SIZE,
    OVERHEAD,
    SUM_SIZE,
    VERSION,
    Frame,
    FrameType,
    Header,
    decode_header,
    encode_frame,
    header_blocks,
)
from segbroker.segments.wal.journal import WalConfig
from segbroker.segments.wal.scanning import scan_file
from segbroker.segments.wal.trailers import TRAILER_SIZE

from .tools import batch_of
from .wal_writing import ROOT, SMALL, TOPIC, Writer, begun, content, replayed


def test_every_flipped_bit_of_a_header_leaves_its_copy() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    path = f"{ROOT}/shard-00/wal-0.log"
    file, before = disk.open(path), read_file(disk, path)
    for place in range(HEADER_SIZE):
        for bit in range(8):
            file.pwrite(bytes([before[place] ^ 1 << bit]), place)
            assert content(replayed(disk)) == b"one"
        file.pwrite(before[place : place + 1], place)


def test_records_that_look_like_frames_are_not_summed_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What a file had before it was used again: as many begin in it as there is room, and end there.
    header = Header(0, 1 << 16, 1, salt=7)
    data = bytearray(header.size)
    for position in range(FRAMES_BEGIN, header.frames_end - FRAME_SIZE, FRAME_SIZE):
        size = header.frames_end - position
        like = FRAME.pack(FRAME_MAGIC, size, 1, 0, 0, 0, 1 << 40, bytes(16), 0, 0, 0, 0)
        data[position : position + FRAME_SIZE] = like
    whole = b"".join(encode_frame(Frame(FrameType.CONTROL, payload=b"event"), 3, 0, header.salt))
    data[1 << 15 : (1 << 15) + len(whole)] = whole
    summed = 0
    digest = xxhash.xxh3_64_intdigest

    def counted(part: memoryview, seed: int) -> int:
        nonlocal summed
        summed += len(part)
        return digest(part, seed)

    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", counted)
    found = scan_file(memoryview(data), header)
    assert [bytes(frame.payload) for frame in found.frames] == [b"event"]
    assert summed < 40 * len(data), "and not a thousand times"


def lettered(groups: int) -> MemoryStorage:
    """A log with so many groups of one frame: AAAAA, BBBBB ..."""
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    for number in range(groups):
        writer.append(bytes([65 + number]) * 5)
    return disk


def written(groups: int = 6) -> tuple[bytearray, Header, list[int]]:
    """A file with so many groups of one frame: (bytes, header, where the frames begin)."""
    disk = lettered(groups)
    data = read_file(disk, f"{ROOT}/shard-00/wal-0.log")
    header = decode_header(data)
    assert header is not None
    scanned = scan_file(memoryview(data), header)
    return data, header, scanned.positions


def test_every_flipped_bit_costs_one_frame_and_no_wrong_byte_comes_back() -> None:
    data, header, positions = written()
    assert positions == [FRAMES_BEGIN + n * (OVERHEAD + 5) for n in range(6)]
    whole = [bytes(f.payload) for f in scan_file(memoryview(data), header).frames]
    end = positions[-1] + OVERHEAD + 5
    for place in range(FRAMES_BEGIN, end):
        for bit in range(8):
            data[place] ^= 1 << bit
            found = scan_file(memoryview(data), header)
            frames = [bytes(frame.payload) for frame in found.frames]
            hit, byte = divmod(place - FRAMES_BEGIN, OVERHEAD + 5)
            if byte >= OVERHEAD + 5 - TRAILER_SIZE:
                assert (frames, found.suspects) == (whole, [])
            else:
                assert frames == whole[:hit] + whole[hit + 1 :]
                (told,) = found.suspects
                assert (told.lsn, told.key, told.is_named) == (hit, (TOPIC, 0), True)
            data[place] ^= 1 << bit


def test_damage_below_a_later_group_is_reported_and_a_torn_end_is_not() -> None:
    disk = lettered(4)
    path = f"{ROOT}/shard-00/wal-0.log"
    file = disk.open(path)
    file.pwrite(b"?", FRAMES_BEGIN + OVERHEAD + 5 + 40)
    found = replayed(disk)
    (missing,) = found.missing
    assert (missing.lsn, missing.frames, missing.durable) == (1, 1, True)
    assert content(found) == b"AAAAACCCCCDDDDD"
    # The last frame torn as well: that may never have been acknowledged.
    file.pwrite(bytes(OVERHEAD), FRAMES_BEGIN + 3 * (OVERHEAD + 5) + 30)
    assert replayed(disk).missing == [missing]
    assert not replayed(disk).unnamed


def test_damage_to_the_last_frame_of_all_is_told_by_what_stands_behind_it() -> None:
    # | frame 0 | frame 1 | frame 2 |   AAAAA BBBBB CCCCC, each acknowledged
    #                      ^^^^ its naming part is gone
    disk = lettered(3)
    file = disk.open(f"{ROOT}/shard-00/wal-0.log")
    file.pwrite(bytes(64), FRAMES_BEGIN + 2 * (OVERHEAD + 5))
    found = replayed(disk)
    assert content(found) == b"AAAAABBBBB"
    assert found.lost_below == {(TOPIC, 0): 15}
    assert [(one.lsn, one.frames, one.durable) for one in found.missing] == [(2, 1, True)]
    assert found.next_lsn == 3
    assert not found.unnamed


def test_what_is_missing_in_front_of_a_group_was_durable_though_only_a_trailer_says_so() -> None:
    # | A | B |   of A nothing is left, of B its trailer
    disk = lettered(2)
    size = OVERHEAD + 5
    disk.open(f"{ROOT}/shard-00/wal-0.log").pwrite(bytes(size + 64), FRAMES_BEGIN)
    found = replayed(disk)
    assert [(one.what, one.durable) for one in found.missing] == [
        ("frames below lsn 1", True),
        ("1 frames from lsn 1 on", True),
    ]
    assert found.unnamed == {0}
    assert found.lost_below == {(TOPIC, 0): 10}


def test_what_is_missing_in_front_of_a_frame_of_its_own_group_may_have_been_told_to_nobody() -> (
    None
):
    # | A B, one group |   of A nothing is left, of B its trailer
    disk = MemoryStorage()
    wal, _ = begun(disk)
    frames = [
        Frame(FrameType.BATCHES, TOPIC, 0, 0, place, place, 1, b"12345", end_offset=place + 1)
        for place in range(2)
    ]
    wal.shard_of(TOPIC, 0).write(frames)
    size = OVERHEAD + 5
    disk.open(f"{ROOT}/shard-00/wal-0.log").pwrite(bytes(size + 64), FRAMES_BEGIN)
    found = replayed(disk)
    assert [(one.what, one.durable) for one in found.missing] == [
        ("frames below lsn 1", False),
        ("1 frames from lsn 1 on", True),
    ]
    assert (found.unnamed, found.torn) == (set(), {0})


def test_events_may_have_been_in_what_a_file_that_was_cut_short_has_not() -> None:
    disk = lettered(2)
    size = SMALL.file_bytes // 2 + 2 * (OVERHEAD + 5)
    disk.open(f"{ROOT}/shard-00/wal-0.log").truncate(size)
    found = replayed(disk)
    assert content(found) == b"AAAAABBBBB"
    assert 0 < found.control_lost <= (SMALL.file_bytes - size) // FRAME_SIZE


def test_frames_of_which_nothing_is_left_make_their_shard_suspect() -> None:
    disk = lettered(4)
    file = disk.open(f"{ROOT}/shard-00/wal-0.log")
    file.pwrite(bytes(OVERHEAD + 5), FRAMES_BEGIN + OVERHEAD + 5)
    found = replayed(disk)
    assert content(found) == b"AAAAACCCCCDDDDD"
    assert (found.unnamed, found.shards, found.lost_below) == ({0}, 1, {})
    assert found.control_lost == 1, "it may have been an event"


def test_a_barrier_whose_frame_is_damaged_holds_all_the_same() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"void!")
    wal.barrier(TOPIC, 0)
    writer.append(b"after")
    file = disk.open(f"{ROOT}/shard-00/wal-0.log")
    file.pwrite(bytes(20), FRAMES_BEGIN + OVERHEAD + 5 + 10)
    found = replayed(disk)
    assert content(found) == b"after"
    assert not found.missing


def test_a_missing_file_is_noticed() -> None:
    disk = MemoryStorage()
    config = WalConfig(file_bytes=8192, shard_bytes=64 * 8192)
    wal, _ = begun(disk, config)
    writer = Writer(wal)
    for number in range(20):
        writer.append(bytes([number]) * 1000)
    disk.unlink(f"{ROOT}/shard-00/wal-2.log")
    by_lsn, by_name = replayed(disk, config).missing
    assert by_lsn.durable
    assert by_lsn.frames == 3
    assert (by_name.path, by_name.is_gone) == (f"{ROOT}/shard-00/wal-2.log", True)


def test_what_is_missing_is_told_in_words() -> None:
    # | A | B | C |   of each a part is gone in turn, and the headers of the whole file
    size = OVERHEAD + 5
    for place, length, what in (
        (FRAMES_BEGIN + size, size, "1 frames from lsn 1 on"),
        (FRAMES_BEGIN, size, "frames below lsn 1"),
        (0, FRAMES_BEGIN, "all frames, by a damaged header,"),
    ):
        disk = lettered(3)
        file = disk.open(f"{ROOT}/shard-00/wal-0.log")
        file.pwrite(bytes(length), place)
        file.pwrite(bytes(HEADER_SIZE), SMALL.file_bytes - HEADER_SIZE)
        assert [one.what for one in replayed(disk).missing] == [what]


def test_events_of_a_file_without_headers_are_counted_by_what_is_left_of_them() -> None:
    # wal-0 | 0 | 1 | 2 |   wal-1 | 3 | 4 | what an earlier use left: event 0 |
    disk = MemoryStorage()
    wal, _ = begun(disk)
    for _ in range(5):
        wal.control(bytes(1_000))()
    assert len(replayed(disk).control) == 5
    size = OVERHEAD + 1_000
    file = disk.open(f"{ROOT}/shard-00/wal-1.log")
    file.pwrite(bytes(FRAMES_BEGIN), 0)
    left = read_file(disk, f"{ROOT}/shard-00/wal-0.log")[FRAMES_BEGIN : FRAMES_BEGIN + size]
    file.pwrite(left, SMALL.file_bytes - HEADER_SIZE - size)
    file.pwrite(bytes(HEADER_SIZE), SMALL.file_bytes - HEADER_SIZE)
    found = replayed(disk)
    assert (len(found.control), found.control_lost) == (3, 1 + 2), "one may be damaged itself"


def test_the_header_of_another_file_makes_none_of_its_frames_valid() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    disk.rename(f"{ROOT}/shard-00/wal-0.log", f"{ROOT}/shard-00/wal-7.log")
    assert replayed(disk).is_empty


def test_a_file_of_a_later_version_is_not_passed_over() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    path = f"{ROOT}/shard-00/wal-0.log"
    header = decode_header(read_file(disk, path))
    assert header is not None
    for place, block in header_blocks(header._replace(version=VERSION + 1)):
        disk.open(path).pwrite(block, place)
    for place in (0, HEADER_COPY, SMALL.file_bytes - HEADER_SIZE):
        with pytest.raises(UnsupportedFormat, match=f"wal-0.log has format {VERSION + 1}"):
            replayed(disk)
        disk.open(path).pwrite(bytes(HEADER_SIZE), place)
    assert replayed(disk).is_empty, "nothing says any more what it is"


def test_a_frame_that_is_made_again_from_its_trailer_lies_where_it_lay() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    wal.barrier(TOPIC, 0)
    Writer(wal).append(b"two")
    data = read_file(disk, f"{ROOT}/shard-00/wal-0.log")
    header = decode_header(data)
    assert header is not None
    before = scan_file(memoryview(data), header)
    data[before.positions[1] + 20] ^= 1
    after = scan_file(memoryview(data), header)
    assert (after.positions, after.end) == (before.positions, before.end)
    assert [frame.type for frame in after.frames] == [frame.type for frame in before.frames]


@pytest.mark.parametrize("delta", [1, 1 << 20])
def test_a_damaged_frame_without_its_trailer_is_told_by_its_batches_if_they_make_sense(
    delta: int,
) -> None:
    # | 5 6 | 7 8 | 9 10 |   of each frame the batch; of the second a record and the trailer are bad
    disk = MemoryStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 0)
    size = 0
    for base_offset in (5, 7, 9):
        batch = bytearray(batch_of(b"x", b"y"))
        batch[:8] = base_offset.to_bytes(8, "big")
        if base_offset == 7:
            batch[23:27] = delta.to_bytes(4, "big")  # last offset delta
        size = OVERHEAD + len(batch)
        frame = Frame(FrameType.BATCHES, TOPIC, 0, 0, 0, base_offset, 1, batch)
        shard.write([frame._replace(end_offset=base_offset + 2)])
    file = disk.open(f"{ROOT}/shard-00/wal-0.log")
    second_end = FRAMES_BEGIN + 2 * size
    file.pwrite(bytes(TRAILER_SIZE), second_end - TRAILER_SIZE)
    file.pwrite(b"?", second_end - TRAILER_SIZE - 20)
    found = replayed(disk)
    assert [frame.base_offset for frame in found.partitions[TOPIC, 0]] == [5, 9]
    assert [(one.lsn, one.frames, one.durable) for one in found.missing] == [(1, 1, True)]
    assert found.lost_below == ({(TOPIC, 0): 9} if delta == 1 else {})
    assert found.unnamed == {0}, "it is not by a trailer"


def test_a_frame_that_is_named_in_a_later_group_does_not_name_one_that_is_gone() -> None:
    # | A | B | C | D E F, one group |   nothing is left of B, of E its trailer
    disk = MemoryStorage()
    wal, _ = begun(disk)
    shard = wal.shard_of(TOPIC, 0)
    frames = [
        Frame(FrameType.BATCHES, TOPIC, 0, 0, place, place, 1, b"12345", end_offset=place + 1)
        for place in range(6)
    ]
    for group in (frames[:1], frames[1:2], frames[2:3], frames[3:]):
        shard.write(group)
    size = OVERHEAD + 5
    file = disk.open(f"{ROOT}/shard-00/wal-0.log")
    file.pwrite(bytes(size), FRAMES_BEGIN + size)
    file.pwrite(b"?????", FRAMES_BEGIN + 5 * size - TRAILER_SIZE - 13)
    found = replayed(disk)
    assert [frame.base_offset for frame in found.partitions[TOPIC, 0]] == [0, 2, 3, 5]
    assert found.lost_below == {(TOPIC, 0): 5}
    assert found.unnamed == {0}


def test_a_trailer_of_this_file_in_a_record_names_no_frame_that_is_there() -> None:
    # | 0 | 1: somebody stored what the log had of 0 | 2 |   the head of 1 is damaged
    disk = MemoryStorage()
    wal, _ = begun(disk)
    writer = Writer(wal)
    writer.append(b"first")
    place = FRAMES_BEGIN + OVERHEAD + 5
    path = f"{ROOT}/shard-00/wal-0.log"
    writer.append(bytes(read_file(disk, path)[FRAMES_BEGIN:place]))
    writer.append(b"third")
    disk.open(path).pwrite(b"?", place)
    found = replayed(disk)
    assert content(found) == b"firstthird"
    assert [(one.lsn, one.frames) for one in found.missing] == [(1, 1)]
    assert found.lost_below == {writer.wal_key: 10 + OVERHEAD}


def test_a_frame_of_a_type_that_nobody_knows_is_damage_though_its_checksum_is_right() -> None:
    disk = MemoryStorage()
    wal, _ = begun(disk)
    Writer(wal).append(b"one")
    wal.barrier(TOPIC, 1)
    Writer(wal, 2).append(b"two")
    path = f"{ROOT}/shard-00/wal-0.log"
    data = read_file(disk, path)
    header = decode_header(data)
    assert header is not None
    position = scan_file(memoryview(data), header).positions[1]
    end = position + FRAME_SIZE
    data[position + 8] = 99
    data[end : end + SUM_SIZE] = xxhash.xxh3_64_digest(data[position:end], header.salt)
    data[end + SUM_SIZE : position + OVERHEAD] = bytes(TRAILER_SIZE)
    disk.open(path).pwrite(data, 0)
    found = replayed(disk)
    assert (content(found, 0), content(found, 2)) == (b"one", b"two")
    assert [(missing.lsn, missing.frames) for missing in found.missing] == [(1, 1)]

"""One WAL file, byte by byte: a header block, then frames one behind the other.

    file     | header | ... | header again, at 2048 | ... | frame, at 4096 | frame | ... | header |
    frame    | header, 64 bytes | payload | xxh3-64, 8 bytes | trailer, 56 bytes (trailers.py) |

    header   byte 0       4         6       8        12      16         24     32         40
                  +-------+---------+-------+--------+-------+----------+------+----------+
                  | magic | version | owner | shard  | size  | sequence | salt | checksum |
                  | SBWL  | u16 =4  | u16   | u32    | u32   | u64      | u64  | u64      |
                  +-------+---------+-------+--------+-------+----------+------+----------+
    frame    byte 0       4        8      9       10        12          16    24
                  +-------+--------+------+-------+---------+-----------+-----+
                  | magic | length | type | flags | ordinal | partition | lsn |
                  | SBWF  | u32    | u8   | u8    | u16     | u32       | u64 |
                  +-------+--------+------+-------+---------+-----------+-----+
             byte 24         40        44         48            56          64
                  +----------+---------+----------+-------------+-----------+------------
                  | topic_id | segment | position | base_offset | timestamp | payload ...
                  | 16 bytes | u32     | u32      | i64         | i64       |
                  +----------+---------+----------+-------------+-----------+------------

Behind the last frame are zeros, or what an earlier use of the file left.  The other headers are for
damage to the first: without a salt no frame of the file could be told from garbage.  The last 40
bytes of a file are one, so that no page has them all.

`length` is the whole frame.  Files of version 1 have frames without trailers, those of version 2 no
MARK, those of version 3 no header at the end, no GIVEN_UP and no KEPT; all of them are read only.
`lsn` counts the frames of a shard over all its files, without a hole.
`ordinal` is the place in the group that was written and synced together: every frame below
`lsn - ordinal` was durable before this one was written.  So what is bad in front of a good frame
of a later group is damage, and what is bad at the end was never acknowledged.  Flag 1 says,
up to version 3, that frames directly before were given up: none of them is missed.  Flag 2 says
that nobody is told of this group before a later one, at least a MARK, is durable: where none is
there, the group was never acknowledged, whatever a torn write has left of it.

The checksum of a frame is XXH3-64 of all before it, seeded with the salt of the file: a recycled
file gets another salt, and none of its old frames is valid any more.  A zero length never is.

| type | says | payload |
|---|---|---|
| BATCHES | bytes of a segment, from `position` and `base_offset` on | whole batches, as stored |
| BARRIER | earlier frames of this partition are void | - |
| CONTROL | an event of the metadata | the event |
| END | a log is synced up to offset `base_offset`, at (segment, position) | - |
| MARK | nothing; it stands in a group of its own, so everything before it was durable | - |
| GIVEN_UP | frames from lsn `base_offset` up to this one never were: their sync failed | - |
| KEPT | nothing any more: not written, and passed over | - |

`segment` and `position` of GIVEN_UP are the file (the low half of its sequence) and the byte behind
the last frame that was not given up.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

import xxhash

from ..disk.storage import Buffer
from .trailers import TRAILER_SIZE, encode_trailer, trailer_at

MAGIC: Final = b"SBWL"
VERSION: Final = 4
HEADER: Final = struct.Struct(">4sHHIIQQQ")
HEADER_SIZE: Final = HEADER.size
FRAMES_BEGIN: Final = 4096
"""The header has a block of its own: no write of a frame can tear it."""
HEADER_COPY: Final = 2048
HEADER_AT_END: Final = 4
"""The first version whose files end with a header."""
FRAME_MAGIC: Final = b"SBWF"
FRAME: Final = struct.Struct(">4sIBBHIQ16sIIqq")
FRAME_SIZE: Final = FRAME.size
SUM_SIZE: Final = 8
OVERHEAD: Final = FRAME_SIZE + SUM_SIZE + TRAILER_SIZE
ORDINAL_MAX: Final = 0xFFFF
FILE_SIZE_MIN: Final = 2 * FRAMES_BEGIN
assert (HEADER_SIZE, FRAME_SIZE) == (40, 64), "the boxes above"

SEQUENCE_MASK: Final = 0xFFFF_FFFF
"""What GIVEN_UP says of the sequence of a file."""
AFTER_FAILURE: Final = 1
AWAITS_MARK: Final = 2
_SMALL: Final = 16_384
"""Payloads up to here are copied to be summed in one call; beyond, two calls are cheaper."""


class FrameType(IntEnum):
    """What a frame says."""

    BATCHES = 1
    BARRIER = 2
    CONTROL = 3
    END = 4
    MARK = 5
    GIVEN_UP = 6
    KEPT = 7


TYPES: Final = {kind.value: kind for kind in FrameType}


class Frame(NamedTuple):
    """One entry of the WAL.  `lsn` and `ordinal` are given when it is written."""

    type: FrameType
    topic_id: bytes = bytes(16)
    partition: int = 0
    segment: int = 0
    position: int = 0
    base_offset: int = 0
    timestamp: int = 0
    payload: Buffer = b""
    lsn: int = 0
    ordinal: int = 0
    flags: int = 0
    end_offset: int = -1
    """Where the batches end, for the trailer; -1 where there are none."""

    @property
    def size(self) -> int:
        """Bytes in a file of this version."""
        return OVERHEAD + len(self.payload)

    @property
    def durable_below(self) -> int:
        """Every frame with a smaller lsn was durable before this one was written."""
        return self.lsn - self.ordinal

    @property
    def key(self) -> tuple[bytes, int]:
        """The partition."""
        return self.topic_id, self.partition


class Header(NamedTuple):
    """The header of a WAL file."""

    shard: int
    size: int
    sequence: int
    salt: int
    version: int = VERSION
    owner: int = 0
    """Stands for the data directory (names.wal_owner_of); 0: a version before 0.4.6 wrote it."""

    @property
    def trailer_size(self) -> int:
        """Bytes of a trailer in this file."""
        return TRAILER_SIZE if self.version > 1 else 0

    @property
    def frames_end(self) -> int:
        """Where there is no room for frames any more."""
        return frames_end(self.size) if self.version >= HEADER_AT_END else self.size


def frames_end(size: int) -> int:
    """Where there is no room for frames any more in a file of this size."""
    return size - HEADER_SIZE


def encode_header(header: Header) -> bytes:
    """The first HEADER_SIZE bytes of a file."""
    shard, size, sequence, salt, version, owner = header
    body = HEADER.pack(MAGIC, version, owner, shard, size, sequence, salt, 0)[:-SUM_SIZE]
    return body + xxhash.xxh3_64_digest(body)


def decode_header(data: Buffer) -> Header | None:
    """The header; None when these are not the bytes of one."""
    if len(data) < HEADER_SIZE:
        return None
    magic, version, owner, shard, size, sequence, salt, checksum = HEADER.unpack_from(data)
    body = bytes(data[: HEADER_SIZE - SUM_SIZE])
    if (magic, checksum) != (MAGIC, xxhash.xxh3_64_intdigest(body)):
        return None
    if not 1 <= version <= VERSION:
        return None
    return Header(shard, size, sequence, salt, version, owner)


def later_version(data: Buffer) -> int:
    """The version of a file that a later version of segbroker wrote; 0: it is no such file."""
    for place in (0, HEADER_COPY, max(0, len(data) - HEADER_SIZE)):
        head = bytes(memoryview(data)[place : place + HEADER_SIZE])
        if len(head) == HEADER_SIZE and head.endswith(
            xxhash.xxh3_64_digest(head[: HEADER_SIZE - SUM_SIZE])
        ):
            magic, version, *_ = HEADER.unpack(head)
            if magic == MAGIC and version > VERSION:
                return int(version)
    return 0


def header_blocks(header: Header) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
    """(position, bytes) of everything in front of the frames, and of everything behind them."""
    encoded = encode_header(header)
    begin = encoded.ljust(HEADER_COPY, b"\0") + encoded.ljust(FRAMES_BEGIN - HEADER_COPY, b"\0")
    return (0, begin), (frames_end(header.size), encoded)


def header_of(data: Buffer) -> Header | None:
    """The header of a file, or a copy when that is damaged; None without any."""
    copy = memoryview(data)[HEADER_COPY : HEADER_COPY + HEADER_SIZE]
    return decode_header(data) or decode_header(copy) or _last_header(memoryview(data))


def _last_header(data: memoryview) -> Header | None:
    """That of the last bytes, if they are the last ones of the file that it speaks of."""
    last = decode_header(data[max(0, len(data) - HEADER_SIZE) :])
    return last if last is not None and last.size == len(data) else None


def encode_frame(
    frame: Frame, lsn: int, ordinal: int, salt: int, flags: int = 0
) -> tuple[Buffer, ...]:
    """The parts of a frame, in order."""
    kind, topic_id, partition, segment, position, base_offset, timestamp, payload = frame[:8]
    size = OVERHEAD + len(payload)
    head = FRAME.pack(
        FRAME_MAGIC,
        size,
        kind,
        flags,
        ordinal,
        partition,
        lsn,
        topic_id,
        segment,
        position,
        base_offset,
        timestamp,
    )
    key = topic_id, partition
    trailer = encode_trailer(size, kind, flags, ordinal, key, frame.end_offset, lsn, salt)
    if len(payload) <= _SMALL:
        head += payload
        return head, xxhash.xxh3_64_digest(head, salt), trailer
    state = xxhash.xxh3_64(head, salt)
    state.update(payload)
    return head, payload, state.digest(), trailer


def frame_at(data: memoryview, position: int, salt: int, trailer_size: int) -> Frame | None:
    """The valid frame that begins at `position`; None when there is none."""
    overhead = FRAME_SIZE + SUM_SIZE + trailer_size
    if len(data) - position < overhead:
        return None
    (
        magic,
        length,
        kind,
        flags,
        ordinal,
        partition,
        lsn,
        topic_id,
        segment,
        place,
        base_offset,
        timestamp,
    ) = FRAME.unpack_from(data, position)
    if (
        magic != FRAME_MAGIC
        or flags & ~(AFTER_FAILURE | AWAITS_MARK)
        or not overhead <= length <= len(data) - position
    ):
        return None
    if kind not in TYPES or ordinal > lsn:
        return None
    end = position + length - SUM_SIZE - trailer_size
    checksum = int.from_bytes(data[end : end + SUM_SIZE], "big")
    if xxhash.xxh3_64_intdigest(data[position:end], salt) != checksum:
        return None
    return Frame(
        TYPES[kind],
        topic_id,
        partition,
        segment,
        place,
        base_offset,
        timestamp,
        data[position + FRAME_SIZE : end],
        lsn,
        ordinal,
        flags,
        _end_offset(data, end + SUM_SIZE, salt) if trailer_size else -1,
    )


def _end_offset(data: memoryview, position: int, salt: int) -> int:
    """What a trailer says; -1 where it is damaged, and then nobody needs it."""
    trailer = trailer_at(data, position, salt)
    return -1 if trailer is None else trailer.end_offset

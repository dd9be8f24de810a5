"""The last bytes of every frame name its partition again, in case everything before is damaged.

    frame    | header, 64 bytes | payload | xxh3-64, 8 bytes | trailer, 56 bytes |

    byte 0       4        8      9       10        12         28          32
         +-------+--------+------+-------+---------+----------+-----------+------------
         | magic | length | type | flags | ordinal | topic_id | partition | end_offset
         | SBWT  | u32    | u8   | u8    | u16     | 16 bytes | u32       | i64
         +-------+--------+------+-------+---------+----------+-----------+------------
                               byte 40      48         56
                                +-----+----------+
                                | lsn | checksum |
                                | u64 | u64      |
                                +-----+----------+

`length`, `flags` and `ordinal` are those of the frame (`ordinal` is 0 in files of version 2),
`end_offset` is where its batches end (BATCHES), what it vouches for (END), the lsn that it speaks
of (GIVEN_UP), or -1.  The checksum is XXH3-64 of the 48 bytes before it, seeded with the salt of
the file.  A frame is valid by its own checksum: damage to its trailer alone costs nothing.

Why at the end: a torn write lacks its end, so a trailer that is whole behind a frame that is not
says that the frame was written, and is damaged.  It is told as lost although, where a disk persists
the sectors of one write in another order, nobody may have been told that it was there.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import xxhash

TRAILER_MAGIC: Final = b"SBWT"
TRAILER: Final = struct.Struct(">4sIBBH16sIqQ")
TRAILER_SIZE: Final = TRAILER.size + 8
assert TRAILER_SIZE == 56, "the box above"


class Trailer(NamedTuple):
    """What a frame was."""

    position: int
    """Where the frame began."""
    size: int
    type: int
    flags: int
    ordinal: int
    key: tuple[bytes, int]
    end_offset: int
    lsn: int


def encode_trailer(
    length: int,
    kind: int,
    flags: int,
    ordinal: int,
    key: tuple[bytes, int],
    end_offset: int,
    lsn: int,
    salt: int,
) -> bytes:
    """The trailer of a frame of so many bytes."""
    body = TRAILER.pack(TRAILER_MAGIC, length, kind, flags, ordinal, *key, end_offset, lsn)
    return body + xxhash.xxh3_64_digest(body, salt)


def trailer_at(data: memoryview, position: int, salt: int) -> Trailer | None:
    """The valid trailer that begins at `position`; None when there is none."""
    end = position + TRAILER_SIZE
    if end > len(data):
        return None
    magic, length, kind, flags, ordinal, topic_id, partition, end_offset, lsn = TRAILER.unpack_from(
        data, position
    )
    if magic != TRAILER_MAGIC:
        return None
    checksum = int.from_bytes(data[end - 8 : end], "big")
    if xxhash.xxh3_64_intdigest(data[position : end - 8], salt) != checksum:
        return None
    key = topic_id, partition
    return Trailer(end - length, length, kind, flags, ordinal, key, end_offset, lsn)


def trailers_in(data: memoryview, begin: int, end: int, salt: int, after: int) -> Iterator[Trailer]:
    """The valid trailers in [begin, end) whose lsns rise above `after`."""
    content = data.obj if isinstance(data.obj, bytes | bytearray) else bytes(data)
    found = content.find(TRAILER_MAGIC, begin, end)
    while found >= 0:
        trailer = trailer_at(data, found, salt)
        if trailer is not None and trailer.lsn > after:
            after = trailer.lsn
            yield trailer
        found = content.find(TRAILER_MAGIC, found + 1, end)

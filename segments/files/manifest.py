""".manifest: what a log knows about its sealed segments without touching them.

    header    byte 0       4         6       8            16           24            32
                   +-------+---------+-------+------------+------------+-------------+
                   | magic | version | 0     | created_ms | owner      | xxh3-64 of  |
                   | SBMF  | u16 =1  | u16   | i64        | u64        | the 24, u64 |
                   +-------+---------+-------+------------+------------+-------------+
    rows      byte 0      1      2      4                8         16            24           32
                   +------+------+------+----------------+---------+-------------+------------+
                   | kind | 0    | tag  | block_size_max | number  | base_offset | end_offset |
                   | u8   | u8   | u16  | u32            | u64     | i64         | i64        |
                   +------+------+------+----------------+---------+-------------+------------+
              byte 32     40        44             48             56           64
                   +------+---------+--------------+--------------+------------+
                   | size | records | leader_epoch | max_timestamp| xxh3-64 of |
                   | u64  | u32     | u32          | i64          | the 56, u64|
                   +------+---------+--------------+--------------+------------+

| kind | says | fields in use |
|---|---|---|
| 1 SEGMENT | segment `number` is sealed; its log is synced, its index written | all |
| 2 START | the log begins at `base_offset`, in segment `number` | these, and the floor: below |
| 3 CHECKPOINT | `size` bytes of segment `number`, up to `end_offset`, were synced | these |
| 4 EPOCH | `leader_epoch` begins at `base_offset` | these |
| 5 CLEANED | what lies below `end_offset` was cleaned, first at `max_timestamp` (ms) | these |

A SEGMENT row whose offsets are those of earlier ones, from the first of them to the last, whose
number it has, stands for them: a cleaning made one segment of them.  It is synced before the
segment has its name (swapping.py).

The `max_timestamp` of a START row is the base offset of that first segment, -1 in rows of earlier
versions: nothing else says where a segment begins that is not sealed and whose first batch is bad.
Its `end_offset` is the evict floor, what lies below went against somebody's will, and its `records`
the reason of the last time (GapReason; 0: nothing ever did, also in rows of earlier versions).

`tag` says which batches a segment was sealed with (index.segment_tag; 0 in rows of earlier
versions): a file of another log that fits by its offsets and its size is not taken for it.

`owner` says which partition of which topic it is (names.owner_of; 0 in files of earlier versions):
a reader past the broker, who finds files by a name, knows by it a topic that was made again.

Append-only, one write per row, big-endian; the first row whose checksum is wrong ends the file.  A
row is written after what it speaks of was synced, so it may be lost (the segment is probed and
scanned again) but never lies.  START is synced before anybody hears of the deletion.  Rewritten by
temp + rename when more than half of it is history.

Why not one msgpack file: 100,000 segments are read in 0.1 s this way, and sealing costs one write.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from segbroker.protocol.checksums import xxh3_64

from ..disk.storage import Buffer

MAGIC: Final = b"SBMF"
VERSION: Final = 1
HEADER: Final = struct.Struct(">4sHHqQQ")
ROW: Final = struct.Struct(">BBHIQqqQIIqQ")
ROW_SUMMED: Final = struct.Struct(">BBHIQqqQIIq")
HEADER_SIZE: Final = HEADER.size
ROW_SIZE: Final = ROW.size
assert (HEADER_SIZE, ROW_SIZE, ROW_SUMMED.size) == (32, 64, 56), "fixed stride"


class RowKind(IntEnum):
    """What a row says."""

    SEGMENT = 1
    START = 2
    CHECKPOINT = 3
    EPOCH = 4
    CLEANED = 5


class Row(NamedTuple):
    """One row."""

    kind: int
    number: int = 0
    base_offset: int = 0
    end_offset: int = 0
    size: int = 0
    records: int = 0
    max_timestamp: int = -1
    block_size_max: int = 0
    leader_epoch: int = 0
    tag: int = 0

    def encode(self) -> bytes:
        summed = ROW_SUMMED.pack(
            self.kind,
            0,
            self.tag,
            self.block_size_max,
            self.number,
            self.base_offset,
            self.end_offset,
            self.size,
            self.records,
            self.leader_epoch,
            self.max_timestamp,
        )
        return summed + xxh3_64(summed).to_bytes(8, "big")


class Floor(NamedTuple):
    """What went against somebody's will: offsets below `offset`, the last of them for `reason`.

    Between it and the log start everything was deleted on purpose.  `reason` is a GapReason, 0
    as long as nothing went.
    """

    offset: int = 0
    reason: int = 0


NO_FLOOR: Final = Floor()


def start_row(
    log_start_offset: int, number: int, segment_base_offset: int, floor: Floor = NO_FLOOR
) -> Row:
    """A START row: what is deleted, the first segment, where that one begins, the evict floor.

    Where it begins lies in the row's max_timestamp; -1 in rows of earlier versions.  Without it
    nothing but its first batch would say where a segment begins that is not sealed yet.
    """
    assert floor.offset <= log_start_offset, "what was evicted is not in the log"
    return Row(
        RowKind.START,
        number=number,
        base_offset=log_start_offset,
        end_offset=floor.offset,
        records=floor.reason,
        max_timestamp=segment_base_offset,
    )


def floor_of(start: Row | None) -> Floor:
    """The floor that a START row tells."""
    return NO_FLOOR if start is None else Floor(start.end_offset, start.records)


def encode_manifest(created_ms: int, rows: Iterable[Row], owner: int = 0) -> bytes:
    """A whole file."""
    head = HEADER.pack(MAGIC, VERSION, 0, created_ms, owner, 0)[:24]
    return b"".join([head, xxh3_64(head).to_bytes(8, "big"), *(row.encode() for row in rows)])


class Manifest(NamedTuple):
    """What was read: the rows in order, the bytes that are valid, and whose it is (0: not said)."""

    rows: list[Row]
    size: int
    owner: int = 0


def decode_manifest(data: Buffer) -> Manifest | None:
    """The valid rows in front; None when the header is not that of a manifest.

    Everything behind the first wrong row is ignored: rows are hints that save a scan.
    """
    if len(data) < HEADER_SIZE:
        return None
    magic, version, _, _, owner, checksum = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION or checksum != xxh3_64(bytes(data[:24])):
        return None
    whole = bytes(data)
    end = HEADER_SIZE + (len(whole) - HEADER_SIZE) // ROW_SIZE * ROW_SIZE
    rows: list[Row] = []
    position = HEADER_SIZE
    new, add = Row._make, rows.append
    for fields in ROW.iter_unpack(whole[HEADER_SIZE:end]):
        kind, _, tag, block, number, base, last, size, records, epoch, stamp, checksum = fields
        if checksum != xxh3_64(whole[position : position + 56]):
            break
        add(new((kind, number, base, last, size, records, stamp, block, epoch, tag)))
        position += ROW_SIZE
    return Manifest(rows, position, owner)


def is_torn_row(rest: Buffer) -> bool:
    """Whether what lies behind the valid rows is a write that was not finished: so no row that came
    later is missing, nor has anybody gone by the one that is.  Else it is damage."""
    return len(rest) < ROW_SIZE or not any(rest)

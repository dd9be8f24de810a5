"""The manifest of a partition: a row per sealed segment, so that a start reads one small file.

    header, 32 bytes
    +--------+---------+----------+------------------+--------------+--------------+
    | "SBMF" | version | reserved | log_start_offset | leader_epoch | xxh3-64 of   |
    | 4s     | u16 = 1 | u16 = 0  | i64              | i64          | all before   |
    +--------+---------+----------+------------------+--------------+--------------+
    then per sealed segment, 48 bytes
    +---------+------+----------+-------------+-------------+------+---------+---------------+------+
    | segment | tier | reserved | base_offset | next_offset | size | records | max_timestamp | xxh3 |
    | u32     | u8   | 3 bytes  | i64         | i64         | u32  | u32     | i64           | u64  |
    +---------+------+----------+-------------+-------------+------+---------+---------------+------+

Big-endian.  Rows follow each other in segment order.  A row is appended after its segment was
synced, and is itself not synced: a lost row only means that the segment is scanned again.
Whatever rewrites the file (a new log start, deleted segments) does so by temp + rename.

Invariants: row i+1 has segment + 1 and begins where row i ends; the first row that does not, or
whose checksum fails, ends the manifest; the rest is dropped and probed.
"""

import struct
from array import array
from typing import NamedTuple

import xxhash

MAGIC = b"SBMF"
VERSION = 1
HEADER = struct.Struct(">4sHHqqQ")
ROW = struct.Struct(">IB3xqqIIqQ")
_DIGEST_SIZE = 8

assert HEADER.size == 32
assert ROW.size == 48

TIER_HOT = 0


class SealedSegment(NamedTuple):
    """One row: a segment that will not change any more."""

    segment: int
    base_offset: int
    next_offset: int
    size: int
    records: int
    max_timestamp: int
    tier: int = TIER_HOT


def encode_header(log_start_offset: int, leader_epoch: int) -> bytes:
    covered = HEADER.pack(MAGIC, VERSION, 0, log_start_offset, leader_epoch, 0)[:-_DIGEST_SIZE]
    return covered + xxhash.xxh3_64_digest(covered)


def encode_row(row: SealedSegment) -> bytes:
    covered = ROW.pack(
        row.segment,
        row.tier,
        row.base_offset,
        row.next_offset,
        row.size,
        row.records,
        row.max_timestamp,
        0,
    )[:-_DIGEST_SIZE]
    return covered + xxhash.xxh3_64_digest(covered)


class SealedSegments:
    """The rows in columns: about 40 bytes a segment, so a million segments fit in 40 MB.

    Segment numbers are consecutive: `first_segment + i` is row i.
    """

    __slots__ = (
        "base_offsets",
        "first_segment",
        "max_timestamps",
        "next_offset",
        "records",
        "sizes",
        "total_records",
        "total_size",
    )

    def __init__(self) -> None:
        self.first_segment = 0
        self.base_offsets = array("q")
        self.sizes = array("L")
        self.records = array("L")
        self.max_timestamps = array("q")
        self.next_offset = 0
        self.total_size = 0
        self.total_records = 0

    def __len__(self) -> int:
        return len(self.base_offsets)

    def __getitem__(self, number: int) -> SealedSegment:
        count = len(self.base_offsets)
        assert 0 <= number < count
        after = self.base_offsets[number + 1] if number + 1 < count else self.next_offset
        return SealedSegment(
            self.first_segment + number,
            self.base_offsets[number],
            after,
            self.sizes[number],
            self.records[number],
            self.max_timestamps[number],
        )

    @property
    def next_segment(self) -> int:
        return self.first_segment + len(self.base_offsets)

    def follows(self, row: SealedSegment) -> bool:
        """Whether the row is the next one."""
        if not self.base_offsets:
            return True
        return row.segment == self.next_segment and row.base_offset == self.next_offset

    def add(self, row: SealedSegment) -> None:
        assert self.follows(row), "rows follow each other without a hole"
        if not self.base_offsets:
            self.first_segment = row.segment
        # next_offset first: a reader on another thread that sees the row also sees its end.
        self.next_offset = row.next_offset
        self.sizes.append(row.size)
        self.records.append(row.records)
        self.max_timestamps.append(row.max_timestamp)
        self.base_offsets.append(row.base_offset)
        self.total_size += row.size
        self.total_records += row.records


class Manifest(NamedTuple):
    """What a manifest file said."""

    log_start_offset: int
    leader_epoch: int
    segments: SealedSegments
    valid_size: int
    """Bytes up to the end of the last good row; what follows is dropped."""


def decode(content: bytes) -> Manifest | None:
    """Read a manifest; None when its header is not one of ours (then everything is probed)."""
    if len(content) < HEADER.size:
        return None
    magic, version, _, log_start, leader_epoch, _ = HEADER.unpack_from(content)
    if magic != MAGIC or version != VERSION:
        return None
    if encode_header(log_start, leader_epoch) != content[: HEADER.size]:
        return None
    segments = SealedSegments()
    position = HEADER.size
    while position + ROW.size <= len(content):
        raw = content[position : position + ROW.size]
        segment, tier, base, after, size, records, newest, _ = ROW.unpack(raw)
        row = SealedSegment(segment, base, after, size, records, newest, tier)
        if encode_row(row) != raw or after <= base or not segments.follows(row):
            break
        segments.add(row)
        position += ROW.size
    return Manifest(log_start, leader_epoch, segments, position)

""".index: where the blocks of a segment lie, and the checksum of each.

    header    byte 0       4         6        8             16           24            32
                   +-------+---------+--------+-------------+------------+-------------+
                   | magic | version | tag    | base_offset | created_ms | xxh3-64 of  |
                   | SBIX  | u16 =1  | u16    | i64         | i64        | the 24, u64 |
                   +-------+---------+--------+-------------+------------+-------------+
    entries   byte 0                4          8        12        16              24        32
                   +----------------+----------+--------+---------+---------------+---------+
                   | offset         | position | length | records | max_timestamp | xxh3-64 |
                   | relative, u32  | u32      | u32    | u32     | i64           | u64     |
                   +----------------+----------+--------+---------+---------------+---------+

Big-endian.  A block is a run of whole batches: they are added until the block has
`index.interval.bytes`; a batch of that size is a block of its own.  The entry's checksum covers
the block's bytes in the log and then the entry's own first 24 bytes, so neither can change
unnoticed, and a block in the wrong place is noticed too (its offset is in both).

`tag` is that of the segment's manifest row: an index that came with the log of another partition
is noticed.  0 in files of earlier versions.

Fixed stride: entry i lies at 32 + 32 i, look-ups are binary searches over columns, a scrub decodes
no batch.  An index is never trusted: a wrong or missing one is rebuilt from the log, whose batches
carry everything but these checksums.  That is why it needs no atomic replacement.

Invariants: entries lie behind each other without a hole, from position 0 to the end of the log
file; offsets rise strictly.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import xxhash

from segbroker.protocol.checksums import xxh3_64

from ..disk.storage import PAGE, Buffer

MAGIC: Final = b"SBIX"
VERSION: Final = 1
HEADER: Final = struct.Struct(">4sHHqqQ")
ENTRY: Final = struct.Struct(">IIIIqQ")
ENTRY_SUMMED: Final = struct.Struct(">IIIIq")
HEADER_SIZE: Final = HEADER.size
ENTRY_SIZE: Final = ENTRY.size
assert HEADER_SIZE == ENTRY_SIZE == 32, "fixed stride"
OFFSET_SPAN_MAX: Final = 0x7FFF_FFFF
"""Offsets of one segment; so relative offsets fit the index."""


class WrongIndex(Exception):
    """The bytes are not a whole index of this segment; rebuild it."""


def block_checksum(block: Buffer, summed: Buffer) -> int:
    """XXH3-64 over a block and then the first 24 bytes of its entry."""
    hasher = xxhash.xxh3_64(block)
    hasher.update(summed)
    return hasher.intdigest()


def segment_tag(sums: Sequence[int]) -> int:
    """16 bits that stand for the batches of a segment; never 0.  sums: their XXH3-64, in order."""
    column = array("Q", sums)
    if sys.byteorder == "little":
        column.byteswap()
    return xxh3_64(column.tobytes()) & 0xFFFF or 1


class Block(NamedTuple):
    """One entry."""

    offset: int
    position: int
    length: int
    records: int
    max_timestamp: int
    checksum: int

    def matches(self, data: Buffer) -> bool:
        """Whether `data` are the bytes that this entry was written for."""
        return block_checksum(data, ENTRY_SUMMED.pack(*self[:5])) == self.checksum


class BlockIndex:
    """A whole index in memory; immutable, shared by readers.

    `summed` keeps the 24 bytes per entry that the checksum covers, so that verifying a block
    packs nothing.
    """

    __slots__ = (
        "_run",
        "base_offset",
        "blocks",
        "created_ms",
        "ends",
        "log_size",
        "offsets",
        "running_max_timestamps",
        "summed",
        "tag",
    )

    def __init__(self, base_offset: int, created_ms: int, blocks: list[Block], tag: int) -> None:
        self.base_offset = base_offset
        self.tag = tag
        self.created_ms = created_ms
        self.blocks = blocks
        self.offsets = [block.offset for block in blocks]
        self.ends = [block.position + block.length for block in blocks]
        self.running_max_timestamps = list(accumulate((b.max_timestamp for b in blocks), max))
        self.summed = [ENTRY_SUMMED.pack(*block[:5]) for block in blocks]
        self.log_size = self.ends[-1] if blocks else 0
        self._run: tuple[int, int, int] | None = None

    @property
    def memory_size(self) -> int:
        """About what it costs to keep, in bytes."""
        return 400 + 380 * len(self.blocks)

    def is_of(self, base_offset: int, log_size: int, tag: int) -> bool:
        """Whether it is that of a segment with these; tag 0: nobody knows."""
        return (
            self.base_offset == base_offset and self.log_size == log_size and tag in (0, self.tag)
        )

    def block_at(self, offset: int) -> int:
        """Ordinal of the block that would hold the absolute `offset`."""
        return bisect_right(self.offsets, offset - self.base_offset) - 1

    def block_by_time(self, timestamp_ms: int) -> int:
        """Ordinal of the first block with a record not older than this; len(blocks) for none."""
        return bisect_left(self.running_max_timestamps, timestamp_ms)

    def matches(self, ordinal: int, data: Buffer) -> bool:
        """Whether `data` are the bytes of block `ordinal`."""
        hasher = xxhash.xxh3_64(data)
        hasher.update(self.summed[ordinal])
        return hasher.intdigest() == self.blocks[ordinal].checksum

    def first_wrong(self, first: int, last: int, data: memoryview) -> int | None:
        """The first of the blocks [first, last), which begin in `data`, that does not match.

        The XXH3-64 of the last run that matched is remembered, so that the next reader of the same
        run compares one checksum instead of one per block (16 KiB blocks: 30 us per MiB, not 59).
        """
        begin = self.blocks[first].position
        size = self.ends[last - 1] - begin
        if last - first > 1:
            run = (first, last, xxh3_64(data[:size]))
            if run == self._run:
                return None
        else:
            run = None
        start = 0
        for ordinal in range(first, last):
            end = self.ends[ordinal] - begin
            if not self.matches(ordinal, data[start:end]):
                return ordinal
            start = end
        if run is not None:
            self._run = run
        return None

    def encode(self) -> bytes:
        """The file."""
        fields = (MAGIC, VERSION, self.tag, self.base_offset, self.created_ms, 0)
        head = HEADER.pack(*fields)[:24]
        rows = [
            summed + block.checksum.to_bytes(8, "big")
            for block, summed in zip(self.blocks, self.summed, strict=True)
        ]
        return b"".join([head, xxh3_64(head).to_bytes(8, "big"), *rows])


def is_torn(content: Buffer, log_size: int) -> bool:
    """Whether a wrong index is what a power cut leaves of one, for it is written without a sync:
    it ends with a page, in front of its last entry, or within its header, or some page has zeros at
    its end."""
    size = len(content)
    ends = [*range(PAGE, size, PAGE), size]
    if size < HEADER_SIZE or not all(any(content[end - HEADER_SIZE : end]) for end in ends):
        return True
    if size % PAGE:
        return False
    last = Block(*ENTRY.unpack_from(content, size - ENTRY_SIZE))
    return last.position + last.length < log_size


def decode_index(data: Buffer, base_offset: int, log_size: int, tag: int = 0) -> BlockIndex:
    """The index in `data`, which must be that of a segment with this base offset, size and tag.

    The blocks' checksums are not compared with the log here: readers do that block by block.
    Raises WrongIndex.
    """
    if len(data) < HEADER_SIZE or (len(data) - HEADER_SIZE) % ENTRY_SIZE:
        raise WrongIndex(f"{len(data)} bytes are not a header and whole entries")
    magic, version, found_tag, base, created_ms, checksum = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION or checksum != xxh3_64(bytes(data[:24])):
        raise WrongIndex("the header is damaged or of another version")
    if base != base_offset:
        raise WrongIndex(f"base offset {base}, the segment has {base_offset}")
    if tag and tag != found_tag:
        raise WrongIndex(f"tag {found_tag}, the segment has {tag}: it is of another log")
    blocks = list(map(Block._make, ENTRY.iter_unpack(memoryview(data)[HEADER_SIZE:])))
    position, offset = 0, -1
    for block in blocks:
        if block.position != position or block.offset <= offset or not block.length:
            raise WrongIndex(f"entry for position {block.position} behind {position}")
        position += block.length
        offset = block.offset
    if position != log_size or (blocks and blocks[0].offset):
        raise WrongIndex(f"covers {position} bytes, the segment has {log_size}")
    return BlockIndex(base, created_ms, blocks, found_tag)


class BlockBuilder:
    """Makes entries of batches as they are appended.

    Holds the hash of the block that is still growing; `finish` closes it.
    """

    __slots__ = (
        "_base_offset",
        "_hasher",
        "_interval",
        "_max_timestamp",
        "_offset",
        "_position",
        "_records",
        "_size",
        "blocks",
    )

    def __init__(self, base_offset: int, interval: int) -> None:
        self.blocks: list[Block] = []
        self._base_offset = base_offset
        self._interval = interval
        self._position = 0
        self._start(0)

    def _start(self, position: int) -> None:
        self._hasher = xxhash.xxh3_64()
        self._position = position
        self._size = 0
        self._records = 0
        self._offset = 0
        self._max_timestamp = -1

    @property
    def index_size(self) -> int:
        """Bytes of the index file if it were written now."""
        return HEADER_SIZE + ENTRY_SIZE * (len(self.blocks) + bool(self._size))

    def add(self, batch: Buffer, base_offset: int, records: int, max_timestamp: int) -> int:
        """Add the next batch of the segment; its XXH3-64."""
        size = len(batch)
        if self._size and self._size + size > 2 * self._interval:
            self._close()  # a large batch is a block of its own
        if not self._size:
            self._offset = base_offset - self._base_offset
        hasher = self._hasher
        hasher.update(batch)
        # The first batch of a block, and so every large one, is hashed once for both sums.
        checksum = xxh3_64(batch) if self._size else hasher.intdigest()
        self._size += size
        self._records += records
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
        if self._size >= self._interval:
            self._close()
        return checksum

    def add_run(
        self,
        run: memoryview,
        sizes: Sequence[int],
        counts: Sequence[int],
        max_timestamps: Sequence[int],
        base_offset: int,
    ) -> list[int]:
        """As `add` for each of these batches, which lie behind each other; their XXH3-64."""
        total = len(run)
        if self._size and self._size + total < self._interval:
            self._hasher.update(run)  # all of it belongs to the block that is growing
            self._size += total
            self._records += sum(counts)
            self._max_timestamp = max(self._max_timestamp, max(max_timestamps))
            begin = 0
            sums = []
            for size in sizes:
                end = begin + size
                sums.append(xxh3_64(run[begin:end]))
                begin = end
            return sums
        begin = 0
        sums = []
        for size, count, max_timestamp in zip(sizes, counts, max_timestamps, strict=True):
            end = begin + size
            sums.append(self.add(run[begin:end], base_offset, count, max_timestamp))
            begin = end
            base_offset += count
        return sums

    def _close(self) -> None:
        fields = (self._offset, self._position, self._size, self._records, self._max_timestamp)
        self._hasher.update(ENTRY_SUMMED.pack(*fields))
        self.blocks.append(Block(*fields, self._hasher.intdigest()))
        self._start(self._position + self._size)

    def finish(self, created_ms: int, tag: int) -> BlockIndex:
        """The whole index; nothing is added afterwards."""
        if self._size:
            self._close()
        return BlockIndex(self._base_offset, created_ms, self.blocks, tag)

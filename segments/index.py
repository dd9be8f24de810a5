"""The block index of a segment: where the batches are, and what their bytes must hash to.

    header, 32 bytes
    +--------+---------+----------+-------------+------------+------------------------+
    | "SBIX" | version | reserved | base_offset | created_ms | xxh3-64 of all before  |
    | 4s     | u16 = 1 | u16 = 0  | i64         | i64        | u64                    |
    +--------+---------+----------+-------------+------------+------------------------+
    then per block, 32 bytes
    +-----------------+----------+--------+---------+---------------+---------+
    | relative_offset | position | length | records | max_timestamp | xxh3-64 |
    | u32             | u32      | u32    | u32     | i64           | u64     |
    +-----------------+----------+--------+---------+---------------+---------+

Big-endian.  A block is a run of whole batches of at least BLOCK_SIZE_MIN bytes (the last one of a
segment may be shorter).  Its checksum covers its bytes in the log and then the first 24 bytes of
its entry, so a swapped or shifted entry fails like a flipped bit.

Invariants: blocks follow each other without a hole from position 0; fixed stride, so offsets and
times are found by binary search; nothing here is needed to know the log: a missing or wrong
index is rebuilt from it.

Why 16 KiB: every read verifies whole blocks.  docs/decisions/ has the measurement.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import xxhash

from .storage import Buffer

MAGIC = b"SBIX"
VERSION = 1
HEADER = struct.Struct(">4sHHqqQ")
ENTRY = struct.Struct(">IIIIqQ")
COVERED = struct.Struct(">IIIIq")
BLOCK_SIZE_MIN = 16 * 1024

assert HEADER.size == ENTRY.size == 32
assert COVERED.size == 24


class Block(NamedTuple):
    """One entry of the index; positions and lengths in bytes."""

    relative_offset: int
    position: int
    length: int
    records: int
    max_timestamp: int
    checksum: int

    @property
    def end(self) -> int:
        return self.position + self.length


class BadIndex(Exception):
    """The bytes are no index of this segment; the caller rebuilds it."""


def block_checksum(content: Buffer, entry: bytes) -> int:
    """XXH3-64 of a block's bytes and the first 24 bytes of its entry."""
    digest = xxhash.xxh3_64(content)
    digest.update(entry[: COVERED.size])
    return digest.intdigest()


class BlockIndex:
    """The closed blocks of one segment, 32 bytes each in memory as on disk.

    Appended to by one thread; read by others at the same time: every method works on what was
    there when it began, since entries are only ever added behind.
    """

    __slots__ = ("base_offset", "created_ms", "entries")

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.entries = bytearray()

    def __len__(self) -> int:
        return len(self.entries) // ENTRY.size

    def __getitem__(self, number: int) -> Block:
        return Block._make(ENTRY.unpack_from(self.entries, number * ENTRY.size))

    def __iter__(self) -> Iterator[Block]:
        return map(Block._make, ENTRY.iter_unpack(bytes(self.entries)))

    @property
    def end_position(self) -> int:
        """Where the last closed block ends in the log."""
        return self[len(self) - 1].end if self.entries else 0

    def add(self, block: Block) -> None:
        assert block.position == self.end_position, "blocks follow each other without a hole"
        self.entries += ENTRY.pack(*block)

    def find_offset(self, relative_offset: int) -> int:
        """Number of the last block that begins at or before the offset; -1 if none does."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack_from(self.entries, middle * ENTRY.size)[0] <= relative_offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def find_time(self, timestamp_ms: int) -> int:
        """Number of the first block with a record at or after the time; len(self) if none has."""
        # Producers set timestamps, so they need not rise: no binary search is right here, and a
        # segment has few blocks.
        for number, block in enumerate(self):
            if block.max_timestamp >= timestamp_ms:
                return number
        return len(self)

    def to_bytes(self) -> bytes:
        covered = HEADER.pack(MAGIC, VERSION, 0, self.base_offset, self.created_ms, 0)[:-8]
        digest = xxhash.xxh3_64_intdigest(covered)
        return covered + digest.to_bytes(8, "big") + bytes(self.entries)

    @classmethod
    def from_bytes(cls, content: bytes, *, base_offset: int, log_size: int) -> "BlockIndex":
        """Read an index file; BadIndex unless it fits the segment to the byte."""
        if len(content) < HEADER.size or len(content) % ENTRY.size:
            raise BadIndex(f"{len(content)} bytes")
        magic, version, _, base, created_ms, digest = HEADER.unpack_from(content)
        if magic != MAGIC or version != VERSION:
            raise BadIndex(f"magic {magic!r} version {version}")
        if digest != xxhash.xxh3_64_intdigest(content[: HEADER.size - 8]):
            raise BadIndex("header checksum")
        if base != base_offset:
            raise BadIndex(f"base offset {base}, the segment begins at {base_offset}")
        index = cls(base, created_ms)
        index.entries += content[HEADER.size :]
        position = relative = 0
        for number, block in enumerate(index):
            later = number > 0
            if block.position != position or (later and block.relative_offset <= relative):
                raise BadIndex(f"block {number} is out of place")
            position, relative = block.end, block.relative_offset
        if position != log_size:
            raise BadIndex(f"covers {position} of {log_size} bytes")
        return index


class IndexBuilder:
    """The index of a segment that grows: closed blocks and the pending one.

    Fed once per batch, in order, with the bytes as stored.
    """

    __slots__ = (
        "_digest",
        "_length",
        "_max_timestamp",
        "_position",
        "_records",
        "_relative",
        "index",
    )

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self.index = BlockIndex(base_offset, created_ms)
        self._digest = xxhash.xxh3_64()
        self._position = self._length = self._records = self._relative = 0
        self._max_timestamp = -1

    @property
    def size(self) -> int:
        """Bytes the index file would have now."""
        return HEADER.size + len(self.index.entries) + (ENTRY.size if self._length else 0)

    @property
    def end_position(self) -> int:
        return self._position + self._length

    def add(self, batch: Buffer, base_offset: int, records: int, max_timestamp: int) -> None:
        if self._length == 0:
            self._relative = base_offset - self.index.base_offset
            self._max_timestamp = max_timestamp
        self._digest.update(batch)
        self._length += len(batch)
        self._records += records
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
        if self._length >= BLOCK_SIZE_MIN:
            self.close_block()

    def close_block(self) -> None:
        """End the pending block, if there is one."""
        if self._length == 0:
            return
        fields = (self._relative, self._position, self._length, self._records, self._max_timestamp)
        self._digest.update(COVERED.pack(*fields))
        self.index.add(Block(*fields, self._digest.intdigest()))
        self._digest = xxhash.xxh3_64()
        self._position += self._length
        self._length = self._records = 0

    def pending(self) -> Block | None:
        """The pending block; its checksum covers its bytes alone, not an entry."""
        if self._length == 0:
            return None
        return Block(
            self._relative,
            self._position,
            self._length,
            self._records,
            self._max_timestamp,
            self._digest.intdigest(),
        )

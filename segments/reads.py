"""A planned read: which blocks, from which files, cut where.  Made on the loop, run anywhere.

    segment k            segment k+1
    ...|block|block|  |block|block|pending|
             ^ offset               ^ up_to (high watermark)
             [------- result -------)          whole batches, the first one always

Planning looks only at memory: offsets in the manifest's columns, positions in cached indexes.  What
it finds is copied into the plan, so the log may grow, roll and seal meanwhile.  Where an index
is not cached the plan is `cold`, and reading it is the first thing that `read` does.

Every block that is read is verified against its XXH3-64 before a byte of it is used; a mismatch
raises CorruptSegment.  The first and last block are walked batch by batch to cut at whole
batches, all others are never looked into.

Why one pread and a verify instead of mmap: docs/decisions/.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from .errors import CorruptSegment
from .file_cache import FileCache
from .index import COVERED, ENTRY, Block, BlockIndex
from .storage import StorageFile

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LENGTH_END = 12
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_POSITION = 23


class Extent(NamedTuple):
    """Blocks that follow each other in one segment."""

    path: str
    base_offset: int
    entries: bytes
    """Index entries of the closed blocks."""
    pending: Block | None
    """The open block of the active segment behind them."""

    @property
    def position(self) -> int:
        if self.entries:
            return int(ENTRY.unpack_from(self.entries)[1])
        assert self.pending is not None
        return self.pending.position

    @property
    def size(self) -> int:
        if self.pending is not None:
            return self.pending.end - self.position
        last = Block._make(ENTRY.unpack_from(self.entries, len(self.entries) - ENTRY.size))
        return last.end - self.position

    def blocks(self) -> list[Block]:
        found = list(map(Block._make, ENTRY.iter_unpack(self.entries)))
        if self.pending is not None:
            found.append(self.pending)
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """A segment that a plan may need."""

    path: str
    base_offset: int
    size: int
    index: BlockIndex | None
    """None: not in memory; `load` gets it."""
    load: Callable[[], BlockIndex] | None
    pending: Block | None


def extent_of(
    source: Source, index: BlockIndex, offset: int, max_bytes: int, up_to: int
) -> Extent | None:
    """The blocks of one segment that hold offsets from `offset` to `up_to`, about `max_bytes`."""
    base, count = source.base_offset, len(index)
    pending = source.pending
    first = max(0, index.find_offset(max(0, offset - base)))
    if pending is not None and pending.relative_offset <= offset - base:
        first = count
    stop = count
    # Blocks that begin at or past the bound hold nothing visible.
    if up_to - base <= 2**32 - 1:
        stop = min(stop, index.find_offset(up_to - base - 1) + 1)
        if pending is not None and pending.relative_offset >= up_to - base:
            pending = None
    if stop < count:
        pending = None
    size = 0
    number = first
    while number < stop:
        length = index[number].length
        if size + length > max_bytes and size >= max_bytes // 2:
            break  # end at a block: the next read then begins at one and nothing is moved over
        size += length
        number += 1
        if size >= max_bytes:
            break
    if size >= max_bytes or number < stop:
        pending = None
    if number <= first and pending is None:
        return None
    entries = bytes(index.entries[first * ENTRY.size : number * ENTRY.size])
    return Extent(source.path, base, entries, pending)


class ReadPlan:
    """One read, planned.  Use once, then `release`."""

    def __init__(
        self,
        files: FileCache,
        sources: Sequence[Source],
        offset: int,
        max_bytes: int,
        up_to: int,
        *,
        all_visible: bool,
    ) -> None:
        self._files = files
        self._all_visible = all_visible
        self._offset = offset
        self._max_bytes = max_bytes
        self._up_to = up_to
        self._sources = sources
        self._extents: list[Extent] | None = None
        if all(source.index is not None for source in sources):
            self._extents = self._find_extents()
            self.size_max = sum(extent.size for extent in self._extents)
        else:
            # Without its index only the segment's size is known: the first batch may be all of it.
            first = sources[0].size
            self.size_max = min(sum(s.size for s in sources), max(max_bytes, first) + first)

    @property
    def cold(self) -> bool:
        """Whether `read_nowait` is bound to answer None."""
        return self._extents is None

    def read_nowait(self, buffer: memoryview) -> int | None:
        """Fill `buffer` from memory alone.

        Args:
            buffer: at least `size_max` bytes, writable.

        Returns:
            Bytes of whole batches from the start of `buffer`, or None when the disk would have to
            be waited for.

        Raises:
            CorruptSegment: a block does not match its checksum.
            OSError: the disk failed.
        """
        if self._extents is None:
            return None
        return self._run(buffer, self._extents, nowait=True)

    def read(self, buffer: memoryview) -> int:
        """The same, waiting for the disk; for a lane."""
        if self._extents is None:
            self._extents = self._find_extents(len(buffer))
        count = self._run(buffer, self._extents, nowait=False)
        assert count is not None
        return count

    def release(self) -> None:
        """Let go of the segments.  Files are pinned only while a read runs, so this is cheap."""
        self._sources = ()

    def _find_extents(self, size_limit: int | None = None) -> list[Extent]:
        extents: list[Extent] = []
        size = 0
        for source in self._sources:
            index = source.index
            if index is None:
                assert source.load is not None
                index = source.load()
            wanted = self._max_bytes - size
            extent = extent_of(source, index, self._offset, max(wanted, 1), self._up_to)
            if extent is None:
                continue
            if size_limit is not None and size + extent.size > size_limit:
                if not extents:
                    raise AssertionError(f"{extent.size} bytes do not fit {size_limit}")
                break
            extents.append(extent)
            size += extent.size
            if size >= self._max_bytes or extent.position + extent.size < source.size:
                break
        assert extents, "a plan is made only where there is something to read"
        return extents

    def _run(self, buffer: memoryview, extents: list[Extent], *, nowait: bool) -> int | None:
        size = 0
        last: tuple[int, Block, int] | None = None
        for extent in extents:
            file = self._files.pin(extent.path, nowait=nowait)
            if file is None:
                return None
            try:
                done = self._read_extent(
                    file, extent, buffer[size:], first=size == 0, nowait=nowait
                )
            finally:
                self._files.unpin(extent.path, file)
            if done is None:
                return None
            block = extent.blocks()[-1]
            size += done
            last = (max(0, size - block.length), block, extent.base_offset)
        assert last is not None
        return self._cut(buffer, size, last[0])

    def _read_extent(
        self, file: StorageFile, extent: Extent, into: memoryview, *, first: bool, nowait: bool
    ) -> int | None:
        position, size = extent.position, extent.size
        content = into[:size]
        if nowait:
            if file.pread_nowait(content, position) is None:
                return None
        else:
            count = file.pread(content, position)
            if count != size:
                raise CorruptSegment(extent.path, position + count, f"ends {size - count} early")
        blocks = extent.blocks()
        _verify(extent, blocks, content)
        if first and extent.base_offset + blocks[0].relative_offset < self._offset:
            skipped = _batch_of(content[: blocks[0].length], self._offset)
            if skipped:
                size -= skipped
                content[:size] = content[skipped:]
        return size

    def _cut(self, buffer: memoryview, size: int, walk_from: int) -> int:
        """Where the result ends: whole batches, within max_bytes and up_to, never none."""
        if self._all_visible and size <= self._max_bytes:
            return size
        position = end = walk_from
        while position < size:
            base, length = _OFFSET_AND_LENGTH.unpack_from(buffer, position)
            after = position + _LENGTH_END + length
            if base >= self._up_to or (after > self._max_bytes and end > 0):
                break
            position = end = after
        return end


def _verify(extent: Extent, blocks: list[Block], content: memoryview) -> None:
    start = extent.position
    entries = extent.entries
    at = 0
    for number, block in enumerate(blocks):
        a = block.position - start
        digest = xxhash.xxh3_64(content[a : a + block.length])
        if at < len(entries):
            digest.update(entries[at : at + COVERED.size])
            at += ENTRY.size
        if digest.intdigest() != block.checksum:
            raise CorruptSegment(
                extent.path, block.position, f"block {number} does not match its checksum"
            )


def _batch_of(block: memoryview, offset: int) -> int:
    """Position of the batch that contains `offset` (or of the first behind it)."""
    position = 0
    while position < len(block):
        base, length = _OFFSET_AND_LENGTH.unpack_from(block, position)
        (delta,) = _LAST_DELTA.unpack_from(block, position + _LAST_DELTA_POSITION)
        if base + delta >= offset:
            break
        position += _LENGTH_END + length
    return position

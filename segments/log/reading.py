"""Reads: planned on the loop without I/O, done from the page cache or in a lane, verified always.

    plan      which bytes of which segments; pins what is not sealed
    read      bytes into the caller's buffer, each block compared with its XXH3-64 there,
              then cut so that the first batch contains the offset and the last one is whole

A piece of a sealed segment is a run of index blocks: they are read whole, because the checksum
covers them whole, and a first block that begins before the offset is cut after verification.  A
piece of an active segment is a run of batches, each with its checksum in memory.  When a sealed
segment's index is not loaded the plan only knows how much could come; the rest happens in `read`.

Invariants: bytes that failed their checksum never leave (CorruptSegment); a read that meets
damage returns what is whole in front of it and nothing from behind it; the same plan may be read
again until released.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from segbroker.protocol.batch_layout import LAST_OFFSET_DELTA_POSITION, LENGTH_END
from segbroker.protocol.checksums import xxh3_64

from ..errors import CorruptSegment, SegmentReplaced, StorageError
from ..files.index import BlockIndex
from ..files.manifest import Row
from .sealed import Behind, SealedFiles
from .segment import ActiveSegment

_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_LAST_DELTA: Final = struct.Struct(">i")


def cut(buffer: memoryview, size: int, offset: int, max_bytes: int, up_to: int) -> int:
    """Reduce `size` bytes of whole batches in `buffer` to those wanted; the bytes that are left.

    From the batch that contains `offset` on, nothing at or past `up_to`, at most `max_bytes` but
    at least one batch.  The bytes are moved to the front of the buffer.
    """
    start = position = 0
    began = False
    while position < size:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(buffer, position)
        (delta,) = _LAST_DELTA.unpack_from(buffer, position + LAST_OFFSET_DELTA_POSITION)
        end = position + LENGTH_END + length
        if not began:
            if base_offset + delta < offset:
                position = end
                continue
            start, began = position, True
        if base_offset >= up_to or (position > start and end - start > max_bytes):
            break
        position = end
    if start:
        buffer[: position - start] = buffer[start:position]
    return position - start


class Piece(Protocol):
    """A part of a plan: of one segment."""

    size_max: int

    @property
    def is_whole(self) -> bool:
        """Whether what was read reaches the end of its segment, so another piece may follow."""
        ...

    def read_nowait(self, buffer: memoryview) -> int | None: ...

    def read(self, buffer: memoryview) -> int: ...


class ActivePiece:
    """Batches [first, last) of a segment that is not sealed."""

    __slots__ = ("_first", "_last", "_position", "_segment", "is_whole", "size_max")

    def __init__(self, segment: ActiveSegment, first: int, last: int) -> None:
        self._segment = segment
        self._first = first
        self._last = last
        self._position = segment.position_of(first)
        self.size_max = segment.position_of(last) - self._position
        self.is_whole = True

    def read_nowait(self, buffer: memoryview) -> int | None:
        count = self._segment.read_nowait(buffer, self._position)
        if count != self.size_max or self._whole(buffer, count) != count:
            return None  # the lane finds out what is whole on the disk
        return count

    def read(self, buffer: memoryview) -> int:
        count = self._whole(buffer, self._segment.read(buffer, self._position))
        self.is_whole = count == self.size_max
        if not count:
            raise CorruptSegment(
                self._segment.path, self._position, "not the bytes that were written"
            )
        return count

    def _whole(self, buffer: memoryview, count: int) -> int:
        """How many of the first `count` bytes are batches as they were written."""
        segment = self._segment
        sums, positions, base = segment.sums, segment.positions, self._position
        begin = 0
        for ordinal in range(self._first, self._last):
            following = ordinal + 1
            end = positions[following] - base if following < self._last else self.size_max
            if end > count or xxh3_64(buffer[begin:end]) != sums[ordinal]:
                break
            begin = end
        return begin


class SealedPiece:
    """Blocks of a sealed segment from the one that holds `offset` on."""

    __slots__ = (
        "_behind",
        "_files",
        "_first",
        "_index",
        "_last",
        "_max_bytes",
        "_offset",
        "_row",
        "_up_to",
        "is_cut",
        "size_max",
    )

    def __init__(
        self,
        files: SealedFiles,
        row: Row,
        offset: int,
        max_bytes: int,
        up_to: int,
        behind: Behind,
    ) -> None:
        """`is_cut`: the segment has more below `up_to` than there is room for."""
        self._behind = behind
        self._files = files
        self._row = row
        self._offset = offset
        self._max_bytes = max_bytes
        self._up_to = up_to
        self._index = files.index_nowait(row.number)
        self._first = self._last = 0
        self.is_cut = False
        if self._index is None:
            self.size_max = min(row.size, max(max_bytes, row.block_size_max))
        else:
            self.size_max = self._choose(self._index, max_bytes)

    @property
    def is_whole(self) -> bool:
        """Whether the piece reaches the end of its segment."""
        return self._index is not None and self._last == len(self._index.blocks)

    def _choose(self, index: BlockIndex, size_max: int) -> int:
        """Decide which blocks to read; their bytes.  The first always, others while they fit."""
        first = max(0, index.block_at(self._offset))
        begin = index.blocks[first].position
        limit = len(index.blocks)
        if self._up_to < self._row.end_offset:
            limit = bisect_left(index.offsets, self._up_to - self._row.base_offset)
        last = max(first + 1, min(bisect_right(index.ends, begin + size_max), limit))
        self._first, self._last, self.is_cut = first, last, last < limit
        return index.ends[last - 1] - begin

    def read_nowait(self, buffer: memoryview) -> int | None:
        index = self._index
        if index is None:
            return None
        file = self._files.pin_nowait(self._row.number)
        if file is None:
            return None
        try:
            count = file.pread_nowait(buffer, index.blocks[self._first].position)
        finally:
            self._files.unpin(self._row.number, file)
        if count is None or index.first_wrong(self._first, self._last, buffer) is not None:
            return None  # the lane finds out whether the index or the log is wrong
        return self._cut(index, buffer, count)

    def read(self, buffer: memoryview) -> int:
        index = self._index
        if index is None:
            index = self._files.index(self._row)
            self._choose(index, len(buffer))
        elif self._last <= self._first:
            self._choose(index, len(buffer))  # read again after it failed
        if self._last == len(index.blocks):
            # Who reads this one reads on there; meanwhile the disk has nothing to do.
            self._files.make_ready(self._row.number, self._behind)
        count = self._read_blocks(index, buffer)
        if not count:
            index = self._files.rebuild(self._row)
            self._choose(index, len(buffer))
            if index.blocks[self._first].length > len(buffer):
                # The blocks of the new index are other ones.  The next plan knows them.
                path = self._files.paths.index(self._row.number)
                raise StorageError(f"{path} was rebuilt; read again")
            count = self._read_blocks(index, buffer)
            if not count:
                raise CorruptSegment(
                    self._files.paths.log(self._row.number),
                    index.blocks[self._first].position,
                    "XXH3-64 of a block does not match",
                )
        self._index = index
        return self._cut(index, buffer, count)

    def _read_blocks(self, index: BlockIndex, buffer: memoryview) -> int:
        """The bytes of the chosen blocks up to the first wrong one; 0 when that is the first."""
        begin = index.blocks[self._first].position
        file = self._files.pin(self._row.number)
        try:
            while True:
                size = index.ends[self._last - 1] - begin
                try:
                    count = file.pread(buffer[:size], begin)
                    break
                except OSError as exc:
                    if self._last - self._first == 1:
                        raise StorageError(f"cannot read {file.path}: {exc}") from exc
                    # What lies in front of a bad sector is as good as before.
                    self._last = (self._first + self._last) // 2
        finally:
            self._files.unpin(self._row.number, file)
        # Nothing behind damage, or a cut, is read in its place.
        if count < size:
            self._last = bisect_right(index.ends, begin + count)
        if self._first < self._last:
            wrong = index.first_wrong(self._first, self._last, buffer)
            self._last = self._last if wrong is None else wrong
        return index.ends[self._last - 1] - begin if self._first < self._last else 0

    def _cut(self, index: BlockIndex, buffer: memoryview, count: int) -> int:
        starts_here = index.base_offset + index.blocks[self._first].offset == self._offset
        if starts_here and self._up_to >= self._row.end_offset and count <= self._max_bytes:
            return count
        return cut(buffer, count, self._offset, self._max_bytes, self._up_to)


class ReadPlan:
    """Bytes to be read: `size_max` is how large the buffer has to be."""

    __slots__ = ("_mend", "_pieces", "_release", "is_cut", "size_max")

    def __init__(
        self,
        pieces: list[Piece],
        release: Callable[[], None],
        mend: Callable[[CorruptSegment], bool] | None,
        *,
        is_cut: bool,
    ) -> None:
        """mend: repairs a damaged segment, in the thread that read it; whether it is whole now.
        is_cut: there is more to read behind it, for which there was no room, or which is not known
        yet."""
        self.is_cut = is_cut
        self._pieces = pieces
        self._mend = mend
        self._release: Callable[[], None] | None = release
        self.size_max = sum(piece.size_max for piece in pieces)

    def read_nowait(self, buffer: memoryview) -> int | None:
        """Read from memory; the bytes put into `buffer`, or None: use a lane.

        Raises StorageError.
        """
        try:
            return self._read(buffer, lambda piece, part: piece.read_nowait(part))
        except CorruptSegment:
            return None  # the lane reads it again, and sees to it

    def read(self, buffer: memoryview) -> int:
        """Read; the bytes put into `buffer`.  May wait for the disk.

        Raises CorruptSegment, SegmentReplaced (plan again), StorageError.
        """
        try:
            count = self._read(buffer, lambda piece, part: piece.read(part))
        except CorruptSegment as exc:
            if self._mend is None or not self._mend(exc):
                raise
            raise SegmentReplaced(exc.path) from exc
        assert count is not None, "a blocking read is never put off"
        return count

    def release(self) -> None:
        """Let go of the segments; a second time does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def _read(self, buffer: memoryview, read: "_Reader") -> int | None:
        if self._release is None:
            raise StorageError("the read plan has been released")
        size = 0
        for piece in self._pieces:
            try:
                count = read(piece, buffer[size : size + piece.size_max])
            except OSError as exc:
                if not size:
                    raise StorageError(f"cannot read: {exc}") from exc
                break
            except StorageError:
                if not size:
                    raise
                break  # what is in front of the damage is good; the next read reports it
            if count is None:
                return size or None
            size += count
            if not piece.is_whole:
                break  # it ended early: what follows in the plan is not what follows in the log
        return size


_Reader: TypeAlias = Callable[[Piece, memoryview], int | None]

"""Whether a file is the segment that it is named after: one copied or swapped in may be valid.

A file of another partition, or of another place of this log, is whole by itself: its batches are
valid and follow each other.  What is ours and damaged is not.  So, for a sealed segment:

| the file | is |
|---|---|
| whole, ends where the row says, tag and size of the row | the segment |
| whole, ends there, holds a gap of reason corruption | the segment, repaired; its row is late |
| begins as an index, a manifest, a file of the write-ahead log | a stranger |
| several valid batches, some outside of [base, end) | a stranger |
| whole by itself, and nothing of the above | a stranger, unless the index has its first block |
| not whole, several blocks of an index of this tag, none of which matches | a stranger |
| anything else | the segment, damaged |

and for the segment of a CHECKPOINT row, which was synced up to (size, end):

| the file | is |
|---|---|
| whole by itself, no gap in it, no batch that ends at `size` with offset `end` | a stranger |
| anything else | the segment |

A stranger says nothing about this log: it is kept aside, and all that the segment held is a gap.
What cannot be told apart: a damaged stranger in the place of a segment of one block.
"""

from typing import Final, NamedTuple

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.record_batch import GapReason, gap_reason

from ..decisions import Epochs, Scan, Tail, epoch_at, scan
from ..disk.storage import Storage, read_file
from ..files.index import BlockIndex, WrongIndex, decode_index, segment_tag
from ..files.manifest import Row, RowKind
from ..names import LogPaths

_MARK: Final = b"SB"


def is_other_format(data: memoryview) -> bool:
    """Whether a file begins as our other files do: as a base offset this is above 2^62."""
    return bytes(data[: len(_MARK)]) == _MARK


class Inspection(NamedTuple):
    """What stands under the name of a sealed segment."""

    data: memoryview
    scan: Scan
    is_whole: bool
    """It is the segment, and nothing is missing in it."""
    is_stranger: bool
    """It is not the segment; nothing of it may be served."""

    @property
    def ours(self) -> memoryview:
        """The bytes that a repair may take something from."""
        return self.data[:0] if self.is_stranger else self.data

    @property
    def reason(self) -> str:
        """What is wrong with it, in a few words."""
        if not len(self.data):
            return "missing"
        if self.is_stranger:
            return "the segment of another log, or of another place"
        return f"{self.scan.tail.value} at byte {self.scan.valid_size}"


def inspect(storage: Storage, paths: LogPaths, row: Row, epochs: Epochs) -> Inspection:
    """What stands there.  A missing file is an empty one.  Raises OSError."""
    try:
        data = memoryview(read_file(storage, paths.log(row.number)))
    except FileNotFoundError:
        data = memoryview(b"")
    found = scan(data, row.base_offset, epochs=epochs)
    if _ends_as(found, row) and (_is_as_sealed(data, found, row) or _holds_gap(found)):
        return Inspection(data, found, is_whole=True, is_stranger=False)
    index = own_index(storage, paths, row)
    stranger = bool(len(data)) and _is_stranger(data, row, index, epochs)
    return Inspection(data, found, is_whole=False, is_stranger=stranger)


def is_segment(data: memoryview, row: Row, epochs: Epochs = ()) -> bool:
    """Whether these bytes are the segment as it was sealed."""
    found = scan(data, row.base_offset, epochs=epochs)
    return _ends_as(found, row) and _is_as_sealed(data, found, row)


def _ends_as(found: Scan, row: Row) -> bool:
    return found.tail is Tail.WHOLE and found.next_offset == row.end_offset


def _is_as_sealed(data: memoryview, found: Scan, row: Row) -> bool:
    return len(data) == row.size and row.tag in (0, _tag_of(data, found))


def is_behind_checkpoint(data: memoryview, size: int, end_offset: int) -> bool:
    """Whether a file, which begins as no other of our files does, may be the segment that was
    synced up to (size, end_offset)."""
    alone = scan(data, None)
    if alone.tail is not Tail.WHOLE or not alone.batches or _holds_gap(alone):
        return True
    if not size:
        # It was empty then: all that it says is where the first batch begins.
        return alone.batches[0].header.base_offset == end_offset
    return any(
        at + header.size == size and header.next_offset == end_offset
        for at, header in alone.batches
    )


def _is_stranger(data: memoryview, row: Row, index: BlockIndex | None, epochs: Epochs) -> bool:
    if is_other_format(data):
        return True
    alone = scan(data, None)
    if alone.tail is Tail.WHOLE and len(data) == row.size:
        wrong = sum(
            header.leader_epoch != epoch_at(epochs, header.base_offset)
            for _, header in alone.batches
        )
        if epochs and wrong == 1:
            return False  # whole but for one leader epoch, which lies outside of the CRC
    if len(alone.batches) > 1:  # one alone may have lost a bit of its offset
        first, last = alone.batches[0].header, alone.batches[-1].header
        if first.base_offset < row.base_offset or last.next_offset > row.end_offset:
            return True
    if index is None or not index.blocks:
        return alone.tail is Tail.WHOLE and bool(alone.batches)
    matches = [
        index.matches(ordinal, data[block.position : block.position + block.length])
        for ordinal, block in enumerate(index.blocks)
        if block.position + block.length <= len(data)
    ]
    if alone.tail is Tail.WHOLE and alone.batches:
        return not (matches and matches[0])
    return len(matches) > 1 and not any(matches)


def own_index(storage: Storage, paths: LogPaths, row: Row) -> BlockIndex | None:
    """The index if it is the one that was written for this segment."""
    try:
        content = read_file(storage, paths.index(row.number))
        return decode_index(content, row.base_offset, row.size, row.tag)
    except (WrongIndex, OSError):
        return None


def has_index(
    storage: Storage, paths: LogPaths, number: int, base_offset: int, data: memoryview
) -> bool:
    """Whether a segment has an index that was written for it, as what a cleaning made has: a file
    that somebody copies has none."""
    index = own_index(storage, paths, Row(RowKind.SEGMENT, number, base_offset, size=len(data)))
    return index is not None and index.matches(0, data[: index.blocks[0].length])


def _tag_of(data: memoryview, found: Scan) -> int:
    return segment_tag([xxh3_64(data[at : at + header.size]) for at, header in found.batches])


def _holds_gap(found: Scan) -> bool:
    return any(gap_reason(header) is GapReason.CORRUPTION for _, header in found.batches)

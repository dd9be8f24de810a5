"""What a read will touch: pieces of segments, chosen without I/O, on the loop.

    sealed ... | sealed | rotating | active |
         ^ offset: first block or batch that holds it       ^ up_to: nothing at or past it

A plan goes on into the next segment as long as the limit leaves room.  It pins segments that are
not sealed, so that their files are neither closed nor deleted; the read itself pins sealed ones.
Of a sealed segment whose index is not loaded it is known only where it begins and ends: it is
planned whole or, where it does not fit or the plan begins inside, ends the plan, with an upper
bound as its size.
"""

from collections.abc import Iterator
from typing import Final

from segbroker.protocol.record_batch import iter_batches, read_header

from ..errors import OffsetOutOfRange, SegmentReplaced, StorageError
from .partition_log import PartitionLog
from .reading import ActivePiece, Piece, ReadPlan, SealedPiece
from .segment import ActiveSegment

PIECES_MAX: Final = 64
"""Segments that one read may span."""
REPAIRS_MAX: Final = 4
"""How often one read begins anew because a segment was repaired under it."""


def plan_read(log: PartitionLog, offset: int, max_bytes: int, up_to: int) -> ReadPlan | None:
    """What to read from `offset` on, below `up_to`; None when there is nothing yet.

    No I/O.  Raises OffsetOutOfRange.
    """
    pieces: list[Piece] = []
    pinned: list[ActiveSegment] = []
    room = max(1, max_bytes)
    with log.state_lock:
        # Under the lock: the front of the log may go at any moment.
        if not log.log_start_offset <= offset <= log.active.next_offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.active.next_offset)
        if offset >= up_to:
            return None
        if log.is_closed:
            raise StorageError(f"{log.paths.folder} is closed")
        while offset < up_to and room > 0 and len(pieces) < PIECES_MAX:
            if offset < log.sealed.end_offset:
                following = _plan_sealed(log, pieces, offset, room, up_to)
            else:
                following = _plan_active(log, pieces, pinned, offset, room, up_to)
            if following is None:
                break
            room -= pieces[-1].size_max
            offset = following
        for segment in pinned:
            segment.pins += 1
    if not pieces:
        return None
    if not pinned:
        return ReadPlan(pieces, _nothing, log.on_damage, is_cut=offset < up_to)
    log.recently_used = True
    if log.active.file is None:
        log.open_logs.add(log)  # the read will open it
    return ReadPlan(pieces, lambda: log.unpin(pinned), log.on_damage, is_cut=offset < up_to)


def _nothing() -> None:
    pass


def _plan_sealed(
    log: PartitionLog, pieces: list[Piece], offset: int, room: int, up_to: int
) -> int | None:
    """Add a piece of a sealed segment; the offset to go on at, None to stop in front of more."""
    row = log.sealed.row_at(log.sealed.find(offset))
    index = log.files.index_nowait(row.number)
    is_whole = offset == row.base_offset and row.size <= room
    if pieces and not is_whole and (index is None or index.blocks[0].length > room):
        return None  # most plans of one segment's size end here
    piece = SealedPiece(log.files, row, offset, room, up_to, log.sealed_behind)
    pieces.append(piece)
    if up_to <= row.end_offset and not piece.is_cut:
        return up_to
    is_whole = piece.is_whole or (index is None and is_whole)
    return row.end_offset if is_whole and piece.size_max <= room else None


def _plan_active(
    log: PartitionLog,
    pieces: list[Piece],
    pinned: list[ActiveSegment],
    offset: int,
    room: int,
    up_to: int,
) -> int | None:
    """Add a piece of a segment that is not sealed; as `_plan_sealed`."""
    for segment in (*log.rotating, log.active):
        if offset < segment.next_offset:
            break
    else:
        return None
    first = segment.find(offset)
    limit = segment.ordinal_before(up_to)
    begin = segment.position_of(first)
    last = limit
    if segment.position_of(limit) - begin > room:
        last = _last_within(segment, first, limit, begin + room)
        if last == first:
            if pieces:
                return None
            last = first + 1
    if last <= first:
        return None
    piece = ActivePiece(segment, first, last)
    pieces.append(piece)
    pinned.append(segment)
    if last == limit and up_to <= segment.next_offset:
        return up_to
    whole = last == len(segment.offsets) and segment is not log.active
    return segment.next_offset if whole and piece.size_max <= room else None


def read_all(
    log: PartitionLog, offset: int, max_bytes: int, up_to: int | None = None
) -> memoryview:
    """Whole batches from `offset` on: plan, read and release.  Blocking; may be empty."""
    end = log.log_end_offset if up_to is None else up_to
    for _ in range(REPAIRS_MAX):
        plan = plan_read(log, offset, max_bytes, end)
        if plan is None:
            return memoryview(b"")
        try:
            buffer = memoryview(bytearray(plan.size_max))
            return buffer[: plan.read(buffer)]
        except SegmentReplaced:
            continue
        finally:
            plan.release()
    raise StorageError(f"{log.paths.folder} is repaired again and again at offset {offset}")


def batches(log: PartitionLog, start: int, end: int) -> Iterator[memoryview]:
    """Every batch that has offsets in [start, end), verified; blocking."""
    while start < end:
        found = read_all(log, start, 1 << 20, end)
        if not len(found):
            return
        for batch in iter_batches(found):
            yield batch
            start = read_header(batch).next_offset


def _last_within(segment: ActiveSegment, first: int, limit: int, position: int) -> int:
    """The ordinal up to which batches end at or before `position`."""
    low, high = first, limit
    while low < high:
        middle = (low + high + 1) // 2
        if segment.position_of(middle) <= position:
            low = middle
        else:
            high = middle - 1
    return low

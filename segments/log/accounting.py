"""What became of offsets that are not records: the account that a consumer can check its sum by.

    0 ........ evict floor ....... log start ......... gap ........... high watermark
      lost, with the reason   deleted on purpose   records   a gap    records

Below the log start the START row of the manifest says it, above it gaps do, which are batches of
the log (record_batch.gap_batches).  A segment that holds as many records as offsets has none, so
only the others are read, and at most READ_BYTES_MAX of them in one call.

Where records were deleted on purpose and others in front of them evicted later, all of it counts as
evicted: what is told as lost is lost at most.
"""

from typing import Final, NamedTuple

from segbroker.protocol.record_batch import GapReason, gap_reason, read_header

from .partition_log import PartitionLog
from .planning import batches

READ_BYTES_MAX: Final = 8 << 20
RANGES_MAX: Final = 10_000


class Missing(NamedTuple):
    """Offsets [begin, end) that no record has, and why."""

    begin: int
    end: int
    reason: GapReason


class Account(NamedTuple):
    """What is missing, in order; `next` is where to ask on, None when all was looked at."""

    missing: list[Missing]
    next: int | None


def account(log: PartitionLog, begin: int, end: int) -> Account:
    """What is missing of the offsets [begin, end), as far as the bounds of one call go.

    Blocking.  Raises CorruptSegment, StorageError, OSError.
    """
    end = min(end, log.log_end_offset)
    found: list[Missing] = []
    with log.state_lock:  # what is evicted moves both
        floor, start = log.floor, log.log_start_offset
    if begin < floor.offset and begin < end:
        found.append(Missing(begin, min(floor.offset, end), GapReason(floor.reason)))
    if floor.offset < start and begin < start and floor.offset < end:
        found.append(Missing(max(begin, floor.offset), min(start, end), GapReason.DELETED))
    offset, room = max(begin, start), READ_BYTES_MAX
    while offset < end:
        if room <= 0 or len(found) >= RANGES_MAX:
            return Account(found, offset)
        until, has_gaps, size = _segment_at(log, offset)
        until = min(until, end)
        if has_gaps:
            found += _gaps(log, offset, until)
            room -= size
        offset = max(until, offset + 1)
    return Account(_joined(found), None)


def _segment_at(log: PartitionLog, offset: int) -> tuple[int, bool, int]:
    """(end of the segment that holds `offset`, whether offsets are missing in it, its bytes)."""
    with log.state_lock:
        sealed = log.sealed
        if len(sealed) and offset < sealed.end_offset:
            place = max(0, sealed.find(offset))
            end = sealed.end_of(place)
            span = end - sealed.base_offsets[place]
            return end, sealed.records[place] != span, sealed.sizes[place]
        for segment in (*log.rotating, log.active):
            if offset < segment.next_offset:
                span = segment.next_offset - segment.base_offset
                return segment.next_offset, segment.records != span, segment.size
        return log.active.next_offset, False, 0


def _gaps(log: PartitionLog, begin: int, end: int) -> list[Missing]:
    found = []
    for batch in batches(log, begin, end):
        header = read_header(batch)
        reason = gap_reason(header)
        if reason is not None:
            found.append(
                Missing(max(begin, header.base_offset), min(end, header.next_offset), reason)
            )
    return found


def _joined(found: list[Missing]) -> list[Missing]:
    """Neighbours of one reason as one: a long gap lies in several batches."""
    joined: list[Missing] = []
    for one in found:
        if joined and joined[-1].end == one.begin and joined[-1].reason == one.reason:
            joined[-1] = joined[-1]._replace(end=one.end)
        else:
            joined.append(one)
    return joined

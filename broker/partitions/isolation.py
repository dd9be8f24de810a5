"""What readers of committed records see: up to the last stable offset, without aborted ranges.

    isolation 0   below the high watermark, everything; no list of aborted transactions
    isolation 1   below the last stable offset; with the aborted ranges that touch what is sent

The reader drops the batches of an aborted producer from the range's first offset to its marker.  So
a range that ended before the bytes of the read must not be in the list: the reader would find no
marker and drop later batches.  For the same reason what is sent ends with the gap in which a marker
was lost to damage: the next read begins behind it, without the range.

The ranges are taken with the plan of a read, and cut to what was read afterwards: retention may
forget them in between, while the read still has their batches.  They have to be those of the plan:
between the two a lane may forget some, with their batches (retention) or their markers (a
cleaning).
"""

from typing import Final, cast

from segbroker.protocol import kernel
from segbroker.protocol.batch_layout import HEADER_SIZE
from segbroker.protocol.messages_core import FetchResponseAbortedTransaction
from segbroker.segments.log.transaction_index import AbortedRanges
from segbroker.segments.partition.handler import DiskHandler, ReadPlan

READ_COMMITTED: Final = 1


def visible_end(handler: DiskHandler, isolation_level: int) -> int:
    """The first offset that a reader may not see yet."""
    if isolation_level == READ_COMMITTED:
        return handler.last_stable_offset
    return handler.high_watermark


def plan_visible(
    handler: DiskHandler, offset: int, size_max: int, isolation_level: int
) -> tuple[ReadPlan | None, AbortedRanges | None]:
    """What a reader may be sent from `offset` on, `size_max` bytes, as `plan_read` plans it; and
    with what of it was aborted, for a reader of committed records.  Raises what that raises."""
    while True:
        ranges = handler.transactions.ranges()
        plan = handler.plan_read(offset, size_max, up_to=visible_end(handler, isolation_level))
        if isolation_level != READ_COMMITTED:
            return plan, None
        # Where some are forgotten the others make up another list, before the segments change.
        if handler.transactions.ranges().rows is ranges.rows:
            return plan, ranges
        if plan is not None:
            plan.release()


def committed_part(
    ranges: AbortedRanges, fetch_offset: int, records: memoryview
) -> tuple[memoryview, list[FetchResponseAbortedTransaction]]:
    """What is sent of these batches, up to the first gap that has a range's marker in it; and the
    rows of a reply with that."""
    # Each batch is of a marker at most, and a gap with more of them is the last.
    lasts = ranges.lasts_from(fetch_offset, len(records) // HEADER_SIZE)
    if not lasts:
        return records, []
    size, end = kernel.backend.until_gap(records, lasts)
    # A range has the fields of its row: there may be a hundred thousand, so none is made.
    rows = cast(list[FetchResponseAbortedTransaction], ranges.between(fetch_offset, end))
    return records[:size], rows

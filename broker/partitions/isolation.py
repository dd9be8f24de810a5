"""What readers of committed records see: up to the last stable offset, without aborted ranges.

    isolation 0   below the high watermark, everything; no list of aborted transactions
    isolation 1   below the last stable offset; with the aborted ranges that touch what is sent

The reader drops the batches of an aborted producer from the range's first offset to its marker.  So
a range that ended before the bytes of the read must not be in the list: the reader would find no
marker and drop later batches.  For the same reason what is sent ends with the gap in which a marker
was lost to damage: the next read begins behind it, without the range.

The ranges are taken when a read is planned, and cut to what was read afterwards: retention may
forget them in between, while the read still has their batches.
"""

from typing import Final

from segbroker.protocol.messages_core import FetchResponseAbortedTransaction
from segbroker.protocol.record_batch import gap_reason, iter_batches, read_header
from segbroker.segments.log.transaction_index import NONE_OPEN, AbortedRanges
from segbroker.segments.partition.handler import DiskHandler

READ_COMMITTED: Final = 1


def visible_end(handler: DiskHandler, isolation_level: int) -> int:
    """The first offset that a reader may not see yet."""
    if isolation_level == READ_COMMITTED:
        return handler.last_stable_offset
    return handler.high_watermark


def until_lost_marker(ranges: AbortedRanges, fetch_offset: int, records: memoryview) -> memoryview:
    """Of these batches those up to the first gap that has a range's marker in it."""
    if not len(records) or not ranges.ends_in(fetch_offset, NONE_OPEN):
        return records
    size = 0
    for batch in iter_batches(records):
        size += len(batch)
        header = read_header(batch)
        if gap_reason(header) is not None and ranges.ends_in(
            header.base_offset, header.next_offset
        ):
            return records[:size]
    return records


def aborted_in(
    ranges: AbortedRanges, fetch_offset: int, records: memoryview
) -> list[FetchResponseAbortedTransaction]:
    """The rows of a reply with these batches."""
    if not ranges.rows or not len(records):
        return []
    end = fetch_offset
    for batch in iter_batches(records):
        end = read_header(batch).next_offset
    return [
        FetchResponseAbortedTransaction(producer_id=row.producer_id, first_offset=row.first_offset)
        for row in ranges.between(fetch_offset, end)
    ]

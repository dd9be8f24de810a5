"""The batches of a read, as a share group sees them: which offsets hold records for a reader.

Markers, gaps and batches without records hold none, and for readers of committed records those of
aborted transactions.
"""

from collections.abc import Sequence
from typing import NamedTuple

from segbroker.protocol.record_batch import BatchHeader, iter_batches, read_header
from segbroker.segments.transaction_index import AbortedRanges

from .share_partition import Acquired, Batch


class Fetched(NamedTuple):
    """Whole batches, one behind the other."""

    records: memoryview
    batches: list[Batch]
    stops: list[int]
    """Where each batch ends in `records`."""

    def with_records(self, acquired: Sequence[Acquired]) -> memoryview:
        """The batches from the first to the last of which something was acquired."""
        if not acquired:
            return self.records[:0]
        first, last = acquired[0].first, acquired[-1].last
        start = stop = 0
        for batch, end in zip(self.batches, self.stops, strict=True):
            if batch.last < first:
                start = end
            stop = end
            if batch.last >= last:
                break
        return self.records[start:stop]


def fetched(records: memoryview, aborted: AbortedRanges | None) -> Fetched:
    """Look through what was read; aborted: for a reader of committed records."""
    batches, stops, stop = [], [], 0
    for batch in iter_batches(records):
        header = read_header(batch)
        stop += len(batch)
        has_records = not header.is_control and header.records_count > 0
        if has_records and aborted is not None and _is_aborted(header, aborted):
            has_records = False
        batches.append(Batch(header.base_offset, header.next_offset - 1, has_records))
        stops.append(stop)
    return Fetched(records[:stop], batches, stops)


def _is_aborted(header: BatchHeader, aborted: AbortedRanges) -> bool:
    return header.is_transactional and any(
        row.producer_id == header.producer_id
        for row in aborted.between(header.base_offset, header.next_offset)
        if row.first_offset <= header.base_offset < row.last_offset
    )

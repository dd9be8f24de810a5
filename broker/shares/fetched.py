"""The batches of a read, as a share group sees them: which offsets hold records for a reader.

Markers, gaps and batches without records hold none, and for readers of committed records those of
aborted transactions.
"""

from collections.abc import Iterator, Sequence

from segbroker.protocol.record_batch import (
    BatchHeader,
    GapReason,
    gap_reason,
    iter_batches,
    read_header,
)
from segbroker.segments.log.transaction_index import AbortedRanges

from .pieces import Acquired, Batch


class Fetched:
    """Whole batches, one behind the other; looked at as far as somebody wants them."""

    __slots__ = ("_aborted", "_looked_at", "_records", "_stops")

    def __init__(self, records: memoryview, aborted: AbortedRanges | None) -> None:
        """aborted: for a reader of committed records."""
        self._records = records
        self._aborted = None if aborted is None else aborted.walk()
        self._looked_at: list[Batch] = []
        # Where each of them ends in the records.
        self._stops: list[int] = []

    def batches(self) -> Iterator[Batch]:
        """Each of them, in order; once."""
        stop = 0
        for batch in iter_batches(self._records):
            header = read_header(batch)
            stop += len(batch)
            is_gap = gap_reason(header) not in (None, GapReason.DELETED)
            has_records = self._has_records(header)
            found = Batch(header.base_offset, header.next_offset - 1, has_records, is_gap)
            self._looked_at.append(found)
            self._stops.append(stop)
            yield found

    @property
    def record_size(self) -> int:
        """Bytes for each offset, of the batches that were looked at."""
        if not self._looked_at:
            return 0
        offsets = self._looked_at[-1].last - self._looked_at[0].first + 1
        return -(-self._stops[-1] // offsets)

    def with_records(self, acquired: Sequence[Acquired]) -> memoryview:
        """The batches from the first to the last of which something was acquired."""
        if not acquired:
            return self._records[:0]
        first, last = acquired[0].first, acquired[-1].last
        start = stop = 0
        for batch, end in zip(self._looked_at, self._stops, strict=True):
            if batch.last < first:
                start = end
            stop = end
            if batch.last >= last:
                break
        return self._records[start:stop]

    def _has_records(self, header: BatchHeader) -> bool:
        if header.is_control or header.records_count <= 0:
            return False
        return self._aborted is None or not (header.is_transactional and self._aborted.has(header))

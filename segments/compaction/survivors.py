"""Which records of a compacted log stay: the decisions of one cleaning, batch by batch, no I/O.

    learn   over the dirty part: the last offset of each key
    filter  over all of it, from the first segment on: a batch in, what is left of it out

| record, below the end of what was learnt | then |
|---|---|
| its key was written again behind it | goes |
| of an aborted transaction | goes |
| without a key: sent before the topic was compacted | goes, as in Kafka |
| no value (a tombstone), first cleaned delete.retention.ms ago | goes |
| any other | stays |

| batch | then |
|---|---|
| some records go | the others, with base offset, last offset delta and producer as they were |
| all go, it is the last of its producer | emptied: it says what was sent last (emptied_batch) |
| all go | a gap `deleted`; neighbours become one |
| a gap `deleted` of an earlier cleaning | the same |
| a marker, no data of its transaction seen, first cleaned delete.retention.ms ago, not the last of
  its producer | as a batch of which all go |
| any other control batch, any other gap | stays as it is |
| it cannot be opened: a compression that is broken, or too large | stays as it is, counted |

Offsets stay without a hole, so a segment can be checked by its neighbours as before, and a reader
whose offset is gone finds the next one.

Invariants: an offset never changes; nothing at or past `until` goes; the last record of a key stays
as long as it is no tombstone.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from segbroker.protocol.batch_layout import CODEC_BITS, BatchFault
from segbroker.protocol.markers import Outcome, marker_outcome
from segbroker.protocol.record_batch import (
    BatchHeader,
    GapReason,
    InvalidBatch,
    RecordBatch,
    decode_batch,
    emptied_batch,
    gap_batches,
    gap_reason,
    keep_records,
    read_header,
)

from ..files.clean_points import CleanPoints
from ..log.producers import Producer
from ..log.transaction_index import Aborted
from .offset_map import OffsetMap


@dataclass(slots=True)
class Counts:
    """What a cleaning did, in records and batches."""

    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    keyless: int = 0
    """Records without a key, which went."""
    tombstones: int = 0
    """Records without a value that went for their age."""
    aborted: int = 0
    """Records of aborted transactions."""
    unopened: int = 0
    """Batches that could not be opened, which stay."""


class Survivors:
    """The decisions of one cleaning of one log."""

    def __init__(
        self,
        keys: OffsetMap,
        points: CleanPoints,
        producers: Iterable[tuple[int, Producer]],
        aborted: Iterable[Aborted],
        *,
        age_ms: int | None,
        delete_retention_ms: int,
        now_ms: int,
    ) -> None:
        """producers: what is known of them now.  aborted: the ranges that touch what is cleaned.
        age_ms: the time to measure the stay of tombstones by; None: none goes."""
        self.counts = Counts()
        self.markers: set[int] = set()
        """Offsets of the abort markers that were seen and stay; there may be very many others."""
        self.dropped: set[int] = set()
        """Offsets of the abort markers that go with what is under way."""
        self._gone: list[memoryview] = []
        self.changed = False
        """Whether something went; set by `filter`, for its caller to take back."""
        self.until = 0
        """End of what was learnt."""
        self._keys = keys
        self._points = points
        self._producers = dict(producers)
        self._aborted: dict[int, list[Aborted]] = {}
        for row in aborted:
            self._aborted.setdefault(row.producer_id, []).append(row)
        self._age_ms = age_ms
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms
        # Producers of whose open transaction, at this place of the log, data was seen.
        self._with_data: set[int] = set()

    @property
    def keys_count(self) -> int:
        """How many keys were learnt."""
        return self._keys.keys_count

    # Learning

    def learn(self, batch: memoryview) -> bool:
        """The next batch of the dirty part; False: there is no room for it, `until` lies before."""
        header = read_header(batch)
        if not header.is_control and header.records_count and not self._is_aborted(header):
            opened = _opened(batch)  # first: what cannot be opened may claim any number of records
            if opened is not None:
                if not self._keys.has_room(header.records_count):
                    return False
                self._keys.put_all(opened.keys(), opened.offsets())
        self.until = header.next_offset
        return True

    # Filtering

    def filter(self, batch: memoryview) -> Sequence[bytes | memoryview]:
        """The next batch of the log; what is left of it and of those before, in order.

        What nothing is left of is held back: the gap may grow with the next.
        """
        left = self._filtered(batch, read_header(batch))
        if left is None:
            before: Sequence[bytes | memoryview] = ()
            if self._gone and _epoch_of(self._gone[0]) != _epoch_of(batch):
                before = self.flush()  # no gap goes past the end of its leader epoch
            self._gone = [*self._gone[:1], batch]  # the ends are enough
            return before
        self.changed |= left is not batch
        return (*self.flush(), left)

    def flush(self) -> Sequence[bytes | memoryview]:
        """What is held back: the segment ends here."""
        gone, self._gone = self._gone, []
        if not gone:
            return ()
        first = read_header(gone[0])
        if len(gone) == 1 and gap_reason(first) is GapReason.DELETED:
            return gone  # of an earlier cleaning
        self.changed = True
        begin, end = first.base_offset, read_header(gone[-1]).next_offset
        return gap_batches(begin, end, GapReason.DELETED, self._now_ms, first.leader_epoch)

    def _filtered(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | None:
        """What is left; None for nothing."""
        counts = self.counts
        counts.records_before += header.records_count
        if header.base_offset >= self.until:
            counts.records_after += header.records_count
            return batch
        if header.is_control:
            return self._control(batch, header)
        if not header.records_count:
            return self._emptied(header)
        if header.is_transactional:
            self._with_data.add(header.producer_id)
        if self._is_aborted(header):
            counts.aborted += header.records_count
            return self._emptied(header)
        opened = _opened(batch)
        if opened is None:
            counts.unopened += 1
            counts.records_after += header.records_count
            return batch
        keep = self._keep(opened)
        kept = keep.count(1)
        counts.records_after += kept
        if kept == len(opened):
            return batch
        return keep_records(opened, keep) if kept else self._emptied(header)

    def _keep(self, opened: RecordBatch) -> bytes:
        """A byte per record: 1 for one that stays."""
        keys, offsets = opened.keys(), opened.offsets()
        latest = self._keys.get_all(keys)
        keep = bytearray(
            key is not None and last <= offset
            for key, last, offset in zip(keys, latest, offsets, strict=True)
        )
        self.counts.keyless += keys.count(None)
        if opened.has_null_values:
            for place, value in enumerate(opened.values()):
                if value is None and keep[place] and self._is_over(offsets[place]):
                    keep[place] = 0
                    self.counts.tombstones += 1
        return bytes(keep)

    def _control(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | None:
        if gap_reason(header) is GapReason.DELETED:
            left = self._emptied(header)
            return batch if left is not None and left == bytes(batch) else left
        outcome = marker_outcome(header, batch)
        if outcome is None:
            self.counts.records_after += header.records_count
            return batch
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if has_data or not self._is_over(header.base_offset) or self._is_last_marker(header):
            if outcome is Outcome.ABORT:
                self.markers.add(header.base_offset)
            self.counts.records_after += header.records_count
            return batch
        if outcome is Outcome.ABORT:
            self.dropped.add(header.base_offset)
        return None

    def _emptied(self, header: BatchHeader) -> bytes | None:
        """What is left of a batch without records."""
        known = self._producers.get(header.producer_id)
        if known is None or not known.batches:
            return None
        is_last = known.batches[-1].base_offset == header.base_offset
        return emptied_batch(header) if is_last else None

    def _is_last_marker(self, header: BatchHeader) -> bool:
        """Whether its producer has sent nothing since: then it says what epoch that has."""
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            return False
        return not known.batches or known.batches[-1].base_offset < header.base_offset

    def _is_over(self, offset: int) -> bool:
        """Whether the stay of a tombstone at this offset is over."""
        since = self._points.since(offset)
        if since is None or self._age_ms is None:
            return False
        return since + self._delete_retention_ms <= self._age_ms

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        rows = self._aborted.get(header.producer_id, [])
        place = bisect_left(rows, header.base_offset, key=_last_offset)
        return place < len(rows) and rows[place].first_offset <= header.base_offset


def _epoch_of(batch: memoryview) -> int:
    return int(read_header(batch).leader_epoch)


_last_offset: Final = attrgetter("last_offset")
_UNOPENED: Final = frozenset(
    {BatchFault.INVALID_COMPRESSION, BatchFault.TOO_LARGE, BatchFault.INVALID_RECORD}
)


def _opened(batch: memoryview) -> RecordBatch | None:
    """The batch, decompressed in bounds; None when its producer compressed something else.

    Raises InvalidBatch: the bytes are damaged.
    """
    try:
        return decode_batch(batch)
    except InvalidBatch as exc:
        if exc.fault in _UNOPENED and read_header(batch).attributes & CODEC_BITS:
            return None
        raise

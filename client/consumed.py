"""A batch as it was read: columns first, records when asked for.

    batch.values()      list of bytes or None              fastest
    batch.to_arrow()    pyarrow.RecordBatch                no Python object per record
    batch.keys() .offsets() .timestamps() .headers()
    batch.records()     list of Record

The batch came whole from the broker; what lies before the offset that was asked for, or behind the
end of a bounded reading, is cut away here and never seen.

What each costs: docs/benchmarks.md.
"""

from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from segbroker.protocol.record_batch import RecordBatch

from .records import Record, RecordHeaders

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")


class ConsumedBatch:
    """Records of one partition, in order of offset."""

    __slots__ = ("_batch", "_start", "_stop", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        batch: RecordBatch,
        *,
        from_offset: int,
        to_offset: int | None = None,
    ) -> None:
        """The records of `batch` in [from_offset, to_offset)."""
        self.topic = topic
        self.partition = partition
        self._batch = batch
        self._start = 0
        self._stop = len(batch)
        header = batch.header
        if from_offset > header.base_offset:
            self._start = bisect_left(batch.offsets(), from_offset)
        if to_offset is not None and to_offset < header.next_offset:
            self._stop = bisect_left(batch.offsets(), to_offset)

    def __len__(self) -> int:
        return max(0, self._stop - self._start)

    def __repr__(self) -> str:
        return f"<ConsumedBatch {self.topic}-{self.partition}, {len(self)} records>"

    def _cut(self, column: list[T]) -> list[T]:
        is_whole = self._start == 0 and self._stop == len(self._batch)
        return column if is_whole else column[self._start : self._stop]

    def values(self) -> list[bytes | None]:
        """The values; None is a tombstone."""
        return self._cut(self._batch.values())

    def keys(self) -> list[bytes | None]:
        """The keys; None for a record without one."""
        return self._cut(self._batch.keys())

    def offsets(self) -> list[int]:
        """The offsets, ascending; with holes where records were deleted."""
        return self._cut(self._batch.offsets())

    def timestamps(self) -> list[int]:
        """Milliseconds since 1970."""
        return self._cut(self._batch.timestamps())

    def headers(self) -> list[RecordHeaders]:
        """Each record's headers as (name, value) pairs; () for a record without any."""
        return self._cut(self._batch.headers())

    def records(self) -> list[Record]:
        """Every record as a named tuple."""
        return self.part(0, len(self))

    def part(self, start: int, stop: int) -> list[Record]:
        """The records in places [start, stop), as of `records()`."""
        return self._batch.records_as(
            Record,
            (self.topic, self.partition),
            start=self._start + start,
            stop=min(self._start + stop, self._stop),
        )

    def since(self, offset: int) -> "ConsumedBatch":
        """The records of it from `offset` on."""
        rest = copy(self)
        rest._start = max(self._start, bisect_left(self._batch.offsets(), offset))
        return rest

    def offset_at(self, place: int) -> int:
        """The offset of the record in a place."""
        return self._batch.offset_at(self._start + place)

    @property
    def size(self) -> int:
        """Bytes of the batch as it came, compressed or not, cut or not."""
        return self._batch.header.size

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def to_arrow(self) -> "pyarrow.RecordBatch":
        """The batch for Arrow, made from the decoder's buffers without a loop over records.

        Columns: offset int64, timestamp (ms, UTC), key binary, value binary,
        headers list of (key, value).  Needs pyarrow (`pip install '.[arrow]'`).
        """
        from .arrow import batch_to_arrow

        table = batch_to_arrow(self.topic, self.partition, self._batch.columns())
        return table.slice(self._start, len(self))

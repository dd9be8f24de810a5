"""Segments: the file pairs of a log, and what may be done with one in each state.

| state | the .log file | the .index file | known as |
|---|---|---|---|
| creating | made empty, under its final name, ahead of need | - | `SegmentedLog.prepared` |
| active | appended, synced, read | - | an `ActiveSegment`, the last |
| rotating | synced, read | written | an `ActiveSegment` that no longer grows |
| sealed | read, immutable | read, rebuilt | a place in the columns of `SealedSegments` |
| deleted | unlinked; readers keep what they pinned | unlinked | - |

Active and rotating segments are known batch by batch, in arrays: a read of the newest records
needs neither an index file nor a search, and each batch has its XXH3-64 in memory, so even these
reads are verified.  Sealed segments cost about 50 bytes each and keep no object.

A file is never recycled: a Kafka CRC has no salt, so old batches in it would be valid again.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Final

from segbroker.protocol.checksums import xxh3_64

from .index import BlockBuilder
from .manifest import Row, RowKind
from .producers import ProducerTable
from .storage import Buffer, StorageFile

OFFSET_SPAN_MAX: Final = 0x7FFF_FFFF
"""Offsets of one segment; so relative offsets fit the index."""


class ActiveSegment:
    """A segment that is not sealed yet.

    One thread appends (under the log's append lock); others read the arrays, which only grow.
    `synced_size`, `pins`, `file` and `retired` belong to the log's locks.
    """

    __slots__ = (
        "base_offset",
        "builder",
        "created_ms",
        "file",
        "first_ms",
        "leader_epoch",
        "max_timestamp",
        "name_is_durable",
        "next_offset",
        "number",
        "offsets",
        "pins",
        "positions",
        "producers_after",
        "records",
        "retired",
        "size",
        "sums",
        "synced_size",
    )

    def __init__(
        self,
        number: int,
        base_offset: int,
        file: StorageFile,
        *,
        interval: int,
        created_ms: int,
        leader_epoch: int,
        name_is_durable: bool,
    ) -> None:
        self.number = number
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.file = file
        self.created_ms = created_ms
        self.leader_epoch = leader_epoch
        self.name_is_durable = name_is_durable
        self.first_ms = -1
        self.size = 0
        self.synced_size = 0
        self.records = 0
        self.max_timestamp = -1
        self.offsets = array("q")
        self.positions = array("I")
        self.sums = array("Q")
        self.builder = BlockBuilder(base_offset, interval)
        self.producers_after: ProducerTable | None = None
        self.pins = 0
        self.retired = False

    def add(
        self, batch: Buffer, base_offset: int, next_offset: int, records: int, max_timestamp: int
    ) -> None:
        """Account for a batch that was written at `size`."""
        self.builder.add(batch, base_offset, records, max_timestamp)
        self.sums.append(xxh3_64(batch))
        self.positions.append(self.size)
        self.offsets.append(base_offset)
        self.records += records
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
        # Size before offset: who reads the offset first and the size then never sees an offset
        # whose bytes are not in the size.  `sync` rests on this.
        self.size += len(batch)
        self.next_offset = next_offset

    def find(self, offset: int) -> int:
        """Ordinal of the batch that holds `offset`."""
        return max(0, bisect_right(self.offsets, offset) - 1)

    def ordinal_before(self, up_to: int) -> int:
        """How many batches lie below the offset `up_to`, a boundary of batches."""
        return bisect_left(self.offsets, min(up_to, self.next_offset))

    def position_of(self, ordinal: int) -> int:
        """Where batch `ordinal` begins; one past the last is the end."""
        return self.positions[ordinal] if ordinal < len(self.positions) else self.size

    def row(self, block_size_max: int) -> Row:
        """The manifest row of this segment, sealed."""
        return Row(
            RowKind.SEGMENT,
            self.number,
            self.base_offset,
            self.next_offset,
            self.size,
            self.records,
            self.max_timestamp,
            block_size_max,
            self.leader_epoch,
        )


class SealedSegments:
    """The sealed segments of a log as columns: place i is segment `first_number + i`."""

    __slots__ = (
        "base_offsets",
        "block_size_maxes",
        "end_offset",
        "first_number",
        "leader_epochs",
        "max_timestamps",
        "records",
        "running_max_timestamps",
        "sizes",
        "total_size",
    )

    def __init__(self, first_number: int, base_offset: int) -> None:
        self.first_number = first_number
        self.end_offset = base_offset
        self.base_offsets = array("q")
        self.sizes = array("Q")
        self.records = array("I")
        self.block_size_maxes = array("I")
        self.leader_epochs = array("I")
        self.max_timestamps = array("q")
        self.running_max_timestamps = array("q")
        self.total_size = 0

    def __len__(self) -> int:
        return len(self.base_offsets)

    @property
    def next_number(self) -> int:
        return self.first_number + len(self)

    def add(self, row: Row) -> None:
        """The next segment has been sealed."""
        assert row.number == self.next_number, f"segment {row.number}, not {self.next_number}"
        before = self.running_max_timestamps[-1] if self.running_max_timestamps else -1
        self.base_offsets.append(row.base_offset)
        self.sizes.append(row.size)
        self.records.append(row.records)
        self.block_size_maxes.append(row.block_size_max)
        self.leader_epochs.append(row.leader_epoch)
        self.max_timestamps.append(row.max_timestamp)
        self.running_max_timestamps.append(max(before, row.max_timestamp))
        self.end_offset = row.end_offset
        self.total_size += row.size

    def fill(self, rows: list[Row]) -> None:
        """Add many at once: opening a log with a long manifest."""
        self.base_offsets.extend([row.base_offset for row in rows])
        self.sizes.extend([row.size for row in rows])
        self.records.extend([row.records for row in rows])
        self.block_size_maxes.extend([row.block_size_max for row in rows])
        self.leader_epochs.extend([row.leader_epoch for row in rows])
        self.max_timestamps.extend([row.max_timestamp for row in rows])
        self._renew()
        if rows:
            self.end_offset = rows[-1].end_offset

    def rows(self) -> list[Row]:
        """The manifest rows of all, as they were added."""
        ends = [*self.base_offsets[1:], self.end_offset] if len(self) else []
        return [
            Row(
                RowKind.SEGMENT,
                self.first_number + place,
                self.base_offsets[place],
                ends[place],
                self.sizes[place],
                self.records[place],
                self.max_timestamps[place],
                self.block_size_maxes[place],
                self.leader_epochs[place],
            )
            for place in range(len(self))
        ]

    def find(self, offset: int) -> int:
        """Place of the segment that holds `offset`."""
        return bisect_right(self.base_offsets, offset) - 1

    def find_time(self, timestamp_ms: int) -> int:
        """Place of the first segment with a record not older; len(self) for none."""
        return bisect_left(self.running_max_timestamps, timestamp_ms)

    def drop_front(self, count: int) -> None:
        """The first `count` are deleted."""
        for column in self._columns():
            del column[:count]
        self.first_number += count
        self._renew()

    def drop_back(self, count: int, end_offset: int) -> None:
        """The last `count` are deleted."""
        for column in self._columns():
            del column[len(column) - count :]
        self.end_offset = end_offset
        self._renew()

    def _columns(self) -> list["array[int]"]:
        return [
            self.base_offsets,
            self.sizes,
            self.records,
            self.block_size_maxes,
            self.leader_epochs,
            self.max_timestamps,
        ]

    def _renew(self) -> None:
        self.running_max_timestamps = array("q", accumulate(self.max_timestamps, max))
        self.total_size = sum(self.sizes)

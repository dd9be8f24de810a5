"""The sealed segments of a log as columns: what opening, planning and retention need to know.

    place            0            1            2
    numbers          3            4            9       the next one is 10
    base_offsets     0           812         1640      end_offset 2411
    sizes, records, block_size_maxes, leader_epochs, max_timestamps, running_max_timestamps, tags

Segment numbers rise.  They have holes where a cleaning made one segment of several, which gets the
number of the last of them (swapping.py).  Offsets have no holes.

A sealed segment costs about 60 bytes and no object: 100,000 of them are opened from one manifest in
a tenth of a second.  Not thread-safe: the log's state lock protects it.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate, islice

from ..files.manifest import Row, RowKind


class SealedSegments:
    """The sealed segments of a log as columns."""

    __slots__ = (
        "base_offsets",
        "block_size_maxes",
        "end_offset",
        "leader_epochs",
        "max_timestamps",
        "next_number",
        "numbers",
        "records",
        "running_max_timestamps",
        "sizes",
        "tags",
        "total_records",
        "total_size",
    )

    def __init__(self, first_number: int, base_offset: int) -> None:
        self.next_number = first_number
        """Of the segment behind the last."""
        self.end_offset = base_offset
        self.numbers = array("Q")
        self.base_offsets = array("q")
        self.sizes = array("Q")
        self.records = array("I")
        self.block_size_maxes = array("I")
        self.leader_epochs = array("I")
        self.max_timestamps = array("q")
        self.tags = array("H")
        self.running_max_timestamps = array("q")
        self.total_size = 0
        self.total_records = 0

    def __len__(self) -> int:
        return len(self.base_offsets)

    @property
    def first_base_offset(self) -> int:
        """Where the first begins; where the next will, as long as there is none.

        Without a lock: retention may drop the first meanwhile, also the only one.
        """
        first = self.base_offsets[:1]
        return first[0] if first else self.end_offset

    @property
    def first_number(self) -> int:
        """Of the first segment; that of the next as long as there is none."""
        return self.numbers[0] if self.numbers else self.next_number

    def place_of(self, number: int) -> int | None:
        """Where a segment is; None when it is not among them."""
        place = bisect_left(self.numbers, number)
        return place if place < len(self) and self.numbers[place] == number else None

    def add(self, row: Row) -> None:
        """The next segment has been sealed."""
        assert row.number >= self.next_number, f"segment {row.number}, not {self.next_number}"
        self.fill([row])

    def fill(self, rows: list[Row]) -> None:
        """Add many at once: opening a log with a long manifest."""
        if not rows:
            return
        _, numbers, bases, _, sizes, records, stamps, blocks, epochs, tags = zip(*rows, strict=True)
        self.numbers.extend(numbers)
        self.base_offsets.extend(bases)
        self.sizes.extend(sizes)
        self.records.extend(records)
        self.block_size_maxes.extend(blocks)
        self.leader_epochs.extend(epochs)
        self.max_timestamps.extend(stamps)
        self.tags.extend(tags)
        newest = self.running_max_timestamps[-1] if self.running_max_timestamps else -1
        self.running_max_timestamps.extend(islice(accumulate(stamps, max, initial=newest), 1, None))
        self.total_size += sum(sizes)
        self.total_records += sum(records)
        self.end_offset = rows[-1].end_offset
        self.next_number = rows[-1].number + 1

    def end_of(self, place: int) -> int:
        """Where the segment at `place` ends: the base offset of the next."""
        following = place + 1
        return self.base_offsets[following] if following < len(self) else self.end_offset

    def count_below(self, offset: int) -> int:
        """How many, from the front, lie wholly below `offset`."""
        if offset >= self.end_offset:
            return len(self)
        return max(0, bisect_right(self.base_offsets, offset) - 1)

    def count_older(self, before_ms: int) -> int:
        """How many, from the front, hold records and none that is as new as `before_ms`.

        A segment without a timestamp (gaps, or producers that send none) goes with one behind it
        that is old enough, never on its own.
        """
        count = bisect_left(self.running_max_timestamps, before_ms)
        if count and self.running_max_timestamps[count - 1] < 0:
            return 0
        while count and self.max_timestamps[count - 1] < 0:
            count -= 1
        return count

    def rows(self) -> list[Row]:
        """The manifest rows of all, as they were added."""
        return list(map(self.row_at, range(len(self))))

    def find(self, offset: int) -> int:
        """Place of the segment that holds `offset`."""
        return bisect_right(self.base_offsets, offset) - 1

    def find_time(self, timestamp_ms: int, offset: int = 0) -> int:
        """Place of the first segment with a record not older, of those that end behind `offset`;
        len(self) for none."""
        place = bisect_left(self.running_max_timestamps, timestamp_ms)
        if place < len(self) and self.end_of(place) <= offset:  # that one did not keep its promise
            place, stamps = self.count_below(offset), self.max_timestamps
            while place < len(stamps) and stamps[place] < timestamp_ms:
                place += 1
        return place

    def drop_front(self, count: int) -> None:
        """The first `count` are deleted.  Costs what they are, plus a move of the columns."""
        self.total_size -= sum(self.sizes[:count])
        self.total_records -= sum(self.records[:count])
        for column in self._columns():
            del column[:count]
        self._renew_from(0)

    def splice(self, row: Row) -> list[int]:
        """A segment stands for all that lie in its offsets, the last of which had its number;
        the numbers of the others."""
        first, last = self.find(row.base_offset), self.place_of(row.number)
        assert last is not None, "it has the number of the last of them"
        assert row.base_offset == self.base_offsets[first], "a cleaning moves no offset"
        assert row.end_offset == self.end_of(last), "a cleaning moves no offset"
        gone = self.numbers[first:last].tolist()
        self.total_size -= sum(self.sizes[first:last])
        self.total_records -= sum(self.records[first:last])
        for column in self._columns():
            del column[first:last]
        self.base_offsets[first] = row.base_offset
        self.replace(row)
        return gone

    def replace(self, row: Row) -> None:
        """A segment was written anew: same number and offsets, other bytes."""
        place = self.place_of(row.number)
        assert place is not None, "it is one of them"
        assert row.base_offset == self.base_offsets[place], "a repair moves no offset"
        self.total_size += row.size - self.sizes[place]
        self.total_records += row.records - self.records[place]
        self.sizes[place] = row.size
        self.records[place] = row.records
        self.block_size_maxes[place] = row.block_size_max
        self.leader_epochs[place] = row.leader_epoch
        self.max_timestamps[place] = row.max_timestamp
        self.tags[place] = row.tag
        self._renew_from(place)

    def row(self, number: int) -> Row | None:
        """The manifest row of a segment; None when it is not among them."""
        place = self.place_of(number)
        return None if place is None else self.row_at(place)

    def row_at(self, place: int) -> Row:
        """The manifest row of the segment at this place."""
        return Row(
            RowKind.SEGMENT,
            self.numbers[place],
            self.base_offsets[place],
            self.end_of(place),
            self.sizes[place],
            self.records[place],
            self.max_timestamps[place],
            self.block_size_maxes[place],
            self.leader_epochs[place],
            self.tags[place],
        )

    def _columns(self) -> list["array[int]"]:
        return [
            self.numbers,
            self.base_offsets,
            self.sizes,
            self.records,
            self.block_size_maxes,
            self.leader_epochs,
            self.max_timestamps,
            self.tags,
            self.running_max_timestamps,
        ]

    def _renew_from(self, place: int) -> None:
        """What lies in front of `place`, or has its timestamp, is another: a reader waits for this,
        so it costs no look at all segments."""
        running, stamps = self.running_max_timestamps, self.max_timestamps
        newest = running[place - 1] if place else -1
        for at in range(place, len(stamps)):
            newest = max(newest, stamps[at])
            if running[at] == newest:
                break  # what went was older: from here on nothing changes
            running[at] = newest

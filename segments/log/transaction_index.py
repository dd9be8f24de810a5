"""Which transactions are open in a partition, and which ranges were aborted.

    offset      ... 40 41 42 | 43 44 | 45      | 46 47 | 48     | 49 50
    producer         7  7  7 |  9  9 | 7 abort |  9  9 | 9 commit | 7 7
                                                                  ^ last stable offset = 49
    open        {7: 49}                 from the first batch of a transaction to its marker
    aborted     [(7, 40, 45)]           from the first batch to the marker, by the marker's offset

A reader of committed records stops at the last stable offset, the first of any open transaction,
and skips what it is told was aborted.  Part of the producers' state: built from the headers of the
log and its markers, kept in .producers, rebuilt by replay; so it survives whatever they survive.

A gap inside a transaction changes nothing here: its marker still ends it.  Where a marker itself
was lost to damage, what is known of it here stays.  Where that is lost, too, the transaction counts
as open until the coordinator, who knows of no such transaction, ends it with an abort
(broker/transactions/markers.py).

Rows of aborted ranges go when the log begins behind them, or when a cleaning took their marker.
Their number is bounded by the log: one per abort marker in it.  They stand in the order of their
markers; of each BLOCK of them the least first offset is kept, so that who asks for those that touch
some offsets passes over what begins behind, however long others are and wherever they end.

Invariants: `open` is sorted by offset, as transactions begin; `first_open_offset` is the first of
it; `aborted` is sorted by `last_offset`, whose values are those of the markers and differ.  Not
thread-safe for writers: the log's append lock protects it.  A reader without the lock looks single
ones up in `open`, or copies it at once: it is changed in place, because thousands may be open.  It
sees the state before or after a batch, or a forgetting: the ranges with their markers' offsets are
appended to or replaced together; a transaction is in `aborted` before it leaves `open`.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple

from segbroker.protocol.markers import Outcome, marker_outcome
from segbroker.protocol.record_batch import BatchHeader

from ..disk.storage import Buffer

BLOCK: Final = 1_024
NONE_OPEN: Final = 2**63 - 1
"""`first_open_offset` of a partition without open transactions."""


class Aborted(NamedTuple):
    """A range of one producer that readers of committed records skip."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""


class _Rows(NamedTuple):
    """The aborted ranges, and what is kept to find them; all of it is appended to, `leasts` first
    and `lasts` last."""

    aborted: list[Aborted]
    lasts: list[int]
    """The offsets of their markers."""
    leasts: list[int]
    """Of each block the first offset of whichever begins first, or one before it."""
    skipped: int = 0
    """Rows of the first block that were forgotten."""

    @classmethod
    def of(cls, aborted: list[Aborted]) -> "_Rows":
        blocks = (aborted[begin : begin + BLOCK] for begin in range(0, len(aborted), BLOCK))
        leasts = [min(map(_first_offset, block)) for block in blocks]
        return cls(aborted, [row.last_offset for row in aborted], leasts)

    def append(self, row: Aborted) -> None:
        if (len(self.aborted) + self.skipped) // BLOCK == len(self.leasts):
            self.leasts.append(row.first_offset)
        else:
            self.leasts[-1] = min(self.leasts[-1], row.first_offset)
        self.aborted.append(row)
        self.lasts.append(row.last_offset)

    def behind(self, count: int) -> "_Rows":
        """Without the first of them."""
        blocks, skipped = divmod(self.skipped + count, BLOCK)
        rest = slice(count, None)
        return _Rows(self.aborted[rest], self.lasts[rest], self.leasts[blocks:], skipped)


class AbortedRanges(NamedTuple):
    """The aborted ranges at a moment: what comes later does not show in it."""

    rows: list[Aborted]
    lasts: list[int]
    leasts: list[int]
    skipped: int
    rows_count: int

    def between(self, begin: int, end: int) -> list[Aborted]:
        """Those that touch [begin, end), in order of their first offsets."""
        place = bisect_left(self.lasts, begin, 0, self.rows_count)
        found: list[Aborted] = []
        while place < self.rows_count:
            block, inside = divmod(place + self.skipped, BLOCK)
            until = min(place + BLOCK - inside, self.rows_count)
            if self.leasts[block] < end:
                found += [row for row in self.rows[place:until] if row.first_offset < end]
            place = until
        found.sort(key=_first_offset)
        return found

    def lasts_from(self, begin: int, most: int) -> "array[int]":
        """Where ranges end, from `begin` on: there is, or was, a marker.  The first of them."""
        place = bisect_left(self.lasts, begin, 0, self.rows_count)
        return array("q", self.lasts[place : min(place + most, self.rows_count)])

    def walk(self) -> "AbortedWalk":
        """For who asks of one batch after the other."""
        return AbortedWalk(self)


class AbortedWalk:
    """Which batches were aborted, asked in their order: each range is looked at once, however many
    there are beside a long one.

    Of one producer the ranges do not overlap, so only the first that has not ended counts.
    """

    __slots__ = ("_ahead", "_place", "_ranges", "_soonest")

    def __init__(self, ranges: AbortedRanges) -> None:
        self._ranges = ranges
        # Of each block the first offset of whichever begins first, in it or behind it.
        self._soonest = [*accumulate(reversed(ranges.leasts), min)][::-1]
        self._place = -1
        """Of the first range that was not looked at; -1: none was."""
        self._ahead: dict[int, deque[Aborted]] = {}
        """By producer, in order; those that were passed may still be there."""

    def has(self, header: BatchHeader) -> bool:
        """Whether this batch is in a range of its producer."""
        offset = header.base_offset
        rows, lasts, _, skipped, count = self._ranges
        if self._place < 0:
            self._place = bisect_left(lasts, offset, 0, count)
        while self._place < count and self._soonest[(self._place + skipped) // BLOCK] <= offset:
            row = rows[self._place]
            self._ahead.setdefault(row.producer_id, deque()).append(row)
            self._place += 1
        own = self._ahead.get(header.producer_id)
        while own and own[0].last_offset <= offset:
            own.popleft()
        return own is not None and len(own) > 0 and own[0].first_offset <= offset


class TransactionIndex:
    """The transactions of one partition."""

    __slots__ = ("_rows", "first_open_offset", "open")

    def __init__(
        self, opened: dict[int, int] | None = None, aborted: Iterable[Aborted] = ()
    ) -> None:
        """opened: sorted by offset."""
        self.open: dict[int, int] = opened if opened is not None else {}
        self._rows = _Rows.of(list(aborted))
        self.first_open_offset = next(iter(self.open.values()), NONE_OPEN)

    @property
    def aborted(self) -> list[Aborted]:
        """The aborted ranges, in the order of their markers."""
        return self._rows.aborted

    def began(self, producer_id: int, base_offset: int) -> None:
        """A batch of a transaction was appended."""
        if producer_id not in self.open:
            self.open[producer_id] = base_offset
            self.first_open_offset = min(self.first_open_offset, base_offset)

    def ended(self, producer_id: int, outcome: Outcome, marker_offset: int) -> None:
        """A marker was appended.  One without an open transaction changes nothing."""
        first_offset = self.open.get(producer_id)
        if first_offset is None:
            return
        if outcome is Outcome.ABORT:
            self._rows.append(Aborted(producer_id, first_offset, marker_offset))
        del self.open[producer_id]
        if first_offset == self.first_open_offset:
            self.first_open_offset = next(iter(self.open.values()), NONE_OPEN)

    def apply(self, header: BatchHeader, base_offset: int, batch: Buffer) -> bool:
        """Take note of a transactional batch at `base_offset`; whether it was a marker."""
        if not header.is_control:
            self.began(header.producer_id, base_offset)
            return False
        outcome = marker_outcome(header, batch)
        if outcome is not None:
            self.ended(header.producer_id, outcome, base_offset)
        return True

    def ranges(self) -> AbortedRanges:
        """The aborted ranges as of now; not a copy."""
        rows = self._rows
        return AbortedRanges(*rows, len(rows.lasts))

    def forget_before(self, log_start_offset: int) -> int:
        """Forget ranges that end below the start of the log; how many."""
        count = bisect_left(self._rows.lasts, log_start_offset)
        if count:
            self._rows = self._rows.behind(count)
        return count

    def forget_marked(self, end_offset: int, markers: Container[int]) -> int:
        """Forget ranges that end below `end_offset` with a marker that is none of `markers`; how
        many.

        After a cleaning: their records went before their markers did.
        """
        kept = [
            row
            for row in self.aborted
            if row.last_offset >= end_offset or row.last_offset in markers
        ]
        count = len(self.aborted) - len(kept)
        if count:
            self._rows = _Rows.of(kept)
        return count

    def forget_at(self, markers: Container[int]) -> None:
        """Forget ranges that end with one of these markers."""
        self._rows = _Rows.of([row for row in self.aborted if row.last_offset not in markers])

    def copy(self) -> "TransactionIndex":
        """The state as it is now."""
        copied = TransactionIndex(self.open.copy())
        copied._rows = self._rows.behind(0)
        return copied


_first_offset: Final = attrgetter("first_offset")

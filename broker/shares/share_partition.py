"""What became of each record of one group in one partition (KIP-932).

    offset      ... 11 | 12    13    14 15   16 17 | 18 ...
    state       done   | acq.  avail acq.    ackn. | never handed out
                         ^ start                     ^ end

    available     to be handed out, again or for the first time
    acquired      handed out: it is one member's until that says what became of it, or its lock ends
    acknowledged  done
    archived      done with, though nobody has: rejected, delivered too often, or no record

All below `start` is done with.  Records with one fate stand together in a piece.

    acquire        available -> acquired, and one delivery more
    acknowledge    acquired -> a change: it waits to be durable, `done` or `failed` (acquired again)
    release, expire    acquired -> available at once; or archived, after the last delivery

A record that nobody gets done would take with it all that are handed out beside it.  So from half
of its deliveries on it comes with fewer and fewer of those that it first came with (its block), and
the last time alone, as in Kafka.

Of a gap (records were lost) the last offset that nobody has or is done with is handed out like a
record: one member gets the notice of it, and says that there is none.

Limits: `Limits.locks` offsets from start to end; the batch that passes it is the last.

Pure: no clock, no I/O; times are those of one clock, in ms.  Invariants: the pieces cover
[start, end) without holes, in order; one that is changing is acquired.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.share_groups import RecordState, ShareState, Span

from ..loop.loop_clock import NEVER_MS
from ..refused import Refused
from .pieces import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    FATES,
    RENEW,
    Acknowledgement,
    Acquired,
    Batch,
    Block,
    Change,
    Limits,
    Piece,
)


class SharePartition:
    """One group in one partition."""

    __slots__ = ("_pieces", "end", "start")

    def __init__(self, kept: ShareState) -> None:
        """kept: what is written down; what was acquired when that ended is available again."""
        self.start = self.end = kept.start
        self._pieces: list[Piece] = []
        for first, last, state, deliveries in kept.spans:
            if self.end < first:
                self._append(Piece(self.end, first - 1, AVAILABLE, 0))
            self._append(Piece(first, last, RecordState(state), deliveries))
        self._advance()

    # Looking

    @property
    def next_offset(self) -> int:
        """The first offset that may be handed out: of a record that is available, or the end."""
        return next((one.first for one in self._pieces if one.is_free), self.end)

    def has_room(self, limits: Limits) -> bool:
        """Whether there is a record that may be handed out, or may be read."""
        return self.end - self.start < limits.locks or self.next_offset < self.end

    @property
    def due_ms(self) -> int:
        """When the next lock ends."""
        return min((one.until_ms for one in self._locked()), default=NEVER_MS)

    @property
    def is_idle(self) -> bool:
        """Whether all that is known is what is written down."""
        return all(one.state is not ACQUIRED for one in self._pieces)

    def pieces(self) -> list[tuple[int, int, RecordState, int, str]]:
        """First and last offset, state, deliveries and member of each piece."""
        return [(p.first, p.last, p.state, p.deliveries, p.member) for p in self._pieces]

    def standing(self, offsets: Iterable[Span]) -> list[Span]:
        """What is to be written down of these offsets: of those that are acquired how often they
        were before, and nothing of those that are changing, as that is on its way."""
        found = []
        for one in offsets:
            at, stop = max(one.first, self.start), min(one.last, self.end - 1)
            while at <= stop:
                piece = self._pieces[self._place(at)]
                last = min(stop, piece.last)
                if piece.state is not ACQUIRED:
                    found.append(Span(at, last, int(piece.state), piece.deliveries))
                elif piece.becomes is None:
                    found.append(Span(at, last, int(AVAILABLE), piece.deliveries - 1))
                at = last + 1
        return found

    @property
    def members(self) -> set[str]:
        """Those who have records of which nothing is on its way."""
        return {one.member for one in self._locked()}

    # Handing out

    def acquire(
        self,
        member: str,
        batches: Iterable[Batch],
        limits: Limits,
        now_ms: int,
        *,
        offset: int,
        records_max: int,
        batch_size: int,
        is_strict: bool,
    ) -> list[Acquired]:
        """Hand records of these batches out.

        Args:
            batches: what was read from `offset` on, in order.  Offsets between them hold nothing,
                and are archived as those of batches without records are.
            records_max: how many; whole batches, so it may be some more.
            batch_size: about how many records may be told of together.
            is_strict: not one more than `records_max`.
        """
        until_ms = now_ms + limits.lock_ms
        found: list[Acquired] = []
        left = records_max
        apart: Block | None = None
        block = Block(0)
        at = max(offset, self.start)
        for batch in self._with_notices(batches):
            if batch.last < at:
                continue
            if batch.first > at:
                self._archive(at, batch.first - 1)
                at = batch.first
            if not batch.has_records:
                self._archive(at, batch.last)
                at = batch.last + 1
                continue
            begun = len(found)
            while at <= batch.last and left > 0:
                most = left if is_strict or apart is not None else None
                piece = self._next_free(at, batch.last, limits, most)
                if piece is None:
                    break
                at = piece.last + 1
                if piece.deliveries >= limits.deliveries:  # the limit was higher before
                    piece.state = ARCHIVED
                    continue
                if piece.deliveries >= limits.apart and not found:
                    few = self._so_few(piece, limits)
                    apart, left = piece.block, min(left, few) if is_strict else few
                    piece = self._cut(piece.first, min(piece.last, piece.first + left - 1))
                elif not self._may_join(piece, apart, limits):
                    left = 0
                    break
                piece.state, piece.member, piece.until_ms = ACQUIRED, member, until_ms
                piece.deliveries += 1
                told = len(found)
                self._tell(found, piece, batch_size, is_new_batch=told == begun)
                if piece.deliveries == 1:
                    block = block if told == len(found) else Block(0)
                    piece.block, block.count = block, block.count + piece.count
                left -= piece.count
            at = batch.last + 1
            if left <= 0 or self.end < at:  # enough, or no room for more
                break
        self._advance()
        return found

    def _with_notices(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same, but of a gap the offset that stands for it as one with a record."""
        for batch in batches:
            notice = self._last_free(batch) if batch.is_gap else None
            if notice is None:
                yield batch
                continue
            if batch.first < notice:
                yield Batch(batch.first, notice - 1, has_records=False)
            yield Batch(notice, notice, has_records=True)
            if notice < batch.last:
                yield Batch(notice + 1, batch.last, has_records=False)

    def _last_free(self, batch: Batch) -> int | None:
        if batch.last >= self.end:
            return batch.last
        free = (p for p in reversed(self._pieces) if p.is_free and p.first <= batch.last)
        piece = next(free, None)
        if piece is None or piece.last < batch.first:
            return None
        return min(piece.last, batch.last)

    def _next_free(self, at: int, last: int, limits: Limits, most: int | None) -> Piece | None:
        """The first available piece of [at, last], cut to that and to `most`; new ones included."""
        while at < self.end and at <= last:
            piece = self._pieces[self._place(at)]
            if piece.is_free:
                stop = min(last, piece.last)
                if most is not None:
                    stop = min(stop, max(at, piece.first) + most - 1)
                return self._cut(max(at, piece.first), stop)
            at = piece.last + 1
        room = limits.locks - (self.end - self.start)
        if at > last or room <= 0:
            return None
        assert at == self.end, "offsets were left out"
        if most is not None:
            last = min(last, at + min(most, room) - 1)
        piece = Piece(at, last, AVAILABLE, 0)
        self._append(piece)
        return piece

    @staticmethod
    def _so_few(piece: Piece, limits: Limits) -> int:
        """How many records come together at the next delivery of this one."""
        if piece.deliveries >= limits.deliveries - 1:
            return 1
        return max(1, piece.block.count >> (piece.deliveries - limits.apart + 1))

    @staticmethod
    def _may_join(piece: Piece, apart: Block | None, limits: Limits) -> bool:
        """Whether records come with those that were taken before: apart, of one block."""
        if apart is None:
            return piece.deliveries < limits.apart
        return piece.block is apart and piece.deliveries < limits.deliveries - 1

    @staticmethod
    def _tell(found: list[Acquired], piece: Piece, batch_size: int, *, is_new_batch: bool) -> None:
        """Add what was acquired; to what stands before it, unless that would be too many."""
        if found:
            last = found[-1]
            joined = piece.last - last.first + 1
            if (
                last.last == piece.first - 1
                and last.deliveries == piece.deliveries
                and not (is_new_batch and joined > batch_size)
            ):
                found[-1] = last._replace(last=piece.last)
                return
        found.append(Acquired(piece.first, piece.last, piece.deliveries))

    def _archive(self, first: int, last: int) -> None:
        """No records are there: nobody is to get them."""
        while first <= min(last, self.end - 1):
            piece = self._pieces[self._place(first)]
            stop = min(last, piece.last)
            if piece.is_free:  # what is somebody's stays so: a cleaning took it away meanwhile
                self._cut(first, stop).state = ARCHIVED
            first = stop + 1
        if last >= self.end:
            self._append(Piece(self.end, last, ARCHIVED, 0))

    # Acknowledging

    def acknowledge(
        self, member: str, said: Iterable[Acknowledgement], limits: Limits, now_ms: int
    ) -> Change:
        """What a member says of records that are its own; all of it, or nothing.

        Raises Refused: INVALID_RECORD_STATE where one is not the member's, or nothing is held;
        INVALID_REQUEST where one was not handed out yet.
        """
        changing: list[Piece] = []
        renewed: list[Piece] = []
        try:
            for one in said:
                for first, last, kind in _runs(one, self.start):
                    pieces = self._own(member, first, last)
                    if kind == RENEW:
                        renewed += pieces
                        continue
                    for piece in pieces:
                        piece.becomes = self._fate(FATES[kind], piece, limits)
                        changing.append(piece)
        except Refused:
            for piece in changing:
                piece.becomes = None
            raise
        for piece in renewed:
            piece.until_ms = now_ms + limits.lock_ms
        return Change(changing, self._start_after(changing))

    def _own(self, member: str, first: int, last: int) -> list[Piece]:
        if last >= self.end:
            # As Kafka: a range is invalid beside others that were handed out.
            held = bool(self._pieces)
            code = ErrorCode.INVALID_REQUEST if held else ErrorCode.INVALID_RECORD_STATE
            raise Refused(code, f"offset {last} was not handed out yet")
        at = first
        while at <= last:
            piece = self._pieces[self._place(at)]
            if piece.state is not ACQUIRED or piece.member != member or piece.becomes is not None:
                what = "is not acquired" if piece.state is not ACQUIRED else "is another member's"
                if piece.becomes is not None and piece.member == member:
                    what = "is acknowledged already"
                raise Refused(ErrorCode.INVALID_RECORD_STATE, f"offset {at} {what}")
            at = piece.last + 1
        return self._cut_all(first, last)

    @staticmethod
    def _fate(wanted: RecordState, piece: Piece, limits: Limits) -> RecordState:
        """Who was handed out as often as may be is not available again."""
        is_over = wanted is AVAILABLE and piece.deliveries >= limits.deliveries
        return ARCHIVED if is_over else wanted

    def done(self, change: Change) -> None:
        """It is durable."""
        for piece in change.pieces:
            if piece.becomes is not None:
                self._end(piece, piece.becomes)
        self._advance()

    def failed(self, change: Change) -> None:
        """It could not be written: the records are the member's still, until their locks end."""
        for piece in change.pieces:
            piece.becomes = None

    # Taking back

    def release(self, member: str, limits: Limits) -> list[Span]:
        """Take back what a member has; what is to be written down of it."""
        return self._take_back([p for p in self._locked() if p.member == member], limits)

    def expire(self, now_ms: int, limits: Limits) -> list[Span]:
        """Take back what has been somebody's for too long, likewise."""
        return self._take_back([p for p in self._locked() if p.until_ms <= now_ms], limits)

    def _take_back(self, pieces: list[Piece], limits: Limits) -> list[Span]:
        spans = []
        for piece in pieces:
            self._end(piece, self._fate(AVAILABLE, piece, limits))
            spans.append(Span(piece.first, piece.last, int(piece.state), piece.deliveries))
        self._advance()
        return spans

    def _locked(self) -> Iterator[Piece]:
        return (p for p in self._pieces if p.state is ACQUIRED and p.becomes is None)

    @staticmethod
    def _end(piece: Piece, state: RecordState) -> None:
        piece.state, piece.becomes = state, None
        piece.member, piece.until_ms = "", NEVER_MS

    # The log begins later

    def begin_at(self, log_start: int) -> int:
        """The records below are gone: nobody needs to be done with them.

        How many offsets that the group was not done with it has lost.
        """
        if log_start <= self.start:
            return 0
        lost = max(0, log_start - self.end) + sum(
            min(one.last, log_start - 1) - one.first + 1
            for one in self._pieces
            if one.first < log_start and one.state in (AVAILABLE, ACQUIRED)
        )
        while self._pieces and self._pieces[0].last < log_start:
            del self._pieces[0]  # of one that is changing nothing comes of it here
        if self._pieces:
            self._pieces[0].first = max(log_start, self._pieces[0].first)
        self.start, self.end = log_start, max(self.end, log_start)
        self._advance()
        return lost

    # Pieces

    def _append(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self.end = piece.last + 1

    def _place(self, offset: int) -> int:
        return bisect_right(self._pieces, offset, key=_first) - 1

    def _cut(self, first: int, last: int) -> Piece:
        """The piece that is exactly this part of one."""
        place = self._place(first)
        piece = self._pieces[place]
        if piece.first < first:
            piece = self._split(place, first)
            place += 1
        if piece.last > last:
            self._split(place, last + 1)
        return piece

    def _cut_all(self, first: int, last: int) -> list[Piece]:
        """The pieces that are exactly these offsets."""
        found = []
        while first <= last:
            piece = self._pieces[self._place(first)]
            found.append(self._cut(first, min(last, piece.last)))
            first = found[-1].last + 1
        return found

    def _split(self, place: int, at: int) -> Piece:
        """The second half of what was one piece."""
        piece = self._pieces[place]
        other = Piece(at, piece.last, piece.state, piece.deliveries, piece.member, piece.until_ms)
        other.block = piece.block
        assert piece.becomes is None, "what is under way is not cut"
        piece.last = at - 1
        self._pieces.insert(place + 1, other)
        return other

    def _start_after(self, changing: Iterable[Piece]) -> int:
        """The start when these have changed, and of all others none: what is on its way with
        another event may fail when this does not."""
        own = set(changing)
        for piece in self._pieces:
            state = piece.becomes if piece in own else piece.state
            if state not in (ACKNOWLEDGED, ARCHIVED):
                return piece.first
        return self.end

    def _advance(self) -> None:
        """Move the start over what is done with; neighbours with one fate are one piece."""
        joined: list[Piece] = []
        for piece in self._pieces:
            if not joined and piece.state in (ACKNOWLEDGED, ARCHIVED):
                self.start = piece.last + 1
            elif joined and joined[-1].same_fate(piece):
                joined[-1].last = piece.last
            else:
                joined.append(piece)
        self._pieces = joined
        if not joined:
            self.start = self.end


def _first(piece: Piece) -> int:
    return piece.first


def _runs(said: Acknowledgement, start: int) -> Iterator[tuple[int, int, int]]:
    """First, last and type of neighbours that have one; what lies below the start is done with."""
    if len(said.types) == 1:
        yield max(said.first, start), said.last, said.types[0]
        return
    at = max(said.first, start)
    while at <= said.last:
        kind = said.types[at - said.first]
        last = at
        while last < said.last and said.types[last + 1 - said.first] == kind:
            last += 1
        yield at, last, kind
        at = last + 1

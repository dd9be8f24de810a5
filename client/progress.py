"""How far the caller has come: what it was handed, and what of that it has gone past.

    for record in consumer     in hand: the record of this turn of the loop
    consumer.batches()         in hand: the batch
    consumer.poll()            in hand: all that the last poll returned

What is in hand counts as processed when the caller comes back for more: not before, because it may
yet fail, and not by being handed out.  A loop that is left with `break` has not gone past its last
record; `acknowledge` (an explicit commit) says that it has.

Of a batch that is handed out record by record nothing is counted along: a list iterator hands the
records out without a call of ours, and where it stands is read off it (how many are left).  They
are made a few at a time, which are in the processor's cache when the caller looks at them, and
gone before the next are made: a whole batch at once costs up to twice the time (0162).

A batch that was taken to be handed out and is not yet counts as not seen (`opening` of its
partition): Ctrl-C may come at any call, and whoever leaves by it commits what was gone past.  For
the same reason what a poll, or a loop over batches, has taken is the caller's only with `is_shown`,
the last thing done before it has it; what an exception took away before that comes again.

Threads: the caller's thread takes from the iterator at any time, everything else happens under the
shell's lock; reading off or draining a list iterator is one step that nothing comes between.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from operator import length_hint

from .assigned import PartitionState
from .consumed import ConsumedBatch
from .records import Record, TopicPartition

# Records that are made at a time, and bytes: where the next part ends is guessed by the batch.
PART_COUNT_MAX = 512
PART_BYTES_MAX = 128 << 10


class Handing:
    """Records of one batch, being handed out a part at a time."""

    __slots__ = (
        "_batch",
        "_made_count",
        "_part",
        "_part_count",
        "in_loop",
        "next_offset",
        "records",
        "state",
        "tp",
    )

    def __init__(self, state: PartitionState, batch: ConsumedBatch, next_offset: int) -> None:
        self.state, self.tp = state, state.tp
        self._batch: ConsumedBatch | None = batch
        self._part: list[Record] = []
        self._made_count = 0
        self._part_count = _part_count(batch)
        self.records = iter(self._part)
        self.next_offset = next_offset
        # A loop of the caller's runs over them, and is in its body.
        self.in_loop = False

    def more(self) -> Iterator[Record] | None:
        """The rest of a part, or the next one; None when all are handed out."""
        if not length_hint(self.records):
            batch, first = self._batch, self._made_count
            if batch is None or first == len(batch):
                return None
            stop = min(len(batch), first + self._part_count)
            # The last part goes first: both would be enough objects to call the garbage collector.
            self._part, self.records = [], iter(())
            part = batch.part(first, stop)
            records = iter(part)
            # Ctrl-C comes at a call; there is none between these: a part is made, or it is not.
            self._part, self.records, self._made_count = part, records, stop
        return self.records

    @property
    def has_more(self) -> bool:
        return bool(length_hint(self.records)) or (
            self._batch is not None and self._made_count < len(self._batch)
        )

    @property
    def position(self) -> int:
        """The offset of the next record; behind the batch when none is left."""
        if left := length_hint(self.records):
            return self._part[-left].offset
        if self._batch is not None and self._made_count < len(self._batch):
            return self._batch.offset_at(self._made_count)
        return self.next_offset

    @property
    def gone_past(self) -> int:
        """The offset of the record in hand; without one, of the next."""
        taken = len(self._part) - length_hint(self.records)
        return self._part[taken - 1].offset if self.in_loop and taken else self.position

    def rest(self) -> ConsumedBatch:
        """What is still to be handed out, as a batch."""
        assert self._batch is not None, "has_more"
        return self._batch.since(self.position)

    def interrupt(self) -> None:
        """The loop over them ends its round and asks for more; the rest is still to be had."""
        rest: list[Record] = []
        records, self.records = self.records, iter(rest)
        # Ctrl-C comes behind this call at the earliest: nothing is lost between two iterators.
        rest.extend(records)

    def end(self) -> None:
        """Hand out no more of it: whoever holds the iterator finds it exhausted."""
        deque(self.records, maxlen=0)
        self._batch = None


def _part_count(batch: ConsumedBatch) -> int:
    """How many of its records are made at a time: fewer where they are large."""
    return max(1, min(PART_COUNT_MAX, PART_BYTES_MAX * len(batch) // max(1, batch.size)))


class Progress:
    """See the module."""

    def __init__(self) -> None:
        # Batches that were begun and have records left, and the one that a loop is at.
        self._handings: dict[TopicPartition, Handing] = {}
        # The first offset in hand of each partition, of what did not come by a loop.
        self._in_hand: dict[TopicPartition, tuple[PartitionState, int]] = {}
        # (state, round, offset): another round of the log makes it void.
        self._acknowledged: dict[TopicPartition, tuple[PartitionState, int, int]] = {}
        # It has what is in hand; set by its thread, with no call between that and the caller.
        self.is_shown = True

    def came_back(self) -> None:
        """The caller asks for more: it has gone past what it had."""
        self._in_hand.clear()
        self.is_shown = True  # nothing is in hand
        for handing in list(self._handings.values()):
            handing.in_loop = False
            if not handing.has_more:
                del self._handings[handing.tp]

    # Handing out.

    def begin(self, state: PartitionState, batch: ConsumedBatch, next_offset: int) -> None:
        """Hand this batch out record by record, see `records`."""
        self._handings[state.tp] = Handing(state, batch, next_offset)

    def records(
        self, may_go_on: Callable[[TopicPartition], bool], *, in_loop: bool
    ) -> Iterator[Record] | None:
        """The rest of a batch that was begun; None without any that may go on."""
        for handing in tuple(self._handings.values()):
            if not handing.has_more and not handing.in_loop:
                del self._handings[handing.tp]  # a poll has taken the rest
            if not handing.has_more or not may_go_on(handing.tp):
                continue
            if not in_loop:
                self.takes(handing.state, handing.position)
            records = handing.more()
            handing.in_loop = in_loop
            return records
        return None

    def takes(self, state: PartitionState, offset: int) -> None:
        """The caller gets something from `offset` on, not by a loop."""
        self.is_shown = False
        self._in_hand.setdefault(state.tp, (state, offset))

    def rest_batch(self, may_go_on: Callable[[TopicPartition], bool]) -> ConsumedBatch | None:
        """The rest of a batch that was begun, as a batch; None without any that may go on."""
        for handing in self._handings.values():
            if handing.has_more and may_go_on(handing.tp):
                # Made before it is forgotten: Ctrl-C may come at any call.
                rest = handing.rest()
                self.takes(handing.state, handing.position)
                del self._handings[handing.tp]
                handing.end()
                return rest
        return None

    def interrupt(self) -> None:
        """Have the caller come back after the record that it has in hand."""
        for handing in self._handings.values():
            handing.interrupt()

    def keep(self, partitions: Container[TopicPartition]) -> None:
        """Only these are read any more: hand out nothing of what was begun, or taken, of others."""
        for tp in [tp for tp in (*self._handings, *self._in_hand) if tp not in partitions]:
            self.sought(tp)

    def sought(self, tp: TopicPartition) -> None:
        """The caller goes on elsewhere in this partition, or does not have it any more."""
        self._in_hand.pop(tp, None)
        self._acknowledged.pop(tp, None)
        handing = self._handings.pop(tp, None)
        if handing is not None:
            handing.end()

    @property
    def unshown(self) -> dict[TopicPartition, int]:
        """Where that begins which an exception, such as Ctrl-C's, took away from the caller."""
        return {} if self.is_shown else {tp: at for tp, (_, at) in self._in_hand.items()}

    # Where the caller is.

    def has_rest(self, tp: TopicPartition) -> bool:
        """Whether records of a batch that was begun are still to be handed out."""
        handing = self._handings.get(tp)
        return handing is not None and handing.has_more

    def rests(self) -> Iterator[TopicPartition]:
        """The partitions that have some, those that may not go on included."""
        return (tp for tp, handing in self._handings.items() if handing.has_more)

    def acknowledge(self, states: Iterable[PartitionState]) -> None:
        """The caller says that it is done with all that it was handed."""
        for state in states:
            self._acknowledged[state.tp] = state, state.round, self.position(state) or 0

    def acknowledge_below(self, state: PartitionState, offset: int) -> None:
        """The caller says that it is done with all below an offset."""
        self._acknowledged[state.tp] = state, state.round, offset

    def position(self, state: PartitionState) -> int | None:
        """The offset of the next record that will be handed out; None: not known yet."""
        in_hand = None if self.is_shown else self._in_hand_of(state)
        return self.behind(state) if in_hand is None else in_hand

    def behind(self, state: PartitionState) -> int | None:
        """The same, where the caller has what is in hand, or will have."""
        handing = self._handing_of(state)
        if handing is not None and handing.has_more:
            return handing.position
        return state.position if state.opening is None else state.opening

    def gone_past(self, state: PartitionState) -> int | None:
        """Everything below this offset is processed; None: not known yet where it begins."""
        offset = self._in_hand_of(state)
        if offset is None:
            offset = state.position if state.opening is None else state.opening
            handing = self._handing_of(state)
            if handing is not None:
                offset = handing.gone_past
        of, in_round, acknowledged = self._acknowledged.get(state.tp, (None, -1, 0))
        if offset is not None and of is state and in_round == state.round:
            return max(offset, acknowledged)
        return offset

    # A topic that was made again without a partition, and once more with it, has that read anew:
    # what is in hand of the first one says nothing of where the other is.

    def is_at_gone(self, state: PartitionState) -> bool:
        """Whether what the caller has in hand of the partition is of such a first one."""
        handing, (of, _) = self._handings.get(state.tp), self._in_hand.get(state.tp, (state, 0))
        return of is not state or (handing is not None and handing.state is not state)

    def _handing_of(self, state: PartitionState) -> Handing | None:
        handing = self._handings.get(state.tp)
        return handing if handing is not None and handing.state is state else None

    def _in_hand_of(self, state: PartitionState) -> int | None:
        of, offset = self._in_hand.get(state.tp, (None, 0))
        return offset if of is state else None

    def is_busy_with(self, tp: TopicPartition) -> bool:
        """Whether the caller has anything of this partition in hand."""
        handing = self._handings.get(tp)
        return tp in self._in_hand or (handing is not None and handing.in_loop)

"""What was fetched ahead and waits for the caller, in order: batches, gaps, and errors first.

    fetch --add_batch, move--> ready --take--> the caller; the position moves behind it

What becomes of a gap when its turn comes is `on_gap`:

    raise   GapError (TopicRecreated), once; reading goes on behind it
    yield   it is handed out like a batch
    skip    nothing is said

and in each case `lost_counts` has it.  A range that was deleted on purpose is no gap and never gets
here: for it the position only moves.

What goes wrong is tried again and goes wrong again, also while the caller is busy for hours, so of
each partition, and of each topic, one error waits: the last.  Where the caller reads others, or
elsewhere, before it has heard, what it asked before does not count, and is not told.

What is paused gives way where it would leave the others no room (0509).  Else it waits beside what
is ready, so that nobody has to go over it, and goes in front of that when it is resumed (0516).

Invariant: buffered_bytes is the sum over all partitions of their buffered_bytes, which is the sum
of the sizes of what is ready or aside, and not stale.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable

from segbroker.protocol.record_batch import BatchHeader

from .assigned import Fetched, PartitionState
from .errors import GapError, SegbrokerError, TopicRecreated
from .records import Gap, TopicPartition
from .settings import ConsumerSettings

# Of a damaged batch: it comes again.
GO_ON = "; it is tried again, until seek() goes behind it"
# Errors that are of no partition or topic, as long as nobody has asked for those there are.
ERRORS_COUNT_MAX = 100

About = PartitionState | frozenset[PartitionState] | str
"""What an error is about: the position in a partition, those in several, or a topic."""


class Prefetched:
    """See the module."""

    def __init__(self, settings: ConsumerSettings, on_room: Callable[[], object]) -> None:
        """`on_room` is called when taking made room for another fetch."""
        self.ready: deque[Fetched] = deque()
        # What `take` has found to be paused, or held: it came before all that is ready.
        self._aside: dict[PartitionState, deque[Fetched]] = {}
        # What went wrong, by what it is about; of several partitions, or none, by a number.
        self.errors: dict[PartitionState | str | int, SegbrokerError] = {}
        self._of_several: dict[int, frozenset[PartitionState]] = {}
        self._number = 0
        self.buffered_bytes = 0
        # When no more than this is left, a fetch that had no room has it; -1: there is none.
        self.wake_at_bytes = -1
        # How many offsets were lost, at most, of each partition that lost any.
        self.lost_counts: dict[TopicPartition, int] = {}
        self._settings = settings
        self._on_room = on_room
        self._opened: Fetched | None = None

    @property
    def is_full(self) -> bool:
        return self.buffered_bytes >= self._settings.prefetch_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, paused or not, but errors."""
        return not self.ready and not self._aside

    def add_batch(self, state: PartitionState, header: BatchHeader, data: bytes | None) -> None:
        """A batch that was fetched; without `data` it holds nothing for the caller."""
        size = 0 if data is None else len(data)
        from_offset = max(state.fetch_offset, header.base_offset)
        self.ready.append(
            Fetched(
                state,
                state.generation,
                from_offset,
                header.next_offset,
                size,
                data,
                leader_epoch=header.leader_epoch,
                stop_offset=state.stop_offset,
                is_stored=True,
            )
        )
        state.fetch_offset = header.next_offset
        state.buffered_bytes += size
        self.buffered_bytes += size

    def move(
        self,
        state: PartitionState,
        next_offset: int,
        gap: Gap | None = None,
        *,
        leader_epoch: int = -1,
    ) -> None:
        """The log goes on at `next_offset`, behind `gap` if there is one, which stands in the log
        in this epoch."""
        is_stored = leader_epoch >= 0
        self._bring_back([state])
        last = self.ready[-1] if self.ready else None
        if (
            gap is not None
            and last is not None
            and last.gap is not None
            and last.state is state
            and last.generation == state.generation
            and last.gap.reason == gap.reason != "recreated"
            and last.gap.to_offset == gap.from_offset
        ):
            # One loss is one gap, in however many batches it was written.
            last.gap = last.gap._replace(to_offset=gap.to_offset)
            last.next_offset = next_offset
            last.leader_epoch = max(last.leader_epoch, leader_epoch)
            last.is_stored = last.is_stored and is_stored
        else:
            self.ready.append(
                Fetched(
                    state,
                    state.generation,
                    state.fetch_offset,
                    next_offset,
                    gap=gap,
                    leader_epoch=leader_epoch,
                    is_stored=is_stored,
                )
            )
        state.fetch_offset = next_offset

    def fail(self, error: SegbrokerError, about: About | None = None) -> None:
        """Tell the caller; of a partition, or a topic, the last thing only, where it does not ask
        for long."""
        if isinstance(about, PartitionState | str):
            self.errors[about] = error
        elif len(self.errors) < ERRORS_COUNT_MAX:
            self._number += 1
            self.errors[self._number] = error
            if about is not None:
                self._of_several[self._number] = about

    def forget_topics(self, kept: Collection[str]) -> None:
        """Forget what went wrong with other topics."""
        for key in [key for key in self.errors if isinstance(key, str) and key not in kept]:
            del self.errors[key]

    def forget_of(self, gone: Collection[PartitionState]) -> None:
        """Forget what went wrong at positions that are left: of several also where one of them is.
        What holds of the others comes again."""
        for state in gone:
            self.errors.pop(state, None)
        for number, states in list(self._of_several.items()):
            if not states.isdisjoint(gone):
                del self._of_several[number]
                self.errors.pop(number, None)

    def take(self, *, batch_only: bool = False) -> Fetched | None:
        """The next batch with records, or gap, or None; moves the position behind it.

        Raises what went wrong since, once.  `batch_only`: None where it would raise, or hand
        out a gap: that is for the next call.
        """
        if self.errors and batch_only:
            return None
        self.raise_error()
        self._bring_back([one for one in self._aside if not (one.paused or one.held)])
        while self.ready:
            fetched = self.ready[0]
            state, gap = fetched.state, fetched.gap
            if fetched.generation != state.generation:
                del self.ready[0]
                continue
            if state.paused or state.held:
                aside = self._aside.setdefault(state, deque())
                # Ctrl-C comes at a call; there is none between these: it is in one place.
                aside += (fetched,)
                del self.ready[0]
                continue
            if batch_only and gap is not None and self._ends_a_poll(fetched):
                return None
            is_recreated = _is_recreated(gap)
            if gap is not None:
                self._count(gap)  # before: who does not hear of it finds it there
            # Ctrl-C comes at a call; there is none between these: what is ready no longer is taken.
            del self.ready[0]
            if fetched.data is not None:
                self._opened, state.opening = fetched, fetched.from_offset
            state.position = fetched.next_offset
            if is_recreated:
                state.topics_ahead_count -= 1
            if fetched.leader_epoch >= 0:
                state.position_epoch = fetched.leader_epoch
            self._release(state, fetched.size)
            if gap is not None:
                if self._settings.on_gap == "raise":
                    raise (TopicRecreated if is_recreated else GapError)(gap)
                if self._settings.on_gap == "yield":
                    return fetched
            elif fetched.data is not None:
                return fetched
        return None

    @property
    def left_unopened(self) -> Fetched | None:
        """What was taken and never handed out: an exception, such as Ctrl-C's, came between."""
        opened = self._opened
        if (
            opened is None
            or opened.state.opening != opened.from_offset
            or opened.generation != opened.state.generation
        ):
            return None
        return opened

    def raise_error(self) -> None:
        """Raise what went wrong since, once; nothing if nothing did."""
        for key in self.errors:
            if isinstance(key, int):
                self._of_several.pop(key, None)
            raise self.errors.pop(key)

    def discard(self, state: PartitionState) -> None:
        """Forget what is ready of a partition, and what went wrong at the position it leaves."""
        self.forget_of((state,))
        self._aside.pop(state, None)
        self.ready = deque(fetched for fetched in self.ready if fetched.state is not state)
        self.buffered_bytes -= state.buffered_bytes
        state.buffered_bytes = 0

    def cut(self, state: PartitionState, end: int) -> None:
        """Forget what is ready of a partition, of the topic that is read now, and lies at or behind
        `end`."""
        self._bring_back([state])
        kept: deque[Fetched] = deque()
        ahead_count = state.topics_ahead_count
        for fetched in self.ready:
            if fetched.state is state and not ahead_count and fetched.next_offset > end:
                state.buffered_bytes -= fetched.size
                self.buffered_bytes -= fetched.size
                continue
            if fetched.state is state and _is_recreated(fetched.gap):
                ahead_count -= 1
            kept.append(fetched)
        self.ready = kept

    def give_way(self, states: Iterable[PartitionState]) -> None:
        """Forget batches of paused partitions, the last ones first, until these hold less than half
        of what may be held: the others have no room, and nobody takes what is paused."""
        excess = -(self._settings.prefetch_bytes // 2)
        excess += sum(state.buffered_bytes for state in states if state.paused)
        if excess <= 0:
            return
        self._bring_back(list(self._aside))
        kept: deque[Fetched] = deque()
        done: set[PartitionState] = set()
        for fetched in reversed(self.ready):
            state = fetched.state
            if excess > 0 and state.paused and state not in done:
                if fetched.is_stored and not state.resolving:
                    state.forget_from(fetched.from_offset)
                    state.fetch_offset = fetched.from_offset
                    state.buffered_bytes -= fetched.size
                    self.buffered_bytes -= fetched.size
                    excess -= fetched.size
                    continue
                done.add(state)  # a gap that is not in the log is told once
            kept.appendleft(fetched)
        self.ready = kept

    def lost_tail(self, state: PartitionState) -> Gap | None:
        """What the caller has still to hear of the tail that the log has lost."""
        self._bring_back([state])
        lost = [
            fetched.gap
            for fetched in self.ready
            if fetched.state is state and fetched.gap is not None and _steps_back(fetched)
        ]
        if not lost:
            return None
        return lost[0]._replace(
            from_offset=min(gap.from_offset for gap in lost),
            to_offset=max(gap.to_offset for gap in lost),
        )

    def states(self) -> list[PartitionState]:
        """Of which something waits; of a topic that had more partitions, and is gone, too."""
        return list(dict.fromkeys((*self._aside, *(fetched.state for fetched in self.ready))))

    def gone(self, tp: TopicPartition, read: PartitionState | None) -> PartitionState | None:
        """The one that the caller is at: `read`, or of a topic that had more partitions, and is
        gone, what the caller has still to hear the end of."""
        for state in self.states():
            if state.tp == tp and state is not read:
                return state
        return read

    def give_up_old(self, state: PartitionState, from_offset: int) -> None:
        """Of the topic that `position` is of, and that is gone, all from an offset on is lost: the
        gap in front of the next topic tells of it."""
        self._bring_back([state])
        kept: deque[Fetched] = deque()
        is_old = True
        for fetched in self.ready:
            if is_old and fetched.state is state:
                gap = fetched.gap
                if gap is None or gap.reason != "recreated":
                    self._release(state, fetched.size)
                    continue
                fetched.gap = gap._replace(from_offset=from_offset)
                is_old = False
            kept.append(fetched)
        self.ready = kept
        state.position = from_offset

    def _bring_back(self, states: Collection[PartitionState]) -> None:
        """Put what is aside of these in front of what is ready."""
        back = self._aside.keys() & states
        if not back:
            return
        ready: deque[Fetched] = deque()
        aside: dict[PartitionState, deque[Fetched]] = {}
        for state, waiting in self._aside.items():
            if state in back:
                ready += waiting
            else:
                aside[state] = waiting
        ready += self.ready
        # Ctrl-C comes at a call; there is none between these: it is in one place.
        self.ready, self._aside = ready, aside

    def _ends_a_poll(self, of_gap: Fetched) -> bool:
        # What is in hand is counted by its first offset: it is all of one topic, and ascends.
        return self._settings.on_gap != "skip" or _steps_back(of_gap)

    def _release(self, state: PartitionState, size: int) -> None:
        limit = self._settings.fetch_partition_bytes
        was_full = state.buffered_bytes >= limit or self.is_full
        state.buffered_bytes -= size
        self.buffered_bytes -= size
        has_room = was_full and state.buffered_bytes < limit and not self.is_full
        if has_room or self.buffered_bytes <= self.wake_at_bytes:
            self._on_room()

    def _count(self, gap: Gap) -> None:
        tp = TopicPartition(gap.topic, gap.partition)
        self.lost_counts[tp] = self.lost_counts.get(tp, 0) + gap.lost_count


def _steps_back(fetched: Fetched) -> bool:
    """Whether the log goes on below what was read: it is another, or has lost its tail."""
    return fetched.gap is not None and fetched.next_offset <= fetched.gap.from_offset


def _is_recreated(gap: Gap | None) -> bool:
    return gap is not None and gap.reason == "recreated"

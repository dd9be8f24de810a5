"""What to do when the log is not what it was: its start moved, its end fell back, it is another.

    the broker says               what is found            told                    goes on at
    out of range, below the start lost down to the floor   Gap [position, floor)   log start
                                  deleted on purpose       nothing                 log start
    out of range, above the end   was there when fetched   Gap [end, position)     end
                                  never was                OffsetOutOfRange        (a seek)
    out of range, but within      does not know our epoch  nothing                 position
    out of range                  never came to our epoch  Gap [its start, ...)    where that began
    a new leader epoch            ours ends below us       Gap [end, position)     end
    diverging                     the epoch that we read   Gap [end, position)     end
                                  last ends below us
    another topic id              another topic            Gap "recreated"         its start

`on_reset` may send a reader that is out of range elsewhere ("end"), and spares it the error; a loss
is told all the same.

While a question is under way the partition is `resolving`: nothing is fetched, so nothing can be
read over the change.  A seek meanwhile makes the answer void (`generation`).
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from .assigned import PartitionState
from .completion import Completion
from .engine import Call, Engine
from .errors import OffsetOutOfRange, PeerError, as_told
from .log_bounds import LogBounds, find_bounds, find_epoch_end, look_again
from .prefetched import Prefetched
from .records import Gap
from .settings import ConsumerSettings

# How often in a row a log may have moved between two answers before that is told.
CONTRADICTIONS_MAX = 5


class LogChanges:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        settings: ConsumerSettings,
        prefetched: Prefetched,
        *,
        hold: Callable[[PartitionState], object],
        seek: Callable[[PartitionState, str], object],
        notify: Callable[[], object],
    ) -> None:
        """`hold` backs off from a partition, `seek` goes to "start" or "end", `notify` wakes."""
        self._engine = engine
        self._settings = settings
        self._prefetched = prefetched
        self._hold = hold
        self._seek = seek
        self._notify = notify

    def out_of_range(self, state: PartitionState, now_ms: int) -> None:
        """The broker has nothing at the offset that was asked for."""
        self._ask(state, find_bounds(self._engine, state.tp), self._bounds_found, now_ms)

    def check_epoch(self, state: PartitionState, current_epoch: int, now_ms: int) -> None:
        """Another leader epoch has begun: are the records that we read in its log?"""

        def found(state: PartitionState, end: int | None) -> None:
            state.checked_epoch = current_epoch
            if end is not None and end < state.fetch_offset:
                self.truncated(state, end)

        call = find_epoch_end(self._engine, state.tp, current_epoch, state.epoch)
        self._ask(state, call, found, now_ms)

    def diverged(self, state: PartitionState, end: int, now_ms: int) -> None:
        """A fetch says that what was read from `end` on is not in the log."""

        def looked(state: PartitionState, _: None) -> None:
            self.truncated(state, end)

        self._ask(state, look_again(), looked, now_ms)

    def truncated(self, state: PartitionState, end: int) -> None:
        """What lay at `end` and behind it is not in the log any more."""
        gap = Gap(*state.tp, end, state.fetch_offset, "lost_tail")
        kept = [(epoch, start) for epoch, start in state.epochs if start < end]
        self._prefetched.cut(state, end)
        self._go_on(state, end, gap)
        state.epochs = kept
        state.told_offset = gap.to_offset

    def recreated(self, state: PartitionState, topic_id: UUID) -> None:
        """The topic is another one of the same name."""
        gap = Gap(
            *state.tp,
            state.fetch_offset,
            max(state.fetch_offset, state.high_watermark),
            "recreated",
        )
        # What went wrong at the position, an offset that the old one did not have among it.
        self._prefetched.errors.pop(state, None)
        state.is_stuck = False
        self._go_on(state, 0, gap)
        state.topic_id = topic_id
        state.topics_ahead_count += 1
        state.high_watermark = -1
        state.failures = state.unknown_count = 0
        state.backoff_until_ms = 0

    def lost_in_log(
        self, state: PartitionState, gap: Gap, next_offset: int, leader_epoch: int
    ) -> None:
        """A gap that stands in the log; what was told already, or is not asked for, is left out."""
        start = max(gap.from_offset, state.fetch_offset)
        if gap.reason == "lost_tail":
            start = max(start, state.told_offset)
        stop = gap.to_offset
        if state.stop_offset is not None:
            stop = min(stop, state.stop_offset)
        clipped = gap._replace(from_offset=start, to_offset=stop)
        told = clipped if start < stop else None
        self._prefetched.move(state, next_offset, told, leader_epoch=leader_epoch)

    def _bounds_found(self, state: PartitionState, bounds: LogBounds) -> None:
        offset, policy = state.fetch_offset, self._settings.on_reset
        if offset < bounds.log_start:
            gap = bounds.lost_from(state.tp, offset)
            next_offset = bounds.end if policy == "end" else bounds.log_start
            self._prefetched.move(state, next_offset, gap)
            state.round += 1
            self._notify()
        elif offset <= bounds.end and self._is_older(state):
            if state.failures < CONTRADICTIONS_MAX:
                self._hold(state)  # a leader of before, that is one no longer, says the same
            else:
                self._step_back(state, bounds.end)
        elif offset <= bounds.end:
            if state.failures:
                state.epoch = -1  # it does not move: of the epoch nothing is known there
            self._hold(state)  # it moved meanwhile: ask again
            if state.failures % CONTRADICTIONS_MAX == 0:
                where = f"{state.tp.topic}-{state.tp.partition}"
                log = f"[{bounds.log_start}, {bounds.end}]"
                why = (
                    f"{where}: the broker has nothing at offset {offset}, and says its log is {log}"
                )
                self._prefetched.fail(PeerError(why), state)
                self._notify()
        elif state.is_confirmed and self._is_older(state):
            self._step_back(state, bounds.end)
        elif state.is_confirmed:
            self.truncated(state, bounds.end)
        elif policy != "error":
            self._seek(state, policy)
        else:
            self.beyond_end(state, bounds.log_start, bounds.end)

    def _is_older(self, state: PartitionState) -> bool:
        """Another log is in the place of that which was read: an older backup was put back."""
        return state.is_ahead_of(self._engine.cluster.leader_epoch(*state.tp))

    def _step_back(self, state: PartitionState, end: int) -> None:
        """Nothing that was read of the last epoch is in this log, which has `end`; how much of the
        epoch before is in it, the next fetch says."""
        *older, (_, start) = state.epochs
        vouched = state.checked_epoch
        self.truncated(state, min(start, end))
        state.is_confirmed = True
        state.epochs, state.checked_epoch = older, vouched
        state.epoch = older[-1][0] if older else -1

    def beyond_end(self, state: PartitionState, log_start: int, end: int) -> None:
        """The caller named an offset that no record has yet: nothing happens before it seeks."""
        state.is_stuck = True
        topic, partition = state.tp
        error = OffsetOutOfRange(
            f"{topic}-{partition}: offset {state.fetch_offset} is outside"
            f" [{log_start}, {end}]; seek, or set on_reset='start'"
        )
        self._prefetched.fail(error, state)
        self._notify()

    def _go_on(self, state: PartitionState, next_offset: int, gap: Gap) -> None:
        self._prefetched.move(state, next_offset, gap)
        state.round += 1
        # The end of a bounded reading was one of the log as it was, and so was that of the lag.
        state.stop_offset = None
        state.end_offset = -1
        state.forget_log()
        self._notify()

    def _ask(
        self,
        state: PartitionState,
        question: Call[Any],
        found: Callable[[PartitionState, Any], None],
        now_ms: int,
    ) -> None:
        asked = state.generation, state.round
        state.resolving = True
        call: Completion[Any] = self._engine.call(question, now_ms)

        def answered() -> None:
            if state.generation != asked[0]:
                return
            state.resolving = False
            if state.round != asked[1]:
                pass  # it has become clear otherwise meanwhile: another topic
            elif call.error is None:
                found(state, call.result())
            else:
                self._prefetched.fail(as_told(call.error), state)
                self._hold(state)
            self._notify()  # also where nothing has changed: it may be at its end

        call.on_done(answered)

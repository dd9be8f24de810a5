"""Where partitions begin, and where a bounded reading of them ends: looked up, and written down.

    no position --asked, resolving--> position, and the end
         ^                 |
         +-----------------+ nobody says, or nobody serves it: again later (holding.py)

The end is looked up first: a reading bounded by it must not miss what is written between the two.
What was sought or assigned anew meanwhile (`generation`), or goes on in another topic of the name
(`round`), is left alone, and so is what is not served: the others do not wait for it.

A partition that is not there is a mistake where the caller has named it, and the caller hears so;
what a group gives, or a topic has, is there a moment later.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial

from .assigned import PartitionState
from .completion import Completion
from .engine import Call, Engine
from .errors import BrokerError, UnknownTopicOrPartition, as_told
from .holding import Fail, Holding
from .log_changes import LogChanges
from .lookups import END_TIME, START_TIME, FoundOffset, look_up, topics_known
from .records import TopicPartition
from .settings import ConsumerSettings
from .starting import is_from_end, is_offset, needs_end, offset_of, start_time


class StartLookup:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        settings: ConsumerSettings,
        states: Mapping[TopicPartition, PartitionState],
        touched: Collection[PartitionState],
        holding: Holding,
        changes: LogChanges,
        *,
        stop_at_end: bool,
        fail: Fail,
        found: Callable[[], object],
    ) -> None:
        """states: what is read, now and later; touched: those of them that may have changed since
        the last step.  `found` is called when some may have a position."""
        # The caller names what is read, partition by partition.
        self.is_named = False
        self._engine = engine
        self._settings = settings
        self._states = states
        self._touched = touched
        self._holding = holding
        self._changes = changes
        self._stop_at_end = stop_at_end
        self._fail = fail
        self._found = found
        self._now_ms = 0
        # Those that have no position, or no end.
        self.lacking: dict[PartitionState, None] = {}

    def step(self, now_ms: int) -> None:
        """Ask for all that have no position, or no end, and are not asked for yet."""
        self._now_ms = now_ms
        lacking = dict.fromkeys(filter(self._lacks, (*self.lacking, *self._touched)))
        self.lacking = lacking
        for kind in (False, True) if lacking else ():
            # By time and by offset in separate calls: one wrong time must not hold up the rest.
            wanted = [
                state
                for state in lacking
                if not state.resolving
                and not state.is_stuck
                and now_ms >= state.backoff_until_ms
                and isinstance(state.start, datetime) is kind
            ]
            if wanted:
                asked = {state: state.version for state in wanted}
                for state in wanted:
                    state.resolving = True
                question = _find_starts(
                    self._engine, self._settings, wanted, stop_at_end=self._stop_at_end
                )
                call = self._engine.call(question, now_ms)
                call.on_done(partial(self._answered, call, asked))

    def _lacks(self, state: PartitionState) -> bool:
        is_lacking = state.position is None or (self._stop_at_end and state.stop_offset is None)
        return is_lacking and self._states.get(state.tp) is state

    def _answered(
        self,
        call: Completion[dict[TopicPartition, BrokerError]],
        asked: dict[PartitionState, tuple[int, int]],
    ) -> None:
        error = call.error
        unserved = {} if error is not None else call.result()
        for state, (generation, _) in asked.items():
            if state.generation == generation:
                state.resolving = False
        current = [state for state, version in asked.items() if state.version == version]
        for state in current:
            if error is not None:
                self._holding.hold(state, self._now_ms)
            elif (why := unserved.get(state.tp)) is not None:
                self._holding.not_served(state, self._now_ms, why)
                if self.is_named and isinstance(why, UnknownTopicOrPartition):
                    self._fail(why, state)
        # Where one goes on in another topic, that may be all that was wrong; else it comes again.
        if error is not None and len(current) == len(asked):
            self._fail(as_told(error), frozenset(asked))
        for state in current:
            # A bounded reading that begins behind its end would end without a word.
            is_beyond = state.stop_offset is not None and state.fetch_offset > state.stop_offset
            if is_beyond and is_offset(state.start):
                self._changes.out_of_range(state, self._now_ms)
        self._found()


def _find_starts(
    engine: Engine,
    settings: ConsumerSettings,
    wanted: Sequence[PartitionState],
    *,
    stop_at_end: bool,
) -> Call[dict[TopicPartition, BrokerError]]:
    """Give each of the partitions its position, and with `stop_at_end` its end; those that are not
    served, and why."""
    asked = {state: state.version for state in wanted}
    times: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    unserved: dict[TopicPartition, BrokerError] = {}
    for state in wanted:
        time = start_time(state.start)
        if state.position is None and time is not None:
            times[state.tp] = time
        if (stop_at_end and state.stop_offset is None) or needs_end(state.start):
            ends[state.tp] = END_TIME
        if is_from_end(state.start):
            starts[state.tp] = START_TIME

    def look(asked: dict[TopicPartition, int]) -> Call[dict[TopicPartition, FoundOffset]]:
        asked = {tp: time for tp, time in asked.items() if tp not in unserved}
        if not asked:
            return {}
        level = settings.isolation_level
        return (yield from look_up(engine, asked, isolation_level=level, unserved=unserved))

    views = yield from topics_known(engine, {state.tp.topic for state in wanted})
    topic_ids = {view.name: view.topic_id for view in views}
    found_ends = yield from look(ends)
    found = yield from look(times)
    found_starts = yield from look(starts)
    for state in wanted:
        tp = state.tp
        if state.version != asked[state] or tp in unserved:
            continue
        if stop_at_end and state.stop_offset is None:
            state.stop_offset = found_ends[tp].offset
        if state.position is None:
            end = found_ends[tp].offset if tp in found_ends else 0
            offset = offset_of(state.start, found.get(tp), end, found_starts.get(tp))
            state.position = state.fetch_offset = offset
            state.topic_id = topic_ids[tp.topic]
    return unserved

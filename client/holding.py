"""Partitions of a reading that cannot be read at present: tried again later, and who hears why.

a fetch fails      kept back for a while, longer each time; the caller hears why it goes on
                   when that has lasted api_timeout_ms
nobody serves it   a bounded reading ends with it, behind all that is served; another one goes
                   on with the others (unserved.py) and ends where nothing else is served
"""

from collections.abc import Mapping
from typing import Protocol

from .assigned import PartitionState
from .engine import Engine
from .errors import SegbrokerError
from .prefetched import About
from .records import TopicPartition
from .unserved import Unserved


class Fail(Protocol):
    """Tell the caller of an error, and what it is about; None: of all."""

    def __call__(self, error: SegbrokerError, about: About | None = None) -> None: ...


class Holding:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        states: Mapping[TopicPartition, PartitionState],
        *,
        stop_at_end: bool,
        fail: Fail,
    ) -> None:
        """states: what is read, now and later."""
        self._engine = engine
        self._settings = engine.settings
        self._states = states
        self._stop_at_end = stop_at_end
        self._fail = fail
        self.unserved = Unserved(engine.network.absences.say)

    def hold(self, state: PartitionState, now_ms: int, why: SegbrokerError | None = None) -> None:
        """Keep it back for a while; the caller hears `why` when that has gone on for long."""
        if not state.failures:
            state.failing_since_ms = now_ms
        elif why is not None and now_ms >= state.failing_since_ms + self._settings.api_timeout_ms:
            state.failing_since_ms = now_ms
            self._fail(why, state)
        state.failures += 1
        backoff = self._engine.backoff(
            self._settings.retry_backoff_max_ms, attempts=state.failures - 1
        )
        state.backoff_until_ms = now_ms + backoff.next_delay_ms()

    def not_served(self, state: PartitionState, now_ms: int, why: SegbrokerError) -> None:
        """Try it again later; the others go on.  A bounded reading ends with `why`; another one
        hears it where nothing else is served."""
        state.unserved = why
        if self._stop_at_end:
            self.hold(state, now_ms)  # told behind what is served, see `tell_unserved`
            return
        self.unserved.missing(state.tp, why, now_ms)
        is_all = self.unserved.is_all_of(len(self._states), now_ms, self._settings.api_timeout_ms)
        self.hold(state, now_ms, why if is_all and why.retryable else None)
        if is_all and not why.retryable:
            self._fail(why, state)

    def look(self, now_ms: int) -> None:
        """Say in the log which partitions have not been served for long, and which are again."""
        if self.unserved:
            states = self._states
            self.unserved.look(states, lambda tp: states[tp].unserved is None, now_ms)

    def tell_unserved(self) -> None:
        """A bounded reading has handed out all that it has: where that is all that is served, the
        caller hears why the rest is not."""
        left = [state for state in self._states.values() if not state.at_stop]
        whys = [state.unserved for state in left if state.unserved is not None]
        if not whys or len(whys) < len(left):
            return
        for state in left:
            state.unserved = None  # said once, until it is tried again
        error = whys[0]
        if len(whys) > 1:
            error = type(error)(f"{error}; and {len(whys) - 1} more")
        self._fail(error, frozenset(left))

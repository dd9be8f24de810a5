"""One heap of deadlines and one task that sleeps until the nearest.

    slot.deadline   what a request waits for at most; completing the slot ends its deadline
    heap            (time, ordinal, slot), a slot at most once; completed slots stay in it until
                    they surface or outnumber the live ones, then the heap is rebuilt without them

A cancel scope or a timer task per request would cost more than the request.  Times are those of
trio's clock, in seconds, so that a test's clock moves them.

A round handles the entries that were there when it began, as many as it has time for (pace.py).
The rest, and an entry that an expiry adds, even for a time in the past, belong to the next round,
after everybody else's turn.

The task looks at the clock every LOOK_S at least, so it notices when the loop stood still: the
process was stopped, the machine was paused, or a step took seconds.  That is logged as a warning,
and alarms wait until `grace_ends` (alarms.py): the requests that clients sent meanwhile are in the
sockets and have to be read first.  If the loop stands still again within the grace, there is no
second grace: alarms ring, however often that happens.

Invariant: the task's scope expires at or before the nearest live deadline.
"""

import heapq
import math
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final, Protocol

import structlog
import trio

from .pace import Pace

log = structlog.get_logger()

# A rebuild below this size would cost more than the dead entries do.
_REBUILD_LEAST: Final = 64
LOOK_S: Final = 0.5
STOOD_STILL_S: Final = 1.0
"""Late by more than this: the loop stood still."""
GRACE_S: Final = 1.0


class Timed(Protocol):
    """What can be waited for with a deadline."""

    done: bool

    def expire(self) -> None:
        """The deadline has passed first: become done and call `forget`.

        What it raises is logged: it is a bug, and the other deadlines are kept.
        """


class Deadlines:
    """The deadlines of all requests of one broker."""

    __slots__ = (
        "_began",
        "_dead",
        "_heap",
        "_on_expired",
        "_ordinal",
        "_scope",
        "grace_ends",
        "stood_still_count",
        "stood_still_s",
        "stood_still_since",
    )

    def __init__(self, on_expired: Callable[[], None]) -> None:
        """`on_expired` is called after a round of expiries: the end of a turn."""
        self._on_expired = on_expired
        self._heap: list[tuple[float, int, Timed]] = []
        self._ordinal = count()
        self._dead = 0
        self._scope: trio.CancelScope | None = None
        self._began = -math.inf  # when the task began to wait
        # On trio's clock: when the loop stood still last, and until when it catches up.
        self.stood_still_since = self.grace_ends = -math.inf
        # How often it did since the start, and for how long in all.
        self.stood_still_count, self.stood_still_s = 0, 0.0

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    @property
    def size(self) -> int:
        """Entries of the heap, dead ones included."""
        return len(self._heap)

    def add(self, deadline: float, timed: Timed) -> None:
        """Have `timed.expire()` called at `deadline` (trio's clock) unless it is done by then."""
        heapq.heappush(self._heap, (deadline, next(self._ordinal), timed))
        if self._scope is not None and deadline < self._scope.deadline:
            self._scope.deadline = deadline

    def forget(self) -> None:
        """One slot with a deadline was completed: its entry is dead from now on.  Never raises: the
        slot is to be sent what it was completed with."""
        self._dead += 1
        if self._dead > _REBUILD_LEAST and self._dead * 2 > len(self._heap):
            with suppress(MemoryError):  # it is tried again with the next
                live = [entry for entry in self._heap if not entry[2].done]
                heapq.heapify(live)
                self._heap, self._dead = live, 0

    async def run(self) -> None:
        """Expire what is due, for ever: the one timer task."""
        while True:
            self._began = began = trio.current_time()
            nearest = self._heap[0][0] if self._heap else math.inf
            with trio.CancelScope(deadline=min(nearest, began + LOOK_S)) as self._scope:
                await trio.sleep_forever()
            self.look_at_clock()
            self._scope = None
            now = trio.current_time()
            if self._heap and self._heap[0][0] <= now:
                self._expire(now)
                self._look(now)

    def look_at_clock(self) -> None:
        """See whether the loop stood still; others may have their turn before the timer task."""
        if self._scope is None:
            return
        # What was added meanwhile may have been due before it was.
        self._look(max(self._began, self._scope.deadline))

    def _look(self, since: float) -> None:
        """since: when others were to have their turn."""
        now = trio.current_time()
        if now - since <= STOOD_STILL_S:
            return
        self._began = now  # that was told
        self.stood_still_count += 1
        self.stood_still_s += now - since
        log.warning("loop_stood_still", ms=int((now - since) * 1000))
        if since >= self.grace_ends:
            self.stood_still_since, self.grace_ends = since, now + GRACE_S

    def _expire(self, now: float) -> None:
        begun = next(self._ordinal)
        added: list[tuple[float, int, Timed]] = []
        pace = Pace()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            _, ordinal, timed = entry
            if ordinal > begun:
                added.append(entry)
                continue
            # Dead, or about to be counted as dead by its own `forget`: gone from the heap.
            self._dead -= 1
            if not timed.done:
                try:
                    timed.expire()
                except Exception:  # a bug: the task of all deadlines goes on
                    log.exception("deadline_failed")
            if pace.is_over:
                break
        for entry in added:
            heapq.heappush(self._heap, entry)
        self._on_expired()

"""Long-lived objects are kept out of the way of Python's garbage collector.

An open partition is some seventy objects that could be part of a cycle, and a committed offset is
one or two.  A full collection looks at all of them: with 10,000 open partitions, or 20,000 groups
with ten offsets each, it stops the loop for a fifth to a third of a second, however little there is
to collect, and comes again with each quarter that is new.  So what is long-lived is frozen, which
takes the same time however much there is.  It is thawed now and then, so that cycles among it are
collected.

| since the last time | then |
|---|---|
| OPENED_MIN partitions were opened | all there is is frozen |
| a full collection took LONG_S | all there is is frozen |
| a quarter of the partitions that were frozen was closed, and OPENED_MIN | all is thawed |
| frozen after a long collection, and THAWED_SHARE of the time has room for one | all is thawed |
| thawed, and a full collection has passed | all there is is frozen |

A frozen object that is in no cycle is freed as usual, and what clients leave behind is in none:
neither a connection nor what was asked by it.  Only the daemon does this: in the process of
somebody else (testing/) it would freeze their objects as well.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import trio

OPENED_MIN: Final = 256
LONG_S: Final = 0.01
THAWED_SHARE: Final = 0.0002
"""Of all time, what the collections of everything may take: 0.2 s are looked through every 17
minutes."""
LOOKS_EVERY_S: Final = 1.0


class Counted(Protocol):
    """Who opens partitions: how many it has opened, and closed, so far."""

    opened_count: int
    closed_count: int


class Collections:
    """Full collections: how many have passed, and how long those took that `took_s` has not told.

    Whichever thread makes one tells of it, and holds the interpreter meanwhile.
    """

    def __init__(self) -> None:
        self.passed = 0
        self._began_s = 0.0
        self._long_s = 0.0

    def told(self, phase: str, info: dict[str, Any]) -> None:
        """For gc.callbacks."""
        if info["generation"] != 2:
            return
        if phase == "start":
            self._began_s = time.perf_counter()
        else:
            self.passed += 1
            self._long_s = max(self._long_s, time.perf_counter() - self._began_s)

    def took_s(self) -> float:
        """The longest since this was asked last, in seconds."""
        longest, self._long_s = self._long_s, 0.0
        return longest

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While the block is in."""
        gc.callbacks.append(self.told)
        try:
            yield
        finally:
            gc.callbacks.remove(self.told)


class Spared:
    """What was frozen so far."""

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self._opened: int | None = None
        self._closed = 0
        self._thawed_at: int | None = None
        """Full collections that had passed when all was thawed; None: it is frozen."""
        self._looking_s = 0.0
        """What a collection of all that was frozen for having taken long would take."""
        self._since_s = 0.0
        """When it was looked through last, or the first of it was frozen."""

    def look(self, counted: Counted, now_s: float) -> None:
        """Freeze or thaw what there is, if it is time to.  now_s: of a clock that never jumps."""
        opened, closed = counted.opened_count, counted.closed_count
        if self._thawed_at is not None:
            if self._collections.passed == self._thawed_at:
                return
            took_s = self._collections.took_s()
            self._looking_s = took_s if took_s >= LONG_S else 0.0
            gc.freeze()
            self._since_s = now_s
            self._opened, self._closed, self._thawed_at = opened, closed, None
            return
        took_s = self._collections.took_s()
        many_closed = closed - self._closed >= max(OPENED_MIN, (opened - self._closed) // 4)
        if many_closed or self._has_room(now_s):
            gc.unfreeze()
            self._thawed_at = self._collections.passed
        elif took_s >= LONG_S:
            if not self._looking_s:
                self._since_s = now_s
            self._looking_s += took_s
            gc.freeze()
        elif self._opened is None or opened - self._opened >= OPENED_MIN:
            gc.freeze()
            self._opened = opened

    def _has_room(self, now_s: float) -> bool:
        """Whether all may be looked through once more."""
        return 0 < self._looking_s <= (now_s - self._since_s) * THAWED_SHARE


async def spare(counted: Counted) -> None:
    """Look for ever."""
    collections = Collections()
    spared = Spared(collections)
    with collections.listening():
        while True:
            spared.look(counted, trio.current_time())
            await trio.sleep(LOOKS_EVERY_S)

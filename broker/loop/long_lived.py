"""Long-lived objects are kept out of the way of Python's garbage collector.

An open partition is some seventy objects that could be part of a cycle, and a full collection looks
at all of them: with 10,000 open partitions it stops the loop for a third of a second, however
little there is to collect.  So the objects of open partitions are frozen, which takes the same time
however many there are.  They are thawed when enough partitions were closed, so that cycles among
their objects are collected.

| since the last time | then |
|---|---|
| OPENED_MIN partitions were opened | all there is is frozen |
| a quarter of those that were frozen was closed, and OPENED_MIN | all is thawed |
| thawed, and a full collection has passed | all there is is frozen |

A frozen object that is in no cycle is freed as usual.  Only the daemon does this: in the process of
somebody else (testing/) it would freeze their objects as well.
"""

import gc
from typing import Final, Protocol

import trio

OPENED_MIN: Final = 256
LOOKS_EVERY_S: Final = 1.0


class Counted(Protocol):
    """Who opens partitions: how many it has opened, and closed, so far."""

    opened_count: int
    closed_count: int


class Spared:
    """What was frozen so far."""

    def __init__(self) -> None:
        self._opened: int | None = None
        self._closed = 0
        self._collections: int | None = None
        """Full collections that had passed when all was thawed; None: it is frozen."""

    def look(self, counted: Counted) -> None:
        """Freeze or thaw what there is, if it is time to."""
        opened, closed = counted.opened_count, counted.closed_count
        if self._collections is not None:
            if _full_collections() == self._collections:
                return
            self._freeze(opened, closed)
        elif closed - self._closed >= max(OPENED_MIN, (opened - self._closed) // 4):
            gc.unfreeze()
            self._collections = _full_collections()
        elif self._opened is None or opened - self._opened >= OPENED_MIN:
            gc.freeze()
            self._opened = opened

    def _freeze(self, opened: int, closed: int) -> None:
        gc.freeze()
        self._opened, self._closed, self._collections = opened, closed, None


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


async def spare(counted: Counted) -> None:
    """Look for ever."""
    spared = Spared()
    while True:
        spared.look(counted)
        await trio.sleep(LOOKS_EVERY_S)

"""What stays is kept out of the way of the collector of cycles.

An open partition is some seventy objects that could be part of a cycle, and a full collection looks
at all of them: with 10,000 partitions open it holds the loop for a third of a second, however
little there is to collect.  So what has been opened is frozen, which costs the same however much it
is, and thawed when enough of it was closed: what then lies in cycles is collected.

| since the last time | then |
|---|---|
| OPENED_MIN partitions were opened | all there is is frozen |
| a quarter of those that were frozen was closed, and OPENED_MIN | all is thawed |
| thawed, and a full collection has passed | all there is is frozen |

What is frozen and not in a cycle goes as ever.  For the daemon alone: in a process of somebody else
(testing/) it would freeze their objects as well.
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

"""A token bucket: how much of the loop's time its own syncs may take (InlineSyncBudget).

    80 us, 95 us, 90 us ... ROW of them, the last one just now    quick
    3 ms now and then                                             quick
    3 ms again and again: 1/BUDGET_DIVISOR of the time            not until it is less than that,
    300 ms                                                        and not before ROW more of them

Why: to give a lone write to the writer's thread and be woken by it costs as much as the sync on a
quick disk, so the loop syncs it itself.  But a loop that syncs does nothing else meanwhile.  So
slow syncs draw on a budget of time: the bucket gains one second per BUDGET_DIVISOR seconds and
holds at most BURST_S.  When they have drawn more than it had, syncs are left to the thread until
that has come back.  So the loop stands still in slow syncs for at most that part of the time,
BURST_S more, and what the last sync took beyond that, however slow the disk is.

All syncs of a shard are looked at, whoever does them, and nothing else, such as who waits for the
interpreter.  Without a clock nothing is ever quick.

Changed by whoever syncs, one at a time; read by anybody.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Seconds that only rise."""

SLOW_S: Final = 0.001
"""One that takes longer is slow."""
MEAN_S: Final = 0.0005
"""So long they may take on average, a slow one counted as SLOW_S."""
BURST_S: Final = 0.02
"""What slow ones may take together before it matters: a full bucket, which it is when none was slow
for BUDGET_DIVISOR times that."""
FRESH_S: Final = 1.0
"""What is known of a disk that was asked for nothing for longer is old."""
ROW: Final = 32
BUDGET_DIVISOR: Final = 20
_WEIGHT: Final = 1 / 16


class InlineSyncBudget:
    """The bucket, and how long the last syncs took."""

    __slots__ = ("_clock", "_last", "_mean", "_repaid", "_row", "row_min")

    def __init__(self, clock: Clock | None, row_min: int = ROW) -> None:
        """row_min: so many that were not slow come before the first that counts as quick."""
        self.row_min = row_min
        self._clock = clock
        self._row = 0
        self._mean = 0.0
        self._last = self._repaid = 0.0 if clock is None else clock()
        """`_repaid`: when what was overdrawn has come back; where that was some time ago, a
        BUDGET_DIVISOR-th of this time is in the bucket."""

    def now(self) -> float:
        """The time before a write and its sync, for `took`."""
        return 0.0 if self._clock is None else self._clock()

    def took(self, began: float) -> float | None:
        """A write and sync that began then have ended now; how long they took, in seconds.  None:
        without a clock nobody knows."""
        if self._clock is None:
            return None
        self._last = now = self._clock()
        seconds = now - began
        self._mean += (min(seconds, SLOW_S) - self._mean) * _WEIGHT
        if seconds > SLOW_S:
            full = now - BUDGET_DIVISOR * BURST_S
            self._repaid = max(self._repaid, full) + BUDGET_DIVISOR * seconds
            if self._repaid > now:
                self._row = 0
        else:
            self._row += 1
        return seconds

    @property
    def is_quick(self) -> bool:
        """Whether the next sync may be expected to be quick."""
        if self._clock is None or self._row < self.row_min or self._mean > MEAN_S:
            return False
        now = self._clock()
        return now >= self._repaid and now - self._last <= FRESH_S

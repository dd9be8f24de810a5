"""Whether a shard's syncs are so quick that who waits for one may do it in its own thread.

    80 us, 95 us, 90 us ... ROW of them, the last one just now    quick
    3 ms now and then                                             quick
    3 ms again and again: a part in PAUSES of the time            not until it is less than that,
    300 ms                                                        and not before ROW more of them

To hand a lone write to the writer's thread and to be woken by it costs as much as a quick disk
takes for the sync.  But a loop that syncs stands still meanwhile.  So syncs that are slow use up
time, of which a part in PAUSES of all time comes back and SPARE_S are kept at most; where they have
used more the disk is left to the thread until it has come back.  So the loop stands still in slow
syncs for a part in PAUSES of the time and SPARE_S more at most, and for what the last one took
beyond that, however slow the disk is.

All syncs of a shard are looked at, whoever does them, and nothing else is: not who waits for the
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
SPARE_S: Final = 0.02
"""What slow ones may take together before it matters, if none was slow for PAUSES times that."""
FRESH_S: Final = 1.0
"""What is known of a disk that was asked for nothing for longer is old."""
ROW: Final = 32
PAUSES: Final = 20
_WEIGHT: Final = 1 / 16


class Quickness:
    """How long the last syncs took."""

    __slots__ = ("_clock", "_last", "_mean", "_paid", "_row", "row_min")

    def __init__(self, clock: Clock | None, row_min: int = ROW) -> None:
        """row_min: so many that were not slow come before the first that counts as quick."""
        self.row_min = row_min
        self._clock = clock
        self._row = 0
        self._mean = 0.0
        self._last = self._paid = 0.0 if clock is None else clock()
        """`_paid`: when what slow syncs took will have come back; in the past, as much is spare."""

    def now(self) -> float:
        """The time before a write and its sync, for `took`."""
        return 0.0 if self._clock is None else self._clock()

    def took(self, began: float) -> None:
        """A write and sync that began then have ended now."""
        if self._clock is None:
            return
        self._last = now = self._clock()
        seconds = now - began
        self._mean += (min(seconds, SLOW_S) - self._mean) * _WEIGHT
        if seconds > SLOW_S:
            self._paid = max(self._paid, now - PAUSES * SPARE_S) + PAUSES * seconds
            if self._paid > now:
                self._row = 0
        else:
            self._row += 1

    @property
    def is_quick(self) -> bool:
        """Whether the next sync may be expected to be quick."""
        if self._clock is None or self._row < self.row_min or self._mean > MEAN_S:
            return False
        now = self._clock()
        return now >= self._paid and now - self._last <= FRESH_S

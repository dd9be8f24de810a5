"""How long the syncs of a WAL take: a histogram that costs one search in a short tuple per sync.

    BOUNDS   0.0001  0.0002  0.0005 ... 2.5        seconds
    counts   |  3   |  120  |   4  ...   0  |  1   the last one: above every bound

Whoever syncs has looked at the clock before and after for the budget of the loop (inline_sync.py),
and hands the difference on.  A sync that failed is not in it.

Changed by whoever syncs, one at a time; read by anybody, who may see a sync in `counts` that is
not in `seconds` yet.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

BOUNDS: Final = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
"""Seconds; a sync that takes exactly so long is below the bound."""
SLOW_S: Final = 1.0
"""One of BOUNDS: what takes longer tells of a disk that is in trouble, or has too much to do."""


class Histogram(NamedTuple):
    """Syncs by how long they took: for each of BOUNDS, and one more, and all their seconds."""

    counts: tuple[int, ...]
    seconds: float

    @property
    def slow(self) -> int:
        """Those that took longer than SLOW_S."""
        return sum(self.counts[BOUNDS.index(SLOW_S) + 1 :])

    def __add__(self, other: object) -> "Histogram":
        """Both together: the shards of one WAL."""
        assert isinstance(other, Histogram), "as tuples they would be longer"
        counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        return Histogram(counts, self.seconds + other.seconds)


NO_SYNCS: Final = Histogram((0,) * (len(BOUNDS) + 1), 0.0)


class SyncTimes:
    """Those of one shard."""

    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts = list(NO_SYNCS.counts)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        """One took so long."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def histogram(self) -> Histogram:
        """All so far."""
        return Histogram(tuple(self._counts), self._seconds)

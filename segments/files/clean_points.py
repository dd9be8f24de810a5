"""How far a log has been cleaned, and since when: what decides about tombstones.

    offset   0 ........... 400 ........... 900 ................ log end
             cleaned since  cleaned since   dirty
             09:00          11:30
    points        (400, 09:00), (900, 11:30)

A tombstone (a record without a value) has to stay for delete.retention.ms after the records that
it deletes are gone, so that a reader who is behind hears of it.  It counts from the first cleaning
that reached its offset: kept here per offset, and not in the batches as Kafka does, whose batches
are written anew for it (decision 0152).

Kept in the manifest as CLEANED rows; where they are lost everything is dirty again, so a tombstone
stays longer.  Points that are close together become one, with the later time: at most POINTS_MAX,
so the stay is longer by a few hundredths, however often the log is cleaned.

A cleaning while the clock is not believed makes no point.  What it reached is clean as long as the
log is open, and its time counts from the next point behind it; the time of a clock that is ahead
would count for all that is cleaned until then (decision 0268).

Invariants: offsets and times rise; immutable, replaced as a whole.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from .manifest import Row, RowKind

POINTS_MAX: Final = 64


class Point(NamedTuple):
    """What lies below `end_offset`, and not below an earlier point, was first cleaned then."""

    end_offset: int
    cleaned_ms: int


class CleanPoints:
    """The points of one log."""

    __slots__ = ("_ends", "end_offset", "points")

    def __init__(self, points: Iterable[Point] = (), end_offset: int = 0) -> None:
        """end_offset: how far it was cleaned, where nobody knows since when."""
        kept: list[Point] = []
        for point in points:
            if not kept or (
                point.end_offset > kept[-1].end_offset and point.cleaned_ms >= kept[-1].cleaned_ms
            ):
                kept.append(point)
        self.points = tuple(kept)
        self._ends = [point.end_offset for point in kept]
        self.end_offset = max([*self._ends[-1:], end_offset])
        """Below it the log has been cleaned; 0 where it never was."""

    @property
    def cleaned_ms(self) -> int:
        """When it was cleaned last, as far as it got on and the time is known; -1 for never."""
        return self.points[-1].cleaned_ms if self.points else -1

    def since(self, offset: int) -> int | None:
        """When the cleaning first reached `offset`; None: not yet, or nobody knows."""
        place = bisect_right(self._ends, offset)
        return self.points[place].cleaned_ms if place < len(self.points) else None

    def reached(self, end_offset: int, now_ms: int | None, retention_ms: int) -> "CleanPoints":
        """The points after a cleaning up to `end_offset`.

        now_ms: None: nobody knows the time.  retention_ms: delete.retention.ms; of what was cleaned
        longer ago one point is enough.
        """
        if end_offset <= self.end_offset:
            return self
        if now_ms is None:
            return CleanPoints(self.points, end_offset)
        now_ms = max(now_ms, self.cleaned_ms)  # a clock that was set back
        points = [*self.points, Point(end_offset, now_ms)]
        old = [point for point in points if point.cleaned_ms + retention_ms <= now_ms]
        points = [*old[-1:], *points[len(old) :]]
        while len(points) > POINTS_MAX:
            # The offsets of the one that goes count from the next: where these two and the one
            # before lie closest.  Never the first: what is due next would be put off each time.
            spans = [
                late.cleaned_ms - early.cleaned_ms
                for early, late in zip(points, points[2:], strict=False)
            ]
            del points[spans.index(min(spans)) + 1]
        return CleanPoints(points)

    def cut(self, end_offset: int) -> "CleanPoints":
        """The points of a log that ends at `end_offset`."""
        points = (
            Point(min(point.end_offset, end_offset), point.cleaned_ms) for point in self.points
        )
        return CleanPoints(points, min(self.end_offset, end_offset))

    def rows(self) -> list[Row]:
        """As the manifest has them."""
        return [
            Row(RowKind.CLEANED, end_offset=point.end_offset, max_timestamp=point.cleaned_ms)
            for point in self.points
        ]


NEVER_CLEANED: Final = CleanPoints()

"""Reads that the disk did not answer: lines, a count, and the newest for who asks.

Reading goes on meanwhile: other offsets may be well, and the same one be given the next time.  So
nothing but these says that a consumer stands before a bad block; the scrub finds it within a day.
A client that is refused may ask again at once, for ever: so the lines are limited.
"""

from typing import NamedTuple

from segbroker.segments.disk.storage import NO_DESCRIPTORS

from .limited_lines import LimitedLines


class FailedRead(NamedTuple):
    """One of them."""

    topic: str
    partition: int
    why: str
    at_ms: int
    """On the wall clock."""


def is_of_the_disk(exc: Exception) -> bool:
    """Whether a read failed by what the disk, or its file system, said."""
    cause = exc if isinstance(exc, OSError) else exc.__cause__
    return isinstance(cause, OSError) and cause.errno not in NO_DESCRIPTORS


class FailedReads:
    """Those of one broker since its start.  It belongs to the loop."""

    __slots__ = ("count", "lines", "newest")

    def __init__(self) -> None:
        self.lines = LimitedLines("read_lines_omitted", "error")
        self.count = 0
        self.newest: FailedRead | None = None

    def tell(self, topic: str, partition: int, exc: Exception, now_ms: int) -> None:
        """A read has failed; it counts where that was the disk."""
        name, error = f"{topic}-{partition}", str(exc)
        self.lines.tell("read_failed", name, topic=topic, partition=partition, error=error)
        if is_of_the_disk(exc):
            self.count += 1
            self.newest = FailedRead(topic, partition, error, now_ms)

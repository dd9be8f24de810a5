"""Retention of one open partition: old segments are deleted, off the loop, a few files at a time.

    retain -> is anything due? -> a house keeper: take it out of the log, unlink, again while there
                                  is more to unlink; what others want to have done goes between

Nothing here raises: a segment that could not be removed is tried again at the next visit, and none
of its records was touched.  This works on a full disk, too, and makes room there.
"""

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from segbroker.protocol.record_batch import GapReason

from ..background import AskedOnce, Housekeeper
from ..errors import LogClosed
from ..log.deleting import compact_manifest, evict_due, unlink_doomed
from ..log.partition_log import PartitionLog
from ..log.retention import Eviction, due
from ..told_once import ToldOnce

log = structlog.get_logger()

UNLINK_MAX: Final = 64
"""Segments whose files are unlinked in one go, before others of the thread get their turn."""


class EvictedBytes:
    """Bytes of segments that retention has taken out, of all partitions, since the start.

    Changed by the house keeper's thread, read by anybody.
    """

    __slots__ = ("by_reason",)

    def __init__(self) -> None:
        self.by_reason: dict[GapReason | None, int] = {None: 0, GapReason.TTL: 0, GapReason.CAP: 0}
        """None: somebody had deleted them before."""

    def add(self, eviction: Eviction) -> None:
        """This is gone."""
        self.by_reason[eviction.reason] += eviction.size_bytes


class Visible(Protocol):
    """The partition, as its retention sees it."""

    topic: str
    partition: int
    high_watermark: int


class Evicting:
    """The way out of a partition.  `log` gives the log that is open now."""

    __slots__ = (
        "_age_ms",
        "_asked",
        "_evicted",
        "_housekeeper",
        "_log",
        "_now_ms",
        "_owner",
        "_told",
    )

    def __init__(
        self,
        owner: Visible,
        log: Callable[[], PartitionLog],
        housekeeper: Housekeeper,
        now_ms: Callable[[], int],
        evicted: EvictedBytes,
    ) -> None:
        """evicted: what is taken out is added to it."""
        self._owner = owner
        self._evicted = evicted
        self._log = log
        self._housekeeper = housekeeper
        self._now_ms = now_ms
        self._asked = AskedOnce()
        self._age_ms: int | None = None
        self._told = ToldOnce()

    def look_at_ages(self, age_ms: int | None) -> None:
        """What is sealed next is measured by this time, too."""
        self._age_ms = age_ms

    def retain(self, age_ms: int | None) -> None:
        """Have retention take what is due.

        age_ms: the time to measure ages by; None: the one that `look_at_ages` left, if any.
        """
        # What could not be unlinked is tried again with a look at ages, for each try is a line.
        opened = self._log()
        is_stuck = age_ms is not None and bool(opened.stuck)
        if age_ms is None:
            age_ms = self._age_ms
        with opened.state_lock:
            is_due = due(opened, age_ms, self._owner.high_watermark) is not None
        if is_due:
            self._age_ms = age_ms
        if is_due or opened.doomed or is_stuck:
            self.evict_soon()

    def evict_soon(self) -> None:
        """Have what is due taken out, and the files of what is gone unlinked, off this thread."""
        self._asked.ask(self._housekeeper, self._evict)

    def _evict(self) -> None:
        self._asked.begun()
        opened = self._log()
        # Ages are looked at once per round: what is old when it is sent stays until the next.
        age_ms, self._age_ms = self._age_ms, None
        try:
            start = opened.log_start_offset
            eviction = evict_due(opened, age_ms, self._owner.high_watermark)
        except LogClosed:
            return
        except OSError as exc:
            if self._told.is_new(exc):  # it is tried again in each round
                log.warning("segments_not_evicted", path=opened.paths.folder, error=str(exc))
            return
        self._told.is_over()
        if eviction is not None:
            self._evicted.add(eviction)
        if eviction is not None and eviction.reason is not None:
            log.info(
                "segments_evicted",
                topic=self._owner.topic,
                partition=self._owner.partition,
                segments=eviction.segments,
                lost_from=start,
                lost_to=opened.log_start_offset,
                reason=eviction.reason.name.lower(),
            )
        limit = UNLINK_MAX if self._housekeeper.is_threaded else None
        if unlink_doomed(opened, limit):
            self.evict_soon()  # behind what others want to have done
            return
        try:
            compact_manifest(opened, self._now_ms())
        except OSError as exc:
            log.warning("manifest_not_compacted", path=opened.paths.folder, error=str(exc))

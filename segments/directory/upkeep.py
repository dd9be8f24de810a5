"""What an open data directory needs as time goes by: who is looked after, and how many at once.

    step, once a second by default, in a lane
      +- first                     is the directory at its path?  Else that is all (in_place.py)
      +- a piece of the round      age rolls, retention, are files where they were written:
      |                            VISITS_MAX open partitions per step
      +- once a second             the sync tick of class `disk`, a disk with space again, the WAL
      |  (SYNC_TICK_MS)            after a failure, ceilings of idle partitions; how far logs are
      |                            synced into the WAL; descriptors that ran out, into the log
      +- once a minute             a snapshot of the metadata, so that less rests on the WAL alone;
      |  (SNAPSHOT_TICK_MS)         how far the WAL is written beside it, its numbers into the log;
      |                            what deleted topics left and could not be removed
      +- a few unopened ones       opened, where a segment in them is due (unopened.py)
      +- more open logs than may be    some are synced, so that they can be parked

A step's cost does not grow with the partitions that are open, only with those that were written to
since the last.  Whoever needs the tick says so by `ask`, from any thread.  A clock that is set back
makes a tick due at once: it must not keep the next one waiting until the old time has come again.

At a limit: what is left over is looked at in the next step.  Nothing here raises for one
partition's trouble: it is that partition's state, and in the log.
"""

import errno
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import Final, Protocol

import structlog

from ..background import Flushers, Housekeeper
from ..disk.relieving import NoDescriptor
from ..errors import PASSING_ERRNOS, StorageError
from ..log.caches import OpenLogs
from ..log.salvaging import Retry
from ..metadata.metadata import TopicMeta
from ..metadata.metadata_log import MetadataLog
from ..partition.handler import DiskHandler
from ..settings.topic_config import SYNC_TICK_MS, Durability
from ..wal.journal import Wal, WalStatistics
from ..wal.sync_times import SLOW_S
from .age_clock import AgeClock, ClockFile, Hold
from .relief import Relief
from .reserve import Reserve
from .unopened import Unopened

log = structlog.get_logger()

SNAPSHOT_TICK_MS: Final = 60_000
RECOVERIES_FAILED_MAX: Final = 8
"""Logs that could not be opened again, per tick; each costs the reading of a segment or two."""
VISITS_MAX: Final = 500
"""Partitions visited per step: some 5 ms, half of it the look for their files."""

_WITHOUT_WAL: Final = frozenset({Durability.DISK, Durability.MEMORY})
"""Classes that have files and acknowledge without the WAL."""


class Directory(Protocol):
    """The open data directory, as its upkeep sees it."""

    handlers: dict[tuple[str, int], DiskHandler]
    open_logs: OpenLogs
    wal: Wal
    reserve: Reserve
    relief: Relief

    @property
    def topics(self) -> Mapping[str, TopicMeta]: ...

    def get_handler(self, topic: str, partition: int) -> DiskHandler: ...

    def note_failed(self, topic: str, partition: int) -> None: ...

    def remove_left(self) -> None: ...

    def follow_settings(self) -> None: ...

    def look_for_directory(self) -> str | None: ...


class Upkeep:
    """The schedule of one data directory.  One thread at a time, but for `ask`."""

    def __init__(
        self,
        directory: Directory,
        unopened: Unopened,
        metadata: MetadataLog,
        flushers: Flushers,
        housekeeper: Housekeeper,
        age_clock: AgeClock,
        clock_file: ClockFile,
        *,
        retention_interval_ms: int,
        now_ms: int,
    ) -> None:
        """retention_interval_ms: between two rounds that look at ages, the first after as much; 0:
        every round does."""
        self._directory = directory
        self._unopened = unopened
        self._metadata = metadata
        self._flushers = flushers
        self._housekeeper = housekeeper
        self._age_clock = age_clock
        self._clock_file = clock_file
        self.retention_interval_ms = retention_interval_ms
        self._attention: set[DiskHandler] = set()
        self._visits: list[DiskHandler] = []
        self._tick_ms = 0
        self._absorbed_ms = now_ms
        self._wal_said: WalStatistics | None = None
        self._wal_retry = Retry()
        self._refused_said = 0
        self._refused_ms = 0
        self._round_began_ms: int | None = None
        self._looks_at_ages = False
        self._has_looked_at_ages = False
        self._was_gone = False

    def ask(self, handler: DiskHandler) -> None:
        """Have `handler` attended to at the next tick.  From any thread."""
        self._attention.add(handler)

    @property
    def clock_hold(self) -> Hold | None:
        """Why the wall clock was not believed when ages were last looked at; None: it was."""
        return self._age_clock.hold

    def believes(self, now_ms: int, monotonic_ms: int | None) -> bool:
        """Whether ages may be measured by this reading of the clocks (see `step`).  From any
        thread."""
        return self._age_clock.believes(now_ms, monotonic_ms)

    def step(self, now_ms: int, monotonic_ms: int | None = None) -> None:
        """Do what is due.  Blocking: in a lane.

        monotonic_ms: a clock that nobody sets, by which a jump of `now_ms` is noticed
        (age_clock.py); None: `now_ms` is believed.
        """
        if self._is_gone():
            self._visits.clear()  # who waits for the end of the round waits for nobody to return
            return
        age_ms = self._age_clock.now(now_ms, monotonic_ms)
        if not self._visits:
            self._visits = list(self._directory.handlers.values())
            at_ms = now_ms if monotonic_ms is None else monotonic_ms
            self._looks_at_ages = self._ages_are_due(at_ms)
        for handler in self._visits[-VISITS_MAX:]:
            if self._is_open(handler):
                by_ms = age_ms if self._looks_at_ages else None
                handler.keep_house(now_ms, by_ms, is_believed=age_ms is not None)
        del self._visits[-VISITS_MAX:]
        if not 0 <= now_ms - self._tick_ms < SYNC_TICK_MS:
            self._tick_ms = now_ms
            self._directory.wal.look()
            self._metadata.look()
            self._metadata.settle()
            # What was synced since the last tick, if no group came; first, as it is a part of what
            # is said to be written.
            self._directory.wal.say_ends()
            self._absorb(now_ms)
            self._attend(now_ms)
            self._directory.follow_settings()
            self._say_refused(now_ms)
        self._visit_unopened(age_ms if self._has_looked_at_ages else None)
        if monotonic_ms is not None and age_ms is not None:
            self._clock_file.save(age_ms)
        open_logs = self._directory.open_logs
        if open_logs.has_surplus:
            open_logs.park_surplus()
            if open_logs.has_surplus:
                self._sync_some()

    def step_all(self, now_ms: int) -> None:
        """A whole round, ages included, and what it has others do."""
        interval_ms, self.retention_interval_ms = self.retention_interval_ms, 0
        self._visits.clear()
        for _ in range(2):  # what the first round rolls goes in the second
            self.step(now_ms)
            while self._visits:
                self.step(now_ms)
            self._housekeeper.wait_idle()
        self.retention_interval_ms = interval_ms

    def _is_gone(self) -> bool:
        """Whether the directory is not at its path: until it is back nothing is acknowledged but
        what is in memory alone, and nothing is looked after."""
        why = self._directory.look_for_directory()
        if why is None:
            if self._was_gone:
                self._was_gone = False
                log.info("data_directory_back")
            return False
        if not self._was_gone:
            self._was_gone = True
            advice = (
                "put it back, and writing resumes; or stop the broker. What it has acknowledged is "
                "in the directory that it opened, wherever that is now"
            )
            log.error("data_directory_gone", error=why, advice=advice)
        cause = OSError(errno.ESTALE, why)
        self._directory.wal.fail(cause)
        for handler in list(self._directory.handlers.values()):
            if handler.config.durability in _WITHOUT_WAL:
                handler.fail(cause)
        return True

    def _ages_are_due(self, at_ms: int) -> bool:
        """Whether a round of visits begins that looks at ages, too."""
        if self._round_began_ms is None:
            self._round_began_ms = at_ms if self.retention_interval_ms else 0
        if at_ms - self._round_began_ms < self.retention_interval_ms:
            return False
        self._round_began_ms = at_ms
        self._has_looked_at_ages = True
        return True

    def _absorb(self, now_ms: int) -> None:
        if not 0 <= now_ms - self._absorbed_ms < SNAPSHOT_TICK_MS:
            self._absorbed_ms = now_ms
            try:
                self._metadata.absorb()
            except OSError as exc:
                log.warning("snapshot_not_saved", error=str(exc))
            self._directory.wal.say_reached()
            self._say_wal()
            self._directory.remove_left()
            self._directory.wal.relieve()
            self._directory.reserve.keep()

    def _say_wal(self) -> None:
        """The numbers of the WAL, once a minute as long as they change; and that it is slow."""
        if slow := self._directory.wal.count_slow():
            log.warning("wal_slow", syncs=slow, above_s=SLOW_S, advice="check the disk")
        numbers = self._directory.wal.statistics()
        if numbers != self._wal_said:
            self._wal_said = numbers
            log.info("wal_statistics", **asdict(numbers))

    def _say_refused(self, now_ms: int) -> None:
        """That descriptors ran out, once a minute as long as they do."""
        times = self._directory.relief.refused_count - self._refused_said
        if times and not 0 <= now_ms - self._refused_ms < SNAPSHOT_TICK_MS:
            self._refused_said += times
            self._refused_ms = now_ms
            log.warning(
                "descriptors_ran_out", times=times, open_logs=len(self._directory.open_logs)
            )

    def _attend(self, now_ms: int) -> None:
        """Look after those that asked for it; a disk that is full for some is full for the rest."""
        self._revive_wal(now_ms)
        failed = 0
        # In an order that a run can repeat: a set's own hangs on addresses.
        for handler in sorted(self._attention, key=lambda one: (one.topic, one.partition)):
            if handler.is_poisoned and (failed >= RECOVERIES_FAILED_MAX or self._waits(handler)):
                continue  # next time
            self._attention.discard(handler)
            before = handler.recoveries_failed
            if self._is_open(handler):
                handler.attend(now_ms)
            failed += handler.recoveries_failed - before

    def _waits(self, handler: DiskHandler) -> bool:
        """Whether a log would fail again as soon as it is open, for want of the WAL: what it has
        been given could not be acknowledged."""
        ceiling = handler.ceiling
        if ceiling is None:
            return not handler.wal_works
        takes_events = self._directory.wal.takes_events and self._metadata.is_settled
        return handler.log_end_offset > ceiling.durable and not takes_events

    def _revive_wal(self, now_ms: int) -> None:
        """Let the WAL go on after a failure, not only when a partition asks: control events are in
        it too.  One shard that cannot yet does not keep the others."""
        wal = self._directory.wal
        if not wal.statistics().shards_failed or not self._wal_retry.is_due(now_ms):
            return
        try:
            wal.revive()
        except OSError as exc:
            self._wal_retry.failed(now_ms, passes=exc.errno in PASSING_ERRNOS)
            log.warning("wal_still_failed", error=str(exc))
        else:
            if wal.statistics().shards_failed:  # no room for a file; another try is under way
                self._wal_retry.failed(now_ms, passes=True)
            else:
                self._wal_retry.succeeded()

    def _visit_unopened(self, age_ms: int | None) -> None:
        """Open a few partitions in which something is due, so that it goes at the next visit."""
        directory = self._directory
        found = self._unopened.step(
            directory.topics, lambda *key: key in directory.handlers, age_ms
        )
        for topic, partition in found:
            try:
                directory.get_handler(topic, partition)
            except StorageError as exc:
                log.warning(
                    "retention_not_possible", topic=topic, partition=partition, error=str(exc)
                )
                if not isinstance(exc.__cause__, NoDescriptor):  # that passes
                    directory.note_failed(topic, partition)
                meta = directory.topics.get(topic)
                if meta is not None:
                    self._unopened.not_opened(meta, partition, age_ms)

    def _sync_some(self) -> None:
        """What only the WAL has keeps its segment open: sync some, to be parked next time."""
        handlers = list(self._directory.handlers.values())  # others open partitions meanwhile
        unsynced = (handler for handler in handlers if handler.has_unsynced)
        for handler in islice(unsynced, VISITS_MAX):
            self._flushers.request(handler)

    def _is_open(self, handler: DiskHandler) -> bool:
        return self._directory.handlers.get((handler.topic, handler.partition)) is handler

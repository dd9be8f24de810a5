"""DiskManager: the data directory, its topics, and the open partitions.

    <root>/LOCK                 one process at a time
    <root>/meta/                metadata_log.py: what exists
    <root>/wal/                 wal/: what is acknowledged and not synced elsewhere yet
    <root>/topics/<topic>/...   the partitions (names.py); in memory for class `ephemeral`
    <root>/topics/~<id>         a deleted topic, until its files are gone

The broker reaches its data only through this class.  The work behind it is done by starting.py (a
start, up to the first request), topic_registry.py (which topics there are), opened_partitions.py
(which partitions are open), upkeep.py (what is due by time) and ending.py (what an orderly stop
says).  One partition is partition/handler.py.

Opening first puts the contents of the write-ahead log back, before any log is checked or served.
Closing syncs everything and empties the write-ahead log.

Threads: `topics` is replaced as a whole, never changed, so the loop reads it without a lock.  A
look-up of a handler needs no lock either.  Opening, closing and administration wait for the disk:
lanes call them, never the loop.

Invariant: a handler is in the dictionary exactly as long as its topic exists and it is open.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Final

from ..background import Flushers, Housekeeper, pause
from ..disk.in_place import InPlaceStorage
from ..disk.memory import MemoryStorage
from ..disk.posix import PosixStorage
from ..disk.relieving import RelievingStorage
from ..disk.storage import Storage, StorageLock, make_dirs, make_root
from ..errors import DataDirectoryGone, DataDirectoryLocked, LogClosed, StorageError
from ..log.caches import OPEN_LOGS_MAX, Caches, FileCache, IndexCache, OpenLogs
from ..metadata.committed import SECTION, Content
from ..metadata.metadata import Metadata, TopicMeta
from ..metadata.metadata_log import Done, MetadataLog
from ..parallel import one_by_one, overlapping
from ..partition.failing import CallSoon
from ..partition.handler import DiskHandler
from ..replay.putting_back import PuttingBack
from ..replay.resuming import Resuming
from ..report import RecoveryReport
from ..settings.topic_config import TopicConfig
from ..wal.journal import Wal, WalConfig
from .age_clock import AgeClock, ClockFile, Hold
from .ending import end_of, ends_of_unopened
from .opened_partitions import OpenedPartitions, Threads
from .relief import Relief
from .reserve import Reserve
from .several_topics import Outcome
from .starting import Starting
from .topic_registry import NewTopic, TopicRegistry
from .unopened import Unopened
from .upkeep import Upkeep

__all__ = ["DiskManager", "NewTopic", "Outcome", "Statistics", "TopicMeta"]


SMALL_WAL: Final = WalConfig(file_bytes=1 << 14, shard_bytes=1 << 16)
RETENTION_INTERVAL_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers at a moment; none waits for a disk."""

    topics_count: int
    partitions_count: int
    partitions_open: int
    partitions_read_only: int
    segments_count: int
    not_removed_count: int
    """Deleted segments, and topics, whose files could not be removed when it was tried last."""
    log_bytes: int
    open_files: int
    open_logs: int
    rolls_unprepared: int
    loaded_indexes: int
    index_bytes: int


def _at_once(task: Callable[[], None]) -> None:
    task()


def _only(outcomes: Sequence[Outcome]) -> TopicMeta:
    """Of a change of one topic."""
    (outcome,) = outcomes
    if isinstance(outcome, StorageError):
        raise outcome
    return outcome


class DiskManager:
    """All topics of one data directory."""

    def __init__(
        self,
        root: str,
        *,
        storage: Storage | None = None,
        call_soon: CallSoon | None = None,
        clock: Callable[[], float] | None = None,
        flushers: int = 2,
        wal: WalConfig | None = None,
        open_files_max: int = 1024,
        open_logs_max: int = OPEN_LOGS_MAX,
        index_bytes_max: int = 64 << 20,
        retention_interval_ms: int = RETENTION_INTERVAL_MS,
        now_ms: int = 0,
        repairing: bool = False,
        reserve_bytes: int = 0,
    ) -> None:
        """call_soon: how handlers' callbacks reach the loop; None runs them where they arise.

        clock: seconds that rise, by which syncs are timed; without it `flush_here` does nothing.
        flushers: threads that sync; 0 for no threads at all (tests, tools).
        wal: sizes of the write-ahead log; small ones by default where there are no threads.
        repairing: every log is opened as with on.corruption=gap: an operator has looked.
        reserve_bytes: room that is kept for a start on a full disk (reserve.py).
        open_files_max: sealed segments kept open.  open_logs_max: partitions that keep their active
        segment open; a busy one holds a few descriptors more for segments made ahead.
        index_bytes_max: of indexes of sealed segments that are kept in memory.
        retention_interval_ms: between two rounds that look at ages, the first after as much; 0:
        every round does.
        """
        self.root = root.rstrip("/") or "/"
        self.files = FileCache(open_files_max)
        self.indexes = IndexCache(index_bytes_max)
        self.open_logs = OpenLogs(open_logs_max)
        each = overlapping if flushers else one_by_one
        self.relief = Relief(self.files, self.open_logs, each, lambda: self.partitions.served())
        self.open_logs.relief = self.relief.park
        disk = storage if storage is not None else PosixStorage()
        self._in_place = InPlaceStorage(disk, self.root)
        self.storage: Storage = RelievingStorage(self._in_place, self.relief.relieve)
        self.topics: MappingProxyType[str, TopicMeta] = MappingProxyType({})
        self.report = RecoveryReport()
        """What recovery did since the manager was made; partitions are opened when first used."""
        self._call_soon = call_soon or _at_once
        self._flushers_count = flushers
        self.is_new_boot = False
        """Whether the machine was started anew since this directory was last open."""
        self._now_ms = now_ms
        self._metadata = MetadataLog(self.storage, f"{self.root}/meta")
        self._resuming = Resuming(self._metadata, self.report)
        volatile = MemoryStorage(keeps_promises=False)
        self.wal = Wal(
            self.storage,
            f"{self.root}/wal",
            wal or (WalConfig() if flushers else SMALL_WAL),
            threaded=flushers > 0,
            call_soon=self._call_soon,
            clock=clock,
            snapshot=self._metadata.save,
        )
        self._putting_back = PuttingBack(self.storage, self.root, self.report, each)
        self.reserve = Reserve(self.storage, self.root, reserve_bytes)
        self._starting = Starting(
            self.storage,
            self.root,
            self.wal,
            self._metadata,
            self._resuming,
            self._putting_back,
            self.report,
            self.reserve,
        )
        self.partitions = OpenedPartitions(
            self.storage,
            volatile,
            self.root,
            Caches(self.files, self.indexes, self.open_logs),
            self.relief,
            self._resuming,
            self._putting_back,
            self.wal,
            self.report,
            known=lambda: self._known,
            topics=lambda: self.topics,
            call_soon=self._call_soon,
            each=each,
            repairing=repairing,
            now_ms=now_ms,
        )
        self.handlers = self.partitions.handlers
        self._registry = TopicRegistry(
            self.storage,
            volatile,
            self.root,
            self._metadata,
            self._resuming,
            self.partitions,
            known=lambda: self._known,
            publish=self._publish,
        )
        self._lock_file: StorageLock | None = None
        self._threads: Threads | None = None
        self._upkeep: Upkeep | None = None
        self._retention_interval_ms = retention_interval_ms

    # The data directory

    def open(self) -> None:
        """Lock the data directory, read what exists, remove what is half made or half deleted,
        recover what may have lost its end.

        Raises DataDirectoryLocked, CorruptMetadata, UnsupportedFormat (no file that was there was
        changed then), StorageError (what the WAL holds could not be put back), OSError.
        """
        make_root(self.storage, self.root)
        try:
            self._lock_file = self.storage.lock(self._lock_path)
        except BlockingIOError as exc:
            raise DataDirectoryLocked(self.root) from exc
        self._in_place.held = self._lock_file
        try:
            self._begin()
        except BaseException:
            self._give_up()
            raise

    def _begin(self) -> None:
        """What `open` does under the lock."""
        make_dirs(self.storage, f"{self.root}/meta")
        make_dirs(self.storage, f"{self.root}/topics")
        clock_file = ClockFile(self.storage, f"{self.root}/clock")
        age_clock = AgeClock(clock_file.load())
        started = self._starting.start()
        self.is_new_boot = started.is_new_boot
        self._publish(self._metadata.state)
        threaded = self._flushers_count > 0
        with ExitStack() as begun:  # as in Flushers
            flushers = Flushers(self._flushers_count)
            begun.callback(flushers.close)
            housekeeper = Housekeeper(threaded=threaded)
            begun.callback(housekeeper.close)
            maker = Housekeeper(threaded=threaded, name="segment-maker")
            begun.callback(maker.close)
            self._upkeep = Upkeep(
                self,
                Unopened(self.storage, self.root),
                self._metadata,
                flushers,
                housekeeper,
                age_clock,
                clock_file,
                retention_interval_ms=self._retention_interval_ms,
                now_ms=self._now_ms,
            )
            self._threads = Threads(flushers, housekeeper, maker, self._upkeep.ask)
            begun.pop_all()
        self.relief.begin(housekeeper)
        self.partitions.begin(self._threads)
        self.partitions.recover_tails()
        self.partitions.open_replayed(started.replayed)
        self.partitions.note_missing(started.missing)
        self.wal.say_ends()
        self._registry.begin_removing(started.graves)
        self.reserve.keep()

    def _give_up(self) -> None:
        """Opening failed: leave the directory as a kill would, and nothing of it open."""
        self._end_threads()
        self._metadata.attach(None)
        self.partitions.close_all(checkpoint=False)
        self.wal.close(empty=False)
        self._unlock()

    def _unlock(self) -> None:
        """What is at its path is another process's from here on."""
        lock_file, self._lock_file = self._lock_file, None
        assert lock_file is not None, "locked first"
        self._in_place.held = None
        lock_file.release()

    def _end_threads(self) -> None:
        """End those that there are, each behind whoever has work for it."""
        threads, self._threads = self._threads, None
        self._registry.stop_removing()
        self.relief.end()
        if threads is not None:
            threads.maker.close()
            threads.housekeeper.close()
        self.wal.stop()
        if threads is not None:
            threads.flushers.close()

    def close(self) -> None:
        """Sync and close everything, in order; a second time does nothing.

        Raises an ExceptionGroup of what failed, after all else is closed; DataDirectoryGone: its
        files are left as a kill would, and nothing was done to what is at its path now.
        """
        if self._lock_file is None:
            return
        if self.look_for_directory() is not None:
            self._give_up()
            raise DataDirectoryGone(self.root)
        self._end_threads()
        failures: list[Exception] = []
        vouched = self._putting_back.vouched()
        settled = list(ends_of_unopened(vouched, self.topics, self._resuming))
        is_synced = True
        for handler, failure in self.partitions.close_all():
            is_synced = is_synced and not (handler.has_unsynced or handler.is_in_doubt)
            settled += end_of(handler, self._known)
            if failure is not None:
                failures.append(failure)
        # Not before: what a log is in doubt about goes where a full disk has room for it.
        self._metadata.attach(None)  # from here on every change is a snapshot
        is_durable = not failures and is_synced
        is_durable = is_durable and not self._putting_back.waiting
        try:
            self._resuming.record_ceilings(settled)
            self._metadata.look()
            self._metadata.absorb()
        except OSError as exc:
            is_durable = False
            failures.append(exc)
        try:
            self.wal.close(empty=is_durable)
        except OSError as exc:
            failures.append(exc)
        self._unlock()
        if failures:
            raise ExceptionGroup("partitions that could not be closed", failures)

    def __enter__(self) -> "DiskManager":
        self.open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def cluster_id(self) -> str:
        """The identity of this data directory; made once."""
        return self._known.cluster_id

    @property
    def _known(self) -> Metadata:
        if self._lock_file is None:
            raise LogClosed(self.root)
        return self._metadata.state

    def leader_epoch(self, meta: TopicMeta, partition: int) -> int:
        """The leader epoch of a partition, open or not; for the loop."""
        handler = self.handlers.get((meta.name, partition))
        return (
            self._known.leader_epoch(meta, partition) if handler is None else handler.leader_epoch
        )

    def _publish(self, metadata: Metadata) -> None:
        """Waits for the memory that this takes: what has happened would be seen by nobody."""
        while True:
            try:
                self.topics = MappingProxyType(metadata.topics)
                return
            except MemoryError:
                pause()

    # Topics

    def check_new_topic(self, name: str, partitions: int) -> None:
        """Raise what `create_topic` would raise for these, and make nothing."""
        self._registry.check_new_topic(name, partitions)

    def create_topic(self, name: str, partitions: int, config: TopicConfig) -> TopicMeta:
        """Make a topic; durable when this returns.  Blocking.

        Raises InvalidTopicName, InvalidPartitions, TopicExists, TopicCollides, StorageError.
        """
        return _only(self.create_topics([NewTopic(name, partitions, config)]))

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[Outcome]:
        """Make several topics, whose syncs are shared: of each what `create_topic` returns or
        raises.  Blocking."""
        return self._registry.create_topics(wanted)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; it is gone for good when this returns, its files soon after.

        Raises UnknownTopic, StorageError.
        """
        _only(self.delete_topics([name]))

    def delete_topics(self, names: Sequence[str]) -> list[Outcome]:
        """Delete several topics, whose syncs are shared; of each what it was, or why it is not
        gone.  Blocking."""
        return self._registry.delete_topics(names)

    def remove_left(self) -> None:
        """Try again to remove what could not be removed of deleted topics.  Blocking."""
        self._registry.remove_left()

    def follow_settings(self) -> None:
        """Have partitions try again that could not follow their settings.  Blocking."""
        self._registry.follow()

    def create_partitions(self, name: str, count: int) -> TopicMeta:
        """Let a topic grow to `count` partitions.

        Raises UnknownTopic, InvalidPartitions, StorageError.
        """
        return _only(self.grow_topics({name: count}))

    def grow_topics(self, wanted: Mapping[str, int]) -> list[Outcome]:
        """Let several topics grow, by name; of each what `create_partitions` returns or raises.
        Blocking."""
        return self._registry.grow_topics(wanted)

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> TopicMeta:
        """Replace the settings of a topic.  Raises UnknownTopic, InvalidConfig, StorageError."""
        return _only(self.alter_topics({name: overrides}))

    def alter_topics(self, wanted: Mapping[str, Mapping[str, str]]) -> list[Outcome]:
        """Replace the settings of several topics, by name; of each what `alter_topic` returns or
        raises.  Blocking."""
        return self._registry.alter_topics(wanted)

    def check_altered(self, name: str, overrides: Mapping[str, str]) -> TopicMeta:
        """A topic as `alter_topic` would make it; raises what that would raise for these."""
        return self._registry.check_altered(name, overrides)

    @property
    def topic_defaults(self) -> Mapping[str, str]:
        """What is chosen for all topics, by topic setting, as text."""
        return self._known.topic_defaults

    def set_topic_defaults(self, values: Mapping[str, str]) -> None:
        """Choose these for all topics, and no others.  Raises InvalidConfig, StorageError."""
        self._registry.set_topic_defaults(values)

    # Other events

    @property
    def committed(self) -> Content:
        """The committed offsets of groups."""
        found: Content = self._known.sections.get(SECTION, {})
        return found

    def section(self, name: str) -> Mapping[str, Any] | None:
        """What events of other kinds have made of a section; None: nothing yet."""
        found: Mapping[str, Any] | None = self._known.sections.get(name)
        return found

    def acks_unsynced(self, topic: str, partitions: Iterable[int]) -> list[int]:
        """Those of these partitions of which records that were acknowledged may not be synced yet,
        and are to stay: also where their topic has become `fsync`, until they are."""
        meta = self.topics.get(topic)
        return [] if meta is None else self._resuming.acks_unsynced(meta, partitions)

    @property
    def is_settled(self) -> bool:
        """Whether no control event is in doubt: written perhaps, and reported as failed."""
        return self._metadata.is_settled

    def settle(self) -> None:
        """Leave no control event in doubt, so that nothing that was reported as failed comes true
        at a crash.  Blocking.  Raises StorageError."""
        try:
            self._registry.settle()
        except OSError as exc:
            raise StorageError(f"an earlier change may come true yet: {exc}") from exc

    @property
    def why_unsettled(self) -> str | None:
        """Why changes of the metadata are refused at present; None: they are not."""
        return self._metadata.why_unsettled

    @property
    def why_not_saved(self) -> str | None:
        """Why the snapshot of the metadata could not be replaced last; None: it could."""
        return self._metadata.why_not_saved

    @property
    def _lock_path(self) -> str:
        return f"{self.root}/LOCK"

    def check_writable(self) -> None:
        """Ask the file system whether it takes writes, by an open that changes nothing.  Blocking.

        Raises OSError: with EROFS, EIO or the like it takes none.
        """
        self.storage.open(self._lock_path).close()

    def look_for_directory(self) -> str | None:
        """Why nothing of the data directory is written or read by its path at present; None: it is
        at its path.  Blocking."""
        return self._in_place.why_gone

    @property
    def is_metadata_full(self) -> bool:
        """Whether there is so much of it that clients are to add nothing that they make up."""
        return self._metadata.is_full

    @property
    def control_events_end(self) -> int:
        """The number that the next control event will have at least."""
        return self._known.seq + 1

    @property
    def last_seq(self) -> int:
        """The number of the last control event that was handed over: the next one is above it."""
        return self._metadata.last_seq

    @property
    def knows_boot(self) -> bool:
        """Whether the machine says in which boot it is; where not, every start is a new one."""
        return bool(self._known.boot_id)

    @property
    def boot_number(self) -> int:
        """How many boots of the machine this directory was open in."""
        return self._known.boot

    @property
    def event_size_max(self) -> int:
        """Bytes of one control event, at most; a larger one fails."""
        return self._metadata.event_size_max

    def record_now(self, kind: str, **fields: object) -> None:
        """Write one event of a registered kind; durable when this returns.  For tools and lanes.

        Raises StorageError: it did not happen.
        """
        self.record_all_now(kind, [fields])

    def record_all_now(self, kind: str, several: Iterable[Mapping[str, object]]) -> None:
        """As `record_now`, an event for each of several, with one sync.

        Raises StorageError: none of them happened, as far as anybody here will see.
        """
        with self._registry.admin_lock:
            try:
                self._registry.record_all(kind, several)
            except OSError as exc:
                raise StorageError(f"{kind}: {exc}") from exc

    def record_soon(self, done: Done, kind: str, **fields: object) -> None:
        """Have a control event of a registered kind written; `done` when it is durable, or failed.

        For the loop.
        """
        self._metadata.record_soon(done, kind, **fields)

    def allocate_producer_ids(self, count: int, apart_bytes: int = 0) -> range:
        """So many ids that were never given before and never will be again.

        apart_bytes: the size of a random number of ids that are left out before them.

        Raises StorageError.
        """
        with self._registry.admin_lock:
            apart = int.from_bytes(self.storage.random_bytes(apart_bytes), "big")
            first = self._known.next_producer_id + apart
            try:
                self._registry.record("producer_ids", next=first + count)
            except OSError as exc:
                raise StorageError(f"no producer ids: {exc}") from exc
        return range(first, first + count)

    # Partitions

    @property
    def call_soon(self) -> CallSoon:
        """How callbacks reach the loop."""
        return self._call_soon

    def handler_if_open(self, topic: str, partition: int) -> DiskHandler | None:
        """The handler if it is open: for the loop."""
        return self.handlers.get((topic, partition))

    def get_handler(self, topic: str, partition: int) -> DiskHandler:
        """The handler, opened and recovered if need be.  Blocking: for lanes.

        Raises UnknownTopic, CorruptSegment, StorageError.
        """
        return self.partitions.get_handler(topic, partition)

    def note_failed(self, topic: str, partition: int) -> None:
        """A chore could not open it, though nobody has asked for it.  From any thread."""
        self.partitions.failed_since[topic, partition] = None

    # Keeping house

    def limit_open(self, *, files_max: int, logs_max: int, logs_most: int | None) -> None:
        """Go by these numbers from the next opening on: see FileCache, OpenLogs.  From any
        thread."""
        self.files.open_files_max = files_max
        self.open_logs.open_max, self.open_logs.most = logs_max, logs_most

    def reconfigure(self, *, retention_interval_ms: int, producer_expiration_ms: int) -> None:
        """Go by these numbers from the next round, the next opening on.  From any thread."""
        self._keeper.retention_interval_ms = retention_interval_ms
        self.partitions.producer_expiration_ms = producer_expiration_ms
        for handler in list(self.handlers.values()):
            handler.producer_expiration_ms = producer_expiration_ms

    def housekeeping(self, now_ms: int, monotonic_ms: int | None = None) -> None:
        """What is due by time; see `Upkeep.step`.  Call it in a lane, about once a second."""
        self.partitions.now_ms = now_ms
        self._keeper.step(now_ms, monotonic_ms)

    @property
    def believes_clock(self) -> bool:
        """Whether something may be forgotten by its age: the wall clock has not jumped ahead."""
        return self.clock_hold is None

    @property
    def clock_hold(self) -> Hold | None:
        """Why nothing is forgotten by its age; None: it is."""
        return self._keeper.clock_hold

    def believes(self, now_ms: int, monotonic_ms: int | None = None) -> bool:
        """Whether ages may be measured by this reading of the clocks (see `Upkeep.step`), which
        housekeeping need not have looked at yet.  From any thread."""
        return self._keeper.believes(now_ms, monotonic_ms)

    def keep_house_now(self, now_ms: int) -> None:
        """A whole round of housekeeping, ages included, and what it has others do: for tests."""
        self.partitions.now_ms = now_ms
        self._keeper.step_all(now_ms)

    @property
    def _keeper(self) -> Upkeep:
        if self._upkeep is None:
            raise LogClosed(self.root)
        return self._upkeep

    def statistics(self) -> Statistics:
        """Numbers at this moment; it waits for no disk, nor for who does.  For lanes, if there is
        one: it looks at each topic and each open partition."""
        handlers = list(self.handlers.values())
        topics = self.topics
        return Statistics(
            topics_count=len(topics),
            partitions_count=sum(meta.partitions for meta in topics.values()),
            partitions_open=len(handlers),
            partitions_read_only=sum(h.read_only is not None for h in handlers),
            segments_count=sum(h.segments_count for h in handlers),
            not_removed_count=sum(h.not_removed_count for h in handlers)
            + self._registry.not_removed_count,
            log_bytes=sum(h.size_bytes for h in handlers),
            open_files=len(self.files),
            open_logs=len(self.open_logs),
            rolls_unprepared=self.partitions.rolls_unprepared,
            loaded_indexes=len(self.indexes),
            index_bytes=self.indexes.memory_size,
        )

"""DiskManager: the data directory, its topics, and the open partitions.

    <root>/LOCK                 one process at a time
    <root>/meta/                metadata_log.py: what exists
    <root>/wal/                 wal/: what is acknowledged and not synced elsewhere yet
    <root>/topics/<topic>/...   what it holds (names.py); in memory for class `ephemeral`
    <root>/topics/~<id>         a deleted topic on its way out

Creating and growing make the directories, then the event: a crash in between leaves an orphan that
the next opening removes.  Deleting goes the other way: the event is the deletion, then the
directory gets a name that no topic can have, then its files go.

| lock | protects | held over |
|---|---|---|
| _admin_lock | metadata changes: one at a time, whole | an event's sync: administration only |
| _lock | the dictionaries of handlers and of those being opened | nothing |

`topics` is replaced as a whole, never changed, so the loop reads it without a lock; `handlers` are
looked up without one as well.  Opening a partition happens in the caller's thread; who comes second
waits for the first.

Opening puts back what the WAL holds, into every partition it speaks of, before anything is decided
about a log or served; closing syncs everything and empties it.

Invariant: a handler is in the dictionary exactly as long as its topic exists and it is open.
"""

import base64
import errno
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

import structlog

from .age_clock import AgeClock, ClockFile
from .background import Flushers, Housekeeper
from .caches import FileCache, IndexCache, OpenLogs
from .ceilings import PartitionCeiling
from .committed import SECTION, Content
from .errors import (
    CorruptMetadata,
    DataDirectoryLocked,
    InvalidPartitions,
    LogClosed,
    StorageError,
    TopicExists,
    UnknownTopic,
)
from .handler import PRODUCER_EXPIRATION_MS, CallSoon, DiskHandler
from .lost_tail import begin_at
from .memory import MemoryStorage
from .metadata import SETTLED, Ceiling, Metadata, TopicMeta, encode_topic
from .metadata_log import Done, MetadataLog
from .names import LogPaths, check_topic_name, partition_paths
from .opening import open_log
from .orphans import Orphan, find_orphans, put_aside, remove_orphan
from .partition_log import PartitionLog
from .posix import PosixStorage
from .putting_back import PuttingBack
from .report import LogReport, RecoveryReport, ReportRow
from .resuming import CeilingRow, Found, Resuming, one_by_one
from .sealing import close_log
from .storage import Storage, StorageLock, make_dirs, remove_tree
from .topic_config import Durability, TopicConfig, check_class_change
from .unopened import Unopened
from .upkeep import Upkeep
from .wal.journal import Wal, WalConfig
from .wal.replay import Replay

__all__ = ["DiskManager", "Statistics", "TopicMeta"]

log = structlog.get_logger()

T = TypeVar("T")

PARTITIONS_MAX: Final = 10_000
EAGER_MAX: Final = 250
"""Partitions recovered together at start."""
RECOVERY_THREADS: Final = 8
SMALL_WAL: Final = WalConfig(file_bytes=1 << 14, shard_bytes=1 << 16)
RETENTION_INTERVAL_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers at a moment; none takes a lock."""

    topics_count: int
    partitions_open: int
    partitions_read_only: int
    segments_count: int
    log_bytes: int
    open_files: int
    open_logs: int
    rolls_unprepared: int
    loaded_indexes: int
    index_bytes: int


def _at_once(task: Callable[[], None]) -> None:
    task()


class DiskManager:
    """All topics of one data directory."""

    def __init__(
        self,
        root: str,
        *,
        storage: Storage | None = None,
        call_soon: CallSoon | None = None,
        flushers: int = 2,
        wal: WalConfig | None = None,
        open_files_max: int = 1024,
        open_logs_max: int = 4096,
        index_bytes_max: int = 64 << 20,
        retention_interval_ms: int = RETENTION_INTERVAL_MS,
        now_ms: int = 0,
        repairing: bool = False,
    ) -> None:
        """call_soon: how handlers' callbacks reach the loop; None runs them where they arise.

        flushers: threads that sync; 0 for no threads at all (tests, tools).
        wal: sizes of the write-ahead log; small ones by default where there are no threads.
        repairing: every log is opened as with on.corruption=gap: an operator has looked.
        open_files_max: sealed segments kept open.  open_logs_max: partitions that keep their active
        segment open; a busy one holds a few descriptors more for segments made ahead.
        retention_interval_ms: between two rounds that look at ages, the first after as much; 0:
        every round does.
        """
        self.root = root.rstrip("/") or "/"
        self.storage: Storage = storage if storage is not None else PosixStorage()
        self.topics: Mapping[str, TopicMeta] = MappingProxyType({})
        self.handlers: dict[tuple[str, int], DiskHandler] = {}
        self.files = FileCache(open_files_max)
        self.indexes = IndexCache(index_bytes_max)
        self.open_logs = OpenLogs(open_logs_max)
        self.report = RecoveryReport()
        """What recovery did since the manager was made; partitions are opened when first used."""
        self._call_soon = call_soon or _at_once
        self._flushers_count = flushers
        self.is_new_boot = False
        """Whether the machine was started anew since this directory was last open."""
        self.producer_expiration_ms = PRODUCER_EXPIRATION_MS
        """Partitions opened from now on forget a producer this long after its last batch."""
        self._now_ms = now_ms
        self._repairing = repairing
        self._lock = threading.Lock()
        self._admin_lock = threading.Lock()
        self._opening: set[tuple[str, int]] = set()
        self._opened = threading.Condition(self._lock)
        self._metadata = MetadataLog(self.storage, f"{self.root}/meta")
        self._resuming = Resuming(self._metadata, self.report)
        self._volatile = MemoryStorage(keeps_promises=False)
        self.wal = Wal(
            self.storage,
            f"{self.root}/wal",
            wal or (WalConfig() if flushers else SMALL_WAL),
            threaded=flushers > 0,
            call_soon=self._call_soon,
            snapshot=self._metadata.save,
        )
        self._putting_back = PuttingBack(self.storage, self.root, self.report)
        self._events_lost = 0
        self._lock_file: StorageLock | None = None
        self._flushers: Flushers | None = None
        self._housekeeper: Housekeeper | None = None
        self._maker: Housekeeper | None = None
        self._upkeep: Upkeep | None = None
        self._retention_interval_ms = retention_interval_ms

    # The data directory

    def open(self) -> None:
        """Lock the data directory, read what exists, remove what is half made or half deleted,
        recover what may have lost its end.

        Raises DataDirectoryLocked, CorruptMetadata (nothing was changed then), StorageError (what
        the WAL holds could not be put back), OSError.
        """
        make_dirs(self.storage, self.root)
        try:
            self._lock_file = self.storage.lock(f"{self.root}/LOCK")
        except BlockingIOError as exc:
            raise DataDirectoryLocked(self.root) from exc
        try:
            make_dirs(self.storage, f"{self.root}/meta")
            make_dirs(self.storage, f"{self.root}/topics")
            clock_file = ClockFile(self.storage, f"{self.root}/clock")
            age_clock = AgeClock(clock_file.load())
            try:
                found = self.wal.open()
                self._with_ballast(lambda: self._load_metadata(found))
                self._publish(self._metadata.state)
                self._remove_orphans(self._metadata.state)
                replayed = self._put_back_all(found)
                self.wal.absorbed(self._putting_back.waiting)
            except OSError as exc:
                raise StorageError(
                    f"what {self.root}/wal holds could not be put back, it stays there: {exc}"
                ) from exc
            self._metadata.attach(self.wal)
        except BaseException:
            self._metadata.attach(None)
            self._lock_file.release()
            raise
        self._flushers = Flushers(self._flushers_count)
        threaded = self._flushers_count > 0
        self._housekeeper = Housekeeper(threaded=threaded)
        self._maker = Housekeeper(threaded=threaded, name="segment-maker")
        self._upkeep = Upkeep(
            self,
            Unopened(self.storage, self.root),
            self._metadata,
            self._flushers,
            self._housekeeper,
            age_clock,
            clock_file,
            retention_interval_ms=self._retention_interval_ms,
            now_ms=self._now_ms,
        )
        try:
            self._recover_tails()
        except BaseException:
            self._end_threads()
            self._lock_file.release()
            self._lock_file = None
            raise
        for topic, partition in replayed:
            try:
                self.get_handler(topic, partition)
            except StorageError as exc:
                log.error("partition_not_opened", topic=topic, partition=partition, error=str(exc))

    def _put_back_all(self, found: Replay) -> list[tuple[str, int]]:
        """Raises OSError."""
        self._resuming.distrust(found.unnamed, found.shards)
        return self._with_ballast(
            lambda: self._putting_back.put_back(
                found, self.topics, events_lost=self._events_lost > 0
            )
        )

    def _with_ballast(self, work: Callable[[], T]) -> T:
        """`work`, once more without the spare files of the WAL where the disk is full."""
        try:
            return work()
        except OSError as exc:
            if exc.errno != errno.ENOSPC or not self.wal.give_space_back():
                raise
            log.warning("wal_spare_files_given_up", error=str(exc))
            return work()

    def _end_threads(self) -> None:
        assert self._maker is not None
        assert self._housekeeper is not None
        assert self._flushers is not None
        self._maker.close()
        self._housekeeper.close()
        self.wal.stop()
        self._flushers.close()

    def _load_metadata(self, found: Replay) -> None:
        """The snapshot and the events behind it, as one snapshot: the WAL may begin anew.

        Raises CorruptMetadata, OSError.
        """
        if self._metadata.load():
            lost = self._events_lost = self._metadata.replay(found.control) + found.control_lost
            if lost:
                self._resuming.widen(lost)
            before = self._metadata.state.boot
            self._resuming.begin_boot(self.storage.boot_id())
            self.is_new_boot = self._metadata.state.boot != before
            self._metadata.absorb()
            return
        topics = [n for n in self.storage.listdir(f"{self.root}/topics") if not n.startswith("~")]
        if topics or not found.is_empty:
            # Taken for a new directory, every topic would be an orphan, and removed.
            raise CorruptMetadata(
                f"{self.root}/meta",
                f"there is no snapshot, but there are topics {topics[:3]} "
                f"and {len(found.control)} events",
            )
        cluster_id = base64.urlsafe_b64encode(self.storage.random_bytes(16))
        state = Metadata(cluster_id.decode().rstrip("="))
        self._metadata.begin(state.with_boot(self.storage.boot_id()))

    def close(self) -> None:
        """Sync and close everything, in order; a second time does nothing.

        Raises an ExceptionGroup of what failed, after all else is closed.
        """
        if self._lock_file is None:
            return
        self._end_threads()
        self._metadata.attach(None)  # from here on every change is a snapshot
        failures: list[Exception] = []
        with self._lock:
            handlers, self.handlers = self.handlers, {}
        settled: list[CeilingRow] = []
        for handler in handlers.values():
            try:
                handler.close()
                settled += self._settled(handler)
            except StorageError as exc:
                failures.append(exc)
        is_durable = not failures and not any(h.has_unsynced for h in handlers.values())
        is_durable = is_durable and not self._putting_back.waiting
        try:
            self._resuming.record_ceilings(settled)
            self._metadata.absorb()
        except OSError as exc:
            is_durable = False
            failures.append(exc)
        try:
            self.wal.close(empty=is_durable)
        except OSError as exc:
            failures.append(exc)
        self._lock_file.release()
        self._lock_file = None
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
        self.topics = MappingProxyType(metadata.topics)

    def _record(self, kind: str, **fields: object) -> None:
        self._publish(self._metadata.record(kind, **fields))

    def _topic_folder(self, name: str) -> str:
        return f"{self.root}/topics/{name}"

    def _remove_orphans(self, metadata: Metadata) -> None:
        for orphan in list(find_orphans(self.storage, self.root, metadata)):
            mark = self.storage.random_bytes(8).hex()
            path = orphan.path
            if orphan.has_records:
                path = put_aside(self.storage, self.root, orphan, mark)
                row = ReportRow("quarantined", path, orphan.topic, orphan.partition)
            else:
                remove_orphan(self.storage, orphan, mark)
                row = ReportRow("orphan_removed", path)
            self.report.add(row)

    def _bury(self, name: str, grave: str) -> None:
        """Take a topic's directory out of the way, then remove it."""
        remove_orphan(
            self.storage, Orphan(self._topic_folder(name), name, -1, has_records=False), grave
        )

    # Topics

    def check_new_topic(self, name: str, partitions: int) -> None:
        """Raise what `create_topic` would raise for these, and make nothing."""
        check_topic_name(name)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidPartitions(name, partitions, f"outside [1, {PARTITIONS_MAX}]")
        if name in self._known.topics:
            raise TopicExists(name)

    def create_topic(
        self, name: str, partitions: int, config: TopicConfig, *, now_ms: int
    ) -> TopicMeta:
        """Make a topic; durable when this returns.  Blocking.

        Raises InvalidTopicName, InvalidPartitions, TopicExists, StorageError.
        """
        with self._admin_lock:
            self.check_new_topic(name, partitions)
            metadata = self._known
            topic_id = UUID(bytes=self.storage.random_bytes(16), version=4)
            meta = TopicMeta(name, topic_id, partitions, config, metadata.first_epoch(name))
            try:
                if self.storage.exists(self._topic_folder(name)):
                    self._bury(name, topic_id.hex)  # of an attempt that failed
                self._make_partitions(meta, range(partitions))
                self._record("topic_created", **encode_topic(meta))
            except OSError as exc:
                raise StorageError(f"topic {name!r} was not created: {exc}") from exc
        return meta

    def _make_partitions(self, meta: TopicMeta, numbers: range) -> None:
        if meta.config.durability is Durability.EPHEMERAL:
            return
        folder = self._topic_folder(meta.name)
        make_dirs(self.storage, folder)
        for partition in numbers:
            path = partition_paths(self.root, meta.name, partition).folder
            if not self.storage.exists(path):
                self.storage.mkdir(path)
        self.storage.fsync_dir(folder)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; it is gone for good when this returns, its files soon after.

        Raises UnknownTopic, StorageError.
        """
        with self._admin_lock:
            metadata = self._known
            meta = metadata.topics.get(name)
            if meta is None:
                raise UnknownTopic(name)
            try:
                self._record("topic_deleted", name=name, id=meta.topic_id.bytes)
            except OSError as exc:
                raise StorageError(f"topic {name!r} was not deleted: {exc}") from exc
            with self._lock:
                keys = [key for key in self.handlers if key[0] == name]
                handlers = [self.handlers.pop(key) for key in keys]
            for handler in handlers:
                handler.close(checkpoint=False)
            if meta.config.durability is Durability.EPHEMERAL:
                if self._volatile.exists(self._topic_folder(name)):
                    remove_tree(self._volatile, self._topic_folder(name))
                return
            grave = self._topic_folder(f"~{meta.topic_id.hex}")
            try:
                self.storage.rename(self._topic_folder(name), grave)
                self.storage.fsync_dir(f"{self.root}/topics")
            except OSError as exc:
                # It is deleted all the same; the next opening removes the orphan.
                log.warning("deleted_topic_not_moved", topic=name, error=str(exc))
                return
        assert self._housekeeper is not None
        self._housekeeper.submit(lambda: self._unlink(grave))

    def _unlink(self, grave: str) -> None:
        try:
            remove_tree(self.storage, grave)
        except OSError as exc:
            log.warning("deleted_topic_not_removed", folder=grave, error=str(exc))

    def create_partitions(self, name: str, count: int) -> TopicMeta:
        """Let a topic grow to `count` partitions.  Raises UnknownTopic, InvalidPartitions."""
        with self._admin_lock:
            meta = self._meta(name)
            if not meta.partitions < count <= PARTITIONS_MAX:
                raise InvalidPartitions(
                    name, count, f"it has {meta.partitions}, the limit is {PARTITIONS_MAX}"
                )
            grown = replace(meta, partitions=count)
            try:
                self._make_partitions(meta, range(meta.partitions, count))
                self._record(
                    "partitions_grown", name=name, id=meta.topic_id.bytes, partitions=count
                )
            except OSError as exc:
                raise StorageError(f"topic {name!r} did not grow: {exc}") from exc
        return grown

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> TopicMeta:
        """Replace the settings of a topic.  Raises UnknownTopic, InvalidConfig."""
        config = TopicConfig.parse(overrides)
        with self._admin_lock:
            meta = self._meta(name)
            check_class_change(meta.config.durability, config.durability)
            altered = replace(meta, config=config)
            try:
                self._record(
                    "topic_altered", name=name, id=meta.topic_id.bytes, config=config.overrides
                )
                for partition in range(altered.partitions):
                    handler = self.handler_if_open(name, partition)
                    if handler is not None:
                        self._reconfigure(handler, altered)
            except OSError as exc:
                raise StorageError(f"topic {name!r} was not altered: {exc}") from exc
        return altered

    def _reconfigure(self, handler: DiskHandler, altered: TopicMeta) -> None:
        key = altered.topic_id, handler.partition
        before, after = handler.config.durability, altered.config.durability
        if Durability.FSYNC not in (before, after) or before is after:
            handler.reconfigure(altered.config, handler.ceiling)
        elif before is Durability.FSYNC:
            handler.reconfigure(altered.config, self._resuming.ceiling_of(key))
        else:
            handler.sync()  # most of what the old class left unsynced
            handler.reconfigure(altered.config, None)
            handler.sync()
            self._resuming.record_ceilings([(key, Ceiling(0, SETTLED))])

    @property
    def committed(self) -> Content:
        """The committed offsets of groups."""
        found: Content = self._known.sections.get(SECTION, {})
        return found

    def section(self, name: str) -> Mapping[str, Any] | None:
        """What events of other kinds have made of a section; None: nothing yet."""
        found: Mapping[str, Any] | None = self._known.sections.get(name)
        return found

    @property
    def is_settled(self) -> bool:
        """Whether no control event is in doubt: written perhaps, and reported as failed."""
        return self._metadata.is_settled

    def record_now(self, kind: str, **fields: object) -> None:
        """Write one event of a registered kind; durable when this returns.  For tools and lanes.

        Raises StorageError: it did not happen.
        """
        with self._admin_lock:
            try:
                self._record(kind, **fields)
            except OSError as exc:
                raise StorageError(f"{kind}: {exc}") from exc

    def record_soon(self, done: Done, kind: str, **fields: object) -> None:
        """Have a control event of a registered kind written; `done` when it is durable, or failed.

        For the loop.
        """
        self._metadata.record_soon(done, kind, **fields)

    def allocate_producer_ids(self, count: int) -> range:
        """So many ids that were never given before and never will be again."""
        with self._admin_lock:
            first = self._known.next_producer_id
            try:
                self._record("producer_ids", next=first + count)
            except OSError as exc:
                raise StorageError(f"no producer ids: {exc}") from exc
        return range(first, first + count)

    def _meta(self, name: str) -> TopicMeta:
        meta = self._known.topics.get(name)
        if meta is None:
            raise UnknownTopic(name)
        return meta

    # Partitions

    def handler_if_open(self, topic: str, partition: int) -> DiskHandler | None:
        """The handler if it is open: for the loop."""
        return self.handlers.get((topic, partition))

    def get_handler(self, topic: str, partition: int) -> DiskHandler:
        """The handler, opened and recovered if need be.  Blocking: for lanes.

        Raises UnknownTopic, CorruptSegment, StorageError.
        """
        key = (topic, partition)
        with self._lock:
            while True:
                handler = self.handlers.get(key)
                if handler is not None:
                    return handler
                if key not in self._opening:
                    break
                self._opened.wait()
            self._opening.add(key)
        try:
            return self._open_handler(topic, partition)
        finally:
            with self._lock:
                self._opening.discard(key)
                self._opened.notify_all()

    def _open_handler(self, topic: str, partition: int) -> DiskHandler:
        meta = self._meta(topic)
        if not 0 <= partition < meta.partitions:
            raise UnknownTopic(topic, partition)
        opened = Found(meta, partition, self._open_log(meta, partition, self._now_ms))
        try:
            (ceiling,) = self._resuming.resume([opened], self._now_ms)
        except OSError as exc:
            close_log(opened.log, clean=False)
            raise StorageError(f"cannot open partition {partition} of {topic!r}: {exc}") from exc
        return self._serve(opened, ceiling)

    def _serve(self, opened: Found, ceiling: PartitionCeiling | None) -> DiskHandler:
        assert self._flushers is not None
        assert self._housekeeper is not None
        assert self._maker is not None
        meta, partition = opened.meta, opened.partition
        topic = meta.name

        def reopen(now_ms: int) -> PartitionLog:
            return self._open_log(self._meta(topic), partition, now_ms)

        handler = DiskHandler(
            topic,
            partition,
            opened.log,
            ceiling=ceiling,
            reopen=reopen,
            flushers=self._flushers,
            housekeeper=self._housekeeper,
            maker=self._maker,
            wal=self.wal,
            topic_id=meta.topic_id.bytes,
            call_soon=self._call_soon,
            on_attention=self._keeper.ask,
            report=LogReport(self.report, topic, partition),
            now_ms=lambda: self._now_ms,
        )
        handler.producer_expiration_ms = self.producer_expiration_ms
        with self._lock:
            current = self.topics.get(topic)
            if current is not None and current.topic_id == meta.topic_id:
                self.handlers[topic, partition] = handler
                return handler
        handler.close(checkpoint=False)  # deleted while it was being opened
        raise UnknownTopic(topic)

    def _open_log(self, meta: TopicMeta, partition: int, now_ms: int) -> PartitionLog:
        """Raises CorruptSegment, StorageError."""
        paths = partition_paths(self.root, meta.name, partition)
        storage = self.storage
        try:
            if meta.config.durability is Durability.EPHEMERAL:
                storage = self._volatile
                self._begin_ephemeral(meta, partition, paths, now_ms)
            opened = open_log(
                storage,
                paths,
                self._config_of(meta),
                self.files,
                self.indexes,
                self.open_logs,
                now_ms=now_ms,
                leader_epoch=self._known.leader_epoch(meta, partition),
                create=False,
                durable_end=self._putting_back.end_of(meta, partition),
                acks_unsynced=self._resuming.is_unresolved(meta, partition),
                report=LogReport(self.report, meta.name, partition),
            )
            self._putting_back.opened(meta, partition)
            return opened
        except OSError as exc:
            raise StorageError(
                f"cannot open partition {partition} of {meta.name!r}: {exc}"
            ) from exc

    def _begin_ephemeral(
        self, meta: TopicMeta, partition: int, paths: LogPaths, now_ms: int
    ) -> None:
        if self._volatile.exists(paths.folder):
            return
        ceiling = self._known.ceiling((meta.topic_id, partition))
        offset, epoch = 0, self._known.leader_epoch(meta, partition)
        if ceiling is not None and ceiling.offset:
            offset, epoch = ceiling.offset, self._resuming.begin_epoch(meta, partition)
        begin_at(self._volatile, paths, offset, epoch, now_ms)

    def _recover_tails(self) -> None:
        """Open what may have lost its end in another boot, before anybody asks for it."""
        unresolved = self._resuming.unresolved()
        for start in range(0, len(unresolved), EAGER_MAX):
            opened = self._open_some(unresolved[start : start + EAGER_MAX])
            try:
                ceilings = self._resuming.resume(opened, self._now_ms, self._each)
            except OSError:
                for one in opened:
                    close_log(one.log, clean=False)
                raise
            for one, ceiling in zip(opened, ceilings, strict=True):
                self._serve(one, ceiling)

    def _open_some(self, some: Sequence[tuple[TopicMeta, int]]) -> list[Found]:
        """Those that can be opened, in their order."""
        opened: dict[int, Found] = {}

        def open_one(place: int) -> None:
            meta, partition = some[place]
            try:
                opened[place] = Found(
                    meta, partition, self._open_log(meta, partition, self._now_ms)
                )
            except StorageError as exc:
                # The others go on; whoever asks for this one is told.
                log.error("partition_not_opened", topic=meta.name, error=str(exc))

        self._each(open_one, range(len(some)))
        return [opened[place] for place in sorted(opened)]

    def _each(self, work: Callable[[int], None], places: Iterable[int]) -> None:
        """Do the work for each place, several at a time: it is made of syncs, which overlap."""
        if not self._flushers_count:
            one_by_one(work, places)
            return
        with ThreadPoolExecutor(RECOVERY_THREADS) as pool:
            for _ in pool.map(work, places):
                pass

    def _settled(self, handler: DiskHandler) -> list[CeilingRow]:
        """What a clean close says of a partition's ceiling."""
        meta = self._known.topics[handler.topic]
        key, ceiling = (meta.topic_id, handler.partition), Ceiling(handler.log_end_offset, SETTLED)
        is_known = self._known.ceiling(key) in (ceiling, None)
        if is_known or handler.ceiling is None or handler.read_only is not None:
            return []
        return [(key, ceiling)]

    def _config_of(self, meta: TopicMeta) -> TopicConfig:
        if not self._repairing:
            return meta.config
        return TopicConfig({**meta.config.overrides, "on.corruption": "gap"})

    # Keeping house

    def housekeeping(self, now_ms: int, monotonic_ms: int | None = None) -> None:
        """What is due by time; see `Upkeep.step`.  Call it in a lane, several times a second."""
        self._now_ms = now_ms
        self._keeper.step(now_ms, monotonic_ms)

    @property
    def believes_clock(self) -> bool:
        """Whether something may be forgotten by its age: the wall clock has not jumped ahead."""
        return self._keeper.believes_clock

    def keep_house_now(self, now_ms: int) -> None:
        """A whole round of housekeeping, ages included, and what it has others do: for tests."""
        self._now_ms = now_ms
        self._keeper.step_all(now_ms)

    @property
    def _keeper(self) -> Upkeep:
        if self._upkeep is None:
            raise LogClosed(self.root)
        return self._upkeep

    def statistics(self) -> Statistics:
        """Numbers at this moment."""
        handlers = list(self.handlers.values())
        return Statistics(
            topics_count=len(self.topics),
            partitions_open=len(handlers),
            partitions_read_only=sum(h.read_only is not None for h in handlers),
            segments_count=sum(h.segments_count for h in handlers),
            log_bytes=sum(h.size_bytes for h in handlers),
            open_files=len(self.files),
            open_logs=len(self.open_logs),
            rolls_unprepared=sum(h.rolls_unprepared for h in handlers),
            loaded_indexes=len(self.indexes),
            index_bytes=self.indexes.memory_size,
        )

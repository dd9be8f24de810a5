"""DiskManager: the data directory, its topics, and the open partitions.

    <root>/LOCK                 one process at a time
    <root>/meta/                metadata.py: what exists
    <root>/topics/<topic>/...   what it holds (names.py)
    <root>/topics/~<id>         a deleted topic on its way out

Creating makes the directories, then the snapshot: a crash in between leaves an orphan that the next
opening removes.  Deleting goes the other way: the snapshot without the topic is the deletion, then
the directory gets a name that no topic can have, then its files go.

| lock | protects | held over |
|---|---|---|
| _admin_lock | metadata changes: one at a time, whole | the snapshot's sync: administration only |
| _lock | the dictionaries of handlers and of those being opened | nothing |

`topics` is replaced as a whole, never changed, so the loop reads it without a lock; `handlers` are
looked up without one as well.  Opening a partition happens in the caller's thread; who comes second
waits for the first.

Invariant: a handler is in the dictionary exactly as long as its topic exists and it is open.
"""

import base64
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Final
from uuid import UUID

import structlog

from .background import Flushers, Housekeeper
from .caches import FileCache, IndexCache, OpenLogs
from .errors import (
    DataDirectoryLocked,
    InvalidPartitions,
    LogClosed,
    StorageError,
    TopicExists,
    UnknownTopic,
)
from .handler import CallSoon, DiskHandler
from .metadata import Metadata, MetadataStore, TopicMeta
from .names import check_topic_name, partition_paths
from .opening import open_log
from .partition_log import PartitionLog
from .posix import PosixStorage
from .report import LogReport, RecoveryReport, ReportRow
from .storage import Storage, StorageLock, make_dirs, remove_tree
from .topic_config import TopicConfig

__all__ = ["DiskManager", "Statistics", "TopicMeta"]

log = structlog.get_logger()

PARTITIONS_MAX: Final = 10_000
SYNC_TICK_MS: Final = 1_000
VISITS_MAX: Final = 500
"""Partitions looked at for age per call of `housekeeping`: about 1 ms of the interpreter."""


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
        open_files_max: int = 1024,
        open_logs_max: int = 4096,
        index_bytes_max: int = 64 << 20,
        now_ms: int = 0,
    ) -> None:
        """call_soon: how handlers' callbacks reach the loop; None runs them where they arise.

        flushers: threads that sync; 0 for no threads at all (tests, tools).
        open_files_max: sealed segments kept open.  open_logs_max: partitions that keep their active
        segment open; a busy one holds a few descriptors more for segments made ahead.
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
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._admin_lock = threading.Lock()
        self._opening: set[tuple[str, int]] = set()
        self._opened = threading.Condition(self._lock)
        self._metadata: Metadata | None = None
        self._store = MetadataStore(self.storage, f"{self.root}/meta")
        self._lock_file: StorageLock | None = None
        self._flushers: Flushers | None = None
        self._housekeeper: Housekeeper | None = None
        self._maker: Housekeeper | None = None
        self._attention: set[DiskHandler] = set()
        self._visits: list[DiskHandler] = []
        self._tick_ms = 0

    # The data directory

    def open(self) -> None:
        """Lock the data directory, read what exists, remove what is half deleted.

        Raises DataDirectoryLocked, CorruptSegment (a damaged snapshot), OSError.
        """
        make_dirs(self.storage, self.root)
        try:
            self._lock_file = self.storage.lock(f"{self.root}/LOCK")
        except BlockingIOError as exc:
            raise DataDirectoryLocked(self.root) from exc
        try:
            make_dirs(self.storage, f"{self.root}/meta")
            make_dirs(self.storage, f"{self.root}/topics")
            metadata = self._store.load()
            if metadata is None:
                cluster_id = base64.urlsafe_b64encode(self.storage.random_bytes(16))
                metadata = Metadata(cluster_id.decode().rstrip("="))
                self._store.save(metadata)
            self._publish(metadata)
            self._remove_orphans(metadata)
        except BaseException:
            self._lock_file.release()
            raise
        self._flushers = Flushers(self._flushers_count)
        threaded = self._flushers_count > 0
        self._housekeeper = Housekeeper(threaded=threaded)
        self._maker = Housekeeper(threaded=threaded, name="segment-maker")

    def close(self) -> None:
        """Sync and close everything, in order; a second time does nothing.

        Raises an ExceptionGroup of what failed, after all else is closed.
        """
        if self._lock_file is None:
            return
        assert self._flushers is not None
        assert self._housekeeper is not None
        assert self._maker is not None
        self._maker.close()
        self._housekeeper.close()
        self._flushers.close()
        failures: list[Exception] = []
        with self._lock:
            handlers, self.handlers = self.handlers, {}
        for handler in handlers.values():
            try:
                handler.close()
            except StorageError as exc:
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
        if self._metadata is None:
            raise LogClosed(self.root)
        return self._metadata

    def _publish(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.topics = MappingProxyType(metadata.topics)

    def _save(self, metadata: Metadata) -> None:
        self._store.save(metadata)
        self._publish(metadata)

    def _topic_folder(self, name: str) -> str:
        return f"{self.root}/topics/{name}"

    def _remove_orphans(self, metadata: Metadata) -> None:
        for name in self.storage.listdir(f"{self.root}/topics"):
            if name not in metadata.topics:
                self.report.add(ReportRow("orphan_removed", self._topic_folder(name)))
                self._bury(name, self.storage.random_bytes(8).hex())

    def _bury(self, name: str, grave: str) -> None:
        """Take a topic's directory out of the way, then remove it."""
        target = self._topic_folder(f"~{grave}")
        self.storage.rename(self._topic_folder(name), target)
        self.storage.fsync_dir(f"{self.root}/topics")
        remove_tree(self.storage, target)

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
                self._make_partitions(name, range(partitions))
                self._save(metadata.with_topic(meta))
            except OSError as exc:
                raise StorageError(f"topic {name!r} was not created: {exc}") from exc
        return meta

    def _make_partitions(self, name: str, numbers: range) -> None:
        folder = self._topic_folder(name)
        make_dirs(self.storage, folder)
        for partition in numbers:
            path = partition_paths(self.root, name, partition).folder
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
                self._save(metadata.without_topic(name))
            except OSError as exc:
                raise StorageError(f"topic {name!r} was not deleted: {exc}") from exc
            with self._lock:
                keys = [key for key in self.handlers if key[0] == name]
                handlers = [self.handlers.pop(key) for key in keys]
            for handler in handlers:
                handler.close(checkpoint=False)
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
                self._make_partitions(name, range(meta.partitions, count))
                self._save(self._known.with_topic(grown))
            except OSError as exc:
                raise StorageError(f"topic {name!r} did not grow: {exc}") from exc
        return grown

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> TopicMeta:
        """Replace the settings of a topic.  Raises UnknownTopic, InvalidConfig."""
        config = TopicConfig.parse(overrides)
        with self._admin_lock:
            altered = replace(self._meta(name), config=config)
            try:
                self._save(self._known.with_topic(altered))
            except OSError as exc:
                raise StorageError(f"topic {name!r} was not altered: {exc}") from exc
            for partition in range(altered.partitions):
                handler = self.handler_if_open(name, partition)
                if handler is not None:
                    handler.reconfigure(config)
        return altered

    def allocate_producer_ids(self, count: int) -> range:
        """So many ids that were never given before and never will be again."""
        with self._admin_lock:
            first = self._known.next_producer_id
            try:
                self._save(replace(self._known, next_producer_id=first + count))
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
        assert self._flushers is not None
        assert self._housekeeper is not None
        assert self._maker is not None

        def reopen(now_ms: int) -> PartitionLog:
            return self._open_log(self._meta(topic), partition, now_ms)

        try:
            opened = self._open_log(meta, partition, self._now_ms)
        except OSError as exc:
            raise StorageError(f"cannot open partition {partition} of {topic!r}: {exc}") from exc
        handler = DiskHandler(
            topic,
            partition,
            opened,
            reopen=reopen,
            flushers=self._flushers,
            housekeeper=self._housekeeper,
            maker=self._maker,
            call_soon=self._call_soon,
            on_attention=self._attention.add,
            report=LogReport(self.report, topic, partition),
            now_ms=lambda: self._now_ms,
        )
        with self._lock:
            current = self.topics.get(topic)
            if current is not None and current.topic_id == meta.topic_id:
                self.handlers[topic, partition] = handler
                return handler
        handler.close(checkpoint=False)  # deleted while it was being opened
        raise UnknownTopic(topic)

    def _open_log(self, meta: TopicMeta, partition: int, now_ms: int) -> PartitionLog:
        return open_log(
            self.storage,
            partition_paths(self.root, meta.name, partition),
            meta.config,
            self.files,
            self.indexes,
            self.open_logs,
            now_ms=now_ms,
            leader_epoch=meta.epoch,
            create=False,
            report=LogReport(self.report, meta.name, partition),
        )

    # Keeping house

    def housekeeping(self, now_ms: int) -> None:
        """What is due by time: age rolls, the sync tick of class `disk`, a disk with space again,
        descriptors of partitions that are not in use.

        Call it in a lane, several times a second.  Its cost does not grow with the partitions that
        are open, only with those that were written to: the others are visited VISITS_MAX at a time.
        """
        self._now_ms = now_ms
        if now_ms - self._tick_ms >= SYNC_TICK_MS:
            self._tick_ms = now_ms
            for handler in list(self._attention):
                self._attention.discard(handler)
                if self._is_open(handler) and handler.attend(now_ms):
                    self._attention.add(handler)
        if not self._visits:
            self._visits = list(self.handlers.values())
        for handler in self._visits[-VISITS_MAX:]:
            if self._is_open(handler):
                handler.keep_house(now_ms)
        del self._visits[-VISITS_MAX:]
        if self.open_logs.has_surplus:
            self.open_logs.park_surplus()

    def _is_open(self, handler: DiskHandler) -> bool:
        return self.handlers.get((handler.topic, handler.partition)) is handler

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

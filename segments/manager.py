"""DiskManager: the registry of a data directory - which topics there are, who handles which partition.

    with DiskManager("/data", now_ms=now) as manager:
        manager.create_topic("clicks", 4, TopicConfig(), now_ms=now)
        handler = manager.get_handler("clicks", 0)

`topics` is what exists, durable (meta.py).  A handler is opened on first use and lives until close:
`handler_if_open` is a dictionary look-up for the loop, `get_handler` may scan files and belongs
in a lane.  One process at a time: the directory is locked.

Deleting a topic is two-phase, so that a crash at any point either keeps it or removes it:

    rename topics/<t> to topics/.deleted-<id>, directory sync → metadata without it → unlink

What a crash leaves is finished at the next open: a `.deleted-<id>` whose topic is still in the
metadata goes on being deleted, any other is just unlinked.

Threads: `_admin` serialises what changes topics (lanes only, held over their I/O); the maps are
replaced or extended in one step, so the loop reads them without a lock.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

import structlog

from . import names
from .background import Background, InlineBackground, Job, ThreadedBackground
from .errors import (
    DataDirectoryLocked,
    DirectoryInTheWay,
    InvalidPartitions,
    TopicExists,
    UnknownTopic,
)
from .file_cache import FileCache
from .handler import DiskHandler
from .index_cache import IndexCache
from .log import remove_tree
from .meta import Metadata, MetadataStore, TopicMeta
from .posix import PosixStorage
from .storage import Storage, StorageLock
from .topic_config import Durability, TopicConfig

PARTITIONS_MAX = 10_000
"""Partitions of one topic."""

INDEXES_MAX = 4_096

_log = structlog.get_logger()

__all__ = ["DiskManager", "TopicMeta"]


class DiskManager:
    """The logs of one data directory.

    Args:
        root: the data directory; made when missing.
        storage: the disk; the real one by default.
        call_soon: runs a callable on the loop, from any thread. None: there is no loop, and syncs
            and housekeeping happen in the caller's thread before it returns.
        flushers: threads that sync.
        open_files_max: descriptors of sealed segments kept open.
        now_ms: the time now.
    """

    def __init__(
        self,
        root: str,
        *,
        storage: Storage | None = None,
        call_soon: Callable[[Job], object] | None = None,
        flushers: int = 2,
        open_files_max: int = 1_024,
        now_ms: int = 0,
    ) -> None:
        self.root = str(root)
        self._storage: Storage = storage or PosixStorage()
        self._call_soon = call_soon
        self._flushers = flushers
        self._now_ms = now_ms
        self._files = FileCache(self._storage, open_files_max)
        self._indexes = IndexCache(INDEXES_MAX)
        self._background: Background = InlineBackground()
        self._handlers: dict[tuple[str, int], DiskHandler] = {}
        self._admin = threading.RLock()
        self._lock: StorageLock | None = None
        self._meta = MetadataStore(self._storage, f"{self.root}/meta")
        self._state = Metadata("")

    # ------------------------------------------------------------------ opening and closing

    def open(self) -> None:
        """Lock the directory, load the metadata, finish what a crash interrupted.

        Raises:
            DataDirectoryLocked: another process has it.
            UnsupportedFormat: it is of another version, or damaged.
            OSError.
        """
        storage = self._storage
        storage.makedirs(self.root)
        try:
            self._lock = storage.lock(f"{self.root}/LOCK")
        except BlockingIOError:
            raise DataDirectoryLocked(self.root) from None
        try:
            state = self._meta.load()
            storage.makedirs(f"{self.root}/topics")
            if state is None:
                state = Metadata(cluster_id=str(uuid4()))
                self._meta.save(state)
            self._state = state
            self._finish_deletions()
            if self._call_soon is not None:
                self._background = ThreadedBackground(
                    self._call_soon, flushers=self._flushers, on_crash=_report_crash
                )
        except BaseException:
            self._lock.release()
            self._lock = None
            raise

    def close(self) -> None:
        """Sync and close every handler in order, then end the threads and unlock.

        Raises:
            ExceptionGroup: what could not be closed; everything else was.
        """
        if self._lock is None:
            return
        errors: list[Exception] = []
        with self._admin:
            self._background.close()
            for key in sorted(self._handlers):
                try:
                    self._handlers[key].close()
                except Exception as error:
                    errors.append(error)
            self._handlers = {}
            self._files.close()
            self._lock.release()
            self._lock = None
        if errors:
            raise ExceptionGroup(f"closing {self.root}", errors)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ topics

    @property
    def topics(self) -> Mapping[str, TopicMeta]:
        """Every topic by name; a new mapping after each change."""
        return self._state.topics

    @property
    def cluster_id(self) -> str:
        """Made once per data directory."""
        return self._state.cluster_id

    def create_topic(
        self, name: str, partitions: int, config: TopicConfig, *, now_ms: int
    ) -> TopicMeta:
        """Make a topic; durable when this returns.

        Raises:
            InvalidTopicName, InvalidPartitions, TopicExists, DirectoryInTheWay, OSError.
        """
        del now_ms  # a topic has no birthday yet; the parameter is part of the interface
        names.check_topic_name(name)
        with self._admin:
            self.check_new_topic(name, partitions)
            folder = self._folder(name)
            if self._storage.exists(folder):
                raise DirectoryInTheWay(folder)
            epoch = self._state.epochs.get(name, -1) + 1
            topic = TopicMeta(name, uuid4(), partitions, config, epoch)
            self._save(self._state.with_topic(topic))
        return topic

    def check_new_topic(self, name: str, partitions: int) -> None:
        """Raise what `create_topic` would raise for these, without making anything."""
        names.check_topic_name(name)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidPartitions(name, partitions, f"outside [1, {PARTITIONS_MAX}]")
        if name in self._state.topics:
            raise TopicExists(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its files.  Raises UnknownTopic, OSError."""
        with self._admin:
            topic = self._topic(name)
            self._close_handlers(key for key in self._handlers if key[0] == name)
            folder, doomed = self._folder(name), self._doomed(topic.topic_id)
            if self._storage.exists(folder):
                self._storage.rename(folder, doomed)
                self._storage.fsync_dir(f"{self.root}/topics")
            self._save(self._state.without_topic(name))
        if self._storage.exists(doomed):
            self._background.housekeep_soon(lambda: self._remove(doomed))

    def create_partitions(self, name: str, count: int) -> TopicMeta:
        """Let a topic grow to `count` partitions.

        Raises:
            UnknownTopic, OSError; InvalidPartitions: not more than there are, or too many.
        """
        with self._admin:
            topic = self._topic(name)
            if count <= topic.partitions:
                raise InvalidPartitions(name, count, f"there are {topic.partitions} already")
            if count > PARTITIONS_MAX:
                raise InvalidPartitions(name, count, f"limit {PARTITIONS_MAX}")
            topic = replace(topic, partitions=count)
            self._save(self._state.with_topic(topic))
            return topic

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> TopicMeta:
        """Replace the settings of a topic by `overrides` over the defaults.

        Raises:
            UnknownTopic, InvalidConfig, OSError.
        """
        with self._admin:
            topic = replace(self._topic(name), config=TopicConfig.parse(overrides))
            self._save(self._state.with_topic(topic))
            for (owner, _), handler in list(self._handlers.items()):
                if owner == name:
                    self._background.call_soon(
                        lambda h=handler: setattr(h, "config", topic.config)  # type: ignore[misc]
                    )
            return topic

    def allocate_producer_ids(self, count: int) -> range:
        """A block of producer ids that no one gets again, also after a crash."""
        assert count > 0
        with self._admin:
            first = self._state.next_producer_id
            self._save(replace(self._state, next_producer_id=first + count))
            return range(first, first + count)

    # ------------------------------------------------------------------ handlers

    def handler_if_open(self, topic: str, partition: int) -> DiskHandler | None:
        """The handler, if it is open: for the loop."""
        return self._handlers.get((topic, partition))

    def get_handler(self, topic: str, partition: int) -> DiskHandler:
        """The handler, opened and recovered on first use; blocking.

        Raises:
            UnknownTopic, CorruptSegment, OSError.
        """
        handler = self._handlers.get((topic, partition))
        if handler is not None:
            return handler
        with self._admin:
            handler = self._handlers.get((topic, partition))
            if handler is not None:
                return handler
            meta = self._topic(topic)
            if not 0 <= partition < meta.partitions:
                raise UnknownTopic(topic, partition)
            handler = DiskHandler(
                self._storage,
                names.partition_folder(self.root, topic, partition),
                names.partition_stem(topic, partition),
                topic,
                partition,
                meta.config,
                background=self._background,
                files=self._files,
                indexes=self._indexes,
                leader_epoch=meta.epoch,
                now_ms=self._now_ms,
            )
            report = handler.recovery_report
            if not report.is_clean:
                _log.warning(
                    "partition_recovered",
                    topic=topic,
                    partition=partition,
                    cut_bytes=report.cut_bytes,
                    gaps=report.gaps,
                    quarantined=report.quarantined,
                )
            self._handlers[topic, partition] = handler
            return handler

    def housekeeping(self, now_ms: int) -> None:
        """Age rolls, sync ticks, reopening after a full disk; call about once a second."""
        self._now_ms = now_ms
        for handler in list(self._handlers.values()):
            self._background.call_soon(lambda h=handler: h.housekeeping(now_ms))  # type: ignore[misc]

    def statistics(self) -> dict[str, Any]:
        """Counts for people and metrics."""
        handlers = list(self._handlers.values())
        return {
            "topics": len(self._state.topics),
            "partitions": sum(t.partitions for t in self._state.topics.values()),
            "open_partitions": len(handlers),
            "open_files": len(self._files),
            "loaded_indexes": len(self._indexes),
            "bytes": sum(handler.size_bytes for handler in handlers),
            "read_only_partitions": sum(handler.read_only is not None for handler in handlers),
            "durability": {
                d.value: sum(t.config.durability is d for t in self._state.topics.values())
                for d in Durability
            },
        }

    # ------------------------------------------------------------------ inside

    def _topic(self, name: str) -> TopicMeta:
        topic = self._state.topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def _save(self, state: Metadata) -> None:
        self._meta.save(state)
        self._state = state

    def _folder(self, name: str) -> str:
        return f"{self.root}/topics/{name}"

    def _doomed(self, topic_id: UUID) -> str:
        return f"{self.root}/topics/{names.DELETED_PREFIX}{topic_id}"

    def _close_handlers(self, keys: Iterable[tuple[str, int]]) -> None:
        for key in list(keys):
            self._handlers.pop(key).close()

    def _remove(self, folder: str) -> None:
        try:
            remove_tree(self._storage, folder)
        except OSError as error:
            # The topic is gone for its users; the next start tries again.
            _log.warning("topic_files_not_removed", folder=folder, error=str(error))

    def _finish_deletions(self) -> None:
        by_id = {str(topic.topic_id): name for name, topic in self._state.topics.items()}
        for entry in self._storage.listdir(f"{self.root}/topics"):
            if not entry.startswith(names.DELETED_PREFIX):
                continue
            name = by_id.get(entry.removeprefix(names.DELETED_PREFIX))
            if name is not None:
                self._save(self._state.without_topic(name))
            self._remove(f"{self.root}/topics/{entry}")


def _report_crash(error: BaseException) -> None:
    _log.error("background_job_crashed", exc_info=error)

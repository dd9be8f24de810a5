"""Which topics there are: made, grown, altered, deleted; one change at a time, whole.

Creating and growing make the directories, then the event: a crash in between leaves an orphan that
the next opening removes.  Deleting goes the other way: the event is the deletion, then the
directory gets a name that no topic can have, then its files go.

`admin_lock` is held over an event's sync: administration only.  What is known is replaced as a
whole, never changed, so the loop reads it without a lock.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

import structlog

from .errors import InvalidPartitions, StorageError, TopicExists
from .handler import DiskHandler
from .metadata import SETTLED, Ceiling, Metadata, TopicMeta, encode_topic
from .metadata_log import MetadataLog
from .names import check_topic_name, partition_paths
from .opened_partitions import OpenedPartitions
from .orphans import Orphan, remove_orphan
from .resuming import Resuming
from .storage import Storage, make_dirs, remove_tree
from .topic_config import Durability, TopicConfig, check_class_change

log = structlog.get_logger()

PARTITIONS_MAX: Final = 10_000


class TopicRegistry:
    """The topics of one data directory."""

    def __init__(
        self,
        storage: Storage,
        volatile: Storage,
        root: str,
        metadata: MetadataLog,
        resuming: Resuming,
        partitions: OpenedPartitions,
        *,
        known: Callable[[], Metadata],
        publish: Callable[[Metadata], None],
    ) -> None:
        """known: what is there, LogClosed when the directory is not open.  publish: told of every
        change, before its caller is."""
        self.admin_lock = threading.Lock()
        self._storage = storage
        self._volatile = volatile
        self._root = root
        self._metadata = metadata
        self._resuming = resuming
        self._partitions = partitions
        self._known = known
        self._publish = publish

    def record(self, kind: str, **fields: object) -> None:
        """Write one event, durably; the caller holds admin_lock.  Raises OSError."""
        self._publish(self._metadata.record(kind, **fields))

    def check_new_topic(self, name: str, partitions: int) -> None:
        """Raise what `create_topic` would raise for these, and make nothing."""
        check_topic_name(name)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidPartitions(name, partitions, f"outside [1, {PARTITIONS_MAX}]")
        if name in self._known().topics:
            raise TopicExists(name)

    def create_topic(
        self, name: str, partitions: int, config: TopicConfig, *, now_ms: int
    ) -> TopicMeta:
        """Make a topic; durable when this returns.  Blocking.

        Raises InvalidTopicName, InvalidPartitions, TopicExists, StorageError.
        """
        with self.admin_lock:
            self.check_new_topic(name, partitions)
            metadata = self._known()
            topic_id = UUID(bytes=self._storage.random_bytes(16), version=4)
            meta = TopicMeta(name, topic_id, partitions, config, metadata.first_epoch(name))
            try:
                if self._storage.exists(self._topic_folder(name)):
                    self._bury(name, topic_id.hex)  # of an attempt that failed
                self._make_partitions(meta, range(partitions))
                self.record("topic_created", **encode_topic(meta))
            except OSError as exc:
                raise StorageError(f"topic {name!r} was not created: {exc}") from exc
        return meta

    def _make_partitions(self, meta: TopicMeta, numbers: range) -> None:
        if meta.config.durability is Durability.EPHEMERAL:
            return
        folder = self._topic_folder(meta.name)
        make_dirs(self._storage, folder)
        for partition in numbers:
            path = partition_paths(self._root, meta.name, partition).folder
            if not self._storage.exists(path):
                self._storage.mkdir(path)
        self._storage.fsync_dir(folder)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; it is gone for good when this returns, its files soon after.

        Raises UnknownTopic, StorageError.
        """
        with self.admin_lock:
            meta = self._partitions.meta(name)
            try:
                self.record("topic_deleted", name=name, id=meta.topic_id.bytes)
            except OSError as exc:
                raise StorageError(f"topic {name!r} was not deleted: {exc}") from exc
            self._partitions.close_topic(name)
            if meta.config.durability is Durability.EPHEMERAL:
                if self._volatile.exists(self._topic_folder(name)):
                    remove_tree(self._volatile, self._topic_folder(name))
                return
            grave = self._topic_folder(f"~{meta.topic_id.hex}")
            try:
                self._storage.rename(self._topic_folder(name), grave)
                self._storage.fsync_dir(f"{self._root}/topics")
            except OSError as exc:
                # It is deleted all the same; the next opening removes the orphan.
                log.warning("deleted_topic_not_moved", topic=name, error=str(exc))
                return
        self._partitions.threads.housekeeper.submit(lambda: self._unlink(grave))

    def _unlink(self, grave: str) -> None:
        try:
            remove_tree(self._storage, grave)
        except OSError as exc:
            log.warning("deleted_topic_not_removed", folder=grave, error=str(exc))

    def create_partitions(self, name: str, count: int) -> TopicMeta:
        """Let a topic grow to `count` partitions.  Raises UnknownTopic, InvalidPartitions."""
        with self.admin_lock:
            meta = self._partitions.meta(name)
            if not meta.partitions < count <= PARTITIONS_MAX:
                raise InvalidPartitions(
                    name, count, f"it has {meta.partitions}, the limit is {PARTITIONS_MAX}"
                )
            grown = replace(meta, partitions=count)
            try:
                self._make_partitions(meta, range(meta.partitions, count))
                self.record("partitions_grown", name=name, id=meta.topic_id.bytes, partitions=count)
            except OSError as exc:
                raise StorageError(f"topic {name!r} did not grow: {exc}") from exc
        return grown

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> TopicMeta:
        """Replace the settings of a topic.  Raises UnknownTopic, InvalidConfig."""
        config = TopicConfig.parse(overrides)
        with self.admin_lock:
            meta = self._partitions.meta(name)
            check_class_change(meta.config.durability, config.durability)
            altered = replace(meta, config=config)
            try:
                self.record(
                    "topic_altered", name=name, id=meta.topic_id.bytes, config=config.overrides
                )
                for partition in range(altered.partitions):
                    handler = self._partitions.handlers.get((name, partition))
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

    def _bury(self, name: str, grave: str) -> None:
        """Take a topic's directory out of the way, then remove it."""
        remove_orphan(
            self._storage, Orphan(self._topic_folder(name), name, -1, has_records=False), grave
        )

    def _topic_folder(self, name: str) -> str:
        return f"{self._root}/topics/{name}"

"""Which topics there are: made, grown, altered, deleted; one change at a time, whole.

Creating and growing make the directories, then the event: a crash in between leaves an orphan that
the next opening removes.  Deleting goes the other way: the event is the deletion, then the
directory gets a name that no topic can have, then its files go.

Several topics are made, or deleted, together: all their directories, then the syncs of these, of
which the first does the work of all on a file system with a journal, then all their events with
one sync.  Each has an outcome of its own; where a sync fails it is that of all.

`admin_lock` is held over an event's sync: administration only.  What is known is replaced as a
whole, never changed, so the loop reads it without a lock.
"""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from segbroker.protocol.limits import TOPIC_PARTITIONS_MAX

from ..disk.storage import Storage, in_turn, removals, remove_tree
from ..errors import InvalidPartitions, StorageError, TopicCollides, TopicExists, UnknownTopic
from ..metadata.alike import first_alike, folded
from ..metadata.ceilings import PartitionCeiling
from ..metadata.metadata import SETTLED, Ceiling, Metadata, PartitionKey, TopicMeta, encode_topic
from ..metadata.metadata_log import MetadataLog
from ..names import check_topic_name, partition_paths
from ..partition.handler import DiskHandler
from ..recovery.corruption import drop_mark
from ..replay.resuming import Resuming
from ..settings.topic_config import Durability, OnCorruption, TopicConfig, check_class_change
from ..settings.topic_defaults import SET
from .opened_partitions import OpenedPartitions
from .orphans import move_to_grave
from .several_topics import Outcome, SeveralTopics

log = structlog.get_logger()

REMOVED_AT_ONCE: Final = 100
"""Files of deleted topics that the housekeeper removes before it looks after others."""


class NewTopic(NamedTuple):
    """A topic that is wanted."""

    name: str
    partitions: int
    config: TopicConfig


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
        self._topics = f"{root}/topics"
        self._metadata = metadata
        self._resuming = resuming
        self._partitions = partitions
        self._known = known
        self._publish = publish
        self._is_removing = False
        self._behind: set[DiskHandler] = set()
        """Those that could not follow settings that are stored."""
        self._not_moved: list[TopicMeta] = []
        self._not_removed: list[str] = []
        """What of deleted topics could not be moved, or removed, when it was tried last."""

    @property
    def not_removed_count(self) -> int:
        """Deleted topics whose files could not be removed."""
        return len(self._not_removed) + len(self._not_moved)

    def record(self, kind: str, **fields: object) -> None:
        """Write one event, durably; the caller holds admin_lock.  Raises OSError."""
        self._publish(self._metadata.record(kind, **fields))

    def record_all(self, kind: str, several: Iterable[Mapping[str, object]]) -> None:
        """As `record`, an event for each of several, with one sync."""
        self._publish(self._metadata.record_all(kind, several))

    def check_new_topic(self, name: str, partitions: int) -> None:
        """Raise what `create_topic` would raise for these, and make nothing."""
        check_topic_name(name)
        if not 1 <= partitions <= TOPIC_PARTITIONS_MAX:
            raise InvalidPartitions(name, partitions, f"outside [1, {TOPIC_PARTITIONS_MAX}]")
        if name in self._known().topics:
            raise TopicExists(name)
        if (existing := first_alike(self._known().alike, name)) is not None:
            raise TopicCollides(name, existing)

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[Outcome]:
        """Make topics; those that were made are durable when this returns.  Blocking.

        Of each, in their order: InvalidTopicName, InvalidPartitions, TopicExists, TopicCollides,
        StorageError, or what it is.
        """
        change = SeveralTopics[int]("was not created")
        names: dict[str, str] = {}  # of those that are made, by what alike ones have in common
        graves: list[str] = []
        with self.admin_lock:
            with in_turn(self._topics):
                for place, new in enumerate(wanted):
                    change.attempt(place, new.name, partial(self._make_topic, new, names, graves))
                with change.recorded():
                    classes = {meta.config.durability for meta in change.taken.values()}
                    if classes - {Durability.EPHEMERAL}:
                        self._storage.fsync_dir(self._topics)
                graves = self._moved_durably(graves)
            with change.recorded():
                self.record_all("topic_created", map(encode_topic, change.taken.values()))
        self._remove_soon(graves)
        return change.outcomes

    def _make_topic(self, new: NewTopic, beside: dict[str, str], graves: list[str]) -> TopicMeta:
        """Its directories, of which its own is not synced yet; then it is one of those `beside` it.
        What was in its way is one of the `graves`, whose names wait for the same sync: one before
        that might fail for those that were made.  Raises as create_topics says, OSError."""
        existing = beside.get(folded(new.name))
        if existing == new.name:
            raise TopicExists(new.name)
        if existing is not None:
            raise TopicCollides(new.name, existing)
        self.check_new_topic(new.name, new.partitions)
        topic_id = UUID(bytes=self._storage.random_bytes(16), version=4)
        epoch = self._known().first_epoch(new.name)
        folder = self._topic_folder(new.name)
        if self._storage.exists(folder):
            there = self._storage.listdir(self._topics)
            if new.name not in there:  # a file system for which `A` and `a` are one
                other = next((one for one in there if one.lower() == new.name.lower()), new.name)
                raise TopicCollides(new.name, other)
            self.settle()
            grave = self._topic_folder(f"~{topic_id.hex}")  # of an attempt that failed
            if move_to_grave(self._storage, folder, grave, links=1):
                graves.append(grave)
        meta = TopicMeta(new.name, topic_id, new.partitions, new.config, epoch)
        if new.config.durability is not Durability.EPHEMERAL:
            self._storage.mkdir(folder)
            self._make_partitions(meta, range(new.partitions))
        beside[folded(new.name)] = new.name
        return meta

    def _make_partitions(self, meta: TopicMeta, numbers: range) -> None:
        """Their directories, durably but for that of the topic.  Raises OSError."""
        if meta.config.durability is Durability.EPHEMERAL:
            return
        for partition in numbers:
            path = partition_paths(self._root, meta.name, partition).folder
            if self._storage.exists(path):
                # Empty, of a growth that failed: another sync of its name would prove nothing.
                self.settle()
                self._storage.rmdir(path)
            self._storage.mkdir(path)
        self._storage.fsync_dir(self._topic_folder(meta.name))

    def settle(self) -> None:
        """Before anything goes that a change which failed has made: as long as its event may be on
        the disk it comes true at a kill, and needs that.  And before somebody is told that nothing
        is there to be taken away.  Raises OSError."""
        if not self._metadata.settle():
            raise OSError(errno.EIO, f"the metadata is in doubt: {self._metadata.why_unsettled}")

    def delete_topics(self, names: Iterable[str]) -> list[Outcome]:
        """Delete topics; they are gone for good when this returns, their files soon after.

        Of each, in their order: UnknownTopic, StorageError, or what it was.
        """
        change = SeveralTopics[str]("was not deleted")
        with self.admin_lock:
            doomed = dict.fromkeys(names)
            doubt = None if doomed.keys() <= self._known().topics.keys() else self._doubt()
            for name in doomed:
                change.attempt(name, name, partial(self._doomed, name, doubt))
            metas = list(change.taken.values())
            rows = [{"name": one.name, "id": one.topic_id.bytes} for one in metas]
            with change.recorded():
                self.record_all("topic_deleted", rows)
            if not change.taken and not self._metadata.is_settled:
                is_over = partial(self._metadata.has_settled, self._metadata.doubts)
                for meta in metas:
                    self._partitions.withhold(meta.name, is_over)
            for meta in change.taken.values():
                self._partitions.close_topic(meta)
            graves = self._move_away(change.taken.values())
        self._remove_soon(graves)
        return change.outcomes

    def _doubt(self) -> OSError | None:
        """Why it may come true at a kill that a topic was made which is not there; None: it does
        not.  Asked once for many: a disk may take its time to fail."""
        try:
            self.settle()
        except OSError as exc:
            return exc
        return None

    def _doomed(self, name: str, doubt: OSError | None) -> TopicMeta:
        """The topic that is to go.  Raises UnknownTopic, or else the `doubt` of that; OSError."""
        try:
            return self._partitions.meta(name)
        except UnknownTopic:
            if doubt is not None:
                raise doubt from None
            raise

    def _move_away(self, metas: Iterable[TopicMeta]) -> list[str]:
        """Give the directories of deleted topics names that no topic can have; which those are.

        What cannot be moved is deleted all the same: it is tried again, and an opening removes the
        orphan.
        """
        graves: list[str] = []
        for meta in metas:
            folder = self._topic_folder(meta.name)
            if meta.config.durability is Durability.EPHEMERAL:
                if self._volatile.exists(folder):
                    remove_tree(self._volatile, folder)
                continue
            grave = self._topic_folder(f"~{meta.topic_id.hex}")
            try:
                if move_to_grave(self._storage, folder, grave, links=1):
                    graves.append(grave)
            except OSError as exc:
                self._not_moved.append(meta)
                log.warning("deleted_topic_not_moved", topic=meta.name, error=str(exc))
        return self._moved_durably(graves)

    def _moved_durably(self, graves: list[str]) -> list[str]:
        """Those of the directories that may be removed: all, if their names are durable."""
        try:
            if graves:
                with in_turn(self._topics):
                    self._storage.fsync_dir(self._topics)
        except OSError as exc:
            self._not_removed += graves
            log.warning("deleted_topics_not_moved", count=len(graves), error=str(exc))
            return []
        return graves

    def begin_removing(self, graves: Sequence[str]) -> None:
        """From now on what topics leave is removed; first this, of topics deleted before."""
        self._is_removing = True
        self._remove_soon(graves)

    def remove_left(self) -> None:
        """Try again what could not be removed: else its room is given back by the next start only.
        Blocking."""
        if not self._is_removing or not (self._not_moved or self._not_removed):
            return
        with self.admin_lock:
            left, self._not_removed = self._not_removed, []
            graves = self._moved_durably(left)
            metas, self._not_moved = self._not_moved, []
            known = self._known().topics
            # One of the same name that was made since has taken the directory out of its way.
            going = [meta for meta in metas if meta.name not in known]
            graves += self._move_away(
                meta for meta in going if self._storage.exists(self._topic_folder(meta.name))
            )
        self._remove_soon(graves)

    def stop_removing(self) -> None:
        """Leave the rest to the next start: nobody waits for the end of a broker that removes."""
        self._is_removing = False

    def _remove_soon(self, graves: Sequence[str]) -> None:
        """One after the other: the housekeeper has others to look after between any two parts."""
        steps = self._removals(graves)
        try:
            self._partitions.threads.housekeeper.submit(lambda: self._remove_some(steps))
        except MemoryError:  # the topics are gone all the same
            self._not_removed += graves

    def _removals(self, graves: Iterable[str]) -> Iterator[None]:
        """What is removed at each step is one file, or directory."""
        for grave in graves:
            try:
                yield from removals(self._storage, grave, links=1)
            except OSError as exc:
                if isinstance(exc, FileNotFoundError) and not self._storage.exists(grave):
                    continue  # somebody else did; it is not the data directory that is away
                self._not_removed.append(grave)
                log.warning("deleted_topic_not_removed", folder=grave, error=str(exc))

    def _remove_some(self, steps: Iterator[None]) -> None:
        """A part of what deleted topics leave."""
        housekeeper = self._partitions.threads.housekeeper
        if not self._is_removing:
            return
        for count, _ in enumerate(steps, 1):
            if not self._is_removing:
                return
            if count >= REMOVED_AT_ONCE and housekeeper.is_threaded:
                with suppress(MemoryError):  # else it goes on here
                    housekeeper.submit(lambda: self._remove_some(steps))
                    return

    def grow_topics(self, wanted: Mapping[str, int]) -> list[Outcome]:
        """Let topics grow to so many partitions; those that grew are durable when this returns.

        Of each, in their order: UnknownTopic, InvalidPartitions, StorageError, or what it is.
        """
        change = SeveralTopics[str]("did not grow")
        with self.admin_lock:
            for name, count in wanted.items():
                change.attempt(name, name, partial(self._grow_topic, name, count))
            rows = [
                {"name": name, "id": meta.topic_id.bytes, "partitions": meta.partitions}
                for name, meta in change.taken.items()
            ]
            with change.recorded():
                self.record_all("partitions_grown", rows)
        return change.outcomes

    def _grow_topic(self, name: str, count: int) -> TopicMeta:
        """Its further directories, durably.  Raises as above, OSError."""
        meta = self._partitions.meta(name)
        if not meta.partitions < count <= TOPIC_PARTITIONS_MAX:
            raise InvalidPartitions(
                name, count, f"it has {meta.partitions}, the limit is {TOPIC_PARTITIONS_MAX}"
            )
        with in_turn(self._topic_folder(name)):
            self._make_partitions(meta, range(meta.partitions, count))
        return replace(meta, partitions=count)

    def check_altered(self, name: str, overrides: Mapping[str, str]) -> TopicMeta:
        """A topic as it would be with these settings.  Raises UnknownTopic, InvalidConfig."""
        config = TopicConfig.parse(overrides, self._known().topic_defaults)
        meta = self._partitions.meta(name)
        check_class_change(meta.config.durability, config.durability)
        return replace(meta, config=config)

    def alter_topics(self, wanted: Mapping[str, Mapping[str, str]]) -> list[Outcome]:
        """Replace the settings of topics, by name; durable and in force when this returns.

        Of each, in their order: UnknownTopic, InvalidConfig, StorageError, or what it is.
        """
        change = SeveralTopics[str]("was not altered")
        with self.admin_lock:
            for name, overrides in wanted.items():
                change.attempt(name, name, partial(self.check_altered, name, overrides))
            before = self._known().topics
            rows = [
                {"name": name, "id": meta.topic_id.bytes, "config": meta.config.overrides}
                for name, meta in change.taken.items()
            ]
            with change.recorded():
                self.record_all("topic_altered", rows)
            for name, meta in change.taken.items():
                self._look_at_damage(before[name], meta)
                served = self._partitions.served(zip(repeat(name), range(meta.partitions)))
                try:
                    self._reconfigure_all([(handler, meta) for handler in served])
                except StorageError as exc:
                    change.fail(name, exc)
        return change.outcomes

    def set_topic_defaults(self, values: Mapping[str, str]) -> None:
        """Choose these for all topics, and no others; done when this returns.  Blocking.

        values: by topic setting, as text.  Raises InvalidConfig (they do not go together),
        StorageError.
        """
        TopicConfig(inherited=values)
        with self.admin_lock:
            before = self._known()
            if before.topic_defaults == values:
                return
            try:
                self.record(SET, values=dict(values))
            except OSError as exc:
                raise StorageError(f"the defaults of topics were not changed: {exc}") from exc
            known, changed = self._known(), []
            for name, was in before.topics.items():
                self._look_at_damage(was, known.topics[name])
            for handler in self._partitions.served():
                meta = known.topics.get(handler.topic)
                if meta is not None and meta.config != before.topics[meta.name].config:
                    changed.append((handler, meta))
            self._reconfigure_all(changed)
        log.info("topic_defaults_changed", values=dict(values))

    def _look_at_damage(self, before: TopicMeta, altered: TopicMeta) -> None:
        """With on.corruption=gap an operator has looked: also at partitions that are not open."""
        now_gaps = altered.config.on_corruption is OnCorruption.GAP
        if not now_gaps or before.config.on_corruption is OnCorruption.GAP:
            return
        for partition in range(altered.partitions):
            drop_mark(self._storage, partition_paths(self._root, altered.name, partition))

    def _reconfigure_all(self, changed: Iterable[tuple[DiskHandler, TopicMeta]]) -> None:
        """Have them use settings that are durable; one that fails does not keep the others from it.

        Raises StorageError: what of it failed is done by `follow`.
        """
        failure: Exception | None = None
        for handler, altered in changed:
            try:
                self._reconfigure(handler, altered)
            except (StorageError, OSError) as exc:
                self._behind.add(handler)
                failure = failure or exc
            else:
                self._behind.discard(handler)
        if failure is not None:
            raise StorageError(
                f"the settings are stored, but not every partition could follow; "
                f"the others do when this is mended: {failure}"
            ) from failure

    def follow(self) -> None:
        """Have partitions try again that could not follow their settings.  Blocking."""
        if not self._behind or not self._metadata.is_settled:
            return
        with self.admin_lock:
            topics = self._known().topics
            served = [one for one in self._partitions.served() if one.topic in topics]
            behind = [one for one in served if one in self._behind]
            self._behind.intersection_update(behind)
            with suppress(StorageError):
                self._reconfigure_all([(one, topics[one.topic]) for one in behind])

    def _reconfigure(self, handler: DiskHandler, altered: TopicMeta) -> None:
        """By its ceiling it goes on as before, whatever class its log was opened again with."""
        key = altered.topic_id, handler.partition
        was_journaled = handler.ceiling is None
        if altered.config.durability is not Durability.FSYNC:
            ceiling = self._first_ceiling(key, handler) if was_journaled else handler.ceiling
            handler.reconfigure(altered.config, ceiling)
            return
        if not was_journaled:
            with suppress(StorageError):  # read-only: it is told below
                handler.sync()  # most of what the old class left unsynced
        handler.reconfigure(altered.config, None)
        if not was_journaled or self._resuming.is_unresolved(altered, handler.partition):
            handler.sync()
            self._resuming.record_ceilings([(key, Ceiling(0, SETTLED))])

    def _first_ceiling(self, key: PartitionKey, handler: DiskHandler) -> PartitionCeiling:
        """Where a log of class `fsync` goes on in another: nothing is reserved before the first
        append, so that a power cut without one is not told as a loss.  Raises OSError."""
        try:
            handler.sync()
        except StorageError:  # read-only, what of it is synced is not known: reserved at once
            return self._resuming.ceiling_of(key, self._known().ceiling(key))
        synced = Ceiling(handler.recovery_point, SETTLED)
        self._resuming.record_ceilings([(key, synced)])
        return self._resuming.ceiling_of(key, synced)

    def _topic_folder(self, name: str) -> str:
        return f"{self._topics}/{name}"

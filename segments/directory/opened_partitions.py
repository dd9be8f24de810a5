"""Which partitions are open: opened and recovered once, by whoever asks first.

Opening happens in the thread of the first caller; a second caller waits for it.  A partition that
may have lost its end in another boot, or has it unsynced from a process that was killed, is opened
at the start, before anybody asks for it.

| lock | protects | held over |
|---|---|---|
| _lock | `handlers`, which are being opened, which topics are withheld | nothing |

The loop looks into `handlers` without the lock.

Invariant: a handler is in `handlers` exactly as long as its topic exists and it is open.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from ..background import Flushers, Housekeeper
from ..disk.memory import MemoryStorage
from ..disk.storage import Storage
from ..errors import PartitionMissing, StorageError, UnknownTopic
from ..log.caches import Caches
from ..log.partition_log import PartitionLog
from ..log.sealing import close_log
from ..metadata.ceilings import PartitionCeiling
from ..metadata.metadata import IN_DOUBT, Ceiling, Metadata, PartitionKey, TopicMeta
from ..names import LogPaths, owner_of, partition_paths
from ..parallel import Each
from ..partition.evicting import EvictedBytes
from ..partition.failing import CallSoon
from ..partition.handler import PRODUCER_EXPIRATION_MS, DiskHandler
from ..recovery.lost_tail import begin_at
from ..recovery.opening import Evidence, open_log
from ..replay.doubting import has_lost
from ..replay.putting_back import PuttingBack
from ..replay.resuming import Found, Resuming
from ..report import LogReport, RecoveryReport
from ..settings.topic_config import Durability, TopicConfig
from ..wal.journal import Wal
from .orphans import Missing
from .relief import Relief
from .unopened import log_size

log = structlog.get_logger()

EAGER_MAX: Final = 250
"""Partitions recovered together at start."""


class Threads(NamedTuple):
    """Who works for open partitions."""

    flushers: Flushers
    housekeeper: Housekeeper
    maker: Housekeeper
    on_attention: Callable[[DiskHandler], None]


class OpenedPartitions:
    """The open partitions of one data directory."""

    def __init__(
        self,
        storage: Storage,
        volatile: MemoryStorage,
        root: str,
        caches: Caches,
        relief: Relief,
        resuming: Resuming,
        putting_back: PuttingBack,
        wal: Wal,
        report: RecoveryReport,
        *,
        known: Callable[[], Metadata],
        topics: Callable[[], Mapping[str, TopicMeta]],
        call_soon: CallSoon,
        each: Each,
        repairing: bool,
        now_ms: int,
    ) -> None:
        """known: what is there, LogClosed when the directory is not open; topics: the same, also
        when it is not.  each: how several are recovered or closed.  repairing: all are opened as
        with on.corruption=gap."""
        self.handlers: dict[tuple[str, int], DiskHandler] = {}
        self.evicted = EvictedBytes()
        self.now_ms = now_ms
        self.producer_expiration_ms = PRODUCER_EXPIRATION_MS
        """Those opened from now on forget a producer this long after its last batch."""
        self.failed_at_start: dict[tuple[str, int], StorageError] = {}
        """What the start could not open, or found without a directory; who asks for one later tries
        again."""
        self.failed_since: dict[tuple[str, int], None] = {}
        """What a chore could not open since, though nobody has asked for it: whoever serves them
        takes it from here, tries again, and tells."""
        self._storage = storage
        self._volatile = volatile
        self._root = root
        self._caches = caches
        self._relief = relief
        self._resuming = resuming
        self._putting_back = putting_back
        self._wal = wal
        self._report = report
        self._known = known
        self._topics = topics
        self._call_soon = call_soon
        self._each = each
        self._repairing = repairing
        self._threads: Threads | None = None
        self._lock = threading.Lock()
        self._rolls_unprepared_before = 0
        self._opening: set[tuple[str, int]] = set()
        self._lost: set[PartitionKey] = set()
        """What has lost acknowledged records since the start, and waits for the next one."""
        self._withheld: dict[str, Callable[[], bool]] = {}
        self._opened = threading.Condition(self._lock)

    @property
    def threads(self) -> Threads:
        assert self._threads is not None, "the data directory is open"
        return self._threads

    def begin(self, threads: Threads) -> None:
        """From now on partitions can be opened."""
        self._threads = threads

    def close_all(
        self, *, checkpoint: bool = True
    ) -> list[tuple[DiskHandler, StorageError | None]]:
        """Close all that are open, synced and saved with `checkpoint`; each, and why it could not
        be."""
        with self._lock:
            taken = list(self.handlers.values())
            self.handlers.clear()
            self._rolls_unprepared_before += sum(one.rolls_unprepared for one in taken)
        failed: dict[int, StorageError] = {}

        def close_one(place: int) -> None:
            try:
                taken[place].close(checkpoint=checkpoint)
            except StorageError as exc:
                failed[place] = exc

        self._each(close_one, range(len(taken)))
        return [(handler, failed.get(place)) for place, handler in enumerate(taken)]

    def sizes(self, places: Iterable[tuple[str, int]]) -> list[int | None]:
        """Bytes of the log files of each; None: it cannot be read, or there is none.

        What is not open stays so.  Blocking: for lanes.
        """
        return [self._size(topic, partition) for topic, partition in places]

    def _size(self, topic: str, partition: int) -> int | None:
        meta, handler = self._topics().get(topic), self.handlers.get((topic, partition))
        if handler is not None:
            return handler.size_bytes
        if meta is None or not 0 <= partition < meta.partitions:
            return None
        if meta.config.durability is Durability.EPHEMERAL:
            return 0  # it is in memory when it is open
        try:
            return log_size(self._storage, partition_paths(self._root, topic, partition))
        except OSError as exc:
            handler = self.handlers.get((topic, partition))
            if handler is not None:
                return handler.size_bytes  # opened meanwhile, and its files changed
            if topic in self._topics():
                log.warning("size_not_read", topic=topic, partition=partition, error=str(exc))
            return None

    def close_topic(self, meta: TopicMeta) -> None:
        """Close the partitions of a topic that is gone.  Blocking: who is opening one ends that
        first, and does not serve it.  Files are opened by their names, which are those of another
        topic as soon as one of that name is made."""
        with self._lock:
            while any(topic == meta.name for topic, _ in self._opening):
                self._opened.wait()
            keys = [(meta.name, partition) for partition in range(meta.partitions)]
            handlers = [self.handlers.pop(key) for key in keys if key in self.handlers]
            self._rolls_unprepared_before += sum(one.rolls_unprepared for one in handlers)
        for handler in handlers:
            try:
                handler.close(checkpoint=False)
            except StorageError as exc:  # nothing of it is kept, and its files go all the same
                log.warning("deleted_topic_not_closed", topic=meta.name, error=str(exc))
        self._wal.forget(meta.topic_id.bytes, meta.partitions)

    def withhold(self, topic: str, is_over: Callable[[], bool]) -> None:
        """Give nobody a partition of this topic until `is_over`: a deletion that failed may come
        true at the next start, with all that would be acknowledged meanwhile.

        is_over: waits for nothing."""
        with self._lock:
            self._withheld[topic] = is_over

    def _check_withheld(self, topic: str) -> None:
        """Raises StorageError."""
        with self._lock:  # who sees that one deletion is settled must not lift the next
            is_over = self._withheld.get(topic)
            if is_over is None:
                return
            if is_over():
                del self._withheld[topic]
                return
        raise StorageError(
            f"topic {topic!r} was to be deleted: whether it is will be known when the metadata "
            "can be written again"
        )

    @property
    def rolls_unprepared(self) -> int:
        """Rolls that found no segment made ahead, also of partitions that are closed since."""
        with self._lock:
            before, handlers = self._rolls_unprepared_before, list(self.handlers.values())
        return before + sum(one.rolls_unprepared for one in handlers)

    def meta(self, name: str) -> TopicMeta:
        """Raises UnknownTopic."""
        meta = self._known().topics.get(name)
        if meta is None:
            raise UnknownTopic(name)
        return meta

    def get_handler(self, topic: str, partition: int) -> DiskHandler:
        """The handler, opened and recovered if need be.  Blocking: for lanes.

        Raises UnknownTopic, CorruptSegment, StorageError.
        """
        self._check_withheld(topic)
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

    def get_handlers(self, places: Iterable[tuple[str, int]]) -> list[DiskHandler | StorageError]:
        """Several, one after the other; of each what `get_handler` returns or raises.

        Blocking: for lanes, which are asked once for all of them.
        """
        found: list[DiskHandler | StorageError] = []
        for topic, partition in places:
            try:
                found.append(self.get_handler(topic, partition))
            except StorageError as exc:
                found.append(exc)
            except OSError as exc:
                failure = StorageError(f"cannot open partition {partition} of {topic!r}: {exc}")
                failure.__cause__ = exc
                found.append(failure)
        return found

    def served(self, places: Iterable[tuple[str, int]] | None = None) -> list[DiskHandler]:
        """Those of these that are open; None: of all.  What is being opened meanwhile will have
        the settings that are known by now."""
        with self._lock:
            if places is None:
                return list(self.handlers.values())
            return [self.handlers[place] for place in places if place in self.handlers]

    def _open_handler(self, topic: str, partition: int) -> DiskHandler:
        while True:
            meta = self.meta(topic)
            if not 0 <= partition < meta.partitions:
                raise UnknownTopic(topic, partition)
            self._relief.make_room()
            opened = Found(meta, partition, self._open_log(meta, partition, self.now_ms))
            try:
                (ceiling,) = self._resuming.resume([opened], self.now_ms)
            except OSError as exc:
                close_log(opened.log, clean=False)
                text = f"cannot open partition {partition} of {topic!r}: {exc}"
                raise StorageError(text) from exc
            handler = self._serve(opened, ceiling)
            if handler is not None:
                return handler

    def _serve(self, opened: Found, ceiling: PartitionCeiling | None) -> DiskHandler | None:
        """The handler, known from now on; None: the topic was altered meanwhile."""
        threads = self.threads
        meta, partition = opened.meta, opened.partition
        topic = meta.name

        def reopen(now_ms: int) -> PartitionLog:
            return self._open_log(self.meta(topic), partition, now_ms)

        handler = DiskHandler(
            topic,
            partition,
            opened.log,
            ceiling=ceiling,
            reopen=reopen,
            flushers=threads.flushers,
            housekeeper=threads.housekeeper,
            maker=threads.maker,
            wal=self._wal,
            topic_id=meta.topic_id.bytes,
            call_soon=self._call_soon,
            on_attention=threads.on_attention,
            report=LogReport(self._report, topic, partition),
            now_ms=lambda: self.now_ms,
            evicted=self.evicted,
        )
        handler.producer_expiration_ms = self.producer_expiration_ms
        with self._lock:
            current = self._topics().get(topic)
            if current is not None and current.topic_id != meta.topic_id:
                current = None
            is_served = current is not None and current.config == meta.config
            if is_served:
                self.handlers[topic, partition] = handler
                handler.vouch_for_found()
        if is_served:
            handler.say_end()
            return handler
        handler.close(checkpoint=False)
        if current is None:
            raise UnknownTopic(topic)  # deleted while it was being opened
        return None

    def _open_log(self, meta: TopicMeta, partition: int, now_ms: int) -> PartitionLog:
        """Raises StorageError: PartitionMissing, PartitionForeign, PartitionRefused, ..."""
        owner = owner_of(meta.topic_id, partition)
        paths = partition_paths(self._root, meta.name, partition, owner)
        storage = self._storage
        try:
            if meta.config.durability is Durability.EPHEMERAL:
                storage = self._volatile
                self._begin_ephemeral(meta, partition, paths, now_ms)
            durable_end = self._putting_back.end_of(meta, partition)
            if storage is self._storage:
                self._check_lost(meta, partition, paths)
            opened = open_log(
                storage,
                paths,
                self._config_of(meta),
                self._caches,
                Evidence(
                    leader_epoch=self._known().leader_epoch(meta, partition),
                    first_epoch=meta.epoch,
                    durable_end=durable_end,
                    settled_end=self._resuming.settled_end(meta, partition),
                    durable=self._putting_back.take_synced(meta, partition),
                    acks_unsynced=self._resuming.is_unresolved(meta, partition),
                ),
                now_ms=now_ms,
                create=False,
                report=LogReport(self._report, meta.name, partition),
            )
            self._putting_back.opened(meta, partition)
            return opened
        except OSError as exc:
            raise StorageError(
                f"cannot open partition {partition} of {meta.name!r}: {exc}"
            ) from exc

    def _check_lost(self, meta: TopicMeta, partition: int, paths: LogPaths) -> None:
        """Raises StorageError: a sync that failed in this process, while the log was opened, has
        cost what was acknowledged before.  The next start tells the gap, and whom it tears.  Raises
        OSError."""
        key = meta.topic_id, partition
        if key not in self._lost:
            ceiling = self._known().ceiling(key)
            is_reserved = ceiling is not None and ceiling.boot == self._known().boot
            if ceiling is None or not is_reserved or not has_lost(self._storage, paths):
                return
            self._resuming.record_ceilings([(key, Ceiling(ceiling.offset, IN_DOUBT))])
            self._lost.add(key)
        raise StorageError(
            f"partition {partition} of {meta.name!r} has lost acknowledged records with a sync that"
            " failed; the broker has to restart"
        )

    def _begin_ephemeral(
        self, meta: TopicMeta, partition: int, paths: LogPaths, now_ms: int
    ) -> None:
        if self._volatile.exists(paths.folder):
            return
        ceiling = self._known().ceiling((meta.topic_id, partition))
        offset, epoch = 0, self._known().leader_epoch(meta, partition)
        if ceiling is not None and ceiling.offset:
            offset, epoch = ceiling.offset, self._resuming.begin_epoch(meta, partition)
        begin_at(self._volatile, paths, offset, epoch, now_ms)

    def recover_tails(self) -> None:
        """Open what may have lost its end in another boot, before anybody asks for it."""
        unresolved = self._resuming.unresolved()
        for start in range(0, len(unresolved), EAGER_MAX):
            opened = self._open_some(unresolved[start : start + EAGER_MAX])
            try:
                ceilings = self._resuming.resume(opened, self.now_ms, self._each)
            except BaseException:  # whatever it is, the start fails
                _close_all(opened)
                raise
            for one, ceiling in zip(opened, ceilings, strict=True):
                self._serve(one, ceiling)

    def open_replayed(self, replayed: Iterable[tuple[str, int]]) -> None:
        """Open what was put back, and what a process that was killed has not synced, before anybody
        asks for it; who asks for one that cannot be opened, or could not be put back, is told."""
        places = list(dict.fromkeys([*replayed, *self._resuming.unsynced()]))

        def open_one(place: int) -> None:
            topic, partition = places[place]
            try:
                self.get_handler(topic, partition)
            except StorageError as exc:
                self._not_opened(topic, partition, exc)

        self._each(open_one, range(len(places)))
        for key, failure in self._putting_back.refused.items():
            if key not in self.failed_at_start and key not in self.handlers:
                self._not_opened(*key, failure)

    def note_missing(self, places: Missing) -> None:
        """Of these the start has seen that they have no directory, or none that can be read: nobody
        has to ask first.  Those that are open by now have got one, for what the write-ahead log
        held of them."""
        for (topic, partition), cause in places.items():
            if (topic, partition) in self.failed_at_start or (topic, partition) in self.handlers:
                continue
            folder = partition_paths(self._root, topic, partition).folder
            failure: StorageError = PartitionMissing(folder)
            if cause is not None:
                failure = StorageError(f"cannot open partition {partition} of {topic!r}: {cause}")
            self._not_opened(topic, partition, failure)

    def _open_some(self, some: Sequence[tuple[TopicMeta, int]]) -> list[Found]:
        """Those that can be opened, in their order."""
        opened: dict[int, Found] = {}

        def open_one(place: int) -> None:
            meta, partition = some[place]
            self._relief.make_room()
            try:
                opened[place] = Found(meta, partition, self._open_log(meta, partition, self.now_ms))
            except StorageError as exc:
                # The others go on; whoever asks for this one is told.
                self._not_opened(meta.name, partition, exc)

        try:
            self._each(open_one, range(len(some)))
        except BaseException:  # for want of a thread: the start fails, and these have no place
            _close_all(opened.values())
            raise
        return [opened[place] for place in sorted(opened)]

    def _not_opened(self, topic: str, partition: int, exc: StorageError) -> None:
        self.failed_at_start[topic, partition] = exc
        log.error("partition_not_opened", topic=topic, partition=partition, error=str(exc))

    def _config_of(self, meta: TopicMeta) -> TopicConfig:
        if not self._repairing:
            return meta.config
        overrides = {**meta.config.overrides, "on.corruption": "gap"}
        return TopicConfig(overrides, meta.config.inherited)


def _close_all(opened: Iterable[Found]) -> None:
    for one in opened:
        close_log(one.log, clean=False)

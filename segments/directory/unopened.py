"""Partitions that nobody has opened: their size, and when retention or cleaning has to open them.

    manifest        first segment's newest timestamp, sizes      sealed segments
    segment file    the first batch's header                     one that is not sealed yet; with
                                                                 max.compaction.lag.ms, dirty ones
        -> due: when something may have to go; a time, now, or never

An unopened partition does not change, so it is looked at once, and again when that time has come or
its settings were altered.  A broker with ten thousand idle partitions reads their manifests
once, PEEKS_MAX per call; what is due is opened, as many per call, and then treated like the rest.
What is marked as damaged, or is another's, is opened at once, so that it is told.  What cannot be
opened is tried again AGAIN_MS later, and what cannot be read is opened then; what
could not be looked at for want of a descriptor is looked at in the next round.

A first batch that is old enough opens its partition even if others in its segment are not: then
it is open, and looked at in memory from then on.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

import structlog

from ..compaction.dirtiness import dirt_of, wants_cleaning
from ..disk.relieving import NoDescriptor
from ..disk.storage import Storage, size_of
from ..log.first_stamps import first_stamp
from ..metadata.metadata import TopicMeta
from ..names import LogPaths, owner_of, partition_paths
from ..recovery.known import Known, read_known
from ..settings.topic_config import Durability, FullPolicy, TopicConfig

log = structlog.get_logger()

PEEKS_MAX: Final = 20
OPENS_MAX: Final = PEEKS_MAX
"""Of ten thousand that are due at once, as behind a long pause, the last goes in some minutes."""
LOOKS_MAX: Final = 500
"""Partitions whose due time is compared, per call."""
NEVER: Final = 1 << 62
AGAIN_MS: Final = 60_000

Key: TypeAlias = tuple[UUID, int]


class Unopened:
    """When each partition that is not open is due."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._root = root
        self._due: dict[Key, tuple[TopicConfig, int]] = {}
        self._queue: list[tuple[TopicMeta, int]] = []

    def step(
        self,
        topics: Mapping[str, TopicMeta],
        is_open: Callable[[str, int], bool],
        age_ms: int | None,
    ) -> list[tuple[str, int]]:
        """Look at some of them; which are to be opened.  Blocking."""
        if not self._queue:
            self._queue = [
                (meta, partition)
                for meta in topics.values()
                if meta.config.durability is not Durability.EPHEMERAL
                for partition in range(meta.partitions)
            ]
            if len(self._due) > len(self._queue):
                kept = {(meta.topic_id, partition) for meta, partition in self._queue}
                self._due = {key: due for key, due in self._due.items() if key in kept}
        wanted: list[tuple[str, int]] = []
        peeks = 0
        for _ in range(min(LOOKS_MAX, len(self._queue))):
            if peeks >= PEEKS_MAX or len(wanted) >= OPENS_MAX:
                break
            meta, partition = self._queue.pop()
            if topics.get(meta.name) is not meta or is_open(meta.name, partition):
                continue
            key = (meta.topic_id, partition)
            config, due = self._due.get(key, (None, 0))
            if config is not meta.config:
                peeks += 1
                try:
                    owner = owner_of(meta.topic_id, partition)
                    paths = partition_paths(self._root, meta.name, partition, owner)
                    due = self._peek(paths, meta.config)
                except NoDescriptor:
                    break  # it is looked at in another round; told once a minute for all of them
                except OSError as exc:
                    log.warning("retention_not_looked_at", topic=meta.name, error=str(exc))
                    self.not_opened(meta, partition, age_ms)
                    continue
                self._due[key] = (meta.config, due)
            if due == 0 or (age_ms is not None and due <= age_ms):
                self._due[key] = (meta.config, NEVER)  # opened once
                wanted.append((meta.name, partition))
        return wanted

    def not_opened(self, meta: TopicMeta, partition: int, age_ms: int | None) -> None:
        """It could not be opened, for want of room perhaps, or read: it is opened later."""
        due = 1 if age_ms is None else age_ms + AGAIN_MS
        self._due[meta.topic_id, partition] = (meta.config, due)

    def _peek(self, paths: LogPaths, config: TopicConfig) -> int:
        """Raises OSError: NoDescriptor, or it cannot be read."""
        if self._storage.exists(paths.damaged):
            return 0  # writes to it are refused, or all: who opens it tells of that
        known = read_known(self._storage, paths)
        if known is not None:
            return due_ms(self._storage, paths, config, known)
        # Nobody ever opened it; or it was never synced, and the power went; or it is missing, or
        # another's: who opens it tells of that.
        is_there = self._storage.exists(paths.folder)
        return 0 if is_there and self._storage.listdir(paths.folder) else NEVER


def log_size(storage: Storage, paths: LogPaths) -> int:
    """Bytes of the log files of a partition that is not open: by its manifest, and of the files
    behind it.  Raises OSError."""
    known = read_known(storage, paths)
    size, first = (0, 0) if known is None else (known.sealed.total_size, known.sealed.next_number)
    for name in storage.listdir(paths.folder):
        number = paths.segment_number(name)
        if number is not None and number >= first:
            size += size_of(storage, f"{paths.folder}/{name}")
    return size


def due_ms(storage: Storage, paths: LogPaths, config: TopicConfig, known: Known) -> int:
    """When something of a log may have to go: 0 now, NEVER, or a time.  Raises OSError."""
    cleaning = _cleaning_due_ms(storage, paths, config, known) if config.compacts else NEVER
    if not config.deletes or not cleaning:
        return cleaning
    return min(cleaning, _retention_due_ms(storage, paths, config, known))


def _cleaning_due_ms(storage: Storage, paths: LogPaths, config: TopicConfig, known: Known) -> int:
    """The same for a cleaning: a partition is cleaned, and its last segment rolled, when open."""
    sealed = known.sealed
    dirt = dirt_of(sealed, known.cleaned.end_offset)
    if wants_cleaning(dirt, config, None, lambda _: ()):
        return 0
    if config.max_compaction_lag_ms >= NEVER:
        return NEVER
    numbers = (*dirt.numbers, sealed.next_number)
    stamps = [first_stamp(storage, paths.log(number)) for number in numbers]
    oldest = min((stamp for stamp in stamps if stamp > 0), default=NEVER)
    return min(oldest + config.max_compaction_lag_ms + 1, NEVER)


def _retention_due_ms(storage: Storage, paths: LogPaths, config: TopicConfig, known: Known) -> int:
    sealed = known.sealed
    drops = config.retention_full_policy is FullPolicy.DROP_OLD
    if drops and len(sealed):
        over_bytes = sealed.total_size - sealed.sizes[0] - config.retention_bytes
        over_records = sealed.total_records - sealed.records[0] - config.retention_records
        if config.retention_bytes >= 0 and over_bytes >= 0:
            return 0
        if config.retention_records >= 0 and over_records >= 0:
            return 0
    if config.retention_ms < 0:
        return NEVER
    stamp = next((stamp for stamp in sealed.running_max_timestamps if stamp >= 0), -1)
    if stamp < 0:
        stamp = first_stamp(storage, paths.log(sealed.next_number))
    return NEVER if stamp < 0 else max(1, stamp + config.retention_ms + 1)

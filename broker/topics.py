"""Topics as the loop sees them: what exists, what is served, and how either changes.

    manager.topics        what exists: name -> TopicMeta, durable, changed only in a lane
    _partitions           what is served: (name, index) -> Partition, opened on first use
    _opening              partitions being opened in a lane; who comes second waits for the first

Reading is a dictionary look-up on the loop.  Opening may scan files and creating syncs
directories, so both go to a lane; administration is one at a time, which makes "create if it is
not there" atomic however many clients ask for the same topic at once.

Deleting first ends the service (waiters are answered, the name is closed to opening), then
removes: nothing is appended to files that are being unlinked.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.errors import TopicExists, UnknownTopic
from segbroker.segments.handler import DiskHandler
from segbroker.segments.manager import DiskManager, TopicMeta
from segbroker.segments.topic_config import TopicConfig

from .config import BrokerConfig
from .error_map import STORAGE_FAILURES, wire_error
from .ingest import Ingest
from .lanes import Lanes
from .pace import Pace
from .partition import Partition
from .turn import Turn

log = structlog.get_logger()

OPENING_AT_ONCE: Final = 4
"""Partitions of one request that are opened at a time, and half of the lanes at most: opening is
made of syncs, which overlap."""


class Topics:
    """The topics of one broker."""

    def __init__(
        self,
        manager: DiskManager,
        config: BrokerConfig,
        lanes: Lanes,
        ingest: Ingest,
        turn: Turn,
        now_ms: Callable[[], int],
    ) -> None:
        self.manager = manager
        self.config = config
        self._lanes = lanes
        self._ingest = ingest
        self._turn = turn
        self._now_ms = now_ms
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._opening: dict[tuple[str, int], trio.Event] = {}
        self._deleting: set[str] = set()
        self._unopened: dict[tuple[str, int], tuple[ErrorCode, str]] = {}
        self._indexed: Mapping[str, TopicMeta] | None = None
        self._by_id: dict[UUID, str] = {}
        self._administration = trio.Lock()
        self.on_opened: Callable[[Partition], None] | None = None
        """Told of every partition from the moment on in which it is served, and again when its log
        was opened anew after a failure: what was open in it may have lost its end."""

    @property
    def all(self) -> Mapping[str, TopicMeta]:
        """Every topic by name."""
        return self.manager.topics

    @property
    def served(self) -> Mapping[tuple[str, int], Partition]:
        """The partitions opened so far."""
        return self._partitions

    def get(self, name: str) -> TopicMeta | None:
        """The topic of this name, unless it is being deleted."""
        return None if name in self._deleting else self.manager.topics.get(name)

    def by_id(self, topic_id: UUID) -> TopicMeta | None:
        """The topic with this id."""
        topics = self.manager.topics
        if topics is not self._indexed:  # replaced as a whole at every change
            self._indexed = topics
            self._by_id = {meta.topic_id: meta.name for meta in topics.values()}
        name = self._by_id.get(topic_id)
        return None if name is None else self.get(name)

    @property
    def may_auto_create(self) -> bool:
        """Whether asking for an unknown topic makes one: wanted, and not too many yet."""
        config = self.config
        return config.auto_create_topics and len(self.all) < config.auto_create_topics_max

    def served_partition(self, name: str, index: int) -> Partition | None:
        """The partition if it is open already: the hot path's look-up."""
        return self._partitions.get((name, index))

    def why_unopened(self, name: str, index: int) -> tuple[ErrorCode, str]:
        """Code and sentence for a partition that is not served."""
        if not self.exists(name, index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{index}"
        unknown = (ErrorCode.KAFKA_STORAGE_ERROR, f"{name}-{index} could not be opened")
        return self._unopened.get((name, index), unknown)

    def exists(self, name: str, index: int) -> bool:
        """Whether there is such a partition."""
        meta = self.get(name)
        return meta is not None and 0 <= index < meta.partitions

    def leader_epoch(self, meta: TopicMeta, index: int) -> int:
        """The epoch that Metadata tells."""
        return self.manager.leader_epoch(meta, index)

    async def open(self, name: str, index: int) -> Partition | None:
        """The partition, opened in a lane if need be; None when there is none.

        Raises:
            StorageError: it exists and cannot be opened.
        """
        key = (name, index)
        while True:
            if partition := self._partitions.get(key):
                return partition
            if not self.exists(name, index):
                return None
            if (opening := self._opening.get(key)) is None:
                return await self._open(key)
            await opening.wait()

    async def open_all(
        self, wanted: Iterable[tuple[str, int]], may: Callable[[str], bool] = lambda name: True
    ) -> None:
        """Open those that exist and are not open yet, OPENING_AT_ONCE of them at a time.

        What cannot be opened stays so, and `why_unopened` says why.

        Args:
            may: whether those of a topic are to be opened.
        """
        pace = Pace()
        closed: dict[tuple[str, int], None] = {}
        for key in wanted:
            if key not in self._partitions and self.exists(*key) and may(key[0]):
                closed[key] = None
            await pace.step()
        rest = iter(closed)

        async def work() -> None:
            pace = Pace()
            for name, index in rest:
                with suppress(*STORAGE_FAILURES):
                    await self.open(name, index)
                await pace.step()  # of a topic that was deleted meanwhile nothing waits

        at_once = min(OPENING_AT_ONCE, max(1, self.config.lanes // 2))
        async with trio.open_nursery() as nursery:
            for _ in range(min(at_once, len(closed))):
                nursery.start_soon(work)

    async def create(self, name: str, partitions: int, config: TopicConfig) -> TopicMeta:
        """Create a topic. Raises TopicExists, InvalidTopicName, StorageError."""
        async with self._administration:
            meta = await self._lanes.run(self._create, name, partitions, config)
        log.info(
            "topic_created",
            topic=name,
            partitions=partitions,
            durability=config.durability.value,
        )
        return meta

    async def auto_create(self, name: str) -> TopicMeta | None:
        """The topic, created with defaults when there is none; None: it is being deleted.

        Raises:
            InvalidTopicName, StorageError.
        """
        try:
            return self.get(name) or await self.create(
                name, self.config.partitions, self.topic_config({})
            )
        except TopicExists:  # another client was first
            return self.get(name)

    async def delete(self, name: str) -> None:
        """Delete a topic and everything in it. Raises UnknownTopic, StorageError."""
        async with self._administration:
            if self.get(name) is None:
                raise UnknownTopic(name)
            self._deleting.add(name)
            try:
                while busy := [e for key, e in self._opening.items() if key[0] == name]:
                    await busy[0].wait()
                self._stop_serving(name)
                await self._lanes.run(self.manager.delete_topic, name)
            finally:
                self._deleting.discard(name)
        log.info("topic_deleted", topic=name)

    async def create_partitions(self, name: str, count: int) -> None:
        """Let a topic grow to `count` partitions. Raises UnknownTopic, StorageError."""
        async with self._administration:
            await self._lanes.run(self.manager.create_partitions, name, count)
        log.info("partitions_created", topic=name, partitions=count)

    async def alter(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace what is set on a topic by `change(what is set)`.

        Raises:
            UnknownTopic, InvalidConfig, StorageError, and whatever `change` raises.
        """
        async with self._administration:
            meta = self.get(name)
            if meta is None:
                raise UnknownTopic(name)
            overrides = TopicConfig.parse(change(meta.config.overrides)).overrides
            if validate_only:
                return
            await self._lanes.run(self.manager.alter_topic, name, overrides)
        log.info("topic_altered", topic=name, overrides=overrides)

    def check_new(self, name: str, partitions: int) -> None:
        """Raise what creating would raise: InvalidTopicName, InvalidPartitions, TopicExists."""
        self.manager.check_new_topic(name, partitions)

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The configuration of a new topic: `overrides` over the broker's own default."""
        merged = dict(overrides)
        if self.config.durability != "fsync":  # the default of TopicConfig itself
            merged.setdefault("durability", self.config.durability)
        return TopicConfig.parse(merged)

    def _create(self, name: str, partitions: int, config: TopicConfig) -> TopicMeta:
        return self.manager.create_topic(name, partitions, config, now_ms=self._now_ms())

    async def _open(self, key: tuple[str, int]) -> Partition:
        done = self._opening[key] = trio.Event()
        try:
            handler: DiskHandler = await self._lanes.run(self.manager.get_handler, *key)
            self._unopened.pop(key, None)
            partition = Partition(handler, ingest=self._ingest, turn=self._turn)
            self._partitions[key] = partition
            handler.on_recovered = partial(self._opened, partition)
            self._opened(partition)
            return partition
        except STORAGE_FAILURES as exc:
            self._unopened[key] = wire_error(exc)
            name, index = key
            log.error("partition_not_opened", topic=name, partition=index, error=str(exc))
            raise
        finally:
            del self._opening[key]
            done.set()

    def _opened(self, partition: Partition) -> None:
        if self.on_opened is not None:
            self.on_opened(partition)

    def _stop_serving(self, name: str) -> None:
        for key in [key for key in self._unopened if key[0] == name]:
            del self._unopened[key]
        for key in [key for key in self._partitions if key[0] == name]:
            partition = self._partitions.pop(key)
            partition.close(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} was deleted meanwhile"
            )
        self._turn.end()

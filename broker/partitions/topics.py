"""Topics as the loop sees them: what exists, what is served, and how either changes.

    manager.topics        what exists: name -> TopicMeta, durable, changed only in a lane
    _partitions           what is served: (name, index) -> Partition, opened on first use
    _opening              partitions being opened in a lane; who comes second waits for the first,
                          and fails with it

Reading is a dictionary look-up on the loop.  Opening may scan files, and creating syncs
directories, so both go to a lane.  Administration does one thing at a time, which makes "create if
it is not there" atomic however many clients ask for the same topic at once.  Topics that one
request makes or deletes share their syncs; so do topics that are asked for while another is made.

Deleting a topic first stops serving it (waiters are answered, it cannot be opened any more), then
removes its files: nothing is appended to files that are being unlinked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, repeat
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager, NewTopic, Outcome, TopicMeta
from segbroker.segments.errors import PartitionRefused, StorageError, TopicExists, UnknownTopic
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from ..configuration.config import BrokerConfig
from ..error_map import STORAGE_FAILURES, wire_error
from ..loop.ingest import Ingest
from ..loop.lanes import Lanes
from ..loop.pace import Pace
from ..loop.together import Together
from ..loop.turn import Turn
from ..refused import Refused
from .partition import Partition
from .refusals import Refusals

log = structlog.get_logger()

CHANGED_AT_ONCE: Final = 500
"""Topics that are made or deleted together: they share their syncs, and others wait meanwhile."""
ALTERED_AT_ONCE: Final = 100
"""Topics whose settings are changed together: their open partitions may need syncs of their own to
follow."""
OPENING_AT_ONCE: Final = 4
"""Lanes that open partitions of one request, or delete records of them, and half of them at most:
both are made of syncs, which overlap."""
LAST_COUNT: Final = 64
"""A new topic is among so many that were made last; all are gone through for an id that is not."""
_NO_IDS: Final[Mapping[str, UUID]] = {}
_NOBODY: Final[Mapping[str, str]] = {}
OPENED_TOGETHER: Final = 4
"""Partitions that a lane opens before it is asked again: to ask costs as much as to open a new one.
None of them is served before the last is open, so not many: one may have a long log to look at."""


Change: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From what is set to what is set afterwards."""
Asker: TypeAlias = Mapping[str, str]
"""Who asked for something, as a line of the log says it."""
W = TypeVar("W")
Altered: TypeAlias = TopicMeta | Refused | StorageError | OSError


class _Opening:
    """Partitions that are being opened by one call of a lane, and which of them could not be."""

    __slots__ = ("done", "failures")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failures: dict[tuple[str, int], StorageError] = {}


class Topics:
    """The topics of one broker."""

    def __init__(
        self,
        manager: DiskManager,
        config: BrokerConfig,
        lanes: Lanes,
        ingest: Ingest,
        turn: Turn,
    ) -> None:
        self.manager = manager
        self.config = config
        self._lanes = lanes
        self._ingest = ingest
        self._turn = turn
        self.refusals = Refusals()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._opening: dict[tuple[str, int], _Opening] = {}
        self._deleting: set[str] = set()
        failed = manager.partitions.failed_at_start
        self._unopened = {key: wire_error(exc) for key, exc in failed.items()}
        self._told = {key: _kind_of(exc) for key, exc in failed.items()}
        # Names by id, and of which topics.
        self._by_id: tuple[Mapping[str, TopicMeta] | None, dict[UUID, str]] = (None, {})
        self._administration = trio.Lock()
        self._creating = Together(self._create_some, self._administration, CHANGED_AT_ONCE)
        self.opened_count = self.closed_count = 0
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
        """The topic with this id.  From any thread: large requests are looked at in a lane."""
        topics = self.manager.topics
        indexed, names = self._by_id
        meta = topics.get(names.get(topic_id, ""))
        if indexed is not topics and (meta is None or meta.topic_id != topic_id):
            # Not for every change of a topic: only when one is asked for that is new, or gone.
            last = islice(reversed(topics), LAST_COUNT)
            name = next((name for name in last if topics[name].topic_id == topic_id), None)
            if name is not None and len(names) < 2 * len(topics):
                names[topic_id] = name
            else:
                names = {meta.topic_id: meta.name for meta in topics.values()}
                self._by_id = topics, names  # at once: never one with the other's
        meta = self.get(names.get(topic_id, ""))
        return meta if meta is not None and meta.topic_id == topic_id else None

    @property
    def auto_create_room(self) -> int:
        """How many unknown topics are made by asking for them: where that is wanted, until there
        are so many."""
        config = self.config
        if not config.auto_create_topics:
            return 0
        return max(0, config.auto_create_topics_max - len(self.all))

    def served_partition(self, name: str, index: int) -> Partition | None:
        """The partition if it is open already: the hot path's look-up."""
        return self._partitions.get((name, index))

    @property
    def lanes_at_once(self) -> int:
        """How many lanes one request has for what is made of syncs."""
        return min(OPENING_AT_ONCE, max(1, self.config.lanes // 2))

    @property
    def unopened(self) -> Mapping[tuple[str, int], tuple[ErrorCode, str]]:
        """The partitions that could not be opened, at the start or when they were asked for, and
        why."""
        return self._unopened

    def why_unopened(self, name: str, index: int) -> tuple[ErrorCode, str]:
        """Code and sentence for a partition that is not served."""
        if not self.exists(name, index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{index}"
        # Nobody has tried: the topic was made since it was looked for.  Clients ask again.
        untried = (ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} is not open yet")
        return self._unopened.get((name, index), untried)

    def is_unserved(self, name: str, index: int) -> bool:
        """Whether it is known that neither reads nor writes are possible: it could not be opened,
        nor was it since, or it was damaged and is refused.  One that is read-only is served."""
        handler = self.manager.handler_if_open(name, index)
        if handler is None:
            return (name, index) in self._unopened
        return handler.read_only is not None and isinstance(handler.read_only, PartitionRefused)

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
                (outcome,) = await self._open_some([key])
                if isinstance(outcome, StorageError):
                    raise outcome
                return outcome
            await opening.done.wait()
            if (failure := opening.failures.get(key)) is not None:
                raise failure

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
        at_once = min(self.lanes_at_once, len(closed))
        together = min(OPENED_TOGETHER, len(closed) // max(1, at_once))

        async def work() -> None:
            pace = Pace()
            while some := list(islice(rest, max(1, together))):
                mine = [key for key in some if self._is_closed(key)]
                if mine:
                    await self._open_some(mine)
                for name, index in some:  # those that others opened
                    with suppress(*STORAGE_FAILURES):
                        if (name, index) not in mine:
                            await self.open(name, index)
                    await pace.step()  # of a topic that was deleted meanwhile nothing waits

        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(work)

    async def open_again(self, until: float) -> None:
        """Try those again that could not be opened, also by a chore, who was tried longest ago
        first, up to that time of trio's clock.  What fails once more stays as it is."""
        failed = self.manager.partitions.failed_since
        for name, index in [*failed, *self._unopened]:
            failed.pop((name, index), None)
            with suppress(*STORAGE_FAILURES):
                await self.open(name, index)
            if trio.current_time() >= until:
                return

    def _is_closed(self, key: tuple[str, int]) -> bool:
        return key not in self._partitions and key not in self._opening and self.exists(*key)

    async def create(
        self, name: str, partitions: int, config: TopicConfig, asker: Asker = _NOBODY
    ) -> TopicMeta:
        """Create a topic, together with those that others want meanwhile.

        asker: who asked for it, for the line about it; so below.

        Raises TopicExists, TopicCollides, InvalidTopicName, StorageError.
        """
        outcome = await self._creating.call((NewTopic(name, partitions, config), asker))
        if isinstance(outcome, StorageError):
            raise outcome
        return outcome

    async def create_all(self, wanted: Sequence[NewTopic], asker: Asker = _NOBODY) -> list[Outcome]:
        """Create the topics of one request; of each what `create` returns or raises."""
        outcomes: list[Outcome] = []
        for start in range(0, len(wanted), CHANGED_AT_ONCE):
            some = wanted[start : start + CHANGED_AT_ONCE]
            async with self._administration:
                outcomes += await self._create_some([(one, asker) for one in some])
        return outcomes

    async def _create_some(self, wanted: Sequence[tuple[NewTopic, Asker]]) -> list[Outcome]:
        """The caller holds the administration."""
        return await self._changed(
            "topic_created",
            self.manager.create_topics,
            [new for new, _ in wanted],
            (asker for _, asker in wanted),
            lambda meta: {
                "partitions": meta.partitions,
                "durability": meta.config.durability.value,
            },
        )

    async def _changed(
        self,
        event: str,
        change: Callable[[W], list[Outcome]],
        wanted: W,
        askers: Iterable[Asker],
        facts: Callable[[TopicMeta], Mapping[str, object]] = lambda meta: {},
    ) -> list[Outcome]:
        """Have topics changed in a lane, with the lines about it: of hundreds these take as long as
        all else here, and who asked for it may be gone meanwhile.

        facts: what a line says of a topic beside its name.
        """

        def changed() -> list[Outcome]:
            outcomes = change(wanted)
            for outcome, asker in zip(outcomes, askers, strict=False):
                if isinstance(outcome, TopicMeta):
                    log.info(event, topic=outcome.name, **facts(outcome), **asker)
            return outcomes

        return await self._lanes.run(changed)

    async def auto_create(
        self, names: Sequence[str], asker: Asker = _NOBODY
    ) -> list[TopicMeta | Exception | None]:
        """Topics, created with defaults where there are none; of each what it is, or why it could
        not be made (STORAGE_FAILURES).  None: it is being deleted.

        One is created together with those that others want meanwhile, several with each other.
        """
        count, config = self.config.partitions_by_default, self.topic_config({})
        outcomes: Sequence[Outcome | OSError]
        try:
            if len(names) == 1:
                outcomes = [await self.create(names[0], count, config, asker)]
            else:
                wanted = [NewTopic(name, count, config) for name in names]
                outcomes = await self.create_all(wanted, asker)
        except STORAGE_FAILURES as exc:
            outcomes = [exc] * len(names)
        return [
            self.get(name) if isinstance(one, TopicExists) else one  # another client was first
            for name, one in zip(names, outcomes, strict=True)
        ]

    async def delete_all(
        self, names: Iterable[str], ids: Mapping[str, UUID] = _NO_IDS, asker: Asker = _NOBODY
    ) -> dict[str, Outcome]:
        """Delete topics and everything in them; of each what it was, or why it is still there.

        ids: of names by which the topic with this id is meant, and none that has the name since.
        """
        wanted = list(dict.fromkeys(names))
        outcomes: dict[str, Outcome] = {}
        for start in range(0, len(wanted), CHANGED_AT_ONCE):
            some = wanted[start : start + CHANGED_AT_ONCE]
            async with self._administration:
                meant = [name for name in some if self._is_meant(name, ids.get(name))]
                outcomes |= {name: UnknownTopic(name) for name in some}
                if meant:
                    outcomes |= zip(meant, await self._delete_some(meant, asker), strict=True)
        return outcomes

    def _is_meant(self, name: str, topic_id: UUID | None) -> bool:
        meta = self.get(name)
        return topic_id is None or (meta is not None and meta.topic_id == topic_id)

    async def _delete_some(self, names: Sequence[str], asker: Asker) -> list[Outcome]:
        """The caller holds the administration."""
        known = [meta for name in names if (meta := self.get(name)) is not None]
        self._deleting.update(meta.name for meta in known)
        pace = Pace()
        try:
            while busy := [one for key, one in self._opening.items() if key[0] in self._deleting]:
                await busy[0].done.wait()
            for meta in known:
                await self._stop_serving(meta, pace)
            return await self._changed(
                "topic_deleted", self.manager.delete_topics, names, repeat(asker)
            )
        finally:
            self._deleting.difference_update(meta.name for meta in known)

    async def grow_all(
        self, wanted: Mapping[str, int], asker: Asker = _NOBODY
    ) -> dict[str, Outcome]:
        """Let topics grow to so many partitions; of each what it is, or why it did not grow."""
        outcomes: dict[str, Outcome] = {}
        for some in _pieces(wanted, CHANGED_AT_ONCE):
            async with self._administration:
                grown = await self._changed(
                    "partitions_created",
                    self.manager.grow_topics,
                    {name: wanted[name] for name in some},
                    repeat(asker),
                    lambda meta: {"partitions": meta.partitions},
                )
            outcomes |= zip(some, grown, strict=True)
        return outcomes

    async def alter_all(
        self, changes: Mapping[str, Change], asker: Asker = _NOBODY, *, validate_only: bool = False
    ) -> dict[str, Altered]:
        """Replace what is set on topics, by name, by `change(what is set)`.

        Of each what it is, or why it is as it was: StorageError, OSError, and what `change` raises.
        """
        outcomes: dict[str, Altered] = {}
        for some in _pieces(changes, ALTERED_AT_ONCE):
            async with self._administration:
                wanted: dict[str, Mapping[str, str]] = {}
                pace = Pace()
                for name in some:
                    await pace.step()
                    try:
                        outcomes[name] = meta = self._altered(name, changes[name])
                        wanted[name] = meta.config.overrides
                    except (Refused, *STORAGE_FAILURES) as exc:
                        outcomes[name] = exc
                if wanted and not validate_only:
                    altered = await self._changed(
                        "topic_altered",
                        self.manager.alter_topics,
                        wanted,
                        repeat(asker),
                        lambda meta: {"overrides": meta.config.overrides},
                    )
                    outcomes |= zip(wanted, altered, strict=True)
        return outcomes

    def _altered(self, name: str, change: Change) -> TopicMeta:
        """What would be made of a topic.  Raises UnknownTopic, InvalidConfig, as `change` does."""
        meta = self.get(name)
        if meta is None:
            raise UnknownTopic(name)
        return self.manager.check_altered(name, change(meta.config.overrides))

    def check_new(self, name: str, partitions: int) -> None:
        """Raise what creating would raise: InvalidTopicName, InvalidPartitions, TopicExists,
        TopicCollides."""
        self.manager.check_new_topic(name, partitions)

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The configuration of a new topic: `overrides` over the broker's own defaults."""
        merged = dict(overrides)
        if self.config.durability != "fsync":  # the default of TopicConfig itself
            merged.setdefault("durability", self.config.durability)
        return TopicConfig.parse(merged, self.manager.topic_defaults)

    async def choose_defaults(self) -> None:
        """Have what the settings choose for all topics hold for them.

        Raises StorageError: it is not durable.
        """
        async with self._administration:
            wanted = self.config.topic_defaults
            if wanted != self.manager.topic_defaults:
                await self._lanes.run(self.manager.set_topic_defaults, wanted)

    async def keep_defaults(self) -> None:
        """Choose them again where that has failed, as soon as the disk takes it.  As above."""
        if self.manager.is_settled and self.config.topic_defaults != self.manager.topic_defaults:
            await self.choose_defaults()

    async def _open_some(self, keys: Sequence[tuple[str, int]]) -> list[Partition | StorageError]:
        """Open those that nobody is opening, by one call of a lane; of each what came of it."""
        opening = _Opening()
        self._opening.update(dict.fromkeys(keys, opening))
        try:
            found = await self._lanes.run(self.manager.partitions.get_handlers, keys)
            outcomes = [self._serve(key, one) for key, one in zip(keys, found, strict=True)]
            opening.failures = {
                key: one
                for key, one in zip(keys, outcomes, strict=True)
                if isinstance(one, StorageError)
            }
            return outcomes
        finally:
            for key in keys:
                del self._opening[key]
            opening.done.set()

    def _serve(
        self, key: tuple[str, int], handler: DiskHandler | StorageError
    ) -> Partition | StorageError:
        name, index = key
        if isinstance(handler, StorageError):
            self._unopened.pop(key, None)
            self._unopened[key] = wire_error(handler)  # the last to be tried again
            if self._told.get(key) != (kind := _kind_of(handler)):
                self._told[key] = kind
                log.error("partition_not_opened", topic=name, partition=index, error=str(handler))
            return handler
        self._told.pop(key, None)
        if self._unopened.pop(key, None) is not None:
            log.info("partition_opened_again", topic=name, partition=index)
        partition = Partition(
            handler,
            self.manager.topics[name].topic_id,  # a deletion waits for what is being opened
            ingest=self._ingest,
            refusals=self.refusals,
            turn=self._turn,
        )
        self._partitions[key] = partition
        self.opened_count += 1
        handler.on_recovered = partial(self._opened, partition)
        self._opened(partition)
        return partition

    def _opened(self, partition: Partition) -> None:
        if self.on_opened is not None:
            self.on_opened(partition)

    async def _stop_serving(self, meta: TopicMeta, pace: Pace) -> None:
        """Close its partitions, one after the other; nobody opens one of them any more."""
        why = f"topic {meta.name} was deleted meanwhile"
        for index in range(meta.partitions):
            self._unopened.pop((meta.name, index), None)
            self._told.pop((meta.name, index), None)
            if (partition := self._partitions.pop((meta.name, index), None)) is not None:
                self.closed_count += 1
                partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
            if pace.is_over:
                self._turn.end()
                await pace.step()
        self._turn.end()


def _pieces(names: Iterable[str], at_once: int) -> Iterator[list[str]]:
    """So many of them at a time."""
    rest = iter(names)
    while some := list(islice(rest, at_once)):
        yield some


def _kind_of(failure: StorageError) -> tuple[type, object]:
    """What makes it another failure than the one before, of the same partition: for want of
    descriptors each attempt may fail at another file."""
    cause = failure.__cause__
    return type(failure), cause.errno if isinstance(cause, OSError) else str(failure)

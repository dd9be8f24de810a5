"""One broker as a story sees it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import trio

from segbroker.protocol.api_keys import ApiKey, request_class, response_class
from segbroker.protocol.schema import Message

from ...support.wire_client import Closed, WireClient
from ..answers import CLOSED, Fields
from ..logins import Address
from ..stage import Stage, build
from .names import Names
from .sameness import alike

TOPICS: Final = 4
PARTITIONS: Final = 2
GROUPS: Final = 3
CONCURRENT_TRANSACTIONS: Final = 51
PATIENCE_S: Final = 20.0

Then = Callable[[Any], Fields]
"""Learns from an answer; returns fields as they are to be compared."""
PRODUCERS: Final = ("x0", "x0", "x1", None)
"""Transactional id of each producer; the first two fence each other."""


@dataclass
class Producer:
    """A producer as it was told to be.

    Attributes:
        transactional_id: without the name of the story; None for one that is only idempotent.
        next: sequence of its next record, for each partition.
    """

    transactional_id: str | None
    id: int = -1
    epoch: int = -1
    next: dict[tuple[int, int], int] = field(default_factory=dict)

    def is_now(self, producer_id: int, epoch: int) -> None:
        """It was told this."""
        if (producer_id, epoch) != (self.id, self.epoch):
            self.next.clear()
        self.id, self.epoch = producer_id, epoch


@dataclass
class Ending:
    """Where a transaction that is open will have markers.

    Attributes:
        joined: the partitions that take part; Kafka writes a marker to each.
        written: those with records of it; here these alone get one.
    """

    joined: set[tuple[int, int]] = field(default_factory=set)
    written: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class Member:
    """A member of a group, as it was told to be.

    Attributes:
        name: what it is called.
        group: number of its group.
        instance: its group_instance_id, if it is a static one.
        generation: or the epoch of a member of KIP-848.
        others: the ids of all members, of a leader.
    """

    name: str
    group: int
    instance: str | None = None
    id: str = ""
    generation: int = -1
    protocol: str | None = None
    others: list[str] = field(default_factory=list)
    owned: list[dict[str, Any]] = field(default_factory=list)


def members() -> Iterator[Member]:
    """Those of the classic protocol (c) and of KIP-848 (k)."""
    yield Member("c0", 0)
    yield Member("c1", 0)
    yield Member("c2", 0, "place")
    yield Member("c3", 0, "place")
    yield Member("c4", 1)
    yield Member("c5", 1, "stand")
    yield Member("k0", 0, id="k0", generation=0)
    yield Member("k1", 1, id="k1", generation=0)
    yield Member("k2", 1, id="k2", generation=0)
    yield Member("k3", 1, "stand", id="k3", generation=0)
    yield Member("k4", 1, "stand", id="k4", generation=0)
    yield Member("k5", 2, id="k5", generation=0)


@dataclass
class Sharer:
    """A member of a share group.

    Attributes:
        group: number of its group.
        id: its member id.
        epoch: as it was told.
        session: epoch of its next fetch.
        topics: what it subscribes to, by name.
        reads: topics, by name, that its session has partitions of.
        is_lost: one of them was deleted: Kafka fails by itself (-1) until there is a new session.
        took: offsets that it has acquired and not told of yet, by topic and partition.
    """

    group: int
    id: str
    epoch: int = 0
    session: int = 0
    topics: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    is_lost: bool = False
    took: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def goes_on(self, session: str) -> None:
        """A request of its session was taken: "own", or "new" or "end" for its first or last."""
        self.session = {"new": 1, "end": 0}.get(session, self.session + 1)
        if session in ("new", "end"):
            self.took.clear()
            self.reads.clear()
            self.is_lost = False


@dataclass
class Worker:
    """A member of a streams group.

    Attributes:
        group: number of its group.
        id: its member id.
        epoch: as it was told.
        tasks: that it was given last, by kind, as they are told.
    """

    group: int
    id: str
    epoch: int = 0
    tasks: dict[str, Any] = field(
        default_factory=lambda: {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    )


@dataclass
class Reader:
    """Who fetches in a session.

    Attributes:
        session: its id; 0 for none.
        epoch: of its next request.
        places: partitions of it, with the number of their topic.
    """

    session: int = 0
    epoch: int = 0
    places: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class Waiting:
    """A request that may be answered later.

    Attributes:
        whose: the name of the member that asks.
        answer: None until then; Closed if the connection was closed instead.
        then: what is learned from the answer.
    """

    key: ApiKey
    version: int
    whose: str
    then: Then
    answer: Message | type[Closed] | None = None


class Scene:
    """A broker, and who is there.

    Attributes:
        title: begins the name of everything in the story.
        seen: what was answered since the step began, by label.
        waiting: requests without an answer, by the label that it will have.
        readers: who fetches in sessions.
        newer_groups: those in which somebody has joined by KIP-848: their epochs are counted
            otherwise.
        endings: what the open transaction of each transactional id will leave in partitions.
        uneven: partitions, with the number of their topic, in which Kafka alone has a marker.
        marked: partitions with the marker of a transaction.
        cut: those of which records were deleted.
        shared: topics, by name, of which a member of a share group had a part, with its number.
        begun_ms: time from which records have theirs, the same on both brokers.
        now_ms: time of the last record.
    """

    def __init__(self, address: Address, client: WireClient, title: str, now_ms: int) -> None:
        self.title = title
        self.names = Names()
        self.seen: dict[str, Fields] = {}
        self.waiting: dict[str, Waiting] = {}
        self.producers = [Producer(one) for one in PRODUCERS]
        self.members = {one.name: one for one in members()}
        for one in self.members.values():
            if one.id:
                one.id = f"{title}{one.id}"
                self.names.met(one.id, one.name)
        groups = {"s0": GROUPS, "s1": GROUPS, "s2": GROUPS - 1}
        self.sharers = {name: Sharer(group, f"{title}{name}") for name, group in groups.items()}
        for name, sharer in self.sharers.items():
            self.names.met(sharer.id, name)
        self.workers = {
            name: Worker(group, f"{title}{name}")
            for name, group in (("w0", GROUPS + 1), ("w1", GROUPS + 1), ("w2", GROUPS - 1))
        }
        for name, worker in self.workers.items():
            self.names.met(worker.id, name)
        self.readers = [Reader(), Reader()]
        self.newer_groups: set[int] = set()
        self.endings: dict[str, Ending] = {}
        self.uneven: set[tuple[int, int]] = set()
        self.marked: set[tuple[int, int]] = set()
        self.cut: set[tuple[int, int]] = set()
        self.shared: set[tuple[int, str]] = set()
        self.begun_ms = self.now_ms = now_ms
        self._count = 0
        self._ids: dict[str, UUID] = {}
        for number in range(TOPICS):
            self.names.topics[_nobodys(number)] = f"{self.topic(number)} of nobody"
        self._leader_epochs: dict[str, int] = {}
        self._stage = Stage(address, client, title, 0)
        self._idle: list[WireClient] = []
        self._own: dict[str, WireClient] = {}
        self._nursery: trio.Nursery | None = None
        self._address = address

    def called(self, what: str | None) -> str | None:
        """A name of this story."""
        return None if what is None else f"{self.title}{what}"

    def ending(self, one: Producer) -> Ending:
        """What a producer has open."""
        return self.endings.setdefault(one.transactional_id or "", Ending())

    def ended(self, one: Producer) -> None:
        """What a producer had open is not any more: markers are written."""
        ended = self.endings.pop(one.transactional_id or "", Ending())
        self.uneven |= ended.joined - ended.written
        self.marked |= ended.joined | ended.written

    def topic(self, number: int) -> str:
        """Name of a topic."""
        return f"{self.title}t{number}"

    def group(self, number: int) -> str:
        """Name of a group."""
        return f"{self.title}g{number}"

    def topic_id(self, number: int) -> UUID:
        """The last id that a topic had; of one that never was, nobody's."""
        return self._ids.get(self.topic(number), _nobodys(number))

    def leader_epoch(self, number: int) -> int:
        """That of the partitions of a topic: each broker counts it in its own way."""
        return self._leader_epochs.get(self.topic(number), 0)

    async def quietly(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        """Ask; nothing is compared.  Raises Closed."""
        return await self._stage.quietly(key, version, **_known(key, version, values))

    async def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        """Ask and keep the answer for the comparison; None if the connection was closed."""
        label = self._label(key)
        try:
            answer = await self.quietly(key, version, **values)
        except Closed:
            self.seen[label] = CLOSED
            return None
        return self.keep(key, version, answer, label)

    async def quietly_as(self, whose: str, key: ApiKey, version: int, /, **values: Any) -> Any:
        """Ask on a connection of its own; nothing is compared."""
        client = self._own.get(whose)
        if client is None:
            client = WireClient(await trio.open_tcp_stream(*self._address), "compare")
            self._own[whose] = client
        request = build(request_class(key), _known(key, version, values))
        return await client.ask(request, response_class(key), version)

    async def ask_in_time(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        """The same, again and again while what was ended is not ended yet."""
        label = self._label(key)
        limit = trio.current_time() + PATIENCE_S
        while True:
            try:
                answer = await self.quietly(key, version, **values)
            except Closed:
                self.seen[label] = CLOSED
                return None
            if answer.error_code != CONCURRENT_TRANSACTIONS or trio.current_time() > limit:
                return self.keep(key, version, answer, label)
            await trio.sleep(0.02)

    def keep(self, key: ApiKey, version: int, answer: Message, label: str = "") -> Any:
        """Compare an answer; as it was is what comes back."""
        raw = _copied(answer)
        self.seen[label or self._label(key)] = self._alike(key, version, answer)
        return raw

    def start(self, key: ApiKey, version: int, whose: str, then: Then, /, **values: Any) -> None:
        """Ask what may be answered later; `then` learns from the answer.

        A member that asks once more is not interested in its answers of before: Kafka gives none.
        """
        assert self._nursery is not None
        for label in [label for label, one in self.waiting.items() if one.whose == whose]:
            del self.waiting[label]
        label = self._label(key)
        self.waiting[label] = one = Waiting(key, version, whose, then)
        self._nursery.start_soon(self._answered, one, values)

    async def _answered(self, one: Waiting, values: dict[str, Any]) -> None:
        if self._idle:
            client = self._idle.pop()
        else:
            client = WireClient(await trio.open_tcp_stream(*self._address), "compare")
        request = build(request_class(one.key), _known(one.key, one.version, values))
        try:
            one.answer = await client.ask(request, response_class(one.key), one.version)
        except Closed:
            one.answer = Closed
        else:
            self._idle.append(client)

    def collect(self, label: str) -> None:
        """What was waited for is there: learn from it."""
        one = self.waiting.pop(label)
        if isinstance(one.answer, Message):
            words = one.then(_copied(one.answer))
            self.seen[label] = self._alike(one.key, one.version, one.answer) | words
        else:
            self.seen[label] = CLOSED

    def lives_in(self, nursery: trio.Nursery) -> None:
        """Where its requests wait."""
        self._nursery = nursery

    def is_gone(self, number: int) -> None:
        """A topic was deleted."""
        name = self.topic(number)
        self.shared = {(group, topic) for group, topic in self.shared if topic != name}
        for one in self.sharers.values():
            one.is_lost |= name in one.reads
        for producer in self.producers:
            producer.next = {at: n for at, n in producer.next.items() if at[0] != number}

    async def learn_topic(self, number: int) -> None:
        """A topic is there now, with this id: wait until its partitions answer."""
        name = self.topic(number)
        with trio.fail_after(PATIENCE_S):
            while True:
                answer = await self.quietly(
                    ApiKey.METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=False
                )
                row = answer.topics[0]
                if row.error_code == 0 and row.topic_id != self._ids.get(name):
                    break
                await trio.sleep(0.01)
        self._ids[name] = row.topic_id
        self._leader_epochs[name] = row.partitions[0].leader_epoch
        again = sum(known == name for known in self.names.topics.values())
        self.names.topics[row.topic_id] = f"{name}{' again' * again}"
        await self._stage.settled(name, len(row.partitions))

    async def caught_up(self) -> None:
        """Every part of the broker has heard of what was changed last."""
        await self._stage.caught_up()

    async def completed(self, transactional_id: str, *, behind: tuple[str, ...] = ()) -> None:
        """Kafka answers an end before its markers are written.

        behind: further states that are waited out.
        """
        passing = ("PrepareCommit", "PrepareAbort", *behind)
        with trio.move_on_after(PATIENCE_S):
            while True:
                answer = await self.quietly(
                    ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id]
                )
                if answer.transaction_states[0].transaction_state not in passing:
                    return
                await trio.sleep(0.01)

    async def aclose(self) -> None:
        """Hang up."""
        for client in (self._stage.client, *self._own.values(), *self._idle):
            await client.stream.aclose()

    def _alike(self, key: ApiKey, version: int, answer: Message) -> Fields:
        return alike(key, version, answer, self.names, self.title, self.begun_ms)

    def _label(self, key: ApiKey) -> str:
        self._count += 1
        return f"{key.name} {self._count}"


def _nobodys(number: int) -> UUID:
    """An id that no topic has."""
    return UUID(int=(1 << 100) + number)


def _known(key: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
    """The fields that a version has; what it has not is left out."""
    fields = {field.name for field in request_class(key).fields() if field.is_in(version)}
    return {name: value for name, value in values.items() if name in fields}


def _copied(message: Any) -> Any:
    cls = type(message)
    made = {}
    for one in cls.fields():
        value = getattr(message, one.name)
        if one.struct is not None and value is not None:
            value = [_copied(row) for row in value] if one.is_array else _copied(value)
        elif isinstance(value, list):
            value = list(value)
        made[one.name] = value
    return cls(**made)

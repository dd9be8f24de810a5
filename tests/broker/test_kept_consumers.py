"""What is written down of KIP-848 groups, and when: over crashes at every moment one owner each."""

import errno
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from segbroker.broker.failed_changes import FailedChanges
from segbroker.broker.groups import topic_expressions
from segbroker.broker.groups.consumer_group import ConsumerGroup
from segbroker.broker.groups.consumer_members import Beat, Told, every_topic
from segbroker.broker.groups.kept_consumers import KeptConsumers
from segbroker.broker.groups.kept_sizes import KeptSizes
from segbroker.broker.groups.member_epochs import LEAVE, LEAVE_FOR_A_WHILE
from segbroker.broker.groups.offset_expiry import Expiry, Look
from segbroker.broker.groups.server_assignors import Partition
from segbroker.broker.refused import Refused
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.consumer_groups import SECTION, Says, changed, groups_in
from segbroker.segments.metadata.group_rows import Content

from .group_topics import Topic, topics_of
from .test_consumer_group import SESSION_MS, TOPICS, Client, group, part, settle

OUT = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    # That the member before had left was lost: until its session ends.
    ErrorCode.UNRELEASED_INSTANCE_ID,
)
T = TypeVar("T")
NOW = Expiry(1, 0, pending=(), committing=(), is_there=lambda *_: True)
FULL = OSError(errno.ENOSPC, "the disk is full")


class Disk:
    """Where events are durable when it says so: what a broker writes to and starts from."""

    event_size_max = 4 << 20

    def __init__(self) -> None:
        self.content: Content | None = None
        self.events: list[dict[str, Any]] = []
        self._pending: list[tuple[Callable[[OSError | None], None], dict[str, Any]]] = []

    def section(self, name: str) -> Content | None:
        assert name == SECTION
        return self.content

    def record_soon(
        self, done: Callable[[OSError | None], None], kind: str, **fields: object
    ) -> None:
        self.events.append(fields)
        self._pending.append((done, fields))

    def sync(self, error: OSError | None = None, *, is_there: bool = True) -> None:
        """Whatever is written is durable now, or, with an error, perhaps."""
        while self._pending:
            pending, self._pending = self._pending, []
            for done, fields in pending:
                if error is None or is_there:
                    self.content = changed(self.content, [fields])
                done(error)
            if error is not None:
                return

    def crash(self, kept: int) -> None:
        """So many of the events that are under way are there, and nobody is told."""
        for _, fields in self._pending[:kept]:
            self.content = changed(self.content, [fields])
        self._pending.clear()


class Broker:
    """One life of a broker with one group."""

    def __init__(self, disk: Disk, now_ms: int = 0) -> None:
        self.sizes = KeptSizes(1 << 20)
        self.kept = KeptConsumers(
            cast("DiskManager", disk), self.sizes, lambda: None, FailedChanges()
        )
        self.group = group()
        self.group.epoch = self.group.assignment_epoch = self.kept.number("g")
        for _, rows in self.kept.with_members():
            self.group.restore(now_ms, rows, frozenset(), lambda viewer: every_topic)

    def ask(
        self, now_ms: int, beat: Beat, topics: dict[str, Topic], done: Callable[[Told | None], None]
    ) -> None:
        """A heartbeat; `done` when it is answered, None where it cannot be.  Raises Refused."""
        told = self.group.heartbeat(now_ms, beat, topics)

        def kept(error: OSError | None) -> None:
            if error is None and told.member_id in self.group.members:
                self.group.was_told(now_ms, told.member_id, told.assignment)
            done(None if error else told)

        self.kept.when_kept(self.group, told.member_id, kept)
        self.kept.keep(self.group)

    def beat(self, client: Client) -> list[Told | None]:
        """One of a client that obeys when it is answered."""
        answers: list[Told | None] = []
        self.ask(0, client.question(full=True), client.topics, answers.append)
        return answers


def over(look: Look[T]) -> T:
    """What a look comes to."""
    while True:
        try:
            next(look)
        except StopIteration as end:
            return cast("T", end.value)


def started(*names: str) -> tuple[Disk, Broker, list[Client]]:
    """A group in which everybody has what is its own, durable."""
    disk = Disk()
    broker = Broker(disk)
    clients = [Client(broker.group, name) for name in names]
    for client in clients:
        client.join()
    settle(*clients)
    broker.kept.keep(broker.group)
    disk.sync()
    disk.events.clear()
    return disk, broker, clients


def rows_of(some: ConsumerGroup) -> dict[str, object]:
    return {
        name: (member.said, member.has(some.target.of(name)))
        for name, member in some.members.items()
    }


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_is_answered_at_once() -> None:
    disk, broker, clients = started("one", "two")
    for client in clients:
        assert broker.beat(client) == [Told(client.name, client.epoch, tuple(sorted(client.reads)))]
    assert disk.events == []


def test_of_who_is_to_have_something_else_is_not_written_what_it_is_subscribed_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, broker, _ = started("one", "two", "three")
    written: list[str] = []
    row = Says.row

    def noted(says: Says) -> list[Any]:
        written.append(says.client_id)
        return row(says)

    monkeypatch.setattr(Says, "row", noted)
    size = broker.sizes.others("")
    broker.beat(Client(broker.group, "four"))
    (event,) = disk.events
    assert len(event["has"]) > 1, "others are to have less"
    assert list(event["says"]) == ["four"]
    assert len(written) == 1, "each may be subscribed to thousands of topics"
    disk.sync()
    assert broker.sizes.others("") > size
    assert Broker(disk).sizes.others("") == broker.sizes.others(""), "as a start counts"


def test_who_joins_is_answered_when_it_is_durable_and_the_others_at_once() -> None:
    disk, broker, (one,) = started("one")
    two = Client(broker.group, "two")
    joined = broker.beat(two)
    assert joined == []
    assert broker.beat(one) == [], "it is to let go of something"
    disk.sync()
    assert joined != []
    assert dict(groups_in(disk.content))["g"].members == rows_of(broker.group)


def test_an_event_holds_the_rows_that_changed_alone() -> None:
    disk, broker, clients = started("one", "two", "three")
    kept = clients[0]
    kept.beat = kept.beat._replace(client_host="10.0.0.9")
    broker.beat(kept)
    (event,) = disk.events
    assert (list(event["says"]), list(event["has"])) == (["one"], ["one"])
    assert not event["whole"]
    disk.sync()
    broker.ask(0, Beat("one", LEAVE), TOPICS, lambda told: None)
    assert disk.events[-1]["says"] == {"one": None}


def test_what_changes_while_an_event_is_under_way_is_in_the_next_together() -> None:
    disk, broker, _ = started("one")
    for n in range(50):
        broker.beat(Client(broker.group, f"m{n}"))
    assert len(disk.events) == 1
    disk.sync()
    assert len(disk.events) == 2
    assert len(dict(groups_in(disk.content))["g"].members) == 51


def test_after_a_failure_who_waits_is_told_and_the_next_event_is_a_whole_one() -> None:
    disk, broker, (one,) = started("one")
    two = Client(broker.group, "two")
    joined = broker.beat(two)
    disk.sync(FULL, is_there=False)
    assert joined == [None]
    assert len(disk.events) == 1, "nobody waits: it is not written again and again"
    again = broker.beat(two)
    assert disk.events[-1]["whole"]
    disk.sync()
    assert again not in ([], [None])
    assert dict(groups_in(disk.content))["g"].members == rows_of(broker.group)
    assert broker.beat(one) == [], "it is to let go of something, durable first"


def test_after_a_failure_heartbeats_that_say_nothing_write_nothing() -> None:
    disk = Disk()
    broker = Broker(disk)
    one, two = Client(broker.group, "one"), Client(broker.group, "two", instance="i")
    one.join()
    two.join()
    settle(one, two)
    broker.kept.keep(broker.group)
    disk.sync()
    disk.events.clear()
    broker.ask(0, Beat("two", LEAVE_FOR_A_WHILE, "i"), TOPICS, lambda told: None)
    disk.sync(FULL, is_there=False)
    for _ in range(30):
        assert broker.beat(one) != [], "answered at once"
        disk.sync(FULL, is_there=False)
    assert len(disk.events) == 1
    broker.kept.keep(broker.group, again=True)
    disk.sync()
    assert dict(groups_in(disk.content))["g"].members == rows_of(broker.group)


MANY = topics_of(**dict.fromkeys("abcdef", 2))


def restarted(
    monkeypatch: pytest.MonkeyPatch, *, look_cost: int
) -> tuple[Disk, Broker, Client, Client]:
    """x reads b to f by an expression, y a and b by name; a new life of their broker.

    look_cost: of each look at the topics; 1: one topic at a time.
    """
    disk = Disk()
    broker = Broker(disk)
    x = Client(broker.group, "x", regex="[b-f]", topics=MANY)
    x.beat = x.beat._replace(names=frozenset())
    y = Client(broker.group, "y", "a", "b", topics=MANY)
    x.join()
    y.join()
    settle(x, y)
    broker.kept.keep(broker.group)
    disk.sync()
    monkeypatch.setattr(topic_expressions, "LOOK_COST_MAX", look_cost)
    broker = Broker(disk)
    x.group = y.group = broker.group
    return disk, broker, x, y


def test_until_all_topics_were_looked_at_nobody_loses_what_an_expression_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, broker, x, y = restarted(monkeypatch, look_cost=1)
    before = [(one.reads, one.epoch) for one in (x, y)]
    assert len(x.reads) >= 8
    looks = 0
    while not broker.group.target.is_ready:
        x.heartbeat()
        assert [(one.reads, one.epoch) for one in (x, y)] == before
        looks += 1
    assert looks == len(MANY)


def test_who_leaves_before_that_makes_no_target_of_what_is_matched_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, broker, x, y = restarted(monkeypatch, look_cost=1)
    before = x.reads
    y.leave()
    looks = 0
    while not broker.group.target.is_ready:
        assert x.reads == before
        x.heartbeat()
        looks += 1
    assert looks > 1
    settle(x)
    assert x.reads == frozenset().union(*(part(name, 0, 1) for name in "bcdef"))


def test_what_may_be_matched_only_afterwards_is_not_taken_for_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, broker, x, _ = restarted(monkeypatch, look_cost=1)
    committed: Any = {
        "g": {name: (name.encode() * 16, {0: (5, -1, "", 0)}) for name in (*"abcdef", "z")}
    }
    looks = 0
    while not broker.group.target.is_ready:
        assert over(NOW.abandoned(committed, broker.group)) == []
        x.heartbeat()
        looks += 1
    assert looks > 1
    assert over(NOW.abandoned(committed, broker.group)) == [("z", 0)]
    x.beat = x.beat._replace(regex="[d-z]")
    x.topics = topics_of(**dict.fromkeys("abcdefz", 2))
    x.heartbeat(full=True)
    assert over(NOW.abandoned(committed, broker.group)) == [], "z was not looked at yet"
    for _ in x.topics:
        x.heartbeat()
    assert over(NOW.abandoned(committed, broker.group)) == [("c", 0)]


def test_a_subscription_that_changes_before_that_counts_after_another_restart_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, broker, x, y = restarted(monkeypatch, look_cost=1)
    y.beat = y.beat._replace(names=frozenset("a"))
    assert y.reads & part("b", 0, 1)
    assert broker.beat(y) == []
    disk.sync()
    assert not broker.group.target.is_ready
    monkeypatch.undo()
    x.group = y.group = Broker(disk).group
    settle(x, y)
    assert y.reads == part("a", 0, 1)


def test_what_was_subscribed_to_before_that_is_not_abandoned_after_another_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, broker, _, y = restarted(monkeypatch, look_cost=1)
    y.topics = topics_of(**dict.fromkeys("abcdefg", 2))
    y.beat = y.beat._replace(names=frozenset("ag"))
    broker.beat(y)
    broker.ask(0, Beat("x", LEAVE), MANY, lambda told: None)
    disk.sync()
    assert not broker.group.target.is_ready
    y.group = Broker(disk).group
    committed: Any = {"g": {name: (name.encode() * 16, {0: (5, -1, "", 0)}) for name in "abg"}}
    assert over(NOW.abandoned(committed, y.group)) == []
    y.heartbeat(full=True)
    assert over(NOW.abandoned(committed, y.group)) == [("b", 0)]


def test_who_waits_when_the_broker_ends_is_told() -> None:
    _, broker, _ = started("one")
    first, second = (broker.beat(Client(broker.group, name)) for name in ("two", "three"))
    broker.kept.close(FULL)
    assert (first, second) == ([None], [None])


def test_who_waits_for_an_event_that_will_not_be_written_is_not_told_that_it_is_durable() -> None:
    disk, broker, _ = started("one")
    first, second = (broker.beat(Client(broker.group, name)) for name in ("two", "three"))
    broker.kept.turned("g")
    assert (first, second) == ([], [None])
    disk.sync()
    assert first != [None]


def test_a_topic_that_came_while_the_broker_was_away_is_read_and_nothing_else_moves() -> None:
    disk, _, clients = started("one", "two")
    had = [client.reads for client in clients]
    broker = Broker(disk)
    for client in clients:
        client.group = broker.group
        client.heartbeat()
    assert [client.reads for client in clients] == had
    assert broker.group.epoch == dict(groups_in(disk.content))["g"].epoch
    for client in clients:
        client.topics = topics_of(a=6, b=2)
    settle(*clients)
    assert [client.reads >= before for client, before in zip(clients, had, strict=True)] == [
        True
    ] * 2
    assert len(clients[0].reads | clients[1].reads) == 6


class CrashMachine(RuleBasedStateMachine):
    """Members of one group, and a broker that ends at every moment.

    A member is told when it is durable, or not at all; then it says everything again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.disk = Disk()
        self.broker = Broker(self.disk)
        self.topics = topics_of(a=4, b=2)
        self.clients: dict[str, Client] = {}
        self.waiting: set[str] = set()
        self.lost: set[str] = set()
        """Whose last question had no answer: what it asked for may have happened."""
        self.numbers = 0

    @property
    def group(self) -> ConsumerGroup:
        return self.broker.group

    def ask(self, client: Client, *, full: bool = False) -> None:
        if client.name in self.waiting:
            return
        broker = self.broker
        self.waiting.add(client.name)
        is_full = full or client.said is None
        asked = client.question(full=is_full and client.epoch > 0)
        if client.epoch == 0:
            asked = client.beat._replace(epoch=0, owned=frozenset())

        def told(answer: Told | None) -> None:
            if broker is not self.broker or self.clients.get(client.name) is not client:
                return
            self.waiting.discard(client.name)
            if answer is None:
                client.said = None  # says everything again
                self.lost.add(client.name)
                return
            self.lost.discard(client.name)
            client.said = client.reads if asked.owned is not None else client.said
            client.obey(answer)

        try:
            broker.ask(self.now_ms, asked, self.topics, told)
        except Refused as exc:
            if exc.code not in OUT:
                raise
            self.waiting.discard(client.name)
            client.reads, client.epoch, client.said = frozenset(), 0, None

    @rule(
        names=st.sampled_from([("a",), ("a", "b"), ("b",)]),
        regex=st.sampled_from([None, None, "a|b"]),
        static=st.booleans(),
    )
    def join(self, names: tuple[str, ...], regex: str | None, static: bool) -> None:
        if len(self.clients) >= 5:
            return
        self.numbers += 1
        name = f"m{self.numbers}"
        self.clients[name] = Client(
            self.group, name, *names, regex=regex, instance=f"i{self.numbers}" if static else None
        )
        self.ask(self.clients[name])

    @precondition(lambda self: self.clients)
    @rule(n=st.integers(0, 4), full=st.booleans())
    def heartbeat(self, n: int, full: bool) -> None:
        self.ask(self.clients[sorted(self.clients)[n % len(self.clients)]], full=full)

    @precondition(lambda self: self.clients)
    @rule(n=st.integers(0, 4), while_away=st.booleans())
    def leave(self, n: int, while_away: bool) -> None:
        client = self.clients.pop(sorted(self.clients)[n % len(self.clients)])
        self.waiting.discard(client.name)
        epoch = LEAVE_FOR_A_WHILE if while_away and client.beat.instance_id else LEAVE
        gone = Beat(client.name, epoch, client.beat.instance_id)
        try:
            self.broker.ask(self.now_ms, gone, self.topics, lambda told: None)
        except Refused:
            return
        if epoch == LEAVE_FOR_A_WHILE:
            self.numbers += 1
            back = Client(self.group, f"m{self.numbers}", *sorted(client.beat.names or ()))
            back.beat = back.beat._replace(instance_id=client.beat.instance_id)
            self.clients[back.name] = back
            self.ask(back)

    @rule(a=st.integers(1, 5), b=st.integers(1, 3))
    def change_topics(self, a: int, b: int) -> None:
        self.topics = topics_of(a=a, b=b)

    @rule()
    def sync(self) -> None:
        self.disk.sync()

    @rule(is_there=st.booleans())
    def fail(self, is_there: bool) -> None:
        self.disk.sync(FULL, is_there=is_there)

    @rule()
    def session_ends(self) -> None:
        """Of whoever is not in the middle of something, nobody is dropped."""
        self.now_ms += SESSION_MS // 2
        for client in self.clients.values():
            self.ask(client)
        self.group.tick(self.now_ms)
        self.broker.kept.keep(self.group)

    @rule(kept=st.integers(0, 1))
    def crash(self, kept: int) -> None:
        self.lost |= self.waiting
        known = self.clients.keys() & self.group.members.keys() - self.lost
        had = {name: (self.clients[name].epoch, self.clients[name].reads) for name in known}
        self.disk.crash(kept)
        self.waiting.clear()
        self.broker = Broker(self.disk, self.now_ms)
        for client in self.clients.values():
            client.group = self.group
            client.said = None  # the connection was lost
        for name in known:
            client = self.clients[name]
            if client.epoch > 0:
                self.ask(client)
                assert client.epoch > 0, "a restart throws nobody out"
                if name not in self.waiting:
                    assert (client.epoch, client.reads) == had[name], "nothing is revoked by it"

    @invariant()
    def what_is_written_down_is_sound(self) -> None:
        for _, kept in groups_in(self.disk.content):
            assert kept.is_sound

    @invariant()
    def nobody_reads_what_another_may_read(self) -> None:
        readers: dict[Partition, str] = {}
        for client in self.clients.values():
            if client.epoch > 0 and client.name in self.group.members:
                for partition in client.reads:
                    assert readers.setdefault(partition, client.name) == client.name
                    assert self.group.owners[partition] == client.name

    def teardown(self) -> None:
        """In the end what is written down is the group, and everything is read."""
        for _ in range(8):
            for client in self.clients.values():
                self.ask(client)
            self.broker.kept.keep(self.group, again=True)  # housekeeping: nobody has to wait for it
            self.disk.sync()
        for _, kept in groups_in(self.disk.content):
            assert kept.members == rows_of(self.group)
            now = (self.group.epoch, self.group.assignment_epoch)
            assert (kept.epoch, kept.assignment_epoch) == now


TestCrashMachine = CrashMachine.TestCase
TestCrashMachine.settings = settings(
    max_examples=50,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_what_a_group_was_before_makes_no_room_and_what_it_is_does_once() -> None:
    sizes = KeptSizes(1_000)
    sizes.put("classic", "g", 300)
    sizes.put("consumer", "g", 500)
    sizes.drop("classic", "g")
    assert sizes.others("") == 500
    for _ in range(2):
        sizes.drop("consumer", "g")
        assert sizes.others("") == 0
    assert sizes.has_room("g", 1_000)
    assert not sizes.has_room("g", 1_001)


def test_what_is_forgotten_while_its_first_event_is_under_way_is_not_written_down() -> None:
    disk = Disk()
    broker = Broker(disk)
    broker.beat(Client(broker.group, "one"))
    forgotten: list[OSError | None] = []
    broker.kept.forget("g", forgotten.append)
    assert not forgotten
    disk.sync()
    assert forgotten == [None]
    assert not broker.kept.names()
    assert broker.sizes.others("") == 0


def test_a_group_that_has_room_again_is_written_down_whole_once() -> None:
    disk, broker, (one,) = started("one")
    size, broker.sizes.size_max = broker.sizes.size_max, 10
    two = Client(broker.group, "two")
    two.join()
    broker.kept.keep(broker.group)
    disk.sync()
    assert (disk.events[-1]["whole"], disk.events[-1]["says"]) == (True, {})
    broker.sizes.size_max = size
    one.heartbeat()
    broker.kept.keep(broker.group)
    disk.sync()
    assert (disk.events[-1]["whole"], set(disk.events[-1]["says"])) == (True, {"one", "two"})
    settle(one, two)
    broker.kept.keep(broker.group)
    assert (disk.events[-1]["whole"], disk.events[-1]["says"]) == (False, {})

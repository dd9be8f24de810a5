"""The state machine of a group of both protocols: one owner at every moment, over its turns too."""

from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from segbroker.broker.groups import classic_members
from segbroker.broker.groups.consumer_group import LARGE_MIN, ConsumerGroup
from segbroker.broker.groups.consumer_members import Beat, every_topic
from segbroker.broker.groups.epochal_group import REST_MS
from segbroker.broker.groups.group import Group
from segbroker.broker.groups.group_members import Joining
from segbroker.broker.groups.group_rounds import OnRecorded
from segbroker.broker.groups.group_turning import downgrade, upgrade
from segbroker.broker.groups.member_epochs import LEAVE
from segbroker.broker.groups.server_assignors import Partition
from segbroker.broker.loop.loop_clock import NEVER_MS
from segbroker.broker.refused import Refused
from segbroker.protocol.consumer_protocol import (
    Subscription,
    assigned_partitions,
    encode_subscription,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.generations import Generation

from .group_topics import topics_of
from .test_consumer_group import REBALANCE_MS, SESSION_MS, Client, group

TOPICS = topics_of(a=5)
RUNS = 60
STEPS = 200
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class Classic:
    """A classic member, which takes one step at a time: joins, syncs, beats."""

    def __init__(self, *, cooperative: bool) -> None:
        self.cooperative = cooperative
        self.says_generation = True
        self.member_id = ""
        self.epoch = -1
        self.reads: frozenset[Partition] = frozenset()
        self.next = "join"

    def joining(self) -> Joining:
        if not self.cooperative:
            self.reads = frozenset()
        owned = tuple(("a", index) for _, index in sorted(self.reads))
        generation = self.epoch if self.says_generation else -1
        metadata = encode_subscription(Subscription(("a",), owned, generation))
        protocols = {"range": metadata}
        times = (SESSION_MS, REBALANCE_MS)
        return Joining(self.member_id, None, "", "", *times, "consumer", protocols, True, True)

    def is_told(self, code: ErrorCode) -> None:
        """Of a sync or a heartbeat."""
        if code in LOST:
            self.reads, self.next = frozenset(), "join"
            self.member_id = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.next = "join"
        else:
            assert code is ErrorCode.NONE

    def has(self, mine: frozenset[Partition]) -> None:
        self.next = "join" if self.reads - mine else "beat"
        self.reads = mine


class Life:
    """Joins, leaves, lost answers and silence of both kinds; the group turns back and again."""

    def __init__(self, random: Random, large_min: int = LARGE_MIN) -> None:
        """large_min: 0 for a group whose targets are a second apart."""
        self.random = random
        self.now_ms = 0
        self.large_min = large_min
        self.group = self.new_group()
        self.numbers = count(1)
        self.classic: list[Classic] = []
        self.clients: list[Client] = []
        self.asked: list[Joining] = []
        self.join_consumer()

    def new_group(self) -> ConsumerGroup:
        made = group()
        made.large_min = self.large_min
        return made

    def live(self, steps: int) -> None:
        """A while at random."""
        does: list[tuple[int, Callable[[], None]]] = [
            (2, self.join_consumer),
            (4, self.join_classic),
            (30, self.beat_consumer),
            (60, self.step_classic),
            (1, self.end_consumer),
            (2, self.end_classic),
            (8, self.late_join),
            (1, self.turn_back_and_again),
            (2, self.wait),
        ]
        for _ in range(steps):
            (do,) = self.random.choices([do for _, do in does], [often for often, _ in does])
            do()
            self.check()

    def new_id(self, prefix: str) -> str:
        return f"c{next(self.numbers)}"

    def heard(self) -> bool:
        """Whether an answer arrives."""
        return self.random.random() < 0.9

    # Members of KIP-848's protocol

    def join_consumer(self) -> None:
        if len(self.clients) < 2:
            client = Client(self.group, f"m{next(self.numbers)}", topics=TOPICS)
            client.join(self.now_ms)
            self.clients.append(client)

    def beat(self, client: Client, *, heard: bool) -> None:
        asked = client.question(full=not heard)
        try:
            told = self.group.heartbeat(self.now_ms, asked, TOPICS)
        except Refused:
            self.clients.remove(client)
            return
        if heard:
            client.said = client.reads if asked.owned is not None else client.said
            client.obey(told)
        else:
            client.said = None

    def beat_consumer(self) -> None:
        if self.clients:
            self.beat(self.random.choice(self.clients), heard=self.heard())

    def end_consumer(self) -> None:
        if len(self.clients) > 1:
            client = self.clients.pop()
            if self.heard() and client.name in self.group.members:
                client.leave(self.now_ms, LEAVE)

    def end_all_consumers(self) -> None:
        while self.clients:
            self.clients.pop().leave(self.now_ms, LEAVE)

    # Classic members

    def join_classic(self) -> None:
        if len(self.classic) < 4:
            self.classic.append(Classic(cooperative=self.random.random() < 0.6))
            self.classic[-1].says_generation = self.random.random() < 0.8

    def step(self, one: Classic, *, heard: bool) -> None:
        match one.next:
            case "join":
                asked = one.joining()
                if one.cooperative and one.member_id:
                    self.asked = [*self.asked[-20:], asked]
                try:
                    joined = classic_members.join(
                        self.group, self.now_ms, asked, self.new_id, TOPICS
                    )
                except Refused as exc:
                    one.is_told(exc.code)
                    return
                if heard and joined.code is ErrorCode.MEMBER_ID_REQUIRED:
                    one.member_id = joined.member_id
                elif heard:
                    one.epoch, one.next = joined.generation, "sync"
            case "sync":
                named = {topic.topic_id.bytes: name for name, topic in TOPICS.items()}
                told = classic_members.sync(
                    self.group, self.now_ms, one.member_id, None, one.epoch, None, None, named.get
                )
                if heard and told.code:
                    one.is_told(told.code)
                elif heard:
                    mine = assigned_partitions(told.assignment)
                    assert mine is not None
                    one.has(classic_members.partitions_of(mine, TOPICS))
            case "beat":
                code = classic_members.heartbeat(
                    self.group, self.now_ms, one.member_id, None, one.epoch, TOPICS
                )
                if heard:
                    one.is_told(code)

    def step_classic(self) -> None:
        if self.classic:
            self.step(self.random.choice(self.classic), heard=self.heard())

    def late_join(self) -> None:
        """A JoinGroup of an earlier generation, on a connection that was lost, comes once more."""
        late = self.random.choice(self.asked) if self.asked else None
        member = None if late is None else self.group.members.get(late.member_id)
        if late is None or member is None:
            return
        said = classic_members.subscription_of(late.protocols, TOPICS)
        assert said is not None
        if said[2] != member.epoch:
            classic_members.join(self.group, self.now_ms, late, self.new_id, TOPICS)

    def end_classic(self) -> None:
        if self.classic:
            one = self.classic.pop(self.random.randrange(len(self.classic)))
            if self.heard():
                self.group.expel(self.now_ms, one.member_id, None)

    # The group

    def turn_back_and_again(self) -> None:
        if not any(member.classic for member in self.group.members.values()):
            return
        for name in [one for one, member in self.group.members.items() if not member.classic]:
            self.group.expel(self.now_ms, name, None)
        self.clients.clear()

        def record(kept: Generation, told: OnRecorded) -> None:
            """Of a rebalance, which does not end here."""

        classic = Group("g", self.new_id, 0, 100, record)
        downgrade(self.now_ms, self.group, classic, TOPICS)
        made = self.new_group()
        upgrade(self.now_ms, classic, made, TOPICS, lambda viewer: every_topic)
        made.given = dict(self.group.given)
        before, self.group = self.group, made
        for name, member in before.members.items():
            assert made.members[name].epoch == member.epoch
        self.join_consumer()

    def wait(self) -> None:
        self.now_ms += self.random.choice([1_000, SESSION_MS // 2])
        self.everybody()
        if self.group.due_ms <= self.now_ms:
            self.group.tick(self.now_ms)
        if not self.group.members:
            self.clients.clear()
            self.join_consumer()

    def everybody(self) -> None:
        for client in tuple(self.clients):
            self.beat(client, heard=True)
        for one in self.classic:
            self.step(one, heard=True)

    def check(self) -> None:
        """One owner of each partition, and who reads it is that."""
        owners: dict[Partition, str] = {}
        for member in self.group.members.values():
            for partition in (*member.assigned, *member.revoking):
                assert partition not in owners, "two members have it"
                owners[partition] = member.member_id
            until_ms = member.session_ends_ms
            if member.acts_until_ms is not None:
                until_ms = min(until_ms, member.acts_until_ms)
            assert self.group.due_ms <= until_ms
        assert owners == self.group.owners
        for name, reads in [
            *((client.name, client.reads) for client in self.clients),
            *((one.member_id, one.reads) for one in self.classic),
        ]:
            if name in self.group.members:
                for partition in reads:
                    assert owners.get(partition) == name

    def end(self) -> None:
        """When all are heard of, everything is read, and by one."""
        self.now_ms += REBALANCE_MS + SESSION_MS
        self.group.tick(self.now_ms)
        self.clients.clear()
        self.join_consumer()
        for _ in range(20):
            self.now_ms += REST_MS
            self.everybody()
            self.check()
        shares = [one.reads for one in self.clients] + [one.reads for one in self.classic]
        reads = [partition for share in shares for partition in share]
        assert sorted(index for _, index in reads) == [0, 1, 2, 3, 4]
        assert self.group.state == "Stable"
        assert {one.next for one in self.classic} <= {"beat"}


def one_and_a_consumer(one: Classic) -> tuple[Life, Joining, Client]:
    """A classic member that reads everything, how it joins, and a consumer that joins then."""
    life = Life(Random(0))
    life.end_all_consumers()
    life.classic.append(one)
    for _ in range(2):
        life.step(one, heard=True)
    early = one.joining()
    while one.next != "beat":
        life.step(one, heard=True)
    assert len(one.reads) == 5
    life.join_consumer()
    return life, early, life.clients[0]


def test_a_join_that_comes_late_gives_away_nothing_that_is_read() -> None:
    one = Classic(cooperative=True)
    life, early, client = one_and_a_consumer(one)
    said = Subscription(("a",), (), -1)
    early = early._replace(protocols={"range": encode_subscription(said)})
    for _ in range(3):
        classic_members.join(life.group, life.now_ms, early, life.new_id, TOPICS)
        life.beat(client, heard=True)
        life.check()
        assert not client.reads
    for _ in range(8):
        life.everybody()
        life.check()
    assert sorted(len(reads) for reads in (one.reads, client.reads)) == [2, 3]


def test_who_never_says_a_generation_lets_go_all_the_same() -> None:
    """librdkafka says -1 with assignors that give up everything."""
    one = Classic(cooperative=False)
    one.says_generation = False
    life, _, client = one_and_a_consumer(one)
    for _ in range(12):
        life.everybody()
        life.check()
    assert sorted(len(reads) for reads in (one.reads, client.reads)) == [2, 3]
    assert life.group.state == "Stable"


def test_a_step_begins_when_a_member_is_told_of_it_however_late_it_is_heard_of() -> None:
    """The broker stood still, and its client has ended the connection of the heartbeat since."""
    one = Classic(cooperative=True)
    life, _, _ = one_and_a_consumer(one)
    later = 2 * REBALANCE_MS
    told = classic_members.heartbeat(
        life.group, later, one.member_id, None, one.epoch, TOPICS, said_ms=0
    )
    assert told is ErrorCode.REBALANCE_IN_PROGRESS
    member = life.group.members[one.member_id]
    assert member.session_ends_ms == SESSION_MS
    assert member.acts_until_ms == later + REBALANCE_MS


def test_an_id_is_given_before_what_a_member_says_is_read() -> None:
    """Kafka's own tests ask for an id with no words at all; who has one must be a consumer."""
    now = group()
    Client(now, "consumer", topics=TOPICS).join()
    times = (SESSION_MS, REBALANCE_MS)
    asked = Joining("", None, "", "", *times, "consumer", {"range": b""}, True, True)
    given = classic_members.join(now, 0, asked, lambda _: "c1", TOPICS)
    assert (given.code, given.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c1")
    with pytest.raises(Refused):
        classic_members.join(now, 0, asked._replace(member_id="c1"), lambda _: "c2", TOPICS)


def test_a_static_member_is_known_by_its_id_alone() -> None:
    now = group()
    Client(now, "consumer", topics=TOPICS).join()
    metadata = encode_subscription(Subscription(("a",), (), -1))
    protocols = {"range": metadata}
    times = (SESSION_MS, REBALANCE_MS)
    joining = Joining("", "i", "", "", *times, "consumer", protocols, True, True)
    joined = classic_members.join(now, 0, joining, lambda _: "c1", TOPICS)

    def beats(instance: str | None, generation: int) -> ErrorCode:
        return classic_members.heartbeat(now, 0, "c1", instance, generation, TOPICS)

    assert beats(None, joined.generation) is beats("i", joined.generation)
    assert beats(None, joined.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert beats("other", joined.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_classic_member_that_begins_anew_has_let_go_of_what_it_was_to_let_go_of() -> None:
    now = group()
    times = (SESSION_MS, REBALANCE_MS)

    def joins(member_id: str, becomes: str, generation: int, *owned: int) -> int:
        rows = tuple(("a", index) for index in owned)
        metadata = encode_subscription(Subscription(("a",), rows, generation))
        said = Joining(member_id, "i", "", "", *times, "consumer", {"range": metadata}, True, True)
        return classic_members.join(now, 0, said, lambda _: becomes, TOPICS).generation

    def syncs(member_id: str, generation: int) -> None:
        synced = classic_members.sync(now, 0, member_id, "i", generation, None, None, lambda _: "a")
        assert synced.code is ErrorCode.NONE
        now.was_told(0, member_id, frozenset(now.members[member_id].assigned))

    generation = joins("", "c1", -1)
    syncs("c1", generation)
    client = Client(now, "consumer", topics=TOPICS)
    client.join()
    generation = joins("c1", "", generation, *range(5))
    syncs("c1", generation)
    client.heartbeat()
    assert not client.reads
    assert joins("", "c2", -1) > 0
    client.heartbeat()
    assert len(client.reads) == 2
    assert {*now.owners.values()} == {"consumer", "c2"}


def test_a_classic_member_does_not_beat_by_the_other_protocol() -> None:
    now = group()
    Client(now, "consumer", topics=TOPICS).join()
    metadata = encode_subscription(Subscription(("a",), (), -1))
    times = (SESSION_MS, REBALANCE_MS)
    joining = Joining("", "i", "", "", *times, "consumer", {"range": metadata}, True, True)
    joined = classic_members.join(now, 0, joining, lambda _: "c1", TOPICS)
    with pytest.raises(Refused) as caught:
        now.heartbeat(0, Beat("c1", joined.generation), TOPICS)
    assert caught.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert not now.knows_epochs("c1")
    assert now.check_commit("c1", joined.generation + 1) is ErrorCode.ILLEGAL_GENERATION


def test_a_classic_member_of_a_large_group_waits_for_no_target() -> None:
    some = group()
    some.large_min = 0
    Client(some, "one", topics=TOPICS).join()
    Client(some, "two", topics=TOPICS).join()
    assert some.state == "Assigning", "until a second has passed"
    asked = Classic(cooperative=True).joining()._replace(instance_id="i")
    joined = classic_members.join(some, 0, asked, lambda _: "c1", TOPICS)
    assert joined.generation == some.assignment_epoch == some.epoch
    assert some.target.of("c1")


def test_an_id_that_was_given_is_waited_for_until_its_session_is_over_or_it_leaves() -> None:
    now = group()
    Client(now, "consumer", topics=TOPICS).join()
    numbers = count(1)
    for session_ms in (1_000, 2_000, 3_000):
        asked = Joining("", None, "", "", session_ms, 1_000, "consumer", {"range": b""}, True, True)
        classic_members.join(now, 0, asked, lambda _: f"c{next(numbers)}", TOPICS)
    assert now.expel(0, "c2", None) is ErrorCode.NONE
    now.tick(999)
    assert (set(now.given), now.due_ms) == ({"c1", "c3"}, 1_000)
    now.tick(1_000)
    assert (set(now.given), now.due_ms) == ({"c3"}, 3_000)
    now.tick(3_000)
    assert (set(now.given), now.due_ms) == (set(), SESSION_MS)
    assert now.expel(3_000, "c3", None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_has_the_session_that_it_asked_for() -> None:
    now = group()
    client = Client(now, "consumer", topics=TOPICS)
    client.join()
    metadata = encode_subscription(Subscription(("a",), (), -1))
    said = Joining("", "i", "", "", 1_000, 9_000, "consumer", {"range": metadata}, True, True)
    joined = classic_members.join(now, 0, said, lambda _: "c1", TOPICS)
    assert now.due_ms == 1_000
    classic_members.heartbeat(now, 500, "c1", "i", joined.generation, TOPICS)
    now.tick(1_499)
    assert "c1" in now.members
    now.tick(1_500)
    assert set(now.members) == {"consumer"}
    now.tick(SESSION_MS)
    assert (now.is_idle, now.empty_since_ms, now.due_ms) == (True, SESSION_MS, NEVER_MS)


def test_an_instance_is_expelled_by_the_id_that_it_has() -> None:
    now = group()
    Client(now, "one", instance="i", topics=TOPICS).join()
    assert now.expel(0, "other", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert now.expel(0, "one", "j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert now.expel(0, "one", "i") is ErrorCode.NONE
    assert now.is_idle


def test_what_a_member_has_said_long_ago_takes_nothing_of_its_session() -> None:
    now = group()
    Client(now, "consumer", topics=TOPICS).join()
    metadata = encode_subscription(Subscription(("a",), (), -1))
    said = Joining("", "i", "", "", 1_000, 9_000, "consumer", {"range": metadata}, True, True)
    joined = classic_members.join(now, 0, said, lambda _: "c1", TOPICS)
    for said_ms in (900, 100):
        classic_members.heartbeat(now, 950, "c1", "i", joined.generation, TOPICS, said_ms=said_ms)
        assert now.members["c1"].session_ends_ms == 1_900


def test_partitions_that_there_cannot_be_are_left_out() -> None:
    rows = [("a", -1), ("a", 5), ("b", 0), ("a", 4)]
    assert classic_members.partitions_of(rows, TOPICS) == {(TOPICS["a"].topic_id.bytes, 4)}


@pytest.mark.parametrize("large_min", [LARGE_MIN, 0], ids=["small", "large"])
def test_members_of_both_protocols_have_one_owner_of_each_partition_over_turns_too(
    large_min: int,
) -> None:
    for _ in range(RUNS):
        seed = Random().randrange(1 << 32)
        print(f"seed {seed}")
        life = Life(Random(seed), large_min)
        life.live(STEPS)
        life.end()

"""The state machine of one share group, and who of it reads which partition."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from segbroker.broker.groups import share_group
from segbroker.broker.groups.consumer_members import Beat, Told
from segbroker.broker.groups.epochal_group import REST_MS
from segbroker.broker.groups.member_epochs import JOIN, LEAVE
from segbroker.broker.groups.server_assignors import Assignment, Partition, Subscriber, TopicId
from segbroker.broker.groups.share_assignor import simple
from segbroker.broker.groups.share_group import ShareGroup
from segbroker.broker.loop.loop_clock import NEVER_MS
from segbroker.broker.refused import Refused
from segbroker.protocol.errors import ErrorCode

from .group_topics import Topic, topics_of

SESSION_MS = 45_000


TOPICS = topics_of(a=3, b=2)


def parts(name: str, *indexes: int) -> tuple[Partition, ...]:
    return tuple((name.encode() * 16, index) for index in indexes)


def group(size_max: int = 100) -> ShareGroup:
    return ShareGroup("g", SESSION_MS, size_max)


def joining(name: str, *names: str) -> Beat:
    return Beat(name, JOIN, names=frozenset(names or ("a",)))


def join(some: ShareGroup, name: str, *names: str, now_ms: int = 0) -> Told:
    return some.heartbeat(now_ms, joining(name, *names), TOPICS)


def beat(some: ShareGroup, name: str, epoch: int, now_ms: int = 0) -> Told:
    return some.heartbeat(now_ms, Beat(name, epoch), TOPICS)


def refused(some: ShareGroup, said: Beat) -> int:
    with pytest.raises(Refused) as caught:
        some.heartbeat(0, said, TOPICS)
    return caught.value.code


def test_a_member_joins_and_is_told_what_it_reads_once() -> None:
    some = group()
    assert some.state == "Empty"
    assert join(some, "m") == Told("m", 2, parts("a", 0, 1, 2))
    assert some.state == "Stable"
    assert beat(some, "m", 2) == Told("m", 2, None)


def test_a_member_learns_of_the_others_with_its_next_heartbeat() -> None:
    some = group()
    join(some, "m")
    other = join(some, "n")
    assert other.assignment is not None
    assert (other.epoch, len(other.assignment)) == (3, 1)
    told = beat(some, "m", 2)
    assert told.assignment is not None
    assert (told.epoch, len(told.assignment)) == (3, 2)
    assert sorted(told.assignment + other.assignment) == [*parts("a", 0, 1, 2)]
    assert beat(some, "n", 3) == Told("n", 3, None)


def test_members_share_partitions_where_there_are_more_of_them() -> None:
    some = group()
    for name in "klmno":
        join(some, name, "b")
    told = [beat(some, name, member.epoch) for name, member in some.members.items()]
    assert {one.epoch for one in told} == {6}
    read = Counter(p for one in some.members.values() for p in one.assigned)
    assert set(read) == {*parts("b", 0, 1)}
    assert all(count <= 3 for count in read.values())
    assert all(one.assigned for one in some.members.values())


def test_who_joins_again_keeps_its_place_and_is_told_everything() -> None:
    some = group()
    first = join(some, "m")
    assert join(some, "m") == first
    assert (len(some.members), some.epoch) == (1, 2)


def test_a_lost_answer_is_given_again() -> None:
    some = group()
    join(some, "m")
    join(some, "n")
    lost = beat(some, "m", 2)
    assert lost.assignment is not None
    assert beat(some, "m", 2) == lost


def test_who_says_what_it_is_subscribed_to_is_told_everything() -> None:
    some = group()
    first = join(some, "m")
    again = some.heartbeat(0, Beat("m", 2, names=frozenset({"a"})), TOPICS)
    assert again == first


def test_another_subscription_is_another_epoch() -> None:
    some = group()
    join(some, "m")
    told = some.heartbeat(0, Beat("m", 2, names=frozenset({"b"})), TOPICS)
    assert told == Told("m", 3, parts("b", 0, 1))
    assert some.heartbeat(0, Beat("m", 3, names=frozenset()), TOPICS) == Told("m", 4, ())


def test_topics_that_come_grow_and_go_change_what_is_read() -> None:
    some = group()
    told = some.heartbeat(0, joining("m", "a", "n"), TOPICS)
    assert told.assignment == parts("a", 0, 1, 2)
    told = some.heartbeat(0, Beat("m", 2), topics_of(a=3, n=1))
    assert told == Told("m", 3, (*parts("a", 0, 1, 2), *parts("n", 0)))
    assert some.heartbeat(0, Beat("m", 3), topics_of(a=4)) == Told("m", 4, parts("a", 0, 1, 2, 3))
    assert some.heartbeat(0, Beat("m", 4), {}) == Told("m", 5, ())


class Looked(dict[str, Topic]):
    """Topics that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, name: str) -> Topic:
        self.looks += 1
        return super().__getitem__(name)


def test_who_comes_or_leaves_and_subscribes_as_others_do_costs_no_look_at_the_topics() -> None:
    some, topics = group(), Looked(TOPICS)
    for number in range(10):
        some.heartbeat(0, joining(f"m{number}", "a", "b"), topics)
        assert topics.looks == 4, "to count their partitions, and for the target"
    some.heartbeat(0, Beat("m7", LEAVE), topics)
    told = some.heartbeat(0, joining("m5", "a"), topics)
    assert topics.looks == 4 + 2 + 3, "of who subscribes to something else"
    assert told.assignment is not None
    assert {topic for topic, _ in told.assignment} == {b"a" * 16}
    more = Looked(topics_of(a=3, b=2, c=1))
    some.heartbeat(0, Beat("m1", some.members["m1"].epoch), more)
    assert more.looks == 2, "the same partitions: no other target"


def test_topics_that_nobody_reads_change_nothing() -> None:
    some = group()
    join(some, "m")
    assert some.heartbeat(0, Beat("m", 2), topics_of(a=3, b=9, c=1)) == Told("m", 2, None)
    assert some.epoch == 2


def test_who_is_at_another_epoch_is_fenced() -> None:
    some = group()
    join(some, "m")
    for name in "nop":
        join(some, name)
    assert beat(some, "m", 2).epoch == 5
    assert refused(some, Beat("m", 1)) == ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(some, Beat("m", 6)) == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(some, "m", 2).epoch == 5
    join(some, "q")
    assert beat(some, "m", 5).epoch == 6
    assert refused(some, Beat("m", 2)) == ErrorCode.FENCED_MEMBER_EPOCH, "it has been told since"


def test_a_member_is_at_the_epoch_that_it_was_told_last_however_many_answers_are_lost() -> None:
    some = group()
    join(some, "m")
    for number, name in enumerate("nop"):
        join(some, name)
        assert beat(some, "m", 2).epoch == 3 + number


def test_who_is_no_member_is_told_so() -> None:
    some = group()
    assert refused(some, Beat("m", 2)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(some, Beat("m", LEAVE)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_one_too_many_is_refused_and_those_who_are_in_stay() -> None:
    some = group(size_max=1)
    join(some, "m")
    assert refused(some, joining("n")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(some, "m").epoch == 2


def test_who_leaves_leaves_its_partitions_to_the_others() -> None:
    some = group()
    join(some, "m")
    join(some, "n", "a", "b")
    assert some.heartbeat(7, Beat("m", LEAVE), TOPICS) == Told("m", LEAVE, None)
    told = beat(some, "n", 3)
    assert told == Told("n", 4, (*parts("a", 0, 1, 2), *parts("b", 0, 1)))
    some.heartbeat(9, Beat("n", LEAVE), TOPICS)
    assert (some.state, some.is_idle, some.empty_since_ms) == ("Empty", True, 9)
    assert join(some, "m").epoch == 6


def test_a_topic_of_a_member_that_left_is_no_epoch_of_its_own() -> None:
    some = group()
    join(some, "m")
    join(some, "n", "b")
    some.heartbeat(0, Beat("n", LEAVE), TOPICS)
    assert beat(some, "m", 2).epoch == some.epoch == 4


def test_who_is_not_heard_of_for_a_session_is_dropped() -> None:
    some = group()
    join(some, "m", now_ms=0)
    join(some, "n", now_ms=10)
    assert some.due_ms == SESSION_MS
    beat(some, "m", 2, now_ms=20)
    some.tick(SESSION_MS)
    assert set(some.members) == {"m", "n"}
    assert some.due_ms == SESSION_MS + 10
    some.tick(SESSION_MS + 10)
    assert set(some.members) == {"m"}
    some.tick(SESSION_MS + 20)
    assert (some.is_idle, some.due_ms) == (True, NEVER_MS)


# The assignor


def subscribers(**topics: str) -> list[Subscriber]:
    return [
        Subscriber(name, name, frozenset(one.encode() * 16 for one in read))
        for name, read in topics.items()
    ]


def counts_of(**counts: int) -> dict[bytes, int]:
    return {name.encode() * 16: n for name, n in counts.items()}


def test_partitions_are_dealt_out_evenly() -> None:
    found = simple(subscribers(x="ab", y="ab"), counts_of(a=3, b=2), {})
    assert sorted(len(mine) for mine in found.values()) == [2, 3]
    assert sorted(p for mine in found.values() for p in mine) == [
        *parts("a", 0, 1, 2),
        *parts("b", 0, 1),
    ]


def test_who_had_a_partition_keeps_it() -> None:
    before = {"x": parts("a", 1, 3), "y": parts("a", 0, 2)}
    assert simple(subscribers(x="a", y="a"), counts_of(a=4), before) == before
    found = simple(subscribers(x="a", y="a", z="a"), counts_of(a=4), before)
    assert all(set(found[name]) <= set(before[name]) for name in before)
    assert len(found["z"]) == 1


def test_who_has_most_keeps_it_where_the_numbers_cannot_be_the_same() -> None:
    before = {"x": parts("a", 0, 1), "y": parts("a", 2, 3, 4)}
    assert simple(subscribers(x="a", y="a"), counts_of(a=5), before) == before


def test_who_had_a_partition_keeps_it_also_beside_others_who_read_other_topics() -> None:
    before = {"x": parts("a", 1, 3), "y": (*parts("a", 0, 2), *parts("b", 0))}
    assert simple(subscribers(x="a", y="ab"), counts_of(a=4, b=1), before) == before


def test_who_has_a_partition_already_leaves_its_second_place_to_others() -> None:
    found = simple(subscribers(x="a", y="a", z="a"), counts_of(a=2), {"x": parts("a", 0)})
    assert Counter(p for mine in found.values() for p in mine) == dict.fromkeys(parts("a", 0, 1), 2)


def test_members_with_other_subscriptions_read_those_topics_alone() -> None:
    found = simple(subscribers(x="a", y="b", z="ab"), counts_of(a=2, b=1), {})
    assert {p[0] for p in found["x"]} == {b"a" * 16}
    assert found["y"] == parts("b", 0)
    assert parts("b", 0)[0] in found["z"]  # one partition, two readers: they share it


def test_many_members_of_many_topics_share_no_more_than_they_have_to() -> None:
    counts = {index.to_bytes(16, "big"): 2 for index in range(100)}
    topics = sorted(counts)
    some = [Subscriber(f"m{n}", f"m{n}", frozenset(topics[n % 2 :])) for n in range(300)]
    found = simple(some, counts, {})
    read = Counter(p for mine in found.values() for p in mine)
    assert set(read) == {(topic, index) for topic in topics for index in (0, 1)}
    assert all(found[one.member_id] for one in some)
    assert sum(read.values()) <= 300 + 200
    for one in some:
        assert all(topic in one.topics for topic, _ in found[one.member_id])


def test_nothing_to_read_and_nobody_to_read_it() -> None:
    assert simple([], counts_of(a=1), {}) == {}
    assert simple(subscribers(x="a"), {}, {"x": parts("a", 0)}) == {"x": ()}
    assert simple(subscribers(x="a", y=""), {}, {}) == {"x": (), "y": ()}
    found = simple(subscribers(x="a", y=""), counts_of(a=1, b=1), {})
    assert found == {"x": parts("a", 0), "y": ()}


@settings(max_examples=300)
@given(
    members=st.integers(1, 30),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_each_partition_has_a_member_and_each_member_a_partition(
    members: int, sizes: list[int], seed: int
) -> None:
    random = Random(seed)
    counts = counts_of(**dict(zip("abc", sizes, strict=False)))
    wanted = [(topic, index) for topic, n in counts.items() for index in range(n)]
    some = subscribers(**{f"m{n}": "abc"[: len(sizes)] for n in range(members)})
    previous = {
        one.member_id: tuple(sorted(random.sample(wanted, random.randint(0, len(wanted)))))
        for one in some
        if random.random() < 0.8
    }
    found = simple(some, counts, previous)
    read = Counter(p for mine in found.values() for p in mine)
    sharing = -(-members // len(wanted))
    assert set(read) == set(wanted)
    assert max(read.values()) <= sharing
    assert all(len(set(mine)) == len(mine) >= 1 for mine in found.values())
    assert max(map(len, found.values())) <= -(-sharing * len(wanted) // members)
    again = simple(some, counts, found)  # nobody moves for nothing
    assert all(set(mine) <= set(again[name]) for name, mine in found.items())


@dataclass
class Client:
    """What a client knows."""

    name: str
    names: frozenset[str]
    epoch: int = 0
    reads: frozenset[Partition] = frozenset()
    heard_ms: int = 0
    says_all: bool = field(default=True)


class Machine(RuleBasedStateMachine):
    """Members that come, go, are silent and lose answers; topics that come, grow and go."""

    def __init__(self) -> None:
        super().__init__()
        self.group = group(size_max=6)
        self.now_ms = 0
        self.topics = dict(TOPICS)
        self.clients: dict[str, Client] = {}
        self.epoch = 0

    def _ask(self, client: Client, *, is_lost: bool) -> None:
        names = client.names if client.says_all or not client.epoch else None
        said = Beat(client.name, client.epoch, names=names)
        try:
            told = self.group.heartbeat(self.now_ms, said, self.topics)
        except Refused as exc:
            if exc.code == ErrorCode.GROUP_MAX_SIZE_REACHED:
                assert len(self.group.members) == 6
                del self.clients[client.name]
                return
            if exc.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                raise
            client.epoch, client.reads, client.says_all = 0, frozenset(), True
            return
        client.heard_ms = self.now_ms
        if is_lost:
            return
        client.epoch, client.says_all = told.epoch, False
        if told.assignment is not None:
            client.reads = frozenset(told.assignment)

    @rule(name=st.sampled_from("klmnopqr"), names=st.sets(st.sampled_from("abc"), min_size=1))
    def join(self, name: str, names: set[str]) -> None:
        if name not in self.clients:
            self.clients[name] = Client(name, frozenset(names))
            self._ask(self.clients[name], is_lost=False)

    @rule(data=st.data(), is_lost=st.booleans())
    def beat(self, data: st.DataObject, *, is_lost: bool) -> None:
        if self.clients:
            name = data.draw(st.sampled_from(sorted(self.clients)))
            self._ask(self.clients[name], is_lost=is_lost)

    @rule(data=st.data(), names=st.sets(st.sampled_from("abc"), min_size=1))
    def resubscribe(self, data: st.DataObject, names: set[str]) -> None:
        if self.clients:
            client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
            client.names, client.says_all = frozenset(names), True
            self._ask(client, is_lost=False)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.clients:
            name = data.draw(st.sampled_from(sorted(self.clients)))
            del self.clients[name]
            if name in self.group.members:
                self.group.heartbeat(self.now_ms, Beat(name, LEAVE), self.topics)

    @rule(ms=st.integers(1, SESSION_MS))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        if self.group.due_ms <= self.now_ms:
            self.group.tick(self.now_ms)
        for member in self.group.members.values():
            assert self.now_ms < member.session_ends_ms <= self.now_ms + SESSION_MS

    @rule(name=st.sampled_from("abc"), partitions=st.integers(0, 5))
    def change_topic(self, name: str, partitions: int) -> None:
        left = {one: topic for one, topic in self.topics.items() if one != name}
        self.topics = left | (topics_of(**{name: partitions}) if partitions else {})

    @rule()
    def settle(self) -> None:
        """Everybody is heard of, twice: all read, and what is to be read is read."""
        for _ in range(2):
            for client in tuple(self.clients.values()):
                self._ask(client, is_lost=False)
        for _ in range(2):
            for client in tuple(self.clients.values()):
                self._ask(client, is_lost=False)
        members = [one for name, one in self.clients.items() if name in self.group.members]
        for client in members:
            assert client.epoch == self.group.members[client.name].epoch
            assert client.reads == frozenset(self.group.members[client.name].assigned)
        if set(self.group.members) != {one.name for one in members}:
            return  # somebody went without a word, and its session is not over
        names = {name for one in members for name in one.names if name in self.topics}
        wanted = {p for name in names for p in parts(name, *range(self.topics[name].partitions))}
        assert {p for one in members for p in one.reads} == wanted

    @invariant()
    def epochs_only_rise(self) -> None:
        assert self.epoch <= self.group.epoch
        assert self.group.assignment_epoch <= self.group.epoch
        self.epoch = self.group.epoch

    @invariant()
    def nobody_reads_what_it_is_not_subscribed_to(self) -> None:
        for client in self.clients.values():
            member = self.group.members.get(client.name)
            if member is not None and member.names == client.names:
                assert all(p[0][:1].decode() in client.names for p in member.assigned)

    @invariant()
    def the_alarm_is_never_late(self) -> None:
        ends = [one.session_ends_ms for one in self.group.members.values()]
        assert self.group.due_ms <= min(ends, default=NEVER_MS)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_targets_of_a_large_group_are_a_second_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand members that joined one after the other took 3 s of the loop."""
    made: list[int] = []

    def counted(
        subscribers: Sequence[Subscriber],
        counts: Mapping[TopicId, int],
        previous: Mapping[str, tuple[Partition, ...]],
    ) -> Assignment:
        made.append(len(subscribers))
        return simple(subscribers, counts, previous)

    monkeypatch.setattr(share_group, "simple", counted)
    many, some = topics_of(a=10_000), group(size_max=200)
    told = [some.heartbeat(REST_MS - 1, joining(f"m-{n}"), many) for n in range(200)]
    assert all(one.epoch > 0 for one in told)
    assert made[-1] < 30, "of 25 and ten thousand partitions they are dealt out at once"
    before = len(made)
    for now_ms in (REST_MS, 2 * REST_MS - 1, 2 * REST_MS, 2 * REST_MS + 1):
        for member in tuple(some.members.values()):
            some.heartbeat(now_ms, Beat(member.member_id, member.epoch), many)
    assert made[before:] == [200]
    assert {len(one.assigned) for one in some.members.values()} == {50}


def test_a_large_group_that_everybody_left_is_dealt_out_at_once() -> None:
    some = ShareGroup("g", SESSION_MS, 100, large_min=0)
    join(some, "m")
    assert join(some, "n").assignment == ()
    for name in "mn":
        some.heartbeat(1, Beat(name, LEAVE), TOPICS)
    assert join(some, "o", now_ms=1).assignment == parts("a", 0, 1, 2)

"""The state machine of one KIP-848 group: epochs, step by step reconciliation, fencing, time."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from segbroker.broker.groups import topic_expressions
from segbroker.broker.groups.consumer_group import LARGE_MIN, ConsumerGroup
from segbroker.broker.groups.consumer_members import (
    Beat,
    ConsumerMember,
    Sight,
    Told,
    every_topic,
)
from segbroker.broker.groups.epochal_group import REST_MS
from segbroker.broker.groups.member_epochs import JOIN, LEAVE, LEAVE_FOR_A_WHILE
from segbroker.broker.groups.server_assignors import (
    ASSIGNORS,
    Assignment,
    Partition,
    Subscriber,
    uniform,
)
from segbroker.broker.groups.topic_expressions import PATTERNS_MAX, Expressions
from segbroker.broker.loop.loop_clock import NEVER_MS
from segbroker.broker.refused import Refused
from segbroker.protocol.errors import ErrorCode

from ..support.counted import CountedBytes, CountedName
from .group_topics import Topic, topics_of

SESSION_MS = 45_000
REBALANCE_MS = 60_000


TOPICS = topics_of(a=4, b=2)


def part(name: str, *indexes: int) -> frozenset[Partition]:
    return frozenset((name.encode() * 16, index) for index in indexes)


def group(size_max: int = 100) -> ConsumerGroup:
    return ConsumerGroup("g", SESSION_MS, size_max)


def answered(some: ConsumerGroup, now_ms: int, beat: Beat, topics: dict[str, Topic]) -> Told:
    """A heartbeat whose answer leaves at once."""
    told = some.heartbeat(now_ms, beat, topics)
    some.was_told(now_ms, told.member_id, told.assignment)
    return told


class Client:
    """A member as the broker sees it: it does at once what it is told."""

    def __init__(
        self,
        group: ConsumerGroup,
        name: str,
        *names: str,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        topics: dict[str, Topic] | None = None,
    ) -> None:
        self.group = group
        self.topics = TOPICS if topics is None else topics
        self.epoch = 0
        self.reads: frozenset[Partition] = frozenset()
        self.said: frozenset[Partition] | None = None
        self.beat = Beat(
            name,
            JOIN,
            instance,
            rebalance_timeout_ms=REBALANCE_MS,
            names=frozenset(names or ("a",)),
            regex=regex,
            assignor=assignor,
        )

    @property
    def name(self) -> str:
        return self.beat.member_id

    def join(self, now_ms: int = 0) -> Told:
        self.reads = frozenset()
        asked = self.beat._replace(epoch=JOIN, owned=frozenset())
        return self.obey(answered(self.group, now_ms, asked, self.topics))

    def question(self, *, full: bool = False) -> Beat:
        """What its next heartbeat says."""
        if full:
            return self.beat._replace(epoch=self.epoch, owned=self.reads)
        owned = None if self.reads == self.said else self.reads
        return Beat(self.name, self.epoch, self.beat.instance_id, owned=owned)

    def heartbeat(self, now_ms: int = 0, *, full: bool = False) -> Told:
        asked = self.question(full=full)
        told = answered(self.group, now_ms, asked, self.topics)
        self.said = self.reads if asked.owned is not None else self.said
        return self.obey(told)

    def obey(self, told: Told) -> Told:
        self.epoch = told.epoch
        if told.assignment is not None:
            self.reads = frozenset(told.assignment)
        return told

    def leave(self, now_ms: int = 0, epoch: int = LEAVE) -> None:
        self.group.heartbeat(now_ms, Beat(self.name, epoch, self.beat.instance_id), self.topics)


def settle(*clients: Client, now_ms: int = 0) -> None:
    """Heartbeats until nothing changes."""
    for _ in range(6):
        for client in clients:
            client.heartbeat(now_ms)


def refusal(work: object, *args: object, **options: object) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        work(*args, **options)  # type: ignore[operator]
    return caught.value.code


def test_the_first_member_reads_everything_at_once() -> None:
    one = Client(group(), "one")
    told = one.join()
    assert one.reads == part("a", 0, 1, 2, 3)
    assert told.epoch == one.group.epoch == one.group.assignment_epoch > 0
    assert one.group.state == "Stable"


def test_a_second_member_gets_what_the_first_has_let_go_of_and_the_rest_is_read_on() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    assert two.reads == frozenset(), "nobody has let go of anything"
    assert shared.state == "Reconciling"
    kept = frozenset(one.heartbeat().assignment or ())
    assert len(kept) == 2
    two.heartbeat()
    assert two.reads == frozenset(), "one has not said that it did"
    one.heartbeat()
    two.heartbeat()
    assert two.reads == part("a", 0, 1, 2, 3) - kept
    assert shared.state == "Stable"


def test_a_heartbeat_with_nothing_new_is_answered_without_an_assignment() -> None:
    one = Client(group(), "one")
    one.join()
    assert one.heartbeat().assignment is None
    assert frozenset(one.heartbeat(full=True).assignment or ()) == one.reads


def test_a_member_that_leaves_is_read_for_by_the_others() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    settle(one, two)
    two.leave()
    assert shared.state == "Assigning"
    settle(one)
    assert one.reads == part("a", 0, 1, 2, 3)
    one.leave()
    assert (shared.state, shared.is_idle, shared.owners) == ("Empty", True, {})


def test_who_was_not_heard_of_for_a_session_is_dropped() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    settle(one, two)
    one.heartbeat(SESSION_MS // 2)
    assert shared.due_ms <= SESSION_MS
    shared.tick(SESSION_MS)
    assert list(shared.members) == ["one"]
    assert refusal(two.heartbeat) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shared.check_commit("two", two.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_let_go_in_time_is_dropped_though_it_is_heard_of() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    one.heartbeat()
    holding = part("a", 0, 1, 2, 3)
    for now_ms in range(0, REBALANCE_MS, 10_000):
        shared.heartbeat(now_ms, Beat("one", one.epoch, owned=holding), TOPICS)
        two.heartbeat(now_ms)
        assert not two.reads
    shared.tick(REBALANCE_MS)
    two.heartbeat(REBALANCE_MS)
    assert two.reads == holding


def test_who_has_let_go_by_a_connection_that_it_gave_up_is_not_dropped_for_it() -> None:
    """The broker stood still: it reads that connection behind the one that came after it."""
    shared = group()
    slow, other = Client(shared, "slow"), Client(shared, "other")
    slow.join()
    other.join()
    slow.heartbeat()  # told to let go
    let_go = slow.question()
    shared.heartbeat(40_000, Beat("slow", slow.epoch), TOPICS)
    shared.heartbeat(30_000, let_go, TOPICS)
    other.heartbeat(40_000)
    shared.tick(REBALANCE_MS)
    assert set(shared.members) == {"slow", "other"}


def test_an_epoch_is_one_more_with_each_who_joins() -> None:
    shared = group()
    assert Client(shared, "one").join().epoch == 1
    assert Client(shared, "two").join().epoch == 2


def test_an_older_or_newer_epoch_is_fenced_everywhere() -> None:
    shared = group()
    one, two, gone = Client(shared, "one"), Client(shared, "two"), Client(shared, "gone")
    gone.join()
    gone.leave()
    one.join()
    old = one.epoch
    two.join()
    settle(one, two)
    for epoch in (old - 1, one.epoch + 1):
        assert (
            refusal(shared.heartbeat, 0, Beat("one", epoch), TOPICS)
            is ErrorCode.FENCED_MEMBER_EPOCH
        )
        assert shared.check_commit("one", epoch) is ErrorCode.STALE_MEMBER_EPOCH
        assert shared.check_fetch("one", epoch) is ErrorCode.STALE_MEMBER_EPOCH
        assert not any(shared.may_commit_late("one", epoch, every) for every in part("a", 0, 3))
    assert shared.check_commit("one", one.epoch) is ErrorCode.NONE
    assert shared.check_fetch("one", one.epoch) is ErrorCode.NONE
    assert shared.check_fetch(None, -1) is ErrorCode.NONE, "a tool may look"


def test_a_commit_that_is_late_is_taken_of_what_was_read_then_and_is_still() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    first = one.epoch
    two.join()
    one.heartbeat()  # is to let go of two
    let_go = part("a", 0, 1, 2, 3) - one.reads
    assert all(shared.may_commit_late("one", first, each) for each in one.reads | let_go)
    settle(one, two)
    second = one.epoch
    assert second > first
    assert shared.check_commit("one", first) is ErrorCode.STALE_MEMBER_EPOCH
    assert all(shared.may_commit_late("one", first, each) for each in one.reads)
    assert not any(shared.may_commit_late("one", first, each) for each in two.reads), "two has them"
    assert not any(shared.may_commit_late("two", first, each) for each in two.reads), "was not here"
    assert not any(shared.may_commit_late("x", first, each) for each in one.reads), "is nobody"
    kept = one.reads
    two.leave()
    settle(one)
    assert one.reads == kept | let_go
    for epoch in (first, second):
        assert all(shared.may_commit_late("one", epoch, each) for each in kept)
        assert not any(shared.may_commit_late("one", epoch, each) for each in let_go), "two had it"
    assert not any(shared.may_commit_late("one", one.epoch + 1, each) for each in one.reads)


def test_the_epoch_before_is_taken_from_who_lost_the_answer() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    one.heartbeat()
    asked = one.question()
    shared.heartbeat(0, asked, TOPICS)  # moves to the next epoch, and the answer is lost
    assert shared.members["one"].epoch > one.epoch
    told = one.heartbeat(full=True)
    assert told.epoch == shared.members["one"].epoch
    assert told.assignment is not None


def test_a_member_is_at_the_epoch_that_it_was_told_last_however_many_answers_are_lost() -> None:
    shared = group()
    one = Client(shared, "one")
    one.join()
    one.heartbeat()
    for name in ("two", "three", "four"):
        Client(shared, name, "b").join()
        shared.heartbeat(0, one.question(full=True), TOPICS)  # and the answer is lost
        assert shared.members["one"].epoch == shared.epoch
    kept = one.reads
    told = one.heartbeat(full=True)
    assert (told.epoch, one.reads) == (shared.epoch, kept)
    Client(shared, "five", "b").join()
    one.heartbeat(full=True)
    for epoch in (told.epoch - 1, one.epoch + 1):
        with pytest.raises(Refused) as refused:
            shared.heartbeat(0, one.question(full=True)._replace(epoch=epoch), TOPICS)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH, "it has been told since"


def test_who_repeats_itself_word_for_word_is_told_what_it_has_missed() -> None:
    """As clients do that send the same bytes again by another connection."""
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    settle(one, two)
    two.leave()
    asked = Beat("one", one.epoch)
    answered(shared, 0, asked, TOPICS)  # is given the others, and the answer is lost
    for again in (asked, asked._replace(owned=one.reads)):
        told = answered(shared, 0, again, TOPICS)
        assert told.epoch == shared.epoch
        assert told.assignment is not None
        assert set(told.assignment) == part("a", 0, 1, 2, 3)
    one.obey(told)
    three = Client(shared, "three")
    three.join()
    shared.heartbeat(0, Beat("one", told.epoch), TOPICS)  # is told to let go, and it is lost
    shared.heartbeat(0, Beat("one", told.epoch), TOPICS)
    three.heartbeat()
    assert not three.reads, "nobody has said that these are free"


def test_nobody_has_to_let_go_of_what_it_never_heard_of() -> None:
    """Who repeats itself word for word is told what it has all the while, and says no more."""
    shared, topics = group(), topics_of(a=4, b=2)
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    settle(one, two)
    two.leave()
    asked, had = Beat("one", one.epoch), one.reads
    answered(shared, 0, asked, topics)  # is given the others, and the answer is lost
    assert shared.members["one"].assigned == part("a", 0, 1, 2, 3)
    shared.target.given = {"one": tuple(sorted(had))}
    shared.epoch += 1
    shared.assignment_epoch = shared.epoch
    told = one.obey(answered(shared, 0, asked, topics))
    assert (told.epoch, one.reads) == (shared.epoch, had)
    assert shared.owners == dict.fromkeys(had, "one"), "nobody waits for it"


@pytest.mark.parametrize("seed", range(200))
def test_who_repeats_itself_word_for_word_misses_nothing(seed: int) -> None:
    """Whatever answers are lost with their connections: each repeats itself by another one, and
    says no more than before; nobody is waited for, and all is read."""
    rng, shared = Random(seed), group()
    clients = [Client(shared, f"m{n}") for n in range(3)]
    asked: dict[str, Beat] = {}
    connections = iter(range(10_000))
    by = {one.name: next(connections) for one in clients}

    def beat(one: Client, *, is_lost: bool) -> None:
        if one.epoch == JOIN:
            one.join()
        said = asked.get(one.name) or one.question()
        told = answered(shared, 0, said._replace(connection=by[one.name]), TOPICS)
        if is_lost:
            asked[one.name], by[one.name] = said, next(connections)
            return
        asked.pop(one.name, None)
        one.said = said.owned if said.owned is not None else one.said
        one.obey(told)

    for _ in range(30):
        one = rng.choice(clients)
        if one.epoch != JOIN and rng.random() < 0.2:
            one.leave()
            one.epoch, one.reads, one.said = JOIN, frozenset(), None
            asked.pop(one.name, None)
        else:
            beat(one, is_lost=rng.random() < 0.5)
        assert sum(len(some.reads) for some in clients) == len(
            frozenset().union(*[some.reads for some in clients])
        )
    for _ in range(8):
        for one in clients:
            beat(one, is_lost=False)
    assert sorted(each for one in clients for each in one.reads) == sorted(part("a", 0, 1, 2, 3))
    assert shared.state == "Stable"


def test_who_was_not_told_to_let_go_says_so_at_the_epoch_that_it_was_told_last() -> None:
    shared = group()
    one = Client(shared, "one")
    one.join()
    Client(shared, "two", "b").join()
    asked = one.question(full=True)
    shared.heartbeat(0, asked, TOPICS)  # moves it to the next epoch, and the answer is lost
    three = Client(shared, "three")
    three.join()
    for _ in range(3):
        shared.heartbeat(0, asked, TOPICS)  # is told to let go, and the answer is lost
        three.heartbeat()
        assert not three.reads, "one reads all of it"
    told = one.heartbeat(full=True)
    assert told.assignment is not None
    assert len(told.assignment) == 2
    settle(one, three)
    assert (len(one.reads), len(three.reads)) == (2, 2)


def test_commits_of_tools_wait_until_the_group_is_empty() -> None:
    shared = group()
    assert shared.check_commit("", -1) is ErrorCode.NONE
    one = Client(shared, "one")
    one.join()
    assert shared.check_commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_joins_again_with_its_id_keeps_its_place_and_lets_go_only_when_it_says_so() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    two.join()
    late = one.beat._replace(epoch=JOIN, owned=frozenset())
    shared.heartbeat(0, late, TOPICS)  # came late, or twice: it reads all the while
    two.heartbeat()
    assert not two.reads
    one.heartbeat(full=True)
    settle(one, two)
    assert len(two.reads) == 2


def test_a_full_group_takes_no_more() -> None:
    shared = group(size_max=1)
    Client(shared, "one").join()
    assert refusal(Client(shared, "two").join) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_comes_back_has_what_it_had_and_nobody_else_notices() -> None:
    shared = group()
    one = Client(shared, "one", instance="i")
    two = Client(shared, "two")
    one.join()
    two.join()
    settle(one, two)
    epoch, had = shared.epoch, one.reads
    one.leave(epoch=LEAVE_FOR_A_WHILE)
    settle(two)
    back = Client(shared, "one-again", instance="i")
    back.join()
    assert (back.reads, shared.epoch) == (had, epoch)
    assert refusal(one.heartbeat) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_comes_back_under_its_old_id_too_though_its_share_is_smaller_now() -> None:
    shared = group()
    one = Client(shared, "one", instance="i")
    one.join()
    one.leave(epoch=LEAVE_FOR_A_WHILE)
    two = Client(shared, "two")
    two.join()
    told = one.join()
    assert told.epoch == shared.epoch
    settle(one, two)
    assert (len(one.reads), len(two.reads)) == (2, 2)


def test_a_static_member_that_stays_away_is_dropped_at_the_end_of_its_session() -> None:
    shared = group()
    one = Client(shared, "one", instance="i")
    one.join()
    one.leave(epoch=LEAVE_FOR_A_WHILE)
    assert refusal(one.heartbeat) is ErrorCode.FENCED_MEMBER_EPOCH
    shared.tick(SESSION_MS)
    assert shared.is_idle


def test_a_static_member_that_goes_away_has_let_go_of_what_it_was_to_let_go_of() -> None:
    shared = group()
    one, two = Client(shared, "one", instance="i"), Client(shared, "two")
    one.beat = one.beat._replace(rebalance_timeout_ms=1_000)
    one.join()
    two.join()
    one.heartbeat()
    two.heartbeat()
    assert (len(one.reads), len(two.reads)) == (2, 0)
    one.leave(epoch=LEAVE_FOR_A_WHILE)
    two.heartbeat()
    assert len(two.reads) == 2
    shared.tick(1_000)
    assert "one" in shared.members, "for its session, not for the time to let go"
    back = Client(shared, "back", instance="i")
    back.join()
    assert len(back.reads) == 2


def test_a_group_is_stable_when_a_static_member_is_back() -> None:
    shared = group()
    one = Client(shared, "one", instance="i")
    one.join()
    one.leave(epoch=LEAVE_FOR_A_WHILE)
    assert shared.state == "Reconciling"
    Client(shared, "back", instance="i").join()
    assert shared.state == "Stable"


def test_a_group_is_not_stable_before_all_have_heard_of_its_epoch() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two", "b")
    one.join()
    two.join()
    assert (shared.members["one"].epoch, shared.state) == (1, "Reconciling")
    one.heartbeat()
    assert shared.state == "Stable"


def test_who_says_at_an_earlier_epoch_that_it_reads_what_it_has_let_go_of_is_fenced() -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    had = one.reads
    two.join()
    one.heartbeat()
    assert answered(shared, 0, one.question(), TOPICS).epoch == 2
    again = one.question()
    assert again.epoch == 1, "its answer was lost"
    assert answered(shared, 0, again._replace(owned=one.reads), TOPICS).epoch == 2
    too_much = again._replace(owned=had)
    assert refusal(shared.heartbeat, 0, too_much, TOPICS) is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_says_that_it_is_an_instance_that_another_is_does_nothing_in_its_name() -> None:
    shared = group()
    one, two = Client(shared, "one", instance="i"), Client(shared, "two")
    one.join()
    two.join()
    for epoch in (LEAVE, LEAVE_FOR_A_WHILE):
        said = Beat("two", epoch, "i")
        assert refusal(shared.heartbeat, 0, said, TOPICS) is ErrorCode.FENCED_INSTANCE_ID
    assert shared.members["two"].epoch == two.epoch
    assert shared.check_commit("two", two.epoch, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert shared.check_commit("two", two.epoch) is ErrorCode.NONE
    assert shared.check_commit("one", one.epoch, "i") is ErrorCode.NONE


def test_who_says_nothing_of_itself_may_ask_where_a_group_stands_and_a_member_as_what_it_is() -> (
    None
):
    shared = group()
    Client(shared, "one").join()
    for member_id, epoch, code in (
        (None, -1, ErrorCode.NONE),
        (None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("other", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("one", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("one", 1, ErrorCode.NONE),
    ):
        assert shared.check_fetch(member_id, epoch) is code


def test_an_instance_that_is_there_is_not_given_to_another() -> None:
    shared = group()
    Client(shared, "one", instance="i").join()
    assert refusal(Client(shared, "two", instance="i").join) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert (
        refusal(shared.heartbeat, 0, Beat("x", 1, "other"), TOPICS) is ErrorCode.UNKNOWN_MEMBER_ID
    )


@pytest.mark.parametrize("instance", [None, "j"])
def test_a_member_takes_no_place_of_an_instance_beside_its_own(instance: str | None) -> None:
    shared = group()
    one, two = Client(shared, "one", instance="i"), Client(shared, "two", instance=instance)
    one.join()
    two.join()
    settle(one, two)
    one.leave(epoch=LEAVE_FOR_A_WHILE)
    other = Client(shared, "two", instance="i")
    assert refusal(other.join) is ErrorCode.INVALID_REQUEST
    has = {name: member.assigned for name, member in shared.members.items()}
    assert shared.owners == {one: name for name, mine in has.items() for one in mine}
    two.heartbeat()
    assert len(two.reads) == 2, "it is what it was"


def test_a_changed_subscription_and_changed_topics_are_a_new_epoch() -> None:
    one = Client(group(), "one")
    one.join()
    one.heartbeat()
    before = one.epoch
    one.obey(one.group.heartbeat(0, Beat("one", before, names=frozenset({"a", "b"})), TOPICS))
    settle(one)
    assert one.reads == part("a", 0, 1, 2, 3) | part("b", 0, 1)
    one.topics = topics_of(a=5)
    settle(one)
    assert one.reads == part("a", 0, 1, 2, 3, 4)
    assert one.epoch > before
    epoch = one.epoch
    one.topics = topics_of(a=5, c=1)
    settle(one)
    assert one.epoch == epoch, "a topic that nobody reads is nothing new"


def test_topics_that_match_come_as_they_are_made() -> None:
    one = Client(group(), "one", "b", regex="a.*")
    one.join()
    assert one.reads == part("a", 0, 1, 2, 3) | part("b", 0, 1)
    one.topics = {**TOPICS, "ab": replace(TOPICS["a"], topic_id=UUID(bytes=b"x" * 16))}
    settle(one)
    assert part("x", 0, 1, 2, 3) <= one.reads
    wrong = Client(one.group, "two", regex="(")
    assert refusal(wrong.join) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(one.group.members) == ["one"]


HOSTILE = ".*".join(["(a|b)*a(a|b){30}"] * 5)
"""Each character leads to a set of states that nobody met before."""


def test_an_expression_that_is_dear_is_looked_at_a_little_at_each_heartbeat() -> None:
    random = Random(7)
    names = ["".join(random.choices("ab", k=240)) for _ in range(15)]
    topics = {name: Topic(UUID(int=n + 1), 1) for n, name in enumerate(names)}
    one = Client(group(), "one", "nothing", regex=f"{HOSTILE}.*", topics=topics)
    one.join()
    assert 0 < len(one.reads) < len(names)
    found = [len(one.reads)]
    while len(one.reads) < len(names):
        one.heartbeat()
        found.append(len(one.reads))
        assert len(found) < 200, "it comes to an end"
    assert found == sorted(found)


def test_a_new_topic_costs_its_own_name_alone() -> None:
    topics = {f"t{n}": Topic(UUID(int=n + 1), 1) for n in range(2_000)}
    expressions = Expressions()
    regex = expressions.compiled("t.*")
    expressions.take(regex, "", every_topic)
    expressions.look(topics)
    before = regex.cost
    expressions.look({**topics, "t-new": Topic(UUID(int=9_999), 1)})
    assert regex.cost - before < 50
    assert len(expressions.names(Sight("t.*", ""))) == 2_001
    expressions.look({"t5": topics["t5"]})
    assert expressions.names(Sight("t.*", "")) == {"t5"}


class Rules:
    """Access rules as a viewer asks them: all may see what does not begin with "secret"."""

    def __init__(self) -> None:
        self.rules = object()
        self.asked: list[str] = []

    def __call__(self, name: str) -> bool:
        self.asked.append(name)
        return not name.startswith("secret")


def test_viewers_are_asked_about_a_new_topic_alone_and_share_what_they_see() -> None:
    names = [f"t{n}" for n in range(100)] + ["secret"]
    topics = {name: Topic(UUID(int=n + 1), 1) for n, name in enumerate(names)}
    expressions, rules = Expressions(), Rules()
    sights = [Sight(".*", f"viewer-{n}") for n in range(20)]
    for sight in sights:
        expressions.take(expressions.compiled(".*"), sight.viewer, rules)
    expressions.look(topics)
    assert len(rules.asked) == 20 * 101
    assert expressions.names(sights[0]) == set(names[:100])
    rules.asked.clear()
    more = {**topics, "new": Topic(UUID(int=900), 1), "secret-2": Topic(UUID(int=901), 1)}
    del more["t7"]
    expressions.look(more)
    assert sorted(rules.asked) == ["new"] * 20 + ["secret-2"] * 20
    assert expressions.names(sights[0]) == {*names[:7], *names[8:100], "new"}
    assert len({id(expressions.names(sight)) for sight in sights}) == 1
    expressions.take(expressions.compiled(".*"), "viewer-3", rules)
    assert expressions.is_current, "it says what it said before"


def test_by_other_rules_all_is_asked_again_a_little_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_expressions, "ASKS_MAX", 30)
    topics = {f"t{n}": Topic(UUID(int=n + 1), 1) for n in range(100)}
    expressions, rules = Expressions(), Rules()
    one, two = Sight("t.*", "one"), Sight("t.*", "two")
    for sight in (one, two):
        expressions.take(expressions.compiled("t.*"), sight.viewer, rules)
    found = []
    while not expressions.is_done:
        expressions.look(topics)
        found.append((len(expressions.names(one)), len(expressions.names(two))))
    assert found == [(30, 0), (60, 0), (90, 0), (100, 20), (100, 50), (100, 80), (100, 100)]
    monkeypatch.setattr(Rules, "__call__", lambda self, name: name != "t5")
    assert expressions.is_current
    rules.rules = object()
    assert not expressions.is_current
    looks = 0
    while not expressions.is_current:
        assert len(expressions.names(two)) == 100, "as before, until all was asked"
        expressions.look(topics)
        looks += 1
    assert looks == 7
    assert expressions.names(one) == expressions.names(two) == topics.keys() - {"t5"}


def test_a_group_has_so_many_expressions_and_gives_up_those_that_nobody_uses() -> None:
    shared = group()
    members = [Client(shared, f"m{n}", "b", regex=f"a{n}?") for n in range(PATTERNS_MAX)]
    for member in members:
        member.join()
    again = Client(shared, "again", regex="a0?")
    again.join()
    late = Client(shared, "late", regex="a.*")
    assert refusal(late.join) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "late" not in shared.members
    members[-1].leave()
    late.join()
    assert "late" in shared.members


def test_members_that_share_an_expression_match_what_each_of_them_may_see() -> None:
    shared = group()
    one, two = (Client(shared, name, "x", regex=".*") for name in ("one", "two"))
    one.beat = one.beat._replace(viewer="alice", may_see=lambda name: name == "a")
    two.beat = two.beat._replace(viewer="bob", may_see=lambda name: name == "b")
    one.join()
    two.join()
    settle(one, two)
    assert (one.reads, two.reads) == (part("a", 0, 1, 2, 3), part("b", 0, 1))


def test_who_says_everything_is_told_everything_and_who_says_less_is_not() -> None:
    """Otherwise as before, by the same connection."""
    shared = group()
    one = Client(shared, "one", regex="a")
    one.join()
    one.heartbeat()
    full = one.question(full=True)
    has = tuple(sorted(one.reads))
    by_names, by_regex = full._replace(regex=None), full._replace(names=None)
    for asked in (full, by_names, by_regex, full._replace(rebalance_timeout_ms=0)):
        assert answered(shared, 0, asked, TOPICS).assignment == has
    less = (
        full._replace(rebalance_timeout_ms=-1),
        full._replace(owned=None),
        full._replace(names=None, regex=None),
    )
    for asked in less:
        assert answered(shared, 0, asked, TOPICS).assignment is None


def test_a_member_is_in_its_rack_until_it_names_another() -> None:
    shared = group()
    one = Client(shared, "one")
    one.beat = one.beat._replace(rack_id="r")
    one.join()
    one.heartbeat()
    assert shared.members["one"].rack_id == "r"
    answered(shared, 0, one.question()._replace(rack_id="s"), TOPICS)
    assert shared.members["one"].rack_id == "s"


@pytest.mark.parametrize("timeout_ms", [0, 1_000])
def test_a_member_has_the_time_that_it_said_last_to_let_go(timeout_ms: int) -> None:
    shared = group()
    one, two = Client(shared, "one"), Client(shared, "two")
    one.join()
    answered(shared, 0, one.question(full=True)._replace(rebalance_timeout_ms=timeout_ms), TOPICS)
    two.join()
    holding = Beat("one", one.epoch, owned=one.reads)
    answered(shared, 0, holding, TOPICS)
    assert shared.due_ms == timeout_ms
    shared.tick(timeout_ms - 1)
    assert "one" in shared.members
    shared.tick(timeout_ms)
    assert "one" not in shared.members


def test_static_members_are_dealt_out_by_their_instances_whatever_their_ids() -> None:
    shared = group()
    one = Client(shared, "m", instance="1", assignor="range")
    two = Client(shared, "n", instance="2", assignor="range")
    one.join()
    two.join()
    settle(one, two)
    assert (one.reads, two.reads) == (part("a", 0, 1), part("a", 2, 3))
    one.leave(epoch=LEAVE_FOR_A_WHILE)
    back = Client(shared, "z", instance="1", assignor="range")
    back.join()
    back.topics = two.topics = topics_of(a=6, b=2)
    settle(back, two)
    assert (back.reads, two.reads) == (part("a", 0, 1, 2), part("a", 3, 4, 5))


def test_most_members_choose_the_assignor() -> None:
    shared = group()
    one = Client(shared, "one", assignor="range")
    two = Client(shared, "two")
    one.join()
    two.join()
    assert shared.target.assignor == "range"
    settle(one, two)
    assert {one.reads, two.reads} == {part("a", 0, 1), part("a", 2, 3)}
    two.heartbeat()
    assert shared.target.assignor == "range", "heartbeats do not say it again"
    assert shared.epoch == two.epoch


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Joins, leaves, lost answers, silence and changing topics: one owner at every moment."""

    large_min = LARGE_MIN

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.group = group()
        self.group.large_min = self.large_min
        self.topics = topics_of(a=4, b=2)
        self.clients: dict[str, Client] = {}
        self.gone: list[Client] = []
        self.numbers = 0

    def pick(self, n: int) -> Client:
        return self.clients[sorted(self.clients)[n % len(self.clients)]]

    def ask(self, client: Client, *, heard: bool, full: bool) -> None:
        client.topics = self.topics
        asked = client.question(full=full)
        try:
            told = answered(self.group, self.now_ms, asked, self.topics)
        except Refused as exc:
            if exc.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise  # also of who is fenced: it is at the epoch that it was told last
            client.reads, client.epoch, client.said = frozenset(), 0, None
            del self.clients[client.name]
            return
        if heard:
            client.said = client.reads if asked.owned is not None else client.said
            client.obey(told)
        else:
            client.said = None  # says everything again

    @rule(
        names=st.sampled_from([("a",), ("a", "b"), ("b",)]),
        static=st.booleans(),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def join(self, names: tuple[str, ...], static: bool, assignor: str | None) -> None:
        if len(self.clients) >= 6:
            return
        self.numbers += 1
        name = f"m{self.numbers}"
        client = Client(
            self.group,
            name,
            *names,
            instance=f"i{self.numbers}" if static else None,
            assignor=assignor,
            topics=self.topics,
        )
        client.join(self.now_ms)
        self.clients[name] = client

    @precondition(lambda self: self.clients)
    @rule(n=st.integers(0, 5), heard=st.booleans(), full=st.booleans())
    def heartbeat(self, n: int, heard: bool, full: bool) -> None:
        self.ask(self.pick(n), heard=heard, full=full or not heard)

    @precondition(lambda self: self.clients)
    @rule(n=st.integers(0, 5), while_away=st.booleans())
    def leave(self, n: int, while_away: bool) -> None:
        client = self.pick(n)
        del self.clients[client.name]
        is_static = client.beat.instance_id is not None and client.name in self.group.members
        try:
            client.leave(self.now_ms, LEAVE_FOR_A_WHILE if while_away and is_static else LEAVE)
        except Refused:
            return
        self.gone.append(client)

    @precondition(lambda self: self.gone)
    @rule(n=st.integers(0, 5))
    def come_back(self, n: int) -> None:
        old = self.gone.pop(n % len(self.gone))
        self.numbers += 1
        client = Client(
            self.group, f"m{self.numbers}", *sorted(old.beat.names or ()), topics=self.topics
        )
        client.beat = client.beat._replace(instance_id=old.beat.instance_id)
        try:
            client.join(self.now_ms)
        except Refused:
            return
        self.clients[client.name] = client

    @precondition(lambda self: self.clients)
    @rule(n=st.integers(0, 5))
    def fall_silent(self, n: int) -> None:
        del self.clients[self.pick(n).name]

    @rule(a=st.integers(0, 5), b=st.integers(0, 3))
    def change_topics(self, a: int, b: int) -> None:
        self.topics = topics_of(a=a, b=b) if a else topics_of(b=b)

    @rule(step_ms=st.sampled_from([1, 1_000, SESSION_MS // 2]))
    def wait(self, step_ms: int) -> None:
        self.now_ms += step_ms
        for client in tuple(self.clients.values()):
            self.ask(client, heard=True, full=False)
        if self.group.due_ms <= self.now_ms:
            self.group.tick(self.now_ms)

    @invariant()
    def one_owner_at_every_moment(self) -> None:
        owners: dict[Partition, str] = {}
        for member in self.group.members.values():
            for partition in (*member.assigned, *member.revoking):
                assert partition not in owners, "two members have it"
                owners[partition] = member.member_id
        assert owners == self.group.owners
        readers: dict[Partition, str] = {}
        for client in self.clients.values():
            member_now = self.group.members.get(client.name)
            if member_now is None:
                continue  # it is told at its next heartbeat; its commits are refused already
            for partition in client.reads:
                assert readers.setdefault(partition, client.name) == client.name
                assert owners[partition] == client.name

    @invariant()
    def a_commit_is_taken_of_who_reads_and_of_nobody_else(self) -> None:
        """Also at an epoch that has risen since it was told."""
        for client in self.clients.values():
            member = self.group.members.get(client.name)
            if member is None:
                continue
            is_late = bool(self.group.check_commit(client.name, client.epoch))
            for partition, owner in self.group.owners.items():
                is_taken = self.group.may_commit_late(client.name, client.epoch, partition)
                if partition in client.reads:
                    assert is_taken or not is_late
                if owner != client.name:
                    assert not is_taken

    @invariant()
    def nobody_is_due_later_than_it_has_to_be(self) -> None:
        for member in self.group.members.values():
            assert self.group.due_ms <= member.session_ends_ms
            assert self.group.due_ms <= (member.revoking_ends_ms or NEVER_MS)

    def teardown(self) -> None:
        """In the end, when all are heard of, everything is read, and by one."""
        self.now_ms += REBALANCE_MS + SESSION_MS
        self.group.tick(self.now_ms)
        for client in tuple(self.clients.values()):
            client.join(self.now_ms)
        live = tuple(self.clients.values())
        for _ in range(5):
            self.now_ms += REST_MS
            for client in live:
                self.ask(client, heard=True, full=False)
        if not live:
            return
        assert self.group.state == "Stable"
        wanted = {
            (topic.topic_id.bytes, index)
            for client in live
            for name in client.beat.names or ()
            if (topic := self.topics.get(name))
            for index in range(topic.partitions)
        }
        assert set(self.group.owners) == wanted
        assert frozenset().union(*(client.reads for client in live)) == wanted


class LargeGroupMachine(ConsumerGroupMachine):
    """The same of a group whose targets are a second apart."""

    large_min = 0


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
TestLargeGroupMachine = LargeGroupMachine.TestCase
TestConsumerGroupMachine.settings = TestLargeGroupMachine.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_targets_of_a_large_group_are_a_second_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(subscribers: Sequence[Subscriber], *more: Any) -> Assignment:  # noqa: ANN401
        made.append(len(subscribers))
        return uniform(subscribers, *more)

    monkeypatch.setitem(ASSIGNORS, "uniform", counted)
    many, some = topics_of(a=10_000), group(size_max=1_000)
    members = [Client(some, f"member-{n}", topics=many) for n in range(200)]
    for one in members:
        assert one.join(REST_MS - 1).epoch > 0
    # Of a hundred and ten thousand partitions are dealt out at once.
    assert made[-1] < 110
    assert some.state == "Assigning"
    before = len(made)
    for now_ms in (REST_MS, 2 * REST_MS - 1, 2 * REST_MS, 2 * REST_MS + 1):
        for one in members:
            one.heartbeat(now_ms)
    assert made[before:] == [200]
    assert some.state == "Stable"
    assert {len(one.reads) for one in members} == {50}


def test_a_large_group_that_everybody_left_is_dealt_out_at_once() -> None:
    some = group()
    some.large_min = 0
    one, two = Client(some, "one"), Client(some, "two")
    one.join()
    one.leave()
    two.join()
    assert two.reads == part("a", 0, 1, 2, 3)


def test_who_joins_costs_no_look_at_all_that_the_others_subscribe_to() -> None:
    class TopicId(UUID):
        @property
        def bytes(self) -> bytes:
            return CountedBytes(super().bytes)

    topics = {f"t{n}": Topic(TopicId(int=n + 1), 1) for n in range(100)}
    shared = group()
    for number in range(41):
        CountedName.compared = 0
        names = frozenset(CountedName(name) for name in topics)
        beat = Beat(f"m{number}", JOIN, rebalance_timeout_ms=REBALANCE_MS, names=names)
        shared.heartbeat(0, beat._replace(owned=frozenset()), topics)
    # A few times the 100 topics; not 40 others times 100.
    assert CountedName.compared < 2_000


def test_names_of_others_that_no_topic_has_cost_nothing() -> None:
    class Name(str):
        __slots__ = ()
        hashed = 0

        def __hash__(self) -> int:
            Name.hashed += 1
            return super().__hash__()

    shared = group()
    for number in range(10):
        names = frozenset(Name(f"{number}-{n}") for n in range(1_000))
        beat = Beat(f"m{number}", JOIN, rebalance_timeout_ms=REBALANCE_MS, names=names)
        shared.heartbeat(0, beat._replace(owned=frozenset()), TOPICS)
    Name.hashed = 0
    one = Client(shared, "one", "a")
    one.join()
    assert one.reads == part("a", 0, 1, 2, 3)
    assert Name.hashed < 100, "not ten times a thousand"


class Counted:
    """A topic that counts how often anybody looks at it."""

    topic_id = UUID(int=1)
    looks = 0

    @property
    def partitions(self) -> int:
        self.looks += 1
        return 4


class Members(dict[str, ConsumerMember]):
    """Those of a group, and how many of them anybody has looked at in passing through all."""

    looked_at = 0

    def values(self) -> Any:  # noqa: ANN401 - dict_values cannot be counted
        for one in super().values():
            self.looked_at += 1
            yield one


@pytest.mark.parametrize("regex", [None, ".*"])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_step_of_a_member_costs_no_look_at_all_others(assignor: str, regex: str | None) -> None:
    """Ten thousand that come, take up their share and leave would take minutes of the loop."""
    some, count = group(size_max=1_000), 300
    some.large_min = 0  # one target for all who come within a second
    members = some.members = Members()
    topics = topics_of(a=1_000)
    clients = [
        Client(some, f"m{n:03}", regex=regex, assignor=assignor, topics=topics)
        for n in range(count)
    ]
    for one in clients:
        one.join()
    assert members.looked_at < 3 * count, "not all for each who joins"
    members.looked_at = 0
    for now_ms in (REST_MS, 2 * REST_MS, 3 * REST_MS):
        for one in clients:
            one.heartbeat(now_ms)
    assert some.state == "Stable"
    assert members.looked_at < 6 * count, "not all for each who takes its share"
    assert sum(len(one.reads) for one in clients) == 1_000
    members.looked_at = 0
    for one in clients:
        one.leave(3 * REST_MS)
    assert members.looked_at < 3 * count, "not all for each who leaves"


def test_an_expression_that_was_matched_is_not_looked_at_for_each_who_joins() -> None:
    class Topics(dict[str, Topic]):
        asked = 0

        def keys(self) -> Any:  # noqa: ANN401 - as above
            Topics.asked += 1
            return super().keys()

    some, topics = group(), Topics(topics_of(a=4, b=2))
    for n in range(50):
        Client(some, f"m{n}", regex="a.*", topics=topics).join()
        assert Topics.asked < 10, "there may be thousands of topics"


def test_members_whose_time_is_over_together_are_dropped_together() -> None:
    shared, topic = group(), Counted()
    topics = {"a": topic}
    for number in range(50):
        names = frozenset("ab" if number == 49 else "a")
        beat = Beat(f"m{number}", JOIN, rebalance_timeout_ms=REBALANCE_MS, names=names)
        shared.heartbeat(number == 49, beat._replace(owned=frozenset()), topics)
    epoch, topic.looks = shared.epoch, 0
    shared.tick(SESSION_MS)
    assert list(shared.members) == ["m49"]
    assert shared.epoch == epoch + 49
    assert topic.looks == 1


def test_who_comes_or_leaves_and_subscribes_as_others_do_costs_no_look_at_the_topics() -> None:
    shared, topic = group(), Counted()
    topics = {"a": topic}
    for number in range(50):
        beat = Beat(f"m{number}", JOIN, rebalance_timeout_ms=REBALANCE_MS, names=frozenset("a"))
        shared.heartbeat(0, beat._replace(owned=frozenset()), topics)
    leaving = Beat("m7", LEAVE)
    shared.heartbeat(0, leaving, topics)
    assert topic.looks == 1, "there may be thousands of them"
    assert sorted(len(mine) for mine in shared.target.given.values())[-4:] == [1, 1, 1, 1]
    topics = {"a": topic, "b": topic}
    shared.heartbeat(0, Beat("m8", 9), topics)
    assert topic.looks == 2, "other ones"


class Compared(int):
    """A partition that counts how often it is compared with another."""

    count = 0

    def __lt__(self, other: int) -> bool:
        Compared.count += 1
        return super().__lt__(other)


def test_what_a_member_of_thousands_of_partitions_has_is_sorted_by_few_comparisons() -> None:
    target = tuple((b"topic", Compared(number)) for number in range(3_000))
    member = ConsumerMember("m", None, assigned=set(target), since=dict.fromkeys(target, 1))
    assert member.has(target).assigned == member.in_order(target) == tuple(sorted(target))
    Compared.count = 0
    member.in_order(target)
    assert Compared.count < 2 * len(target), "in the order of a set they are ten times as many"


@pytest.mark.parametrize("target", [(), ((b"t", 5), (b"t", 1)), ((b"t", 1), (b"u", 0), (b"t", 0))])
def test_what_a_member_has_beside_its_target_is_sorted_too(target: tuple[Partition, ...]) -> None:
    member = ConsumerMember("m", None, assigned={(b"u", 0), (b"t", 1), (b"t", 0)})
    assert member.in_order(target) == ((b"t", 0), (b"t", 1), (b"u", 0))

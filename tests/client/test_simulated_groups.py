"""Members that come, go, die, and work for long, in simulated time: a seed is a run."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from segbroker.broker.groups.group import Group
from segbroker.broker.groups.group_members import Joined, Joining, OnJoined
from segbroker.broker.groups.group_rounds import OnRecorded
from segbroker.client import classic_membership, reading
from segbroker.client.assignors import GroupMemberInfo, deal_out
from segbroker.client.classic_membership import REFUSALS_MAX, ClassicMembership
from segbroker.client.cluster import DELETED_MS
from segbroker.client.completion import Completion
from segbroker.client.driver import GOODBYE_MS
from segbroker.client.errors import (
    GroupAuthorizationFailed,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    SegbrokerError,
    TimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from segbroker.client.group_commits import COMMIT_TIMEOUT_MS
from segbroker.client.group_offsets import CommittedOffset
from segbroker.client.membership import Phase
from segbroker.client.records import TopicPartition
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from segbroker.protocol.schema import Message
from segbroker.segments.metadata.generations import Generation

from .simulated_consumer_groups import ConsumerGroupWorld
from .simulated_groups import TOPIC, GroupWorld, SimulatedMember
from .test_fetching import store

PARTITIONS = 5
RECORDS = 40


@pytest.fixture(params=[GroupWorld, ConsumerGroupWorld], ids=["classic", "consumer"])
def kind(request: pytest.FixtureRequest) -> type[GroupWorld]:
    """Which protocol the members speak, where that makes no difference."""
    world: type[GroupWorld] = request.param
    return world


@pytest.mark.parametrize("seed", range(6))
def test_cooperative_members_that_come_and_go_work_at_each_record_once(
    kind: type[GroupWorld], seed: int
) -> None:
    """Also when a job lasts longer than a session and a rebalance together."""
    world = kind(seed, partitions=PARTITIONS, records=RECORDS)
    random = world.random
    world.job_ms = lambda: random.choice(
        [0, 1, 50, 50, 400, 200_000 if random.random() < 0.1 else 5]
    )
    world.start()
    for _ in range(6):
        pause = world.now_ms + random.choice([10, 700, 3_000, 30_000])
        world.run(lambda pause=pause: world.now_ms >= pause)  # type: ignore[misc]
        alive = [member for member in world.members if member.is_alive]
        idle = [member for member in alive if member.in_hand is None]
        if len(alive) > 1 and idle and random.random() < 0.4:
            random.choice(idle).leave()
        else:
            world.start()
    world.run(world.is_settled, within_ms=30_000_000)
    assert set(Counter(world.processed).values()) == {1}
    for member in world.members:
        if member.is_alive:
            world.run(lambda member=member: member.in_hand is None, within_ms=30_000_000)  # type: ignore[misc]
            member.leave()
    assert world.committed == {(TOPIC, partition): RECORDS for partition in range(PARTITIONS)}


def test_a_deleted_topic_is_given_up_once_and_dealt_out_when_it_is_there_again(
    kind: type[GroupWorld],
) -> None:
    world = kind(1, partitions=2, records=20)
    members = [world.start() for _ in range(2)]
    for member in members:
        member.expected = (UnknownTopicOrPartition,)
    world.run(world.is_settled)
    if kind is GroupWorld:  # else the broker decides that
        told = [list(member.told) for member in members]
        topic = world.cluster.topics.pop(TOPIC)
        world.passes(DELETED_MS - 1_000)
        world.cluster.topics[TOPIC] = topic
        world.passes(60_000)
        assert [member.told for member in members] == told
    topic = world.cluster.topics.pop(TOPIC)
    world.run(lambda: not any(member.owned for member in members))
    world.passes(10_000)  # that they have given it up is another generation
    generations = [member.reading.group.membership.generation for member in members]
    world.passes(600_000)
    assert [m.reading.group.membership.generation for m in members] == generations
    world.cluster.topics[TOPIC] = topic
    world.run(world.is_settled)


@pytest.mark.parametrize("seed", range(12))
def test_members_of_every_kind_lose_no_record_to_deaths_cuts_and_restarts(
    kind: type[GroupWorld], seed: int
) -> None:
    world = kind(seed, partitions=PARTITIONS, records=RECORDS)
    random = world.random
    world.job_ms = lambda: random.choice([0, 1, 30, 200])

    def start() -> None:
        kinds = [(), (), ("range",), ("roundrobin", "range"), ("sticky", "range")]
        world.start(*random.choice(kinds))

    start()
    for _ in range(10):
        pause = world.now_ms + random.choice([10, 300, 2_000])
        world.run(lambda pause=pause: world.now_ms >= pause)  # type: ignore[misc]
        alive = [member for member in world.members if member.is_alive]
        match random.randrange(6):
            case 0 if len(alive) > 1:
                world.kill(random.choice(alive))
            case 1:
                world.cut(random.choice(alive))
            case 2:
                world.restart()
            case 3:
                world.forget()
            case _:
                start()
    world.run(world.is_settled)


@pytest.mark.parametrize("seed", [1, 7, 8, 9, 13, 15, 38, 63, 136, 147])
def test_members_that_read_to_the_end_and_leave_have_read_it_all_together(
    kind: type[GroupWorld], seed: int
) -> None:
    """Nobody ends while what one has given up is on its way to another, or back."""
    world = kind(seed, partitions=PARTITIONS, records=RECORDS)
    random = world.random
    most_ms = random.choice([20, 60, 100])
    world.job_ms = lambda: random.choice([1, most_ms])
    starts_ms = sorted(random.choice([5, 8_000]) * random.random() for _ in range(3))
    leaves_ms: dict[SimulatedMember, float] = {}
    world.start(stop_at_end=True)
    began_ms = world.now_ms

    def now() -> list[SimulatedMember]:
        for member in world.members:
            if member.is_at_end and member not in leaves_ms:
                leaves_ms[member] = world.now_ms + random.choice([0, 5, 2_000])
        return [one for one, at_ms in leaves_ms.items() if one.is_alive and world.now_ms >= at_ms]

    while any(member.is_alive for member in world.members):
        world.run(lambda: bool(now()) or world.now_ms >= began_ms + min(starts_ms, default=1e9))
        for member in now():
            member.leave()
        while starts_ms and world.now_ms >= began_ms + starts_ms[0]:
            del starts_ms[0]
            world.start(stop_at_end=True)
    assert set(Counter(world.processed).values()) == {1}
    assert world.committed == {(TOPIC, partition): RECORDS for partition in range(PARTITIONS)}


def test_a_slow_member_that_the_broker_forgot_meanwhile_is_thrown_out_all_the_same(
    kind: type[GroupWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has joined again by itself; what the caller works at is not its own any more."""
    world = kind(3, partitions=2, records=20)
    monkeypatch.setattr(reading, "now_ms", lambda: world.now_ms)
    slow = world.start(max_poll_interval_ms=60_000)
    world.run(lambda: slow.in_hand is not None)
    slow.busy_until_ms = world.now_ms + 600_000
    world.forget()
    membership = slow.reading.group.membership
    world.run(lambda: membership.phase is Phase.OUT, within_ms=300_000)
    assert world.now_ms < slow.busy_until_ms
    world.run(world.is_settled, within_ms=4_000_000)


def test_a_member_that_has_waited_for_long_has_its_whole_time_for_what_it_gets(
    kind: type[GroupWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has asked for records before the time began that it may work at one."""
    world = kind(7, partitions=1, records=0)
    monkeypatch.setattr(reading, "now_ms", lambda: world.now_ms)
    member = world.start(max_poll_interval_ms=60_000)
    group = member.reading.group
    world.run(lambda: group.membership.phase is Phase.STABLE and bool(member.owned))
    # A loop over records waits here, in one call.
    group.waits()
    member.busy_until_ms = world.now_ms + 600_000
    world.run(lambda: world.now_ms >= member.busy_until_ms - 1_000)
    world.store(0, 1)
    fetching = member.reading.fetching
    world.run(lambda: bool(fetching.prefetched.ready))
    fetched = fetching.prefetched.take()
    assert fetched is not None
    member.reading.hand_out(fetched, fetching.open(fetched))
    records = member.reading.take_records()
    assert records is not None
    assert next(records).value == b"0"
    took_ms = world.now_ms
    member.busy_until_ms = took_ms + 60_000
    world.run(lambda: world.now_ms >= took_ms + 40_000)
    assert group.membership.phase is Phase.STABLE
    assert [what for what, _ in member.told] == ["assigned"]


def test_a_coordinator_that_cannot_say_where_the_group_stands_is_asked_again_after_a_while() -> (
    None
):
    world = GroupWorld(8, partitions=2, records=20)
    world.refusals = [ErrorCode.REQUEST_TIMED_OUT] * 12
    began_ms = world.now_ms
    member = world.start()
    world.run(lambda: not world.refusals)
    assert world.now_ms - began_ms > 3_000
    assert not member.reading.fetching.prefetched.errors
    world.run(world.is_settled)


class FullWorld(GroupWorld):
    """Its broker cannot write down a generation, for a while."""

    is_full = True

    def _recorded(self, kept: Generation, done: OnRecorded) -> None:
        if self.is_full:
            done(self.now_ms, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            super()._recorded(kept, done)


def test_who_is_kept_out_while_the_broker_cannot_write_is_told_soon() -> None:
    world = FullWorld(8, partitions=2, records=20)
    absences = world.start().reading.engine.network.absences
    world.passes(6_000)
    (notice,) = absences.take()
    assert notice.text.startswith("group 'g' cannot be joined, still trying: coordinator of 'g': ")
    world.passes(6_000)
    assert not absences.take(), "once"
    world.is_full = False
    world.run(world.is_settled)
    (notice,) = absences.take()
    assert notice.text.startswith("group 'g' was joined after 1")


def test_commits_that_are_refused_for_long_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld(8, partitions=2, records=20)
    group = type(world.group)
    with monkeypatch.context() as full:
        full.setattr(group, "check_commit", lambda *_, **__: ErrorCode.COORDINATOR_NOT_AVAILABLE)
        absences = world.start().reading.engine.network.absences
        world.run(lambda: len(set(world.processed)) == 40)
        world.passes(30_000)
        (notice,) = absences.take()
        told = "offsets of group 'g' cannot be committed, still trying: "
        assert notice.text.startswith(told)
        assert "coordinator of 'g'" in notice.text
    world.run(lambda: len(world.committed) == 2)
    world.passes(30_000)
    (notice,) = absences.take()
    assert notice.text.startswith("offsets of group 'g' were committed after ")


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "sticky"])
@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_who_cannot_commit_joins_in_time_all_the_same(code: ErrorCode, strategy: str) -> None:
    """However short the time is that a rebalance has."""
    world = GroupWorld(8, partitions=2, records=20)
    members = [world.start(strategy, rebalance_timeout_ms=4_000)]
    membership = members[0].reading.group.membership
    world.run(lambda: len(world.processed) > 5)
    first_id, world.commit_refusals = membership.member_id, [code] * 100_000
    members.append(world.start(strategy, rebalance_timeout_ms=4_000))
    world.run(lambda: all(len(member.owned) == 1 for member in members))
    assert membership.member_id == first_id


def test_commits_are_said_to_be_made_when_one_is() -> None:
    """And not when the broker refuses for another reason: it does not tell the caller of that."""
    world = GroupWorld(8, partitions=2, records=20)
    absences = world.start().reading.engine.network.absences
    for_now, rebalancing = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS
    world.commit_refusals = [for_now] * 60 + [rebalancing] + [for_now] * 60
    world.run(lambda: not world.commit_refusals)
    (notice,) = absences.take()
    assert "cannot be committed, still trying" in notice.text
    world.run(lambda: len(world.committed) == 2)
    world.passes(10_000)
    (notice,) = absences.take()
    assert notice.text.startswith("offsets of group 'g' were committed after ")


def test_who_could_not_be_told_in_time_where_the_group_stands_asks_again() -> None:
    world = GroupWorld(10, partitions=2, records=20)
    world.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000
    member = world.start()
    with pytest.raises(TimedOut, match="coordinator of 'g'"):
        world.run(lambda: False)
    world.refusals.clear()
    world.run(world.is_settled)
    assert member.told == [("assigned", [0, 1])]


def test_who_may_not_know_where_the_group_stands_leaves_it_to_the_others(
    kind: type[GroupWorld],
) -> None:
    world = kind(11, partitions=2, records=20)
    world.refusals = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    refused = world.start()
    refused.expected = (GroupAuthorizationFailed,)
    world.run(lambda: not world.refusals)
    other = world.start()
    world.run(lambda: len(set(world.processed)) == 40 and other.owned == {0, 1})
    assert refused.reading.group.membership.phase is Phase.OUT
    assert not refused.owned
    with pytest.raises(GroupAuthorizationFailed):
        refused.reading.came_back()


@pytest.mark.parametrize("kind", [GroupWorld, ConsumerGroupWorld])
@pytest.mark.parametrize("code", [-1, 42])
def test_who_was_not_told_where_the_group_stands_joins_when_it_asks_again(
    kind: type[GroupWorld], code: int
) -> None:
    """It may: one answer that nobody understands is not the end of a consumer."""
    world = kind(11, partitions=2, records=20)
    world.refusals = [ErrorCode(code)]
    member = world.start()
    member.expected = (UnknownServerError, InvalidRequest)
    world.run(lambda: len(set(world.processed)) == 40 and member.owned == {0, 1})
    assert not world.refusals


def test_who_is_never_told_where_the_group_stands_does_not_keep_the_others_busy(
    kind: type[GroupWorld],
) -> None:
    """Each time that it is a member they rebalance, however often its caller asks."""
    world = kind(11, partitions=2, records=20)
    world.refusals = refusals = [ErrorCode.INVALID_REQUEST] * 1_000
    member = world.start(instance_id="a")
    member.expected = (InvalidRequest,)
    world.passes(30_000)
    assert 5 <= 1_000 - len(refusals) <= 20
    refusals.clear()
    world.run(lambda: len(set(world.processed)) == 40 and member.owned == {0, 1})


@pytest.mark.parametrize("code", [30, 23], ids=["no right", "another protocol"])
def test_a_member_that_was_refused_joins_when_it_asks_again(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As somebody has given it the right by then, or the members of the other kind are gone."""
    world = GroupWorld(11, partitions=2, records=20)
    group = type(world.group)
    join, refusals = group.join, [ErrorCode(code)] * 3

    def refusing(self: Group, now_ms: int, joining: Joining, done: OnJoined) -> None:
        if refusals:
            done(Joined(refusals.pop(), joining.member_id))
        else:
            join(self, now_ms, joining, done)

    monkeypatch.setattr(group, "join", refusing)
    member = world.start()
    with pytest.raises((GroupAuthorizationFailed, InconsistentGroupProtocol)):
        world.run(lambda: False)
    member.expected = (GroupAuthorizationFailed, InconsistentGroupProtocol)
    world.run(world.is_settled)


def test_a_member_that_is_always_refused_does_not_keep_its_broker_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often its caller asks."""
    world = GroupWorld(11, partitions=2, records=20)
    group = type(world.group)
    join, refusals = group.join, [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 1_000

    def refusing(self: Group, now_ms: int, joining: Joining, done: OnJoined) -> None:
        if refusals:
            done(Joined(refusals.pop(), joining.member_id))
        else:
            join(self, now_ms, joining, done)

    monkeypatch.setattr(group, "join", refusing)
    world.start().expected = (GroupAuthorizationFailed,)
    world.passes(10_000)
    assert 10 <= 1_000 - len(refusals) <= 40
    refusals.clear()
    world.run(world.is_settled)


def test_who_may_be_a_member_again_is_the_one_that_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its right was taken for a moment: the group has it still, and would wait for its session."""
    world = GroupWorld(11, partitions=2, records=20)
    group: type[Group] = type(world.group)
    members = [world.start(session_timeout_ms=600_000) for _ in range(2)]
    refused = members[0]
    membership = refused.reading.group.membership
    world.run(lambda: all(len(member.owned) == 1 for member in members))
    refused_id, heartbeat = membership.member_id, group.heartbeat

    def refusing(
        self: Group, now_ms: int, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        if member_id == refused_id:
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        answer: ErrorCode = heartbeat(self, now_ms, member_id, instance_id, generation)
        return answer

    monkeypatch.setattr(group, "heartbeat", refusing)
    refused.expected = (GroupAuthorizationFailed,)
    world.run(lambda: membership.generation < 0)
    monkeypatch.undo()
    given_back_ms = world.now_ms
    world.run(lambda: all(len(member.owned) == 1 for member in members))
    world.run(world.is_settled)
    assert membership.member_id == refused_id
    assert world.now_ms < given_back_ms + 600_000


def test_a_member_that_is_not_known_again_and_again_takes_its_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GroupWorld(11, partitions=1, records=0)
    group, times = type(world.group), list[int]()
    join = group.join

    def refusing(self: Group, now_ms: int, joining: Joining, done: OnJoined) -> None:
        times.append(now_ms)
        if len(times) <= REFUSALS_MAX + 3:
            done(Joined(ErrorCode.UNKNOWN_MEMBER_ID, joining.member_id))
        else:
            join(self, now_ms, joining, done)

    monkeypatch.setattr(group, "join", refusing)
    member = world.start()
    world.run(lambda: member.owned == {0})
    pauses = [after - before for before, after in pairwise(times[: REFUSALS_MAX + 4])]
    assert all(pause < 20 for pause in pauses[:REFUSALS_MAX])
    assert all(20 < pause < 1_000 for pause in pauses[REFUSALS_MAX:])


def test_what_is_said_of_what_was_lost_meanwhile_does_not_count(kind: type[GroupWorld]) -> None:
    """Where the group stands was asked about a partition that the member has lost and has again."""
    world = kind(12, partitions=1, records=20)
    world.refusals = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    world.late = 1
    member = world.start()
    membership = member.reading.group.membership
    world.run(lambda: not world.refusals)
    first = membership.member_id
    world.expel(first)
    world.run(lambda: membership.member_id not in ("", first) and membership.phase is Phase.STABLE)
    world.answer_late()
    world.run(world.is_settled)


def test_a_call_that_is_not_done_in_time_says_what_its_coordinator_answered() -> None:
    world = GroupWorld(10, partitions=1, records=0)
    member = world.start()
    reading = member.reading
    world.run(lambda: member.owned == {0})
    world.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100
    done = reading.engine.call(reading.committed([(TOPIC, 0)]), world.now_ms, timeout_ms=2_000)
    world.run(lambda: done.done)
    assert "coordinator of 'g': " in str(done.error)


def test_what_was_lost_while_it_was_worked_at_is_committed_by_nobody_for_who_came_back(
    kind: type[GroupWorld],
) -> None:
    """Another member may have worked at it in between: a transaction of it has to be refused."""
    world = kind(9, partitions=1, records=20)
    member = world.start()
    reading = member.reading
    world.run(lambda: member.in_hand is not None and len(world.processed) > 3)
    had = reading.group_metadata
    member.busy_until_ms = world.now_ms + 600_000
    world.forget()
    membership = reading.group.membership
    world.run(lambda: membership.phase is Phase.STABLE and membership.member_id != had.member_id)
    world.run(lambda: member.owned == {0})
    assert reading.group_metadata == had
    member.busy_until_ms = world.now_ms
    taken_count = len(world.processed)
    world.run(lambda: len(world.processed) > taken_count)
    assert reading.group_metadata == membership.metadata


def test_a_heartbeat_of_an_earlier_generation_that_comes_late_costs_nothing() -> None:
    """Its connection was lost again and again; when it arrives the member has joined anew."""
    world = GroupWorld(2, partitions=2, records=20)
    member = world.start()
    membership = member.reading.group.membership
    world.run(lambda: membership.phase is Phase.STABLE and len(member.owned) == 2)
    world.to_cut[HeartbeatRequest.message_key] = 6
    world.run(lambda: not world.to_cut[HeartbeatRequest.message_key])
    member.reading.subscribe([TOPIC], None)
    world.run(lambda: membership.generation == 2 and membership.phase is Phase.STABLE)
    later = world.now_ms + 3_000
    world.run(lambda: world.now_ms >= later)
    assert membership.generation == 2
    assert [what for what, _ in member.told] == ["assigned"]
    world.run(world.is_settled)
    assert set(Counter(world.processed).values()) == {1}


def test_a_commit_that_comes_behind_its_generation_is_made_in_the_next() -> None:
    """Its partitions are the member's own all along; only the number has moved on."""
    world = GroupWorld(4, partitions=2, records=20)
    member = world.start(auto_commit=False)
    reading = member.reading
    membership = reading.group.membership
    world.run(lambda: membership.phase is Phase.STABLE and len(member.owned) == 2)
    world.to_cut[OffsetCommitRequest.message_key] = 6
    call = reading.commit({(TOPIC, 0): 3})
    done = reading.engine.call(call, world.now_ms)
    world.run(lambda: not world.to_cut[OffsetCommitRequest.message_key])
    reading.subscribe([TOPIC], None)
    world.run(lambda: membership.generation == 2 and membership.phase is Phase.STABLE)
    assert not done.done
    world.run(lambda: done.done)
    done.result()
    assert world.committed[TOPIC, 0] == 3


def test_where_the_group_stood_before_another_member_worked_there_does_not_count(
    kind: type[GroupWorld],
) -> None:
    """The answer is as old as the first assignment; the partition went, and came back."""
    world = kind(5, partitions=2, records=20)
    world.late = 1
    first = world.start()
    first_member = first.reading.group
    world.run(lambda: not world.late and first_member.membership.phase is Phase.STABLE)
    second = world.start()
    world.run(lambda: len(world.processed) == 20)
    second.leave()
    world.run(lambda: len(first_member.owned()) == 2)
    world.answer_late()
    world.run(world.is_settled)
    assert set(Counter(world.processed).values()) == {1}


@pytest.mark.parametrize("seed", range(8))
def test_what_a_membership_that_is_over_was_about_to_say_is_not_said(
    kind: type[GroupWorld], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for its coordinator in vain until its caller has been away for too long, and is back:
    its join would come behind that of the new membership, and take the instance away from it."""
    world = kind(seed, partitions=1, records=20)
    monkeypatch.setattr(reading, "now_ms", lambda: world.now_ms)
    member = world.start(instance_id="one", max_poll_interval_ms=5_000)
    world.to_cut[FindCoordinatorRequest.message_key] = 10_000
    member.busy_until_ms = world.now_ms + 6_000
    world.run(lambda: world.now_ms >= member.busy_until_ms + 1_000)
    world.to_cut.clear()
    world.run(world.is_settled)
    later = world.now_ms + 10_000
    world.run(lambda: world.now_ms >= later)
    assert len(world.group.members) == 1
    assert [what for what, _ in member.told] == ["assigned"]


def test_who_is_closed_while_its_loop_goes_on_does_not_join_again(kind: type[GroupWorld]) -> None:
    """Else the group would wait for a member that is gone, until its session ends."""
    world = kind(5, partitions=2, records=20)
    member = world.start()
    reading = member.reading
    world.run(lambda: len(world.processed) > 2)
    reading.group.closing(world.now_ms)
    done = reading.engine.call(reading.group.goodbye(world.now_ms, patient=True), world.now_ms)
    reading.came_back()  # in another thread or task, which asks for more
    world.run(lambda: done.done)
    assert reading.group.membership.phase is Phase.OUT


@pytest.mark.parametrize("patient", [True, False])
def test_who_closes_as_well_waits_for_the_last_commit_of_who_closed_first(
    kind: type[GroupWorld], patient: bool
) -> None:
    """Two threads or tasks close one consumer: the second would end it in the middle of that."""
    world = kind(5, partitions=2, records=20)
    member = world.start(commit_interval_ms=60_000)
    world.run(lambda: len(world.processed) > 5)
    engine, group = member.reading.engine, member.reading.group
    member.busy_until_ms = world.now_ms + 60_000
    for _ in range(2):
        group.closing(world.now_ms)
        done = engine.call(group.goodbye(world.now_ms, patient=patient), world.now_ms)
    world.run(lambda: done.done)
    assert sum(world.committed.values()) == len(world.processed) - 1  # but for the one in hand
    assert not world.group.members


def test_who_closes_leaves_the_group_though_its_last_commit_is_not_answered(
    kind: type[GroupWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others need not wait for the end of its session."""
    world = kind(5, partitions=2, records=20)
    member = world.start(commit_interval_ms=60_000)
    world.run(lambda: len(world.processed) > 5)
    answer = world._answer_group

    def slow(request: Message, reply: Callable[[Message], None], client_id: str) -> bool:
        return isinstance(request, OffsetCommitRequest) or answer(request, reply, client_id)

    monkeypatch.setattr(world, "_answer_group", slow)
    member.busy_until_ms = world.now_ms + 60_000
    group = member.reading.group
    group.closing(world.now_ms)
    call = group.goodbye(world.now_ms, patient=True)
    done = member.reading.engine.call(call, world.now_ms, timeout_ms=GOODBYE_MS)
    world.run(lambda: done.done)
    assert not world.group.members


@pytest.mark.parametrize("what", ["cut", "refused"])
@pytest.mark.parametrize("when", ["closed", "given up"])
def test_a_last_commit_has_its_time_however_long_ago_the_client_did_anything(
    when: str, what: str
) -> None:
    """Nothing is due between two heartbeats; the commit has to be said twice."""
    world = GroupWorld(5, partitions=2, records=20)
    member = world.start(commit_interval_ms=60_000, heartbeat_interval_ms=10_000)
    world.run(lambda: len(world.processed) > 5)
    member.busy_until_ms = world.now_ms + 60_000
    group = member.reading.group
    if when == "given up":
        group.take_over([], world.now_ms)
    world.now_ms += 8_000
    if what == "cut":
        world.to_cut[OffsetCommitRequest.message_key] = 1
    else:
        world.commit_refusals = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR]
    if when == "closed":
        group.closing(world.now_ms)
        call = group.goodbye(world.now_ms, patient=True)
        done = member.reading.engine.call(call, world.now_ms, timeout_ms=GOODBYE_MS)
        world.run(lambda: done.done)
    else:
        member.busy_until_ms = 0
        event = group.events.next()
        assert event is not None
        group.event_done(event, world.now_ms)
        world.run(lambda: not member.owned)
    assert sum(world.committed.values()) >= len(world.processed) - 1


def test_a_member_that_waits_for_its_caller_before_it_joins_is_alive() -> None:
    """In an eager group, which it joins without anything: for longer than its session."""
    world = GroupWorld(5, partitions=2, records=20)
    quick: Any = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
    first = world.start("range", **quick)
    world.run(lambda: first.in_hand is not None)
    busy_until_ms = first.busy_until_ms = world.now_ms + 20_000
    second = world.start("range", **quick)
    world.run(lambda: bool(second.owned))
    assert world.now_ms >= busy_until_ms
    assert "lost" not in [what for what, _ in first.told]


def test_a_member_that_could_not_join_for_a_moment_says_nothing_of_the_time_before() -> None:
    world = GroupWorld(5, partitions=2, records=20)
    member = world.start()
    world.run(world.is_settled)
    began_ms = world.now_ms
    world.run(lambda: world.now_ms > began_ms + 600_000)
    world.start()
    world.run(lambda: len(world.group.members) == 2)
    world.to_cut[JoinGroupRequest.message_key] = 1
    world.run(lambda: len(member.owned) == 1)  # its loop would raise it
    assert not world.to_cut[JoinGroupRequest.message_key]


def test_a_member_says_where_it_is_each_time_before_it_joins() -> None:
    world = GroupWorld(5, partitions=3, records=40)
    first = world.start(commit_interval_ms=10**9)
    membership = first.reading.group.membership
    for generation in (2, 3):
        world.run(lambda: first.in_hand is not None)
        count, record = len(world.processed), first.in_hand
        assert record is not None
        world.start(commit_interval_ms=10**9)
        world.run(
            lambda least=generation: (  # type: ignore[misc]
                membership.generation >= least and membership.phase is Phase.STABLE
            )
        )
        assert sum(world.committed.values()) >= count - 1, generation


def test_a_last_commit_is_not_undone_by_one_that_is_sent_again() -> None:
    world = GroupWorld(5, partitions=1, records=40)
    member = world.start(commit_interval_ms=10**9)
    world.run(lambda: len(world.processed) > 10)
    member.busy_until_ms = world.now_ms + 60_000
    engine, group = member.reading.engine, member.reading.group
    world.to_cut[OffsetCommitRequest.message_key] = 1
    engine.call(member.reading.commit({(TOPIC, 0): 3}), world.now_ms)
    world.run(lambda: not world.to_cut[OffsetCommitRequest.message_key])
    group.closing(world.now_ms)
    done = engine.call(group.goodbye(world.now_ms, patient=True), world.now_ms)
    world.run(lambda: done.done)
    assert world.committed[TOPIC, 0] == len(world.processed) - 1


def test_a_last_commit_is_not_undone_by_one_that_was_refused_for_now(
    kind: type[GroupWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of another task, to be tried again while the broker has the last one."""
    world = kind(5, partitions=1, records=40)
    member = world.start(commit_interval_ms=10**9)
    world.run(lambda: len(world.processed) > 10)
    member.busy_until_ms = world.now_ms + 60_000
    engine, group = member.reading.engine, member.reading.group
    world.commit_refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
    engine.call(member.reading.commit({(TOPIC, 0): 3}), world.now_ms)
    world.run(lambda: not world.commit_refusals)
    answer = world._answer_group

    def slow(request: Message, reply: Callable[[Message], None], client_id: str) -> bool:
        if not isinstance(request, OffsetCommitRequest):
            return answer(request, reply, client_id)
        return answer(request, lambda m: world._at(world.now_ms + 1_000, lambda: reply(m)), "")

    monkeypatch.setattr(world, "_answer_group", slow)
    group.closing(world.now_ms)
    done = engine.call(group.goodbye(world.now_ms, patient=True), world.now_ms)
    world.run(lambda: done.done)
    assert world.committed[TOPIC, 0] == len(world.processed) - 1
    assert not world.group.members


def test_what_is_subscribed_to_while_it_joins_is_said_behind_that() -> None:
    world = GroupWorld(5, partitions=1, records=0)
    world.cluster.create("u", 1)
    member = world.start()
    world.run(lambda: bool(world.group.members))
    assert member.reading.group.membership.phase is Phase.JOINING
    member.reading.subscribe([TOPIC, "u"], None)
    world.run(lambda: member.reading.fetching.states.keys() == {(TOPIC, 0), ("u", 0)})


def test_a_commit_that_is_sent_again_does_not_undo_a_later_one(kind: type[GroupWorld]) -> None:
    world = kind(6, partitions=1, records=40)
    world.job_ms = lambda: 100
    member = world.start(commit_interval_ms=60_000)
    reading = member.reading
    world.run(lambda: len(world.processed) > 5)
    engine = reading.engine
    world.to_cut[OffsetCommitRequest.message_key] = 6
    first = engine.call(reading.commit({(TOPIC, 0): 2}), world.now_ms)
    world.run(lambda: not world.to_cut[OffsetCommitRequest.message_key])
    second = engine.call(reading.commit({(TOPIC, 0): 5}), world.now_ms)
    world.run(lambda: first.done and second.done)
    assert world.committed[TOPIC, 0] == 5


def test_commits_are_made_in_the_order_in_which_they_were_asked_for() -> None:
    """By several threads: one that waits is not overtaken by who comes when it is its turn."""
    world = GroupWorld(1, partitions=1, records=20)
    member = world.start(auto_commit=False)
    world.run(lambda: member.in_hand is not None)
    calls: list[Completion[None]] = []

    def commit(offset: int) -> Completion[None]:
        call = member.reading.commit({(TOPIC, 0): offset})
        calls.append(member.reading.engine.call(call, world.now_ms))
        return calls[-1]

    first = commit(1)
    commit(2)
    commit(3)
    first.on_done(lambda: commit(4) and None)
    world.run(lambda: len(calls) == 4 and all(call.done for call in calls))
    assert world.committed == {(TOPIC, 0): 4}


def test_a_commit_that_is_refused_during_a_rebalance_does_not_undo_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried again when the later one, of another task, has been made; of what that has not
    said anything of it counts."""
    world = GroupWorld(1, partitions=2, records=20)
    member = world.start(auto_commit=False)
    world.run(lambda: member.in_hand is not None and len(member.owned) == 2)
    group = type(world.group)
    check, refusals = group.check_commit, [ErrorCode.REBALANCE_IN_PROGRESS]

    def refusing(*args: Any, **options: Any) -> ErrorCode:  # noqa: ANN401
        return refusals.pop() if refusals else check(*args, **options)

    monkeypatch.setattr(group, "check_commit", refusing)

    def commit(**offsets: int) -> Completion[None]:
        call = member.reading.commit({(TOPIC, int(p[1:])): at for p, at in offsets.items()})
        return member.reading.engine.call(call, world.now_ms)

    first, second = commit(p0=1, p1=2), commit(p0=5)
    world.run(lambda: first.done and second.done)
    first.result()
    assert world.committed == {(TOPIC, 0): 5, (TOPIC, 1): 2}


def test_a_commit_that_waits_for_its_broker_does_not_undo_that_of_who_was_there_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker could not store it, and was asked again and again; its partition went to another
    member meanwhile, and came back."""
    world = GroupWorld(5, partitions=2, records=20)
    first = world.start(auto_commit=False)
    membership = first.reading.group.membership
    world.run(lambda: membership.phase is Phase.STABLE and len(first.owned) == 2)
    group = type(world.group)
    check, is_full = group.check_commit, True

    def checked(self: Any, now_ms: int, member_id: str, *args: Any, **options: Any) -> ErrorCode:  # noqa: ANN401
        if is_full and member_id == membership.member_id:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code: ErrorCode = check(self, now_ms, member_id, *args, **options)
        return code

    monkeypatch.setattr(group, "check_commit", checked)
    commit = first.reading.commit({(TOPIC, 0): 3, (TOPIC, 1): 3})
    done = first.reading.engine.call(commit, world.now_ms)
    second = world.start()
    world.run(lambda: len(second.owned) == 1)
    (moved,), before = second.owned, len(world.processed)
    world.run(lambda: (moved, 19) in world.processed[before:])
    second.leave()
    assert world.committed[TOPIC, moved] == 20
    world.run(lambda: len(first.owned) == 2)
    is_full = False
    world.run(lambda: done.done)
    assert isinstance(done.error, IllegalGeneration)
    assert world.committed[TOPIC, moved] == 20


def first_commit_held(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> list[Callable[[], bool]]:
    """When the first commit has come, how it is answered; all else is answered at once."""
    answer, held = world._answer_group, list[Callable[[], bool]]()

    def slow(request: Message, reply: Callable[[Message], None], client_id: str) -> bool:
        if isinstance(request, OffsetCommitRequest) and not held:
            held.append(lambda: answer(request, reply, client_id))
            return True
        return answer(request, reply, client_id)

    monkeypatch.setattr(world, "_answer_group", slow)
    return held


def test_a_commit_that_waits_for_another_is_not_made_where_its_partition_went_meanwhile(
    kind: type[GroupWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker would take it: who is a member may say where the group stands anywhere."""
    world = kind(5, partitions=2, records=20)
    first = world.start(auto_commit=False)
    engine, membership = first.reading.engine, first.reading.group.membership
    world.run(lambda: membership.phase is Phase.STABLE and len(first.owned) == 2)
    held = first_commit_held(world, monkeypatch)
    commits = [
        engine.call(first.reading.commit({(TOPIC, number): 3}), world.now_ms) for number in (0, 1)
    ]
    second = world.start(auto_commit=False)
    world.run(lambda: second.owned == {1} and len(held) == 1)
    world.committed[TOPIC, 1] = 15  # by the other one
    held[0]()
    world.run(lambda: all(done.done for done in commits))
    assert isinstance(commits[1].error, IllegalGeneration)
    assert world.committed[TOPIC, 1] == 15


def test_a_commit_that_waits_for_another_is_made_though_the_consumer_is_closed_meanwhile(
    kind: type[GroupWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = kind(5, partitions=2, records=20)
    member = world.start(auto_commit=False)
    engine, group = member.reading.engine, member.reading.group
    world.run(lambda: group.membership.phase is Phase.STABLE and len(member.owned) == 2)
    held = first_commit_held(world, monkeypatch)
    commits = [
        engine.call(member.reading.commit({(TOPIC, number): 3}), world.now_ms) for number in (0, 1)
    ]
    world.run(lambda: bool(held))
    group.closing(world.now_ms)
    done = engine.call(group.goodbye(world.now_ms, patient=True), world.now_ms)
    held[0]()
    world.run(lambda: done.done)
    for commit in commits:
        commit.result()
    assert world.committed == {(TOPIC, 0): 3, (TOPIC, 1): 3}
    assert not world.group.members


@pytest.mark.parametrize("named", [False, True], ids=["all", "named"])
@pytest.mark.parametrize("is_back", [False, True], ids=["out", "back"])
@pytest.mark.parametrize("count", [4, 10], ids=["in hand", "gone past"])
def test_what_was_lost_while_it_was_worked_at_is_not_said_to_be_committed(
    kind: type[GroupWorld], named: bool, is_back: bool, count: int
) -> None:
    """Another member has it by now, or had it in between."""
    world = kind(9, partitions=1, records=10)
    member = world.start(auto_commit=False)
    membership, engine = member.reading.group.membership, member.reading.engine
    world.run(lambda: len(world.processed) == count and (member.in_hand is None) is (count == 10))
    offsets = {(TOPIC, 0): count} if named else None
    first = membership.member_id
    member.busy_until_ms = world.now_ms + 600_000
    world.store(0, 10, 10)
    world.expel(first)
    world.run(lambda: membership.member_id != first)
    world.committed[TOPIC, 0] = 15  # by the other one
    if is_back:
        world.run(lambda: member.owned == {0})
    done = engine.call(member.reading.commit(offsets), world.now_ms)
    world.run(lambda: done.done)
    with pytest.raises(IllegalGeneration, match="t-0"):
        done.result()
    assert world.committed[TOPIC, 0] == 15
    # Back in its loop it goes on with what it has by now.
    member.busy_until_ms = world.now_ms
    taken_count = len(world.processed)
    world.run(lambda: len(world.processed) > taken_count)
    done = engine.call(member.reading.commit(None), world.now_ms)
    world.run(lambda: done.done)
    done.result()
    assert world.committed[TOPIC, 0] == world.processed[-1][1] + 1


@pytest.mark.parametrize("is_spoken", [True, False], ids=["no right", "not spoken"])
def test_a_static_leader_that_came_back_reads_though_it_does_not_hear_what_was_dealt_out(
    is_spoken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = GroupWorld(9, partitions=2, records=10)
    first = world.start(instance_id="one")
    world.run(lambda: len(world.processed) == 20 and first.in_hand is None)
    world.kill(first)
    asked: list[Message] = []
    answer = world._answer_group

    def describe(request: Message, reply: Callable[[Message], None], client_id: str) -> bool:
        if not isinstance(request, DescribeGroupsRequest):
            return answer(request, reply, client_id)
        asked.append(request)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        row = DescribeGroupsResponseGroup(
            error_code=code,
            group_id="g",
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
        reply(DescribeGroupsResponse(groups=[row]))
        return True

    monkeypatch.setattr(world, "_answer_group", describe)
    key = DescribeGroupsRequest.message_key
    if is_spoken:
        world.to_cut[key] = 1
    else:
        world.cluster.brokers[1].newest[key] = -1
    generation = world.group.generation
    began_ms = world.now_ms
    again = world.start(instance_id="one")
    world.run(lambda: again.owned == {0, 1})
    world.store(0, 10, 10)
    world.run(lambda: (0, 19) in world.processed)
    assert world.now_ms < began_ms + 5_000
    world.run(lambda: world.now_ms > began_ms + 200_000)  # for longer than a session, or a call
    assert again.owned == {0, 1}
    assert len(asked) == is_spoken
    assert world.group.generation == generation + 1, "dealt out anew, once"
    assert [what for what, _ in again.told] == ["assigned"]


def test_a_static_leader_that_came_back_reads_though_its_group_has_too_many_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one reads more than this one has room for beside its own."""
    world = GroupWorld(9, partitions=2, records=10)
    world.cluster.create("u")
    first = world.start(instance_id="one")
    world.run(lambda: first.owned == {0, 1})
    other = world.start()
    other.reading.group.subscribe(["u"])
    world.run(lambda: len(other.reading.fetching.states) == 1 and first.in_hand is None)
    world.kill(first)
    monkeypatch.setattr("segbroker.client.cluster.TOPICS_COUNT_MAX", 1)
    again = world.start(instance_id="one")
    world.run(lambda: again.owned == {0, 1})
    membership = again.reading.group.membership
    assert isinstance(membership, ClassicMembership)
    assert membership._dealt_before
    began_ms = world.now_ms
    world.run(lambda: world.now_ms > began_ms + 100_000)
    assert again.owned == {0, 1}


@pytest.mark.parametrize("assignors", [(), ("range",)], ids=["cooperative", "eager"])
def test_a_leader_whose_group_reads_too_many_topics_is_told_so_and_leaves(
    assignors: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others do not wait until its session ends: another client may work with more."""
    world = GroupWorld(9, partitions=2, records=10)
    world.cluster.create("u")
    leader = world.start(*assignors)
    world.run(lambda: leader.owned == {0, 1})
    monkeypatch.setattr("segbroker.client.cluster.TOPICS_COUNT_MAX", 1)
    other = world.start(*assignors)
    other.reading.engine.cluster.forget([TOPIC])
    other.reading.group.subscribe(["u"])
    with pytest.raises(SegbrokerError, match=r"^group 'g': a client works with at most 1 topics"):
        world.run(lambda: False)
    leader.busy_until_ms = world.now_ms + 1_000_000
    monkeypatch.undo()
    began_ms = world.now_ms
    world.run(lambda: len(other.reading.fetching.states) == 1)
    assert world.now_ms < began_ms + other.reading.group.settings.session_timeout_ms // 2
    assert not leader.owned


def test_who_is_given_more_topics_than_it_works_with_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a leader that gives what was not asked for."""
    world = GroupWorld(9, partitions=2, records=10)
    world.cluster.create("u")

    def more(
        protocol: str, members: list[GroupMemberInfo], counts: dict[str, int]
    ) -> dict[str, list[TopicPartition]]:
        dealt = deal_out(protocol, members, counts)
        return {name: [*given, TopicPartition("u", 0)] for name, given in dealt.items()}

    monkeypatch.setattr(classic_membership, "deal_out", more)
    monkeypatch.setattr("segbroker.client.cluster.TOPICS_COUNT_MAX", 1)
    member = world.start()
    with pytest.raises(SegbrokerError, match=r"^group 'g': a client works with at most 1 topics"):
        world.run(lambda: False)
    monkeypatch.undo()
    world.run(world.is_settled)
    assert member.owned == {0, 1}


def test_topics_of_a_pattern_that_are_gone_take_no_room_from_those_that_come(
    kind: type[GroupWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.client.cluster.TOPICS_COUNT_MAX", 5)
    world = kind(9, partitions=2, records=10)
    member = world.start()
    member.reading.group.subscribe_pattern(re.compile("t|u.*"))
    states, settings = member.reading.fetching.states, member.reading.engine.settings
    for number in range(8):
        name = f"u{number}"
        world.cluster.create(name)
        world.run(lambda name=name: TopicPartition(name, 0) in states)  # type: ignore[misc]
        world.cluster.unmentioned.add(name)
        world.run(lambda name=name: TopicPartition(name, 0) not in states)  # type: ignore[misc]
    assert world.now_ms > 8 * settings.metadata_max_age_ms
    assert member.owned == {0, 1}


def test_a_member_remembers_nothing_of_partitions_that_went_long_ago(
    kind: type[GroupWorld],
) -> None:
    world = kind(9, partitions=2, records=0)
    member = world.start()
    reading = member.reading
    reading.group.subscribe_pattern(re.compile("t|u.*"))
    states, commits = reading.fetching.states, reading.group._commits

    def comes_and_goes(tp: TopicPartition) -> int:
        """How much is remembered behind it."""
        world.cluster.create(tp.topic)
        world.run(lambda: tp in states)
        store(world.cluster.topics[tp.topic][0], [b"x"] * 3)
        world.run(lambda: commits._committed.get(tp) == (0, 3))
        world.cluster.unmentioned.add(tp.topic)
        world.run(lambda: tp not in states)
        return len(commits._gone) + len(commits._made)

    kept = [comes_and_goes(TopicPartition(f"u{number}", 0)) for number in range(6)]
    assert kept[-1] == kept[2]


def test_that_a_pattern_matches_too_many_topics_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld(9, partitions=2, records=10)
    member = world.start()
    world.run(lambda: len(world.processed) == 20)
    world.cluster.create("u")
    monkeypatch.setattr("segbroker.client.cluster.TOPICS_COUNT_MAX", 1)
    member.reading.group.subscribe_pattern(re.compile("t|u"))
    with pytest.raises(SegbrokerError, match=r"'t\|u': a client works with at most 1 topics"):
        world.run(lambda: False)
    assert member.owned == {0, 1}


def test_what_was_said_of_a_topic_that_is_not_wanted_any_more_is_not_raised(
    kind: type[GroupWorld],
) -> None:
    world = kind(9, partitions=2, records=10)
    member = world.start()
    reading = member.reading
    errors = reading.fetching.prefetched.errors
    world.run(lambda: bool(world.processed))
    member.busy_until_ms = world.now_ms + 1_000_000
    reading.subscribe([TOPIC, "nowhere"], None)
    world.run(lambda: bool(errors))
    reading.subscribe([TOPIC], None)
    member.busy_until_ms = world.now_ms
    world.run(lambda: len(world.processed) == 20)
    # It is again where the topic is wanted again.
    reading.subscribe([TOPIC, "nowhere"], None)
    with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
        world.run(lambda: False)


def test_what_was_said_of_a_pattern_does_not_count_where_topics_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GroupWorld(9, partitions=2, records=10)
    member = world.start()
    world.run(lambda: len(world.processed) == 20)
    world.cluster.create("u")
    member.busy_until_ms = world.now_ms + 1_000_000
    with monkeypatch.context() as patch:
        patch.setattr("segbroker.client.cluster.TOPICS_COUNT_MAX", 1)
        member.reading.group.subscribe_pattern(re.compile("t|u"))
        world.run(lambda: bool(member.reading.fetching.prefetched.errors))
    member.reading.subscribe(["u"], None)
    member.busy_until_ms = world.now_ms
    world.run(lambda: TopicPartition("u", 0) in member.reading.fetching.states)


def test_a_pattern_stays_where_topics_that_were_to_take_its_place_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a member has takes room until the group has taken it back."""
    world = GroupWorld(9, partitions=2, records=10)
    member = world.start()
    group = member.reading.group
    group.subscribe_pattern(re.compile("t|u.*"))
    world.run(lambda: member.owned == {0, 1})
    with monkeypatch.context() as patch:
        patch.setattr("segbroker.client.cluster.TOPICS_COUNT_MAX", 1)
        with pytest.raises(ValueError, match="at most 1 topics"):
            group.subscribe(["v"])
    world.cluster.create("u")
    world.run(lambda: TopicPartition("u", 0) in member.reading.fetching.states)


def test_what_is_lost_while_a_poll_takes_more_is_not_said_to_be_committed() -> None:
    """What the caller is not shown yet is in its hands all the same."""
    world = GroupWorld(9, partitions=1, records=0)
    member = world.start(auto_commit=False)
    reading = member.reading
    membership, ready = reading.group.membership, reading.fetching.prefetched.ready
    world.run(lambda: bool(member.told))
    member.busy_until_ms = world.now_ms + 600_000
    world.store(0, 10)
    world.run(lambda: bool(ready))
    reading.came_back()
    (fetched,) = ready
    assert reading.fetching.prefetched.take() is fetched
    reading.hand_out(fetched, reading.fetching.open(fetched))
    assert len([*(reading.take_records(in_loop=False) or ())]) == 10
    first = membership.member_id
    world.expel(first)
    world.run(lambda: membership.member_id not in ("", first) and member.owned == {0})
    assert reading.take_records(in_loop=False) is None  # to fill it up
    reading.progress.is_shown = True
    for offsets in (None, {(TOPIC, 0): 10}):
        done = reading.engine.call(reading.commit(offsets), world.now_ms)
        world.run(lambda done=done: done.done)  # type: ignore[misc]
        with pytest.raises(IllegalGeneration, match="t-0"):
            done.result()
    reading.came_back()
    done = reading.engine.call(reading.commit({(TOPIC, 0): 10}), world.now_ms)
    world.run(lambda: done.done)
    done.result()


def test_a_member_that_works_keeps_its_partition_and_the_others_go_on(
    kind: type[GroupWorld],
) -> None:
    world = kind(1, partitions=2, records=20)
    long_job = world.start()
    world.run(lambda: len(long_job.owned) == 2)
    world.run(lambda: long_job.in_hand is not None)
    long_job.busy_until_ms = world.now_ms + 600_000
    held = long_job.in_hand
    assert held is not None
    quick = world.start()
    world.run(lambda: quick.reading.group.membership.generation == 2)
    world.run(lambda: world.now_ms >= long_job.busy_until_ms - 1_000, within_ms=4_000_000)
    assert held.partition in long_job.owned
    assert ("lost", [held.partition]) not in long_job.told
    world.run(world.is_settled, within_ms=4_000_000)
    assert set(Counter(world.processed).values()) == {1}


def test_nothing_of_a_partition_is_handed_out_behind_the_word_that_it_is_given_up() -> None:
    world = GroupWorld(0, partitions=6, records=400)
    first, second = world.start(), world.start()
    membership = first.reading.group.membership
    world.run(
        lambda: (
            len(first.owned) == len(second.owned) == 3
            and membership.phase is Phase.STABLE
            and first.in_hand is not None
        )
    )
    first.busy_until_ms = 10**9  # what it is given and what is taken it hears in one go
    second.leave()
    world.run(lambda: membership.phase is Phase.STABLE and len(first.owned) == 6)
    generation, told_count = membership.generation, len(first.told)
    for _ in range(3):
        world.start()
    world.run(lambda: membership.phase is Phase.STABLE and membership.generation > generation)
    first.busy_until_ms = 0
    processed_count = len(world.processed)
    world.run(lambda: len(first.told) == told_count + 2)
    (_, given), (what, taken) = first.told[told_count:]
    assert what == "revoked"
    assert set(given) & set(taken)
    assert all(partition not in taken for partition, _ in world.processed[processed_count:])


def test_what_comes_back_before_it_has_gone_is_not_told_as_lost() -> None:
    """The caller works at something else and has not heard that it was to go."""
    world = GroupWorld(1, partitions=2, records=20)
    world.to_cut[OffsetCommitRequest.message_key] = 1_000
    first = world.start(
        commit_interval_ms=10**9, heartbeat_interval_ms=100, rebalance_timeout_ms=4_000
    )
    group, membership = first.reading.group, first.reading.group.membership
    world.run(lambda: first.in_hand is not None and first.in_hand.partition == 0)
    record = first.in_hand
    assert record is not None
    first.busy_until_ms = world.now_ms + 60_000
    second = world.start()
    world.run(lambda: membership.generation == 2 and membership.phase is Phase.STABLE)
    # Nothing is to be committed of the one that stays, or joining would wait for the other's.
    world.to_cut.clear()
    commit = first.reading.commit({(TOPIC, 0): record.offset})
    done = first.reading.engine.call(commit, world.now_ms)
    world.run(lambda: done.done)
    world.to_cut[OffsetCommitRequest.message_key] = 1_000
    world.run(lambda: group.events.next_wake_ms() is None)  # its time to hear of it is over
    world.kill(second)
    world.expel(second.reading.group.membership.member_id)
    world.run(lambda: membership.generation == 3 and membership.phase is Phase.STABLE)
    assert first.owned == {0, 1}
    world.to_cut.clear()
    first.busy_until_ms = world.now_ms
    world.run(world.is_settled)
    assert first.told == [("assigned", [0, 1])]


def test_what_went_without_a_word_is_committed_by_no_transaction_that_began_before() -> None:
    """Its records are in a transaction that goes on with another partition, for long."""
    world = GroupWorld(1, partitions=2, records=20)
    first = world.start(auto_commit=False, rebalance_timeout_ms=4_000)
    world.run(lambda: {partition for partition, _ in world.processed} == {0, 1})
    world.run(lambda: first.in_hand is not None and first.in_hand.partition == 0)
    first.busy_until_ms = world.now_ms + 60_000
    second = world.start(auto_commit=False)
    world.run(lambda: second.owned == {1})
    metadata = first.reading.group_metadata
    refused = world.group.check_commit(
        world.now_ms, metadata.member_id, metadata.instance_id, metadata.generation
    )
    assert refused == ErrorCode.ILLEGAL_GENERATION
    # `transform` has nothing in its transaction but what is in hand.
    assert first.reading.group.committing.of_in_hand == first.reading.group.membership.metadata
    first.busy_until_ms = world.now_ms
    world.run(lambda: ("lost", [1]) in first.told)
    assert first.reading.group_metadata == first.reading.group.membership.metadata


@pytest.mark.parametrize("auto_commit", [True, False])
def test_what_went_without_a_word_is_said_to_be_committed_where_it_was(auto_commit: bool) -> None:
    world = GroupWorld(1, partitions=2, records=20)
    options: Any = {"commit_interval_ms": 10**9, "rebalance_timeout_ms": 4_000}
    first = world.start(auto_commit=auto_commit, **options)
    world.run(lambda: {partition for partition, _ in world.processed} == {0, 1})
    world.run(lambda: first.in_hand is not None and first.in_hand.partition == 0)
    count = sum(partition == 1 for partition, _ in world.processed)
    first.busy_until_ms = world.now_ms + 60_000
    second = world.start(auto_commit=False)
    world.run(lambda: second.owned == {1})
    assert world.committed.get((TOPIC, 1)) == (count if auto_commit else None)
    done = first.reading.engine.call(first.reading.commit(None), world.now_ms)
    world.run(lambda: done.done)
    if auto_commit:
        done.result()
    else:
        with pytest.raises(IllegalGeneration, match="t-1"):
            done.result()


def test_what_was_lost_is_told_to_who_leaves_before_hearing_of_it(kind: type[GroupWorld]) -> None:
    """What it keeps for each partition ends with that word."""
    world = kind(1, partitions=2, records=20)
    member = world.start()
    world.run(lambda: member.in_hand is not None)
    member.busy_until_ms = world.now_ms + 600_000
    world.forget()
    world.run(lambda: member.reading.group.events.is_waiting)
    group = member.reading.group
    world.run(lambda: group.membership.phase is Phase.STABLE and bool(member.owned))
    member.leave()
    assert member.told == [("assigned", [0, 1]), ("lost", [0, 1])]


def test_what_was_never_said_to_be_assigned_is_not_said_to_be_gone(kind: type[GroupWorld]) -> None:
    world = kind(1, partitions=2, records=0)
    left, lost = world.start(), world.start()
    for member in (left, lost):
        member.busy_until_ms = world.now_ms + 600_000
    world.run(lambda: left.owned | lost.owned == {0, 1} and bool(left.owned) and bool(lost.owned))
    left.leave()
    world.forget()
    world.run(lambda: not lost.owned)
    lost.busy_until_ms = world.now_ms
    world.run(lambda: bool(lost.told))
    assert left.told == []
    assert lost.told == [("assigned", [0, 1])]


def test_what_goes_before_it_was_said_to_be_assigned_is_not_told_at_all(
    kind: type[GroupWorld],
) -> None:
    """The caller works at something else, and another member has it before it comes back."""
    world = kind(1, partitions=2, records=20)
    world.job_ms = lambda: 5_000
    members = [world.start(rebalance_timeout_ms=4_000) for _ in range(2)]
    world.run(lambda: all(len(member.owned) == 1 for member in members))
    first, second = sorted(members, key=lambda member: min(member.owned))
    world.run(lambda: first.in_hand is not None)
    first.busy_until_ms = world.now_ms + 60_000
    second.leave()
    world.run(lambda: first.owned == {0, 1})
    told = list(first.told)
    third = world.start()
    world.run(lambda: third.owned == {1})
    assert first.in_hand is not None, "it has not come back"
    first.busy_until_ms = world.now_ms
    world.run(world.is_settled)
    assert first.told == told


@pytest.mark.parametrize("assignors", [(), ("range",)], ids=["cooperative", "eager"])
def test_what_goes_before_it_is_known_where_the_group_stands_is_not_told_at_all(
    kind: type[GroupWorld], assignors: tuple[str, ...]
) -> None:
    """Another member has come before the first could begin to read."""
    world = kind(1, partitions=2, records=20)
    world.to_cut[OffsetFetchRequest.message_key] = 1_000
    first = world.start(*assignors)
    group = first.reading.group
    world.run(lambda: len(group.owned()) == 2)
    second = world.start(*assignors)
    world.run(lambda: len(group.owned()) == len(second.reading.group.owned()) == 1)
    world.to_cut.clear()
    world.run(world.is_settled)
    for member in (first, second):
        assert member.told == [("assigned", sorted(member.owned))]


def test_what_goes_unheard_is_not_read_though_its_commit_waits(kind: type[GroupWorld]) -> None:
    """Where the group stands there is answered before it has gone."""
    world = kind(1, partitions=2, records=20)
    first = world.start()
    group, engine = first.reading.group, first.reading.engine
    for kind_of_request in (OffsetFetchRequest, OffsetCommitRequest):
        world.to_cut[kind_of_request.message_key] = 1_000
    world.run(lambda: len(group.owned()) == 2)
    engine.call(first.reading.commit({(TOPIC, 0): 0}), world.now_ms)
    world.start()
    world.run(lambda: bool(group._leaving))
    del world.to_cut[OffsetFetchRequest.message_key]
    world.run(lambda: bool(first.told))
    assert len(group.owned()) == 2, "it is being committed"
    world.to_cut.clear()
    world.run(world.is_settled)
    assert first.told == [("assigned", sorted(first.owned))]


@pytest.mark.parametrize("comes_back", [False, True])
def test_what_goes_before_it_is_known_where_the_group_stands_is_not_said_to_come(
    kind: type[GroupWorld], comes_back: bool
) -> None:
    """That is answered while it waits for a commit that was asked for before."""
    world = kind(1, partitions=2, records=20)
    world.job_ms = lambda: 5_000
    members = [world.start(auto_commit=False) for _ in range(2)]
    world.run(lambda: all(len(member.owned) == 1 for member in members))
    first, second = sorted(members, key=lambda member: min(member.owned))
    group, told = first.reading.group, list(first.told)
    loading = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000
    world.refusals = list(loading)
    second.leave()
    world.run(lambda: len(group.owned()) == 2)
    world.commit_refusals = list(loading)
    commit = group.commit({TopicPartition(TOPIC, 0): CommittedOffset(1)})
    done = first.reading.engine.call(commit, world.now_ms)
    third = world.start()
    world.run(lambda: group._leaving == {(TOPIC, 1)})
    world.refusals.clear()
    now_ms = world.now_ms
    world.run(lambda: world.now_ms > now_ms + 1_000)
    assert not done.done
    if comes_back:
        world.kill(third)
        world.expel(third.reading.group.membership.member_id)
    world.commit_refusals.clear()
    world.run(world.is_settled)
    assert first.told == told + [("assigned", [1])] * comes_back


def going_unsaid(world: GroupWorld) -> tuple[SimulatedMember, SimulatedMember]:
    """One of whose two partitions the second is to go, before it was said to be assigned: its time
    to hear of it is over, and a commit of it is not answered; and for whom it goes."""
    world.job_ms = lambda: 5_000
    second = world.start(auto_commit=False, rebalance_timeout_ms=4_000)
    first = world.start(commit_interval_ms=10**9, rebalance_timeout_ms=4_000)
    world.run(lambda: (first.owned, second.owned) == ({0}, {1}))
    group, membership = first.reading.group, first.reading.group.membership
    world.run(lambda: first.in_hand is not None)
    record = first.in_hand
    assert record is not None
    first.busy_until_ms = world.now_ms + 60_000
    second.leave()
    world.committed.pop((TOPIC, 1), None)  # so that where it begins is to be committed
    world.run(lambda: first.owned == {0, 1})
    # Nothing is to be committed of the one that stays, or joining would wait for the other's.
    commit = first.reading.commit({(TOPIC, 0): record.offset})
    done = first.reading.engine.call(commit, world.now_ms)
    world.run(lambda: done.done)
    world.to_cut[OffsetCommitRequest.message_key] = 1_000
    third, generation = world.start(), membership.generation
    world.run(lambda: membership.generation > generation and membership.phase is Phase.STABLE)
    world.run(lambda: group.events.next_wake_ms() is not None)
    world.run(lambda: group.events.next_wake_ms() is None)
    assert first.owned == {0, 1}, "it is being committed"
    return first, third


def test_what_comes_back_before_it_was_said_to_be_assigned_is_said_to_be_assigned_once() -> None:
    """It was to go, and its commit was under way when it came back."""
    world = GroupWorld(1, partitions=2, records=20)
    first, third = going_unsaid(world)
    told_count, membership = len(first.told), first.reading.group.membership
    world.kill(third)
    world.expel(third.reading.group.membership.member_id)
    generation = membership.generation
    world.run(lambda: membership.generation > generation and membership.phase is Phase.STABLE)
    assert first.owned == {0, 1}
    world.to_cut.clear()
    first.busy_until_ms = world.now_ms
    world.run(world.is_settled)
    assert first.told[told_count:] == [("assigned", [1])]


@pytest.mark.parametrize("how", ["lost", "closed"])
def test_what_goes_before_it_was_said_to_be_assigned_is_not_heard_to_be_gone(how: str) -> None:
    """Its commit is under way when all is lost, or the end comes."""
    world = GroupWorld(1, partitions=2, records=20)
    first, _ = going_unsaid(world)
    told_count = len(first.told)
    if how == "lost":
        world.forget()
        world.run(lambda: not first.owned)
        first.busy_until_ms = world.now_ms
        world.run(lambda: len(first.told) > told_count)
    else:
        world.to_cut.clear()
        first.leave()
    assert first.told[told_count] == ("lost" if how == "lost" else "revoked", [0])


@pytest.mark.parametrize("offsets", [None, {(TOPIC, 0): 1}])
def test_a_commit_that_waits_for_a_rebalance_commits_nothing_in_a_topic_made_again_meanwhile(
    offsets: dict[tuple[str, int], int] | None,
) -> None:
    """Its offset is of the old one."""
    world = GroupWorld(4, partitions=1, records=40)
    member = world.start(auto_commit=False)
    world.run(lambda: member.in_hand is not None)
    member.busy_until_ms = world.now_ms + 600_000
    engine, states = member.reading.engine, member.reading.fetching.states
    world.rebalancing = True
    done = engine.call(member.reading.commit(offsets), world.now_ms)
    world.run(lambda: world.rebalanced_count > 2)
    world.cluster.create(TOPIC, 1)
    world.store(0, 10)
    seen = engine.cluster.refreshed()
    world.run(lambda: seen.done and states[TopicPartition(TOPIC, 0)].topics_ahead_count == 1)
    world.rebalancing = False
    world.run(lambda: done.done)
    assert done.error is None
    assert world.committed == {}


def test_the_time_of_a_callback_of_the_end_begins_with_the_end(
    kind: type[GroupWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who closes has come back: on_revoked may take as long as any callback, and what was gone past
    is committed behind it."""
    world = kind(5, partitions=1, records=20)
    monkeypatch.setattr(reading, "now_ms", lambda: world.now_ms)
    member = world.start(max_poll_interval_ms=60_000, commit_interval_ms=3_600_000)
    group, engine = member.reading.group, member.reading.engine
    world.run(lambda: len(world.processed) == 20)
    world.run(lambda: member.in_hand is None)
    member.busy_until_ms = world.now_ms + 1_000_000
    came_ms = world.now_ms
    world.run(lambda: world.now_ms >= came_ms + 50_000)
    group.closing(world.now_ms)
    world.run(lambda: world.now_ms >= came_ms + 100_000)
    done = engine.call(group.goodbye(world.now_ms, patient=True), world.now_ms)
    world.run(lambda: done.done)
    assert world.committed[TOPIC, 0] == 20
    # But a callback that hangs does not keep what others could have.
    world = kind(5, partitions=1, records=20)
    slow = world.start(max_poll_interval_ms=60_000)
    world.run(lambda: len(world.processed) == 20)
    slow.busy_until_ms = world.now_ms + 1_000_000
    slow.reading.group.closing(world.now_ms)
    other = world.start()
    world.run(lambda: other.owned == {0}, within_ms=200_000)


def revoked_and_not_committed_yet(world: GroupWorld) -> tuple[SimulatedMember, SimulatedMember]:
    """One that has heard that a partition goes, and whose commit of it is not answered; and for
    whom it goes."""
    member = world.start(
        commit_interval_ms=10**9, heartbeat_interval_ms=100, rebalance_timeout_ms=60_000
    )
    membership = member.reading.group.membership
    world.run(world.is_settled)
    # Nothing is to be committed of the one that stays, or joining would wait for the other's.
    done = member.reading.engine.call(member.reading.commit(None), world.now_ms)
    world.run(lambda: done.done)
    for first in range(20, 400, 10):
        world.store(1, 10, first)
    world.run(lambda: member.in_hand is not None)
    other = world.start()
    world.run(lambda: membership.phase is Phase.JOINING)
    world.to_cut[OffsetCommitRequest.message_key] = 1_000
    world.run(lambda: ("revoked", [1]) in member.told)
    assert member.owned == {0, 1}, "it is being committed"
    return member, other


def test_what_comes_back_when_it_was_heard_to_go_is_said_to_be_assigned() -> None:
    world = GroupWorld(1, partitions=2, records=20)
    first, second = revoked_and_not_committed_yet(world)
    membership = first.reading.group.membership
    world.kill(second)
    world.expel(second.reading.group.membership.member_id)
    world.run(lambda: membership.generation == 3 and membership.phase is Phase.STABLE)
    assert first.owned == {0, 1}, "it is still being committed"
    world.to_cut.clear()
    world.run(lambda: (1, 399) in world.processed)
    assert first.told == [("assigned", [0, 1]), ("revoked", [1]), ("assigned", [1])]


def test_what_comes_back_while_it_is_heard_to_go_is_said_to_be_assigned() -> None:
    """Its callback takes as long as a rebalance."""
    world = GroupWorld(1, partitions=2, records=20)
    first = world.start()
    world.run(world.is_settled)
    group, membership = first.reading.group, first.reading.group.membership
    first.busy_until_ms = world.now_ms + 600_000
    second = world.start()
    world.run(lambda: group.events.is_waiting)
    event = group.events.next()
    assert event is not None
    assert event.listener is not None
    event.is_told = True
    event.listener(event.partitions)
    world.kill(second)
    world.expel(second.reading.group.membership.member_id)
    world.run(lambda: membership.generation == 3 and membership.phase is Phase.STABLE)
    group.event_done(event, world.now_ms)
    first.busy_until_ms = world.now_ms
    world.store(1, 1, 20)
    world.run(lambda: (1, 20) in world.processed)
    assert first.told == [("assigned", [0, 1]), ("revoked", [1]), ("assigned", [1])]


@pytest.mark.parametrize("how", ["lost", "closed"])
def test_what_was_heard_to_go_is_not_heard_to_be_gone_once_more(how: str) -> None:
    world = GroupWorld(1, partitions=2, records=20)
    first, _ = revoked_and_not_committed_yet(world)
    if how == "lost":
        world.forget()
        world.run(lambda: len(first.told) > 2)
    else:
        world.to_cut.clear()
        first.leave()
    said = "lost" if how == "lost" else "revoked"
    assert first.told[:3] == [("assigned", [0, 1]), ("revoked", [1]), (said, [0])]


def test_a_late_commit_of_what_was_given_up_does_not_let_go_what_is_worked_at_again() -> None:
    """Lost meanwhile, given again, and to be given up once more."""
    world = GroupWorld(1, partitions=2, records=20)
    first, second = revoked_and_not_committed_yet(world)
    began_ms = world.now_ms
    world.kill(second)
    world.forget()
    world.run(lambda: ("lost", [0]) in first.told or ("lost", [0, 1]) in first.told)
    world.run(lambda: first.in_hand is not None and first.in_hand.partition == 1)
    first.busy_until_ms = world.now_ms + 20_000
    world.start()
    group = first.reading.group
    world.run(lambda: group.events.is_waiting)
    assert world.now_ms < began_ms + COMMIT_TIMEOUT_MS, "the first commit is under way"
    world.run(lambda: world.now_ms > began_ms + COMMIT_TIMEOUT_MS + 1_000)
    assert first.owned == {0, 1}

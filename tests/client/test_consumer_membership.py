"""What a member of KIP-848's protocol says, and makes of each answer, in simulated time."""

import traceback
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from segbroker.client import (
    FencedInstanceId,
    IllegalGeneration,
    UnknownMemberId,
)
from segbroker.client.consumer_membership import ConsumerMembership
from segbroker.client.errors import (
    BrokerError,
    GroupAuthorizationFailed,
    GroupMaxSizeReached,
    InvalidRequest,
    SegbrokerError,
    TopicAuthorizationFailed,
    TopicRecreated,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedByBroker,
)
from segbroker.client.membership import Phase
from segbroker.client.settings import ON_WIRE_MAX
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import ConsumerGroupHeartbeatRequest
from segbroker.protocol.messages_groups import OffsetCommitRequest

from .simulated_consumer_groups import INTERVAL_MS, ConsumerGroupWorld
from .simulated_groups import TOPIC, SimulatedMember


def membership_of(member: SimulatedMember) -> ConsumerMembership:
    membership = member.reading.group.membership
    assert isinstance(membership, ConsumerMembership)
    return membership


def settled(world: ConsumerGroupWorld, **options: Any) -> SimulatedMember:  # noqa: ANN401
    """A member that has both partitions."""
    member = world.start(**options)
    world.run(lambda: member.owned == {0, 1} and membership_of(member).phase is Phase.STABLE)
    return member


def owned_in(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return sorted(number for topic in request.topic_partitions for number in topic.partitions)


def test_who_joins_says_all_then_what_it_has_then_only_that_it_lives() -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world, group_remote_assignor="range", max_poll_interval_ms=300_000)
    world.passes(3 * INTERVAL_MS)
    first, second, *others = world.beats
    assert (first.member_epoch, owned_in(first)) == (0, [])
    assert first.subscribed_topic_names == [TOPIC]
    assert first.server_assignor == "range"
    assert first.rebalance_timeout_ms == 360_000
    assert (second.member_epoch, owned_in(second)) == (1, [0, 1])
    for beat in [second, *others]:
        assert beat.member_id == first.member_id == membership_of(member).member_id
        assert (beat.rebalance_timeout_ms, beat.server_assignor) == (-1, None)
        assert beat.subscribed_topic_names is None
    assert 2 <= len(others) <= 4
    assert {owned_in(beat) for beat in others} == {None}


def test_a_member_may_hold_what_it_works_at_for_as_long_as_it_takes() -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    settled(world)
    assert world.beats[0].rebalance_timeout_ms == ON_WIRE_MAX


def test_after_an_error_all_is_said_again() -> None:
    """Nobody knows what of the last request was heard."""
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world)
    losses: list[Callable[[], object]] = [
        lambda: world.to_cut.update({ConsumerGroupHeartbeatRequest.message_key: 1}),
        lambda: world.beat_refusals.append(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        lambda: world.beat_refusals.append(ErrorCode.NOT_COORDINATOR),
        lambda: world.beat_refusals.append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]
    for lose in losses:
        count, told = len(world.beats), list(member.told)
        lose()
        world.run(lambda count=count: any(b.subscribed_topic_names for b in world.beats[count:]))  # type: ignore[misc]
        (full,) = (beat for beat in world.beats[count:] if beat.subscribed_topic_names)
        assert full.member_epoch == 1
        assert owned_in(full) == [0, 1]
        world.passes(3 * INTERVAL_MS)
        assert membership_of(member).phase is Phase.STABLE
        assert member.told == told


@pytest.mark.parametrize(
    ("code", "is_same"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
        (ErrorCode.FENCED_MEMBER_EPOCH, True),
        (ErrorCode.GROUP_ID_NOT_FOUND, False),
    ],
)
def test_who_is_fenced_has_lost_all_and_joins_anew_where_the_group_stands(
    code: ErrorCode, is_same: bool
) -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world)
    had = membership_of(member).member_id
    world.run(lambda: len(world.processed) > 10)
    if not is_same:  # as the group has it, too
        world.expel(had)
    world.beat_refusals.append(code)
    world.run(lambda: len(member.told) == 3)
    assert member.told == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]
    assert (membership_of(member).member_id == had) is is_same
    world.run(world.is_settled)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, UnreleasedInstanceId),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, UnsupportedAssignor),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReached),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed),
        (ErrorCode.INVALID_REQUEST, InvalidRequest),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedByBroker),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceId),
    ],
)
def test_what_joining_again_would_not_mend_is_told_and_tried_when_asked_for_again(
    code: ErrorCode, error: type[SegbrokerError]
) -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    world.beat_refusals.append(code)
    world.start()
    with pytest.raises(error, match="as the test says") as caught:
        world.run(lambda: False)
    if error is UnsupportedByBroker:
        assert "group_protocol" in str(caught.value)
    if error is FencedInstanceId:  # it would throw out who has the instance by now
        raised = []
        for _ in range(2):
            with pytest.raises(FencedInstanceId) as caught:
                world.run(lambda: False)
            raised.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
        assert raised[0] == raised[1], "what a loop notes of it grows with each time"
        return
    world.run(world.is_settled)


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST])
def test_a_member_that_is_refused_has_lost_what_it_had(code: ErrorCode) -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world)
    member.expected = (BrokerError,)
    world.beat_refusals.append(code)
    world.run(lambda: len(member.told) == 3)
    assert [what for what, _ in member.told] == ["assigned", "lost", "assigned"]
    world.run(world.is_settled)


def test_that_a_topic_may_not_be_read_any_more_is_told_and_costs_nothing_else() -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world)
    world.beat_refusals.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicAuthorizationFailed):
        world.run(lambda: False)
    world.run(world.is_settled)
    assert member.told == [("assigned", [0, 1])]


def test_a_group_that_refuses_for_long_is_told_and_tried_all_the_same() -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    world.beat_refusals += [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 10_000
    absences = world.start().reading.engine.network.absences
    began_ms = world.now_ms
    world.passes(5_000)
    (notice,) = absences.take()
    assert notice.text.startswith("group 'g' cannot be joined, still trying: group 'g': ")
    with pytest.raises(BrokerError):
        world.run(lambda: False)
    assert 60_000 <= world.now_ms - began_ms < 65_000
    world.beat_refusals.clear()
    world.run(world.is_settled)
    (notice,) = absences.take()
    assert notice.text.startswith("group 'g' was joined after 6")


def test_what_is_given_of_a_topic_without_a_name_is_read_when_that_is_known() -> None:
    """The group has heard of a topic made again before this client: it looks for it, again and
    again, and has meanwhile what it knows."""
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    world.cluster.create("u", 1)
    world.newer_ids["u"] = UUID(int=99)
    member = world.start()
    member.reading.group.subscribe([TOPIC, "u"])
    world.run(lambda: len(member.owned) == 2)
    asked_count = member.reading.engine.cluster.replies_count
    world.passes(60_000)
    assert 5 < member.reading.engine.cluster.replies_count - asked_count < 20
    assert owned_in(world.beats[1]) == [0, 1], "others may have what it does not hold"
    assert membership_of(member).phase is Phase.RECONCILING
    world.cluster.topic_ids["u"] = UUID(int=99)
    states = member.reading.fetching.states
    world.run(lambda: ("u", 0) in states and membership_of(member).phase is Phase.STABLE)
    assert [owned_in(beat) for beat in world.beats if owned_in(beat)][-1] == [0, 0, 1]


def test_what_it_has_of_a_topic_made_again_stays_its_own_until_the_group_says_otherwise() -> None:
    """The client has seen the new topic before the group did, and is told all once more."""
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world)
    member.expected = (TopicRecreated,)
    world.newer_ids[TOPIC] = world.cluster.topic_ids[TOPIC]  # as the group still has it
    world.cluster.topic_ids[TOPIC] = UUID(int=99)
    seen = member.reading.engine.cluster.refreshed()
    world.run(lambda: seen.done)
    world.beat_refusals.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    count = len(world.beats)
    world.run(lambda: len(world.beats) > count + 3)
    assert membership_of(member).phase is Phase.STABLE
    assert member.told == [("assigned", [0, 1])]


def test_one_that_leaves_and_a_static_one_that_comes_back() -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    one, two = world.start(instance_id="one"), world.start()
    world.run(lambda: len(one.owned) == len(two.owned) == 1)
    had, epoch = one.owned, world.group.epoch
    one.leave()
    assert world.beats[-1].member_epoch == -2
    again = world.start(instance_id="one")
    world.run(lambda: again.owned == had)
    assert world.group.epoch == epoch, "nothing was dealt out anew"
    two.leave()
    assert world.beats[-1].member_epoch == -1
    world.run(lambda: again.owned == {0, 1})


def test_who_leaves_says_so_though_its_join_was_never_answered() -> None:
    """The group has it as a member: nobody else would get what is its own, for a session."""
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    world.unanswered = 1
    member = world.start(request_timeout_ms=5_000)
    membership = membership_of(member)
    world.run(lambda: bool(world.group.members) and not membership._is_beating)
    member.leave()
    assert not world.group.members


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
@pytest.mark.parametrize("instance_id", [None, "one"])
def test_who_leaves_says_so_to_the_coordinator_that_its_group_has_by_then(
    code: ErrorCode, instance_id: str | None
) -> None:
    """Else nobody would get what was its own, for a session."""
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world, instance_id=instance_id)
    world.beat_refusals.append(code)
    member.leave()
    left = -1 if instance_id is None else -2
    assert [beat.member_epoch for beat in world.beats[-2:]] == [left, left]
    assert {one.epoch for one in world.group.members.values()} <= {-2}


def test_the_place_of_an_instance_that_died_is_free_when_its_session_ends() -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    one = settled(world, instance_id="one")
    world.kill(one)
    again = world.start(instance_id="one")
    with pytest.raises(UnreleasedInstanceId, match="is held by member"):
        world.run(lambda: False)
    again.expected = (UnreleasedInstanceId,)
    count, began_ms = len(world.beats), world.now_ms
    world.run(world.is_settled)
    assert world.now_ms - began_ms > 30_000
    assert len(world.beats) - count < 200, "it is not asked in a loop"


def test_what_goes_is_committed_before_the_group_hears_that_it_is_let_go() -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    one = settled(world, commit_interval_ms=10**9)
    world.run(lambda: len(set(world.processed)) == 40)
    two = world.start()
    world.run(lambda: bool(two.owned))
    (gone,) = two.owned
    (ack,) = (
        beat
        for beat in world.beats[2:]
        if beat.member_id == membership_of(one).member_id and owned_in(beat) is not None
    )
    assert owned_in(ack) == [1 - gone]
    assert world.committed[TOPIC, gone] == 20
    assert one.told == [("assigned", [0, 1]), ("revoked", [gone])]


def test_a_later_word_of_the_group_replaces_what_is_not_done_yet() -> None:
    """Its caller is in a long job on what is to go; another one leaves meanwhile, whose share it is
    to have."""
    world = ConsumerGroupWorld(1, partitions=4, records=20)
    one = world.start()
    world.run(lambda: len(one.owned) == 4 and one.in_hand is not None)
    one.busy_until_ms = world.now_ms + 100_000
    two = world.start()
    world.run(lambda: membership_of(one).phase is Phase.RECONCILING)
    three = world.start()
    world.passes(2 * INTERVAL_MS)
    assert not two.owned
    two.leave()
    three.leave()
    world.run(world.is_settled)
    assert one.owned == {0, 1, 2, 3}


def at_the_next_epoch(
    world: ConsumerGroupWorld, member: SimulatedMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epoch has risen, which it hears by its next heartbeat; and a broker before Kafka 4.3
    takes no commits at the one before."""
    monkeypatch.setattr(type(world.group), "may_commit_late", lambda *args: False)
    known = world.group.members[membership_of(member).member_id]
    known.previous_epoch, known.epoch = known.epoch, 7
    world.group.epoch = world.group.assignment_epoch = 7


def test_a_commit_at_an_epoch_of_before_is_made_at_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world, auto_commit=False)
    at_the_next_epoch(world, member, monkeypatch)
    done = member.reading.engine.call(member.reading.commit({(TOPIC, 0): 3}), world.now_ms)
    world.run(lambda: done.done)
    done.result()
    assert membership_of(member).generation == 7
    assert world.committed[TOPIC, 0] == 3


def test_what_is_given_up_at_an_epoch_of_before_is_committed_at_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world, commit_interval_ms=10**9)
    world.run(lambda: len(set(world.processed)) == 40)
    at_the_next_epoch(world, member, monkeypatch)
    member.reading.group.take_over([], world.now_ms)
    world.run(lambda: not member.owned)
    assert world.committed == {(TOPIC, 0): 20, (TOPIC, 1): 20}


def test_a_commit_of_who_was_fenced_says_so() -> None:
    world = ConsumerGroupWorld(1, partitions=2, records=20)
    member = settled(world, auto_commit=False)
    member.busy_until_ms = world.now_ms + 600_000
    world.to_cut[OffsetCommitRequest.message_key] = 3
    done = member.reading.engine.call(member.reading.commit({(TOPIC, 0): 3}), world.now_ms)
    world.expel(membership_of(member).member_id)
    world.run(lambda: done.done)
    with pytest.raises(BrokerError) as caught:
        done.result()
    assert isinstance(caught.value, UnknownMemberId | IllegalGeneration)
    late = member.reading.engine.call(member.reading.commit({(TOPIC, 0): 3}), world.now_ms)
    world.run(lambda: late.done)
    assert isinstance(late.error, UnknownMemberId | IllegalGeneration)

"""The state machine of one group: generations, ownership, time, and nobody left waiting."""

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from segbroker.broker.groups.group import Group
from segbroker.broker.groups.group_members import Joined, Joining, Member, Synced
from segbroker.broker.groups.group_rounds import OnRecorded, Record, State
from segbroker.protocol.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
)
from segbroker.protocol.errors import ErrorCode
from segbroker.segments.metadata.generations import Generation, KeptMember

SESSION_MS = 10_000
REBALANCE_MS = 30_000


def numbered() -> "Iterator[int]":
    return count(1)


def recorded_at_once(kept: Generation, done: OnRecorded) -> None:
    done(0, ErrorCode.NONE)


def group(*, delay_ms: int = 0, size_max: int = 1_000, record: Record = recorded_at_once) -> Group:
    ids = numbered()
    return Group("g", lambda prefix: f"{prefix}-{next(ids)}", delay_ms, size_max, record)


class Disk:
    """Where generations are recorded: what was asked for waits until it is `settled`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Generation, OnRecorded]] = []
        self.durable = Generation(0)

    def record(self, kept: Generation, done: OnRecorded) -> None:
        self.asked.append((kept, done))

    def settle(self, now_ms: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest is durable, or fails with `code`."""
        kept, done = self.asked.pop(0)
        if not code:
            self.durable = kept
        done(now_ms, code)


class Client:
    """A member as the broker sees it: what it was told."""

    def __init__(self, group: Group, instance: str | None = None) -> None:
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.joined: list[Joined] = []
        self.synced: list[Synced] = []
        self.joining: Member | None = None
        self.syncing: Member | None = None

    def join(
        self, now_ms: int, protocols: dict[str, bytes] | None = None, *, first: bool = False
    ) -> None:
        joining = Joining(
            self.member_id,
            self.instance,
            "client",
            "host",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            {"range": b"t"} if protocols is None else protocols,
            first,
            True,
        )
        self.joining = self.group.join(now_ms, joining, self._joined)

    def _joined(self, result: Joined) -> None:
        self.joined.append(result)
        if result.code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = result.member_id
            self.generation = result.generation

    def sync(self, now_ms: int, assignments: dict[str, bytes] | None = None) -> None:
        self.syncing = self.group.sync(
            now_ms,
            self.member_id,
            self.instance,
            self.generation,
            None,
            None,
            assignments or {},
            self._synced,
        )

    def _synced(self, result: Synced) -> None:
        self.synced.append(result)

    def cut(self, now_ms: int) -> None:
        """Its connection is gone."""
        self.group.abandon(now_ms, self.joining, self._joined)
        self.group.abandon(now_ms, self.syncing, self._synced)

    def heartbeat(self, now_ms: int) -> ErrorCode:
        return self.group.heartbeat(now_ms, self.member_id, self.instance, self.generation)


def stable(*clients: Client, now_ms: int = 0) -> None:
    """All join and sync."""
    for client in clients:
        client.join(now_ms)
        for other in clients:
            if other is not client and other.joined and other.heartbeat(now_ms):
                other.join(now_ms)
    leader = next(c for c in clients if c.member_id == c.group.leader)
    for client in clients:
        if client is not leader:
            client.sync(now_ms)
    leader.sync(now_ms, {c.member_id: c.member_id.encode() for c in clients})
    assert leader.group.state is State.STABLE


def test_who_joins_again_while_it_waits_is_told_so_and_is_answered_once() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one, two)
    one.joined.clear()
    two.joined.clear()
    one.join(10)
    one.join(11)
    assert [answer.code for answer in one.joined] == [ErrorCode.REBALANCE_IN_PROGRESS]
    two.join(12)
    assert [answer.code for answer in one.joined[1:]] == [ErrorCode.NONE]
    assert [answer.code for answer in two.joined] == [ErrorCode.NONE]
    assert one.generation == two.generation


def test_one_member_joins_syncs_and_is_alone() -> None:
    one = Client(group())
    one.join(0)
    (answer,) = one.joined
    assert (answer.code, answer.generation, answer.leader) == (0, 1, one.member_id)
    assert [member for member, _, _ in answer.members] == [one.member_id]
    one.sync(0, {one.member_id: b"all"})
    assert one.synced == [Synced(ErrorCode.NONE, "consumer", "range", b"all")]


def test_an_id_comes_first_where_the_client_knows_that() -> None:
    one = Client(group())
    one.join(0, first=True)
    assert one.joined[0].code is ErrorCode.MEMBER_ID_REQUIRED
    assert not one.group.members
    one.join(1, first=True)
    assert one.joined[1].code is ErrorCode.NONE


def test_an_id_that_is_not_used_holds_nobody_up_for_ever() -> None:
    shared = group()
    lost, one, two = Client(shared), Client(shared), Client(shared)
    lost.join(0, first=True)
    one.join(1)
    assert one.joined[0].code is ErrorCode.NONE  # as nobody is waited for behind an initial delay
    two.join(2)
    one.join(3)
    assert (len(one.joined), len(two.joined)) == (1, 0)
    shared.tick(SESSION_MS)
    assert one.joined[1].code is two.joined[0].code is ErrorCode.NONE


def test_who_leaves_with_an_id_that_it_has_not_used_holds_nobody_up() -> None:
    shared = group()
    lost, one, two = Client(shared), Client(shared), Client(shared)
    lost.join(0, first=True)
    one.join(1)
    two.join(2)
    one.join(3)
    assert (len(one.joined), len(two.joined)) == (1, 0)
    assert shared.leave(4, lost.member_id, None) is ErrorCode.NONE
    assert one.joined[1].code is two.joined[0].code is ErrorCode.NONE
    assert shared.leave(5, lost.member_id, None) is ErrorCode.UNKNOWN_MEMBER_ID
    other = Client(shared)
    other.join(6, first=True)
    assert shared.leave(7, other.member_id, None) is ErrorCode.NONE
    assert one.heartbeat(8) is ErrorCode.NONE, "it was no member: nothing begins"


def test_a_second_member_begins_a_rebalance_and_only_the_leader_gets_the_members() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one)
    two.join(5)
    assert not two.joined
    assert one.heartbeat(6) is ErrorCode.REBALANCE_IN_PROGRESS
    one.join(7)
    assert [len(c.joined[-1].members) for c in (one, two)] == [2, 0]
    assert one.generation == two.generation == 2
    two.sync(8)
    assert not two.synced
    one.sync(9, {two.member_id: b"two"})
    assert (one.synced[-1].assignment, two.synced[-1].assignment) == (b"", b"two")


def test_who_does_not_join_again_in_time_is_no_member_of_the_next_generation() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one)
    two.join(0)
    for now in range(0, REBALANCE_MS, 3000):
        one.heartbeat(now)  # alive, and busy
        shared.tick(now)
    assert not two.joined
    shared.tick(REBALANCE_MS)
    assert two.joined[0].leader == two.member_id
    assert one.heartbeat(REBALANCE_MS) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_vanishes_in_a_rebalance_holds_it_up_for_its_session_only() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one)
    two.join(100)
    shared.tick(SESSION_MS)
    assert two.joined[0].code is ErrorCode.NONE


def test_a_session_that_ends_starts_a_rebalance() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one, two)
    one.heartbeat(SESSION_MS - 1)
    shared.tick(SESSION_MS)
    assert two.member_id not in shared.members
    assert one.heartbeat(SESSION_MS + 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_older_generations_are_fenced_everywhere() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one)
    old = one.generation
    two.join(1)
    one.join(1)
    assert shared.heartbeat(2, one.member_id, None, old) is ErrorCode.ILLEGAL_GENERATION
    assert shared.check_commit(2, one.member_id, None, old) is ErrorCode.ILLEGAL_GENERATION
    seen: list[Synced] = []
    shared.sync(2, one.member_id, None, old, None, None, {}, seen.append)
    assert seen[0].code is ErrorCode.ILLEGAL_GENERATION


def test_a_leader_that_never_syncs_does_not_hold_the_others_for_ever() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    one.join(0)
    two.join(0)
    one.join(0)
    two.sync(1)
    for now in range(0, REBALANCE_MS + 1, 3000):
        one.heartbeat(now)
        shared.tick(now)
    shared.tick(REBALANCE_MS)
    assert two.synced[0].code is ErrorCode.REBALANCE_IN_PROGRESS
    two.join(REBALANCE_MS + 1)
    assert two.joined[-1].leader == two.member_id


def test_a_static_member_comes_back_to_its_place_and_its_ghost_is_fenced() -> None:
    shared = group()
    one, two = Client(shared, "i1"), Client(shared, "i2")
    stable(one, two)
    again = Client(shared, "i2")
    again.join(10)
    assert again.joined[0].generation == two.generation
    again.sync(11)
    assert again.synced[0].assignment == two.member_id.encode()
    assert two.heartbeat(12) is ErrorCode.FENCED_INSTANCE_ID
    assert one.heartbeat(12) is ErrorCode.NONE


def test_the_ghost_of_a_static_member_takes_nobody_out_of_the_group() -> None:
    shared = group()
    one, again = Client(shared, "i"), Client(shared, "i")
    stable(one)
    again.join(10)
    assert shared.leave(11, one.member_id, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert shared.leave(11, one.member_id, None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shared.leave(11, again.member_id, "j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert again.heartbeat(12) is ErrorCode.NONE
    assert shared.leave(13, again.member_id, "i") is ErrorCode.NONE
    assert not shared.members


@pytest.mark.parametrize(("kind", "name"), [("connect", None), ("consumer", "roundrobin")])
def test_who_asks_for_an_assignment_of_another_protocol_gets_none(
    kind: str, name: str | None
) -> None:
    shared = group()
    one = Client(shared)
    one.join(0)
    who = (one.member_id, None, one.generation)
    shared.sync(1, *who, kind, name, {one.member_id: b"a"}, one._synced)
    assert one.synced.pop().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    shared.sync(2, *who, "consumer", "range", {one.member_id: b"a"}, one._synced)
    assert one.synced.pop() == Synced(ErrorCode.NONE, "consumer", "range", b"a")


def test_of_thousands_whose_connections_end_at_once_each_is_found_at_once() -> None:
    class Waiting:
        """A waiter that counts how often it is compared with another."""

        compared = 0

        def __call__(self, _: Joined) -> None:
            pytest.fail("the rebalance has not ended")

        def __eq__(self, other: object) -> bool:
            Waiting.compared += 1
            return self is other

        __hash__ = None  # type: ignore[assignment]

    shared = group(delay_ms=100)
    count = 500
    waiting = []
    for n in range(count):
        done = Waiting()
        joining = Joining("", None, f"c{n}", "h", 10, 20, "consumer", {"range": b""}, False, True)
        waiting.append((shared.join(0, joining, done), done))
    for member, done in waiting:
        shared.abandon(5, member, done)
    assert Waiting.compared <= 2 * count
    assert not any(member.is_waiting for member in shared.members.values())


def test_static_members_of_whom_none_joins_in_time_are_of_their_generation_still() -> None:
    shared = group()
    one, two = Client(shared, "i1"), Client(shared, "i2")
    stable(one, two)
    generation = one.generation
    passer = Client(shared)
    passer.join(10)
    passer.cut(11)
    for at in range(10, REBALANCE_MS + 2_000, 2_000):
        for member in (one, two):
            assert member.heartbeat(at) is ErrorCode.REBALANCE_IN_PROGRESS
        shared.tick(at)
    assert shared.state is State.PREPARING
    for member in (one, two):
        checked = shared.check_commit(at, member.member_id, member.instance, generation)
        assert checked is ErrorCode.NONE, "what it has read is its own until it joins again"
    for member in (one, two):
        member.join(at)
    assert {one.generation, two.generation} == {generation + 1}


def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    one = Client(group(), "i1")
    stable(one)
    again = Client(one.group, "i1")
    again.join(10)
    assert again.joined[0].skip_assignment
    assert again.joined[0].leader == again.member_id


def says(*topics: str, owned: int = 0) -> dict[str, bytes]:
    pairs = tuple((topics[0], index) for index in range(owned))
    return {"range": encode_subscription(Subscription(topics, pairs))}


@pytest.mark.parametrize(
    ("before", "after", "is_alike"),
    [
        (says("t", owned=3), says("t"), True),
        (says("t"), says("t", "u"), False),
        ({"range": b"t", "sticky": b"t"}, {"sticky": b"t", "range": b"t"}, False),
        ({"range": b"one life"}, {"range": b"another"}, True),
    ],
    ids=["has nothing any more", "other topics", "likes another one best", "no consumer's words"],
)
def test_a_static_member_that_begins_anew_stops_the_others_for_what_changes_for_them(
    before: dict[str, bytes], after: dict[str, bytes], *, is_alike: bool
) -> None:
    disk = Disk()
    one = Client(group(record=disk.record), "i1")
    one.join(0, before)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    again = Client(one.group, "i1")
    again.join(10, after)
    disk.settle(11)
    assert again.generation == (1 if is_alike else 2)
    assert again.joined[0].skip_assignment is is_alike


@pytest.mark.parametrize(
    ("kept", "is_alike"), [(3, True), (2, False), (0, False)], ids=["nothing", "one", "all"]
)
def test_a_static_member_that_ends_before_it_joins_again_for_what_it_lets_go_of_has_it_dealt_out(
    kept: int, *, is_alike: bool
) -> None:
    disk = Disk()
    one = Client(group(record=disk.record), "i1")
    one.join(0, says("t", owned=3))
    pairs = [("t", index) for index in range(kept)]
    one.sync(0, {one.member_id: encode_assignment(pairs) if pairs else b""})
    disk.settle(0)
    again = Client(one.group, "i1")
    again.join(10, says("t"))
    disk.settle(11)
    assert again.generation == (1 if is_alike else 2)


def test_what_is_in_use_stays_where_as_many_like_another_as_well() -> None:
    disk = Disk()
    shared = group(record=disk.record)
    one, two = Client(shared, "i1"), Client(shared, "i2")
    likes = {"range": b"t", "sticky": b"t"}
    one.join(0, likes)
    two.join(0, dict(reversed(likes.items())))
    one.join(0, likes)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    again = Client(shared, "i1")  # its place is another one among the members
    again.join(10, likes)
    disk.settle(11)
    assert (again.generation, again.joined[0].protocol) == (two.generation, "range")


def test_a_member_that_likes_another_protocol_best_now_begins_a_rebalance() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    likes = {"range": b"t", "sticky": b"t"}
    one.join(0, likes)
    two.join(0, likes)
    one.join(0, likes)
    two.sync(0)
    one.sync(0)
    two.join(10, dict(reversed(likes.items())))
    assert one.heartbeat(11) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_has_no_place_but_its_own() -> None:
    shared = group()
    one = Client(shared)
    stable(one)
    one.instance = "i1"
    one.join(10)
    assert one.joined[-1].code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_alive_but_never_asks_for_its_assignment_is_dropped() -> None:
    """Nobody would read its partitions for as long as it lives."""
    shared = group()
    one, two, three = Client(shared), Client(shared), Client(shared)
    one.join(0)
    two.join(0)
    three.join(0)
    one.join(0)
    two.join(0)
    one.sync(0, {two.member_id: b"half", three.member_id: b"half"})
    assert shared.state is State.STABLE
    three.sync(REBALANCE_MS - 1)
    for at in range(0, REBALANCE_MS, SESSION_MS // 2):
        assert {client.heartbeat(at) for client in (one, two, three)} == {ErrorCode.NONE}
        shared.tick(at)
    shared.tick(REBALANCE_MS)
    assert two.heartbeat(REBALANCE_MS) is ErrorCode.UNKNOWN_MEMBER_ID
    for client in (one, three):
        assert client.heartbeat(REBALANCE_MS) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_protocol_that_all_have_is_chosen_by_vote() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one)
    stranger = Client(shared)
    stranger.join(0, {"sticky": b"x"})
    assert stranger.joined[0].code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    two.join(0, {"sticky": b"x", "range": b"y"})
    one.join(0, {"range": b"t", "sticky": b"z"})
    assert two.joined[0].protocol in ("range", "sticky")


def test_leaving_tells_the_others_and_the_last_one_leaves_an_empty_group() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one, two)
    assert shared.leave(1, two.member_id, None) is ErrorCode.NONE
    assert one.heartbeat(2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shared.leave(3, one.member_id, None) is ErrorCode.NONE
    assert shared.state is State.EMPTY
    assert shared.leave(4, "nobody", None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more() -> None:
    shared = group(size_max=1)
    one, two = Client(shared), Client(shared)
    stable(one)
    two.join(1)
    assert two.joined[0].code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_members_that_come_together_join_in_one_round() -> None:
    shared = group(delay_ms=100)
    clients = [Client(shared) for _ in range(500)]
    for client in clients:
        client.join(0)
    assert not any(client.joined for client in clients)
    shared.tick(100)
    assert not any(client.joined for client in clients), "there may be more"
    shared.tick(200)
    assert {client.generation for client in clients} == {1}


def test_a_static_member_that_was_away_in_the_first_round_begins_the_next_one_at_once() -> None:
    shared = group(delay_ms=3_000)
    one = Client(shared, "i")
    one.join(0)
    one.cut(0)
    shared.tick(3_000)
    assert not one.joined
    one.join(4_000)
    assert [joined.code for joined in one.joined] == [ErrorCode.NONE]


def test_a_round_that_may_take_no_time_and_that_nobody_joins_leaves_the_loop_to_others() -> None:
    shared = group()
    one, two = Client(shared, "i1"), Client(shared, "i2")
    stable(one, two)
    for member in shared.members.values():
        member.rebalance_timeout_ms = 0
    shared.leave(10, two.member_id, None)
    assert shared.state is State.PREPARING
    shared.tick(10)
    assert shared.due_ms > 10


def test_another_leads_a_round_that_a_static_leader_does_not_join() -> None:
    shared = group()
    one, two = Client(shared, "i1"), Client(shared, "i2")
    stable(one, two)
    assert shared.leader == one.member_id
    two.join(10, {"range": b"other"})
    for at in range(10, REBALANCE_MS + 11, 5_000):
        assert one.heartbeat(at) is ErrorCode.REBALANCE_IN_PROGRESS
        shared.tick(at)
    shared.tick(REBALANCE_MS + 10)
    assert two.joined[-1].leader == shared.leader == two.member_id
    assert len(two.joined[-1].members) == 2


def test_a_round_whose_leader_deals_out_nothing_costs_those_that_were_to_ask_for_it() -> None:
    """Not a static member that is away: its session says how long; nor who has asked and was cut
    off."""
    shared = group()
    leader, other, away = Client(shared), Client(shared), Client(shared, "i")
    stable(leader, other, away)
    leader.join(1, {"range": b"other"})
    other.join(1)
    for member in shared.members.values():
        member.session_timeout_ms = 10 * REBALANCE_MS
    away.heartbeat(1)
    shared.tick(REBALANCE_MS + 1)
    assert (shared.state, shared.leader) == (State.COMPLETING, leader.member_id)
    other.sync(REBALANCE_MS + 2)
    other.cut(REBALANCE_MS + 3)
    shared.tick(2 * REBALANCE_MS + 1)
    assert set(shared.members) == {other.member_id, away.member_id}
    other.join(2 * REBALANCE_MS + 2)
    away.join(2 * REBALANCE_MS + 2)
    assert other.generation == away.generation == shared.generation


def test_who_has_waited_for_a_round_has_a_session_from_its_end_on() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one, two)
    one.join(100, {"range": b"other"})
    two.join(SESSION_MS)
    assert one.generation == two.generation == shared.generation
    two.sync(SESSION_MS + 1)
    shared.tick(SESSION_MS + 101)
    assert one.heartbeat(SESSION_MS + 102) is ErrorCode.NONE


def test_who_asks_again_for_its_generation_has_a_session_from_then_on() -> None:
    shared = group()
    one, two = Client(shared), Client(shared)
    stable(one, two)
    two.join(SESSION_MS - 1)
    assert two.generation == shared.generation
    assert one.heartbeat(SESSION_MS - 1) is ErrorCode.NONE
    shared.tick(SESSION_MS + 1)
    assert two.heartbeat(SESSION_MS + 1) is ErrorCode.NONE


def test_who_asks_again_for_its_assignment_has_a_session_from_then_on() -> None:
    shared = group()
    one = Client(shared)
    stable(one)
    one.sync(SESSION_MS - 1)
    shared.tick(SESSION_MS + 1)
    assert one.heartbeat(SESSION_MS + 1) is ErrorCode.NONE


def test_who_joins_again_has_the_session_that_it_asks_for_then() -> None:
    shared = group()
    one = Client(shared)
    stable(one)
    offers = {"range": b"t"}
    longer = Joining(
        one.member_id, None, "", "", 3 * SESSION_MS, REBALANCE_MS, "consumer", offers, False, True
    )
    told: list[Joined] = []
    shared.join(10, longer, told.append)
    one.generation = told[0].generation
    one.sync(10)
    shared.tick(2 * SESSION_MS)
    assert one.heartbeat(2 * SESSION_MS) is ErrorCode.NONE


@pytest.mark.parametrize(("kind", "offers"), [("", {"range": b""}), ("consumer", {})])
def test_who_offers_nothing_is_refused(kind: str, offers: dict[str, bytes]) -> None:
    told: list[Joined] = []
    joining = Joining("", None, "", "", SESSION_MS, REBALANCE_MS, kind, offers, False, True)
    group().join(0, joining, told.append)
    assert [joined.code for joined in told] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]


def test_an_id_that_was_given_takes_no_place_of_an_instance() -> None:
    shared = group()
    one, other = Client(shared, "i"), Client(shared)
    stable(one)
    other.join(0, first=True)
    other.instance = "i"
    other.join(1)
    assert other.joined[-1].code is ErrorCode.FENCED_INSTANCE_ID
    assert one.heartbeat(1) is ErrorCode.NONE


def test_a_static_member_comes_back_to_a_group_that_is_full() -> None:
    shared = group(size_max=1)
    one, back = Client(shared, "i"), Client(shared, "i")
    stable(one)
    back.join(1)
    assert back.joined[-1].code is ErrorCode.NONE


def test_ids_are_given_to_so_many_as_a_group_may_have() -> None:
    shared = group(size_max=2)
    clients = [Client(shared) for _ in range(3)]
    for client in clients:
        client.join(0, first=True)
    codes = [client.joined[-1].code for client in clients]
    given = ErrorCode.MEMBER_ID_REQUIRED
    assert codes == [given, given, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_an_id_is_good_from_when_it_was_asked_for() -> None:
    shared = group()
    asked = Joining("", None, "", "", SESSION_MS, REBALANCE_MS, "consumer", {"a": b""}, True, True)
    told: list[Joined] = []
    shared.join(5_000, asked, told.append, said_ms=1_000)
    assert shared.due_ms == 1_000 + SESSION_MS
    shared.tick(shared.due_ms)
    shared.join(shared.due_ms, asked._replace(member_id=told[0].member_id), told.append)
    assert told[-1].code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_knows_since_when_nobody_is_in_it() -> None:
    shared = group()
    for at in (100, 200):
        one = Client(shared)
        stable(one, now_ms=at)
        assert shared.leave(at + 50, one.member_id, None) is ErrorCode.NONE
        assert shared.empty_since_ms == at + 50


def test_who_finds_nobody_in_a_group_may_be_of_another_kind_than_the_last_one() -> None:
    shared = group()
    one = Client(shared)
    stable(one)
    assert shared.leave(0, one.member_id, None) is ErrorCode.NONE
    joining = Joining(
        "", None, "", "", SESSION_MS, REBALANCE_MS, "connect", {"a": b""}, False, True
    )
    told: list[Joined] = []
    shared.join(0, joining, told.append)
    assert [(joined.code, joined.protocol_type) for joined in told] == [(ErrorCode.NONE, "connect")]


def test_a_group_that_was_empty_waits_while_members_come_but_no_longer_than_a_rebalance() -> None:
    shared = group(delay_ms=10_000)
    clients = [Client(shared) for _ in range(5)]
    for at, client in zip((0, 6_000, 13_000, 21_000, 29_000), clients, strict=True):
        while shared.due_ms <= at:
            shared.tick(shared.due_ms)
        client.join(at)
    assert not any(client.joined for client in clients)
    shared.tick(REBALANCE_MS)
    assert {client.generation for client in clients} == {1}


def test_closing_answers_everybody_who_waits() -> None:
    shared = group(delay_ms=100)
    one = Client(shared)
    one.join(0)
    shared.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert one.joined[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("generation", [-1, 0])
def test_a_commit_without_membership_is_for_groups_without_members(generation: int) -> None:
    shared = group()
    member_id = "" if generation < 0 else "gone"
    expected = ErrorCode.NONE if generation < 0 else ErrorCode.UNKNOWN_MEMBER_ID
    assert shared.check_commit(0, member_id, None, generation) is expected
    stable(Client(shared))
    assert shared.check_commit(0, member_id, None, generation) is ErrorCode.UNKNOWN_MEMBER_ID


# What is recorded, and when


def test_nobody_hears_of_an_assignment_before_it_is_durable() -> None:
    disk = Disk()
    shared = group(record=disk.record)
    one, two = Client(shared), Client(shared)
    one.join(0)
    two.join(0)
    one.join(0)
    one.sync(1, {one.member_id: b"1", two.member_id: b"2"})
    two.sync(2)
    assert (one.synced, two.synced) == ([], [])
    (kept, _) = disk.asked[0]
    assert [(m.member_id, m.assignment) for m in kept.members] == [
        (one.member_id, b"1"),
        (two.member_id, b"2"),
    ]
    disk.settle(3)
    assert [client.synced[0].assignment for client in (one, two)] == [b"1", b"2"]
    assert shared.state is State.STABLE


def test_a_leader_that_asks_again_meanwhile_waits_and_records_nothing_more() -> None:
    disk = Disk()
    one = Client(group(record=disk.record))
    one.join(0)
    one.sync(1, {one.member_id: b"first"})
    one.sync(2, {one.member_id: b"second"})
    assert [answer.code for answer in one.synced] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert len(disk.asked) == 1
    disk.settle(3)
    assert one.synced[1].assignment == b"first"


def test_a_rebalance_that_begins_meanwhile_makes_the_outcome_void() -> None:
    disk = Disk()
    shared = group(record=disk.record)
    one, two = Client(shared), Client(shared)
    one.join(0)
    one.sync(1, {one.member_id: b"all"})
    two.join(2)
    assert one.synced[0].code is ErrorCode.REBALANCE_IN_PROGRESS
    one.join(3)
    disk.settle(4)
    assert shared.state is State.COMPLETING
    one.sync(5, {one.member_id: b"1", two.member_id: b"2"})
    assert len(one.synced) == 1
    disk.settle(6)
    assert one.synced[1].assignment == b"1"


def test_what_cannot_be_recorded_is_nobodys_and_a_rebalance_begins() -> None:
    disk = Disk()
    shared = group(record=disk.record)
    one, two = Client(shared), Client(shared)
    one.join(0)
    two.join(0)
    one.join(0)
    two.sync(1)
    one.sync(1, {one.member_id: b"1", two.member_id: b"2"})
    disk.settle(2, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    for client in (one, two):
        assert client.synced == [Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        assert client.heartbeat(3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not any(member.assignment for member in shared.members.values())
    one.join(4)
    two.join(4)
    assert one.generation == two.generation == 3


def test_a_disk_that_hangs_holds_nobody_longer_than_a_rebalance() -> None:
    disk = Disk()
    one = Client(group(record=disk.record))
    one.join(0)
    one.sync(1, {one.member_id: b"all"})
    for now in range(0, REBALANCE_MS + 1, 3000):
        one.group.tick(now)
    assert one.synced[0].code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_hears_of_its_place_when_its_new_id_is_durable() -> None:
    disk = Disk()
    one = Client(group(record=disk.record), "i1")
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    again = Client(one.group, "i1")
    again.join(10)
    assert one.heartbeat(11) is ErrorCode.FENCED_INSTANCE_ID
    assert not again.joined
    disk.settle(12)
    assert again.joined[0].skip_assignment
    assert disk.durable.members[0].member_id == again.member_id
    assert disk.durable.members[0].assignment == b"all"
    assert disk.durable.leader == again.member_id


def test_a_static_member_whose_place_cannot_be_recorded_tries_again() -> None:
    disk = Disk()
    one = Client(group(record=disk.record), "i1")
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    again = Client(one.group, "i1")
    again.join(10)
    disk.settle(11, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert again.joined == [Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")]
    again.join(12)
    disk.settle(13)
    assert again.joined[1].code is ErrorCode.NONE
    again.sync(14)
    assert again.synced[0].assignment == b"all"


def test_a_static_member_that_waits_for_its_place_takes_part_in_a_rebalance_that_begins() -> None:
    disk = Disk()
    shared = group(record=disk.record)
    one = Client(shared, "i1")
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    again, two = Client(shared, "i1"), Client(shared)
    again.join(10)
    two.join(11)
    assert not again.joined, "a crash would not know its id"
    disk.settle(12)
    assert [client.joined[0].generation for client in (again, two)] == [2, 2]
    assert disk.durable.members[0].member_id == again.member_id


def test_a_place_taken_in_a_rebalance_that_cannot_be_recorded_is_told_to_nobody() -> None:
    disk = Disk()
    shared = group(record=disk.record)
    one, two = Client(shared, "i1"), Client(shared)
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    two.join(1)
    again = Client(shared, "i1")
    again.join(10)
    assert not again.joined
    disk.settle(11, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert again.joined == [Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")]
    assert not two.joined
    again.join(12)
    disk.settle(13)
    assert [client.joined[-1].generation for client in (again, two)] == [2, 2]
    assert disk.durable.members[0].member_id == again.member_id


def test_a_static_leader_with_another_protocol_hears_that_its_place_is_not_recorded() -> None:
    disk = Disk()
    one = Client(group(record=disk.record), "i1")
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    again = Client(one.group, "i1")
    again.join(10, {"sticky": b"t"})
    disk.settle(11, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert again.joined == [Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")]
    again.join(12, {"sticky": b"t"})
    disk.settle(13)
    assert (again.joined[-1].generation, again.joined[-1].protocol) == (2, "sticky")


def test_a_rebalance_that_is_out_of_time_waits_for_a_place_that_is_being_recorded() -> None:
    disk = Disk()
    shared = group(record=disk.record)
    one, two = Client(shared, "i1"), Client(shared)
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    two.join(1)
    again = Client(shared, "i1")
    again.join(10)
    shared.tick(2 * REBALANCE_MS)
    assert not again.joined, "a crash would not know its id"
    assert shared.due_ms > 2 * REBALANCE_MS
    disk.settle(2 * REBALANCE_MS + 1)
    assert [client.joined[-1].generation for client in (again, two)] == [2, 2]


def test_a_place_that_is_taken_twice_is_the_last_ones() -> None:
    disk = Disk()
    one = Client(group(record=disk.record), "i1")
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    second, third = Client(one.group, "i1"), Client(one.group, "i1")
    second.join(10)
    third.join(11)
    assert second.joined[0].code is ErrorCode.FENCED_INSTANCE_ID
    disk.settle(12)
    disk.settle(12)
    assert third.joined[0].code is ErrorCode.NONE
    assert [member.member_id for member in disk.durable.members] == [third.member_id]


def test_that_a_group_is_empty_is_recorded_and_nobody_waits() -> None:
    disk = Disk()
    one = Client(group(record=disk.record))
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    disk.settle(0)
    assert one.group.leave(1, one.member_id, None) is ErrorCode.NONE
    assert one.group.state is State.EMPTY
    disk.settle(2)
    assert disk.durable == Generation(2, "consumer")


def test_a_group_that_ends_records_nothing() -> None:
    disk = Disk()
    one = Client(group(record=disk.record))
    one.join(0)
    one.sync(0, {one.member_id: b"all"})
    one.group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    disk.settle(1)
    assert [answer.code for answer in one.synced] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not disk.asked
    assert one.group.state is State.DEAD


# What is restored

KEPT = Generation(
    7,
    "consumer",
    "range",
    "a",
    (
        KeptMember("a", None, "c", "h", SESSION_MS, REBALANCE_MS, {"range": b"t"}, b"of a"),
        KeptMember("b", "i1", "c", "h", SESSION_MS, REBALANCE_MS, {"range": b"t"}, b"of b"),
    ),
)


def restored(now_ms: int = 0, gone: frozenset[str] = frozenset()) -> tuple[Group, Client, Client]:
    shared = group()
    shared.restore(now_ms, KEPT, gone)
    clients = []
    for kept in KEPT.members:
        client = Client(shared, kept.instance_id)
        client.member_id, client.generation = kept.member_id, KEPT.number
        clients.append(client)
    return shared, clients[0], clients[1]


def test_members_of_a_restored_generation_go_on() -> None:
    shared, one, two = restored()
    for client in (one, two):
        assert client.heartbeat(1) is ErrorCode.NONE
        client.sync(1)
        assert shared.check_commit(1, client.member_id, client.instance, 7) is ErrorCode.NONE
        assert shared.check_commit(1, client.member_id, client.instance, 6)
    assert [one.synced[0].assignment, two.synced[0].assignment] == [b"of a", b"of b"]
    two.join(2)  # its last answer was lost
    assert (two.joined[0].generation, two.joined[0].leader) == (7, "a")
    assert shared.kept() == KEPT


def test_a_restored_member_that_is_gone_is_missed_for_its_session() -> None:
    shared, one, two = restored(now_ms=100)
    assert shared.due_ms == 100 + SESSION_MS
    two.heartbeat(5_000)
    shared.tick(100 + SESSION_MS)
    assert two.heartbeat(100 + SESSION_MS) is ErrorCode.REBALANCE_IN_PROGRESS
    assert one.heartbeat(100 + SESSION_MS) is ErrorCode.UNKNOWN_MEMBER_ID
    two.join(100 + SESSION_MS)
    assert (two.joined[0].generation, two.joined[0].leader) == (8, "b")


def test_a_restored_member_that_cannot_be_alive_is_not_waited_for() -> None:
    shared, _, two = restored(now_ms=100, gone=frozenset("a"))
    assert shared.due_ms == 100
    shared.tick(100)
    two.join(101)
    assert two.joined[0].generation == 8


class GroupMachine(RuleBasedStateMachine):
    """Members come, go, stall and turn into zombies; time passes in steps; the broker restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.ids = numbered()
        self.group = self._group()
        self.now_ms = 0
        self.clients: list[Client] = []
        self.owners: dict[int, dict[str, bytes]] = {}

    def _group(self) -> Group:
        return Group("g", lambda prefix: f"{prefix}-{next(self.ids)}", 100, 1_000, self.disk.record)

    @rule(code=st.sampled_from([ErrorCode.NONE] * 3 + [ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def records(self, code: ErrorCode) -> None:
        while self.disk.asked:
            self.disk.settle(self.now_ms, code)

    @rule()
    def restarts(self) -> None:
        """What was durable goes on; clients know what they were told."""
        self.disk.asked.clear()
        self.group = self._group()
        self.group.generation = self.disk.durable.number
        if self.disk.durable.members:
            self.group.restore(self.now_ms, self.disk.durable, frozenset())
        for client in self.clients:
            client.group = self.group
            client.joined.clear()  # a generation that nobody was given may be counted again

    @invariant()
    def a_generation_is_told_as_it_was_recorded(self) -> None:
        """Whatever restarts: who was told an assignment was told that of its generation."""
        for client in self.clients:
            for answer in client.synced:
                if answer.assignment:
                    number, member_id = answer.assignment.decode().split(":")
                    seen = self.owners.setdefault(int(number), {})
                    assert seen.setdefault(member_id, answer.assignment) == answer.assignment
        kept = self.disk.durable
        told = [int(number) for number in self.owners]
        assert kept.number >= max(told, default=0), "somebody was told of more than is durable"

    @precondition(lambda self: len(self.clients) < 8)
    @rule(first=st.booleans(), instance=st.sampled_from([None, None, "i1", "i2"]))
    def comes(self, first: bool, instance: str | None) -> None:
        client = Client(self.group, instance)
        client.join(self.now_ms, first=first)
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule(n=st.integers(0, 7), what=st.sampled_from(["join", "sync", "beat", "leave", "cut"]))
    def acts(self, n: int, what: str) -> None:
        client = self.clients[n % len(self.clients)]
        waits = len(client.joined) + len(client.synced)
        if what == "join":
            client.join(self.now_ms)
        elif what == "sync":
            ids = list(self.group.members)
            client.sync(self.now_ms, {i: f"{self.group.generation}:{i}".encode() for i in ids})
        elif what == "beat":
            client.heartbeat(self.now_ms)
        elif what == "leave":
            self.group.leave(self.now_ms, client.member_id, client.instance)
        else:
            client.cut(self.now_ms)
        assert len(client.joined) + len(client.synced) >= waits

    @rule(ms=st.sampled_from([1, 50, 100, 3_000, SESSION_MS, REBALANCE_MS]))
    def passes(self, ms: int) -> None:
        until = self.now_ms + ms
        while self.group.due_ms <= until:
            self.now_ms = max(self.now_ms, self.group.due_ms)
            self.group.tick(self.now_ms)
            assert self.group.due_ms > self.now_ms, "a group that is never at rest"
        self.now_ms = until

    @invariant()
    def generations_rise_and_one_owner_each(self) -> None:
        for client in self.clients:
            told = [answer.generation for answer in client.joined if not answer.code]
            assert told == sorted(told)
        leaders = {
            (answer.generation, answer.leader)
            for client in self.clients
            for answer in client.joined
            if not answer.code and client.instance is None
        }
        assert all(leader for _, leader in leaders)
        instances = [m.instance_id for m in self.group.members.values() if m.instance_id]
        assert len(instances) == len(set(instances))
        offers = Counter(name for m in self.group.members.values() for name in m.protocols)
        assert self.group.roster.offers == offers

    @invariant()
    def assignments_are_of_the_generation(self) -> None:
        if self.group.state is State.STABLE:
            for member in self.group.members.values():
                if member.assignment and member.instance_id is None:
                    assert member.assignment.startswith(f"{self.group.generation}:".encode())

    def teardown(self) -> None:
        # Whatever happened: a while without a word and nobody waits, nobody is left.
        for _ in range(3):
            self.passes(REBALANCE_MS)
        for client in self.clients:
            client.cut(self.now_ms)
        for _ in range(3):
            self.passes(REBALANCE_MS)
        assert self.group.state is State.EMPTY
        assert not self.group.members


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

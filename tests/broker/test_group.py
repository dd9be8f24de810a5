"""The state machine of one group: generations, ownership, time, and nobody left waiting."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from segbroker.broker.group import Group, State
from segbroker.broker.group_members import Joined, Joining, Synced
from segbroker.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 30_000


def numbered() -> "Iterator[int]":
    return count(1)


def group(*, delay_ms: int = 0, size_max: int = 1_000) -> Group:
    ids = numbered()
    return Group("g", lambda prefix: f"{prefix}-{next(ids)}", delay_ms, size_max)


class Client:
    """A member as the broker sees it: what it was told."""

    def __init__(self, group: Group, instance: str | None = None) -> None:
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.joined: list[Joined] = []
        self.synced: list[Synced] = []

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
        self.group.join(now_ms, joining, self._joined)

    def _joined(self, result: Joined) -> None:
        self.joined.append(result)
        if result.code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = result.member_id
            self.generation = result.generation

    def sync(self, now_ms: int, assignments: dict[str, bytes] | None = None) -> None:
        self.group.sync(
            now_ms,
            self.member_id,
            self.instance,
            self.generation,
            None,
            None,
            assignments or {},
            self.synced.append,
        )

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
    lost, one = Client(shared), Client(shared)
    lost.join(0, first=True)
    one.join(1)
    assert not one.joined
    shared.tick(SESSION_MS)
    assert one.joined[0].code is ErrorCode.NONE


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


def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    one = Client(group(), "i1")
    stable(one)
    again = Client(one.group, "i1")
    again.join(10)
    assert again.joined[0].skip_assignment
    assert again.joined[0].leader == again.member_id


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


class GroupMachine(RuleBasedStateMachine):
    """Members come, go, stall and turn into zombies; time passes in steps."""

    def __init__(self) -> None:
        super().__init__()
        self.group = group(delay_ms=100)
        self.now_ms = 0
        self.clients: list[Client] = []
        self.generations: dict[int, dict[str, bytes]] = {}

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
            self.group.abandon(self.now_ms, client._joined)
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
            self.group.abandon(self.now_ms, client._joined)
            for synced in [client.synced.append]:
                self.group.abandon(self.now_ms, synced)
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

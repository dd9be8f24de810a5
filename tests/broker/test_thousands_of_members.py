"""Thousands of members of one classic group: what one of them costs does not go by how many there
are, and not all of them are answered in one step of the loop."""

import sys
from contextlib import AsyncExitStack
from types import FrameType

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.apis import later_reply
from segbroker.broker.groups.group import Group
from segbroker.broker.groups.group_members import Joined, Joining, Synced
from segbroker.broker.groups.group_rounds import State
from segbroker.broker.loop import pace
from segbroker.protocol import headers

from ..support.wire_client import connect
from .classic_member import ClassicMember
from .conftest import serving

MEMBERS = 100
MANY = 2_000


class _Encoded(trio.abc.Instrument):
    """The most answers that were encoded in one step."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.most = self.count = 0
        encode = headers.encode_response

        def counted(*args: object) -> object:
            self.count += 1
            self.most = max(self.most, self.count)
            return encode(*args)  # type: ignore[arg-type]

        patched.setattr(later_reply, "encode_response", counted)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count = 0


async def test_not_all_members_are_answered_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = _Encoded(monkeypatch)
    monkeypatch.setattr(pace, "STEP_S", -1.0)  # who sends them has had its time after each
    async with serving(group_initial_rebalance_delay_ms=0) as broker, AsyncExitStack() as stack:
        leader, *others = [
            ClassicMember(await stack.enter_async_context(connect(broker.address)))
            for _ in range(MEMBERS)
        ]
        await leader.join()
        trio.lowlevel.add_instrument(encoded)
        async with trio.open_nursery() as joining:
            for one in others:
                joining.start_soon(lambda one: one.join(version=3), one)
            while (group := broker.core.groups.get("g")) is None or len(group.members) < MEMBERS:
                await wait_all_tasks_blocked()
            joining.start_soon(leader.join)
        assert {one.generation for one in (leader, *others)} == {leader.generation}
        async with trio.open_nursery() as syncing:
            for one in others:
                syncing.start_soon(one.sync)
            while sum(one.on_synced is not None for one in group.members.values()) < MEMBERS - 1:
                await wait_all_tasks_blocked()
            syncing.start_soon(leader.sync, {one.member_id: [("t", 0)] for one in others})
        trio.lowlevel.remove_instrument(encoded)
    assert all(one.has == [("t", 0)] for one in others)
    assert encoded.most <= 2, "of the one that was last, and of one that waited"


def _joining(member_id: str) -> Joining:
    protocols = {"range": b""}
    return Joining(member_id, None, "c", "h", 10_000, 60_000, "consumer", protocols, False, False)


def test_who_joins_again_is_not_compared_with_all_that_have() -> None:
    """Each that came looked at all that were there before it: ten thousand took 2 s of the loop."""
    names = iter(f"m-{n}" for n in range(MANY + 1))
    group = Group("g", lambda _: next(names), 0, MANY + 1, lambda kept, told: told(0, 0))  # type: ignore[arg-type]
    answers: list[Joined] = []
    synced: list[Synced] = []
    for _ in range(MANY):
        group.join(0, _joining(""), answers.append)
    group.join(0, _joining("m-0"), answers.append)
    group.sync(0, "m-0", None, group.generation, "consumer", "range", {}, synced.append)
    assert (group.state, len(answers)) == (State.STABLE, MANY + 1)
    group.join(1, _joining(""), answers.append)
    calls = 0

    def called(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(called)
    for n in range(MANY):
        group.join(1, _joining(f"m-{n}"), answers.append)
    sys.setprofile(None)
    assert (group.state, len(answers)) == (State.COMPLETING, 2 * (MANY + 1))
    assert calls < 50 * MANY

"""What groups tell their members in memory is bounded, too: a leader is told what all have said."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import trio

from segbroker.broker.groups.classic_members import METADATA_MAX
from segbroker.broker.peers import long_answers
from segbroker.broker.server import Broker
from segbroker.protocol.messages_core import MetadataRequest, MetadataRequestTopic, MetadataResponse
from segbroker.protocol.messages_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

from ..support.waiting import becomes
from ..support.wire_client import Closed, WireClient, connect
from .conftest import Events, serving

FOLLOWERS = 8
TOLD = FOLLOWERS * METADATA_MAX
"""More than a socket takes of somebody who reads nothing."""
OTHER_ADDRESS = "127.0.0.2"


def joining(size: int, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="large",
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=bytes(size))],
    )


@asynccontextmanager
async def led(broker: Broker) -> AsyncIterator[tuple[JoinGroupRequest, JoinGroupResponse]]:
    """How a leader asks what it was told, which is TOLD bytes; nobody has dealt out yet."""
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(connect(broker.address))
        first = await leader.ask(joining(8), JoinGroupResponse, 3)
        for _ in range(FOLLOWERS):
            follower = await stack.enter_async_context(connect(broker.address))
            await follower.send(joining(METADATA_MAX), 3)
        group = broker.core.groups.get("large")
        assert group is not None
        await becomes(lambda: len(group.members) == FOLLOWERS + 1)
        again = joining(8, first.member_id)
        reply = await leader.ask(again, JoinGroupResponse, 3)
        assert len(reply.members) == FOLLOWERS + 1
        await becomes(lambda: not broker.core.long_answers.held_bytes)
        yield again, reply


def unsent(broker: Broker) -> int:
    """Bytes that are encoded and were not taken."""
    return sum(len(piece) for one in broker._connections for piece in one.outbox._unsent)


@asynccontextmanager
async def taking_nothing(broker: Broker, source: str = "127.0.0.1") -> AsyncIterator[WireClient]:
    async with connect(broker.address, source=source) as client:
        client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        yield client


async def test_a_leader_that_asks_again_and_takes_nothing_has_bounded_memory(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_answers, "BYTES_MAX", 4 * TOLD)
    monkeypatch.setattr(long_answers, "HOST_BYTES_MAX", 5 * TOLD // 2)
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        led(broker) as (again, reply),
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(taking_nothing(broker)) for _ in range(8)]
        for client in clients:
            await client.send(again, 3)
        await becomes(
            lambda: unsent(broker) + TOLD * len(events.named("unserved_request")) > 5 * TOLD
        )
        assert unsent(broker) <= 5 * TOLD // 2
        assert "no room for an answer" in events.named("unserved_request")[0]["error"]
        async with connect(broker.address, source=OTHER_ADDRESS) as other:
            with trio.fail_after(60):
                told = await other.ask(again, JoinGroupResponse, 3)
        assert told == reply, "another address has its own share"
        await stack.aclose()
        await becomes(lambda: not broker.core.long_answers.held_bytes)
        async with connect(broker.address) as client:
            with trio.fail_after(60):
                assert await client.ask(again, JoinGroupResponse, 3) == reply


async def test_a_member_that_asks_again_and_takes_nothing_has_bounded_memory(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 6 << 20
    monkeypatch.setattr(long_answers, "HOST_BYTES_MAX", 5 * size // 2)
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as member,
        AsyncExitStack() as stack,
    ):
        joined = await member.ask(joining(8), JoinGroupResponse, 3)
        rows = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(size))]
        request = SyncGroupRequest(
            group_id="large",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=rows,
        )
        with trio.fail_after(60):
            assert len((await member.ask(request, SyncGroupResponse, 2)).assignment) == size
        request.assignments = []
        clients = [await stack.enter_async_context(taking_nothing(broker)) for _ in range(8)]
        for client in clients:
            await client.send(request, 2)
        await becomes(
            lambda: unsent(broker) + size * len(events.named("unserved_request")) > 5 * size
        )
        assert unsent(broker) <= 5 * size // 2


async def test_who_takes_nothing_of_what_its_group_told_it_is_closed_when_others_wait(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_answers, "HOST_BYTES_MAX", 1)
    monkeypatch.setattr(long_answers, "TAKEN_S", 0.1)
    async with (
        serving(group_initial_rebalance_delay_ms=0) as broker,
        led(broker) as (again, _),
        taking_nothing(broker) as stuck,
        connect(broker.address) as client,
    ):
        await client.create("wide", partitions=4_000)
        await stuck.send(again, 3)
        await becomes(lambda: unsent(broker) > 0)
        one = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
        with trio.fail_after(60):
            await client.ask(one, MetadataResponse, 9)
        (line,) = events.named("unserved_request")
        assert "was not taken" in line["error"]
        await becomes(lambda: not broker.core.long_answers.held_bytes)


async def test_a_leader_that_is_turned_away_counts_as_one_that_waits(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes again and again: who takes nothing would keep it from ever hearing who is there."""
    monkeypatch.setattr(long_answers, "HOST_BYTES_MAX", 1)
    monkeypatch.setattr(long_answers, "TAKEN_S", 0.1)
    async with (
        serving(group_initial_rebalance_delay_ms=0, send_timeout_ms=600_000) as broker,
        led(broker) as (again, reply),
        taking_nothing(broker) as stuck,
    ):
        await stuck.send(again, 3)
        await becomes(lambda: unsent(broker) > 0)
        told = None
        with trio.move_on_after(30):
            while told is None:
                async with connect(broker.address) as leader:
                    with suppress(Closed):
                        told = await leader.ask(again, JoinGroupResponse, 3)
                await trio.sleep(0.05)
        assert told == reply
        errors = [line["error"] for line in events.named("unserved_request")]
        assert len([error for error in errors if "was not taken" in error]) == 1
        await becomes(lambda: not broker.core.long_answers.held_bytes)


async def test_a_leader_that_is_turned_away_closes_nobody_of_another_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_answers, "HOST_BYTES_MAX", 1)
    monkeypatch.setattr(long_answers, "TAKEN_S", 0.1)
    async with (
        serving(group_initial_rebalance_delay_ms=0, send_timeout_ms=600_000) as broker,
        led(broker) as (again, _),
        taking_nothing(broker, OTHER_ADDRESS) as slow,
        taking_nothing(broker) as stuck,
    ):
        await slow.send(again, 3)
        await becomes(lambda: unsent(broker) > 0)
        one = unsent(broker)
        await stuck.send(again, 3)
        await becomes(lambda: unsent(broker) > one)
        async with connect(broker.address) as leader:
            with pytest.raises(Closed):
                await leader.ask(again, JoinGroupResponse, 3)
        await becomes(lambda: unsent(broker) <= one)
        await trio.sleep(2 * long_answers._LOOK_S)
        assert unsent(broker) == one, "it is not its room that is wanted"


async def test_a_member_that_is_gone_before_its_answer_is_encoded_leaves_its_room() -> None:
    async with serving(group_initial_rebalance_delay_ms=0) as broker, led(broker) as (again, reply):
        for _ in range(5):
            async with connect(broker.address) as client:
                await client.send(again, 3)
                await becomes(lambda: broker.core.long_answers.held_bytes > 0)
        await becomes(lambda: not broker.core.long_answers.held_bytes)
        async with connect(broker.address) as client:
            assert await client.ask(again, JoinGroupResponse, 3) == reply

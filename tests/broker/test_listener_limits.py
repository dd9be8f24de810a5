"""Limits of one listener: who is beyond them waits there, and the other listeners go on."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from segbroker.broker.configuration.config import InvalidConfig, merge
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse

from ..support.wire_client import WireClient, connect
from ..support.wire_settings import alter_all, describe
from .conftest import Events, serving

INNER, OUTER = 0, 1
MAX = "listener.name.inner.max.connections"


@asynccontextmanager
async def inner_and_outer(**keys: int) -> AsyncIterator[Broker]:
    listeners = {
        "listeners": "INNER://127.0.0.1:0,OUTER://127.0.0.1:0",
        "listener_security_protocol_map": "INNER:PLAINTEXT,OUTER:PLAINTEXT",
    }
    async with serving(**listeners | keys) as broker:  # type: ignore[arg-type]
        yield broker


async def served(client: WireClient) -> None:
    await client.ask(MetadataRequest(topics=[]), MetadataResponse, 5)


async def until(broker: Broker, connections: int) -> None:
    ends = time.monotonic() + 60  # by no clock of trio's, which may stand still
    while broker.connections != connections:
        assert time.monotonic() < ends, f"{broker.connections} connections, not {connections}"
        await trio.lowlevel.checkpoint()


async def join(stack: AsyncExitStack, broker: Broker, listener: int, count: int) -> None:
    """So many clients that are connected, and served."""
    for _ in range(count):
        client = await stack.enter_async_context(connect(broker.listeners[listener].bound))
        with trio.fail_after(60):
            await served(client)


async def test_a_full_listener_locks_nobody_out_of_the_other_and_goes_on_when_one_leaves(
    events: Events,
) -> None:
    async with (
        inner_and_outer(listener_name_inner_connections_max=2) as broker,
        AsyncExitStack() as inside,
        AsyncExitStack() as outside,
    ):
        await join(inside, broker, INNER, 2)
        assert not events.named("listener_full"), "nobody waits"
        async with connect(broker.listeners[INNER].bound) as waiting:
            asked = await waiting.send(MetadataRequest(topics=[]), 5)
            await join(outside, broker, OUTER, 5)
            assert broker.connections == 7, "it waits to be accepted, and is not closed"
            await inside.aclose()
            with trio.fail_after(60):
                assert (await waiting.receive(MetadataResponse, 5))[0] == asked
    (line,) = events.named("listener_full")
    assert (line["listener"], line["limit"], line["connections"]) == ("INNER", 2, 2)
    assert not events.named("connection_refused")


async def test_a_limit_that_is_raised_lets_in_who_waits() -> None:
    async with (
        inner_and_outer() as broker,
        AsyncExitStack() as inside,
        connect(broker.listeners[OUTER].bound) as admin,
    ):
        assert await alter_all(admin, "1", {MAX: "1"}) == (0, None)
        rows = await describe(admin, "1")
        assert rows[MAX].value == "1"
        assert [one.value for one in rows[MAX].synonyms] == ["1", str(2**31 - 1)]
        assert rows["max.connections"].value == "10000", "of the whole broker"
        await join(inside, broker, INNER, 1)
        async with connect(broker.listeners[INNER].bound) as waiting:
            await waiting.send(MetadataRequest(topics=[]), 5)
            await served(admin)
            assert broker.connections == 2
            assert await alter_all(admin, "1", {MAX: "2"}) == (0, None)
            with trio.fail_after(60):
                await waiting.receive(MetadataResponse, 5)
        assert await alter_all(admin, "1", {MAX: None}) == (0, None)
        assert MAX not in await describe(admin, "1")
        await join(inside, broker, INNER, 3)


async def test_the_limit_of_the_whole_broker_still_closes_at_once(events: Events) -> None:
    async with (
        inner_and_outer(connections_max=2, listener_name_inner_connections_max=5) as broker,
        AsyncExitStack() as inside,
    ):
        await join(inside, broker, INNER, 2)
        async with connect(broker.listeners[OUTER].bound) as refused:
            with trio.fail_after(60):
                assert await refused.is_closed()
    (line,) = events.named("connection_refused")
    assert line["listener"] == "OUTER"


async def test_a_fast_listener_waits_for_its_pace_and_the_other_does_not(
    mock_clock: MockClock, events: Events
) -> None:
    async with (
        inner_and_outer(listener_name_inner_connections_per_second=2) as broker,
        AsyncExitStack() as clients,
    ):
        for _ in range(3):  # a second's worth, and one that is owed
            await clients.enter_async_context(connect(broker.listeners[INNER].bound))
        await until(broker, 3)
        await clients.enter_async_context(connect(broker.listeners[INNER].bound))
        for count in range(4, 9):
            await clients.enter_async_context(connect(broker.listeners[OUTER].bound))
            await until(broker, count)
        mock_clock.jump(0.5)
        await until(broker, 9)
    assert [one["listener"] for one in events.named("listener_held_back")] == ["INNER"]


async def test_the_pace_of_all_listeners_holds_beside_that_of_one(mock_clock: MockClock) -> None:
    async with (
        inner_and_outer(
            connections_per_second=2, listener_name_outer_connections_per_second=100
        ) as broker,
        AsyncExitStack() as clients,
    ):
        for listener in (INNER, INNER, INNER, OUTER):
            await clients.enter_async_context(connect(broker.listeners[listener].bound))
        await until(broker, 3)
        mock_clock.jump(0.5)
        await until(broker, 4)


async def test_a_listener_that_is_full_does_not_hold_the_end_up() -> None:
    async with (
        inner_and_outer(listener_name_inner_connections_max=1) as broker,
        AsyncExitStack() as inside,
    ):
        await join(inside, broker, INNER, 1)
        await inside.enter_async_context(connect(broker.listeners[INNER].bound))


@pytest.mark.parametrize(("value", "why"), [("0", "outside [1, "), ("many", "not a whole number")])
async def test_a_limit_that_cannot_be_is_told_with_its_listener(value: str, why: str) -> None:
    key = "listener_name_inner_connections_max"
    async with inner_and_outer() as broker, connect(broker.address) as client:
        code, said = await alter_all(client, "1", {MAX: value})
    assert code == ErrorCode.INVALID_REQUEST
    assert said is not None
    assert said.startswith(key)
    assert why in said
    with pytest.raises(InvalidConfig, match=key):
        merge(
            {
                "listeners": "INNER://127.0.0.1:0",
                "listener_security_protocol_map": "INNER:PLAINTEXT",
                key: value,
            }
        )

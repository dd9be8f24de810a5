"""A group that nobody is in is of the kind that it was last, in memory or not."""

from collections.abc import Awaitable, Callable
from itertools import permutations

import pytest

from segbroker.protocol.errors import ErrorCode
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.generations import SECTION, has_members

from ..support.wire_client import WireClient
from ..support.wire_consumers import beat as consumer_beat
from ..support.wire_consumers import described
from ..support.wire_consumers import joining as consumer_joining
from ..support.wire_shares import delete, listed
from ..support.wire_streams import beat, beating, joining
from ..support.wire_transactions import until
from .classic_member import ClassicMember
from .restarts import broker_on

KEPT = {"group_streams_initial_rebalance_delay_ms": 0, "group_kept_empty_ms": 60_000}


async def classic(client: WireClient) -> None:
    one = ClassicMember(client)
    assert (await one.join()).error_code == 0
    assert await one.sync({one.member_id: [("t", 0)]}) == 0
    assert await one.commit() == 0
    assert await one.leave() == 0


async def consumer(client: WireClient) -> None:
    reply = await consumer_beat(client, consumer_joining("c"))
    assert reply.error_code == 0
    gone = consumer_joining("c", member_epoch=-1)
    assert (await consumer_beat(client, gone)).error_code == 0


async def streams(client: WireClient) -> None:
    assert (await beat(client, joining("m"))).error_code == 0
    assert (await beat(client, beating("m", -1))).error_code == 0


KINDS: dict[str, Callable[[WireClient], Awaitable[None]]] = {
    "classic": classic,
    "consumer": consumer,
    "streams": streams,
}
ORDERS = [*permutations(KINDS, 2), *permutations(KINDS, 3)]


async def kind_of(client: WireClient) -> str:
    return {name: kind for name, _, _, kind in await listed(client)}["g"]


async def test_a_consumer_group_that_left_memory_is_described_and_knows_no_member() -> None:
    async with broker_on(None, groups_max=1, **KEPT) as (_, (client,)):
        await client.create("t")
        await consumer(client)
        before = await described(client)
        assert (await beat(client, joining("m", group_id="h"))).error_code == 0
        after = await described(client)
        assert (after.error_code, after.group_state, after.members) == (0, "Empty", [])
        assert after.group_epoch == before.group_epoch
        late = await consumer_beat(client, consumer_joining("c", member_epoch=1))
        assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("kinds", ORDERS, ids="-".join)
async def test_a_group_that_left_memory_is_of_its_last_kind(kinds: tuple[str, ...]) -> None:
    async with broker_on(None, groups_max=1, **KEPT) as (broker, (client,)):
        await client.create("t")
        for kind in kinds:
            await KINDS[kind](client)
            assert await kind_of(client) == kind

        async def is_written() -> bool:
            return not has_members(broker.core.topics.manager.section(SECTION), "g")

        await until(is_written)  # a classic member is told before that it has left
        assert (await beat(client, joining("m", group_id="h"))).error_code == 0
        assert await kind_of(client) == kinds[-1]
        assert await delete(client) == 0
        assert [name for name, *_ in await listed(client)] == ["h"]


@pytest.mark.parametrize("kinds", ORDERS, ids="-".join)
async def test_after_a_restart_a_group_is_of_its_last_kind(kinds: tuple[str, ...]) -> None:
    disk = MemoryStorage()
    async with broker_on(disk, **KEPT) as (_, (client,)):
        await client.create("t")
        for kind in kinds:
            await KINDS[kind](client)
    async with broker_on(disk, **KEPT) as (_, (client,)):
        assert await kind_of(client) == kinds[-1]
        for kind in kinds:
            await KINDS[kind](client)
            assert await kind_of(client) == kind

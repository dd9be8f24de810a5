"""Offsets that wait for the end of a transaction, when somebody deletes where a group stands."""

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from segbroker.segments.memory import MemoryStorage

from ..support.wire_client import WireClient, connect
from ..support.wire_groups import GROUP, WireMember
from ..support.wire_transactions import V1, V2, VERSIONS, Tx, stands
from .conftest import serving


async def delete_group(client: WireClient, group: str) -> int:
    request = DeleteGroupsRequest(groups_names=[group])
    reply = await client.ask(request, DeleteGroupsResponse, 2)
    return reply.results[0].error_code


async def delete_offset(client: WireClient, group: str, topic: str) -> tuple[int, list[int]]:
    """Of partition 0: the code of the answer, and of its rows."""
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
        ],
    )
    reply = await client.ask(request, OffsetDeleteResponse, 0)
    return reply.error_code, [row.error_code for one in reply.topics for row in one.partitions]


@VERSIONS
async def test_offsets_of_a_group_that_was_deleted_do_not_stand_with_a_later_commit(
    version: int,
) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        for topic in ("t", "u"):
            await client.create(topic)
        tx = Tx(client, "tx", version)
        await tx.init()
        assert await tx.stage("g", "t", 5) == 0
        assert await tx.stage("other", "t", 7) == 0
        assert await delete_group(client, "g") == 0
        assert await stands(client, "g", "t", stable=True) == (0, -1)
        assert await delete_group(client, "g") == ErrorCode.GROUP_ID_NOT_FOUND
        # The transaction goes on: what it stages from here on stands.
        assert await tx.stage("g", "u", 6) == 0
        assert await tx.end(commit=True) == 0
        for group, topic, offset in (("g", "t", -1), ("g", "u", 6), ("other", "t", 7)):
            assert await stands(client, group, topic, stable=True) == (0, offset)
        image = disk.after_kill()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        for group, topic, offset in (("g", "t", -1), ("g", "u", 6), ("other", "t", 7)):
            assert await stands(client, group, topic, stable=True) == (0, offset)


async def test_an_offset_that_was_deleted_does_not_stand_with_a_later_commit() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for topic in ("t", "u"):
            await client.create(topic)
        first, second = Tx(client, "first", V1), Tx(client, "second", V2)
        for tx in (first, second):
            await tx.init()
            assert await tx.stage("g", "t", 5) == 0
            assert await tx.stage("g", "u", 6) == 0
        assert await delete_offset(client, "g", "t") == (0, [0])
        assert await stands(client, "g", "t", stable=True) == (0, -1)
        unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await stands(client, "g", "u", stable=True) == unstable
        for tx in (first, second):
            assert await tx.end(commit=True) == 0
        assert await stands(client, "g", "t", stable=True) == (0, -1)
        assert await stands(client, "g", "u", stable=True) == (0, 6)


async def test_a_deletion_beside_a_commit_of_the_same_offset_is_before_or_behind_it() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for at in range(20):
            tx = Tx(client, f"tx{at}", V2)
            await tx.init()
            assert await tx.stage("g", "t", at) == 0
            async with connect(broker.address) as other, trio.open_nursery() as nursery:
                nursery.start_soon(delete_group, other, "g")
                assert await tx.end(commit=True) == 0
            # Whichever was first: it stood and is deleted, or was deleted and never stood.
            assert await stands(client, "g", "t", stable=True) == (0, -1)


async def test_a_member_stages_offsets_also_while_its_leader_deals_out() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        tx = Tx(client, "tx", V2)
        await tx.init()
        member = WireMember(client)
        await member.join()
        assert await member.commit("t", 1) == ErrorCode.REBALANCE_IN_PROGRESS
        # A producer knows no such code, and would be broken by it for good.
        assert await member.stage(tx, "t", 2) == 0
        older = member.generation - 1
        assert await member.stage(tx, "t", 3, generation=older) == ErrorCode.ILLEGAL_GENERATION
        await member.deal()
        assert await tx.end(commit=True) == 0
        assert await stands(client, GROUP, "t", stable=True) == (0, 2)

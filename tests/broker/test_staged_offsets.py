"""Offsets that wait for the end of a transaction, when somebody else says where the group stands,
deletes that, or asks which groups there are."""

import pytest
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from segbroker.segments.disk.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect
from ..support.wire_groups import GROUP, WireMember
from ..support.wire_transactions import NOW_MS, V1, V2, VERSIONS, Tx, stands, until
from .conftest import serving
from .obedient_members import Member, joined
from .test_committed_offsets import commit


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


async def test_who_is_no_member_any_more_when_its_turn_comes_stages_nothing() -> None:
    """It waits for another request of its transaction.  Meanwhile its successor may have asked
    where the group stands, and reads the same records."""
    disk = GatedStorage()
    answered: list[int] = []
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
        connect(broker.address) as own,
    ):
        await client.create("t", partitions=2)
        tx = Tx(client, "tx", V2)
        await tx.init()
        assert await tx.send("t", b"v") == 0
        member = WireMember(own)
        await member.join()
        await member.deal()
        leaving = WireMember(other, member_id=member.member_id)
        entry = broker.core.transactions.table.entries["tx"]

        async def stage() -> None:
            answered.append(await member.stage(tx, "t", 5))

        async def is_locked() -> bool:
            return entry.is_locked

        async def is_waiting() -> bool:
            return entry.lock.statistics().tasks_waiting == 1

        async def has_left() -> bool:
            group = broker.core.groups.get(GROUP)
            return group is None or member.member_id not in group.members

        async with trio.open_nursery() as nursery:
            disk.syncs.clear()
            nursery.start_soon(tx.add, "t", 1)
            await until(is_locked)
            nursery.start_soon(stage)
            await until(is_waiting)
            nursery.start_soon(leaving.leave)
            await until(has_left)
            disk.syncs.set()
        assert answered == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await tx.end(commit=True) == 0
        assert await stands(client, GROUP, "t", stable=True) == (0, -1)


async def test_what_is_being_staged_is_waited_for_by_who_takes_over() -> None:
    """Its member is gone before the disk has answered; nobody takes over before it has."""
    disk = GatedStorage()
    answered: list[int] = []
    left: list[int] = []
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        connect(broker.address) as other,
        connect(broker.address) as own,
    ):
        await client.create("t")
        tx = Tx(own, "tx", V2)
        await tx.init()
        before, after = Member(client, "one"), Member(other, "two")
        await joined(before, after)
        if not before.reads:
            before, after = after, before
        assert before.reads
        assert not after.reads

        async def stage() -> None:
            member = WireMember(own, member_id=before.name, generation=before.epoch)
            answered.append(await member.stage(tx, "t", 5))

        async def leave() -> None:
            left.append(await before.leave())

        async def is_under_way() -> bool:
            return broker.core.transactions.table.entries["tx"].is_locked

        async def has_left() -> bool:
            group = broker.core.groups.get_consumer(GROUP)
            return group is None or before.name not in group.members

        async with connect(broker.address) as asker, trio.open_nursery() as nursery:
            disk.syncs.clear()
            nursery.start_soon(stage)
            await until(is_under_way)
            nursery.start_soon(leave)
            await until(has_left)
            found = await stands(asker, GROUP, "t", stable=True)
            assert not answered
            assert not left
            disk.syncs.set()
        unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert found == unstable
        assert answered == [0]
        assert left == [0]
        await after.beat()
        assert after.reads
        assert await stands(client, GROUP, "t", stable=True) == unstable
        assert await tx.end(commit=True) == 0
        assert await stands(client, GROUP, "t", stable=True) == (0, 5)


@VERSIONS
@pytest.mark.parametrize("how", ["killed", "ended"])
async def test_what_was_committed_behind_a_staged_offset_outlives_the_transaction(
    version: int, how: str
) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        for topic in ("t", "u", "v"):
            await client.create(topic)
        tx = Tx(client, "tx", version)
        await tx.init()
        assert await commit(client, "u", 9) == 0
        for topic in ("t", "u", "v"):
            assert await tx.stage("g", topic, 5) == 0
        assert await commit(client, "t", 2) == 0
        assert await commit(client, "v", 2) == 0
        assert await tx.stage("g", "v", 6) == 0
        image = disk.after_kill()
    image = image if how == "killed" else disk
    expected = {"t": 2, "u": 5, "v": 6}
    async with serving(storage=image) as broker, connect(broker.address) as client:
        again = Tx(client, "tx", version, tx.producer_id, tx.epoch)
        unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await stands(client, "g", "t", stable=True) == unstable
        assert await stands(client, "g", "t", stable=False) == (0, 2)
        assert await again.end(commit=True) == 0
        for topic, offset in expected.items():
            assert await stands(client, "g", topic, stable=True) == (0, offset)
        image = image.after_kill()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        for topic, offset in expected.items():
            assert await stands(client, "g", topic, stable=True) == (0, offset)
        # What is committed next is later than all of it.
        assert await commit(client, "u", 1) == 0
        assert await stands(client, "g", "u", stable=True) == (0, 1)


@VERSIONS
async def test_of_two_transactions_the_offset_stands_that_was_staged_last(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        first, second = Tx(client, "first", version), Tx(client, "second", version)
        for offset, tx in enumerate((first, second)):
            await tx.init()
            assert await tx.stage("g", "t", offset) == 0
        for tx in (second, first):
            assert await tx.end(commit=True) == 0
            assert await stands(client, "g", "t", stable=False) == (0, 1)
        # One that begins behind them is the last one again.
        assert await first.stage("g", "t", 7) == 0
        assert await first.end(commit=True) == 0
        assert await stands(client, "g", "t", stable=True) == (0, 7)


@pytest.mark.parametrize("kept_ms", [0, 600_000])
async def test_a_group_whose_offsets_are_all_staged_is_there_until_they_are_long_gone(
    kept_ms: int,
) -> None:
    async with (
        serving(housekeeping_interval_ms=20, group_kept_empty_ms=kept_ms) as broker,
        connect(broker.address) as client,
    ):

        async def is_there() -> bool:
            listed = await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)
            described = await client.ask(
                DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 6
            )
            (row,) = described.groups
            rows = [
                (one.group_id, one.protocol_type, one.group_state, one.group_type)
                for one in listed.groups
            ]
            if not rows:
                assert (row.error_code, row.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
                return False
            assert rows == [("g", "", "Empty", "classic")]
            assert (row.error_code, row.group_state, row.protocol_type) == (0, "Empty", "")
            return True

        async def is_gone() -> bool:
            return not (await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)).groups

        await client.create("t")
        tx = Tx(client, "tx", V2)
        await tx.init()
        assert not await is_there()
        assert await tx.stage("g", "t", 5) == 0
        assert await is_there()
        assert await tx.end(commit=False) == 0
        if kept_ms:
            broker.core.groups.keep_house(NOW_MS)
            assert await is_there()
        else:
            await until(is_gone)
            assert not await is_there()
        assert await tx.stage("g", "t", 6) == 0
        assert await tx.end(commit=True) == 0
        assert await is_there()

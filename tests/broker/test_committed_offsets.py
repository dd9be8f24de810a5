"""Committed offsets over the wire: durable, bound to the topic that was meant, refused in words."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.consumer_members import Beat
from segbroker.broker.groups import monotonic_ms
from segbroker.broker.offset_store import METADATA_SIZE_MAX
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsResponse
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from segbroker.segments.memory import MemoryStorage

from ..support.gated_storage import GatedStorage
from ..support.wire_client import WireClient, connect
from ..support.wire_groups import WireMember
from .conftest import serving


async def commit(
    client: WireClient, topic: str, offset: int, *, partition: int = 0, metadata: str = ""
) -> int:
    """Commit as nobody's member; the error code."""
    row = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    reply = await client.ask(request, OffsetCommitResponse, 7)
    return reply.topics[0].partitions[0].error_code


async def stands(client: WireClient, topic: str | None) -> dict[tuple[str, int], int]:
    """Where the group stands in partition 0 of a topic, or everywhere."""
    asked = topic and [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=asked or None)
    reply = await client.ask(request, OffsetFetchResponse, 5)
    return {
        (row.name, one.partition_index): one.committed_offset
        for row in reply.topics
        for one in row.partitions
    }


async def test_a_commit_that_was_answered_survives_a_power_cut() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        assert await stands(client, "t") == {("t", 0): -1}
        assert await commit(client, "t", 7) == 0
        assert await commit(client, "t", 8) == 0
        image = disk.after_power_cut()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, "t") == {("t", 0): 8}
        assert await stands(client, None) == {("t", 0): 8}


async def test_a_commit_of_many_partitions_with_long_metadata_can_be_read_back() -> None:
    """Were it one event, it would be larger than a start takes, and nothing would be opened."""
    disk = MemoryStorage()
    topic, partitions = "t" * 200, 300
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        assert partitions * METADATA_SIZE_MAX > broker.core.topics.manager.event_size_max
        await client.create(topic, partitions)
        rows = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=7,
                committed_metadata="m" * METADATA_SIZE_MAX,
            )
            for partition in range(partitions)
        ]
        request = OffsetCommitRequest(
            group_id="g",
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        reply = await client.ask(request, OffsetCommitResponse, 7)
        assert {row.error_code for row in reply.topics[0].partitions} == {0}
        image = disk.after_kill()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, topic) == {(topic, 0): 7}


async def test_a_recreated_topic_has_no_committed_offsets() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await commit(client, "t", 7)
        await client.ask(
            DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), DeleteTopicsResponse, 4
        )
        assert await stands(client, "t") == {("t", 0): -1}
        await client.create("t")
        assert await stands(client, "t") == {("t", 0): -1}
        assert await stands(client, None) == {}
        await commit(client, "t", 3)
        assert await stands(client, "t") == {("t", 0): 3}


async def test_what_cannot_be_committed_is_refused_by_name() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        assert await commit(client, "nope", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(client, "t", 1, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        long = await commit(client, "t", 1, metadata="m" * 4097)
        assert long == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await stands(client, "t") == {("t", 0): -1}


async def test_a_deleted_group_is_gone_after_a_power_cut_too() -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await commit(client, "t", 7)
        reply = await client.ask(
            DeleteGroupsRequest(groups_names=["g", "nope"]), DeleteGroupsResponse, 1
        )
        assert [row.error_code for row in reply.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        image = disk.after_power_cut()
    async with serving(storage=image) as broker, connect(broker.address) as client:
        assert await stands(client, None) == {}


async def test_who_joins_while_the_group_is_deleted_is_a_member_of_it() -> None:
    disk = GatedStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t")
        await commit(client, "t", 7)
        groups = broker.core.groups
        deletion = DeleteGroupsRequest(groups_names=["g"])
        disk.syncs.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask, deletion, DeleteGroupsResponse, 1)
            await wait_all_tasks_blocked(0.05)  # until the deletion is durable
            joins = Beat("m", 0, rebalance_timeout_ms=1_000, names=frozenset())
            groups.obtain_consumer("g").heartbeat(monotonic_ms(), joins, {})
            disk.syncs.set()
        assert await stands(client, None) == {}
        assert groups.members_count("g") == 1


async def test_offsets_of_a_group_without_members_expire() -> None:
    now = 1_700_000_000_000
    async with (
        serving(
            now_ms=lambda: now,
            offsets_retention_minutes=1,
            group_min_session_timeout_ms=1,
            group_max_session_timeout_ms=1,
        ) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        await commit(client, "t", 7)
        groups = broker.core.groups
        await trio.sleep(0.01)  # longer than the longest session
        groups.keep_house(now + 59_000)
        assert await stands(client, None) == {("t", 0): 7}
        groups.keep_house(now + 61_000)
        while groups.exists("g"):
            await stands(client, None)


@pytest.mark.parametrize("ended", [MemoryStorage.after_kill, MemoryStorage.after_power_cut])
async def test_a_group_that_had_nothing_to_commit_keeps_its_offsets_for_as_long_after_its_end(
    ended: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    week_ms, now = 7 * 24 * 3600 * 1000, 1_700_000_000_000
    disk = MemoryStorage()
    async with (
        serving(storage=disk, now_ms=lambda: now, group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        member = WireMember(client)
        await member.join()
        await member.deal()
        assert await member.commit("t", 7) == 0
        now += 3 * week_ms  # nothing came, so there was nothing to commit
        assert await member.leave() == 0
        broker.core.groups.keep_house(now)
        await client.create("behind")  # durable, and with it what was written down before
        image = ended(disk)
    async with (
        serving(
            storage=image,
            now_ms=lambda: now,
            group_min_session_timeout_ms=1,
            group_max_session_timeout_ms=1,
        ) as broker,
        connect(broker.address) as client,
    ):
        await trio.sleep(0.01)  # longer than the longest session
        groups = broker.core.groups
        groups.keep_house(now + week_ms - 60_000)
        await client.create("further")
        assert await stands(client, "t") == {("t", 0): 7}
        groups.keep_house(now + week_ms + 60_000)
        written = broker.core.topics.manager.section
        while groups.exists("g") or written("emptied") or written("generations"):
            await stands(client, None)


SUBSCRIBED_TO_T = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff" + b"\0\0\0\0"


@pytest.mark.parametrize(
    ("says", "is_deal_done", "is_left"),
    [
        (SUBSCRIBED_TO_T, True, {("t", 0): 7}),
        (SUBSCRIBED_TO_T, False, {("t", 0): 7, ("left", 0): 8}),
        (b"no subscription", True, {("t", 0): 7, ("left", 0): 8}),
    ],
    ids=["stable", "in a rebalance", "of another kind"],
)
async def test_a_group_with_members_keeps_no_offsets_of_topics_that_it_left_long_ago(
    monkeypatch: pytest.MonkeyPatch,
    says: bytes,
    is_deal_done: bool,
    is_left: dict[tuple[str, int], int],
) -> None:
    monkeypatch.setattr("segbroker.broker.groups.LOOK_INTO_MS", 0)
    day_ms, now = 24 * 3600 * 1000, 1_700_000_000_000
    async with (
        serving(now_ms=lambda: now, group_initial_rebalance_delay_ms=0) as broker,
        connect(broker.address) as client,
    ):
        for topic in ("t", "left"):
            await client.create(topic)
        member = WireMember(client, metadata=says)
        await member.join()
        await member.deal()
        assert await member.commit("t", 7) == 0
        assert await member.commit("left", 8) == 0
        if not is_deal_done:
            await member.join()
        groups = broker.core.groups
        both = {("t", 0): 7, ("left", 0): 8}
        groups.keep_house(now + 7 * day_ms - 1)
        await client.create("after-the-first-look")
        assert await stands(client, None) == both
        groups.keep_house(now + 7 * day_ms + 1)
        await client.create("after-the-second-look")
        assert await stands(client, None) == is_left

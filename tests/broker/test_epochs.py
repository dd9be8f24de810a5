"""Leader epochs and lost tails as clients see them: after a power cut, a kill, a deletion."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio

from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import DeleteTopicsRequest, DeleteTopicsResponse
from segbroker.protocol.messages_core import (
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
    ProduceResponse,
)
from segbroker.protocol.record_batch import encode_batch
from segbroker.protocol.vendor import VendorKey
from segbroker.segments.disk.memory import MemoryStorage

from ..support.wire_client import WireClient, connect, fetch_request, produce_request, values
from .conftest import serving

NEVER_MS = 3_600_000
BLOCK = 1 << 20


@asynccontextmanager
async def client_of(storage: MemoryStorage) -> AsyncIterator[tuple[Broker, WireClient]]:
    """A broker without a sync tick on this disk, and a client of it."""
    async with (
        serving(storage=storage, housekeeping_interval_ms=NEVER_MS) as broker,
        connect(broker.address) as client,
    ):
        yield broker, client


async def told_epoch(client: WireClient, topic: str) -> int:
    reply = await client.ask(MetadataRequest(topics=None), MetadataResponse, 9)
    (found,) = [one for one in reply.topics if one.name == topic]
    return found.partitions[0].leader_epoch


async def end_of_epoch(
    client: WireClient, topic: str, epoch: int, *, current: int = -1
) -> tuple[int, int, int]:
    """(error, epoch, end offset)."""
    one = OffsetForLeaderEpochRequestPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochRequestTopic(topic=topic, partitions=[one])]
    )
    reply = await client.ask(request, OffsetForLeaderEpochResponse, 4)
    row = reply.topics[0].partitions[0]
    return row.error_code, row.leader_epoch, row.end_offset


async def fetch_code(client: WireClient, topic: str, epoch: int) -> int:
    request = fetch_request(topic, 0)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    reply = await client.ask(request, FetchResponse, 12)
    return reply.responses[0].partitions[0].error_code


async def listed(
    client: WireClient, topic: str, timestamp: int, *, current: int = -1
) -> ListOffsetsResponsePartition:
    one = ListOffsetsRequestPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=current
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequestTopic(name=topic, partitions=[one])]
    )
    reply = await client.ask(request, ListOffsetsResponse, 8)
    return reply.topics[0].partitions[0]


async def list_code(client: WireClient, topic: str, epoch: int) -> int:
    return (await listed(client, topic, -1, current=epoch)).error_code


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_after_a_power_cut_the_old_epoch_ends_where_the_log_was_recovered(
    durability: str,
) -> None:
    disk = MemoryStorage()
    async with client_of(disk) as (broker, client):
        await client.create("t", durability=durability)
        await client.produce("t", b"kept")
        partition = broker.core.topics.served_partition("t", 0)
        assert partition is not None
        partition.handler.sync()
        await client.produce("t", b"lost", b"lost too")
        assert await told_epoch(client, "t") == 0
        disk = disk.after_power_cut()
    async with client_of(disk) as (_, client):
        # A client that comes back with what it knew is sent for the news, then told the truth.
        await fetch_code(client, "t", 0)
        assert await told_epoch(client, "t") == 1
        assert await fetch_code(client, "t", 0) == ErrorCode.FENCED_LEADER_EPOCH
        assert await list_code(client, "t", 0) == ErrorCode.FENCED_LEADER_EPOCH
        assert await fetch_code(client, "t", 2) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await list_code(client, "t", 2) == ErrorCode.UNKNOWN_LEADER_EPOCH
        fenced = await end_of_epoch(client, "t", 0, current=0)
        assert fenced == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await end_of_epoch(client, "t", 0, current=1) == (0, 0, 1)
        assert (await client.produce("t", b"next")).base_offset == BLOCK + 1
        assert values(await client.fetch("t", 0)) == [b"kept", b"next"]
        disk = disk.after_power_cut()
    async with client_of(disk) as (_, client):
        await fetch_code(client, "t", 1)
        assert await told_epoch(client, "t") == 2, "it survived, and there was another loss"
        assert await end_of_epoch(client, "t", 0) == (0, 0, 1)


async def test_an_offset_is_listed_with_the_leader_epoch_that_it_is_of() -> None:
    # epoch 0: a record at 0; epoch 1 begins with the gap at 1, a record behind it.
    disk = MemoryStorage()
    async with client_of(disk) as (broker, client):
        await client.create("t", durability="disk")
        await client.produce("t", b"kept")
        partition = broker.core.topics.served_partition("t", 0)
        assert partition is not None
        partition.handler.sync()
        await client.produce("t", b"lost")
        disk = disk.after_power_cut()
    async with client_of(disk) as (broker, client):
        later = encode_batch([b"next"], timestamps_ms=[9_000_000_000_000])
        await client.ask(produce_request("t", later), ProduceResponse, 9)

        async def told(timestamp: int) -> tuple[int, int]:
            row = await listed(client, "t", timestamp)
            assert row.error_code == 0
            return row.offset, row.leader_epoch

        for first in (-2, -4, 0):
            assert await told(first) == (0, 0)
        for last in (-3, 9_000_000_000_000):
            assert await told(last) == (BLOCK + 1, 1)
        assert await told(-1) == (BLOCK + 2, 1)
        assert await told(9_000_000_000_001) == (-1, -1)
        broker.core.topics.served["t", 0].handler.delete_records_before(1)
        assert await told(-2) == (1, 1)


async def test_who_read_what_a_power_cut_took_learns_from_the_fetch_where_the_log_agrees() -> None:
    # epoch 0: kept at 0, lost at 1 and 2; epoch 1 begins with the gap at 1.
    disk = MemoryStorage()
    async with client_of(disk) as (broker, client):
        await client.create("t", durability="disk")
        await client.produce("t", b"kept")
        partition = broker.core.topics.served_partition("t", 0)
        assert partition is not None
        partition.handler.sync()
        await client.produce("t", b"lost", b"lost too")
        disk = disk.after_power_cut()

    async def fetched(
        client: WireClient, offset: int, epoch: int, min_bytes: int = 1
    ) -> tuple[int, object, bool]:
        request = fetch_request("t", offset, wait_ms=60_000, min_bytes=min_bytes)
        request.topics[0].partitions[0].last_fetched_epoch = epoch
        reply = await client.ask(request, FetchResponse, 12)
        row = reply.responses[0].partitions[0]
        parts = row.diverging_epoch
        said = None if parts is None else (parts.epoch, parts.end_offset)
        return row.error_code, said, bool(row.records)

    async with client_of(disk) as (_, client):
        await fetch_code(client, "t", 0)
        assert (await client.produce("t", b"next")).base_offset == BLOCK + 1
        for min_bytes in (1, 1 << 20):
            assert await fetched(client, 3, 0, min_bytes) == (0, (0, 1), False)
        assert await fetched(client, 1, 0) == (0, None, True)
        assert await fetched(client, 0, 0) == (0, None, True)
        assert await fetched(client, BLOCK + 1, 1) == (0, None, True)
        assert await fetched(client, BLOCK + 9, 1) == (0, (1, BLOCK + 2), False)
        assert await fetched(client, 0, 7) == (ErrorCode.OFFSET_OUT_OF_RANGE, None, False)


async def test_a_kill_on_the_same_boot_keeps_epoch_offsets_and_records() -> None:
    disk = MemoryStorage()
    async with client_of(disk) as (_, client):
        await client.create("t", durability="memory")
        await client.produce("t", b"a", b"b")
        disk = disk.after_kill()
    async with client_of(disk) as (_, client):
        assert await fetch_code(client, "t", 0) == 0
        assert values(await client.fetch("t", 0)) == [b"a", b"b"]
        assert (await client.produce("t", b"c")).base_offset == 2


async def test_an_ephemeral_topic_is_empty_at_its_ceiling_after_a_restart() -> None:
    disk = MemoryStorage()
    async with client_of(disk) as (_, client):
        await client.create("t", durability="ephemeral")
        assert (await client.produce("t", b"a", b"b")).error_code == 0
        assert values(await client.fetch("t", 0)) == [b"a", b"b"]
        disk = disk.after_kill()
    async with client_of(disk) as (_, client):
        row = await client.fetch("t", 1)
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (row.log_start_offset, row.high_watermark) == (BLOCK + 2, BLOCK + 2)
        asked: dict[str, object] = {"partitions": [{"topic": "t", "partition": 0}]}
        reply = await client.ask_vendor(VendorKey.FLOORS, asked)
        (floor,) = cast(list[dict[str, object]], reply["partitions"])
        # Lost, not deleted: our client says so.
        assert (floor["evict_floor"], floor["evict_reason"]) == (BLOCK + 2, "lost_tail")
        assert (floor["log_start_offset"], floor["leader_epoch"]) == (BLOCK + 2, 1)
        assert await fetch_code(client, "t", 0) == ErrorCode.FENCED_LEADER_EPOCH
        assert (await client.produce("t", b"c")).base_offset == BLOCK + 2
        assert await told_epoch(client, "t") == 1


async def test_a_recreated_topic_has_a_new_id_and_fences_who_knew_the_old_one() -> None:
    async with client_of(MemoryStorage()) as (broker, client):
        await client.create("t")
        await client.produce("t", b"old")
        old_id = broker.core.topics.all["t"].topic_id
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        await client.ask(request, DeleteTopicsResponse, 5)
        await client.create("t")
        assert broker.core.topics.all["t"].topic_id != old_id
        await client.fetch("t", 0)
        assert await told_epoch(client, "t") == 1
        assert await fetch_code(client, "t", 0) == ErrorCode.FENCED_LEADER_EPOCH


async def test_the_default_class_of_new_topics_may_be_any() -> None:
    async with (
        serving(storage=MemoryStorage(), durability="ephemeral") as broker,
        connect(broker.address) as client,
    ):
        await client.create("t")
        assert (await client.produce("t", b"v")).error_code == 0
        assert broker.core.topics.all["t"].config.durability.value == "ephemeral"
        assert broker.core.topics.all["t"].config.retention_bytes == 64 << 20


async def test_an_ephemeral_topic_keeps_to_its_limit_by_dropping_the_oldest() -> None:
    async with (
        serving(storage=MemoryStorage()) as broker,
        connect(broker.address) as client,
    ):
        await client.create("t", durability="ephemeral", retention_bytes=str(2 << 20))
        for number in range(40):
            assert (await client.produce("t", b"x" * 500_000)).base_offset == number
        partition = broker.core.topics.served_partition("t", 0)
        assert partition is not None
        with trio.fail_after(60):
            while partition.handler.size_bytes > (2 << 20) + (1 << 20):
                await trio.lowlevel.checkpoint()
        row = await client.fetch("t", 0)
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert row.log_start_offset >= 30
        assert values(await client.fetch("t", 39)) == [b"x" * 500_000]


async def test_an_ephemeral_topic_may_refuse_at_its_limit_instead() -> None:
    async with (
        serving(storage=MemoryStorage()) as broker,
        connect(broker.address) as client,
    ):
        await client.create(
            "t",
            durability="ephemeral",
            retention_bytes=str(1 << 20),
            retention_full_policy="reject",
        )
        codes = [(await client.produce("t", b"x" * 500_000)).error_code for _ in range(3)]
        assert codes == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert values(await client.fetch("t", 1)) == [b"x" * 500_000]

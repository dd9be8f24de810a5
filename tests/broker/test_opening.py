"""Requests that name many partitions which are not open yet."""

from segbroker.broker.topics import OPENING_AT_ONCE
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from segbroker.segments.memory import MemoryStorage

from ..segments.tools import flip
from ..support.wire_client import connect, values
from .conftest import Events, serving

COUNT = 3 * OPENING_AT_ONCE
DAMAGED = 5


async def test_one_that_cannot_be_opened_is_told_and_the_others_are_served(events: Events) -> None:
    disk = MemoryStorage()
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        await client.create("t", partitions=COUNT, on_corruption="refuse")
        for index in range(COUNT):
            await client.produce("t", b"%d" % index, partition=index)
    flip(disk, f"/data/topics/t/partition_{DAMAGED}/t_partition_{DAMAGED}_segment_0.log", 64)
    refused = [
        ErrorCode.POLICY_VIOLATION if index == DAMAGED else ErrorCode.NONE for index in range(COUNT)
    ]
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        ends = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequestTopic(
                    name="t",
                    partitions=[
                        ListOffsetsRequestPartition(partition_index=index, timestamp=-1)
                        for index in range(COUNT)
                    ],
                )
            ],
        )
        reply = await client.ask(ends, ListOffsetsResponse, 7)
        rows = reply.topics[0].partitions
        assert [row.partition_index for row in rows] == list(range(COUNT))
        assert [row.error_code for row in rows] == refused
        assert [row.offset for row in rows] == [-1 if code else 1 for code in refused]
        assert [event["partition"] for event in events.named("partition_not_opened")] == [DAMAGED]
    async with serving(storage=disk) as broker, connect(broker.address) as client:
        everything = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                FetchRequestTopic(
                    topic="t",
                    partitions=[
                        FetchRequestPartition(
                            partition=index, fetch_offset=0, partition_max_bytes=1 << 20
                        )
                        for index in range(COUNT)
                    ],
                )
            ],
        )
        fetched = await client.ask(everything, FetchResponse, 12)
        found = {row.partition_index: row for row in fetched.responses[0].partitions}
        assert [found[index].error_code for index in range(COUNT)] == refused
        for index in set(range(COUNT)) - {DAMAGED}:
            assert values(found[index]) == [b"%d" % index]
        assert len(broker.core.topics.served) == COUNT - 1

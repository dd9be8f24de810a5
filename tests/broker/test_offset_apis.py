"""Offsets by time and by leader epoch; records deleted before an offset."""

import threading

import pytest

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
    ProduceResponse,
)
from segbroker.protocol.record_batch import encode_batch
from segbroker.segments.partition.handler import DiskHandler

from ..support.wire_client import (
    WireClient,
    connect,
    produce_request,
    values,
)
from .conftest import serving


async def list_offset(
    client: WireClient, timestamp: int, version: int = 7
) -> ListOffsetsResponsePartition:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequestTopic(
                name="t",
                partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)],
            )
        ],
    )
    reply = await client.ask(request, ListOffsetsResponse, version)
    return reply.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        (-2, 0, -1),
        (-1, 6, -1),
        (0, 0, 1000),
        (1000, 0, 1000),
        (1001, 1, 1010),
        (1015, 2, 1020),
        (2000, 3, 2000),
        (2021, -1, -1),
        (-3, 5, 2020),
    ],
)
async def test_offsets_by_time_are_exact_to_the_record(
    timestamp: int, offset: int, found: int
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for first in (1000, 2000):
            records = encode_batch(
                [b"a", b"b", b"c"], timestamps_ms=[first, first + 10, first + 20]
            )
            await client.ask(produce_request("t", records), ProduceResponse, 9)
        row = await list_offset(client, timestamp)
        assert (row.error_code, row.offset, row.timestamp) == (0, offset, found)


async def test_a_time_is_found_in_a_batch_that_the_log_begins_inside_of() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        records = encode_batch([b"a", b"b", b"c"], timestamps_ms=[1000, 1010, 1020])
        await client.ask(produce_request("t", records), ProduceResponse, 9)
        broker.core.topics.served["t", 0].handler.delete_records_before(1)
        for timestamp, offset in ((0, 1), (1005, 1), (1011, 2), (1021, -1)):
            assert (await list_offset(client, timestamp)).offset == offset


async def test_an_unknown_special_timestamp_is_refused() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        assert (await list_offset(client, -9)).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("name", "index"), [("t", 1), ("t", -1), ("nope", 0)])
async def test_of_what_is_not_there_no_offset_is_told(name: str, index: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for timestamp in (-1, -2, -3, 0):
            one = ListOffsetsRequestPartition(partition_index=index, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsRequestTopic(name=name, partitions=[one])]
            )
            reply = await client.ask(request, ListOffsetsResponse, 7)
            row = reply.topics[0].partitions[0]
            told = (row.error_code, row.offset, row.timestamp, row.leader_epoch)
            assert told == (unknown, -1, -1, -1)
        epoch = OffsetForLeaderEpochRequestPartition(partition=index, leader_epoch=0)
        of_epoch = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderEpochRequestTopic(topic=name, partitions=[epoch])]
        )
        end = (await client.ask(of_epoch, OffsetForLeaderEpochResponse, 4)).topics[0].partitions[0]
        assert (end.error_code, end.leader_epoch, end.end_offset) == (unknown, -1, -1)


@pytest.mark.parametrize(("current", "code"), [(-1, 0), (99, ErrorCode.UNKNOWN_LEADER_EPOCH)])
async def test_the_end_of_a_leader_epoch(current: int, code: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"a", b"b")
        partition = broker.core.topics.served_partition("t", 0)
        assert partition is not None
        epoch = partition.handler.leader_epoch
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequestTopic(
                    topic="t",
                    partitions=[
                        OffsetForLeaderEpochRequestPartition(
                            partition=0, current_leader_epoch=current, leader_epoch=epoch
                        )
                    ],
                )
            ]
        )
        reply = await client.ask(request, OffsetForLeaderEpochResponse, 4)
        row = reply.topics[0].partitions[0]
        expected = (epoch, 2) if not code else (-1, -1)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (code, *expected)


async def test_records_before_an_offset_are_deleted() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        for value in (b"a", b"b", b"c"):
            await client.produce("t", value)

        async def delete(offset: int, partition: int = 0) -> tuple[int, int]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsRequestTopic(
                        name="t",
                        partitions=[
                            DeleteRecordsRequestPartition(partition_index=partition, offset=offset)
                        ],
                    )
                ],
                timeout_ms=1000,
            )
            reply = await client.ask(request, DeleteRecordsResponse, 2)
            row = reply.topics[0].partitions[0]
            return row.error_code, row.low_watermark

        assert await delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(0, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(2) == (0, 2)
        assert await delete(1) == (0, 2), "the log does not begin earlier again"
        assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values(await client.fetch("t", 2)) == [b"c"]
        assert await delete(-1) == (0, 3)


async def test_records_of_a_topic_that_is_compacted_and_no_more_are_not_deleted_on_request() -> (
    None
):
    async with serving() as broker, connect(broker.address) as client:
        for name, policy in (("t", "compact"), ("n", ""), ("u", "compact,delete")):
            await client.create(name, 1, cleanup_policy=policy)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequestTopic(
                    name=name,
                    partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=0)],
                )
                for name in ("t", "n", "u")
            ],
            timeout_ms=1000,
        )
        reply = await client.ask(request, DeleteRecordsResponse, 2)
        rows = [topic.partitions[0] for topic in reply.topics]
        assert [(row.error_code, row.low_watermark) for row in rows] == [
            (ErrorCode.POLICY_VIOLATION, -1),
            (0, 0),
            (0, 0),
        ]


async def test_records_of_several_partitions_are_deleted_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each waits for its disk: here for another one."""
    both = threading.Barrier(2, timeout=60)
    delete = DiskHandler.delete_records_before

    def together(handler: DiskHandler, offset: int) -> int:
        both.wait()
        return delete(handler, offset)

    monkeypatch.setattr(DiskHandler, "delete_records_before", together)
    async with serving(lanes=4) as broker, connect(broker.address) as client:
        await client.create("t", partitions=4)
        for partition in range(4):
            await client.produce("t", *[b"v"] * (partition + 1), partition=partition)
        asked = [
            DeleteRecordsRequestPartition(partition_index=partition, offset=-1)
            for partition in (3, 1, 0, 2)
        ]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsRequestTopic(name="t", partitions=asked)], timeout_ms=1000
        )
        reply = await client.ask(request, DeleteRecordsResponse, 2)
        rows = reply.topics[0].partitions
        assert [(row.partition_index, row.error_code, row.low_watermark) for row in rows] == [
            (3, 0, 4),
            (1, 0, 2),
            (0, 0, 1),
            (2, 0, 3),
        ]


async def test_a_partition_that_is_asked_for_twice_is_refused_as_in_kafka() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        rows = [
            ListOffsetsRequestPartition(partition_index=n, timestamp=timestamp)
            for n, timestamp in ((0, -1), (1, -1), (0, -2))
        ]
        topics = [ListOffsetsRequestTopic(name="t", partitions=rows)]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        reply = await client.ask(request, ListOffsetsResponse, 7)
        assert [
            (row.partition_index, row.error_code, row.offset) for row in reply.topics[0].partitions
        ] == [
            (0, ErrorCode.INVALID_REQUEST, -1),
            (1, 0, 0),
        ]

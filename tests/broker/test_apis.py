"""The apis one by one: what they answer and with which code they refuse."""

from typing import cast
from uuid import UUID

import pytest
import trio

from segbroker.broker.requests import ANSWERS, SLOW_ANSWERS, WAITING_ANSWERS
from segbroker.protocol.api_keys import SERVED, ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_admin import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from segbroker.protocol.messages_core import (
    ApiVersionsResponse,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
    ProduceResponse,
)
from segbroker.protocol.messages_groups import FindCoordinatorRequest, FindCoordinatorResponse
from segbroker.protocol.messages_transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from segbroker.protocol.record_batch import check_batch, encode_batch, set_log_append_time
from segbroker.protocol.vendor import VendorKey

from ..support.wire_client import (
    WireClient,
    batch,
    connect,
    fetch_request,
    produce_request,
    software,
    values,
)
from .conftest import serving


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", range(13))
async def test_metadata_is_served_in_every_version(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=3)
        reply = await client.ask(MetadataRequest(topics=named("t")), MetadataResponse, version)
        (node,) = reply.brokers
        assert (node.node_id, node.host, node.port) == (1, *broker.address)
        assert reply.controller_id == (1 if version >= 1 else -1)
        (topic,) = reply.topics
        assert [one.partition_index for one in topic.partitions] == [0, 1, 2]
        assert {one.leader_id for one in topic.partitions} == {1}
        assert topic.partitions[0].replica_nodes == topic.partitions[0].isr_nodes == [1]


async def test_metadata_0_may_come_first_and_an_empty_list_means_all() -> None:
    async with serving() as broker:
        async with connect(broker.address) as client:
            await client.create("a")
            await client.create("b")
        async with connect(broker.address) as client:
            reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 0)
            assert sorted(str(topic.name) for topic in reply.topics) == ["a", "b"]


@pytest.mark.parametrize("version", [1, 5, 9, 12])
async def test_null_means_all_topics_and_empty_means_none(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("a")
        every = await client.ask(MetadataRequest(topics=None), MetadataResponse, version)
        none = await client.ask(MetadataRequest(topics=[]), MetadataResponse, version)
        assert [topic.name for topic in every.topics] == ["a"]
        assert none.topics == []


async def test_an_unknown_topic_is_created_when_both_sides_allow() -> None:
    async with serving(partitions=3) as broker, connect(broker.address) as client:
        asked = MetadataRequest(topics=named("new"), allow_auto_topic_creation=False)
        refused = await client.ask(asked, MetadataResponse, 9)
        assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        reply = await client.ask(MetadataRequest(topics=named("new")), MetadataResponse, 9)
        assert (reply.topics[0].error_code, len(reply.topics[0].partitions)) == (0, 3)


async def test_an_unknown_topic_is_not_created_where_that_is_switched_off() -> None:
    async with serving(auto_create_topics=False) as broker, connect(broker.address) as client:
        reply = await client.ask(MetadataRequest(topics=named("new")), MetadataResponse, 1)
        assert reply.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_metadata_by_topic_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topic_id = broker.core.topics.all["t"].topic_id
        asked = [
            MetadataRequestTopic(name=None, topic_id=topic_id),
            MetadataRequestTopic(name="", topic_id=topic_id),  # as Java asks
            MetadataRequestTopic(name=None, topic_id=UUID(int=7)),
        ]
        reply = await client.ask(MetadataRequest(topics=asked), MetadataResponse, 12)
        assert [(topic.name, topic.error_code) for topic in reply.topics] == [
            ("t", 0),
            ("t", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


async def test_authorized_operations_are_a_bit_set_only_when_asked_for() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        request = MetadataRequest(topics=named("t"))
        quiet = await client.ask(request, MetadataResponse, 8)
        assert quiet.cluster_authorized_operations == -(2**31)
        assert quiet.topics[0].topic_authorized_operations == -(2**31)
        request.include_cluster_authorized_operations = True
        request.include_topic_authorized_operations = True
        reply = await client.ask(request, MetadataResponse, 8)
        assert reply.cluster_authorized_operations == 0b1_1111_1010_0000
        assert reply.topics[0].topic_authorized_operations == 0b1101_1111_1000


async def test_the_advertised_address_is_told_with_the_bound_port_for_0() -> None:
    async with serving(advertised="broker.example:0") as broker, connect(broker.address) as client:
        reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert (reply.brokers[0].host, reply.brokers[0].port) == (
            "broker.example",
            broker.address[1],
        )


async def test_who_listens_everywhere_tells_the_address_that_was_reached() -> None:
    async with (
        serving(listen="0.0.0.0:0", allow_anonymous_network=True) as broker,
        connect(("127.0.0.1", broker.address[1])) as client,
    ):
        reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert reply.brokers[0].host == "127.0.0.1"


async def test_vendor_apis_are_told_only_to_our_own_clients() -> None:
    async with serving() as broker:
        async with connect(broker.address) as ours, connect(broker.address) as foreign:
            to_us = await ours.ask(software("segbroker-py"), ApiVersionsResponse, 3)
            to_them = await foreign.ask(software("librdkafka"), ApiVersionsResponse, 3)
        keys = {one.api_key for one in to_them.api_keys}
        assert keys == {int(key) for key in SERVED}
        assert {one.api_key for one in to_us.api_keys} - keys >= {VendorKey.SERVER_INFO}


async def test_every_api_that_is_served_has_a_handler() -> None:
    own = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS}
    handled = ANSWERS.keys() | SLOW_ANSWERS.keys() | WAITING_ANSWERS.keys()
    assert {int(key) for key in SERVED} == handled | own


def creation(
    name: str, partitions: int = 1, replicas: int = 1, **config: str
) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[
            CreateTopicsRequestConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ],
    )


async def create(
    client: WireClient, *topics: CreateTopicsRequestTopic, validate_only: bool = False
) -> list[tuple[str, int]]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    reply = await client.ask(request, CreateTopicsResponse, 7)
    return [(row.name, row.error_code) for row in reply.topics]


async def test_topics_are_created_or_refused_one_by_one() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("there")
        rows = await create(
            client,
            creation("ok"),
            creation("default", partitions=-1, replicas=-1),
            creation("there"),
            creation("a/b"),
            creation("none", partitions=0),
            creation("many", partitions=100_001),
            creation("copied", replicas=3),
            creation("odd", no_such_key="1"),
            creation("wrong", segment_bytes="many"),
            creation("twice"),
            creation("twice"),
        )
        assert rows == [
            ("ok", ErrorCode.NONE),
            ("default", ErrorCode.NONE),
            ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("none", ErrorCode.INVALID_PARTITIONS),
            ("many", ErrorCode.INVALID_PARTITIONS),
            ("copied", ErrorCode.INVALID_REPLICATION_FACTOR),
            ("odd", ErrorCode.INVALID_CONFIG),
            ("wrong", ErrorCode.INVALID_CONFIG),
            ("twice", ErrorCode.INVALID_REQUEST),
        ]
        assert sorted(broker.core.topics.all) == ["default", "ok", "there"]
        assert broker.core.topics.all["default"].partitions == 4


async def test_an_assignment_may_only_name_us() -> None:
    def assigned(name: str, *brokers: int) -> CreateTopicsRequestTopic:
        topic = creation(name, partitions=-1, replicas=-1)
        topic.assignments = [
            CreateTopicsRequestAssignment(partition_index=n, broker_ids=[one])
            for n, one in enumerate(brokers)
        ]
        return topic

    async with serving() as broker, connect(broker.address) as client:
        rows = await create(client, assigned("ok", 1, 1), assigned("wrong", 1, 2))
        assert rows == [("ok", 0), ("wrong", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
        assert broker.core.topics.all["ok"].partitions == 2


async def test_validate_only_does_all_but_create() -> None:
    async with serving() as broker, connect(broker.address) as client:
        rows = await create(client, creation("ok"), creation("a/b"), validate_only=True)
        assert rows == [("ok", 0), ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)]
        assert dict(broker.core.topics.all) == {}


async def test_the_answer_holds_the_settings_and_never_null() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = CreateTopicsRequest(topics=[creation("t", segment_bytes="4096"), creation("a/b")])
        reply = await client.ask(request, CreateTopicsResponse, 5)
        good, bad = reply.topics
        assert good.configs is not None
        settings = {one.name: (one.value, one.config_source) for one in good.configs}
        assert settings["segment.bytes"] == ("4096", 1)
        assert settings["message.timestamp.type"] == ("CreateTime", 5)
        assert bad.configs == []


async def test_a_deleted_topic_is_gone_and_may_come_again_empty() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"old")
        old_id = broker.core.topics.all["t"].topic_id
        reply = await client.ask(
            DeleteTopicsRequest(topic_names=["t", "missing"], timeout_ms=1000),
            DeleteTopicsResponse,
            5,
        )
        assert [(row.name, row.error_code) for row in reply.responses] == [
            ("t", 0),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert (await client.produce("t", b"v")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await client.create("t")
        assert broker.core.topics.all["t"].topic_id != old_id
        assert (await client.produce("t", b"new")).base_offset == 0
        assert values(await client.fetch("t", 0)) == [b"new"]


async def test_a_topic_is_deleted_by_its_id() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        topics = [
            DeleteTopicsRequestTopic(topic_id=broker.core.topics.all["t"].topic_id),
            DeleteTopicsRequestTopic(topic_id=UUID(int=9)),
        ]
        request = DeleteTopicsRequest(topics=topics, timeout_ms=1000)
        reply = await client.ask(request, DeleteTopicsResponse, 6)
        assert [(row.name, row.error_code) for row in reply.responses] == [
            ("t", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert dict(broker.core.topics.all) == {}


async def test_a_fetch_that_waits_hears_of_the_deletion() -> None:
    async with serving() as broker, connect(broker.address) as a, connect(broker.address) as b:
        await a.create("t")
        await a.send(fetch_request("t", 0, wait_ms=60_000), 12)
        while len(broker.core.deadlines) < 1:
            await trio.lowlevel.checkpoint()
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        await b.ask(request, DeleteTopicsResponse, 5)
        _, reply = await a.receive(FetchResponse, 12)
        row = reply.responses[0].partitions[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_may_grow_but_not_shrink() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await client.create("u", partitions=2)
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequestTopic(name="t", count=5, assignments=None),
                CreatePartitionsRequestTopic(name="u", count=2, assignments=None),
                CreatePartitionsRequestTopic(name="missing", count=2, assignments=None),
            ],
            timeout_ms=1000,
            validate_only=False,
        )
        reply = await client.ask(request, CreatePartitionsResponse, 3)
        assert [(row.name, row.error_code) for row in reply.results] == [
            ("t", 0),
            ("u", ErrorCode.INVALID_PARTITIONS),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert (await client.produce("t", b"v", partition=4)).error_code == 0


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
        assert await delete(2) == (0, 2)
        assert (await client.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values(await client.fetch("t", 2)) == [b"c"]
        assert await delete(-1) == (0, 3)


async def test_records_of_a_topic_that_is_only_compacted_are_not_deleted_on_request() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for name, policy in (("t", "compact"), ("u", "compact,delete")):
            await client.create(name, 1, cleanup_policy=policy)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequestTopic(
                    name=name,
                    partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=0)],
                )
                for name in ("t", "u")
            ],
            timeout_ms=1000,
        )
        reply = await client.ask(request, DeleteRecordsResponse, 2)
        rows = [topic.partitions[0] for topic in reply.topics]
        assert [(row.error_code, row.low_watermark) for row in rows] == [
            (ErrorCode.POLICY_VIOLATION, -1),
            (0, 0),
        ]


async def describe(
    client: WireClient, resource_type: int, name: str, keys: list[str] | None = None
) -> DescribeConfigsResponse:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(
                resource_type=resource_type, resource_name=name, configuration_keys=keys
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    return await client.ask(request, DescribeConfigsResponse, 4)


async def test_a_topics_settings_say_where_they_come_from() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", segment_bytes="4096")
        (row,) = (await describe(client, 2, "t")).results
        found = {one.name: one for one in row.configs}
        assert {"retention.bytes", "segment.bytes", "durability", "cleanup.policy"} <= found.keys()
        changed = found["segment.bytes"]
        assert (changed.value, changed.config_source) == ("4096", 1)
        assert [(one.value, one.source) for one in changed.synonyms] == [
            ("4096", 1),
            ("1048576", 5),
        ]
        assert changed.documentation
        assert found["durability"].config_source == 5


async def test_only_the_settings_asked_for_are_described() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        (row,) = (await describe(client, 2, "t", ["retention.ms"])).results
        assert [one.name for one in row.configs] == ["retention.ms"]


async def test_the_brokers_settings_are_described_under_kafkas_names_too() -> None:
    async with serving(partitions=7) as broker, connect(broker.address) as client:
        (row,) = (await describe(client, 4, "1")).results
        found = {one.name: one for one in row.configs}
        host, port = broker.address
        assert found["advertised.listeners"].value == f"PLAINTEXT://{host}:{port}"
        assert found["num.partitions"].value == found["partitions"].value == "7"
        assert all(one.documentation for one in row.configs)


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (2, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (4, "77", ErrorCode.INVALID_REQUEST),
        (16, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_settings_is_refused(
    resource_type: int, name: str, code: ErrorCode
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        (row,) = (await describe(client, resource_type, name)).results
        assert row.error_code == code


async def test_settings_are_changed_one_by_one() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", segment_bytes="4096", retention_ms="5")

        async def change(name: str, operation: int, value: str | None) -> int:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsRequestResource(
                        resource_type=2,
                        resource_name="t",
                        configs=[
                            IncrementalAlterConfigsRequestConfig(
                                name=name, config_operation=operation, value=value
                            )
                        ],
                    )
                ],
                validate_only=False,
            )
            reply = await client.ask(request, IncrementalAlterConfigsResponse, 1)
            return reply.responses[0].error_code

        assert await change("segment.ms", 0, "1000") == 0
        assert await change("retention.ms", 1, None) == 0
        assert await change("segment.bytes", 0, "many") == ErrorCode.INVALID_CONFIG
        assert await change("segment.bytes", 2, "1") == ErrorCode.INVALID_CONFIG
        assert await change("no.such", 0, "1") == ErrorCode.INVALID_CONFIG
        assert broker.core.topics.all["t"].config.overrides == {
            "segment.bytes": "4096",
            "segment.ms": "1000",
        }


@pytest.mark.parametrize("validate_only", [True, False])
async def test_settings_are_replaced_as_a_whole(validate_only: bool) -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", segment_bytes="4096")
        request = AlterConfigsRequest(
            resources=[
                AlterConfigsRequestResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[AlterConfigsRequestConfig(name="retention.ms", value="5")],
                ),
                AlterConfigsRequestResource(
                    resource_type=4,
                    resource_name="1",
                    configs=[AlterConfigsRequestConfig(name="lanes", value="5")],
                ),
            ],
            validate_only=validate_only,
        )
        reply = await client.ask(request, AlterConfigsResponse, 2)
        assert [row.error_code for row in reply.responses] == [0, ErrorCode.INVALID_CONFIG]
        expected = {"segment.bytes": "4096"} if validate_only else {"retention.ms": "5"}
        assert broker.core.topics.all["t"].config.overrides == expected


async def test_producer_ids_never_repeat() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        replies = [await client.ask(request, InitProducerIdResponse, 4) for _ in range(20)]
        assert len({reply.producer_id for reply in replies}) == 20
        assert {reply.producer_epoch for reply in replies} == {0}


async def test_a_transactional_id_has_one_producer_id_and_the_next_epoch_each_time() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
        replies = [await client.ask(request, InitProducerIdResponse, 5) for _ in range(3)]
        assert [(reply.error_code, reply.producer_epoch) for reply in replies] == [
            (0, 0),
            (0, 1),
            (0, 2),
        ]
        assert len({reply.producer_id for reply in replies}) == 1


async def test_an_idempotent_batch_sent_again_is_answered_but_not_appended_again() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")

        async def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
            records = encode_batch(
                [b"v"],
                timestamps_ms=1000,
                producer_id=7,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            reply = await client.ask(produce_request("t", records), ProduceResponse, 9)
            row = reply.responses[0].partition_responses[0]
            return row.error_code, row.base_offset

        assert await send(0) == (0, 0)
        assert await send(1) == (0, 1)
        assert await send(0) == (0, 0)
        assert await send(5) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await send(0, epoch=1) == (0, 2)
        assert await send(2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert (await client.fetch("t", 0)).high_watermark == 3


async def test_a_topic_of_log_append_time_gets_the_brokers_time() -> None:
    async with serving(now_ms=lambda: 1_234_567) as broker, connect(broker.address) as client:
        await client.create("t", message_timestamp_type="LogAppendTime")
        row = await client.produce("t", b"v")
        assert (row.error_code, row.log_append_time_ms) == (0, 1_234_567)
        records = bytes(cast(bytes, (await client.fetch("t", 0)).records))
        header = check_batch(records, stored=True)
        assert (header.is_log_append_time, header.max_timestamp) == (True, 1_234_567)


async def test_log_append_time_is_refused_from_a_producer_of_a_create_time_topic() -> None:
    records = bytearray(batch(b"v"))
    set_log_append_time(records, 1000)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        reply = await client.ask(produce_request("t", bytes(records)), ProduceResponse, 9)
        row = reply.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.INVALID_TIMESTAMP


async def test_the_cluster_is_one_broker() -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        reply = await client.ask(request, DescribeClusterResponse, 1)
        assert [(one.broker_id, one.host, one.port) for one in reply.brokers] == [
            (1, *broker.address)
        ]
        assert reply.controller_id == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_we_coordinate_groups(version: int) -> None:
    async with serving() as broker, connect(broker.address) as client:
        request = FindCoordinatorRequest(key="group")
        reply = await client.ask(request, FindCoordinatorResponse, version)
        assert (reply.error_code, reply.node_id, reply.host, reply.port) == (
            0,
            1,
            *broker.address,
        )


async def test_we_coordinate_transactions_and_nothing_else() -> None:
    async with serving() as broker, connect(broker.address) as client:
        for key_type, code in ((1, ErrorCode.NONE), (2, ErrorCode.INVALID_REQUEST)):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"])
            reply = await client.ask(request, FindCoordinatorResponse, 4)
            assert {one.error_code for one in reply.coordinators} == {code}


async def test_the_server_tells_of_itself() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        await client.produce("t", b"v")
        info = await client.ask_vendor(VendorKey.SERVER_INFO, {})
        assert (info["broker_id"], info["topics"], info["connections"]) == (1, 1, 1)
        counters = info["counters"]
        assert isinstance(counters, dict)
        assert counters["produced_bytes"] == len(batch(b"v"))
        assert set(info["performance"]) == {"storage_us"}  # type: ignore[call-overload]
        assert info["recovery"] == {"counts": {"offsets_lost": 0}, "rows": []}
        wal = info["wal"]
        assert isinstance(wal, dict)
        assert wal["syncs"] <= wal["frames_written"] >= 2, "the topic and the record"
        assert wal["bytes_written"] > counters["produced_bytes"]
        assert (wal["shards_failed"], wal["files_full"]) == (0, 0)


async def test_the_statistics_of_partitions() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t", partitions=2)
        await client.create("u")
        await client.produce("t", b"a", b"b", partition=1)
        reply = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {"topics": ["t"]})
        topics = reply["topics"]
        assert isinstance(topics, dict)
        assert list(topics) == ["t"]
        empty, written = topics["t"]["partitions"]
        assert (empty["log_end_offset"], written["log_end_offset"]) == (0, 2)
        assert (written["high_watermark"], written["read_only"]) == (2, None)
        every = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {})
        assert sorted(every["topics"]) == ["t", "u"]  # type: ignore[call-overload]


@pytest.mark.parametrize(("topics", "code"), [(["missing"], 3), ("t", 42), ([7], 42)])
async def test_a_vendor_request_is_refused_with_code_class_and_detail(
    topics: object, code: int
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        reply = await client.ask_vendor(VendorKey.PARTITION_STATISTICS, {"topics": topics})
        error = reply["error"]
        assert isinstance(error, dict)
        assert error["code"] == code
        assert error["class"] == ErrorCode.of(code).name
        assert error["detail"]

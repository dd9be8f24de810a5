"""Administration of thousands of things that there are not: the others are served meanwhile."""

from typing import Final

import pytest
import trio

from segbroker.broker.loop import pace
from segbroker.protocol.messages_admin import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    DeleteRecordsRequest,
    DeleteRecordsRequestTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestResource,
)
from segbroker.protocol.messages_core import MetadataRequest, MetadataRequestTopic
from segbroker.protocol.messages_groups import DeleteGroupsRequest
from segbroker.protocol.messages_placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestTopic,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    DescribeQuorumRequest,
    DescribeQuorumRequestTopic,
    ElectLeadersRequest,
    ElectLeadersRequestTopic,
)
from segbroker.protocol.messages_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    ClientQuotaEntity,
)
from segbroker.protocol.messages_security import CreateAclsRequest, CreateAclsRequestCreation
from segbroker.protocol.messages_transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from segbroker.protocol.schema import Message

from ..support.steps import calls_of_a_step
from ..support.wire_client import connect
from .conftest import serving
from .test_hostile import ITEMS, turns_of_others

NAMES: Final = [f"none-{n}" for n in range(ITEMS)]
NO_METRICS: Final = 16
OPEN: Final = 500
"""Partitions: to open one takes a millisecond."""

REQUESTS: Final[list[tuple[Message, int]]] = [
    (
        AlterConfigsRequest(
            resources=[
                AlterConfigsRequestResource(
                    resource_type=NO_METRICS, resource_name=name, configs=[]
                )
                for name in NAMES
            ],
            validate_only=False,
        ),
        2,
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequestResource(
                    resource_type=NO_METRICS, resource_name=name, configs=[]
                )
                for name in NAMES
            ],
            validate_only=False,
        ),
        1,
    ),
    (
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in NAMES]
        ),
        0,
    ),
    (
        DescribeLogDirsRequest(
            topics=[DescribeLogDirsRequestTopic(topic=name, partitions=[]) for name in NAMES]
        ),
        4,
    ),
    (
        DeleteRecordsRequest(
            topics=[DeleteRecordsRequestTopic(name=name, partitions=[]) for name in NAMES],
            timeout_ms=1000,
        ),
        2,
    ),
    (
        ElectLeadersRequest(
            election_type=0,
            timeout_ms=1000,
            topic_partitions=[ElectLeadersRequestTopic(topic=n, partitions=[]) for n in NAMES],
        ),
        2,
    ),
    (
        AlterPartitionReassignmentsRequest(
            timeout_ms=1000,
            topics=[
                AlterPartitionReassignmentsRequestTopic(name=name, partitions=[]) for name in NAMES
            ],
        ),
        0,
    ),
    (
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequestDir(
                    path="/",
                    topics=[
                        AlterReplicaLogDirsRequestTopic(name=name, partitions=[]) for name in NAMES
                    ],
                )
            ]
        ),
        2,
    ),
    (
        DescribeQuorumRequest(
            topics=[DescribeQuorumRequestTopic(topic_name=name, partitions=[]) for name in NAMES]
        ),
        2,
    ),
    (
        DescribeProducersRequest(
            topics=[DescribeProducersRequestTopic(name=n, partition_indexes=[]) for n in NAMES]
        ),
        0,
    ),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="mover",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[
                AddPartitionsToTxnRequestTopic(name=name, partitions=[]) for name in NAMES
            ],
        ),
        3,
    ),
    (
        TxnOffsetCommitRequest(
            transactional_id="mover",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=[]) for name in NAMES],
        ),
        3,
    ),
    (
        WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequestMarker(
                    producer_id=n,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[],
                    coordinator_epoch=0,
                )
                for n in range(ITEMS)
            ]
        ),
        1,
    ),
    (
        WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequestMarker(
                    producer_id=7,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[
                        WriteTxnMarkersRequestTopic(name=name, partition_indexes=[])
                        for name in NAMES
                    ],
                    coordinator_epoch=0,
                )
            ]
        ),
        1,
    ),
    (
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntry(
                    entity=[ClientQuotaEntity(entity_type="user", entity_name="a")],
                    ops=[],
                )
                for _ in NAMES
            ],
            validate_only=False,
        ),
        1,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (DeleteGroupsRequest(groups_names=NAMES), 2),
        (
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in NAMES],
                allow_auto_topic_creation=False,
            ),
            9,
        ),
        (
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequestResource(
                        resource_type=2, resource_name=name, configuration_keys=None
                    )
                    for name in NAMES
                ]
            ),
            4,
        ),
        (
            CreateAclsRequest(
                creations=[
                    CreateAclsRequestCreation(
                        resource_type=2,
                        resource_name=name,
                        resource_pattern_type=3,
                        principal="User:a",
                        host="*",
                        operation=3,
                        permission_type=3,
                    )
                    for name in NAMES
                ]
            ),
            3,
        ),
    ],
    ids=["DeleteGroups", "Metadata", "DescribeConfigs", "CreateAcls"],
)
async def test_a_request_of_thousands_of_names_gives_way_also_while_it_is_taken_apart(
    request_: Message, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STEP_S", -1.0)
    async with serving() as broker, connect(broker.address) as client:

        async def ask() -> None:
            await client.send(request_, version)
            with trio.fail_after(60):
                assert await client.receive_frame()

        assert await calls_of_a_step(ask) < ITEMS / 2


async def test_a_topic_of_very_many_open_partitions_is_deleted_with_others_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "STEP_S", -1.0)
    request = DeleteTopicsRequest(topic_names=["wide"], timeout_ms=60_000)
    async with serving() as broker, connect(broker.address) as client:
        await client.create("wide", partitions=OPEN)
        await broker.core.topics.open_all(("wide", index) for index in range(OPEN))
        assert len(broker.core.topics.served) == OPEN

        async def ask() -> None:
            with trio.fail_after(60):
                reply = await client.ask(request, DeleteTopicsResponse, 5)
            assert not reply.responses[0].error_code

        assert await calls_of_a_step(ask) < OPEN
        assert not broker.core.topics.served


@pytest.mark.parametrize(
    ("request_", "version"), REQUESTS, ids=[type(message).__name__ for message, _ in REQUESTS]
)
async def test_a_request_about_thousands_of_things_gives_way_after_each(
    request_: Message, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STEP_S", -1.0)  # a handler has had its time after every item
    assert await turns_of_others(request_, version) >= ITEMS

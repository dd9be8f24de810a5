"""Requests that need a rule: what each is answered without it, and what it needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from segbroker.protocol import messages_admin as admin
from segbroker.protocol import messages_core as core
from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_placement as placement
from segbroker.protocol import messages_quotas as quotas
from segbroker.protocol import messages_security as security
from segbroker.protocol import messages_transactions as transactions
from segbroker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.schema import Message

from ..support.wire_client import batch, fetch_request, produce_request

Needs = tuple[Operation, ResourceType, str]

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, ALL = Operation.ALTER, Operation.DESCRIBE, Operation.ALL
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN = ResourceType.TRANSACTIONAL_ID
OF_CLUSTER: tuple[ResourceType, str] = (CLUSTER, CLUSTER_NAME)


class Case(NamedTuple):
    """A request, the code of who may not, and what is needed for it."""

    request: Message
    expected: type[Message]
    version: int
    code: ErrorCode
    needs: tuple[Needs, ...]


def codes(message: Message) -> set[int]:
    """Every error code in an answer, however deep."""
    found: set[int] = set()
    for field in type(message).fields():
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                found |= codes(one)
    return found


def resource(kind: int, name: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name}


OFFSETS = [
    groups.OffsetCommitRequestTopic(
        name="t",
        partitions=[
            groups.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=0, committed_metadata=None
            )
        ],
    )
]
T29, G30, C31, X53 = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

CASES: dict[str, Callable[[], Case]] = {
    "produce": lambda: Case(
        produce_request("t", batch(b"one")), core.ProduceResponse, 9, T29, ((WRITE, TOPIC, "t"),)
    ),
    "fetch": lambda: Case(
        fetch_request("t", 0), core.FetchResponse, 12, T29, ((READ, TOPIC, "t"),)
    ),
    "metadata": lambda: Case(
        core.MetadataRequest(topics=[core.MetadataRequestTopic(name="t")]),
        core.MetadataResponse,
        9,
        T29,
        ((DESCRIBE, TOPIC, "t"),),
    ),
    "metadata that creates": lambda: Case(
        core.MetadataRequest(topics=[core.MetadataRequestTopic(name="new")]),
        core.MetadataResponse,
        9,
        T29,
        ((DESCRIBE, TOPIC, "new"), (CREATE, TOPIC, "new")),
    ),
    "list offsets": lambda: Case(
        core.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                core.ListOffsetsRequestTopic(
                    name="t",
                    partitions=[core.ListOffsetsRequestPartition(partition_index=0, timestamp=-1)],
                )
            ],
        ),
        core.ListOffsetsResponse,
        5,
        T29,
        ((DESCRIBE, TOPIC, "t"),),
    ),
    "offset for leader epoch": lambda: Case(
        core.OffsetForLeaderEpochRequest(
            topics=[
                core.OffsetForLeaderEpochRequestTopic(
                    topic="t",
                    partitions=[
                        core.OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=0)
                    ],
                )
            ]
        ),
        core.OffsetForLeaderEpochResponse,
        3,
        T29,
        ((DESCRIBE, TOPIC, "t"),),
    ),
    "offset commit": lambda: Case(
        groups.OffsetCommitRequest(group_id="g", member_id="", topics=OFFSETS),
        groups.OffsetCommitResponse,
        7,
        G30,
        ((READ, TOPIC, "t"), (READ, GROUP, "g")),
    ),
    "offset commit of a topic": lambda: Case(
        groups.OffsetCommitRequest(group_id="g", member_id="", topics=OFFSETS),
        groups.OffsetCommitResponse,
        7,
        T29,
        ((READ, GROUP, "g"), (READ, TOPIC, "t")),
    ),
    "offset fetch": lambda: Case(
        groups.OffsetFetchRequest(
            group_id="g",
            topics=[groups.OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
        ),
        groups.OffsetFetchResponse,
        5,
        G30,
        ((DESCRIBE, TOPIC, "t"), (DESCRIBE, GROUP, "g")),
    ),
    "offset fetch of several groups": lambda: Case(
        groups.OffsetFetchRequest(
            groups=[
                groups.OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[groups.OffsetFetchRequestGroupTopic(name="t", partition_indexes=[0])],
                )
            ]
        ),
        groups.OffsetFetchResponse,
        8,
        T29,
        ((DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "t")),
    ),
    "find coordinator": lambda: Case(
        groups.FindCoordinatorRequest(key="g"),
        groups.FindCoordinatorResponse,
        2,
        G30,
        ((DESCRIBE, GROUP, "g"),),
    ),
    "find coordinators": lambda: Case(
        groups.FindCoordinatorRequest(coordinator_keys=["g"]),
        groups.FindCoordinatorResponse,
        4,
        G30,
        ((DESCRIBE, GROUP, "g"),),
    ),
    "join": lambda: Case(
        groups.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[groups.JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        groups.JoinGroupResponse,
        5,
        G30,
        ((READ, GROUP, "g"),),
    ),
    "sync": lambda: Case(
        groups.SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
        groups.SyncGroupResponse,
        3,
        G30,
        ((READ, GROUP, "g"),),
    ),
    "heartbeat": lambda: Case(
        groups.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        groups.HeartbeatResponse,
        3,
        G30,
        ((READ, GROUP, "g"),),
    ),
    "leave": lambda: Case(
        groups.LeaveGroupRequest(group_id="g", member_id="m"),
        groups.LeaveGroupResponse,
        2,
        G30,
        ((READ, GROUP, "g"),),
    ),
    "describe groups": lambda: Case(
        groups.DescribeGroupsRequest(groups=["g"]),
        groups.DescribeGroupsResponse,
        4,
        G30,
        ((DESCRIBE, GROUP, "g"),),
    ),
    "delete groups": lambda: Case(
        groups.DeleteGroupsRequest(groups_names=["g"]),
        groups.DeleteGroupsResponse,
        1,
        G30,
        ((DELETE, GROUP, "g"),),
    ),
    "offset delete": lambda: Case(
        groups.OffsetDeleteRequest(group_id="g", topics=[]),
        groups.OffsetDeleteResponse,
        0,
        G30,
        ((DELETE, GROUP, "g"),),
    ),
    "create topics": lambda: Case(
        admin.CreateTopicsRequest(
            topics=[
                admin.CreateTopicsRequestTopic(
                    name="new",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
            ]
        ),
        admin.CreateTopicsResponse,
        4,
        T29,
        ((CREATE, TOPIC, "new"),),
    ),
    "create topics anywhere": lambda: Case(
        admin.CreateTopicsRequest(
            topics=[
                admin.CreateTopicsRequestTopic(
                    name="new",
                    num_partitions=1,
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
            ]
        ),
        admin.CreateTopicsResponse,
        4,
        T29,
        ((CREATE, *OF_CLUSTER),),
    ),
    "delete topics": lambda: Case(
        admin.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000),
        admin.DeleteTopicsResponse,
        5,
        T29,
        ((DELETE, TOPIC, "t"),),
    ),
    "create partitions": lambda: Case(
        admin.CreatePartitionsRequest(
            topics=[admin.CreatePartitionsRequestTopic(name="t", count=2, assignments=None)],
            timeout_ms=1000,
            validate_only=False,
        ),
        admin.CreatePartitionsResponse,
        1,
        T29,
        ((ALTER, TOPIC, "t"),),
    ),
    "delete records": lambda: Case(
        admin.DeleteRecordsRequest(
            topics=[
                admin.DeleteRecordsRequestTopic(
                    name="t",
                    partitions=[admin.DeleteRecordsRequestPartition(partition_index=0, offset=0)],
                )
            ],
            timeout_ms=1000,
        ),
        admin.DeleteRecordsResponse,
        1,
        T29,
        ((DELETE, TOPIC, "t"),),
    ),
    "describe configs of a topic": lambda: Case(
        admin.DescribeConfigsRequest(
            resources=[
                admin.DescribeConfigsRequestResource(**resource(2, "t"), configuration_keys=None)
            ]
        ),
        admin.DescribeConfigsResponse,
        3,
        T29,
        ((Operation.DESCRIBE_CONFIGS, TOPIC, "t"),),
    ),
    "describe configs of the broker": lambda: Case(
        admin.DescribeConfigsRequest(
            resources=[
                admin.DescribeConfigsRequestResource(**resource(4, "1"), configuration_keys=None)
            ]
        ),
        admin.DescribeConfigsResponse,
        3,
        C31,
        ((Operation.DESCRIBE_CONFIGS, *OF_CLUSTER),),
    ),
    "alter configs": lambda: Case(
        admin.AlterConfigsRequest(
            resources=[admin.AlterConfigsRequestResource(**resource(2, "t"), configs=[])],
            validate_only=True,
        ),
        admin.AlterConfigsResponse,
        1,
        T29,
        ((Operation.ALTER_CONFIGS, TOPIC, "t"),),
    ),
    "incremental alter configs": lambda: Case(
        admin.IncrementalAlterConfigsRequest(
            resources=[
                admin.IncrementalAlterConfigsRequestResource(**resource(2, "t"), configs=[])
            ],
            validate_only=True,
        ),
        admin.IncrementalAlterConfigsResponse,
        1,
        T29,
        ((Operation.ALTER_CONFIGS, TOPIC, "t"),),
    ),
    "a producer id for a topic": lambda: Case(
        transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
        transactions.InitProducerIdResponse,
        1,
        C31,
        ((WRITE, TOPIC, "t"),),
    ),
    "a producer id for the cluster": lambda: Case(
        transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
        transactions.InitProducerIdResponse,
        1,
        C31,
        ((Operation.IDEMPOTENT_WRITE, *OF_CLUSTER),),
    ),
    "describe acls": lambda: Case(
        security.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        security.DescribeAclsResponse,
        2,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "create acls": lambda: Case(
        security.CreateAclsRequest(
            creations=[
                security.CreateAclsRequestCreation(
                    resource_type=2,
                    resource_name="x",
                    resource_pattern_type=3,
                    principal="User:x",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        security.CreateAclsResponse,
        2,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "delete acls": lambda: Case(
        security.DeleteAclsRequest(
            filters=[
                security.DeleteAclsRequestFilter(
                    resource_type_filter=2,
                    resource_name_filter="x",
                    pattern_type_filter=3,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        security.DeleteAclsResponse,
        2,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "describe client quotas": lambda: Case(
        quotas.DescribeClientQuotasRequest(components=[], strict=False),
        quotas.DescribeClientQuotasResponse,
        1,
        C31,
        ((Operation.DESCRIBE_CONFIGS, *OF_CLUSTER),),
    ),
    "alter client quotas": lambda: Case(
        quotas.AlterClientQuotasRequest(
            entries=[
                quotas.AlterClientQuotasRequestEntry(
                    entity=[
                        quotas.AlterClientQuotasRequestEntity(entity_type="user", entity_name="x")
                    ],
                    ops=[],
                )
            ],
            validate_only=True,
        ),
        quotas.AlterClientQuotasResponse,
        1,
        C31,
        ((Operation.ALTER_CONFIGS, *OF_CLUSTER),),
    ),
    "describe user credentials": lambda: Case(
        security.DescribeUserScramCredentialsRequest(users=None),
        security.DescribeUserScramCredentialsResponse,
        0,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "alter user credentials": lambda: Case(
        security.AlterUserScramCredentialsRequest(
            deletions=[
                security.AlterUserScramCredentialsRequestDeletion(name="nobody", mechanism=1)
            ],
            upsertions=[],
        ),
        security.AlterUserScramCredentialsResponse,
        0,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "describe log dirs": lambda: Case(
        admin.DescribeLogDirsRequest(topics=None),
        admin.DescribeLogDirsResponse,
        4,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "list config resources": lambda: Case(
        admin.ListConfigResourcesRequest(),
        admin.ListConfigResourcesResponse,
        1,
        C31,
        ((Operation.DESCRIBE_CONFIGS, *OF_CLUSTER),),
    ),
    "elect leaders": lambda: Case(
        placement.ElectLeadersRequest(topic_partitions=None),
        placement.ElectLeadersResponse,
        2,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "alter partition reassignments": lambda: Case(
        placement.AlterPartitionReassignmentsRequest(topics=[]),
        placement.AlterPartitionReassignmentsResponse,
        0,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "alter replica log dirs": lambda: Case(
        placement.AlterReplicaLogDirsRequest(
            dirs=[
                placement.AlterReplicaLogDirsRequestDir(
                    path="/",
                    topics=[placement.AlterReplicaLogDirsRequestTopic(name="t", partitions=[0])],
                )
            ]
        ),
        placement.AlterReplicaLogDirsResponse,
        2,
        C31,
        ((ALTER, *OF_CLUSTER),),
    ),
    "describe quorum": lambda: Case(
        placement.DescribeQuorumRequest(topics=[]),
        placement.DescribeQuorumResponse,
        2,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "list partition reassignments": lambda: Case(
        placement.ListPartitionReassignmentsRequest(),
        placement.ListPartitionReassignmentsResponse,
        0,
        C31,
        ((DESCRIBE, *OF_CLUSTER),),
    ),
    "describe producers": lambda: Case(
        transactions.DescribeProducersRequest(
            topics=[transactions.DescribeProducersRequestTopic(name="t", partition_indexes=[0])]
        ),
        transactions.DescribeProducersResponse,
        0,
        T29,
        ((READ, TOPIC, "t"),),
    ),
    "a transactional producer id": lambda: Case(
        transactions.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        transactions.InitProducerIdResponse,
        1,
        X53,
        ((WRITE, TXN, "x"),),
    ),
    "add partitions to a transaction": lambda: Case(
        transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[
                transactions.AddPartitionsToTxnRequestTopic(name="t", partitions=[0])
            ],
        ),
        transactions.AddPartitionsToTxnResponse,
        3,
        T29,
        ((WRITE, TXN, "x"), (WRITE, TOPIC, "t")),
    ),
    "add offsets to a transaction": lambda: Case(
        transactions.AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"
        ),
        transactions.AddOffsetsToTxnResponse,
        3,
        G30,
        ((WRITE, TXN, "x"), (READ, GROUP, "g")),
    ),
    "end a transaction": lambda: Case(
        transactions.EndTxnRequest(
            transactional_id="x", producer_id=1, producer_epoch=0, committed=False
        ),
        transactions.EndTxnResponse,
        3,
        X53,
        ((WRITE, TXN, "x"),),
    ),
    "commit offsets in a transaction": lambda: Case(
        transactions.TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            topics=[
                transactions.TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        transactions.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=0, committed_metadata=None
                        )
                    ],
                )
            ],
        ),
        transactions.TxnOffsetCommitResponse,
        3,
        T29,
        ((WRITE, TXN, "x"), (READ, GROUP, "g"), (READ, TOPIC, "t")),
    ),
    "describe transactions": lambda: Case(
        transactions.DescribeTransactionsRequest(transactional_ids=["x"]),
        transactions.DescribeTransactionsResponse,
        0,
        X53,
        ((DESCRIBE, TXN, "x"),),
    ),
    "consumer group heartbeat": lambda: Case(
        groups.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        groups.ConsumerGroupHeartbeatResponse,
        0,
        T29,
        ((READ, GROUP, "g"), (DESCRIBE, TOPIC, "t")),
    ),
    "describe consumer groups": lambda: Case(
        groups.ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
        groups.ConsumerGroupDescribeResponse,
        0,
        G30,
        ((DESCRIBE, GROUP, "g"),),
    ),
    "describe topic partitions": lambda: Case(
        admin.DescribeTopicPartitionsRequest(
            topics=[admin.DescribeTopicPartitionsRequestTopic(name="t")]
        ),
        admin.DescribeTopicPartitionsResponse,
        0,
        T29,
        ((DESCRIBE, TOPIC, "t"),),
    ),
}
# Answers leave out what may not be known, instead of saying so: tests of their own below.
LISTS: set[type[Message]] = {groups.ListGroupsRequest, transactions.ListTransactionsRequest}
ASKS_ABOUT_ITSELF: set[type[Message]] = {admin.DescribeClusterRequest}

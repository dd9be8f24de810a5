"""Requests about groups and transactions that need a rule."""

from collections.abc import Callable

from segbroker.protocol import messages_consumer_groups as consumer_groups
from segbroker.protocol import messages_groups as groups
from segbroker.protocol import messages_share_groups as shares
from segbroker.protocol import messages_transactions as transactions
from segbroker.protocol.acls import Operation

from .authorization_case import (
    ALTER,
    C31,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    G30,
    GROUP,
    OF_CLUSTER,
    READ,
    T29,
    TOPIC,
    TXN,
    WRITE,
    X53,
    Case,
)

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


def _marker() -> transactions.WriteTxnMarkersRequest:
    topic = transactions.WriteTxnMarkersRequestTopic(name="t", partition_indexes=[0])
    return transactions.WriteTxnMarkersRequest(
        markers=[
            transactions.WriteTxnMarkersRequestMarker(
                producer_id=1,
                producer_epoch=0,
                transaction_result=False,
                topics=[topic],
                coordinator_epoch=0,
            )
        ]
    )


OF_GROUPS: dict[str, Callable[[], Case]] = {
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
    "describe producers": lambda: Case(
        transactions.DescribeProducersRequest(
            topics=[transactions.DescribeProducersRequestTopic(name="t", partition_indexes=[0])]
        ),
        transactions.DescribeProducersResponse,
        0,
        T29,
        ((READ, TOPIC, "t"),),
    ),
    "end a transaction in a partition": lambda: Case(
        _marker(), transactions.WriteTxnMarkersResponse, 1, C31, ((ALTER, *OF_CLUSTER),)
    ),
    "end a transaction in a partition as a broker": lambda: Case(
        _marker(), transactions.WriteTxnMarkersResponse, 1, C31, ((CLUSTER_ACTION, *OF_CLUSTER),)
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
        consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        consumer_groups.ConsumerGroupHeartbeatResponse,
        0,
        T29,
        ((READ, GROUP, "g"), (DESCRIBE, TOPIC, "t")),
    ),
    "share fetch": lambda: Case(
        shares.ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=1,
            max_wait_ms=0,
            min_bytes=1,
            max_records=1,
            batch_size=1,
            topics=[],
            forgotten_topics_data=[],
        ),
        shares.ShareFetchResponse,
        1,
        G30,
        ((READ, GROUP, "g"),),
    ),
    "share acknowledge": lambda: Case(
        shares.ShareAcknowledgeRequest(
            group_id="g", member_id="m", share_session_epoch=1, topics=[]
        ),
        shares.ShareAcknowledgeResponse,
        1,
        G30,
        ((READ, GROUP, "g"),),
    ),
    "describe consumer groups": lambda: Case(
        consumer_groups.ConsumerGroupDescribeRequest(
            group_ids=["g"], include_authorized_operations=False
        ),
        consumer_groups.ConsumerGroupDescribeResponse,
        0,
        G30,
        ((DESCRIBE, GROUP, "g"),),
    ),
}

"""Requests about records and where they are that need a rule."""

from collections.abc import Callable

from segbroker.protocol import messages_core as core
from segbroker.protocol.record_batch import encode_batch

from ..support.wire_client import batch, fetch_request, produce_request
from .authorization_case import (
    CLUSTER_ACTION,
    CREATE,
    DESCRIBE,
    OF_CLUSTER,
    READ,
    T29,
    TOPIC,
    TXN,
    WRITE,
    Case,
)


def followers_fetch(version: int) -> core.FetchRequest:
    """Of replica 5; from version 13 on of a topic whose id nobody has."""
    request = fetch_request("t", 0)
    if version < 15:
        request.replica_id = 5
    else:
        request.replica_state = core.FetchRequestReplicaState(replica_id=5)
    return request


def within_a_transaction() -> core.ProduceRequest:
    """Of a producer that has none open."""
    records = encode_batch(
        [b"one"],
        timestamps_ms=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request("t", records)
    request.transactional_id = "x"
    return request


OF_RECORDS: dict[str, Callable[[], Case]] = {
    "produce": lambda: Case(
        produce_request("t", batch(b"one")), core.ProduceResponse, 9, T29, ((WRITE, TOPIC, "t"),)
    ),
    "produce in a transaction": lambda: Case(
        within_a_transaction(),
        core.ProduceResponse,
        9,
        T29,
        ((WRITE, TXN, "x"), (WRITE, TOPIC, "t")),
    ),
    "fetch": lambda: Case(
        fetch_request("t", 0), core.FetchResponse, 12, T29, ((READ, TOPIC, "t"),)
    ),
    "fetch as a follower": lambda: Case(
        followers_fetch(12), core.FetchResponse, 12, T29, ((CLUSTER_ACTION, *OF_CLUSTER),)
    ),
    "fetch as a follower of today": lambda: Case(
        followers_fetch(17), core.FetchResponse, 17, T29, ((CLUSTER_ACTION, *OF_CLUSTER),)
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
    "offset for leader epoch, by a broker": lambda: Case(
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
        ((CLUSTER_ACTION, *OF_CLUSTER),),
    ),
}

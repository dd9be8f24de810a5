"""Requests about records and where they are that need a rule."""

from collections.abc import Callable

from segbroker.protocol import messages_core as core

from ..support.wire_client import batch, fetch_request, produce_request
from .authorization_case import (
    CREATE,
    DESCRIBE,
    READ,
    T29,
    TOPIC,
    WRITE,
    Case,
)

OF_RECORDS: dict[str, Callable[[], Case]] = {
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
}

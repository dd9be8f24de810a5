"""What a transactional producer asks: the larger requests.

Who asks when stands in transactions.py.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from segbroker.protocol.messages_transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .group_offsets import CommittedOffset, GroupMetadata
from .identity import Identity
from .records import TopicPartition, grouped

# What makes something a part of the transaction.
PARTS: Final = (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest)


def partitions_request(
    transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """These take part (protocol 1)."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequestTopic(name=name, partitions=numbers)
            for name, numbers in grouped(partitions).items()
        ],
    )


def offsets_request(
    transactional_id: str,
    identity: Identity,
    offsets: Mapping[TopicPartition, CommittedOffset],
    group: GroupMetadata,
) -> TxnOffsetCommitRequest:
    """The group stands there once it is committed."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (name, partition), stands in offsets.items():
        topics.setdefault(name, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=stands.offset,
                committed_leader_epoch=stands.leader_epoch,
                committed_metadata=stands.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )

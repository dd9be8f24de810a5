"""Producer ids and transactions.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0, cut to the versions known here; what is served is in api_keys.py.

Invariant: every class here gives the same bytes as kafka-python's codec in every version (tested).
"""

from typing import Annotated

from .fields import Bool, Int8, Int16, Int32, Int64, Str, since
from .schema import Message


class InitProducerIdRequest(Message, key=22, versions=(0, 5), flexible=2):
    """A producer id; with a transactional id also fences and aborts its predecessor."""

    transactional_id: Str | None
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


class InitProducerIdResponse(Message, key=22, versions=(0, 5), flexible=2):
    """The producer id and epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16


class AddPartitionsToTxnRequestTopic(Message):
    name: Str
    partitions: list[Int32]


class AddPartitionsToTxnRequest(Message, key=24, versions=(0, 3), flexible=3):
    """These partitions take part in the transaction."""

    v3_and_below_transactional_id: Str
    v3_and_below_producer_id: Int64
    v3_and_below_producer_epoch: Int16
    v3_and_below_topics: list[AddPartitionsToTxnRequestTopic]


class AddPartitionsToTxnResponsePartition(Message):
    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnResponseTopic(Message):
    name: Str
    results_by_partition: list[AddPartitionsToTxnResponsePartition]


class AddPartitionsToTxnResponse(Message, key=24, versions=(0, 3), flexible=3):
    """One row per partition."""

    throttle_time_ms: Int32 = 0
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseTopic]


class AddOffsetsToTxnRequest(Message, key=25, versions=(0, 4), flexible=3):
    """This group's offsets take part in the transaction."""

    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    group_id: Str


class AddOffsetsToTxnResponse(Message, key=25, versions=(0, 4), flexible=3):
    """Whether they do."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitRequestPartition(Message):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2)] = -1
    committed_metadata: Str | None


class TxnOffsetCommitRequestTopic(Message):
    name: Str
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Message, key=28, versions=(0, 5), flexible=3):
    """Offsets that become visible when the transaction commits."""

    transactional_id: Str
    group_id: Str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[Str, since(3)] = ""
    group_instance_id: Annotated[Str | None, since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Message):
    name: Str
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Message, key=28, versions=(0, 5), flexible=3):
    """One row per partition."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


class EndTxnRequest(Message, key=26, versions=(0, 5), flexible=3):
    """Commit or abort."""

    transactional_id: Str
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Message, key=26, versions=(0, 5), flexible=3):
    """From version 5 on with the producer id and epoch to go on with (KIP-890)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5)] = -1
    producer_epoch: Annotated[Int16, since(5)] = -1


class WriteTxnMarkersRequestTopic(Message):
    name: Str
    partition_indexes: list[Int32]


class WriteTxnMarkersRequestMarker(Message):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WriteTxnMarkersRequestTopic]
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2)] = 0


class WriteTxnMarkersRequest(Message, key=27, versions=(1, 2), flexible=1):
    """How transactions end in these partitions; true: they are committed.

    From transaction version 2 on the epoch of a marker is above that of the transaction.
    """

    markers: list[WriteTxnMarkersRequestMarker]


class WriteTxnMarkersResponsePartition(Message):
    partition_index: Int32
    error_code: Int16


class WriteTxnMarkersResponseTopic(Message):
    name: Str
    partitions: list[WriteTxnMarkersResponsePartition]


class WriteTxnMarkersResponseMarker(Message):
    producer_id: Int64
    topics: list[WriteTxnMarkersResponseTopic]


class WriteTxnMarkersResponse(Message, key=27, versions=(1, 2), flexible=1):
    """One row per producer and partition."""

    markers: list[WriteTxnMarkersResponseMarker]


class DescribeProducersRequestTopic(Message):
    name: Str
    partition_indexes: list[Int32]


class DescribeProducersRequest(Message, key=61, versions=(0, 0), flexible=0):
    """The producers active on partitions."""

    topics: list[DescribeProducersRequestTopic]


class DescribeProducersResponseProducer(Message):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


class DescribeProducersResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Str | None = None
    active_producers: list[DescribeProducersResponseProducer]


class DescribeProducersResponseTopic(Message):
    name: Str
    partitions: list[DescribeProducersResponsePartition]


class DescribeProducersResponse(Message, key=61, versions=(0, 0), flexible=0):
    """Their epochs, sequences and open transactions."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersResponseTopic]


class DescribeTransactionsRequest(Message, key=65, versions=(0, 0), flexible=0):
    """The state of transactional ids."""

    transactional_ids: list[Str]


class DescribeTransactionsResponseTopic(Message):
    topic: Str
    partitions: list[Int32]


class DescribeTransactionsResponseTransaction(Message):
    error_code: Int16 = 0
    transactional_id: Str
    transaction_state: Str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[DescribeTransactionsResponseTopic]


class DescribeTransactionsResponse(Message, key=65, versions=(0, 0), flexible=0):
    """Their states."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribeTransactionsResponseTransaction]


class ListTransactionsRequest(Message, key=66, versions=(0, 2), flexible=0):
    """All transactions, by state and producer."""

    state_filters: list[Str]
    producer_id_filters: list[Int64]
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[Str | None, since(2)] = None


class ListTransactionsResponseTransaction(Message):
    transactional_id: Str
    producer_id: Int64
    transaction_state: Str


class ListTransactionsResponse(Message, key=66, versions=(0, 2), flexible=0):
    """All transactions that match."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[Str]
    transaction_states: list[ListTransactionsResponseTransaction]

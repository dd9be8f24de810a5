"""What a client that reads and writes needs: versions, metadata, produce, fetch, offsets.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0, cut to the versions known here; `versions` is the range that can be decoded,
what is served is in api_keys.py.

Invariant: every class here gives the same bytes as kafka-python's codec in every version (tested).

`records` is never copied: a view into the frame when decoded, buffers to be sent when encoded.
Produce requests and fetch responses with one partition take hand-made paths (hot.py).
"""

from typing import Annotated

from .fields import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Str,
    Uuid,
    between,
    nullable_since,
    since,
    tag,
    until,
)
from .schema import Message


class ApiVersionsRequest(Message, key=18, versions=(0, 4), flexible=3):
    """Which apis and versions are served?  From version 3 on the client names its software."""

    client_software_name: Annotated[Str, since(3)] = ""
    client_software_version: Annotated[Str, since(3)] = ""


class ApiVersionsResponseKey(Message):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class ApiVersionsResponseSupportedFeature(Message):
    name: Str
    min_version: Int16
    max_version: Int16


class ApiVersionsResponseFinalizedFeature(Message):
    name: Str
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Message, key=18, versions=(0, 4), flexible=3):
    """The ranges of versions that are served; its header has no tag section in any version."""

    error_code: Int16 = 0
    api_keys: list[ApiVersionsResponseKey]
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[list[ApiVersionsResponseSupportedFeature], tag(0, since=3)] = []
    finalized_features_epoch: Annotated[Int64, tag(1, since=3)] = -1
    finalized_features: Annotated[list[ApiVersionsResponseFinalizedFeature], tag(2, since=3)] = []
    zk_migration_ready: Annotated[Bool, tag(3, since=3)] = False


class MetadataRequestTopic(Message):
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    name: Annotated[Str | None, nullable_since(10)]


class MetadataRequest(Message, key=3, versions=(0, 13), flexible=9):
    """Brokers and topics; `topics` null: all (version 0: empty means all)."""

    topics: Annotated[list[MetadataRequestTopic] | None, nullable_since(1)]
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, between(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataResponseBroker(Message):
    node_id: Int32
    host: Str
    port: Int32
    rack: Annotated[Str | None, since(1)] = None


class MetadataResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: Annotated[list[Int32], since(5)] = []


class MetadataResponseTopic(Message):
    error_code: Int16 = 0
    name: Annotated[Str | None, nullable_since(12)]
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


class MetadataResponse(Message, key=3, versions=(0, 13), flexible=9):
    """The brokers, and of each topic its partitions and their leaders."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: list[MetadataResponseBroker]
    cluster_id: Annotated[Str | None, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Annotated[Int32, between(8, 10)] = -2147483648
    error_code: Annotated[Int16, since(13)] = 0


class ProduceRequestPartition(Message):
    index: Int32
    records: Records | None


class ProduceRequestTopic(Message):
    name: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partition_data: list[ProduceRequestPartition]


class ProduceRequest(Message, key=0, versions=(0, 13), flexible=9):
    """Append one batch to each of some partitions."""

    transactional_id: Annotated[Str | None, since(3)] = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[ProduceRequestTopic]


class ProduceResponseRecordError(Message):
    batch_index: Int32
    batch_index_error_message: Str | None = None


class LeaderIdAndEpoch(Message):
    """Who leads now; -1: nobody says.  Beside an error some clients go to any other, were it to a
    broker that there is not."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class ProduceResponsePartition(Message):
    index: Int32
    error_code: Int16 = 0
    base_offset: Int64
    log_append_time_ms: Annotated[Int64, since(2)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    record_errors: Annotated[list[ProduceResponseRecordError], since(8)] = []
    error_message: Annotated[Str | None, since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, tag(0, since=10)] = None


class ProduceResponseTopic(Message):
    name: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partition_responses: list[ProduceResponsePartition]


class NodeEndpoint(Message):
    node_id: Int32
    host: Str
    port: Int32
    rack: Str | None = None


class ProduceResponse(Message, key=0, versions=(0, 13), flexible=9):
    """Where each batch went; not sent for acks 0."""

    responses: list[ProduceResponseTopic]
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=10)] = []


class FetchRequestReplicaState(Message):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchRequestPartition(Message):
    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, tag(0, since=17)] = ZERO_UUID
    high_watermark: Annotated[Int64, tag(1, since=18)] = 0x7FFFFFFFFFFFFFFF


class FetchRequestTopic(Message):
    topic: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[FetchRequestPartition]


class FetchRequestForgottenTopic(Message):
    topic: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[Int32]


class FetchRequest(Message, key=1, versions=(4, 18), flexible=12):
    """Whole batches from an offset on; waits up to `max_wait_ms` for `min_bytes`."""

    cluster_id: Annotated[Str | None, tag(0, since=12)] = None
    replica_id: Annotated[Int32, until(14)] = -1
    replica_state: Annotated[FetchRequestReplicaState | None, tag(1, since=15)] = None
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: list[FetchRequestTopic]
    forgotten_topics_data: Annotated[list[FetchRequestForgottenTopic], since(7)] = []
    rack_id: Annotated[Str, since(11)] = ""


class FetchResponseDivergingEpoch(Message):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class FetchResponseSnapshotId(Message):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class FetchResponseAbortedTransaction(Message):
    producer_id: Int64
    first_offset: Int64


class FetchResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    diverging_epoch: Annotated[FetchResponseDivergingEpoch | None, tag(0, since=12)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, tag(1, since=12)] = None
    snapshot_id: Annotated[FetchResponseSnapshotId | None, tag(2, since=12)] = None
    aborted_transactions: list[FetchResponseAbortedTransaction] | None
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Records | None


class FetchResponseTopic(Message):
    topic: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[FetchResponsePartition]


class FetchResponse(Message, key=1, versions=(4, 18), flexible=12):
    """Batches, and the bounds of each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchResponseTopic]
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=16)] = []


class ListOffsetsRequestPartition(Message):
    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    timestamp: Int64


class ListOffsetsRequestTopic(Message):
    name: Str
    partitions: list[ListOffsetsRequestPartition]


class ListOffsetsRequest(Message, key=2, versions=(1, 11), flexible=6):
    """Offsets by timestamp; see broker/fetching/offsets.py for the negative ones."""

    replica_id: Int32
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsRequestTopic]
    timeout_ms: Annotated[Int32, since(10)] = 0


class ListOffsetsResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListOffsetsResponseTopic(Message):
    name: Str
    partitions: list[ListOffsetsResponsePartition]


class ListOffsetsResponse(Message, key=2, versions=(1, 11), flexible=6):
    """The first offset at or after the timestamp asked; -1 for none."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[ListOffsetsResponseTopic]


class OffsetForLeaderEpochRequestPartition(Message):
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderEpochRequestTopic(Message):
    topic: Str
    partitions: list[OffsetForLeaderEpochRequestPartition]


class OffsetForLeaderEpochRequest(Message, key=23, versions=(2, 4), flexible=4):
    """Where did a leader epoch end?"""

    replica_id: Annotated[Int32, since(3)] = -2
    topics: list[OffsetForLeaderEpochRequestTopic]


class OffsetForLeaderEpochResponsePartition(Message):
    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderEpochResponseTopic(Message):
    topic: Str
    partitions: list[OffsetForLeaderEpochResponsePartition]


class OffsetForLeaderEpochResponse(Message, key=23, versions=(2, 4), flexible=4):
    """The end offset of the epoch asked, or of the greatest before it."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderEpochResponseTopic]

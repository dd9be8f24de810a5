"""Where partitions and metadata lie: elections, moves, the quorum, the levels of features.

A cluster of one says little.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0; what is served is in api_keys.py.

Invariant: every class here gives the same bytes as kafka-python's codec in every version (tested).
"""

from typing import Annotated

from .fields import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, Str, UInt16, Uuid, since, until
from .schema import Message


class ElectLeadersRequestTopic(Message):
    topic: Str
    partitions: list[Int32]


class ElectLeadersRequest(Message, key=43, versions=(0, 2), flexible=2):
    """Let the preferred replica (0) or any live one (1) lead; null: every partition."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: list[ElectLeadersRequestTopic] | None
    timeout_ms: Int32 = 60000


class ElectLeadersResponsePartition(Message):
    partition_id: Int32
    error_code: Int16 = 0
    error_message: Str | None = None


class ElectLeadersResponseTopic(Message):
    topic: Str
    partition_result: list[ElectLeadersResponsePartition]


class ElectLeadersResponse(Message, key=43, versions=(0, 2), flexible=2):
    """One row per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ElectLeadersResponseTopic]


class AlterPartitionReassignmentsRequestPartition(Message):
    partition_index: Int32
    replicas: list[Int32] | None = None


class AlterPartitionReassignmentsRequestTopic(Message):
    name: Str
    partitions: list[AlterPartitionReassignmentsRequestPartition]


class AlterPartitionReassignmentsRequest(Message, key=45, versions=(0, 1), flexible=0):
    """Move partitions to these brokers; null: give a move up."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    topics: list[AlterPartitionReassignmentsRequestTopic]


class AlterPartitionReassignmentsResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Str | None = None


class AlterPartitionReassignmentsResponseTopic(Message):
    name: Str
    partitions: list[AlterPartitionReassignmentsResponsePartition]


class AlterPartitionReassignmentsResponse(Message, key=45, versions=(0, 1), flexible=0):
    """One row per partition."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    error_code: Int16 = 0
    error_message: Str | None = None
    responses: list[AlterPartitionReassignmentsResponseTopic]


class ListPartitionReassignmentsRequestTopic(Message):
    name: Str
    partition_indexes: list[Int32]


class ListPartitionReassignmentsRequest(Message, key=46, versions=(0, 0), flexible=0):
    """The moves under way; null: of every partition."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsRequestTopic] | None = None


class ListPartitionReassignmentsResponsePartition(Message):
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


class ListPartitionReassignmentsResponseTopic(Message):
    name: Str
    partitions: list[ListPartitionReassignmentsResponsePartition]


class ListPartitionReassignmentsResponse(Message, key=46, versions=(0, 0), flexible=0):
    """One row per partition that moves."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    topics: list[ListPartitionReassignmentsResponseTopic]


class AlterReplicaLogDirsRequestTopic(Message):
    name: Str
    partitions: list[Int32]


class AlterReplicaLogDirsRequestDir(Message):
    path: Str
    topics: list[AlterReplicaLogDirsRequestTopic]


class AlterReplicaLogDirsRequest(Message, key=34, versions=(1, 2), flexible=2):
    """Move replicas of this broker to other directories."""

    dirs: list[AlterReplicaLogDirsRequestDir]


class AlterReplicaLogDirsResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0


class AlterReplicaLogDirsResponseTopic(Message):
    topic_name: Str
    partitions: list[AlterReplicaLogDirsResponsePartition]


class AlterReplicaLogDirsResponse(Message, key=34, versions=(1, 2), flexible=2):
    """One row per partition."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirsResponseTopic]


class DescribeQuorumRequestPartition(Message):
    partition_index: Int32


class DescribeQuorumRequestTopic(Message):
    topic_name: Str
    partitions: list[DescribeQuorumRequestPartition]


class DescribeQuorumRequest(Message, key=55, versions=(0, 2), flexible=0):
    """Who keeps the metadata: of __cluster_metadata, partition 0, and of nothing else."""

    topics: list[DescribeQuorumRequestTopic]


class DescribeQuorumResponseReplica(Message):
    replica_id: Int32
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO_UUID
    log_end_offset: Int64
    last_fetch_timestamp: Annotated[Int64, since(1)] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1)] = -1


class DescribeQuorumResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Annotated[Str | None, since(2)] = None
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[DescribeQuorumResponseReplica]
    observers: list[DescribeQuorumResponseReplica]


class DescribeQuorumResponseTopic(Message):
    topic_name: Str
    partitions: list[DescribeQuorumResponsePartition]


class DescribeQuorumResponseListener(Message):
    name: Str
    host: Str
    port: UInt16


class DescribeQuorumResponseNode(Message):
    node_id: Int32
    listeners: list[DescribeQuorumResponseListener]


class DescribeQuorumResponse(Message, key=55, versions=(0, 2), flexible=0):
    """The voters, and where they are reached."""

    error_code: Int16 = 0
    error_message: Annotated[Str | None, since(2)] = None
    topics: list[DescribeQuorumResponseTopic]
    nodes: Annotated[list[DescribeQuorumResponseNode], since(2)] = []


class UpdateFeaturesRequestFeature(Message):
    feature: Str
    max_version_level: Int16
    allow_downgrade: Annotated[Bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


class UpdateFeaturesRequest(Message, key=57, versions=(0, 2), flexible=0):
    """Levels to be had by all: up (type 1), down without loss (2), down at any cost (3)."""

    timeout_ms: Int32 = 60000
    feature_updates: list[UpdateFeaturesRequestFeature]
    validate_only: Annotated[Bool, since(1)] = False


class UpdateFeaturesResponseFeature(Message):
    feature: Str
    error_code: Int16 = 0
    error_message: Str | None = None


class UpdateFeaturesResponse(Message, key=57, versions=(0, 2), flexible=0):
    """One error for all; from version 2 on no rows."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    results: Annotated[list[UpdateFeaturesResponseFeature], until(1)] = []

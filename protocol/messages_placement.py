"""Where partitions lie: elections and reassignments, which a cluster of one has little to say to.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0; what is served is in api_keys.py.

Invariant: every class here gives the same bytes as kafka-python's codec in every version (tested).
"""

from typing import Annotated

from .schema import Bool, Int8, Int16, Int32, Message, Str, since


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

"""Consumer groups: the classic protocol, and what both protocols share: offsets, lists.

KIP-848 is in messages_consumer_groups.py.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0, cut to the versions known here; what is served is in api_keys.py.

Invariant: every class here gives the same bytes as kafka-python's codec in every version (tested).

ConsumerProtocolSubscription and -Assignment are the bytes that members exchange through JoinGroup
and SyncGroup: `version i16`, then the body in that version, always classic.  A broker need not read
them.
"""

from typing import Annotated

from .fields import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Str,
    Uuid,
    between,
    nullable_since,
    since,
    until,
)
from .schema import Message


class FindCoordinatorRequest(Message, key=10, versions=(0, 6), flexible=3):
    """Which broker coordinates a group (type 0) or transactional id (type 1)?"""

    key: Annotated[Str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[Str], since(4)] = []


class FindCoordinatorResponseCoordinator(Message):
    key: Str
    node_id: Int32
    host: Str
    port: Int32
    error_code: Int16 = 0
    error_message: Str | None


class FindCoordinatorResponse(Message, key=10, versions=(0, 6), flexible=3):
    """The coordinator; from version 4 on one row per key."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[Str | None, between(1, 3)] = None
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[Str, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[list[FindCoordinatorResponseCoordinator], since(4)] = []


class JoinGroupRequestProtocol(Message):
    name: Str
    metadata: Bytes


class JoinGroupRequest(Message, key=11, versions=(0, 9), flexible=6):
    """Become or stay a member."""

    group_id: Str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: Str
    group_instance_id: Annotated[Str | None, since(5)] = None
    protocol_type: Str
    protocols: list[JoinGroupRequestProtocol]
    reason: Annotated[Str | None, since(8)] = None


class JoinGroupResponseMember(Message):
    member_id: Str
    group_instance_id: Annotated[Str | None, since(5)] = None
    metadata: Bytes


class JoinGroupResponse(Message, key=11, versions=(0, 9), flexible=6):
    """The generation; the leader alone gets the members."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[Str | None, since(7)] = None
    protocol_name: Annotated[Str | None, nullable_since(7)]
    leader: Str
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: Str
    members: list[JoinGroupResponseMember]


class SyncGroupRequestAssignment(Message):
    member_id: Str
    assignment: Bytes


class SyncGroupRequest(Message, key=14, versions=(0, 5), flexible=4):
    """The leader brings the assignments, the others ask for theirs."""

    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[Str | None, since(3)] = None
    protocol_type: Annotated[Str | None, since(5)] = None
    protocol_name: Annotated[Str | None, since(5)] = None
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Message, key=14, versions=(0, 5), flexible=4):
    """The assignment of the member that asked."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[Str | None, since(5)] = None
    protocol_name: Annotated[Str | None, since(5)] = None
    assignment: Bytes


class HeartbeatRequest(Message, key=12, versions=(0, 4), flexible=4):
    """I am alive."""

    group_id: Str
    generation_id: Int32
    member_id: Str
    group_instance_id: Annotated[Str | None, since(3)] = None


class HeartbeatResponse(Message, key=12, versions=(0, 4), flexible=4):
    """Whether a rebalance is under way."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0


class LeaveGroupRequestMember(Message):
    member_id: Str
    group_instance_id: Str | None = None
    reason: Annotated[Str | None, since(5)] = None


class LeaveGroupRequest(Message, key=13, versions=(0, 5), flexible=4):
    """Members leave."""

    group_id: Str
    member_id: Annotated[Str, until(2)] = ""
    members: Annotated[list[LeaveGroupRequestMember], since(3)] = []


class LeaveGroupResponseMember(Message):
    member_id: Str
    group_instance_id: Str | None
    error_code: Int16 = 0


class LeaveGroupResponse(Message, key=13, versions=(0, 5), flexible=4):
    """One row per member from version 3 on."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[LeaveGroupResponseMember], since(3)] = []


class OffsetCommitRequestPartition(Message):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    committed_metadata: Str | None


class OffsetCommitRequestTopic(Message):
    name: Annotated[Str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message, key=8, versions=(2, 10), flexible=8):
    """Store a group's positions."""

    group_id: Str
    generation_id_or_member_epoch: Int32 = -1
    member_id: Str
    group_instance_id: Annotated[Str | None, since(7)] = None
    retention_time_ms: Annotated[Int64, until(4)] = -1
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message):
    name: Annotated[Str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message, key=8, versions=(2, 10), flexible=8):
    """One row per partition."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitResponseTopic]


class OffsetFetchRequestTopic(Message):
    name: Str
    partition_indexes: list[Int32]


class OffsetFetchRequestGroupTopic(Message):
    name: Annotated[Str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Message):
    group_id: Str
    member_id: Annotated[Str | None, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: list[OffsetFetchRequestGroupTopic] | None


class OffsetFetchRequest(Message, key=9, versions=(1, 10), flexible=6):
    """A group's stored positions; `topics` null: all."""

    group_id: Annotated[Str, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, nullable_since(2), until(7)] = []
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = []
    require_stable: Annotated[Bool, since(7)] = False


class OffsetFetchResponsePartition(Message):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: Str | None
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message):
    name: Str
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponseGroupTopicPartition(Message):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: Str | None
    error_code: Int16 = 0


class OffsetFetchResponseGroupTopic(Message):
    name: Annotated[Str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetFetchResponseGroupTopicPartition]


class OffsetFetchResponseGroup(Message):
    group_id: Str
    topics: list[OffsetFetchResponseGroupTopic]
    error_code: Int16 = 0


class OffsetFetchResponse(Message, key=9, versions=(1, 10), flexible=6):
    """The stored positions; offset -1 where there is none."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = []
    error_code: Annotated[Int16, between(2, 7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = []


class OffsetDeleteRequestPartition(Message):
    partition_index: Int32


class OffsetDeleteRequestTopic(Message):
    name: Str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Message, key=47, versions=(0, 0)):
    """Forget positions of a group."""

    group_id: Str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message):
    name: Str
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Message, key=47, versions=(0, 0)):
    """One row per partition."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic]


class ListGroupsRequest(Message, key=16, versions=(0, 5), flexible=3):
    """All groups, by state and type."""

    states_filter: Annotated[list[Str], since(4)] = []
    types_filter: Annotated[list[Str], since(5)] = []


class ListGroupsResponseGroup(Message):
    group_id: Str
    protocol_type: Str
    group_state: Annotated[Str, since(4)] = ""
    group_type: Annotated[Str, since(5)] = ""


class ListGroupsResponse(Message, key=16, versions=(0, 5), flexible=3):
    """All groups that match."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListGroupsResponseGroup]


class DescribeGroupsRequest(Message, key=15, versions=(0, 6), flexible=5):
    """State and members of groups."""

    groups: list[Str]
    include_authorized_operations: Annotated[Bool, since(3)] = False


class DescribeGroupsResponseMember(Message):
    member_id: Str
    group_instance_id: Annotated[Str | None, since(4)] = None
    client_id: Str
    client_host: Str
    member_metadata: Bytes
    member_assignment: Bytes


class DescribeGroupsResponseGroup(Message):
    error_code: Int16 = 0
    error_message: Annotated[Str | None, since(6)] = None
    group_id: Str
    group_state: Str
    protocol_type: Str
    protocol_data: Str
    members: list[DescribeGroupsResponseMember]
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


class DescribeGroupsResponse(Message, key=15, versions=(0, 6), flexible=5):
    """State and members; state "Dead" for an unknown group."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: list[DescribeGroupsResponseGroup]


class DeleteGroupsRequest(Message, key=42, versions=(0, 2), flexible=2):
    """Delete empty groups."""

    groups_names: list[Str]


class DeleteGroupsResponseGroup(Message):
    group_id: Str
    error_code: Int16 = 0


class DeleteGroupsResponse(Message, key=42, versions=(0, 2), flexible=2):
    """One row per group."""

    throttle_time_ms: Int32 = 0
    results: list[DeleteGroupsResponseGroup]

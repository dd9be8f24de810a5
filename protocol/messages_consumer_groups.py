"""Consumer groups of KIP-848: one heartbeat for membership, subscription and assignment.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0, cut to the versions known here; what is served is in api_keys.py.

kafka-python's codec does not have them: test_messages.py has bytes written out.
"""

from typing import Annotated

from .fields import Bool, Int8, Int16, Int32, Str, Uuid, since
from .schema import Message


class GroupTopicPartitions(Message):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatRequest(Message, key=68, versions=(0, 1), flexible=0):
    """KIP-848: membership, subscription and owned partitions in one."""

    group_id: Str
    member_id: Str
    member_epoch: Int32
    instance_id: Str | None = None
    rack_id: Str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[Str] | None = None
    subscribed_topic_regex: Annotated[Str | None, since(1)] = None
    server_assignor: Str | None = None
    topic_partitions: list[GroupTopicPartitions] | None = None


class GroupAssignment(Message):
    topic_partitions: list[GroupTopicPartitions]


class ConsumerGroupHeartbeatResponse(Message, key=68, versions=(0, 1), flexible=0):
    """KIP-848: the member epoch and, when it changed, the assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    member_id: Str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: GroupAssignment | None = None


class ConsumerGroupDescribeRequest(Message, key=69, versions=(0, 1), flexible=0):
    """KIP-848: state and members of groups."""

    group_ids: list[Str]
    include_authorized_operations: Bool


class DescribedTopicPartitions(Message):
    topic_id: Uuid
    topic_name: Str
    partitions: list[Int32]


class DescribedAssignment(Message):
    topic_partitions: list[DescribedTopicPartitions]


class ConsumerGroupDescribeResponseMember(Message):
    member_id: Str
    instance_id: Str | None = None
    rack_id: Str | None = None
    member_epoch: Int32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]
    subscribed_topic_regex: Str | None = None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Annotated[Int8, since(1)] = -1


class ConsumerGroupDescribeResponseGroup(Message):
    error_code: Int16 = 0
    error_message: Str | None = None
    group_id: Str
    group_state: Str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: Str = ""
    members: list[ConsumerGroupDescribeResponseMember] = []
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Message, key=69, versions=(0, 1), flexible=0):
    """KIP-848: state, members, present and target assignments."""

    throttle_time_ms: Int32 = 0
    groups: list[ConsumerGroupDescribeResponseGroup]

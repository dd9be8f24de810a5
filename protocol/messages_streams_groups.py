"""Streams groups (KIP-1071): applications of Kafka Streams whose tasks the broker assigns.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.1, cut to the versions known here; what is served is in api_keys.py.

A task is a subtopology and a number of partitions: it reads the partition of that number of each
source topic of its subtopology.
"""

from .fields import Bool, Int8, Int16, Int32, Int64, Str, UInt16
from .schema import Message


class StreamsGroupKeyValue(Message):
    key: Str
    value: Str


class StreamsGroupTopicInfo(Message):
    """An internal topic.  partitions 0: none are asked for.  replication_factor 0: the default."""

    name: Str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[StreamsGroupKeyValue]


class StreamsGroupEndpoint(Message):
    """Where an instance answers interactive queries."""

    host: Str
    port: UInt16


class StreamsGroupTaskOffset(Message):
    subtopology_id: Str
    partition: Int32
    offset: Int64


class StreamsGroupTaskIds(Message):
    subtopology_id: Str
    partitions: list[Int32]


class StreamsGroupHeartbeatRequestCopartitionGroup(Message):
    """Indexes into the lists of the subtopology."""

    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


class StreamsGroupHeartbeatRequestSubtopology(Message):
    subtopology_id: Str
    source_topics: list[Str]
    source_topic_regex: list[Str]
    state_changelog_topics: list[StreamsGroupTopicInfo]
    repartition_sink_topics: list[Str]
    repartition_source_topics: list[StreamsGroupTopicInfo]
    copartition_groups: list[StreamsGroupHeartbeatRequestCopartitionGroup]


class StreamsGroupHeartbeatRequestTopology(Message):
    epoch: Int32
    subtopologies: list[StreamsGroupHeartbeatRequestSubtopology]


class StreamsGroupHeartbeatRequest(Message, key=88, versions=(0, 0), flexible=0):
    """Membership, topology and tasks in one; null where nothing changed since the last one."""

    group_id: Str
    member_id: Str
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: Str | None = None
    rack_id: Str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: StreamsGroupHeartbeatRequestTopology | None = None
    active_tasks: list[StreamsGroupTaskIds] | None = None
    standby_tasks: list[StreamsGroupTaskIds] | None = None
    warmup_tasks: list[StreamsGroupTaskIds] | None = None
    process_id: Str | None = None
    user_endpoint: StreamsGroupEndpoint | None = None
    client_tags: list[StreamsGroupKeyValue] | None = None
    task_offsets: list[StreamsGroupTaskOffset] | None = None
    task_end_offsets: list[StreamsGroupTaskOffset] | None = None
    shutdown_application: Bool = False


class StreamsGroupHeartbeatResponseStatus(Message):
    status_code: Int8
    status_detail: Str


class StreamsGroupHeartbeatResponseTopicPartition(Message):
    topic: Str
    partitions: list[Int32]


class StreamsGroupHeartbeatResponseEndpointToPartitions(Message):
    user_endpoint: StreamsGroupEndpoint
    active_partitions: list[StreamsGroupHeartbeatResponseTopicPartition]
    standby_partitions: list[StreamsGroupHeartbeatResponseTopicPartition]


class StreamsGroupHeartbeatResponse(Message, key=88, versions=(0, 0), flexible=0):
    """The member epoch, what is the matter with the group, and, when they changed, the tasks."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    member_id: Str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: list[StreamsGroupHeartbeatResponseStatus] | None = []
    active_tasks: list[StreamsGroupTaskIds] | None = None
    standby_tasks: list[StreamsGroupTaskIds] | None = None
    warmup_tasks: list[StreamsGroupTaskIds] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[StreamsGroupHeartbeatResponseEndpointToPartitions] | None = (
        None
    )


class StreamsGroupDescribeRequest(Message, key=89, versions=(0, 0), flexible=0):
    """State, topology and members of streams groups."""

    group_ids: list[Str]
    include_authorized_operations: Bool


class StreamsGroupDescribeResponseSubtopology(Message):
    subtopology_id: Str
    source_topics: list[Str]
    repartition_sink_topics: list[Str]
    state_changelog_topics: list[StreamsGroupTopicInfo]
    repartition_source_topics: list[StreamsGroupTopicInfo]


class StreamsGroupDescribeResponseTopology(Message):
    epoch: Int32
    subtopologies: list[StreamsGroupDescribeResponseSubtopology] | None = None


class StreamsGroupDescribeResponseAssignment(Message):
    active_tasks: list[StreamsGroupTaskIds]
    standby_tasks: list[StreamsGroupTaskIds]
    warmup_tasks: list[StreamsGroupTaskIds]


class StreamsGroupDescribeResponseMember(Message):
    member_id: Str
    member_epoch: Int32
    instance_id: Str | None = None
    rack_id: Str | None = None
    client_id: Str
    client_host: Str
    topology_epoch: Int32
    process_id: Str
    user_endpoint: StreamsGroupEndpoint | None = None
    client_tags: list[StreamsGroupKeyValue]
    task_offsets: list[StreamsGroupTaskOffset]
    task_end_offsets: list[StreamsGroupTaskOffset]
    assignment: StreamsGroupDescribeResponseAssignment
    target_assignment: StreamsGroupDescribeResponseAssignment
    is_classic: Bool


class StreamsGroupDescribeResponseGroup(Message):
    error_code: Int16 = 0
    error_message: Str | None = None
    group_id: Str
    group_state: Str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: StreamsGroupDescribeResponseTopology | None = None
    members: list[StreamsGroupDescribeResponseMember] = []
    authorized_operations: Int32 = -2147483648


class StreamsGroupDescribeResponse(Message, key=89, versions=(0, 0), flexible=0):
    """State, topology, members with what they have and are to have."""

    throttle_time_ms: Int32 = 0
    groups: list[StreamsGroupDescribeResponseGroup]

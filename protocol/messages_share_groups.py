"""Share groups (KIP-932): consumers that share partitions, and acknowledge record by record.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.1, cut to the versions known here; what is served is in api_keys.py.
"""

from typing import Annotated

from .fields import Bool, Int8, Int16, Int32, Int64, Records, Str, Uuid, since
from .messages_consumer_groups import DescribedAssignment, GroupAssignment
from .messages_core import LeaderIdAndEpoch, NodeEndpoint
from .schema import Message


class ShareGroupHeartbeatRequest(Message, key=76, versions=(1, 1), flexible=0):
    """Membership and subscription."""

    group_id: Str
    member_id: Str
    member_epoch: Int32
    rack_id: Str | None = None
    subscribed_topic_names: list[Str] | None = None


class ShareGroupHeartbeatResponse(Message, key=76, versions=(1, 1), flexible=0):
    """The member epoch and, when it changed, what to fetch from."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    member_id: Str | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: GroupAssignment | None = None


class ShareGroupDescribeRequest(Message, key=77, versions=(1, 1), flexible=0):
    """State and members of share groups."""

    group_ids: list[Str]
    include_authorized_operations: Bool


class ShareGroupDescribeResponseMember(Message):
    member_id: Str
    rack_id: Str | None = None
    member_epoch: Int32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]
    assignment: DescribedAssignment


class ShareGroupDescribeResponseGroup(Message):
    error_code: Int16 = 0
    error_message: Str | None = None
    group_id: Str
    group_state: Str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: Str = ""
    members: list[ShareGroupDescribeResponseMember] = []
    authorized_operations: Int32 = -2147483648


class ShareGroupDescribeResponse(Message, key=77, versions=(1, 1), flexible=0):
    """State, members, and what they fetch from."""

    throttle_time_ms: Int32 = 0
    groups: list[ShareGroupDescribeResponseGroup]


class AcknowledgementBatch(Message):
    """0 gap, 1 accept, 2 release, 3 reject, 4 renew: one for all, or one for each offset."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


class ShareRequestPartition(Message):
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


class ShareRequestTopic(Message):
    topic_id: Uuid
    partitions: list[ShareRequestPartition]


class ShareFetchRequestForgottenTopic(Message):
    topic_id: Uuid
    partitions: list[Int32]


class ShareFetchRequest(Message, key=78, versions=(1, 2), flexible=0):
    """Records to work on, and what became of those of before."""

    group_id: Str | None = None
    member_id: Str | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Annotated[Int8, since(2)] = 0
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: list[ShareRequestTopic]
    forgotten_topics_data: list[ShareFetchRequestForgottenTopic]


class ShareFetchResponseAcquiredRecords(Message):
    """Offsets that are the member's now, both ends included."""

    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


class ShareFetchResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Str | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: Str | None = None
    current_leader: LeaderIdAndEpoch
    records: Records | None
    acquired_records: list[ShareFetchResponseAcquiredRecords]


class ShareFetchResponseTopic(Message):
    topic_id: Uuid
    partitions: list[ShareFetchResponsePartition]


class ShareFetchResponse(Message, key=78, versions=(1, 2), flexible=0):
    """Whole batches, and which of their records are the member's."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchResponseTopic]
    node_endpoints: list[NodeEndpoint]


class ShareAcknowledgeRequest(Message, key=79, versions=(1, 2), flexible=0):
    """What became of records, without asking for more."""

    group_id: Str | None = None
    member_id: Str | None
    share_session_epoch: Int32
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: list[ShareRequestTopic]


class ShareAcknowledgeResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Str | None = None
    current_leader: LeaderIdAndEpoch


class ShareAcknowledgeResponseTopic(Message):
    topic_id: Uuid
    partitions: list[ShareAcknowledgeResponsePartition]


class ShareAcknowledgeResponse(Message, key=79, versions=(1, 2), flexible=0):
    """Which acknowledgements hold."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2)] = 0
    responses: list[ShareAcknowledgeResponseTopic]
    node_endpoints: list[NodeEndpoint]


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: Str
    partitions: list[Int32]


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: Str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


class DescribeShareGroupOffsetsRequest(Message, key=90, versions=(0, 1), flexible=0):
    """Where share groups stand; topics None: everywhere."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Annotated[Int64, since(1)] = -1
    error_code: Int16 = 0
    error_message: Str | None = None


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: Str
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: Str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16 = 0
    error_message: Str | None = None


class DescribeShareGroupOffsetsResponse(Message, key=90, versions=(0, 1), flexible=0):
    """The first offset that is not done with, of each partition."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup]


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: Int32
    start_offset: Int64


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: Str
    partitions: list[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequest(Message, key=91, versions=(0, 0), flexible=0):
    """Have a share group without members go on from other offsets."""

    group_id: Str
    topics: list[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: Str | None = None


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: Str
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponse(Message, key=91, versions=(0, 0), flexible=0):
    """What came of it, by partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic]


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: Str


class DeleteShareGroupOffsetsRequest(Message, key=92, versions=(0, 0), flexible=0):
    """Have a share group without members forget where it stands in topics."""

    group_id: Str
    topics: list[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: Str
    topic_id: Uuid
    error_code: Int16 = 0
    error_message: Str | None = None


class DeleteShareGroupOffsetsResponse(Message, key=92, versions=(0, 0), flexible=0):
    """What came of it, by topic."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]

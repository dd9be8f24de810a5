"""Administration: topics, partitions, records, configurations, the cluster.

The tables are the layouts; schema.py says how to read them.  Sources: the message definitions of
kafka-clients 4.3.0, cut to the versions known here; what is served is in api_keys.py.

Invariant: every class here gives the same bytes as kafka-python's codec in every version (tested).

Lists that some version may carry as null should be sent empty: the Java client streams them
without looking (CreateTopics `configs`, DescribeTopicPartitions `eligible_leader_replicas`).
"""

from typing import Annotated

from .fields import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Str,
    Uuid,
    nullable_since,
    since,
    tag,
    until,
)
from .schema import Message


class CreateTopicsRequestAssignment(Message):
    partition_index: Int32
    broker_ids: list[Int32]


class CreateTopicsRequestConfig(Message):
    name: Str
    value: Str | None


class CreateTopicsRequestTopic(Message):
    name: Str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreateTopicsRequestAssignment]
    configs: list[CreateTopicsRequestConfig]


class CreateTopicsRequest(Message, key=19, versions=(2, 7), flexible=5):
    """Create topics; -1 partitions or replicas: the default."""

    topics: list[CreateTopicsRequestTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreateTopicsResponseConfig(Message):
    name: Str
    value: Str | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool


class CreateTopicsResponseTopic(Message):
    name: Str
    topic_id: Annotated[Uuid, since(7)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Str | None
    topic_config_error_code: Annotated[Int16, tag(0, since=5)] = 0
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[list[CreateTopicsResponseConfig] | None, since(5)] = []


class CreateTopicsResponse(Message, key=19, versions=(2, 7), flexible=5):
    """One row per topic asked."""

    throttle_time_ms: Int32 = 0
    topics: list[CreateTopicsResponseTopic]


class DeleteTopicsRequestTopic(Message):
    name: Str | None = None
    topic_id: Uuid


class DeleteTopicsRequest(Message, key=20, versions=(1, 6), flexible=4):
    """Delete topics by name, from version 6 on also by id."""

    topics: Annotated[list[DeleteTopicsRequestTopic], since(6)] = []
    topic_names: Annotated[list[Str], until(5)] = []
    timeout_ms: Int32


class DeleteTopicsResponseTopic(Message):
    name: Annotated[Str | None, nullable_since(6)]
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[Str | None, since(5)] = None


class DeleteTopicsResponse(Message, key=20, versions=(1, 6), flexible=4):
    """One row per topic asked."""

    throttle_time_ms: Int32 = 0
    responses: list[DeleteTopicsResponseTopic]


class CreatePartitionsRequestAssignment(Message):
    broker_ids: list[Int32]


class CreatePartitionsRequestTopic(Message):
    name: Str
    count: Int32
    assignments: list[CreatePartitionsRequestAssignment] | None


class CreatePartitionsRequest(Message, key=37, versions=(0, 3), flexible=2):
    """Grow topics to `count` partitions."""

    topics: list[CreatePartitionsRequestTopic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsResponseTopic(Message):
    name: Str
    error_code: Int16 = 0
    error_message: Str | None = None


class CreatePartitionsResponse(Message, key=37, versions=(0, 3), flexible=2):
    """One row per topic asked."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsResponseTopic]


class DeleteRecordsRequestPartition(Message):
    partition_index: Int32
    offset: Int64


class DeleteRecordsRequestTopic(Message):
    name: Str
    partitions: list[DeleteRecordsRequestPartition]


class DeleteRecordsRequest(Message, key=21, versions=(0, 2), flexible=2):
    """Delete the records below an offset; -1: below the high watermark."""

    topics: list[DeleteRecordsRequestTopic]
    timeout_ms: Int32


class DeleteRecordsResponsePartition(Message):
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = 0


class DeleteRecordsResponseTopic(Message):
    name: Str
    partitions: list[DeleteRecordsResponsePartition]


class DeleteRecordsResponse(Message, key=21, versions=(0, 2), flexible=2):
    """The new log start offset of each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsResponseTopic]


class DescribeTopicPartitionsRequestTopic(Message):
    name: Str


class DescribeTopicPartitionsCursor(Message):
    topic_name: Str
    partition_index: Int32


class DescribeTopicPartitionsRequest(Message, key=75, versions=(0, 0), flexible=0):
    """Topics in pages of partitions."""

    topics: list[DescribeTopicPartitionsRequestTopic]
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsCursor | None = None


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32]


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: Int16 = 0
    name: Str | None
    topic_id: Uuid
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(Message, key=75, versions=(0, 0), flexible=0):
    """One page; `next_cursor` where the next begins."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsCursor | None = None


class DescribeConfigsRequestResource(Message):
    resource_type: Int8
    resource_name: Str
    configuration_keys: list[Str] | None


class DescribeConfigsRequest(Message, key=32, versions=(1, 4), flexible=4):
    """The configuration of topics and brokers; null keys: all."""

    resources: list[DescribeConfigsRequestResource]
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, since(3)] = False


class DescribeConfigsResponseSynonym(Message):
    name: Str
    value: Str | None
    source: Int8


class DescribeConfigsResponseConfig(Message):
    name: Str
    value: Str | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
    synonyms: list[DescribeConfigsResponseSynonym]
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[Str | None, since(3)] = None


class DescribeConfigsResponseResource(Message):
    error_code: Int16 = 0
    error_message: Str | None
    resource_type: Int8
    resource_name: Str
    configs: list[DescribeConfigsResponseConfig]


class DescribeConfigsResponse(Message, key=32, versions=(1, 4), flexible=4):
    """Every key asked, with value and source."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResponseResource]


class AlterConfigsRequestConfig(Message):
    name: Str
    value: Str | None


class AlterConfigsRequestResource(Message):
    resource_type: Int8
    resource_name: Str
    configs: list[AlterConfigsRequestConfig]


class AlterConfigsRequest(Message, key=33, versions=(0, 2), flexible=2):
    """Replace all overrides of a resource."""

    resources: list[AlterConfigsRequestResource]
    validate_only: Bool


class AlterConfigsResponseResource(Message):
    error_code: Int16 = 0
    error_message: Str | None
    resource_type: Int8
    resource_name: Str


class AlterConfigsResponse(Message, key=33, versions=(0, 2), flexible=2):
    """One row per resource asked."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResponseResource]


class IncrementalAlterConfigsRequestConfig(Message):
    name: Str
    config_operation: Int8
    value: Str | None


class IncrementalAlterConfigsRequestResource(Message):
    resource_type: Int8
    resource_name: Str
    configs: list[IncrementalAlterConfigsRequestConfig]


class IncrementalAlterConfigsRequest(Message, key=44, versions=(0, 1), flexible=1):
    """Change some keys: 0 set, 1 delete, 2 append, 3 subtract."""

    resources: list[IncrementalAlterConfigsRequestResource]
    validate_only: Bool


class IncrementalAlterConfigsResponse(Message, key=44, versions=(0, 1), flexible=1):
    """One row per resource asked."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResponseResource]


class ListConfigResourcesRequest(Message, key=74, versions=(0, 1), flexible=0):
    """The resources that have a configuration, by type."""

    resource_types: Annotated[list[Int8], since(1)] = []


class ListConfigResourcesResponseResource(Message):
    resource_name: Str
    resource_type: Annotated[Int8, since(1)] = 16


class ListConfigResourcesResponse(Message, key=74, versions=(0, 1), flexible=0):
    """Their names and types."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ListConfigResourcesResponseResource]


class DescribeClusterRequest(Message, key=60, versions=(0, 2), flexible=0):
    """The brokers and the controller."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[Bool, since(2)] = False


class DescribeClusterResponseBroker(Message):
    broker_id: Int32
    host: Str
    port: Int32
    rack: Str | None = None
    is_fenced: Annotated[Bool, since(2)] = False


class DescribeClusterResponse(Message, key=60, versions=(0, 2), flexible=0):
    """The brokers and the controller."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: Str
    controller_id: Int32 = -1
    brokers: list[DescribeClusterResponseBroker]
    cluster_authorized_operations: Int32 = -2147483648


class DescribeLogDirsRequestTopic(Message):
    topic: Str
    partitions: list[Int32]


class DescribeLogDirsRequest(Message, key=35, versions=(1, 5), flexible=2):
    """Sizes of partitions on disk; null: of all."""

    topics: list[DescribeLogDirsRequestTopic] | None


class DescribeLogDirsResponsePartition(Message):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


class DescribeLogDirsResponseTopic(Message):
    name: Str
    partitions: list[DescribeLogDirsResponsePartition]


class DescribeLogDirsResponseDirectory(Message):
    error_code: Int16 = 0
    log_dir: Str
    topics: list[DescribeLogDirsResponseTopic]
    total_bytes: Annotated[Int64, since(4)] = -1
    usable_bytes: Annotated[Int64, since(4)] = -1
    is_cordoned: Annotated[Bool, since(5)] = False


class DescribeLogDirsResponse(Message, key=35, versions=(1, 5), flexible=2):
    """Sizes per directory."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: list[DescribeLogDirsResponseDirectory]

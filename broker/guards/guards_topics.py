"""Guards of requests about topics, their records and their configuration: see authorized.py.

| api | needs | else |
|---|---|---|
| ListOffsets | DESCRIBE topic | 29 for its partitions |
| OffsetForLeaderEpoch | CLUSTER_ACTION cluster, or DESCRIBE topic | 29 for its partitions |
| CreateTopics | CREATE cluster or CREATE topic | 29; configs only with DESCRIBE_CONFIGS topic |
| DeleteTopics | DELETE topic | 29; by id without DESCRIBE: and no name; 3 with DESCRIBE of none |
| CreatePartitions | ALTER topic | 29 |
| DeleteRecords | DELETE topic | 29 for its partitions |
| DescribeTopicPartitions | DESCRIBE topic | 29, or left out of "all" |
| DescribeProducers | READ topic | 29 for its partitions |
| DescribeConfigs | DESCRIBE_CONFIGS topic, group, or cluster (for a broker) | 29, 30, 31 |
| AlterConfigs, IncrementalAlterConfigs | ALTER_CONFIGS of the same | 29, 30, 31 |
"""

from collections import Counter
from typing import Any, Final

from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResponseResource,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from segbroker.protocol.messages_core import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from segbroker.protocol.messages_transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
    DescribeProducersResponseTopic,
)
from segbroker.protocol.schema import Message

from ..access.authorizer import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    Authorizer,
)
from ..apis.inventory import begins_nowhere
from ..call import Call
from ..core import Core
from .guarding import (
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    NOT_ASKED,
    TOPIC_REFUSED,
    Amend,
    Guard,
    take_refused,
)

# Kinds of resources as the configuration apis number them.
_CONFIG_TOPIC: Final = 2
_CONFIG_GROUP: Final = 32


def _list_offsets(
    core: Core, authorizer: Authorizer, call: Call[ListOffsetsRequest]
) -> Amend | None:
    peer = call.peer
    refused = take_refused(
        call.request.topics, lambda one: authorizer.allows(peer, DESCRIBE, TOPIC, one.name)
    )

    def amend(response: ListOffsetsResponse) -> None:
        response.topics += [
            ListOffsetsResponseTopic(
                name=topic.name,
                partitions=[
                    ListOffsetsResponsePartition(
                        partition_index=one.partition_index, error_code=TOPIC_REFUSED
                    )
                    for one in topic.partitions
                ],
            )
            for topic in refused
        ]

    return amend if refused else None


def _offset_for_leader_epoch(
    core: Core, authorizer: Authorizer, call: Call[OffsetForLeaderEpochRequest]
) -> Amend | None:
    peer = call.peer
    if authorizer.allows_by_cluster(peer, CLUSTER_ACTION):
        return None
    refused = take_refused(
        call.request.topics, lambda one: authorizer.allows(peer, DESCRIBE, TOPIC, one.topic)
    )

    def amend(response: OffsetForLeaderEpochResponse) -> None:
        response.topics += [
            OffsetForLeaderEpochResponseTopic(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponsePartition(
                        partition=one.partition, error_code=TOPIC_REFUSED
                    )
                    for one in topic.partitions
                ],
            )
            for topic in refused
        ]

    return amend if refused else None


def _create_topics(
    core: Core, authorizer: Authorizer, call: Call[CreateTopicsRequest]
) -> Amend | None:
    peer = call.peer
    everywhere = authorizer.allows_by_cluster(peer, CREATE)
    times = Counter(one.name for one in call.request.topics)  # named twice is wrong for everybody
    refused = take_refused(
        call.request.topics,
        lambda one: (
            everywhere or times[one.name] > 1 or authorizer.allows(peer, CREATE, TOPIC, one.name)
        ),
    )

    def amend(response: CreateTopicsResponse) -> None:
        for row in response.topics:
            if not row.error_code and not authorizer.would_allow(
                peer, DESCRIBE_CONFIGS, TOPIC, row.name
            ):
                row.topic_config_error_code = TOPIC_REFUSED
                row.num_partitions = row.replication_factor = -1
                row.configs = []
        response.topics += [
            CreateTopicsResponseTopic(
                name=topic.name, error_code=TOPIC_REFUSED, error_message=TOPIC_REFUSED.description
            )
            for topic in refused
        ]

    return amend


def _delete_topics(
    core: Core, authorizer: Authorizer, call: Call[DeleteTopicsRequest]
) -> Amend | None:
    peer, request = call.peer, call.request
    rows: list[DeleteTopicsResponseTopic] = []

    def is_allowed(one: DeleteTopicsRequestTopic) -> bool:
        name = one.name
        if name is None:
            meta = core.topics.by_id(one.topic_id)
            if meta is None:
                return True  # and is answered that there is none: ids tell nothing
            name = meta.name
        if authorizer.allows(peer, DELETE, TOPIC, name):
            return True
        is_shown = authorizer.would_allow(peer, DESCRIBE, TOPIC, name)
        shown = name if is_shown else one.name
        rows.append(_not_deleted(shown, one, is_missed=is_shown and not core.topics.get(name)))
        return False

    take_refused(request.topics, is_allowed)
    for name in take_refused(
        request.topic_names, lambda name: authorizer.allows(peer, DELETE, TOPIC, name)
    ):
        is_missed = not core.topics.get(name) and authorizer.would_allow(
            peer, DESCRIBE, TOPIC, name
        )
        rows.append(_not_deleted(name, None, is_missed=is_missed))

    def amend(response: DeleteTopicsResponse) -> None:
        response.responses += rows

    return amend if rows else None


def _not_deleted(
    name: str | None, asked: DeleteTopicsRequestTopic | None, *, is_missed: bool
) -> DeleteTopicsResponseTopic:
    """is_missed: there is no such topic, and who asks may know that."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_missed else TOPIC_REFUSED
    return DeleteTopicsResponseTopic(
        name=name,
        topic_id=ZERO_UUID if asked is None else asked.topic_id,
        error_code=code,
        error_message=code.description,
    )


def _create_partitions(
    core: Core, authorizer: Authorizer, call: Call[CreatePartitionsRequest]
) -> Amend | None:
    peer = call.peer
    times = Counter(one.name for one in call.request.topics)  # named twice is wrong for everybody
    refused = take_refused(
        call.request.topics,
        lambda one: times[one.name] > 1 or authorizer.allows(peer, ALTER, TOPIC, one.name),
    )

    def amend(response: CreatePartitionsResponse) -> None:
        response.results += [
            CreatePartitionsResponseTopic(
                name=topic.name,
                error_code=TOPIC_REFUSED,
                error_message=TOPIC_REFUSED.description,
            )
            for topic in refused
        ]

    return amend if refused else None


def _delete_records(
    core: Core, authorizer: Authorizer, call: Call[DeleteRecordsRequest]
) -> Amend | None:
    peer = call.peer
    refused = take_refused(
        call.request.topics, lambda one: authorizer.allows(peer, DELETE, TOPIC, one.name)
    )

    def amend(response: DeleteRecordsResponse) -> None:
        response.topics += [
            DeleteRecordsResponseTopic(
                name=topic.name,
                partitions=[
                    DeleteRecordsResponsePartition(
                        partition_index=one.partition_index,
                        low_watermark=-1,
                        error_code=TOPIC_REFUSED,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in refused
        ]

    return amend if refused else None


def _describe_topic_partitions(
    core: Core, authorizer: Authorizer, call: Call[DescribeTopicPartitionsRequest]
) -> Message | Amend | None:
    peer, request = call.peer, call.request
    if (nowhere := begins_nowhere(request)) is not None:
        return nowhere
    asked_all = not request.topics
    begin = "" if request.cursor is None else request.cursor.topic_name  # else told on each page
    if asked_all:  # those that it may know of, so that a cursor names no other
        request.topics = [
            DescribeTopicPartitionsRequestTopic(name=name)
            for name in tuple(core.topics.all)  # this may be a lane
            if name >= begin and authorizer.would_allow(peer, DESCRIBE, TOPIC, name)
        ]
    else:
        request.topics = [one for one in request.topics if one.name >= begin]
    refused = [
        DescribeTopicPartitionsResponseTopic(
            name=one.name, topic_id=ZERO_UUID, error_code=TOPIC_REFUSED, partitions=[]
        )
        for one in take_refused(
            [] if asked_all else request.topics,
            lambda one: authorizer.allows(peer, DESCRIBE, TOPIC, one.name),
        )
    ]
    if not request.topics:  # an empty list would mean all
        return DescribeTopicPartitionsResponse(topics=refused)
    if all(one.name != begin for one in request.topics):
        request.cursor = None  # all that is left is behind it

    def amend(response: DescribeTopicPartitionsResponse) -> None:
        for row in response.topics:
            if row.topic_authorized_operations != NOT_ASKED:
                row.topic_authorized_operations = authorizer.operations(peer, TOPIC, row.name or "")
        response.topics += refused

    return amend


def _describe_producers(
    core: Core, authorizer: Authorizer, call: Call[DescribeProducersRequest]
) -> Amend | None:
    peer = call.peer
    refused = take_refused(
        call.request.topics, lambda one: authorizer.allows(peer, READ, TOPIC, one.name)
    )

    def amend(response: DescribeProducersResponse) -> None:
        response.topics += [
            DescribeProducersResponseTopic(
                name=topic.name,
                partitions=[
                    DescribeProducersResponsePartition(
                        partition_index=index, error_code=TOPIC_REFUSED, active_producers=[]
                    )
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in refused
        ]

    return amend if refused else None


def _refusal_of_configs(
    authorizer: Authorizer, call: Call[Any], operation: int, kind: int, name: str
) -> ErrorCode:
    """The code for settings that may not be read or changed; NONE: they may."""
    if kind == _CONFIG_TOPIC:
        allowed = authorizer.allows(call.peer, operation, TOPIC, name)
        return ErrorCode.NONE if allowed else TOPIC_REFUSED
    if kind == _CONFIG_GROUP:
        allowed = authorizer.allows(call.peer, operation, GROUP, name)
        return ErrorCode.NONE if allowed else GROUP_REFUSED
    allowed = authorizer.allows_cluster(call.peer, operation)
    return ErrorCode.NONE if allowed else CLUSTER_REFUSED


def _configs(operation: int) -> Guard:
    """The guard of the three configuration apis: they differ in the rows of their answers."""

    def guard(
        core: Core,
        authorizer: Authorizer,
        call: Call[DescribeConfigsRequest | AlterConfigsRequest | IncrementalAlterConfigsRequest],
    ) -> Amend | None:
        codes: dict[int, ErrorCode] = {}

        def is_allowed(one: Any) -> bool:  # noqa: ANN401 - a resource of any of the three
            code = _refusal_of_configs(
                authorizer, call, operation, one.resource_type, one.resource_name
            )
            if code:
                codes[id(one)] = code
            return not code

        resources: list[Any] = call.request.resources
        refused = take_refused(resources, is_allowed)

        def amend(response: Message) -> None:
            for one in refused:
                row: dict[str, Any] = {
                    "error_code": codes[id(one)],
                    "error_message": codes[id(one)].description,
                    "resource_type": one.resource_type,
                    "resource_name": one.resource_name,
                }
                match response:
                    case DescribeConfigsResponse():
                        response.results.append(DescribeConfigsResponseResource(configs=[], **row))
                    case AlterConfigsResponse() | IncrementalAlterConfigsResponse():
                        response.responses.append(AlterConfigsResponseResource(**row))

        return amend if refused else None

    return guard


GUARDS: Final[dict[int, Guard]] = {
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_CONFIGS: _configs(DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: _configs(ALTER_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(ALTER_CONFIGS),
}

"""What there is: topics in pages, sizes on disk, and what has a configuration.

| request                 | answers                                                            |
|-------------------------|--------------------------------------------------------------------|
| DescribeTopicPartitions | topics by name (none: all), at most PARTITIONS_MAX partitions, and |
|                         | where to go on; from a partition below 0: 42 INVALID_REQUEST       |
| DescribeLogDirs         | one directory; sizes of the partitions asked for, null: of all     |
| ListConfigResources     | topics, this broker, groups with settings; before version 1        |
|                         | nothing: client metrics, of which there are none, were all of it   |

The bytes that the volume has in all and left are told where they are known, else -1.  Partitions
that are not open stay so; their files are looked at.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_admin import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseDirectory,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseTopic,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseResource,
)
from segbroker.segments.directory.manager import TopicMeta
from segbroker.segments.names import is_topic_name

from ..call import Call
from ..core import Core
from ..loop.pace import Pace
from .config_admin import BROKER, BROKER_LOGGER, GROUP, TOPIC
from .metadata import NO_LEADER, TOPIC_OPERATIONS
from .placement import log_dir

PARTITIONS_MAX: Final = 2_000
"""Partitions of one page (max.request.partition.size.limit)."""

_SIZES_AT_ONCE: Final = 250
"""Partitions per turn in a lane."""
_CLIENT_METRICS: Final = 16
"""A resource that Kafka has, and of which there is none here."""
_ALL_TYPES_SINCE: Final = 1


async def describe_topic_partitions(
    core: Core, call: Call[DescribeTopicPartitionsRequest]
) -> DescribeTopicPartitionsResponse:
    """One page of topics, in the order of their names."""
    request, cursor = call.request, call.request.cursor
    if (nowhere := begins_nowhere(request)) is not None:
        return nowhere
    names = sorted({topic.name for topic in request.topics} or core.topics.all)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    room = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    response = DescribeTopicPartitionsResponse(topics=[])
    pace = Pace()
    for name in names:
        await pace.step()
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        if room <= 0:
            response.next_cursor = DescribeTopicPartitionsCursor(
                topic_name=name, partition_index=first
            )
            break
        meta = core.topics.get(name)
        if meta is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not is_topic_name(name):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(_refused(name, code))
            continue
        page = range(first, min(meta.partitions, first + room))
        response.topics.append(_described(core, meta, page))
        room -= len(page)
        if page.stop < meta.partitions:
            response.next_cursor = DescribeTopicPartitionsCursor(
                topic_name=name, partition_index=page.stop
            )
            break
    return response


def begins_nowhere(
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse | None:
    """The answer to a request whose cursor is none, or not in its list of topics, as by Kafka."""
    cursor, topics = request.cursor, request.topics
    if cursor is None:
        return None
    is_listed = not topics or any(topic.name == cursor.topic_name for topic in topics)
    if cursor.partition_index >= 0 and is_listed:
        return None
    return DescribeTopicPartitionsResponse(
        topics=[_refused(topic.name, ErrorCode.INVALID_REQUEST) for topic in topics]
    )


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
    )


def _described(
    core: Core, meta: TopicMeta, page: Iterable[int]
) -> DescribeTopicPartitionsResponseTopic:
    node = core.config.broker_id
    return DescribeTopicPartitionsResponseTopic(
        name=meta.name,
        topic_id=meta.topic_id,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=NO_LEADER if core.topics.is_unserved(meta.name, index) else node,
                leader_epoch=core.topics.leader_epoch(meta, index),
                replica_nodes=[node],
                isr_nodes=[node],
                eligible_leader_replicas=[],  # never null: Java streams it
                last_known_elr=[],
                offline_replicas=[node] if core.topics.is_unserved(meta.name, index) else [],
            )
            for index in page
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


async def describe_log_dirs(
    core: Core, call: Call[DescribeLogDirsRequest]
) -> DescribeLogDirsResponse:
    """The one directory; what is unknown is left out of it, as in Kafka."""
    asked: Iterable[tuple[str, Sequence[int]]]
    pace = Pace()
    if call.request.topics is None:
        asked = [(meta.name, range(meta.partitions)) for meta in core.topics.all.values()]
    else:
        once: dict[str, dict[int, None]] = {}
        for topic in call.request.topics:
            await pace.step()
            once.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
        asked = [(name, list(indexes)) for name, indexes in once.items()]
    topics: dict[str, DescribeLogDirsResponseTopic] = {}
    places = ((name, index) for name, indexes in asked for index in indexes)
    while some := list(islice(places, _SIZES_AT_ONCE)):
        sizes = await core.lanes.run(core.topics.manager.partitions.sizes, some)
        for (name, index), size in zip(some, sizes, strict=True):
            if size is None:
                continue
            if name not in topics:
                topics[name] = DescribeLogDirsResponseTopic(name=name, partitions=[])
            topics[name].partitions.append(
                DescribeLogDirsResponsePartition(
                    partition_index=index, partition_size=size, offset_lag=0, is_future_key=False
                )
            )
        await pace.step()
    root = core.topics.manager.root
    directory = DescribeLogDirsResponseDirectory(
        log_dir=log_dir(core), topics=list(topics.values())
    )
    with suppress(OSError):  # then it is as unknown as where there is no disk
        space = await core.lanes.run(core.topics.manager.storage.space, root)
        if space is not None:
            directory.total_bytes, directory.usable_bytes = space.total, space.usable
    return DescribeLogDirsResponse(results=[directory])


async def list_config_resources(
    core: Core, call: Call[ListConfigResourcesRequest]
) -> ListConfigResourcesResponse:
    """What DescribeConfigs may be asked about; by type, none named: every type."""
    asked = set(call.request.resource_types)
    if not asked <= {TOPIC, BROKER, BROKER_LOGGER, _CLIENT_METRICS, GROUP}:
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    response = ListConfigResourcesResponse(config_resources=[])
    if call.version < _ALL_TYPES_SINCE:
        return response
    node = [str(core.config.broker_id)]
    found: tuple[tuple[int, Iterable[str]], ...] = (
        (TOPIC, core.topics.all),
        (BROKER, node),
        (BROKER_LOGGER, node),
        (GROUP, core.group_settings.groups()),
    )
    pace = Pace()
    for kind, names in found:
        if asked and kind not in asked:
            continue
        for name in sorted(names) if kind == TOPIC else names:
            response.config_resources.append(
                ListConfigResourcesResponseResource(resource_type=kind, resource_name=name)
            )
            await pace.step()
    return response

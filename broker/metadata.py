"""Metadata: which topics there are, who leads them (always we) and where we are.

| topics asked       | v0    | v1 and later                                      |
|--------------------|-------|---------------------------------------------------|
| null               | -     | all                                               |
| empty              | all   | none                                              |
| by name            | those; an unknown one is created when both sides allow  |
| by topic id (v10+) | those; never created                                    |

May be the first request of a connection (aiokafka to 0.12, kafka-python 2.0), in version 0.
"""

from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from segbroker.protocol.schema import ZERO_UUID
from segbroker.segments.manager import TopicMeta

from .call import Call
from .core import Core
from .error_map import STORAGE_FAILURES, wire_error
from .pace import Pace

# Bit n stands for ACL operation n. Until there are ACLs everything is allowed.
# Cluster: create 5, alter 7, describe 8, cluster action 9, describe configs 10, alter configs 11,
# idempotent write 12. Topic: read 3, write 4, create 5, delete 6, alter 7, describe 8,
# describe configs 10, alter configs 11.
CLUSTER_OPERATIONS: Final = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))
TOPIC_OPERATIONS: Final = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
NOT_ASKED: Final = -(2**31)


async def metadata(core: Core, call: Call[MetadataRequest]) -> MetadataResponse:
    """Answer one Metadata request; waits only for the creation of topics."""
    request = call.request
    host, port = core.advertised(call.peer)
    node = core.config.broker_id
    asked = request.topics
    topics: list[MetadataResponseTopic] = []
    pace = Pace()
    if asked is None or (call.version == 0 and not asked):
        for meta in core.topics.all.values():
            topics.append(_topic(core, meta))
            await pace.step()
    else:
        for one in asked:
            topics.append(await _asked(core, one, request.allow_auto_topic_creation))
            await pace.step()
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=host, port=port)],
        cluster_id=core.topics.manager.cluster_id,
        controller_id=node,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _asked(core: Core, asked: MetadataRequestTopic, create: bool) -> MetadataResponseTopic:
    if asked.name is None:
        by_id = core.topics.by_id(asked.topic_id)
        if by_id is None:
            return _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID, asked)
        return _topic(core, by_id)
    meta = core.topics.get(asked.name)
    if meta is None and create and core.topics.may_auto_create:
        try:
            meta = await core.topics.auto_create(asked.name)
        except STORAGE_FAILURES as exc:
            return _unknown(asked.name, wire_error(exc)[0], asked)
    if meta is None:
        return _unknown(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked)
    return _topic(core, meta)


def _unknown(
    name: str | None, code: ErrorCode, asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=asked.topic_id or ZERO_UUID, partitions=[]
    )


def _topic(core: Core, meta: TopicMeta) -> MetadataResponseTopic:
    node = core.config.broker_id
    return MetadataResponseTopic(
        name=meta.name,
        topic_id=meta.topic_id,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=node,
                leader_epoch=core.topics.leader_epoch(meta, index),
                replica_nodes=[node],
                isr_nodes=[node],
            )
            for index in range(meta.partitions)
        ],
    )

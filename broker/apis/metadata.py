"""Metadata: which topics there are, who leads them (we, or nobody) and where we are.

| topics asked       | v0    | v1 and later                                      |
|--------------------|-------|---------------------------------------------------|
| null               | -     | all                                               |
| empty              | all   | none                                              |
| by name            | those; an unknown one is created when both sides allow  |
| by topic id (v10+) | those; never created                                    |

Those of one request are created together: a program that names thousands waits for few syncs.

A partition that is known not to be served (`Topics.is_unserved`) has no leader, as one in a log
directory that failed has none in Kafka: LEADER_NOT_AVAILABLE, its replica is offline.  Clients go
on with the others and ask again; that it is tried again is a chore's work (chores.py).

Asking for one of Kafka's own topics (__consumer_offsets) creates none: INVALID_TOPIC_EXCEPTION,
which a consumer says at once, for what it would wait for is not kept in a topic here.

Asking for x_y where there is an x.y creates none either (segments/metadata/alike.py), with the same
code: its creation is refused for as long as there is the other, and who waits would wait in vain.

Who owes something of its quota of changes (quotas.py) creates none: the topic is unknown to it.

With an authorizer (authorized.py) a topic that may not be described is left out of "all" and is
TOPIC_AUTHORIZATION_FAILED by name, whether it exists or not; asking creates with CREATE alone.

All topics are listed once for all who ask for them at the same time: when a fleet comes back to a
broker of many topics, that is all that the loop would do.  Whoever comes while they are listed has
the next list, which knows what was changed before it asked.  Which of them one may know of each
looks up itself, before: that costs as much, is another's, and is charged to its quota.

May be the first request of a connection (aiokafka to 0.12, kafka-python 2.0), in version 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final
from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_core import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from segbroker.segments.directory.manager import TopicMeta
from segbroker.segments.names import is_topic_name

from ..access.authorizer import CREATE, DESCRIBE, TOPIC
from ..call import Call
from ..core import Core
from ..error_map import wire_error
from ..loop.pace import Pace
from ..peers.peer import Peer

# Bit n stands for ACL operation n: without an authorizer everything is allowed.
# Cluster: create 5, alter 7, describe 8, cluster action 9, describe configs 10, alter configs 11,
# idempotent write 12. Topic: read 3, write 4, create 5, delete 6, alter 7, describe 8,
# describe configs 10, alter configs 11.
CLUSTER_OPERATIONS: Final = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))
TOPIC_OPERATIONS: Final = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
NOT_ASKED: Final = -(2**31)
NO_LEADER: Final = -1


# Where Kafka keeps its own state; who reads them wants that, and not an empty topic of the name.
_OF_KAFKA: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state"}
)
# Versions 10 and 11 may ask by id, but have no null for the name of an id that is not there.
_NULL_NAME_SINCE: Final = 12
# Rows of partitions between two looks at the clock: most topics have fewer.
_ROWS_OF_A_STEP: Final = 64


async def metadata(core: Core, call: Call[MetadataRequest]) -> MetadataResponse:
    """Answer one Metadata request; waits only for the creation of topics."""
    request = call.request
    host, port = core.advertised(call.peer)
    node = core.config.broker_id
    asked = request.topics
    authorizer, peer = core.authorizer, call.peer
    topics: list[MetadataResponseTopic] = []
    pace = Pace()
    if asked is None or (call.version == 0 and not asked):
        topics = await _all(core, peer, pace)
    else:
        new: dict[str, int] = {}
        room = core.topics.auto_create_room if request.allow_auto_topic_creation else 0
        once: dict[UUID | str, MetadataRequestTopic] = {}
        for one in asked:
            once[_meant(one)] = one
            await pace.step()
        for one in once.values():
            row = await _asked(core, peer, one, pace, create=len(new) < room)
            if row is None:
                assert one.name is not None, "only who has a name is created"
                new[one.name] = len(topics)
                row = _unknown(one.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, one)
            topics.append(row)
            await pace.step()
        if new:
            await _create(core, peer, new, topics)
    if call.version < _NULL_NAME_SINCE:
        for topic in topics:
            topic.name = topic.name or ""
    if request.include_topic_authorized_operations:
        topics = [await _with_operations(core, peer, topic, pace) for topic in topics]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=host, port=port)],
        cluster_id=core.topics.manager.cluster_id,
        controller_id=node,
        topics=topics,
        cluster_authorized_operations=(
            NOT_ASKED
            if not request.include_cluster_authorized_operations
            else CLUSTER_OPERATIONS
            if authorizer is None
            else authorizer.cluster_operations(peer)
        ),
    )


async def _all(core: Core, peer: Peer, pace: Pace) -> list[MetadataResponseTopic]:
    """The rows of all topics that may be known of, which others have as well."""
    authorizer = core.authorizer
    names: Iterable[str] = core.topics.all
    if authorizer is not None:
        names = seen = []
        for name in core.topics.all:
            if authorizer.would_allow(peer, DESCRIBE, TOPIC, name):
                seen.append(name)
            await pace.step()
    rows = await core.listing.call((core, names))
    return [rows[name] for name in names if name in rows]


async def list_together(
    asked: Sequence[tuple[Core, Iterable[str]]],
) -> list[Mapping[str, MetadataResponseTopic]]:
    """For each who asks the rows of what anybody asks about, by name, of what is there."""
    pace = Pace()
    wanted: set[str] = set()
    for _, names in asked:
        wanted.update(names)
        await pace.step()
    core, _ = asked[0]
    rows: dict[str, MetadataResponseTopic] = {}
    for meta in core.topics.all.values():
        if meta.name in wanted:
            rows[meta.name] = await _topic(core, meta, pace)
        await pace.step()
    return [rows] * len(asked)


def _meant(asked: MetadataRequestTopic) -> UUID | str:
    """What is asked about, whatever else is said of it: that is answered once."""
    if asked.name is None or asked.topic_id != ZERO_UUID:  # Java sends an empty name with an id
        return asked.topic_id
    return asked.name


async def _with_operations(
    core: Core, peer: Peer, topic: MetadataResponseTopic, pace: Pace
) -> MetadataResponseTopic:
    """A row of its own, with the bits of what may be done; none that may not even be known."""
    await pace.step()
    own = copy(topic)
    if core.authorizer is None:
        own.topic_authorized_operations = TOPIC_OPERATIONS
    elif topic.name is not None and not topic.error_code:
        bits = core.authorizer.operations(peer, TOPIC, topic.name)
        own.topic_authorized_operations = bits
    return own


def _may_create(core: Core, peer: Peer, name: str) -> bool:
    authorizer = core.authorizer
    return (
        authorizer is None
        or authorizer.allows_by_cluster(peer, CREATE)
        or authorizer.allows(peer, CREATE, TOPIC, name)
    )


async def _asked(
    core: Core, peer: Peer, asked: MetadataRequestTopic, pace: Pace, *, create: bool
) -> MetadataResponseTopic | None:
    """The row of a topic; None: there is none, and it is to be created."""
    authorizer = core.authorizer
    name = _meant(asked)
    if isinstance(name, UUID):
        by_id = core.topics.by_id(name)
        if by_id is None:
            return _unknown(asked.name, ErrorCode.UNKNOWN_TOPIC_ID, asked)
        if authorizer is not None and not authorizer.allows(peer, DESCRIBE, TOPIC, by_id.name):
            return _unknown(asked.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked)
        return await _topic(core, by_id, pace)
    if authorizer is not None and not authorizer.allows(peer, DESCRIBE, TOPIC, name):
        return _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked)
    meta = core.topics.get(name)
    if meta is not None:
        return await _topic(core, meta, pace)
    if create and name in _OF_KAFKA:
        return _unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION, asked)
    if create and not _may_create(core, peer, name):
        return _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked)
    if not is_topic_name(name):  # a mistake, and waiting for it would be in vain
        return _unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION, asked)
    quotas, count = core.quotas, core.config.partitions_by_default
    if create and (quotas is None or not quotas.mutates(peer, count, is_strict=True)):
        return None
    return _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked)


async def _create(
    core: Core, peer: Peer, new: Mapping[str, int], topics: list[MetadataResponseTopic]
) -> None:
    """Create topics together, and put their rows into the places of what is unknown yet."""
    pace = Pace()
    found = await core.topics.auto_create(list(new), peer.asker)
    for place, made in zip(new.values(), found, strict=True):
        if isinstance(made, TopicMeta):
            topics[place] = await _topic(core, made, pace)
        elif made is not None:
            topics[place].error_code, _ = wire_error(made)
        await pace.step()


def _unknown(
    name: str | None, code: ErrorCode, asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=asked.topic_id or ZERO_UUID, partitions=[]
    )


async def _topic(core: Core, meta: TopicMeta, pace: Pace) -> MetadataResponseTopic:
    node = core.config.broker_id
    us, nobody = [node], list[int]()  # for all rows: a topic may have a hundred thousand
    row = MetadataResponseTopic(name=meta.name, topic_id=meta.topic_id, partitions=[])
    for index in range(meta.partitions):
        is_unserved = core.topics.is_unserved(meta.name, index)
        row.partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if is_unserved else ErrorCode.NONE,
                partition_index=index,
                leader_id=NO_LEADER if is_unserved else node,
                leader_epoch=core.topics.leader_epoch(meta, index),
                replica_nodes=us,
                isr_nodes=us,
                offline_replicas=us if is_unserved else nobody,
            )
        )
        if index % _ROWS_OF_A_STEP == _ROWS_OF_A_STEP - 1:  # its caller does after each topic
            await pace.step()
    return row

"""StreamsGroupHeartbeat taken apart: what contradicts itself is refused, the rest is for the group.

| refused with | |
|---|---|
| 42 INVALID_REQUEST | a request that contradicts itself |
| 42 | what is in the protocol, and Kafka's broker 4.3 takes from nobody: static members, |
| | warm-up tasks, offsets of tasks, expressions for source topics |
| 130 STREAMS_INVALID_TOPOLOGY | topics with names that none can have or that are Kafka's own; |
| | more than a topology can be: counted before anything is looked at |
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from segbroker.protocol.messages_streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestCopartitionGroup,
    StreamsGroupHeartbeatRequestSubtopology,
    StreamsGroupHeartbeatRequestTopology,
    StreamsGroupTaskIds,
    StreamsGroupTopicInfo,
)
from segbroker.segments.names import is_topic_name

from ..call import Call
from ..configuration.logs import NAME_TOLD_MAX
from ..groups.member_epochs import JOIN, LEAVE, LEAVE_FOR_A_WHILE
from ..groups.streams_members import Endpoint, StreamsBeat
from ..groups.streams_topology import (
    SIZE_MAX,
    SUBTOPOLOGIES_MAX,
    TOPICS_MAX,
    InternalTopic,
    Subtopology,
    Topology,
    invalid,
)
from ..groups.task_assignor import Task, Tasks
from ..refused import invalid_request

TASKS_TOLD_MAX: Final = 20_000
TAGS_MAX: Final = 100
_SIZE_MAX: Final = 255
"""Characters of an id, a host or a tag."""
_NAMES_TOLD: Final = 10
_NAME_SIZE_MIN: Final = 2
"""Bytes of a name as it is written down."""
_OF_KAFKA: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def checked(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise Refused for a request that contradicts itself, or asks for what there is not."""
    if request.topology is not None:
        _check_size(request.topology)
    problem = _unsupported(request) or _contradiction(request) or _excess(request)
    if problem is not None:
        raise invalid_request(problem)


def _unsupported(request: StreamsGroupHeartbeatRequest) -> str | None:
    if request.instance_id is not None:
        return "Static membership is not yet supported."
    if request.task_offsets is not None:
        return "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        return "TaskEndOffsets are not supported yet."
    if request.warmup_tasks:
        return "WarmupTasks are not supported yet."
    subtopologies = () if request.topology is None else request.topology.subtopologies
    if any(one.source_topic_regex for one in subtopologies):
        return "Regular expressions for source topics are not supported yet."
    return None


def _contradiction(request: StreamsGroupHeartbeatRequest) -> str | None:
    epoch, problem = request.member_epoch, None
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if not request.member_id.strip():
        problem = "MemberId can't be empty."
    elif not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif epoch == JOIN:
        problem = _why_not_join(request)
    elif epoch == LEAVE_FOR_A_WHILE:
        problem = "InstanceId can't be null."
    elif epoch < LEAVE_FOR_A_WHILE:
        problem = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    if problem is None and None in tasks and any(some is not None for some in tasks):
        problem = "If one task-type is non-null, all must be non-null."
    if problem is None and epoch != JOIN and request.topology is not None:
        problem = "Topology can only be provided when (re-)joining."
    return problem


def _why_not_join(request: StreamsGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms < 0:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.active_tasks is None or request.active_tasks:
        return "ActiveTasks must be empty when (re-)joining."
    if request.standby_tasks is None or request.standby_tasks:
        return "StandbyTasks must be empty when (re-)joining."
    if request.warmup_tasks is None or request.warmup_tasks:
        return "WarmupTasks must be empty when (re-)joining."
    if request.topology is None:
        return "Topology must be non-null when (re-)joining."
    return None


def _excess(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Why what a member says of itself is too much to be kept."""
    if len(request.client_tags or ()) > TAGS_MAX:
        return f"more than {TAGS_MAX} tags"
    told = [request.member_id, request.rack_id or "", request.process_id or ""]
    if request.user_endpoint is not None:
        told.append(request.user_endpoint.host)
    for tag in request.client_tags or ():
        told += (tag.key, tag.value)
    if any(len(one) > _SIZE_MAX for one in told):
        return f"an id, a host or a tag has more than {_SIZE_MAX} characters"
    owned = request.active_tasks or (), request.standby_tasks or ()
    count = sum(map(len, owned))
    if count <= TASKS_TOLD_MAX:
        count = sum(len(one.partitions) for one in chain(*owned))
    if count > TASKS_TOLD_MAX:
        return f"more than {TASKS_TOLD_MAX} tasks"
    return None


def beat_of(call: Call[StreamsGroupHeartbeatRequest]) -> StreamsBeat:
    """What a heartbeat says to its group.  Raises Refused."""
    request = call.request
    checked(request)
    owned = None
    if request.active_tasks is not None:
        owned = Tasks(_tasks(request.active_tasks), _tasks(request.standby_tasks or ()))
    endpoint, tags = None, None
    if request.user_endpoint is not None:
        endpoint = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
    if request.client_tags is not None:
        tags = tuple(sorted((tag.key, tag.value) for tag in request.client_tags))
    return StreamsBeat(
        request.member_id,
        request.member_epoch,
        call.header.client_id or "",
        call.peer.address[0],
        request.rack_id,
        request.rebalance_timeout_ms,
        None if request.topology is None else _topology(request.topology),
        None if request.member_epoch == LEAVE else owned,
        request.process_id,
        endpoint,
        tags,
        request.shutdown_application,
        call.peer.number,
    )


def _tasks(rows: Iterable[StreamsGroupTaskIds]) -> frozenset[Task]:
    return frozenset((row.subtopology_id, number) for row in rows for number in row.partitions)


def topics_named(topology: StreamsGroupHeartbeatRequestTopology) -> list[str]:
    """Every topic of a topology, once."""
    names: dict[str, None] = {}
    for one in topology.subtopologies:
        names.update(dict.fromkeys((*one.source_topics, *one.repartition_sink_topics)))
        for topic in (*one.repartition_source_topics, *one.state_changelog_topics):
            names[topic.name] = None
    return list(names)


def _check_size(topology: StreamsGroupHeartbeatRequestTopology) -> None:
    """Raise Refused for one that is too large to be looked at here: a request may say a million
    names, or one name a million times, and the loop would stand still meanwhile.
    """
    if (count := len(topology.subtopologies)) > SUBTOPOLOGIES_MAX:
        raise invalid(f"{count} subtopologies, limit {SUBTOPOLOGIES_MAX}")
    count = sum(len(one.copartition_groups) for one in topology.subtopologies)
    if count > TOPICS_MAX:
        raise invalid(f"{count} copartition groups, limit {TOPICS_MAX}")
    count = sum(map(_names_count, topology.subtopologies))
    if (size := count * _NAME_SIZE_MIN) > SIZE_MAX:
        raise invalid(f"a topology of more than {size} bytes, limit {SIZE_MAX}")


def _names_count(one: StreamsGroupHeartbeatRequestSubtopology) -> int:
    count = len(one.source_topics) + len(one.repartition_sink_topics)
    count += len(one.repartition_source_topics) + len(one.state_changelog_topics)
    for some in one.copartition_groups:
        count += len(some.source_topics) + len(some.repartition_source_topics)
    return count


def _topology(topology: StreamsGroupHeartbeatRequestTopology) -> Topology:
    names = topics_named(topology)
    if len(names) > TOPICS_MAX:
        raise invalid(f"{len(names)} topics, limit {TOPICS_MAX}")
    if prohibited := [name for name in names if name in _OF_KAFKA]:
        raise invalid(
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is "
            "prohibited."
        )
    if wrong := [name for name in names if not is_topic_name(name)]:
        told = ",".join(name[:NAME_TOLD_MAX] for name in wrong[:_NAMES_TOLD])
        raise invalid(f"Topic names {told} are not valid topic names.")
    subtopologies = sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
    return Topology(topology.epoch, tuple(_subtopology(one) for one in subtopologies))


def _subtopology(one: StreamsGroupHeartbeatRequestSubtopology) -> Subtopology:
    repartitions = [_internal(topic) for topic in one.repartition_source_topics]
    return Subtopology(
        one.subtopology_id,
        tuple(one.source_topics),
        tuple(one.repartition_sink_topics),
        tuple(repartitions),
        tuple(_internal(topic) for topic in one.state_changelog_topics),
        tuple(
            _together(group, one.source_topics, repartitions) for group in one.copartition_groups
        ),
    )


def _together(
    group: StreamsGroupHeartbeatRequestCopartitionGroup,
    sources: Sequence[str],
    repartitions: Sequence[InternalTopic],
) -> tuple[str, ...]:
    """The names that a copartition group gives the places of."""
    internal = [one.name for one in repartitions]
    found = []
    for places, names in (
        (group.source_topics, sources),
        (group.repartition_source_topics, internal),
    ):
        for place in places:
            if not 0 <= place < len(names):
                raise invalid(f"a copartition group names topic {place} of {len(names)}")
            found.append(names[place])
    return tuple(found)


def _internal(topic: StreamsGroupTopicInfo) -> InternalTopic:
    if topic.partitions < 0:
        raise invalid(f"{topic.name} has {topic.partitions} partitions")
    return InternalTopic(
        topic.name,
        topic.partitions,
        topic.replication_factor,
        tuple((pair.key, pair.value) for pair in topic.topic_configs),
    )

"""StreamsGroupDescribe (KIP-1071): state, topology, and members with their tasks; from memory.

The topology is told with the partitions that it comes to; while topics are missing or do not fit,
as the application said it.
"""

from collections.abc import Mapping

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeResponseAssignment,
    StreamsGroupDescribeResponseGroup,
    StreamsGroupDescribeResponseMember,
    StreamsGroupDescribeResponseSubtopology,
    StreamsGroupDescribeResponseTopology,
    StreamsGroupEndpoint,
    StreamsGroupKeyValue,
    StreamsGroupTopicInfo,
)

from ..call import Call
from ..core import Core
from ..groups.streams_group import StreamsGroup
from ..groups.streams_members import StreamsMember
from ..groups.streams_topology import InternalTopic, Subtopology
from ..groups.task_assignor import NO_TASKS, Tasks
from ..loop.pace import Pace
from .group_admin import GROUP_OPERATIONS
from .metadata import NOT_ASKED
from .streams_group_apis import task_rows


async def streams_group_describe(
    core: Core, call: Call[StreamsGroupDescribeRequest]
) -> StreamsGroupDescribeResponse:
    """Of each group that is asked about."""
    operations = GROUP_OPERATIONS if call.request.include_authorized_operations else NOT_ASKED
    rows = []
    pace = Pace()
    for name in dict.fromkeys(call.request.group_ids):
        await pace.step()
        group = core.groups.get_streams(name)
        if not core.config.takes_streams_groups:
            row = _no_group(name, ErrorCode.UNSUPPORTED_VERSION)
        elif group is not None:
            row = _described(group)
            row.authorized_operations = operations
        elif not name:
            row = _no_group(name, ErrorCode.INVALID_GROUP_ID)
        else:
            is_other = core.groups.exists(name) or core.groups.share_groups.has(name)
            why = "is not a streams group" if is_other else "not found"
            row = _no_group(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} {why}.")
        rows.append(row)
    return StreamsGroupDescribeResponse(groups=rows)


def _no_group(
    name: str, code: ErrorCode, message: str | None = None
) -> StreamsGroupDescribeResponseGroup:
    return StreamsGroupDescribeResponseGroup(error_code=code, error_message=message, group_id=name)


def _described(group: StreamsGroup) -> StreamsGroupDescribeResponseGroup:
    return StreamsGroupDescribeResponseGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, one) for one in group.members.values()],
    )


def _topology(group: StreamsGroup) -> StreamsGroupDescribeResponseTopology | None:
    if group.topology is None:
        return None
    configured = group.work.configured
    internal = configured.internal if configured.is_ready else {}
    return StreamsGroupDescribeResponseTopology(
        epoch=group.topology.epoch,
        subtopologies=[_subtopology(one, internal) for one in group.topology.subtopologies],
    )


def _subtopology(
    one: Subtopology, internal: Mapping[str, InternalTopic]
) -> StreamsGroupDescribeResponseSubtopology:
    return StreamsGroupDescribeResponseSubtopology(
        subtopology_id=one.subtopology_id,
        source_topics=sorted(one.sources),
        repartition_sink_topics=sorted(one.sinks),
        state_changelog_topics=[_info(internal.get(topic.name, topic)) for topic in one.changelogs],
        repartition_source_topics=[
            _info(internal.get(topic.name, topic)) for topic in one.repartitions
        ],
    )


def _info(topic: InternalTopic) -> StreamsGroupTopicInfo:
    return StreamsGroupTopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=_pairs(topic.configs),
    )


def _pairs(pairs: tuple[tuple[str, str], ...]) -> list[StreamsGroupKeyValue]:
    return [StreamsGroupKeyValue(key=key, value=value) for key, value in pairs]


def _member(group: StreamsGroup, member: StreamsMember) -> StreamsGroupDescribeResponseMember:
    said = member.said
    endpoint = None
    if said.endpoint is not None:
        endpoint = StreamsGroupEndpoint(host=said.endpoint.host, port=said.endpoint.port)
    return StreamsGroupDescribeResponseMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=said.rack_id,
        client_id=said.client_id,
        client_host=f"/{said.client_host}",
        topology_epoch=said.topology_epoch,
        process_id=said.process_id,
        user_endpoint=endpoint,
        client_tags=_pairs(said.tags),
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(group.target.get(member.member_id, NO_TASKS)),
        is_classic=False,
    )


def _assignment(tasks: Tasks) -> StreamsGroupDescribeResponseAssignment:
    return StreamsGroupDescribeResponseAssignment(
        active_tasks=task_rows(tasks.active),
        standby_tasks=task_rows(tasks.standby),
        warmup_tasks=[],
    )

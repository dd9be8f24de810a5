"""StreamsGroupHeartbeat (KIP-1071): members of streams groups join, live, leave, and get tasks.

What a request says of itself is checked in streams_requests.py, what it says to its group in
streams_group.py.  It is answered when what it tells its member is durable, which is at once where
nothing changed, and it is a member still; that who leaves is no member, when that is durable.

A name is that of one kind of group; one without members becomes a streams group when a member of
that comes.  Where another kind of group has members who joins is refused with 69
GROUP_ID_NOT_FOUND.  A heartbeat for a group that there is not is answered 25 UNKNOWN_MEMBER_ID, by
which every member joins again; Kafka says so of unknown members only.

Without `streams` in group_protocols both requests are answered 35 UNSUPPORTED_VERSION, whatever the
rules say, and offered all the same, as by Kafka.
"""

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupEndpoint,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponseEndpointToPartitions,
    StreamsGroupHeartbeatResponseStatus,
    StreamsGroupHeartbeatResponseTopicPartition,
    StreamsGroupTaskIds,
)

from ..call import Call
from ..core import Core
from ..groups.group_keys import STREAMS_HEARTBEAT
from ..groups.member_epochs import JOIN
from ..groups.member_sizes import WHOLE, streams_size, topology_size
from ..groups.streams_endpoints import partitions_by_endpoint
from ..groups.streams_group import StreamsGroup, StreamsTold
from ..groups.streams_members import TopicPartitions, by_subtopology
from ..groups.streams_topics import Status
from ..groups.task_assignor import Task
from ..loop.loop_clock import monotonic_ms
from ..refused import Refused
from .internal_topics import make_internal
from .kept_answers import refuse_when_kept, when_kept
from .later_reply import LaterReply
from .sign_of_life import check_waits
from .streams_requests import beat_of


def streams_group_heartbeat(
    core: Core, call: Call[StreamsGroupHeartbeatRequest], slot: LaterReply
) -> None:
    """A member joins, lives, or leaves; which tasks it has, when that changed."""
    request = call.request
    if not core.config.takes_streams_groups:
        slot.answer(_refusal(ErrorCode.UNSUPPORTED_VERSION, None))
        return
    try:
        beat = beat_of(call)
        if request.member_epoch >= JOIN:
            check_waits(call.peer)
        group = _group(core, request)
        size, room = 0, core.groups.room
        if request.member_epoch >= JOIN:
            known = group.members.get(request.member_id)
            said = streams_size(beat if known is None else known.says(beat))
            room.check(request.group_id, request.member_id, said)
        if beat.topology is not None and group.topology is None:
            size = topology_size(beat.topology)
            room.check(request.group_id, WHOLE, size)
    except Refused as exc:
        slot.answer(_refusal(exc.code, exc.message))
        return

    def refuse(code: ErrorCode, message: str) -> None:
        slot.answer(_refusal(code, message))

    try:
        told = group.heartbeat(monotonic_ms(), beat, core.topics.all)
    except Refused as exc:
        refuse_when_kept(core, group, beat, exc, refuse)
        return
    core.groups.install(group)
    if size:
        room.put(request.group_id, WHOLE, size)
    member = group.members.get(told.member_id)
    if member is not None:
        room.put(request.group_id, told.member_id, streams_size(member.said))
    beside = make_internal(core, call.peer, group) if member is not None else ""
    response = _told(core, request, group, told, beside)

    def tell() -> None:
        if member is not None and not slot.done:  # it stays, and is there to be told
            group.was_told(monotonic_ms(), told.member_id, told.tasks)
            core.groups.look_by_then(group)
        slot.answer(response)

    when_kept(core, group, told.member_id, tell, refuse)


def _refusal(code: ErrorCode, message: str | None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=code, error_message=message)


def _group(core: Core, request: StreamsGroupHeartbeatRequest) -> StreamsGroup:
    if request.member_epoch == JOIN:
        return core.groups.obtain_streams(request.group_id)
    group = core.groups.get_streams(request.group_id)
    if group is None:
        code = ErrorCode.UNKNOWN_MEMBER_ID
        raise Refused(code, f"group {request.group_id!r} does not know this member")
    return group


def _told(
    core: Core,
    request: StreamsGroupHeartbeatRequest,
    group: StreamsGroup,
    told: StreamsTold,
    beside: str,
) -> StreamsGroupHeartbeatResponse:
    """beside: what is said of internal topics that are missing."""
    response = StreamsGroupHeartbeatResponse(member_id=told.member_id, member_epoch=told.epoch)
    if request.member_epoch < JOIN:
        return response
    response.heartbeat_interval_ms = core.group_settings.in_force(
        request.group_id, STREAMS_HEARTBEAT
    )
    response.status = [
        StreamsGroupHeartbeatResponseStatus(
            status_code=status,
            status_detail=detail + (beside if status is Status.MISSING_INTERNAL_TOPICS else ""),
        )
        for status, detail in told.statuses
    ]
    if told.tasks is not None:
        response.active_tasks = task_rows(told.tasks.active)
        response.standby_tasks = task_rows(told.tasks.standby)
        response.warmup_tasks = []
    response.endpoint_information_epoch = group.endpoint_epoch
    is_news = group.endpoint_epoch > 0 and not group.members[told.member_id].knows_endpoints
    if is_news or group.endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = [
            StreamsGroupHeartbeatResponseEndpointToPartitions(
                user_endpoint=StreamsGroupEndpoint(host=endpoint.host, port=endpoint.port),
                active_partitions=_rows(active),
                standby_partitions=_rows(standby),
            )
            for endpoint, active, standby in partitions_by_endpoint(group, core.topics.all)
        ]
    return response


def task_rows(tasks: frozenset[Task]) -> list[StreamsGroupTaskIds]:
    """Tasks by subtopology."""
    return [
        StreamsGroupTaskIds(subtopology_id=name, partitions=numbers)
        for name, numbers in by_subtopology(tasks).items()
    ]


def _rows(found: TopicPartitions) -> list[StreamsGroupHeartbeatResponseTopicPartition]:
    return [
        StreamsGroupHeartbeatResponseTopicPartition(topic=name, partitions=numbers)
        for name, numbers in found.items()
    ]

"""KIP-848 groups on the wire: ConsumerGroupHeartbeat and ConsumerGroupDescribe.

What a request says of itself is checked here, what it says to its group in consumer_group.py.
A heartbeat is answered when what it tells its member is durable, which is at once where nothing
changed, and it is a member still; that who leaves is no member, when that is durable; a description
comes from memory.

A group is of the classic or of the consumer protocol; one without members becomes the other when a
member of that comes.  One with members becomes one of the consumer protocol when a member of that
joins, if it may and can (group_turning.py): else who joins is refused with 69 GROUP_ID_NOT_FOUND.

A heartbeat for a group that there is not is answered 25 UNKNOWN_MEMBER_ID, by which every client
joins again; Kafka says so of unknown members only, and 69 of unknown groups, by which the Java
client gives up.

Without `consumer` in group_protocols both requests are answered 35 UNSUPPORTED_VERSION, whatever
the rules say, and offered all the same, as by Kafka.  Members of before go with their sessions;
then their group becomes classic when a classic member comes.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from typing import Final
from uuid import uuid4

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
)

from ..call import Call
from ..core import Core
from ..groups.classic_members import METADATA_MAX
from ..groups.consumer_group import ConsumerGroup
from ..groups.consumer_members import Beat, ConsumerMember, Told, every_topic
from ..groups.group_keys import HEARTBEAT
from ..groups.member_epochs import JOIN, LEAVE_FOR_A_WHILE
from ..groups.member_sizes import consumer_size, names_size
from ..groups.server_assignors import ASSIGNORS, Partition
from ..groups.share_group import ShareMember
from ..groups.viewers import sight_of, viewer_of
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from ..refused import Refused, invalid_request
from .group_admin import GROUP_OPERATIONS
from .kept_answers import refuse_when_kept, when_kept
from .later_reply import LaterReply
from .member_rows import SortedNames, assignment_of, described_topics
from .metadata import NOT_ASKED
from .sign_of_life import check_waits

_MEMBER_CHOOSES_ID_SINCE: Final = 1  # KIP-1082
_TOPIC_BYTES: Final = 200
"""A row of a topic that somebody is told to read, and what it is encoded to."""
_PARTITION_BYTES: Final = 8
_TOPIC_OF: Final = itemgetter(0)
# Member types.
_CLASSIC: Final = 0
_CONSUMER: Final = 1


def consumer_group_heartbeat(
    core: Core, call: Call[ConsumerGroupHeartbeatRequest], slot: LaterReply
) -> None:
    """A member joins, lives, or leaves; what it is to read, when that changed."""
    request = call.request
    if not core.config.takes_consumer_groups:
        slot.answer(_refusal(ErrorCode.UNSUPPORTED_VERSION, None))
        return
    try:
        _check(request, call.version)
        if request.member_epoch >= JOIN:
            check_waits(call.peer)
        group = _group(core, request)
        beat = _beat(core, call)
        known = group.known(beat)
        check_room(core, request.group_id, beat, known)
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
    member = group.members.get(told.member_id)
    if member is not None:
        if known is not None and known is not member:  # a static member is back
            core.groups.room.put(request.group_id, known.member_id, 0)
        takes_room(core, request.group_id, beat, consumer_size(member))

    interval_ms = 0
    if request.member_epoch >= JOIN:
        interval_ms = core.group_settings.in_force(request.group_id, HEARTBEAT)

    def tell() -> None:
        if member is not None and not slot.done:  # it stays, and is there to be told
            group.was_told(monotonic_ms(), told.member_id, told.assignment)
            core.groups.look_by_then(group)
        size = assignment_size(told.assignment or ())
        slot.answer_in_turn(partial(_told, told, interval_ms), size)

    when_kept(core, group, told.member_id, tell, refuse)


def _refusal(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _told(told: Told, interval_ms: int) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if told.assignment is not None:
        assignment = assignment_of(told.assignment)
    return ConsumerGroupHeartbeatResponse(
        member_id=told.member_id,
        member_epoch=told.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
    )


def assignment_size(assignment: Iterable[Partition]) -> int:
    """What an answer with these partitions is reckoned at, in bytes."""
    topics = Counter(map(_TOPIC_OF, assignment))
    return len(topics) * _TOPIC_BYTES + topics.total() * _PARTITION_BYTES


def excess(names: Iterable[str] | None) -> str | None:
    """Why the names that a member subscribes to are too much to be kept: as of a classic one."""
    size = sum(map(len, names or ()))
    if size <= METADATA_MAX:
        return None
    return f"the names of the topics have {size} characters, limit {METADATA_MAX}"


def check_room(
    core: Core, group_id: str, beat: Beat, known: ConsumerMember | ShareMember | None
) -> None:
    """Raise Refused where there is no room for what a member says.  known: what it has said
    before, which stands where this says nothing."""
    room = core.groups.room
    if beat.epoch >= JOIN:
        member_id, said = beat.member_id, beat
        if known is not None:
            member_id, said = known.member_id, known.in_full(beat)
        room.check(group_id, member_id, consumer_size(said))
    if beat.names is not None:
        room.check(group_id, hash(beat.names), names_size(beat.names))


def takes_room(core: Core, group_id: str, beat: Beat, size: int) -> None:
    """A member says this.  size: of what it has said beside names."""
    if beat.epoch < JOIN:
        return
    core.groups.room.put(group_id, beat.member_id, size)
    if beat.names is not None:
        core.groups.room.put(group_id, hash(beat.names), names_size(beat.names))


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise Refused for a request that contradicts itself, or wants what there is not, in Kafka's
    words."""
    epoch = request.member_epoch
    subscribes = request.subscribed_topic_names is not None or (
        request.subscribed_topic_regex is not None
    )
    problem = None
    if _is_blank(request.group_id):
        problem = "GroupId can't be empty."
    elif _is_blank(request.instance_id):
        problem = "InstanceId can't be empty."
    elif _is_blank(request.rack_id):
        problem = "RackId can't be empty."
    elif epoch < LEAVE_FOR_A_WHILE:
        problem = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    elif _is_blank(request.member_id) and (epoch != JOIN or version >= _MEMBER_CHOOSES_ID_SINCE):
        problem = "MemberId can't be empty."
    elif epoch == LEAVE_FOR_A_WHILE and request.instance_id is None:
        problem = "InstanceId can't be null."
    elif epoch == JOIN and request.rebalance_timeout_ms < 0:
        problem = "RebalanceTimeoutMs must be provided in first request."
    elif epoch == JOIN and (request.topic_partitions is None or request.topic_partitions):
        problem = "TopicPartitions must be empty when (re-)joining."
    elif epoch == JOIN and not subscribes:
        either = "Either SubscribedTopicNames or SubscribedTopicRegex"
        problem = f"{either} must be non-null when (re-)joining."
    else:
        problem = excess(request.subscribed_topic_names)
    if problem is not None:
        raise invalid_request(problem)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def _group(core: Core, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    if request.member_epoch != JOIN:
        group = core.groups.get_consumer(request.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            raise Refused(code, f"group {request.group_id!r} does not know this member")
        return group
    return core.groups.obtain_consumer(request.group_id)


def _beat(core: Core, call: Call[ConsumerGroupHeartbeatRequest]) -> Beat:
    request = call.request
    names = request.subscribed_topic_names
    viewer = viewer_of(core.authorizer, call.peer)
    owned: frozenset[Partition] | None = None
    if request.topic_partitions is not None:
        said = [(topic.topic_id.bytes, topic.partitions) for topic in request.topic_partitions]
        owned = frozenset([(topic_id, index) for topic_id, indexes in said for index in indexes])
    return Beat(
        request.member_id or str(uuid4()),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        call.header.client_id or "",
        call.peer.address[0],
        request.rebalance_timeout_ms,
        None if names is None else frozenset(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        owned,
        sight_of(core.authorizer, viewer) if request.subscribed_topic_regex else every_topic,
        viewer,
        connection=call.peer.number,
    )


async def consumer_group_describe(
    core: Core, call: Call[ConsumerGroupDescribeRequest]
) -> ConsumerGroupDescribeResponse:
    """State, epochs, members with what they read and what they are to read."""
    operations = GROUP_OPERATIONS if call.request.include_authorized_operations else NOT_ASKED
    rows = []
    pace = Pace()
    for name in dict.fromkeys(call.request.group_ids):
        await pace.step()
        group = core.groups.get_consumer(name)
        if not core.config.takes_consumer_groups:
            row = _no_group(name, ErrorCode.UNSUPPORTED_VERSION)
        elif group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND if name else ErrorCode.INVALID_GROUP_ID
            row = _no_group(name, code, _absence(core, name))
        else:
            row = await _described(core, group, pace)
            row.authorized_operations = operations
        rows.append(row)
    return ConsumerGroupDescribeResponse(groups=rows)


def _no_group(
    name: str, code: ErrorCode, message: str | None = None
) -> ConsumerGroupDescribeResponseGroup:
    return ConsumerGroupDescribeResponseGroup(error_code=code, error_message=message, group_id=name)


def _absence(core: Core, name: str) -> str:
    """Why there is nothing to describe; the Java client says it of a group of neither protocol."""
    if core.groups.share_groups.has(name) or core.groups.get_streams(name) is not None:
        return f"Group {name} is not a consumer group."
    if core.groups.get(name) is None:
        return f"Group {name} not found."
    return f"the group {name!r} is none of the consumer protocol"


async def _described(
    core: Core, group: ConsumerGroup, pace: Pace
) -> ConsumerGroupDescribeResponseGroup:
    """A group as it is at one moment, however long it takes to put that into rows."""
    row = ConsumerGroupDescribeResponseGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.target.assignor,
        members=[],
    )
    seen = [
        (_member(one), one.names, (*one.assigned, *one.revoking), group.target.of(one.member_id))
        for one in group.members.values()
    ]
    sorted_names = SortedNames()
    for member, names, has, is_to_have in seen:
        member.subscribed_topic_names = sorted_names[names]
        member.assignment.topic_partitions = await described_topics(core, has, pace)
        await pace.step()
        member.target_assignment.topic_partitions = await described_topics(core, is_to_have, pace)
        row.members.append(member)
        await pace.step()
    return row


def _member(member: ConsumerMember) -> ConsumerGroupDescribeResponseMember:
    """Without its topics."""
    return ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=f"/{member.client_host}",
        subscribed_topic_names=[],
        subscribed_topic_regex=member.regex or "",
        assignment=DescribedAssignment(topic_partitions=[]),
        target_assignment=DescribedAssignment(topic_partitions=[]),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )

"""Share groups on the wire (KIP-932): ShareGroupHeartbeat and ShareGroupDescribe.

What a request says of itself is checked here, what it says to its group in share_group.py.  Both
are answered at once, from memory.

| refused with | |
|---|---|
| 42 INVALID_REQUEST | a request that contradicts itself |
| 69 GROUP_ID_NOT_FOUND | the group is of another kind: with members, or offsets |
| 25 UNKNOWN_MEMBER_ID | no member, as after a restart of the broker: it joins again |

Kafka says 69 of a share group that there is not, by which clients give up; here a heartbeat for
one is answered 25, as of consumer groups.  Without `share` in group_protocols both requests are
answered 35 UNSUPPORTED_VERSION, whatever the rules say, and offered all the same, as by Kafka.
"""

from functools import partial
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import DescribedAssignment
from segbroker.protocol.messages_share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseGroup,
    ShareGroupDescribeResponseMember,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

from ..call import Call
from ..core import Core
from ..groups.consumer_members import Beat, Told
from ..groups.group_keys import SHARE_HEARTBEAT
from ..groups.group_rounds import State
from ..groups.member_epochs import JOIN, LEAVE
from ..groups.member_sizes import share_size
from ..groups.share_assignor import SIMPLE
from ..groups.share_group import FIRST_EPOCH, ShareGroup, ShareMember
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from ..refused import Refused, invalid_request
from .consumer_group_apis import assignment_size, check_room, excess, takes_room
from .group_admin import GROUP_OPERATIONS
from .later_reply import LaterReply
from .member_rows import SortedNames, assignment_of, described_topics
from .metadata import NOT_ASKED
from .sign_of_life import check_waits

MEMBER_ID_MAX: Final = 36
"""Characters, as many as an UUID has in writing."""


def share_group_heartbeat(
    core: Core, call: Call[ShareGroupHeartbeatRequest], slot: LaterReply
) -> None:
    """A member joins, lives, or leaves; what it is to fetch from, when that changed."""
    request = call.request
    if not core.config.takes_share_groups:
        slot.answer(_refusal(ErrorCode.UNSUPPORTED_VERSION, None))
        return
    try:
        told = _heard(core, call)
    except Refused as exc:
        slot.answer(_refusal(exc.code, exc.message))
        return
    interval_ms = 0
    if told.epoch != LEAVE:
        interval_ms = core.group_settings.in_force(request.group_id, SHARE_HEARTBEAT)
    size = assignment_size(told.assignment or ())
    slot.answer_in_turn(partial(_told, told, interval_ms), size)


def _heard(core: Core, call: Call[ShareGroupHeartbeatRequest]) -> Told:
    """What a member is told.  Raises Refused."""
    request = call.request
    _check(request)
    if request.member_epoch >= JOIN:
        check_waits(call.peer)
    group = _group(core, request)
    beat = _beat(call)
    check_room(core, request.group_id, beat, group.members.get(beat.member_id))
    told = group.heartbeat(monotonic_ms(), beat, core.topics.all)
    if (member := group.members.get(told.member_id)) is not None:
        takes_room(core, request.group_id, beat, share_size(member))
    core.groups.share_groups.changed(group)
    return told


def _refusal(code: ErrorCode, message: str | None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def check_member_id(member_id: str | None) -> None:
    """Raise Refused for what no member of a share group can be called."""
    if not member_id or len(member_id) > MEMBER_ID_MAX:
        raise invalid_request("Invalid member id in the request.")


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise Refused for a request that contradicts itself."""
    check_member_id(request.member_id)
    problem = None
    if not request.member_id.strip():
        problem = "MemberId can't be empty."
    elif not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif request.member_epoch < LEAVE:
        problem = "MemberEpoch is invalid."
    elif request.member_epoch == JOIN and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    else:
        problem = excess(request.subscribed_topic_names)
    if problem is not None:
        raise invalid_request(problem)


def _group(core: Core, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    group_id = request.group_id
    if request.member_epoch == JOIN:
        return core.groups.obtain_share(group_id)
    core.groups.check_open()
    group = core.groups.share_groups.get(group_id)
    if group is None:
        code = ErrorCode.UNKNOWN_MEMBER_ID
        raise Refused(code, f"group {group_id!r} does not know this member")
    return group


def _beat(call: Call[ShareGroupHeartbeatRequest]) -> Beat:
    request = call.request
    names = request.subscribed_topic_names
    return Beat(
        request.member_id,
        request.member_epoch,
        rack_id=request.rack_id,
        client_id=call.header.client_id or "",
        client_host=call.peer.address[0],
        names=None if names is None else frozenset(names),
        connection=call.peer.number,
    )


def _told(told: Told, interval_ms: int) -> ShareGroupHeartbeatResponse:
    response = ShareGroupHeartbeatResponse(
        member_id=told.member_id, member_epoch=told.epoch, heartbeat_interval_ms=interval_ms
    )
    if told.assignment is not None:
        response.assignment = assignment_of(told.assignment)
    return response


async def share_group_describe(
    core: Core, call: Call[ShareGroupDescribeRequest]
) -> ShareGroupDescribeResponse:
    """State, epochs, members with what they fetch from."""
    operations = GROUP_OPERATIONS if call.request.include_authorized_operations else NOT_ASKED
    rows = []
    pace = Pace()
    for name in dict.fromkeys(call.request.group_ids):
        await pace.step()
        if not core.config.takes_share_groups:
            row = _row(name, ErrorCode.UNSUPPORTED_VERSION)
        elif core.groups.share_groups.has(name):
            row = await _described(core, name, pace)
            row.authorized_operations = operations
        elif not name:
            row = _row(name, ErrorCode.INVALID_GROUP_ID)
        else:
            is_other = core.groups.is_open and core.groups.exists(name)
            why = "is not a share group" if is_other else "not found"
            row = _row(name, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} {why}.")
        rows.append(row)
    return ShareGroupDescribeResponse(groups=rows)


def _row(
    name: str, code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> ShareGroupDescribeResponseGroup:
    return ShareGroupDescribeResponseGroup(error_code=code, error_message=message, group_id=name)


async def _described(core: Core, name: str, pace: Pace) -> ShareGroupDescribeResponseGroup:
    """A share group, as it is at one moment; one that nobody was in since the start begins to count
    its epochs anew."""
    row = _row(name)
    row.group_state, row.assignor_name = State.EMPTY.value, SIMPLE
    row.group_epoch = FIRST_EPOCH
    if (group := core.groups.share_groups.get(name)) is None:
        return row
    row.group_state = group.state
    row.group_epoch, row.assignment_epoch = group.epoch, group.assignment_epoch
    seen = [(_member(one), one.names, one.assigned) for one in group.members.values()]
    sorted_names = SortedNames()
    for member, names, has in seen:
        member.subscribed_topic_names = sorted_names[names]
        member.assignment.topic_partitions = await described_topics(core, has, pace)
        row.members.append(member)
        await pace.step()
    return row


def _member(member: ShareMember) -> ShareGroupDescribeResponseMember:
    """Without its topics."""
    return ShareGroupDescribeResponseMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=f"/{member.client_host}",
        subscribed_topic_names=[],
        assignment=DescribedAssignment(topic_partitions=[]),
    )

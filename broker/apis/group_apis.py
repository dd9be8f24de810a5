"""The requests of members of classic groups.

| api | answered |
|---|---|
| JoinGroup, SyncGroup | when the group is complete |
| Heartbeat, LeaveGroup | at once |

A LeaveGroup with thousands of members lets other requests have their turn.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

from ..call import Call
from ..core import Core
from ..groups.classic_members import METADATA_MAX
from ..groups.consumer_group import ConsumerGroup
from ..groups.group import Group
from ..groups.group_members import Joined, Joining, Member, Synced
from ..groups.member_sizes import WHOLE, classic_size
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from ..recording import recorded
from ..refused import Refused
from . import mixed_groups
from .later_reply import LaterReply
from .sign_of_life import said_ms

PROTOCOLS_MAX: Final = 100
"""Protocols of one JoinGroup: each is looked for in what every other member brings."""
_MEMBER_BYTES: Final = 300
"""A row of who leads a group, and what it is encoded to, beside what the member says."""
_ID_FIRST_SINCE: Final = 4  # JoinGroup: an id is given before a place (KIP-394)
_NO_NAME_SINCE: Final = 7  # JoinGroup: where there is no strategy its name is null
_SKIP_SINCE: Final = 9  # JoinGroup: a returning leader is told that nothing has to be assigned
_MEMBERS_SINCE: Final = 3  # LeaveGroup: a list
_LEAVING_AT_ONCE: Final = 200  # members of one LeaveGroup, before others have their turn
# From here on a SyncGroup names the protocol that it means.
_SYNC_NAMES_SINCE: Final = 5


def join_group(core: Core, call: Call[JoinGroupRequest], slot: LaterReply) -> None:
    """Join, and wait for the others."""
    request = call.request

    def joined(result: Joined) -> None:
        size = sum(_MEMBER_BYTES + len(metadata) for _, _, metadata in result.members)
        slot.answer_in_turn(partial(_joined, result, call.version), size)

    mixed = core.groups.get_mixed(request.group_id)
    if (refusal := _refusal(core, request, is_mixed=mixed is not None)) is not None:
        joined(refusal)
        return
    joining = _joining(core, call)
    group_id, room = request.group_id, core.groups.room
    before = request.member_id or _static_id(core, request)
    try:
        room.check(group_id, before, classic_size(joining))
        group = mixed if mixed is not None else core.groups.obtain(group_id)
    except Refused as exc:
        joined(Joined(exc.code, request.member_id))
        return
    if isinstance(group, ConsumerGroup):
        mixed_groups.join(core, group, joining, before, joined)
        return
    member = group.join(monotonic_ms(), joining, joined, said_ms=said_ms(core, call.peer))
    slot.on_abandoned = lambda: _abandoned(core, group, member, joined)
    if (said := member or group.members.get(request.member_id)) is not None:
        room.put(group_id, before, 0)  # a static member has another id now
        room.put(group_id, said.member_id, classic_size(said))
    core.groups.changed(group)


def _refusal(core: Core, request: JoinGroupRequest, *, is_mixed: bool) -> Joined | None:
    """Why somebody may not join, whatever the members are doing; None: nothing is wrong."""

    def refused(code: ErrorCode) -> Joined:
        return Joined(code, request.member_id)

    config = core.config
    if not request.group_id:
        return refused(ErrorCode.INVALID_GROUP_ID)
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        return refused(ErrorCode.INVALID_SESSION_TIMEOUT)
    if not is_mixed:
        try:
            core.groups.check_classic(request.group_id)
        except Refused as exc:
            return Joined(exc.code, "")  # not a word of the member: as Kafka
        if request.member_id and core.groups.get(request.group_id) is None:
            return refused(ErrorCode.UNKNOWN_MEMBER_ID)
    size = sum(len(protocol.metadata) for protocol in request.protocols)
    if len(request.protocols) > PROTOCOLS_MAX or size > METADATA_MAX:
        return refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return None


def _joining(core: Core, call: Call[JoinGroupRequest]) -> Joining:
    """What somebody says who joins."""
    request = call.request
    rebalance_ms = request.rebalance_timeout_ms
    if rebalance_ms < 0:  # version 0 has one time for both
        rebalance_ms = request.session_timeout_ms
    return Joining(
        request.member_id,
        request.group_instance_id,
        call.header.client_id or "",
        call.peer.address[0],
        request.session_timeout_ms,
        min(rebalance_ms, core.config.group_max_session_timeout_ms),
        request.protocol_type,
        {protocol.name: bytes(protocol.metadata) for protocol in request.protocols},
        call.version >= _ID_FIRST_SINCE,
        call.version >= _SKIP_SINCE,
        request.reason or "",
    )


def _joined(result: Joined, version: int) -> JoinGroupResponse:
    protocol = result.protocol
    return JoinGroupResponse(
        error_code=result.code,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name="" if protocol is None and version < _NO_NAME_SINCE else protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in result.members
        ],
    )


def _static_id(core: Core, request: JoinGroupRequest) -> str:
    """As which member somebody is known who comes back without its id; empty: nobody is."""
    instance_id = request.group_instance_id or ""
    if (mixed := core.groups.get_mixed(request.group_id)) is not None:
        return mixed.static.get(instance_id, "")
    group = core.groups.get(request.group_id)
    return "" if group is None else group.roster.by_instance.get(instance_id, "")


def _abandoned(core: Core, group: Group, member: Member | None, done: object) -> None:
    group.abandon(monotonic_ms(), member, done)
    core.groups.changed(group)


def sync_group(core: Core, call: Call[SyncGroupRequest], slot: LaterReply) -> None:
    """Bring the assignments, or wait for one."""
    request = call.request

    def synced(result: Synced) -> None:
        slot.answer_in_turn(partial(_synced, result), len(result.assignment))

    if call.version >= _SYNC_NAMES_SINCE and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        synced(Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    if (mixed := core.groups.get_mixed(request.group_id)) is not None:
        mixed_groups.sync(core, mixed, request, synced)
        return
    group = core.groups.get(request.group_id)
    if group is None:
        code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        synced(Synced(code))
        return
    size = sum(len(row.assignment) for row in request.assignments)
    try:
        core.groups.room.check(request.group_id, WHOLE, size)
    except Refused:  # the Java client gives up where a SyncGroup is answered by that code
        synced(Synced(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    member = group.sync(
        monotonic_ms(),
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {row.member_id: bytes(row.assignment) for row in request.assignments},
        synced,
    )
    slot.on_abandoned = lambda: _abandoned(core, group, member, synced)
    if request.assignments and member is not None:
        kept = sum(len(one.assignment) for one in group.members.values())
        core.groups.room.put(request.group_id, WHOLE, kept)
    core.groups.changed(group)


def _synced(result: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )


async def heartbeat(core: Core, call: Call[HeartbeatRequest]) -> HeartbeatResponse:
    """A member is alive."""
    request, heard_ms = call.request, said_ms(core, call.peer)
    if (mixed := core.groups.get_mixed(request.group_id)) is not None:
        return HeartbeatResponse(error_code=mixed_groups.heartbeat(core, mixed, request, heard_ms))
    group = core.groups.get(request.group_id)
    if group is None:
        code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        return HeartbeatResponse(error_code=code)
    code = group.heartbeat(
        heard_ms, request.member_id, request.group_instance_id, request.generation_id
    )
    core.groups.changed(group)
    return HeartbeatResponse(error_code=code)


async def leave_group(core: Core, call: Call[LeaveGroupRequest]) -> LeaveGroupResponse:
    """Members leave: one, or from version 3 on several with an answer each.

    Members of KIP-848's protocol leave by their heartbeats; here an administrator expels them.
    Classic members of such a group leave here.
    """
    request = call.request
    members = request.members
    if call.version < _MEMBERS_SINCE:
        members = [LeaveGroupRequestMember(member_id=request.member_id)]
    if not request.group_id and core.groups.get(request.group_id) is None:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    rows: list[LeaveGroupResponseMember] = []
    pace = Pace()
    for start in range(0, len(members), _LEAVING_AT_ONCE):
        some = await _leave(core, call, members[start : start + _LEAVING_AT_ONCE])
        if some is None:
            return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        rows += some
        await pace.step()
    if call.version < _MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=rows[0].error_code)
    return LeaveGroupResponse(members=rows)


async def _leave(
    core: Core, call: Call[LeaveGroupRequest], members: Sequence[LeaveGroupRequestMember]
) -> list[LeaveGroupResponseMember] | None:
    """Some members leave; None: it is not durable that they did."""
    group_id, by = call.request.group_id, call.header.client_id or ""
    group = core.groups.get(group_id)
    consumers = core.groups.get_consumer(group_id) if group is None else None
    leave = _no_member
    if group is not None:
        leave = group.leave
    elif consumers is not None:
        leave = consumers.expel
    rows = [
        LeaveGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=leave(
                monotonic_ms(), member.member_id, member.group_instance_id, member.reason or "", by
            ),
        )
        for member in members
    ]
    if group is not None:
        core.groups.changed(group)
    if consumers is not None:
        failure = await recorded(lambda done: core.groups.changed_and_kept(consumers, done))
        if failure is not None:
            return None
    return rows


def _no_member(now_ms: int, member_id: str, instance_id: str | None, said: str, by: str) -> int:
    return ErrorCode.UNKNOWN_MEMBER_ID

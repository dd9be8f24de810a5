"""Consumer groups on the wire: what the requests of a member ask of its group.

| api | answered |
|---|---|
| JoinGroup, SyncGroup | when the group is complete |
| Heartbeat, LeaveGroup | at once |
| OffsetCommit | when the offsets are durable |
| OffsetFetch, List, Describe | at once, from memory |
| DeleteGroups, OffsetDelete | when that is durable |

Requests that name thousands of groups, members or partitions let others have their turn.  A group
that DescribeGroups names twice is described once: an answer is as large as what there is, whatever
is asked.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from segbroker.protocol.consumer_protocol import subscribed_topics
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupRequestMember,
    LeaveGroupResponse,
    LeaveGroupResponseMember,
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseGroup,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    SyncGroupRequest,
    SyncGroupResponse,
)
from segbroker.segments.metadata.committed import ROWS_MAX

from ..call import Call
from ..core import Core
from ..groups.classic_members import METADATA_MAX
from ..groups.group import Group
from ..groups.group_members import Joined, Joining, Synced
from ..groups.group_rounds import State
from ..loop.loop_clock import monotonic_ms
from ..loop.pace import Pace
from ..recording import recorded
from ..refused import Refused
from . import mixed_groups
from .later_reply import LaterReply
from .metadata import NOT_ASKED
from .sign_of_life import said_ms

_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"
_SHARE: Final = "share"
_STREAMS: Final = "streams"
# Bits of Kafka's ACL operations that a group has: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS,
# ALTER_CONFIGS.
GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
PROTOCOLS_MAX: Final = 100
"""Protocols of one JoinGroup: each is looked for in what every other member brings."""
_ID_FIRST_SINCE: Final = 4  # JoinGroup: an id is given before a place (KIP-394)
_SKIP_SINCE: Final = 9  # JoinGroup: a returning leader is told that nothing has to be assigned
_MEMBERS_SINCE: Final = 3  # LeaveGroup: a list
_LEAVING_AT_ONCE: Final = 200  # members of one LeaveGroup, before others have their turn
_SAYS_UNKNOWN_SINCE: Final = 6  # DescribeGroups: an error beside the state Dead
# From here on a SyncGroup names the protocol that it means.
_SYNC_NAMES_SINCE: Final = 5


def join_group(core: Core, call: Call[JoinGroupRequest], slot: LaterReply) -> None:
    """Join, and wait for the others."""
    request = call.request
    config = core.config

    def refuse(code: ErrorCode) -> None:
        joined(Joined(code, request.member_id))

    def joined(result: Joined) -> None:
        slot.answer(
            JoinGroupResponse(
                error_code=result.code,
                generation_id=result.generation,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol
                if result.protocol is not None or call.version >= 7
                else "",
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
        )

    if not request.group_id:
        refuse(ErrorCode.INVALID_GROUP_ID)
        return
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        return
    mixed = core.groups.get_mixed(request.group_id)
    if request.member_id and mixed is None and core.groups.get(request.group_id) is None:
        refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        return
    size = sum(len(protocol.metadata) for protocol in request.protocols)
    if len(request.protocols) > PROTOCOLS_MAX or size > METADATA_MAX:
        refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    rebalance_ms = request.rebalance_timeout_ms
    if rebalance_ms < 0:  # version 0 has one time for both
        rebalance_ms = request.session_timeout_ms
    joining = Joining(
        request.member_id,
        request.group_instance_id,
        call.header.client_id or "",
        call.peer.address[0],
        request.session_timeout_ms,
        min(rebalance_ms, most),
        request.protocol_type,
        {protocol.name: bytes(protocol.metadata) for protocol in request.protocols},
        call.version >= _ID_FIRST_SINCE,
        call.version >= _SKIP_SINCE,
        request.reason or "",
    )
    if mixed is not None:
        mixed_groups.join(core, mixed, joining, joined)
        return
    try:
        group = core.groups.obtain(request.group_id)
    except Refused as exc:
        refuse(exc.code)
        return
    slot.on_abandoned = lambda: _abandoned(core, group, joined)
    group.join(monotonic_ms(), joining, joined, said_ms=said_ms(core, call.peer))
    core.groups.changed(group)


def _abandoned(core: Core, group: Group, done: object) -> None:
    group.abandon(monotonic_ms(), done)
    core.groups.changed(group)


def sync_group(core: Core, call: Call[SyncGroupRequest], slot: LaterReply) -> None:
    """Bring the assignments, or wait for one."""
    request = call.request

    def synced(result: Synced) -> None:
        slot.answer(
            SyncGroupResponse(
                error_code=result.code,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol,
                assignment=result.assignment,
            )
        )

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
    slot.on_abandoned = lambda: _abandoned(core, group, synced)
    group.sync(
        monotonic_ms(),
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {row.member_id: bytes(row.assignment) for row in request.assignments},
        synced,
    )
    core.groups.changed(group)


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


async def list_groups(core: Core, call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    """Every group, by state and type where asked."""
    states = {state.lower() for state in call.request.states_filter}
    types = {kind.lower() for kind in call.request.types_filter}
    found = []
    pace = Pace()
    shares = core.groups.share_groups.names()
    for name in sorted({*core.groups.names(), *shares, *core.transactions.table.groups}):
        await pace.step()
        if not (_exists(core, name) or core.groups.share_groups.has(name)):
            continue  # gone meanwhile
        row = _listed(core, name)
        is_wanted = not states or row.group_state.lower() in states
        if is_wanted and (not types or row.group_type in types):
            found.append(row)
    return ListGroupsResponse(groups=found)


def _exists(core: Core, name: str) -> bool:
    """Whether there is such a group: with members, offsets, or offsets that wait for the end of a
    transaction."""
    return core.groups.exists(name) or bool(core.transactions.table.waiting(name))


def _listed(core: Core, name: str) -> ListGroupsResponseGroup:
    """A row; a group that nobody was in since the start is a classic one without members, if it
    is no share group."""
    row = ListGroupsResponseGroup(
        group_id=name,
        protocol_type=core.groups.protocol_type(name),
        group_state=State.EMPTY.value,
        group_type=_CLASSIC,
    )
    if (group := core.groups.get(name)) is not None:
        row.group_state = group.state.value
    elif (consumer := core.groups.get_consumer(name)) is not None:
        row.group_state, row.group_type = consumer.state, _CONSUMER
    elif (streams := core.groups.get_streams(name)) is not None:
        row.group_state, row.group_type = streams.state, _STREAMS
    elif core.groups.share_groups.has(name):
        row.protocol_type = row.group_type = _SHARE
        if (share := core.groups.share_groups.get(name)) is not None:
            row.group_state = share.state
    return row


async def describe_groups(core: Core, call: Call[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    """State and members; an unknown group is Dead."""
    operations = GROUP_OPERATIONS if call.request.include_authorized_operations else NOT_ASKED
    rows = []
    pace = Pace()
    for name in dict.fromkeys(call.request.groups):
        await pace.step()
        is_classic = _exists(core, name) and core.groups.get_epochal(name) is None
        row = DescribeGroupsResponseGroup(
            group_id=name,
            group_state=(State.EMPTY if is_classic else State.DEAD).value,
            protocol_type=core.groups.protocol_type(name) if is_classic else "",
            protocol_data="",
            members=[],
            authorized_operations=operations,
        )
        rows.append(row)
        group = core.groups.get(name)
        if group is None:
            if row.group_state == State.DEAD.value and call.version >= _SAYS_UNKNOWN_SINCE:
                row.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                is_share = core.groups.share_groups.has(name)
                is_other = is_share or core.groups.get_streams(name) is not None
                why = "is not a classic group" if is_other else "not found"
                row.error_message = f"Group {name} {why}."
            continue
        row.group_state = group.state.value
        # Until the leader has spoken, and that is durable, there is a choice, but nothing that
        # follows from it.
        is_stable = group.state is State.STABLE
        row.protocol_data = group.protocol if is_stable else ""
        row.members = [
            DescribeGroupsResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=f"/{member.client_host}",
                member_metadata=member.protocols.get(row.protocol_data, b"") if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ]
    return DescribeGroupsResponse(groups=rows)


async def delete_groups(core: Core, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    """Delete groups without members, and their offsets."""
    rows = []
    pace = Pace()
    for name in call.request.groups_names:
        await pace.step()
        try:
            code = await _deleted(core, name)
        except Refused as exc:  # the broker has ended meanwhile
            code = exc.code
        if not code:
            core.groups.lines.tell("group_deleted", name, group=name)
        rows.append(DeleteGroupsResponseGroup(group_id=name, error_code=code))
    return DeleteGroupsResponse(results=rows)


async def _deleted(core: Core, name: str) -> ErrorCode:
    if core.groups.share_groups.has(name):
        return await _deleted_share(core, name)
    is_staged = bool(core.transactions.table.waiting(name))
    if core.groups.members_count(name):
        return ErrorCode.NON_EMPTY_GROUP
    if not (core.groups.exists(name) or is_staged):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if is_staged:
        if code := await core.transactions.unstage(name, None):
            return code
        if core.groups.members_count(name):  # somebody joined meanwhile
            return ErrorCode.NON_EMPTY_GROUP
    code = await _forget(core, name, None)
    if not code and core.groups.is_open and not core.groups.members_count(name):
        await recorded(lambda done: core.groups.remove(name, done))  # nobody joined meanwhile
    return code


async def _deleted_share(core: Core, name: str) -> ErrorCode:
    """Delete a share group without members, and what is known of its records."""
    core.groups.check_open()
    group = core.groups.share_groups.get(name)
    if group is not None and group.members:
        return ErrorCode.NON_EMPTY_GROUP
    core.groups.share_groups.remove(name)
    failure = await recorded(lambda done: core.shares.forget(name, None, done))
    return ErrorCode.NONE if failure is None else ErrorCode.COORDINATOR_NOT_AVAILABLE


async def offset_delete(core: Core, call: Call[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    """Forget offsets of topics that no member is subscribed to.

    Many are forgotten as if it were several requests, ROWS_MAX partitions each.
    """
    request = call.request
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
    response = OffsetDeleteResponse(topics=[])
    named: list[_Named] = []
    pace = Pace()
    for topic in request.topics:
        answered = OffsetDeleteResponseTopic(name=topic.name, partitions=[])
        response.topics.append(answered)
        for one in topic.partitions:
            row = OffsetDeleteResponsePartition(partition_index=one.partition_index)
            answered.partitions.append(row)
            if core.topics.exists(topic.name, one.partition_index):
                named.append(_Named(topic.name, row))
            else:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await pace.step()
    staged = core.transactions.table.pending(request.group_id)
    if not (core.groups.exists(request.group_id) or staged):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, topics=[])
    for begin in range(0, max(len(named), 1), ROWS_MAX):
        code = await _forget_named(core, request.group_id, named[begin : begin + ROWS_MAX])
        if code:
            return OffsetDeleteResponse(error_code=code, topics=[])
        await pace.step()
    return response


class _Named(NamedTuple):
    """A partition of which the offset is to be forgotten, and its row of the answer."""

    topic: str
    row: OffsetDeleteResponsePartition


async def _forget_named(core: Core, group_id: str, named: list[_Named]) -> ErrorCode:
    """Forget these, or say in their rows why not; or why none of them."""
    code, forgotten = _forgettable(core, group_id, named)
    if gone := core.transactions.table.pending(group_id).intersection(forgotten):
        if code := await core.transactions.unstage(group_id, gone):
            return code
        code, forgotten = _forgettable(core, group_id, named)
    # From the look at its members on to the storing nobody joins.
    if code or not forgotten:
        return code
    return await _forget(core, group_id, forgotten)


def _forgettable(
    core: Core, group_id: str, named: list[_Named]
) -> tuple[ErrorCode, list[tuple[str, int]]]:
    """Why nothing is forgotten; or (topic, partition) of what may be: other rows say why not."""
    group = core.groups.get(group_id)
    if group is not None and group.members and group.protocol_type != _CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP, []
    is_subscribed = _subscribed(group)
    consumer = core.groups.get_consumer(group_id)
    is_read = None if consumer is None else consumer.target.reader(consumer.members.values())
    if (streams := core.groups.get_streams(group_id)) is not None:
        is_subscribed = streams.reads
    codes: dict[str, ErrorCode] = {}
    forgotten: list[tuple[str, int]] = []
    for topic, row in named:
        if topic not in codes:
            meta = core.topics.get(topic)
            is_used = is_subscribed(topic) or (is_read and meta and is_read(topic, meta.topic_id))
            codes[topic] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_used else ErrorCode.NONE
        row.error_code = codes[topic]
        if not row.error_code:
            forgotten.append((topic, row.partition_index))
    return ErrorCode.NONE, forgotten


def _subscribed(group: Group | None) -> Callable[[str], bool]:
    """Whether members of a group are subscribed to a topic; so they are to each where it cannot be
    read what one of them says."""
    found: set[str] = set()
    if group is not None:
        for member in group.members.values():
            for metadata in member.protocols.values():
                topics = subscribed_topics(metadata)
                if topics is None:
                    return lambda _: True
                found |= topics
    return found.__contains__


async def _forget(core: Core, name: str, rows: list[tuple[str, int]] | None) -> ErrorCode:
    failure = await recorded(lambda done: core.groups.forget(name, rows, done))
    return ErrorCode.NONE if failure is None else ErrorCode.COORDINATOR_NOT_AVAILABLE

"""Administration of groups: which there are, what they do, and how they are deleted.

| api | answered |
|---|---|
| ListGroups, DescribeGroups | at once, from memory |
| DeleteGroups, OffsetDelete | when the deletion is durable |

ListGroups and DeleteGroups cover groups of every type, DescribeGroups classic ones only.  A request
that names thousands of groups or partitions lets other requests have their turn.  A group that
DescribeGroups names twice is described once, so that the size of an answer is limited by what
exists, not by what is asked.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import trio

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
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseGroup,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from segbroker.segments.metadata.committed import NOWHERE, ROWS_MAX

from ..call import Call
from ..core import Core
from ..groups.all_names import in_order
from ..groups.group import Group
from ..groups.group_lines import OFFSETS_DELETED
from ..groups.group_rounds import State
from ..loop.pace import Pace
from ..recording import recorded
from ..refused import Refused
from ..settling import Settling
from .metadata import NOT_ASKED

TOGETHER_MAX: Final = 100
"""Groups of one request that are being deleted at a time."""
_CONSUMER: Final = "consumer"
_CLASSIC: Final = "classic"
_SHARE: Final = "share"
_STREAMS: Final = "streams"
# Bits of Kafka's ACL operations that a group has: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS,
# ALTER_CONFIGS.
GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
_SAYS_UNKNOWN_SINCE: Final = 6  # DescribeGroups: an error beside the state Dead


async def list_groups(core: Core, call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    """Every group, by state and type where asked."""
    states = {state.lower() for state in call.request.states_filter}
    types = {kind.lower() for kind in call.request.types_filter}
    found = []
    pace = Pace()
    groups = core.groups
    places = [*groups.places(), *groups.share_groups.places(), core.transactions.table.groups]
    for name in await in_order(places, pace):
        await pace.step()
        if not (_exists(core, name) or core.groups.share_groups.has(name)):
            continue  # gone meanwhile
        row = listed(core, name)
        is_wanted = not states or row.group_state.lower() in states
        if is_wanted and (not types or row.group_type in types):
            found.append(row)
    return ListGroupsResponse(groups=found)


def _exists(core: Core, name: str) -> bool:
    """Whether there is such a group: with members, offsets, or offsets that wait for the end of a
    transaction."""
    return core.groups.exists(name) or core.transactions.table.has_offsets(name)


def listed(core: Core, name: str) -> ListGroupsResponseGroup:
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
                row.authorized_operations = NOT_ASKED
                is_share = core.groups.share_groups.has(name)
                is_other = is_share or core.groups.get_epochal(name) is not None
                why = "is not a classic group" if is_other else "not found"
                row.error_message = f"Group {name} {why}."
            continue
        row.group_state = group.state.value
        # Until the leader has spoken, and that is durable, there is a choice, but nothing that
        # follows from it: members have what they were told before.
        is_stable = group.state is State.STABLE
        row.protocol_data = group.protocol if is_stable else ""
        row.members = [
            DescribeGroupsResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=f"/{member.client_host}",
                member_metadata=member.protocols.get(row.protocol_data, b"") if is_stable else b"",
                member_assignment=member.held,
            )
            for member in group.members.values()
        ]
    return DescribeGroupsResponse(groups=rows)


async def delete_groups(core: Core, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    """Delete groups without members and their offsets; TOGETHER_MAX at a time share syncs."""
    rows: list[DeleteGroupsResponseGroup] = []
    by_name: dict[str, list[DeleteGroupsResponseGroup]] = {}
    pace = Pace()
    for name in call.request.groups_names:
        await pace.step()
        row = DeleteGroupsResponseGroup(group_id=name)
        rows.append(row)
        by_name.setdefault(name, []).append(row)
    names, asker, settling = list(by_name), call.peer.asker, Settling(core)
    for begin in range(0, len(names), TOGETHER_MAX):
        async with trio.open_nursery() as nursery:
            for name in names[begin : begin + TOGETHER_MAX]:
                nursery.start_soon(_delete, core, by_name[name], asker, settling)
    return DeleteGroupsResponse(results=rows)


async def _delete(
    core: Core,
    rows: list[DeleteGroupsResponseGroup],
    asker: Mapping[str, str],
    settling: Settling,
) -> None:
    """Delete the group of these rows; what is named again is not there any more."""
    for row in rows:
        try:
            row.error_code = await _deleted(core, row.group_id, settling)
        except Refused as exc:  # the broker has ended meanwhile
            row.error_code = exc.code
        if not row.error_code:
            core.groups.lines.tell("group_deleted", row.group_id, group=row.group_id, **asker)


async def _deleted(core: Core, name: str, settling: Settling) -> ErrorCode:
    if core.groups.share_groups.has(name):
        return await _deleted_share(core, name)
    is_staged = core.transactions.table.has_offsets(name)
    if core.groups.members_count(name):
        return ErrorCode.NON_EMPTY_GROUP
    if not (core.groups.exists(name) or is_staged):
        return await _not_there(settling)
    if is_staged:
        if code := await core.transactions.unstage(name, None):
            return code
        if core.groups.members_count(name):  # somebody joined meanwhile
            return ErrorCode.NON_EMPTY_GROUP
    code = await _forget(core, name, None)
    if not code and core.groups.is_open and not core.groups.members_count(name):
        await recorded(lambda done: core.groups.remove(name, done))  # nobody joined meanwhile
    return code


async def _not_there(settling: Settling) -> ErrorCode:
    """What is said of a group that is not there, nor behind a crash."""
    try:
        await settling.check_group()
    except Refused as exc:
        return exc.code
    return ErrorCode.GROUP_ID_NOT_FOUND


async def _deleted_share(core: Core, name: str) -> ErrorCode:
    """Delete a share group without members, and what is known of its records."""
    core.groups.check_open()
    group = core.groups.share_groups.get(name)
    if group is not None and group.members:
        return ErrorCode.NON_EMPTY_GROUP
    if group is not None and group.is_idle:  # else it begins anew, and nobody gets its name
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
        return OffsetDeleteResponse(error_code=await _not_there(Settling(core)), topics=[])
    for begin in range(0, max(len(named), 1), ROWS_MAX):
        code = await _forget_named(core, call, named[begin : begin + ROWS_MAX])
        if code:
            return OffsetDeleteResponse(error_code=code, topics=[])
        await pace.step()
    return response


class _Named(NamedTuple):
    """A partition of which the offset is to be forgotten, and its row of the answer."""

    topic: str
    row: OffsetDeleteResponsePartition


async def _forget_named(
    core: Core, call: Call[OffsetDeleteRequest], named: list[_Named]
) -> ErrorCode:
    """Forget these, or say in their rows why not; or why none of them."""
    group_id = call.request.group_id
    code, forgotten = _forgettable(core, group_id, named)
    if gone := core.transactions.table.pending(group_id).intersection(forgotten):
        if code := await core.transactions.unstage(group_id, gone):
            return code
        code, forgotten = _forgettable(core, group_id, named)
    # From the look at its members on to the storing nobody joins.
    if code or not forgotten:
        return code
    group = core.groups.in_hand(group_id)
    topics = _stood_in(core, group_id, forgotten)
    if code := await _forget(core, group_id, forgotten):
        return code
    if topics:
        core.groups.lines.offsets(OFFSETS_DELETED, group_id, topics, call.peer.asker)
    if group is not None:
        core.groups.stays_empty(group)
    return ErrorCode.NONE


def _forgettable(
    core: Core, group_id: str, named: list[_Named]
) -> tuple[ErrorCode, list[tuple[str, int]]]:
    """Why nothing is forgotten; or (topic, partition) of what may be: other rows say why not."""
    group = core.groups.get(group_id)
    if group is not None and group.members and group.protocol_type != _CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP, []
    is_subscribed = _subscribed(group)
    consumer = core.groups.get_consumer(group_id)
    is_read = None if consumer is None else consumer.target.reader()
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


def _stood_in(core: Core, group_id: str, rows: list[tuple[str, int]]) -> set[str]:
    """The topics of these partitions in which the group stands somewhere."""
    known = {
        topic: core.groups.offsets(group_id, topic, meta.topic_id)
        for topic in {topic for topic, _ in rows}
        if (meta := core.topics.get(topic)) is not None
    }
    return {topic for topic, index in rows if topic in known and known[topic].at(index) != NOWHERE}


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

"""What an admin client asks about groups of all kinds, as calls (see engine).

The assignments of consumers are opened for showing:
`range`, `roundrobin`, `sticky` and `cooperative-sticky` all carry the same bytes.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from segbroker.protocol.consumer_protocol import assigned_partitions
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
)
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from segbroker.protocol.messages_share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseGroup,
)
from segbroker.protocol.messages_streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescribeResponseGroup,
)
from segbroker.protocol.schema import Message

from .asking import look
from .coordinator import GROUP_KEY, Coordinator
from .engine import Call, Engine
from .errors import UnsupportedByBroker, check_code
from .group_offsets import OUTSIDE, CommittedOffset, as_offsets, commit_offsets, fetch_offsets
from .records import ByPartition, TopicPartition

DEAD: Final = "Dead"
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
_STREAMS_ASSIGNOR: Final = "sticky"
"""The one of every broker; the answer does not say it."""
_NO_SUCH_GROUP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Nor is there one where the broker is told to have none."""


class GroupListing(NamedTuple):
    """A group, as a list has it.  `state` is empty where the broker does not say, `protocol_type`
    where nobody was ever in it."""

    group_id: str
    state: str
    protocol_type: str
    group_type: str = ""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and what it reads; `instance_id` of a static one."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members; state Dead: there is none.

    `protocol` is the assignor it agreed on; `protocol_type` what it is a group of, "consumer" but
    for share groups, streams groups and others' kinds ("connect"), empty where nobody was ever in
    it.  In a share group several members may read one partition.  In a streams group a member reads
    what its active tasks read.
    """

    group_id: str
    state: str
    protocol: str
    members: tuple[GroupMember, ...]
    group_type: str = CLASSIC
    protocol_type: str = "consumer"


def list_groups(engine: Engine) -> Call[list[GroupListing]]:
    """All groups of all brokers, by name."""

    def check(reply: ListGroupsResponse) -> None:
        check_code(reply.error_code, "list of groups")

    known = yield from look(engine, MetadataRequest(topics=[]), MetadataResponse)
    found = []
    for broker in known.brokers:
        to = broker.node_id
        reply = yield from look(engine, ListGroupsRequest(), ListGroupsResponse, check, to=to)
        found += [
            GroupListing(row.group_id, row.group_state, row.protocol_type, row.group_type.lower())
            for row in reply.groups
        ]
    return sorted(found)


def describe_group(engine: Engine, group_id: str) -> Call[GroupDescription]:
    """State and members of one group, whichever protocol its members speak."""
    described = yield from _maybe_describe_consumers(engine, group_id)
    if described is None:
        described = yield from _describe_classic(engine, group_id)
    for kind in (ShareGroupDescribeRequest, StreamsGroupDescribeRequest):
        if described.state == DEAD:
            request = kind(group_ids=[group_id], include_authorized_operations=False)
            described = (yield from _maybe_describe(engine, group_id, request)) or described
    return described


def _maybe_describe_consumers(engine: Engine, group_id: str) -> Call[GroupDescription | None]:
    """A group of the consumer protocol; None: it is none."""
    try:
        reply = yield from _ask(
            engine,
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
        )
    except UnsupportedByBroker:
        return None  # an older broker: all of its groups are classic
    assert isinstance(reply, ConsumerGroupDescribeResponse)
    (row,) = reply.groups
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check_code(row.error_code, f"group {group_id!r}")
    return _of_consumers(row)


def _maybe_describe(
    engine: Engine, group_id: str, request: ShareGroupDescribeRequest | StreamsGroupDescribeRequest
) -> Call[GroupDescription | None]:
    """A group of the type that is asked about; None: it is none."""
    try:
        reply = yield from _ask(engine, group_id, request)
    except UnsupportedByBroker:
        return None
    assert isinstance(reply, ShareGroupDescribeResponse | StreamsGroupDescribeResponse)
    (row,) = reply.groups
    if row.error_code in _NO_SUCH_GROUP:
        return None
    check_code(row.error_code, f"group {group_id!r}", row.error_message)
    if isinstance(row, StreamsGroupDescribeResponseGroup):
        return _of_streams(row)
    return _of_sharers(row)


def _describe_classic(engine: Engine, group_id: str) -> Call[GroupDescription]:
    """A classic group; state Dead: it is none."""
    reply = yield from _ask(engine, group_id, DescribeGroupsRequest(groups=[group_id]))
    assert isinstance(reply, DescribeGroupsResponse)
    (row,) = reply.groups
    check_code(row.error_code, f"group {group_id!r}")
    return GroupDescription(
        group_id,
        row.group_state,
        row.protocol_data,
        tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host.lstrip("/"),
                tuple(
                    sorted(
                        TopicPartition(*pair)
                        for pair in assigned_partitions(member.member_assignment) or ()
                    )
                ),
            )
            for member in row.members
        ),
        protocol_type=row.protocol_type,
    )


def _of_consumers(row: ConsumerGroupDescribeResponseGroup) -> GroupDescription:
    """A group of the consumer protocol (KIP-848)."""
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host.lstrip("/"),
            tuple(
                sorted(
                    TopicPartition(topic.topic_name, index)
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                )
            ),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, row.assignor_name, members, group_type=CONSUMER
    )


def _of_sharers(row: ShareGroupDescribeResponseGroup) -> GroupDescription:
    """A share group (KIP-932)."""
    members = tuple(
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host.lstrip("/"),
            tuple(
                sorted(
                    TopicPartition(topic.topic_name, index)
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                )
            ),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, row.assignor_name, members, SHARE, protocol_type=SHARE
    )


def _of_streams(row: StreamsGroupDescribeResponseGroup) -> GroupDescription:
    """A streams group (KIP-1071)."""
    subtopologies = () if row.topology is None else row.topology.subtopologies or ()
    reads = {
        one.subtopology_id: (
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        )
        for one in subtopologies
    }
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host.lstrip("/"),
            tuple(
                sorted(
                    TopicPartition(topic, number)
                    for task in member.assignment.active_tasks
                    for topic in reads.get(task.subtopology_id, ())
                    for number in task.partitions
                )
            ),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, _STREAMS_ASSIGNOR, members, STREAMS, protocol_type=STREAMS
    )


def committed(engine: Engine, group_id: str) -> Call[dict[TopicPartition, CommittedOffset]]:
    """Where a group stands, everywhere; empty for one that never committed."""
    coordinator = Coordinator(engine, group_id, GROUP_KEY)
    return fetch_offsets(coordinator, group_id, None, require_stable=False)


def commit(
    engine: Engine, group_id: str, offsets: ByPartition[int | CommittedOffset]
) -> Call[None]:
    """Put a group without members somewhere; all partitions or an error.

    Raises UnknownMemberId while it has members.
    """
    coordinator = Coordinator(engine, group_id, GROUP_KEY)
    stands = as_offsets(offsets)
    return commit_offsets(coordinator, OUTSIDE._replace(group_id=group_id), stands)


def delete_group(engine: Engine, group_id: str) -> Call[None]:
    """Delete a group without members and its offsets.  Raises NonEmptyGroup, GroupIdNotFound."""
    request = DeleteGroupsRequest(groups_names=[group_id])
    reply = yield from _ask(engine, group_id, request, repeat=False)
    assert isinstance(reply, DeleteGroupsResponse)
    check_code(reply.results[0].error_code, f"group {group_id!r}")


def _ask(engine: Engine, group_id: str, request: Message, *, repeat: bool = True) -> Call[Message]:
    """Ask the group's coordinator; not `repeat`: what changes something, see asking."""
    return Coordinator(engine, group_id, GROUP_KEY).ask(request, _codes, repeat=repeat)


def _codes(reply: Message) -> set[int]:
    """The error codes of a reply about one group."""
    match reply:
        case DescribeGroupsResponse():
            return {row.error_code for row in reply.groups}
        case ConsumerGroupDescribeResponse():
            return {row.error_code for row in reply.groups} - {ErrorCode.GROUP_ID_NOT_FOUND}
        case ShareGroupDescribeResponse() | StreamsGroupDescribeResponse():
            return {row.error_code for row in reply.groups} - _NO_SUCH_GROUP
        case DeleteGroupsResponse():
            return {row.error_code for row in reply.results}
        case _:
            return set()

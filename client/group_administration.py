"""What an admin client asks about consumer groups, as calls (see engine).

A group has one broker, its coordinator, that knows it: it is looked up first, and again when the
answer says that it is another one by now.  The assignments of consumers are opened for showing:
`range`, `roundrobin`, `sticky` and `cooperative-sticky` all carry the same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from segbroker.protocol.consumer_protocol import assigned_partitions
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse
from segbroker.protocol.messages_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from segbroker.protocol.schema import Message

from .backoff import Backoff
from .engine import Ask, AskAll, Call, Engine, Pause
from .errors import BrokerError, SegbrokerError, broker_error
from .records import TopicPartition

DEAD: Final = "Dead"
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class GroupListing(NamedTuple):
    """A group, as a list has it.  `state` is empty where the broker does not say."""

    group_id: str
    state: str
    protocol_type: str


class CommittedOffset(NamedTuple):
    """Where a group stands in a partition."""

    offset: int
    leader_epoch: int
    metadata: str


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
    """A group and its members; state Dead: there is none."""

    group_id: str
    state: str
    protocol: str
    members: tuple[GroupMember, ...]


def list_groups(engine: Engine) -> Call[list[GroupListing]]:
    """All groups of all brokers, by name."""
    known = yield Ask(MetadataRequest(topics=[]))
    assert isinstance(known, MetadataResponse)
    replies = yield AskAll([Ask(ListGroupsRequest(), to=row.node_id) for row in known.brokers])
    found = []
    for reply in replies:
        if isinstance(reply, SegbrokerError):
            raise reply
        assert isinstance(reply, ListGroupsResponse)
        _raise(reply.error_code, "list of groups")
        found += [
            GroupListing(row.group_id, row.group_state, row.protocol_type) for row in reply.groups
        ]
    return sorted(found)


def describe_group(engine: Engine, group_id: str) -> Call[GroupDescription]:
    """State and members of one group."""
    reply = yield from _ask(engine, group_id, DescribeGroupsRequest(groups=[group_id]))
    assert isinstance(reply, DescribeGroupsResponse)
    (row,) = reply.groups
    _raise(row.error_code, f"group {group_id!r}")
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
    )


def committed(engine: Engine, group_id: str) -> Call[dict[TopicPartition, CommittedOffset]]:
    """Where a group stands, everywhere; empty for one that never committed."""
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
    )
    reply = yield from _ask(engine, group_id, request)
    assert isinstance(reply, OffsetFetchResponse)
    _raise(reply.error_code, f"offsets of group {group_id!r}")
    for group in reply.groups:
        _raise(group.error_code, f"offsets of group {group_id!r}")
    found: dict[TopicPartition, CommittedOffset] = {}

    def add(topic: str, partition: int, stands: CommittedOffset) -> None:
        if stands.offset >= 0:
            found[TopicPartition(topic, partition)] = stands

    for one in reply.topics:
        for row in one.partitions:
            stands = CommittedOffset(
                row.committed_offset, row.committed_leader_epoch, row.metadata or ""
            )
            add(one.name, row.partition_index, stands)
    for group in reply.groups:
        for topic in group.topics:
            for part in topic.partitions:
                stands = CommittedOffset(
                    part.committed_offset, part.committed_leader_epoch, part.metadata or ""
                )
                add(topic.name, part.partition_index, stands)
    return found


def commit(engine: Engine, group_id: str, offsets: Mapping[TopicPartition, int]) -> Call[None]:
    """Put a group without members somewhere; all partitions or an error.

    Raises UnknownMemberId while it has members.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, partition), offset in offsets.items():
        topics.setdefault(name, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )
    reply = yield from _ask(engine, group_id, request)
    assert isinstance(reply, OffsetCommitResponse)
    for topic in reply.topics:
        for row in topic.partitions:
            _raise(row.error_code, f"group {group_id!r} in {topic.name}-{row.partition_index}")


def delete_group(engine: Engine, group_id: str) -> Call[None]:
    """Delete a group without members and its offsets.  Raises NonEmptyGroup, GroupIdNotFound."""
    reply = yield from _ask(engine, group_id, DeleteGroupsRequest(groups_names=[group_id]))
    assert isinstance(reply, DeleteGroupsResponse)
    _raise(reply.results[0].error_code, f"group {group_id!r}")


def _ask(engine: Engine, group_id: str, request: Message) -> Call[Message]:
    """Ask the group's coordinator, until it is one."""
    backoff = Backoff(engine.random, engine.settings.retry_backoff_ms, 1_000)
    while True:
        try:
            find = FindCoordinatorRequest(key=group_id, key_type=0, coordinator_keys=[group_id])
            found = yield Ask(find)
            assert isinstance(found, FindCoordinatorResponse)
            row = found.coordinators[0] if found.coordinators else found
            _raise(row.error_code, f"coordinator of group {group_id!r}")
            reply: Message = yield Ask(request, to=row.node_id)
            if not _ELSEWHERE & _codes(reply):
                return reply
        except BrokerError as exc:
            if exc.code not in _ELSEWHERE:
                raise
        yield Pause(backoff.next_delay_ms())


def _codes(reply: Message) -> set[int]:
    """The error codes of a reply about one group."""
    match reply:
        case DescribeGroupsResponse():
            return {row.error_code for row in reply.groups}
        case DeleteGroupsResponse():
            return {row.error_code for row in reply.results}
        case OffsetFetchResponse():
            return {reply.error_code, *(group.error_code for group in reply.groups)}
        case OffsetCommitResponse():
            return {row.error_code for topic in reply.topics for row in topic.partitions}
        case _:
            return set()


def _raise(code: int, about: str) -> None:
    if code != ErrorCode.NONE:
        raise broker_error(code, about, None)

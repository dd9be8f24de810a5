"""Where a group stands: reading and writing its committed offsets, as calls (see engine).

A member commits in its generation: when the group has moved on without it, the broker refuses
(IllegalGeneration, UnknownMemberId), so that a member that was given up for dead cannot move the
position of its successor.  Who is no member may commit only while the group has none.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from segbroker.protocol.schema import Message

from .backoff import Backoff
from .coordinator import Coordinator
from .engine import Call, Pause
from .errors import broker_error
from .records import ByPartition, TopicPartition, as_partition

Rows: TypeAlias = Mapping[
    TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponseGroupTopicPartition
]


class CommittedOffset(NamedTuple):
    """Where a group stands in a partition: the next record to be read.  Epoch -1: not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """Who commits: a member of a group in its generation."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


OUTSIDE: Final = GroupMetadata("")
"""Somebody who is no member."""


def as_offsets(
    offsets: ByPartition[int | CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    """What a caller gave: a plain number is the offset.  Raises TypeError, ValueError."""
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets are a {type(offsets).__name__}, not a dict of (topic, partition) to offset"
        )
    found = {}
    for pair, stands in offsets.items():
        if not isinstance(stands, int | CommittedOffset):
            raise TypeError(f"offset {stands!r} of {pair!r} is not an int")
        stands = CommittedOffset(stands) if isinstance(stands, int) else stands
        if stands.offset < 0:
            raise ValueError(f"offset {stands.offset} of {pair!r} is below 0")
        found[as_partition(pair)] = stands
    return found


def fetch_offsets(
    coordinator: Coordinator,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
) -> Call[dict[TopicPartition, CommittedOffset]]:
    """Where a group stands in these partitions (None: everywhere); without those it is not in.

    `require_stable`: wait for transactions that are about to move it.
    """
    names: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        names.setdefault(topic, []).append(partition)
    is_all = partitions is None
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=None
        if is_all
        else [OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in names.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=None
                if is_all
                else [
                    OffsetFetchRequestGroupTopic(name=n, partition_indexes=p)
                    for n, p in names.items()
                ],
            )
        ],
        require_stable=require_stable,
    )
    settings = coordinator.engine.settings
    backoff = Backoff(coordinator.engine.random, settings.retry_backoff_ms, 1_000)
    while True:
        reply = yield from coordinator.ask(request, _codes)
        assert isinstance(reply, OffsetFetchResponse)
        about = f"offsets of group {group_id!r}"
        rows = rows_of(reply.groups[0].topics if reply.groups else reply.topics)
        codes = _codes(reply) | {row.error_code for row in rows.values()}
        codes.discard(ErrorCode.NONE)
        if not codes:
            return stands_of(rows)
        error = broker_error(min(codes), about)
        if not error.retryable:
            raise error
        yield Pause(backoff.next_delay_ms(), error)


def rows_of(
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseGroupTopic],
) -> Rows:
    """The rows of a group, by partition."""
    return {
        TopicPartition(topic.name, row.partition_index): row
        for topic in topics
        for row in topic.partitions
    }


def stands_of(rows: Rows) -> dict[TopicPartition, CommittedOffset]:
    """Where the group stands, of rows without an error."""
    return {
        tp: CommittedOffset(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
        for tp, row in rows.items()
        if row.committed_offset >= 0
    }


def commit_offsets(
    coordinator: Coordinator,
    member: GroupMetadata,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> Call[None]:
    """Write them, all or an error: the first that was refused."""
    if not offsets:
        return
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, partition), stands in offsets.items():
        topics.setdefault(name, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=stands.offset,
                committed_leader_epoch=stands.leader_epoch,
                committed_metadata=stands.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )
    reply = yield from coordinator.ask(request, _codes)
    assert isinstance(reply, OffsetCommitResponse)
    for topic in reply.topics:
        for row in topic.partitions:
            if row.error_code != ErrorCode.NONE:
                about = f"group {member.group_id!r} in {topic.name}-{row.partition_index}"
                raise broker_error(row.error_code, about)


def _codes(reply: Message) -> set[int]:
    if isinstance(reply, OffsetFetchResponse):
        return {reply.error_code, *(group.error_code for group in reply.groups)}
    assert isinstance(reply, OffsetCommitResponse)
    return {row.error_code for topic in reply.topics for row in topic.partitions}

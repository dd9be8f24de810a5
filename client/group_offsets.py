"""Where a group stands: reading and writing its committed offsets, as calls (see engine).

A member commits in its generation, or at its epoch: when the group has moved on without it, the
broker refuses (IllegalGeneration, UnknownMemberId), so that a member that was given up for dead
cannot move the position of its successor.  Who is no member may commit only while the group has
none.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
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

from .asking import is_for_now, unsaid
from .coordinator import Coordinator, codes_in
from .engine import Call, Pause, Refresh
from .errors import broker_error
from .records import ByPartition, TopicPartition, as_partition, grouped
from .spoken import ById

Rows: TypeAlias = Mapping[
    TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponseGroupTopicPartition
]


# What a member is told that its group has at another epoch, or not any more: it hears of that.
_OF_BEFORE: Final = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


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
    topic_ids: dict[str, UUID] | None = None,
    member: Callable[[], GroupMetadata] | None = None,
) -> Call[dict[TopicPartition, CommittedOffset]]:
    """Where a group stands in these partitions (None: everywhere); without those it is not in.

    `require_stable`: wait for transactions that are about to move it.
    `topic_ids`: gets the ids of the topics that the answer is of, as far as broker and cluster view
    know them: one that is made later under a name is another.  None: it is asked by name.
    `member`: as whom it is asked; who is not known so by the group, or not yet at its epoch, waits
    until it is.  None: as anybody.
    """
    names = None if partitions is None else grouped(partitions)
    cluster = coordinator.engine.cluster
    backoff = coordinator.engine.backoff()
    while True:
        ids: dict[str, UUID] = {}
        if topic_ids is not None:
            # Of one that is gone the broker knows no id; nor does anybody stand in it.
            there = [name for name in names or () if not cluster.is_gone(name)]
            ids = {name: topic_id for name in there if (topic_id := cluster.topic_id(name)).int}
        asks_as = GroupMetadata(group_id) if member is None else member()
        request = _offsets_request(asks_as, names, ids, require_stable=require_stable)
        is_by_id = names is not None and ids.keys() == names.keys()
        reply = yield from coordinator.ask(ById(request) if is_by_id else request)
        assert isinstance(reply, OffsetFetchResponse)
        about = f"offsets of group {group_id!r}"
        if reply.groups:
            _name_topics(reply.groups[0].topics, {ids[name]: name for name in ids})
        rows = rows_of(reply.groups[0].topics if reply.groups else reply.topics)
        codes = codes_in([reply]) - {ErrorCode.NONE}
        if not codes:
            if lacking := set(partitions or ()) - rows.keys():
                # Not "nowhere": it would be read from elsewhere.
                raise unsaid(f"{about} in {first_of(lacking)}")
            if topic_ids is not None and reply.groups:
                topic_ids |= {one.name: one.topic_id for one in reply.groups[0].topics}
            return stands_of(rows)
        error = broker_error(min(codes), about)
        is_of_before = asks_as.generation >= 0 and bool(codes & _OF_BEFORE)
        if not error.retryable and not is_of_before:
            raise error
        if ErrorCode.UNKNOWN_TOPIC_ID in codes:
            yield Refresh(list(ids))
        yield Pause(backoff.next_delay_ms(), error)


def _offsets_request(
    asks_as: GroupMetadata,
    names: Mapping[str, list[int]] | None,
    ids: Mapping[str, UUID],
    *,
    require_stable: bool,
) -> OffsetFetchRequest:
    """names: the partitions of each topic; None: all."""
    single: list[OffsetFetchRequestTopic] | None = None
    topics: list[OffsetFetchRequestGroupTopic] | None = None
    if names is not None:
        single = [OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in names.items()]
        topics = [
            OffsetFetchRequestGroupTopic(
                name=name, topic_id=ids.get(name, ZERO_UUID), partition_indexes=partitions
            )
            for name, partitions in names.items()
        ]
    return OffsetFetchRequest(
        group_id=asks_as.group_id,
        topics=single,
        groups=[
            OffsetFetchRequestGroup(
                group_id=asks_as.group_id,
                member_id=asks_as.member_id or None,
                member_epoch=asks_as.generation,
                topics=topics,
            )
        ],
        require_stable=require_stable,
    )


def first_of(partitions: Iterable[tuple[str, int]]) -> str:
    """One of them, for a message."""
    topic, partition = min(partitions)
    return f"{topic}-{partition}"


def _name_topics(
    topics: Iterable[OffsetFetchResponseGroupTopic | OffsetCommitResponseTopic],
    names: Mapping[UUID, str],
) -> None:
    """Fill in the names of what was asked, and so answered, by id."""
    for topic in topics:
        topic.name = topic.name or names.get(topic.topic_id, "")


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
    topic_ids: Mapping[TopicPartition, UUID] = MappingProxyType({}),
) -> Call[None]:
    """Write them, all or an error: the first that was refused, of those for good if there are any.

    `topic_ids`: of the topics that the offsets are of; with those of all of them, and a broker that
    takes them, one that was made again meanwhile refuses them (UnknownTopicId), the others do not.
    """
    if not offsets:
        return
    topics: dict[tuple[str, UUID], list[OffsetCommitRequestPartition]] = {}
    for tp, stands in offsets.items():
        topics.setdefault((tp.topic, topic_ids.get(tp, ZERO_UUID)), []).append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
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
            OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=rows)
            for (name, topic_id), rows in topics.items()
        ],
    )
    is_by_id = all(topic_id.int for _, topic_id in topics)
    reply = yield from coordinator.ask(ById(request) if is_by_id else request)
    assert isinstance(reply, OffsetCommitResponse)
    _name_topics(reply.topics, {topic_id: name for name, topic_id in topics})
    about = f"not committed: group {member.group_id!r} in"
    said = {(topic.name, row.partition_index) for topic in reply.topics for row in topic.partitions}
    if lacking := offsets.keys() - said:
        raise unsaid(f"commit of group {member.group_id!r} in {first_of(lacking)}")
    errors = [
        broker_error(
            _code_of(row.error_code, member), f"{about} {topic.name}-{row.partition_index}"
        )
        for topic in reply.topics
        for row in topic.partitions
        if row.error_code != ErrorCode.NONE
    ]
    if errors:
        raise next((error for error in errors if not is_for_now(error)), errors[0])


def _code_of(code: int, member: GroupMetadata) -> int:
    """By names a member of a group that is gone is of another generation; by ids (as from version
    9 on) there is no such group."""
    if code == ErrorCode.GROUP_ID_NOT_FOUND and member.generation >= 0:
        return ErrorCode.ILLEGAL_GENERATION
    return code

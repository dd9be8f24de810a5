"""Groups of all kinds, as an admin client shows them.

The assignments of members of classic groups are opened for showing:
`range`, `roundrobin`, `sticky` and `cooperative-sticky` all carry the same bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Final, Protocol

from segbroker.protocol.consumer_protocol import assigned_partitions
from segbroker.protocol.messages_consumer_groups import ConsumerGroupDescribeResponseGroup
from segbroker.protocol.messages_groups import DescribeGroupsResponseGroup
from segbroker.protocol.messages_share_groups import ShareGroupDescribeResponseGroup
from segbroker.protocol.messages_streams_groups import StreamsGroupDescribeResponseGroup

from .records import TopicPartition

DEAD: Final = "Dead"
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
_STREAMS_ASSIGNOR: Final = "sticky"
"""The one of every broker; the answer does not say it."""


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


def of_classic(row: DescribeGroupsResponseGroup) -> GroupDescription:
    """A classic group; state Dead: it is none."""
    members = tuple(
        _member(
            member,
            member.group_instance_id,
            starmap(TopicPartition, assigned_partitions(member.member_assignment) or ()),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id,
        row.group_state,
        row.protocol_data,
        members,
        protocol_type=row.protocol_type,
    )


def of_consumers(row: ConsumerGroupDescribeResponseGroup) -> GroupDescription:
    """A group of the consumer protocol (KIP-848)."""
    members = tuple(
        _member(member, member.instance_id, _of_topics(member.assignment.topic_partitions))
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, row.assignor_name, members, group_type=CONSUMER
    )


def of_sharers(row: ShareGroupDescribeResponseGroup) -> GroupDescription:
    """A share group (KIP-932)."""
    members = tuple(
        _member(member, None, _of_topics(member.assignment.topic_partitions))
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, row.assignor_name, members, SHARE, protocol_type=SHARE
    )


def of_streams(row: StreamsGroupDescribeResponseGroup) -> GroupDescription:
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
        _member(
            member,
            member.instance_id,
            (
                TopicPartition(topic, number)
                for task in member.assignment.active_tasks
                for topic in reads.get(task.subtopology_id, ())
                for number in task.partitions
            ),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, _STREAMS_ASSIGNOR, members, STREAMS, protocol_type=STREAMS
    )


class _Row(Protocol):
    """What the rows of members have in common."""

    member_id: str
    client_id: str
    client_host: str


class _Topic(Protocol):
    """Partitions of a topic, as those have them who are given topics."""

    topic_name: str
    partitions: list[int]


def _member(
    row: _Row, instance_id: str | None, partitions: Iterable[TopicPartition]
) -> GroupMember:
    host = row.client_host.lstrip("/")
    return GroupMember(row.member_id, instance_id, row.client_id, host, tuple(sorted(partitions)))


def _of_topics(topics: Iterable[_Topic]) -> Iterator[TopicPartition]:
    for topic in topics:
        for number in topic.partitions:
            yield TopicPartition(topic.topic_name, number)

"""What a member of a group subscribes to and reads, for the rows of an answer: in order, by topic.

A heartbeat names topics by their ids.  A description gives the names, too, so it leaves out what a
topic had that was deleted meanwhile.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from segbroker.protocol.messages_consumer_groups import (
    DescribedTopicPartitions,
    GroupAssignment,
    GroupTopicPartitions,
)

from ..core import Core
from ..groups.server_assignors import Partition
from ..loop.pace import Pace


class SortedNames(dict[frozenset[str], list[str]]):
    """The names of topics, sorted once: mostly all members of a group name the same thousands."""

    def __missing__(self, names: frozenset[str]) -> list[str]:
        found = self[names] = sorted(names)
        return found


def assignment_of(partitions: Iterable[Partition]) -> GroupAssignment:
    """What a heartbeat is told that it has."""
    return GroupAssignment(
        topic_partitions=[
            GroupTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(partitions)
        ]
    )


async def described_topics(
    core: Core, partitions: Iterable[Partition], pace: Pace
) -> list[DescribedTopicPartitions]:
    """What a member has, or is to have, for a description."""
    rows = []
    for topic_id, indexes in by_topic(partitions):
        if (meta := core.topics.by_id(topic_id)) is not None:
            rows.append(
                DescribedTopicPartitions(
                    topic_id=topic_id, topic_name=meta.name, partitions=indexes
                )
            )
            await pace.step()
    return rows


def by_topic(partitions: Iterable[Partition]) -> Iterator[tuple[UUID, list[int]]]:
    """Partitions as they travel: their numbers by topic, in order.

    Numbers are sorted in less than half of the time that as many pairs take.
    """
    found: dict[bytes, list[int]] = {}
    for topic_id, index in partitions:
        found.setdefault(topic_id, []).append(index)
    for topic_id, indexes in sorted(found.items()):
        indexes.sort()
        yield UUID(bytes=topic_id), indexes

"""Which committed offsets have had their time, as Kafka decides it since KIP-211.

| the group | its offsets go |
|---|---|
| nobody was ever in it | each `offsets_retention_minutes` after its own commit |
| nobody is in it any more | all, so long after its last commit and its last member |
| stable, of consumers | of topics that no member is subscribed to, so long after the commit |
| in a rebalance, or members of another kind (Connect) | not |
| any, and the topic is deleted | at the next look: nobody can ask for them any more |

So a group that reads another topic than it used to does not stand for ever in the old one, with a
lag that grows.  An offset that was committed with a time of its own (`retention_time_ms`, versions
2 to 4) goes when that is over, wherever one can go, earlier or later than the others.  One that a
transaction is about to replace stays until that has ended.
"""

from collections.abc import Callable, Collection, Generator
from typing import Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from segbroker.protocol.consumer_protocol import subscribed_topics
from segbroker.segments.metadata.committed import CommittedOffset, Content, all_of

from .consumer_group import ConsumerGroup
from .group import CONSUMER, Group
from .group_rounds import State
from .streams_group import StreamsGroup

ROWS_MAX: Final = 1_000
"""Offsets that are forgotten at once; the rest at the next look."""
AT_ONCE: Final = 2_000
"""Offsets that are looked at before others have their turn: some ms."""

AnyGroup: TypeAlias = Group | ConsumerGroup | StreamsGroup
"""Of those that commit offsets: no share group."""

T = TypeVar("T")
Look: TypeAlias = Generator[None, None, T]
"""Of a group that may have a hundred thousand: gone on with later, and then what it returns is of
what stood when it began."""


class Expiry(NamedTuple):
    """What is asked about one group now."""

    now_ms: int
    retention_ms: int
    pending: Collection[tuple[str, int]]
    """Partitions whose offset waits for the end of a transaction."""
    committing: Collection[str]
    """Topics of which a commit is on its way to the disk."""
    is_there: Callable[[str, UUID], bool]
    """Whether there is a topic, by name and id."""

    def is_over(self, offset: CommittedOffset, since_ms: int) -> bool:
        """Whether an offset that counts from `since_ms` has had its time."""
        if offset.expire_ms is not None:
            return offset.expire_ms <= self.now_ms
        return since_ms < self.now_ms - self.retention_ms

    def is_replaced(self, topic: str, partition: int) -> bool:
        """Whether another offset may be about to take the place of one."""
        return topic in self.committing or (topic, partition) in self.pending

    def of_nobody(
        self, content: Content, group_id: str, ended_ms: int | None
    ) -> Look[list[tuple[str, int]] | None]:
        """(topic, partition) that a group without members has to forget; None: everything.

        Never everything while others are on their way to the disk, or a transaction has some: they
        may come to lie in front of the event that forgets.
        ended_ms: when it was last used; None: nobody was ever in it.
        """
        left = 0
        gone = []
        for count, row in enumerate(all_of(content, group_id), 1):
            topic, topic_id, partition, offset = row
            since = offset.at_ms if ended_ms is None else ended_ms
            is_over, is_there = self.is_over(offset, since), self.is_there(topic, topic_id)
            is_replaced = self.is_replaced(topic, partition)
            if not is_replaced and (is_over or not is_there):
                gone.append((topic, partition))
            left += not is_over  # of a deleted topic: the group is not as old as it
            if not count % AT_ONCE:
                yield
        return gone[:ROWS_MAX] if left or self.pending or self.committing else None

    def abandoned(self, content: Content, group: AnyGroup) -> Look[list[tuple[str, int]]]:
        """(topic, partition) that a group with members committed long ago and left since, or to
        topics that are deleted."""
        old, gone = [], []
        for count, row in enumerate(all_of(content, group.group_id), 1):
            topic, topic_id, partition, offset = row
            if not self.is_replaced(topic, partition):
                if not self.is_there(topic, topic_id):
                    gone.append((topic, partition))
                elif self.is_over(offset, offset.at_ms):
                    old.append((topic, topic_id, partition))
            if not count % AT_ONCE:
                yield
        is_read = _reads(group) if old else None
        if is_read is not None:
            gone += [(topic, part) for topic, topic_id, part in old if not is_read(topic, topic_id)]
        return gone[:ROWS_MAX]


def unchanged(
    before: Content, now: Content, group_id: str, rows: Collection[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Those of (topic, partition) of which the group has committed nothing since."""
    then, topics = before.get(group_id, {}), now.get(group_id, {})
    return [
        (topic, partition)
        for topic, partition in rows
        if topic in topics
        and topics[topic][1].get(str(partition)) is then[topic][1][str(partition)]
    ]


def _reads(
    group: AnyGroup,
) -> Callable[[str, UUID], bool] | None:
    """Whether anybody is subscribed to a topic; None where that is not known for certain."""
    if isinstance(group, StreamsGroup):
        streams = group
        return lambda topic, _: streams.reads(topic)
    if isinstance(group, ConsumerGroup):
        target = group.target
        return target.reader() if target.knows_topics else None
    if group.state is not State.STABLE or group.protocol_type != CONSUMER:
        return None
    found: set[str] = set()
    for member in group.members.values():
        for metadata in member.protocols.values():
            topics = subscribed_topics(metadata)
            if topics is None:
                return None
            found |= topics
    return lambda topic, _: topic in found

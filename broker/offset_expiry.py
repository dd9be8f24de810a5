"""Which committed offsets have had their time, as Kafka decides it since KIP-211.

| the group | its offsets go |
|---|---|
| nobody is in it | all, `offsets_retention_minutes` after its last commit and its last member |
| stable, of consumers | of topics that no member is subscribed to, so long after the commit |
| in a rebalance, or members of another kind (Connect) | not |

So a group that reads another topic than it used to does not stand for ever in the old one, with a
lag that grows.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from segbroker.protocol.consumer_protocol import subscribed_topics
from segbroker.segments.committed import Content

from .consumer_group import ConsumerGroup
from .group import Group
from .group_rounds import State

CONSUMER: Final = "consumer"
ROWS_MAX: Final = 1_000
"""Offsets that are forgotten at once; the rest at the next look."""


def abandoned(
    content: Content, group: Group | ConsumerGroup, before_ms: int
) -> list[tuple[str, int]]:
    """(topic, partition) that a group with members committed before `before_ms` and left since."""
    old = [
        (topic, UUID(bytes=topic_id), int(partition))
        for topic, (topic_id, rows) in content.get(group.group_id, {}).items()
        for partition, row in rows.items()
        if row[3] < before_ms
    ]
    is_read = _reads(group) if old else None
    if is_read is None:
        return []
    gone = [
        (topic, partition) for topic, topic_id, partition in old if not is_read(topic, topic_id)
    ]
    return gone[:ROWS_MAX]


def _reads(group: Group | ConsumerGroup) -> Callable[[str, UUID], bool] | None:
    """Whether anybody is subscribed to a topic; None where that is not known for certain."""
    if isinstance(group, ConsumerGroup):
        target = group.target
        return (lambda _, topic_id: target.has_topic(topic_id)) if target.knows_topics else None
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

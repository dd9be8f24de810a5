"""Which committed offsets have had their time, as Kafka decides it since KIP-211.

| the group | its offsets go |
|---|---|
| nobody is in it | all together, `offsets_retention_minutes` after its last commit and its last member |
| stable, of consumers | those of topics that no member is subscribed to, so long after their commit |
| in a rebalance, or members of another kind (Connect) | not |

So a group that reads another topic than it used to does not stand for ever in the old one, with a
lag that grows.
"""

from segbroker.protocol.consumer_protocol import subscribed_topics
from segbroker.segments.committed import Content

from .consumer_group import ConsumerGroup
from .group import Group
from .group_rounds import State

CONSUMER = "consumer"


def subscribed(group: Group | ConsumerGroup) -> frozenset[str] | None:
    """The topics that members are subscribed to; None where one does not say it in a known way."""
    if isinstance(group, ConsumerGroup):
        return group.subscribed()
    found: frozenset[str] = frozenset()
    for member in group.members.values():
        for metadata in member.protocols.values():
            topics = subscribed_topics(metadata)
            if topics is None:
                return None
            found |= topics
    return found


def abandoned(
    content: Content, group: Group | ConsumerGroup, before_ms: int
) -> list[tuple[str, int]]:
    """(topic, partition) that a group with members committed before `before_ms` and left since."""
    if isinstance(group, Group) and (
        group.state is not State.STABLE or group.protocol_type != CONSUMER
    ):
        return []
    old = [
        (topic, int(partition))
        for topic, (_, rows) in content.get(group.group_id, {}).items()
        for partition, row in rows.items()
        if row[3] < before_ms
    ]
    topics = subscribed(group) if old else None
    return [] if topics is None else [row for row in old if row[0] not in topics]

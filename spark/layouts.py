"""Which partitions a reply to Metadata has of a selection, and who leads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from segbroker.client.errors import LeaderNotAvailable
from segbroker.client.settings import Address
from segbroker.protocol.messages_core import MetadataResponseTopic

from .options import Assign, Selection, SubscribePattern


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """One topic: its id (None where the broker has none) and who leads each partition."""

    topic_id: UUID | None
    leaders: Mapping[int, Address]


Layout = Mapping[str, TopicLayout]


def leader_of(layout: Layout, topic: str, partition: int) -> Address | None:
    """Who leads a partition; None: there is no such partition."""
    return layout[topic].leaders.get(partition) if topic in layout else None


def is_selected(selection: Selection, row: MetadataResponseTopic) -> bool:
    """Whether a topic belongs to it; a name that was asked for does."""
    assert row.name is not None
    match selection:
        case SubscribePattern():
            return not row.is_internal and selection.matches(row.name)
        case _:
            return True


def topic_layout(
    selection: Selection, row: MetadataResponseTopic, brokers: Mapping[int, Address]
) -> TopicLayout:
    """Of a topic what the selection takes.  Raises LeaderNotAvailable, which passes."""
    assert row.name is not None
    wanted = selection.partitions[row.name] if isinstance(selection, Assign) else None
    leaders: dict[int, Address] = {}
    for part in row.partitions:
        if wanted is not None and part.partition_index not in wanted:
            continue
        leader = brokers.get(part.leader_id)
        if leader is None:
            about = f"topic {row.name!r} partition {part.partition_index}"
            raise LeaderNotAvailable(f"{about} has no leader")
        leaders[part.partition_index] = leader
    return TopicLayout(row.topic_id if row.topic_id.int else None, leaders)

"""Topics as state machines of groups see them: an id and a number of partitions."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True)
class Topic:
    topic_id: UUID
    partitions: int


def topics_of(**counts: int) -> dict[str, Topic]:
    return {name: Topic(UUID(bytes=(name.encode() * 16)[:16]), n) for name, n in counts.items()}

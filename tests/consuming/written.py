"""What was written: of each topic that had a name, of each partition, what stands at which offset.

A record is there for readers of what is committed (COMMITTED), not for them (ABORTED), or nobody
knows, because the answer never came: then it may be seen, and need not be.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

Place = tuple[str, int]
"""A partition of a topic: its name and number."""


class State(Enum):
    """See the module."""

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Topic:
    """One topic; the next one of its name is another."""

    name: str
    ordinal: int
    topic_id: UUID
    rows: dict[int, dict[int, tuple[bytes, State]]] = field(default_factory=dict)
    """By partition and offset, what is known of."""
    trimmed: dict[int, int] = field(default_factory=dict)
    """By partition: what is below may be deleted."""
    is_deleted: bool = False

    def add(self, partition: int, offset: int, value: bytes, state: State) -> None:
        """It was acknowledged."""
        self.rows.setdefault(partition, {})[offset] = value, state

    def due(self, partition: int, low: int, high: int, *, committed: bool) -> Iterator[int]:
        """The offsets in [low, high) that whoever reads there has to be handed."""
        low = max(low, self.trimmed.get(partition, 0))
        for offset, (_, state) in self.rows.get(partition, {}).items():
            if low <= offset < high and (state is State.COMMITTED or not committed):
                yield offset


class Written:
    """All of a run."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Topic]] = {}
        """By name, the present one last."""
        self.states: dict[bytes, State | None] = {}
        """Of each value that was sent; None: not known."""
        self.senders: dict[bytes, Topic] = {}
        """Which topic it was sent to."""

    def made(self, name: str, topic_id: UUID) -> Topic:
        """There is a topic."""
        of_name = self.topics.setdefault(name, [])
        topic = Topic(name, len(of_name), topic_id)
        of_name.append(topic)
        return topic

    def present(self, name: str) -> Topic | None:
        """The topic that has the name, or had it last."""
        of_name = self.topics.get(name)
        return of_name[-1] if of_name else None

    def by_id(self, topic_id: UUID) -> Topic | None:
        """The topic of this id."""
        found = (t for of_name in self.topics.values() for t in of_name if t.topic_id == topic_id)
        return next(found, None)

    def sends(self, topic: Topic, value: bytes) -> None:
        """A value is about to be sent."""
        self.senders[value] = topic
        self.states[value] = None

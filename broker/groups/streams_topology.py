"""The topology of a streams group (KIP-1071): what an application of Kafka Streams reads and keeps.

    topology          subtopologies, and the epoch that a member gives it
    subtopology       topics that are read together, by tasks: task n reads partition n of each
    source topics     there before; made by the user
    repartition       written by one subtopology (its sinks) and read by another; made here
    changelog         the state of a subtopology; made here
    copartitioned     topics that are to have the same number of partitions

It comes with a member that joins and is the same for the whole group.  How many partitions all of
this comes to, and what is missing, says streams_topics.py.

Expressions for source topics are in the protocol, and in no client of Kafka 4.3, whose broker reads
none: they are refused.

Limits: SUBTOPOLOGIES_MAX, with ids of ID_SIZE_MAX characters, TOPICS_MAX topics, SIZE_MAX bytes as
it is written down.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.vendor import pack

from ..refused import Refused

SUBTOPOLOGIES_MAX: Final = 1_000
TOPICS_MAX: Final = 10_000
SIZE_MAX: Final = 256 << 10
ID_SIZE_MAX: Final = 255


class InternalTopic(NamedTuple):
    """A topic of the application's own.  partitions 0: as many as what it comes from has."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


class Subtopology(NamedTuple):
    """Topics that are read together.  copartitioned: names, each group of them of one size."""

    subtopology_id: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    repartitions: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]
    copartitioned: tuple[tuple[str, ...], ...]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have a state, and so can have standbys."""
        return bool(self.changelogs)

    @property
    def read(self) -> tuple[str, ...]:
        """All topics that its tasks read, each once."""
        return tuple(dict.fromkeys([*self.sources, *(one.name for one in self.repartitions)]))


@dataclass(frozen=True)
class Topology:
    """Of one application.  Its subtopologies are in the order of their ids."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @cached_property
    def topics(self) -> frozenset[str]:
        """The names of all topics in it."""
        return frozenset(_names(self.subtopologies))

    @cached_property
    def by_source(self) -> dict[str, str]:
        """The subtopology that reads each topic."""
        return {name: one.subtopology_id for one in self.subtopologies for name in one.read}

    @cached_property
    def by_id(self) -> dict[str, Subtopology]:
        """Each subtopology."""
        return {one.subtopology_id: one for one in self.subtopologies}

    def row(self) -> list[Any]:
        """As it is written down."""
        return [self.epoch, [list(one) for one in self.subtopologies]]

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> "Topology":
        """What was written down."""
        epoch, subtopologies = row
        return cls(epoch, tuple(_subtopology(one) for one in subtopologies))

    def check(self) -> None:
        """Raise Refused for one that contradicts itself, or is too large."""
        ids = [one.subtopology_id for one in self.subtopologies]
        if len(ids) > SUBTOPOLOGIES_MAX:
            raise invalid(f"{len(ids)} subtopologies, limit {SUBTOPOLOGIES_MAX}")
        if len(set(ids)) < len(ids):
            raise invalid("two subtopologies have the same id")
        if len(self.topics) > TOPICS_MAX:
            raise invalid(f"{len(self.topics)} topics, limit {TOPICS_MAX}")
        for one in self.subtopologies:
            if len(one.subtopology_id) > ID_SIZE_MAX:
                raise invalid(f"the id of a subtopology has more than {ID_SIZE_MAX} characters")
            if not one.read:
                raise invalid(f"No source topics found for subtopology {one.subtopology_id}")
            for changelog in one.changelogs:
                if changelog.partitions:
                    raise invalid(
                        f"Changelog topic {changelog.name} must have an undefined partition count, "
                        f"but it is set to {changelog.partitions}."
                    )
        # A request gives the places of names that go together: written down it may be far larger.
        if (size := sum(map(len, self._together()))) > SIZE_MAX:
            raise invalid(f"a topology of more than {size} bytes, limit {SIZE_MAX}")
        if (size := len(pack({"": self.row()}))) > SIZE_MAX:
            raise invalid(f"a topology of {size} bytes, limit {SIZE_MAX}")

    def _together(self) -> Iterable[str]:
        for one in self.subtopologies:
            for names in one.copartitioned:
                yield from names


def _names(subtopologies: Iterable[Subtopology]) -> Iterable[str]:
    for one in subtopologies:
        yield from one.read
        yield from one.sinks
        yield from (topic.name for topic in one.changelogs)


def _subtopology(row: Sequence[Any]) -> Subtopology:
    subtopology_id, sources, sinks, repartitions, changelogs, copartitioned = row
    return Subtopology(
        subtopology_id,
        tuple(sources),
        tuple(sinks),
        tuple(_internal(one) for one in repartitions),
        tuple(_internal(one) for one in changelogs),
        tuple(tuple(some) for some in copartitioned),
    )


def _internal(row: Sequence[Any]) -> InternalTopic:
    name, partitions, replication_factor, configs = row
    pairs = tuple((key, value) for key, value in configs)
    return InternalTopic(name, partitions, replication_factor, pairs)


def invalid(message: str) -> Refused:
    """A topology that no application can have."""
    return Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)

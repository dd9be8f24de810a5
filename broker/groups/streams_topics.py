"""How many tasks a topology comes to, and which of its topics are missing or do not fit.

| the topics | status | tasks |
|---|---|---|
| a source topic is missing | 1 MISSING_SOURCE_TOPICS | none |
| those that go together differ in partitions | 2 INCORRECTLY_PARTITIONED_TOPICS | none |
| an internal topic is there with another number | 2 | none |
| internal topics are missing | 3 MISSING_INTERNAL_TOPICS | none until they are made |
| all are there | | as many as the largest topic of a subtopology has partitions |

Partitions of an internal topic:

    repartition   as the topology says, else as many as the topics have that it is written from,
                  else, if it goes together with others, as many as those
    changelog     as many as its subtopology has tasks

The words are Kafka's; programs show them.  Pure: topics are passed in.

Limit: TASKS_MAX tasks of a group; more are INCORRECTLY_PARTITIONED_TOPICS.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from .consumer_target import Topic
from .streams_topology import InternalTopic, Subtopology, Topology, invalid

TASKS_MAX: Final = 20_000
_TOLD: Final = 3
"""Names that a status tells; of the others how many there are."""
_SHOWN: Final = 20
"""Topics with their partitions that a status tells."""


class Status(IntEnum):
    """What is the matter with a group, by Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Said(NamedTuple):
    """A status as a member is told it."""

    status: Status
    detail: str


@dataclass(frozen=True)
class Configured:
    """A topology with the topics that there are.

    Attributes:
        tasks: how many each subtopology has; None: that cannot be said.
        internal: all internal topics with the partitions that they have or are to have.
        missing: those of them that are to be made.
        problem: why nobody is given a task.
    """

    tasks: Mapping[str, int] | None = None
    internal: Mapping[str, InternalTopic] = field(default_factory=dict)
    missing: tuple[InternalTopic, ...] = ()
    problem: Said | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be given."""
        return self.problem is None


class _Misfit(Exception):
    """Topics of numbers of partitions that do not go together."""


def configured(topology: Topology, topics: Mapping[str, Topic]) -> Configured:
    """What a topology comes to.  Raises Refused for one that no topics can serve."""
    sources = {name for one in topology.subtopologies for name in one.sources}
    if absent := sorted(sources - topics.keys()):
        told = f"Source topics {summary(absent)} are missing."
        return Configured(problem=Said(Status.MISSING_SOURCE_TOPICS, told))
    try:
        return _fitted(topology, topics)
    except _Misfit as exc:
        return Configured(problem=Said(Status.INCORRECTLY_PARTITIONED_TOPICS, str(exc)))


def _fitted(topology: Topology, topics: Mapping[str, Topic]) -> Configured:
    counts = {
        name: topics[name].partitions for one in topology.subtopologies for name in one.sources
    }
    counts |= _repartitions(topology, counts)
    said = _said(topology)
    for one in topology.subtopologies:
        for together in one.copartitioned:
            _fit(together, said, counts)
    tasks = {
        one.subtopology_id: max(counts[name] for name in one.read) for one in topology.subtopologies
    }
    if sum(tasks.values()) > TASKS_MAX:
        raise _Misfit(f"{sum(tasks.values())} tasks, limit {TASKS_MAX}")
    internal = {}
    for one in topology.subtopologies:
        for topic in one.repartitions:
            internal[topic.name] = topic._replace(partitions=counts[topic.name])
        for topic in one.changelogs:
            if topic.name not in one.sources:
                internal[topic.name] = topic._replace(partitions=tasks[one.subtopology_id])
    for name, topic in sorted(internal.items()):
        if name in topics and topics[name].partitions != topic.partitions:
            raise _Misfit(
                f"Existing topic {name} has different number of partitions: expected "
                f"{topic.partitions}, found {topics[name].partitions}"
            )
    missing = tuple(topic for name, topic in sorted(internal.items()) if name not in topics)
    problem = None
    if missing:
        told = f"Internal topics are missing: {summary([one.name for one in missing])}"
        problem = Said(Status.MISSING_INTERNAL_TOPICS, told)
    return Configured(tasks, internal, missing, problem)


def _said(topology: Topology) -> dict[str, int]:
    """The partitions of repartition topics, as the topology gives them; 0: it does not."""
    return {
        topic.name: topic.partitions for one in topology.subtopologies for topic in one.repartitions
    }


def _repartitions(topology: Topology, sources: Mapping[str, int]) -> dict[str, int]:
    """The partitions of repartition topics: what is written from others has as many as they."""
    fixed = _said(topology)
    found = {name: count for name, count in fixed.items() if count}
    left = {name for name in fixed if name not in found}
    written = {name for one in topology.subtopologies for name in one.sinks}
    if unwritten := [name for name in fixed if name in left and name not in written]:
        raise invalid(
            "Failed to compute number of partitions for all repartition topics, because a "
            f"repartition source topic is never used as a sink topic: {summary(unwritten)}"
        )
    readers: dict[str, list[Subtopology]] = {}
    for one in topology.subtopologies:
        for name in one.read:
            readers.setdefault(name, []).append(one)
    sinks = {one.subtopology_id: one.sinks for one in topology.subtopologies}
    news = {**sources, **found}
    while left:
        most: dict[str, int] = {}
        for name, count in news.items():
            for one in readers.get(name, ()):
                most[one.subtopology_id] = max(count, most.get(one.subtopology_id, 0))
        news = {}
        for subtopology_id, count in most.items():
            # Once: what it writes is known as soon as something is that it reads.
            for name in sinks.pop(subtopology_id, ()):
                if name in left:
                    news[name] = max(count, news.get(name, 0))
        if not news:
            raise invalid(
                "Failed to compute number of partitions for all repartition topics. There may be "
                "loops in the topology that cannot be resolved."
            )
        found |= news
        left -= news.keys()
    return found


def _fit(together: Iterable[str], internal: Mapping[str, int], counts: dict[str, int]) -> None:
    """Have topics that go together have one number of partitions, or raise _Misfit.

    internal: what the topology says of its repartition topics.
    """
    given = {name: counts[name] for name in together if name not in internal}
    fixed = {name: counts[name] for name in together if internal.get(name)}
    flexible = [name for name in together if internal.get(name) == 0]
    leading = given or fixed
    if len(set(leading.values())) > 1:
        raise _Misfit(
            f"Following topics do not have the same number of partitions: [{_shown(leading)}]"
        )
    if not (leading or flexible):
        return
    wanted = next(iter(leading.values())) if leading else max(counts[name] for name in flexible)
    for name, count in fixed.items():
        if count != wanted:
            raise _Misfit(
                f"Number of partitions [{count}] of repartition topic [{name}] doesn't match "
                f"number of partitions [{wanted}] of the source topic."
            )
    counts.update(dict.fromkeys(flexible, wanted))


def _shown(counts: Mapping[str, int]) -> str:
    """As Java writes a map; the first of many."""
    rest = ", ..." if len(counts) > _SHOWN else ""
    told = ", ".join(f"{name}={counts[name]}" for name in sorted(counts)[:_SHOWN])
    return f"{{{told}{rest}}}"


def summary(names: Sequence[str]) -> str:
    """The first of some topics, and how many more there are."""
    rest = len(names) - _TOLD
    told = ", ".join(names[:_TOLD])
    return f"{told} and {rest} additional topics" if rest > 0 else told

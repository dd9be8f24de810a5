"""Which instance of an application has which partitions, for interactive queries (KIP-1071).

An instance that can be asked says where: its endpoint.  Who is asked about a key learns here which
endpoint has the partition of that key, as the one that does the task or with a copy.  Members are
told when the group's endpoint_epoch is another than theirs.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from .consumer_target import Topic
from .streams_group import StreamsGroup
from .streams_members import Endpoint, by_subtopology
from .streams_topology import Subtopology
from .task_assignor import Task

TopicPartitions: TypeAlias = dict[str, list[int]]


class AtEndpoint(NamedTuple):
    """What an instance has, by topic."""

    endpoint: Endpoint
    active: TopicPartitions
    standby: TopicPartitions


def partitions_by_endpoint(
    group: StreamsGroup, topics: Mapping[str, Topic]
) -> Iterator[AtEndpoint]:
    """Of each member with an endpoint.  topics: all that there are, by name."""
    if group.topology is None:
        return
    by_id = {one.subtopology_id: one for one in group.topology.subtopologies}
    for member in group.members.values():
        if member.said.endpoint is not None:
            active, standby = (_read(by_id, some, topics) for some in member.assigned)
            yield AtEndpoint(member.said.endpoint, active, standby)


def _read(
    by_id: Mapping[str, Subtopology], tasks: frozenset[Task], topics: Mapping[str, Topic]
) -> TopicPartitions:
    """What tasks read: of each topic the partitions that it has."""
    found: TopicPartitions = {}
    for name, numbers in by_subtopology(tasks).items():
        subtopology = by_id.get(name)
        for topic in () if subtopology is None else subtopology.read:
            if topic in topics:
                count = topics[topic].partitions
                found.setdefault(topic, []).extend(one for one in numbers if one < count)
    return found

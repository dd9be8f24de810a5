"""Which instance of an application has which partitions, for interactive queries (KIP-1071).

An instance that can be asked says where: its endpoint.  Who is asked about a key learns here which
endpoint has the partition of that key, as the one that does the task or with a copy.  Members are
told when the group's endpoint_epoch is another than theirs, and the first time: that number counts
from the start of the broker on, and theirs may be of another life.  It is of all endpoints, by each
of all members, so what one has is made once and told to all.
"""

from collections.abc import Iterator, Mapping

from .consumer_target import Topic
from .streams_group import StreamsGroup
from .streams_members import AtEndpoint, Endpoint, StreamsMember, TopicPartitions, by_subtopology
from .streams_topology import Subtopology, Topology
from .task_assignor import Task


def partitions_by_endpoint(
    group: StreamsGroup, topics: Mapping[str, Topic]
) -> Iterator[AtEndpoint]:
    """Of each member with an endpoint.  topics: all that there are, by name; the same object as
    long as nothing changed."""
    if group.topology is None:
        return
    for member in group.members.values():
        if member.said.endpoint is not None:
            yield _of(member, member.said.endpoint, group.topology, topics)


def _of(
    member: StreamsMember, endpoint: Endpoint, topology: Topology, topics: Mapping[str, Topic]
) -> AtEndpoint:
    """Made anew when its tasks or the topics are others."""
    if member.at_endpoint is not None:
        tasks, seen, found = member.at_endpoint
        if tasks is member.assigned and seen is topics and found.endpoint == endpoint:
            return found
    active, standby = (_read(topology.by_id, some, topics) for some in member.assigned)
    found = AtEndpoint(endpoint, active, standby)
    member.at_endpoint = member.assigned, topics, found
    return found


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

"""The work of a streams group: its topology, and what it comes to with the topics that there are.

    agreed   the topology of the group: that of the first member; an older one is told that it is
             stale, another one of the same epoch or a newer one is refused, as by Kafka
    look     what it comes to with these topics; looked at again when topics or topology are others
    take     go on with that; whether it is something else than before

A heartbeat looks first and takes when nothing of it is refused any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..refused import invalid_request
from .consumer_target import Topic
from .streams_topics import Configured, configured
from .streams_topology import Topology
from .task_assignor import Tasks


@dataclass(slots=True, eq=False)
class Work:
    """Of one group."""

    topology: Topology | None = None
    configured: Configured = field(default_factory=Configured)
    is_unkept: bool = False
    """Whether the topology was not written down yet."""
    _topics: Mapping[str, Topic] = field(default_factory=dict)
    _sizes: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Id and partitions of each topic in the topology that there is."""
    _readers: dict[bytes, str] = field(default_factory=dict)
    """The subtopology that reads each of them that is read."""
    _validated_epoch: int = -1
    """Of the topology, while tasks can be given; else -1."""

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be given."""
        return self.topology is not None and self.configured.is_ready

    @property
    def tasks(self) -> Mapping[str, int]:
        """How many each subtopology has; none while they cannot be given."""
        return (self.configured.tasks or {}) if self.is_ready else {}

    @property
    def stateful(self) -> frozenset[str]:
        """The subtopologies with a state."""
        subtopologies = () if self.topology is None else self.topology.subtopologies
        return frozenset(one.subtopology_id for one in subtopologies if one.is_stateful)

    def restore(self, topology: Topology, topics: Mapping[str, Topic]) -> None:
        """Go on with what was written down.  Raises Refused."""
        self.take(topology, configured(topology, topics), topics)
        self.is_unkept = False

    def agreed(self, topology: Topology | None) -> Topology:
        """The topology of the group, if a member can be in it who has this one.  Raises Refused."""
        if topology is not None:
            topology.check()
        if self.topology is None:
            assert topology is not None, "who joins has one"
            return topology
        if topology is None or topology.epoch < self.topology.epoch:
            return self.topology
        if topology != self.topology:
            raise invalid_request("Topology updates are not supported yet.")
        return self.topology

    def look(self, topology: Topology, topics: Mapping[str, Topic]) -> Configured:
        """What it comes to.  Raises Refused for a topology that no topics can serve."""
        if topics is self._topics and topology is self.topology:
            return self.configured
        return configured(topology, topics)

    def take(self, topology: Topology, found: Configured, topics: Mapping[str, Topic]) -> bool:
        """Go on with what was found; whether other topics are read, or others can be."""
        if topology is not self.topology:
            self.topology, self.is_unkept = topology, True
        elif topics is self._topics:
            return False
        there = {name: topics[name] for name in topology.topics if name in topics}
        sizes = {name: (one.topic_id.bytes, one.partitions) for name, one in there.items()}
        validated = topology.epoch if found.is_ready else -1
        is_other = sizes != self._sizes or validated != self._validated_epoch
        self._topics, self._sizes, self.configured = topics, sizes, found
        by_source = topology.by_source
        self._readers = {sizes[name][0]: one for name, one in by_source.items() if name in sizes}
        self._validated_epoch = validated
        return is_other

    def reads(self, topic: str) -> bool:
        """Whether a subtopology reads a topic."""
        return self.topology is not None and topic in self.topology.by_source

    def reader_of(self, topic_id: bytes) -> str | None:
        """The subtopology that reads a topic."""
        return self._readers.get(topic_id)


def check_tasks(found: Configured, owned: Tasks | None) -> None:
    """Raise Refused for tasks that there are not."""
    if owned is None or found.tasks is None or not found.is_ready:
        return
    for name, number in sorted(owned.active | owned.standby):
        count = found.tasks.get(name)
        if count is None:
            raise invalid_request(f"Subtopology {name} does not exist.")
        if not 0 <= number < count:
            raise invalid_request(
                f"Task {number} for subtopology {name} is invalid. Number of tasks for this "
                f"subtopology: {count}"
            )

"""The groups that a start finds: who was in them when the last broker ended goes on.

| what was written down | then |
|---|---|
| a generation, a KIP-848 group, with members | they are there, their sessions begin anew |
| ... of members on this machine, which was started anew | they are dropped at once |
| ... the static ones of them | their places are kept for who comes back under another id |
| a KIP-848 group without members | it is of that protocol, and counts its epochs on |
| a streams group | the same; without members it keeps its topology, too |
| more than `groups_max` groups | those of the rest are unknown and join again |
| a KIP-848 or streams group in which two have one thing: an event was lost | the same |
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import structlog

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.consumer_groups import KeptGroup
from segbroker.segments.metadata.generations import Generation
from segbroker.segments.metadata.streams_groups import KeptStreams as KeptStreamsGroup

from ..configuration.exposure import is_loopback
from ..refused import Refused
from .consumer_group import ConsumerGroup
from .consumer_members import MaySee
from .group import Group
from .kept_consumers import KeptConsumers
from .kept_generations import KeptGenerations
from .kept_streams import KeptStreams, restored_member
from .offset_expiry import AnyGroup
from .streams_group import StreamsGroup
from .streams_topology import Topology
from .task_assignor import Tasks

log = structlog.get_logger()

REJOINS: Final = "its members join again; its offsets stand"
_CLIENT_HOST: Final = 1
"""In what a streams member says."""

Found: TypeAlias = dict[str, AnyGroup]


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a broker."""

    manager: DiskManager
    groups_max: int
    now_ms: int
    made: Callable[[str], Group]
    made_consumer: Callable[[str], ConsumerGroup]
    made_streams: Callable[[str], StreamsGroup]
    may_see: Callable[[str], MaySee]
    """What a viewer may see."""

    def groups(
        self, generations: KeptGenerations, consumers: KeptConsumers, streams: KeptStreams
    ) -> Found:
        """All of them, by name."""
        found: Found = {}
        applications = dict(streams.groups())
        for group_id, goes_on in self._with_members(generations, consumers, applications, streams):
            if group_id in found:
                continue  # an older version has had classic members in it since
            if self._is_full(found):
                return found
            if (group := goes_on()) is not None:
                found[group_id] = group
        # Behind the others: a group without can be made again, with what is written down.
        for group_id, begins in self._without_members(consumers, applications, streams):
            if len(found) < self.groups_max and group_id not in found:
                found[group_id] = begins()
        return found

    def _with_members(
        self,
        generations: KeptGenerations,
        consumers: KeptConsumers,
        applications: Mapping[str, KeptStreamsGroup],
        streams: KeptStreams,
    ) -> Iterator[tuple[str, Callable[[], AnyGroup | None]]]:
        """The name of each, and what makes it; None: it cannot go on.  The classic ones first."""
        for group_id, kept in generations.with_members():
            yield group_id, partial(self._classic, group_id, kept)
        for group_id, known in consumers.with_members():
            yield group_id, partial(self._consumer, group_id, known)
        for group_id, last in applications.items():
            if last.members:
                yield group_id, partial(self._streams, group_id, last, streams)

    def _without_members(
        self,
        consumers: KeptConsumers,
        applications: Mapping[str, KeptStreamsGroup],
        streams: KeptStreams,
    ) -> Iterator[tuple[str, Callable[[], AnyGroup]]]:
        """The name of each, and what makes it."""
        for group_id in consumers.names():
            if not consumers.has_members(group_id):
                yield group_id, partial(self._empty_consumer, group_id, consumers)
        for group_id, last in applications.items():
            if not last.members:
                yield group_id, partial(self._streams, group_id, last, streams)

    def _classic(self, group_id: str, kept: Generation) -> Group:
        group = self.made(group_id)
        # Not the static ones: who comes back under another id takes the place of the old one.
        members = (
            (one.member_id, one.client_host) for one in kept.members if one.instance_id is None
        )
        group.restore(self.now_ms, kept, self._gone(members))
        return group

    def _consumer(self, group_id: str, kept: KeptGroup) -> ConsumerGroup | None:
        """A KIP-848 group goes on with what was written down; None: it cannot."""
        members = ((name, says.client_host) for name, (says, _) in kept.members.items())
        error = None if kept.is_sound else "events were lost"
        if error is None:
            group = self.made_consumer(group_id)
            try:
                group.restore(self.now_ms, kept, self._gone(members), self.may_see)
            except Refused as exc:  # an expression that is none any more
                error = exc.message
        if error is None:
            return group
        log.warning("consumer_group_not_restored", group=group_id, error=error, effect=REJOINS)
        return None

    def _empty_consumer(self, group_id: str, consumers: KeptConsumers) -> ConsumerGroup:
        group = self.made_consumer(group_id)
        group.epoch = group.assignment_epoch = consumers.number(group_id)
        return group

    def _streams(self, group_id: str, kept: KeptStreamsGroup, streams: KeptStreams) -> StreamsGroup:
        """A streams group goes on with what was written down, without its members if it cannot."""
        members = ((name, one.says[_CLIENT_HOST]) for name, one in kept.members.items())
        error = None if kept.is_sound else "events were lost"
        if error is None:
            group = self._streams_began(group_id, kept)
            rows = {
                name: (restored_member(name, one), Tasks(*one.target))
                for name, one in kept.members.items()
            }
            topology = None if kept.topology is None else Topology.of_row(kept.topology)
            try:
                group.restore(self.now_ms, topology, rows, self._gone(members), self.manager.topics)
            except Refused as exc:
                error = exc.message
        if error is None:
            return group
        log.warning("streams_group_not_restored", group=group_id, error=error, effect=REJOINS)
        streams.turned(group_id)  # rows of members that did not go on are none of it
        return self._streams_began(group_id, kept)

    def _streams_began(self, group_id: str, kept: KeptStreamsGroup) -> StreamsGroup:
        group = self.made_streams(group_id)
        group.count_on(kept)
        return group

    def _is_full(self, found: Found) -> bool:
        if len(found) < self.groups_max:
            return False
        effect = "members of the others join again; all offsets stand"
        log.warning("groups_not_restored", groups_max=self.groups_max, effect=effect)
        return True

    def _gone(self, members: Iterable[tuple[str, str]]) -> frozenset[str]:
        """Ids of members that cannot be alive: they ran on this machine, which was started anew.

        members: member id, address.
        """
        if not (self.manager.is_new_boot and self.manager.knows_boot):
            return frozenset()
        return frozenset(member_id for member_id, host in members if is_loopback(host))

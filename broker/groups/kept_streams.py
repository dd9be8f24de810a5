"""What is written down of streams groups: how, and who waits for it, says kept_members.py.

An event holds the rows of the members that changed, and the topology where it is new.  Where there
is no room for it either, a group is written down without it.

| a start finds | then |
|---|---|
| a group with members | it goes on: the same members, tasks and epochs; sessions begin anew |
| a group without | it keeps its topology and counts its epochs on |
| two members that do one task: an event was lost | the members are unknown and join again |

So an application goes on over a restart of the broker without a rebalance, and nobody does a task
twice: whoever was told to let go of one still has it, for all that the broker knows.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from segbroker.protocol.vendor import pack
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.streams_groups import (
    SECTION,
    STREAMS_GROUP,
    KeptMember,
    group_in,
    groups_in,
    has_members,
)
from segbroker.segments.metadata.streams_groups import KeptStreams as KeptGroup

from ..failed_changes import FailedChanges
from .consumer_members import Reconciled
from .kept_members import OVERHEAD, ROW_OVERHEAD, KeptMembers, Writing
from .kept_sizes import KeptSizes
from .streams_group import StreamsGroup
from .streams_members import Endpoint, Says, StreamsMember
from .task_assignor import NO_TASKS, Tasks

_TOPOLOGY: Final = ""
"""Stands in the sizes for the topology; no member is called so: a heartbeat says an id."""


class KeptStreams(KeptMembers[StreamsGroup]):
    """The streams groups of one data directory."""

    section = SECTION
    kind = STREAMS_GROUP
    not_recorded = "streams_group_not_recorded"
    not_forgotten = "streams_group_not_forgotten"
    without_members = "streams_group_without_members"

    def __init__(
        self,
        manager: DiskManager,
        sizes: KeptSizes,
        end_turn: Callable[[], None],
        failed: FailedChanges,
    ) -> None:
        """As KeptMembers."""
        super().__init__(manager, sizes, end_turn, failed)
        for group_id, kept in self.groups():
            found = {name: _size(name, one.row()) for name, one in kept.members.items()}
            self._found(group_id, found | {_TOPOLOGY: _size("", kept.topology or [])})

    def has_members(self, group_id: str) -> bool:
        """Whether it is written down that somebody is in a group."""
        return has_members(self._manager.section(SECTION), group_id)

    def find(self, group_id: str) -> KeptGroup | None:
        """What is written down of a group."""
        return group_in(self._manager.section(SECTION), group_id)

    def groups(self) -> Iterator[tuple[str, KeptGroup]]:
        """Every group that is written down."""
        return groups_in(self._manager.section(SECTION))

    def _without_members(self, row: Mapping[str, Any]) -> dict[str, Any]:
        same = {name: row[name] for name in ("epoch", "assignment_epoch", "topology")}
        return {**same, "whole": True, "members": {}}

    def _taken(
        self, group: StreamsGroup, writing: Writing, members: frozenset[str]
    ) -> dict[str, Any]:
        rows: dict[str, list[Any] | None] = {}
        for member_id in members:
            if member_id in group.members:
                mine = rows[member_id] = kept_member(group, member_id).row()
                writing.sizes.put(member_id, _size(member_id, mine))
            else:
                rows[member_id] = None
                writing.sizes.drop(member_id)
        topology = None if group.topology is None else group.topology.row()
        has_topology, group.work.is_unkept = group.work.is_unkept, False
        if has_topology or writing.is_whole:
            writing.sizes.put(_TOPOLOGY, _size("", topology or []))
        fields: dict[str, Any] = {
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "topology": topology if has_topology else None,
            "whole": writing.is_whole,
        }
        if not self._has_room(group, writing):
            if not self._puts_nobody(group, writing):
                return fields | {"members": {}}
            return fields | self._alone(group, writing, topology)
        size = writing.size(group.group_id)
        if not (group.members or self._sizes.has_room(group.group_id, size)):
            writing.is_over = True
            return fields | self._alone(group, writing, topology)
        if writing.is_over or writing.is_whole:
            writing.is_over = False
            fields |= {"whole": True, "topology": topology}
            rows = {member_id: kept_member(group, member_id).row() for member_id in group.members}
        self._put(group, writing)
        return fields | {"members": rows}

    def _alone(
        self, group: StreamsGroup, writing: Writing, topology: list[Any] | None
    ) -> dict[str, Any]:
        """A group without its members, and without its topology where there is no room for it."""
        size = OVERHEAD + writing.sizes[_TOPOLOGY]
        if not self._sizes.has_room(group.group_id, size):
            size, topology = OVERHEAD, None
        self._sizes.put(SECTION, group.group_id, size)
        return {"whole": True, "topology": topology, "members": {}}


def kept_member(group: StreamsGroup, member_id: str) -> KeptMember:
    """A member as it is written down."""
    member = group.members[member_id]
    said = member.said
    endpoint = None if said.endpoint is None else list(said.endpoint)
    return KeptMember(
        [*said[:-2], endpoint, [list(pair) for pair in said.tags]],
        member.epoch,
        member.previous_epoch,
        member.reconciled.value,
        member.assigned,
        member.revoking,
        group.target.get(member_id, NO_TASKS),
        member.since,
    )


def restored_member(member_id: str, kept: KeptMember) -> StreamsMember:
    """A member as it was written down."""
    client_id, host, rack_id, timeout_ms, topology_epoch, process_id, where, tags = kept.says
    said = Says(
        client_id,
        host,
        rack_id,
        timeout_ms,
        topology_epoch,
        process_id,
        None if where is None else Endpoint(*where),
        tuple((key, value) for key, value in tags),
    )
    return StreamsMember(
        member_id,
        said,
        epoch=kept.epoch,
        previous_epoch=kept.previous_epoch,
        reconciled=Reconciled(kept.state),
        assigned=Tasks(*kept.assigned),
        revoking=Tasks(*kept.revoking),
        since=dict(kept.since),
        # Others are told again where they say that they have something else.
        knows_assigned=kept.state != Reconciled.REVOKING.value,
    )


def _size(member_id: str, row: list[Any]) -> int:
    return len(member_id.encode()) + len(pack({"": row})) + ROW_OVERHEAD

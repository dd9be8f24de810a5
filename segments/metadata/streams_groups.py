"""Streams groups (KIP-1071): topology, members and their tasks, kept as control events.

    section "streams_groups" of the snapshot:
        {group: {epoch, assignment_epoch, topology, members {member id: row}}}
    topology: [epoch, [subtopology]] or null; whoever gives tasks reads it (broker)
    row: [says, epoch, epoch before, state, assigned, revoking, target, since]
    says: [client id, client host, rack id, rebalance timeout, topology epoch, process id,
           [host, port] or null, [[key, value]]]
    assigned, revoking, target: [active, standby], each [[subtopology, [number]]]
    since: of active tasks of assigned and then of revoking the epoch at which each was given

| event | fields | afterwards |
|---|---|---|
| streams_group | group, and the fields of the section | these rows stand, the others as before |
| ... with a row that is null | | that member is none any more |
| ... with `topology` null | | it stays |
| ... with `whole` true | | there are no other rows, and no other topology |
| ... with `epoch` null | group alone | nothing is known of it |

Who writes them writes the next of a group when the last is durable, or, where that failed, a whole
one: an event never stands on one that is not there.

A group is of one protocol: an event of this kind ends what is known of it as a classic one
(generations.py) or one of KIP-848 (consumer_groups.py), and the other way round.  Times are in ms.
Every function here is pure: what it was given stays.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from .group_rows import Content, Fields, Row, groups_after

SECTION: Final = "streams_groups"
STREAMS_GROUP: Final = "streams_group"

Task: TypeAlias = tuple[str, int]
TaskSet: TypeAlias = frozenset[Task]
Both: TypeAlias = tuple[TaskSet, TaskSet]
"""Active tasks, standbys."""


_PROCESS: Final = 5
"""Its id, in what a member says."""


class KeptMember(NamedTuple):
    """A member as it is written down.  says: as in the row."""

    says: list[Any]
    epoch: int
    previous_epoch: int
    state: str
    assigned: Both
    revoking: Both
    target: Both
    since: Mapping[Task, int]

    def row(self) -> list[Any]:
        """As it stands in the event."""
        return [
            self.says,
            self.epoch,
            self.previous_epoch,
            self.state,
            *([_packed(tasks) for tasks in both] for both in self[4:7]),
            [self.since[task] for task in _given(self.assigned, self.revoking)],
        ]

    @classmethod
    def of_row(cls, row: list[Any]) -> "KeptMember":
        """What was written down."""
        says, epoch, previous_epoch, state, assigned, revoking, target, since = row
        had, lost, wanted = _both(assigned), _both(revoking), _both(target)
        since_each = dict(zip(_given(had, lost), since, strict=True))
        return cls(says, epoch, previous_epoch, state, had, lost, wanted, since_each)


class KeptStreams(NamedTuple):
    """A group as it is written down."""

    epoch: int
    assignment_epoch: int
    topology: list[Any] | None
    members: Mapping[str, KeptMember]

    @property
    def is_sound(self) -> bool:
        """Whether nobody does what another does, and no process has two copies: not so where an
        event was lost."""
        done: list[Task] = []
        copies: list[tuple[str, Task]] = []
        for one in self.members.values():
            done += one.assigned[0] | one.revoking[0]
            copies += [(one.says[_PROCESS], task) for task in one.assigned[1] | one.revoking[1]]
        if self.members and self.topology is None:
            return False
        return len(done) == len(set(done)) and len(copies) == len(set(copies))


def changed(content: Content | None, events: Iterable[Fields]) -> Content:
    """After these events, in this order: what they change is copied once."""
    return groups_after(content, events, _group, null_if_forgotten="epoch")


def _group(before: Row | None, fields: Fields) -> Row:
    members: dict[str, Any] = {}
    topology = fields["topology"]
    if before is not None and not fields["whole"]:
        members = dict(before["members"])
        topology = before["topology"] if topology is None else topology
    for member_id, row in fields["members"].items():
        if row is None:
            members.pop(member_id, None)
        else:
            members[member_id] = row
    return {
        "epoch": fields["epoch"],
        "assignment_epoch": fields["assignment_epoch"],
        "topology": topology,
        "members": members,
    }


def has_members(content: Content | None, group: str) -> bool:
    """Whether somebody was in the group, as far as is known."""
    row = (content or {}).get(group)
    return row is not None and bool(row["members"])


def groups_in(content: Content | None) -> Iterator[tuple[str, KeptStreams]]:
    """Every group, and what is known of it."""
    for group, row in (content or {}).items():
        yield group, _kept(row)


def group_in(content: Content | None, group: str) -> KeptStreams | None:
    """What is known of a group; None: nothing."""
    row = (content or {}).get(group)
    return None if row is None else _kept(row)


def _kept(row: Mapping[str, Any]) -> KeptStreams:
    members = {one: KeptMember.of_row(kept) for one, kept in row["members"].items()}
    return KeptStreams(row["epoch"], row["assignment_epoch"], row["topology"], members)


def _given(assigned: Both, revoking: Both) -> list[Task]:
    """The tasks that `since` is about, in its order."""
    return sorted(assigned[0]) + sorted(revoking[0])


def _packed(tasks: TaskSet) -> list[list[Any]]:
    found: dict[str, list[int]] = {}
    for name, number in sorted(tasks):
        found.setdefault(name, []).append(number)
    return [list(row) for row in found.items()]


def _both(rows: list[list[list[Any]]]) -> Both:
    active, standby = (
        frozenset((name, number) for name, numbers in some for number in numbers) for some in rows
    )
    return active, standby

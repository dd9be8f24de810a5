"""KIP-848 groups: who is in a group, what each has and is to have, kept as control events.

    section "consumer_groups" of the snapshot:
        {group: {epoch, assignment_epoch, assignor, says {member id: says}, has {member id: has}}}
    says: [instance id, rack id, client id, client host, rebalance timeout, [name], regex, viewer,
           assignor]
    has: [epoch, epoch before, state, assigned, revoking, target or null: as assigned]
    classic {member id: [session timeout, {protocol: metadata}]}: of those who speak the classic
           protocol, where there are any
    since {member id: epoch or [epoch]}: of those who have something since an earlier epoch than
           theirs: all of it, or each partition of assigned and then of revoking
    assigned, revoking, target: [[topic id, [partition]]]

| event | fields | afterwards |
|---|---|---|
| consumer_group | group, and the fields of the section | these rows stand, the others as before |
| ... with a row of `says` | | its row of `classic` is that of the event, or none |
| ... with a row of `has` | | its row of `since` is that of the event, or none |
| ... with a row of `says` that is null | | that member is none any more |
| ... with `whole` true | | there are no other rows |
| ... with `epoch` null | group alone | nothing is known of it |

An event holds the rows that changed: what a member says of itself is long and stays, what it has is
short and changes.  Who writes them writes the next of a group when the last is durable, or, where
that failed, a whole one: an event never stands on one that is not there.

A group is of one protocol: an event of this kind ends its classic generation (generations.py), and
the other way round.  Times are in ms.  Every function here is pure: what it was given stays.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from .group_rows import Content, Fields, Row, groups_after

SECTION: Final = "consumer_groups"
CONSUMER_GROUP: Final = "consumer_group"

Partitions: TypeAlias = tuple[tuple[bytes, int], ...]


class Classic(NamedTuple):
    """What a member that speaks the classic protocol says beside."""

    session_timeout_ms: int
    protocols: Mapping[str, bytes]

    def row(self) -> list[Any]:
        """As it stands in the event."""
        return [self.session_timeout_ms, dict(self.protocols)]


class Says(NamedTuple):
    """What a member says of itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    names: frozenset[str]
    regex: str
    viewer: str
    assignor: str | None
    classic: Classic | None = None
    """None: it speaks KIP-848's protocol."""

    def row(self) -> list[Any]:
        """As it stands in the event, but for `classic`."""
        row: list[Any] = list(self[:_CLASSIC])
        row[_NAMES] = sorted(self.names)
        return row


_NAMES: Final = Says._fields.index("names")
_CLASSIC: Final = Says._fields.index("classic")


class Has(NamedTuple):
    """Where a member stands, what it has, and what it is to have."""

    epoch: int
    previous_epoch: int
    state: str
    assigned: Partitions
    revoking: Partitions
    target: Partitions
    since: tuple[int, ...] = ()
    """Since which epoch it has each of `assigned`, then of `revoking`; (): all since `epoch`."""

    @property
    def since_each(self) -> Mapping[tuple[bytes, int], int]:
        """Since which epoch it has each partition that it has."""
        mine = self.assigned + self.revoking
        return dict(zip(mine, self.since or [self.epoch] * len(mine), strict=True))

    def since_row(self) -> int | list[int] | None:
        """As `since` stands in the event; None: it does not."""
        epochs = set(self.since)
        if epochs <= {self.epoch}:
            return None
        return list(self.since) if len(epochs) > 1 else self.since[0]

    def row(self) -> list[Any]:
        """As it stands in the event, but for `since`."""
        same = self.target == self.assigned
        return [
            self.epoch,
            self.previous_epoch,
            self.state,
            _packed(self.assigned),
            _packed(self.revoking),
            None if same else _packed(self.target),
        ]


class KeptGroup(NamedTuple):
    """A group as it is written down."""

    epoch: int
    assignment_epoch: int
    assignor: str
    members: Mapping[str, tuple[Says, Has]]

    @property
    def is_sound(self) -> bool:
        """Whether nobody has what another has: not so where an event was lost."""
        all_of_them = [p for _, has in self.members.values() for p in has.assigned + has.revoking]
        return len(all_of_them) == len(set(all_of_them))


def changed(content: Content | None, events: Iterable[Fields]) -> Content:
    """After these events, in this order: what they change is copied once."""
    return groups_after(content, events, _group, null_if_forgotten="epoch")


def _group(before: Row | None, fields: Fields) -> Row:
    says: dict[str, Any] = {}
    has: dict[str, Any] = {}
    classic: dict[str, Any] = {}
    since: dict[str, Any] = {}
    if before is not None and not fields["whole"]:
        says, has = dict(before["says"]), dict(before["has"])
        classic, since = dict(before.get("classic", {})), dict(before.get("since", {}))
    says.update(fields["says"])
    has.update(fields["has"])
    for member_id in fields["has"]:
        since.pop(member_id, None)
    for member_id, row in fields["says"].items():
        classic.pop(member_id, None)
        if row is None:
            del says[member_id]
            has.pop(member_id, None)
            since.pop(member_id, None)
    classic.update(fields.get("classic", {}))
    since.update(fields.get("since", {}))
    group = {
        "epoch": fields["epoch"],
        "assignment_epoch": fields["assignment_epoch"],
        "assignor": fields["assignor"],
        "says": says,
        "has": has,
    }
    rare = {"classic": classic, "since": since}
    return group | {name: rows for name, rows in rare.items() if rows}


def has_members(content: Content | None, group: str) -> bool:
    """Whether somebody was in the group, as far as is known."""
    row = (content or {}).get(group)
    return row is not None and bool(row["says"])


def groups_in(content: Content | None) -> Iterator[tuple[str, KeptGroup]]:
    """Every group, and what is known of it."""
    for group, row in (content or {}).items():
        classic, since = row.get("classic", {}), row.get("since", {})
        members = {
            member_id: (
                _says(says, classic.get(member_id)),
                _has(row["has"][member_id], since.get(member_id)),
            )
            for member_id, says in row["says"].items()
            if member_id in row["has"]
        }
        yield (
            group,
            KeptGroup(row["epoch"], row["assignment_epoch"], row["assignor"], members),
        )


def _says(row: list[Any], classic: list[Any] | None) -> Says:
    says = Says(*row)
    speaks = None if classic is None else Classic(*classic)
    return says._replace(names=frozenset(says.names), classic=speaks)


def _has(row: list[Any], since: int | list[int] | None) -> Has:
    epoch, previous_epoch, state, assigned, revoking, target = row
    mine, lost = _unpacked(assigned), _unpacked(revoking)
    wanted = mine if target is None else _unpacked(target)
    if isinstance(since, int):
        since = [since] * (len(mine) + len(lost))
    return Has(epoch, previous_epoch, state, mine, lost, wanted, tuple(since or ()))


def _packed(partitions: Partitions) -> list[list[Any]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return [list(row) for row in found.items()]


def _unpacked(rows: list[list[Any]]) -> Partitions:
    return tuple((topic_id, index) for topic_id, indexes in rows for index in indexes)

"""Generations of classic groups: who is in a group and has what, kept as control events.

    section "generations" of the snapshot:
        {group: {generation, protocol_type, protocol, leader, members [member]}}
    earlier {member id: generation}: of those who are at an earlier one, where there are any
    member: [member id, instance id, client id, client host, session timeout, rebalance timeout,
             {protocol: metadata}, assignment]

| event | fields | afterwards |
|---|---|---|
| generation | group, and the fields of the section | this is the group's generation |
| ... with `members` empty | | nobody is in it; the next generation counts on from this one |
| ... with `members` null | group alone | nothing is known of it |

A generation is recorded whole, when it is complete: an event says how things are, so the last one
holds.  Who leaves or is dropped inside of a generation is recorded by the next one.  Times are in
ms.  Every function here is pure: what it was given stays as it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from .group_rows import Content, Fields, Row, groups_after

SECTION: Final = "generations"
GENERATION: Final = "generation"


class KeptMember(NamedTuple):
    """A member as it is written down."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    assignment: bytes


class Generation(NamedTuple):
    """A generation as it is written down."""

    number: int
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[KeptMember, ...] = ()
    earlier: Mapping[str, int] = MappingProxyType({})
    """The generation of each member that has not heard of this one: it came out of a group of
    KIP-848's protocol before it could."""

    def fields(self) -> dict[str, Any]:
        """As it stands in the event, beside the group."""
        fields = {
            "generation": self.number,
            "protocol_type": self.protocol_type,
            "protocol": self.protocol,
            "leader": self.leader,
            "members": [list(member) for member in self.members],
        }
        return fields | {"earlier": dict(self.earlier)} if self.earlier else fields


def changed(content: Content | None, events: Iterable[Fields]) -> Content:
    """After these events, in this order: what they change is copied once."""
    return groups_after(content, events, _row, null_if_forgotten="members")


def _row(_: Row | None, fields: Fields) -> Row:
    return {key: value for key, value in fields.items() if key != "group"}


def number_of(content: Content | None, group: str) -> int:
    """The last generation that is known of a group; 0: nothing is."""
    row = (content or {}).get(group)
    return 0 if row is None else int(row["generation"])


def has_members(content: Content | None, group: str) -> bool:
    """Whether somebody was in the group, as far as is known."""
    row = (content or {}).get(group)
    return row is not None and bool(row["members"])


def protocol_type_of(content: Content | None, group: str) -> str:
    """What the last members that are known of a group were; empty: nothing is."""
    row = (content or {}).get(group)
    return "" if row is None else str(row["protocol_type"])


def generations_in(content: Content | None) -> Iterator[tuple[str, Generation]]:
    """Every group, and what is known of it."""
    for group, row in (content or {}).items():
        yield group, _decoded(row)


def _decoded(row: Mapping[str, Any]) -> Generation:
    return Generation(
        row["generation"],
        row["protocol_type"],
        row["protocol"],
        row["leader"],
        tuple(KeptMember(*member) for member in row["members"]),
        dict(row.get("earlier", {})),
    )

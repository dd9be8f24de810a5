"""What is written down of KIP-848 groups: how, and who waits for it, says kept_members.py.

An event holds the rows that changed: what a member says of itself where it says something else,
where it stands and what it has otherwise.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from segbroker.protocol.vendor import pack
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.consumer_groups import (
    CONSUMER_GROUP,
    SECTION,
    Has,
    KeptGroup,
    Says,
    groups_in,
    has_members,
)

from ..failed_changes import FailedChanges
from .consumer_group import ConsumerGroup
from .kept_members import KeptMembers, Writing
from .kept_sizes import KeptSizes


class KeptConsumers(KeptMembers[ConsumerGroup]):
    """The KIP-848 groups of one data directory."""

    section = SECTION
    kind = CONSUMER_GROUP
    not_recorded = "consumer_group_not_recorded"
    not_forgotten = "consumer_group_not_forgotten"
    without_members = "consumer_group_without_members"

    def __init__(
        self,
        manager: DiskManager,
        sizes: KeptSizes,
        end_turn: Callable[[], None],
        failed: FailedChanges,
    ) -> None:
        """As KeptMembers."""
        super().__init__(manager, sizes, end_turn, failed)
        for group_id, kept in groups_in(manager.section(SECTION)):
            rows = {name: _packed(*member) for name, member in kept.members.items()}
            said = {name: _said_size(name, row) for name, row in rows.items()}
            all_of_it = {name: said[name] + _has_size(name, row) for name, row in rows.items()}
            self._found(group_id, all_of_it, said)

    def has_members(self, group_id: str) -> bool:
        """Whether it is written down that somebody is in a group."""
        return has_members(self._manager.section(SECTION), group_id)

    def with_members(self) -> Iterator[tuple[str, KeptGroup]]:
        """The groups that somebody was in when the last broker ended."""
        for group_id, kept in groups_in(self._manager.section(SECTION)):
            if kept.members:
                yield group_id, kept

    def _without_members(self, row: Mapping[str, Any]) -> dict[str, Any]:
        same = {name: row[name] for name in ("epoch", "assignment_epoch", "assignor")}
        return {**same, "whole": True, "says": {}, "has": {}}

    def _taken(
        self, group: ConsumerGroup, writing: Writing, members: frozenset[str]
    ) -> dict[str, Any]:
        said = frozenset(group.unsaid)
        group.unsaid.clear()
        rows: dict[str, _Rows] = {}
        for member_id in members:
            member = group.members.get(member_id)
            if member is None:
                writing.sizes.drop(member_id)
                writing.said_sizes.pop(member_id, None)
                rows[member_id] = _Rows()
                continue
            # All may be to have something else, and each may be subscribed to thousands of topics.
            says = member_id in said or member_id not in writing.said_sizes
            mine = rows[member_id] = _rows(group, member_id, says=says)
            if says:
                writing.said_sizes[member_id] = _said_size(member_id, mine)
            size = writing.said_sizes[member_id] + _has_size(member_id, mine)
            writing.sizes.put(member_id, size)
        fields: dict[str, Any] = {
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor": group.target.assignor,
            "whole": writing.is_whole,
        }
        if not self._has_room(group, writing):
            return fields | {"whole": self._puts_nobody(group, writing), "says": {}, "has": {}}
        if writing.is_over or writing.is_whole:
            writing.is_over = False
            fields["whole"] = True
            made = {name: row for name, row in rows.items() if row.says is not None}
            rows = {
                member_id: made.get(member_id) or _rows(group, member_id, says=True)
                for member_id in group.members
            }
            said = frozenset(rows)
        self._put(group, writing)
        fields["says"] = {name: row.says for name, row in rows.items() if name in said}
        fields["has"] = {name: row.has for name, row in rows.items() if row.has is not None}
        rare = {
            "classic": {n: row.classic for n, row in rows.items() if row.classic and n in said},
            "since": {name: row.since for name, row in rows.items() if row.since is not None},
        }
        return fields | {name: some for name, some in rare.items() if some}


class _Rows(NamedTuple):
    """What is written down of a member; nothing: it is none any more."""

    says: list[Any] | None = None
    has: list[Any] | None = None
    classic: list[Any] | None = None
    since: int | list[int] | None = None


def _rows(group: ConsumerGroup, member_id: str, *, says: bool) -> _Rows:
    """says: also what it says of itself."""
    member = group.members[member_id]
    has = member.has(group.target.of(member_id))
    return _packed(member.said, has) if says else _Rows(has=has.row(), since=has.since_row())


def _packed(says: Says, has: Has) -> _Rows:
    classic = None if says.classic is None else says.classic.row()
    return _Rows(says.row(), has.row(), classic, has.since_row())


def _said_size(member_id: str, rows: _Rows) -> int:
    return _size(member_id, rows.says) + _size(member_id, rows.classic)


def _has_size(member_id: str, rows: _Rows) -> int:
    return _size(member_id, rows.has) + _size(member_id, rows.since)


def _size(member_id: str, row: object) -> int:
    return 0 if row is None else len(pack({member_id: row}))

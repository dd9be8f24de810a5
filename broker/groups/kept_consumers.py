"""What is written down of KIP-848 groups, so that their members outlive a restart.

    heartbeat -> the group changes -> control event, durable -> who is in it is answered
    start     -> the rows of each group -> the same group, sessions begin anew

| what happened | is written down | and waited for by |
|---|---|---|
| a member joined, left, said something else, moved on | its rows | that member |
| the target was made anew | the rows of those whose share changed | nobody |
| a member was dropped | that it is none | who is given what it had |
| nothing: the other heartbeats | nothing | nobody |

One event of a group is under way at a time; what changes meanwhile is in the next, together: a
hundred members that join at once take a few syncs.  So no event stands on one that is not durable,
and whoever is given a partition has it in an event that is not before the one in which another has
let go of it.  If one cannot be written, who waits for it is told, and the next is a whole one: that
which failed may be there in part.  It is written when somebody waits again, or by housekeeping.

At the limit (kept_sizes.py) a group is written down without its members, with a warning, until it
is smaller.

Invariant: what a member was told is durable.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import structlog

from segbroker.protocol.vendor import pack
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.consumer_groups import (
    CONSUMER_GROUP,
    SECTION,
    Has,
    KeptGroup,
    Says,
    epoch_of,
    groups_in,
    has_members,
)

from ..recording import Done, ignored, logged
from .consumer_group import ConsumerGroup
from .kept_sizes import KeptSizes

log = structlog.get_logger()

_OVERHEAD: Final = 200
"""Bytes of an event beside the names and the rows."""

_ROW_OVERHEAD: Final = 16

_TURNED: Final = OSError("the group is another one meanwhile")


@dataclass(slots=True, eq=False)
class _Writing:
    """The events of one group."""

    is_under_way: bool = False
    is_whole: bool = True
    """Whether the next holds all rows."""
    has_failed: bool = False
    """Whether the last could not be written."""
    is_over: bool = False
    """Whether the group is too large to be written down with its members."""
    members: frozenset[str] = frozenset()
    """Who is in the event that is under way."""
    told: list[Done] = field(default_factory=list)
    """Who waits for that one."""
    waiting: list[Done] = field(default_factory=list)
    """Who waits for the next."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of the rows of each member."""

    def tell(self, error: OSError | None) -> None:
        """What has become of the event that is, or was, under way."""
        told, self.told = self.told, []
        for done in told:
            done(error)


class KeptConsumers:
    """The KIP-848 groups of one data directory."""

    def __init__(
        self, manager: DiskManager, sizes: KeptSizes, end_turn: Callable[[], None]
    ) -> None:
        """end_turn: send what was answered outside of a request."""
        self._manager = manager
        self._sizes = sizes
        self._end_turn = end_turn
        self._writings: dict[str, _Writing] = {}
        for group_id, kept in groups_in(manager.section(SECTION)):
            writing = self._writings[group_id] = _Writing(is_whole=False)
            for member_id, rows in kept.members.items():
                writing.sizes[member_id] = _size(member_id, _packed(*rows))
            self._sizes.put(SECTION, group_id, _size_of(group_id, writing))

    def names(self) -> list[str]:
        """Every group of which something is written down."""
        return list(self._manager.section(SECTION) or ())

    def number(self, group_id: str) -> int:
        """The epoch that is written down of a group; 0: none is."""
        return epoch_of(self._manager.section(SECTION), group_id)

    def has_members(self, group_id: str) -> bool:
        """Whether it is written down that somebody is in a group."""
        return has_members(self._manager.section(SECTION), group_id)

    def with_members(self) -> Iterator[tuple[str, KeptGroup]]:
        """The groups that somebody was in when the last broker ended."""
        for group_id, kept in groups_in(self._manager.section(SECTION)):
            if kept.members:
                yield group_id, kept

    # Writing down

    def keep(self, group: ConsumerGroup, *, again: bool = False) -> None:
        """Write down what has changed, as soon as what is under way is durable.

        again: also if that has just failed, and nobody waits for it.
        """
        writing = self._writings.setdefault(group.group_id, _Writing())
        if not group.unkept or writing.is_under_way:
            return
        # A whole event for each heartbeat would not make room on a disk that is full.
        if writing.has_failed and not (writing.waiting or again):
            return
        members, says = frozenset(group.unkept), frozenset(group.unsaid)
        group.unkept.clear()
        group.unsaid.clear()
        fields = self._fields(group, writing, members, says)
        writing.told, writing.waiting = writing.waiting, []
        if fields is None:
            writing.tell(None)
            return
        writing.members, writing.is_under_way, writing.is_whole = members, True, False

        def written(error: OSError | None) -> None:
            writing.is_under_way, writing.members = False, frozenset()
            writing.has_failed = error is not None
            if error is not None:
                log.warning("consumer_group_not_recorded", group=group.group_id, error=str(error))
                writing.is_whole = True
            is_here = self._writings.get(group.group_id) is writing
            if error is not None and is_here:
                group.unkept.update(members)
            writing.tell(error)
            if is_here:
                self.keep(group)
            self._end_turn()

        self._manager.record_soon(written, CONSUMER_GROUP, group=group.group_id, **fields)

    def _fields(
        self,
        group: ConsumerGroup,
        writing: _Writing,
        changed: frozenset[str],
        said: frozenset[str],
    ) -> dict[str, Any] | None:
        """The next event; None: the group is too large, which is written down already."""
        rows: dict[str, _Rows] = {}
        for member_id in changed:
            member = group.members.get(member_id)
            if member is None:
                writing.sizes.pop(member_id, None)
                rows[member_id] = _Rows()
            else:
                mine = rows[member_id] = _rows(group, member_id)
                writing.sizes[member_id] = _size(member_id, mine)
        size = _size_of(group.group_id, writing)
        fields: dict[str, Any] = {
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor": group.target.assignor,
            "whole": writing.is_whole,
        }
        if group.members and not self._sizes.has_room(group.group_id, size):
            return self._without_members(group, writing, size, fields)
        if writing.is_over or writing.is_whole:
            writing.is_over = False
            fields["whole"] = True
            rows = {member_id: _rows(group, member_id) for member_id in group.members}
            said = frozenset(rows)
        self._sizes.put(SECTION, group.group_id, size)
        fields["says"] = {name: row.says for name, row in rows.items() if name in said}
        fields["has"] = {name: row.has for name, row in rows.items() if row.has is not None}
        rare = {
            "classic": {n: row.classic for n, row in rows.items() if row.classic and n in said},
            "since": {name: row.since for name, row in rows.items() if row.since is not None},
        }
        return fields | {name: some for name, some in rare.items() if some}

    def _without_members(
        self, group: ConsumerGroup, writing: _Writing, size: int, fields: dict[str, Any]
    ) -> dict[str, Any] | None:
        was_over, writing.is_over = writing.is_over and not writing.is_whole, True
        if was_over:
            return None
        log.warning(
            "consumer_group_without_members",
            group=group.group_id,
            epoch=group.epoch,
            members=len(group.members),
            size=size,
            size_max=self._sizes.size_max,
            all_sizes=self._sizes.others(group.group_id),
        )
        self._sizes.put(SECTION, group.group_id, _OVERHEAD)
        return fields | {"whole": True, "says": {}, "has": {}}

    # Waiting

    def when_kept(self, group: ConsumerGroup, member_id: str | None, done: Done) -> None:
        """Call `done` when what is known of a member is durable, of all of them with None.

        At once where it is; with an error where it cannot be.
        """
        writing = self._writings.setdefault(group.group_id, _Writing())
        if group.unkept if member_id is None else member_id in group.unkept:
            writing.waiting.append(done)
            self.keep(group)
        elif writing.members if member_id is None else member_id in writing.members:
            writing.told.append(done)
        else:
            done(None)

    def forget(self, group_id: str, done: Done = ignored) -> None:
        """Have nothing written down of a group, if something is; `done` when that is durable, or
        has failed."""
        is_under_way = self.turned(group_id)
        if not (is_under_way or self.number(group_id)):
            done(None)
            return
        told = logged("consumer_group_not_forgotten", done, group=group_id)
        self._manager.record_soon(told, CONSUMER_GROUP, group=group_id, epoch=None)

    def turned(self, group_id: str) -> bool:
        """A group is another one from here on, or none; whether an event of it is under way.

        The next one of that name begins with a whole event.  Who waits for one that will not be
        written is told that it was not, and asks again.
        """
        writing = self._writings.get(group_id)
        for done in self.handed_over(group_id):
            done(_TURNED)
        return writing is not None and writing.is_under_way

    def handed_over(self, group_id: str) -> list[Done]:
        """A group turns into a classic one: who waits for an event that will not be written.

        They are told when that is durable which is written of the group instead."""
        writing = self._writings.pop(group_id, None)
        if writing is None:
            return []
        self._sizes.drop(SECTION, group_id)
        waiting, writing.waiting = writing.waiting, []
        return waiting

    def close(self, error: OSError) -> None:
        """The broker ends: whoever waits is told."""
        for writing in self._writings.values():
            waiting, writing.waiting = writing.waiting, []
            writing.tell(error)
            for done in waiting:
                done(error)
        self._writings.clear()


class _Rows(NamedTuple):
    """What is written down of a member; nothing: it is none any more."""

    says: list[Any] | None = None
    has: list[Any] | None = None
    classic: list[Any] | None = None
    since: int | list[int] | None = None


def _rows(group: ConsumerGroup, member_id: str) -> _Rows:
    member = group.members[member_id]
    return _packed(member.said, member.has(group.target.of(member_id)))


def _packed(says: Says, has: Has) -> _Rows:
    classic = None if says.classic is None else says.classic.row()
    return _Rows(says.row(), has.row(), classic, has.since_row())


def _size(member_id: str, rows: _Rows) -> int:
    told = [row for row in rows if row is not None]
    return 2 * len(member_id.encode()) + len(pack({"": told})) + _ROW_OVERHEAD


def _size_of(group_id: str, writing: _Writing) -> int:
    return _OVERHEAD + len(group_id.encode()) + sum(writing.sizes.values())

"""Writing down groups whose members take single steps, so that they outlive a restart.

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
and whoever is given something has it in an event that is not before the one in which another has
let go of it.  If one cannot be written, who waits for it is told, and the next is a whole one: that
which failed may be there in part.  It is written when somebody waits again, or by housekeeping.

At the limit (kept_sizes.py) a group is written down without its members, with a warning, until it
is smaller; with its epochs all the same, or those of before would come again behind a restart.

What an event holds is the matter of a kind of group: kept_consumers.py, kept_streams.py.

Invariant: what a member was told is durable.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import structlog

from segbroker.protocol.vendor import pack
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.group_rows import epoch_of

from ..failed_changes import FailedChanges
from ..recording import Done, ignored
from .kept_sizes import WITHOUT_MEMBERS, KeptSizes, RowSizes

log = structlog.get_logger()

OVERHEAD: Final = 200
"""Bytes of an event beside the names and the rows."""
ROW_OVERHEAD: Final = 16

_TURNED: Final = OSError("the group is another one meanwhile")


class KeptKind(Protocol):
    """A group that is written down so."""

    @property
    def group_id(self) -> str: ...
    @property
    def unkept(self) -> set[str]: ...
    @property
    def members(self) -> Sized: ...
    @property
    def epoch(self) -> int: ...


G = TypeVar("G", bound=KeptKind)


@dataclass(slots=True, eq=False)
class Writing:
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
    sizes: RowSizes = field(default_factory=RowSizes)
    """Bytes of the rows of each member."""
    said_sizes: dict[str, int] = field(default_factory=dict)
    """Those in it of what it says of itself, where they are looked at by themselves."""

    def tell(self, error: OSError | None) -> None:
        """What has become of the event that is, or was, under way."""
        told, self.told = self.told, []
        for done in told:
            done(error)

    def size(self, group_id: str) -> int:
        """Bytes of the whole group."""
        return OVERHEAD + len(group_id.encode()) + self.sizes.total


class KeptMembers(ABC, Generic[G]):
    """The groups of one kind, of one data directory."""

    section: ClassVar[str]
    kind: ClassVar[str]
    """Of the event."""
    not_recorded: ClassVar[str]
    """Lines of the log: an event could not be written; one that forgets; members are left out."""
    not_forgotten: ClassVar[str]
    without_members: ClassVar[str]

    def __init__(
        self,
        manager: DiskManager,
        sizes: KeptSizes,
        end_turn: Callable[[], None],
        failed: FailedChanges,
    ) -> None:
        """end_turn: send what was answered outside of a request.  failed: tells what could not be
        written."""
        self._manager = manager
        self._failed = failed
        self._sizes = sizes
        self._end_turn = end_turn
        self._writings: dict[str, Writing] = {}

    @abstractmethod
    def _taken(self, group: G, writing: Writing, members: frozenset[str]) -> dict[str, Any]:
        """The next event, of these members; what is unkept of the group is in it."""

    @abstractmethod
    def _without_members(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event by which a group, written down so, has no members any more."""

    def keep_number(self, group_id: str) -> None:
        """Write down that nobody is in a group, which is not in memory; it counts on."""
        self.turned(group_id)
        fields = self._without_members((self._manager.section(self.section) or {})[group_id])
        self._sizes.put(self.section, group_id, OVERHEAD + len(pack(fields)))
        told = self._failed.told(self.not_recorded, group_id, group=group_id)
        self._manager.record_soon(told, self.kind, group=group_id, **fields)

    def number(self, group_id: str) -> int:
        """The epoch that is written down of a group; 0: none is."""
        return epoch_of(self._manager.section(self.section), group_id)

    def names(self) -> Mapping[str, Any]:
        """Every group of which something is written down."""
        return self._manager.section(self.section) or {}

    def _found(
        self, group_id: str, sizes: dict[str, int], said_sizes: dict[str, int] | None = None
    ) -> None:
        """A start finds this group, with so many bytes of each member."""
        writing = self._writings[group_id] = Writing(is_whole=False, sizes=RowSizes(sizes))
        writing.said_sizes = said_sizes or {}
        self._sizes.put(self.section, group_id, writing.size(group_id))

    # Writing down

    def keep(self, group: G, *, again: bool = False) -> None:
        """Write down what has changed, as soon as what is under way is durable.

        again: also if that has just failed, and nobody waits for it.
        """
        writing = self._writings.setdefault(group.group_id, Writing())
        if not group.unkept or writing.is_under_way:
            return
        # A whole event for each heartbeat would not make room on a disk that is full.
        if writing.has_failed and not (writing.waiting or again):
            return
        members = frozenset(group.unkept)
        group.unkept.clear()
        fields = self._taken(group, writing, members)
        writing.told, writing.waiting = writing.waiting, []
        writing.members, writing.is_under_way, writing.is_whole = members, True, False

        def written(error: OSError | None) -> None:
            writing.is_under_way, writing.members = False, frozenset()
            writing.has_failed = error is not None
            if error is not None:
                name = group.group_id
                self._failed.tell(self.not_recorded, name, group=name, error=str(error))
                writing.is_whole = True
                group.unkept.update(members)
            is_here = self._writings.get(group.group_id) is writing
            writing.tell(error)
            if is_here:
                self.keep(group)
            self._end_turn()

        self._manager.record_soon(written, self.kind, group=group.group_id, **fields)

    def _has_room(self, group: G, writing: Writing) -> bool:
        """Whether the group can be written down with its members."""
        size = writing.size(group.group_id)
        return not group.members or self._sizes.has_room(group.group_id, size)

    def _put(self, group: G, writing: Writing) -> None:
        """It is written down with its members."""
        self._sizes.put(self.section, group.group_id, writing.size(group.group_id))

    def _puts_nobody(self, group: G, writing: Writing) -> bool:
        """The group is too large: whether it is written down with members as yet."""
        was_over, writing.is_over = writing.is_over and not writing.is_whole, True
        if was_over:
            return False
        log.warning(
            self.without_members,
            group=group.group_id,
            epoch=group.epoch,
            members=len(group.members),
            size=writing.size(group.group_id),
            size_max=self._sizes.size_max,
            all_sizes=self._sizes.others(group.group_id),
            effect=WITHOUT_MEMBERS,
        )
        self._sizes.put(self.section, group.group_id, OVERHEAD)
        return True

    # Waiting

    def when_kept(self, group: G, member_id: str | None, done: Done) -> None:
        """Call `done` when what is known of a member is durable, of all of them with None.

        At once where it is; with an error where it cannot be.
        """
        writing = self._writings.setdefault(group.group_id, Writing())
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
        told = self._failed.told(self.not_forgotten, group_id, done, group=group_id)
        self._manager.record_soon(told, self.kind, group=group_id, epoch=None)

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
        """A group turns into another kind: who waits for an event that will not be written.

        They are told when that is durable which is written of the group instead."""
        writing = self._writings.pop(group_id, None)
        if writing is None:
            return []
        self._sizes.drop(self.section, group_id)
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

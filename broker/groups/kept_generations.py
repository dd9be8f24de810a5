"""What is written down of the generations of classic groups, so that members outlive a restart.

    generation complete -> control event, durable -> its members are answered (group_rounds.py)
    start               -> the last event of each group -> a stable group, sessions begin anew

| the group | is written down |
|---|---|
| has a generation, or a static member took a place in it | with all members, waited for |
| is empty | its number, from which the next one counts on |
| is forgotten: deleted, expired, or empty for a while without offsets | not any more |

At the limit (kept_sizes.py) a generation is written down without its members, with a warning.

Invariant: what is written down is a generation of which somebody may have been told, or an older
one that nobody has succeeded: whoever is of an older one than that is refused after a restart, but
for members of whom it is written down that they are at an earlier one.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import structlog

from segbroker.protocol.vendor import pack
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.generations import (
    GENERATION,
    SECTION,
    Generation,
    generations_in,
    has_members,
    number_of,
    protocol_type_of,
)

from ..failed_changes import FailedChanges
from ..recording import Done, ignored
from .kept_sizes import WITHOUT_MEMBERS, KeptSizes

log = structlog.get_logger()

_OVERHEAD: Final = 100
"""Bytes of an event beside the group's name and the generation's fields."""


class KeptGenerations:
    """The generations of one data directory."""

    def __init__(self, manager: DiskManager, sizes: KeptSizes, failed: FailedChanges) -> None:
        self._manager = manager
        self._failed = failed
        self._sizes = sizes
        for group_id, kept in self._all():
            sizes.put(SECTION, group_id, _size(group_id, kept))

    def _all(self) -> Iterator[tuple[str, Generation]]:
        return generations_in(self._manager.section(SECTION))

    def names(self) -> Mapping[str, Any]:
        """Every group of which something is written down."""
        return self._manager.section(SECTION) or {}

    def number(self, group_id: str) -> int:
        """The generation that is written down of a group; 0: none is."""
        return number_of(self._manager.section(SECTION), group_id)

    def has_members(self, group_id: str) -> bool:
        """Whether it is written down that somebody is in a group."""
        return has_members(self._manager.section(SECTION), group_id)

    def protocol_type(self, group_id: str) -> str:
        """What is written down that a group is one of; empty: nothing is."""
        return protocol_type_of(self._manager.section(SECTION), group_id)

    def with_members(self) -> Iterator[tuple[str, Generation]]:
        """The groups that somebody was in when the last broker ended."""
        return ((group, kept) for group, kept in self._all() if kept.members)

    def keep(self, group_id: str, kept: Generation, done: Done) -> None:
        """Write a generation down; `done` when that is durable, or has failed."""
        size = _size(group_id, kept)
        if kept.members and not self._sizes.has_room(group_id, size):
            log.warning(
                "generation_without_members",
                group=group_id,
                generation=kept.number,
                members=len(kept.members),
                size=size,
                size_max=self._sizes.size_max,
                all_sizes=self._sizes.others(group_id),
                effect=WITHOUT_MEMBERS,
            )
            kept = Generation(kept.number, kept.protocol_type)
            size = _size(group_id, kept)
        self._sizes.put(SECTION, group_id, size)
        written = self._failed.told(
            "generation_not_recorded", group_id, done, group=group_id, generation=kept.number
        )
        self._manager.record_soon(written, GENERATION, group=group_id, **kept.fields())

    def keep_number(self, group_id: str) -> None:
        """Write down that nobody is in a group; its next generation counts on."""
        kept = Generation(self.number(group_id), self.protocol_type(group_id))
        self.keep(group_id, kept, ignored)

    def forget(self, group_id: str, done: Done = ignored) -> None:
        """Have nothing written down of a group, if something is; `done` when that is durable, or
        has failed."""
        if not self.number(group_id):
            done(None)
            return
        self._sizes.drop(SECTION, group_id)
        told = self._failed.told("generation_not_forgotten", group_id, done, group=group_id)
        self._manager.record_soon(told, GENERATION, group=group_id, members=None)


def _size(group_id: str, kept: Generation) -> int:
    return _OVERHEAD + len(group_id.encode()) + len(pack(kept.fields()))

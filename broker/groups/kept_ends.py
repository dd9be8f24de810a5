"""When groups with offsets lost their last member, written down as it happens.

    the last member goes -> group_emptied -> the event by which nobody is in the group

Events are durable in their order: whoever reads that a group is empty reads since when, after a
kill too.  The other way round members are there again after the start, and leave once more.

| a group | counts from |
|---|---|
| lost its last member | then; not written where its last commit is no minute older |
| had members that a start cannot bring back | the first look after that start |
| has more members than can be written down (kept_sizes.py) | the last look into groups |
| never had members | each offset from its own commit (offset_expiry.py) |

Limit: while the wall clock is not believed nothing is written; whoever keeps the house does it when
it is again.  A kill between the two loses the time.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.committed import last_commit_ms
from segbroker.segments.metadata.emptied import EMPTIED, SECTION, emptied_ms

from ..failed_changes import FailedChanges

CLOSE_MS: Final = 60_000
"""A time that is no more than this after what is known is not written: most commit when they go."""


class KeptEnds:
    """These times of one data directory."""

    def __init__(
        self, manager: DiskManager, now_ms: Callable[[], int], failed: FailedChanges
    ) -> None:
        """now_ms: the wall clock."""
        self._manager = manager
        self._failed = failed
        self._now_ms = now_ms
        self._under_way: dict[str, int] = {}

    def names(self) -> Mapping[str, Any]:
        """Every group of which a time is written down."""
        return self._manager.section(SECTION) or {}

    def has(self, group_id: str) -> bool:
        """Whether it is known when a group lost its last member."""
        is_written = emptied_ms(self._manager.section(SECTION), group_id) >= 0
        return is_written or group_id in self._under_way

    def last_used_ms(self, group_id: str) -> int:
        """When somebody was last in a group without members, or committed for it; -1: never."""
        return max(
            last_commit_ms(self._manager.committed, group_id),
            emptied_ms(self._manager.section(SECTION), group_id),
            self._under_way.get(group_id, -1),
        )

    def happens(self, group_id: str) -> None:
        """Somebody was in the group until now."""
        if self._manager.believes_clock:
            self.keep(group_id, self._now_ms())

    def keep(self, group_id: str, at_ms: int) -> None:
        """Write down that somebody was in the group until `at_ms`, if that says anything new."""
        if group_id not in self._manager.committed:
            return
        if at_ms <= self.last_used_ms(group_id) + CLOSE_MS:
            return
        self._under_way[group_id] = at_ms
        done = self._failed.told("group_end_not_recorded", group_id, group=group_id)

        def written(error: OSError | None) -> None:
            if self._under_way.get(group_id) == at_ms:
                del self._under_way[group_id]
            done(error)

        self._manager.record_soon(written, EMPTIED, group=group_id, at=at_ms)

    def forget(self, group_id: str) -> None:
        """Have nothing written down of a group, if something is.  Not waited for."""
        if not self.has(group_id):
            return
        done = self._failed.told("group_end_not_forgotten", group_id, group=group_id)
        self._manager.record_soon(done, EMPTIED, group=group_id, at=None)

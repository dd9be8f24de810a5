"""The offsets that groups committed: control events, durable before a commit is answered."""

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from segbroker.segments.committed import (
    COMMITTED,
    FORGOTTEN,
    CommitRow,
    CommittedOffset,
    ForgetRow,
    offsets_of,
)
from segbroker.segments.manager import DiskManager

from ..recording import Done
from .offset_events import record_rows


class GroupOffsets:
    """Those of one data directory."""

    def __init__(self, manager: DiskManager) -> None:
        self._manager = manager
        self._under_way: Counter[str] = Counter()

    def is_committing(self, group_id: str) -> bool:
        """Whether a commit of the group is on its way to the disk: what is seen of its offsets is
        not where it stands, and what is forgotten now would be forgotten after it."""
        return group_id in self._under_way

    def offsets(self, group_id: str, topic: str, topic_id: UUID) -> dict[int, CommittedOffset]:
        """What the group committed to this topic, by partition."""
        return offsets_of(self._manager.committed, group_id, topic, topic_id)

    def topics(self, group_id: str) -> list[str]:
        """The topics that the group has committed to."""
        return sorted(self._manager.committed.get(group_id, {}))

    def commit(
        self,
        group_id: str,
        rows: list[CommitRow],
        at_ms: int,
        done: Done,
        expire_ms: int | None,
    ) -> None:
        """Store offsets; `done` when they are durable, or are not.  expire_ms: kept until then."""
        self._under_way[group_id] += 1

        def stored(error: OSError | None) -> None:
            self._under_way[group_id] -= 1
            if not self._under_way[group_id]:
                del self._under_way[group_id]
            done(error)

        times = {"at": at_ms} if expire_ms is None else {"at": at_ms, "expire": expire_ms}
        record_rows(self._manager, COMMITTED, group_id, rows, stored, **times)

    def forget(
        self,
        group_id: str,
        rows: Iterable[tuple[str, int]] | None,
        done: Done,
    ) -> None:
        """Forget offsets, all of them with `rows` None; `done` when that is durable."""
        if rows is None:
            self._manager.record_soon(done, FORGOTTEN, group=group_id, rows=None)
        else:
            named = [ForgetRow(*row) for row in rows]
            record_rows(self._manager, FORGOTTEN, group_id, named, done)

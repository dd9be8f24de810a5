"""The offsets that groups committed: control events, durable before a commit is answered."""

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
        times = {"at": at_ms} if expire_ms is None else {"at": at_ms, "expire": expire_ms}
        record_rows(self._manager, COMMITTED, group_id, rows, done, **times)

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

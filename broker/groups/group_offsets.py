"""The offsets that groups committed: control events, durable before a commit is answered.

    commit, forget ──▶ events (offset_events.py) ── durable ──▶ the state of the metadata
    offsets, topics ◀── that state: nothing is kept here beside it

What is seen is durable, so for a moment it is not the last that was said.  `committing` has the
topics for which that is so: nobody may forget what stands there by what is seen of it.

Of a commit and an offset that a transaction has staged the later one stands, whenever that commits:
a commit beside a staged one says behind which event it came (`after`).

Whether a sender may commit, and whether the metadata has room, is asked before
(apis/offset_store.py); when an offset goes by itself is in offset_expiry.py.  Where an event cannot
be written, `done` has the error, and what stood before stands.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.committed import (
    COMMITTED,
    FORGOTTEN,
    CommitRow,
    ForgetRow,
    Offsets,
    offsets_of,
)

from ..recording import Done
from .offset_events import record_rows


class GroupOffsets:
    """Those of one data directory."""

    def __init__(
        self, manager: DiskManager, pending: Callable[[str], Collection[tuple[str, int]]]
    ) -> None:
        """pending: partitions of which a transaction is about to say where a group stands."""
        self._manager = manager
        self._pending = pending
        self._under_way: dict[str, Counter[str]] = {}

    def committing(self, group_id: str) -> Collection[str]:
        """Topics of which a commit of the group is on its way to the disk: what is seen of these
        offsets is not where it stands, and to forget one now would be to forget the next."""
        return self._under_way.get(group_id, Counter()).keys()

    def offsets(self, group_id: str, topic: str, topic_id: UUID) -> Offsets:
        """What the group committed to this topic."""
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
        topics = {row.topic for row in rows}
        self._under_way.setdefault(group_id, Counter()).update(topics)

        def stored(error: OSError | None) -> None:
            left = self._under_way[group_id]
            left.subtract(topics)
            for topic in topics:
                if not left[topic]:
                    del left[topic]
            if not left:
                del self._under_way[group_id]
            done(error)

        times = {"at": at_ms} if expire_ms is None else {"at": at_ms, "expire": expire_ms}
        pending = self._pending(group_id)
        if pending and any((row.topic, row.partition) in pending for row in rows):
            times["after"] = self._manager.last_seq  # it is later than what was staged
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

"""Rows of committed offsets written down: mostly one control event, of many rows several.

An event is of limited size (committed.py), a commit of what a request may hold.  The events of one
commit lie behind each other; after a kill in between the first of them are there, as after a client
that had sent two requests.
"""

from collections.abc import Sequence

from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.committed import CommitRow, ForgetRow, pieces

from ..recording import Done


def record_rows(
    manager: DiskManager,
    kind: str,
    group_id: str,
    rows: Sequence[CommitRow] | Sequence[ForgetRow],
    done: Done,
    **fields: int,
) -> None:
    """Write rows in as many events as they need; `done` when all are durable, or one is not.

    fields: what each of the events says beside its rows.
    """
    events = list(pieces(group_id, rows, manager.event_size_max))
    left = len(events)
    failure: OSError | None = None

    def written(error: OSError | None) -> None:
        nonlocal left, failure
        left -= 1
        failure = failure or error
        if not left:
            done(failure)

    for packed in events:
        manager.record_soon(written, kind, group=group_id, rows=packed, **fields)

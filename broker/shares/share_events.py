"""Where share groups stand, written down: mostly one control event, of many rows several.

An event is of limited size (segments/metadata/share_groups.py), and what it is about may be as much
as a request holds.  The events of one call lie behind each other; after a kill in between the first
of them are there, as after a client that had sent two requests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from segbroker.protocol.fields import ZERO_UUID
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.metadata.share_groups import (
    FORGOTTEN,
    OFFSETS_SET,
    STATES,
    ShareRow,
    offsets_set_fields,
    pieces,
    states_fields,
)

from ..recording import Done

EVENT_BYTES_MAX: Final = 64 << 10
"""Of one event, at most: the loop does not stall over it."""


def record_states(
    manager: DiskManager, group_id: str, rows: Iterable[ShareRow], done: Done
) -> None:
    """What became of records; `done` when all of it is durable, or some is not."""
    events = [states_fields(group_id, piece) for piece in _pieces(manager, group_id, rows)]
    _record(manager, STATES, events, done)


def record_offsets(
    manager: DiskManager, group_id: str, rows: Iterable[ShareRow], done: Done
) -> None:
    """Where a group begins anew; likewise."""
    events = [offsets_set_fields(group_id, piece) for piece in _pieces(manager, group_id, rows)]
    _record(manager, OFFSETS_SET, events, done)


def record_forgotten(
    manager: DiskManager, group_id: str, topics: Iterable[str] | None, done: Done
) -> None:
    """That nothing is known of a group in these topics, or, with None, in all; likewise."""
    named: list[list[str] | None] = [None]
    if topics is not None:
        rows = [ShareRow(topic, ZERO_UUID, 0, 0) for topic in topics]
        named = [[row.topic for row in piece] for piece in _pieces(manager, group_id, rows)]
    _record(manager, FORGOTTEN, [{"group": group_id, "topics": some} for some in named], done)


def _pieces(
    manager: DiskManager, group_id: str, rows: Iterable[ShareRow]
) -> Iterator[list[ShareRow]]:
    return pieces(group_id, rows, min(EVENT_BYTES_MAX, manager.event_size_max))


def _record(
    manager: DiskManager, kind: str, events: Sequence[Mapping[str, object]], done: Done
) -> None:
    left, failure = len(events), None

    def written(error: OSError | None) -> None:
        nonlocal left, failure
        left, failure = left - 1, failure or error
        if not left:
            done(failure)

    if not events:
        done(None)
    for fields in events:
        manager.record_soon(written, kind, **fields)

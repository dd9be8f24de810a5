"""Share groups (KIP-932): what became of the records that a group works on, as control events.

    section "share_groups" of the snapshot:
        {group: {topic: [topic id, {partition: [start, [[first, last, state, deliveries]]]}]}}

    start        the first offset that the group is not done with; all below are
    spans        what is known above it: ascending, apart from each other, both ends included
    state        0 available, 2 acknowledged, 4 archived; nobody writes down who works on a record
    deliveries   how often the record was handed out

| event | fields | afterwards |
|---|---|---|
| share_states | group, rows [[topic, id, partition, start, spans]] | these spans lie over others |
| share_offsets_set | group, rows [[topic, id, partition, start]] | it begins there, without spans |
| share_offsets_forgotten | group, topics, or null for all | nothing is known of these |

A start goes back by share_offsets_set alone.  What lies below it is gone; what is above all spans
was not handed out yet.  A row belongs to the topic with its id: what a group did with a deleted
topic is not what it has done with one of the same name that came after.  It goes with its topic,
and one that comes behind the deletion is passed over (control.py): a group has nothing of a topic
that there is not, for nothing here expires.  The states have Kafka's numbers.  Every function here
is pure: what it was given stays as it is.

Invariant: a group of the section has a topic, and a topic of it a partition.
"""

from bisect import bisect_left, bisect_right
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from .name_map import Draft, NameMap
from .wide_rows import changed_rows

SECTION: Final = "share_groups"
STATES: Final = "share_states"
OFFSETS_SET: Final = "share_offsets_set"
FORGOTTEN: Final = "share_offsets_forgotten"

ROWS_MAX: Final = 1_000
"""Rows of one event: the loop does not stall over it."""
_ROW_OVERHEAD: Final = 64
"""Of a row, beside the topic's name and the spans: its id, the numbers, and what msgpack adds."""
_SPAN_SIZE_MAX: Final = 24
"""Of a span: two offsets, its state and how often it was handed out."""
_EVENT_OVERHEAD: Final = 112
"""Of an event, beside its rows and the group's name."""
_FIRST: Final = itemgetter(0)
_LAST: Final = itemgetter(1)

Content: TypeAlias = Mapping[str, Mapping[str, Any]]
Fields: TypeAlias = Mapping[str, Any]


class RecordState(IntEnum):
    """What became of a record, by Kafka's numbers; ACQUIRED is never written down."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class Span(NamedTuple):
    """Records with one fate: offsets, both ends included."""

    first: int
    last: int
    state: int
    deliveries: int


class ShareState(NamedTuple):
    """Where a group stands in a partition."""

    start: int
    spans: tuple[Span, ...] = ()


class ShareRow(NamedTuple):
    """What changed in one partition."""

    topic: str
    topic_id: UUID
    partition: int
    start: int
    spans: Sequence[Span] = ()


def states_fields(group: str, rows: Iterable[ShareRow]) -> dict[str, Any]:
    """The fields of a share_states event."""
    return {
        "group": group,
        "rows": [
            [row.topic, row.topic_id.bytes, row.partition, row.start, [list(s) for s in row.spans]]
            for row in rows
        ],
    }


def offsets_set_fields(group: str, rows: Iterable[ShareRow]) -> dict[str, Any]:
    """The fields of a share_offsets_set event: of the rows, where they begin."""
    return {
        "group": group,
        "rows": [[row.topic, row.topic_id.bytes, row.partition, row.start] for row in rows],
    }


def pieces(group: str, rows: Iterable[ShareRow], size_max: int) -> Iterator[list[ShareRow]]:
    """The rows for events of at most `size_max` bytes: mostly one, of all.

    A row of more spans than there is room for becomes several, of which each lies over the last.
    """
    room = left = size_max - _EVENT_OVERHEAD - len(group.encode())
    piece: list[ShareRow] = []
    for row in rows:
        spans = row.spans
        while True:
            head = _ROW_OVERHEAD + len(row.topic.encode())
            if piece and (len(piece) == ROWS_MAX or head + _SPAN_SIZE_MAX * len(spans) > left):
                yield piece
                piece, left = [], room
            fitting = max(1, (left - head) // _SPAN_SIZE_MAX)
            piece.append(row._replace(spans=spans[:fitting]))
            left -= head + _SPAN_SIZE_MAX * min(len(spans), fitting)
            spans = spans[fitting:]
            if not spans:
                break
    if piece:
        yield piece


def grows(content: Content, group: str, row: ShareRow) -> bool:
    """Whether there would be a row that is not there yet."""
    topic_id, rows = content.get(group, {}).get(row.topic, (b"", {}))
    return topic_id != row.topic_id.bytes or str(row.partition) not in rows


def state_of(
    content: Content, group: str, topic: str, topic_id: UUID, partition: int
) -> ShareState | None:
    """Where a group stands in a partition of this very topic; None: nothing is known."""
    found = content.get(group, {}).get(topic)
    if found is None or found[0] != topic_id.bytes:
        return None
    row = found[1].get(str(partition))
    return None if row is None else _state(row)


def all_of(content: Content, group: str) -> Iterator[tuple[str, UUID, int, ShareState]]:
    """All that is known of a group: topic, its id, partition, where it stands."""
    for topic, (topic_id, rows) in content.get(group, {}).items():
        meant = UUID(bytes=topic_id)
        for partition, row in rows.items():
            yield topic, meant, int(partition), _state(row)


def _state(row: Sequence[Any]) -> ShareState:
    """As it is written down; what is done with from the start on, of which no event said so by its
    start as others were on their way, is below it."""
    start, spans = row
    done = 0
    while done < len(spans) and spans[done][0] == start and spans[done][2] != RecordState.AVAILABLE:
        start, done = spans[done][1] + 1, done + 1
    return ShareState(start, tuple(Span(*span) for span in spans[done:]))


def overlaid(
    known: Sequence[Sequence[int]], above: Iterable[Sequence[int]], start: int
) -> list[Sequence[int]]:
    """Spans with others laid over them, from `start` on; neighbours with one fate are one.

    Only those around the others are looked at: a group that leaves a gap in every second record has
    thousands, and acknowledges one.
    known: as this makes them.  above: ascending, apart from each other.
    """
    covers = [span for span in above if span[1] >= start]
    left = list(known[bisect_left(known, start, key=_LAST) :])
    if left and left[0][0] < start:
        left[0] = [start, *left[0][1:]]
    if not covers:
        return left
    # With those that only touch them: they may be one then.
    begin = bisect_left(left, covers[0][0] - 1, key=_LAST)
    end = bisect_right(left, covers[-1][1] + 1, begin, key=_FIRST)
    left[begin:end] = _laid_over(left[begin:end], covers, start)
    return left


def _laid_over(
    known: Iterable[Sequence[int]], covers: Sequence[Sequence[int]], start: int
) -> list[list[int]]:
    """As `overlaid`, looking at all."""
    pieces = [list(span) for span in covers]
    rest = iter(covers)
    cover = next(rest, None)
    for first, last, state, deliveries in known:
        at = first
        while cover is not None and cover[1] < at:
            cover = next(rest, None)
        while cover is not None and cover[0] <= last:
            if cover[0] > at:
                pieces.append([at, cover[0] - 1, state, deliveries])
            at = max(at, cover[1] + 1)
            if cover[1] > last:
                break
            cover = next(rest, None)
        if at <= last:
            pieces.append([at, last, state, deliveries])
    found: list[list[int]] = []
    for first, last, state, deliveries in sorted(pieces):
        at = max(first, start)
        if found and found[-1][1] == at - 1 and found[-1][2:] == [state, deliveries]:
            found[-1][1] = last
        else:
            found.append([at, last, state, deliveries])
    return found


def states(content: Content | None, fields: Fields) -> Content:
    """After share_states."""
    changed = _Changed(content, fields["group"])
    for topic, topic_id, partition, start, spans in fields["rows"]:
        rows = changed.rows(topic, topic_id)
        before, known = rows.get(str(partition), (start, ()))
        begin = max(before, start)  # of two that were under way the first may be the farther
        rows[str(partition)] = [begin, overlaid(known, spans, begin)]
    return changed.done()


def offsets_set(content: Content | None, fields: Fields) -> Content:
    """After share_offsets_set."""
    changed = _Changed(content, fields["group"])
    for topic, topic_id, partition, start in fields["rows"]:
        changed.rows(topic, topic_id)[str(partition)] = [start, []]
    return changed.done()


def forgotten(content: Content | None, fields: Fields) -> Content:
    """After share_offsets_forgotten."""
    changed = _Changed(content, fields["group"])
    changed.forget(fields["topics"])
    return changed.done()


def without_topics(content: Content, names: Collection[str]) -> Content:
    """After these topics were deleted."""
    gone = set(names)
    known = NameMap.of(content)
    groups = known.draft()
    for group, topics in known.entries():
        if not topics.keys().isdisjoint(gone):
            left = {topic: rows for topic, rows in topics.items() if topic not in gone}
            _put(groups, group, left)
    return groups.done()


class _Changed:
    """The section while an event changes what is known of one group."""

    def __init__(self, content: Content | None, group: str) -> None:
        self._groups = NameMap.of(content).draft()
        self._group = group
        self._topics = dict(self._groups.get(group, {}))
        self._rows: dict[str, tuple[bytes, ChainMap[str, Any]]] = {}

    def rows(self, topic: str, topic_id: bytes) -> ChainMap[str, Any]:
        """The partitions of a topic, to be changed: another topic of that name has none."""
        if topic not in self._rows or self._rows[topic][0] != topic_id:
            known_id, known = self._topics.get(topic, (topic_id, {}))
            self._rows[topic] = topic_id, ChainMap({}, known if known_id == topic_id else {})
        return self._rows[topic][1]

    def forget(self, topics: Iterable[str] | None) -> None:
        """None: all of them."""
        for topic in list(self._topics) if topics is None else topics:
            self._topics.pop(topic, None)

    def done(self) -> Content:
        for topic, (topic_id, rows) in self._rows.items():
            put, known = rows.maps
            self._topics[topic] = [topic_id, changed_rows(known, put)]
        _put(self._groups, self._group, self._topics)
        return self._groups.done()


def _put(groups: Draft[Mapping[str, Any]], group: str, topics: Mapping[str, Any]) -> None:
    if topics:
        groups[group] = topics
    else:
        groups.pop(group, None)

"""Committed offsets: where the groups are, kept as control events like all that is not a batch.

    section "groups" of the snapshot:
        {group: {topic: [topic id, {partition: [offset, leader epoch, metadata, at_ms, ...]}]}}
    ...: expire_ms, where the commit said how long it is kept; and after_seq, see below

| event | fields | afterwards |
|---|---|---|
| offsets_committed | group, at, rows [[topic, id, partition, offset, epoch, metadata]] | stand so |
| ... with `expire` | | ... and are kept until then |
| ... with `after` | | ... and outlive what transactions staged in front of them |
| offsets_forgotten | group, rows [[topic, partition]], or null for all | these are gone |

Of two offsets of a partition the later one stands, and that of a transaction is as old as its
staging, whenever it is committed.  So both tell behind which event they were handed over, by its
`seq`: a staged one always, one without a transaction where a staged one waits beside it.

A row belongs to the topic with its id: what a group committed to a deleted topic is not where it
stands in one of the same name that came after.  Every function here is pure: what it was given
stays as it is, so that a state may be read while the next one is made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from .name_map import NameMap
from .wide_rows import changed_rows

SECTION: Final = "groups"
COMMITTED: Final = "offsets_committed"
FORGOTTEN: Final = "offsets_forgotten"

ROWS_MAX: Final = 1_000
"""Rows of one event: the loop does not stall over it."""
_ROW_OVERHEAD: Final = 64
"""Of a row, beside names: a topic's id, the numbers, and what msgpack adds."""
_ROW_FIELDS: Final = 6
"""Of a row of a commit."""
_EVENT_OVERHEAD: Final = 112
"""Of an event, beside its rows and the group's name."""

Content: TypeAlias = Mapping[str, Mapping[str, Any]]
Fields: TypeAlias = Mapping[str, Any]


class CommittedOffset(NamedTuple):
    """Where a group stands in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int
    expire_ms: int | None = None
    """Until when it is kept, where the commit has said so."""
    after_seq: int = -1
    """The last event that was handed over before it; -1: nobody needs to know."""


NOWHERE: Final = CommittedOffset(-1, -1, "", -1)
"""Where a group stands that never committed."""


class CommitRow(NamedTuple):
    """One partition of a commit."""

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str

    def pack(self) -> list[object]:
        """As it stands in the event."""
        topic, topic_id, *rest = self
        return [topic, topic_id.bytes, *rest]

    @property
    def size_max(self) -> int:
        """Bytes that it takes in the event, at most."""
        return _ROW_OVERHEAD + len(self.topic.encode()) + len(self.metadata.encode())


class ForgetRow(NamedTuple):
    """One partition whose offset goes."""

    topic: str
    partition: int

    def pack(self) -> list[object]:
        """As it stands in the event."""
        return list(self)

    @property
    def size_max(self) -> int:
        """Bytes that it takes in the event, at most."""
        return _ROW_OVERHEAD + len(self.topic.encode())


def pieces(
    group: str, rows: Sequence[CommitRow] | Sequence[ForgetRow], size_max: int
) -> Iterator[list[list[object]]]:
    """The rows as they stand in events of at most `size_max` bytes: mostly one, of all."""
    room = left = size_max - _EVENT_OVERHEAD - len(group.encode())
    piece: list[list[object]] = []
    for row in rows:
        size = row.size_max
        if piece and (size > left or len(piece) == ROWS_MAX):
            yield piece
            piece, left = [], room
        piece.append(row.pack())
        left -= size
    yield piece


class Offsets:
    """What a group committed to a topic, as it stood when this was made: what it was made of never
    changes.  A row is made when it is asked for: there may be a hundred thousand."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """rows: as they are kept, by partition."""
        self._rows = rows

    def partitions(self) -> list[int]:
        """Where the group stands somewhere, in order."""
        return sorted(map(int, self._rows))

    def at(self, partition: int) -> CommittedOffset:
        """Where it stands in a partition."""
        row = self._rows.get(str(partition))
        return NOWHERE if row is None else CommittedOffset(*row)


NO_OFFSETS: Final = Offsets({})


def offsets_of(content: Content, group: str, topic: str, topic_id: UUID) -> Offsets:
    """What a group committed to a topic."""
    found = content.get(group, {}).get(topic)
    if found is None or found[0] != topic_id.bytes:
        return NO_OFFSETS
    return Offsets(found[1])


def grows(content: Content, group: str, row: CommitRow) -> bool:
    """Whether a commit takes more room than what stands: a row or a text that is not there yet."""
    found = content.get(group, {}).get(row.topic)
    known = None if found is None else found[1].get(str(row.partition))
    return known is None or len(row.metadata) > len(known[2])


def all_of(content: Content, group: str) -> Iterator[tuple[str, UUID, int, CommittedOffset]]:
    """Everything that a group committed: topic, its id, partition, where it stands."""
    for topic, (topic_id, rows) in content.get(group, {}).items():
        meant = UUID(bytes=topic_id)
        for partition, row in rows.items():
            yield topic, meant, int(partition), CommittedOffset(*row)


def offsets_count(content: Content, group: str) -> int:
    """How many offsets the group has."""
    return sum(len(rows) for _, rows in content.get(group, {}).values())


def last_commit_ms(content: Content, group: str) -> int:
    """When the group last committed; -1: never."""
    topics = content.get(group, {})
    return max((row[3] for _, rows in topics.values() for row in rows.values()), default=-1)


def committed(content: Content | None, fields: Fields) -> Content:
    """After offsets_committed."""
    times = [fields[name] for name in ("at", "expire") if name in fields]
    if "after" in fields:
        times = [fields["at"], fields.get("expire"), fields["after"]]
    rows = (
        (topic, topic_id, partition, (*offset, *times))
        for topic, topic_id, partition, *offset in fields["rows"]
    )
    return _standing(content, fields["group"], rows)


def transaction_committed(
    content: Content | None, group: str, staged: Iterable[Sequence[Any]], at_ms: int
) -> Content:
    """After the commit of a transaction: what it staged stands, but where something later does.

    A staged row is one of a commit, and its after_seq behind it; older versions wrote none.
    """
    topics = (content or {}).get(group, {})
    rows = []
    for row in staged:
        topic, topic_id, partition, *offset = row[:_ROW_FIELDS]
        after_seq = row[_ROW_FIELDS] if len(row) > _ROW_FIELDS else -1
        known_id, known = topics.get(topic, (topic_id, {}))
        before = known.get(str(partition)) if known_id == topic_id else None
        if before is None or CommittedOffset(*before).after_seq <= after_seq:
            rows.append((topic, topic_id, partition, (*offset, at_ms, None, after_seq)))
    return _standing(content, group, rows) if rows else content or {}


def _standing(
    content: Content | None, group: str, rows: Iterable[tuple[str, bytes, int, tuple[Any, ...]]]
) -> Content:
    """With these offsets of a group: topic, its id, partition, what is kept of it."""
    groups = NameMap.of(content).draft()
    topics = dict(groups.get(group, {}))
    changed: dict[str, tuple[bytes, dict[str, Any]]] = {}
    for topic, topic_id, partition, kept in rows:
        if topic not in changed or changed[topic][0] != topic_id:
            changed[topic] = topic_id, {}
        changed[topic][1][str(partition)] = kept
    for topic, (topic_id, put) in changed.items():
        known_id, known = topics.get(topic, (topic_id, {}))
        topics[topic] = [topic_id, changed_rows(known if known_id == topic_id else {}, put)]
    groups[group] = topics
    return groups.done()


def forgotten(content: Content | None, fields: Fields) -> Content:
    """After offsets_forgotten."""
    groups = NameMap.of(content).draft()
    gone: dict[str, set[str]] = {}
    for topic, partition in fields["rows"] or ():
        gone.setdefault(topic, set()).add(str(partition))
    topics = {} if fields["rows"] is None else dict(groups.get(fields["group"], {}))
    for topic in gone.keys() & topics.keys():
        topic_id, rows = topics[topic]
        left = changed_rows(rows, {}, gone[topic])
        topics[topic] = [topic_id, left]
        if not left:
            del topics[topic]
    groups[fields["group"]] = topics
    if not topics:
        del groups[fields["group"]]
    return groups.done()

"""Control events: every change of what a broker knows beside its batches.

    {"seq": 7, "kind": "topic_created", "name": "flights", "id": ..., ...}     one msgpack map

| kind | fields | afterwards |
|---|---|---|
| topic_created | name, id, partitions, epoch, config | there is this topic |
| topic_deleted | name, id | it is gone; its highest leader epoch is remembered by name |
| partitions_grown | name, id, partitions | it has so many |
| topic_altered | name, id, config | it has these settings |
| producer_ids | next | producer ids below `next` are given |
| boot | id, number | the machine is in its `number`-th boot of ours |
| ceilings | rows [[topic id, partition, offset, boot]] | none from `offset` on was acknowledged |
| epochs | rows [[topic id, partition, leader epoch]] | the partition's epoch is this or higher |
| offsets_committed, offsets_forgotten | committed.py | a group stands there, or nowhere |
| group_emptied | emptied.py | a group has no members since then |
| generation | generations.py | these are the members of a group, and what each has |
| consumer_group | consumer_groups.py | so do those of a KIP-848 group stand |
| streams_group | streams_groups.py | and those of a streams group |
| transaction, transactions_decided, transactions_forgotten | transactions.py | it is open, ends |
| acls_created, acls_deleted | acls.py | these rules stand, or are gone |
| quotas_set | quotas.py | an entity has these quotas |
| broker_settings_set, group_settings_set | broker_settings.py | it has these settings |
| user_set, user_unset, users_secret | credentials.py | a user has credentials, or none |
| share_states, share_offsets_set, share_offsets_forgotten | share_groups.py | so do shares |

An event is written durably, then `apply` makes the next state of the last; the snapshot absorbs
what came before it.  Replay takes the events above the snapshot's `seq`, in the order in which
they were written.

Rule for every kind: an event says how things are, not by how much they change.  Then applying one
a second time, in order, changes nothing, and events about different things may change places.

Further kinds (leases, cursors) are a `register` away: a name, a function
from state and event to state, and a section of the snapshot to keep it in.  An unknown kind ends
the opening: what it changed would be lost without a word.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.vendor import pack, unpack

from ..errors import CorruptSegment, UnsupportedFormat
from ..settings import topic_defaults
from ..settings.topic_config import TopicConfig
from . import (
    acls,
    broker_settings,
    committed,
    consumer_groups,
    credentials,
    emptied,
    generations,
    quotas,
    share_groups,
    streams_groups,
    transactions,
)
from .metadata import Ceiling, Metadata, TopicMeta, decode_topic
from .name_map import NameMap

Fields: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Sequence[Fields]
Apply: TypeAlias = Callable[[Metadata, Run], Metadata]

EVENT_SIZE_MAX: Final = 4 << 20
ROWS_MAX: Final = 1_000
"""Rows of one event; more take several."""


class Event(NamedTuple):
    """A change of the state."""

    seq: int
    kind: str
    fields: Fields

    def encode(self) -> bytes:
        """As it is written.  Raises LocalProtocolError."""
        return pack({"seq": self.seq, "kind": self.kind, **self.fields})


def decode_event(payload: bytes | memoryview) -> Event:
    """Raises CorruptSegment: its checksum was right, and yet it is no event."""
    try:
        fields = unpack(bytes(payload), size_max=EVENT_SIZE_MAX)
        return Event(fields.pop("seq"), fields.pop("kind"), fields)
    except (RemoteProtocolError, KeyError) as exc:
        raise CorruptSegment("control event", 0, f"not an event: {exc!r}") from exc


def apply(state: Metadata, event: Event) -> Metadata:
    """The state after this event.  Raises UnsupportedFormat, CorruptSegment."""
    return apply_all(state, [event])


def apply_all(state: Metadata, events: Iterable[Event]) -> Metadata:
    """The state after these events, in this order, those of one kind behind each other as one: of a
    thousand topics what they change is copied once.

    Raises UnsupportedFormat, CorruptSegment.
    """
    for kind, run in groupby(events, key=attrgetter("kind")):
        some = list(run)
        if kind not in KINDS:
            raise UnsupportedFormat("control event", kind, sorted(KINDS))
        try:
            state = KINDS[kind](state, [event.fields for event in some])
        except (KeyError, TypeError, ValueError) as exc:
            raise CorruptSegment("control event", 0, f"{kind}: {exc!r}") from exc
        seq = max(event.seq for event in some)
        state = state if state.seq >= seq else replace(state, seq=seq)
    return state


def _topics_created(state: Metadata, run: Run) -> Metadata:
    defaults = state.topic_defaults
    metas = {meta.name: meta for meta in (decode_topic(fields, defaults) for fields in run)}
    if len(metas) < len(run):  # made again, and the deletion in between was absorbed or lost
        for fields in run:
            state = _topics_created(state, [fields])
        return state
    replaced = [
        name
        for name, meta in metas.items()
        if name in state.topics and state.topics[name].topic_id != meta.topic_id
    ]
    # Their deletion was absorbed and this comes again.
    return _without_topics(state, replaced).with_topics(metas.values())


def _topics_deleted(state: Metadata, run: Run) -> Metadata:
    gone = {fields["name"]: None for fields in run if _is_known(state, fields)}
    return _without_topics(state, gone)


def _without_topics(state: Metadata, names: Collection[str]) -> Metadata:
    """Nor is anything left of what share groups did with them."""
    name = share_groups.SECTION
    state, content = state.without_topics(names), state.sections.get(name)
    if not content or not names:
        return state
    return state.with_section(name, share_groups.without_topics(content, names))


def _partitions_grown(state: Metadata, run: Run) -> Metadata:
    def change(meta: TopicMeta, fields: Fields) -> TopicMeta:
        return replace(meta, partitions=fields["partitions"])

    return _topics_changed(state, run, change)


def _topics_altered(state: Metadata, run: Run) -> Metadata:
    def change(meta: TopicMeta, fields: Fields) -> TopicMeta:
        return replace(meta, config=TopicConfig.parse(fields["config"], state.topic_defaults))

    return _topics_changed(state, run, change)


def _topics_changed(
    state: Metadata, run: Run, change: Callable[[TopicMeta, Fields], TopicMeta]
) -> Metadata:
    metas: dict[str, TopicMeta] = {}
    for fields in run:
        if _is_known(state, fields):
            name = fields["name"]
            metas[name] = change(metas.get(name, state.topics[name]), fields)
    return state.with_topics(metas.values()) if metas else state


def _topic_defaults(state: Metadata, fields: Fields) -> Metadata:
    return state.with_topic_defaults(topic_defaults.changed(fields))


def _is_known(state: Metadata, fields: Fields) -> bool:
    """Whether the topic is there; not so when the event is applied a second time."""
    meta = state.topics.get(fields["name"])
    return meta is not None and meta.topic_id.bytes == fields["id"]


def _producer_ids(state: Metadata, fields: Fields) -> Metadata:
    return replace(state, next_producer_id=max(state.next_producer_id, fields["next"]))


def _boot(state: Metadata, fields: Fields) -> Metadata:
    return replace(state, boot_id=fields["id"], boot=fields["number"])


def _ceilings(state: Metadata, run: Run) -> Metadata:
    return state.with_ceilings(
        (UUID(bytes=topic_id), partition, Ceiling(offset, boot))
        for topic_id, partition, offset, boot in _rows(run)
    )


def _epochs(state: Metadata, run: Run) -> Metadata:
    return state.with_epochs(
        (UUID(bytes=topic_id), partition, epoch) for topic_id, partition, epoch in _rows(run)
    )


def _rows(run: Run) -> Iterable[list[Any]]:
    return chain.from_iterable(fields["rows"] for fields in run)


def _groups(section: str, changed: Callable[[Any, Run], object], null_if_forgotten: str) -> Apply:
    """Groups are of the protocol that a section is of from here on, or forgotten."""

    def function(state: Metadata, run: Run) -> Metadata:
        content = changed(state.sections.get(section), run)
        theirs = [fields["group"] for fields in run if fields[null_if_forgotten] is not None]
        return _alone(state.with_section(section, content), section, theirs)

    return function


def _alone(state: Metadata, section: str, groups: Collection[str]) -> Metadata:
    """Without what the sections of other protocols hold of these groups."""
    for other in _OF_GROUPS:
        if other != section:
            state = _without_rows(state, other, groups)
    return state


def _without_rows(state: Metadata, section: str, groups: Iterable[str]) -> Metadata:
    """Without what a section holds of these groups."""
    content = state.sections.get(section)
    gone = [group for group in groups if content and group in content]
    if not gone:
        return state
    left = NameMap.of(content).draft()
    for group in gone:
        left.pop(group, None)
    return state.with_section(section, left.done())


_OF_GROUPS: Final = (generations.SECTION, consumer_groups.SECTION, streams_groups.SECTION)


def _each(change: Callable[[Metadata, Fields], Metadata]) -> Apply:
    """One event after the other."""
    return lambda state, run: reduce(change, run, state)


KINDS: Final[dict[str, Apply]] = {
    "topic_created": _topics_created,
    "topic_deleted": _topics_deleted,
    "partitions_grown": _partitions_grown,
    "topic_altered": _topics_altered,
    "ceilings": _ceilings,
    "epochs": _epochs,
    generations.GENERATION: _groups(generations.SECTION, generations.changed, "members"),
    consumer_groups.CONSUMER_GROUP: _groups(
        consumer_groups.SECTION, consumer_groups.changed, "epoch"
    ),
    streams_groups.STREAMS_GROUP: _groups(streams_groups.SECTION, streams_groups.changed, "epoch"),
    "producer_ids": _each(_producer_ids),
    "boot": _each(_boot),
    topic_defaults.SET: _each(_topic_defaults),
}


def register(kind: str, section: str, change: Callable[[Any, Fields], object]) -> None:
    """Have events of `kind` kept in `section` of the snapshot, by whoever imports the module.

    change: the content of the section (None at first) and the event's fields, to its next content:
    something that msgpack can keep.  Pure: what it was given stays as it is.
    """
    register_run(kind, section, lambda content, run: reduce(change, run, content))


def register_run(kind: str, section: str, change: Callable[[Any, Run], object]) -> None:
    """As `register`, where the change is that of several events, one behind the other: a thousand
    of them copy once what they change."""
    assert kind not in KINDS, f"{kind!r} is registered twice"

    def function(state: Metadata, run: Run) -> Metadata:
        return state.with_section(section, change(state.sections.get(section), run))

    KINDS[kind] = function


def _transactions_decided(state: Metadata, fields: Fields) -> Metadata:
    """Transactions end, and the offsets of committed ones stand: two sections, one event.

    But for those of a topic that another of its name has replaced since they were staged, and
    those that something later stands in place of (committed.py).
    """
    section = committed.SECTION
    content, offsets = transactions.decided(state.sections.get(transactions.SECTION), fields)
    state = state.with_section(transactions.SECTION, content)
    for group, staged in offsets:
        rows = [row for row in staged if not _is_replaced(state, row[0], row[1])]
        if rows:
            before = state.sections.get(section)
            after = committed.transaction_committed(before, group, rows, fields["at"])
            state = state.with_section(section, after)
    return state


def _share_rows(change: Callable[[Any, Fields], object]) -> Apply:
    """A change of where share groups stand: rows of a topic that was deleted meanwhile are passed
    over."""

    def function(state: Metadata, fields: Fields) -> Metadata:
        rows = [row for row in fields["rows"] if _is_known(state, {"name": row[0], "id": row[1]})]
        if not rows:
            return state
        name = share_groups.SECTION
        content = change(state.sections.get(name), {**fields, "rows": rows})
        return state.with_section(name, content)

    return _each(function)


def _is_replaced(state: Metadata, topic: str, topic_id: bytes) -> bool:
    meta = state.topics.get(topic)
    return meta is not None and meta.topic_id.bytes != topic_id


register(committed.COMMITTED, committed.SECTION, committed.committed)
register(committed.FORGOTTEN, committed.SECTION, committed.forgotten)
register(emptied.EMPTIED, emptied.SECTION, emptied.changed)
register(transactions.TRANSACTION, transactions.SECTION, transactions.changed)
KINDS[transactions.DECIDED] = _each(_transactions_decided)
register(transactions.FORGOTTEN, transactions.SECTION, transactions.forgotten)
register(acls.CREATED, acls.SECTION, acls.created)
register(acls.DELETED, acls.SECTION, acls.deleted)
register_run(quotas.SET, quotas.SECTION, quotas.changed)
register_run(broker_settings.SET, broker_settings.SECTION, broker_settings.changed)
register_run(broker_settings.GROUP_SET, broker_settings.GROUP_SECTION, broker_settings.changed)
register_run(credentials.USER_SET, credentials.SECTION, credentials.users_set)
register_run(credentials.USER_UNSET, credentials.SECTION, credentials.users_unset)
register(credentials.USERS_SECRET, credentials.SECTION, credentials.users_secret)
KINDS[share_groups.STATES] = _share_rows(share_groups.states)
KINDS[share_groups.OFFSETS_SET] = _share_rows(share_groups.offsets_set)
register(share_groups.FORGOTTEN, share_groups.SECTION, share_groups.forgotten)

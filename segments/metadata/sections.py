"""What the rows of the snapshot's sections look like, before anybody reads them.

A section is its module's own business (acls.py, committed.py, ...), and the snapshot keeps it as it
is.  A later version may have given its rows one more field.  Here they are looked at once, when the
snapshot is read and when the events behind it are applied: a start ends there with a sentence,
before anything is changed, and not at whoever reads a section first.

The checksum of a snapshot was right when this is asked, so a row of another length is not damage.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ..errors import UnsupportedFormat
from ..settings import topic_defaults
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

Content: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Iterator[tuple[Collection[Any], tuple[int, ...]]]
"""A row, and how many fields it may have."""


def check_sections(sections: Mapping[str, Any], path: str) -> None:
    """Raises UnsupportedFormat: a row is none that this version knows, a later one wrote it.

    Sections of other names are let through: nobody here reads them.
    """
    for name, rows_of in _ROWS.items():
        content = sections.get(name)
        if content is None:
            continue
        try:
            for row, lengths in rows_of(content):
                if len(row) not in lengths:
                    found = f"rows of {len(row)} fields in section {name!r}"
                    raise UnsupportedFormat(path, found, _told(lengths))
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            found = f"section {name!r} of another shape"
            raise UnsupportedFormat(path, found, "that of this version") from exc


def _told(lengths: tuple[int, ...]) -> str:
    return f"{' or '.join(map(str, lengths))} fields"


def _acls(content: Content) -> Rows:
    for row in content.get("rows", ()):
        yield row, (7,)


def _committed(content: Content) -> Rows:
    for topics in content.values():
        for topic in topics.values():
            yield topic, (2,)
            for row in topic[1].values():
                yield row, (4, 5, 6)


def _consumer_groups(content: Content) -> Rows:
    for group in content.values():
        for row in group["says"].values():
            yield row, (9,)
        for row in group["has"].values():
            yield row, (6,)
            for partitions in (*row[3], *row[4], *(row[5] or ())):
                yield partitions, (2,)
        for row in group.get("classic", {}).values():
            yield row, (2,)


def _emptied(content: Content) -> Rows:
    for at_ms in content.values():
        if not isinstance(at_ms, int):
            raise TypeError(f"{at_ms!r} is not a time")
    yield from ()


def _generations(content: Content) -> Rows:
    for generation in content.values():
        for row in generation["members"]:
            yield row, (8,)


def _quotas(content: Content) -> Rows:
    for row in content.get("rows", ()):
        yield row, (2,)
        for part in row[0]:
            yield part, (2,)


def _settings(content: Content) -> Rows:
    for values in content.get("rows", {}).values():
        if not isinstance(values, dict):
            raise TypeError(f"{values!r} is no map")
    yield from ()


def _share_groups(content: Content) -> Rows:
    for topics in content.values():
        for topic in topics.values():
            yield topic, (2,)
            for row in topic[1].values():
                yield row, (2,)
                for span in row[1]:
                    yield span, (4,)


def _streams_groups(content: Content) -> Rows:
    for group in content.values():
        if group["topology"] is not None:
            yield group["topology"], (2,)
            for subtopology in group["topology"][1]:
                yield subtopology, (6,)
        for row in group["members"].values():
            yield row, (8,)
            yield row[0], (8,)
            for both in row[4:7]:
                yield both, (2,)


def _topic_defaults(content: Content) -> Rows:
    for name, value in content["values"].items():
        if not isinstance(value, str):
            raise TypeError(f"{name} = {value!r} is no text")
    yield from ()


def _transactions(content: Content) -> Rows:
    for bucket in content.get("ids", {}).values():
        for row in bucket.values():
            yield row, (11, 12)
            for offsets in row[9].values():
                for one in offsets:
                    yield one, (6, 7)
            if row[10] is not None:
                yield row[10], (2,)
    for row in content.get("queries", {}).values():
        yield row, (2,)


def _users(content: Content) -> Rows:
    for mechanisms in content.get("users", {}).values():
        for row in mechanisms.values():
            yield row, (4,)


_ROWS: Final[Mapping[str, Callable[[Content], Rows]]] = MappingProxyType(
    {
        acls.SECTION: _acls,
        broker_settings.GROUP_SECTION: _settings,
        broker_settings.SECTION: _settings,
        committed.SECTION: _committed,
        consumer_groups.SECTION: _consumer_groups,
        credentials.SECTION: _users,
        emptied.SECTION: _emptied,
        generations.SECTION: _generations,
        quotas.SECTION: _quotas,
        share_groups.SECTION: _share_groups,
        streams_groups.SECTION: _streams_groups,
        topic_defaults.SECTION: _topic_defaults,
        transactions.SECTION: _transactions,
    }
)

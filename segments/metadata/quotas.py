"""Quotas of clients, kept as control events like all that is not a batch.

    section "quotas" of the snapshot: {"rows": [[[[kind, name or null], ...], {key: value}], ...]}

| event | fields | afterwards |
|---|---|---|
| quotas_set | entity [[kind, name or null]], values {key: value} | it has these, and no others |

An entity is a set of kinds (user, client-id, ip), each with a name or with null for the default;
kinds are in the order of their names, so that there is one spelling.  What the keys mean is decided
by the broker.  Every function here is pure.

Limits: ENTITIES_MAX altogether, refused above; NAME_SIZE_MAX bytes of a name.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

from .keyed_rows import KeyedRows, table_of

SECTION: Final = "quotas"
SET: Final = "quotas_set"

ENTITIES_MAX: Final = 10_000
NAME_SIZE_MAX: Final = 1_000

Content: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = Mapping[str, Any]
Entity: TypeAlias = tuple[tuple[str, str | None], ...]


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """The one spelling of an entity."""
    return tuple(sorted(parts.items()))


def quotas_of(content: Content | None) -> dict[Entity, dict[str, float]]:
    """The quotas of the section's content, by entity."""
    return {
        tuple((kind, name) for kind, name in entity): dict(values)
        for entity, values in (content or {}).get("rows", ())
    }


def changed(content: Content | None, run: Iterable[Fields]) -> Content:
    """After quotas_set, any number of it: a copy of the table of rows, not of the rows."""
    table = table_of(content, _spelled)
    for fields in run:
        entity = [list(part) for part in fields["entity"]]
        if fields["values"]:
            row = [entity, dict(fields["values"])]
            table[_spelled(row)] = row
        else:
            table.pop(_spelled([entity]), None)
    return KeyedRows(table)


def _spelled(row: Sequence[Any]) -> tuple[str | None, ...]:
    """Kind, name, kind, name: cheaper to make of ten thousand rows than an Entity."""
    return tuple(chain.from_iterable(row[0]))

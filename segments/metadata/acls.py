"""Access control lists: who may do what, kept as control events like all that is not a batch.

    section "acls" of the snapshot:
        {"rows": [[resource type, name, pattern type, principal, host, operation, permission]]}

| event | fields | afterwards |
|---|---|---|
| acls_created | rows, as above | these stand, each once, in the order of their creation |
| acls_deleted | rows | these are gone |

The numbers are Kafka's (AclOperation, ResourceType, ...); what they mean for a request is decided
by the broker.  Every function here is pure: what it was given stays as it is.

Limits: ACLS_MAX altogether, refused above; TEXT_SIZE_MAX bytes of a name; ROWS_MAX rows or
TEXTS_SIZE_MAX bytes of names in one event, so that it fits the smallest file that the write-ahead
log may have.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from .keyed_rows import KeyedRows, table_of
from .together import together

SECTION: Final = "acls"
CREATED: Final = "acls_created"
DELETED: Final = "acls_deleted"

ACLS_MAX: Final = 10_000
ROWS_MAX: Final = 500
TEXTS_SIZE_MAX: Final = 32 << 10
TEXT_SIZE_MAX: Final = 1_000

Content: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = Mapping[str, Any]


class Acl(NamedTuple):
    """One rule: a principal from a host may, or may not, do an operation on matching resources."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


def acls_of(content: Content | None) -> tuple[Acl, ...]:
    """The rules of the section's content."""
    rows = (content or {}).get("rows", ())
    return tuple(row if type(row) is Acl else Acl(*row) for row in rows)


def packed(acls: Iterable[Acl]) -> list[list[object]]:
    """As rows of an event."""
    return [list(acl) for acl in acls]


def in_events(acls: Iterable[Acl]) -> Iterator[list[Acl]]:
    """The rules, as many at a time as an event takes."""
    return together(acls, _texts_size, ROWS_MAX, TEXTS_SIZE_MAX)


def _texts_size(acl: Acl) -> int:
    return sum(len(text.encode()) for text in (acl.resource_name, acl.principal, acl.host))


def created(content: Content | None, fields: Fields) -> Content:
    """After acls_created."""
    table = table_of(content, Acl._make)
    for row in fields["rows"]:
        acl = Acl(*row)
        table.setdefault(acl, acl)  # stored as `packed` would have it
    return KeyedRows(table)


def deleted(content: Content | None, fields: Fields) -> Content:
    """After acls_deleted."""
    table = table_of(content, Acl._make)
    for row in fields["rows"]:
        table.pop(Acl(*row), None)
    return KeyedRows(table)

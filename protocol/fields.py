"""What a field of a message can be: the types on the wire, and in which versions they are there.

| annotation        | classic                       | flexible                                |
|-------------------|-------------------------------|-----------------------------------------|
| Bool IntN Float64 Uuid | fixed width, big-endian       | the same                                |
| Str               | int16 size, UTF-8; -1 null    | uvarint(size + 1), UTF-8; 0 null        |
| Bytes Records     | int32 size, bytes; -1 null    | uvarint(size + 1), bytes; 0 null        |
| list[X]           | int32 count, items; -1 null   | uvarint(count + 1), items; 0 null       |
| a Message class   | its fields                    | its fields, then a tag section          |
| a class or None   | int8 -1 null, 1 there; fields | the same, fields with tag section       |

Bytes of a string that are not UTF-8 are read as U+FFFD, as Kafka does; what is written is UTF-8.

The metadata of an annotation says more.  `since(3)`, `until(7)`, `between(8, 10)`: the versions in
which the field is there (without: all).  `nullable_since(1)`: from which version an optional type
may be null (without: in all).  `tag(0, since=12)`: it travels in the tag section.

Source: the Kafka protocol guide and KIP-482 (flexible versions).
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple
from typing import get_origin as _origin
from uuid import UUID

__all__ = [
    "LAST_VERSION",
    "NEW_LIST",
    "RECORDS",
    "STRING",
    "UUID_KIND",
    "ZERO_UUID",
    "Bool",
    "Bytes",
    "Field",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Kind",
    "Part",
    "Records",
    "Str",
    "Table",
    "UInt16",
    "Uuid",
    "between",
    "nullable_since",
    "parse_field",
    "since",
    "tag",
    "until",
]

Part = bytes | bytearray | memoryview
"""A piece of an encoded frame; a frame is a list of them, to be written in order."""


ZERO_UUID: Final = UUID(int=0)
"""Stands for "no topic id"."""


class Kind(NamedTuple):
    """A type on the wire."""

    name: str
    format: str = ""  # of a fixed-width type


STRING: Final = Kind("string")
BYTES: Final = Kind("bytes")
RECORDS: Final = Kind("records")
UUID_KIND: Final = Kind("uuid", "16s")
STRUCT: Final = Kind("struct")

Bool = Annotated[bool, Kind("bool", "?")]
Int8 = Annotated[int, Kind("int8", "b")]
Int16 = Annotated[int, Kind("int16", "h")]
UInt16 = Annotated[int, Kind("uint16", "H")]
Int32 = Annotated[int, Kind("int32", "i")]
Int64 = Annotated[int, Kind("int64", "q")]
Float64 = Annotated[float, Kind("float64", "d")]
Str = Annotated[str, STRING]
Bytes = Annotated[bytes, BYTES]
Uuid = Annotated[UUID, UUID_KIND]
Records = Annotated[Part | Sequence[Part], RECORDS]
"""Record batches: a view into the frame when decoded, one buffer or several when encoded."""


class _Versions(NamedTuple):
    first: int
    last: int


class _NullableSince(NamedTuple):
    first: int


class _Tag(NamedTuple):
    number: int
    first: int


LAST_VERSION: Final = 0x7FFF


def since(version: int) -> _Versions:
    """The field is there from `version` on."""
    return _Versions(version, LAST_VERSION)


def until(version: int) -> _Versions:
    """The field is there up to and with `version`."""
    return _Versions(0, version)


def between(first: int, last: int) -> _Versions:
    """The field is there from `first` to `last`, both included."""
    return _Versions(first, last)


def nullable_since(version: int) -> _NullableSince:
    """The field may be null from `version` on; before, null is malformed."""
    return _NullableSince(version)


def tag(number: int, *, since: int) -> _Tag:
    """The field travels in the tag section, under `number`, from version `since` on."""
    return _Tag(number, since)


class Table(type):
    """What the compilers need to know of a message class: its fields, in wire order."""

    def fields(cls) -> "tuple[Field, ...]":
        raise NotImplementedError


NEW_LIST: Final = object()
"""Stands for "a new empty list" as the default of a list field."""


class Field(NamedTuple):
    """One row of a message's table."""

    name: str
    kind: Kind
    is_array: bool
    struct: Table | None
    first: int
    last: int
    nullable_from: int | None
    tag: int | None
    required: bool
    default: object

    def is_in(self, version: int) -> bool:
        return self.first <= version <= self.last

    def is_nullable(self, version: int) -> bool:
        return self.nullable_from is not None and self.nullable_from <= version

    def argument(self) -> str:
        return self.name if self.required else f"{self.name}=D_{self.name}"


def parse_field(name: str, annotation: Any, defaults: dict[str, Any]) -> Field:  # noqa: ANN401
    """The row of `name`: its annotation taken apart, its default if it has one."""
    kind: Kind | None = None
    is_array = False
    is_optional = False
    inner: Table | None = None
    versions = _Versions(0, LAST_VERSION)
    null: _NullableSince | None = None
    tagged: _Tag | None = None
    while True:
        for mark in getattr(annotation, "__metadata__", ()):
            match mark:
                case Kind():
                    kind = mark
                case _Versions():
                    versions = mark
                case _NullableSince():
                    null = mark
                case _Tag():
                    tagged = mark
        if hasattr(annotation, "__metadata__"):
            annotation = annotation.__origin__
        if kind is not None:
            break
        if isinstance(annotation, Table):
            kind, inner = STRUCT, annotation
            break
        arguments = annotation.__args__
        if _origin(annotation) is list:
            is_array = True
            (annotation,) = arguments
        else:
            is_optional = True
            (annotation,) = (item for item in arguments if item is not type(None))
    required = name not in defaults
    default = defaults.get(name)
    return Field(
        name=name,
        kind=kind,
        is_array=is_array,
        struct=inner,
        first=tagged.first if tagged else versions.first,
        last=versions.last,
        nullable_from=null.first if null else 0 if is_optional else None,
        tag=tagged.number if tagged else None,
        required=required,
        default=NEW_LIST if isinstance(default, list) else default,
    )

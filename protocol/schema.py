"""Messages as tables: a message is a typed class, and its fields are the layout.

    class HeartbeatRequest(Message, key=12, versions=(0, 4), flexible=4):
        group_id: Str
        generation_id: Int32
        member_id: Str
        group_instance_id: Annotated[Str | None, since(3)] = None

Fields stand in wire order; fields.py says what the annotations mean.  A field that a version does
not have is left out when encoding and takes its default when decoding.  A struct in the tag section
is None when absent.  Instances are made with keyword arguments.

Encoders and decoders are compiled per (class, version) on first use (encoders.py, decoders.py);
flexible versions need no other table.

Why not `dataclasses`: some 250 classes would cost every start 100 ms.  Here `__init__`, too, is
made when a class is first used; type checkers see dataclasses (`dataclass_transform`).

Invariant: a class has exactly the slots of its table; a default list is never shared.
"""

import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast, dataclass_transform
from typing import get_origin as _origin

from .decoders import Decoder, compile_decoder
from .encoders import Encoder, compile_encoder
from .errors import UnsupportedVersion
from .fields import LAST_VERSION, NEW_LIST, Field, Part, Table, parse_field
from .primitives import Buffer

__all__ = ["Message", "records_view"]


def records_view(records: Part | Sequence[Part] | None) -> memoryview:
    """The records of a decoded message as the view they are; empty for null.

    Of a message that was not decoded: a view of the one buffer, or of a joined copy of several.
    """
    if isinstance(records, memoryview):
        return records
    if records is None:
        return memoryview(b"")
    if isinstance(records, (bytes, bytearray)):
        return memoryview(records)
    return memoryview(b"".join(records))


@dataclass_transform(kw_only_default=True, eq_default=True)
class _MessageType(Table):
    """Turns annotations into slots and keeps the table; everything dear happens on first use."""

    _table: dict[str, Any]
    _defaults: dict[str, Any]
    _encoders: dict[int, Encoder]
    _decoders: dict[int, Decoder]
    _fields_parsed: tuple[Field, ...] | None

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int = -1,
        versions: tuple[int, int] = (0, LAST_VERSION),
        flexible: int = LAST_VERSION,
    ) -> "_MessageType":
        annotations = {
            field: kind
            for field, kind in _annotations(namespace).items()
            if _origin(kind) is not ClassVar
        }
        defaults = {field: namespace.pop(field) for field in annotations if field in namespace}
        namespace["__slots__"] = tuple(annotations)
        namespace["message_key"] = key
        namespace["message_versions"] = versions
        namespace["flexible_from"] = flexible
        if annotations:
            namespace["__init__"] = _first_init
        cls = super().__new__(mcs, name, bases, namespace)
        cls._table = annotations
        cls._defaults = defaults
        cls._encoders = {}
        cls._decoders = {}
        cls._fields_parsed = None
        return cls

    def fields(cls) -> tuple[Field, ...]:  # noqa: N805 - a metaclass
        if cls._fields_parsed is None:
            cls._fields_parsed = tuple(
                parse_field(name, kind, cls._defaults) for name, kind in cls._table.items()
            )
        return cls._fields_parsed


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        # PEP 749: a function that answers with the values when asked for format 1.
        annotate = namespace.get("__annotate_func__") or namespace.get("__annotate__")
        return {} if annotate is None else annotate(1)
    return cast(dict[str, Any], namespace.get("__annotations__", {}))


def _first_init(self: Any, **values: Any) -> None:  # noqa: ANN401
    """The `__init__` of a class that was never used: makes the real one and calls it."""
    cls = type(self)
    fields = cls.fields()
    lines = [f"def __init__(self, *, {', '.join(field.argument() for field in fields)}):"]
    scope: dict[str, Any] = {"NEW": NEW_LIST}
    for field in fields:
        scope[f"D_{field.name}"] = field.default
        value = f"[] if {field.name} is NEW else {field.name}"
        lines.append(f" self.{field.name} = {value if field.default is NEW_LIST else field.name}")
    exec("\n".join(lines), scope)
    cls.__init__ = scope["__init__"]
    self.__init__(**values)


class Message(metaclass=_MessageType):
    """Base of all messages and of the structs in them; see the module's head.

    Class attributes of a message (not of a nested struct): `message_key` (the api key),
    `message_versions` (first and last known here) and `flexible_from` (the first flexible one).
    """

    __slots__: ClassVar[tuple[str, ...]]
    message_key: ClassVar[int]
    message_versions: ClassVar[tuple[int, int]]
    flexible_from: ClassVar[int]

    def encode(self, version: int, head: bytearray | None = None) -> list[Part]:
        """The body in `version` as parts; the first continues `head` if one is given.

        Raises LocalProtocolError for a value that does not fit its field, UnsupportedVersion.
        """
        cls = type(self)
        encoder = cls._encoders.get(version) or _encoder(cls, version)
        parts: list[Part] = []
        tail = encoder(self, bytearray() if head is None else head, parts)
        if tail or not parts:
            parts.append(tail)
        return parts

    @classmethod
    def decode(
        cls, buffer: Buffer, version: int, position: int = 0, *, items_max: int | None = None
    ) -> tuple[Self, int]:
        """The message of `version` at `position`, and the position behind it.

        `records` are views into `buffer`, writable if it is.  items_max: another limit than that of
        decoders.py.  Raises RemoteProtocolError for malformed bytes, of these TooManyItems beyond a
        limit, UnsupportedVersion.
        """
        decoder = cls._decoders.get(version) or _decoder(cls, version)
        if not isinstance(buffer, memoryview):
            buffer = memoryview(buffer)
        if items_max is not None:
            return decoder(buffer, position, items_max)
        return decoder(buffer, position)

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether `version` has the compact encoding and tag sections."""
        return version >= cls.flexible_from

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__: ClassVar[None]  # type: ignore[assignment]  # object's is a method; these change

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


def _check_version(cls: type[Message], version: int) -> None:
    first, last = cls.message_versions
    if not first <= version <= last:
        raise UnsupportedVersion(f"{cls.__name__} version {version}, known are {first} to {last}")


def _encoder(cls: type[Message], version: int) -> Encoder:
    _check_version(cls, version)
    encoder = cls._encoders[version] = compile_encoder(cls, version, cls.is_flexible(version))
    return encoder


def _decoder(cls: type[Message], version: int) -> Decoder:
    _check_version(cls, version)
    decoder = cls._decoders[version] = compile_decoder(cls, version, cls.is_flexible(version))
    return decoder

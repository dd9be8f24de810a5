"""Messages as tables: a message is a typed class, and its fields are the layout.

    class HeartbeatRequest(Message, key=12, versions=(0, 4), flexible=4):
        group_id: Str
        generation_id: Int32
        member_id: Str
        group_instance_id: Annotated[Str | None, since(3)] = None

Fields stand in wire order.  The annotation says the type on the wire and, by its metadata, in which
versions the field is there: `since(3)`, `until(7)`, `between(8, 10)`; from which version null is allowed:
`nullable_since(1)` (an optional type without it: always); or that it travels in the tag section:
`tag(0, since=12)`.  A field that a version has not is left out when encoding and takes its default when
decoding.  An optional struct in a tag section is None when absent.

| annotation        | classic                        | flexible                                       |
|-------------------|--------------------------------|------------------------------------------------|
| Bool IntN Uuid    | fixed width, big-endian        | the same                                       |
| Str               | int16 size, UTF-8; -1 null     | uvarint(size + 1), UTF-8; 0 null               |
| Bytes Records     | int32 size, bytes; -1 null     | uvarint(size + 1), bytes; 0 null               |
| list[X]           | int32 count, items; -1 null    | uvarint(count + 1), items; 0 null              |
| a Message class   | its fields                     | its fields, then a tag section                 |
| a class or None   | int8 -1 null, 1 there; fields  | the same, fields with tag section              |

Per (class, version) an encoder and a decoder are generated on first use: one function with all nested
structs inlined, runs of fixed-width fields merged into one `struct` call.  Record bytes are neither copied in
(the encoder yields parts) nor out (the decoder yields a view).

Invariants: whatever the bytes, a decoder returns a message or raises RemoteProtocolError; an array is
not begun before its count fits the bytes that are left; at most ITEMS_COUNT_MAX items are made per message.
Whatever the values, an encoder returns bytes or raises LocalProtocolError.

Why not `dataclasses`: some 200 classes would cost every start 100 ms.  Here `__init__` and codecs are made when
a class is first used; type checkers see dataclasses with keyword arguments (`dataclass_transform`).

Source of the encoding: the Kafka protocol guide and KIP-482 (flexible versions).
"""

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, cast, dataclass_transform
from typing import get_origin as _origin
from uuid import UUID

from . import limits
from .errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from .primitives import Buffer, read_uvarint, skip_tags, uvarint

__all__ = [
    "ZERO_UUID",
    "Bool",
    "Buffer",
    "Bytes",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Part",
    "Records",
    "Str",
    "UInt16",
    "Uuid",
    "between",
    "nullable_since",
    "records_view",
    "since",
    "tag",
    "until",
]

Part = bytes | bytearray | memoryview
"""A piece of an encoded frame; a frame is a list of them, to be written in order."""


ZERO_UUID: Final = UUID(int=0)
"""Stands for "no topic id"."""


class _Kind(NamedTuple):
    name: str
    format: str = ""  # of a fixed-width type


_STRING: Final = _Kind("string")
_BYTES: Final = _Kind("bytes")
_RECORDS: Final = _Kind("records")
_UUID: Final = _Kind("uuid", "16s")
_STRUCT: Final = _Kind("struct")

Bool = Annotated[bool, _Kind("bool", "?")]
Int8 = Annotated[int, _Kind("int8", "b")]
Int16 = Annotated[int, _Kind("int16", "h")]
UInt16 = Annotated[int, _Kind("uint16", "H")]
Int32 = Annotated[int, _Kind("int32", "i")]
Int64 = Annotated[int, _Kind("int64", "q")]
Str = Annotated[str, _STRING]
Bytes = Annotated[bytes, _BYTES]
Uuid = Annotated[UUID, _UUID]
Records = Annotated[Part | Sequence[Part], _RECORDS]
"""Record batches: a view into the frame when decoded, one buffer or several when encoded."""


class _Versions(NamedTuple):
    first: int
    last: int


class _NullableSince(NamedTuple):
    first: int


class _Tag(NamedTuple):
    number: int
    first: int


_LAST: Final = 0x7FFF


def since(version: int) -> _Versions:
    """The field is there from `version` on."""
    return _Versions(version, _LAST)


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


class _Field(NamedTuple):
    """One row of a message's table."""

    name: str
    kind: _Kind
    is_array: bool
    struct: "type[Message] | None"
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


_Encoder = Callable[["Message", bytearray, list[Part]], bytearray]
_Decoder = Callable[[Buffer, int], tuple["Message", int]]

_NEW: Final = object()
"""Stands for "a new empty list" as the default of a list field."""


@dataclass_transform(kw_only_default=True, eq_default=True)
class _MessageType(type):
    """Turns annotations into slots and keeps the table; everything dear happens on first use."""

    _table: dict[str, Any]
    _defaults: dict[str, Any]
    _encoders: dict[int, _Encoder]
    _decoders: dict[int, _Decoder]
    _fields_parsed: tuple[_Field, ...] | None
    message_key: int
    message_versions: tuple[int, int]
    flexible_from: int

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int = -1,
        versions: tuple[int, int] = (0, _LAST),
        flexible: int = _LAST,
    ) -> Self:
        annotations = {
            field: kind
            for field, kind in _annotations(namespace).items()
            if _origin(kind) is not ClassVar
        }
        defaults = {field: namespace.pop(field) for field in annotations if field in namespace}
        namespace["__slots__"] = tuple(annotations)
        if annotations:
            namespace["__init__"] = _first_init
        cls = super().__new__(mcs, name, bases, namespace)
        cls._table = annotations
        cls._defaults = defaults
        cls._encoders = {}
        cls._decoders = {}
        cls._fields_parsed = None
        cls.message_key = key
        cls.message_versions = versions
        cls.flexible_from = flexible
        return cls

    def fields(cls) -> tuple[_Field, ...]:
        if cls._fields_parsed is None:
            cls._fields_parsed = tuple(
                _parse(name, kind, cls._defaults) for name, kind in cls._table.items()
            )
        return cls._fields_parsed

    def arguments(cls) -> list[_Field]:
        """The fields in the order of `__init__`: the required ones first."""
        return sorted(cls.fields(), key=lambda field: not field.required)


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is None:
            return {}
        return annotationlib.call_annotate_function(annotate, annotationlib.Format.VALUE)
    return cast(dict[str, Any], namespace.get("__annotations__", {}))


def _parse(name: str, annotation: Any, defaults: dict[str, Any]) -> _Field:
    kind: _Kind | None = None
    is_array = False
    is_optional = False
    inner: type[Message] | None = None
    versions = _Versions(0, _LAST)
    null: _NullableSince | None = None
    tagged: _Tag | None = None
    while True:
        for mark in getattr(annotation, "__metadata__", ()):
            match mark:
                case _Kind():
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
        if isinstance(annotation, _MessageType):
            kind, inner = _STRUCT, cast("type[Message]", annotation)
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
    return _Field(
        name=name,
        kind=kind,
        is_array=is_array,
        struct=inner,
        first=tagged.first if tagged else versions.first,
        last=versions.last,
        nullable_from=null.first if null else 0 if is_optional else None,
        tag=tagged.number if tagged else None,
        required=required,
        default=_NEW if isinstance(default, list) else default,
    )


def _first_init(self: Any, *args: Any, **values: Any) -> None:
    """The `__init__` of a class that was never used: makes the real one and calls it."""
    cls = type(self)
    arguments = cls.arguments()
    lines = [f"def __init__(self, {', '.join(field.argument() for field in arguments)}):"]
    scope: dict[str, Any] = {"NEW": _NEW}
    for field in arguments:
        scope[f"D_{field.name}"] = field.default
        value = f"[] if {field.name} is NEW else {field.name}"
        lines.append(f" self.{field.name} = {value if field.default is _NEW else field.name}")
    exec("\n".join(lines), scope)
    cls.__init__ = scope["__init__"]
    self.__init__(*args, **values)


class Message(metaclass=_MessageType):
    """Base of all messages and of the structs in them; see the module's head.

    Class attributes of a message (not of a nested struct): `message_key` (the api key),
    `message_versions` (first and last known here) and `flexible_from` (the first flexible one).
    """

    def encode(self, version: int, head: bytearray | None = None) -> list[Part]:
        """The body in `version` as parts; the first continues `head` if one is given.

        Raises LocalProtocolError for a value that does not fit its field, UnsupportedVersion.
        """
        cls = type(self)
        encoder = cls._encoders.get(version) or _compile_encoder(cls, version)
        parts: list[Part] = []
        tail = encoder(self, bytearray() if head is None else head, parts)
        if tail or not parts:
            parts.append(tail)
        return parts

    @classmethod
    def decode(cls, buffer: Buffer, version: int, position: int = 0) -> tuple[Self, int]:
        """The message of `version` at `position`, and the position behind it.

        `records` are views into `buffer`, writable if it is.  Raises RemoteProtocolError for
        malformed bytes, UnsupportedVersion.
        """
        decoder = cls._decoders.get(version) or _compile_decoder(cls, version)
        if not isinstance(buffer, memoryview):
            buffer = memoryview(buffer)
        return cast(tuple[Self, int], decoder(buffer, position))

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether `version` has the compact encoding and tag sections."""
        return version >= cls.flexible_from

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


def _check_version(cls: type[Message], version: int) -> None:
    first, last = cls.message_versions
    if not first <= version <= last:
        raise UnsupportedVersion(f"{cls.__name__} version {version}, known are {first} to {last}")


# --- code generation --------------------------------------------------------------------------


class _Source:
    """Lines of a function under construction, its constants and its fresh names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.scope: dict[str, Any] = {}
        self.count = 0

    def add(self, line: str) -> None:
        self.lines.append(" " * self.depth + line)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, prefix: str, value: object) -> str:
        name = self.name(prefix)
        self.scope[name] = value
        return name

    def function(self, head: str) -> Any:
        exec("\n".join([head, *self.lines]), self.scope)
        return self.scope[head.removeprefix("def ").partition("(")[0]]


def least_size(cls: type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes an instance of `cls` takes: what bounds a count before items are made."""
    size = 1 if flexible else 0
    for field in cls.fields():
        if field.tag is not None or not field.is_in(version):
            continue
        if field.is_array:
            size += 1 if flexible else 4
        elif field.struct is not None:
            optional = field.is_nullable(version)
            size += 1 if optional else least_size(field.struct, version, flexible)
        elif field.kind.format:
            size += struct.calcsize(">" + field.kind.format)
        else:
            size += 1 if flexible else 2 if field.kind is _STRING else 4
    return size


class _DecoderSource(_Source):
    """Writes `decode(buf, pos) -> (message, pos)`.

    `run` holds fixed-width reads not yet written: (target, format), merged into one unpack.  A
    compact length begins as the last byte of a run and is widened when its top bit is set.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.after_run: list[str] = []
        self.scope |= {
            "UUID": UUID,
            "RemoteProtocolError": RemoteProtocolError,
            "read_uvarint": read_uvarint,
            "skip_tags": skip_tags,
            "unpack_from": struct.unpack_from,
            "malformed": (struct.error, IndexError, UnicodeDecodeError),
            "bad_size": _bad_size,
            "bad_count": _bad_count,
        }

    def flush(self) -> None:
        if not self.run:
            return
        form = ">" + "".join(form for _, form in self.run)
        names = ", ".join(name for name, _ in self.run)
        if form == ">B":
            self.add(f"{names} = buf[pos]")
        else:
            unpack = self.constant("unpack", struct.Struct(form).unpack_from)
            self.add(f"({names},) = {unpack}(buf, pos)")
        self.add(f"pos += {struct.calcsize(form)}")
        self.run.clear()
        for line in self.after_run:
            self.add(line)
        self.after_run.clear()

    def read_compact(self, target: str) -> None:
        self.run.append((target, "B"))
        self.flush()
        self.add(f"if {target} > 127: {target}, pos = read_uvarint(buf, pos - 1)")

    def read_length(self, form: str, field: _Field) -> str:
        """Reads the length of a string, bytes or array; leaves -1 for null where that may be."""
        length = self.name("n")
        if self.flexible:
            self.read_compact(length)
            self.add(f"{length} -= 1")
        else:
            self.run.append((length, form))
            self.flush()
        least = -1 if field.is_nullable(self.version) else 0
        self.add(f"if {length} < {least}: raise bad_size({field.name!r}, {length})")
        return length

    def value(self, field: _Field) -> str:
        """Reads one field; returns the name that holds it (after the next flush)."""
        if field.is_array:
            return self.array(field)
        if field.struct is not None:
            return self.optional_struct(field, field.struct)
        target = self.name("v")
        if field.kind.format:
            self.run.append((target, field.kind.format))
            if field.kind is _UUID:
                self.after_run.append(f"{target} = UUID(bytes={target})")
            return target
        length = self.read_length("h" if field.kind is _STRING else "i", field)
        if field.is_nullable(self.version):
            self.add(f"if {length} < 0: {target} = None")
            self.add("else:")
            self.depth += 1
        self.add(f"stop = pos + {length}")
        limit = ""
        if field.kind is _STRING and self.flexible:
            limit = f" or {length} > {limits.STRING_SIZE_MAX}"
        self.add(f"if stop > end{limit}: raise bad_size({field.name!r}, {length})")
        match field.kind.name:
            case "string":
                self.add(f"{target} = str(buf[pos:stop], 'utf-8')")
            case "bytes":
                self.add(f"{target} = bytes(buf[pos:stop])")
            case _:
                self.add(f"{target} = buf[pos:stop]")
        self.add("pos = stop")
        if field.is_nullable(self.version):
            self.depth -= 1
        return target

    def optional_struct(self, field: _Field, cls: type[Message]) -> str:
        if field.tag is not None or not field.is_nullable(self.version):
            return self.build(cls)
        target, mark = self.name("v"), self.name("n")
        self.run.append((mark, "b"))
        self.flush()
        self.add(f"if {mark} < 0: {target} = None")
        self.add("else:")
        self.depth += 1
        self.add(f"{target} = {self.build(cls)}")
        self.depth -= 1
        return target

    def array(self, field: _Field) -> str:
        target = self.name("v")
        length = self.read_length("i", field)
        if field.is_nullable(self.version):
            self.add(f"if {length} < 0: {target} = None")
            self.add("else:")
            self.depth += 1
        check = f"raise bad_count({field.name!r}, {length}, end - pos)"
        if field.kind.format and field.kind is not _UUID:
            form = field.kind.format
            size = struct.calcsize(form)
            self.add(f"stop = pos + {length} * {size}")
            self.add(f"if stop > end: {check}")
            self.add(f"{target} = list(unpack_from(f'>{{{length}}}{form}', buf, pos))")
            self.add("pos = stop")
        else:
            item = field._replace(is_array=False, nullable_from=None, tag=None)
            if field.struct is not None:
                least = least_size(field.struct, self.version, self.flexible)
            elif field.kind is _UUID:
                least = 16
            else:
                least = 1 if self.flexible else 2
            assert least > 0, "an item of no bytes would leave its count unbounded"
            self.add(f"room -= {length}")
            self.add(f"if room < 0 or {length} * {least} > end - pos: {check}")
            self.add(f"{target} = []")
            self.add(f"for _ in range({length}):")
            self.depth += 1
            value = self.value(item)
            self.flush()
            self.add(f"{target}.append({value})")
            self.depth -= 1
        if field.is_nullable(self.version):
            self.depth -= 1
        return target

    def build(self, cls: type[Message]) -> str:
        """Reads the fields of `cls`; returns the expression that makes the instance."""
        names: dict[str, str] = {}
        tagged = []
        for field in cls.fields():
            if not field.is_in(self.version):
                names[field.name] = self.default(field)
            elif field.tag is not None:
                tagged.append(field)
            else:
                names[field.name] = self.value(field)
        if self.flexible:
            self.tags(tagged, names)
        self.flush()
        constructor = self.constant("C", cls)
        arguments = ", ".join(names[field.name] for field in cls.arguments())
        return f"{constructor}({arguments})"

    def default(self, field: _Field) -> str:
        assert not field.required, f"{field.name} is not in every version: it needs a default"
        return "[]" if field.default is _NEW else self.constant("D", field.default)

    def tags(self, tagged: list[_Field], names: dict[str, str]) -> None:
        count = self.name("n")
        self.run.append((count, "B"))
        self.flush()
        if not tagged:
            self.add(f"if {count}: pos = skip_tags(buf, pos, {count}, end)")
            return
        number, after = self.name("t"), self.name("stop")
        for field in tagged:
            names[field.name] = self.name("v")
            self.add(f"{names[field.name]} = {self.default(field)}")
        self.add(f"if {count} > 127: {count}, pos = read_uvarint(buf, pos - 1)")
        self.add(f"if {count} > {limits.TAGS_COUNT_MAX}: raise bad_size('tags', {count})")
        self.add(f"for _ in range({count}):")
        self.depth += 1
        self.read_compact(number)
        self.read_compact(after)
        self.add(f"{after} += pos")
        self.add(f"if {after} > end: raise bad_size('tag', {after} - pos)")
        for field in tagged:
            self.add(f"if {number} == {field.tag}:")
            self.depth += 1
            value = self.value(field)
            self.flush()
            self.add(f"{names[field.name]} = {value}")
            self.add(f"if pos > {after}: raise bad_size({field.name!r}, pos - {after})")
            self.depth -= 1
        self.add(f"pos = {after}")
        self.depth -= 1


def _bad_size(name: str, size: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{name}: size {size} is not allowed or not there")


def _bad_count(name: str, count: int, left: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{name}: {count} items, {left} bytes left")


def _compile_decoder(cls: type[Message], version: int) -> _Decoder:
    _check_version(cls, version)
    source = _DecoderSource(version, cls.is_flexible(version))
    source.add("end = len(buf)")
    source.add(f"room = {limits.ITEMS_COUNT_MAX}")
    source.add("try:")
    source.depth += 1
    source.add(f"return {source.build(cls)}, pos")
    source.depth -= 1
    source.add("except malformed as exc:")
    what = f"{cls.__name__} version {version} is malformed: "
    source.add(f" raise RemoteProtocolError(f'{what}{{exc}}') from exc")
    decoder = cast(_Decoder, source.function("def decode(buf, pos):"))
    cls._decoders[version] = decoder
    return decoder


class _EncoderSource(_Source):
    """Writes `encode(m, b, parts) -> b`: `b` is the bytearray being filled, `parts` what is done.

    `run` holds fixed-width writes not yet written: (expression, format), merged into one pack.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.scope |= {
            "LocalProtocolError": LocalProtocolError,
            "uvarint": uvarint,
            "pack": struct.pack,
            "unfit": (struct.error, AttributeError, TypeError, UnicodeEncodeError),
            "records_size": _records_size,
            "null": _null,
        }

    def flush(self) -> None:
        if not self.run:
            return
        form = ">" + "".join(form for _, form in self.run)
        pack = self.constant("pack", struct.Struct(form).pack)
        values = ", ".join(value for value, form in self.run if form != "x")
        self.add(f"b += {pack}({values})")
        self.run.clear()

    def write_compact(self, value: str) -> None:
        self.flush()
        self.add(f"if {value} < 128: b.append({value})")
        self.add(f"else: b += uvarint({value})")

    def write_length(self, length: str, form: str) -> None:
        if self.flexible:
            self.add(f"{length} += 1")
            if form == "h":
                excess = f"{length} > {limits.STRING_SIZE_MAX + 1}"
                self.add(
                    f"if {excess}: raise LocalProtocolError(f'string of {{{length} - 1}} bytes')"
                )
            self.write_compact(length)
        else:
            self.run.append((length, form))
            self.flush()

    def value(self, field: _Field, source: str) -> None:
        if field.is_array:
            self.array(field, source)
        elif field.struct is not None:
            self.optional_struct(field, field.struct, source)
        elif field.kind is _UUID:
            self.run.append((f"{source}.bytes", "16s"))
        elif field.kind.format:
            self.run.append((source, field.kind.format))
        else:
            self.sized(field, source)

    def sized(self, field: _Field, source: str) -> None:
        """A string, bytes or records: its length, then it."""
        value, length = self.name("s"), self.name("n")
        self.add(f"{value} = {source}")
        self.add(f"if {value} is None:")
        self.add(f" {length} = {self.null(field)}")
        self.add("else:")
        if field.kind is _STRING:
            self.add(f" {value} = {value}.encode()")
        size = "records_size" if field.kind is _RECORDS else "len"
        self.add(f" {length} = {size}({value})")
        self.write_length(length, "h" if field.kind is _STRING else "i")
        if field.kind is not _RECORDS:
            self.add(f"if {value}: b += {value}")
            return
        self.add(f"if {value}:")
        self.add(" parts.append(b)")
        self.add(f" if isinstance({value}, (list, tuple)): parts += {value}")
        self.add(f" else: parts.append({value})")
        self.add(" b = bytearray()")

    def null(self, field: _Field) -> str:
        return "-1" if field.is_nullable(self.version) else f"null({field.name!r})"

    def optional_struct(self, field: _Field, cls: type[Message], source: str) -> None:
        value = self.name("s")
        if field.tag is not None or not field.is_nullable(self.version):
            self.add(f"{value} = {source}")
            self.build(cls, value)
            return
        self.flush()
        self.add(f"{value} = {source}")
        self.add(f"if {value} is None: b.append(255)")
        self.add("else:")
        self.depth += 1
        self.add("b.append(1)")
        self.build(cls, value)
        self.flush()
        self.depth -= 1

    def array(self, field: _Field, source: str) -> None:
        value, length, item = self.name("s"), self.name("n"), self.name("e")
        self.add(f"{value} = {source}")
        self.add(f"{length} = {self.null(field)} if {value} is None else len({value})")
        self.write_length(length, "i")
        self.add(f"if {value}:")
        self.depth += 1
        if field.kind.format and field.kind is not _UUID:
            self.add(f"b += pack(f'>{{len({value})}}{field.kind.format}', *{value})")
        else:
            self.add(f"for {item} in {value}:")
            self.depth += 1
            if field.struct is not None:
                self.build(field.struct, item)
            else:
                self.value(field._replace(is_array=False, nullable_from=None), item)
            self.flush()
            self.depth -= 1
        self.depth -= 1

    def build(self, cls: type[Message], source: str) -> None:
        tagged = []
        for field in cls.fields():
            if not field.is_in(self.version):
                continue
            if field.tag is not None:
                tagged.append(field)
            else:
                self.value(field, f"{source}.{field.name}")
        if not self.flexible:
            return
        if not tagged:
            self.run.append(("", "x"))
            return
        self.tags(tagged, source)

    def tags(self, tagged: list[_Field], source: str) -> None:
        self.flush()
        count, section, outer = self.name("n"), self.name("t"), self.name("o")
        self.add(f"{count} = 0")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            value = self.name("s")
            self.add(f"{value} = {source}.{field.name}")
            absent = f"not {value}" if field.default is _NEW else f"{value} == {field.default!r}"
            self.add(f"if not ({absent}):")
            self.depth += 1
            self.add(f"if not {count}: {section} = bytearray()")
            self.add(f"{count} += 1")
            self.add(f"{outer} = b")
            self.add("b = bytearray()")
            self.value(field, value)
            self.flush()
            self.add(f"{section} += uvarint({field.tag})")
            self.add(f"{section} += uvarint(len(b))")
            self.add(f"{section} += b")
            self.add(f"b = {outer}")
            self.depth -= 1
        self.add(f"b.append({count})")
        self.add(f"if {count}: b += {section}")


def _records_size(records: Part | Sequence[Part]) -> int:
    if isinstance(records, (list, tuple)):
        return sum(len(part) for part in records)
    return len(records)


def _null(name: str) -> int:
    raise LocalProtocolError(f"{name} may not be null in this version")


def _compile_encoder(cls: type[Message], version: int) -> _Encoder:
    _check_version(cls, version)
    source = _EncoderSource(version, cls.is_flexible(version))
    source.add("try:")
    source.depth += 1
    source.build(cls, "m")
    source.flush()
    source.add("return b")
    source.depth -= 1
    source.add("except unfit as exc:")
    what = f"{cls.__name__} version {version} cannot carry this: "
    source.add(f" raise LocalProtocolError(f'{what}{{exc}}') from exc")
    encoder = cast(_Encoder, source.function("def encode(m, b, parts):"))
    cls._encoders[version] = encoder
    return encoder


def walk(cls: type[Message]) -> Iterator[type[Message]]:
    """`cls` and every struct class within it, depth first: for tests and documentation."""
    yield cls
    for field in cls.fields():
        if field.struct is not None:
            yield from walk(field.struct)

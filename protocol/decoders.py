"""Compiles the fields of a message to a decoder: one function per message and version.

    decode(buf, pos, room) -> (message, pos behind it)

All nested structs are inlined; runs of fixed-width fields become one `struct` call, the length of
the string or array behind them included; instances are made slot by slot.  `buf` is a memoryview,
so record bytes come out as views.

Invariants: whatever the bytes, the function returns a message or raises RemoteProtocolError; it
reads nothing at or past the end of `buf`; an array is not begun before its count, times the least
size of an item, fits the bytes that are left; at most `room` items are made per message, by
default ITEMS_COUNT_MAX, and REQUEST_ITEMS_COUNT_MAX of a request: a message whose name ends so,
which anybody may send.
"""

import struct
from typing import Any, Protocol
from uuid import UUID

from . import limits
from .errors import RemoteProtocolError, TooManyItems
from .fields import NEW_LIST, STRING, UUID_KIND, Field, Table
from .primitives import Buffer, read_uvarint, repaired_text, skip_tags
from .source import Source

__all__ = ["Decoder", "compile_decoder"]


class Decoder(Protocol):
    """What `compile_decoder` makes."""

    def __call__(self, buf: Buffer, pos: int, room: int = ...) -> tuple[Any, int]: ...


def compile_decoder(cls: Table, version: int, flexible: bool) -> Decoder:
    """The decoder of `cls` in `version`."""
    is_request = cls.__name__.endswith("Request")
    most = limits.REQUEST_ITEMS_COUNT_MAX if is_request else limits.ITEMS_COUNT_MAX
    source = _source(cls, version, flexible, is_request)
    decoder: Decoder = source.function("decode", f"buf, pos, room={most}")
    return decoder


class DecoderSource(Source):
    """Writes `decode(buf, pos, room) -> (message, pos)`: `room` is for how many items there is.

    `run` holds fixed-width reads not yet written: (target, format), merged into one unpack.  A
    compact length begins as the last byte of a run and is widened when its top bit is set.
    """

    def __init__(self, version: int, flexible: bool, is_request: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.is_request = is_request
        self.run: list[tuple[str, str]] = []
        self.after_run: list[str] = []
        self.scope |= {
            "new": object.__new__,
            "UUID": UUID,
            "RemoteProtocolError": RemoteProtocolError,
            "read_uvarint": read_uvarint,
            "repaired_text": repaired_text,
            "skip_tags": skip_tags,
            "unpack_from": struct.unpack_from,
            "malformed": (struct.error, IndexError),
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

    def read_length(self, form: str, field: Field) -> str:
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

    def value(self, field: Field) -> str:
        """Reads one field; returns the name that holds it (after the next flush)."""
        if field.is_array:
            return self.array(field)
        if field.struct is not None:
            return self.optional_struct(field, field.struct)
        target = self.name("v")
        if field.kind.format:
            self.run.append((target, field.kind.format))
            if field.kind is UUID_KIND:
                self.after_run.append(f"{target} = UUID(bytes={target})")
            return target
        length = self.read_length("h" if field.kind is STRING else "i", field)
        if field.is_nullable(self.version):
            self.add(f"if {length} < 0: {target} = None")
            self.add("else:")
            self.depth += 1
        self.add(f"stop = pos + {length}")
        limit = ""
        if field.kind is STRING and self.flexible:
            limit = f" or {length} > {limits.STRING_SIZE_MAX}"
        self.add(f"if stop > end{limit}: raise bad_size({field.name!r}, {length})")
        match field.kind.name:
            case "string":
                self.add(f"try: {target} = str(buf[pos:stop], 'utf-8')")
                self.add(f"except UnicodeDecodeError: {target} = repaired_text(buf[pos:stop])")
            case "bytes":
                self.add(f"{target} = bytes(buf[pos:stop])")
            case _:
                self.add(f"{target} = buf[pos:stop]")
        self.add("pos = stop")
        if field.is_nullable(self.version):
            self.depth -= 1
        return target

    def optional_struct(self, field: Field, cls: Table) -> str:
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

    def array(self, field: Field) -> str:
        target = self.name("v")
        length = self.read_length("i", field)
        if field.is_nullable(self.version):
            self.add(f"if {length} < 0: {target} = None")
            self.add("else:")
            self.depth += 1
        check = f"raise bad_count({field.name!r}, {length}, end - pos, room)"
        if field.kind.format and field.kind is not UUID_KIND:
            form = field.kind.format
            size = struct.calcsize(form)
            self.add(f"stop = pos + {length} * {size}")
            room = ""
            if self.is_request:
                self.add(f"room -= {length}")
                room = "room < 0 or "
            self.add(f"if {room}stop > end: {check}")
            self.add(f"{target} = list(unpack_from(f'>{{{length}}}{form}', buf, pos))")
            self.add("pos = stop")
        else:
            item = field._replace(is_array=False, nullable_from=None, tag=None)
            if field.struct is not None:
                least = _least_size(field.struct, self.version, self.flexible)
            elif field.kind is UUID_KIND:
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

    def build(self, cls: Table) -> str:
        """Reads the fields of `cls` and makes the instance; returns the name that holds it."""
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
        # Slots set one by one: half the time of a call of __init__.
        made = self.name("m")
        self.add(f"{made} = new({self.constant('C', cls)})")
        for field in cls.fields():
            self.add(f"{made}.{field.name} = {names[field.name]}")
        return made

    def default(self, field: Field) -> str:
        assert not field.required, f"{field.name} is not in every version: it needs a default"
        return "[]" if field.default is NEW_LIST else self.constant("D", field.default)

    def tags(self, tagged: list[Field], names: dict[str, str]) -> None:
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


def _bad_count(name: str, count: int, left: int, room: int) -> RemoteProtocolError:
    if room < 0:
        return TooManyItems(f"{name}: {count} items, {-room} above the limit of a message")
    return RemoteProtocolError(f"{name}: {count} items, {left} bytes left")


def _source(cls: Table, version: int, flexible: bool, is_request: bool) -> DecoderSource:
    source = DecoderSource(version, flexible, is_request)
    source.add("end = len(buf)")
    source.add("try:")
    source.depth += 1
    source.add(f"return {source.build(cls)}, pos")
    source.depth -= 1
    source.add("except malformed as exc:")
    what = f"{cls.__name__} version {version} is malformed: "
    source.add(f" raise RemoteProtocolError(f'{what}{{exc}}') from exc")
    return source


def _least_size(cls: Table, version: int, flexible: bool) -> int:
    """The fewest bytes an instance of `cls` takes: what bounds a count before items are made."""
    size = 1 if flexible else 0
    for field in cls.fields():
        if field.tag is not None or not field.is_in(version):
            continue
        if field.is_array:
            size += 1 if flexible else 4
        elif field.struct is not None:
            optional = field.is_nullable(version)
            size += 1 if optional else _least_size(field.struct, version, flexible)
        elif field.kind.format:
            size += struct.calcsize(">" + field.kind.format)
        else:
            size += 1 if flexible else 2 if field.kind is STRING else 4
    return size

"""Compiles the fields of a message to an encoder: one function per message and version.

    encode(message, b, parts) -> b

`b` is the bytearray being filled.  Where records come, `b` and then the record buffers are appended
to `parts`, and a new `b` is begun: record bytes are never copied.  All nested structs are inlined;
runs of fixed-width fields become one `struct` call.

Invariant: whatever the values, the function returns or raises LocalProtocolError; a string that is
too long, a number that does not fit and null where the version has none are never written.  Only an
error message is cut to what a string can hold: it often repeats a name of the request, which may be
as long as any, and whoever asked wants the code that stands beside it.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from . import limits
from .errors import LocalProtocolError
from .fields import NEW_LIST, RECORDS, STRING, UUID_KIND, Field, Part, Table
from .primitives import uvarint
from .source import Source

__all__ = ["Encoder", "compile_encoder"]

Encoder = Callable[[Any, bytearray, list[Part]], bytearray]

# How the fields are called that hold a sentence for a person.
_MESSAGE: Final = "error_message"


def compile_encoder(cls: Table, version: int, flexible: bool) -> Encoder:
    """The encoder of `cls` in `version`."""
    source = EncoderSource(version, flexible)
    source.add("try:")
    source.depth += 1
    source.build(cls, "m")
    source.flush()
    source.add("return b")
    source.depth -= 1
    source.add("except unfit as exc:")
    what = f"{cls.__name__} version {version} cannot carry this: "
    source.add(f" raise LocalProtocolError(f'{what}{{exc}}') from exc")
    encoder: Encoder = source.function("encode", "m, b, parts")
    return encoder


class EncoderSource(Source):
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
            "cut": _cut,
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

    def value(self, field: Field, source: str) -> None:
        if field.is_array:
            self.array(field, source)
        elif field.struct is not None:
            self.optional_struct(field, field.struct, source)
        elif field.kind is UUID_KIND:
            self.run.append((f"{source}.bytes", "16s"))
        elif field.kind.format:
            self.run.append((source, field.kind.format))
        else:
            self.sized(field, source)

    def sized(self, field: Field, source: str) -> None:
        """A string, bytes or records: its length, then it."""
        value, length = self.name("s"), self.name("n")
        self.add(f"{value} = {source}")
        self.add(f"if {value} is None:")
        self.add(f" {length} = {self.null(field)}")
        self.add("else:")
        if field.kind is STRING:
            self.add(f" {value} = {value}.encode()")
            if field.name.endswith(_MESSAGE):
                self.add(f" if len({value}) > {limits.STRING_SIZE_MAX}: {value} = cut({value})")
        size = "records_size" if field.kind is RECORDS else "len"
        self.add(f" {length} = {size}({value})")
        self.write_length(length, "h" if field.kind is STRING else "i")
        if field.kind is not RECORDS:
            self.add(f"if {value}: b += {value}")
            return
        self.add(f"if {value}:")
        self.add(" parts.append(b)")
        self.add(f" if isinstance({value}, (list, tuple)): parts += {value}")
        self.add(f" else: parts.append({value})")
        self.add(" b = bytearray()")

    def null(self, field: Field) -> str:
        return "-1" if field.is_nullable(self.version) else f"null({field.name!r})"

    def optional_struct(self, field: Field, cls: Table, source: str) -> None:
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

    def array(self, field: Field, source: str) -> None:
        value, length, item = self.name("s"), self.name("n"), self.name("e")
        self.add(f"{value} = {source}")
        self.add(f"{length} = {self.null(field)} if {value} is None else len({value})")
        self.write_length(length, "i")
        self.add(f"if {value}:")
        self.depth += 1
        if field.kind.format and field.kind is not UUID_KIND:
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

    def build(self, cls: Table, source: str) -> None:
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

    def tags(self, tagged: list[Field], source: str) -> None:
        self.flush()
        count, section, outer = self.name("n"), self.name("t"), self.name("o")
        self.add(f"{count} = 0")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            value = self.name("s")
            self.add(f"{value} = {source}.{field.name}")
            if field.default is NEW_LIST:
                absent = f"not {value}"
            elif field.kind is UUID_KIND:
                absent = f"{value} == {self.constant('id', field.default)}"
            else:
                absent = f"{value} == {field.default!r}"
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


def _cut(text: bytes) -> bytes:
    """As much of a UTF-8 text as a string can hold."""
    return text[: limits.STRING_SIZE_MAX].decode(errors="ignore").encode()


def _null(name: str) -> int:
    raise LocalProtocolError(f"{name} may not be null in this version")

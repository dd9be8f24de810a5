"""docs/formats.md says what the code packs: its tables against the structs, its examples decoded.

A format is a `## ` section.  A line ``Struct: `module.NAME`, N bytes`` names its struct; the rows
`| offset | size | type | field |` of the section, where it has any, are that struct's fields.  A
row at `24 + 24 i` is there again every 24 bytes, to the end.  More formats need no more tests.
"""

import importlib
import re
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pytest

from segbroker.protocol.record_batch import GapReason, check_batch, gap_batches, gap_reason
from segbroker.segments.metadata.control import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
TYPES = {
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
}
ROW = re.compile(
    r"^\| (?P<offset>\d+)(?: \+ (?P<stride>\d+) i)? \| (?P<size>\d+) \| (?P<type>[^|]+) \|"
    r" `(?P<name>\w+)` \|",
    re.MULTILINE,
)
STRUCT = re.compile(r"^Struct: `([\w.]+)\.(\w+)`, (\d+) bytes$", re.MULTILINE)


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def struct_of(section: str) -> tuple[Struct, int] | None:
    match = STRUCT.search(section)
    if match is None:
        return None
    struct = getattr(importlib.import_module(match[1]), match[2])
    assert isinstance(struct, Struct), match[0]
    return struct, int(match[3])


def code_of(cell: str) -> str:
    """The struct code of a type cell; `10 bytes` is a fixed string."""
    name = cell.split("=")[0].strip()
    return name.replace(" bytes", "s") if name.endswith(" bytes") else TYPES[name]


class Field(NamedTuple):
    """One field of a struct."""

    offset: int
    size: int
    type: str
    name: str


def fields(section: str, size: int) -> list[Field]:
    """Every field in the tables of a section whose struct has `size` bytes, in their order."""
    once: list[Field] = []
    again: list[Field] = []
    stride = 0
    for row in ROW.finditer(section):
        field = Field(int(row["offset"]), int(row["size"]), row["type"], row["name"])
        (again if row["stride"] else once).append(field)
        stride = int(row["stride"] or stride)
    begin = again[0].offset if again else size
    shifts = range(0, size - begin, stride or 1)
    return once + [each._replace(offset=each.offset + n) for n in shifts for each in again]


FORMATS = {name: text for name, text in sections().items() if struct_of(text)}
TABLED = [name for name, text in FORMATS.items() if ROW.search(text)]


def test_the_page_has_tables_to_check() -> None:
    assert set(FORMATS) - set(TABLED) == {"Gap batch"}  # the same struct once more


@pytest.mark.parametrize("name", FORMATS)
def test_the_size_on_the_page_is_the_size_of_the_struct(name: str) -> None:
    checked = struct_of(FORMATS[name])
    assert checked is not None
    struct, size = checked
    assert struct.size == size


@pytest.mark.parametrize("name", TABLED)
def test_the_tables_are_the_fields_of_the_struct_without_a_hole(name: str) -> None:
    checked = struct_of(FORMATS[name])
    assert checked is not None
    struct, size = checked
    position = 0
    for field in fields(FORMATS[name], size):
        assert field.offset == position, field
        assert field.size == Struct(">" + code_of(field.type)).size, field
        position += field.size
    assert ">" + "".join(code_of(field.type) for field in fields(FORMATS[name], size)) == (
        struct.format
    )


@pytest.mark.parametrize("name", [name for name in TABLED if "`version` |" in FORMATS[name]])
def test_the_version_on_the_page_is_the_one_that_is_written(name: str) -> None:
    match = STRUCT.search(FORMATS[name])
    assert match is not None
    (version,) = [row["type"] for row in ROW.finditer(FORMATS[name]) if row["name"] == "version"]
    assert version == f"u16 = {importlib.import_module(match[1]).VERSION}"


def test_the_gap_on_the_page_is_what_its_caption_says() -> None:
    (example,) = re.findall(r"```hex\n(.*?)```", sections()["Gap batch"], re.DOTALL)
    gap = bytes.fromhex(example)
    assert gap_batches(7, 10, GapReason.CORRUPTION, 8192, 3) == [gap]
    assert gap_reason(check_batch(gap, stored=True)) == GapReason.CORRUPTION


def test_every_reason_of_a_gap_is_on_the_page() -> None:
    for reason in GapReason:
        assert f"{reason} {reason.name.lower().replace('_', ' ')}" in sections()["Gap batch"]


def test_every_kind_of_control_event_is_on_the_page_and_no_other() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", sections()["Control event"], flags=re.MULTILINE)
    assert len(listed) == len(KINDS)
    assert set(listed) == set(KINDS)

"""docs/formats.md says what the code packs: its boxes against the structs, its examples decoded.

A format is a `## ` section.  A line ``Struct: `module.NAME`, N bytes`` names its struct; the boxes
of the section, where it has any, are that struct's fields.  More formats need no more tests.
"""

import importlib
import re
from itertools import pairwise
from pathlib import Path
from struct import Struct

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


def fields(section: str) -> list[tuple[int, str, str]]:
    """(position, name, struct code) of every field in the boxes of a section."""
    found = []
    lines = section.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("byte "):
            continue
        marks = [(match.start(), int(match[0])) for match in re.finditer(r"\d+", line)]
        names, types = lines[number + 2], lines[number + 3]
        edges = [column for column, character in enumerate(types) if character == "|"]
        assert [column for column, _ in marks][: len(edges)] == edges, f"marks are off: {line}"
        for (left, position), (right, behind) in pairwise(marks):
            code = code_of(types[left + 1 : right])
            assert Struct(">" + code).size == behind - position, (
                f"{names[left:right]} at {position}"
            )
            found.append((position, names[left + 1 : right].strip(), code))
    return found


FORMATS = {name: text for name, text in sections().items() if struct_of(text)}
BOXED = [name for name, text in FORMATS.items() if fields(text)]


def test_the_page_has_boxes_to_check() -> None:
    assert "RecordBatch" in BOXED


@pytest.mark.parametrize("name", FORMATS)
def test_the_size_on_the_page_is_the_size_of_the_struct(name: str) -> None:
    checked = struct_of(FORMATS[name])
    assert checked is not None
    struct, size = checked
    assert struct.size == size


@pytest.mark.parametrize("name", BOXED)
def test_the_boxes_are_the_fields_of_the_struct_without_a_hole(name: str) -> None:
    checked = struct_of(FORMATS[name])
    assert checked is not None
    boxes = fields(FORMATS[name])
    assert ">" + "".join(code for _, _, code in boxes) == checked[0].format
    position = 0
    for start, field, code in boxes:
        assert start == position, field
        position += Struct(">" + code).size


@pytest.mark.parametrize("name", [name for name in BOXED if "| version" in FORMATS[name]])
def test_the_version_on_the_page_is_the_one_that_is_written(name: str) -> None:
    match = STRUCT.search(FORMATS[name])
    assert match is not None
    lines = FORMATS[name].splitlines()
    row = next(number for number, line in enumerate(lines) if "| version" in line)
    column = lines[row].index("| version")
    version = re.match(r"\| u16 = (\d+) ", lines[row + 1][column:])
    assert version is not None
    assert int(version[1]) == importlib.import_module(match[1]).VERSION


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

"""What `dump` found in a file, and how it is printed: for people, or as one JSON object.

segment log flights_partition_0_segment_3.log
  size         1,048,411
  ...
position  size  offset ...
       0   ...
torn tail at byte 1048411, 17 bytes: ...           not damage, said all the same
DAMAGE: bad batch at byte 4096, 812 bytes: CRC-32C ...
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .tables import table_lines

Row: TypeAlias = dict[str, Any]
NONE_SHOWN = "no damage found"


@dataclass
class Report:
    """What one file says.

    Attributes:
        kind: what sort of file it is.
        facts: about the whole file.
        rows: its parts, in order; rows of one sort have the same keys.
        torn: what a crash left unfinished; the next start deals with it.
        damage: what should not be.
    """

    kind: str
    facts: Row
    rows: list[Row] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)

    def to_json(self, path: str) -> str:
        everything = {"kind": self.kind, "path": path, **self.facts, "rows": self.rows}
        everything |= {"torn": self.torn, "damage": self.damage}
        return json.dumps(everything, default=_plain, indent=2)

    def to_lines(self, path: str) -> Iterator[str]:
        """The readable form."""
        yield f"{self.kind} {path}"
        width = max(map(len, self.facts), default=0)
        for name, value in self.facts.items():
            yield f"  {name.ljust(width)}  {_shown(value)}"
        for rows in _runs(self.rows):
            yield ""
            head = list(rows[0])
            numbers = {i for i, name in enumerate(head) if isinstance(rows[0][name], int)}
            cells = [[_shown(row[name]) for name in head] for row in rows]
            yield from table_lines(head, cells, numbers=numbers)
        if self.rows:
            yield ""
        yield from self.torn
        for sentence in self.damage:
            yield f"DAMAGE: {sentence}"
        if not self.damage:
            yield NONE_SHOWN


def _runs(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Neighbours with the same keys are one table."""
    run: list[Row] = []
    for row in rows:
        if run and run[0].keys() != row.keys():
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _shown(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case bytes():
            return _text(value)
        case list() | tuple():
            return ", ".join(map(_shown, value)) or "-"
        case dict():
            return ", ".join(f"{name}={_shown(item)}" for name, item in value.items()) or "-"
        case _:
            return str(value)


def _text(data: bytes) -> str:
    """As text when it can be read on one line, else as Python writes bytes."""
    text = data.decode(errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else repr(data)[2:-1]


def _plain(value: object) -> object:
    """What json cannot do by itself."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    return str(value)

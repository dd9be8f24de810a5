"""Rows into a table, and the table into docs/benchmarks.md between its two marks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .machine import Machine

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"


@dataclass(frozen=True)
class Row:
    """One figure: what was done, how durable, what came out, beside what, against which goal."""

    work: str
    durability: str
    result: str
    peer: str = "–"
    ratio: str = "–"
    goal: str = "–"
    server: str = "–"


COLUMNS = ("work", "durability", "result", "peer in the same run", "ratio", "goal", "server")


def table(rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = (row.work, row.durability, row.result, row.peer, row.ratio, row.goal, row.server)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def section(machine: Machine, load_after: float, spin: tuple[float, float], body: str) -> str:
    return f"""{BEGIN}
Measured {machine.date}, commit {machine.commit}, by `make bench`.
{machine.cpu}, {machine.cores} cores shared by server and client, {machine.memory_gib:.0f} GiB,
Linux {machine.kernel}, Python {machine.python}; {machine.versions}.
Load average before {machine.load_before:.2f}, after {load_after:.2f}; a spinning core made
{spin[0]:.1f} turns/µs before and {spin[1]:.1f} after (a large fall means a contended machine).

{body}
{END}"""


def write(page: Path, text: str) -> None:
    """Replace what stands between the marks; the rest of the page is written by people."""
    old = page.read_text()
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + text + after)

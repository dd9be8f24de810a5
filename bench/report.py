"""Rows into a table, and the table into docs/benchmarks.md between its two marks."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

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


@dataclass(frozen=True)
class Note:
    """A sentence that belongs to a scenario's table: a peer's durability, or why it is not in."""

    text: str


Entry: TypeAlias = Row | Note

COLUMNS = ("work", "durability", "result", "peer in the same run", "ratio", "goal", "server")


class Runs:
    """What was measured several times, by name."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        self._values.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        return statistics.median(self._values[name])


def rate(records: float, size: int) -> str:
    """Records per second, and the bytes that this makes."""
    return f"{records / 1e3:,.0f} k records/s ({records * size / 1e6:,.0f} MB/s)"


def latency(seconds: Sequence[float]) -> str:
    """Median and tail of some latencies."""
    cuts = statistics.quantiles(seconds, n=1000)
    p50, p99, p999 = (cuts[n] * 1e3 for n in (499, 989, 998))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, p99.9 {p999:.2f} ms"


def table(entries: Sequence[Entry]) -> str:
    """The rows, and under them the notes."""
    lines = []
    if any(isinstance(entry, Row) for entry in entries):
        lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for entry in entries:
        if isinstance(entry, Row):
            cells = (entry.work, entry.durability, entry.result, entry.peer, entry.ratio)
            lines.append("| " + " | ".join((*cells, entry.goal, entry.server)) + " |")
    notes = dict.fromkeys(f"- {entry.text}" for entry in entries if isinstance(entry, Note))
    return "\n".join([*lines, "", *notes] if notes else lines)


def section(
    machine: Machine, load_after: float, spin: tuple[float, float], body: str, *, command: str
) -> str:
    """The whole of what is measured: how, machine, contention, tables."""
    return f"""{BEGIN}
Measured {machine.date}, commit {machine.commit}, by `{command}`.
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

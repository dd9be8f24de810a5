"""What a client saw of a broker before an upgrade and after it, and what is gone or changed.

What may change is left out: how a compacted topic is cleaned (the last value of each key counts),
and what an `ephemeral` topic holds, but never an offset that it gave away.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

Record = tuple[int, bytes | None, bytes | None, tuple[int, int], tuple[tuple[str, bytes], ...]]


@dataclass
class Seen:
    """What is there, as a client sees it."""

    records: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    bounds: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], tuple[int, str]]] = field(default_factory=dict)
    users: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)


def lost(before: Seen, after: Seen) -> list[str]:
    """What was there before and is not, or is something else."""
    wrong: list[str] = []
    for name, bounds in before.bounds.items():
        topic = name[0]
        now = after.bounds[name]
        if topic == "ephemeral":
            if now[1] < bounds[1]:
                wrong.append(f"{name}: offsets were given away up to {bounds[1]}, now {now[1]}")
            continue
        if topic == "compacted":
            if _last(before.records[name]) != _last(after.records[name]):
                wrong.append(f"{name}: the last values of its keys are others")
        elif before.records[name] != after.records[name]:
            wrong.append(f"{name}: {_difference(before.records[name], after.records[name])}")
        if now != bounds and topic != "compacted":
            wrong.append(f"{name}: was {bounds}, is {now}")
    for what in ("configs", "offsets", "users", "rules"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            wrong.append(f"{what}: were {old}, are {new}")
    return wrong


def _last(records: Iterable[Record]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value, _, _ in records}


def _difference(old: list[Record], new: list[Record]) -> str:
    gone = sorted({one[0] for one in old} - {one[0] for one in new})
    come = sorted({one[0] for one in new} - {one[0] for one in old})
    others = [one[0] for one, two in zip(old, new, strict=False) if one != two]
    return (
        f"{len(old)} records, now {len(new)}; gone {gone[:5]}, new {come[:5]}, other {others[:5]}"
    )

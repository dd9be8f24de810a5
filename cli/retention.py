"""What a topic keeps, in words, for `topic describe`."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .words import duration, moment, plural, size

if TYPE_CHECKING:
    from segbroker.client.cleaning import Cleaning


def retention_lines(config: Mapping[str, str]) -> list[str]:
    """What goes, and when; nothing for a broker that does not tell its settings as numbers.

    config: the settings of the topic in force, by key.
    """
    try:
        age_ms = int(config.get("retention.ms", ""))
        sizes = [
            f"{words(count)} per partition"
            for key, words in (("retention.bytes", size), ("retention.records", _records))
            if (count := int(config.get(key, "-1"))) >= 0
        ]
    except ValueError:
        return []
    policies = config.get("cleanup.policy", "delete").split(",")
    deletes, compacts = "delete" in policies, "compact" in policies
    rejects = bool(sizes) and config.get("retention.full.policy") == "reject"
    age = "for ever"
    if deletes and age_ms >= 0:
        age = f"for {duration(age_ms)}, by their timestamps"
    lines = ["retention:", f"  records are kept                 {age}"]
    if compacts and not deletes:
        lines[1] = "  the last record of each key is kept  for ever; see cleaning"
    if rejects:  # whatever the policy is
        room = "by age and by deleting records" if deletes else "by deleting records"
        if compacts and not deletes:
            room = "by cleaning"
        lines.append(f"  a batch is refused (reject)      that would pass {' or '.join(sizes)}")
        lines.append(f"  room is made                     only {room}")
    elif sizes and deletes:
        lines.append(f"  old segments go (drop-old)       while {' and '.join(sizes)} stay")
    elif deletes or not compacts:
        lines.append("  size                             without a limit")
    return lines


def cleaning_lines(cleanings: "Iterable[Cleaning]") -> list[str]:
    """How far a compacted topic is cleaned; nothing for one that is not, or nobody says.

    cleanings: of its partitions.
    """
    rows = list(cleanings)
    if not rows:
        return []
    dirtiest = max(rows, key=lambda row: row.dirty_ratio)
    times = [row.cleaned_ms for row in rows if row.cleaned_ms is not None]
    dirty = sum(row.dirty_bytes for row in rows)
    return [
        "cleaning:",
        f"  last                             {moment(max(times, default=-1))}",
        f"  not cleaned yet, of full segments  {dirty:,} bytes",
        f"  share of that in the dirtiest partition  {dirtiest.dirty_ratio:.0%}",
    ]


def _records(count: int) -> str:
    return plural(count, "record")

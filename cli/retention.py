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
    if "compact" in policies and "delete" not in policies:
        return ["retention:", "  the last record of each key is kept  for ever; see cleaning"]
    if "delete" not in policies:  # an empty cleanup.policy: whatever the limits say
        age_ms, sizes = -1, []
    age = f"for {duration(age_ms)}, by their timestamps" if age_ms >= 0 else "for ever"
    lines = ["retention:", f"  records are kept                 {age}"]
    if sizes and config.get("retention.full.policy") == "reject":
        lines.append(f"  a batch is refused (reject)      that would pass {' or '.join(sizes)}")
        lines.append("  room is made                     only by age and by deleting records")
    elif sizes:
        lines.append(f"  old segments go (drop-old)       while {' and '.join(sizes)} stay")
    else:
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

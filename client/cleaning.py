"""How far the partitions of a compacted topic are cleaned: a question of segbroker's own.

Of a topic that is not compacted, and of another broker, nothing is told.
"""

from dataclasses import dataclass

from .engine import Call, Engine
from .partition_statistics import statistics
from .records import TopicPartition


@dataclass(frozen=True, slots=True)
class Cleaning:
    """Of one partition: below `clean_offset` it has been cleaned, `dirty_bytes` could be now.

    dirty_ratio: their share of all that could be cleaned or was.  cleaned_ms: when a cleaning got
    further, the last time; None for never.
    """

    clean_offset: int
    cleaned_ms: int | None
    dirty_bytes: int
    dirty_ratio: float


def cleanings(engine: Engine, topic: str) -> Call[dict[TopicPartition, Cleaning]]:
    """By partition; opens them.  Raises what a request raises."""
    rows = yield from statistics(engine, [topic])
    return {
        tp: Cleaning(
            row["clean_offset"],
            row["cleaned_ms"] if row["cleaned_ms"] >= 0 else None,
            row["dirty_bytes"],
            row["dirty_ratio"],
        )
        for tp, row in rows.items()
        if "clean_offset" in row
    }

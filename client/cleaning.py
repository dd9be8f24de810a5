"""How far the partitions of a compacted topic are cleaned: a question of segbroker's own.

Of a topic that is not compacted, and of another broker, nothing is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from segbroker.protocol.vendor import VendorKey

from .asking import look_vendor
from .engine import Call, Engine
from .errors import UnsupportedByBroker
from .records import TopicPartition
from .spoken import VendorRequest


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
    told: dict[TopicPartition, Cleaning] = {}
    body: dict[str, object] = {"topics": [topic]}
    while True:  # a page each time, and each begins further on
        try:
            request = VendorRequest(VendorKey.PARTITION_STATISTICS, dict(body))
            reply = yield from look_vendor(engine, request, f"topic {topic!r}")
        except UnsupportedByBroker:
            return told
        topics = reply.get("topics")
        found = topics.get(topic) if isinstance(topics, Mapping) else None
        rows = found.get("partitions", []) if isinstance(found, Mapping) else []
        told |= {
            TopicPartition(topic, row["partition"]): Cleaning(
                row["clean_offset"],
                row["cleaned_ms"] if row["cleaned_ms"] >= 0 else None,
                row["dirty_bytes"],
                row["dirty_ratio"],
            )
            for row in rows
            if "clean_offset" in row
        }
        if not rows or reply.get("next") is None:
            return told
        body["from"] = {"topic": topic, "partition": rows[-1]["partition"] + 1}

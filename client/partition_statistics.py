"""What segbroker tells of the partitions of a topic: a question of its own, a page at a time.

Of another broker nothing is told.
"""

from collections.abc import Mapping
from typing import Any

from segbroker.protocol.vendor import VendorKey

from .asking import look_vendor
from .engine import Call, Engine
from .errors import UnsupportedByBroker
from .records import TopicPartition
from .spoken import VendorRequest


def statistics(engine: Engine, topic: str) -> Call[list[Mapping[str, Any]]]:
    """A row for each partition; opens them.  Raises what a request raises."""
    told: list[Mapping[str, Any]] = []
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
        told += rows
        if not rows or reply.get("next") is None:
            return told
        body["from"] = {"topic": topic, "partition": rows[-1]["partition"] + 1}


def stored_records(engine: Engine, topic: str) -> Call[dict[TopicPartition, int]]:
    """How many records each partition holds that could be told.  Raises what a request raises."""
    rows = yield from statistics(engine, topic)
    return {
        TopicPartition(topic, row["partition"]): row["records"] for row in rows if "records" in row
    }

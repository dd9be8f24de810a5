"""What segbroker tells of the partitions of topics: a question of its own, a page at a time.

Of another broker nothing is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from segbroker.protocol.vendor import VendorKey

from .asking import look_vendor
from .engine import Call, Engine, Onward
from .errors import UnsupportedByBroker
from .lists import as_names, in_pieces
from .records import TopicPartition
from .spoken import VendorRequest


def statistics(
    engine: Engine, topics: Sequence[str]
) -> Call[dict[TopicPartition, Mapping[str, Any]]]:
    """A row for each partition; opens them.  Raises what a request raises."""
    told: dict[TopicPartition, Mapping[str, Any]] = {}
    body: dict[str, object] = {"topics": topics}
    about = f"topic {topics[0]!r}" if len(topics) == 1 else f"{len(topics)} topics"
    while True:  # a page each time, and each begins further on
        try:
            request = VendorRequest(VendorKey.PARTITION_STATISTICS, dict(body))
            reply = yield from look_vendor(engine, request, about)
        except UnsupportedByBroker:
            return told
        rows = _rows(reply.get("topics"))
        if not rows.keys() - told.keys():
            return told
        told |= rows
        if reply.get("next") is None:
            return told
        yield Onward()
        last = next(reversed(rows))
        body["from"] = {"topic": last.topic, "partition": last.partition + 1}


def _rows(topics: object) -> dict[TopicPartition, Mapping[str, Any]]:
    """The rows of a page, in their order."""
    found = topics.items() if isinstance(topics, Mapping) else ()
    return {
        TopicPartition(name, row["partition"]): row
        for name, one in found
        if isinstance(one, Mapping)
        for row in one.get("partitions", [])
    }


def stored_records(engine: Engine, topics: str | Iterable[str]) -> Call[dict[TopicPartition, int]]:
    """How many records each partition holds that could be told.  Raises what a request raises."""
    stored: dict[TopicPartition, int] = {}
    for some in in_pieces(as_names(topics)):
        rows = yield from statistics(engine, some)
        yield Onward()
        stored |= {tp: row["records"] for tp, row in rows.items() if "records" in row}
    return stored

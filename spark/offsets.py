"""Offsets of a query: a map of topic to partition to offset, and its JSON in the checkpoint.

    {"clicks": {"0": 4711, "1": 4650}, "$topic_ids": {"clicks": "jPMmZ2aTTKKuMtaoTUwQVQ"}}

Kafka's own shape, so people and tools can read it, with one more entry: the id of each topic, in
the form in which Kafka's tools print it.  A topic that was deleted and made again has another id,
and its offsets mean something else.  `$` cannot begin a topic name.  The entry is left out for
brokers that have no topic ids, and offsets without it are taken as they are.

An offset is the *end* of what was read: the first one not yet read, half-open like all bounds.

Of a query's first batch it has one entry more, where that batch began (0265): Spark keeps the end
alone, and asks anew where the query begins when the batch has to be repeated.

    {"clicks": {"0": 4711}, "$start": {"clicks": {"0": 4000}}}

Invariant: functions here are pure and deterministic; a replayed batch gets the ranges it had.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import UUID

from .errors import SourceError

TOPIC_IDS = "$topic_ids"
START = "$start"

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where a query stands, per (topic, partition); `ids` of the topics where known."""

    at: Mapping[TopicPartition, int]
    ids: Mapping[str, UUID] = field(default_factory=dict)

    def at_least(self, other: "Offsets") -> "Offsets":
        """The later offset of each partition that either has."""
        later = {key: max(self.at.get(key, offset), offset) for key, offset in other.at.items()}
        return Offsets({**self.at, **later}, {**other.ids, **self.ids})

    def to_json(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for (topic, partition), offset in sorted(self.at.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        ids = {topic: id_text(self.ids[topic]) for topic in found if topic in self.ids}
        if ids:
            found[TOPIC_IDS] = ids
        return found


def offsets_from_json(value: Any) -> Offsets:  # noqa: ANN401 - whatever a checkpoint has
    """The offsets that `to_json` made, or that Kafka's source would have; START is passed over.

    Raises SourceError for anything else.
    """
    try:
        at = {
            (topic, int(partition)): int(offset)
            for topic, offsets in value.items()
            if topic not in (TOPIC_IDS, START)
            for partition, offset in offsets.items()
        }
        ids = {topic: parse_id(text) for topic, text in value.get(TOPIC_IDS, {}).items()}
    except (AttributeError, TypeError, ValueError) as exc:
        raise SourceError(
            f"the checkpoint has the offset {json.dumps(value):.200}, which says nothing of"
            " partitions: it is that of another source, or damaged; begin with a new checkpoint"
        ) from exc
    return Offsets(at, ids)


def id_text(topic_id: UUID) -> str:
    """As Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_id(text: str) -> UUID:
    """The other way round."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def fair_share(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """How far to read when at most `limit` offsets may be read in all.

    Each partition gets its part of the limit in proportion to its backlog, the remainders going
    to those that lost most by rounding; a partition with a backlog gets at least one, so that a
    slow one is never starved by fast ones.  That may pass the limit, by less than the number of
    partitions.
    """
    backlog = {key: end[key] - start[key] for key in end if end[key] > start[key]}
    total = sum(backlog.values())
    if total <= limit:
        return dict(end)
    exact = {key: divmod(size * limit, total) for key, size in backlog.items()}
    share = {key: whole for key, (whole, _) in exact.items()}
    left = limit - sum(share.values())
    for key in sorted(exact, key=lambda key: (-exact[key][1], key))[:left]:
        share[key] += 1
    return {key: start[key] + max(1, share[key]) if key in share else to for key, to in end.items()}


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of one partition, the unit of planning."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def split_ranges(
    ranges: list[OffsetRange], count_min: int | None, size_max: int | None = None
) -> list[OffsetRange]:
    """At least `count_min` ranges of at most `size_max` offsets, larger ones cut in more pieces."""
    ranges = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in ranges)
    if count_min is None or len(ranges) >= count_min:
        count_min = 0
    pieces: list[OffsetRange] = []
    for each in ranges:
        count = max(1, min(each.size, -(-each.size * count_min // total)))
        if size_max is not None:
            count = max(count, -(-each.size // size_max))
        cuts = [each.start + each.size * n // count for n in range(count + 1)]
        pieces += [
            OffsetRange(each.topic, each.partition, low, high) for low, high in pairwise(cuts)
        ]
    return pieces

"""The values that the client takes and gives."""

from collections.abc import Sequence
from typing import NamedTuple

Headers = Sequence[tuple[str, bytes | None]]
"""What may be given as headers; a dict does as well."""

RecordHeaders = tuple[tuple[str, bytes | None], ...]
"""Names and values, in order; a name may come more than once."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a sent record went.  Offset -1: sent with acks=0, nobody said.  Time in ms."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Record(NamedTuple):
    """One record as it was read.  `value` None is a tombstone.  Time in ms since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


class OffsetAndTimestamp(NamedTuple):
    """A position in a partition; `timestamp_ms` is -1 where nobody asked by time."""

    offset: int
    timestamp_ms: int = -1


def check_headers(headers: Headers) -> Headers:
    """The headers as pairs.  Raises TypeError for what is none."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    for pair in pairs:
        name, value = pair
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError(f"header {pair!r} is not a (str, bytes or None)")
    return pairs

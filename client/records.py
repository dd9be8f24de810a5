"""The values that the client takes and gives."""

from typing import NamedTuple

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

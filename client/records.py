"""The values that the client takes and gives."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

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


LossReason = Literal["lost_tail", "corruption", "cap", "ttl", "recreated", "unknown"]
"""Why offsets are gone against somebody's will:

lost_tail   written and not yet synced when the power failed, or cut off: the log ended below them
corruption  damaged on disk
cap         evicted because the log reached its size limit
ttl         expired by age
recreated   their topic was deleted and another one of the name made
unknown     the broker does not say (Apache Kafka never does)
"""


class Gap(NamedTuple):
    """Offsets [from_offset, to_offset) of a partition were lost.

    What was deleted on purpose is no gap.  A `lost_tail` or `recreated` gap may begin below what
    was handed out already: those records are not in the log any more, and reading goes on where
    the log does, at `from_offset`, or in a recreated topic at its start.  Such a gap may be empty,
    when nothing was left unread.
    """

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    reason: LossReason

    @property
    def lost_count(self) -> int:
        """How many records were lost, at most."""
        return self.to_offset - self.from_offset


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

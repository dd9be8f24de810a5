"""The values that the client takes and gives."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from segbroker.protocol.kernel import KERNEL_IS_NATIVE
from segbroker.protocol.limits import STRING_SIZE_MAX

Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""What may be given as headers: pairs in order, or a dict."""

HeaderPairs = Sequence[tuple[str, bytes | None]]
"""Headers as they are kept."""

RecordHeaders = tuple[tuple[str, bytes | None], ...]
"""Names and values, in order; a name may come more than once."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


Value = TypeVar("Value", covariant=True)
ByPartition = Mapping[tuple[str, int], Value] | Mapping[TopicPartition, Value]
"""Something for each partition; both kinds of keys, as a Mapping of one is none of the other."""


Key = TypeVar("Key")
Item = TypeVar("Item")


def grouped(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """What there is of each key, in order: requests have topics, and in each its partitions."""
    groups: dict[Key, list[Item]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


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


if not TYPE_CHECKING and KERNEL_IS_NATIVE:
    from segbroker.protocol.record_native import quick

    Record = quick(Record)

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


def check_headers(headers: Headers) -> HeaderPairs:
    """The headers as pairs.  Raises TypeError for what is none, ValueError for no text."""
    if isinstance(headers, str | bytes):
        raise TypeError(f"headers={headers!r} are not pairs of (str, bytes or None)")
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"header {pair!r} is not a (str, bytes or None)")
        name, value = pair
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError(f"header {pair!r} is not a (str, bytes or None)")
        if not name.isascii():
            utf8_size("header name", name)
    return pairs


def check_text(what: str, text: str) -> None:
    """TypeError or ValueError for what no request can carry: asking for it would be for ever."""
    if not isinstance(text, str):
        raise TypeError(f"{what} {short_repr(text)} is a {type(text).__name__}, not a str")
    size = utf8_size(what, text)
    if size > STRING_SIZE_MAX:
        raise ValueError(f"{what} of {size} bytes, limit {STRING_SIZE_MAX}")


def topic_names(topics: Collection[str]) -> list[str]:
    """Names that may be subscribed to, each once.  TypeError or ValueError."""
    if isinstance(topics, str):
        raise TypeError(f"topics={topics!r} is a str, not a collection of them")
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(
                f"topic {short_repr(topic)} is a {type(topic).__name__}, not a str; several are"
                " given one by one: (address, 'orders', 'payments'), or (address, *topics)"
            )
        check_text("topic", topic)
    return list(dict.fromkeys(topics))


def utf8_size(what: str, text: str) -> int:
    """Bytes of a text.  ValueError for what Python makes of bytes that are no UTF-8, in arguments
    and names of files."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {text!r} is no text: it has lone surrogates") from None


def check_timestamp(timestamp_ms: int) -> None:
    """TypeError or ValueError for what is no time of a record."""
    if not isinstance(timestamp_ms, int):
        raise TypeError(
            f"timestamp_ms={timestamp_ms!r} is a {type(timestamp_ms).__name__},"
            " not an int of milliseconds since 1970"
        )
    if not 0 <= timestamp_ms < 1 << 63:
        raise ValueError(f"timestamp_ms={timestamp_ms} is not between 1970 and {1 << 63}")


def as_partition(pair: tuple[str, int]) -> TopicPartition:
    """Raises TypeError for what is no (topic, partition), ValueError for no name."""
    match pair:
        case (str(topic), int(partition)):
            check_text("topic", topic)
            return TopicPartition(topic, partition)
    raise TypeError(f"{pair!r} is not a (topic, partition)")


def as_partitions(pairs: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Raises TypeError for what are none."""
    if isinstance(pairs, str):
        raise TypeError(f"{pairs!r} is not a list of (topic, partition)")
    return [as_partition(pair) for pair in pairs]

"""The short way into the buffer: one call per record, and no lock.

    send(value, key) --> inbox: values, keys --drain--> columns, split by partition --> batches

The plain record (bytes, no headers, no chosen partition or time, not large) is put into a Pending
list, in one step that no other thread comes between, and the list is drained under the
lock many at a time: by the sender when `limit` records are there, by the I/O side when they have
lingered.

What the sender gets is a Delivery: a ticket with the *span* (from one drain to the next) and the
index in it.  The drain notes in the span which run of records went to which batch, so a Delivery
finds its batch when it is asked.

When the buffer has no room, what was drained and not placed stays in `leftover`, split
already; it is placed before anything is drained again, so each partition keeps its order.

Going idle: the I/O side sets `limit` to 0 and then looks whether anything is pending; the sender
puts, and C compares with `limit` after the append.  One of the two sees the other, so no record
stays behind.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

from .columns import column_of
from .pending import Pending, Ticket
from .producer_batch import ProducerBatch
from .records import Headers, RecordMetadata, check_headers, check_timestamp

# Larger records take the long way, so that what is pending is bounded by bytes too.
SHORT_BYTES = 4096

# Of records without a key, in Span.runs and Group.partition.
ANY_PARTITION = -1


# Of one partition in one span: (first, count, batch, index of the first in the batch), where
# `first` counts the records of that partition in the span.
Run = tuple[int, int, "ProducerBatch", int]


class Span:
    """Where the records went that were put between two drains."""

    __slots__ = ("_ranks", "inbox", "partitions", "runs")

    def __init__(self, inbox: "Inbox | None") -> None:
        self.inbox = inbox
        # Of each record, also of one without a key; None: none has one, all are ANY_PARTITION.
        self.partitions: array[int] | None = None
        self.runs: dict[int, list[Run]] = {}
        self._ranks: list[int] | None = None

    def find(self, index: int) -> "tuple[ProducerBatch, int] | None":
        """The batch of a record and its index there; None while it is in none."""
        # Asked without the lock while another thread drains: `partitions` is final from the
        # first run on, so look for runs first.
        if not self.runs:
            return None
        partition, rank = ANY_PARTITION, index
        if self.partitions is not None:
            partition = self.partitions[index]
            if self._ranks is None:
                self._ranks = _ranks(self.partitions)
            rank = self._ranks[index]
        runs = self.runs.get(partition, ())
        at = bisect_right(runs, rank, key=itemgetter(0)) - 1
        if at < 0:
            return None
        first, count, batch, start = runs[at]
        return (batch, start + rank - first) if rank < first + count else None

    def batches(self) -> "Iterator[ProducerBatch]":
        """Those that its records went to, so far."""
        return (batch for runs in self.runs.values() for _, _, batch, _ in runs)

    def places(self) -> "Iterator[tuple[ProducerBatch, int]]":
        """Batch and index of every record, in the order of sending.  Only when all are placed."""
        by_partition = {partition: _places(runs) for partition, runs in self.runs.items()}
        if self.partitions is None:
            return by_partition.get(ANY_PARTITION, iter(()))
        return (next(by_partition[partition]) for partition in self.partitions)


class Delivery(Ticket):
    """A record on its way: a ticket of a Span or of a batch.  The shells add how to wait."""

    __slots__ = ()

    def place(self) -> "tuple[ProducerBatch, int]":
        """Its batch and index; a pending one is put into a batch now, which lingers no longer."""
        span = self.span
        if not isinstance(span, Span):
            return span, self.index  # type: ignore[return-value]  # a ticket of a batch
        found = span.find(self.index)
        if found is None:
            assert span.inbox is not None, "what is not in a batch has an inbox"
            span.inbox.settle()
            found = span.find(self.index)
            assert found is not None, "what is not pending is in a batch"
        return found

    @property
    def done(self) -> bool:
        """Whether it is decided: acknowledged or failed."""
        span = self.span
        if not isinstance(span, Span):
            return span.done  # type: ignore[attr-defined, no-any-return]  # a batch
        found = span.find(self.index)
        return found is not None and found[0].done

    def __repr__(self) -> str:
        # Not its end: who looks at a failure by its result has seen it.
        return f"<Delivery, {'decided' if self.done else 'under way'}>"

    def metadata(self) -> RecordMetadata:
        """Where it went; raises why it did not.  Only when done."""
        batch, index = self.place()
        return batch.metadata(index)


@dataclass(slots=True)
class Group:
    """Records of one partition that are to be placed, in order; `start` of them are."""

    span: Span
    partition: int
    values: list[bytes | None]
    keys: list[bytes | None] | None
    start: int = 0

    @property
    def is_placed(self) -> bool:
        return self.start >= len(self.values)


class Inbox:
    """The pending plain records of one topic."""

    __slots__ = (
        "_settle",
        "leftover",
        "limit_usual",
        "opened_ms",
        "pending",
        "topic",
        "wall_ms",
    )

    def __init__(
        self,
        topic: str,
        settle: "Callable[[Inbox], None]",
        delivery: type[Delivery] = Delivery,
    ) -> None:
        """`settle` puts all that is pending into batches, for who waits for a record."""
        self._settle = settle
        self.topic = topic
        # Its `limit`: at so many the sender drains; 0: idle, the next record says that it is there.
        self.pending = Pending(Span(self), delivery, SHORT_BYTES)
        self.leftover: deque[Group] = deque()
        self.limit_usual = 1
        self.opened_ms = 0
        self.wall_ms = 0

    def settle(self) -> None:
        """Somebody waits for a pending record."""
        self._settle(self)

    @property
    def is_empty(self) -> bool:
        return not self.leftover and not len(self.pending)


class Many:
    """The columns of one send_many, and how far they are placed."""

    __slots__ = (
        "groups",
        "headers",
        "keys",
        "partition",
        "span",
        "timestamp_ms",
        "topic",
        "values",
    )

    def __init__(
        self,
        topic: str,
        values: Iterable[bytes | None],
        keys: Iterable[bytes | None] | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        """Everything is looked at here: what raises sends nothing.

        Raises ValueError for columns of different length, TypeError for what cannot be sent.
        """
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms)
        self.topic = topic
        self.values = column_of("value", values)
        self.keys = None if keys is None else column_of("key", keys)
        if self.keys is not None and len(self.keys) != len(self.values):
            raise ValueError(f"{len(self.keys)} keys for {len(self.values)} values")
        self.headers = None if headers is None else check_headers(headers)
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.span = Span(None)
        # None: the topic was not known yet.
        self.groups: deque[Group] | None = None


D = TypeVar("D", bound=Delivery)


class ManyDeliveries(Sequence[D]):
    """The records of one send_many on their way, in order; made when looked at.  The shells add how
    to wait."""

    __slots__ = ("_count", "_kind", "_span")

    def __init__(self, many: Many, kind: Callable[[Span, int], D]) -> None:
        self._span = many.span
        self._count = len(many.values)
        self._kind = kind

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> D:  # type: ignore[override]  # no slices
        position = index + self._count if index < 0 else index
        if not 0 <= position < self._count:
            raise IndexError(f"delivery {index} of {self._count}")
        return self._kind(self._span, position)

    @property
    def done(self) -> bool:
        """Whether all are decided: acknowledged or failed."""
        return all(batch.done for batch in self._span.batches())

    def __repr__(self) -> str:
        records = "1 record" if self._count == 1 else f"{self._count} records"
        state = "decided" if self.done else "under way"
        return f"<{type(self).__name__}, {records}, {state}>"


def _places(runs: "Sequence[Run]") -> "Iterator[tuple[ProducerBatch, int]]":
    for _, count, batch, start in runs:
        for index in range(start, start + count):
            yield batch, index


def _ranks(partitions: "array[int]") -> list[int]:
    """How many records of the same partition come before each."""
    counts: dict[int, int] = {}
    ranks = []
    for partition in partitions:
        rank = counts.get(partition, 0)
        counts[partition] = rank + 1
        ranks.append(rank)
    return ranks

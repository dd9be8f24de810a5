"""Records that were sent and are in no batch yet: the list under a producer's send().

    put(value, key) --> Ticket(span, index)          take(next span) --> (values, keys, span)

    plain_send(class of the producer)                its send() without a frame of Python's

An uncontended lock costs as much as all the rest of `send`, and a tuple or an object per record
that the garbage collector knows costs more than both.  So in C a record is two list appends and a
ticket, in one step that no other thread can come between.  This twin, the specification, does
the same under a lock.

A *span* is whatever the owner wants to find again by its tickets: it is the same object for all
records between two takes, and `index` counts them from 0.

Invariant: of all that was put, in whatever threads, each record comes out of exactly one take, in
the order of its tickets.
"""

from array import array
from collections.abc import Sequence
from typing import TypeVar

from segbroker.protocol.partitioner import partition_for_key

from .plain_lock import PlainLock

__all__ = ["Pending", "Ticket", "partitions_for_keys", "plain_send", "scatter"]

_Class = TypeVar("_Class", bound=type)


class Ticket:
    """Where a record will be found.  A subclass must not add slots."""

    __slots__ = ("index", "span")

    def __new__(cls, span: object, index: int) -> "Ticket":
        self = super().__new__(cls)
        self.span = span
        self.index = index
        return self

    span: object
    index: int


class Pending:
    """See the module.  `limit` is the owner's: a put that finds so many before it says so.

    `size`: bytes of the values and keys that were put since the last take.
    """

    __slots__ = (
        "_lock",
        "_records",
        "_size_max",
        "_ticket_type",
        "limit",
        "size",
        "span",
    )

    def __init__(self, span: object, ticket_type: type[Ticket], size_max: int) -> None:
        """`size_max` bounds value and key together, in bytes."""
        self.limit = 0
        self.size = 0
        self.span: object | None = span
        self._ticket_type = ticket_type
        self._size_max = size_max
        self._lock = PlainLock()
        # Value and key in one step: a signal may end a put between any two.
        self._records: list[tuple[bytes, bytes | None]] = []

    def __len__(self) -> int:
        return len(self._records)

    def put(self, value: object, key: object) -> Ticket | tuple[Ticket] | None:
        """Append a record.  Its ticket; (ticket,) when `limit` were there before it; None when it
        was not taken: not bytes, too large, or closed."""
        if type(value) is not bytes or not (key is None or type(key) is bytes):
            return None
        size = len(value) + len(key or b"")
        if size > self._size_max:
            return None
        # Made first and filled in then: making it may run foreign code (a garbage collection),
        # which may put and take.
        ticket = self._ticket_type(None, 0)
        with self._lock:
            if self.span is None:
                return None
            ticket.span = self.span
            ticket.index = len(self._records)
            is_full = ticket.index >= self.limit
            self.size += size
            self._records.append((value, key))
        return (ticket,) if is_full else ticket

    def take(
        self, span: object | None
    ) -> tuple[list[bytes | None], list[bytes | None] | None, object]:
        """(values, keys, span) of all that was put, in order; keys None: there were none.

        What is put from now on belongs to `span`; None closes.
        """
        with self._lock:
            taken, old = self._records, self.span
            self._records, self.size = [], 0
            self.span = span
        values: list[bytes | None] = [value for value, _ in taken]
        keys = [key for _, key in taken]
        return values, keys if any(key is not None for key in keys) else None, old


def plain_send(cls: _Class) -> _Class:
    """A class with a `send` that puts the plain record where it has to go, as fast as can be.

    Here it is the one that the class has.  In C the plain record (a topic, a value, perhaps a key,
    of types that put() takes) goes to `self._inboxes[topic].pending`, and `self._turn_in(inbox)`
    follows a put that found the limit; for any other record C calls the one that the class has.
    """
    return cls


def partitions_for_keys(keys: Sequence[bytes | None], partition_count: int) -> "array[int]":
    """The partition of each key (int32), as partition_for_key; -1 for None."""
    seen: dict[bytes | None, int] = {None: -1}
    found = array("i")
    for key in keys:
        partition = seen.get(key)
        if partition is None:
            assert key is not None
            partition = seen[key] = partition_for_key(key, partition_count)
        found.append(partition)
    return found


def scatter(
    items: Sequence[bytes | None], partitions: "array[int]", partition_count: int
) -> list[list[bytes | None]]:
    """The items of each partition, in order, and last those of partition -1."""
    lists: list[list[bytes | None]] = [[] for _ in range(partition_count + 1)]
    for item, partition in zip(items, partitions, strict=True):
        lists[partition].append(item)
    return lists

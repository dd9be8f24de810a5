"""The short way into the buffer: one list append per record, and no lock.

    send(value) --> inbox.pending: [(span, index, value), ...] --drain--> columns of a batch

An uncontended lock costs as much as all the rest of `send`.  So the plain record (no key, no
headers, not large) is appended to a list, which the interpreter does in one step, and the list is
drained under the lock a batch at a time: by the sender when `limit` records are there, by the I/O
side when they have lingered.

What is appended is the Delivery itself.  It says in which *span* (from one drain to the next) and
at which index it was appended; the drain compares the indexes with the positions found.  They agree
unless two threads send at once, or records were put back because the buffer was full; those are
then entered one by one, by identity.  Either way a Delivery finds its batch when it is asked.

Going idle: the I/O side sets `limit` to 0 and then looks whether anything is pending; the sender
appends and then looks at `limit`.  One of the two sees the other, so no record stays behind.

Invariant: `pending` is the same list for ever; it grows at the end (senders) and is cut or refilled
at the front (under the lock).
"""

from typing import TYPE_CHECKING

from .records import RecordMetadata

if TYPE_CHECKING:
    from .accumulator import Accumulator, ProducerBatch

# Larger values take the long way, so that what is pending is bounded by bytes too.
SHORT_BYTES = 4096


class Span:
    """Where the records went that were appended between two drains."""

    __slots__ = ("exact", "inbox", "pieces")

    def __init__(self, inbox: "Inbox") -> None:
        self.inbox = inbox
        # (index of the first, count, batch, its index there)
        self.pieces: list[tuple[int, int, ProducerBatch, int]] = []
        self.exact: dict[int, tuple[ProducerBatch, int]] | None = None

    def find(self, delivery: "Delivery") -> "tuple[ProducerBatch, int] | None":
        """The batch of a delivery and its index there; None while it is pending."""
        if self.exact is not None:
            found = self.exact.get(id(delivery))
            if found is not None:
                return found
        index = delivery[1]
        for first, count, batch, start in self.pieces:
            if first <= index < first + count:
                return batch, start + index - first
        return None


class Delivery(tuple["Span | ProducerBatch", int, bytes | None]):
    """A record on its way: (span or batch, index there, value).  The shells add how to wait."""

    __slots__ = ()

    def place(self) -> "tuple[ProducerBatch, int]":
        """Its batch and index; a pending one is put into a batch now, which lingers no longer."""
        where = self[0]
        if not isinstance(where, Span):
            return where, self[1]
        found = where.find(self)
        if found is None:
            where.inbox.accumulator.settle(where.inbox)
            found = where.find(self)
            assert found is not None, "what is not pending is in a batch"
        return found

    @property
    def done(self) -> bool:
        """Whether it is decided: acknowledged or failed."""
        where = self[0]
        if not isinstance(where, Span):
            return where.done
        found = where.find(self)
        return found is not None and found[0].done

    def metadata(self) -> RecordMetadata:
        """Where it went; raises why it did not.  Only when done."""
        batch, index = self.place()
        return batch.metadata(index)


class Inbox:
    """The pending plain records of one topic."""

    __slots__ = (
        "accumulator",
        "limit",
        "limit_usual",
        "opened_ms",
        "pending",
        "span",
        "topic",
        "wall_ms",
    )

    def __init__(self, accumulator: "Accumulator", topic: str) -> None:
        self.accumulator = accumulator
        self.topic = topic
        self.pending: list[Delivery] = []
        # At so many the sender drains; 0: idle, the next record has to say that it is there.
        self.limit = 0
        self.limit_usual = 1
        self.opened_ms = 0
        self.wall_ms = 0
        self.span = Span(self)

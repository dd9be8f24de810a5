"""A batch under way, the queue of batches of one partition, and the partitions of one topic.

    open (being filled) --seal--> sealed, oldest first --take--> in flight --> done

A batch is columns: values, and keys, headers, timestamps where any record has them.  It keeps its
records until it is acknowledged, so that a failure can hand them back.

Values only: who moves a batch on stands in batches (the caller's side) and producing (the I/O
side).  A shell can wait for a batch as for a Completion.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from uuid import UUID

from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.limits import FRAME_SIZE_MAX
from segbroker.protocol.record_batch import HEADER_SIZE

from .completion import Completion, Waker
from .errors import BrokerError, ConnectionLost, SegbrokerError, TimedOut, Undelivered
from .records import HeaderPairs, RecordMetadata

WakeBy = Callable[[int], object]


class ProducerBatch:
    """The records of one partition that travel together, and what became of them."""

    __slots__ = (
        "_wakers",
        "attempts",
        "base_offset",
        "count",
        "deadline_ms",
        "done",
        "doubt",
        "encoded",
        "error",
        "halves",
        "headers",
        "is_sent",
        "keys",
        "log_append_time_ms",
        "observed",
        "opened_ms",
        "queue",
        "refusal",
        "reserved",
        "sequence",
        "size",
        "timestamp_ms",
        "timestamps",
        "topic_id",
        "urgent",
        "values",
    )

    def __init__(self, queue: "PartitionQueue", opened_ms: int, wall_ms: int) -> None:
        self.queue = queue
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[HeaderPairs | None] | None = None
        self.timestamps: list[int] | None = None
        self.timestamp_ms = wall_ms
        self.size = HEADER_SIZE
        self.reserved = 0
        self.count = 0
        self.opened_ms = opened_ms
        self.deadline_ms = 0
        self.urgent = False
        self.sequence = -1
        self.encoded: bytes | None = None
        self.is_sent = False
        # The topic that it was sent for last, as far as that was known.
        self.topic_id: UUID = ZERO_UUID
        self.attempts = 0
        self.done = False
        self.error: SegbrokerError | None = None
        # Why the last attempt failed, when it may be tried again.
        self.refusal: SegbrokerError | None = None
        # Of an attempt that failed so that the broker may have it all the same.
        self.doubt: SegbrokerError | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.halves: tuple[ProducerBatch, ProducerBatch] | None = None
        # Indexes whose failure the caller has seen through its Delivery; made when one fails.
        self.observed: set[int] | None = None
        self._wakers: list[Waker] = []

    # Columns.

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: HeaderPairs | None,
        timestamp_ms: int | None,
        size: int,
    ) -> int:
        """Append a record that takes `size` bytes; its index.  A signal leaves none of it."""
        index, before = len(self.values), self.size
        try:
            if key is not None or self.keys is not None:
                if self.keys is None:
                    self.keys = [None] * index
                self.keys.append(key)
            if headers is not None or self.headers is not None:
                if self.headers is None:
                    self.headers = [None] * index
                self.headers.append(headers)
            if timestamp_ms is not None or self.timestamps is not None:
                if self.timestamps is None:
                    self.timestamps = [self.timestamp_ms] * index
                self.timestamps.append(self.timestamp_ms if timestamp_ms is None else timestamp_ms)
            self.values.append(value)
            self.size += size
        except BaseException:
            self.size = before
            for column in (self.keys, self.headers, self.timestamps, self.values):
                if column is not None:
                    del column[index:]
            raise
        return index

    def extend(
        self,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        headers: HeaderPairs | None,
        timestamp_ms: int | None,
        size: int,
    ) -> int:
        """Append records that take `size` bytes; the index of the first.

        `headers` and `timestamp_ms` are those of each record.
        """
        index, count = len(self.values), len(values)
        if keys is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * index
            self.keys += [None] * count if keys is None else keys
        if headers is not None or self.headers is not None:
            if self.headers is None:
                self.headers = [None] * index
            self.headers += [headers] * count
        if timestamp_ms is not None or self.timestamps is not None:
            if self.timestamps is None:
                self.timestamps = [self.timestamp_ms] * index
            time_ms = self.timestamp_ms if timestamp_ms is None else timestamp_ms
            self.timestamps += [time_ms] * count
        self.values += values
        self.size += size
        return index

    # What becomes of it.

    def on_done(self, waker: Waker) -> None:
        """As Completion.on_done."""
        self._wakers.append(waker)
        if self.done:
            waker()

    def forget(self, waker: Waker) -> None:
        """As Completion.forget."""
        with suppress(ValueError):
            self._wakers.remove(waker)

    def hurry(self) -> None:
        """Somebody waits for this batch: it lingers no longer.  Raises ClosedError for who cannot
        be woken: in another thread than that of an async producer, or behind the end of its loop.
        """
        if not self.done:
            self.urgent = True
            self.queue.wake_by(0)

    def finish(self, base_offset: int, log_append_time_ms: int) -> None:
        """Acknowledged: the records can go."""
        assert not self.done, "a batch is answered once"
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.values = []
        self.keys = self.headers = None
        self.encoded = None
        self._wake()

    def fail(self, error: SegbrokerError) -> None:
        """Given up.  The records stay, for DeliveryFailed.

        A broker's refusal would say that it does not have them: not where it may have them, from
        this attempt or one before.
        """
        assert not self.done, "a batch is answered once"
        self.error = error
        if self.doubt is not None and isinstance(error, BrokerError):
            kind = ConnectionLost if isinstance(self.doubt, ConnectionLost) else TimedOut
            before = "" if self.doubt is error else f", from an attempt before: {self.doubt}"
            self.error = kind(f"{error}; it may be there{before}")
            self.error.__cause__ = error
        self.observed = set()
        self.encoded = None
        self._wake()

    def finish_by_halves(self) -> None:
        """Both halves of a split batch are done: so is this one."""
        self._wake()

    def _wake(self) -> None:
        self.done = True
        wakers, self._wakers = self._wakers, []
        for wake in tuple(wakers):
            wake()

    def metadata(self, index: int) -> RecordMetadata:
        """Where record `index` went; raises its error when it failed.  Only when done."""
        assert self.done, "metadata() of a batch under way"
        if self.halves is not None:
            first, second = self.halves
            if index < first.count:
                return first.metadata(index)
            return second.metadata(index - first.count)
        if self.error is not None:
            assert self.observed is not None
            self.observed.add(index)
            raise self.error.with_traceback(None)  # else it grows by each record that asks
        timestamp_ms = self.log_append_time_ms
        if timestamp_ms < 0:
            timestamp_ms = self.timestamp_ms if self.timestamps is None else self.timestamps[index]
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(self.queue.topic, self.queue.partition, offset, timestamp_ms)

    @property
    def undelivered_count(self) -> int:
        """How many `undelivered` gives."""
        assert self.observed is not None
        return len(self.values) - len(self.observed)

    def undelivered(self) -> Iterator[Undelivered]:
        """The records of a failed batch whose failure nobody has seen yet."""
        assert self.error is not None
        assert self.observed is not None
        for index, value in enumerate(self.values):
            if index in self.observed:
                continue
            headers = self.headers[index] if self.headers is not None else None
            yield Undelivered(
                self.queue.topic,
                self.queue.partition,
                None if self.keys is None else self.keys[index],
                value,
                tuple(headers or ()),
                self.timestamp_ms if self.timestamps is None else self.timestamps[index],
                self.error,
            )


class PartitionQueue:
    """The batches of one partition: one open, several sealed, several in flight."""

    __slots__ = (
        "awaited_count",
        "backoff_until_ms",
        "epoch",
        "failures",
        "in_flight",
        "is_refused",
        "known_as",
        "next_sequence",
        "open",
        "partition",
        "producer_id",
        "sealed",
        "topic",
        "wake_by",
    )

    def __init__(self, topic: str, partition: int, wake_by: WakeBy) -> None:
        self.wake_by = wake_by
        self.topic = topic
        self.partition = partition
        self.open: ProducerBatch | None = None
        self.sealed: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        # Tasks that wait for one of these: of an async producer.
        self.awaited_count = 0
        self.next_sequence = 0
        self.producer_id = -1
        self.epoch = -1
        # By which producer id in which topic something was last acknowledged.
        self.known_as: tuple[int, UUID] | None = None
        # The broker does not know the identity of what it was sent.
        self.is_refused = False
        # Failures since all was well: while there are any, or what came back waits, one batch at a
        # time.
        self.failures = 0
        self.backoff_until_ms = 0

    @property
    def begun(self) -> "tuple[ProducerBatch] | tuple[()]":
        """The open batch, if it has records: a signal may leave it without."""
        return () if self.open is None or not self.open.values else (self.open,)


class TopicQueue:
    """The partitions of one topic, as far as they were used."""

    __slots__ = (
        "beyond",
        "error",
        "fits_bytes",
        "known",
        "leaderless",
        "looked_ms",
        "name",
        "partition_count",
        "partitions",
        "sticky",
        "topic_id",
        "wake_by",
    )

    def __init__(self, name: str, wake_by: WakeBy) -> None:
        self.name = name
        self.wake_by = wake_by
        self.partition_count = 0
        # Those that there were not, each with the look for it, or with when that had an answer: who
        # asks soon after that is refused.
        self.beyond: dict[int, Completion[None]] = {}
        self.looked_ms: dict[int, int] = {}
        self.topic_id: UUID = ZERO_UUID
        self.partitions: dict[int, PartitionQueue] = {}
        # To these nothing can be sent for now: what has no key goes elsewhere.
        self.leaderless: Collection[int] = ()
        self.sticky: PartitionQueue | None = None
        self.error: SegbrokerError | None = None
        # Half of the smallest batch that was too large for the broker: later ones are no larger.
        self.fits_bytes = FRAME_SIZE_MAX
        self.known: Completion[None] = Completion()

    def queue(self, partition: int) -> PartitionQueue:
        queue = self.partitions.get(partition)
        if queue is None:
            queue = self.partitions[partition] = PartitionQueue(self.name, partition, self.wake_by)
        return queue

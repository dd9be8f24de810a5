"""Producers and consumers in threads that write down what they did and saw (history.py).

    Writing   sends records round robin over partitions, some hundreds under way, notes each ack
    Reading   follows all partitions, notes each record; ends when it has reached the end

Each comes in two makes: our blocking client, and confluent-kafka (librdkafka).  Both are idempotent
and retry for PATIENCE_S: a broker that is killed and comes back within that time costs nothing, so
at the end every record has to be acknowledged.

A value says which record it is and has a length of its own (`value_of`), so that what is handed
out is either what was sent, byte for byte, or FOREIGN.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from segbroker.client import Consumer, Gap, Producer, SegbrokerError
from segbroker.client.producer import SyncDelivery

from .history import FOREIGN, Bounds, Partition, Reads, Record, Sends

PATIENCE_S = 300
UNDER_WAY_MAX = 400
BATCH_BYTES = 16_384
GROUP = 25
"""Records handed to a client in one go; then a look at what was acknowledged."""

# They pass by themselves: the broker is being killed all the time.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)


# A killed broker is a line per connection.
_SILENT = logging.getLogger("tests.faults.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def value_of(record: Record, size: int) -> bytes:
    """The value of a record, `size` bytes on the average."""
    name = b"%d %d " % record
    extra = (record.number * 7919 + record.producer * 104_729) % (2 * size + 1)
    return name + b"." * max(0, extra - len(name))


def record_of(value: bytes | None, size: int) -> Record:
    """The record whose value this is; FOREIGN when nobody's."""
    try:
        producer, number, _ = (value or b"").split(b" ", 2)
        record = Record(int(producer), int(number))
    except ValueError:
        return FOREIGN
    return record if value_of(record, size) == value else FOREIGN


class Worker(threading.Thread):
    """A thread that runs until `finish`; what went wrong stands in `problems`."""

    def __init__(self, name: str, bootstrap: str, size: int) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.size = size
        self.problems: list[str] = []
        self.finishing = threading.Event()

    def run(self) -> None:
        try:
            self.work()
        except Exception as exc:  # a thread that dies silently would pass every check
            self.problems.append(f"{self.name}: {exc!r}")

    def work(self) -> None:
        raise NotImplementedError

    def finish(self, timeout_s: float) -> None:
        """Ask it to come to its end, and wait for that."""
        self.finishing.set()
        self.join(timeout_s)
        if self.is_alive():
            self.problems.append(f"{self.name}: not at its end after {timeout_s} s")


class Writing(Worker):
    """A producer; `limit` records, or until it is asked to finish."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        partitions: Sequence[Partition],
        *,
        size: int = 100,
        limit: int | None = None,
        pause_s: float = 0.0,
        patience_s: float = PATIENCE_S,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        super().__init__(f"producer {number} ({type(self).__name__})", bootstrap, size)
        self.sends = Sends(number, partitions)
        self.failed = 0
        self.last_error = ""
        self._limit = limit
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._batch_bytes = batch_bytes

    @property
    def wants_more(self) -> bool:
        if self.finishing.is_set():
            return False
        return self._limit is None or len(self.sends) < self._limit

    def next_record(self) -> tuple[Partition, Record, bytes]:
        partitions = self.sends.partitions
        partition = partitions[len(self.sends) % len(partitions)]
        record = self.sends.send(partition)
        return partition, record, value_of(record, self.size)

    def fail(self, error: object) -> None:
        """One record was not acknowledged."""
        self.failed += 1
        self.last_error = str(error)


class OurWriting(Writing):
    """... with our client."""

    def work(self) -> None:
        under_way: deque[tuple[int, SyncDelivery]] = deque()
        with Producer(
            self.bootstrap,
            linger_ms=2,
            batch_bytes=self._batch_bytes,
            delivery_timeout_ms=int(1000 * self._patience_s),
        ) as producer:
            while self.wants_more:
                for _ in range(GROUP):
                    (topic, partition), record, value = self.next_record()
                    delivery = producer.send(topic, value, partition=partition)
                    under_way.append((record.number, delivery))
                while len(under_way) > UNDER_WAY_MAX or (under_way and under_way[0][1].done):
                    self._settle(*under_way.popleft())
                time.sleep(self._pause_s)
            for number, delivery in under_way:
                self._settle(number, delivery)

    def _settle(self, number: int, delivery: SyncDelivery) -> None:
        try:
            self.sends.ack(number, delivery.result().offset)
        except SegbrokerError as exc:
            self.fail(exc)


class ConfluentWriting(Writing):
    """... with confluent-kafka."""

    def work(self) -> None:
        producer = ConfluentProducer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.size": self._batch_bytes,
                "message.timeout.ms": int(1000 * self._patience_s),
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "error_cb": self._on_error,
                "logger": _SILENT,
            }
        )
        under_way = 0

        def on_delivery(error: KafkaError | None, message: Any) -> None:  # noqa: ANN401
            nonlocal under_way
            under_way -= 1
            if error is not None:
                self.fail(error)
                return
            record = record_of(message.value(), self.size)
            self.sends.ack(record.number, message.offset())

        while self.wants_more:
            for _ in range(GROUP):
                (topic, partition), _record, value = self.next_record()
                producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
                under_way += 1
            producer.poll(0)
            while under_way > UNDER_WAY_MAX:
                producer.poll(0.05)
            time.sleep(self._pause_s)
        left = producer.flush(self._patience_s + 10)
        if left:
            self.problems.append(f"{self.name}: {left} records neither delivered nor failed")

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"{self.name}: {error}")


class Reading(Worker):
    """A consumer from the start of every partition; after `finish` it reads to `bounds`."""

    def __init__(
        self, number: int, bootstrap: str, partitions: Sequence[Partition], *, size: int = 100
    ) -> None:
        name = f"consumer {number} ({type(self).__name__})"
        super().__init__(name, bootstrap, size)
        self.reads = Reads(name)
        self.partitions = list(partitions)
        self.bounds: dict[Partition, Bounds] = {}
        self.retried: dict[str, int] = {}
        self.on_record: Callable[[Partition, int, Record], object] | None = None
        self._next = dict.fromkeys(self.partitions, 0)
        for partition in self.partitions:
            self.reads.seek(partition, 0)

    @property
    def wants_more(self) -> bool:
        if not self.finishing.is_set():
            return True
        return any(self._next[partition] < bound.end for partition, bound in self.bounds.items())

    def note(self, partition: Partition, offset: int, value: bytes | None) -> None:
        record = record_of(value, self.size)
        self.reads.poll(partition, offset, record)
        if self.on_record is not None:
            self.on_record(partition, offset, record)
        self._next[partition] = offset + 1

    def note_gap(self, gap: Gap) -> None:
        partition = (gap.topic, gap.partition)
        self.reads.gap(partition, gap.from_offset, gap.to_offset)
        self._next[partition] = gap.to_offset

    def retry(self, error: object) -> None:
        """An error after which reading goes on."""
        self.retried[str(error)] = self.retried.get(str(error), 0) + 1


class OurReading(Reading):
    """... with our client."""

    def work(self) -> None:
        with Consumer(self.bootstrap, on_gap="yield") as consumer:
            consumer.assign(self.partitions, start="start")
            while self.wants_more:
                try:
                    records = consumer.poll(1_000, timeout_ms=100)
                except SegbrokerError as exc:
                    if not exc.retryable:
                        raise
                    self.retry(exc)
                    continue
                for record in records:
                    if isinstance(record, Gap):
                        self.note_gap(record)
                    else:
                        self.note((record.topic, record.partition), record.offset, record.value)


class ConfluentReading(Reading):
    """... with confluent-kafka."""

    def work(self) -> None:
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "never joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "logger": _SILENT,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, number, 0) for topic, number in self.partitions])
            while self.wants_more:
                messages: list[Any] = consumer.consume(1_000, timeout=0.1)
                for message in messages:
                    error = message.error()
                    if error is not None:
                        if error.code() not in _PASSING:
                            self.problems.append(f"{self.name}: {error}")
                        self.retry(error)
                        continue
                    partition = (message.topic(), message.partition())
                    self.note(partition, message.offset(), message.value())
        finally:
            consumer.close()


def read_all(bootstrap: str, partitions: Sequence[Partition], *, size: int = 100) -> Reads:
    """The whole log as our client reads it now."""
    reads = Reads("final")
    with Consumer(bootstrap, stop_at_end=True, on_gap="yield") as consumer:
        consumer.assign(partitions, start="start")
        for record in consumer:
            partition = (record.topic, record.partition)
            if isinstance(record, Gap):
                reads.gap(partition, record.from_offset, record.to_offset)
            else:
                reads.poll(partition, record.offset, record_of(record.value, size))
    return reads


def bounds_of(bootstrap: str, partitions: Sequence[Partition]) -> dict[Partition, Bounds]:
    """[start, end) of each partition, as the broker says."""
    with Consumer(bootstrap) as consumer:
        starts = consumer.beginning_offsets(*partitions)
        ends = consumer.end_offsets(*partitions)
    return {(tp.topic, tp.partition): Bounds(start, ends[tp]) for tp, start in starts.items()}

"""The blocking producer.

    with Producer("127.0.0.1:9092") as producer:
        producer.send("orders", b"...", key=b"customer-7")

`send` returns at once unless the buffer is full; then it waits: backpressure, not an exception.
Leaving the block delivers everything, or raises DeliveryFailed with the records that were not
acknowledged.  When the block ends with an exception, that exception is raised: the remaining
records get a moment (none after Ctrl-C), and a note on the exception names those that were not
delivered.  The end of a generator that is left half way, and sys.exit(), end the block as its end
does.

    with Producer(transactional_id="billing-1") as producer:
        with producer.transaction():
            producer.send(...)           all of it, or nothing

A producer may be used by several threads.
"""

import atexit
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Self, Unpack

from .accumulator import Accumulator
from .clock import now_ms, wall_ms
from .completion import Completion
from .driver import FORKED, GOODBYE_MS, GRACE_MS, HURRIED_MS, REGULAR
from .engine import Engine
from .errors import (
    ClosedError,
    SegbrokerError,
    TimedOut,
)
from .group_offsets import CommittedOffset, GroupMetadata, as_offsets
from .heap import keep_freed_memory
from .inbox import Delivery, Inbox, Many, ManyDeliveries
from .lookups import topics_known
from .pending import plain_send
from .producing import Producing
from .records import ByPartition, Headers, RecordMetadata
from .settings import DEFAULT_BOOTSTRAP, ProducerOptions, producer_settings
from .thread_driver import Blocking, ThreadDriver
from .transactions import PreparedTransaction, not_aborted
from .waiting import as_ms, wait_all


class SyncDelivery(Delivery):
    """A record on its way."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement: topic, partition, offset, timestamp (ms).

        `timeout` is in seconds; without it the producer's delivery_timeout_ms bounds the wait.
        The batch is sent now: waiting ends the lingering.  Raises why the record was not
        delivered, and TimedOut when `timeout` passes first (the record stays on its way).
        """
        batch, index = self.place()
        if not batch.done:
            batch.hurry()
            wait_all([batch], timeout)
        return batch.metadata(index)


class Deliveries(ManyDeliveries[SyncDelivery]):
    """The records of one send_many on their way, in order; made when looked at."""

    __slots__ = ()

    def __init__(self, many: Many) -> None:
        super().__init__(many, SyncDelivery)

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Wait for all; as Delivery.result, raises for the first that failed."""
        for batch in self._span.batches():
            batch.hurry()
        wait_all(self._span.batches(), timeout)
        return [batch.metadata(index) for batch, index in self._span.places()]


@plain_send
class Producer(Blocking):
    # What help() shows.
    __doc__ = f"{__doc__}\nAll sizes in bytes, all times in milliseconds.\n"

    def __init__(
        self,
        bootstrap: str | Iterable[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """A producer; nothing is opened before its `with` block.

        bootstrap: "host:port,...", brokers to begin with.
        acks: "all" (and 1): acknowledged when the topic's durability class is met; 0: not at all.
        idempotent: retries neither repeat nor reorder records; default: as acks="all" allows.
        compression: "none" (the default), "gzip", "snappy", "lz4" or "zstd".
        linger_ms: how long a batch waits for more records, up to half of delivery_timeout_ms; 5.
        batch_bytes: a batch is sent when it has this size, uncompressed; 512 KiB.
        buffer_bytes: what may be under way; beyond, `send` waits; 32 MiB.
        delivery_timeout_ms: a record that is not acknowledged by then has failed; 120,000.
        transactional_id: send in transactions, under this name: see `transaction`.  Whoever takes
            the name next fences this producer.
        transaction_timeout_ms: the broker aborts a transaction that is open for longer; 60,000.
        client_id: what the broker calls this client in its logs and quotas.
        security: TLS and login; see Security.
        request_timeout_ms: an unanswered request ends its connection; 30,000.
        connect_timeout_ms: how long entering the block waits for a broker; 10,000.
        accept_timeout_ms: ... while nobody accepts a connection; default: as long.

        Raises ValueError for a value that cannot be used.
        """
        client, self._settings = producer_settings(bootstrap, options)
        self._driver = ThreadDriver()
        self._lock = self._driver.lock
        random = Random()
        self._accumulator = Accumulator(
            self._settings,
            random,
            now_ms=now_ms,
            wall_ms=wall_ms,
            wake_by=self._driver.wake_by,
            wake_for_wait=self._driver.wake_for_wait,
            delivery=SyncDelivery,
            lock=self._lock,
            undisturbed=self._lock.undisturbed,
        )
        self._engine = Engine(client, random, create_topics=True)
        self._producing = Producing(self._engine, self._accumulator)
        self._append = self._accumulator.append
        self._inboxes = self._accumulator.inboxes

    def __enter__(self) -> Self:
        """Start, and wait until one broker was reached (BrokerUnreachable if none is)."""
        keep_freed_memory()
        self._driver.start(self._engine, partial(atexit.register, self.close))
        return self

    def _close(self, exc: BaseException | None) -> None:
        if exc is None or isinstance(exc, REGULAR) or self._driver.is_forked:
            self.close()
            return
        self._abandon(exc, GRACE_MS if isinstance(exc, Exception) else 0)

    def close(self) -> None:
        """Deliver everything and end; DeliveryFailed with what was not.  Again: nothing.

        An abort that Ctrl-C has cut short is ended before.  In the child of a fork nothing is
        delivered: that is the parent's to do.
        """
        self._lock.wait_free()
        if self._driver.is_forked:
            atexit.unregister(self.close)
            return
        try:
            if self._producing.is_aborting:
                with suppress(SegbrokerError):  # as in _abort
                    self._driver.call(self._producing.in_transactions.init(), timeout_ms=GOODBYE_MS)
            self._flush(None)
        except BaseException as exc:
            self._abandon(exc, 0)
            raise
        self._stop()
        self._accumulator.raise_undelivered()

    def _stop(self) -> None:
        self._driver.stop()
        atexit.unregister(self.close)

    def _abandon(self, exc: BaseException, grace_ms: int) -> None:
        """End at once, or after a moment; `exc` is told what was not delivered, unseen."""
        try:
            if grace_ms:
                self._flush(grace_ms)
        finally:
            self._stop()
        if note := self._accumulator.say_undelivered():
            exc.add_note(note)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SyncDelivery:
        """Send one record; waits only while the buffer is full, and for a topic's first record.

        value: None is a tombstone.
        key: records with one key go to one partition (murmur2, as in Java), in order.
        headers: (name, value) pairs, or a dict.
        partition: instead of the key's, or of one that changes from batch to batch.
        timestamp_ms: since 1970; default: when its batch was opened.

        Raises TypeError and ValueError for what cannot be sent, the broker's error for a topic
        that cannot be had, MessageTooLarge for more than 100 MiB that are to be compressed,
        ClosedError after the end, DeliveryFailed when records that failed unseen fill half the
        buffer.  This record is not sent then.
        """
        if headers is None and partition is None and timestamp_ms is None:
            inbox = self._inboxes.get(topic)
            if inbox is not None:
                put = inbox.pending.put(value, key)
                if type(put) is SyncDelivery:
                    return put
                if type(put) is tuple:
                    self._turn_in(inbox)
                    return put[0]  # type: ignore[return-value]  # the inbox makes SyncDelivery
        while True:
            with self._lock.plain:
                got = self._append(topic, value, key, headers, partition, timestamp_ms)
            if type(got) is SyncDelivery:
                return got
            assert isinstance(got, Completion)
            self._wait_for_room(got)

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SyncDelivery:
        """As `send`, but raises BusyError where that would wait."""
        append = self._accumulator.append_now
        with self._lock.plain:
            got = append(topic, value, key, headers, partition, timestamp_ms)
        assert type(got) is SyncDelivery
        return got

    def send_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Deliveries:
        """Send many records at a fraction of the cost of as many `send`.

        keys: one for each value; `headers` and `timestamp_ms` are those of every record.
        Waits while the buffer is full.  Raises as `send`; what came before is then on its way.
        """
        many = Many(topic, values, keys, headers, partition, timestamp_ms)
        while True:
            with self._lock:
                got = self._accumulator.append_many(many)
            if not isinstance(got, Completion):
                return Deliveries(many)
            self._wait_for_room(got)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged; DeliveryFailed with what was not.

        `timeout` is in seconds; TimedOut when it passes first (all stays on its way).
        """
        if self._driver.is_forked:
            raise ClosedError(FORKED)
        if not self._flush(as_ms(timeout)):
            raise TimedOut(f"not all delivered within {timeout} s; it goes on in the background")
        with self._lock:
            self._accumulator.raise_undelivered()

    # Transactions.

    def init_transactions(self) -> None:
        """Take the transactional id over: what its last producer left open is aborted, and it is
        fenced.  The first `transaction` does it, too."""
        self._driver.call(self._producing.in_transactions.init())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is sent in this `with` block is seen together, or not at all.

        Committed at its end, aborted by an exception.  Committing raises DeliveryFailed when a
        record was not acknowledged (then it is aborted), TransactionAborted when the broker gave
        it up, ProducerFenced when another producer took the transactional id, and TimedOut when
        the broker did not say whether it is committed.

        One transaction at a time: NoTransaction for one in another.
        """
        transactions = self._producing.in_transactions
        self._driver.call(transactions.begin())
        holder = object()
        try:
            with self._lock:
                transactions.open(holder)
            yield
            if transactions.is_open:
                self._driver.call(transactions.commit(), timeout_ms=self._producing.end_timeout_ms)
        except BaseException as exc:
            if transactions.holder is holder:
                self._abort(exc)
            raise

    def _abort(self, exc: BaseException) -> None:
        """Because of `exc`, which goes on."""
        is_hurried = not isinstance(exc, Exception)
        try:
            self._driver.call(
                self._producing.in_transactions.abort(),
                timeout_ms=HURRIED_MS if is_hurried else self._producing.end_timeout_ms,
            )
        except SegbrokerError as failure:
            not_aborted(failure, exc)

    def send_offsets(
        self, offsets: ByPartition[int | CommittedOffset], group: GroupMetadata
    ) -> None:
        """Have the group stand at these offsets, if and when the transaction is committed.

        group: `consumer.group_metadata`.  Raises UnknownMemberId, IllegalGeneration and
        FencedInstanceId when that consumer's membership is over: let it abort the transaction.
        """
        self._driver.call(self._producing.in_transactions.send_offsets(as_offsets(offsets), group))

    def prepare(self) -> PreparedTransaction:
        """Have the open transaction written, and leave it open for somebody else to end.

        The block that it is in then ends without a commit, and this producer sends no more.
        Raises as a commit.
        """
        return self._driver.call(
            self._producing.in_transactions.prepare(), timeout_ms=self._producing.end_timeout_ms
        )

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; the broker may create it."""
        (view,) = self._driver.call(topics_known(self._driver.engine, [topic]))
        return view.partition_count

    def _flush(self, timeout_ms: float | None) -> bool:
        with self._lock:
            done = self._producing.flush()
        self._driver.wake_by(0)
        return self._driver.wait(done, timeout_ms)

    def _turn_in(self, inbox: Inbox) -> None:
        if not self._driver.may_wait:
            # In a finalizer, a signal's handler, or one of the client's log: it is taken already,
            # and is seen to behind what is done here.
            self._accumulator.unseen.append(inbox)
            self._driver.wake_by(0)
            return
        while True:
            self._lock.wait_free()
            with self._lock.undisturbed:
                with self._lock:
                    # At linger 0 the first record goes out from here; those that come while it is
                    # on its way travel together.
                    pushes = not (self._settings.linger_ms or self._accumulator.unfinished_count)
                    room = self._accumulator.turn_in(inbox, wake=not pushes)
                if room is None:
                    if pushes:
                        self._driver.push()
                    return
            self._driver.wake_by(0)
            if not self._driver.wait(room, self._settings.delivery_timeout_ms):
                return  # the record is taken; the next one has no room either

    def _wait_for_room(self, room: Completion[None]) -> None:
        # Each record under way is decided within its delivery timeout, so room comes in time.
        self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        self._driver.wake_by(0)
        if not self._driver.wait(room, self._settings.delivery_timeout_ms):
            raise self._producing.waited_in_vain(room)

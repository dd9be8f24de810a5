"""The async producer, for trio and asyncio: the same core as Producer, with `await`.

    async with AsyncProducer("127.0.0.1:9092") as producer:
        delivery = await producer.send("orders", b"...", key=b"customer-7")
        metadata = await delivery

`send` waits only while the buffer is full; a program that sends in a loop gives way to others
once per batch.  It waits before the record is taken, never behind it: what was cancelled in `send`
was not sent.  Leaving the block delivers everything or raises DeliveryFailed, as with Producer.
Cancelling ends at once; what stays undelivered is said in a note on the exception.

No task of it outlives the block.
"""

from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import asynccontextmanager, suppress
from random import Random
from threading import get_ident
from typing import Any, Self, Unpack

import anyio
import anyio.lowlevel

from .accumulator import Accumulator
from .async_driver import Async, AsyncDriver, wait_done
from .clock import now_ms, wall_ms
from .completion import Completion
from .driver import GOODBYE_MS, GRACE_MS, HURRIED_MS, REGULAR
from .engine import Engine
from .errors import SegbrokerError
from .group_offsets import CommittedOffset, GroupMetadata, as_offsets
from .heap import keep_freed_memory
from .inbox import Delivery, Inbox, Many, ManyDeliveries
from .lookups import topics_known
from .producer_batch import ProducerBatch
from .producing import Producing
from .records import ByPartition, Headers, RecordMetadata
from .settings import DEFAULT_BOOTSTRAP, ProducerOptions, producer_settings
from .transactions import PreparedTransaction, not_aborted


class AsyncDelivery(Delivery):
    """A record on its way; `await` it for its RecordMetadata, or the error that it met."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        batch, index = self.place()
        batch.hurry()
        yield from _delivered(batch).__await__()
        return batch.metadata(index)


class AsyncDeliveries(ManyDeliveries[AsyncDelivery]):
    """The records of one send_many; `await` it for the list of their RecordMetadata."""

    __slots__ = ()

    def __init__(self, many: Many) -> None:
        super().__init__(many, AsyncDelivery)

    def __await__(self) -> Generator[Any, Any, list[RecordMetadata]]:
        for batch in self._span.batches():
            batch.hurry()
        for batch in self._span.batches():
            if not batch.done:
                yield from _delivered(batch).__await__()
        return [batch.metadata(index) for batch, index in self._span.places()]


async def _delivered(batch: ProducerBatch) -> None:
    batch.queue.awaited_count += 1
    try:
        await wait_done(batch)
    finally:
        batch.queue.awaited_count -= 1


class AsyncProducer(Async):
    # What help() shows.
    __doc__ = f"{__doc__}\nAll sizes in bytes, all times in milliseconds.\n"

    def __init__(
        self,
        bootstrap: str | Iterable[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """As Producer."""
        client, self._settings = producer_settings(bootstrap, options)
        self._driver = AsyncDriver()
        random = Random()
        self._accumulator = Accumulator(
            self._settings,
            random,
            now_ms=now_ms,
            wall_ms=wall_ms,
            wake_by=self._driver.wake_by,
            delivery=AsyncDelivery,
            lock=self._driver.undisturbed,
            undisturbed=self._driver.undisturbed,
        )
        self._driver.is_awaited = self._accumulator.is_awaited
        self._engine = Engine(client, random, create_topics=True)
        self._producing = Producing(self._engine, self._accumulator)
        self._last = self._producing.flushed
        self._last_ms = self._settings.delivery_timeout_ms
        self._append = self._accumulator.append
        self._inboxes = self._accumulator.inboxes
        self._sealed_seen = 0
        # The next send has to give way first; inboxes in which there is more than had room.
        self._owes = False
        self._crowded: dict[Inbox, None] = {}

    async def __aenter__(self) -> Self:
        """Start, and wait until one broker was reached (BrokerUnreachable if none is)."""
        keep_freed_memory()
        return await super().__aenter__()

    async def _close(self, exc: BaseException | None) -> None:
        if exc is None or isinstance(exc, REGULAR):
            await self.aclose()
            return
        if isinstance(exc, Exception):
            try:
                with anyio.move_on_after(GRACE_MS / 1000):
                    await self._flush()
            except BaseException as cut:  # cancelled meanwhile: no task is left all the same
                await self._end(cut)
                raise
        await self._end(exc)

    async def aclose(self) -> None:
        """Deliver everything and end; DeliveryFailed with what was not.  Again: nothing.

        An abort that a cancellation has cut short is ended before.
        """
        self._driver.check_thread()
        try:
            if self._producing.is_aborting:
                with suppress(SegbrokerError):  # as in _abort
                    await self._driver.call(
                        self._producing.in_transactions.init(), timeout_ms=GOODBYE_MS
                    )
            await self._flush()
        except BaseException as exc:
            await self._end(exc)
            raise
        await self._driver.stop()
        self._accumulator.raise_undelivered()

    async def _end(self, exc: BaseException) -> None:
        """End because of `exc`, which goes on: say there what was not delivered."""
        try:
            await self._driver.stop()
        finally:
            if note := self._accumulator.say_undelivered():
                exc.add_note(note)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncDelivery:
        """Send one record; as Producer.send.  Where this is cancelled nothing was sent."""
        if get_ident() != self._driver.thread_id:
            self._driver.check_loop()
        if self._owes:
            await self._give_way()
        if headers is None and partition is None and timestamp_ms is None:
            inbox = self._inboxes.get(topic)
            if inbox is not None:
                put = inbox.pending.put(value, key)
                if type(put) is AsyncDelivery:
                    return put
                if type(put) is tuple:
                    self._owes = True
                    with self._driver.undisturbed:
                        if self._accumulator.turn_in(inbox) is not None:
                            self._crowded[inbox] = None
                    return put[0]  # type: ignore[return-value]  # the inbox makes AsyncDelivery
        got = self._append(topic, value, key, headers, partition, timestamp_ms)
        while type(got) is not AsyncDelivery:
            assert isinstance(got, Completion)
            await self._wait_for_room(got)
            got = self._append(topic, value, key, headers, partition, timestamp_ms)
        if self._accumulator.sealed_count != self._sealed_seen:
            self._sealed_seen = self._accumulator.sealed_count
            self._owes = True
        return got

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncDelivery:
        """As `send`, but raises BusyError where that would wait."""
        self._driver.check_thread()
        append = self._accumulator.append_now
        got = append(topic, value, key, headers, partition, timestamp_ms)
        assert type(got) is AsyncDelivery
        return got

    async def send_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncDeliveries:
        """Send many records at a fraction of the cost of as many `send`; as Producer.send_many."""
        self._driver.check_thread()
        many = Many(topic, values, keys, headers, partition, timestamp_ms)
        is_done = False
        while not is_done:
            with self._driver.undisturbed:
                got = self._accumulator.append_many(many, at_once=False)
            if isinstance(got, Completion):
                await self._wait_for_room(got)
            else:
                is_done = got
                # Let the others run, and the batch be sent.
                await anyio.lowlevel.checkpoint()
        return AsyncDeliveries(many)

    async def flush(self) -> None:
        """Wait until everything sent so far is acknowledged; DeliveryFailed with what was not."""
        await self._flush()
        self._accumulator.raise_undelivered()

    # Transactions.

    async def init_transactions(self) -> None:
        """Take the transactional id over; as Producer.init_transactions."""
        await self._driver.call(self._producing.in_transactions.init())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """What is sent in this `async with` block is seen together; as Producer.transaction."""
        transactions = self._producing.in_transactions
        await self._driver.call(transactions.begin())
        holder = object()
        try:
            transactions.open(holder)
            yield
            if transactions.is_open:
                await self._driver.call(
                    transactions.commit(), timeout_ms=self._producing.end_timeout_ms
                )
        except BaseException as exc:
            if transactions.holder is holder:
                await self._abort(exc)
            raise

    async def _abort(self, exc: BaseException) -> None:
        """Because of `exc`, which goes on."""
        abort = self._producing.in_transactions.abort()
        if not isinstance(exc, Exception):
            await self._driver.call_last(abort, HURRIED_MS)
            return
        try:
            await self._driver.call(abort, timeout_ms=self._producing.end_timeout_ms)
        except SegbrokerError as failure:
            not_aborted(failure, exc)

    async def send_offsets(
        self, offsets: ByPartition[int | CommittedOffset], group: GroupMetadata
    ) -> None:
        """Have the group stand there when the transaction commits; as Producer.send_offsets."""
        await self._driver.call(
            self._producing.in_transactions.send_offsets(as_offsets(offsets), group)
        )

    async def prepare(self) -> PreparedTransaction:
        """Have the open transaction written, and leave it open; as Producer.prepare."""
        return await self._driver.call(
            self._producing.in_transactions.prepare(), timeout_ms=self._producing.end_timeout_ms
        )

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; the broker may create it."""
        (view,) = await self._driver.call(topics_known(self._driver.engine, [topic]))
        return view.partition_count

    async def _flush(self) -> None:
        self._driver.check_thread()
        with self._driver.undisturbed:
            done = self._producing.flush()
            self._driver.wake_by(0)
        await self._driver.wait(done)

    async def _give_way(self) -> None:
        """A batch went: let the others run, and the batch be sent; and wait until there is room for
        what is pending already."""
        while self._crowded:
            inbox = next(iter(self._crowded))
            with self._driver.undisturbed:
                room = self._accumulator.turn_in(inbox)
            if room is None:
                self._crowded.pop(inbox, None)
            else:
                await self._wait_for_room(room)
        await anyio.lowlevel.checkpoint()
        self._owes = False

    async def _wait_for_room(self, room: Completion[None]) -> None:
        self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        self._driver.wake_by(0)
        with anyio.move_on_after(self._settings.delivery_timeout_ms / 1000):
            await self._driver.wait(room)
            return
        raise self._producing.waited_in_vain(room)

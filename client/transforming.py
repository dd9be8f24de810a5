"""Consume, transform, produce: each record is worked at once, and what came of it seen once.

    poll --records--> transaction: send what the function makes of them | the consumer's offsets
                           |commit                                      |abort
                           v                                            v
                      the next poll                       back to where the group stands, again

Input position and output are one transaction: after a crash, or when the member lost its place, the
records are read again and what was sent of them the first time is never seen (read_committed).

    with (
        Consumer(address, "orders", group="billing", auto_commit=False) as consumer,
        Producer(address, transactional_id="billing-1") as producer,
    ):
        transform(consumer, producer, lambda record: [Outgoing("bills", bill(record))])

Each running instance needs a transactional_id of its own, the same after a restart: that is how
what it left open is given up.  A commit that was interrupted, or timed out, may have been done: the
next `transform` has the producer end it, and goes on where the group stands.  The function must not
have effects elsewhere: it may run again.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from inspect import isawaitable
from typing import Any, NamedTuple

from .async_consumer import AsyncConsumer
from .async_producer import AsyncProducer
from .consumer import Consumer
from .errors import IllegalGeneration, TransactionAborted, UnknownMemberId
from .group_offsets import CommittedOffset
from .producer import Producer
from .reading import Reading
from .records import Headers, Record, TopicPartition
from .transaction_size import TransactionSize

# The transaction is void, and the next one may succeed.
VOID = (IllegalGeneration, UnknownMemberId, TransactionAborted)


class Outgoing(NamedTuple):
    """A record to be sent; as the arguments of Producer.send."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None

    def options(self) -> dict[str, Any]:
        """Its keyword arguments."""
        return {name: getattr(self, name) for name in self._fields[2:]}


Function = Callable[[Record], Iterable[Outgoing] | None]
AsyncFunction = Callable[[Record], Iterable[Outgoing] | Awaitable[Iterable[Outgoing] | None] | None]


def transform(
    consumer: Consumer[Any],
    producer: Producer,
    function: Function,
    *,
    max_records: int = 500,
    wait_ms: int = 1_000,
) -> None:
    """Go on for ever; or to the end, of a consumer with stop_at_end.

    function: of each record, what is to be sent of it; None is nothing.
    max_records: how many records are one transaction, at most; fewer where these are not worked at
        within the producer's transaction_timeout_ms, or the consumer's max_poll_interval_ms.
    wait_ms: how long a poll waits for the first of them.

    Raises what the function raises (the transaction is aborted), TransactionAborted where one
    record takes longer than transaction_timeout_ms, twice, IllegalGeneration where it does than
    max_poll_interval_ms, ProducerFenced, FencedInstanceId, and what Consumer.poll and
    Producer.transaction raise.
    """
    _check(consumer._reading)
    if consumer._reading.in_doubt:
        producer.init_transactions()
        stands = consumer.committed(*consumer._reading.in_doubt)
        with consumer._driver.lock:
            _go_on(consumer._reading, stands)
    size = TransactionSize(max_records, producer._producing.in_transactions.timeout_ms)
    while True:
        # Until all is committed they come again by the next poll, whatever ends this, and where.
        records = _records(consumer._poll(size.records_count, wait_ms, is_shown=False))
        if not records:
            if consumer.is_at_end:
                return
            continue
        size.begins()
        try:
            with producer.transaction():
                for record in records:
                    for out in _outgoing(function(record)):
                        producer.send(out.topic, out.value, **out.options())
                with consumer._lock:
                    positions = _positions(consumer._reading, records)
                producer.send_offsets(positions, consumer._reading.group.committing.of_in_hand)
                # From here on it may be committed, whether anybody hears it or not.
                consumer._reading.in_doubt.update(positions)
        except BaseException as exc:
            with consumer._driver.lock:
                consumer._reading.take_back()
            if producer._producing.in_transactions.is_aborted:
                consumer._reading.in_doubt.clear()
            has_left = consumer._reading.group.has_left
            if not isinstance(exc, VOID) or size.is_too_slow(exc, len(records), has_left=has_left):
                raise
        else:
            size.committed()
            consumer._reading.progress.is_shown = True
        consumer._reading.in_doubt.clear()


async def async_transform(
    consumer: AsyncConsumer[Any],
    producer: AsyncProducer,
    function: AsyncFunction,
    *,
    max_records: int = 500,
    wait_ms: int = 1_000,
) -> None:
    """As `transform`; the function may be an async one."""
    _check(consumer._reading)
    if consumer._reading.in_doubt:
        await producer.init_transactions()
        stands = await consumer.committed(*consumer._reading.in_doubt)
        with consumer._driver.undisturbed:
            _go_on(consumer._reading, stands)
    size = TransactionSize(max_records, producer._producing.in_transactions.timeout_ms)
    while True:
        records = _records(await consumer._poll(size.records_count, wait_ms, is_shown=False))
        if not records:
            if consumer.is_at_end:
                return
            continue
        size.begins()
        try:
            async with producer.transaction():
                for record in records:
                    made = function(record)
                    if isawaitable(made):
                        made = await made
                    for out in _outgoing(made):
                        await producer.send(out.topic, out.value, **out.options())
                positions = _positions(consumer._reading, records)
                await producer.send_offsets(
                    positions, consumer._reading.group.committing.of_in_hand
                )
                consumer._reading.in_doubt.update(positions)
        except BaseException as exc:
            with consumer._driver.undisturbed:
                consumer._reading.take_back()
            if producer._producing.in_transactions.is_aborted:
                consumer._reading.in_doubt.clear()
            has_left = consumer._reading.group.has_left
            if not isinstance(exc, VOID) or size.is_too_slow(exc, len(records), has_left=has_left):
                raise
        else:
            size.committed()
            consumer._reading.progress.is_shown = True
        consumer._reading.in_doubt.clear()


def _check(reading: Reading) -> None:
    if reading.group.settings.auto_commit:
        raise ValueError("auto_commit=True would commit outside of the transaction: set False")


def _outgoing(made: Iterable[Outgoing] | None) -> Iterator[Outgoing]:
    """What the function made of a record; TypeError for what cannot be sent."""
    if isinstance(made, Outgoing):
        raise TypeError("the function returned one Outgoing: it has to return a list of them")
    for out in made or ():
        if not isinstance(out, Outgoing):
            raise TypeError(
                f"the function returned an item of type {type(out).__name__},"
                " not Outgoing(topic, value, ...)"
            )
        yield out


def _records(items: list[Any]) -> list[Record]:
    """Without the gaps of a consumer with on_gap="yield"."""
    return [item for item in items if isinstance(item, Record)]


def _positions(reading: Reading, records: list[Record]) -> dict[TopicPartition, CommittedOffset]:
    """Where the consumer stands in the partitions of these records, if they are still its own; not
    in those of a topic that is gone."""
    positions: dict[TopicPartition, CommittedOffset] = {}
    for tp in {TopicPartition(record.topic, record.partition) for record in records}:
        state = reading.fetching.states.get(tp)
        if state is not None and state.topics_ahead_count:
            continue
        position = None if state is None else reading.progress.behind(state)
        if state is None or position is None:
            raise IllegalGeneration(f"{tp.topic}-{tp.partition} is another member's by now")
        positions[tp] = CommittedOffset(position, state.position_epoch)
    return positions


def _go_on(reading: Reading, stands: Mapping[TopicPartition, CommittedOffset]) -> None:
    """The transaction that was in doubt is over: go on behind it if the group stands there, and the
    topic is none that was made again since."""
    for tp, meant in reading.in_doubt.items():
        state = reading.fetching.states.get(tp)
        is_committed = tp in stands and stands[tp].offset == meant.offset
        if is_committed and state is not None and not state.topics_ahead_count:
            reading.go_on(tp, meant)
    reading.in_doubt.clear()

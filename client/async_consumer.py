"""The async consumer, for trio and asyncio: the same core as Consumer, with `await`.

    async with AsyncConsumer("127.0.0.1:9092", "orders") as consumer:
        async for record in consumer:
            ...
        async for batch in consumer.batches():
            ...

`async for` hands out the records of a fetched batch without giving way to other tasks, and gives
way between batches: a checkpoint per record would cost more than the record.

One task at a time: BusyError for a second one.  No task of it outlives the block.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Literal, Never, Self, Unpack, overload

import anyio
import anyio.lowlevel

from .async_driver import AsyncDriver, wait_done
from .consumed import ConsumedBatch
from .errors import BusyError, SegbrokerError
from .reading import Next, Notice, Reading
from .records import Gap, OffsetAndTimestamp, Record, TopicPartition
from .settings import DEFAULT_BOOTSTRAP, ConsumerOptions, OnGap
from .starting import Start


class AsyncConsumer(Generic[Notice]):
    """See the module.  All sizes in bytes, all times in milliseconds."""

    @overload
    def __init__(
        self: "AsyncConsumer[Never]",
        bootstrap: str | Iterable[str] = ...,
        *topics: str,
        start: Start = ...,
        stop_at_end: bool = ...,
        on_gap: Literal["raise", "skip"] = ...,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncConsumer[Gap]",
        bootstrap: str | Iterable[str] = ...,
        *topics: str,
        start: Start = ...,
        stop_at_end: bool = ...,
        on_gap: OnGap,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    def __init__(
        self,
        bootstrap: str | Iterable[str] = DEFAULT_BOOTSTRAP,
        *topics: str,
        start: Start = "start",
        stop_at_end: bool = False,
        on_gap: OnGap = "raise",
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """As Consumer."""
        self._driver = AsyncDriver()
        self._is_busy = False
        self._reading = Reading(
            bootstrap,
            topics,
            start=start,
            stop_at_end=stop_at_end,
            on_gap=on_gap,
            wake_by=self._driver.wake_by,
            options=options,
        )

    async def __aenter__(self) -> Self:
        """Start, and wait until one broker was reached (BrokerUnreachable if none is)."""
        await self._driver.start(self._reading.engine)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._driver.stop(exc_type, exc, traceback)

    async def aclose(self) -> None:
        """End.  Again: nothing."""
        await self._driver.stop()

    # Which partitions.

    def subscribe(self, topics: Iterable[str], *, start: Start | None = None) -> None:
        """Read all partitions of these topics (instead of what was read before)."""
        self._reading.subscribe(topics if isinstance(topics, str) else list(topics), start)

    def assign(self, partitions: Iterable[tuple[str, int]], *, start: Start | None = None) -> None:
        """Read exactly these (topic, partition); those read already go on where they are."""
        self._reading.assign(partitions, start)

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is being read; of a subscribed topic after its partitions are known."""
        return list(self._reading.fetching.states)

    def seek(self, topic: str, partition: int, to: Start) -> None:
        """Go on at `to`: an offset, "start", "end", -n, or a datetime."""
        self._reading.seek(topic, partition, to)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing of these (none given: of all) until `resume`."""
        self._reading.fetching.pause(self._reading.partitions_or_all(partitions or None))

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand out and fetch these again (none given: all)."""
        self._reading.fetching.resume(self._reading.partitions_or_all(partitions or None))

    # Reading.

    def __aiter__(self) -> AsyncIterator[Record | Notice]:
        """Records, partition by partition as they come, each partition in order."""
        return _Records(self)

    def batches(self) -> AsyncIterator[ConsumedBatch | Notice]:
        """Whole batches, as the broker stores them; the fast way.

        Records of a batch that `async for record in consumer` has begun are not handed out again.
        """
        return _Batches(self)

    async def poll(
        self, max_records: int = 500, timeout_ms: float = 1_000
    ) -> list[Record | Notice]:
        """Up to `max_records` records; [] when none came within `timeout_ms`, or at the end.

        What goes wrong behind some records is raised by the next call, which has none.
        """
        records: list[Any] = []
        with anyio.move_on_after(timeout_ms / 1000):
            while len(records) < max_records:
                rest = self._reading.take_records()
                if rest is None:
                    if records and not self._reading.fetching.prefetched.ready:
                        break
                    rest = await self._next_records(batch_only=bool(records))
                    if rest is None:
                        break
                records += islice(rest, max_records - len(records))
        return records

    async def _next_records(self, *, batch_only: bool = False) -> Iterator[Any] | None:
        got = await self._next(batch_only=batch_only)
        return None if got is None else self._reading.hand_out(got)

    async def _next(self, *, batch_only: bool = False) -> Next | None:
        """The next batch that has records, or gap; None at the end.  Always a checkpoint.

        `batch_only`: also None where it would wait, or raise, or be a gap.
        """
        if self._is_busy:
            raise BusyError("another task is reading from this consumer")
        self._is_busy = True
        try:
            await anyio.lowlevel.checkpoint()
            fetching = self._reading.fetching
            while True:
                self._driver.engine  # noqa: B018 - raises ClosedError outside the block
                fetched = fetching.prefetched.take(batch_only=batch_only)
                if fetched is None:
                    if batch_only or fetching.is_ended:
                        return None
                    await wait_done(fetching.changed())
                    continue
                if fetched.gap is not None:
                    return fetched.gap
                try:
                    batch = fetching.open(fetched)
                except SegbrokerError:
                    fetching.rewind(fetched)
                    if batch_only:
                        return None
                    raise
                if len(batch):
                    return fetched, batch
        finally:
            self._is_busy = False

    @property
    def lost_counts(self) -> dict[TopicPartition, int]:
        """How many offsets were lost, at most, of each partition that lost any, until now."""
        return dict(self._reading.fetching.prefetched.lost_counts)

    # Positions.

    async def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that will be handed out."""
        tp = TopicPartition(topic, partition)
        limit_ms = self._reading.engine.settings.api_timeout_ms
        with anyio.move_on_after(limit_ms / 1000):
            while True:
                position = self._reading.position(tp)
                if position is not None:
                    return position
                self._reading.fetching.prefetched.raise_error()
                self._driver.engine  # noqa: B018 - raises ClosedError outside the block
                await wait_done(self._reading.fetching.changed())
        raise self._reading.engine.network.unreachable()

    async def positions(self) -> dict[TopicPartition, int]:
        """Of all partitions that are read."""
        return {tp: await self.position(*tp) for tp in self.assignment}

    async def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The first offset that can be read; of all that are read when none are given."""
        return await self._driver.call(self._reading.beginning_offsets(partitions or None))

    async def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read now."""
        return await self._driver.call(self._reading.end_offsets(partitions or None))

    async def offsets_for_times(
        self, times: dict[tuple[str, int], int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms or datetime), or None."""
        return await self._driver.call(self._reading.offsets_for_times(times))

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return await self._driver.call(self._reading.partitions_for(topic))


class _Records(AsyncIterator[Record | Notice]):
    """Hands out from a list iterator; awaits only when it is exhausted.

    Not an async generator: those need care when a loop is left early.
    """

    __slots__ = ("_consumer", "_records")

    def __init__(self, consumer: AsyncConsumer[Notice]) -> None:
        self._consumer = consumer
        self._records: Iterator[Any] = iter(())

    async def __anext__(self) -> Any:  # noqa: ANN401 - a Record, or what Notice says
        for record in self._records:
            return record
        consumer = self._consumer
        while True:
            rest = consumer._reading.take_records()
            if rest is None:
                rest = await consumer._next_records()
            if rest is None:
                raise StopAsyncIteration
            self._records = rest
            for record in rest:
                return record


class _Batches(AsyncIterator[ConsumedBatch | Notice]):
    __slots__ = ("_consumer",)

    def __init__(self, consumer: AsyncConsumer[Notice]) -> None:
        self._consumer = consumer

    async def __anext__(self) -> Any:  # noqa: ANN401 - a ConsumedBatch, or what Notice says
        got = await self._consumer._next()
        if got is None:
            raise StopAsyncIteration
        self._consumer._reading.forget_records()
        return got if isinstance(got, Gap) else got[1]

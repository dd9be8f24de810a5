"""The async consumer, for trio and asyncio: the same core as Consumer, with `await`.

    async with AsyncConsumer("127.0.0.1:9092", "orders") as consumer:
        async for record in consumer:
            ...
        async for batch in consumer.batches():
            ...

`async for` hands out what was fetched without giving way to other tasks for GIVE_WAY_MS at a time,
and a few hundred records at least: a checkpoint per record would cost more than the record, one
per batch as much as a small batch.

One task at a time: BusyError for a second one.  No task of it outlives the block.
"""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from inspect import isawaitable
from itertools import islice
from typing import Any, Generic, Literal, Never, Unpack, overload

import anyio
import anyio.lowlevel

from .assigned import Fetched
from .async_driver import Async, AsyncDriver
from .clock import now_ms
from .consumed import ConsumedBatch
from .driver import is_hurried
from .errors import BusyError, SegbrokerError
from .group_events import Event, Listener
from .group_offsets import CommittedOffset, GroupMetadata
from .group_reading import CALLBACK_MS
from .handout import Handout
from .reading import Notice, Reading, check_poll
from .records import ByPartition, Gap, OffsetAndTimestamp, Record, TopicPartition
from .settings import DEFAULT_BOOTSTRAP, ConsumerOptions, OnGap
from .starting import Start

# How long it goes on without a checkpoint while there is something to hand out: as long as the
# interpreter lets a thread go on while another one waits.
GIVE_WAY_MS = 5
# How long a poll makes records before it returns those that it has.
HOLD_MS = 50


class AsyncConsumer(Async, Generic[Notice]):
    # What help() shows.
    __doc__ = f"{__doc__}\nAll sizes in bytes, all times in milliseconds.\n"

    @overload
    def __init__(
        self: "AsyncConsumer[Never]",
        bootstrap: str | Iterable[str] = ...,
        *topics: str,
        pattern: str | re.Pattern[str] | None = ...,
        group: str | None = ...,
        start: Start = ...,
        stop_at_end: bool = ...,
        on_assigned: Listener | None = ...,
        on_revoked: Listener | None = ...,
        on_lost: Listener | None = ...,
        on_gap: Literal["raise", "skip"] = ...,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncConsumer[Gap]",
        bootstrap: str | Iterable[str] = ...,
        *topics: str,
        pattern: str | re.Pattern[str] | None = ...,
        group: str | None = ...,
        start: Start = ...,
        stop_at_end: bool = ...,
        on_assigned: Listener | None = ...,
        on_revoked: Listener | None = ...,
        on_lost: Listener | None = ...,
        on_gap: OnGap,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    def __init__(
        self,
        bootstrap: str | Iterable[str] = DEFAULT_BOOTSTRAP,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        group: str | None = None,
        start: Start = "start",
        stop_at_end: bool = False,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        on_gap: OnGap = "raise",
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """As Consumer; on_assigned, on_revoked and on_lost may be async functions.

        Heartbeats are sent by a task of this event loop: a job that keeps the loop to itself for
        longer than session_timeout_ms costs a member its partitions.  Put it into a thread.
        """
        self._driver = AsyncDriver()
        self._is_busy = False
        self._gave_way_ms = -GIVE_WAY_MS
        self._reading = Reading(
            bootstrap,
            topics,
            pattern=pattern,
            group=group,
            start=start,
            stop_at_end=stop_at_end,
            on_gap=on_gap,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            wake_by=self._driver.wake_by,
            options=options,
        )
        self._engine = self._reading.engine
        self._last = partial(self._reading.goodbye, patient=True)

    async def aclose(self) -> None:
        """End; in a group commit what was gone past, and leave.  Again: nothing."""
        await self._close(None)

    async def _close(self, exc: BaseException | None) -> None:
        try:
            await self._say_goodbye(is_hurried(exc))
        finally:
            await self._driver.stop()

    async def _say_goodbye(self, hurried: bool) -> None:
        if not self._reading.is_member or not self._driver.is_open:
            return
        self._driver.check_thread()
        group = self._reading.group
        try:
            try:
                await self._tell_last(hurried)
            except BaseException as cut:
                hurried = hurried or is_hurried(cut)
                raise
            finally:  # also where a callback raised
                if not hurried:
                    with suppress(SegbrokerError):
                        await self._driver.call(group.told(), timeout_ms=CALLBACK_MS)
                    await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException as cut:
            hurried = hurried or is_hurried(cut)
            raise
        finally:
            await self._driver.say_goodbye(self._reading.goodbye, hurried=hurried)

    async def _tell_last(self, hurried: bool) -> None:
        group, who = self._reading.group, anyio.get_current_task().id
        try:
            group.tellers.add(who)
            with self._driver.undisturbed:
                events = self._reading.closing()
            if not hurried:
                await _tell_all(events)
        finally:
            group.tellers.discard(who)

    # Which partitions.

    def subscribe(self, topics: Iterable[str], *, start: Start | None = None) -> None:
        """Read all partitions of these topics (instead of what was read before)."""
        self._driver.check_thread()
        topics = topics if isinstance(topics, str) else list(topics)
        with self._driver.undisturbed:
            self._reading.subscribe(topics, start)

    def assign(self, partitions: Iterable[tuple[str, int]], *, start: Start | None = None) -> None:
        """Read exactly these (topic, partition); those read already go on where they are."""
        self._driver.check_thread()
        with self._driver.undisturbed:
            self._reading.assign(partitions, start)

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is being read; of a subscribed topic after its partitions are known."""
        return list(self._reading.fetching.states)

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more to come, of a consumer with `stop_at_end`: a `poll` that
        returns nothing may have waited for too short a time."""
        self._driver.check_thread()
        return self._reading.is_ended

    def seek(self, topic: str, partition: int, to: Start) -> None:
        """Go on at `to`: an offset, "start", "end", -n, or a datetime."""
        self._driver.check_thread()
        with self._driver.undisturbed:
            self._reading.seek(topic, partition, to)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing of these (none given: of all) until `resume`.

        In a loop over records the one in hand is the last of them; what waits is not lost.
        """
        self._driver.check_thread()
        with self._driver.undisturbed:
            self._reading.pause(partitions or None)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand out and fetch these again (none given: all)."""
        self._driver.check_thread()
        with self._driver.undisturbed:
            self._reading.resume(partitions or None)

    # Reading.

    def __aiter__(self) -> AsyncIterator[Record | Notice]:
        """Records, partition by partition as they come, each partition in order."""
        # Not an async generator: those need care when a loop is left early.
        return Handout(self._refill)

    async def _refill(self, handout: Handout) -> Any:  # noqa: ANN401 - a Record, or what Notice says
        while True:
            self._enter()
            try:
                items = await self._next_records()
            finally:
                self._is_busy = False
            if items is None:
                raise StopAsyncIteration
            handout.items = items
            for item in items:
                return item

    def batches(self) -> AsyncIterator[ConsumedBatch | Notice]:
        """Whole batches, as the broker stores them; the fast way.

        Of a batch that `async for record in consumer` has begun the rest comes as a batch.
        """
        return _Batches(self)

    async def poll(
        self, max_records: int = 500, timeout_ms: float = 1_000
    ) -> list[Record | Notice]:
        """Up to `max_records` records; [] when none came within `timeout_ms`, or at the end.

        What goes wrong behind some records is raised by the next call, which has none.  Where this
        is cancelled nothing was handed out; what takes long to make is returned before it is all.
        """
        return await self._poll(max_records, timeout_ms)

    async def _poll(
        self, max_records: int, timeout_ms: float, *, is_shown: bool = True
    ) -> list[Record | Notice]:
        """As `poll`; see Consumer._poll."""
        check_poll(max_records, timeout_ms)
        records: list[Any] = []
        self._enter()
        try:
            # Before the time counts: without any, what is there is returned all the same.
            await self._give_way()
            deadline_ms = now_ms() + timeout_ms
            # From the first record on nothing here waits: who is cancelled there would have been
            # handed what nobody sees.
            while len(records) < max_records:
                if records and now_ms() - self._gave_way_ms >= HOLD_MS:
                    break
                rest = await self._next_records(
                    deadline_ms, in_loop=False, batch_only=bool(records)
                )
                if rest is None:
                    break
                records += islice(rest, max_records - len(records))
        finally:
            self._is_busy = False
        if is_shown:
            self._reading.progress.is_shown = True
        return records

    def _enter(self) -> None:
        """Nobody else reads until `_is_busy` is False again: not even while this one gives way,
        or who comes back meanwhile would count what this one is given as processed."""
        self._driver.check_thread()
        if self._is_busy:
            raise BusyError("another task is reading from this consumer")
        self._is_busy = True

    async def _next_records(
        self,
        deadline_ms: float | None = None,
        *,
        in_loop: bool = True,
        batch_only: bool = False,
    ) -> Iterator[Any] | None:
        """The next items: the rest of a batch, a new one's records, a gap; None: as `_next`."""
        reading = self._reading
        if not batch_only:
            await self._give_way()
            await self._come_back()
        while (rest := reading.take_records(in_loop=in_loop)) is None:
            if batch_only and not reading.fetching.prefetched.ready:
                return None
            got = await self._next(deadline_ms, batch_only=batch_only)
            if got is None:
                return None
            if isinstance(got, Gap):
                return iter((got,))
            if got != "rest":
                reading.hand_out(*got)
        return rest

    async def _next_batch(self) -> ConsumedBatch | Gap | None:
        self._enter()
        try:
            await self._give_way()
            await self._come_back()
            while (rest := self._reading.take_rest()) is None:
                got = await self._next()
                if got is None or isinstance(got, Gap):
                    return got
                if got != "rest" and self._reading.hand_out_batch(got[0]):
                    return got[1]
            return rest
        finally:
            self._is_busy = False

    async def _next(
        self, deadline_ms: float | None = None, *, batch_only: bool = False
    ) -> tuple[Fetched, ConsumedBatch] | Gap | Literal["rest"] | None:
        """The next batch that has records, or gap; None at the deadline or the end.

        The deadline ends waiting for records, and nothing else: what the caller is told of its
        partitions is told to the end.

        "rest": of one that was begun and paused there is more to hand out now.
        `batch_only`: also None where it would wait, or raise, or be a gap; it is no checkpoint.
        """
        if not batch_only:
            await self._give_way()
        reading, fetching = self._reading, self._reading.fetching
        self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        reading.check_chosen()
        if fetching.prefetched.left_unopened is not None:
            with self._driver.undisturbed:
                fetching.rewind_unopened()
        while True:
            self._driver.engine  # noqa: B018 - raises ClosedError outside the block
            if not batch_only and reading.has_events:
                await self._tell_events()
            if reading.has_rest:
                return "rest"  # resumed a moment ago: what lies behind it comes after it
            fetched = fetching.prefetched.take(batch_only=batch_only)
            if fetched is None:
                if batch_only or reading.is_ended:
                    return None
                if (last := reading.last_tellers) and anyio.get_current_task().id in last:
                    return None
                left = None if deadline_ms is None else max(0.0, deadline_ms - now_ms()) / 1000
                try:
                    reading.waits()
                    with anyio.move_on_after(left) as scope:
                        await self._driver.wait(fetching.changed())
                finally:
                    reading.is_here()
                self._gave_way_ms = now_ms()
                if scope.cancelled_caught:
                    return None
                continue
            if fetched.gap is not None:
                return fetched.gap
            try:
                batch = fetching.open(fetched)
            except BaseException as exc:  # Ctrl-C, too: nobody has seen its records
                with self._driver.undisturbed:
                    fetching.rewind(fetched)
                if batch_only and isinstance(exc, SegbrokerError):
                    return None
                raise
            if len(batch):
                return fetched, batch
            fetched.state.opening = None

    async def _give_way(self) -> None:
        """A checkpoint, unless there was one a moment ago."""
        if now_ms() - self._gave_way_ms >= GIVE_WAY_MS:
            await anyio.lowlevel.checkpoint()
            self._gave_way_ms = now_ms()

    async def _come_back(self) -> None:
        if self._reading.is_member:
            self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        if self._reading.progress.unshown:
            with self._driver.undisturbed:
                self._reading.take_back()
        self._reading.came_back()
        if self._reading.has_events:
            await self._tell_events()

    async def _tell_events(self) -> None:
        """Call what wants to know what the group gave and took."""
        group, who = self._reading.group, anyio.get_current_task().id
        try:
            group.tellers.add(who)
            while (event := group.events.next()) is not None:
                try:
                    await _call(event)
                finally:
                    if event.is_told:  # else Ctrl-C came in front of it
                        self._reading.event_done(event)
        finally:
            group.tellers.discard(who)

    @property
    def lost_counts(self) -> dict[TopicPartition, int]:
        """How many offsets were lost, at most, of each partition that lost any, until now."""
        return dict(self._reading.fetching.prefetched.lost_counts)

    # As a member of a group.

    async def commit(
        self,
        offsets: ByPartition[int | CommittedOffset] | Record | None = None,
    ) -> None:
        """Commit, and wait until that is done; as Consumer.commit."""
        await self._driver.call(self._reading.commit(offsets))

    async def committed(
        self, *partitions: tuple[str, int]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Where the group stands in these (none given: in all that are read), if anywhere."""
        return await self._driver.call(self._reading.committed(partitions or None))

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this member is, for `AsyncProducer.send_offsets`."""
        return self._reading.group_metadata

    # Positions.

    def lag(self) -> dict[TopicPartition, int]:
        """How many records are still to be handed out; as Consumer.lag."""
        return self._reading.lag()

    async def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that will be handed out."""
        tp = TopicPartition(topic, partition)
        limit_ms = self._reading.engine.settings.api_timeout_ms
        if self._reading.fetching.subscription.is_early(tp):
            await self._driver.call(self._reading.subscribed_known())
        with anyio.move_on_after(limit_ms / 1000):
            while True:
                position = self._reading.position(tp)
                if position is not None:
                    return position
                self._reading.fetching.prefetched.raise_error()
                self._driver.engine  # noqa: B018 - raises ClosedError outside the block
                await self._driver.wait(self._reading.fetching.changed())
        raise self._reading.why_no_position(tp)

    async def positions(self) -> dict[TopicPartition, int]:
        """Of all partitions that are read."""
        await self._driver.call(self._reading.subscribed_known())
        found: dict[TopicPartition, int] = {}
        for tp in self.assignment:
            try:
                found[tp] = await self.position(*tp)
            except ValueError:
                if tp in self.assignment:
                    raise
                # A group took it away meanwhile: it is not read any more.
        return found

    async def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The first offset that can be read; of all that are read when none are given."""
        return await self._driver.call(self._reading.beginning_offsets(partitions or None))

    async def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read now."""
        return await self._driver.call(self._reading.end_offsets(partitions or None))

    async def offsets_for_times(
        self, times: ByPartition[int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms or datetime), or None."""
        return await self._driver.call(self._reading.offsets_for_times(times))

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return await self._driver.call(self._reading.partitions_for(topic))


class _Batches(AsyncIterator[ConsumedBatch | Notice]):
    __slots__ = ("_consumer",)

    def __init__(self, consumer: AsyncConsumer[Notice]) -> None:
        self._consumer = consumer

    async def __anext__(self) -> Any:  # noqa: ANN401 - a ConsumedBatch, or what Notice says
        got = await self._consumer._next_batch()
        if got is None:
            raise StopAsyncIteration
        self._consumer._reading.progress.is_shown = True
        return got


async def _tell_all(events: Sequence[Event]) -> None:
    """Also where one raises; of several the last is raised, in the context of the others."""
    if events:
        first, *rest = events
        try:
            await _call(first)
        except Exception:
            await _tell_all(rest)
            raise
        await _tell_all(rest)


async def _call(event: Event) -> None:
    if not event.is_told:
        event.is_told = True
        done = None if event.listener is None else event.listener(event.partitions)
        if isawaitable(done):
            await done

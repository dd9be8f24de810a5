"""The async consumer of a share group, for trio and asyncio: the same core as ShareConsumer.

    async with AsyncShareConsumer("127.0.0.1:9092", "orders", group="work") as consumer:
        async for record in consumer:
            ...                          accepted when the loop comes back for the next

One task at a time reads: BusyError for a second one.  What became of a record any task may say, at
once: `accept`, `release`, `reject` and `renew` do not wait.  No task of it outlives the block.
"""

from collections.abc import AsyncIterator, Iterable
from functools import partial
from inspect import isawaitable
from typing import Any, Generic, Literal, Never, Unpack, overload

import anyio
import anyio.lowlevel

from .acknowledging import Kind, ShareRecord, told
from .async_consumer import GIVE_WAY_MS
from .async_driver import Async, AsyncDriver
from .clock import now_ms
from .driver import is_hurried
from .errors import BusyError
from .reading import Notice, check_poll
from .records import Gap, TopicPartition
from .settings import DEFAULT_BOOTSTRAP, OnGap
from .share_reading import FailureListener, ShareReading
from .share_settings import ShareOptions


class AsyncShareConsumer(Async, Generic[Notice]):
    # What help() shows.
    __doc__ = f"{__doc__}\nAll sizes in bytes, all times in milliseconds.\n"

    @overload
    def __init__(
        self: "AsyncShareConsumer[Never]",
        bootstrap: str | Iterable[str] = ...,
        *topics: str,
        group: str,
        explicit: bool = ...,
        on_failed: FailureListener | None = ...,
        on_gap: Literal["raise", "skip"] = ...,
        **options: Unpack[ShareOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "AsyncShareConsumer[Gap]",
        bootstrap: str | Iterable[str] = ...,
        *topics: str,
        group: str,
        explicit: bool = ...,
        on_failed: FailureListener | None = ...,
        on_gap: OnGap,
        **options: Unpack[ShareOptions],
    ) -> None: ...

    def __init__(
        self,
        bootstrap: str | Iterable[str] = DEFAULT_BOOTSTRAP,
        *topics: str,
        group: str,
        explicit: bool = False,
        on_failed: FailureListener | None = None,
        on_gap: OnGap = "raise",
        **options: Unpack[ShareOptions],
    ) -> None:
        """As ShareConsumer; on_failed may be an async function.

        Heartbeats and renewals are sent by a task of this event loop: a job that keeps the loop to
        itself costs a member its locks.  Put it into a thread.
        """
        self._driver = AsyncDriver()
        self._is_busy = False
        self._gave_way_ms = -GIVE_WAY_MS
        self._reading = ShareReading(
            bootstrap,
            topics,
            group=group,
            explicit=explicit,
            on_gap=on_gap,
            on_failed=on_failed,
            wake_by=self._driver.wake_by,
            options=options,
        )
        self._engine = self._reading.engine
        self._last = partial(self._reading.goodbye, patient=True)

    async def aclose(self) -> None:
        """End: what was said is said, the rest is free for others, the group is left.  Again:
        nothing.  Raises AcknowledgeFailed with what does not hold of what was said."""
        await self._close(None)

    async def _close(self, exc: BaseException | None) -> None:
        cut = exc if is_hurried(exc) else None
        try:
            if self._driver.is_open:
                await self._driver.say_goodbye(
                    self._reading.goodbye, hurried=cut is not None, hurry=self._reading.hurry
                )
        except BaseException as other:
            cut = other
            raise
        finally:
            try:
                await self._driver.stop()
            finally:
                if cut is not None and (failed := self._reading.to_tell_last()):
                    self._reading.failures.telling = []
                    told(failed, cut)
        if cut is None:
            await self._tell_last(exc)

    async def _tell_last(self, exc: BaseException | None) -> None:
        listener, failed = self._reading.on_failed, self._reading.to_tell_last()
        self._reading.failures.telling = []
        if failed and listener is not None:
            done = listener(failed)
            if isawaitable(done):
                await done
        elif failed:
            told(failed, exc)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Work on these topics, instead of those before; what you have stays yours."""
        self._driver.check_thread()
        self._reading.subscribe(topics if isinstance(topics, str) else list(topics))

    @property
    def assignment(self) -> list[TopicPartition]:
        """Which partitions the group has this member work on; others may work there, too."""
        return self._reading.assignment

    # Records.

    def __aiter__(self) -> AsyncIterator[ShareRecord | Notice]:
        """Records as they come; the one before is accepted then, unless `explicit`."""
        return _Records(self)

    async def poll(
        self, max_records: int = 500, timeout_ms: float = 1_000
    ) -> list[ShareRecord | Notice]:
        """Up to `max_records` records; [] when none came within `timeout_ms`.

        Those of the poll before are accepted then, unless `explicit`.  Where this is cancelled
        nothing was handed out.
        """
        check_poll(max_records, timeout_ms)
        self._enter()
        try:
            await self._give_way()
            if await self._next(now_ms() + timeout_ms) is None:
                return []
            items: tuple[Any, ...] = self._reading.take_many(max_records)
            taken: list[Any] = list(items)
        finally:
            self._is_busy = False
        # No call between this and the caller: what it has not seen is not accepted.
        self._reading.shown = items
        return taken

    def _enter(self) -> None:
        self._driver.check_thread()
        if self._is_busy:
            raise BusyError("another task is reading from this consumer")
        self._is_busy = True

    async def _next(self, deadline_ms: float | None) -> ShareRecord | Gap | None:
        """What comes next; None at the deadline.  It is not shown yet."""
        reading = self._reading
        self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        reading.check_chosen()
        reading.came_back(now_ms())
        while True:
            self._driver.engine  # noqa: B018 - raises ClosedError outside the block
            await self._tell_failed()
            item = reading.take()
            if item is not None:
                return item
            reading.want(deadline_ms)
            left = None if deadline_ms is None else max(0.0, deadline_ms - now_ms()) / 1000
            try:
                with anyio.move_on_after(left) as scope:
                    await self._driver.wait(reading.changed())
            except BaseException:
                reading.want_no_more()
                raise
            self._gave_way_ms = now_ms()
            if scope.cancelled_caught:
                return None
            reading.want_no_more()

    async def _give_way(self) -> None:
        """A checkpoint, unless there was one a moment ago."""
        if now_ms() - self._gave_way_ms >= GIVE_WAY_MS:
            await anyio.lowlevel.checkpoint()
            self._gave_way_ms = now_ms()

    async def _tell_failed(self) -> None:
        listener = self._reading.on_failed
        if listener is not None and (failed := self._reading.failures.to_tell()):
            self._reading.failures.telling = []
            done = listener(failed)
            if isawaitable(done):
                await done

    # What became of them.

    def accept(self, *records: ShareRecord) -> None:
        """These are done with.

        It is told with the next question, or after acknowledge_interval_ms; `commit` waits for
        that.  Raises AcknowledgeFailed for a record that is not locked for this member any more.
        """
        self._say(records, Kind.ACCEPT)

    def release(self, *records: ShareRecord) -> None:
        """These are to be handed out again, to whoever comes; otherwise as `accept`."""
        self._say(records, Kind.RELEASE)

    def reject(self, *records: ShareRecord) -> None:
        """These are never to be handed out again; otherwise as `accept`."""
        self._say(records, Kind.REJECT)

    def renew(self, *records: ShareRecord) -> None:
        """Have these for longer: their locks begin anew.  Nothing is said of them by that.

        That happens by itself as long as max_hold_ms says.
        """
        self._say(records, Kind.RENEW)

    def _say(self, records: tuple[ShareRecord, ...], kind: Kind) -> None:
        self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        self._reading.say(records, kind)

    async def commit(self) -> None:
        """Wait until the broker has taken, durably, what was said; as ShareConsumer.commit."""
        await self._driver.call(self._reading.commit())
        self._reading.failures.raise_all()

    @property
    def lost_counts(self) -> dict[TopicPartition, int]:
        """How many offsets were lost of each partition that lost any, as this member met them."""
        return dict(self._reading.lost_counts)


class _Records(AsyncIterator[Any]):
    """The loop over records: each is shown by the last thing done before the caller has it."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: AsyncShareConsumer[Any]) -> None:
        self._consumer = consumer

    async def __anext__(self) -> Any:  # noqa: ANN401 - a ShareRecord, or what Notice says
        consumer = self._consumer
        consumer._enter()
        try:
            await consumer._give_way()
            item = await consumer._next(None)
        finally:
            consumer._is_busy = False
        # Ctrl-C comes at a call, and there is none between this and the caller.
        consumer._reading.shown = (item,)  # type: ignore[assignment]  # there is one: no deadline
        return item

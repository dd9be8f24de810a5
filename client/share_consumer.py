"""The blocking consumer of a share group: records as work, each for one member at a time.

    with ShareConsumer("127.0.0.1:9092", "orders", group="work") as consumer:
        for record in consumer:
            ...                          accepted when the loop comes back for the next
            consumer.release(record)     not now: it is handed out again
            consumer.reject(record)      never again

The members of a share group share partitions, not divide them: a record is locked for the member
that has it, until that says what became of it, or is gone.  There is no position and no order; a
record that was not accepted comes again, as often as the group's share.delivery.count.limit says.

    consumer.poll(max_records=500, timeout_ms=1000)
    consumer.commit()                    what was said is taken by the broker, durably

Locks are renewed while you work, as long as max_hold_ms says.  What does not hold of what was said
is AcknowledgeFailed, or told to `on_failed`; those records come again.

One thread at a time reads: BusyError for a second one.  What became of a record any thread may say.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, Literal, Never, Unpack, overload

from .acknowledging import Kind, ShareRecord, told
from .clock import now_ms
from .driver import is_hurried
from .reading import Notice, check_poll
from .records import Gap, TopicPartition
from .settings import DEFAULT_BOOTSTRAP, OnGap
from .share_reading import FailureListener, ShareReading
from .share_settings import ShareOptions
from .thread_driver import Blocking, ThreadDriver
from .turns import Turns
from .waiting import as_ms


class ShareConsumer(Blocking, Generic[Notice]):
    # What help() shows.
    __doc__ = f"{__doc__}\nAll sizes in bytes, all times in milliseconds.\n"

    @overload
    def __init__(
        self: "ShareConsumer[Never]",
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
        self: "ShareConsumer[Gap]",
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
        """A consumer; nothing is opened before its `with` block.

        topics: what to work on; see also `subscribe`.
        group: the share group.  Where a new one begins, which records it sees and how long a lock
            lasts are settings of the group (share.auto.offset.reset, share.isolation.level,
            share.record.lock.duration.ms).
        explicit: nothing is accepted by going past it: say of each record what became of it.  It
            may be said later, and from another thread.
        on_failed: called with a list of FailedAcknowledgement, between two records, in the thread
            that reads; by default they are raised, as AcknowledgeFailed.
        on_gap: what to do about offsets that were lost: "raise" GapError, once, and go on; "yield"
            a Gap among the records; "skip" them.  `lost_counts` has them in each case.
        acquire_count, acquire_bytes: about how much is locked at a time.  It is asked for when you
            have nothing left: what waits behind the record in your hand nobody else can have.
        acquire: "batches" locks whole batches, "records" never more than acquire_count.
        max_hold_ms: locks are renewed as long as you come back within this: ask for a record (and
            while you wait for it), or say something of one.  None: as long as the process lives;
            0: never, as in Kafka.
        held_count: how many records you may have of which nothing was said (BusyError beyond).
        acknowledge_interval_ms: how long what was said of a record may wait for others.
        fetch_wait_ms, fetch_min_bytes: how long the broker may wait for how much.
        request_timeout_ms, connect_timeout_ms, accept_timeout_ms, api_timeout_ms,
        metadata_max_age_ms, client_id, security: as in Consumer.

        Raises ValueError for a value that cannot be used.
        """
        self._driver = ThreadDriver()
        self._turns = Turns()
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

    @property
    def _lock(self) -> AbstractContextManager[object]:
        return self._driver.lock.plain  # as in Consumer

    def close(self) -> None:
        """End: what was said is said, the rest is free for others, the group is left.  Again:
        nothing.  Raises AcknowledgeFailed with what does not hold of what was said."""
        self._close(None)

    def _close(self, exc: BaseException | None) -> None:
        hurried = is_hurried(exc)
        self._driver.check_may_stop()
        try:
            if self._driver.is_open:
                self._driver.say_goodbye(self._reading.goodbye, hurried=hurried)
        finally:
            self._driver.stop()
        failed = [] if self._driver.is_forked else self._reading.to_tell_last()
        self._reading.failures.telling = []
        if failed and self._reading.on_failed is not None and not hurried:
            self._reading.on_failed(failed)
        elif failed:
            told(failed, exc)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Work on these topics, instead of those before; what you have stays yours."""
        topics = topics if isinstance(topics, str) else list(topics)
        with self._lock:
            self._reading.subscribe(topics)

    @property
    def assignment(self) -> list[TopicPartition]:
        """Which partitions the group has this member work on; others may work there, too."""
        with self._lock:
            return self._reading.assignment

    # Records.

    def __iter__(self) -> Iterator[ShareRecord | Notice]:
        """Records as they come; the one before is accepted then, unless `explicit`."""
        return _Records(self._turns, self)

    def poll(self, max_records: int = 500, timeout_ms: float = 1_000) -> list[ShareRecord | Notice]:
        """Up to `max_records` records; [] when none came within `timeout_ms`.

        Those of the poll before are accepted then, unless `explicit`.
        """
        check_poll(max_records, timeout_ms)
        deadline_ms = now_ms() + timeout_ms
        self._turns.begin()
        try:
            if self._next(deadline_ms) is None:
                return []
            with self._lock:
                items: tuple[Any, ...] = self._reading.take_many(max_records)
            taken: list[Any] = list(items)
            # No call between this and the caller: what it has not seen is not accepted.
            self._reading.shown = items
        finally:
            self._turns.thread = None
        return taken

    def _next(self, deadline_ms: float | None) -> ShareRecord | Gap | None:
        """What comes next; None at the deadline.  It is not shown yet."""
        reading = self._reading
        self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        reading.check_chosen()
        with self._lock:
            reading.came_back(now_ms())
        while True:
            self._tell_failed()
            with self._lock:
                item = reading.take()
                if item is not None:
                    return item
                changed = reading.changed()
                reading.want(deadline_ms)
            left = None if deadline_ms is None else deadline_ms - now_ms()
            if left is not None and left <= 0:
                return None
            try:
                self._driver.wait(changed, left)
            finally:
                reading.want_no_more()

    def _tell_failed(self) -> None:
        listener = self._reading.on_failed
        if listener is not None:
            with self._lock:
                failed = self._reading.failures.to_tell()
            if failed:
                self._reading.failures.telling = []
                listener(failed)

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
        with self._lock:
            self._reading.say(records, kind)

    def commit(self, *, timeout: float | None = None) -> None:
        """Wait until the broker has taken, durably, what was said.  `timeout` in seconds.

        What is in hand (the loop's record, what the last poll returned) is accepted by it, unless
        `explicit` or something else was said of it.

        Raises AcknowledgeFailed with what does not hold, TimedOut.
        """
        self._driver.call(self._reading.commit(), timeout_ms=as_ms(timeout))
        with self._lock:
            self._reading.failures.raise_all()

    @property
    def lost_counts(self) -> dict[TopicPartition, int]:
        """How many offsets were lost of each partition that lost any, as this member met them."""
        with self._lock:
            return dict(self._reading.lost_counts)


class _Records(Iterator[Any]):
    """The loop over records: each is shown by the last thing done before the caller has it."""

    __slots__ = ("_before", "_consumer", "_turns")

    def __init__(self, turns: Turns, consumer: ShareConsumer[Any]) -> None:
        self._turns = turns
        self._consumer = consumer
        self._before = 0

    def __next__(self) -> Any:  # noqa: ANN401 - a ShareRecord, or what Notice says
        consumer = self._consumer
        self._before = self._turns.begin(self._before)
        try:
            item = consumer._next(None)
            # Ctrl-C comes at a call, and there is none between this and the caller.
            consumer._reading.shown = (item,)  # type: ignore[assignment]  # there is one: no deadline
        finally:
            self._turns.thread = None
        return item

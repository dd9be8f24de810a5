"""The blocking consumer: reads partitions without a group.

    with Consumer("127.0.0.1:9092", "orders", start="start") as consumer:
        for record in consumer:
            ...

    for batch in consumer.batches():     columns: batch.values(), batch.to_arrow()
    consumer.poll(max_records=500, timeout_ms=1000)

Iterating goes on for ever, or to the end that was seen at the beginning with `stop_at_end=True`.
Loss is never silent: offsets that were lost are a GapError, or what `on_gap` says, a damaged batch
is CorruptBatch.  After an error the consumer can be used further.

One thread at a time: BusyError for a second one.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, islice
from types import TracebackType
from typing import Any, Generic, Literal, Never, Self, Unpack, overload

from .clock import now_ms
from .consumed import ConsumedBatch
from .errors import BusyError, SegbrokerError
from .reading import Next, Notice, Reading
from .records import Gap, OffsetAndTimestamp, Record, TopicPartition
from .settings import DEFAULT_BOOTSTRAP, ConsumerOptions, OnGap
from .starting import Start
from .thread_driver import ThreadDriver


class Consumer(Generic[Notice]):
    """See the module.  All sizes in bytes, all times in milliseconds."""

    @overload
    def __init__(
        self: "Consumer[Never]",
        bootstrap: str | Iterable[str] = ...,
        *topics: str,
        start: Start = ...,
        stop_at_end: bool = ...,
        on_gap: Literal["raise", "skip"] = ...,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[Gap]",
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
        """A consumer; nothing is opened before its `with` block.

        topics: to read all partitions of; see also `subscribe` and `assign`.
        start: "start", "end", an offset, -n for "n before the end", or a datetime with time zone.
            Partitions that appear later are read from their start.
        stop_at_end: end at the end that each partition has when it is first looked at.
        isolation: "read_committed" hides records of open and aborted transactions.
        on_gap: what to do about offsets that were lost, when reading comes to them: "raise"
            GapError, once, and go on; "yield" a Gap among the records or batches; "skip" them.
            `lost_counts` has them in each case.  What was deleted on purpose is no gap.
        on_reset: where to go when an offset is outside the log: "start", "end", or "error": an
            offset above the end is OffsetOutOfRange, one below the start goes to the start.
        prefetch_bytes: how much may be held that was not taken yet.
        fetch_partition_bytes: how much is asked of a partition at a time.
        fetch_wait_ms, fetch_min_bytes: how long the broker may wait for how much.
        request_timeout_ms: an unanswered request ends its connection.
        connect_timeout_ms: how long entering the block waits for a broker.
        api_timeout_ms: how long one call may take, retries included; and how long iterating
            goes on while no broker answers.
        metadata_max_age_ms: how often to look for new partitions.

        Raises ValueError for a value that cannot be used.
        """
        self._driver = ThreadDriver()
        self._lock = self._driver.lock
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

    def __enter__(self) -> Self:
        """Start, and wait until one broker was reached (BrokerUnreachable if none is)."""
        self._driver.start(self._reading.engine)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End.  Again: nothing."""
        self._driver.stop()

    # Which partitions.

    def subscribe(self, topics: Iterable[str], *, start: Start | None = None) -> None:
        """Read all partitions of these topics (instead of what was read before)."""
        topics = topics if isinstance(topics, str) else list(topics)
        with self._lock:
            self._reading.subscribe(topics, start)

    def assign(self, partitions: Iterable[tuple[str, int]], *, start: Start | None = None) -> None:
        """Read exactly these (topic, partition); those read already go on where they are."""
        with self._lock:
            self._reading.assign(partitions, start)

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is being read; of a subscribed topic after its partitions are known."""
        return list(self._reading.fetching.states)

    def seek(self, topic: str, partition: int, to: Start) -> None:
        """Go on at `to`: an offset, "start", "end", -n, or a datetime."""
        with self._lock:
            self._reading.seek(topic, partition, to)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing of these (none given: of all) until `resume`."""
        with self._lock:
            self._reading.fetching.pause(self._reading.partitions_or_all(partitions or None))

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand out and fetch these again (none given: all)."""
        with self._lock:
            self._reading.fetching.resume(self._reading.partitions_or_all(partitions or None))

    # Reading.

    def __iter__(self) -> Iterator[Record | Notice]:
        """Records, partition by partition as they come, each partition in order."""
        return chain.from_iterable(self._record_lists())

    def _record_lists(self) -> Iterator[Iterator[Any]]:
        while True:
            rest = self._reading.take_records()
            if rest is None:
                with self._one_at_a_time():
                    got = self._next(None)
                if got is None:
                    return
                rest = self._reading.hand_out(got)
            yield rest

    def batches(self) -> Iterator[ConsumedBatch | Notice]:
        """Whole batches, as the broker stores them; the fast way.

        Records of a batch that `for record in consumer` has begun are not handed out again.
        """
        while True:
            with self._one_at_a_time():
                got = self._next(None)
            if got is None:
                return
            self._reading.forget_records()
            # A gap comes only where the caller asked for gaps: that is what Notice says.
            yield got if isinstance(got, Gap) else got[1]  # type: ignore[misc]

    def poll(self, max_records: int = 500, timeout_ms: float = 1_000) -> list[Record | Notice]:
        """Up to `max_records` records; [] when none came within `timeout_ms`, or at the end.

        What goes wrong behind some records is raised by the next call, which has none.
        """
        deadline_ms = now_ms() + timeout_ms
        records: list[Any] = []
        while len(records) < max_records:
            rest = self._reading.take_records()
            if rest is None:
                with self._one_at_a_time():
                    got = self._next(now_ms() if records else deadline_ms, batch_only=bool(records))
                if got is None:
                    break
                rest = self._reading.hand_out(got)
            records += islice(rest, max_records - len(records))
        return records

    def _next(self, deadline_ms: float | None, *, batch_only: bool = False) -> Next | None:
        """The next batch that has records, or gap; None at the deadline or the end.

        `batch_only`: also None where it would raise, or be a gap.
        """
        self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        fetching = self._reading.fetching
        while True:
            with self._lock:
                fetched = fetching.prefetched.take(batch_only=batch_only)
                if fetched is None:
                    if fetching.is_ended:
                        return None
                    changed = fetching.changed()
            if fetched is not None:
                if fetched.gap is not None:
                    return fetched.gap
                try:
                    batch = fetching.open(fetched)
                except SegbrokerError:
                    with self._lock:
                        fetching.rewind(fetched)
                    if batch_only:
                        return None
                    raise
                if len(batch):
                    return fetched, batch
                continue
            left = None if deadline_ms is None else deadline_ms - now_ms()
            if left is not None and left <= 0:
                return None
            self._driver.wait(changed, left)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if self._is_busy:
            raise BusyError("another thread is reading from this consumer")
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    @property
    def lost_counts(self) -> dict[TopicPartition, int]:
        """How many offsets were lost, at most, of each partition that lost any, until now."""
        return dict(self._reading.fetching.prefetched.lost_counts)

    # Positions.

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that will be handed out."""
        tp = TopicPartition(topic, partition)
        deadline_ms = now_ms() + self._reading.engine.settings.api_timeout_ms
        while True:
            with self._lock:
                position = self._reading.position(tp)
                if position is not None:
                    return position
                self._reading.fetching.prefetched.raise_error()
                changed = self._reading.fetching.changed()
            self._driver.engine  # noqa: B018 - raises ClosedError outside the block
            if not self._driver.wait(changed, deadline_ms - now_ms()):
                raise self._reading.engine.network.unreachable()

    def positions(self) -> dict[TopicPartition, int]:
        """Of all partitions that are read."""
        return {tp: self.position(*tp) for tp in self.assignment}

    def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The first offset that can be read; of all that are read when none are given."""
        return self._driver.call(self._reading.beginning_offsets(partitions or None))

    def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read now."""
        return self._driver.call(self._reading.end_offsets(partitions or None))

    def offsets_for_times(
        self, times: dict[tuple[str, int], int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms or datetime), or None."""
        return self._driver.call(self._reading.offsets_for_times(times))

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self._driver.call(self._reading.partitions_for(topic))

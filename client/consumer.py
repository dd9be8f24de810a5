"""The blocking consumer: reads partitions, all of some topics or those that a group gives it.

    with Consumer("127.0.0.1:9092", "orders", start="start") as consumer:
        for record in consumer:
            ...

    with Consumer("127.0.0.1:9092", "orders", group="billing") as consumer:
        for record in consumer:
            ...                          committed when the loop comes back for the next

    for batch in consumer.batches():     columns: batch.values(), batch.to_arrow()
    consumer.poll(max_records=500, timeout_ms=1000)

Iteration goes on for ever, or with `stop_at_end=True` up to the end that was seen at the beginning.
Loss is never silent: lost offsets raise GapError, or do what `on_gap` says; a damaged batch raises
CorruptBatch.  After an error the consumer can still be used.

Only one thread at a time may read; a second one gets BusyError.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from functools import partial
from itertools import chain, islice
from threading import get_ident
from typing import Any, Generic, Literal, Never, Unpack, overload

from .assigned import Fetched
from .clock import now_ms
from .consumed import ConsumedBatch
from .driver import is_hurried
from .errors import SegbrokerError
from .group_events import Event, Listener
from .group_offsets import CommittedOffset, GroupMetadata
from .group_reading import CALLBACK_MS
from .reading import Notice, Reading, check_poll
from .records import ByPartition, Gap, OffsetAndTimestamp, Record, TopicPartition
from .settings import DEFAULT_BOOTSTRAP, ConsumerOptions, OnGap
from .starting import Start
from .thread_driver import Blocking, ThreadDriver
from .turns import Lists, Loop, Turns
from .waiting import as_ms


class Consumer(Blocking, Generic[Notice]):
    # What help() shows.
    __doc__ = f"{__doc__}\nAll sizes in bytes, all times in milliseconds.\n"

    @overload
    def __init__(
        self: "Consumer[Never]",
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
        self: "Consumer[Gap]",
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
        """A consumer; nothing is opened before its `with` block.

        topics: to read all partitions of; see also `subscribe` and `assign`.
        start: "start", "end", an offset, -n for "n before the end", or a datetime with time zone.
            Partitions that appear later are read from their start.
        stop_at_end: end at the end that each partition has when it is first looked at; in a group,
            when the group has no more for this member, either.
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
        accept_timeout_ms: ... while nobody accepts a connection; default: as long.
        api_timeout_ms: how long one call may take, retries included; and how long iterating
            goes on while no broker answers.
        metadata_max_age_ms: how often to look for new partitions, and topics of a pattern.
        client_id: what the broker calls this client in its logs and quotas.
        security: TLS and login; see Security.

        In a group (`group=` its name) the partitions are shared out among its members:
        pattern: instead of topics, all whose whole name the regular expression matches.
        start: where to begin in a partition of which the group has committed nothing.
        instance_id: a static member: it leaves nothing when it ends, and gets it back when it
            starts again within session_timeout_ms.
        group_protocol: "classic", or "consumer": the broker assigns (KIP-848), by its own session
            timeout and interval, and by group_remote_assignor ("uniform", "range"; default: its).
            Then assignors, session_timeout_ms and heartbeat_interval_ms are refused.
        auto_commit: commit what the caller has gone past, every commit_interval_ms, when a
            partition is given up, and at the end.
        assignors: the strategies it knows, the best liked first; by default all, with
            "cooperative-sticky" before "range", "roundrobin" and "sticky".
        session_timeout_ms, heartbeat_interval_ms, rebalance_timeout_ms: when a member counts as
            dead, how often it is heard of, how long a rebalance waits for its members.
        max_poll_interval_ms: leave the group when the caller neither waits for records nor comes
            back for so long, in a callback, too; default: never, a long job loses nothing while
            its process lives.
        on_assigned, on_revoked, on_lost: called with a list of partitions, between two records, in
            the thread that reads: before the first record of them; when they are given up, before
            they are committed; and when they are gone without asking (default: on_revoked).

        Raises ValueError for a value that cannot be used.
        """
        self._driver = ThreadDriver()
        self._turns = Turns()
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

    @property
    def _lock(self) -> AbstractContextManager[object]:
        # Plain, for reading: interrupted at any place, it has handed out nothing that nobody saw.
        return self._driver.lock.plain

    def close(self) -> None:
        """End; in a group commit what was gone past, and leave.  Again: nothing."""
        self._close(None)

    def _close(self, exc: BaseException | None) -> None:
        self._driver.check_may_stop()
        try:
            if self._reading.is_member and self._driver.is_open:
                self._say_goodbye(is_hurried(exc))
        finally:
            self._driver.stop()

    def _say_goodbye(self, hurried: bool) -> None:
        group = self._reading.group
        try:
            try:
                self._tell_last(hurried)
            except BaseException as cut:
                hurried = hurried or is_hurried(cut)
                raise
            finally:  # also where a callback raised
                if not hurried:
                    with suppress(SegbrokerError):
                        self._driver.call(group.told(), timeout_ms=CALLBACK_MS)
        except BaseException as cut:
            hurried = hurried or is_hurried(cut)
            raise
        finally:
            self._driver.say_goodbye(self._reading.goodbye, hurried=hurried)

    def _tell_last(self, hurried: bool) -> None:
        group, who = self._reading.group, get_ident()
        try:
            group.tellers.add(who)
            with self._driver.lock:
                events = self._reading.closing()
            if not hurried:
                _tell_all(events)
        finally:
            group.tellers.discard(who)

    # Which partitions.

    def subscribe(self, topics: Iterable[str], *, start: Start | None = None) -> None:
        """Read all partitions of these topics (instead of what was read before)."""
        topics = topics if isinstance(topics, str) else list(topics)
        with self._driver.lock:
            self._reading.subscribe(topics, start)

    def assign(self, partitions: Iterable[tuple[str, int]], *, start: Start | None = None) -> None:
        """Read exactly these (topic, partition); those read already go on where they are."""
        with self._driver.lock:
            self._reading.assign(partitions, start)

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is being read; of a subscribed topic after its partitions are known."""
        return list(self._reading.fetching.states)

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more to come, of a consumer with `stop_at_end`: a `poll` that
        returns nothing may have waited for too short a time."""
        with self._lock:
            return self._reading.is_ended

    def seek(self, topic: str, partition: int, to: Start) -> None:
        """Go on at `to`: an offset, "start", "end", -n, or a datetime."""
        with self._driver.lock:
            self._reading.seek(topic, partition, to)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing of these (none given: of all) until `resume`.

        In a loop over records the one in hand is the last of them; what waits is not lost.
        """
        with self._driver.lock:
            self._reading.pause(partitions or None)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand out and fetch these again (none given: all)."""
        with self._driver.lock:
            self._reading.resume(partitions or None)

    # Reading.

    def __iter__(self) -> Iterator[Record | Notice]:
        """Records, partition by partition as they come, each partition in order."""
        return chain.from_iterable(Lists(self._turns, self._next_list, self._reading.progress))

    def _next_list(self) -> Iterator[Any] | None:
        return self._next_records(None)

    def batches(self) -> Iterator[ConsumedBatch | Notice]:
        """Whole batches, as the broker stores them; the fast way.

        Of a batch that `for record in consumer` has begun the rest comes as a batch.
        """
        # A gap comes only where the caller asked for gaps: that is what Notice says.
        return Loop(self._turns, self._next_batch, self._reading.progress)  # type: ignore[arg-type]

    def _next_batch(self) -> ConsumedBatch | Gap | None:
        self._come_back()
        while True:
            with self._lock:
                rest = self._reading.take_rest()
            if rest is not None:
                return rest
            got = self._next(None)
            if got is None or isinstance(got, Gap):
                return got
            with self._lock:
                if got != "rest" and self._reading.hand_out_batch(got[0]):
                    return got[1]

    def poll(self, max_records: int = 500, timeout_ms: float = 1_000) -> list[Record | Notice]:
        """Up to `max_records` records; [] when none came within `timeout_ms`, or at the end.

        What goes wrong behind some records is raised by the next call, which has none.
        """
        return self._poll(max_records, timeout_ms)

    def _poll(
        self, max_records: int, timeout_ms: float, *, is_shown: bool = True
    ) -> list[Record | Notice]:
        """As `poll`.  Not `is_shown`: until somebody says that it is (Progress), so it comes again
        by the next one."""
        check_poll(max_records, timeout_ms)
        deadline_ms = now_ms() + timeout_ms
        records: list[Any] = []
        self._turns.begin()
        try:
            while len(records) < max_records:
                rest = self._next_records(
                    now_ms() if records else deadline_ms,
                    in_loop=False,
                    batch_only=bool(records),
                )
                if rest is None:
                    break
                records += islice(rest, max_records - len(records))
            if is_shown:
                self._reading.progress.is_shown = True
        finally:
            self._turns.thread = None
        return records

    def _next_records(
        self,
        deadline_ms: float | None,
        *,
        in_loop: bool = True,
        batch_only: bool = False,
    ) -> Iterator[Any] | None:
        """The next items: the rest of a batch, a new one's records, a gap; None: as `_next`."""
        reading = self._reading
        if not batch_only:
            self._come_back()
        while True:
            with self._lock:
                rest = reading.take_records(in_loop=in_loop)
            if rest is not None:
                return rest
            got = self._next(deadline_ms, batch_only=batch_only)
            if got is None:
                return None
            if isinstance(got, Gap):
                return iter((got,))
            if got != "rest":
                with self._lock:
                    reading.hand_out(*got)

    def _next(
        self, deadline_ms: float | None, *, batch_only: bool = False
    ) -> tuple[Fetched, ConsumedBatch] | Gap | Literal["rest"] | None:
        """The next batch that has records, or gap; None at the deadline or the end.

        "rest": of one that was begun and paused there is more to hand out now.
        `batch_only`: also None where it would raise, or be a gap.
        """
        self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        reading, fetching = self._reading, self._reading.fetching
        reading.check_chosen()
        if fetching.prefetched.left_unopened is not None:
            with self._driver.lock:
                fetching.rewind_unopened()
        while True:
            if not batch_only and reading.has_events:
                self._tell_events()
            with self._lock:
                if reading.has_rest:
                    return "rest"  # resumed a moment ago: what lies behind it comes after it
                fetched = fetching.prefetched.take(batch_only=batch_only)
                if fetched is None:
                    if reading.is_ended or get_ident() in reading.last_tellers:
                        return None
                    changed = fetching.changed()
            if fetched is not None:
                if fetched.gap is not None:
                    return fetched.gap
                try:
                    batch = fetching.open(fetched)
                except BaseException as exc:  # Ctrl-C, too: nobody has seen its records
                    with self._driver.lock:
                        fetching.rewind(fetched)
                    if batch_only and isinstance(exc, SegbrokerError):
                        return None
                    raise
                if len(batch):
                    return fetched, batch
                fetched.state.opening = None
                continue
            left = None if deadline_ms is None else deadline_ms - now_ms()
            if left is not None and left <= 0:
                return None
            if not (reading.has_events and not batch_only):
                try:
                    with self._lock:
                        reading.waits()
                    self._driver.wait(changed, left)
                finally:
                    reading.is_here()

    def _come_back(self) -> None:
        if self._reading.is_member:
            self._driver.engine  # noqa: B018 - raises ClosedError outside the block
        if self._reading.progress.unshown:
            with self._driver.lock:
                self._reading.take_back()
        with self._lock:
            self._reading.came_back()
        if self._reading.has_events:
            self._tell_events()

    def _tell_events(self) -> None:
        """Call what wants to know what the group gave and took."""
        group, who = self._reading.group, get_ident()
        try:
            group.tellers.add(who)
            while True:
                with self._lock:
                    event = group.events.next()
                if event is None:
                    return
                try:
                    if event.listener is not None and not event.is_told:
                        event.is_told = True  # no call before it: Ctrl-C would come there
                        if event.partitions:  # else it was too late, a moment ago
                            event.listener(event.partitions)
                finally:
                    with self._driver.lock:
                        self._reading.event_done(event)
        finally:
            group.tellers.discard(who)

    @property
    def lost_counts(self) -> dict[TopicPartition, int]:
        """How many offsets were lost, at most, of each partition that lost any, until now."""
        return dict(self._reading.fetching.prefetched.lost_counts)

    # As a member of a group.

    def commit(
        self,
        offsets: ByPartition[int | CommittedOffset] | Record | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit, and wait until that is done: what was handed out, a record, or these offsets.

        Without `offsets` everything handed out until now counts as processed, the record in hand
        included.  An offset is that of the next record to be read.  `timeout` in seconds.

        Raises IllegalGeneration and UnknownMemberId when what is to be committed was lost since it
        was handed out (its partition is another member's, or was), TimedOut, and what the broker
        says.
        """
        self._driver.call(
            self._reading.commit(offsets),
            timeout_ms=as_ms(timeout),
        )

    def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, CommittedOffset]:
        """Where the group stands in these (none given: in all that are read), if anywhere."""
        return self._driver.call(self._reading.committed(partitions or None))

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this member is, for `Producer.send_offsets`."""
        return self._reading.group_metadata

    # Positions.

    def lag(self) -> dict[TopicPartition, int]:
        """How many records are still to be handed out, as the last fetches said; asks nobody.

        Of each partition that was fetched from by now.  Deleted records count as well.
        """
        with self._lock:
            return self._reading.lag()

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record that will be handed out."""
        tp = TopicPartition(topic, partition)
        deadline_ms = now_ms() + self._reading.engine.settings.api_timeout_ms
        with self._lock:
            is_early = self._reading.fetching.subscription.is_early(tp)
        if is_early:
            self._driver.call(self._reading.subscribed_known())
        while True:
            with self._lock:
                position = self._reading.position(tp)
                if position is not None:
                    return position
                self._reading.fetching.prefetched.raise_error()
                changed = self._reading.fetching.changed()
            self._driver.engine  # noqa: B018 - raises ClosedError outside the block
            if not self._driver.wait(changed, deadline_ms - now_ms()):
                raise self._reading.why_no_position(tp)

    def positions(self) -> dict[TopicPartition, int]:
        """Of all partitions that are read."""
        self._driver.call(self._reading.subscribed_known())
        found: dict[TopicPartition, int] = {}
        for tp in self.assignment:
            try:
                found[tp] = self.position(*tp)
            except ValueError:
                if tp in self.assignment:
                    raise
                # A group took it away meanwhile: it is not read any more.
        return found

    def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The first offset that can be read; of all that are read when none are given."""
        return self._driver.call(self._reading.beginning_offsets(partitions or None))

    def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read now."""
        return self._driver.call(self._reading.end_offsets(partitions or None))

    def offsets_for_times(
        self, times: ByPartition[int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms or datetime), or None."""
        return self._driver.call(self._reading.offsets_for_times(times))

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self._driver.call(self._reading.partitions_for(topic))


def _tell_all(events: Sequence[Event]) -> None:
    """Also where one raises; of several the last is raised, in the context of the others."""
    if events:
        first, *rest = events
        try:
            if first.listener is not None:
                first.listener(first.partitions)
        except Exception:
            _tell_all(rest)
            raise
        _tell_all(rest)

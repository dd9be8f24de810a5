"""Records on their way: appended by the caller, in batches for the I/O side.

    send() --> inbox (see there) --drain--> columns, split by partition --place--> batches
    append, append_many -------------------------------------------------------> (see there)

A batch is columns (lists), so that an append is a few list appends and encoding is one call for
all of it.  Columns that nobody used (keys, headers, timestamps) do not exist.

The caller's thread seals and encodes what it filled; the I/O side what only time or a flush made
ready.

Threads: the caller's thread appends, the I/O thread takes and releases.  The shell holds one lock
around each of both; this module takes none.

Invariant: of one partition, what came before is placed before what comes after, whichever way in
it took: what is pending and what is left over of a topic goes first.
"""

from collections import deque
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from random import Random
from uuid import UUID

from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.limits import FRAME_SIZE_MAX
from segbroker.protocol.record_batch import HEADER_SIZE

from .batches import RECORD_OVERHEAD, Batches
from .columns import as_bytes, headers_size
from .completion import Completion
from .errors import BusyError, ClosedError, ConnectionLost, NoTransaction, SegbrokerError
from .inbox import ANY_PARTITION, Delivery, Group, Inbox, Many, Span
from .pending import partitions_for_keys, scatter
from .producer_batch import PartitionQueue, TopicQueue, WakeBy
from .records import HeaderPairs, Headers, check_headers, check_timestamp
from .settings import ProducerSettings


class Accumulator(Batches):
    """See the module."""

    def __init__(
        self,
        settings: ProducerSettings,
        random: Random,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        wake_by: WakeBy,
        wake_for_wait: WakeBy | None = None,
        delivery: type[Delivery] = Delivery,
        lock: AbstractContextManager[object] | None = None,
        undisturbed: AbstractContextManager[object] | None = None,
    ) -> None:
        """As Batches; `lock` is the shell's, for who settles a delivery from outside of it."""
        super().__init__(
            settings,
            random,
            now_ms=now_ms,
            wall_ms=wall_ms,
            wake_by=wake_by,
            wake_for_wait=wake_for_wait,
            undisturbed=undisturbed,
        )
        # The short way in, see inbox: the shells' send() appends there.
        self.inboxes: dict[str, Inbox] = {}
        # Those that somebody has put something into who could not look: the I/O side does.
        self.unseen: list[Inbox] = []
        # Those with a limit: what was put there lingers, or is told to the I/O side when it is put.
        self._lingering: dict[Inbox, None] = {}
        # The short way is closed: who sends is to hear of failures, and has sent nothing then.
        self._is_short_way_closed = False
        self._lock = lock if lock is not None else nullcontext()
        self._delivery = delivery

    # The caller's side.

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery | Completion[None]:
        """Append one record, or say what to wait for before trying again.

        A signal may come at any place of it (core_lock.py): the record is in a batch then, or in
        none.
        Raises what makes the record impossible (types, a partition that does not exist), and
        DeliveryFailed when undelivered records fill half the buffer.
        """
        self._check()
        inbox = self.inboxes.get(topic)
        if inbox is not None and not inbox.is_empty:
            with self.undisturbed:
                room = self._drain(inbox, force=False)
            if room is not None:
                return room
        value = as_bytes("value", value)
        key = as_bytes("key", key)
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms)
        queue = self._queue_for(topic, key, partition)
        if isinstance(queue, Completion):
            return queue
        more = (len(value) if value else 0) + (len(key) if key else 0) + RECORD_OVERHEAD
        pairs = None if headers is None else check_headers(headers)
        if pairs is not None:
            more += headers_size(pairs)
        if self._seal_if_full(queue, more):
            # Without a key the next batch goes to another partition.
            queue = self._queue_for(topic, key, partition)
            if isinstance(queue, Completion):
                return queue
        batch = self._room(queue, more)
        if isinstance(batch, Completion):
            return batch
        index = batch.add(value, key, pairs, timestamp_ms, more)
        return self._delivery(batch, index)

    def append_now(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        """As `append`; BusyError where there is something to wait for, which goes on meanwhile."""
        got = self.append(topic, value, key, headers, partition, timestamp_ms)
        if not isinstance(got, Completion):
            return got
        self._wake_by(0)
        why = f"topic {topic!r}, or its partition, is being looked up"
        if got is self._space:
            limit = self.settings.buffer_bytes
            why = f"{self.reserved_bytes} bytes are under way, buffer_bytes={limit}"
        raise BusyError(f"not sent: {why}; send() waits for that")

    def append_many(self, many: Many, *, at_once: bool = True) -> Completion[None] | bool:
        """Put the columns into batches; whether that is done, or what to wait for to go on.

        Not `at_once`: one batch at a time, so that others can run between.
        Raises as `append`; what came before is then on its way.
        """
        self._check()
        inbox = self.inboxes.get(many.topic)
        if inbox is not None and not inbox.is_empty:
            room = self._drain(inbox, force=False)
            if room is not None:
                return room
        if many.groups is None or many.topic not in self.topics:
            queue = self._queue_for(many.topic, None, many.partition)
            if isinstance(queue, Completion):
                return queue
        if many.groups is None:
            if many.partition is not None or many.keys is None:
                groups = [Group(many.span, ANY_PARTITION, many.values, many.keys)]
            else:
                groups = self._split(many.topic, many.span, many.values, many.keys)
            many.groups = deque(groups)
        while many.groups:
            placed = self._place(
                many.topic,
                many.groups[0],
                headers=many.headers,
                partition=many.partition,
                timestamp_ms=many.timestamp_ms,
                at_once=at_once,
            )
            if isinstance(placed, Completion):
                return placed
            if many.groups[0].is_placed:
                many.groups.popleft()
            if not at_once:
                break
        return not many.groups

    def turn_in(self, inbox: Inbox, *, wake: bool = True) -> Completion[None] | None:
        """A sender found `limit` records pending: open the inbox, or put them into batches.

        Answers what to wait for when the buffer has no room for all of them.  `wake`: the I/O
        side has to hear of it.  Raises nothing: the sender's own is taken by now.
        """
        if self.inboxes.get(inbox.topic) is not inbox:
            return None  # closed meanwhile: what was put there is in batches
        if inbox.pending.limit == 0:
            self._open_inbox(inbox, wake=wake)
            is_few = not inbox.leftover and len(inbox.pending) < inbox.limit_usual
            # What has lingered is put into batches whether or not there is room.
            if is_few and self.reserved_bytes < self.settings.buffer_bytes:
                return None
        room = self._drain(inbox, force=False)
        if room is None:
            self._open_inbox(inbox)
        return room

    def settle(self, inbox: Inbox) -> None:
        """Somebody waits for a pending record: put all of them into a batch, sealed."""
        with self._lock:
            self._drain(inbox, force=True)
            self._wake_by(0)

    def _close_inbox(self, inbox: Inbox) -> None:
        """Nothing more can be put; what was put since the last look is in batches too."""
        values, keys, span = inbox.pending.take(None)
        if values:
            assert isinstance(span, Span), "an inbox is closed once"
            inbox.leftover += self._split(inbox.topic, span, values, keys)
            self._place_leftover(inbox, force=True)

    def is_awaited(self) -> bool:
        """Whether a task waits for a record."""
        return any(queue.awaited_count for queue in self.active)

    def drain_all(self) -> None:
        """Put everything pending into batches (a flush)."""
        for inbox in self.inboxes.values():
            self._drain(inbox, force=True)

    def _open_inbox(self, inbox: Inbox, *, wake: bool = True) -> None:
        inbox.opened_ms = self._now_ms()
        inbox.wall_ms = self._wall_ms()
        inbox.pending.limit = inbox.limit_usual
        self._lingering[inbox] = None
        if wake:
            self._wake_by(inbox.opened_ms + self.linger_ms)

    def _drain(self, inbox: Inbox, *, force: bool) -> Completion[None] | None:
        """Move what is pending into batches; what to wait for when there is no room for all.

        Batches of records without keys are sealed: the next ones go to another partition.  Unless
        `force`, a last one that has little, what did not fit the one before, lingers for more.
        """
        room = self._place_leftover(inbox, force=force)
        if room is not None or not len(inbox.pending):
            return room
        size = inbox.pending.size  # without what is put before the next line: an estimate will do
        values, keys, span = inbox.pending.take(Span(inbox))
        assert isinstance(span, Span), "an inbox is closed when its accumulator is"
        mean = max(1, size // len(values)) + RECORD_OVERHEAD
        # The put that finds so many is one more: together as many as one batch takes.  Of all that
        # linger together as much as the buffer takes, which nothing pending has a place in.
        share_bytes = self.settings.buffer_bytes // max(1, len(self._lingering))
        full_bytes = min(self._full_bytes(inbox.topic), share_bytes)
        inbox.limit_usual = max(1, (full_bytes - HEADER_SIZE) // mean - 1)
        inbox.leftover += self._split(inbox.topic, span, values, keys)
        return self._place_leftover(inbox, force=force)

    def _split(
        self,
        topic: str,
        span: Span,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
    ) -> list[Group]:
        """Records of a known topic by partition; `span` gets to know which went where."""
        if keys is None:
            return [Group(span, ANY_PARTITION, values, None)]
        state = self.topics[topic]
        count = state.partition_count
        partitions = partitions_for_keys(keys, count)
        if ANY_PARTITION in partitions:
            # Those without a key go with the others of one partition, or they would overtake them.
            sticky = self._sticky(state).partition
            for row, key in enumerate(keys):
                if key is None:
                    partitions[row] = sticky
        span.partitions = partitions
        if count == 1:
            return [Group(span, 0, values, keys)]
        rows = zip(
            scatter(values, partitions, count), scatter(keys, partitions, count), strict=True
        )
        return [
            Group(span, partition, some_values, some_keys)
            for partition, (some_values, some_keys) in enumerate(rows)
            if some_values
        ]

    def _place(
        self,
        topic: str,
        group: Group,
        *,
        headers: HeaderPairs | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        inbox: Inbox | None = None,
        at_once: bool = True,
        force: bool = False,
    ) -> PartitionQueue | Completion[None]:
        """Put a group into batches: the queue of the last; or what to wait for to go on.

        Batches that were opened for an `inbox` are as old as what was put there.
        """
        queue = None
        if partition is None and group.partition != ANY_PARTITION:
            partition = group.partition
            # Also when the topic was recreated with fewer since the records were split.
            self.topics[topic].queue(partition)
        runs = group.span.runs.setdefault(group.partition, [])
        while not group.is_placed:
            got = self._append_some(
                topic,
                group.values,
                group.start,
                partition,
                timestamp_ms,
                keys=group.keys,
                headers=headers,
                force=force,
            )
            if isinstance(got, Completion):
                return got
            batch, first, count = got
            queue = batch.queue
            if inbox is not None and batch.opened_ms > inbox.opened_ms > 0:
                batch.opened_ms, batch.timestamp_ms = inbox.opened_ms, inbox.wall_ms
                batch.deadline_ms = inbox.opened_ms + self.settings.delivery_timeout_ms
            runs.append((group.start, count, batch, first))
            group.start += count
            if not at_once:
                break
        # Of no records at all (an empty send_many) it does not matter which.
        return queue or self.topics[topic].queue(0)

    def _place_leftover(self, inbox: Inbox, *, force: bool) -> Completion[None] | None:
        while inbox.leftover:
            group = inbox.leftover[0]
            queue = self._place(inbox.topic, group, inbox=inbox, force=force)
            if isinstance(queue, Completion):
                return queue
            inbox.leftover.popleft()
            batch = queue.open
            if (
                group.partition == ANY_PARTITION
                and batch is not None
                and (force or batch.size * 2 > self._full_bytes(inbox.topic))
            ):
                self.seal(queue)
                self._wake_by(0)
        return None

    # The I/O side.

    def topic_known(
        self,
        topic: str,
        partition_count: int,
        error: SegbrokerError | None,
        topic_id: UUID = ZERO_UUID,
        leaderless: Collection[int] = (),
    ) -> None:
        """The cluster view says how many partitions a topic has, or why it has none; and to which
        of them nothing can be sent for now."""
        state = self.topics.get(topic)
        if state is None:
            return
        if partition_count:
            if topic_id != state.topic_id:
                # Another topic of the name may have fewer.  What waits for partitions that it
                # has not fails when its time is over, and is handed back.
                state.topic_id = topic_id
                state.partition_count = partition_count
                state.sticky = None
                state.fits_bytes = FRAME_SIZE_MAX
            # Else never fewer: keys of a moment ago must not change their order.
            state.partition_count = max(partition_count, state.partition_count)
        state.leaderless = leaderless
        if state.sticky is not None and state.sticky.partition in leaderless:
            state.sticky = None
        state.error = None if state.partition_count else error
        if self.error is None and not self._is_short_way_closed:
            self._make_inbox(state)
        if (state.partition_count or error is not None) and not state.known.done:
            known, state.known = state.known, Completion()
            known.resolve(None)

    def let_go(self, topic: str) -> None:
        """The topic has been gone for long: nothing of it is kept, unless there is something for
        it, or somebody waits for what it has."""
        state = self.topics.get(topic)
        if state is None or state.beyond:
            return
        inbox = self.inboxes.pop(topic, None)
        if inbox is not None:
            self._lingering.pop(inbox, None)
            self._shut_inbox(inbox)
        if not any(queue in self.active for queue in state.partitions.values()):
            del self.topics[topic]

    def seal_due(self, now_ms: int) -> None:
        """Seal what has lingered, what somebody waits for, and all of it when memory is short."""
        linger_ms = self.linger_ms
        if self.is_failing:
            self._is_short_way_closed = True
            self._close_inboxes()
        elif self._is_short_way_closed and self.error is None:
            self._make_inboxes()
        while self.unseen:
            inbox = self.unseen.pop()
            if not inbox.pending.limit and len(inbox.pending):
                self._open_inbox(inbox)
        hurry = self._space is not None
        for inbox in list(self._lingering):
            if hurry or now_ms >= inbox.opened_ms + linger_ms:
                self._drain(inbox, force=True)
                del self._lingering[inbox]
                inbox.pending.limit = 0
                # Only now look: whoever put before saw the old limit, see inbox.
                if len(inbox.pending):
                    self._open_inbox(inbox)
        for queue in self.active:
            batch = queue.open
            if (
                batch is not None
                and batch.values
                and (hurry or batch.urgent or now_ms >= batch.opened_ms + linger_ms)
            ):
                self.seal(queue)

    def next_linger_ms(self) -> int | None:
        linger_ms = self.linger_ms
        wake = None
        for inbox in self._lingering:
            due = inbox.opened_ms + linger_ms
            if wake is None or due < wake:
                wake = due
        for queue in self.active:
            batch = queue.open
            if batch is not None and batch.values:
                due = 0 if batch.urgent else batch.opened_ms + linger_ms
                if wake is None or due < wake:
                    wake = due
        return wake

    # Between transactions.

    def shut(self, error: NoTransaction) -> None:
        """Take nothing more, for now; what was taken stays on its way."""
        self.error = error
        self._close_inboxes()
        self.wake_senders()

    def reopen(self) -> None:
        """Take records again."""
        self.error = None
        self._make_inboxes()

    def _make_inboxes(self) -> None:
        self._is_short_way_closed = False
        for state in self.topics.values():
            self._make_inbox(state)

    def _make_inbox(self, state: TopicQueue) -> None:
        if state.partition_count and state.name not in self.inboxes:
            self.inboxes[state.name] = Inbox(state.name, self.settle, self._delivery)

    def _close_inboxes(self) -> None:
        inboxes = list(self.inboxes.values())
        self.inboxes.clear()
        self._lingering.clear()
        for inbox in inboxes:
            self._shut_inbox(inbox)

    def _shut_inbox(self, inbox: Inbox) -> None:
        """What was put there is in batches; nothing more can be put."""
        self._drain(inbox, force=True)
        self._close_inbox(inbox)

    def break_off(self, error: SegbrokerError) -> None:
        """Nothing more will be sent: everything unfinished fails with `error`."""
        self._close_inboxes()
        if isinstance(self.error, NoTransaction):
            self.error = None
        self.error = error if isinstance(error, ClosedError) else self.error or error
        for queue in list(self.active):
            for batch in queue.in_flight:
                batch.doubt = ConnectionLost("its answer was not waited for")
            batches = [*queue.in_flight, *queue.sealed]
            queue.in_flight = []
            queue.sealed.clear()
            self._fail_all(queue, batches, error)
            self.active.pop(queue, None)
        for state in self.topics.values():
            for awaited in (state.known, *state.beyond.values()):
                if not awaited.done:
                    awaited.resolve(None)
        self.wake_senders()

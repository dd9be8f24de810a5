"""Records on their way: appended by the caller, taken as batches by the I/O side.

    send() --> open batch of a partition --seal--> sealed batches, oldest first --take--> in flight
                columns: values, keys, ...          encoded by one kernel call

A batch is columns (lists), so that an append is a few list appends and encoding is one call for
all of it.  Columns that nobody used (keys, headers, timestamps) do not exist.

A batch is *sealed* when the next record does not fit `batch_bytes`, when it has lingered, when
somebody waits for it, or at a flush.  The caller's thread seals and encodes what it filled;
the I/O side what only time or a flush made ready.

Records without a key stick to one partition until its batch is sealed, then another is drawn:
few large batches instead of many small ones.  Records with a key go where murmur2 says.

Memory: a batch *reserves* its bytes in steps before they are appended.  When the reservations
reach `buffer_bytes`, `append` returns a Completion to wait for instead of a delivery; it is done
when the buffer has drained to half, so that the waiter does not wake for every batch.

Records of one batch that were given no timestamp share the time at which the batch was opened.

Threads: the caller's thread appends, the I/O thread takes and releases.  The shell holds one lock
around each of both; this module takes none.

Invariant: sequences of a partition are numbered in the order of sealing, which is the order of
sending; a batch keeps its records until it is acknowledged, so that a failure can hand them back.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from operator import add
from random import Random
from uuid import UUID

from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.limits import TOPIC_NAME_SIZE_MAX
from segbroker.protocol.record_batch import HEADER_SIZE, encode_batch

from .columns import as_bytes, column_of, headers_size, size_of, total_size
from .completion import Completion
from .errors import ClosedError, DeliveryFailed, NoTransaction, SegbrokerError, Undelivered
from .inbox import ANY_PARTITION, Delivery, Group, Inbox, Many, Span
from .pending import partitions_for_keys, scatter
from .producer_batch import PartitionQueue, ProducerBatch, TopicQueue, WakeBy
from .records import Headers, check_headers
from .settings import ProducerSettings

# What a record takes beside key, value and headers; at most, for records below 2 MiB whose
# timestamps lie within half an hour.
RECORD_OVERHEAD = 16
# A batch's first reservation; doubled as it fills.
RESERVE_FIRST_BYTES = 16 << 10
SEQUENCES = 1 << 31


class Accumulator:
    """See the module."""

    def __init__(
        self,
        settings: ProducerSettings,
        random: Random,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        wake_by: WakeBy,
        delivery: type[Delivery] = Delivery,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """`wake_by(t)` tells the I/O side that it has to look at `t` (ms) at the latest."""
        self.settings = settings
        self.topics: dict[str, TopicQueue] = {}
        # Queues that hold anything, for the I/O side; a dict for its order.
        self.active: dict[PartitionQueue, None] = {}
        self.failed: list[ProducerBatch] = []
        self.reserved_bytes = 0
        self.failed_bytes = 0
        self.error: SegbrokerError | None = None
        self.unfinished_count = 0
        self.sealed_count = 0
        self.flushing = False
        # The short way in, see inbox: the shells' send() appends there.
        self.inboxes: dict[str, Inbox] = {}
        self._lock = lock if lock is not None else nullcontext()
        self._random = random
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._wake_by = wake_by
        self._delivery = delivery
        self._space: Completion[None] | None = None
        self.wanted: Callable[[str], object] = _nothing

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

        Raises what makes the record impossible (types, a partition that does not exist), and
        DeliveryFailed when undelivered records fill half the buffer.
        """
        inbox = self.inboxes.get(topic)
        if inbox is not None and not inbox.is_empty:
            room = self._drain(inbox, force=False)
            if room is not None:
                return room
        value = as_bytes("value", value)
        key = as_bytes("key", key)
        queue = self._queue_for(topic, key, partition)
        if isinstance(queue, Completion):
            return queue
        more = (len(value) if value else 0) + (len(key) if key else 0) + RECORD_OVERHEAD
        if headers is not None:
            headers = check_headers(headers)
            more += headers_size(headers)
        if self._seal_if_full(queue, more):
            # Without a key the next batch goes to another partition.
            queue = self._queue_for(topic, key, partition)
            if isinstance(queue, Completion):
                return queue
        batch = self._room(queue, more)
        if isinstance(batch, Completion):
            return batch
        values = batch.values
        index = len(values)
        if key is not None or batch.keys is not None:
            if batch.keys is None:
                batch.keys = [None] * index
            batch.keys.append(key)
        if headers is not None or batch.headers is not None:
            if batch.headers is None:
                batch.headers = [None] * index
            batch.headers.append(headers)
        if timestamp_ms is not None or batch.timestamps is not None:
            if batch.timestamps is None:
                batch.timestamps = [batch.timestamp_ms] * index
            batch.timestamps.append(batch.timestamp_ms if timestamp_ms is None else timestamp_ms)
        values.append(value)
        batch.size += more
        return self._delivery(batch, index)

    def _append_some(
        self,
        topic: str,
        values: Sequence[bytes | None],
        start: int,
        partition: int | None,
        timestamp_ms: int | None,
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers | None = None,
        force: bool = False,
    ) -> tuple[ProducerBatch, int, int] | Completion[None]:
        """Append values[start:] as far as one batch takes them: (batch, first index, count).

        `keys` do not decide the partition here; `headers` are those of each record, checked.
        `force`: whether or not there is room in the buffer.
        """
        queue = self._queue_for(topic, None, partition, force=force)
        if isinstance(queue, Completion):
            return queue
        overhead = RECORD_OVERHEAD + (headers_size(headers) if headers else 0)
        least = size_of(values[start]) + overhead
        if keys is not None:
            least += size_of(keys[start])
        if self._seal_if_full(queue, least):
            queue = self._queue_for(topic, None, partition, force=force)
            if isinstance(queue, Completion):
                return queue
        batch = self._room(queue, least, force=force)
        if isinstance(batch, Completion):
            return batch
        # As many as may fit by the size of the first; then exactly, where that was too many.
        room = max(batch.reserved, self._reserve_up_to(batch)) - batch.size
        stop = start + max(1, room // least)
        taken = column_of("value", values, start, stop)
        taken_keys = None if keys is None else column_of("key", keys, start, stop)
        total = total_size(taken) + overhead * len(taken)
        if taken_keys is not None:
            total += total_size(taken_keys)
        if total > room:
            sizes = map(size_of, taken)
            if taken_keys is not None:
                sizes = map(add, sizes, map(size_of, taken_keys))
            ends = list(accumulate(sizes, lambda end, size: end + size + overhead, initial=0))
            fits = max(1, bisect_right(ends, room) - 1)
            del taken[fits:]
            if taken_keys is not None:
                del taken_keys[fits:]
            total = ends[fits]
        index = len(batch.values)
        count = len(taken)
        if taken_keys is not None or batch.keys is not None:
            if batch.keys is None:
                batch.keys = [None] * index
            batch.keys += [None] * count if taken_keys is None else taken_keys
        if headers is not None or batch.headers is not None:
            if batch.headers is None:
                batch.headers = [None] * index
            batch.headers += [headers] * count
        if timestamp_ms is not None or batch.timestamps is not None:
            if batch.timestamps is None:
                batch.timestamps = [batch.timestamp_ms] * index
            batch.timestamps += [
                batch.timestamp_ms if timestamp_ms is None else timestamp_ms
            ] * count
        batch.values += taken
        batch.size += total
        return batch, index, count

    def append_many(self, many: Many, *, at_once: bool = True) -> Completion[None] | bool:
        """Put the columns into batches; whether that is done, or what to wait for to go on.

        Not `at_once`: one batch at a time, so that others can run between.
        Raises as `append`; what came before is then on its way.
        """
        inbox = self.inboxes.get(many.topic)
        if inbox is not None and not inbox.is_empty:
            room = self._drain(inbox, force=False)
            if room is not None:
                return room
        if many.groups is None:
            queue = self._queue_for(many.topic, None, many.partition)
            if isinstance(queue, Completion):
                return queue
            keys = None if many.keys is None else column_of("key", many.keys, 0, len(many.keys))
            if many.partition is not None or keys is None:
                groups = [Group(many.span, ANY_PARTITION, many.values, keys)]
            else:
                groups = self._split(many.topic, many.span, many.values, keys)
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
        side has to hear of it.
        """
        if self.error is not None:
            raise self.error
        if inbox.pending.limit == 0:
            self._open_inbox(inbox, wake=wake)
            if not inbox.leftover and len(inbox.pending) < inbox.limit_usual:
                return None
        if self.failed_bytes * 2 > self.settings.buffer_bytes:
            raise DeliveryFailed(self.take_undelivered())
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

    def drain_all(self) -> None:
        """Put everything pending into batches (a flush)."""
        for inbox in self.inboxes.values():
            self._drain(inbox, force=True)

    def _open_inbox(self, inbox: Inbox, *, wake: bool = True) -> None:
        inbox.opened_ms = self._now_ms()
        inbox.wall_ms = self._wall_ms()
        inbox.pending.limit = inbox.limit_usual
        if wake:
            self._wake_by(inbox.opened_ms + self.settings.linger_ms)

    def _drain(self, inbox: Inbox, *, force: bool) -> Completion[None] | None:
        """Move what is pending into batches; what to wait for when there is no room for all.

        Batches of records without keys are sealed: the next ones go to another partition.
        """
        room = self._place_leftover(inbox, force=force)
        if room is not None or not len(inbox.pending):
            return room
        values, keys, span = inbox.pending.take(Span(inbox))
        assert isinstance(span, Span), "an inbox is closed when its accumulator is"
        size = sum(map(len, values))
        if keys is not None:
            size += total_size(keys)
        mean = max(1, size // len(values)) + RECORD_OVERHEAD
        inbox.limit_usual = max(1, (self.settings.batch_bytes - HEADER_SIZE) // mean)
        inbox.leftover += self._split(inbox.topic, span, values, keys)
        return self._place_leftover(inbox, force=force)

    def _split(
        self,
        topic: str,
        span: Span,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
    ) -> list[Group]:
        """Records of a known topic by partition; `span` gets to know which went where."""
        if keys is None:
            return [Group(span, ANY_PARTITION, values, None)]
        count = self.topics[topic].partition_count
        partitions = span.partitions = partitions_for_keys(keys, count)
        if count == 1 and ANY_PARTITION not in partitions:
            return [Group(span, 0, values, keys)]
        rows = zip(
            scatter(values, partitions, count), scatter(keys, partitions, count), strict=True
        )
        groups = []
        for partition, (some_values, some_keys) in enumerate(rows):
            if not some_values:
                continue
            if partition == count:
                groups.append(Group(span, ANY_PARTITION, some_values, None))
            else:
                groups.append(Group(span, partition, some_values, some_keys))
        return groups

    def _place(
        self,
        topic: str,
        group: Group,
        *,
        headers: Headers | None = None,
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
            if group.partition == ANY_PARTITION and queue.open is not None:
                self.seal(queue)
                self._wake_by(0)
        return None

    def _queue_for(
        self, topic: str, key: bytes | None, partition: int | None, *, force: bool = False
    ) -> PartitionQueue | Completion[None]:
        if not force and self.error is not None:
            raise self.error
        if not force and self.failed_bytes * 2 > self.settings.buffer_bytes:
            raise DeliveryFailed(self.take_undelivered())
        state = self.topics.get(topic)
        if state is None:
            state = self._new_topic(topic)
        if state.error is not None:
            # Said once; the next record of the topic makes us look again.
            error, state.error = state.error, None
            self.wanted(topic)
            raise error
        if not state.partition_count:
            return state.known
        if partition is not None:
            if not 0 <= partition < state.partition_count and partition not in state.partitions:
                raise ValueError(
                    f"partition {partition} of topic {topic!r} is outside"
                    f" [0, {state.partition_count})"
                )
            return state.queue(partition)
        if key is not None:
            return state.queue(partitions_for_keys([key], state.partition_count)[0])
        if state.sticky is None:
            state.sticky = state.queue(self._random.randrange(state.partition_count))
        return state.sticky

    def _new_topic(self, topic: str) -> TopicQueue:
        if not isinstance(topic, str):
            raise TypeError(f"topic is a {type(topic).__name__}, not a str")
        if not 0 < len(topic.encode()) <= TOPIC_NAME_SIZE_MAX + 49:
            raise ValueError(f"topic name of {len(topic.encode())} bytes")
        state = self.topics[topic] = TopicQueue(topic, self._wake_by)
        self.wanted(topic)
        return state

    def _seal_if_full(self, queue: PartitionQueue, more: int) -> bool:
        """Seal the open batch when `more` bytes do not fit; a first record always does."""
        batch = queue.open
        if batch is None or not batch.values or batch.size + more <= self.settings.batch_bytes:
            return False
        self.seal(queue)
        self._wake_by(0)
        return True

    def _room(
        self, queue: PartitionQueue, more: int, *, force: bool = False
    ) -> ProducerBatch | Completion[None]:
        """A batch of the queue with `more` bytes reserved and not used yet."""
        batch = queue.open
        if batch is not None and batch.size + more <= batch.reserved:
            return batch
        held = batch.reserved if batch is not None else 0
        needed = (batch.size if batch is not None else HEADER_SIZE) + more
        reserve = max(needed, min(self.settings.batch_bytes, held * 2 or RESERVE_FIRST_BYTES))
        # One record larger than the whole buffer may pass alone; else nothing could ever send it.
        if (
            not force
            and self.reserved_bytes
            and (self.reserved_bytes + reserve - held > self.settings.buffer_bytes)
        ):
            if self._space is None:
                self._space = Completion()
            self._wake_by(0)
            return self._space
        self.reserved_bytes += reserve - held
        if batch is None:
            batch = self._open(queue)
        batch.reserved = reserve
        return batch

    def _reserve_up_to(self, batch: ProducerBatch) -> int:
        """Reserve as much of a whole batch as the buffer has; the reservation then."""
        free = self.settings.buffer_bytes - self.reserved_bytes
        more = min(self.settings.batch_bytes - batch.reserved, free)
        if more > 0:
            batch.reserved += more
            self.reserved_bytes += more
        return batch.reserved

    def _open(self, queue: PartitionQueue) -> ProducerBatch:
        now_ms = self._now_ms()
        batch = queue.open = ProducerBatch(queue, now_ms, self._wall_ms())
        batch.deadline_ms = now_ms + self.settings.delivery_timeout_ms
        self.active[queue] = None
        self.unfinished_count += 1
        self._wake_by(now_ms + self.settings.linger_ms)
        return batch

    # Both sides.

    def seal(self, queue: PartitionQueue) -> None:
        """Close the open batch of a queue: numbered, encoded when the producer id is known."""
        batch = queue.open
        assert batch is not None, "there is an open batch"
        assert batch.values, "only a batch with records is sealed"
        queue.open = None
        batch.count = len(batch.values)
        state = self.topics[queue.topic]
        if state.sticky is queue:
            state.sticky = None
        # What was reserved and not used goes back.
        self.reserved_bytes -= batch.reserved - batch.size
        batch.reserved = batch.size
        if self.settings.idempotent:
            batch.sequence = queue.next_sequence
            queue.next_sequence = (queue.next_sequence + batch.count) % SEQUENCES
        queue.sealed.append(batch)
        self.sealed_count += 1
        if queue.producer_id >= 0 or not self.settings.idempotent:
            self.encode(batch)

    def encode(self, batch: ProducerBatch) -> bytes:
        """The wire form of a sealed batch, made once per producer identity."""
        if batch.encoded is None:
            queue = batch.queue
            batch.encoded = encode_batch(
                batch.values,
                timestamps_ms=batch.timestamp_ms if batch.timestamps is None else batch.timestamps,
                keys=batch.keys,
                headers=batch.headers,
                codec=self.settings.codec,
                producer_id=queue.producer_id,
                producer_epoch=queue.epoch,
                base_sequence=batch.sequence,
                transactional=self.settings.transactional_id is not None,
            )
        return batch.encoded

    # The I/O side.

    def topic_known(
        self,
        topic: str,
        partition_count: int,
        error: SegbrokerError | None,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        """The cluster view says how many partitions a topic has, or why it has none."""
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
            # Else never fewer: keys of a moment ago must not change their order.
            state.partition_count = max(partition_count, state.partition_count)
        state.error = None if state.partition_count else error
        if state.partition_count and topic not in self.inboxes and self.error is None:
            self.inboxes[topic] = Inbox(self, topic, self._delivery)
        if (state.partition_count or error is not None) and not state.known.done:
            known, state.known = state.known, Completion()
            known.resolve(None)

    def seal_due(self, now_ms: int) -> None:
        """Seal what has lingered, what somebody waits for, and all of it when memory is short."""
        linger_ms = self.settings.linger_ms
        hurry = self.flushing or self._space is not None
        for inbox in self.inboxes.values():
            if inbox.pending.limit and (hurry or now_ms >= inbox.opened_ms + linger_ms):
                self._drain(inbox, force=True)
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
        linger_ms = self.settings.linger_ms
        wake = None
        for inbox in self.inboxes.values():
            if inbox.pending.limit:
                due = inbox.opened_ms + linger_ms
                if wake is None or due < wake:
                    wake = due
        for queue in self.active:
            batch = queue.open
            if batch is not None:
                due = 0 if batch.urgent else batch.opened_ms + linger_ms
                if wake is None or due < wake:
                    wake = due
        return wake

    def finished(self, batch: ProducerBatch) -> None:
        """A batch is done with: acknowledged, failed or split.  Its memory is free, unless the
        records have to be handed back; then it is when they have been."""
        self.unfinished_count -= 1
        queue = batch.queue
        if queue.open is None and not queue.sealed and not queue.in_flight:
            self.active.pop(queue, None)
        if batch.error is not None:
            self.failed.append(batch)
            self.failed_bytes += batch.reserved
        self.reserved_bytes -= batch.reserved
        assert self.reserved_bytes >= 0, f"released more than reserved: {self.reserved_bytes}"
        if self.reserved_bytes * 2 <= self.settings.buffer_bytes:
            self.wake_senders()

    def wake_senders(self) -> None:
        if self._space is not None:
            space, self._space = self._space, None
            space.resolve(None)

    def take_undelivered(self) -> list[Undelivered]:
        """All records that failed and whose failure nobody has seen; afterwards it is seen."""
        failed, self.failed = self.failed, []
        self.failed_bytes = 0
        return [record for batch in failed for record in batch.undelivered()]

    # Between transactions.

    def shut(self, error: NoTransaction) -> None:
        """Take nothing more, for now; what was taken stays on its way."""
        self.error = error
        self._close_inboxes()
        self.wake_senders()

    def reopen(self) -> None:
        """Take records again."""
        self.error = None
        for name, state in self.topics.items():
            if state.partition_count:
                self.inboxes[name] = Inbox(self, name, self._delivery)

    def drop_unsent(self, error: SegbrokerError) -> bool:
        """Everything that is not in flight fails with `error`.

        Whether that leaves a hole in the sequences: what was sent once may be there.
        """
        has_hole = False
        for queue in list(self.active):
            batches = list(queue.sealed)
            fresh = [batch for batch in batches if not batch.is_sent]
            has_hole = has_hole or len(fresh) < len(batches)
            if fresh and fresh[0].sequence >= 0:
                queue.next_sequence = fresh[0].sequence
            queue.sealed.clear()
            self._fail_all(queue, batches, error)
        return has_hole

    def _fail_all(
        self, queue: PartitionQueue, batches: list[ProducerBatch], error: SegbrokerError
    ) -> None:
        """These, and the open one."""
        if queue.open is not None:
            if queue.open.values:
                queue.open.count = len(queue.open.values)
                batches.append(queue.open)
            else:
                self.unfinished_count -= 1
                self.reserved_bytes -= queue.open.reserved
        queue.open = None
        for batch in batches:
            if not batch.done:
                batch.fail(error)
                self.finished(batch)

    def _close_inboxes(self) -> None:
        inboxes = list(self.inboxes.values())
        self.inboxes.clear()
        for inbox in inboxes:
            self._drain(inbox, force=True)
            self._close_inbox(inbox)

    def break_off(self, error: SegbrokerError) -> None:
        """Nothing more will be sent: everything unfinished fails with `error`."""
        self._close_inboxes()
        if isinstance(self.error, NoTransaction):
            self.error = None
        self.error = error if isinstance(error, ClosedError) else self.error or error
        for queue in list(self.active):
            batches = [*queue.in_flight, *queue.sealed]
            queue.in_flight = []
            queue.sealed.clear()
            self._fail_all(queue, batches, error)
            self.active.pop(queue, None)
        for state in self.topics.values():
            if not state.known.done:
                state.known.resolve(None)
        self.wake_senders()


def _nothing(topic: str) -> None:
    """Before a producer is attached nobody wants to know which topics are used."""

"""A producer's batches from their first record to their end, and the memory that they take.

    topic, key, partition --> queue --room--> open batch --seal--> sealed, oldest first
                                       |                                |
                            nothing free: a Completion         sent, then finished

A batch is *sealed* when the next record does not fit `batch_bytes`, when it has lingered, when
somebody waits for it, or at a flush.  It is numbered then, and encoded when the producer id is
known.

Records without a key stick to one partition until its batch is sealed, then another is drawn:
few large batches instead of many small ones.  Records with a key go where murmur2 says.

Memory: a batch *reserves* its bytes in steps before they are appended.  When the reservations
reach `buffer_bytes`, there is a Completion to wait for instead of room; it is done when the buffer
has drained to half, so that the waiter does not wake for every batch.

Records of one batch that were given no timestamp share the time at which the batch was opened.

Invariant: sequences of a partition are numbered in the order of sealing, which is the order of
sending (the broker is told them where it is to know what is sent again); a batch keeps its records
until it is acknowledged, so that a failure can hand them back.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, chain, islice
from operator import add
from random import Random

from segbroker.protocol import limits
from segbroker.protocol.compression import Codec
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.limits import TOPIC_NAME_SIZE_MAX
from segbroker.protocol.record_batch import HEADER_SIZE, encode_batch

from .columns import headers_size, size_of, total_size
from .completion import Completion
from .errors import (
    NAMED_MAX,
    DeliveryFailed,
    SegbrokerError,
    Undelivered,
    broker_error,
    say_undelivered,
)
from .pending import partitions_for_keys
from .producer_batch import PartitionQueue, ProducerBatch, TopicQueue, WakeBy
from .records import HeaderPairs, check_text
from .settings import ProducerSettings

# What a record takes beside key, value and headers; at most, for records below 2 MiB whose
# timestamps lie within half an hour.
RECORD_OVERHEAD = 16
# A batch's first reservation; doubled as it fills.
RESERVE_FIRST_BYTES = 16 << 10
SEQUENCES = 1 << 31
# For so long a topic has not grown again.
LOOKED_MS = 10_000


class Batches:
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
        undisturbed: AbstractContextManager[object] | None = None,
    ) -> None:
        """`wake_by(t)` tells the I/O side that it has to look at `t` (ms) at the latest.

        wake_for_wait: the same by who then waits for a record; None: the same.
        undisturbed: in it no signal is handled.
        """
        self.undisturbed = undisturbed if undisturbed is not None else nullcontext()
        self.settings = settings
        # What lingers is to be delivered in time all the same.
        self.linger_ms = min(settings.linger_ms, settings.delivery_timeout_ms // 2)
        self.topics: dict[str, TopicQueue] = {}
        # Queues that hold anything, for the I/O side: whose turn to send is next comes first.
        self.active: OrderedDict[PartitionQueue, None] = OrderedDict()
        self.failed: list[ProducerBatch] = []
        self.reserved_bytes = 0
        self.failed_bytes = 0
        self.error: SegbrokerError | None = None
        self.unfinished_count = 0
        self.sealed_count = 0
        self.wanted: Callable[[str], object] = _nothing
        self.looked_again: Callable[[str], Completion[None]] | None = None
        self._random = random
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._wake_by = wake_by
        self._wake_for_wait = wake_for_wait or wake_by
        self._space: Completion[None] | None = None

    # Which queue, which batch.

    def _check(self) -> None:
        """In front of what a caller gives: raises why it is not taken; DeliveryFailed where records
        that failed unseen fill half the buffer."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # else it grows with each call
        if self.is_failing:
            self.raise_undelivered()  # nothing, where somebody has seen all of them meanwhile

    def _queue_for(
        self, topic: str, key: bytes | None, partition: int | None
    ) -> PartitionQueue | Completion[None]:
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
            if not isinstance(partition, int):
                raise TypeError(f"partition={partition!r} is not an int")
            if not 0 <= partition < state.partition_count and partition not in state.partitions:
                return self._look_again(state, partition)
            return state.queue(partition)
        if key is not None:
            return state.queue(partitions_for_keys([key], state.partition_count)[0])
        return self._sticky(state)

    def _sticky(self, state: TopicQueue) -> PartitionQueue:
        """Where records without a key go, until the batch there is sealed."""
        if state.sticky is None:
            state.sticky = state.queue(self._any_partition(state))
        return state.sticky

    def _any_partition(self, state: TopicQueue) -> int:
        """One to which something can be sent, where there is any."""
        count = state.partition_count
        if not 0 < len(state.leaderless) < count:
            return self._random.randrange(count)
        return self._random.choice([n for n in range(count) if n not in state.leaderless])

    def _look_again(self, state: TopicQueue, partition: int) -> Completion[None]:
        """What to wait for, as the topic may have grown; ValueError when that was just looked at.
        Whoever waited for that may be gone: then it is of no use to who comes much later."""
        looked_ms = state.looked_ms.pop(partition, None)
        is_looked_at = looked_ms is not None and self._now_ms() - looked_ms <= LOOKED_MS
        if partition <= 0 or self.looked_again is None or is_looked_at:
            raise ValueError(
                f"partition {partition} of topic {state.name!r} is outside"
                f" [0, {state.partition_count})"
            )
        looked = state.beyond.get(partition)
        if looked is None or looked.done:
            looked = self.looked_again(state.name)
            looked.on_done(lambda: self._looked_at(state, partition))
            state.beyond[partition] = looked
            self._wake_by(0)
        return looked

    def _looked_at(self, state: TopicQueue, partition: int) -> None:
        state.beyond.pop(partition, None)
        state.looked_ms[partition] = self._now_ms()

    def _new_topic(self, topic: str) -> TopicQueue:
        check_text("topic", topic)
        if not 0 < len(topic.encode()) <= TOPIC_NAME_SIZE_MAX:
            raise ValueError(f"topic name of {len(topic.encode())} bytes")
        state = self.topics[topic] = TopicQueue(topic, self._wake_for_wait)
        self.wanted(topic)
        return state

    def _append_some(
        self,
        topic: str,
        values: list[bytes | None],
        start: int,
        partition: int | None,
        timestamp_ms: int | None,
        *,
        keys: list[bytes | None] | None,
        headers: HeaderPairs | None,
        force: bool,
    ) -> tuple[ProducerBatch, int, int] | Completion[None]:
        """Append values[start:] as far as one batch takes them: (batch, first index, count).

        All are bytes or None: nothing raises between the reservation and the append, or a batch
        would stay open that has no records.

        `keys` do not decide the partition here; `headers` are those of each record, checked.
        `force`: whether or not there is room in the buffer.
        """
        queue = self._queue_for(topic, None, partition)
        if isinstance(queue, Completion):
            return queue
        overhead = RECORD_OVERHEAD + (headers_size(headers) if headers else 0)
        least = size_of(values[start]) + overhead
        if keys is not None:
            least += size_of(keys[start])
        if self._seal_if_full(queue, least):
            queue = self._queue_for(topic, None, partition)
            if isinstance(queue, Completion):
                return queue
        batch = self._room(queue, least, force=force)
        if isinstance(batch, Completion):
            return batch
        # As many as may fit by the size of the first; then exactly, where that was too many.
        room = max(batch.reserved, self._reserve_up_to(batch)) - batch.size
        stop = start + max(1, room // least)
        taken = values[start:stop]
        taken_keys = None if keys is None else keys[start:stop]
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
        index = batch.extend(taken, taken_keys, headers, timestamp_ms, total)
        return batch, index, len(taken)

    def _seal_if_full(self, queue: PartitionQueue, more: int) -> bool:
        """Seal the open batch when `more` bytes do not fit; a first record always does."""
        batch = queue.open
        if batch is None or not batch.values or batch.size + more <= self._full_bytes(queue.topic):
            return False
        with self.undisturbed:
            self.seal(queue)
            self._wake_by(0)
        return True

    def _room(
        self, queue: PartitionQueue, more: int, *, force: bool = False
    ) -> ProducerBatch | Completion[None]:
        """A batch of the queue with `more` bytes reserved and not used yet.

        Raises MessageTooLarge for a record that the broker would take, as it is small when it is
        compressed, and that nobody could read.  Others are refused when no request can carry them.
        """
        is_hidden = self.settings.codec is not Codec.NONE
        if is_hidden and more > limits.FRAME_SIZE_MAX:
            why = f"record of {more} bytes before compression, limit {limits.FRAME_SIZE_MAX}"
            where = f"topic {queue.topic!r}, partition {queue.partition}"
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, where, why)
        batch = queue.open
        if batch is not None and batch.size + more <= batch.reserved:
            return batch
        held = batch.reserved if batch is not None else 0
        needed = (batch.size if batch is not None else HEADER_SIZE) + more
        reserve = max(needed, min(self._full_bytes(queue.topic), held * 2 or RESERVE_FIRST_BYTES))
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
        with self.undisturbed:
            self.reserved_bytes += reserve - held
            if batch is None:
                batch = self._open(queue)
            batch.reserved = reserve
        return batch

    def _reserve_up_to(self, batch: ProducerBatch) -> int:
        """Reserve as much of a whole batch as the buffer has; the reservation then."""
        free = self.settings.buffer_bytes - self.reserved_bytes
        more = min(self._full_bytes(batch.queue.topic) - batch.reserved, free)
        if more > 0:
            batch.reserved += more
            self.reserved_bytes += more
        return batch.reserved

    def _full_bytes(self, topic: str) -> int:
        """How large a batch of a topic may become."""
        return min(self.settings.batch_bytes, self.topics[topic].fits_bytes)

    def too_large(self, batch: ProducerBatch) -> None:
        """The broker has refused a batch of several records: the next ones of its topic are made
        no larger than its halves, as long as the topic is the same.  Not where one record is half
        of it: that may be what was too large."""
        topic = self.topics[batch.queue.topic]
        if 2 * max(map(size_of, batch.values)) < batch.size:
            topic.fits_bytes = min(topic.fits_bytes, batch.size // 2)

    def _open(self, queue: PartitionQueue) -> ProducerBatch:
        now_ms = self._now_ms()
        batch = queue.open = ProducerBatch(queue, now_ms, self._wall_ms())
        batch.deadline_ms = now_ms + self.settings.delivery_timeout_ms
        self.active[queue] = None
        self.unfinished_count += 1
        self._wake_by(now_ms + self.linger_ms)
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
        self._maybe_wake_senders()
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
                base_sequence=batch.sequence if self.settings.idempotent else -1,
                transactional=self.settings.transactional_id is not None,
            )
        return batch.encoded

    # The end of a batch.

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
        self._maybe_wake_senders()

    def _maybe_wake_senders(self) -> None:
        if self.reserved_bytes * 2 <= self.settings.buffer_bytes:
            self.wake_senders()

    def wake_senders(self) -> None:
        if self._space is not None:
            space, self._space = self._space, None
            space.resolve(None)

    @property
    def is_failing(self) -> bool:
        """Whether records that failed, unseen as far as is known, fill half the buffer."""
        return self.failed_bytes * 2 > self.settings.buffer_bytes

    def take_undelivered(self) -> list[Undelivered]:
        """All records that failed and whose failure nobody has seen; afterwards it is seen."""
        failed, self.failed = self.failed, []
        self.failed_bytes = 0
        return [record for batch in failed for record in batch.undelivered()]

    def raise_undelivered(self) -> None:
        """DeliveryFailed with what `take_undelivered` gives, if that is anything."""
        if undelivered := self.take_undelivered():
            raise DeliveryFailed(undelivered)

    def say_undelivered(self) -> str:
        """What a DeliveryFailed of `take_undelivered` would say, "" where nothing failed unseen;
        afterwards it is seen."""
        text = self.why_undelivered
        self.failed, self.failed_bytes = [], 0
        return text

    @property
    def why_undelivered(self) -> str:
        """The same, and it is not seen by that.

        Nothing is made per record: a program that Ctrl-C ends does not wait for a list of them.
        """
        count = sum(batch.undelivered_count for batch in self.failed)
        records = chain.from_iterable(batch.undelivered() for batch in self.failed)
        return say_undelivered(count, list(islice(records, NAMED_MAX))) if count else ""

    def drop_unsent(self, error: SegbrokerError) -> bool:
        """Everything that is not in flight fails with `error`.

        Whether that leaves a hole in the sequences: what was sent once may be there.
        """
        has_hole = False
        for queue in list(self.active):
            batches = list(queue.sealed)
            fresh = [batch for batch in batches if not batch.is_sent]
            has_hole = has_hole or len(fresh) < len(batches)
            if fresh:
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


def _nothing(topic: str) -> None:
    """Before a producer is attached nobody wants to know which topics are used."""

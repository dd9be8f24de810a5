"""The producer's I/O side: which batch goes when, and what an answer means for it.

    sealed --take--> in flight --ok, or duplicate--> finished
       ^                 |------ retryable, or lost ---> back to sealed, in order, after a back-off
       |                 |------ too large ----> split in two, same sequences, sent again
       +-----------------+------ final ---> failed; the partition starts a new epoch
    any, delivery_timeout_ms after it was opened: failed with TimedOut

Order: batches of a partition are sent in sequence order over one connection, at most
`in_flight_count` unanswered.  After a failure nothing is sent for the partition until all its
answers are in; then it goes on from the oldest.  Without idempotence only one is in flight, so that
a retry cannot overtake.

Idempotence: the broker remembers the last five batches of (producer id, epoch, partition), answers
a repeated one with its first offset, and refuses a sequence that is not the next.  So a batch may
be sent again until an answer comes.  When a batch is given up it leaves a hole in the sequences;
the partition then takes the next epoch (which must begin at 0) and renumbers the waiting batches.
OUT_OF_ORDER for the oldest batch in flight means that the broker lacks an earlier one, which this
client gave up or the broker lost.  The cure is the same, because that batch is known not to be in
the log.  OUT_OF_ORDER for a later batch only follows from the failure of an earlier one.

Epochs are per partition and count up without asking; when they run out, or the broker says that
it does not know the producer, a new producer id is asked for.

Invariant: a batch is finished or failed exactly once, and never finished without an answer
(acks=0 apart, where being handed to the kernel is all there is).
"""

from collections.abc import Collection, Sequence
from random import Random

from segbroker.protocol import limits
from segbroker.protocol.errors import ErrorCode, LocalProtocolError
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)

from .accumulator import Accumulator
from .backoff import Backoff
from .batch_order import part_of, precedes, put_back, unanswered
from .cluster import NOBODY
from .completion import Completion
from .engine import Engine
from .errors import LeaderNotAvailable, NoTransaction, SegbrokerError, TimedOut, broker_error
from .identity import Identity
from .network import Node
from .producer_batch import PartitionQueue, ProducerBatch
from .spoken import AtNewest, Reply
from .transactions import Transactions

# The partition moved, or is not there yet: the cluster view is wrong.
LEADER_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        # It may be damaged, and refused from now on: then nobody leads it.
        ErrorCode.POLICY_VIOLATION,
    }
)
TOO_LARGE_CODES = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# The broker does not know this producer (any more): only a new id helps.
IDENTITY_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Producing:
    """See the module.  A component of the engine."""

    def __init__(self, engine: Engine, accumulator: Accumulator, random: Random) -> None:
        self.engine = engine
        self.accumulator = accumulator
        self.settings = accumulator.settings
        self._identity = Identity(engine, accumulator, random)
        self.transactions: Transactions | None = None
        self._random = random
        # When the first of the records that wait for nothing but time may go; see `_send`.
        self._due_ms: int | None = None
        # acks=0: the kernel has taken some, so that there may be more to send.
        self._is_handed_over = False
        self._wanted: list[str] = []
        accumulator.wanted = self._wanted.append
        accumulator.looked_again = engine.cluster.refreshed
        engine.components.append(self)
        if self.settings.transactional_id is not None:
            self.transactions = Transactions(engine, accumulator, self._identity, self.flush)
        engine.cluster.on_update.append(self._tell_topics)

    # The shell's side.

    @property
    def in_transactions(self) -> Transactions:
        if self.transactions is None:
            raise NoTransaction("this producer has no transactional_id")
        return self.transactions

    def flush(self) -> Completion[None]:
        """Done when everything appended so far is acknowledged or failed."""
        self.accumulator.drain_all()
        done: Completion[None] = Completion()
        batches = [
            batch
            for queue in self.accumulator.active
            for batch in (*queue.in_flight, *queue.sealed, *([queue.open] if queue.open else []))
            if not batch.done
        ]
        left = len(batches)
        if not left:
            done.resolve(None)
            return done

        def one_less() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done.resolve(None)

        for batch in batches:
            batch.urgent = True
            batch.on_done(one_less)
        return done

    def step(self, now_ms: int) -> None:
        self._due_ms = None
        self._is_handed_over = False
        accumulator = self.accumulator
        if self._wanted:
            self._want_topics()
        accumulator.seal_due(now_ms)
        if not accumulator.active:
            return
        self._expire(now_ms)
        if self._identity.is_missing:
            self._identity.ask(now_ms)
            return
        self._send(now_ms)

    def next_wake_ms(self) -> int | None:
        accumulator = self.accumulator
        if self._wanted or (self._is_handed_over and accumulator.active):
            return 0
        wakes: list[int] = []
        for queue in accumulator.active:
            oldest = queue.in_flight or queue.sealed
            if oldest:
                wakes.append(oldest[0].deadline_ms)
        if self._due_ms is not None:
            wakes.append(self._due_ms)
        linger_ms = accumulator.next_linger_ms()
        if linger_ms is not None:
            wakes.append(linger_ms)
        ask_ms = self._identity.next_wake_ms()
        if ask_ms is not None and wakes:
            wakes.append(ask_ms)
        return min(wakes, default=None)

    def close(self, error: SegbrokerError) -> None:
        self.accumulator.break_off(error)

    # Topics.

    def _want_topics(self) -> None:
        # list.pop is atomic: the caller's thread may append meanwhile.
        while self._wanted:
            name = self._wanted.pop()
            try:
                self.engine.cluster.want([name])
            except ValueError as exc:  # too many
                self.accumulator.topic_known(name, 0, SegbrokerError(str(exc)))
            else:
                self._tell_topics([name])

    def _tell_topics(self, names: Collection[str]) -> None:
        for name in names:
            view = self.engine.cluster.topics.get(name)
            if view is not None:
                error = view.error if view.is_settled else None
                self.accumulator.topic_known(
                    name, view.partition_count, error, view.topic_id, view.leaderless
                )

    def waited_in_vain(self, room: Completion[None]) -> SegbrokerError:
        """The error of a sender that has waited for `room` for delivery_timeout_ms: in the buffer,
        or for what a topic's partitions are."""
        topics = self.accumulator.topics.items()
        name = next((name for name, state in topics if state.known is room), None)
        view = None if name is None else self.engine.cluster.topics.get(name)
        if view is None or view.error is None:
            return self.engine.network.unreachable()
        waited = f"not known {self.settings.delivery_timeout_ms} ms after send()"
        error = TimedOut(f"topic {name!r}: {waited}; {view.error}")
        error.__cause__ = view.error
        return error

    # Sending.

    def _send(self, now_ms: int) -> None:
        """Send what can go.  What cannot waits for one of three things:

        time: a back-off of its partition or of its broker that is not over; `_due_ms` has the first
        an answer: on its own connection, which has a deadline
        somebody else's work: the cluster view for a leader, the network for a connection being
        set up; both have wake-ups of their own

        So a wake-up is asked for only at a time that lies ahead: waiting never becomes a loop.
        """
        cluster = self.engine.cluster
        by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in self.accumulator.active:
            if not queue.sealed:
                continue
            if now_ms < queue.backoff_until_ms:
                self._wait_until(queue.backoff_until_ms)
                continue
            if cluster.is_gone(queue.topic):
                cluster.make(queue.topic)
            if (queue.failures or queue.restart) and queue.in_flight:
                continue
            if self.settings.idempotent and not self._identity.adopt(queue):
                continue
            if self.transactions is not None and not self.transactions.may_send(queue):
                continue
            leader = cluster.leader(queue.topic, queue.partition)
            if leader is None:
                cluster.invalidate()
                continue
            by_leader.setdefault(leader, []).append(queue)
        for leader, queues in by_leader.items():
            node = cluster.node(leader)
            assert node is not None, "a leader is a broker of the view"
            if self.engine.network.want(node, now_ms):
                self._send_to(node, queues, now_ms)
            elif node.connection is None and now_ms < node.retry_at_ms:
                # Nobody else wakes for it: records that wait for a broker are not its `waiting`.
                self._wait_until(node.retry_at_ms)

    def _wait_until(self, at_ms: int) -> None:
        if self._due_ms is None or at_ms < self._due_ms:
            self._due_ms = at_ms

    def _send_to(self, node: Node, queues: list[PartitionQueue], now_ms: int) -> None:
        """Requests of at most one batch per partition each, as long as there are any."""
        # What is never answered leaves in order, and comes back in order.
        is_ordered = self.settings.idempotent or not self.settings.acks
        limit = self.settings.in_flight_count if is_ordered else 1
        connection = node.connection
        while queues and connection is not None and connection.is_ready:
            if len(connection.in_flight) >= self.settings.in_flight_count:
                return
            taken: list[ProducerBatch] = []
            size = 0
            left: list[PartitionQueue] = []
            for queue in queues:
                if len(queue.in_flight) >= limit or (queue.failures and queue.in_flight):
                    continue
                batch = queue.sealed[0]
                if taken and size + batch.size > self.settings.request_bytes:
                    left.append(queue)
                    continue
                queue.sealed.popleft()
                queue.in_flight.append(batch)
                taken.append(batch)
                size += batch.size
                if queue.sealed:
                    left.append(queue)
            if not taken:
                return
            self._send_request(node, taken, now_ms)
            queues = left

    def _send_request(self, node: Node, batches: list[ProducerBatch], now_ms: int) -> None:
        topics: dict[str, list[ProduceRequestPartition]] = {}
        for batch in batches:
            batch.attempts += 1
            batch.is_sent = True
            records = self.accumulator.encode(batch)
            topics.setdefault(batch.queue.topic, []).append(
                ProduceRequestPartition(index=batch.queue.partition, records=records)
            )
        timeout_ms = self.engine.settings.request_timeout_ms
        request = ProduceRequest(
            transactional_id=self.settings.transactional_id,
            acks=self.settings.acks,
            timeout_ms=timeout_ms,
            topic_data=[
                ProduceRequestTopic(name=name, partition_data=partitions)
                for name, partitions in topics.items()
            ],
        )
        connection = node.connection
        assert connection is not None
        if self.settings.acks == 0:
            self._send_unanswered(node, request, batches, now_ms)
            return

        def on_reply(reply: Reply, at_ms: int) -> None:
            self._answered(batches, reply, at_ms)

        is_newest = self.transactions is not None and self.transactions.is_second
        self.engine.network.request(
            node,
            AtNewest(request) if is_newest else request,
            on_reply,
            now_ms=now_ms,
            deadline_ms=now_ms + timeout_ms,
        )

    def _send_unanswered(
        self, node: Node, request: ProduceRequest, batches: list[ProducerBatch], now_ms: int
    ) -> None:
        assert node.connection is not None

        def on_sent() -> None:
            self._is_handed_over = True
            for batch in batches:
                if not batch.done:
                    batch.queue.in_flight.remove(batch)
                    self._finish(batch, -1, -1)

        def on_lost(error: Reply, at_ms: int) -> None:
            self._answered(batches, error, at_ms)

        try:
            node.connection.send_unanswered(
                request,
                on_sent,
                on_lost,
                deadline_ms=now_ms + self.engine.settings.request_timeout_ms,
            )
        except (SegbrokerError, LocalProtocolError) as exc:
            error = exc if isinstance(exc, SegbrokerError) else SegbrokerError(str(exc))
            if error is not exc:
                error.__cause__ = exc
            self._answered(batches, error, now_ms)

    # Answers.

    def _answered(self, batches: Sequence[ProducerBatch], reply: Reply, now_ms: int) -> None:
        rows: dict[tuple[str, int], ProduceResponsePartition] = {}
        error: SegbrokerError | None = None
        if isinstance(reply, SegbrokerError):
            error = reply
            self.engine.cluster.invalidate()
        else:
            assert isinstance(reply, ProduceResponse)
            for topic in reply.responses:
                for row in topic.partition_responses:
                    rows[topic.name, row.index] = row
        for batch in batches:
            queue = batch.queue
            if batch.done:
                continue  # expired meanwhile
            queue.in_flight.remove(batch)
            row_or_none = rows.get((queue.topic, queue.partition))
            if row_or_none is not None and row_or_none.error_code == ErrorCode.NONE:
                if not queue.restart:
                    queue.failures = 0
                    queue.backoff_until_ms = 0
                self._finish(batch, row_or_none.base_offset, row_or_none.log_append_time_ms)
                continue
            if row_or_none is None:
                code = ErrorCode.NETWORK_EXCEPTION
                problem = error or broker_error(code, f"no answer for {_where(queue)}")
                if _passes_frame(batch, error):
                    code = ErrorCode.MESSAGE_TOO_LARGE
                    problem = broker_error(code, _where(queue), str(problem.__cause__))
            else:
                code = ErrorCode.of(row_or_none.error_code)
                problem = broker_error(row_or_none.error_code, _where(queue), _said(row_or_none))
            self._failed(batch, code, problem, now_ms)
        for queue in {batch.queue: None for batch in batches}:
            if queue.restart and not queue.in_flight:
                self._restart(queue)

    def _failed(
        self, batch: ProducerBatch, code: ErrorCode, error: SegbrokerError, now_ms: int
    ) -> None:
        queue = batch.queue
        batch.refusal = error
        if code in LEADER_CODES:
            self.engine.cluster.invalidate()
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # Appended, and so long ago that the broker forgot where.
            queue.failures = 0
            self._finish(batch, -1, -1)
        elif self.transactions is not None and self._ends_transaction(batch, code):
            self._give_up(batch, error)
        elif code in TOO_LARGE_CODES and batch.count > 1:
            self.accumulator.too_large(batch)
            put_back(*self._split(batch))
            self._hold(queue, now_ms, delayed=False)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.settings.idempotent:
            is_oldest = _is_oldest(batch)
            put_back(batch)
            self._hold(queue, now_ms, delayed=True)
            if is_oldest:
                self._restart(queue)
        elif code in IDENTITY_CODES and self.settings.idempotent:
            put_back(batch)
            self._hold(queue, now_ms, delayed=True)
            self._identity.forget(queue)
        elif error.retryable and now_ms < batch.deadline_ms:
            put_back(batch)
            self._hold(queue, now_ms, delayed=True)
        else:
            self._give_up(batch, error)

    def _ends_transaction(self, batch: ProducerBatch, code: ErrorCode) -> bool:
        """Whether this is nothing to be mended within the transaction.

        A hole in the sequences, another identity: under a new epoch it would be another one.
        """
        assert self.transactions is not None
        is_over = self.transactions.error is not None
        has_hole = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and _is_oldest(batch)
        return is_over or has_hole or code in IDENTITY_CODES

    def _hold(self, queue: PartitionQueue, now_ms: int, *, delayed: bool) -> None:
        """Nothing more for this partition until its answers are in, and a back-off is over."""
        settings = self.engine.settings
        queue.failures += 1
        if delayed:
            backoff = Backoff(
                self._random,
                settings.retry_backoff_ms,
                settings.retry_backoff_max_ms,
                attempts=queue.failures - 1,
            )
            queue.backoff_until_ms = now_ms + backoff.next_delay_ms()

    def _restart(self, queue: PartitionQueue) -> None:
        """Leave the hole in the sequences behind: next epoch, as soon as nothing is in flight."""
        queue.restart = bool(queue.in_flight)
        if not queue.in_flight:
            self._identity.next_epoch(queue)

    def _split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Two batches of half the records each, with the same sequences."""
        middle = batch.count // 2
        halves = (part_of(batch, 0, middle), part_of(batch, middle, batch.count))
        batch.halves = halves
        batch.values, batch.keys, batch.headers, batch.encoded = [], None, None, None
        left = 2

        def one_less() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                batch.finish_by_halves()

        for half in halves:
            half.on_done(one_less)
        self.accumulator.unfinished_count += 1  # one became two
        return halves

    def _finish(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        batch.finish(base_offset, log_append_time_ms)
        self.accumulator.finished(batch)

    def _give_up(self, batch: ProducerBatch, error: SegbrokerError) -> None:
        queue = batch.queue
        batch.fail(error)
        self.accumulator.finished(batch)
        if self.transactions is not None:
            self.transactions.fail(error)
            return
        # What is unanswered may be there: under another epoch the broker could not tell. It is sent
        # again as it was, and where there is a hole the oldest is told so.
        if self.settings.idempotent and batch.is_sent and not unanswered(queue):
            self._restart(queue)

    def _why_away(self, queue: PartitionQueue) -> SegbrokerError | None:
        """What keeps the leader's connection from being there."""
        cluster = self.engine.cluster
        leader = cluster.leader(queue.topic, queue.partition)
        node = None if leader is None else cluster.node(leader)
        return None if node is None or node.is_ready else node.last_error

    def _expire(self, now_ms: int) -> None:
        for queue in list(self.accumulator.active):
            for batch in (*queue.in_flight, *queue.sealed):
                if now_ms < batch.deadline_ms:
                    break
                where = "in_flight" if batch in queue.in_flight else "sealed"
                getattr(queue, where).remove(batch)
                waited = now_ms - batch.opened_ms
                message = (
                    f"{_where(queue)}: not acknowledged {waited} ms after send(),"
                    f" {batch.attempts} attempts"
                )
                if batch.refusal is not None:
                    message += f"; the last one failed: {batch.refusal}"
                elif self._identity.is_missing and self._identity.refusal is not None:
                    message += f"; {self._identity.refusal}"
                elif (lost := self._why_away(queue)) is not None:
                    message += f"; {lost}"
                error = TimedOut(message)
                if self.engine.cluster.is_unserved(queue.topic, queue.partition):
                    error = TimedOut(f"{message}; {NOBODY}")
                    error.__cause__ = LeaderNotAvailable(f"{_where(queue)}: {NOBODY}")
                self._give_up(batch, error)


def _is_oldest(batch: ProducerBatch) -> bool:
    """Whether nothing that was sent before it still waits for its acknowledgement."""
    return not any(precedes(other, batch) for other in unanswered(batch.queue))


def _passes_frame(batch: ProducerBatch, error: SegbrokerError | None) -> bool:
    """Whether a request could not be made as this batch alone, encoded, is larger than any may be:
    as much as half of that goes with no other."""
    is_ours = error is not None and isinstance(error.__cause__, LocalProtocolError)
    return is_ours and len(batch.encoded or b"") > limits.FRAME_SIZE_MAX // 2


def _where(queue: PartitionQueue) -> str:
    return f"topic {queue.topic!r}, partition {queue.partition}"


def _said(row: ProduceResponsePartition) -> str | None:
    reasons = [e.batch_index_error_message for e in row.record_errors]
    return row.error_message or next((reason for reason in reasons if reason), None)

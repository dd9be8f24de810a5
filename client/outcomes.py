"""What becomes of a producer's batches: acknowledged, sent again, split, or given up.

    in flight --ok, or duplicate--> finished
       |------ retryable, or lost ---> back to sealed, in order, after a back-off
       |------ too large ----> split in two, same sequences, sent again
       +------ final ---> failed (a refusal of what may be there says so)
    any, delivery_timeout_ms after it was opened: failed with TimedOut

Idempotence: the broker remembers the last five batches of (producer id, epoch, partition), answers
a repeated one with its first offset, and refuses a sequence that is not the next.  So a batch may
be sent again until an answer comes.  A batch that is given up may be there, or leaves a hole in the
sequences.  OUT_OF_ORDER for the oldest batch that is unanswered means that the broker lacks an
earlier one, which this client gave up or the broker lost.  That batch is known not to be in the log
then: the partition takes the next epoch, which must begin at 0, and renumbers the waiting batches.
OUT_OF_ORDER for a later batch only follows from the failure of an earlier one.

What comes back goes alone, each until it is answered, before anything new goes.  A broker that has
one of them may refuse it for a moment and take later ones: with five later ones it would have
forgotten that one, and refuse it as if it were not there.  And one that it refused as it had
forgotten the producer would never be the last that is answered, which an epoch waits for.

A topic that was deleted and made again refuses what is for the one before by its id.  Then the view
is asked for anew, and the batch goes to the new topic, as Kafka's producer has it: with its
sequences, which a partition that does not know the producer takes from anywhere (0070, 0284).

Epochs are per partition and count up without asking; when they run out, or the broker says that
it does not know the producer, a new producer id is asked for (identity).

Invariant: a batch is finished or failed exactly once, and never finished without an answer
(acks=0 apart, where being handed to the kernel is all there is).
"""

from collections.abc import Sequence

from segbroker.protocol import limits
from segbroker.protocol.errors import ErrorCode, LocalProtocolError
from segbroker.protocol.messages_core import ProduceResponse, ProduceResponsePartition

from .accumulator import Accumulator
from .batch_order import part_of, precedes, put_back, unanswered
from .cluster import LEADER_CODES, NOBODY
from .completion import after_all
from .engine import Engine
from .errors import (
    BrokerUnreachable,
    ConnectionLost,
    LeaderNotAvailable,
    SegbrokerError,
    TimedOut,
    UnsupportedByBroker,
    broker_error,
)
from .identity import Identity
from .producer_batch import PartitionQueue, ProducerBatch
from .spoken import Reply
from .transactions import Transactions

# The view is wrong: also where a partition may be damaged, and refused from now on, as then nobody
# leads it.
VIEW_CODES = LEADER_CODES | {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.POLICY_VIOLATION}
TOO_LARGE_CODES = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# It is in the log, and not as safe as it was to be; or may be, as where a sync failed (0063), where
# Kafka's broker has appended it and is not the leader any more, where who passes requests on has
# lost the broker behind it, or where nobody knows what the answer means.
APPENDED_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
# The broker does not know this producer (any more): only a new id helps.
IDENTITY_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Outcomes:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        accumulator: Accumulator,
        identity: Identity,
        transactions: Transactions | None,
    ) -> None:
        self._engine = engine
        self._accumulator = accumulator
        self._is_idempotent = accumulator.settings.idempotent
        self._identity = identity
        self._transactions = transactions

    def answered(self, batches: Sequence[ProducerBatch], reply: Reply, now_ms: int) -> None:
        """The answer to a request of these batches, or why there is none."""
        rows: dict[tuple[str, int], ProduceResponsePartition] = {}
        error: SegbrokerError | None = None
        if isinstance(reply, SegbrokerError):
            error = reply
            self._engine.cluster.invalidate()
        else:
            assert isinstance(reply, ProduceResponse)
            # As they were when it was asked: the view may know others by now.
            names = {batch.topic_id: batch.queue.topic for batch in batches}
            for topic in reply.responses:
                name = topic.name or names.get(topic.topic_id, "")
                for row in topic.partition_responses:
                    rows[name, row.index] = row
        for batch in batches:
            queue = batch.queue
            if batch.done:
                continue  # expired meanwhile
            queue.in_flight.remove(batch)
            row_or_none = rows.get((queue.topic, queue.partition))
            if row_or_none is not None and row_or_none.error_code == ErrorCode.NONE:
                queue.known_as = queue.producer_id, batch.topic_id
                if self._transactions is not None:
                    self._transactions.wrote(queue.topic, batch.topic_id)
                self.finish(batch, row_or_none.base_offset, row_or_none.log_append_time_ms)
                continue
            is_in_doubt = False
            if row_or_none is None:
                code = ErrorCode.NETWORK_EXCEPTION
                problem = error or broker_error(code, f"no answer for {_where(queue)}")
                if _passes_frame(batch, error):
                    code = ErrorCode.MESSAGE_TOO_LARGE
                    problem = broker_error(code, _where(queue), str(problem.__cause__))
                else:
                    is_in_doubt = error is None or _may_be_done(error)
            else:
                code = ErrorCode.of(row_or_none.error_code)
                problem = broker_error(row_or_none.error_code, _where(queue), _said(row_or_none))
                is_in_doubt = code in APPENDED_CODES
            # Of what was in a transaction nothing is seen.
            if is_in_doubt and self._transactions is None:
                batch.doubt = problem
            self._failed(batch, code, problem, now_ms)

    def _failed(
        self, batch: ProducerBatch, code: ErrorCode, error: SegbrokerError, now_ms: int
    ) -> None:
        queue = batch.queue
        batch.refusal = error
        if code in VIEW_CODES:
            self._engine.cluster.invalidate()
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # Appended, and so long ago that the broker forgot where.
            self.finish(batch, -1, -1)
        elif self._transactions is not None and self._ends_transaction(batch, code):
            self._give_up(batch, error)
        elif code in TOO_LARGE_CODES and batch.count > 1:
            self._accumulator.too_large(batch)
            put_back(*self._split(batch))
            self._hold(queue, now_ms, delayed=False)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_idempotent:
            is_oldest = _is_oldest(batch)
            if is_oldest:
                batch.doubt = None
            put_back(batch)
            self._hold(queue, now_ms, delayed=True)
            # Else what is in flight comes back, and this one is told so again.
            if is_oldest and not queue.in_flight:
                self._identity.next_epoch(queue)
        elif code in IDENTITY_CODES and self._is_idempotent:
            put_back(batch)
            self._hold(queue, now_ms, delayed=True)
            self._identity.forget(queue)
        elif error.retryable:
            put_back(batch)  # behind its deadline it expires there
            self._hold(queue, now_ms, delayed=True)
        else:
            self._refused(batch, error)

    def _ends_transaction(self, batch: ProducerBatch, code: ErrorCode) -> bool:
        """Whether this is nothing to be mended within the transaction.

        A hole in the sequences, another identity: under a new epoch it would be another one.
        """
        assert self._transactions is not None
        is_over = self._transactions.error is not None
        has_hole = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and _is_oldest(batch)
        return is_over or has_hole or code in IDENTITY_CODES

    def _hold(self, queue: PartitionQueue, now_ms: int, *, delayed: bool) -> None:
        """Nothing more for this partition until its answers are in, and a back-off is over.

        What fails until then was on its way together with the first: it is the same failure.
        """
        settings = self._engine.settings
        if queue.failures and now_ms < queue.backoff_until_ms:
            return
        queue.failures += 1
        if delayed:
            backoff = self._engine.backoff(
                settings.retry_backoff_max_ms, attempts=queue.failures - 1
            )
            queue.backoff_until_ms = now_ms + backoff.next_delay_ms()

    def _split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Two batches of half the records each, with the same sequences."""
        middle = batch.count // 2
        halves = (part_of(batch, 0, middle), part_of(batch, middle, batch.count))
        batch.halves = halves
        batch.values, batch.keys, batch.headers, batch.encoded = [], None, None, None
        after_all(halves, batch.finish_by_halves)
        self._accumulator.unfinished_count += 1  # one became two
        return halves

    def finish(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """It is in the log, or with acks=0 with the kernel; offset -1: nobody knows where."""
        _goes_on(batch.queue)
        batch.finish(base_offset, log_append_time_ms)
        self._accumulator.finished(batch)

    def _refused(self, batch: ProducerBatch, error: SegbrokerError) -> None:
        """For what it is: the broker need not be spared."""
        _goes_on(batch.queue)
        self._give_up(batch, error)

    def _give_up(self, batch: ProducerBatch, error: SegbrokerError) -> None:
        batch.fail(error)
        self._accumulator.finished(batch)
        if self._transactions is not None:
            self._transactions.fail(error)

    def _why_away(self, queue: PartitionQueue) -> SegbrokerError | None:
        """What keeps the leader, or its connection, from being there."""
        cluster = self._engine.cluster
        if (why := cluster.why_unled(queue.topic, queue.partition)) is not None:
            return why
        leader = cluster.leader(queue.topic, queue.partition)
        node = None if leader is None else cluster.node(leader)
        return None if node is None or node.is_ready else node.last_error

    def expire(self, now_ms: int) -> None:
        """Give up what has waited for delivery_timeout_ms."""
        for queue in list(self._accumulator.active):
            for batches in (queue.in_flight, queue.sealed):
                while batches and now_ms >= batches[0].deadline_ms:
                    batch = batches[0]
                    del batches[0]
                    self._give_up(batch, self._too_late(batch))

    def _too_late(self, batch: ProducerBatch) -> TimedOut:
        queue = batch.queue
        allowed = batch.deadline_ms - batch.opened_ms
        message = (
            f"{_where(queue)}: not acknowledged within {allowed} ms of send(),"
            f" {batch.attempts} attempts"
        )
        why = batch.refusal
        if why is not None:
            message += f"; the last one failed: {why}"
        else:
            why = self._identity.refusal if self._identity.is_missing else None
            why = why or self._why_away(queue)
            message += f"; {why}" if why is not None else ""
        error = TimedOut(message)
        error.__cause__ = why
        if self._engine.cluster.is_unserved(queue.topic, queue.partition):
            error = TimedOut(f"{message}; {NOBODY}")
            error.__cause__ = LeaderNotAvailable(f"{_where(queue)}: {NOBODY}")
        return error


def _goes_on(queue: PartitionQueue) -> None:
    """An answer was final: the next failure is a first one.  What came back goes alone all the
    same."""
    sealed = queue.sealed
    queue.failures = min(queue.failures, 1) if sealed and sealed[0].is_sent else 0


def _is_oldest(batch: ProducerBatch) -> bool:
    """Whether nothing that was sent before it still waits for its acknowledgement."""
    return not any(precedes(other, batch) for other in unanswered(batch.queue))


def _may_be_done(error: SegbrokerError) -> bool:
    """Whether what was not answered was sent, or some of it."""
    if isinstance(error, ConnectionLost | TimedOut):
        return error.may_be_done
    is_unsent = isinstance(error, BrokerUnreachable | UnsupportedByBroker)
    return not is_unsent and not isinstance(error.__cause__, LocalProtocolError)


def _passes_frame(batch: ProducerBatch, error: SegbrokerError | None) -> bool:
    """Whether a request could not be made as this batch alone, encoded, is larger than any may be:
    as much as half of that goes with no other."""
    is_ours = error is not None and isinstance(error.__cause__, LocalProtocolError)
    return is_ours and len(batch.encoded or b"") > limits.FRAME_SIZE_MAX // 2


def _where(queue: PartitionQueue) -> str:
    return f"topic {queue.topic!r}, partition {queue.partition}"


def _said(row: ProduceResponsePartition) -> str | None:
    if row.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
        return "There is no such topic any more"  # the id says nothing to who gave a name
    reasons = [e.batch_index_error_message for e in row.record_errors]
    return row.error_message or next((reason for reason in reasons if reason), None)

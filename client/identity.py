"""Who a producer is to the broker: an id, epochs, and from where each partition numbers.

    no id --ask--> id, epoch 0 --(partition) a batch was given up--> next epoch, from 0
      ^                                                    |
      +---- forget: the broker does not know us, or epochs have run out

The id is one for all partitions, the epoch counts per partition without asking.  A partition takes
another identity only when no answer under the old one is outstanding: what was sent and not
answered may be in the log, and is recognised there under the identity it had.  So a partition
whose own batches were not refused goes on as it was until they are answered.
"""

from collections.abc import Iterable

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_transactions import InitProducerIdRequest, InitProducerIdResponse

from .accumulator import Accumulator
from .backoff import Backoff
from .batches import SEQUENCES
from .engine import Engine
from .errors import BrokerError, PeerError, UnsupportedByBroker, broker_error
from .producer_batch import PartitionQueue
from .spoken import Reply

EPOCH_MAX = 0x7FFF
# From 2.8 on: a producer without an id may write nowhere, either (KIP-679).
NO_RIGHT = "no right to write to any topic (before Kafka 2.8: no IDEMPOTENT_WRITE on the cluster)"


class Identity:
    """See the module."""

    def __init__(self, engine: Engine, accumulator: Accumulator) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.refusal: BrokerError | None = None
        """Why there is none yet, as far as a broker has said it."""
        self._engine = engine
        self._accumulator = accumulator
        # A transactional producer's: its transactions ask, see there.
        self._is_given = accumulator.settings.transactional_id is not None
        self._is_asking = False
        self._due_ms = 0
        self._backoff = Backoff(engine.random, 50, 1_000)

    @property
    def is_missing(self) -> bool:
        """Whether nothing can be sent before there is an id."""
        return self._accumulator.settings.idempotent and self.producer_id < 0

    def next_wake_ms(self) -> int | None:
        """When to `ask`; None while the answer is on its way, or none is needed."""
        if self._is_given or self._is_asking or not self.is_missing:
            return None
        return self._due_ms

    def forget(self, queue: PartitionQueue) -> None:
        """The broker does not know the identity of this partition's batches (any more)."""
        queue.is_refused = True
        if queue.producer_id == self.producer_id:
            self.producer_id = -1

    def ask(self, now_ms: int) -> None:
        """Ask for an id, if it is time."""
        if self._is_given or self._is_asking or now_ms < self._due_ms:
            return
        node = self._engine.network.any_node(now_ms)
        if node.connection is None and now_ms < node.retry_at_ms:
            self._due_ms = node.retry_at_ms
            return
        self._is_asking = True

        def on_reply(reply: Reply, at_ms: int) -> None:
            self._is_asking = False
            if isinstance(reply, UnsupportedByBroker):
                self._accumulator.break_off(
                    UnsupportedByBroker(f"{reply}; set idempotent=False for this broker")
                )
                return
            code = -1
            if isinstance(reply, InitProducerIdResponse):
                code = reply.error_code
                if code == ErrorCode.NONE and reply.producer_id < 0:
                    why = f"a broker gives the producer id {reply.producer_id}"
                    self._accumulator.break_off(PeerError(why))
                    return
                if code == ErrorCode.NONE:
                    self._backoff.reset()
                    self.take(reply.producer_id, reply.producer_epoch)
                    return
                may_not = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                self.refusal = broker_error(code, "producer id", NO_RIGHT if may_not else None)
                if not self.refusal.retryable:
                    self._accumulator.break_off(self.refusal)
                    return
            self._due_ms = at_ms + self._backoff.next_delay_ms()

        self._engine.network.request(
            node,
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            on_reply,
            now_ms=now_ms,
            deadline_ms=now_ms + self._engine.settings.request_timeout_ms,
        )

    def take(self, producer_id: int, epoch: int) -> None:
        """Be this producer from now on; partitions without answers outstanding at once."""
        self.producer_id = producer_id
        self.epoch = epoch
        self.refusal = None
        for topic in self._accumulator.topics.values():
            for queue in topic.partitions.values():
                if not queue.in_flight and not _may_be_there(queue):
                    self._renumber(queue, producer_id, epoch)

    def adopt(self, queue: PartitionQueue) -> bool:
        """Give a queue the identity that it has to have now, the present one if it may; False
        while old answers are outstanding."""
        if queue.producer_id == self.producer_id:
            return True
        if queue.in_flight:
            return False
        if _may_be_there(queue):
            return True
        self._renumber(queue, self.producer_id, self.epoch)
        return True

    def lets_go_of(self, queues: Iterable[PartitionQueue]) -> bool:
        """Have an epoch above that of these partitions from now on, if they have numbered in the
        present one; False where it is not this producer's to say.  Then they may begin at 0 again,
        as if they were new: else their topic, come back as it was, would take what has a number of
        before for a repetition."""
        epochs = [
            queue.epoch
            for queue in queues
            if queue.producer_id == self.producer_id and queue.next_sequence
        ]
        if not epochs or self._is_given:
            return not epochs
        self.epoch = max(self.epoch, max(epochs) + 1)
        if self.epoch > EPOCH_MAX:
            self.producer_id = -1
        return True

    def _renumber(self, queue: PartitionQueue, producer_id: int, epoch: int) -> None:
        """Begin at sequence 0 under another identity, with all that waits."""
        assert not queue.in_flight, "answers under the old identity are outstanding"
        queue.producer_id = producer_id
        queue.epoch = epoch
        queue.is_refused = False
        queue.next_sequence = 0
        for batch in queue.sealed:
            batch.sequence = queue.next_sequence
            batch.encoded = None
            queue.next_sequence = (queue.next_sequence + batch.count) % SEQUENCES

    def next_epoch(self, queue: PartitionQueue) -> None:
        """Begin a partition anew, with all that waits; nothing may be in flight."""
        if queue.epoch < EPOCH_MAX:
            self._renumber(queue, queue.producer_id, queue.epoch + 1)
        else:
            self.producer_id = -1
            queue.producer_id = -1


def _may_be_there(queue: PartitionQueue) -> bool:
    """Whether the broker may have something that waits to be sent again, and knows it."""
    return (
        queue.producer_id >= 0
        and not queue.is_refused
        and any(batch.is_sent for batch in queue.sealed)
    )

"""The producer's I/O side: which batch goes when.  What an answer means for it: outcomes.

    sealed --taken--> in flight --answered--> over, or back among the sealed (outcomes)

Order: batches of a partition are sent in sequence order over one connection, at most
`in_flight_count` unanswered.  After a failure nothing is sent for the partition until all its
answers are in; then what came back goes again, oldest first, one by one (outcomes).  Without
idempotence only one is in flight, so that a retry cannot overtake.  So it is until the first one of
a producer is acknowledged: a partition that does not know the producer takes any sequence, also
what comes behind a batch that it refused.

A request says by their ids which topics it is for, where broker and view know them, so a topic that
was made again takes nothing before the view has seen it.  What was refused then goes to the new one
(outcomes).  With acks=0 nobody would hear of a refusal: that goes by name.
"""

from collections.abc import Collection

from segbroker.protocol.errors import LocalProtocolError
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_core import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)

from .accumulator import Accumulator
from .completion import Completion, after_all
from .engine import Call, Engine, Until
from .errors import NoTransaction, SegbrokerError, TimedOut
from .identity import Identity
from .network import Node
from .outcomes import Outcomes
from .producer_batch import PartitionQueue, ProducerBatch
from .spoken import AtNewest, ById, Reply, Request
from .transactions import Transactions
from .unheard import Unheard


class Producing:
    """See the module.  A component of the engine."""

    def __init__(self, engine: Engine, accumulator: Accumulator) -> None:
        self.engine = engine
        self.accumulator = accumulator
        self.settings = accumulator.settings
        self._identity = Identity(engine, accumulator)
        self.transactions: Transactions | None = None
        # When the first of the records that wait for nothing but time may go; see `_send`.
        self._due_ms: int | None = None
        # acks=0: the kernel has taken some, so that there may be more to send.
        self._is_handed_over = False
        self._wanted: list[str] = []
        # Of which topics the last answer was.
        self._told: Collection[str] = ()
        accumulator.wanted = self._wanted.append
        accumulator.looked_again = self._looked_again
        engine.components.append(self)
        if self.settings.transactional_id is not None:
            self.transactions = Transactions(engine, accumulator, self._identity, self.flush)
        self._outcomes = Outcomes(engine, accumulator, self._identity, self.transactions)
        self._unheard = Unheard(accumulator, engine.network.absences.say)
        engine.cluster.on_update.append(self._cluster_updated)
        engine.cluster.wanted_by.append(lambda: accumulator.topics)

    # The shell's side.

    @property
    def in_transactions(self) -> Transactions:
        if self.transactions is None:
            raise NoTransaction("this producer has no transactional_id")
        return self.transactions

    @property
    def end_timeout_ms(self) -> int:
        """How long the end of a transaction may take: its records have their time, too."""
        return self.engine.settings.api_timeout_ms + self.settings.delivery_timeout_ms

    @property
    def is_aborting(self) -> bool:
        """An abort was cut short, and nothing has gone on with it yet."""
        return self.transactions is not None and self.transactions.is_aborting

    def flushed(self) -> Call[None]:
        """Wait for `flush`."""
        yield Until(self.flush())

    def flush(self) -> Completion[None]:
        """Done when everything appended so far is acknowledged or failed."""
        self.accumulator.drain_all()
        done: Completion[None] = Completion()
        batches = [
            batch
            for queue in self.accumulator.active
            for batch in (*queue.in_flight, *queue.sealed, *queue.begun)
            if not batch.done
        ]
        for batch in batches:
            batch.urgent = True
        after_all(batches, lambda: done.resolve(None))
        return done

    def step(self, now_ms: int) -> None:
        self._go_on(now_ms)
        self._unheard.look(now_ms)

    def _go_on(self, now_ms: int) -> None:
        self._due_ms = None
        self._is_handed_over = False
        accumulator = self.accumulator
        if self._wanted:
            self._want_topics()
        accumulator.seal_due(now_ms)
        if not accumulator.active:
            return
        self._outcomes.expire(now_ms)
        if self._identity.is_missing:
            self._identity.ask(now_ms)
            return
        self._send(now_ms)

    def next_wake_ms(self) -> int | None:
        accumulator = self.accumulator
        is_looked_for = bool(self._wanted or accumulator.unseen)
        if is_looked_for or (self._is_handed_over and accumulator.active):
            return 0
        wakes: list[int] = []
        for queue in accumulator.active:
            wakes += [sent[0].deadline_ms for sent in (queue.in_flight, queue.sealed) if sent]
        if self._due_ms is not None:
            wakes.append(self._due_ms)
        linger_ms = accumulator.next_linger_ms()
        if linger_ms is not None:
            wakes.append(linger_ms)
        ask_ms = self._identity.next_wake_ms()
        if ask_ms is not None and wakes:
            wakes.append(ask_ms)
        if self._unheard.due_ms is not None:
            wakes.append(self._unheard.due_ms)
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

    def _cluster_updated(self, names: Collection[str]) -> None:
        self._told = names
        self._tell_topics(names)
        for name in filter(self.engine.cluster.is_long_gone, names):
            topic = self.accumulator.topics.get(name)
            if topic is not None and self._identity.lets_go_of(topic.partitions.values()):
                self.accumulator.let_go(name)

    def _tell_topics(self, names: Collection[str]) -> None:
        for name in names:
            view = self.engine.cluster.topics.get(name)
            if view is not None:
                if self.transactions is not None:
                    self.transactions.topic_is(name, view.topic_id)
                error = view.error if view.is_settled else None
                self.accumulator.topic_known(
                    name, view.partition_count, error, view.topic_id, view.leaderless
                )

    def _looked_again(self, topic: str) -> Completion[None]:
        """Done when a broker was asked from now on for this topic, and has answered, however often
        it is asked."""
        looked: Completion[None] = Completion()
        # What is on its way was asked before.
        is_of_before = self.engine.cluster.is_asking

        def look() -> None:
            asked = self.engine.cluster.refreshed()
            asked.on_done(lambda: seen(asked))

        def seen(asked: Completion[None]) -> None:
            nonlocal is_of_before
            # Also where it was asked for new topics alone, which go first.
            if asked.error is not None or is_of_before or topic not in self._told:
                is_of_before = False
                look()
            elif not looked.done:
                looked.resolve(None)

        look()
        return looked

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
                cluster.invalidate()  # another one may lead by now

    def _wait_until(self, at_ms: int) -> None:
        if self._due_ms is None or at_ms < self._due_ms:
            self._due_ms = at_ms

    def _send_to(self, node: Node, queues: list[PartitionQueue], now_ms: int) -> None:
        """Requests of at most one batch per partition each, as long as there are any.

        Who has sent one stands back behind the others: of more than a request takes, each has its
        turn, however much the others have.
        """
        connection = node.connection
        while queues and connection is not None and connection.is_ready:
            if len(connection.in_flight) >= self.settings.in_flight_count:
                return
            taken: list[ProducerBatch] = []
            size = 0
            left: list[PartitionQueue] = []
            with_more: list[PartitionQueue] = []
            for queue in queues:
                if len(queue.in_flight) >= self._in_flight_max(queue):
                    continue
                batch = queue.sealed[0]
                if taken and size + batch.size > self.settings.request_bytes:
                    left.append(queue)
                    continue
                queue.sealed.popleft()
                queue.in_flight.append(batch)
                self.accumulator.active.move_to_end(queue)
                taken.append(batch)
                size += batch.size
                if queue.sealed:
                    with_more.append(queue)
            if not taken:
                return
            self._send_request(node, taken, now_ms)
            queues = left + with_more

    def _in_flight_max(self, queue: PartitionQueue) -> int:
        settings = self.settings
        if queue.failures:
            return 1
        if settings.idempotent:
            # Of a topic that was made again nothing is known, and what is for the one before comes
            # back.
            me = queue.producer_id, self.engine.cluster.topic_id(queue.topic)
            return settings.in_flight_count if queue.known_as == me else 1
        # What is never answered leaves in order, and comes back in order.
        return 1 if settings.acks else settings.in_flight_count

    def _send_request(self, node: Node, batches: list[ProducerBatch], now_ms: int) -> None:
        topics: dict[str, ProduceRequestTopic] = {}
        for batch in batches:
            name = batch.queue.topic
            batch.attempts += 1
            batch.is_sent = True
            batch.topic_id = self.engine.cluster.topic_id(name)
            records = self.accumulator.encode(batch)
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = ProduceRequestTopic(
                    name=name, topic_id=batch.topic_id, partition_data=[]
                )
            topic.partition_data.append(
                ProduceRequestPartition(index=batch.queue.partition, records=records)
            )
        timeout_ms = self.engine.settings.request_timeout_ms
        request = ProduceRequest(
            transactional_id=self.settings.transactional_id,
            acks=self.settings.acks,
            timeout_ms=timeout_ms,
            topic_data=list(topics.values()),
        )
        connection = node.connection
        assert connection is not None
        if self.settings.acks == 0:
            self._send_unanswered(node, request, batches, now_ms)
            return

        def on_reply(reply: Reply, at_ms: int) -> None:
            self._outcomes.answered(batches, reply, at_ms)

        self.engine.network.request(
            node,
            self._spoken(request),
            on_reply,
            now_ms=now_ms,
            deadline_ms=now_ms + timeout_ms,
        )

    def _spoken(self, request: ProduceRequest) -> Request:
        """By the ids of its topics, where those are known.  Not under protocol 1 of transactions:
        the versions by id are of the second."""
        is_second = self.transactions is not None and self.transactions.is_second
        message = AtNewest(request) if is_second else request
        is_first = self.transactions is not None and not is_second
        if is_first or any(topic.topic_id == ZERO_UUID for topic in request.topic_data):
            return message
        return ById(message)

    def _send_unanswered(
        self, node: Node, request: ProduceRequest, batches: list[ProducerBatch], now_ms: int
    ) -> None:
        assert node.connection is not None

        def on_sent() -> None:
            self._is_handed_over = True
            for batch in batches:
                if not batch.done:
                    batch.queue.in_flight.remove(batch)
                    self._outcomes.finish(batch, -1, -1)

        def on_lost(error: Reply, at_ms: int) -> None:
            self._outcomes.answered(batches, error, at_ms)

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
            self._outcomes.answered(batches, error, now_ms)

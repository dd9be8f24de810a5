"""A producer's transactions: what is sent between begin and end is seen together or not at all.

    NEW --init--> READY --begin--> OPEN --commit, abort--> READY
     ^                             | a record or offset was refused: only an abort is left
     |                             |    ABORTING: an abort was interrupted, or is all that a commit
     |                             |              was answered with; what comes next ends it
     |                             +--prepare--> PREPARED: somebody else ends it
     +--- how an end went is not known, or a hole is in the sequences: init again, same identity
    FENCED: another producer took the id; final

The broker aborts a transaction that is open for too long.  It then answers as if this producer were
fenced, or (Kafka, a commit of protocol 2) as if no transaction were open.  To find out, the
producer asks for its own identity again: it is READY again, or FENCED.

The broker knows a transactional id by one producer id and epoch.  A producer that asks for the id
gets the next epoch; a transaction that its predecessor left open is aborted, and the predecessor is
*fenced*.  Asking with one's own identity (KIP-360) gets the next epoch only if nobody else did.

    protocol 1    each partition, and each group, is added before it is written to; the epoch
                  stays.  An end that was delayed on its way can hit the next transaction.
    protocol 2    (KIP-890) writing adds; every end gives the next epoch, and so is told apart
                  from one before.  Taken where the broker has the feature transaction.version 2.

If the answer to an end does not come, the producer asks again until the deadline of the call: the
same end twice counts once.

A call goes on when its caller has been cancelled, so none of them opens a transaction: `begin` has
the producer made READY, and the caller, if it is still there, takes it from there with `open`.

Invariants: nothing is sent while a transaction is not OPEN.  An end waits for all outstanding
answers, also to requests that add partitions or offsets, so that nothing of the transaction arrives
after its end.  A commit is requested only when everything was acknowledged.  The identity is asked
for by one call at a time.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.fields import ZERO_UUID
from segbroker.protocol.messages_transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from segbroker.protocol.schema import Message

from .accumulator import Accumulator
from .backoff import Backoff
from .completion import Completion
from .coordinator import GROUP_KEY, TRANSACTION_KEY, Coordinator, codes_in
from .engine import Call, Engine, Pause, Until
from .errors import (
    BrokerError,
    DeliveryFailed,
    NoTransaction,
    PeerError,
    ProducerFenced,
    SegbrokerError,
    TimedOut,
    TransactionAborted,
    broker_error,
)
from .group_offsets import CommittedOffset, GroupMetadata
from .identity import Identity
from .producer_batch import PartitionQueue
from .records import TopicPartition
from .spoken import AtNewest
from .transaction_requests import PARTS, offsets_request, partitions_request

FEATURE: Final = "transaction.version"
# Of these the broker says that the identity is not the one it knows (any more).
FENCING: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# These pass without anybody changing anything, though a table of codes does not say so.
PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
# How often whoever waits for an end looks.
ENDING_PAUSE_MS: Final = 10


class State(Enum):
    NEW = "new"
    READY = "ready"
    OPEN = "open"
    ABORTING = "being aborted"
    ENDING = "ending"
    PREPARED = "prepared"
    FENCED = "fenced"


class PreparedTransaction(NamedTuple):
    """A transaction whose records are written, for somebody else to end."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Transactions:
    """See the module.  A component of the engine."""

    def __init__(
        self,
        engine: Engine,
        accumulator: Accumulator,
        identity: Identity,
        flush: Callable[[], Completion[None]],
    ) -> None:
        settings = accumulator.settings
        assert settings.transactional_id is not None, "a transactional producer has an id"
        self.transactional_id = settings.transactional_id
        self.state = State.NEW
        # Who opened the last one: Ctrl-C may come before its caller knows that it has.
        self.holder: object = None
        # The last one was, and the broker has said so.
        self.is_aborted = False
        # Why the transaction that is open can only be aborted.
        self.error: SegbrokerError | None = None
        # Whether the broker speaks protocol 2.
        self.is_second = False
        self._engine = engine
        self._accumulator = accumulator
        self._identity = identity
        self._flush = flush
        self.timeout_ms = settings.transaction_timeout_ms
        self._coordinator = Coordinator(engine, self.transactional_id, TRANSACTION_KEY)
        self._groups: dict[str, Coordinator] = {}
        self._added: set[PartitionQueue] = set()
        self._wanted: dict[PartitionQueue, None] = {}
        # The topics that something of the last one was acknowledged in, with their ids.
        self._written: dict[str, UUID] = {}
        self._adding: Completion[None] | None = None
        # Something was written, so that there is something to end.
        self._is_touched = False
        self._has_hole = False
        # The broker may not have heard of the end of an abort.
        self._is_abort_unheard = False
        self._is_asking_identity = False
        # Calls of `send_offsets` under way: a caller may have left them.
        self._offsets_count = 0
        accumulator.shut(_outside())
        engine.components.append(self)

    @property
    def is_open(self) -> bool:
        """Whether it is this producer's to end."""
        return self.state is State.OPEN

    @property
    def is_aborting(self) -> bool:
        """An abort is under way, or was interrupted."""
        is_unheard = self._is_abort_unheard and self.state in (State.ENDING, State.NEW)
        return is_unheard or self.state is State.ABORTING

    # The caller's side: calls.

    def init(self) -> Call[None]:
        """Take the transactional id over; again: nothing.  Raises ProducerFenced.

        An end that was interrupted goes on by itself, to its deadline at most: it is waited for; an
        abort that was is gone on with, wherever that was.
        """
        yield from self._ended()
        if self.state is State.ABORTING:
            yield from self.abort()
        while self._is_asking_identity:
            yield Pause(ENDING_PAUSE_MS)
        if self.state is State.FENCED:
            raise self._fenced()
        if self.state is not State.NEW:
            return
        self._is_asking_identity = True
        try:
            yield from self._ask_identity()
        finally:
            self._is_asking_identity = False

    def _ask_identity(self) -> Call[None]:
        identity = self._identity
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )
        reply = yield from self._ask(request, "init")
        assert isinstance(reply, InitProducerIdResponse)
        if reply.producer_id < 0:
            raise PeerError(f"a broker gives the producer id {reply.producer_id}")
        self._find_version()
        identity.take(reply.producer_id, reply.producer_epoch)
        self._has_hole = self._is_abort_unheard = False
        self.state = State.READY

    def _ended(self) -> Call[None]:
        while self.state is State.ENDING:
            yield Pause(ENDING_PAUSE_MS)

    def begin(self) -> Call[None]:
        """Be READY to `open` one.  Raises NoTransaction when one is open, ProducerFenced."""
        yield from self._ended()
        if self.state in (State.OPEN, State.PREPARED):
            raise NoTransaction(f"a transaction is {self.state.value} already")
        yield from self.init()

    def open(self, holder: object) -> None:
        """What is sent from now on is in it, which is the `holder`'s to end.  Behind `begin`;
        raises NoTransaction when another caller came in between."""
        if self.state is not State.READY:
            raise NoTransaction(f"a transaction is {self.state.value} already")
        self.holder = holder
        self.state = State.OPEN
        self.is_aborted = False
        self.error = None
        self._is_touched = False
        self._written.clear()
        self._accumulator.reopen()

    def commit(self) -> Call[None]:
        """End it, everything in it seen.

        Raises DeliveryFailed when a record was not acknowledged, TransactionAborted when it was
        open for too long; nothing of it is seen then.  ProducerFenced: nor of this one, unless the
        broker had committed it, its answer was lost, and another producer took over before it was
        asked again.  TimedOut when the broker did not answer: whether it was committed is open, and
        the next `begin` finds out.
        """
        yield from self._settled()
        yield from self._end(committed=True)

    def abort(self) -> Call[None]:
        """End it, nothing in it seen; what was not sent yet is dropped.  None open: nothing.

        One that was interrupted, or came to its deadline, is gone on with by the next call, of
        this, `init` or `begin`; also by the end of the producer.
        """
        if self.state not in (State.OPEN, State.ABORTING):
            return
        self.state = State.ABORTING
        holder = self.holder
        self._accumulator.shut(_outside())
        self.error = self.error or TransactionAborted("the transaction was aborted")
        self._wanted.clear()
        self._drop_unsent(self.error)
        yield Until(self._flush())
        yield from self._parts_told()
        if self.state is not State.ABORTING or self.holder is not holder:
            yield from self._ended()  # by the abort before this one
            return
        self._accumulator.take_undelivered()
        yield from self._end(committed=False)

    def _parts_told(self) -> Call[None]:
        """What is to take part, and was asked for, is answered."""
        while self._adding is not None or self._offsets_count:
            yield Pause(ENDING_PAUSE_MS)

    def _drop_unsent(self, error: SegbrokerError) -> None:
        self._has_hole |= self._accumulator.drop_unsent(error)

    def prepare(self) -> Call[PreparedTransaction]:
        """Have everything written and leave it open, for somebody else to end."""
        yield from self._settled()
        self._accumulator.shut(NoTransaction("the transaction is prepared: somebody else ends it"))
        self.state = State.PREPARED
        return PreparedTransaction(
            self.transactional_id, self._identity.producer_id, self._identity.epoch
        )

    def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> Call[None]:
        """Have the group stand there when the transaction is committed.

        Raises UnknownMemberId, IllegalGeneration, FencedInstanceId when the member that read them
        is none any more; TransactionAborted when the broker has given the transaction up, or the id
        to another producer: its end says which.  However it fails, the transaction can only be
        aborted then.  That a record was refused is for its end to tell.
        """
        if not isinstance(group, GroupMetadata):
            kind = type(group).__name__
            raise TypeError(f"group is a {kind}, not the consumer's group_metadata")
        self._check_open()
        if not offsets:
            return
        self._is_touched = True
        self._offsets_count += 1
        try:
            if not self.is_second:
                reply = yield from self._ask(
                    AddOffsetsToTxnRequest(
                        transactional_id=self.transactional_id,
                        producer_id=self._identity.producer_id,
                        producer_epoch=self._identity.epoch,
                        group_id=group.group_id,
                    ),
                    f"offsets of group {group.group_id!r}",
                )
                assert isinstance(reply, AddOffsetsToTxnResponse)
                self._check_open()
            yield from self._ask(
                offsets_request(self.transactional_id, self._identity, offsets, group),
                f"offsets of group {group.group_id!r}",
                of=self._groups.setdefault(
                    group.group_id, Coordinator(self._engine, group.group_id, GROUP_KEY)
                ),
            )
        except SegbrokerError as exc:
            self.fail(exc)
            raise
        except GeneratorExit:
            # At its deadline: whether the broker has them, or gets them yet, is not known.
            self.fail(TimedOut(f"offsets of group {group.group_id!r}: no answer came in time"))
            raise
        finally:
            self._offsets_count -= 1

    # Inside.

    def _fenced(self) -> ProducerFenced:
        """A broker gives both cases the same answer."""
        return ProducerFenced(
            f"{self.transactional_id!r}: another producer took over, or a transaction was open for"
            f" longer than transaction_timeout_ms={self.timeout_ms}"
        )

    def _aborted_by_broker(self, why: BrokerError) -> TransactionAborted:
        """Where nobody else has the transactional id."""
        if why.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return TransactionAborted(
                f"nothing of the transaction is seen: the broker knew {self.transactional_id!r} no"
                " more, as where nobody used it for transactional.id.expiration.ms"
            )
        return TransactionAborted(
            "the broker aborted the transaction: it was open for longer than"
            f" transaction_timeout_ms={self.timeout_ms}"
        )

    def _before_its_end(self, error: SegbrokerError) -> SegbrokerError:
        """As it is told within the transaction: only its end finds out who has the id."""
        if not isinstance(error, BrokerError) or error.code not in FENCING:
            return error
        void = TransactionAborted(f"nothing of the transaction is seen: {self._fenced()}")
        void.__cause__ = error
        return void

    def _check_open(self) -> None:
        if self.state is State.FENCED:
            raise self._fenced()
        if self.state is not State.OPEN:
            raise _outside()

    def _settled(self) -> Call[None]:
        """Everything is acknowledged, or the transaction has failed: told alike whether somebody
        waited for it here or it was so before."""
        self._check_open()
        holder = self.holder
        self._accumulator.shut(_outside())
        yield Until(self._flush())
        yield from self._parts_told()
        if self.holder is not holder:
            raise _outside()  # the caller has left this, and the next one is open
        undelivered = self._accumulator.take_undelivered()
        if isinstance(self.error, BrokerError) and self.error.code in FENCING:
            self._added.clear()
            self._wanted.clear()
            self.state = State.NEW
            yield from self.init()
            raise self._aborted_by_broker(self.error) from self.error
        if isinstance(self.error, TransactionAborted):
            raise self.error  # which says of all of it why it is void
        if undelivered:
            raise DeliveryFailed(undelivered)
        self._check_open()
        if self.error is not None:
            raise self.error

    def _end(self, *, committed: bool) -> Call[None]:
        self.state = State.ENDING
        self._is_abort_unheard = not committed
        try:
            if self._is_touched:
                yield from self._say_end(committed=committed)
            if self._has_hole:
                self.state = State.NEW
                yield from self.init()
        except BrokerError as exc:
            if exc.code in FENCING or exc.code == ErrorCode.INVALID_TXN_STATE:
                # Its time was over, and the coordinator has aborted it; it never had anything, as
                # what was to take part was refused; or we are fenced: ask.
                self.state = State.NEW
                yield from self.init()
                if committed:
                    raise self._aborted_by_broker(exc) from exc
            elif committed and exc.code == ErrorCode.TRANSACTION_ABORTABLE:
                # The caller aborts it now, or, where that one has gone, what comes next.
                self.state = State.ABORTING
                self.error = exc
                raise
            else:
                self.state = State.NEW
                raise
        finally:
            self._added.clear()
            self._wanted.clear()
            if self.state is State.ENDING:
                # Interrupted: only the broker knows how it went, and says so by what comes next.
                self.state = State.NEW
        self._is_abort_unheard = False
        self.is_aborted = not committed
        self.state = State.READY

    def _say_end(self, *, committed: bool) -> Call[None]:
        identity = self._identity
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=committed,
        )
        reply = yield from self._ask(request, "commit" if committed else "abort")
        assert isinstance(reply, EndTxnResponse)
        if self.is_second and reply.producer_id >= 0:
            identity.take(reply.producer_id, reply.producer_epoch)
            self._has_hole = False

    def _ask(self, request: Message, about: str, *, of: Coordinator | None = None) -> Call[Message]:
        """The coordinator's answer, once it is not about something that passes."""
        coordinator = of or self._coordinator
        backoff = Backoff(self._engine.random, 10, 500)
        while True:
            asked = AtNewest(request) if self.is_second else request
            reply = yield from coordinator.ask(asked)
            codes = codes_in([reply]) - {ErrorCode.NONE}
            if not codes:
                return reply
            if codes & FENCING and isinstance(request, PARTS):
                refusal = broker_error(min(codes & FENCING), f"{self.transactional_id!r}: {about}")
                self.fail(refusal)
                raise self._before_its_end(refusal)
            if codes <= PASSING or all(ErrorCode.of(code).retryable for code in codes):
                if isinstance(request, PARTS) and self.error is not None:
                    raise self._before_its_end(self.error)  # it is not wanted any more
                why = broker_error(min(codes), f"{self.transactional_id!r}: {about}")
                yield Pause(backoff.next_delay_ms(), why)
                continue
            code = min(codes - PASSING, default=min(codes))
            if isinstance(request, InitProducerIdRequest) and code in FENCING:
                self.state = State.FENCED
                raise self._fenced()
            raise broker_error(code, f"{self.transactional_id!r}: {about}")

    def _find_version(self) -> None:
        """A level is the cluster's: any broker tells it, whichever is the coordinator by now."""
        nodes = self._engine.network.nodes.values()
        connections = [node.connection for node in nodes if node.connection is not None]
        self.is_second = any(each.features.get(FEATURE, 0) >= 2 for each in connections)

    # What producing asks.

    def may_send(self, queue: PartitionQueue) -> bool:
        """Whether the partition takes part; if not, it soon does."""
        if self.state not in (State.OPEN, State.ABORTING, State.ENDING):
            return False
        self._is_touched = True
        if self.is_second or queue in self._added:
            return True
        self._wanted[queue] = None
        return False

    def wrote(self, topic: str, topic_id: UUID) -> None:
        """Something of the transaction was acknowledged in this topic; the cluster may have told of
        another one before."""
        self._written.setdefault(topic, topic_id)
        self.topic_is(topic, self._engine.cluster.topic_id(topic))

    def topic_is(self, topic: str, topic_id: UUID) -> None:
        """The cluster says so: what was written to another topic of the name is gone with it, and
        the rest is not seen without."""
        written = self._written.get(topic, topic_id)
        if self.state is not State.OPEN or written == topic_id or ZERO_UUID in (written, topic_id):
            return
        error = TransactionAborted(
            f"topic {topic!r} was deleted and made again within the transaction:"
            " what was written to it before is gone"
        )
        self.fail(error)
        self._drop_unsent(error)

    def fail(self, error: SegbrokerError) -> None:
        """Something of the transaction was refused, or given up: it can only be aborted."""
        self._has_hole = True
        if self.error is None:
            self.error = error

    # The engine's side.

    @property
    def _may_add(self) -> bool:
        """Whether partitions can be added: also for what an abort has to wait for."""
        return self.state in (State.OPEN, State.ABORTING)

    def step(self, now_ms: int) -> None:
        if not self._wanted or self._adding is not None or not self._may_add:
            return
        wanted = list(self._wanted)
        self._wanted.clear()
        call = self._adding = self._engine.call(self._add(wanted), now_ms)
        call.on_done(lambda: self._add_done(wanted, call))

    def _add(self, queues: list[PartitionQueue]) -> Call[None]:
        partitions = [TopicPartition(queue.topic, queue.partition) for queue in queues]
        request = partitions_request(self.transactional_id, self._identity, partitions)
        yield from self._ask(request, "partitions")

    def _add_done(self, queues: list[PartitionQueue], call: Completion[None]) -> None:
        self._adding = None
        if call.error is None:
            self._added.update(queues)
            for queue in queues:  # it may have been wanted again meanwhile
                self._wanted.pop(queue, None)
            return
        error = call.error
        if not isinstance(error, SegbrokerError):
            raise error
        self.fail(error)
        # Nothing of it will be sent: who waits for it must not wait for the delivery timeout.
        self._drop_unsent(error)

    def next_wake_ms(self) -> int | None:
        is_due = self._wanted and self._adding is None and self._may_add
        return 0 if is_due else None

    def close(self, error: SegbrokerError) -> None:
        self._wanted.clear()


def not_aborted(failure: SegbrokerError, exc: BaseException) -> None:
    """An abort because of `exc` has failed: said in a note on that, or raised where it is why the
    rest failed, too."""
    if isinstance(failure, ProducerFenced) and isinstance(exc, SegbrokerError):
        raise failure from exc
    # The broker aborts it in time, at the latest when the next producer of the name begins.
    exc.add_note(f"aborting the transaction failed too: {failure}")


def _outside() -> NoTransaction:
    return NoTransaction("a transactional producer sends inside `with producer.transaction():`")

"""A transactional producer among simulated brokers, over connections that take their time.

    world = TransactionWorld(seed, brokers=3, partitions=2, is_second=True)
    sender = world.start(transaction_timeout_ms=5_000)

The brokers speak protocol 2 (KIP-890), or not.  `world.coordinators` says which broker is the
coordinator of the transactional id, and which that of the group; what each is refused with next
stands in `world.refusals`.

What the protocol cannot tell apart does not come there late, of a connection that is gone: under
protocol 1 an end, or what adds something, from that of the transaction before; the first question
for an identity from that of another producer.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from segbroker.client.connection import Connection
from segbroker.client.coordinator import GROUP_KEY, TRANSACTION_KEY
from segbroker.client.engine import Engine
from segbroker.client.settings import ClientSettings
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.messages_core import ApiVersionsRequest
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from segbroker.protocol.messages_transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from segbroker.protocol.record_batch import read_header
from segbroker.protocol.schema import Message

from .simulated import Broker
from .simulated_coordinator import TOPIC, Coordination
from .test_produce_storms import SlowWorld
from .test_producing import Sender

REQUEST_TIMEOUT_MS: Final = 2_000
API_TIMEOUT_MS: Final = 10_000
# From these versions on a request means protocol 2.
IMPLICIT_PRODUCE: Final = 12
IMPLICIT_OFFSETS: Final = 5
NEXT_EPOCH: Final = 5
Asked = (
    InitProducerIdRequest
    | AddPartitionsToTxnRequest
    | AddOffsetsToTxnRequest
    | TxnOffsetCommitRequest
    | EndTxnRequest
)


class TransactionBroker(Broker):
    """See the module."""

    def __init__(self, number: int, world: "TransactionWorld") -> None:
        super().__init__(number, world.cluster)
        self.world = world
        self.is_of_before = False
        self._version = 0

    def _reply(self, request: Message, version: int) -> tuple[Message, int]:
        world = self.world
        self._version = version
        match request:
            case ApiVersionsRequest():
                reply, version = super()._reply(request, version)
                if not world.is_second:
                    rows = reply.finalized_features  # type: ignore[attr-defined]
                    rows[:] = [row for row in rows if row.name != "transaction.version"]
                return reply, version
            case FindCoordinatorRequest():
                number = world.coordinators[request.key_type]
                code = world.find_refusals.pop(0) if world.find_refusals else ErrorCode.NONE
                row = FindCoordinatorResponseCoordinator(
                    key=request.coordinator_keys[0],
                    node_id=-1 if code else number,
                    host="10.0.0.1",
                    port=9000 + number,
                    error_code=code,
                    error_message=None,
                )
                return FindCoordinatorResponse(coordinators=[row]), version
            case (
                InitProducerIdRequest()
                | AddPartitionsToTxnRequest()
                | AddOffsetsToTxnRequest()
                | TxnOffsetCommitRequest()
                | EndTxnRequest()
            ):
                return self._coordinate(request, version), version
        return super()._reply(request, version)

    def _coordinate(self, asked: Asked, version: int) -> Message:
        world = self.world
        world.asked.append(asked)
        is_of_group = isinstance(asked, TxnOffsetCommitRequest)
        if world.coordinators[GROUP_KEY if is_of_group else TRANSACTION_KEY] != self.number:
            return refused(asked, ErrorCode.NOT_COORDINATOR)
        is_first_init = isinstance(asked, InitProducerIdRequest) and asked.producer_id < 0
        if self.is_of_before and (is_first_init or not world.is_second):
            return refused(asked, ErrorCode.NOT_COORDINATOR)
        refusals = world.refusals.get(type(asked), [])
        if isinstance(asked, EndTxnRequest) and not world.coordination.is_open:
            refusals[:] = filter(attrgetter("retryable"), refusals)  # it is decided
        if refusals:
            return refused(asked, refusals.pop(0))
        was_open = world.coordination.is_open
        reply = self._do(asked, version)
        self._check_open(was_open=was_open)
        return reply

    def _check_open(self, *, was_open: bool) -> None:
        """Nothing that comes in time opens a transaction behind the end of the one it is for."""
        if self.world.coordination.is_open and not (was_open or self.is_of_before):
            assert not self.world.is_outside()

    def _do(self, asked: Asked, version: int) -> Message:
        world, now_ms = self.world, self.world.now_ms
        rules = world.coordination
        match asked:
            case InitProducerIdRequest():
                given = rules.init(
                    asked.transaction_timeout_ms, asked.producer_id, asked.producer_epoch, now_ms
                )
                world.complete_later()
                return InitProducerIdResponse(
                    error_code=world.said(given[0]), producer_id=given[1], producer_epoch=given[2]
                )
            case AddPartitionsToTxnRequest():
                (topic,) = asked.v3_and_below_topics
                who = asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch
                return refused(asked, rules.add(*who, topic.partitions, None, now_ms))
            case AddOffsetsToTxnRequest():
                who = asked.producer_id, asked.producer_epoch
                return refused(asked, world.said(rules.add(*who, [], asked.group_id, now_ms)))
            case TxnOffsetCommitRequest():
                (row,) = asked.topics
                offsets = {row.partition_index: row.committed_offset for row in row.partitions}
                who = asked.producer_id, asked.producer_epoch
                is_implicit = version >= IMPLICIT_OFFSETS
                code = rules.stage(*who, offsets, now_ms, implicit=is_implicit)
                return refused(asked, world.said(code))
            case EndTxnRequest():
                is_next = version >= NEXT_EPOCH
                assert is_next == world.is_second
                who = asked.producer_id, asked.producer_epoch
                given = rules.end(*who, now_ms, commit=asked.committed, next_epoch=is_next)
                world.complete_later()
                code = world.said(given[0])
                if given[0] is ErrorCode.PRODUCER_FENCED and is_next and asked.committed:
                    code = world.random.choice([code, ErrorCode.INVALID_TXN_STATE])
                if code or not is_next:
                    return EndTxnResponse(error_code=code)
                return EndTxnResponse(producer_id=given[1], producer_epoch=given[2])

    def _produce_one(self, topic: str, index: int, data: bytes) -> tuple[int, int]:
        header = read_header(data)
        if self.cluster.topics[topic][index].leader == self.number:
            was_open = self.world.coordination.is_open
            code = self.world.coordination.take(
                header, index, self.world.now_ms, implicit=self._version >= IMPLICIT_PRODUCE
            )
            self._check_open(was_open=was_open)
            if code:
                is_fenced = code is ErrorCode.PRODUCER_FENCED
                return ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else code, -1
        return super()._produce_one(topic, index, data)


def refused(asked: Asked, code: ErrorCode) -> Message:
    """The answer that says so of all of it, also that it is done."""
    match asked:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        case AddPartitionsToTxnRequest():
            (topic,) = asked.v3_and_below_topics
            # What is wrong with one of them keeps the rest from being tried.
            is_of_one = code in (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            rest = ErrorCode.OPERATION_NOT_ATTEMPTED if is_of_one else code
            rows = [
                AddPartitionsToTxnResponsePartition(
                    partition_index=index, partition_error_code=rest if place else code
                )
                for place, index in enumerate(topic.partitions)
            ]
            done = AddPartitionsToTxnResponseTopic(name=topic.name, results_by_partition=rows)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[done])
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(error_code=code)
        case TxnOffsetCommitRequest():
            (of_topic,) = asked.topics
            each = [
                TxnOffsetCommitResponsePartition(
                    partition_index=row.partition_index, error_code=code
                )
                for row in of_topic.partitions
            ]
            of_all = TxnOffsetCommitResponseTopic(name=of_topic.name, partitions=each)
            return TxnOffsetCommitResponse(topics=[of_all])
        case EndTxnRequest():
            return EndTxnResponse(error_code=code)


class TransactionWorld(SlowWorld):
    """See the module."""

    def __init__(self, seed: int, *, brokers: int, partitions: int, is_second: bool) -> None:
        super().__init__(seed, brokers)
        self.is_second = is_second
        self.late_ms = self.random.choice([0, 5, 300, 3_000])
        self.cluster.brokers = {n: TransactionBroker(n, self) for n in range(1, brokers + 1)}
        self.logs = self.cluster.create(TOPIC, partitions)
        self.coordination = Coordination(self.logs)
        self.coordinators = dict.fromkeys((GROUP_KEY, TRANSACTION_KEY), 1)
        self.refusals: dict[type[Message], list[ErrorCode]] = {}
        self.find_refusals: list[ErrorCode] = []
        # Whether the producer is between two transactions.
        self.is_outside: Callable[[], bool] = lambda: False
        # What the coordinators were asked.
        self.asked: list[Asked] = []
        # Who was fenced hears it so, from one coordinator or another.
        self._fenced = self.random.choice(
            [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
        )

    def start(self, **settings: Any) -> Sender:  # noqa: ANN401
        """A producer of the transactional id; there is none beside it any more."""
        self._links.clear()
        self.settings = ClientSettings(
            bootstrap=(("10.0.0.1", 9001),),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            api_timeout_ms=API_TIMEOUT_MS,
        )
        self.engine = Engine(self.settings, self.random)
        return Sender(self, transactional_id="tx", **settings)

    def said(self, code: ErrorCode) -> ErrorCode:
        """As the coordinator says it."""
        return self._fenced if code is ErrorCode.PRODUCER_FENCED else code

    def complete_later(self) -> None:
        """What is decided is so in every partition, some time later."""
        if self.coordination.is_ending:
            key = self.coordination.known
            due_ms = self.now_ms + self.random.choice([0, 20, 400])

            def complete() -> None:
                if self.coordination.known == key:
                    self.coordination.complete(self.now_ms)

            self._late.append((due_ms, object(), complete))

    def lapse(self) -> None:
        """What is open for too long is aborted."""
        self.coordination.lapse(self.now_ms)
        self.complete_later()

    def wake_at(self, at_ms: int) -> None:
        """Something is to happen then."""
        self._late.append((at_ms, object(), lambda: None))

    def _arrives(
        self, connection: Connection, broker: Broker, reader: FrameReader, data: bytes
    ) -> None:
        assert isinstance(broker, TransactionBroker)
        broker.is_of_before = connection not in self._links
        super()._arrives(connection, broker, reader, data)

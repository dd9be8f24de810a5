"""A producer works in transactions while its coordinator moves, loads, refuses, aborts or forgets,
brokers go away, leaders of partitions move, answers are lost or late, callers leave, others end
what it prepared or take its id over, and it is started again.

What a commit returned for is there whole, records and offsets, once and in order; what it said was
not committed is not; where it does not know, all of it is there or nothing.  No call outlasts its
deadline.  When it is calm again, the next transaction is committed, or the producer is fenced, and
has been.

In simulated time, a seed is a run.
"""

from collections.abc import Callable, Generator
from random import Random
from typing import Any, NamedTuple, TypeVar

import pytest

from segbroker.client.completion import Completion
from segbroker.client.driver import HURRIED_MS
from segbroker.client.engine import Call
from segbroker.client.errors import (
    NoTransaction,
    ProducerFenced,
    SegbrokerError,
    TimedOut,
    TransactionAbortable,
    TransactionAborted,
)
from segbroker.client.group_offsets import CommittedOffset, GroupMetadata
from segbroker.client.inbox import Delivery
from segbroker.client.records import TopicPartition
from segbroker.client.transactions import State, Transactions
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from segbroker.protocol.schema import Message

from ..support.extent import share
from .simulated import Broker
from .simulated_coordinator import GROUP, TOPIC, committed, rows
from .simulated_transactions import (
    API_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    TransactionWorld,
)
from .test_fetching import store

T = TypeVar("T")

STEPS = 150
CALM_MS = 60_000
PASSING = [
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
]
# What ends the transaction, and nothing else.
ABORTING: dict[type[Message], list[ErrorCode]] = {
    AddPartitionsToTxnRequest: [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
    AddOffsetsToTxnRequest: [ErrorCode.GROUP_AUTHORIZATION_FAILED],
    TxnOffsetCommitRequest: [ErrorCode.ILLEGAL_GENERATION, ErrorCode.TRANSACTION_ABORTABLE],
    EndTxnRequest: [ErrorCode.TRANSACTION_ABORTABLE],
}
OF_BATCHES = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_RECORD,
]
REQUESTS: list[type[Message]] = [InitProducerIdRequest, *ABORTING]


class Wait(NamedTuple):
    """Until it is done, or until then."""

    done: Completion[Any] | None
    at_ms: int


Steps = Generator[Wait, None, T]


class LeftError(Exception):
    """The caller does not wait any more: it was cancelled, or Ctrl-C came."""


class RegretError(Exception):
    """The caller's own reason to abort."""


class Work:
    """One transaction, as its caller knows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: list[tuple[int, bytes, Delivery]] = []
        self.offsets: dict[int, int] = {}
        # Whether it is committed; None: not known.
        self.is_committed: bool | None = False


class Storm:
    """What may happen."""

    def __init__(self, seed: int, *, is_second: bool) -> None:
        random = self.random = Random(seed)
        self.world = TransactionWorld(
            seed,
            brokers=random.choice([1, 2, 3]),
            partitions=random.choice([1, 4]),
            is_second=is_second,
        )
        self.works: list[Work] = []
        self.others = 0
        self.is_calm = self.is_last = self.is_stopped = False
        # Another producer has the id, and it cannot know yet.
        self.is_taken_over = False
        # It was unknown to the coordinator: whose first answer is lost then is fenced, as in Kafka.
        self.is_forgotten = False
        self._steps: Steps[None] | None = None
        self._waits = Wait(None, 0)
        turn = self.world.turn
        self.world.turn = lambda: self.works_on() or turn()  # type: ignore[method-assign]
        if random.random() < 0.3:
            self.world.coordination.age()
        self.start()
        self.world.pass_ms(20_000)

    @property
    def brokers(self) -> list[Broker]:
        return list(self.world.cluster.brokers.values())

    @property
    def transactions(self) -> Transactions:
        return self.sender.producing.in_transactions

    # The producer's caller.

    def start(self) -> None:
        """It is started, also again, whatever it was at."""
        if self._steps is not None:
            self._steps.close()
        self.delivery_timeout_ms = self.random.choice([4_000, 20_000])
        self.sender = self.world.start(
            batch_bytes=self.random.choice([150, 1_000]),
            linger_ms=self.random.choice([0, 20]),
            delivery_timeout_ms=self.delivery_timeout_ms,
            transaction_timeout_ms=self.random.choice([3_000, 60_000]),
        )
        self.end_timeout_ms = API_TIMEOUT_MS + self.delivery_timeout_ms
        self.is_stopped = self.is_taken_over = self.is_forgotten = False
        self._steps = self.runs()
        self._waits = Wait(None, 0)

    def works_on(self) -> bool:
        """Whether what it waited for was there."""
        done, at_ms = self._waits
        if self._steps is None or not ((done and done.done) or self.world.now_ms >= at_ms):
            return False
        try:
            self._waits = next(self._steps)
        except StopIteration:
            self._steps = None
        else:
            self.world.wake_at(self._waits.at_ms)
        return True

    def pauses(self, *choices_ms: int) -> Steps[None]:
        yield Wait(None, self.world.now_ms + self.random.choice(choices_ms))

    def call(self, call: Call[T], timeout_ms: int, patience_ms: int | None = None) -> Steps[T]:
        """As a shell does it; LeftError when the caller has no patience any more."""
        began_ms = self.world.now_ms
        done = self.world.engine.call(call, began_ms, timeout_ms=timeout_ms)
        if not done.done:
            yield Wait(done, began_ms + (timeout_ms if patience_ms is None else patience_ms))
        if not done.done and patience_ms is not None:
            raise LeftError
        if not done.done:  # in this turn, then
            yield Wait(done, self.world.now_ms + 1)
        assert done.done, "a call outlasts its deadline"
        return done.result()

    def runs(self) -> Steps[None]:
        """One transaction after another."""
        while not self.is_last:
            yield from self.pauses(0, 10, 500)
            self.sends_outside()
            try:
                yield from self.transaction()
            except (SegbrokerError, LeftError, RegretError) as exc:
                if isinstance(exc, ProducerFenced):
                    yield from self.stops()

    def stops(self) -> Steps[None]:
        """It is fenced."""
        assert self.is_taken_over or self.is_forgotten, "nobody has taken it over"
        asked = len(self.world.asked)
        for call in (self.transactions.init(), self.transactions.begin()):
            with pytest.raises(ProducerFenced):
                yield from self.call(call, 0)
        self.sends_outside()
        assert len(self.world.asked) == asked
        yield from self.waits_for_its_end()

    def waits_for_its_end(self) -> Steps[None]:
        self.is_stopped = True
        while True:
            yield from self.pauses(CALM_MS)

    def sends_outside(self) -> None:
        with pytest.raises(NoTransaction):
            self.sender.try_send(TOPIC, b"outside", partition=0)

    def transaction(self) -> Steps[None]:
        """As Producer.transaction."""
        transactions = self.transactions
        yield from self.call(transactions.begin(), API_TIMEOUT_MS)
        work = Work(len(self.works))
        self.works.append(work)
        holder = object()
        try:
            transactions.open(holder)
            for _ in range(self.random.randrange(6)):
                yield from self.does(work)
            if self.random.random() < 0.1 and not self.is_calm:
                raise RegretError
            if self.random.random() < 0.02 and not self.is_calm:
                yield from self.prepares(work)
            work.is_committed = None
            patience_ms = None if self.is_calm else self.random.choice([None] * 4 + [0, 100])
            yield from self.call(transactions.commit(), self.end_timeout_ms, patience_ms)
            work.is_committed = True
        except (SegbrokerError, LeftError, RegretError) as exc:
            if not isinstance(exc, TimedOut | ProducerFenced | LeftError):
                work.is_committed = False
            if transactions.holder is holder:
                yield from self.aborts(work, is_hurried=isinstance(exc, LeftError))
            raise

    def prepares(self, work: Work) -> Steps[None]:
        """Somebody else ends it."""
        told = yield from self.call(self.transactions.prepare(), self.end_timeout_ms)
        commit = self.random.random() < 0.5
        code, *_ = self.world.coordination.end(
            told.producer_id,
            told.producer_epoch,
            self.world.now_ms,
            commit=commit,
            next_epoch=self.world.is_second,
        )
        self.world.complete_later()
        work.is_committed = commit and not code
        with pytest.raises(NoTransaction):
            yield from self.call(self.transactions.begin(), 0)
        yield from self.waits_for_its_end()

    def aborts(self, work: Work, *, is_hurried: bool) -> Steps[None]:
        timeout_ms = HURRIED_MS if is_hurried else self.end_timeout_ms
        try:
            yield from self.call(self.transactions.abort(), timeout_ms)
        except ProducerFenced:
            raise
        except SegbrokerError:
            return
        if self.transactions.is_aborted:
            work.is_committed = False

    def does(self, work: Work) -> Steps[None]:
        """Something inside."""
        match self.random.randrange(5):
            case 0 | 1:
                for _ in range(self.random.choice([1, 3, 20])):
                    self.sends(work)
            case 2:
                offsets = {p: work.number * 100 + p for p in range(self.random.choice([1, 2]))}
                work.offsets |= offsets
                stands = {TopicPartition("in", p): CommittedOffset(o) for p, o in offsets.items()}
                group = GroupMetadata(GROUP)
                patience_ms = None if self.is_calm else self.random.choice([None] * 4 + [10])
                call = self.transactions.send_offsets(stands, group)
                yield from self.call(call, API_TIMEOUT_MS, patience_ms)
            case 3:
                done = self.sender.producing.flush()
                limit_ms = self.delivery_timeout_ms + REQUEST_TIMEOUT_MS
                yield Wait(done, self.world.now_ms + limit_ms)
                assert done.done, "a record outlasts its time"
            case 4:
                yield from self.pauses(0, 10, 1_000 if self.is_calm else 4_000)

    def sends(self, work: Work) -> None:
        partition = self.random.randrange(len(self.world.logs))
        value = b"%d:%d" % (work.number, len(work.sent))
        got = self.sender.try_send(TOPIC, value, partition=partition)
        if isinstance(got, Delivery):  # else its topic is not known yet
            work.sent.append((partition, value, got))

    # The world.

    def other(self) -> None:
        """Somebody sends without transactions."""
        self.others += 1
        for log in self.world.logs:
            store(log, [b"other:%d" % self.others])

    def move(self) -> None:
        partition = self.random.choice(self.world.logs)
        partition.leader = self.random.choice(self.brokers).number
        partition.leader_epoch += 1
        partition.epoch_starts.append((partition.leader_epoch, partition.log_end))

    def move_coordinator(self) -> None:
        key_type = self.random.choice(list(self.world.coordinators))
        self.world.coordinators[key_type] = self.random.choice(self.brokers).number
        self.world.find_refusals += [ErrorCode.COORDINATOR_NOT_AVAILABLE] * self.some()

    def some(self) -> int:
        return self.random.randrange(3)

    def pass_by(self) -> None:
        """What passes is answered."""
        refusals = self.world.refusals.setdefault(self.random.choice(REQUESTS), [])
        refusals += [self.random.choice(PASSING) for _ in range(self.some())]

    def refuse(self) -> None:
        kind = self.random.choice(list(ABORTING))
        self.world.refusals.setdefault(kind, []).append(self.random.choice(ABORTING[kind]))

    def refuse_batches(self) -> None:
        codes = [self.random.choice(OF_BATCHES) for _ in range(self.some())]
        self.random.choice(self.brokers).produce_errors += codes

    def abort(self) -> None:
        """The coordinator does, as an administrator has asked it to."""
        self.world.coordination.abort(self.world.now_ms)
        self.world.complete_later()

    def take_over(self) -> None:
        if self.random.random() < 0.2 and self.sender.producing._identity.producer_id >= 0:
            self.world.coordination.take_over(self.world.now_ms)
            self.is_taken_over = True

    def forget(self) -> None:
        """The coordinator knows the id no more."""
        is_unused = self.transactions.state in (State.READY, State.OPEN)
        if is_unused and not self.is_taken_over and self.random.random() < 0.2:
            self.world.coordination.forget()
            self.is_forgotten = True

    def start_again(self) -> None:
        if self.is_stopped or self.random.random() < 0.2:
            self.start()

    def goes_or_comes(self) -> None:
        self.random.choice(self.brokers).is_up ^= True

    def heal(self) -> None:
        for broker in self.brokers:
            broker.is_up = True
            broker.produce_errors.clear()
        self.world.refusals.clear()
        self.world.find_refusals.clear()

    def blows(self) -> None:
        does: list[Callable[[], object]] = [
            *(self.other, self.move, self.move_coordinator, self.pass_by, self.refuse),
            *(self.refuse_batches, self.abort, self.take_over, self.start_again, self.forget),
            *(self.goes_or_comes, self.world.cut, self.world.cut, self.heal, self.heal),
        ]
        for _ in range(STEPS):
            self.random.choice(does)()
            self.world.lapse()
            self.world.pass_ms(self.random.choice([0, 5, 300, 300, 1_000]))

    # Afterwards.

    def calms(self) -> None:
        """The next transaction is committed, or it is fenced; started again, it commits."""
        self.heal()
        self.is_calm = True
        self.world.late_ms = min(300, self.world.late_ms)
        if self.is_taken_over:
            self.until(lambda: self.is_stopped)
        self.next_work()
        while self.world.coordination.known is None:  # it has to notice
            self.next_work()
        work = self.next_work()
        self.is_last = True
        self.until(lambda: self._steps is None and not self.world.coordination.is_ending)
        assert work.is_committed, "what was begun when it is calm is not committed"
        assert not self.world.coordination.is_open

    def next_work(self) -> Work:
        """The next one that is begun."""
        before = len(self.works)
        self.until(lambda: self.is_stopped or len(self.works) > before)
        if self.is_stopped:
            self.start()
            self.until(lambda: len(self.works) > before)
        return self.works[before]

    def until(self, is_so: Callable[[], bool]) -> None:
        ends_ms = self.world.now_ms + CALM_MS
        while not is_so():
            assert self.world.now_ms < ends_ms, "it hangs"
            self.world.pass_ms(20)

    def check(self) -> None:
        seen = [committed(log) for log in self.world.logs]
        offsets: list[dict[int, int]] = self.world.coordination.offsets
        for work in self.works:
            if work.is_committed is None:
                is_seen = any(value in seen[partition] for partition, value, _ in work.sent)
                work.is_committed = is_seen or work.offsets in offsets
        done = [work for work in self.works if work.is_committed]
        for index, values in enumerate(seen):
            wanted = [value for work in done for p, value, _ in work.sent if p == index]
            assert [value for value in values if not value.startswith(b"other")] == wanted
            others = [b"other:%d" % number for number in range(1, self.others + 1)]
            assert [value for value in values if value.startswith(b"other")] == others
        assert offsets == [work.offsets for work in done if work.offsets]
        stored = [dict(rows(log)) for log in self.world.logs]
        for work in self.works:
            if work.is_committed:
                for partition, value, delivery in work.sent:
                    assert stored[partition][delivery.metadata().offset] == value


def run(world: TransactionWorld, call: Call[T], patience_ms: int = CALM_MS) -> T:
    done = world.engine.call(call, world.now_ms)
    ends_ms = world.now_ms + patience_ms
    while not done.done:
        if world.now_ms >= ends_ms:
            raise LeftError
        world.pass_ms(1)
    return done.result()


@pytest.fixture(params=[False, True], ids=["protocol 1", "protocol 2"])
def world(request: pytest.FixtureRequest) -> TransactionWorld:
    world = TransactionWorld(1, brokers=1, partitions=1, is_second=request.param)
    world.late_ms = 5
    return world


def commits(world: TransactionWorld, transactions: Transactions, offset: int) -> None:
    run(world, transactions.begin())
    transactions.open(world)
    says(world, transactions, offset)
    run(world, transactions.commit())


def says(world: TransactionWorld, transactions: Transactions, offset: int) -> None:
    stands = {TopicPartition("in", 0): CommittedOffset(offset)}
    run(world, transactions.send_offsets(stands, GroupMetadata(GROUP)))


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_within_a_transaction_that_the_broker_gave_up_nobody_is_called_fenced_yet(
    world: TransactionWorld, is_taken_over: bool
) -> None:
    transactions = world.start().producing.in_transactions
    run(world, transactions.begin())
    transactions.open(world)
    says(world, transactions, 1)
    world.coordination.abort(world.now_ms)
    if is_taken_over:
        world.coordination.take_over(world.now_ms)
    for _ in range(2):
        with pytest.raises(TransactionAborted, match="another producer took over, or a trans"):
            says(world, transactions, 1)
    with pytest.raises(ProducerFenced if is_taken_over else TransactionAborted):
        run(world, transactions.commit())
    if not is_taken_over:
        commits(world, transactions, 2)
        assert world.coordination.offsets == [{0: 2}]


@pytest.mark.parametrize("is_left", [False, True])
def test_whatever_is_said_of_an_end_the_producer_begins_the_next(
    world: TransactionWorld, is_left: bool
) -> None:
    """The commit may be left by its caller; then the next begin aborts."""
    transactions = world.start().producing.in_transactions
    world.refusals[EndTxnRequest] = [ErrorCode.TRANSACTION_ABORTABLE] * 2
    run(world, transactions.begin())
    transactions.open(world)
    says(world, transactions, 1)
    with pytest.raises(LeftError if is_left else TransactionAbortable):
        run(world, transactions.commit(), 1 if is_left else CALM_MS)
    assert transactions.state is (State.ENDING if is_left else State.ABORTING)
    with pytest.raises(TransactionAbortable):
        run(world, transactions.begin() if is_left else transactions.abort())
    commits(world, transactions, 2)
    assert world.coordination.offsets == [{0: 2}]


@pytest.mark.parametrize("is_second", [False, True], ids=["protocol 1", "protocol 2"])
@pytest.mark.parametrize("seed", range(share(8, 200)))
def test_what_a_commit_says_is_so(seed: int, is_second: bool) -> None:
    storm = Storm(seed, is_second=is_second)
    storm.blows()
    storm.calms()
    storm.check()

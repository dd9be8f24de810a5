"""A producer works in transactions while its coordinator moves, loads, refuses, aborts or forgets,
brokers go away, leaders of partitions move, answers are lost or late, callers leave, others end
what it prepared or take its id over, and it is started again.

What a commit returned for is there whole, records and offsets, once and in order; what it said was
not committed is not; where it does not know, all of it is there or nothing, from the next beginning
on.  No call outlasts its deadline.  Whenever it is calm, the next transaction is committed, or the
producer is fenced, and has been.

In simulated time, a seed is a run.
"""

from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest

from segbroker.client.engine import Call
from segbroker.client.errors import ProducerFenced, TransactionAbortable, TransactionAborted
from segbroker.client.group_offsets import CommittedOffset, GroupMetadata
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
from .simulated_transactions import TransactionWorld
from .test_fetching import store
from .transactional_caller import Caller, LeftError, Work

T = TypeVar("T")

# So often it is calm, after so many steps.
ROUNDS = 5
STEPS = 30
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
        self.settled: list[tuple[int, int]] = []
        self.others = 0
        # Another producer has the id, and ours cannot know yet.
        self.is_taken_over = False
        if random.random() < 0.3:
            self.world.coordination.age()
        self.start()
        turn = self.world.turn
        self.world.turn = lambda: self.caller.works_on() or turn()  # type: ignore[method-assign]
        self.world.pass_ms(5_000)

    @property
    def brokers(self) -> list[Broker]:
        return list(self.world.cluster.brokers.values())

    def start(self) -> None:
        """It is started, also again, whatever it was at."""
        self.caller = Caller(self.world, self.random, self.works)
        self.caller.settled = self.settled
        self.world.is_outside = lambda: self.caller.is_outside
        self.is_taken_over = False

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
        kind = self.random.choice(REQUESTS)
        codes = list(PASSING)
        if kind is AddPartitionsToTxnRequest:
            codes += [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
        refusals = self.world.refusals.setdefault(kind, [])
        refusals += [self.random.choice(codes) for _ in range(self.some())]

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
        if self.random.random() < 0.2 and self.caller.sender.producing._identity.producer_id >= 0:
            self.world.coordination.take_over(self.world.now_ms)
            self.is_taken_over = self.caller.may_be_fenced = True

    def forget(self) -> None:
        """The coordinator knows the id no more.  Whose first answer is lost then is fenced, as it
        is by Apache Kafka."""
        is_unused = self.caller.transactions.state in (State.READY, State.OPEN)
        if is_unused and not self.is_taken_over and self.random.random() < 0.2:
            self.world.coordination.forget()
            self.caller.may_be_fenced = True

    def start_again(self) -> None:
        if self.caller.is_stopped or self.random.random() < 0.2:
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
        late_ms = self.world.late_ms
        for _ in range(ROUNDS):
            self.caller.is_calm = False
            self.world.late_ms = late_ms
            for _ in range(STEPS):
                self.random.choice(does)()
                self.world.lapse()
                self.world.pass_ms(self.random.choice([0, 5, 300, 300, 1_000]))
            self.calms()
        self.caller.is_last = True
        self.until(lambda: self.caller.is_stopped and not self.world.coordination.is_ending)
        assert not self.world.coordination.is_open

    # When it is calm.

    def calms(self) -> None:
        """The next transaction is committed, or it is fenced; started again, it commits."""
        self.heal()
        self.caller.is_calm = True
        self.world.late_ms = min(100, self.world.late_ms)
        if self.is_taken_over:
            self.until(lambda: self.caller.is_stopped)
        if len(self.brokers) > 1 and self.random.random() < 0.5:
            self.empty(self.brokers[-1])
        is_known = False
        while not is_known:  # else it has to notice
            is_known = self.world.coordination.known is not None
            work = self.next_work()
        self.next_work()
        assert work.is_committed, "what was begun when it is calm is not committed"

    def empty(self, broker: Broker) -> None:
        """It is away, and nobody needs it."""
        broker.is_up = False
        for partition in self.world.logs:
            if partition.leader == broker.number:
                partition.leader, partition.leader_epoch = 1, partition.leader_epoch + 1
        for key_type, number in self.world.coordinators.items():
            if number == broker.number:
                self.world.coordinators[key_type] = 1

    def next_work(self) -> Work:
        """The next one that is begun."""
        before = len(self.works)
        self.until(lambda: self.caller.is_stopped or len(self.works) > before)
        if self.caller.is_stopped:
            self.start()
            self.caller.is_calm = True
            self.until(lambda: len(self.works) > before)
        return self.works[before]

    def until(self, is_so: Callable[[], bool]) -> None:
        ends_ms = self.world.now_ms + CALM_MS
        while not is_so():
            assert self.world.now_ms < ends_ms, "it hangs"
            self.world.pass_ms(20)

    def check(self) -> None:
        seen = [committed(log) for log in self.world.logs]
        offsets = self.world.coordination.offsets
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
        for work in done:
            for partition, value, delivery in work.sent:
                assert stored[partition][delivery.metadata().offset] == value
        dropped = {value for work in self.works for value in work.dropped}
        assert not dropped & {value for of_one in stored for value in of_one.values()}
        for begun_count, commits_count in self.settled:
            before = [w for w in self.works[:begun_count] if w.is_committed]
            assert sum(bool(w.sent or w.offsets) for w in before) == commits_count


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


def test_to_init_again_waits_for_an_end_that_was_left(world: TransactionWorld) -> None:
    transactions = world.start().producing.in_transactions
    run(world, transactions.begin())
    transactions.open(world)
    says(world, transactions, 1)
    with pytest.raises(LeftError):
        run(world, transactions.commit(), 1)
    run(world, transactions.init())
    assert transactions.state is State.READY
    assert world.coordination.commits_count == 1


def test_under_protocol_1_a_partition_is_added_once() -> None:
    """However long the answer takes, and whatever is sent meanwhile."""
    world = TransactionWorld(1, brokers=1, partitions=1, is_second=False)
    world.late_ms = 300
    sender = world.start(linger_ms=0)
    transactions = sender.producing.in_transactions
    run(world, transactions.begin())
    transactions.open(world)
    looked = world.engine.cluster.refreshed([TOPIC])
    sender.try_send(TOPIC, b"asks what partitions there are", partition=0)
    world.pass_ms(2_000)
    assert looked.done
    for _ in range(3):
        sender.send(TOPIC, b"v", partition=0)
        world.pass_ms(10)
    run(world, transactions.commit())
    world.pass_ms(1_000)
    assert [type(asked) for asked in world.asked].count(AddPartitionsToTxnRequest) == 1
    assert len(committed(world.logs[0])) == 3


@pytest.mark.parametrize("seed", range(8))
def test_a_commit_that_was_left_commits_nothing_of_the_next_transaction(seed: int) -> None:
    """It waits for offsets, as the abort does that its caller goes on with."""
    world = TransactionWorld(seed, brokers=1, partitions=1, is_second=True)
    world.late_ms = 0
    transactions = world.start().producing.in_transactions
    run(world, transactions.begin())
    transactions.open(object())
    world.refusals[TxnOffsetCommitRequest] = [ErrorCode.CONCURRENT_TRANSACTIONS]
    stands = {TopicPartition("in", 0): CommittedOffset(1)}
    world.engine.call(transactions.send_offsets(stands, GroupMetadata(GROUP)), world.now_ms)
    world.engine.call(transactions.commit(), world.now_ms)
    world.pass_ms(1 + seed)
    run(world, transactions.abort())
    run(world, transactions.begin())
    transactions.open(object())
    says(world, transactions, 2)
    world.pass_ms(100)
    assert transactions.is_open
    assert not world.coordination.commits_count


@pytest.mark.parametrize("is_second", [False, True], ids=["protocol 1", "protocol 2"])
@pytest.mark.parametrize("seed", range(share(32, 400)))
def test_what_a_commit_says_is_so(seed: int, is_second: bool) -> None:
    storm = Storm(seed, is_second=is_second)
    storm.blows()
    storm.check()

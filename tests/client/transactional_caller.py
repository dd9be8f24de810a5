"""What works in transactions all the time, in simulated time, as a shell's caller does it.

    caller = Caller(world, random, works)
    caller.works_on()       with each turn of the world

Each call ends by its deadline, and raises what is documented; the caller may leave it before (it
was cancelled, or Ctrl-C came), go on in spite of an error, look at what became of its records,
abort, have somebody else end it.  What it was told of each transaction stands in its Work.
"""

from collections.abc import Generator
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

import pytest

from segbroker.client.completion import Completion
from segbroker.client.driver import HURRIED_MS
from segbroker.client.engine import Call
from segbroker.client.errors import (
    DeliveryFailed,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidRecord,
    NoTransaction,
    ProducerFenced,
    SegbrokerError,
    TimedOut,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionAborted,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from segbroker.client.group_offsets import CommittedOffset, GroupMetadata
from segbroker.client.inbox import Delivery
from segbroker.client.records import TopicPartition
from segbroker.client.transactions import State, Transactions

from .simulated_coordinator import GROUP, TOPIC
from .simulated_transactions import API_TIMEOUT_MS, REQUEST_TIMEOUT_MS, TransactionWorld

T = TypeVar("T")

# Of a call whose answer may come too late.
SHORT_MS: Final = 100
_GIVEN_UP: Final = (TransactionAborted, TimedOut, TransactionAbortable)
_OF_OFFSETS: Final = (*_GIVEN_UP, GroupAuthorizationFailed, IllegalGeneration)
_PASSING: Final = (UnknownServerError, UnknownTopicOrPartition)
_OF_RECORDS: Final = (InvalidRecord, TopicAuthorizationFailed)


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
        # Values that were dropped by an abort before they were sent.
        self.dropped: set[bytes] = set()
        # It has seen what failed by then.
        self.has_looked = False
        # Whether it is committed; None: not known.
        self.is_committed: bool | None = False


class Caller:
    """See the module."""

    def __init__(self, world: TransactionWorld, random: Random, works: list[Work]) -> None:
        self.world = world
        self.random = random
        self.works = works
        # Nothing goes wrong on purpose; this one is the last; nothing more is done.
        self.is_calm = self.is_last = self.is_stopped = False
        # It may be told that it is fenced.
        self.may_be_fenced = False
        # How many transactions had begun, and were decided to be committed, when one was ready.
        self.settled: list[tuple[int, int]] = []
        self.delivery_timeout_ms = random.choice([4_000, 20_000])
        self.sender = world.start(
            batch_bytes=random.choice([150, 1_000]),
            linger_ms=random.choice([0, 20]),
            delivery_timeout_ms=self.delivery_timeout_ms,
            transaction_timeout_ms=random.choice([3_000, 60_000]),
        )
        self.end_timeout_ms = API_TIMEOUT_MS + self.delivery_timeout_ms
        self._steps = self._runs()
        self._waits = Wait(None, 0)

    @property
    def transactions(self) -> Transactions:
        return self.sender.producing.in_transactions

    @property
    def is_outside(self) -> bool:
        """Nothing may be a part of anything."""
        return self.transactions.state in (State.READY, State.FENCED)

    def works_on(self) -> bool:
        """Whether what it waited for was there."""
        done, at_ms = self._waits
        if self.is_stopped or not ((done and done.done) or self.world.now_ms >= at_ms):
            return False
        try:
            self._waits = next(self._steps)
        except StopIteration:
            self.is_stopped = True
        else:
            self.world.wake_at(self._waits.at_ms)
        return True

    def _pauses(self, *choices_ms: int) -> Steps[None]:
        yield Wait(None, self.world.now_ms + self.random.choice(choices_ms))

    def _may(self, probability: float) -> bool:
        return not self.is_calm and self.random.random() < probability

    def _calls(
        self, call: Call[T], timeout_ms: int, *told: type[SegbrokerError], leaves: float = 0
    ) -> Steps[T]:
        """As a shell does it; LeftError when the caller has no patience any more.

        told: what it may be told.
        """
        patience_ms = self.random.choice([0, 10, 100, 1_000]) if self._may(leaves) else timeout_ms
        began_ms = self.world.now_ms
        done = self.world.engine.call(call, began_ms, timeout_ms=timeout_ms)
        if not done.done:
            yield Wait(done, began_ms + patience_ms)
        if not done.done and patience_ms < timeout_ms:
            raise LeftError
        if not done.done:  # in this turn, then
            yield Wait(done, self.world.now_ms + 1)
        assert done.done, "a call outlasts its deadline"
        assert done.error is None or isinstance(done.error, told), repr(done.error)
        return done.result()

    def _runs(self) -> Steps[None]:
        """One transaction after another."""
        while not self.is_last:
            yield from self._pauses(0, 10, 500)
            self._sends_outside()
            try:
                yield from self._transaction()
            except (SegbrokerError, LeftError, RegretError) as exc:
                if isinstance(exc, ProducerFenced):
                    yield from self._is_fenced()
                    return

    def _is_fenced(self) -> Steps[None]:
        assert self.may_be_fenced, "nobody has taken it over"
        asked = len(self.world.asked)
        for call in (self.transactions.init(), self.transactions.begin()):
            with pytest.raises(ProducerFenced):
                yield from self._calls(call, 0, ProducerFenced)
        self._sends_outside()
        assert len(self.world.asked) == asked

    def _sends_outside(self) -> None:
        with pytest.raises(NoTransaction):
            self.sender.try_send(TOPIC, b"outside", partition=0)

    def _begins(self) -> Steps[None]:
        told = TimedOut, ProducerFenced, TransactionAbortable
        if self._may(0.1):
            yield from self._calls(self.transactions.init(), API_TIMEOUT_MS, *told, leaves=0.5)
            assert self.is_outside
        yield from self._calls(self.transactions.begin(), API_TIMEOUT_MS, *told, leaves=0.1)
        self.settled.append((len(self.works), self.world.coordination.commits_count))

    def _transaction(self) -> Steps[None]:
        """As Producer.transaction."""
        transactions = self.transactions
        yield from self._begins()
        work = Work(len(self.works))
        self.works.append(work)
        holder = object()
        try:
            transactions.open(holder)
            for _ in range(self.random.randrange(6)):
                yield from self._does(work)
            if self._may(0.15):
                raise RegretError
            if self._may(0.02):
                yield from self._prepares(work)
                return
            yield from self._commits(work)
        except (SegbrokerError, LeftError, RegretError) as exc:
            if transactions.holder is holder:
                yield from self._aborts(work, is_hurried=isinstance(exc, LeftError))
            raise

    def _commits(self, work: Work) -> Steps[None]:
        work.is_committed = None
        told = (DeliveryFailed, ProducerFenced, *_OF_OFFSETS, *_OF_RECORDS)
        try:
            commit = self.transactions.commit()
            yield from self._calls(commit, self.end_timeout_ms, *told, leaves=0.2)
        except SegbrokerError as exc:
            if not isinstance(exc, TimedOut | ProducerFenced):
                work.is_committed = False
            if isinstance(exc, DeliveryFailed):
                for record in exc.undelivered:
                    assert (record.value or b"").startswith(b"%d:" % work.number)
                    assert not isinstance(record.error, _PASSING)
            if isinstance(exc, _OF_RECORDS):
                assert work.has_looked, "not seen, and not handed back"
            raise
        work.is_committed = True
        assert not self.transactions.is_aborted

    def _prepares(self, work: Work) -> Steps[None]:
        """Somebody else ends it."""
        told = (DeliveryFailed, ProducerFenced, *_OF_OFFSETS, *_OF_RECORDS)
        prepare = self.transactions.prepare()
        prepared = yield from self._calls(prepare, self.end_timeout_ms, *told)
        commit = self.random.random() < 0.5
        code, *_ = self.world.coordination.end(
            prepared.producer_id,
            prepared.producer_epoch,
            self.world.now_ms,
            commit=commit,
            next_epoch=self.world.is_second,
        )
        self.world.complete_later()
        work.is_committed = commit and not code
        with pytest.raises(NoTransaction):
            yield from self._calls(self.transactions.begin(), 0, NoTransaction)
        self.is_last = True

    def _aborts(self, work: Work, *, is_hurried: bool) -> Steps[None]:
        if self.transactions.is_open:
            unsent = [value for _, value, delivery in work.sent if not delivery.place()[0].is_sent]
            work.dropped.update(unsent)
        timeout_ms = HURRIED_MS if is_hurried else self.end_timeout_ms
        told = TimedOut, ProducerFenced, TransactionAbortable
        try:
            yield from self._calls(self.transactions.abort(), timeout_ms, *told)
        except ProducerFenced:
            raise
        except SegbrokerError:
            return
        if self.transactions.is_aborted:
            work.is_committed = False

    def _does(self, work: Work) -> Steps[None]:
        """Something inside."""
        match self.random.randrange(6):
            case 0 | 1:
                for _ in range(self.random.choice([1, 3, 20])):
                    self._sends(work)
            case 2:
                try:
                    yield from self._says(work)
                except (SegbrokerError, LeftError):
                    if not self._may(0.5):
                        raise
            case 3:
                done = self.sender.producing.flush()
                limit_ms = self.delivery_timeout_ms + REQUEST_TIMEOUT_MS
                yield Wait(done, self.world.now_ms + limit_ms)
                assert done.done, "a record outlasts its time"
            case 4:
                yield from self._pauses(0, 10, 1_000 if self.is_calm else 4_000)
            case 5:
                self._looks(work)

    def _says(self, work: Work) -> Steps[None]:
        offsets = {p: work.number * 100 + p for p in range(self.random.choice([1, 2]))}
        work.offsets |= offsets
        stands = {TopicPartition("in", p): CommittedOffset(o) for p, o in offsets.items()}
        call = self.transactions.send_offsets(stands, GroupMetadata(GROUP))
        timeout_ms = SHORT_MS if self._may(0.2) else API_TIMEOUT_MS
        yield from self._calls(call, timeout_ms, *_OF_OFFSETS, *_OF_RECORDS, leaves=0.3)

    def _sends(self, work: Work) -> None:
        partition = self.random.randrange(len(self.world.logs))
        value = b"%d:%d" % (work.number, len(work.sent))
        got = self.sender.try_send(TOPIC, value, partition=partition)
        if isinstance(got, Delivery):  # else its topic is not known yet
            work.sent.append((partition, value, got))

    def _looks(self, work: Work) -> None:
        work.has_looked = True
        for _, _, delivery in work.sent:
            if delivery.done:
                try:
                    delivery.metadata()
                except SegbrokerError:
                    continue

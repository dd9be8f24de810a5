"""A share group's member works while leaders of its partitions move, brokers go away, hang, refuse
or take their time, the group gives it others, and locks end.

What it says of a record holds, or it hears that it does not; nothing is accepted that it has not
said so of; it is handed what was locked for it once.  When it is calm again all that is there is
done within a minute and the time that its questions take, each record once, and one that it works
at long stays its own.

In simulated time, a seed is a run.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from segbroker.client.acknowledging import Failures, Kind, ShareRecord
from segbroker.client.errors import (
    FailedAcknowledgement,
    PeerError,
    SegbrokerError,
    UnknownTopicOrPartition,
)
from segbroker.client.share_reading import ShareReading
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_share_groups import ShareFetchRequest

from .simulated_shares import ShareBroker, ShareWorld
from .test_fetching import store

STEPS = 150
# So often it is healed, and looked at behind so much time, in which all is answered.
CHECKED = 30
SETTLED_MS = 30_000
MOVES = 30
CALM_MS = 60_000
SESSION_REFUSALS = [
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
]
REFUSALS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]
BEAT_REFUSALS = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
]
Place = tuple[int, int]


class Heard(Failures):
    """How often the caller was told of each record, and what was said of it, that it does not
    hold: of each time, where it would hear of several together."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[Place, Kind]] = Counter()

    def add(self, failed: Iterable[FailedAcknowledgement]) -> None:
        for _, partition, offsets, word, _ in failed:
            kind = Kind[word.upper()]
            self.counts.update(((partition, offset), kind) for offset in offsets)


class Storm:
    """What may happen."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        random = self.random = Random(seed)
        count = random.choice([1, 4, 10])
        self.world = ShareWorld(
            seed,
            brokers=random.choice([1, 2, 3]),
            partitions=count,
            lock_ms=random.choice([2_000, 10_000]),
        )
        self.is_explicit = random.random() < 0.5
        self.reading = self.world.start(
            patch,
            explicit=self.is_explicit,
            acquire=random.choice(["batches", "records"]),
            acquire_count=random.choice([1, 5, 100]),
            acknowledge_interval_ms=random.choice([0, 100, 1_000]),
        )
        heard = self.reading.failures = Heard()
        self.brokers = list(self.world.share_brokers.values())
        # What the caller was handed, and has said nothing of.
        self.in_hand: list[ShareRecord] = []
        # partition, offset, delivery count of all that it was handed.
        self.handed: set[tuple[int, int, int]] = set()
        # How often it has said so of a record, and heard that that does not hold.
        self.said: Counter[tuple[Place, Kind]] = Counter()
        self.failed = heard.counts

    def write(self) -> None:
        for share in self.world.shares:
            if self.random.random() < 0.5:
                first = share.log.log_end
                count = self.random.randrange(1, 6)
                store(share.log, [b"%d" % (first + index) for index in range(count)])

    def poll(self) -> None:
        """As ShareConsumer.poll."""
        reading, until_ms = self.reading, self.world.now_ms + self.random.choice([1, 300, 1_000])
        if not self.is_explicit:
            self.say_of(self.in_hand, Kind.ACCEPT)
            self.in_hand = []
        reading.came_back(self.world.now_ms)
        try:
            while reading.take() is None:
                reading.want(until_ms)
                self.world.pass_ms(20)
                reading.want_no_more()
                if self.world.now_ms >= until_ms:
                    return
        except SegbrokerError:
            return  # it is said, and goes on
        reading.shown = reading.take_many(self.random.choice([1, 3, 500]))
        for item in reading.shown:
            assert isinstance(item, ShareRecord)
            handed = item.partition, item.offset, item.delivery_count
            assert item.value == b"%d" % item.offset
            assert handed not in self.handed, "handed out twice"
            share = self.world.shares[item.partition]
            assert item.offset not in share.ended, "it is locked for nobody, as is known"
            self.check_leader(item)
            self.handed.add(handed)
            # It may come again while it is at it.
            self.in_hand = [each for each in self.in_hand if place(each) != place(item)]
            self.in_hand.append(item)
        if self.reading.settings.acquire == "records":
            assert len(reading.shown) <= self.reading.settings.acquire_count * len(self.brokers)

    def check_leader(self, record: ShareRecord) -> None:
        """What another broker leads by now, as is known, is not handed out."""
        log = self.world.shares[record.partition].log
        cluster = self.reading.engine.cluster
        if cluster.leader_epoch("a", record.partition) == log.leader_epoch:
            assert self.world.shares[record.partition].given_by[record.offset] == log.leader

    def say_of(self, records: list[ShareRecord], kind: Kind) -> None:
        self.said.update((place(record), kind) for record in records)

    def forget_lost(self) -> None:
        """What is not locked for it any more it lays aside."""
        at_ms, lanes = self.world.now_ms, self.reading.lanes
        self.in_hand = [
            each
            for each in self.in_hand
            if lanes.holds((each.topic_id, each.partition), each.offset, at_ms)
        ]

    def say(self) -> None:
        """Of some records, where the caller does so; else of those that it is not to accept."""
        kind = self.random.choice([Kind.ACCEPT, Kind.ACCEPT, Kind.RELEASE, Kind.REJECT, Kind.RENEW])
        if kind is Kind.ACCEPT and not self.is_explicit:
            return
        for record in [each for each in self.in_hand if self.random.random() < 0.5]:
            self.say_one(record, kind)

    def say_one(self, record: ShareRecord, kind: Kind) -> None:
        self.say_of([record], kind)
        if kind is not Kind.RENEW:
            self.in_hand.remove(record)
        try:
            self.reading.say([record], kind)
        except SegbrokerError:  # it is not locked any more
            self.failed[place(record), kind] += 1

    def move(self) -> None:
        index = self.random.randrange(len(self.world.shares))
        self.world.move(index, self.random.choice(self.brokers).number)

    def give(self) -> None:
        count = len(self.world.shares)
        self.world.given = sorted(self.random.sample(range(count), self.random.randrange(count)))

    def lend(self) -> None:
        """Another member locks some, and is done with them, or not."""
        share = self.random.choice(self.world.shares)
        share.lapse(self.world.now_ms)
        other = object()
        until_ms = self.world.now_ms + self.world.lock_ms
        offsets = share.acquire(other, self.random.randrange(5), until_ms)
        if self.random.random() < 0.5:
            share.take(other, dict.fromkeys(offsets, Kind.ACCEPT), until_ms)

    def refuse(self) -> None:
        broker = self.random.choice(self.brokers)
        broker.acknowledge_refusals += self.some(REFUSALS)
        broker.fetch_refusals += self.some(REFUSALS)

    def refuse_session(self) -> None:
        self.random.choice(self.brokers).session_refusals += self.some(SESSION_REFUSALS)

    def omit(self) -> None:
        self.random.choice(self.brokers).omissions += self.random.randrange(2)

    def refuse_beat(self) -> None:
        self.world.beat_refusals += self.some(BEAT_REFUSALS)

    def some(self, codes: list[ErrorCode]) -> list[ErrorCode]:
        return [self.random.choice(codes) for _ in range(self.random.randrange(3))]

    def goes_or_comes(self) -> None:
        broker = self.random.choice(self.brokers)
        broker.is_up ^= True
        for _ in range(2):  # it notices
            self.world.turn()
        broker.end()

    def hang(self) -> None:
        self.random.choice(self.brokers).hangs ^= True

    def heal(self) -> None:
        for broker in self.brokers:
            broker.is_up = True
            broker.hangs = False
            broker.acknowledge_refusals.clear()
            broker.fetch_refusals.clear()
            broker.session_refusals.clear()
            broker.omissions = 0
        self.world.beat_refusals.clear()

    def check(self) -> None:
        """What was said holds, or was told not to; nothing else was done."""
        assert self.reading.lanes.is_settled
        for (at, kind), count in self.said.items():
            if kind in (Kind.ACCEPT, Kind.REJECT) and count > self.failed[at, kind]:
                assert self.done(at) == kind, f"{kind} of {at} was lost"
        for index, share in enumerate(self.world.shares):
            for offset, (holder, kind_done) in share.done.items():
                if is_mine(holder):
                    assert self.said[(index, offset), Kind(kind_done)]

    def done(self, at: Place) -> int | None:
        partition, offset = at
        return self.world.shares[partition].done.get(offset, (None, None))[1]

    def left(self) -> int:
        return sum(share.log.log_end - len(share.done) for share in self.world.shares)

    def finish(self) -> None:
        """Work until nothing is left."""
        settings = self.reading.settings
        # Who locks exact numbers asks all brokers in turn, which hold it for this long together.
        turn_ms = 2 * self.world.late_ms * len(self.brokers) + settings.fetch_wait_ms
        ends_ms = self.world.now_ms + CALM_MS + self.left() // settings.acquire_count * turn_ms
        while self.left() and self.world.now_ms < ends_ms:
            self.poll()
            if self.is_explicit:
                for record in list(self.in_hand):
                    self.say_one(record, Kind.ACCEPT)
        assert not self.left()
        self.world.pass_ms(5_000)  # the last is answered


def place(record: ShareRecord) -> Place:
    return record.partition, record.offset


def is_mine(holder: Any) -> bool:  # noqa: ANN401
    return type(holder) is not object


def fetches(broker: ShareBroker) -> int:
    return sum(isinstance(request, ShareFetchRequest) for request in broker.requests)


@pytest.mark.parametrize("seed", range(3))
def test_records_that_were_taken_one_by_one_all_stay_the_caller_s(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of one has half of its time left while that of another is being renewed."""
    world = ShareWorld(seed, brokers=1, partitions=1, lock_ms=2_000)
    world.late_ms = 50
    reading = world.start(monkeypatch, explicit=True, acquire_count=1)
    (share,) = world.shares
    store(share.log, [b""] * 20)
    held: list[ShareRecord] = []
    while len(held) < 20:
        reading.came_back(world.now_ms)
        reading.want(world.now_ms + 1_000)
        world.pass_ms(20)
        reading.want_no_more()
        if reading.take() is not None:
            reading.shown = reading.take_many(1)
            held += [item for item in reading.shown if isinstance(item, ShareRecord)]
    world.pass_ms(5 * world.lock_ms)
    assert set(share.locks) == set(range(20))
    reading.say(held, Kind.ACCEPT)  # which would raise


def test_an_older_view_of_the_cluster_takes_no_record_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a broker that has not heard yet who leads the partition."""
    world = ShareWorld(1, brokers=2, partitions=1, lock_ms=10_000)
    world.late_ms = 0
    reading = world.start(monkeypatch, explicit=True)
    (share,) = world.shares
    store(share.log, [b""])
    world.move(0, 2)
    reading.want(None)
    world.pass_ms(1_000)
    reading.want_no_more()
    record = reading.take()
    assert isinstance(record, ShareRecord)
    share.log.leader, share.log.leader_epoch = 1, 0
    looked = reading.engine.cluster.refreshed()
    world.pass_ms(1_000)
    assert looked.done
    assert reading.engine.cluster.leader("a", 0) == 1
    share.log.leader, share.log.leader_epoch = 2, 1
    reading.engine.cluster.invalidate()
    world.pass_ms(1_000)
    reading.say([record], Kind.ACCEPT)  # which would raise
    world.pass_ms(2_000)
    assert share.done[0][1] == Kind.ACCEPT


def test_what_was_said_of_a_topic_that_is_not_wanted_any_more_is_not_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ShareWorld(1, brokers=1, partitions=1, lock_ms=10_000)
    reading = world.start(monkeypatch)
    store(world.shares[0].log, [b""])

    def next_of(*topics: str) -> object:
        reading.subscribe(topics)
        reading.want(None)
        world.pass_ms(5_000)
        return reading.take()

    reading.subscribe(["nowhere"])
    world.pass_ms(5_000)
    assert isinstance(next_of("a"), ShareRecord)
    # It is again where the topic is wanted again.
    with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
        next_of("a", "nowhere")


def quick(patch: pytest.MonkeyPatch, records: int) -> tuple[ShareWorld, ShareReading]:
    """A world in which answers take no time."""
    world = ShareWorld(1, brokers=1, partitions=1, lock_ms=60_000)
    world.late_ms = 0
    reading = world.start(patch, explicit=True, acknowledge_interval_ms=100)
    store(world.shares[0].log, [b""] * records)
    return world, reading


def test_what_was_said_goes_when_it_is_due_whatever_else_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, reading = quick(monkeypatch, records=5)
    reading.want(None)
    world.pass_ms(1_000)
    reading.want_no_more()
    for record in reading.take_many(5):
        assert isinstance(record, ShareRecord)
        reading.say([record], Kind.ACCEPT)
        world.pass_ms(110)  # less often is a heartbeat due
        assert record.offset in world.shares[0].done


def test_a_commit_does_not_wait_for_renewals_that_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, reading = quick(monkeypatch, records=1)
    reading.want(None)
    world.pass_ms(1_000)
    reading.want_no_more()
    reading.shown = reading.take_many(1)
    (lane,) = reading.lanes.lanes.values()
    (part,) = lane.acquired.values()
    assert part.look_ms is not None
    world.pass_ms(part.look_ms - 1 - world.now_ms)
    world.share_brokers[1].hangs = True
    world.pass_ms(2)
    assert part.sent == {0: Kind.RENEW}
    done = reading.engine.call(reading.commit(), world.now_ms)
    world.pass_ms(1)
    assert done.done


def test_who_is_not_told_what_became_of_what_went_with_a_question_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, reading = quick(monkeypatch, records=1)
    reading.want(None)
    world.pass_ms(1_000)
    reading.want_no_more()
    record = reading.take()
    assert isinstance(record, ShareRecord)
    reading.shown = reading.take_many(1)
    reading.came_back(world.now_ms)
    reading.say([record], Kind.ACCEPT)
    world.share_brokers[1].omissions = 1
    reading.want(None)  # before it is due
    world.pass_ms(10_000)
    assert world.shares[0].done
    assert reading.lanes.is_settled
    (failed,) = reading.failures.to_tell()
    assert isinstance(failed.error, PeerError)


def test_what_waits_is_not_handed_out_when_another_broker_leads_as_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ShareWorld(1, brokers=2, partitions=1, lock_ms=60_000)
    world.late_ms = 0
    reading = world.start(monkeypatch, explicit=True)
    store(world.shares[0].log, [b""])
    reading.want(None)
    world.pass_ms(1_000)
    reading.want_no_more()
    assert reading.lanes.held_count
    world.move(0, 2)
    reading.engine.cluster.invalidate()
    world.pass_ms(1_000)
    assert reading.take() is None


def test_a_broker_that_refuses_is_left_alone_for_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, reading = quick(monkeypatch, records=1)
    broker = world.share_brokers[1]
    broker.session_refusals = [ErrorCode.SHARE_SESSION_LIMIT_REACHED] * 900
    reading.want(None)
    world.pass_ms(10_000)
    assert 5 < fetches(broker) < 50


@pytest.mark.parametrize("seed", range(12))
def test_what_is_said_of_a_record_holds_or_is_told(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm = Storm(seed, monkeypatch)
    world = storm.world
    does: list[Callable[[], None]] = [
        *(storm.write, storm.poll) * 3,
        *(storm.say, storm.say, storm.move, storm.give, storm.lend),
        *(storm.refuse, storm.refuse_session, storm.refuse_beat, storm.omit),
        *(storm.goes_or_comes, storm.hang, world.cut, storm.heal, storm.heal),
    ]
    for step in range(STEPS):
        storm.random.choice(does)()
        world.pass_ms(storm.random.choice([0, 0, 5, 300, 2_000]))
        if storm.is_explicit:
            for record in list(storm.in_hand[: storm.random.randrange(20)]):
                storm.say_one(record, Kind.ACCEPT)
        if step % CHECKED == 0:
            storm.heal()
            world.pass_ms(SETTLED_MS)
            storm.check()
    storm.heal()
    world.late_ms = min(100, world.late_ms)
    world.given = list(range(len(world.shares)))
    for _ in range(MOVES):  # no more than that happens
        storm.random.choice([storm.write, storm.poll, storm.poll, storm.say, storm.move])()
        world.pass_ms(storm.random.choice([5, 300, 2_000]))
    world.pass_ms(2 * world.lock_ms)  # what it has lost it knows then
    storm.poll()
    storm.forget_lost()
    told = sum(storm.failed.values())
    for _ in range(MOVES):
        storm.random.choice([storm.write, storm.poll, storm.poll, storm.say, storm.give])()
        world.pass_ms(storm.random.choice([5, 300, 2_000]))
    assert sum(storm.failed.values()) == told, storm.failed
    world.given = list(range(len(world.shares)))
    storm.finish()
    storm.check()
    # What it works at for long is its own, and a broker that has nothing is not asked at once.
    told = sum(storm.failed.values())
    storm.write()
    world.pass_ms(world.lock_ms)
    storm.poll()
    in_hand = list(storm.in_hand)
    world.pass_ms(2 * world.late_ms)  # a question may be on its way
    before = {broker: fetches(broker) for broker in storm.brokers}
    world.pass_ms(3 * world.lock_ms)
    assert {broker: fetches(broker) for broker in storm.brokers} == before
    for record in in_hand:
        assert storm.world.shares[record.partition].delivered[record.offset] == 1
    storm.finish()
    assert sum(storm.failed.values()) == told
    storm.check()

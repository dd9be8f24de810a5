"""The producer's core among simulated brokers: exactly once, in order, or said."""

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from segbroker.client.accumulator import Accumulator
from segbroker.client.batches import LOOKED_MS, RECORD_OVERHEAD
from segbroker.client.completion import Completion
from segbroker.client.engine import Call, Pause
from segbroker.client.errors import (
    ClosedError,
    ClusterAuthorizationFailed,
    ConnectionLost,
    DeliveryFailed,
    InvalidRecord,
    InvalidTopic,
    LeaderNotAvailable,
    MessageTooLarge,
    NoTransaction,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    SegbrokerError,
    StorageFailed,
    TimedOut,
    TopicAuthorizationFailed,
    TransactionAborted,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from segbroker.client.identity import EPOCH_MAX
from segbroker.client.inbox import Delivery, Many
from segbroker.client.producing import Producing
from segbroker.client.records import RecordMetadata
from segbroker.client.settings import ProducerSettings
from segbroker.protocol import limits
from segbroker.protocol.compression import Codec
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse, ProduceRequest
from segbroker.protocol.messages_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from segbroker.protocol.messages_transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    EndTxnRequest,
    EndTxnResponse,
)
from segbroker.protocol.partitioner import partition_for_key
from segbroker.protocol.record_batch import decode_batch, read_header
from segbroker.protocol.schema import Message, records_view

from .simulated import NOBODY, Broker, Partition, World


class Sender:
    """A producer in a world: what a shell would do, without waiting."""

    def __init__(self, world: World, **settings: Any) -> None:  # noqa: ANN401 - passed on
        self.world = world
        self.accumulator = Accumulator(
            ProducerSettings(**settings),
            world.random,
            now_ms=world.clock,
            wall_ms=lambda: 1_700_000_000_000,
            wake_by=lambda at_ms: None,
        )
        self.producing = Producing(world.engine, self.accumulator)

    def send(self, topic: str, value: bytes, **more: Any) -> Delivery:  # noqa: ANN401
        while True:
            got = self.try_send(topic, value, **more)
            if not isinstance(got, Completion):
                return got
            self.world.run(lambda room=got: room.done)  # type: ignore[misc]

    def try_send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Any = None,  # noqa: ANN401
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery | Completion[None]:
        return self.accumulator.append(topic, value, key, headers, partition, timestamp_ms)

    def flush(self) -> None:
        done = self.producing.flush()
        self.world.run(lambda: done.done)

    def send_many(self, many: Many) -> None:
        while (got := self.accumulator.append_many(many)) is not True:
            if isinstance(got, Completion):
                self.world.run(lambda room=got: room.done)  # type: ignore[misc]


def metadata(delivery: Delivery) -> RecordMetadata:
    return delivery.metadata()


def numbers(count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(count)]


def test_records_arrive_in_order_and_know_their_offsets() -> None:
    world = World()
    sender = Sender(world)
    deliveries = [sender.send("a", value) for value in numbers(100)]
    sender.flush()
    assert world.stored("a") == numbers(100)
    assert [metadata(d).offset for d in deliveries] == list(range(100))
    assert metadata(deliveries[7]) == RecordMetadata("a", 0, 7, 1_700_000_000_000)


def test_who_waited_for_a_topic_in_vain_hears_what_the_broker_said_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    answer = world.broker._metadata

    def electing(request: MetadataRequest) -> MetadataResponse:
        reply = answer(request)
        for row in reply.topics:
            row.error_code, row.partitions = ErrorCode.LEADER_NOT_AVAILABLE, []
        return reply

    monkeypatch.setattr(world.broker, "_metadata", electing)
    sender = Sender(world, delivery_timeout_ms=9_000)
    room = sender.try_send("a", b"first")
    assert isinstance(room, Completion)
    world.run(lambda: world.now_ms > 10_000)
    assert not room.done
    error = sender.producing.waited_in_vain(room)
    assert isinstance(error, TimedOut)
    assert isinstance(error.__cause__, LeaderNotAvailable)
    assert str(error).startswith("topic 'a': not known 9000 ms after send(); topic 'a': ")


def test_a_batch_lingers_and_then_goes_by_itself() -> None:
    world = World()
    sender = Sender(world, linger_ms=20)
    sender.send("a", b"first")
    began_ms = world.now_ms
    delivery = sender.send("a", b"second")
    world.run(lambda: delivery.done)
    assert 20 <= world.now_ms - began_ms < 40
    assert len(world.cluster.topics["a"][0].batches) == 1


def test_a_batch_does_not_linger_until_there_is_no_time_to_deliver_it() -> None:
    world = World()
    sender = Sender(world, linger_ms=60_000, delivery_timeout_ms=30_000)
    sender.send("a", b"first")
    began_ms = world.now_ms
    world.run(lambda: bool(world.cluster.topics["a"][0].batches))
    assert world.now_ms - began_ms == 15_000
    sender.flush()
    assert not sender.accumulator.take_undelivered()


def test_waiting_for_a_record_ends_the_lingering() -> None:
    world = World()
    sender = Sender(world, linger_ms=60_000)
    delivery = sender.send("a", b"now")
    delivery.place()[0].hurry()
    world.run(lambda: delivery.done, within_ms=100)


@pytest.mark.parametrize("fault", ["cut_before", "cut_after"])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_a_cut_connection_neither_loses_nor_repeats_nor_reorders(fault: str, number: int) -> None:
    world = World()
    getattr(world.broker, fault)(number)
    sender = Sender(world, batch_bytes=200)
    for value in numbers(200):
        sender.send("a", value)
    sender.flush()
    assert world.stored("a") == numbers(200)


@pytest.mark.parametrize("seed", range(4))
def test_of_one_failure_five_batches_hear_and_it_is_paused_for_once(seed: int) -> None:
    world = World(seed=seed)
    sender = Sender(world, batch_bytes=150)
    sender.send("a", b"known")
    sender.flush()
    for value in numbers(30):
        sender.send("a", value)
    world.engine.step(world.now_ms)
    assert len(sender.accumulator.topics["a"].queue(0).in_flight) == 5
    began_ms, count = world.now_ms, produces(world.broker)
    (connection,) = (c for c in world.engine.network.connections() if c.in_flight)
    connection.lost(ConnectionLost("cut"), world.now_ms)
    world.run(lambda: produces(world.broker) > count)
    assert world.now_ms <= began_ms + 2 * world.settings.retry_backoff_ms
    sender.flush()
    assert world.stored("a") == [b"known", *numbers(30)]


def test_many_random_cuts_lose_nothing() -> None:
    for seed in range(20):
        world = World(seed=seed)
        world.broker.cut_before(*world.random.sample(range(1, 120), 10))
        world.broker.cut_after(*world.random.sample(range(1, 120), 10))
        sender = Sender(world, batch_bytes=150, linger_ms=0)
        deliveries = []
        for value in numbers(300):
            deliveries.append(sender.send("a", value))
            if world.random.random() < 0.3:
                world.turn()
        sender.flush()
        assert world.stored("a") == numbers(300), f"seed {seed}"
        assert [metadata(d).offset for d in deliveries] == list(range(300)), f"seed {seed}"


def test_a_leader_that_moved_is_followed() -> None:
    world = World(brokers=3)
    world.cluster.create("a", 3)
    sender = Sender(world, linger_ms=0)
    for number in range(30):
        if number == 10:
            world.cluster.move("a", 0, 3)
        if number == 20:
            world.cluster.move("a", 0, 2)
        sender.send("a", b"%d" % number, partition=0)
        world.turn()
    sender.flush()
    assert world.stored("a", 0) == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_a_retryable_error_is_retried_in_order(code: ErrorCode) -> None:
    world = World()
    world.broker.produce_errors = [0, code, 0, 0, code, code]
    sender = Sender(world, batch_bytes=150)
    for value in numbers(60):
        sender.send("a", value)
    sender.flush()
    assert world.stored("a") == numbers(60)


def test_a_final_error_fails_its_batch_alone_and_the_rest_is_delivered() -> None:
    world = World()
    world.broker.produce_errors = [0, ErrorCode.INVALID_RECORD]
    sender = Sender(world, batch_bytes=150)
    for value in numbers(60):
        sender.send("a", value)
    sender.flush()
    undelivered = sender.accumulator.take_undelivered()
    lost = [record.value for record in undelivered]
    assert lost
    assert lost == numbers(60)[len(lost) : 2 * len(lost)]
    assert [v for v in numbers(60) if v not in lost] == world.stored("a")
    # The hole in the sequences is closed by the next epoch of the same producer.
    epochs = [read_header(b).producer_epoch for b in world.cluster.topics["a"][0].batches]
    assert epochs[0] == 0
    assert epochs[-1] == 1


def test_a_batch_that_is_too_large_is_split_until_it_fits() -> None:
    world = World()
    world.broker.too_large_bytes = 400
    sender = Sender(world, batch_bytes=4_000)
    deliveries = [sender.send("a", value) for value in numbers(200)]
    sender.flush()
    assert world.stored("a") == numbers(200)
    assert [metadata(d).offset for d in deliveries] == list(range(200))
    assert sender.accumulator.reserved_bytes == 0


def test_records_of_a_batch_that_is_split_keep_all_that_they_have() -> None:
    world = World()
    world.broker.too_large_bytes = 400
    sender = Sender(world, batch_bytes=4_000)
    for number in range(40):
        name = b"%d" % number
        sender.send("a", name, key=name, headers=[("h", name)], timestamp_ms=1_000 + number)
    sender.flush()
    batches = [decode_batch(data) for data in world.cluster.topics["a"][0].batches]
    assert len(batches) > 1

    def column(name: str) -> list[Any]:
        return [one for batch in batches for one in getattr(batch, name)()]

    names = [b"%d" % number for number in range(40)]
    assert column("values") == column("keys") == names
    assert column("headers") == [(("h", name),) for name in names]
    assert column("timestamps") == list(range(1_000, 1_040))


def test_records_of_a_batch_that_is_split_have_the_time_that_it_had() -> None:
    world = World()
    world.broker.too_large_bytes = 400
    sender = Sender(world, batch_bytes=4_000, delivery_timeout_ms=5_000)

    def go_away(_: ProduceRequest) -> None:
        world.broker.is_up = world.broker.refused_as_too_large == 0

    world.broker.on_produce = go_away
    began_ms = world.now_ms
    for value in numbers(40):
        sender.send("a", value)
    sender.flush()
    assert 5_000 <= world.now_ms - began_ms < 7_000
    lost = [record.value for record in sender.accumulator.take_undelivered()]
    assert sorted([*world.stored("a"), *lost]) == numbers(40)  # type: ignore[type-var]
    assert lost


def test_after_a_batch_that_was_too_large_the_next_ones_are_smaller() -> None:
    world = World()
    world.broker.too_large_bytes = 400
    sender = Sender(world, batch_bytes=4_000)
    many = Many("a", numbers(1_000), None, None, None, None)
    sender.send("a", b"first")
    sender.send_many(many)
    sender.flush()
    refused = world.broker.refused_as_too_large
    assert refused
    sender.send_many(Many("a", numbers(1_000), None, None, None, None))
    sender.flush()
    assert world.broker.refused_as_too_large == refused
    assert world.stored("a") == [b"first", *numbers(1_000), *numbers(1_000)]
    assert sender.accumulator.reserved_bytes == 0


def test_a_view_of_the_same_topic_changes_nothing_of_how_large_its_batches_are() -> None:
    world = World()
    sender = Sender(world, batch_bytes=1_000)
    world.broker.too_large_bytes = 600
    for _ in range(2):
        for value in numbers(100):
            sender.send("a", value)
        sender.flush()
        refused = world.broker.refused_as_too_large
        seen = world.engine.cluster.refreshed()
        world.run(lambda: seen.done)  # noqa: B023
        for value in numbers(100):
            sender.send("a", value)
        sender.flush()
        assert world.broker.refused_as_too_large == refused > 0


def test_a_view_with_fewer_partitions_of_the_same_topic_leaves_keys_where_they_go() -> None:
    """As of a broker that has not heard of the new ones yet."""
    world = World()
    partitions = world.cluster.create("a", 8)
    key = next(key for key in numbers(100) if partition_for_key(key, 8) == 7)
    sender = Sender(world)
    sender.send("a", b"before", key=key)
    sender.flush()
    new = partitions.pop()
    seen = world.engine.cluster.refreshed()
    world.run(lambda: seen.done)
    partitions.append(new)
    sender.send("a", b"behind", key=key)
    sender.flush()
    assert world.stored("a", 7) == [b"before", b"behind"]


@pytest.mark.parametrize("is_made_again", [False, True], ids=["first topic", "made again"])
@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD]
)
def test_nothing_overtakes_the_first_batch_that_is_refused(
    code: ErrorCode, is_made_again: bool
) -> None:
    """A partition that does not know the producer takes any sequence, as Kafka's."""
    world = World()
    world.cluster.create("a")
    sender = Sender(world, batch_bytes=150)
    if is_made_again:
        sender.send("a", b"known")
        sender.flush()
        world.cluster.create("a")
        seen = world.engine.cluster.refreshed()
        world.run(lambda: seen.done)
    world.broker.produce_errors = [code]
    sender.send_many(Many("a", numbers(60), None, None, None, None))
    sender.flush()
    lost = [record.value for record in sender.accumulator.take_undelivered()]
    assert bool(lost) is (code == ErrorCode.INVALID_RECORD)
    assert [*lost, *world.stored("a")] == numbers(60)


def test_what_was_overtaken_at_a_broker_that_forgot_the_producer_is_stored_all_the_same() -> None:
    """Also where there is always something behind it on its way, that the broker takes."""
    world = World()
    sender = Sender(world, linger_ms=0, delivery_timeout_ms=20_000)
    sender.send("a", b"known")
    sender.flush()
    partition = world.cluster.topics["a"][0]
    partition.seen.clear()
    partition.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    for number in range(1_200):
        # Two batches, on their way at the same time where they may be.
        sender.send("a", b"%06d" % (2 * number))
        sender.accumulator.seal_due(world.now_ms)
        sender.send("a", b"%06d" % (2 * number + 1))
        settle(world)
        world.now_ms += 20
    sender.flush()
    assert sender.accumulator.take_undelivered() == []
    stored = world.stored("a")
    assert sorted(stored) == [*numbers(2_400), b"known"]  # type: ignore[type-var]
    assert stored.index(b"000000") == 2, "behind the one that overtook it, and no more"


def test_what_is_small_does_not_overtake_a_first_batch_that_is_too_large() -> None:
    world = World()
    world.cluster.create("a")
    world.broker.too_large_bytes = 400
    sender = Sender(world, batch_bytes=1_000)
    sender.send_many(Many("a", numbers(100), None, None, None, None))
    sender.flush()
    assert world.stored("a") == numbers(100)


def test_a_single_record_that_is_too_large_fails() -> None:
    world = World()
    world.broker.too_large_bytes = 400
    sender = Sender(world)
    sender.send("a", b"x" * 1_000)
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert "max.message.bytes" in str(record.error)
    assert sender.accumulator.reserved_bytes == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
def test_a_producer_that_the_broker_forgot_or_fenced_gets_a_new_identity(code: ErrorCode) -> None:
    world = World()
    sender = Sender(world, batch_bytes=150)
    sender.send("a", b"before")
    sender.flush()
    world.broker.produce_errors = [code]
    sender.send("a", b"after")
    sender.flush()
    assert world.stored("a") == [b"before", b"after"]
    ids = [read_header(b).producer_id for b in world.cluster.topics["a"][0].batches]
    assert ids == [1001, 1002]


def test_who_is_never_known_is_not_asked_for_without_a_pause() -> None:
    world = World()
    sender = Sender(world, delivery_timeout_ms=5_000)
    sender.send("a", b"before")
    sender.flush()
    world.broker.produce_errors = [ErrorCode.UNKNOWN_PRODUCER_ID] * 1_000
    sender.send("a", b"refused")
    sender.flush()
    assert len(sender.accumulator.take_undelivered()) == 1
    assert 900 < len(world.broker.produce_errors) < 998


@contextmanager
def silent(broker: Broker, *, is_done: bool) -> Iterator[None]:
    """It answers nothing, whether or not it does what it is told."""
    answer = broker.answer

    def answer_not(frame: memoryview) -> bytes:
        if is_done:
            answer(frame)
        return b""

    broker.answer = answer_not  # type: ignore[method-assign]
    yield
    broker.answer = answer  # type: ignore[method-assign]


def settle(world: World) -> None:
    """Have all exchanged that there is, without the time passing."""
    while world.turn():
        pass


def test_what_comes_behind_a_batch_that_may_be_there_says_nothing_of_it() -> None:
    """The leader has the first of three, and its answers are lost; the next leader, which has that
    one too, is sent the third meanwhile, and refuses it."""
    world = World(brokers=2)
    world.cluster.create("a")
    world.cluster.move("a", 0, 2)
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"known")
    sender.flush()
    old, new = world.cluster.brokers[2], world.cluster.brokers[1]
    for is_done in (True, False):
        with silent(old, is_done=is_done):
            sender.send("a", b"%d" % is_done)
            settle(world)
    world.cluster.move("a", 0, 1)
    seen = world.engine.cluster.refreshed()
    world.run(lambda: seen.done)

    def cut(_: ProduceRequest) -> None:
        for connection in world.engine.network.connections():
            if connection.port == 9_000 + old.number:
                connection.lost(ConnectionLost("cut"), world.now_ms)

    new.on_produce = cut
    sender.send("a", b"third")
    sender.flush()
    assert world.stored("a") == [b"known", b"1", b"0", b"third"]


def test_what_may_be_there_is_not_repeated_where_it_is_refused_and_later_ones_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker knows the last five batches again: nothing may go on until it has said so."""
    world = World()
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"known")
    sender.flush()
    values = iter(numbers(100))

    def send(count: int) -> None:
        for _ in range(count):
            sender.send("a", next(values))
            sender.accumulator.seal_due(world.now_ms)

    with silent(world.broker, is_done=True):
        send(5)
        settle(world)
    partition = world.cluster.topics["a"][0]
    append = partition.append
    tries = {b"000001": 3, b"000003": 3}

    def refuse_two(data: bytes) -> tuple[int, int]:
        (value,) = decode_batch(data).values()
        if not tries.get(value or b""):
            return append(data)
        tries[value or b""] -= 1
        return ErrorCode.REQUEST_TIMED_OUT, -1

    monkeypatch.setattr(partition, "append", refuse_two)
    (connection,) = (c for c in world.engine.network.connections() if c.in_flight)
    connection.lost(ConnectionLost("cut"), world.now_ms)
    for _ in range(19):
        send(5)
        settle(world)
        world.now_ms += 50
    sender.flush()
    assert not any(tries.values())
    assert world.stored("a") == [b"known", *numbers(100)]


def test_records_that_are_refused_for_themselves_do_not_hold_up_the_others_ever_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was behind one comes back; but each refusal is an answer, and none says that the broker
    is to be spared."""
    world = World()
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"known")
    sender.flush()
    partition = world.cluster.topics["a"][0]
    append = partition.append

    def refuse(data: bytes) -> tuple[int, int]:
        is_bad = b"bad" in decode_batch(data).values()
        return (ErrorCode.MESSAGE_TOO_LARGE, -1) if is_bad else append(data)

    monkeypatch.setattr(partition, "append", refuse)
    began_ms = world.now_ms
    refused = 20
    for number in range(refused):
        for value in (b"bad", b"%d" % number):
            sender.send("a", value)
        sender.accumulator.seal_due(world.now_ms)
    sender.flush()
    assert len(sender.accumulator.take_undelivered()) == refused
    assert world.stored("a") == [b"known", *(b"%d" % number for number in range(refused))]
    backoff_ms = world.engine.settings.retry_backoff_ms
    assert world.now_ms - began_ms <= refused * 2 * backoff_ms


def test_what_may_be_there_is_not_repeated_when_what_was_before_it_is_given_up() -> None:
    world = World()
    sender = Sender(world, linger_ms=0, delivery_timeout_ms=5_000)
    sender.send("a", b"known")
    sender.flush()
    with silent(world.broker, is_done=True):
        for value in (b"given up", b"in time"):
            world.now_ms += 3_000
            delivery = sender.send("a", value)
            settle(world)
    world.broker.is_up = False
    settle(world)
    world.now_ms += 2_500
    settle(world)
    assert [record.value for record in sender.accumulator.take_undelivered()] == [b"given up"]
    world.broker.is_up = True
    sender.flush()
    assert metadata(delivery).offset == 2
    assert world.stored("a") == [b"known", b"given up", b"in time"]


@pytest.mark.parametrize("trouble", ["answer lost", "refused", "too large"])
def test_sequences_wrap_round_at_two_to_the_thirty_one(trouble: str) -> None:
    world = World()
    sender = Sender(world, batch_bytes=150)
    sender.send("a", b"first")
    sender.flush()
    queue = sender.accumulator.topics["a"].queue(0)
    # As if 2^31 - 6 records had been sent: the broker has seen up to there.
    queue.next_sequence = 2**31 - 6
    partition = world.cluster.topics["a"][0]
    partition.seen[queue.producer_id, queue.epoch] = [(0, 2**31 - 7, 0)]
    if trouble == "answer lost":
        world.broker.cut_after(produces(world.broker) + 2)
    elif trouble == "refused":
        world.broker.produce_errors = [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    else:
        world.broker.too_large_bytes = 100
    for value in numbers(12):
        sender.send("a", value)
    sender.flush()
    assert world.stored("a") == [b"first", *numbers(12)]
    assert read_header(partition.batches[-1]).last_sequence == 5
    assert {read_header(batch).producer_epoch for batch in partition.batches} == {0}


def test_no_more_than_five_batches_of_a_partition_are_in_flight() -> None:
    world = World()
    world.cluster.create("a")
    sender = Sender(world, batch_bytes=150)
    for value in numbers(400):
        sender.send("a", value)
    world.engine.step(world.now_ms)
    for _ in range(5):
        world.turn()
        assert len(sender.accumulator.topics["a"].queue(0).in_flight) <= 5
    sender.flush()
    assert world.stored("a") == numbers(400)


def test_so_many_requests_of_so_many_bytes_are_on_their_way_to_a_broker() -> None:
    world = World()
    world.cluster.create("a", 24)
    sender = Sender(world, request_bytes=600, linger_ms=0)
    sizes: list[int] = []
    world.broker.on_produce = lambda request: sizes.append(
        sum(len(records_view(row.records)) for row in request.topic_data[0].partition_data)
    )
    sender.send("a", b"first", partition=0)
    sender.flush()
    for partition in range(24):
        sender.send("a", b"x" * 200, partition=partition)
    world.engine.step(world.now_ms)
    (connection,) = world.engine.network.connections()
    assert len(connection.in_flight) == sender.producing.settings.in_flight_count
    sender.flush()
    assert max(sizes) <= 600
    assert len(sizes) <= 13, "several partitions go in one request"
    assert all(world.stored("a", partition) for partition in range(24))


def test_partitions_that_always_have_more_leave_others_their_turn() -> None:
    world = World()
    world.cluster.create("a", 3)
    sender = Sender(world, batch_bytes=200, request_bytes=400, linger_ms=0)
    for number in range(3):
        sender.send("a", b"first", partition=number)
    sender.flush()

    def fill() -> None:
        for number in (0, 1):
            while len(sender.accumulator.topics["a"].queue(number).sealed) < 8:
                sender.send("a", b"x" * 100, partition=number)

    fill()
    world.broker.on_produce = lambda _: fill()
    delivery = sender.send("a", b"y" * 100, partition=2)
    last = produces(world.broker) + 20
    world.run(lambda: delivery.done or produces(world.broker) > last)
    assert delivery.done


def test_records_that_are_not_acknowledged_in_time_are_handed_back() -> None:
    world = World()
    sender = Sender(world, delivery_timeout_ms=5_000)
    sender.send("a", b"first")
    sender.flush()
    world.broker.is_up = False
    sender.send("a", b"lost", key=b"k", headers=[("h", b"v")])
    began_ms = world.now_ms
    sender.flush()
    assert 5_000 <= world.now_ms - began_ms < 7_000
    (record,) = sender.accumulator.take_undelivered()
    assert (record.topic, record.partition, record.key, record.value) == ("a", 0, b"k", b"lost")
    assert record.headers == (("h", b"v"),)
    assert isinstance(record.error, TimedOut)
    # The same for all that waited too long, so that they can be told in one line.
    assert "topic 'a', partition 0: not acknowledged within 5000 ms of send()" in str(record.error)
    sender.send("a", b"never tried")
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert str(record.error).endswith("0 attempts; 10.0.0.1: refused")


@pytest.mark.parametrize("is_idempotent", [True, False])
@pytest.mark.parametrize(
    "before",
    ["answer lost", "not yet durable", "sync failed", "led no more", "lost behind it"],
)
def test_a_refusal_does_not_say_that_a_record_is_not_there_which_an_attempt_before_has_written(
    before: str, is_idempotent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    (partition,) = world.cluster.create("a", 1)
    sender = Sender(world, linger_ms=0, idempotent=is_idempotent)
    if before == "answer lost":
        world.broker.cut_after(1)
    append = partition.append

    def append_and_refuse_then(data: bytes) -> tuple[int, int]:
        monkeypatch.undo()
        done = append(data)
        partition.refusals.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return {
            "answer lost": done,
            "not yet durable": (ErrorCode.REQUEST_TIMED_OUT, -1),
            "sync failed": (ErrorCode.KAFKA_STORAGE_ERROR, -1),
            "led no more": (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
            "lost behind it": (ErrorCode.NETWORK_EXCEPTION, -1),
        }[before]

    monkeypatch.setattr(partition, "append", append_and_refuse_then)
    sender.send("a", b"x")
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert world.stored("a") == [b"x"]
    assert isinstance(record.error, ConnectionLost if before == "answer lost" else TimedOut)
    assert "it may be there" in str(record.error)
    assert isinstance(record.error.__cause__, TopicAuthorizationFailed)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, 9_999])
def test_an_answer_of_which_nobody_knows_what_it_means_leaves_open_whether_a_record_is_there(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    (partition,) = world.cluster.create("a", 1)
    append = partition.append

    def append_and_fail(data: bytes) -> tuple[int, int]:
        append(data)
        return code, -1

    monkeypatch.setattr(partition, "append", append_and_fail)
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"x")
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert world.stored("a") == [b"x"]
    assert isinstance(record.error, TimedOut)
    assert str(record.error).endswith("; it may be there")
    assert isinstance(record.error.__cause__, UnknownServerError)


def test_a_refusal_says_that_a_record_is_not_there_where_nothing_was_sent_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"known")
    sender.flush()
    (partition,) = world.cluster.topics["a"]
    world.broker.cut_before(2)
    partition.refusals = [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # as if one before it had been lost
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
    sender.send("a", b"x")
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert isinstance(record.error, TopicAuthorizationFailed)
    assert world.stored("a") == [b"known"]


def test_what_was_on_its_way_when_a_refusal_ended_the_producer_may_be_there() -> None:
    world = World()
    world.cluster.create("a", 2)
    sender = Sender(world, linger_ms=0)
    for number in (0, 1):
        sender.send("a", b"first", partition=number)
    sender.flush()
    with silent(world.broker, is_done=True):
        sender.send("a", b"on its way", partition=0)
        settle(world)
    sender.try_send("a", b"never sent", partition=1)
    sender.producing.close(ClusterAuthorizationFailed("may not"))
    errors = {record.value: record.error for record in sender.accumulator.take_undelivered()}
    assert isinstance(errors[b"on its way"], ConnectionLost)
    assert isinstance(errors[b"never sent"], ClusterAuthorizationFailed)


def test_an_answer_behind_the_deadline_leaves_open_what_an_attempt_before_has_done() -> None:
    world = World()
    sender = Sender(world, linger_ms=0, delivery_timeout_ms=3_000)
    sender.send("a", b"known")
    sender.flush()
    (partition,) = world.cluster.topics["a"]
    world.broker.cut_after(2)
    sender.send("a", b"x")
    world.run(lambda: produces(world.broker) == 2)

    def late(_: ProduceRequest) -> None:
        world.now_ms += 4_000
        partition.refusals.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    world.broker.on_produce = late
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert isinstance(record.error, TimedOut)
    assert world.stored("a") == [b"known", b"x"]


def test_what_is_refused_fails_in_time_though_what_was_sent_behind_it_is_not_answered() -> None:
    world = World()
    sender = Sender(world, linger_ms=0, delivery_timeout_ms=3_000)
    sender.send("a", b"known")
    sender.flush()
    sender.send("a", b"refused")
    world.engine.step(world.now_ms)
    deadline_ms = world.now_ms + 3_000
    world.now_ms += 2_000
    world.broker.produce_errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    sender.send("a", b"behind")
    world.engine.step(world.now_ms)
    answer = world.broker.answer

    def answer_one(frame: memoryview) -> bytes | None:
        return answer(frame) if world.broker.produce_errors else b""

    world.broker.answer = answer_one  # type: ignore[method-assign]
    while world.now_ms < deadline_ms:
        settle(world)
        world.now_ms = world.engine.next_wake_ms() or 0
    settle(world)
    assert world.now_ms == deadline_ms
    assert [record.value for record in sender.accumulator.take_undelivered()] == [b"refused"]


def test_the_time_of_a_record_begins_when_it_is_put_not_when_it_has_lingered() -> None:
    world = World()
    sender = Sender(world, linger_ms=2_000, delivery_timeout_ms=5_000)
    sender.send("a", b"first")
    sender.flush()
    inbox = sender.accumulator.inboxes["a"]
    for value in (b"second", b"put"):  # the first goes at once: nobody knows yet how large they are
        sender.flush()
        world.now_ms += 2_000
        settle(world)
        assert type(inbox.pending.put(value, None)) is tuple
        sender.accumulator.turn_in(inbox)
    world.broker.is_up = False
    deadline_ms = world.now_ms + 5_000
    while world.now_ms < deadline_ms:
        assert not sender.accumulator.failed
        settle(world)
        world.now_ms = min(deadline_ms, world.engine.next_wake_ms() or 0)
    settle(world)
    assert [record.value for record in sender.accumulator.take_undelivered()] == [b"put"]


def test_a_record_for_a_partition_that_nobody_serves_waits_and_is_told_why_it_did() -> None:
    world = World()
    world.cluster.create("a", 2)
    world.cluster.move("a", 1, NOBODY)
    sender = Sender(world, delivery_timeout_ms=5_000)
    sender.send("a", b"waits", partition=1)
    sender.send("a", b"goes elsewhere")
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert record.value == b"waits"
    assert isinstance(record.error, TimedOut)
    assert str(record.error).endswith("0 attempts; no broker serves the partition for now")
    sender.send("a", b"in time", partition=1)
    back_ms = world.now_ms + 4_000
    world.run(lambda: world.now_ms >= back_ms)
    world.cluster.move("a", 1, 1)
    sender.flush()
    assert [world.stored("a", n) for n in range(2)] == [[b"goes elsewhere"], [b"in time"]]


def test_after_a_refusal_it_is_looked_whether_the_partition_is_served() -> None:
    """As of one that was damaged while it was open: what has no key goes elsewhere from then on."""
    world = World()
    world.cluster.create("a", 2)
    sender = Sender(world)
    sender.send("a", b"before", partition=1)
    sender.flush()
    world.cluster.move("a", 1, NOBODY)
    sender.send("a", b"refused", partition=1)
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert isinstance(record.error, PolicyViolation)
    world.run(lambda: world.engine.cluster.is_unserved("a", 1), within_ms=10_000)
    for value in numbers(40):
        sender.send("a", value)
        sender.flush()
    assert world.stored("a") == numbers(40)


@pytest.mark.parametrize("options", [{}, {"acks": 0, "idempotent": False}, {"count": 4}])
def test_what_no_request_can_carry_is_too_large_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """With some records in the batch each goes alone: one of them may be small enough."""
    monkeypatch.setattr(limits, "FRAME_SIZE_MAX", 10_000)
    world = World()
    count = options.pop("count", 1)
    sender = Sender(world, **options)
    small = [b"%d" % number for number in range(count)]
    for value in [*small[1:], bytes(20_000), b"behind"]:
        sender.send("a", value, partition=0)
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert record.value == bytes(20_000)
    assert isinstance(record.error, MessageTooLarge)
    assert re.fullmatch(
        r"topic 'a', partition 0: frame of 20\d\d\d bytes, limit 10000", str(record.error)
    )
    assert world.stored("a") == [*small[1:], b"behind"]


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_what_nobody_could_read_is_too_large_however_small_it_is_compressed(
    monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """The broker would take it: it sees the size that it has compressed."""
    monkeypatch.setattr(limits, "FRAME_SIZE_MAX", 10_000)
    world = World()
    sender = Sender(world, codec=Codec.GZIP, batch_bytes=8_000)
    largest = 10_000 - RECORD_OVERHEAD
    too_large: list[bytes | None] = [bytes(largest + 1)]

    def send() -> None:
        if many:
            sender.accumulator.append_many(Many("a", too_large, None, None, 0, None))
        else:
            sender.try_send("a", too_large[0], partition=0)

    sender.send("a", bytes(largest), partition=0)
    with pytest.raises(MessageTooLarge, match="10001 bytes before compression, limit 10000"):
        send()
    sender.send("a", b"behind", partition=0)
    sender.flush()
    assert world.stored("a") == [bytes(largest), b"behind"]


def test_who_is_given_no_producer_id_is_told_why() -> None:
    world = World()
    world.cluster.producer_id_error = ErrorCode.KAFKA_STORAGE_ERROR
    sender = Sender(world, delivery_timeout_ms=5_000)
    sender.send("a", b"lost")
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert isinstance(record.error, TimedOut)
    said = f"0 attempts; producer id: {ErrorCode.KAFKA_STORAGE_ERROR.description}"
    assert str(record.error).endswith(said)
    assert isinstance(record.error.__cause__, StorageFailed)
    world.cluster.producer_id_error = 0
    sender.send("a", b"sent")
    sender.flush()
    assert world.stored("a") == [b"sent"]


def test_who_may_write_nowhere_is_told_what_a_producer_id_takes() -> None:
    """A right on the cluster is not what such a program lacks."""
    world = World()
    world.cluster.producer_id_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    sender = Sender(world)
    sender.send("a", b"lost")
    sender.flush()
    (record,) = sender.accumulator.take_undelivered()
    assert isinstance(record.error, ClusterAuthorizationFailed)
    assert str(record.error) == (
        "producer id: no right to write to any topic"
        " (before Kafka 2.8: no IDEMPOTENT_WRITE on the cluster)"
    )


def test_after_a_time_out_the_partition_goes_on() -> None:
    world = World()
    sender = Sender(world, delivery_timeout_ms=5_000)
    sender.send("a", b"first")
    sender.flush()
    world.broker.is_up = False
    sender.send("a", b"lost")
    sender.flush()
    world.broker.is_up = True
    sender.send("a", b"again")
    sender.flush()
    assert world.stored("a") == [b"first", b"again"]


def test_a_broker_that_is_away_is_asked_again_after_its_back_off() -> None:
    world = World()
    sender = Sender(world)
    sender.send("a", b"first")
    sender.flush()
    world.broker.is_up = False
    while world.turn():
        pass  # the connection is lost while nothing is on its way
    world.broker.is_up = True
    began_ms = world.now_ms
    delivery = sender.send("a", b"second")
    world.run(lambda: delivery.done)
    # reconnect_backoff_max_ms is 2,000; metadata_max_age_ms would be the next reason to wake.
    assert world.now_ms - began_ms < 2_500
    assert world.stored("a") == [b"first", b"second"]


def test_while_a_broker_is_away_every_wake_up_asked_for_lies_ahead() -> None:
    world = World()
    sender = Sender(world, delivery_timeout_ms=60_000)
    sender.send("a", b"first")
    sender.flush()
    world.broker.is_up = False
    delivery = sender.send("a", b"second")
    wakes = 0
    while not delivery.done:
        if world.turn():
            continue
        wake_ms = world.engine.next_wake_ms()
        assert wake_ms is not None
        assert wake_ms > world.now_ms, "asks for a time that has passed"
        world.now_ms = wake_ms
        wakes += 1
    # One minute with back-offs of 50 ms to 2 s.
    assert wakes < 200


def test_the_first_record_waits_for_its_answers_and_for_nothing_else() -> None:
    world = World()
    sender = Sender(world, linger_ms=0)
    connected = world.engine.cluster.refreshed()
    world.run(lambda: connected.done)
    began_ms = world.now_ms
    delivery = sender.send("a", b"first")
    world.run(lambda: delivery.done)
    assert world.now_ms - began_ms == 0


def test_a_failure_that_the_caller_has_seen_is_not_said_again() -> None:
    world = World()
    world.broker.produce_errors = [ErrorCode.INVALID_RECORD]
    sender = Sender(world)
    seen, unseen = sender.send("a", b"seen"), sender.send("a", b"unseen")
    sender.flush()
    with pytest.raises(Exception, match="breaks a rule"):
        metadata(seen)
    assert unseen.done
    assert [record.value for record in sender.accumulator.take_undelivered()] == [b"unseen"]


def test_failures_that_nobody_looks_at_are_told_by_a_line_of_the_log() -> None:
    """Else who sends for days, and never flushes, hears nothing."""
    world = World()
    world.broker.produce_errors = [ErrorCode.INVALID_RECORD] * 3
    sender = Sender(world, linger_ms=0)

    def fail(value: bytes) -> Delivery:
        delivery = sender.send("a", value)
        world.run(lambda: delivery.done)
        return delivery

    def told(seconds: int) -> list[str]:
        end_ms = world.now_ms + 1_000 * seconds
        world.run(lambda: world.now_ms >= end_ms)
        return [notice.text for notice in world.engine.network.absences.take()]

    seen = fail(b"seen")
    with pytest.raises(Exception, match="breaks a rule"):
        metadata(seen)
    assert not told(120)
    fail(b"unseen")
    (line,) = told(120)
    assert line.startswith("nobody has asked: 1 record was not delivered: a-0 value of 6 bytes: ")
    assert "breaks a rule" in line
    assert not told(600), "nothing else has failed"
    fail(b"more")
    assert len(told(120)) == 1
    assert len(sender.accumulator.take_undelivered()) == 2
    assert not told(600)


def test_what_a_loop_notes_of_a_failure_does_not_grow() -> None:
    """Of each record of a batch, and of each call behind the end of the client."""
    world = World()
    world.broker.produce_errors = [ErrorCode.INVALID_RECORD]
    sender = Sender(world)
    deliveries = [sender.send("a", b"refused") for _ in range(3)]
    sender.flush()
    raised = []
    for delivery in deliveries:
        with pytest.raises(InvalidRecord) as caught:
            metadata(delivery)
        raised.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
    world.engine.close(world.now_ms, SegbrokerError("bug in the client"))
    for _ in range(3):
        with pytest.raises(SegbrokerError) as ended:
            sender.try_send("a", b"x")
        raised.append(len(list(traceback.walk_tb(ended.value.__traceback__))))
    assert raised[0] == raised[1] == raised[2]
    assert raised[3] == raised[4] == raised[5]


def test_a_full_buffer_is_waited_for_and_never_exceeded() -> None:
    world = World()
    sender = Sender(world, buffer_bytes=10_000, batch_bytes=1_000)
    waits = 0
    for number in range(500):
        got = sender.try_send("a", b"%d" % number + b"x" * 100)
        while isinstance(got, Completion):
            waits += 1
            world.run(lambda room=got: room.done)  # type: ignore[misc]
            got = sender.try_send("a", b"%d" % number + b"x" * 100)
        assert sender.accumulator.reserved_bytes <= 10_000
    sender.flush()
    assert waits > 5
    assert len(world.stored("a")) == 500
    assert sender.accumulator.reserved_bytes == 0


def test_headers_count_for_the_buffer_and_for_a_batch() -> None:
    world = World()
    sender = Sender(world, buffer_bytes=10_000, batch_bytes=4_000, linger_ms=60_000)
    sender.send("a", b"first")
    sender.flush()
    count = 0
    while not isinstance(sender.try_send("a", b"", headers=[("h", b"x" * 1_000)]), Completion):
        count += 1
        assert count < 10
    sender.flush()
    sizes = [len(batch) for batch in world.cluster.topics["a"][0].batches]
    assert max(sizes) <= 4_000


def test_a_record_larger_than_the_whole_buffer_passes_alone() -> None:
    world = World()
    sender = Sender(world, buffer_bytes=10_000, batch_bytes=1_000)
    sender.send("a", b"x" * 50_000)
    sender.flush()
    assert world.stored("a") == [b"x" * 50_000]


def test_keys_go_where_java_would_send_them() -> None:
    world = World()
    world.cluster.create("a", 10)
    sender = Sender(world)
    for key in (b"foobar", b"foobar", b"a-little-bit-long-string"):
        sender.send("a", key, key=key)
    sender.flush()
    # murmur2: foobar -790332482, a-little-bit-long-string -985981536 (Kafka's own test vectors).
    assert world.stored("a", (-790332482 & 0x7FFFFFFF) % 10) == [b"foobar", b"foobar"]
    assert len(world.stored("a", (-985981536 & 0x7FFFFFFF) % 10)) == 1


def test_records_without_a_key_fill_one_partition_at_a_time() -> None:
    world = World()
    world.cluster.create("a", 4)
    sender = Sender(world, batch_bytes=1_000)
    for value in numbers(2_000):
        sender.send("a", value)
    sender.flush()
    sizes = [len(world.stored("a", p)) for p in range(4)]
    assert sum(sizes) == 2_000
    assert all(sizes)
    batches = sum(len(p.batches) for p in world.cluster.topics["a"])
    assert batches < 60


def test_columns_that_came_late_are_filled_up() -> None:
    world = World()
    sender = Sender(world)
    sender.send("a", b"1")
    sender.send("a", b"2", headers=[("n", None)])
    sender.send("a", b"3", timestamp_ms=5)
    sender.send("a", b"4")
    sender.flush()
    data = world.cluster.topics["a"][0].batches[0]
    batch = decode_batch(data)
    assert batch.headers() == [(), (("n", None),), (), ()]
    now = 1_700_000_000_000
    assert batch.timestamps() == [now, now, 5, now]


def test_a_topic_that_cannot_be_had_is_an_error_not_a_wait() -> None:
    world = World()
    world.cluster.auto_create = False
    sender = Sender(world)
    with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
        sender.send("nowhere", b"x")
    world.cluster.create("nowhere")
    sender.send("nowhere", b"now it is there")
    sender.flush()
    assert world.stored("nowhere") == [b"now it is there"]


def test_a_partition_that_does_not_exist_is_refused_with_the_bounds() -> None:
    world = World()
    sender = Sender(world)
    sender.send("a", b"x")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"partition 3 of topic 'a' is outside \[0, 1\)"):
            sender.send("a", b"x", partition=3)
    with pytest.raises(ValueError, match=r"partition -1 of topic 'a' is outside \[0, 1\)"):
        sender.try_send("a", b"x", partition=-1)


def test_that_no_broker_answers_does_not_say_that_a_partition_does_not_exist() -> None:
    """One that came a moment ago: the view is to be looked at, and nobody is there."""
    world = World()
    sender = Sender(world)
    sender.send("a", b"x")
    sender.flush()
    world.broker.is_up = False
    settle(world)
    room = sender.try_send("a", b"waits", partition=1)
    assert isinstance(room, Completion)
    back_ms = world.now_ms + 5_000
    world.run(lambda: world.now_ms >= back_ms)
    assert not room.done
    world.cluster.topics["a"].append(Partition(leader=1))
    world.broker.is_up = True
    world.run(lambda: room.done)
    sender.send("a", b"waits", partition=1)
    sender.flush()
    assert world.stored("a", 1) == [b"waits"]


def test_what_was_asked_before_a_partition_was_added_does_not_say_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    (first,) = world.cluster.create("a", 1)
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"x")
    sender.flush()
    answer = world.broker._metadata

    def late(request: MetadataRequest) -> MetadataResponse:
        """What it has found when the partition is added, and the caller goes on."""
        found = answer(request)
        monkeypatch.undo()
        world.cluster.topics["a"].append(Partition(first.leader))
        assert isinstance(sender.try_send("a", b"new", partition=1), Completion)
        return found

    monkeypatch.setattr(world.broker, "_metadata", late)
    seen = world.engine.cluster.refreshed()
    world.run(lambda: seen.done)
    sender.send("a", b"new", partition=1)
    sender.flush()
    assert world.stored("a", 1) == [b"new"]


def test_what_is_said_of_another_topic_does_not_say_that_a_partition_does_not_exist() -> None:
    """A new one is asked for alone, and goes first."""
    world = World()
    (first,) = world.cluster.create("a", 1)
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"x")
    sender.flush()
    seen = world.engine.cluster.refreshed()
    world.run(lambda: seen.done)  # all of them are not asked for again for a moment
    world.cluster.topics["a"].append(Partition(first.leader))
    assert isinstance(sender.try_send("b", b"y"), Completion)
    sender.send("a", b"new", partition=1)
    sender.flush()
    assert world.stored("a", 1) == [b"new"]


def test_what_was_seen_for_who_waits_no_more_does_not_say_that_there_is_no_partition_now() -> None:
    world = World()
    (first,) = world.cluster.create("a", 1)
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"x")
    sender.flush()
    room = sender.try_send("a", b"cancelled", partition=1)
    assert isinstance(room, Completion)
    world.run(lambda: room.done)
    later_ms = world.now_ms + 2 * LOOKED_MS
    world.run(lambda: world.now_ms >= later_ms)
    world.cluster.topics["a"].append(Partition(first.leader))
    sender.send("a", b"new", partition=1)
    sender.flush()
    assert world.stored("a", 1) == [b"new"]
    for _ in range(2):  # each time it is looked at, and said
        with pytest.raises(ValueError, match="partition 2"):
            sender.send("a", b"none", partition=2)


def test_who_waits_for_a_partition_hears_of_the_end() -> None:
    world = World()
    sender = Sender(world)
    sender.send("a", b"x")
    sender.flush()
    room = sender.try_send("a", b"waits", partition=1)
    world.engine.close(world.now_ms)
    assert isinstance(room, Completion)
    assert room.done
    with pytest.raises(ClosedError):
        sender.try_send("a", b"waits", partition=1)


@pytest.mark.parametrize("value", ["text", 5, [b"x"]])
def test_values_are_bytes(value: object) -> None:
    world = World()
    sender = Sender(world)
    with pytest.raises(TypeError, match="not bytes or None"):
        sender.send("a", value)  # type: ignore[arg-type]


def test_a_buffer_of_the_caller_is_copied() -> None:
    world = World()
    sender = Sender(world)
    value = bytearray(b"before")
    sender.send("a", value)  # type: ignore[arg-type]
    value[:] = b"after!"
    sender.flush()
    assert world.stored("a") == [b"before"]


def test_acks_0_is_done_when_it_is_sent() -> None:
    world = World()
    sender = Sender(world, acks=0, idempotent=False)
    delivery = sender.send("a", b"x")
    sender.flush()
    assert metadata(delivery).offset == -1
    assert world.stored("a") == [b"x"]


def test_with_acks_0_what_is_not_handed_over_is_given_up_once_or_goes_again() -> None:
    world = World()
    sender = Sender(world, acks=0, idempotent=False, linger_ms=0, delivery_timeout_ms=5_000)
    sender.send("a", b"first")
    sender.flush()
    sender.send("a", b"late")
    world.engine.step(world.now_ms)
    world.now_ms += 6_000
    world.engine.step(world.now_ms)
    (record,) = sender.accumulator.take_undelivered()
    assert record.value == b"late"
    sender.send("a", b"second")
    sender.flush()  # the kernel takes both now
    sender.send("a", b"third")
    world.engine.step(world.now_ms)
    (connection,) = world.engine.network.connections()
    connection.lost(ConnectionLost("cut"), world.now_ms)
    sender.flush()
    assert not sender.accumulator.take_undelivered()
    assert world.stored("a") == [b"first", b"late", b"second", b"third"]


def test_with_acks_0_a_failure_is_over_when_something_is_handed_over() -> None:
    world = World()
    sender = Sender(world, acks=0, idempotent=False, linger_ms=0)
    sender.send("a", b"before")
    sender.flush()
    world.broker.is_up = False
    sender.send("a", b"away")
    settle(world)
    world.now_ms += 500
    settle(world)
    world.broker.is_up = True
    sender.flush()
    count = produces(world.broker)
    for value in numbers(3):
        sender.send("a", value)
        sender.accumulator.seal_due(world.now_ms)
    world.turn()
    assert produces(world.broker) == count + 3, "at once, as before the failure"


def test_without_idempotence_one_batch_is_in_flight_so_that_retries_keep_the_order() -> None:
    world = World()
    world.broker.produce_errors = [0, ErrorCode.REQUEST_TIMED_OUT, 0, ErrorCode.REQUEST_TIMED_OUT]
    sender = Sender(world, idempotent=False, batch_bytes=150)
    for value in numbers(60):
        sender.send("a", value)
    sender.flush()
    assert world.stored("a") == numbers(60)


def test_without_idempotence_half_of_a_batch_that_is_refused_comes_again_before_the_other() -> None:
    world = World()
    world.broker.produce_errors = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.REQUEST_TIMED_OUT]
    sender = Sender(world, idempotent=False)
    sender.send_many(Many("a", numbers(10), None, None, None, None))
    sender.flush()
    assert world.stored("a") == numbers(10)
    batches = world.cluster.topics["a"][0].batches
    assert {read_header(batch).base_sequence for batch in batches} == {-1}


def test_with_acks_0_what_is_lost_twice_keeps_its_order() -> None:
    world = World()
    sender = Sender(world, acks=0, idempotent=False, linger_ms=0)
    sender.send("a", b"first")
    sender.flush()
    for value in numbers(3):
        sender.send("a", value)
        sender.accumulator.seal_due(world.now_ms)
    queue = sender.accumulator.topics["a"].queue(0)
    for count in (3, 1):  # after the failure they go one by one
        while not queue.in_flight:
            world.engine.step(world.now_ms)
            if not queue.in_flight and not world.turn():
                world.now_ms += 10
        assert len(queue.in_flight) == count
        for connection in world.engine.network.connections():
            connection.lost(ConnectionLost("cut"), world.now_ms)
    sender.flush()
    assert world.stored("a") == [b"first", *numbers(3)]


def test_one_request_carries_a_batch_of_each_partition() -> None:
    world = World()
    world.cluster.create("a", 3)
    sender = Sender(world)
    for partition in range(3):
        sender.send("a", b"x", partition=partition)
    sender.flush()
    (request,) = [r for r in world.broker.requests if isinstance(r, ProduceRequest)]
    assert sum(len(topic.partition_data) for topic in request.topic_data) == 3
    assert all(
        len(records_view(row.records)) > 61
        for topic in request.topic_data
        for row in topic.partition_data
    )


def test_breaking_off_fails_everything_and_frees_the_buffer() -> None:
    world = World()
    world.broker.is_up = False
    sender = Sender(world)
    got = sender.try_send("a", b"x")
    assert isinstance(got, Completion)
    world.broker.is_up = True
    sender.send("a", b"y")
    sender.producing.close(TimedOut("enough"))
    assert [record.value for record in sender.accumulator.take_undelivered()] == [b"y"]
    assert sender.accumulator.reserved_bytes == 0
    assert sender.accumulator.unfinished_count == 0


def test_undelivered_records_are_raised_before_they_fill_the_buffer() -> None:
    world = World()
    sender = Sender(world, buffer_bytes=10_000, batch_bytes=1_000)
    world.broker.produce_errors = [ErrorCode.INVALID_RECORD] * 1_000
    with pytest.raises(DeliveryFailed) as caught:  # noqa: PT012
        for _ in range(1_000):
            sender.send("a", b"x" * 100)
    assert len(caught.value.undelivered) > 10


def test_what_another_thread_puts_while_the_inbox_is_closed_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind the last look, as it takes no lock."""
    world = World()
    sender = Sender(world, linger_ms=60_000)
    sender.send("a", b"first")
    sender.flush()
    inbox = sender.accumulator.inboxes["a"]
    drain = sender.accumulator._drain
    got = [inbox.pending.put(b"before", None)]

    def drain_and_put(of: Any, *, force: bool) -> Any:  # noqa: ANN401
        room = drain(of, force=force)
        got.append(inbox.pending.put(b"meanwhile", None))
        return room

    with monkeypatch.context() as patch:
        patch.setattr(sender.accumulator, "_drain", drain_and_put)
        sender.accumulator.shut(NoTransaction("between two"))
    assert inbox.pending.put(b"too late", None) is None
    sender.flush()
    assert world.stored("a") == [b"first", b"before", b"meanwhile"]
    deliveries = [one[0] if isinstance(one, tuple) else one for one in got]
    assert [one.metadata().offset for one in deliveries if isinstance(one, Delivery)] == [1, 2]


def test_what_was_put_the_short_way_is_handed_back_when_all_is_broken_off() -> None:
    world = World()
    sender = Sender(world, linger_ms=60_000)
    sender.send("a", b"first")
    sender.flush()
    inbox = sender.accumulator.inboxes["a"]
    inbox.pending.put(b"put", None)
    world.engine.close(world.now_ms)
    (record,) = sender.accumulator.take_undelivered()
    assert (record.value, type(record.error)) == (b"put", ClosedError)
    assert inbox.pending.put(b"too late", None) is None


def test_who_has_sent_the_short_way_and_has_nothing_more_to_send_is_not_woken() -> None:
    world = World()
    sender = Sender(world)
    sender.send("a", b"first")
    sender.flush()
    inbox = sender.accumulator.inboxes["a"]
    for value in (b"1", b"2"):
        assert type(inbox.pending.put(value, None)) is tuple, "it says that it is there"
        sender.accumulator.turn_in(inbox)
        wake_ms = sender.producing.next_wake_ms()
        assert wake_ms == world.now_ms + sender.accumulator.linger_ms
        world.now_ms = wake_ms
        settle(world)
        assert sender.producing.next_wake_ms() is None
    assert world.stored("a") == [b"first", b"1", b"2"]


def test_a_smaller_record_does_not_overtake_one_that_was_put_and_has_no_room() -> None:
    world = World()
    sender = Sender(world, buffer_bytes=5_000, batch_bytes=1_000)
    sender.send("a", b"first")
    sender.flush()
    world.broker.is_up = False
    settle(world)
    values = [b"1" * 900, b"2" * 900, b"3" * 900]
    for value in values:
        sender.send("a", value, headers=[("long", b"way")])
    inbox = sender.accumulator.inboxes["a"]
    inbox.pending.put(b"4" * 3_000, None)
    sender.accumulator.turn_in(inbox)
    assert isinstance(sender.try_send("a", b"5"), Completion)
    world.broker.is_up = True
    sender.send("a", b"5")
    sender.flush()
    assert world.stored("a") == [b"first", *values, b"4" * 3_000, b"5"]


def test_what_was_split_for_partitions_that_the_new_topic_has_not_is_handed_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had no room when the topic was made again."""
    world = World()
    world.cluster.create("a", 8)
    sender = Sender(world, buffer_bytes=20_000, batch_bytes=4_000, delivery_timeout_ms=5_000)
    sender.send("a", b"first", key=b"k")
    sender.flush()
    inbox = sender.accumulator.inboxes["a"]
    sent = [b"%04d" % number + b"x" * 400 for number in range(100)]
    world.cluster.create("a", 1)
    answer = world.broker._metadata

    def put(request: MetadataRequest) -> MetadataResponse:
        """Just before the answer is heard."""
        monkeypatch.undo()
        for value in sent:
            inbox.pending.put(value, value[:4])
        assert sender.accumulator.turn_in(inbox) is not None
        assert max(group.partition for group in inbox.leftover) == 7
        return answer(request)

    monkeypatch.setattr(world.broker, "_metadata", put)
    seen = world.engine.cluster.refreshed()
    world.run(lambda: seen.done)
    sender.flush()
    lost = [record.value for record in sender.accumulator.take_undelivered()]
    assert sorted([*lost, *world.stored("a")], key=str) == sorted(sent, key=str)


def test_what_is_sent_behind_the_end_is_refused_also_many_at_once() -> None:
    world = World()
    sender = Sender(world)
    sender.send("a", b"first")
    sender.flush()
    world.engine.close(world.now_ms)
    for many in (
        Many("a", [b"x"], None, None, None, None),
        Many("a", [b"x"], None, None, 0, None),
        Many("a", [b"x"], [b"k"], None, None, None),
    ):
        with pytest.raises(ClosedError):
            sender.send_many(many)


def test_who_puts_records_the_short_way_hears_of_failures_in_front_of_one() -> None:
    """That way takes a record before anybody looks: it is closed until they were told."""
    world = World()
    sender = Sender(world, buffer_bytes=10_000, batch_bytes=1_000)
    sender.send("a", b"first")
    sender.flush()
    inboxes = sender.accumulator.inboxes
    world.broker.produce_errors = [ErrorCode.INVALID_RECORD] * 100
    taken = 0
    while "a" in inboxes:
        if type(inboxes["a"].pending.put(b"x" * 100, None)) is tuple:
            sender.accumulator.turn_in(inboxes["a"])
        taken += 1
        assert taken < 1_000
        sender.flush()
    with pytest.raises(DeliveryFailed) as caught:
        sender.send("a", b"not sent")
    assert len(caught.value.undelivered) == taken
    world.broker.produce_errors.clear()
    sender.send("a", b"sent")
    sender.flush()
    assert "a" in inboxes
    assert world.stored("a") == [b"first", b"sent"]


def test_the_broker_says_why_a_topic_name_is_not_valid() -> None:
    world = World()
    sender = Sender(world)
    sender.accumulator._new_topic("a")
    sender.accumulator.topic_known("a", 0, InvalidTopic("topic 'a': reserved"))
    with pytest.raises(InvalidTopic, match="reserved"):
        sender.send("a", b"x")


def test_send_many_cuts_at_batch_bytes_and_keeps_the_order() -> None:
    world = World()
    world.cluster.create("a", 1)
    sender = Sender(world, batch_bytes=1_000)
    sender.send("a", b"first")
    sizes = [world.random.randrange(0, 400) for _ in range(500)]
    values: list[bytes | None] = [b"x" * size for size in sizes]
    values[100] = None
    sender.send_many(Many("a", values, None, None, None, None))
    sender.flush()
    assert world.stored("a") == [b"first", *values]
    assert all(len(b) <= 1_061 for b in world.cluster.topics["a"][0].batches)


@pytest.mark.parametrize("varies", [False, True])
def test_records_that_are_put_one_by_one_fill_whole_batches(varies: bool) -> None:
    world = World()
    world.cluster.create("a", 4)
    sender = Sender(world, batch_bytes=10_000)
    sender.send("a", b"first")
    world.run(lambda: "a" in sender.accumulator.inboxes)
    inbox = sender.accumulator.inboxes["a"]
    sizes = [world.random.randrange(200) if varies else 100 for _ in range(10_000)]
    deliveries = []
    for size in sizes:
        got = inbox.pending.put(bytes(size), None)
        if isinstance(got, tuple):
            assert sender.accumulator.turn_in(inbox) is None
            got = got[0]
        assert isinstance(got, Delivery)
        deliveries.append(got)
    sender.flush()
    stored = [world.stored("a", partition) for partition in range(4)]
    where = [metadata(delivery) for delivery in deliveries]
    assert [stored[one.partition][one.offset] for one in where] == list(map(bytes, sizes))
    batches = [batch for p in world.cluster.topics["a"] for batch in p.batches]
    assert len(batches) < 1.2 * sum(map(len, batches)) / 10_000


def test_of_records_that_were_put_one_by_one_no_more_than_half_a_batch_lingers() -> None:
    world = World()
    sender = Sender(world, batch_bytes=1_000, linger_ms=60_000)
    sender.send("a", b"first")
    sender.flush()
    inbox = sender.accumulator.inboxes["a"]
    sizes: list[int] = []
    lingering = []
    for _ in range(500):
        sizes.append(world.random.randrange(120))
        if type(inbox.pending.put(b"x" * sizes[-1], None)) is tuple:
            sender.accumulator.turn_in(inbox)
            settle(world)
            unsent = sizes[len(world.stored("a")) - 1 :]
            lingering.append(sum(unsent) + len(unsent) * RECORD_OVERHEAD)
    assert len(lingering) > 10
    assert max(lingering) <= 1_000 / 2


def keys(count: int) -> list[bytes | None]:
    return [None if i % 7 == 0 else b"key-%d" % (i % 50) for i in range(count)]


def test_plain_keyed_records_go_where_java_sends_them_and_know_their_offsets() -> None:
    world = World()
    world.cluster.create("a", 4)
    sender = Sender(world, batch_bytes=2_000)
    sender.send("a", b"first")
    world.run(lambda: "a" in sender.accumulator.inboxes)
    inbox = sender.accumulator.inboxes["a"]
    sent = list(zip(numbers(3_000), keys(3_000), strict=True))
    deliveries = []
    for value, key in sent:
        got = inbox.pending.put(value, key)
        delivery = got[0] if isinstance(got, tuple) else got
        assert isinstance(delivery, Delivery)
        if isinstance(got, tuple):
            assert sender.accumulator.turn_in(inbox) is None
        deliveries.append(delivery)
    sender.flush()
    for (value, key), delivery in zip(sent, deliveries, strict=True):
        where = metadata(delivery)
        assert world.stored("a", where.partition)[where.offset] == value
        assert key is None or where.partition == partition_for_key(key, 4)
    in_order_of_sending(world, partitions=4)


@pytest.mark.parametrize("partitions", [1, 3])
def test_records_with_and_without_a_key_keep_their_order_in_a_partition(partitions: int) -> None:
    world = World()
    world.cluster.create("a", partitions)
    sender = Sender(world, batch_bytes=2_000)
    sender.send("a", b"first")
    world.run(lambda: "a" in sender.accumulator.inboxes)
    inbox = sender.accumulator.inboxes["a"]
    values = numbers(3_000)
    for begin in range(0, 3_000, 300):
        alone, many = values[begin : begin + 200], values[begin + 200 : begin + 300]
        for value, key in zip(alone, keys(200), strict=True):
            if isinstance(inbox.pending.put(value, key), tuple):
                assert sender.accumulator.turn_in(inbox) is None
        sender.send_many(Many("a", many, keys(100), None, None, None))
        sender.send("a", values[begin + 299] + b"+", key=b"key-1")
    sender.flush()
    in_order_of_sending(world, partitions)


def in_order_of_sending(world: World, partitions: int) -> None:
    """`numbers` went up, in every partition."""
    for partition in range(partitions):
        found = world.stored("a", partition)
        stored = [value for value in found if value is not None and value != b"first"]
        assert stored
        assert stored == sorted(stored)


def test_send_many_with_keys_and_headers_says_of_each_record_where_it_went() -> None:
    world = World()
    world.cluster.create("a", 3)
    sender = Sender(world, batch_bytes=1_000, buffer_bytes=8_000)
    sender.send("a", b"first")
    many = Many("a", numbers(2_000), keys(2_000), [("name", b"x")], None, 1_700_000_000_500)
    sender.send_many(many)
    sender.flush()
    places = list(many.span.places())
    assert len(places) == 2_000
    for index, (batch, at) in enumerate(places):
        where = batch.metadata(at)
        assert world.stored("a", where.partition)[where.offset] == b"%06d" % index
        assert where.timestamp_ms == 1_700_000_000_500
        assert many.span.find(index) == (batch, at)


def test_what_was_sent_before_a_send_many_stays_before_it() -> None:
    world = World()
    world.cluster.create("a", 1)
    sender = Sender(world)
    sender.send("a", b"first")
    world.run(lambda: "a" in sender.accumulator.inboxes)
    sender.accumulator.inboxes["a"].pending.put(b"pending", None)
    sender.send_many(Many("a", [b"many"], None, None, None, None))
    sender.flush()
    assert world.stored("a") == [b"first", b"pending", b"many"]


def test_a_full_buffer_holds_pending_records_back_in_order() -> None:
    world = World()
    world.cluster.create("a", 2)
    sender = Sender(world, batch_bytes=500, buffer_bytes=2_000)
    sender.send("a", b"first")
    world.run(lambda: "a" in sender.accumulator.inboxes)
    inbox = sender.accumulator.inboxes["a"]
    values = [b"%06d" % i * 10 for i in range(400)]
    waits = 0
    for value in values:
        got = inbox.pending.put(value, b"k")
        while isinstance(got, tuple) and (room := sender.accumulator.turn_in(inbox)) is not None:
            waits += 1
            world.run(lambda room=room: room.done)  # type: ignore[misc]
    assert waits > 3
    sender.flush()
    partition = partition_for_key(b"k", 2)
    assert [v for v in world.stored("a", partition) if v != b"first"] == values


# A topic that is deleted and made anew.


def test_a_recreated_topic_gets_what_comes_then_each_record_once() -> None:
    world = World()
    sender = Sender(world, batch_bytes=200)
    for value in numbers(50):
        sender.send("a", value)
    sender.flush()
    world.cluster.create("a")
    deliveries = [sender.send("a", value) for value in numbers(100)]
    sender.flush()
    assert world.stored("a") == numbers(100)
    assert [metadata(d).offset for d in deliveries] == list(range(100))


@pytest.mark.parametrize("fault", ["cut_before", "cut_after"])
def test_cuts_while_a_topic_is_recreated_neither_lose_nor_repeat(fault: str) -> None:
    world = World()
    sender = Sender(world, batch_bytes=200)
    sender.send("a", b"old")
    sender.flush()
    world.cluster.create("a")
    getattr(world.broker, fault)(2, 3, 5)
    for value in numbers(100):
        sender.send("a", value)
    sender.flush()
    assert world.stored("a") == numbers(100)


def test_a_recreated_topic_may_have_fewer_partitions() -> None:
    world = World()
    world.cluster.create("a", 8)
    sender = Sender(world)
    for value in numbers(40):
        sender.send("a", value, key=value)
    sender.flush()
    world.cluster.create("a")
    seen = world.engine.cluster.refreshed()
    world.run(lambda: seen.done)
    deliveries = [sender.send("a", value, key=value) for value in numbers(40)]
    sender.flush()
    assert [metadata(d).partition for d in deliveries] == [0] * 40
    assert world.stored("a") == numbers(40)


def test_what_has_no_key_goes_to_a_partition_that_the_new_topic_has() -> None:
    world = World()
    world.cluster.create("a", 8)
    sender = Sender(world, linger_ms=5_000, delivery_timeout_ms=20_000)

    def partition_of_next() -> int:
        sender.flush()
        sender.send("a", b"of before")
        sticky = sender.accumulator.topics["a"].sticky
        return 0 if sticky is None else sticky.partition

    while not partition_of_next():
        pass
    world.cluster.create("a", 1)
    seen = world.engine.cluster.refreshed()
    world.run(lambda: seen.done)
    sender.send("a", b"of the new")
    sender.flush()
    assert world.stored("a") == [b"of the new"]


def test_what_waited_for_partitions_that_the_new_topic_has_not_is_handed_back() -> None:
    world = World()
    world.cluster.create("a", 8)
    sender = Sender(world, batch_bytes=500, buffer_bytes=2_000, delivery_timeout_ms=5_000)
    sender.send("a", b"first", partition=0)
    sender.flush()
    inbox = sender.accumulator.inboxes["a"]
    world.broker.is_up = False
    for sent, value in enumerate(numbers(400), 1):  # noqa: B007 - used behind the loop
        got = inbox.pending.put(value, value)
        if isinstance(got, tuple) and sender.accumulator.turn_in(inbox) is not None:
            break
    assert inbox.leftover
    world.cluster.create("a")
    world.broker.is_up = True
    seen = world.engine.cluster.refreshed()
    world.run(lambda: seen.done)
    sender.flush()
    lost = sender.accumulator.take_undelivered()
    assert {record.partition for record in lost} <= set(range(1, 8))
    stored = world.stored("a")
    assert len(stored) + len(lost) == sent
    assert not {record.value for record in lost} & set(stored)


def coordinate(world: World, added: ErrorCode, ended: ErrorCode = ErrorCode.NONE) -> None:
    """The broker is a transaction coordinator, which answers AddPartitionsToTxn and EndTxn so."""
    others = world.broker._reply

    def reply(request: Message, version: int) -> tuple[Message, int]:
        match request:
            case FindCoordinatorRequest():
                row = FindCoordinatorResponseCoordinator(
                    key="tx", node_id=1, host="10.0.0.1", port=9001, error_message=None
                )
                return FindCoordinatorResponse(coordinators=[row]), version
            case AddPartitionsToTxnRequest():
                done = AddPartitionsToTxnResponsePartition(
                    partition_index=0, partition_error_code=added
                )
                topic = AddPartitionsToTxnResponseTopic(name="t", results_by_partition=[done])
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]), version
            case EndTxnRequest():
                return EndTxnResponse(error_code=ended), version
        return others(request, version)

    world.broker._reply = reply  # type: ignore[method-assign]  # a broker with two more apis


def run(world: World, call: Call[None]) -> None:
    done = world.engine.call(call, world.now_ms)
    world.run(lambda: done.done)
    done.result()


def test_under_version_1_nothing_is_added_behind_the_end_of_an_abort() -> None:
    world = World()
    coordinate(world, added=ErrorCode.CONCURRENT_TRANSACTIONS)
    sender = Sender(world, transactional_id="tx", linger_ms=0)
    transactions = sender.producing.in_transactions

    def a_while() -> Call[None]:
        yield Pause(2_000)

    def asked(kind: type[Message]) -> list[int]:
        return [n for n, request in enumerate(world.broker.requests) if isinstance(request, kind)]

    world.cluster.create("t", 1)
    run(world, transactions.begin())
    transactions.open(world)
    transactions.is_second = False
    sender.send("t", b"v", partition=0)
    world.run(lambda: bool(asked(AddPartitionsToTxnRequest)))
    run(world, transactions.abort())
    run(world, a_while())
    assert max(asked(AddPartitionsToTxnRequest)) < min(asked(EndTxnRequest))


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT])
def test_in_a_transaction_too_what_follows_a_refused_batch_comes_again_behind_it(
    code: ErrorCode,
) -> None:
    world = World()
    coordinate(world, added=ErrorCode.NONE)
    world.cluster.create("t", 1)
    sender = Sender(world, transactional_id="tx", batch_bytes=150)
    run(world, sender.producing.in_transactions.begin())
    sender.producing.in_transactions.open(world)
    world.broker.produce_errors = [0, code, 0, 0, code]
    for value in numbers(60):
        sender.send("t", value, partition=0)
    run(world, sender.producing.in_transactions.commit())
    assert world.stored("t") == numbers(60)


def test_under_version_1_the_transaction_behind_one_that_was_refused_a_batch_is_stored() -> None:
    """The epoch stays, and the sequence that was refused is missing."""
    world = World()
    coordinate(world, added=ErrorCode.NONE)
    (partition,) = world.cluster.create("t", 1)
    sender = Sender(world, transactional_id="tx", linger_ms=0)
    transactions = sender.producing.in_transactions

    def send(value: bytes, end: Callable[[], Call[None]]) -> None:
        run(world, transactions.begin())
        transactions.open(world)
        transactions.is_second = False
        sender.send("t", value, partition=0)
        run(world, end())

    send(b"first", transactions.commit)
    partition.refusals.append(ErrorCode.INVALID_RECORD)
    with pytest.raises(DeliveryFailed):
        send(b"refused", transactions.commit)
    run(world, transactions.abort())
    send(b"next", transactions.commit)
    assert world.stored("t") == [b"first", b"next"]


def test_under_version_1_the_transaction_behind_an_abort_of_what_may_be_there_is_stored() -> None:
    """Its sequence is dropped, which the broker may have or not."""
    world = World()
    coordinate(world, added=ErrorCode.NONE)
    world.cluster.create("t", 1)
    sender = Sender(world, transactional_id="tx", linger_ms=0)
    transactions = sender.producing.in_transactions

    def begin(value: bytes) -> None:
        run(world, transactions.begin())
        transactions.open(world)
        transactions.is_second = False
        sender.send("t", value, partition=0)

    begin(b"first")
    run(world, transactions.commit())
    world.broker.cut_before(2)
    begin(b"lost on its way")
    (queue,) = sender.accumulator.topics["t"].partitions.values()
    world.run(lambda: bool(queue.failures))
    run(world, transactions.abort())
    begin(b"next")
    run(world, transactions.commit())
    assert world.stored("t") == [b"first", b"next"]


@pytest.mark.parametrize("is_seen_before", [True, False])
def test_a_transaction_whose_failure_the_caller_has_seen_is_not_committed_either(
    is_seen_before: bool,
) -> None:
    world = World()
    coordinate(world, added=ErrorCode.NONE)
    (partition,) = world.cluster.create("t", 1)
    sender = Sender(world, transactional_id="tx", linger_ms=0)
    transactions = sender.producing.in_transactions
    run(world, transactions.begin())
    transactions.open(world)
    partition.refusals.append(ErrorCode.INVALID_RECORD)
    delivery = sender.send("t", b"refused", partition=0)
    seen: list[bool] = []

    def see() -> None:
        with pytest.raises(InvalidRecord):
            metadata(delivery)
        seen.append(True)

    batch, _ = delivery.place()
    batch.on_done(see)
    if is_seen_before:
        sender.flush()
    assert seen == [True] * is_seen_before
    with pytest.raises(InvalidRecord):
        run(world, transactions.commit())
    assert not any(isinstance(request, EndTxnRequest) for request in world.broker.requests)


def test_under_version_1_an_abort_of_what_was_never_added_is_none_that_failed() -> None:
    """A coordinator that has nothing to end says so."""
    world = World()
    coordinate(world, added=ErrorCode.TOPIC_AUTHORIZATION_FAILED, ended=ErrorCode.INVALID_TXN_STATE)
    world.cluster.create("t", 1)
    sender = Sender(world, transactional_id="tx", linger_ms=0)
    transactions = sender.producing.in_transactions
    run(world, transactions.begin())
    transactions.open(world)
    transactions.is_second = False
    sender.send("t", b"may not", partition=0)
    began_ms = world.now_ms
    with pytest.raises(DeliveryFailed):
        run(world, transactions.commit())
    run(world, transactions.abort())
    assert transactions.is_aborted
    assert world.now_ms < began_ms + 10_000, "not after the delivery timeout"


def test_who_sends_behind_a_failure_of_the_client_between_transactions_hears_of_it() -> None:
    world = World()
    sender = Sender(world, transactional_id="tx")
    world.engine.close(world.now_ms, SegbrokerError("bug in the client"))
    with pytest.raises(SegbrokerError, match="bug in the client"):
        sender.try_send("a", b"x")


def test_what_is_acknowledged_when_its_topic_is_known_to_be_gone_is_not_committed() -> None:
    """The view is that of another broker, whose answer was quicker."""
    world = World(brokers=2)
    coordinate(world, added=ErrorCode.NONE)
    world.cluster.create("t", 1)
    world.cluster.move("t", 0, 2)
    sender = Sender(world, transactional_id="tx", linger_ms=0)
    transactions = sender.producing.in_transactions
    run(world, transactions.begin())
    transactions.open(world)
    leader, answers = world.cluster.brokers[2], list[bytes]()
    answer = leader.answer

    def late(frame: memoryview) -> bytes | None:
        said = answer(frame)
        if not isinstance(leader.requests[-1], ProduceRequest):
            return said
        assert said is not None
        answers.append(said)
        return b""

    leader.answer = late  # type: ignore[method-assign]
    sender.send("t", b"v", partition=0)
    world.run(lambda: bool(answers))
    before = world.engine.cluster.topic_id("t")
    world.cluster.create("t", 1)
    world.engine.cluster.invalidate()
    world.run(lambda: world.engine.cluster.topic_id("t") != before)
    (connection,) = (one for one, (broker, _) in world._links.items() if broker is leader)
    world.deliver(connection, answers[0])
    with pytest.raises(TransactionAborted, match="was deleted and made again within the"):
        run(world, transactions.commit())


def test_a_hole_in_the_sequences_ends_the_transaction() -> None:
    world = World()
    coordinate(world, added=ErrorCode.NONE)
    world.cluster.create("t", 1)
    sender = Sender(world, transactional_id="tx", batch_bytes=150)
    run(world, sender.producing.in_transactions.begin())
    sender.producing.in_transactions.open(world)
    world.broker.produce_errors = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    sender.send("t", b"v", partition=0)
    with pytest.raises(DeliveryFailed) as lost:
        run(world, sender.producing.in_transactions.commit())
    assert isinstance(lost.value.undelivered[0].error, OutOfOrderSequenceNumber)


def produces(broker: Broker) -> int:
    return sum(isinstance(request, ProduceRequest) for request in broker.requests)


@pytest.mark.parametrize("was_refused", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_another_identity_does_not_repeat_what_other_partitions_wait_to_hear_of(
    seed: int, was_refused: bool
) -> None:
    world = World(seed=seed)
    partitions = world.cluster.create("t", 2)
    sender = Sender(world, linger_ms=0)
    partitions[1].refusals += [ErrorCode.UNKNOWN_PRODUCER_ID] * was_refused
    for number in (0, 1):
        sender.send("t", b"first", partition=number)
    sender.flush()
    cuts = range(1, 6)  # so that it waits for long before it is sent again
    before = produces(world.broker)
    world.broker.cut_after(*(before + cut for cut in cuts))
    sender.send("t", b"appended, not answered", partition=1)
    world.run(lambda: produces(world.broker) == before + cuts[-1])
    partitions[0].refusals.append(ErrorCode.UNKNOWN_PRODUCER_ID)
    sender.send("t", b"refused", partition=0)
    sender.flush()
    sender.send("t", b"last", partition=1)
    sender.flush()
    assert world.stored("t", 0) == [b"first", b"refused"]
    assert world.stored("t", 1) == [b"first", b"appended, not answered", b"last"]


def test_another_identity_waits_for_the_answers_of_other_partitions() -> None:
    world = World(brokers=2)
    partitions = world.cluster.create("t", 2)
    sender = Sender(world, linger_ms=0)
    for number in (0, 1):
        sender.send("t", b"first", partition=number)
    sender.flush()
    with silent(world.cluster.brokers[2], is_done=True):
        sender.send("t", b"on its way", partition=1)
        settle(world)
    partitions[0].refusals.append(ErrorCode.UNKNOWN_PRODUCER_ID)
    refused = sender.send("t", b"refused", partition=0)
    world.run(lambda: refused.done)
    sender.send("t", b"last", partition=1)
    sender.flush()
    assert world.stored("t", 0) == [b"first", b"refused"]
    assert world.stored("t", 1) == [b"first", b"on its way", b"last"]


def test_behind_the_last_epoch_there_is_another_producer_id() -> None:
    world = World()
    sender = Sender(world, linger_ms=0)
    sender.send("a", b"first")
    sender.flush()
    partition, queue = world.cluster.topics["a"][0], sender.accumulator.topics["a"].queue(0)
    partition.seen[queue.producer_id, EPOCH_MAX] = partition.seen.pop((queue.producer_id, 0))
    queue.epoch = EPOCH_MAX
    partition.refusals.append(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    sender.send("a", b"behind a hole")
    sender.flush()
    assert world.stored("a") == [b"first", b"behind a hole"]
    last = read_header(partition.batches[-1])
    assert (last.producer_id, last.producer_epoch) == (world.cluster.next_producer_id, 0)

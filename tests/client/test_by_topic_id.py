"""A topic that is deleted and made again between a look at the cluster and a request.

Requests say by their ids which topics they mean, so the new one takes nothing that was meant for
the one before; brokers that know no such requests are asked by name.
"""

from dataclasses import replace

import pytest

from segbroker.broker.groups.group import Group
from segbroker.client import (
    Admin,
    Consumer,
    IllegalGeneration,
    Outgoing,
    Producer,
    Record,
    TransactionAborted,
    UnknownTopicOrPartition,
    transform,
)
from segbroker.client.connection import Connection
from segbroker.client.errors import TimedOut
from segbroker.client.group_offsets import CommittedOffset
from segbroker.client.records import TopicPartition
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import MetadataRequest, ProduceRequest

from ..support.daemon import Daemon
from .simulated import NOBODY, World
from .simulated_groups import TOPIC, GroupWorld
from .test_producing import Sender, coordinate, metadata, numbers, run
from .test_topics_made_again import fill, made_again, read_on
from .test_topics_made_again import numbers as numbers_of

BY_NAME: dict[int, int] = {ApiKey.PRODUCE: 12, ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}


def produces(world: World) -> list[ProduceRequest]:
    return [r for r in world.broker.requests if isinstance(r, ProduceRequest)]


# Producing.


def test_a_topic_made_again_takes_nothing_before_the_producer_has_seen_it() -> None:
    world = World()
    world.cluster.create("a", 2)
    sender = Sender(world, batch_bytes=200)
    sender.send("a", b"old", partition=0)
    sender.flush()
    world.cluster.create("a", 3)
    before = len(world.broker.requests)
    deliveries = [sender.send("a", value, partition=0) for value in numbers(50)]
    sender.flush()
    assert world.stored("a") == numbers(50)
    assert [metadata(d).offset for d in deliveries] == list(range(50))
    since = world.broker.requests[before:]
    looked = next(n for n, request in enumerate(since) if isinstance(request, MetadataRequest))
    new = world.cluster.topic_ids["a"]
    for n, request in enumerate(since):
        if isinstance(request, ProduceRequest):
            assert (request.topic_data[0].topic_id == new) == (n > looked)
    assert sender.accumulator.topics["a"].partition_count == 3


@pytest.mark.parametrize("number", range(1, 9))
def test_what_is_in_flight_when_a_topic_is_made_again_is_neither_lost_nor_overtaken(
    number: int,
) -> None:
    """Five batches are on their way, some of them are for the topic of before."""
    world = World()
    world.cluster.create("a", 1)
    sender = Sender(world, batch_bytes=200)
    sender.send("a", b"first")
    sender.flush()

    def count(request: ProduceRequest) -> None:
        nonlocal number
        number -= 1
        if not number:
            world.cluster.create("a", 1)
            world.engine.cluster.invalidate()

    world.broker.on_produce = count
    deliveries = [sender.send("a", value) for value in numbers(100)]
    sender.flush()
    stored = world.stored("a")
    assert stored == numbers(100)[-len(stored) :]
    assert [metadata(d).offset for d in deliveries][-len(stored) :] == list(range(len(stored)))
    assert len(stored) > 100 - 9 * 8


def test_a_view_that_knows_the_new_topic_sends_it_nothing_before_the_old_one_has_answered() -> None:
    world = World()
    world.cluster.create("a", 1)
    sender = Sender(world, batch_bytes=100, linger_ms=0)
    sender.send("a", b"first")
    sender.flush()
    queue = sender.accumulator.topics["a"].queue(0)
    sender.send("a", b"for the old one")
    sender.accumulator.drain_all()
    sender.accumulator.seal_due(world.now_ms + 1_000)
    sender.producing.step(world.now_ms)
    assert len(queue.in_flight) == 1
    world.cluster.create("a", 1)
    view = world.engine.cluster.topics["a"]
    view.topic_id = world.cluster.topic_ids["a"]
    sender.send("a", b"for the new one")
    sender.accumulator.drain_all()
    sender.accumulator.seal_due(world.now_ms + 1_000)
    sender.producing.step(world.now_ms)
    assert len(queue.in_flight) == 1, "it would overtake"
    sender.flush()
    assert world.stored("a") == [b"for the old one", b"for the new one"]


@pytest.mark.parametrize("newest", [7, 9, 12])
def test_an_older_broker_is_sent_to_by_name(newest: int) -> None:
    world = World()
    world.broker.newest[ApiKey.PRODUCE] = newest
    world.cluster.create("a", 1)
    sender = Sender(world, batch_bytes=200)
    for value in numbers(50):
        sender.send("a", value)
    sender.flush()
    assert world.stored("a") == numbers(50)
    assert {topic.name for request in produces(world) for topic in request.topic_data} == {"a"}


def test_a_broker_that_tells_no_ids_is_sent_to_by_name() -> None:
    world = World()
    world.broker.newest[ApiKey.METADATA] = 9
    world.cluster.create("a", 1)
    sender = Sender(world)
    sender.send("a", b"v")
    sender.flush()
    assert world.stored("a") == [b"v"]
    assert [topic.name for request in produces(world) for topic in request.topic_data] == ["a"]


def test_without_answers_it_is_sent_by_name_as_nobody_would_hear_of_a_refusal() -> None:
    world = World()
    world.cluster.create("a", 1)
    sender = Sender(world, acks=0, idempotent=False)
    sender.send("a", b"old")
    sender.flush()
    world.cluster.create("a", 1)
    sender.send("a", b"new")
    sender.flush()
    assert world.stored("a") == [b"new"]


def test_a_topic_that_is_gone_for_good_is_told_and_not_asked_for_in_a_loop() -> None:
    world = World()
    world.cluster.create("a", 1)
    sender = Sender(world, delivery_timeout_ms=20_000)
    sender.send("a", b"old")
    sender.flush()
    world.cluster.auto_create = False
    del world.cluster.topics["a"]
    before = len(world.broker.requests)
    delivery = sender.send("a", b"new")
    sender.flush()
    with pytest.raises(TimedOut, match="There is no such topic any more"):
        metadata(delivery)
    assert len(world.broker.requests) - before < 200


# With a broker.


def test_a_record_goes_by_the_partitions_that_the_topic_has_now(daemon: Daemon, topic: str) -> None:
    """A producer that is not told of the new topic goes by the old one's until its view is old."""
    with Admin(daemon.address) as admin, Producer(daemon.address, linger_ms=0) as producer:
        admin.create_topic(topic, partitions=1)
        producer.send(topic, b"old", key=b"k").result()
        admin.delete_topic(topic)
        admin.create_topic(topic, partitions=8)
        producer.send(topic, b"it learns by this one", key=b"k").result()
        partitions = {
            producer.send(topic, b"v", key=b"%d" % n).result().partition for n in range(40)
        }
        assert len(partitions) > 1


def torn(admin: Admin, producer: Producer, topic: str) -> None:
    with producer.transaction():
        producer.send(topic, b"gone", partition=0).result()
        admin.delete_topic(topic)
        admin.create_topic(topic, partitions=2)
        producer.send(topic, b"torn", partition=1)


def test_a_transaction_whose_first_records_went_with_their_topic_is_not_committed(
    daemon: Daemon, topic: str
) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=2)
        with Producer(daemon.address, transactional_id=topic, linger_ms=0) as producer:
            with pytest.raises(TransactionAborted, match="was deleted and made again within the"):
                torn(admin, producer, topic)
            with producer.transaction():
                producer.send(topic, b"whole", partition=0)
                producer.send(topic, b"whole", partition=1)
    with Consumer(daemon.address, topic, start="start", stop_at_end=True) as consumer:
        assert [record.value for record in consumer] == [b"whole", b"whole"]


def test_a_transaction_goes_on_in_a_topic_that_was_made_again_before_its_first_record(
    daemon: Daemon, topic: str
) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
        with Producer(daemon.address, transactional_id=topic) as producer:
            with producer.transaction():
                producer.send(topic, b"gone")
            with producer.transaction():
                admin.delete_topic(topic)
                admin.create_topic(topic, partitions=1)
                producer.send_many(topic, [b"1", b"2"])
                producer.flush()
                producer.send(topic, b"3")
    with Consumer(daemon.address, topic, start="start", stop_at_end=True) as consumer:
        assert [record.value for record in consumer] == [b"1", b"2", b"3"]


def test_a_transform_repeats_what_was_torn(daemon: Daemon, topic: str) -> None:
    out = f"{topic}-out"
    fill(daemon.address, topic, 10)
    with Admin(daemon.address) as admin:
        admin.create_topic(out, partitions=2)

    def function(record: Record) -> list[Outgoing]:
        number = int(record.value or b"")
        if number == 5 and not again:
            producer.flush()
            again.append(number)
            with Admin(daemon.address) as admin:
                admin.delete_topic(out)
                admin.create_topic(out, partitions=2)
        return [Outgoing(out, record.value, partition=int(number >= 5))]

    again: list[int] = []
    with (
        Consumer(
            daemon.address, topic, group=topic, start="start", auto_commit=False, stop_at_end=True
        ) as consumer,
        Producer(daemon.address, transactional_id=topic) as producer,
    ):
        transform(consumer, producer, function)
    with Consumer(daemon.address, out, start="start", stop_at_end=True) as consumer:
        assert sorted(numbers_of(consumer)) == list(range(10))


def test_a_record_of_the_topic_of_before_counts_also_where_the_new_one_was_seen_first() -> None:
    """Another broker has told of the new topic before the one that took the record has answered."""
    world = World(brokers=2)
    coordinate(world, added=ErrorCode.NONE)
    world.cluster.create("t", 2)
    sender = Sender(world, transactional_id="tx", linger_ms=0)
    transactions = sender.producing.in_transactions
    run(world, transactions.begin())
    transactions.open(world)
    other, deliver = world.cluster.brokers[2], world.deliver
    held: list[tuple[Connection, bytes]] = []

    def hold_first(connection: Connection, data: bytes) -> None:
        if not held and other.requests and isinstance(other.requests[-1], ProduceRequest):
            held.append((connection, data))
        else:
            deliver(connection, data)

    world.deliver = hold_first  # type: ignore[method-assign]  # a broker that takes its time
    gone = sender.send("t", b"gone", partition=1)
    world.run(lambda: bool(held))
    world.cluster.create("t", 2)
    view, new = world.engine.cluster.topics["t"], world.cluster.topic_ids["t"]
    world.engine.cluster.invalidate()
    world.run(lambda: view.topic_id == new)
    assert not gone.done
    deliver(*held[0])
    world.run(lambda: gone.done)
    sender.send("t", b"torn", partition=0)
    with pytest.raises(TransactionAborted, match="was deleted and made again within the"):
        run(world, transactions.commit())


# Where a group stands.


@pytest.mark.parametrize("how", ["all", "a record", "offsets"])
def test_what_was_read_of_a_topic_is_not_committed_in_one_that_was_made_since(
    daemon: Daemon, topic: str, how: str
) -> None:
    fill(daemon.address, topic, 20)
    with Consumer(
        daemon.address,
        topic,
        group=topic,
        start="start",
        on_gap="skip",
        auto_commit=False,
        metadata_max_age_ms=600_000,
    ) as consumer:
        records = consumer.poll(20, 60_000)
        assert numbers_of(records) == list(range(20))
        consumer.pause()  # no fetch tells it of the new topic
        made_again(daemon.address, topic, 40)
        match how:
            case "all":
                consumer.commit()
            case "a record":
                consumer.commit(records[-1])
            case _:
                consumer.commit({(topic, 0): 20})
    assert read_on(daemon, topic) == list(range(40))


def test_nor_is_what_was_read_from_a_place_that_the_caller_named(
    daemon: Daemon, topic: str
) -> None:
    def seek(_: object) -> None:
        consumer.seek(topic, 0, 5)

    fill(daemon.address, topic, 20)
    with Consumer(
        daemon.address,
        topic,
        group=topic,
        on_assigned=seek,
        auto_commit=False,
        metadata_max_age_ms=600_000,
    ) as consumer:
        assert numbers_of(consumer.poll(15, 60_000)) == list(range(5, 20))
        consumer.pause()
        made_again(daemon.address, topic, 40)
        consumer.commit()
    assert read_on(daemon, topic) == list(range(40))


def test_what_is_committed_by_itself_goes_into_no_other_topic(daemon: Daemon, topic: str) -> None:
    fill(daemon.address, topic, 20)
    with Consumer(
        daemon.address,
        topic,
        group=topic,
        start="start",
        on_gap="skip",
        commit_interval_ms=600_000,
        metadata_max_age_ms=600_000,
    ) as consumer:
        assert numbers_of(consumer.poll(20, 60_000)) == list(range(20))
        assert consumer.poll(1, 0) == []
        consumer.pause()
        made_again(daemon.address, topic, 40)
    assert read_on(daemon, topic) == list(range(40))


def test_the_topics_that_are_there_still_are_committed(daemon: Daemon, topic: str) -> None:
    other = f"{topic}-other"
    fill(daemon.address, topic, 20)
    fill(daemon.address, other, 20)
    with Consumer(
        daemon.address,
        topic,
        other,
        group=topic,
        start="start",
        on_gap="skip",
        auto_commit=False,
        metadata_max_age_ms=600_000,
    ) as consumer:
        count = 0
        while count < 40:
            count += len(consumer.poll(20, 60_000))
        consumer.pause()
        made_again(daemon.address, topic, 40)
        consumer.commit()
        assert {tp.topic: at.offset for tp, at in consumer.committed().items()} == {other: 20}


def test_a_commit_in_a_topic_that_is_gone_says_so(daemon: Daemon, topic: str) -> None:
    fill(daemon.address, topic, 20)
    with Consumer(daemon.address, topic, group=topic, start="start", auto_commit=False) as consumer:
        consumer.poll(20, 60_000)
        consumer.pause()
        with Admin(daemon.address) as admin:
            admin.delete_topic(topic)
        with pytest.raises(UnknownTopicOrPartition):
            consumer.commit()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_commit_is_not_left_out_as_of_another_topic_while_that_is_not_known(
    assignor: str,
) -> None:
    """It waits for one before it while the partition goes and comes back, from now on unserved."""
    for backoff_ms in range(10, 400, 10):
        world = GroupWorld(5, partitions=1, records=20)
        member = world.start(assignor, auto_commit=False)
        group, engine = member.reading.group, member.reading.engine
        world.run(lambda: len(world.processed) == 5)  # noqa: B023 - at once
        world.cluster.move(TOPIC, 0, NOBODY)
        engine.settings = replace(engine.settings, retry_backoff_ms=backoff_ms)
        world.forget()
        offsets = {TopicPartition(TOPIC, 0): CommittedOffset(5)}
        calls = [engine.call(group.commit(offsets), world.now_ms) for _ in range(2)]
        group.membership.rejoin("as others join")
        world.run(lambda: all(call.done for call in calls))  # noqa: B023
        is_told = all(call.error is not None for call in calls)
        assert is_told or world.committed == {(TOPIC, 0): 5}, backoff_ms


def test_a_member_does_not_begin_where_its_group_stood_in_the_topic_of_before() -> None:
    """It was asked for before the topic was made again, and the answer comes after it is known."""
    world = GroupWorld(5, partitions=1, records=40)
    world.committed[TOPIC, 0] = 10
    world.late = 1
    member = world.start(metadata_max_age_ms=100)
    world.run(lambda: not world.late)
    world.cluster.create(TOPIC, 1)
    world.committed.clear()
    world.store(0, 30)
    cluster, new = member.reading.engine.cluster, world.cluster.topic_ids[TOPIC]
    world.run(lambda: cluster.topic_id(TOPIC) == new)
    world.answer_late()
    world.run(lambda: len(world.processed) == 30)
    assert world.processed == [(0, n) for n in range(30)]


def test_where_a_group_stands_is_asked_again_when_the_topic_is_another() -> None:
    world = GroupWorld(5, partitions=1, records=40)
    world.committed[TOPIC, 0] = 10
    member = world.start(metadata_max_age_ms=600_000)
    cluster = member.reading.engine.cluster
    world.run(lambda: bool(cluster.topic_id(TOPIC).int))
    world.cluster.create(TOPIC, 1)
    world.committed.clear()
    world.store(0, 30)
    world.run(lambda: len(world.processed) == 30)
    assert world.processed == [(0, n) for n in range(30)]


def test_an_older_broker_is_told_by_name_where_a_group_stands() -> None:
    world = GroupWorld(5, partitions=2, records=20)
    world.cluster.brokers[1].newest |= BY_NAME
    world.committed[TOPIC, 0] = 5
    member = world.start(commit_interval_ms=100)
    world.run(lambda: len(world.processed) == 35)
    member.leave()
    assert world.committed == {(TOPIC, 0): 20, (TOPIC, 1): 20}


def test_a_member_whose_group_is_gone_is_of_another_generation_by_ids_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From version 9 on a commit is told that there is no such group; before, as much as this."""
    world = GroupWorld(5, partitions=1, records=20)
    member = world.start(auto_commit=False)
    world.run(lambda: len(world.processed) == 5)
    monkeypatch.setattr(Group, "check_commit", lambda *args: ErrorCode.GROUP_ID_NOT_FOUND)
    done = member.reading.engine.call(member.reading.group.commit(None), world.now_ms)
    world.run(lambda: done.done)
    with pytest.raises(IllegalGeneration):
        done.result()

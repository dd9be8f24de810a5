"""Consumers of many partitions keep a fetch session: what is sent, and that nothing is missed."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from segbroker.client import Consumer, Producer, fetch_session
from segbroker.client.admin import Admin
from segbroker.client.records import TopicPartition
from segbroker.protocol.messages_core import FetchRequest

from ..support.daemon import Daemon
from .simulated import World
from .test_fetching import Reader, filled, store

COUNT = fetch_session.PARTITIONS_MIN


def fetches(world: World) -> list[FetchRequest]:
    return [one for one in world.broker.requests if isinstance(one, FetchRequest)]


def named(request: FetchRequest) -> list[int]:
    return [row.partition for topic in request.topics for row in topic.partitions]


def reading(world: World, count: int = COUNT) -> Reader:
    """A reader that has read what there is, and waits."""
    filled(world, partitions=count, batches=1, size=1)
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "start")
    assert len(reader.read(count)) == count
    asked = len(fetches(world))
    world.run(lambda: len(fetches(world)) > asked + 2)
    world.broker.requests.clear()
    return reader


def test_only_what_moved_on_is_sent() -> None:
    world = World(create_topics=False)
    reader = reading(world)
    store(world.cluster.topics["a"][3], [b"new"])
    assert [record.value for record in reader.read(1)] == [b"new"]
    world.run(lambda: any(named(one) for one in fetches(world)))
    assert [named(one) for one in fetches(world) if named(one)] == [[3]]


def test_few_partitions_are_sent_each_time() -> None:
    world = World(create_topics=False)
    reading(world, COUNT - 1)
    world.run(lambda: len(fetches(world)) > 1)
    for request in fetches(world):
        assert (request.session_id, request.session_epoch) == (0, -1)
        assert len(named(request)) == COUNT - 1


def test_each_of_few_partitions_is_the_first_of_a_fetch_in_its_turn() -> None:
    """A broker fills its answer from the front: where all are written to, the others might never
    have room."""
    world = World(create_topics=False)
    reader = reading(world, 3)
    for n in range(30):
        for partition in world.cluster.topics["a"]:
            store(partition, [b"new %d" % n])
        reader.read(3)
    first = Counter(named(request)[0] for request in fetches(world))
    assert first.keys() == {0, 1, 2}
    assert max(first.values()) - min(first.values()) <= 1


def test_what_is_paused_is_forgotten_until_it_is_resumed() -> None:
    world = World(create_topics=False)
    reader = reading(world)
    reader.fetching.pause([TopicPartition("a", 1)])
    world.run(lambda: any(one.forgotten_topics_data for one in fetches(world)))
    (gone,) = [one for one in fetches(world) if one.forgotten_topics_data]
    assert [(one.topic, one.partitions) for one in gone.forgotten_topics_data] == [("a", [1])]
    store(world.cluster.topics["a"][1], [b"new"])
    reader.fetching.resume([TopicPartition("a", 1)])
    assert [record.value for record in reader.read(1)] == [b"new"]


def lost(world: World) -> None:
    world.broker.sessions.clear()


def at_another_epoch(world: World) -> None:
    for session in world.broker.sessions.values():
        session.epoch += 3


def cut(world: World) -> None:
    world.broker.is_up = False
    asked = world.now_ms
    world.run(lambda: world.now_ms > asked + 50)
    world.broker.is_up = True


@pytest.mark.parametrize("happens", [lost, at_another_epoch, cut])
def test_a_session_that_is_over_begins_anew_and_nobody_hears_of_it(
    happens: Callable[[World], None],
) -> None:
    world = World(create_topics=False)
    reader = reading(world)
    happens(world)
    store(world.cluster.topics["a"][5], [b"new"])
    assert [record.value for record in reader.read(1)] == [b"new"]
    assert not reader.fetching.prefetched.errors
    assert any(one.session_epoch == 0 for one in fetches(world))


def test_a_broker_without_sessions_is_fetched_from_in_full() -> None:
    world = World(create_topics=False)
    world.broker.keeps_sessions = False
    reader = reading(world)
    store(world.cluster.topics["a"][5], [b"new"])
    assert [record.value for record in reader.read(1)] == [b"new"]
    assert all(len(named(one)) == COUNT for one in fetches(world))


@pytest.mark.parametrize("seed", range(8))
def test_every_record_is_read_once_whatever_happens(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_MIN", 2)
    random = Random(seed)
    world = World(create_topics=False, brokers=2, seed=seed)
    partitions = world.cluster.create("a", 6)
    reader = Reader(world)
    reader.fetching.assign([TopicPartition("a", index) for index in range(6)], "start")
    written: dict[int, list[bytes | None]] = {index: [] for index in range(6)}
    read: dict[int, list[bytes | None]] = {index: [] for index in range(6)}

    def take(count: int) -> None:
        for record in reader.read(count):
            read[record.partition].append(record.value)

    def waiting() -> int:
        states = reader.fetching.states.values()
        return sum(
            len(written[s.tp.partition]) - len(read[s.tp.partition]) for s in states if not s.paused
        )

    for number in range(300):
        index = random.randrange(6)
        tp = TopicPartition("a", index)
        match random.randrange(12):
            case 0:
                reader.fetching.pause([tp])
            case 1 | 2:
                reader.fetching.resume([tp])
            case 3:
                world.cluster.brokers[random.choice([1, 2])].sessions.clear()
            case 4:
                world.cluster.move("a", index, random.choice([1, 2]))
            case 5:
                reader.fetching.seek(tp, 0)
                read[index] = []
            case 6:
                broker = world.cluster.brokers[random.choice([1, 2])]
                broker.keeps_sessions = not broker.keeps_sessions
            case _:
                values: list[bytes | None] = [b"%d" % number] * random.randrange(1, 4)
                store(partitions[index], values)
                written[index] += values
        if random.random() < 0.5 and waiting():
            take(1)
    reader.fetching.resume([TopicPartition("a", index) for index in range(6)])
    while waiting():
        take(1)
    assert read == written
    assert not reader.fetching.prefetched.errors


def test_at_a_real_broker_each_record_comes_once(daemon: Daemon, topic: str) -> None:
    count = 2 * COUNT
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=count)
    with (
        Producer(daemon.address) as producer,
        Consumer(daemon.address, topic, start="start") as consumer,
    ):
        got: list[bytes | None] = []
        for number in range(60):
            producer.send(topic, b"%d" % number, partition=number * 7 % count).result(30)
            got += [record.value for record in consumer.poll(timeout_ms=30_000)]
        assert got == [b"%d" % number for number in range(60)]
        assert len(consumer.lag()) == count
        assert not any(consumer.lag().values())

"""Partitions of several leaders share what may be prefetched: none of them waits for another."""

import pytest

from segbroker.client.fetching import Fetching
from segbroker.client.settings import ConsumerSettings
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.headers import parse_request_header
from segbroker.protocol.messages_core import FetchRequest

from .simulated import World
from .test_fetching import Reader, store


def silenced(world: World, broker_id: int) -> list[memoryview]:
    """What this broker is asked by fetches, which it does not answer."""
    broker = world.cluster.brokers[broker_id]
    answer, asked = broker.answer, []

    def say_nothing(frame: memoryview) -> bytes | None:
        if parse_request_header(frame).api_key != ApiKey.FETCH:
            return answer(frame)
        asked.append(frame)
        return b""

    broker.answer = say_nothing  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("brokers", [2, 3, 7])
def test_fetches_that_wait_leave_room_for_those_of_the_other_leaders(brokers: int) -> None:
    world = World(create_topics=False, brokers=brokers)
    partitions = world.cluster.create("a", brokers)
    store(partitions[-1], [b"of the last one"])
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "start")
    ends_ms = world.now_ms + 60_000
    ready = reader.fetching.prefetched.ready
    world.run(lambda: bool(ready) or world.now_ms >= ends_ms)
    assert [record.value for record in reader.read(1)] == [b"of the last one"]


def test_what_leaders_are_asked_for_at_once_is_no_more_than_may_be_prefetched() -> None:
    world = World(create_topics=False, brokers=7)
    world.cluster.create("a", 7)
    Reader(world).fetching.subscribe(["a"], "start")

    def asked() -> list[int]:
        requests = [broker.requests for broker in world.cluster.brokers.values()]
        return [
            one.max_bytes for each in requests for one in each[-1:] if isinstance(one, FetchRequest)
        ]

    world.run(lambda: len(asked()) == 7)
    assert sum(asked()) <= ConsumerSettings().prefetch_bytes


def test_a_leader_with_much_to_read_does_not_keep_the_others_from_being_asked() -> None:
    world = World(create_topics=False, brokers=2)
    much, little = world.cluster.create("a", 4)[:2]
    for partition in (much, world.cluster.topics["a"][2]):
        for _ in range(200):
            store(partition, [b"x" * 500])
    store(little, [b"little"])
    reader = Reader(world, prefetch_bytes=1_000, fetch_bytes=1_000, fetch_partition_bytes=1_000)
    reader.fetching.subscribe(["a"], "start")
    assert b"little" in [record.value for record in reader.read(20)]


def test_of_a_partition_no_more_is_fetched_ahead_than_it_may_have() -> None:
    """While its leader is asked for another one."""
    world = World(create_topics=False)
    much, _ = world.cluster.create("a", 2)
    for _ in range(200):
        store(much, [b"x" * 500])
    reader = Reader(world, fetch_partition_bytes=1_000)
    reader.fetching.subscribe(["a"], "start")
    ends_ms = world.now_ms + 10_000
    world.run(lambda: world.now_ms >= ends_ms)
    assert 1_000 <= reader.fetching.prefetched.buffered_bytes < 2_000


def test_a_partition_that_moved_is_not_waited_for_at_a_leader_of_before_that_is_silent() -> None:
    world = World(create_topics=False, brokers=2, metadata_max_age_ms=1_000)
    (partition,) = world.cluster.create("a")
    store(partition, [b"there"])
    asked = silenced(world, 1)
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "start")
    world.run(lambda: bool(asked))
    asked_ms = world.now_ms
    world.cluster.move("a", 0, 2)
    assert [record.value for record in reader.read(1)] == [b"there"]
    assert world.now_ms < asked_ms + world.settings.request_timeout_ms


def test_who_takes_what_kept_a_leader_from_being_asked_wakes_who_asks() -> None:
    """Beside a fetch that waits at another leader and has a part of what may be prefetched."""
    world = World(create_topics=False, brokers=2)
    partitions = world.cluster.create("a", 20)[1::2]
    silenced(world, 1)
    woken: list[int] = []
    settings = ConsumerSettings(prefetch_bytes=10_000, fetch_bytes=5_000)
    fetching = Fetching(world.engine, settings, wake_by=woken.append, stop_at_end=False)
    fetching.subscribe(["a"], "start")
    for partition in partitions:
        store(partition, [b"x" * 500])
    ends_ms = world.now_ms + 1_000
    world.run(lambda: world.now_ms >= ends_ms)
    asked_count = len(world.cluster.brokers[2].requests)
    for partition in partitions:
        store(partition, [b"x" * 500])
    world.run(lambda: world.now_ms >= ends_ms + 1_000)
    assert len(world.cluster.brokers[2].requests) == asked_count, "there is no room"
    woken.clear()
    while fetching.prefetched.take() is not None:
        pass
    assert woken
    world.turn()
    assert len(world.cluster.brokers[2].requests) > asked_count

"""Partitions of several leaders share what may be prefetched: none of them waits for another."""

import pytest

from segbroker.client.settings import ConsumerSettings
from segbroker.protocol.messages_core import FetchRequest

from .simulated import World
from .test_fetching import Reader, store


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

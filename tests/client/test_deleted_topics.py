"""A topic that is deleted while a producer is open: who has it made anew, and who must not."""

import pytest

from segbroker.client.errors import TimedOut
from segbroker.client.inbox import Delivery
from segbroker.protocol.messages_core import MetadataRequest

from .simulated import World
from .test_producing import Sender, metadata

MINUTES_MS = 200_000


def refreshed(world: World, within_ms: int = MINUTES_MS) -> None:
    """Let the view be asked for anew, by its age."""
    end_ms = world.now_ms + within_ms
    world.run(lambda: world.now_ms >= end_ms)


def sent_to(world: World, *topics: str, **settings: int) -> Sender:
    sender = Sender(world, **settings)
    for topic in topics:
        sender.send(topic, b"old")
    sender.flush()
    for topic in topics:
        assert world.stored(topic) == [b"old"]
    return sender


def is_made(world: World, topic: str) -> bool:
    return topic in world.cluster.topics


def test_a_producer_that_sends_nothing_does_not_make_a_deleted_topic() -> None:
    world = World()
    sender = sent_to(world, "a")
    del world.cluster.topics["a"]
    before = len(world.broker.requests)
    refreshed(world)
    asked = [r for r in world.broker.requests[before:] if isinstance(r, MetadataRequest)]
    assert len(asked) >= 2
    assert not is_made(world, "a")
    # ... so that somebody else makes it as it is wanted.
    world.cluster.create("a", partitions=3)
    delivery = sender.send("a", b"new", partition=0)
    sender.flush()
    assert metadata(delivery).offset == 0


def test_nor_does_it_when_it_looks_for_another_topic() -> None:
    world = World()
    sender = sent_to(world, "a")
    del world.cluster.topics["a"]
    world.engine.cluster.invalidate()
    sender.send("b", b"new")
    sender.flush()
    refreshed(world)
    assert world.stored("b") == [b"new"]
    assert not is_made(world, "a")


def test_nor_does_it_when_it_sends_to_another_topic_that_is_deleted() -> None:
    world = World()
    sender = sent_to(world, "a", "b")
    del world.cluster.topics["a"], world.cluster.topics["b"]
    sender.send("b", b"new")
    sender.flush()
    assert world.stored("b") == [b"new"]
    assert not is_made(world, "a")


def test_a_producer_makes_a_deleted_topic_that_it_has_records_for() -> None:
    world = World()
    sender = sent_to(world, "a")
    del world.cluster.topics["a"]
    delivery: Delivery = sender.send("a", b"new")
    sender.flush()
    assert metadata(delivery).offset == 0
    assert world.stored("a") == [b"new"]


def test_a_producer_that_waits_for_no_answers_makes_it_when_it_has_heard_of_it() -> None:
    world = World()
    sender = sent_to(world, "a", acks=0, idempotent=False)
    del world.cluster.topics["a"]
    refreshed(world)
    assert not is_made(world, "a")
    sender.send("a", b"lost")
    sender.flush()
    world.run(lambda: is_made(world, "a"))
    sender.send("a", b"new")
    sender.flush()
    world.run(lambda: world.stored("a") == [b"new"])


def test_where_no_topics_are_made_the_view_is_not_asked_for_in_a_loop() -> None:
    world = World()
    sender = sent_to(world, "a", delivery_timeout_ms=20_000)
    world.cluster.auto_create = False
    del world.cluster.topics["a"]
    before = len(world.broker.requests)
    delivery = sender.send("a", b"new")
    sender.flush()
    with pytest.raises(TimedOut, match="There is no such topic"):
        metadata(delivery)
    asked = [r for r in world.broker.requests[before:] if isinstance(r, MetadataRequest)]
    assert len(asked) < 200
    # Nobody wants it any more: it is not asked for more often than the others.
    before = len(world.broker.requests)
    refreshed(world)
    assert len(world.broker.requests) - before < 10

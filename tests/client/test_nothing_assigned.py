"""A consumer that has nothing to read for a while: a member without partitions, `assign([])`.

What it waited for when that began it waits for no longer: an answer to a fetch, the partitions of a
topic, its caller.  Nobody is woken for the end of such a wait, again and again; nor is the broker
called silent for the time in which nobody asked it.
"""

import pytest

from segbroker.client import reading
from segbroker.client.membership import Phase
from segbroker.client.records import TopicPartition
from segbroker.protocol.fields import ZERO_UUID

from .simulated import World
from .simulated_groups import GroupWorld
from .test_fetching import Reader, filled, offsets

A0 = TopicPartition("a", 0)


def passes(world: World, ms: int) -> None:
    """As in a real shell, which would turn without end for a deadline that has passed."""
    end_ms = world.now_ms + ms
    while world.now_ms < end_ms:
        if not world.turn():
            wake_ms = world.engine.next_wake_ms()
            assert wake_ms is None or wake_ms > world.now_ms
            world.now_ms = end_ms if wake_ms is None else min(wake_ms, end_ms)


def unanswered() -> tuple[World, Reader]:
    """Nothing to read any more, and nobody has answered the last fetch."""
    world = World(create_topics=False)
    filled(world)
    reader = Reader(world)
    reader.fetching.assign([A0], "start")
    world.run(lambda: reader.fetching._lanes.next_wake_ms is not None)
    reader.fetching.assign([], "start")
    return world, reader


def test_nobody_is_woken_without_end() -> None:
    world, _ = unanswered()
    passes(world, 600_000)


@pytest.mark.parametrize("how", ["by the caller", "by a group"])
def test_what_nobody_has_waited_for_is_not_called_silent(how: str) -> None:
    world, reader = unanswered()
    passes(world, 600_000)
    if how == "by the caller":
        reader.fetching.assign([A0], 0)
    else:
        reader.fetching.add_read(A0, 0, -1, ZERO_UUID)
    assert offsets(reader.read(10)) == list(range(10))


def test_a_topic_that_nobody_waits_for_any_more_wakes_nobody() -> None:
    world = World(create_topics=False)
    world.cluster.unmentioned.add("b")
    filled(world)
    reader = Reader(world)
    reader.fetching.subscribe(["b"], "start")
    world.run(lambda: reader.fetching.subscription.next_wake_ms is not None)
    reader.fetching.assign([A0], "start")
    assert len(reader.read(100)) == 100
    passes(world, 600_000)
    wake_ms = world.engine.next_wake_ms()
    assert wake_ms is None or wake_ms >= world.now_ms


def test_a_member_that_left_while_the_group_waited_for_it_wakes_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its caller is away: it was to give up all it had for the next generation."""
    world = GroupWorld(5, partitions=2, records=20)
    world.unsure_until_ms = 1_000_000_000  # what it has in hand is another one's, too
    monkeypatch.setattr(reading, "now_ms", lambda: world.now_ms)
    slow = world.start("range", max_poll_interval_ms=40_000, rebalance_timeout_ms=100_000)
    world.run(lambda: slow.in_hand is not None)
    slow.busy_until_ms = world.now_ms + 1_000_000
    world.start("range", rebalance_timeout_ms=100_000)
    group, engine = slow.reading.group, slow.reading.engine
    world.run(lambda: group._prepare_until_ms is not None)
    world.run(lambda: group.membership.phase is Phase.OUT)
    left_ms = world.now_ms
    world.run(lambda: world.now_ms > left_ms + 200_000)
    wake_ms = engine.next_wake_ms()
    assert wake_ms is None or wake_ms >= world.now_ms

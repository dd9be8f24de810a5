"""A consumer that has nothing to read for a while: a member without partitions, `assign([])`.

What it had went before a fetch of it was answered.  The time without any is not the broker's: it is
not called silent later, and nobody is woken to say so again and again.
"""

import pytest

from segbroker.client.records import TopicPartition
from segbroker.protocol.fields import ZERO_UUID

from .simulated import World
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

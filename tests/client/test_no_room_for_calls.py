"""A member that is given partitions while its client has as many calls under way as it may have.

So is who commits each record in a task of its own while the broker is away for a while.
"""

from collections.abc import Sequence

import pytest

from segbroker.client import BrokerUnreachable, TopicPartition, engine
from segbroker.client.group_reading import GroupReading
from segbroker.client.membership import Phase

from .simulated_groups import GroupWorld

FULL_MS = 5_000


def test_a_member_that_cannot_ask_where_its_group_stands_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GroupWorld(3, partitions=2, records=5)
    member = world.start()
    member.expected = (BrokerUnreachable,)
    take_over, most = GroupReading.take_over, engine.CALLS_COUNT_MAX

    def given(reading: GroupReading, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        monkeypatch.setattr(engine, "CALLS_COUNT_MAX", 0)
        take_over(reading, partitions, now_ms)

    monkeypatch.setattr(GroupReading, "take_over", given)
    world.run(lambda: member.reading.group.membership.phase is Phase.STABLE)
    full_ms, turns = world.now_ms, 0

    def is_over() -> bool:
        nonlocal turns
        turns += 1
        return world.now_ms >= full_ms + FULL_MS

    world.run(is_over)
    # It waits between two tries, and the caller has heard of it.
    assert turns < FULL_MS
    assert not member.told
    monkeypatch.setattr(engine, "CALLS_COUNT_MAX", most)
    world.run(world.is_settled)
    assert member.told == [("assigned", [0, 1])]

"""What is kept out of the way of the collector, and given back to it."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from segbroker.broker.loop.long_lived import OPENED_MIN, Spared
from segbroker.segments.disk.memory import MemoryStorage

from ..support.wire_client import connect
from .conftest import serving


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


class Cyclic:
    """Something that only the collector finds."""

    alive = 0

    def __init__(self) -> None:
        self.me = self
        Cyclic.alive += 1

    def __del__(self) -> None:
        Cyclic.alive -= 1


def test_what_was_opened_is_frozen_a_part_at_a_time() -> None:
    counted, spared = SimpleNamespace(opened_count=0, closed_count=0), Spared()
    spared.look(counted)
    first = gc.get_freeze_count()
    assert first > 0
    kept = [[number] for number in range(10 * OPENED_MIN)]
    counted.opened_count = OPENED_MIN - 1
    spared.look(counted)
    assert gc.get_freeze_count() <= first
    counted.opened_count = OPENED_MIN
    spared.look(counted)
    assert gc.get_freeze_count() >= first + len(kept) // 2


def test_what_lies_in_cycles_is_collected_when_enough_was_closed() -> None:
    counted, spared = SimpleNamespace(opened_count=4 * OPENED_MIN, closed_count=0), Spared()
    Cyclic.alive = 0
    Cyclic()
    spared.look(counted)
    gc.collect()
    assert Cyclic.alive == 1
    counted.closed_count = OPENED_MIN - 1
    spared.look(counted)
    assert gc.get_freeze_count() > 0
    counted.closed_count = OPENED_MIN
    spared.look(counted)
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert Cyclic.alive == 0
    spared.look(counted)
    assert gc.get_freeze_count() > 0
    spared.look(counted)
    assert gc.get_freeze_count() > 0


async def test_the_broker_counts_what_it_opens_and_closes() -> None:
    async with serving(storage=MemoryStorage()) as broker, connect(broker.address) as client:
        await client.create("t", partitions=3)
        for index in range(2):
            await client.produce("t", b"v", partition=index)
        topics = broker.core.topics
        assert (topics.opened_count, topics.closed_count) == (2, 0)
        await topics.delete_all(["t"])
        assert (topics.opened_count, topics.closed_count) == (2, 2)

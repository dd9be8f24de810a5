"""What is kept out of the way of the collector, and given back to it."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from segbroker.broker.loop.long_lived import (
    LONG_S,
    OPENED_MIN,
    THAWED_SHARE,
    Collections,
    Spared,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.committed import committed

from ..support.wire_client import connect
from ..support.wire_groups import WireMember
from ..support.wire_transactions import Tx, until
from .conftest import serving


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """All is thawed, and nothing is collected but at the word of the test."""
    gc.disable()
    gc.unfreeze()
    yield
    gc.enable()
    gc.freeze()  # as the tests were collected: what is there is looked at no more


class Cyclic:
    """Something that only the collector finds."""

    alive = 0

    def __init__(self) -> None:
        self.me = self
        Cyclic.alive += 1

    def __del__(self) -> None:
        Cyclic.alive -= 1


class Told(Collections):
    """Full collections as the test has them."""

    def passes(self, seconds: float) -> None:
        self.passed += 1
        self._long_s = max(self._long_s, seconds)


@pytest.fixture
def collections() -> Iterator[Collections]:
    told = Collections()
    with told.listening():
        yield told


def test_what_was_opened_is_frozen_a_part_at_a_time(collections: Collections) -> None:
    counted, spared = SimpleNamespace(opened_count=0, closed_count=0), Spared(collections)
    spared.look(counted, 0)
    first = gc.get_freeze_count()
    assert first > 0
    kept = [[number] for number in range(10 * OPENED_MIN)]
    counted.opened_count = OPENED_MIN - 1
    spared.look(counted, 0)
    assert gc.get_freeze_count() <= first
    counted.opened_count = OPENED_MIN
    spared.look(counted, 0)
    assert gc.get_freeze_count() >= first + len(kept) // 2


def test_what_lies_in_cycles_is_collected_when_enough_was_closed(collections: Collections) -> None:
    counted = SimpleNamespace(opened_count=4 * OPENED_MIN, closed_count=0)
    spared = Spared(collections)
    Cyclic.alive = 0
    Cyclic()
    spared.look(counted, 0)
    gc.collect()
    assert Cyclic.alive == 1
    counted.closed_count = OPENED_MIN - 1
    spared.look(counted, 0)
    assert gc.get_freeze_count() > 0
    counted.closed_count = OPENED_MIN
    spared.look(counted, 0)
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert Cyclic.alive == 0
    spared.look(counted, 0)
    assert gc.get_freeze_count() > 0
    spared.look(counted, 0)
    assert gc.get_freeze_count() > 0


def test_what_makes_collections_long_is_frozen_and_now_and_then_looked_through() -> None:
    counted, told = SimpleNamespace(opened_count=0, closed_count=0), Told()
    spared = Spared(told)
    spared.look(counted, 0)
    gc.unfreeze()
    told.passes(LONG_S / 2)
    spared.look(counted, 1)
    assert gc.get_freeze_count() == 0, "it was short"
    told.passes(3 * LONG_S)
    spared.look(counted, 2)
    assert gc.get_freeze_count() > 0
    told.passes(LONG_S)
    spared.look(counted, 3)
    room_s = 2 + 4 * LONG_S / THAWED_SHARE
    spared.look(counted, room_s - 1)
    assert gc.get_freeze_count() > 0, "together they take longer"
    spared.look(counted, room_s + 1)
    assert gc.get_freeze_count() == 0
    spared.look(counted, room_s + 2)
    assert gc.get_freeze_count() == 0, "nothing was looked through yet"
    told.passes(5 * LONG_S)
    spared.look(counted, room_s + 3)
    assert gc.get_freeze_count() > 0
    spared.look(counted, room_s + 2 + 5 * LONG_S / THAWED_SHARE)
    assert gc.get_freeze_count() > 0
    spared.look(counted, room_s + 4 + 5 * LONG_S / THAWED_SHARE)
    assert gc.get_freeze_count() == 0


def test_what_grows_all_the_time_is_looked_through_all_the_same() -> None:
    """Each hundred thousand objects are another long collection."""
    counted, told = SimpleNamespace(opened_count=0, closed_count=0), Told()
    spared = Spared(told)
    told.passes(20 * LONG_S)
    spared.look(counted, 0)
    pause_s = 2 * LONG_S / THAWED_SHARE
    looks = 0
    while gc.get_freeze_count():
        looks += 1
        assert looks < 30, "half of the time that there is would do for what is new"
        told.passes(LONG_S)
        spared.look(counted, looks * pause_s)
    assert looks >= 20


def test_full_collections_are_timed(collections: Collections) -> None:
    gc.collect(1)
    assert (collections.passed, collections.took_s()) == (0, 0)
    gc.collect()
    assert collections.passed == 1
    assert collections.took_s() > 0
    assert collections.took_s() == 0, "told once"


def test_a_committed_offset_is_nothing_that_the_collector_looks_at() -> None:
    row = ["t", bytes(16), 7, 5, -1, "metadata"]
    content = committed(None, {"group": "g", "at": 1, "rows": [row]})
    gc.collect()
    _, rows = content["g"]["t"]
    assert not gc.is_tracked(rows["7"])
    if sys.version_info < (3, 14):  # there the collector looks at every dict
        assert not gc.is_tracked(rows), "nor are all of a topic"


@pytest.fixture
def cycles() -> Callable[[], Counter[str]]:
    """What of this program nothing but the collector finds, since this was asked last."""

    def found() -> Counter[str]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        kinds = Counter(type(one).__qualname__ for one in gc.garbage if _is_ours(one))
        gc.garbage.clear()
        gc.collect()
        return kinds

    gc.freeze()  # what was there before is nobody's who is tested
    return found


def _is_ours(one: object) -> bool:
    return type(one).__module__.startswith("segbroker.")


async def test_what_clients_leave_behind_is_in_no_cycle(
    cycles: Callable[[], Counter[str]],
) -> None:
    """What is frozen meanwhile would stay: the requests of a large group are many megabytes."""
    async with serving(storage=MemoryStorage()) as broker:
        async with connect(broker.address) as client:
            await client.create("t")
            await client.produce("t", b"v")
            cycles()
            member = WireMember(client)
            await member.join()
            await member.deal()
            assert await member.beat() == 0
            assert await member.commit("t", 1) == 0
            assert await member.leave() == 0
            assert cycles() == {}
            tx = Tx(client, "tx")
            assert await tx.init() == 0
            assert await tx.send("t", b"v") == 0
            assert await tx.stage("g", "t", 1) == 0
            assert await tx.end(commit=True) == 0
            await client.fetch("t", 0)
            assert cycles() == {}
            async with connect(broker.address) as other:
                await other.fetch("t", 0)

            async def is_closed() -> bool:
                return broker.connections == 1

            await until(is_closed)
            await trio.testing.wait_all_tasks_blocked()
            assert cycles() == {}
        await broker.core.topics.delete_all(["t"])
        assert cycles() == {}


async def test_the_broker_counts_what_it_opens_and_closes() -> None:
    async with serving(storage=MemoryStorage()) as broker, connect(broker.address) as client:
        await client.create("t", partitions=3)
        for index in range(2):
            await client.produce("t", b"v", partition=index)
        topics = broker.core.topics
        assert (topics.opened_count, topics.closed_count) == (2, 0)
        await topics.delete_all(["t"])
        assert (topics.opened_count, topics.closed_count) == (2, 2)

"""The end of a turn: woken once, flushed once, large fan-outs in pieces."""

import math
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.loop import pace
from segbroker.broker.loop.pace import Pace
from segbroker.broker.loop.turn import Turn, end_passes
from segbroker.broker.server import call_soon_here
from segbroker.segments.partition.failing import CallSoon


class Woken:
    def __init__(self) -> None:
        self.count = 0
        self.synced = 0
        self.is_lone = True
        self.is_quick = False

    def sync_here(self, call_soon: CallSoon | None) -> bool:
        self.synced += 10 * self.is_quick
        return self.is_quick

    def wake(self) -> bool:
        return True

    def look_on(self, pace: Pace) -> bool:
        self.count += 1
        return True

    def sync(self) -> None:
        self.synced += 1


@pytest.fixture(autouse=True)
def without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is over where a test says so, however long a line of the log takes."""
    monkeypatch.setattr(pace, "STEP_S", math.inf)


async def test_a_partition_and_a_connection_are_looked_at_once_per_turn() -> None:
    turn = Turn()
    partition = Woken()
    flushed: list[int] = []

    def flush() -> None:
        flushed.append(partition.count)

    for _ in range(40):
        turn.wake(partition)
        turn.flush(flush)
    turn.end()
    assert partition.count == 1
    assert flushed == [1], "woken before flushed"
    turn.end()
    assert flushed == [1]


async def test_a_large_fan_out_lets_other_tasks_run_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "STEP_S", -1.0)  # it has had its time after each
    turn = Turn()
    flushed: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await wait_all_tasks_blocked()
        for number in range(30):
            turn.flush(partial(flushed.append, number))
        for number in range(30):
            assert flushed == [*range(number)]
            turn.end()
        turn.flush(partial(flushed.append, 30))
        turn.flush(partial(flushed.append, 31))
        turn.end()
        await wait_all_tasks_blocked()
        assert flushed == [*range(32)]
        nursery.cancel_scope.cancel()


async def test_a_partition_whose_readers_had_no_turn_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "STEP_S", -1.0)

    class Crowded(Woken):
        def look_on(self, pace: Pace) -> bool:
            self.count += 1
            return self.count == 3

    turn = Turn()
    crowded, other = Crowded(), Woken()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await wait_all_tasks_blocked()
        turn.wake(other)
        turn.wake(crowded)
        turn.end()
        assert (crowded.count, other.count) == (1, 0)
        await wait_all_tasks_blocked()
        assert (crowded.count, other.count) == (3, 1)
        nursery.cancel_scope.cancel()


async def test_a_partition_whose_readers_look_again_and_again_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "STEP_S", -1.0)

    class Endless(Woken):
        def wake(self) -> bool:
            return self.count == 0

        def look_on(self, pace: Pace) -> bool:
            super().look_on(pace)
            return False  # it had an append in each turn

    turn = Turn()
    endless, other = Endless(), Woken()
    turn.wake(endless)
    turn.end()
    turn.wake(other)
    for _ in range(3):
        turn.wake(endless)
        turn.end()
    assert (endless.count, other.count) == (3, 1)


async def test_what_fails_to_wake_does_not_stop_the_others() -> None:
    class Broken(Woken):
        def look_on(self, pace: Pace) -> bool:
            super().look_on(pace)
            if self.count == 1:
                raise ValueError("a bug of one reader")
            return True

        def sync(self) -> None:
            raise ValueError("another")

    turn = Turn()
    partition = Woken()
    broken = Broken()
    turn.wake(partition)
    turn.wake(broken)
    turn.end()
    assert (partition.count, broken.count) == (1, 2), "its other readers, too"


async def test_a_connection_that_fails_to_flush_does_not_stop_the_others() -> None:
    flushed: list[str] = []

    def broken() -> None:
        raise ValueError("a bug")

    turn = Turn()
    turn.flush(broken)
    turn.flush(lambda: flushed.append("the same turn"))
    turn.end()
    turn.flush(lambda: flushed.append("the next"))
    turn.end()
    assert flushed == ["the same turn", "the next"]


async def test_all_that_one_pass_appended_to_a_partition_rides_one_sync() -> None:
    turn = Turn()
    partition = Woken()
    for _ in range(40):
        turn.sync(partition)
        turn.end()
    assert partition.synced == 0
    turn.end_pass()
    turn.end_pass()
    assert (partition.synced, partition.count) == (1, 0)


async def test_who_is_alone_on_a_quick_disk_is_synced_at_the_end_of_the_pass() -> None:
    turn = Turn()
    quick, other = Woken(), Woken()
    quick.is_quick = other.is_quick = True
    turn.sync(quick)
    turn.end_pass()
    turn.end_pass()
    assert quick.synced == 10
    turn.sync(quick)
    turn.sync(other)
    turn.end_pass()
    assert (quick.synced, other.synced) == (11, 1), "the two share a sync of the thread"
    turn.sync(quick)
    turn.end_pass(lone=False)
    quick.is_lone = False
    turn.sync(quick)
    turn.end_pass()
    assert quick.synced == 13


async def test_the_loop_ends_a_pass_when_everybody_had_their_turn() -> None:
    turn = Turn()
    partition = Woken()
    seen: list[int] = []

    async def connection() -> None:
        turn.sync(partition)
        turn.end()
        seen.append(partition.synced)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_passes, turn, call_soon_here())
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as connections:
            for _ in range(10):
                connections.start_soon(connection)
        await trio.lowlevel.checkpoint()
        assert seen == [0] * 10, "nobody's append went alone"
        assert partition.synced == 1
        nursery.cancel_scope.cancel()
    turn.sync(partition)
    await trio.lowlevel.checkpoint()
    assert partition.synced == 1, "nothing of it stays behind"


async def test_what_cannot_be_synced_does_not_stop_the_others() -> None:
    class Broken(Woken):
        def sync(self) -> None:
            raise ValueError("a bug")

    turn = Turn()
    partition = Woken()
    turn.sync(partition)
    turn.sync(Broken())
    turn.end_pass()
    assert partition.synced == 1


async def test_who_could_not_be_woken_is_woken_when_there_is_memory_for_it() -> None:
    class RunsOut(Woken):
        times = 1

        def wake(self) -> bool:
            if self.times:
                self.times -= 1
                raise MemoryError
            return True

    turn = Turn()
    partition = RunsOut()
    turn.wake(partition)
    turn.end()
    turn.end()
    assert partition.count >= 1

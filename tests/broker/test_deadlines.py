"""One heap of deadlines: what is due expires, what is done does not."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from segbroker.broker.loop import pace
from segbroker.broker.loop.alarms import Alarms
from segbroker.broker.loop.deadlines import GRACE_S, LOOK_S, Deadlines

from .conftest import Events


class Waiting:
    """A slot with nothing but a deadline."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.done = False
        self.expired_at: float | None = None
        self._deadlines = deadlines

    def expire(self) -> None:
        self.expired_at = trio.current_time()
        self.finish()

    def finish(self) -> None:
        self.done = True
        self._deadlines.forget()


async def test_each_expires_at_its_own_time_whatever_the_order_of_arrival(
    autojump_clock: MockClock,
) -> None:
    rounds: list[float] = []
    deadlines = Deadlines(lambda: rounds.append(trio.current_time()))
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        late, early = Waiting(deadlines), Waiting(deadlines)
        deadlines.add(start + 5, late)
        await trio.sleep(1)
        deadlines.add(start + 2, early)  # nearer than what the task sleeps for
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert early.expired_at == start + 2
    assert late.expired_at == start + 5
    assert rounds == [start + 2, start + 5]


async def test_what_was_done_before_does_not_expire(autojump_clock: MockClock) -> None:
    deadlines = Deadlines(lambda: None)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        waiting = Waiting(deadlines)
        deadlines.add(start + 1, waiting)
        waiting.finish()
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert waiting.expired_at is None
    assert len(deadlines) == 0


async def test_what_is_due_at_the_same_time_leaves_others_their_turn(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand groups may be complete at the same moment."""
    monkeypatch.setattr(pace, "STEP_S", 0.0)
    count = 5
    rounds = turns = 0

    def ends_round() -> None:
        nonlocal rounds
        rounds += 1

    deadlines = Deadlines(ends_round)
    due = trio.current_time() + 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        waiting = [Waiting(deadlines) for _ in range(count)]
        for one in waiting:
            deadlines.add(due, one)
        await trio.sleep_until(due)
        while not all(one.done for one in waiting):
            turns += 1
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert rounds == count, "what one has completed is sent before the next"
    assert turns >= count - 1
    assert len(deadlines) == 0


async def test_what_fails_when_its_time_has_come_costs_the_others_nothing(
    autojump_clock: MockClock,
) -> None:
    class Broken(Waiting):
        def expire(self) -> None:
            raise ValueError("a bug")

    deadlines = Deadlines(lambda: None)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        beside, later = Waiting(deadlines), Waiting(deadlines)
        deadlines.add(start + 1, Broken(deadlines))
        deadlines.add(start + 1, beside)
        deadlines.add(start + 2, later)
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert (beside.expired_at, later.expired_at) == (start + 1, start + 2)


async def test_one_that_is_due_again_at_once_lets_others_run() -> None:
    class Again(Waiting):
        def expire(self) -> None:
            super().expire()
            deadlines.add(0.0, Again(deadlines))

    deadlines = Deadlines(lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        deadlines.add(0.0, Again(deadlines))
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert len(deadlines) == 1


async def test_done_slots_do_not_pile_up_until_their_deadline() -> None:
    deadlines = Deadlines(lambda: None)
    for _ in range(10_000):
        waiting = Waiting(deadlines)
        deadlines.add(trio.current_time() + 3600, waiting)
        waiting.finish()
    assert len(deadlines) == 0
    assert deadlines.size < 200


async def test_the_count_is_that_of_the_live_ones() -> None:
    deadlines = Deadlines(lambda: None)
    waiting = [Waiting(deadlines) for _ in range(300)]
    for ordinal, one in enumerate(waiting):
        deadlines.add(trio.current_time() + 3600 + ordinal, one)
    for one in waiting[:250]:
        one.finish()
    assert len(deadlines) == 50


async def test_alarms_wait_until_a_loop_that_stood_still_has_caught_up(
    mock_clock: MockClock, events: Events
) -> None:
    deadlines = Deadlines(lambda: None)
    rang: list[str] = []
    alarms = Alarms[str](deadlines, rang.append)

    async def stand_still(seconds: float) -> None:
        mock_clock.jump(seconds)
        for _ in range(10):
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        await trio.testing.wait_all_tasks_blocked()
        start_ms = int(trio.current_time() * 1000)
        alarms.set("session", start_ms + 6_000)
        waiting = Waiting(deadlines)
        deadlines.add(trio.current_time() + 6, waiting)
        await stand_still(8)
        assert [line["ms"] for line in events.named("loop_stood_still")] == [7_500]
        assert (rang, waiting.done) == ([], True), "who waits for an answer has it at once"
        await stand_still(GRACE_S + 0.01)
        assert rang == ["session"]
        await stand_still(8)
        alarms.set("another", start_ms)
        await stand_still(GRACE_S + 0.6)
        assert rang == ["session", "another"], "it stood still in the grace, and has no other one"
        nursery.cancel_scope.cancel()


async def test_a_loop_that_stood_still_while_something_expired_has_to_catch_up_too(
    mock_clock: MockClock, events: Events
) -> None:
    seconds = iter([8])
    deadlines = Deadlines(lambda: mock_clock.jump(next(seconds, 0)))
    rang: list[str] = []
    alarms = Alarms[str](deadlines, rang.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        await trio.testing.wait_all_tasks_blocked()
        deadlines.add(trio.current_time(), Waiting(deadlines))
        alarms.set("session", int(trio.current_time() * 1000) + 6_000)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert [line["ms"] for line in events.named("loop_stood_still")] == [8_000]
        assert rang == []
        nursery.cancel_scope.cancel()


async def test_who_has_its_turn_before_the_timer_task_sees_that_the_loop_stood_still(
    mock_clock: MockClock, events: Events
) -> None:
    deadlines = Deadlines(lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        mock_clock.jump(8)
        deadlines.look_at_clock()
        assert deadlines.stood_still_since == began + LOOK_S
        assert deadlines.grace_ends == began + 8 + GRACE_S
        await trio.testing.wait_all_tasks_blocked()
        assert len(events.named("loop_stood_still")) == 1
        nursery.cancel_scope.cancel()

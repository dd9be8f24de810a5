"""One heap of deadlines: what is due expires, what is done does not."""

import trio
from trio.testing import MockClock

from segbroker.broker.loop.deadlines import Deadlines


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

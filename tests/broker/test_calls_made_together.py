"""Calls that are made as one, and of which some give up, or fail, in the middle of it."""

from collections.abc import Sequence
from typing import Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segbroker.broker.loop.together import Together

LIMIT: Final = 3


class Work:
    """What several want, and how often it was begun; the first time ends as the test wants."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self.first = trio.Event()
        self.first.set()
        self.failure: Exception | None = None
        self.lock = trio.Lock()
        self.together = Together(self.make, self.lock, LIMIT)
        self.made: dict[int, int] = {}

    async def make(self, asked: Sequence[int]) -> list[int]:
        self.begun.append(list(asked))
        await self.first.wait()
        if len(self.begun) == 1 and self.failure is not None:
            raise self.failure
        return [-one for one in asked]

    async def ask(self, number: int, scope: trio.CancelScope | None = None) -> None:
        with scope or trio.CancelScope():
            self.made[number] = await self.together.call(number)


async def test_calls_that_wait_are_made_as_one_up_to_a_limit() -> None:
    work = Work()
    async with trio.open_nursery() as nursery, work.lock:
        for number in range(1, LIMIT + 2):
            nursery.start_soon(work.ask, number)
        await wait_all_tasks_blocked()
    assert sorted(map(len, work.begun)) == [1, LIMIT]
    assert work.made == {number: -number for number in range(1, LIMIT + 2)}


async def test_who_gives_up_waiting_has_nothing_done() -> None:
    work, given_up = Work(), trio.CancelScope()
    async with trio.open_nursery() as nursery, work.lock:
        nursery.start_soon(work.ask, 1, given_up)
        nursery.start_soon(work.ask, 2)
        await wait_all_tasks_blocked()
        given_up.cancel()
        await wait_all_tasks_blocked()
    assert work.begun == [[2]]
    assert work.made == {2: -2}


@pytest.mark.parametrize("fails", [False, True])
async def test_what_one_began_for_all_and_did_not_end_the_others_make_themselves(
    fails: bool,
) -> None:
    """It gave up, or failed: that is about none of the others."""
    work, given_up = Work(), trio.CancelScope()
    work.first = trio.Event()
    work.failure = ValueError("of the first") if fails else None
    async with trio.open_nursery() as nursery:
        async with work.lock:

            async def begin() -> None:
                try:
                    await work.ask(1, given_up)
                except ValueError:
                    assert fails

            nursery.start_soon(begin)
            await wait_all_tasks_blocked()
            for number in (2, 3):
                nursery.start_soon(work.ask, number)
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert [sorted(one) for one in work.begun] == [[1, 2, 3]]
        if not fails:
            given_up.cancel()
            await wait_all_tasks_blocked()
        work.first.set()
    assert work.made == {2: -2, 3: -3}
    assert sorted(work.begun[1:]) == [[2], [3]]

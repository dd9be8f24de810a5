"""Computing in threads for which addresses take turns: who waits, who gives up, what comes out."""

import threading
from functools import partial

import pytest
import trio

from segbroker.broker.loop.address_threads import AddressThreads

from ..support.waiting import becomes, until


class Held:
    """What computes until it is released."""

    def __init__(self) -> None:
        self.begun = 0
        self.released = threading.Event()

    def __call__(self) -> None:
        self.begun += 1
        assert self.released.wait(60)


async def test_the_next_one_is_computed_while_the_loop_makes_no_pass() -> None:
    threads, held = AddressThreads(1), Held()
    done: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, "busy", held)
        await becomes(lambda: held.begun == 1)
        for n in range(20):
            nursery.start_soon(threads.run, "a", partial(done.append, n))
        await becomes(lambda: len(threads) == 20)
        held.released.set()
        until(lambda: len(done) == 20)  # without a pass of the loop


async def test_no_more_are_computed_at_once_and_addresses_take_turns() -> None:
    threads = AddressThreads(2)
    done: list[int] = []
    held = [Held(), Held()]
    async with trio.open_nursery() as nursery:
        for one in held:
            nursery.start_soon(threads.run, "busy", one)
        await becomes(lambda: all(one.begun for one in held))
        for n in range(5):
            nursery.start_soon(threads.run, "flood", partial(done.append, n))
            await becomes(lambda n=n: len(threads) == n + 1)  # type: ignore[misc]
        nursery.start_soon(threads.run, "other", partial(done.append, -1))
        await becomes(lambda: len(threads) == 6)
        has_begun = partial(threads.run, "flood", partial(done.append, 5), first=True)
        nursery.start_soon(has_begun)
        await becomes(lambda: len(threads) == 7)
        await trio.sleep(0.05)
        assert not done
        held[0].released.set()
        await becomes(lambda: len(done) == 7)
        assert done == [5, -1, 0, 1, 2, 3, 4]
        held[1].released.set()


async def test_who_gives_up_is_in_the_line_no_longer() -> None:
    threads, held = AddressThreads(1), Held()
    done: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, "busy", held)
        await becomes(lambda: held.begun == 1)
        with trio.move_on_after(0.01) as scope:
            await threads.run("a", partial(done.append, 1))
        assert scope.cancelled_caught
        assert not len(threads)
        held.released.set()
    await threads.run("a", partial(done.append, 2))
    assert done == [2]


async def test_what_has_begun_is_waited_for_by_who_gives_up() -> None:
    """What it works on may be closed behind it."""
    threads, held = AddressThreads(1), Held()
    ended = []

    async def give_up(scope: trio.CancelScope) -> None:
        with scope:
            await threads.run("a", held)
        ended.append(scope.cancelled_caught)

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(give_up, scope)
        await becomes(lambda: held.begun == 1)
        scope.cancel()
        await trio.sleep(0.05)
        assert not ended
        held.released.set()
    assert ended == [True]


async def test_what_it_raises_comes_out_and_the_next_one_is_computed() -> None:
    threads = AddressThreads(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await threads.run("a", lambda: 1 // 0)
        assert await threads.run("a", lambda: 7) == 7


async def test_where_there_is_no_thread_it_is_told_and_nobody_is_left_in_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    threads = AddressThreads(1)
    with monkeypatch.context() as patched:
        patched.setattr(trio.lowlevel, "start_thread_soon", none)
        with pytest.raises(RuntimeError):
            await threads.run("a", lambda: 7)
    assert not len(threads)
    assert await threads.run("a", lambda: 7) == 7

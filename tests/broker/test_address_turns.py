"""Work for which addresses take turns: who gives up, and what that leaves."""

import trio

from segbroker.broker.loop.address_turns import AddressTurns

from ..support.waiting import becomes


async def test_whoever_gives_up_is_in_the_line_no_longer() -> None:
    """Else a flood of connections that come and go is remembered behind one that waits."""
    turns = AddressTurns(1)

    async def wait() -> None:
        async with turns.turn("patient"):
            pass

    async with turns.turn("busy"), trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await becomes(lambda: len(turns) == 1)
        for _ in range(100):
            with trio.CancelScope() as scope:
                scope.cancel()
                async with turns.turn("flood"):
                    raise AssertionError("it is nobody's turn")
        assert len(turns) == 1
        nursery.cancel_scope.cancel()
    assert not len(turns)
    async with turns.turn("busy"):
        pass


async def test_behind_a_heavy_one_that_gives_up_the_next_has_its_turn() -> None:
    turns, scope = AddressTurns(2), trio.CancelScope()
    came = trio.Event()

    async def heavy() -> None:
        with scope:
            async with turns.turn("heavy", 2):
                raise AssertionError("there is no room for it")

    async def light() -> None:
        async with turns.turn("light"):
            came.set()

    async with turns.turn("busy"), trio.open_nursery() as nursery:
        nursery.start_soon(heavy)
        await becomes(lambda: len(turns) == 1)
        nursery.start_soon(light)
        await becomes(lambda: len(turns) == 2)
        scope.cancel()
        with trio.fail_after(60):
            await came.wait()


async def test_who_has_used_up_the_share_of_its_address_waits_alone() -> None:
    turns = AddressTurns(4, share=2)
    came: list[str] = []

    async def work(host: str, weight: int, over: trio.Event) -> None:
        async with turns.turn(host, weight):
            came.append(host)
            await over.wait()

    over, later = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, "a", 2, over)
        await becomes(lambda: came == ["a"])
        nursery.start_soon(work, "a", 1, later)
        await becomes(lambda: len(turns) == 1)
        assert not turns.takes_now("b", 1), "somebody waits"
        nursery.start_soon(work, "b", 2, later)
        await becomes(lambda: came == ["a", "b"])
        assert len(turns) == 1
        over.set()
        await becomes(lambda: came == ["a", "b", "a"])
        later.set()
    assert not len(turns)
    assert not turns.in_work
    assert turns.takes_now("a", 3), "it has nothing in work"
    turns.change("a", -3)


async def test_who_gives_up_just_when_it_is_its_turn_gives_it_back() -> None:
    turns, scope = AddressTurns(1), trio.CancelScope()

    async def wait() -> None:
        with scope:
            async with turns.turn("late"):
                raise AssertionError("it has given up")

    async with trio.open_nursery() as nursery:
        async with turns.turn("busy"):
            nursery.start_soon(wait)
            await becomes(lambda: len(turns) == 1)
            scope.cancel()  # and with no other step of a task between, it is its turn
        assert turns.in_work == 1
    assert not turns.in_work
    with trio.fail_after(60):
        async with turns.turn("next"):
            pass

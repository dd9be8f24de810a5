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

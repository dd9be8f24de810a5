"""The iterator under `async for`: the C one and its pure twin say the same, and no item is lost."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import anyio
import pytest

from segbroker.client import handout_pure
from segbroker.protocol import kernel

if kernel.KERNEL_IS_NATIVE:
    from segbroker.protocol import handout_native

TWINS = [handout_pure, *([handout_native] if kernel.KERNEL_IS_NATIVE else [])]

twins = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2])
loops = pytest.mark.parametrize("backend", ["trio", "asyncio"])


class Lists:
    """A handout whose refills bring one list after the other, each after a turn of the loop."""

    def __init__(self, twin: ModuleType, lists: list[list[Any]]) -> None:
        self.refills = 0
        self._lists = lists
        self.handout = twin.Handout(self._refill)

    async def _refill(self, handout: Any) -> Any:  # noqa: ANN401 - either twin
        await anyio.lowlevel.checkpoint()
        while self.refills < len(self._lists):
            self.refills += 1
            handout.items = iter(self._lists[self.refills - 1])
            for item in handout.items:
                return item
        raise StopAsyncIteration


@twins
@loops
def test_every_item_of_every_refill_comes_in_order(twin: ModuleType, backend: str) -> None:
    async def run() -> None:
        lists = Lists(twin, [[1, 2, 3], [], [(4, "a tuple"), None], [5]])
        assert [item async for item in lists.handout] == [1, 2, 3, (4, "a tuple"), None, 5]
        assert lists.refills == 4

    anyio.run(run, backend=backend)


@twins
@loops
def test_it_can_be_left_and_gone_on_with(twin: ModuleType, backend: str) -> None:
    async def run() -> None:
        handout = Lists(twin, [[1, 2], [3]]).handout
        async for item in handout:
            assert item == 1
            break
        assert await anext(handout) == 2
        assert await anext(handout, "none") == 3
        assert await anext(handout, "none") == "none"
        with pytest.raises(StopAsyncIteration):
            await anext(handout)

    anyio.run(run, backend=backend)


@twins
@loops
def test_a_tuple_is_one_item_however_it_is_awaited(twin: ModuleType, backend: str) -> None:
    async def run() -> None:
        handout = Lists(twin, [[(0,), ("topic", 1, b"value"), ()]]).handout
        assert [await anext(handout, None) for _ in range(3)] == [(0,), ("topic", 1, b"value"), ()]

    anyio.run(run, backend=backend)


@twins
@loops
def test_what_the_items_raise_comes_out_of_the_loop(twin: ModuleType, backend: str) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("at the second")

    async def run() -> None:
        handout = Lists(twin, []).handout
        handout.items = items()
        assert await anext(handout) == 1
        with pytest.raises(ValueError, match="at the second"):
            await anext(handout)

    anyio.run(run, backend=backend)


@pytest.mark.skipif(not kernel.KERNEL_IS_NATIVE, reason="about the C one")
def test_an_item_that_was_not_awaited_is_not_lost() -> None:
    async def run() -> None:
        handout = Lists(handout_native, []).handout
        handout.items = iter([1, 2])
        first = handout.__anext__()
        assert await handout.__anext__() == 1
        with pytest.raises(RuntimeError, match="awaited twice"):
            await first
        assert [item async for item in handout] == [2]

    anyio.run(run)


@pytest.mark.skipif(not kernel.KERNEL_IS_NATIVE, reason="about the C one")
def test_an_item_that_the_code_of_the_items_takes_is_not_lost() -> None:
    item = object()
    before = sys.getrefcount(item)

    def items(handout: Any) -> Iterator[object]:  # noqa: ANN401
        handout.items = iter([item])
        handout.__anext__()
        yield from ()

    async def run() -> None:
        handout = Lists(handout_native, []).handout
        handout.items = items(handout)
        assert [got async for got in handout] == [item]

    anyio.run(run)
    gc.collect()
    assert sys.getrefcount(item) == before


@twins
@loops
def test_two_that_wait_at_once_get_two_items(twin: ModuleType, backend: str) -> None:
    async def run() -> None:
        handout = Lists(twin, []).handout
        handout.items = iter([1, 2, 3])
        first, second = handout.__anext__(), handout.__anext__()
        assert await first == 1
        assert await second == 2
        assert [item async for item in handout] == [3]

    anyio.run(run, backend=backend)


@twins
def test_asyncio_makes_tasks_of_what_it_gives(twin: ModuleType) -> None:
    async def run() -> None:
        handout = Lists(twin, [[1, 2, (3, "a tuple")], [4, 5, 6, 7], [8]]).handout
        for item in (1, 2, (3, "a tuple"), 4):
            assert await asyncio.wait_for(anext(handout), 60) == item
        assert await asyncio.create_task(anext(handout)) == 5
        assert list(await asyncio.gather(anext(handout))) == [6]
        assert await asyncio.shield(anext(handout)) == 7
        assert await asyncio.wait_for(anext(handout), 60) == 8
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(handout), 60)

    asyncio.run(run())


@twins
def test_tasks_that_were_made_at_once_get_different_items(twin: ModuleType) -> None:
    async def run() -> None:
        handout = Lists(twin, []).handout
        handout.items = iter(range(5))
        assert list(await asyncio.gather(anext(handout), anext(handout))) == [0, 1]
        tasks = [asyncio.create_task(anext(handout)) for _ in range(3)]
        assert await asyncio.gather(*tasks) == [2, 3, 4]

    asyncio.run(run())


@twins
def test_a_task_that_is_cancelled_before_it_began_takes_no_item(twin: ModuleType) -> None:
    async def run() -> None:
        handout = Lists(twin, []).handout
        handout.items = iter([1, 2])
        task = asyncio.create_task(anext(handout))
        task.cancel("not wanted")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [item async for item in handout] == [1, 2]

    asyncio.run(run())


@pytest.mark.skipif(not kernel.KERNEL_IS_NATIVE, reason="about the C one")
def test_items_and_iterators_go_when_the_handout_goes() -> None:
    item = object()
    before = sys.getrefcount(item)

    async def run() -> None:
        for _ in range(100):
            handout = Lists(handout_native, [[item, item]]).handout
            async for got in handout:
                assert got is item
                break
            handout.__anext__()

    anyio.run(run)
    gc.collect()
    assert sys.getrefcount(item) == before

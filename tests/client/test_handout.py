"""The iterator under `async for`: the C one and its pure twin say the same, and no item is lost."""

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
        second = handout.__anext__()
        assert await first == 1
        with pytest.raises(RuntimeError, match="awaited twice"):
            await second
        assert [item async for item in handout] == [2]

    anyio.run(run)


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

"""Handing out items asynchronously, as long as there are any; then a coroutine gets more.

    async for item in handout:    __anext__ --> next(items), no turn of the event loop
                                            --> without any: refill(), which may wait

A coroutine per item would be a good part of what a record costs.  So in C (native/handout.c) an
item that is there comes as the result of an awaitable that is the iterator itself.  This twin is
the specification: what a subclass sees is the same.

Invariant: whether it waits is up to `refill` alone; it is called only when `items` is exhausted.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

__all__ = ["Handout"]


class Handout:
    """See the module."""

    __slots__ = ("_refill", "items")

    def __init__(self, refill: Callable[["Handout"], Awaitable[Any]]) -> None:
        """`refill` gives the next item and leaves those behind it in `items`, or raises
        StopAsyncIteration."""
        self.items: Iterator[Any] | None = None
        self._refill = refill

    def __aiter__(self) -> "Handout":
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - whatever the items are
        if self.items is not None:
            for item in self.items:
                return item
        return await self._refill(self)

"""The three clients as one: a story is written once, as an async function.

Of the blocking one nothing is awaited, so that its stories run to their end by one `send`.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import anyio

from segbroker.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    Producer,
    ShareConsumer,
    async_transform,
    transform,
)


class Kit(ABC):
    """What a story needs of them."""

    name: str
    producer: Callable[..., Any]
    consumer: Callable[..., Any]
    sharer: Callable[..., Any]
    admin: Callable[..., Any]
    transform: Callable[..., Any]

    @abstractmethod
    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None: ...

    async def do(self, got: object) -> Any:  # noqa: ANN401
        """What a call returns, awaited where that is to be."""
        return await got if inspect.isawaitable(got) else got

    async def open(self, client: Any) -> None:  # noqa: ANN401
        await self.do(client.__aenter__() if hasattr(client, "__aenter__") else client.open())

    async def close(self, client: Any) -> None:  # noqa: ANN401
        await self.do(client.aclose() if hasattr(client, "aclose") else client.close())

    async def delivered(self, delivery: Any) -> Any:  # noqa: ANN401
        return await self.do(delivery if inspect.isawaitable(delivery) else delivery.result())

    @asynccontextmanager
    async def block(self, manager: Any) -> AsyncIterator[None]:  # noqa: ANN401
        """A block of either kind."""
        if hasattr(manager, "__aenter__"):
            async with manager:
                yield
        else:
            with manager:
                yield


class Plain(Kit):
    """The blocking one."""

    name = "blocking"
    producer, consumer, sharer, admin = Producer, Consumer, ShareConsumer, Admin
    transform = staticmethod(transform)

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            story().send(None)
        except StopIteration:
            return
        raise AssertionError("a blocking client was awaited")


class OnLoop(Kit):
    producer, consumer, sharer, admin = AsyncProducer, AsyncConsumer, AsyncShareConsumer, AsyncAdmin
    transform = staticmethod(async_transform)

    def __init__(self, name: Literal["trio", "asyncio"]) -> None:
        self.name = name

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        anyio.run(story, backend=self.name)


KITS: Final[tuple[Kit, ...]] = (Plain(), OnLoop("trio"), OnLoop("asyncio"))

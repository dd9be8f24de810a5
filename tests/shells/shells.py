"""The shells of a consumer, driven by one text.

A program is a coroutine.  With the clients for threads nothing in it ever waits for a loop: each of
its calls returns what it gives, and the coroutine is run through in one go (`drive`).
"""

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, Final, TypeVar

import anyio

from segbroker.client import AsyncConsumer, AsyncShareConsumer, Consumer, ShareConsumer

from ..client.cut_short import living

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, None]]

CUT_S: Final = 0.03
"""Behind so long a call is cut, which waits for much longer."""
JOIN_S: Final = 60.0
OVER: Final = object()
"""The end of a loop."""


class Cut(Exception):
    """A call was cut while it waited."""


async def result(of: T | Awaitable[T]) -> T:
    """What a call of either kind gives."""
    return await of if isawaitable(of) else of


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in which nothing waits for a loop."""
    try:
        coroutine.send(None)
    except StopIteration as exc:
        return exc.value  # type: ignore[no-any-return]
    raise AssertionError("something waits for a loop")


class Beside(ABC):
    """Work that goes on beside the program."""

    @abstractmethod
    async def join(self) -> None:
        """Wait for its end, JOIN_S at most.  Raises what it raised."""


class Shell(ABC):
    """See the module."""

    name: str
    is_async: bool

    @abstractmethod
    def run(self, program: Callable[["Shell"], Coroutine[Any, Any, T]]) -> T:
        """The program, from its first call to its last; nothing that it began is left."""

    @abstractmethod
    def beside(self, work: Work) -> Beside:
        """Begin to do it beside."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    async def cut(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Cut a call that waits: by Ctrl-C, or a scope.  Raises Cut."""

    @abstractmethod
    def callback(self, work: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], Any]:
        """As a client of this shell calls it."""

    def consumer(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        return (AsyncConsumer if self.is_async else Consumer)(*args, **options)

    def share_consumer(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        return (AsyncShareConsumer if self.is_async else ShareConsumer)(*args, **options)

    async def open(self, consumer: Any) -> None:  # noqa: ANN401
        await result(consumer.__aenter__() if self.is_async else consumer.__enter__())

    async def leave(self, consumer: Any, exc: BaseException | None) -> None:  # noqa: ANN401
        """The end of its block, by `exc` or as it should be."""
        end = consumer.__aexit__ if self.is_async else consumer.__exit__
        await result(end(None if exc is None else type(exc), exc, None))

    async def close(self, consumer: Any) -> None:  # noqa: ANN401
        await result(consumer.aclose() if self.is_async else consumer.close())

    def loop(self, over: Any) -> Any:  # noqa: ANN401
        return aiter(over) if self.is_async else iter(over)

    async def next(self, loop: Any) -> Any:  # noqa: ANN401
        """OVER at the end."""
        if self.is_async:
            return await anext(loop, OVER)
        return next(loop, OVER)


class Threads(Shell):
    name, is_async = "threads", False

    def run(self, program: Callable[[Shell], Coroutine[Any, Any, T]]) -> T:
        before = set(threading.enumerate())
        got = drive(program(self))
        # Those of the proxy have other names.
        left = {one for one in threading.enumerate() if one.name.startswith("segbroker")} - before
        assert not left, f"threads are left: {left}"
        return got

    def beside(self, work: Work) -> Beside:
        return _Thread(work)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop

    async def cut(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        timer = threading.Timer(CUT_S, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            return await result(call())
        except KeyboardInterrupt:
            raise Cut from None
        finally:
            timer.cancel()
            timer.join()

    def callback(self, work: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], Any]:
        return lambda partitions: drive(work(partitions))


class _Thread(Beside):
    def __init__(self, work: Work) -> None:
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Work) -> None:
        try:
            drive(work())
        except BaseException as exc:
            self._failed = exc

    async def join(self) -> None:
        self._thread.join(JOIN_S)
        assert not self._thread.is_alive(), "what was begun beside does not end"
        if self._failed is not None:
            raise self._failed


class Loop(Shell):
    """A loop of trio, or of asyncio."""

    is_async = True

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: anyio.abc.TaskGroup

    def run(self, program: Callable[[Shell], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            got: list[T] = []
            failed: list[Exception] = []  # alone, and not in the group of the tasks
            async with anyio.create_task_group() as self._tasks:
                try:
                    before = living()
                    got.append(await program(self))
                    assert living() == before, f"{living() - before} tasks are left"
                except Exception as exc:
                    failed.append(exc)
                    self._tasks.cancel_scope.cancel()
            if failed:
                raise failed[0]
            return got[0]

        return anyio.run(main, backend=self.name)

    def beside(self, work: Work) -> Beside:
        return _Task(self._tasks, work)

    async def pause(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def cut(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        with anyio.move_on_after(CUT_S):
            return await call()
        raise Cut

    def callback(self, work: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], Any]:
        return work


class _Task(Beside):
    def __init__(self, tasks: Any, work: Work) -> None:  # noqa: ANN401
        self._failed: Exception | None = None
        self._ended = anyio.Event()
        tasks.start_soon(self._run, work)

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except Exception as exc:
            self._failed = exc
        finally:
            self._ended.set()

    async def join(self) -> None:
        with anyio.fail_after(JOIN_S):
            await self._ended.wait()
        await anyio.lowlevel.checkpoint()  # it is counted among the tasks until then
        if self._failed is not None:
            raise self._failed


TRIO: Final = Loop("trio")
SHELLS: Final[tuple[Shell, ...]] = (Threads(), Loop("asyncio"))
"""What is compared with TRIO."""

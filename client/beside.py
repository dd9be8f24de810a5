"""A call that blocks, in a thread beside an event loop, for which nobody waits who is cancelled.

The thread is none of the loop's pool.  A program may have all of that wait for what this very
client is about to do: handlers of a web framework, for the deliveries of records that wait for an
address.  On asyncio it is a daemon of ours, as a program does not end before the threads of a pool
do.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from .event_loop import loop_of_task

T = TypeVar("T")


async def beside(function: Callable[[], T], name: str) -> T:
    """What it gives; `name` is that of the thread.

    Raises RuntimeError when the system has no thread to give, and what the function raises.
    """
    loop = loop_of_task()
    if loop is None:
        alone = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=alone)
    done: asyncio.Future[T] = loop.create_future()

    def tell(set_it: Callable[[], None]) -> None:
        if not done.done():  # given up
            set_it()

    def run() -> None:
        try:
            set_it = partial(done.set_result, function())
        except BaseException as exc:
            set_it = partial(done.set_exception, exc)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, set_it)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()
    return await done

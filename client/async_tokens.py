"""Getting a token in an event loop, which it does not block.

An `async` provider is awaited in the loop of its client, one caller at a time; another one runs in
a thread, and is left behind there when its client ends before it does.  On asyncio that is a thread
of ours: the program would not end before those of a pool do.
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.to_thread

from .errors import TokenUnavailable
from .tokens import HUNG_S, NO_RETURN, Tokens


async def get_token(tokens: Tokens, lock: anyio.Lock) -> None:
    """As `Tokens.get`.  lock: of this client's."""
    if not tokens.is_async:
        try:
            await _beside(tokens.get)
        except TokenUnavailable:
            if not tokens.is_async:
                raise
        if not tokens.is_async:
            return
    async with lock:
        try:
            if not tokens.is_fresh:
                found: object = tokens.provider()
                if inspect.isawaitable(found):
                    with anyio.move_on_after(HUNG_S) as scope:
                        found = await found
                    if scope.cancelled_caught:
                        raise TokenUnavailable(NO_RETURN)
                tokens.take(found)
        except Exception as exc:
            tokens.failed(exc)
        finally:
            tokens.is_getting = False


async def _beside(function: Callable[[], None]) -> None:
    """Run it in a thread, for which nobody waits who is cancelled."""
    if not _is_asyncio():
        await anyio.to_thread.run_sync(function, abandon_on_cancel=True)
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if done.done():  # given up
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            function()
        except BaseException as exc:
            error = exc
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, error)

    context = contextvars.copy_context()
    name = "segbroker-token"
    threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()
    await done


def _is_asyncio() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False

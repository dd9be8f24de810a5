"""Getting a token in an event loop, which it does not block.

An `async` provider is awaited in the loop of its client, one caller at a time; another one runs in
a thread, and is left behind there when its client ends before it does.
"""

import inspect

import anyio
import anyio.to_thread

from .tokens import Tokens


async def get_token(tokens: Tokens, lock: anyio.Lock) -> None:
    """As `Tokens.get`.  lock: of this client's."""
    if not tokens.is_async:
        await anyio.to_thread.run_sync(tokens.get, abandon_on_cancel=True)
        return
    async with lock:
        try:
            if not tokens.is_fresh:
                found = tokens.provider()
                tokens.take(await found if inspect.isawaitable(found) else found)
        except Exception as exc:
            tokens.failed(exc)
        finally:
            tokens.is_getting = False

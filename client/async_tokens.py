"""Getting a token in an event loop, which it does not block.

An `async` provider is awaited in the loop of its client, one caller at a time; another one runs in
a thread beside it (beside.py).
"""

import inspect

import anyio

from .beside import beside
from .errors import TokenUnavailable
from .tokens import HUNG_S, NO_RETURN, Tokens


async def get_token(tokens: Tokens, lock: anyio.Lock) -> None:
    """As `Tokens.get`.  lock: of this client's."""
    if not tokens.is_async:
        try:
            await beside(tokens.get, "segbroker-token")
        except TokenUnavailable:
            if not tokens.is_async:
                raise
        except RuntimeError as exc:  # the system has no thread to give now
            tokens.is_getting = False
            raise TokenUnavailable(str(exc)) from exc
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

"""How long a coroutine kept the loop busy: the time of its steps, without that of its waits.

A request costs others the time between two points at which it lets them run.  So its coroutine is
stepped by hand and each step is timed; whatever it awaits or raises passes through.
"""

import time
from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any


@coroutine
def timed(awaitable: Awaitable[None], spent: Callable[[float], None]) -> Generator[Any, Any, None]:
    """Await `awaitable`; `spent` is told the seconds of each of its steps, before it waits."""
    steps = awaitable.__await__()
    given: Any = None
    raised: BaseException | None = None
    while True:
        began = time.perf_counter()
        try:
            wish = steps.send(given) if raised is None else steps.throw(raised)
        except StopIteration:
            return
        finally:
            spent(time.perf_counter() - began)
        given, raised = None, None
        try:
            given = yield wish
        except BaseException as exc:
            raised = exc

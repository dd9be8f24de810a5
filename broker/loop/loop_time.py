"""How long a coroutine kept the loop busy: the time of its steps, without that of its waits.

A request costs others the time between two points at which it lets them run.  So its coroutine is
stepped by hand, and who counts is told when each step begins and ends; whatever it awaits or raises
passes through.
"""

from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any


@coroutine
def timed(
    awaitable: Awaitable[None], begins: Callable[[], None], ends: Callable[[], None]
) -> Generator[Any, Any, None]:
    """Await `awaitable`; `begins` and `ends` are called around each of its steps."""
    steps = awaitable.__await__()
    given: Any = None
    raised: BaseException | None = None
    while True:
        begins()
        try:
            wish = steps.send(given) if raised is None else steps.throw(raised)
        except StopIteration:
            return
        finally:
            ends()
        given, raised = None, None
        try:
            given = yield wish
        except BaseException as exc:
            raised = exc

"""Tasks that live as long as the broker serves; one that fails ends no other."""

from collections.abc import Awaitable, Callable

import structlog
import trio

log = structlog.get_logger()


class Tasks:
    """Where they are started: in the nursery that is given once it is open."""

    __slots__ = ("_nursery",)

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    def begin(self, nursery: trio.Nursery) -> None:
        """Tasks of `spawn` live in `nursery` from now on."""
        self._nursery = nursery

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task. What it raises is a line in the log."""
        assert self._nursery is not None, "no part starts a task before the broker serves"
        self._nursery.start_soon(_guarded, task)


async def _guarded(task: Callable[[], Awaitable[None]]) -> None:
    try:
        await task()
    except Exception:
        log.exception("task_failed")

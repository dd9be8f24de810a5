"""Threads that are there from the start, and as long as the broker.

Nothing is started while it serves.  A thread that is started when there is something to do holds up
the loop, may not be given by the system, and where its first step finds no memory Python's
`Thread.start` waits for it for ever.
"""

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar, TypeVarTuple

import trio

from .thread_job import ThreadJob

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Workers:
    """As many threads as were asked for."""

    __slots__ = ("_count", "_jobs")

    def __init__(self, count: int, name: str) -> None:
        """Raises RuntimeError: the system gives no further thread."""
        self._jobs: SimpleQueue[ThreadJob[Any] | None] = SimpleQueue()
        self._count = 0
        try:
            for number in range(count):
                work = partial(_work, self._jobs)
                threading.Thread(target=work, name=f"{name}-{number}", daemon=True).start()
                self._count += 1
        except RuntimeError:
            self.close()
            raise

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """`function(*args)` in a thread; its exceptions come out here.

        It runs to its end, even when its caller is cancelled meanwhile.  Raises
        trio.ClosedResourceError: behind `close`, where no thread would come to it.
        """
        if not self._count:
            raise trio.ClosedResourceError
        job = ThreadJob(partial(function, *args))
        self._jobs.put(job)
        with trio.CancelScope(shield=True):
            await job.ended.wait()
        return job.result()

    def close(self) -> None:
        """Let the threads end when everything is done that is queued; nobody waits for that."""
        for _ in range(self._count):
            self._jobs.put(None)
        self._count = 0


def _work(jobs: "SimpleQueue[ThreadJob[Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        job.compute()
        del job  # with what came out

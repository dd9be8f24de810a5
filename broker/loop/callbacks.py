"""How the threads of segments/ reach the loop: a queue, and a call of the loop that empties it.

    thread: job --> queue --+--> the loop sleeps:        run_sync_soon wakes it, it runs the jobs
                            +--> the loop waits for it:  the queue itself wakes it

Being woken through its sockets costs the loop several times as much as a job.  When the loop has
nothing else to do for a moment and knows that a job is about to come, it waits for the queue
(`wait`).

Jobs run in the loop, in the order in which they came; when they had their time, further ones wait
until others have had their turn.  What fails in one is logged: an exception in
trio's own callback queue would end the process.
"""

import queue
from collections.abc import Callable
from typing import TypeAlias

import structlog
import trio

from .pace import Pace

log = structlog.get_logger()

Job: TypeAlias = Callable[[], None]


class Callbacks:
    """The `call_soon` for the DiskManager of a loop.  Made in that loop; called from any thread."""

    __slots__ = ("_jobs", "_run_sync_soon", "_waits")

    def __init__(self) -> None:
        self._run_sync_soon = trio.lowlevel.current_trio_token().run_sync_soon
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._waits = False

    def __call__(self, job: Job) -> None:
        """Have `job` run in the loop soon. Raises trio.RunFinishedError: the loop has ended."""
        self._jobs.put(job)
        # Put first, looked at second; `wait` does it the other way round: nobody is forgotten.
        if not self._waits:
            self._run_sync_soon(self.run, idempotent=True)

    def run(self) -> None:
        """In the loop: run the jobs that are there, as long as they have time."""
        pace = Pace()
        for _ in range(self._jobs.qsize()):
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:  # a job has waited for others
                return
            _guarded(job)
            if pace.is_over and not self._jobs.empty():
                self._run_sync_soon(self.run, idempotent=True)
                return

    def wait(self, seconds: float) -> bool:
        """In the loop: block for one job, at most so long, and run it; whether there was one."""
        self._waits = True
        try:
            job = self._jobs.get(timeout=seconds)
        except queue.Empty:
            return False
        finally:
            self._waits = False
            # What came between the two, and was not worth a call.
            if not self._jobs.empty():
                self._run_sync_soon(self.run, idempotent=True)
        _guarded(job)
        return True


def _guarded(job: Job) -> None:
    try:
        job()
    except Exception:
        log.exception("callback_failed")

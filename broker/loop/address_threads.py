"""Computing of which only so much is done at once, in threads, and for which addresses take turns.

    asked for -> line -> a thread takes it, computes, tells the loop, and takes the next

A thread goes on without the loop: however long the passes of the loop are, the threads have
something to do as long as somebody waits.  They are not those of lanes: whoever reads from a disk
finds one, however much is computed here.

Limits: `most` threads, which end when nobody waits.  The line is as long as there are tasks that
wait in it; whoever gives up leaves it.  What has begun is ended, also for who gives up.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from .address_line import AddressLine
from .thread_job import ThreadJob

T = TypeVar("T")


class AddressThreads:
    """Who waits, and how many threads there are."""

    __slots__ = ("_line", "_lock", "_most", "_threads")

    def __init__(self, most: int) -> None:
        """most: how many threads compute at the same time."""
        self._most = most
        self._threads = 0
        self._line: AddressLine[ThreadJob[Any]] = AddressLine()
        self._lock = threading.Lock()  # of the line and of what a thread does at its end

    def __len__(self) -> int:
        """How many wait."""
        with self._lock:
            return len(self._line)

    async def run(self, host: str, function: Callable[[], T], *, first: bool = False) -> T:
        """`function()` for an address; its exceptions come out here.  first: before whatever waits
        of its address.

        When its caller is cancelled, it is not begun any more, or waited for if it has begun.

        Raises RuntimeError: there is no thread, and the system has none.
        """
        job = ThreadJob(function)
        self._put(host, job, first=first)
        try:
            await job.ended.wait()
        except trio.Cancelled:
            with self._lock:
                if not job.has_begun:
                    self._line.leave(host, job)
            if job.has_begun:
                with trio.CancelScope(shield=True):
                    await job.ended.wait()
            raise
        return job.result()

    def _put(self, host: str, job: ThreadJob[T], *, first: bool) -> None:
        with self._lock:
            put = self._line.put_first if first else self._line.put
            put(host, job)
            if self._threads == self._most:
                return
            try:
                trio.lowlevel.start_thread_soon(self._work, _nobody)
            except RuntimeError:
                if not self._threads:  # else another one comes to it
                    self._line.leave(host, job)
                    raise
            else:
                self._threads += 1

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._line:
                    self._threads -= 1
                    return
                job = self._line.take()
                job.has_begun = True
            job.compute()


def _nobody(_: object) -> None:
    """Is told that a thread has ended."""

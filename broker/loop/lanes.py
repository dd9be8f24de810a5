"""Lanes: the bounded threads in which everything runs that may block on a disk.

    loop ----- await lanes.run(f) ------> one of `lanes` threads ------> back on the loop

A lane is for opening a partition, cold reads, time lookups, topic administration and housekeeping;
half of them, at most, for what needs the processor for long (`compute`): the disk has the others;
and half of them for look-ups by time (`search`), for which addresses take turns: one may take
seconds, and a client may ask for a thousand of them at once.
Appends are microseconds in the page cache and stay on the loop; syncs have their own threads in
segments/.

At the limit callers wait, in the order of their arrival, and the loop goes on serving the rest.  A
function that was started always runs to its end, even when its caller is cancelled: half an
operation on a disk is worse than a late one.
"""

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import trio

from .address_turns import AddressTurns
from .workers import Workers

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STUCK_S: Final = 10.0
"""Longer than what a disk takes that works."""


class Lanes:
    """A fixed number of threads for blocking work."""

    __slots__ = ("_computing", "_limiter", "_searching", "_taken_at", "_workers")

    def __init__(self, threads: int) -> None:
        """Raises RuntimeError: the system gives no further thread."""
        self._workers = Workers(threads, "lane")
        self._limiter = trio.CapacityLimiter(threads)
        self._computing = trio.CapacityLimiter(max(1, threads // 2))
        self._searching = AddressTurns(max(1, threads // 2))
        self._taken_at = 0.0

    @property
    def busy(self) -> int:
        """How many threads are working."""
        return int(self._limiter.borrowed_tokens)

    @property
    def stuck_s(self) -> float:
        """For how many seconds none has come free, from STUCK_S on; else 0: who asks for one then
        waits for a disk that does not answer, or for that much work."""
        if self._limiter.available_tokens:
            return 0.0
        seconds = trio.current_time() - self._taken_at
        return seconds if seconds >= STUCK_S else 0.0

    @property
    def why_stuck(self) -> str | None:
        """The same in words; None: one is free, or was a moment ago."""
        seconds, count = self.stuck_s, self.busy
        if not seconds:
            return None
        return (
            f"the disk does not answer, or has too much to do: none of the {count} threads for it"
            f" has come free for {seconds:.0f} s"
        )

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """`function(*args)` in a thread; its exceptions come out here.

        Raises trio.ClosedResourceError: behind `close`, also for who waited for a thread then."""
        async with self._limiter:
            self._taken_at = trio.current_time()
            return await self._workers.run(function, *args)

    async def compute(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """As `run`, of what needs the processor for long, and gives up the interpreter for it."""
        async with self._computing:
            return await self.run(function, *args)

    async def search(self, host: str, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """As `run`, of a look-up for an address, when it is its turn."""
        async with self._searching.turn(host):
            return await self.run(function, *args)

    def close(self) -> None:
        """End the threads; nothing is run any more."""
        self._workers.close()

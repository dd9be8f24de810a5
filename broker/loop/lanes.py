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
from typing import TypeVar, TypeVarTuple

import trio

from .address_turns import AddressTurns
from .workers import Workers

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Lanes:
    """A fixed number of threads for blocking work."""

    __slots__ = ("_computing", "_limiter", "_searching", "_workers")

    def __init__(self, threads: int) -> None:
        """Raises RuntimeError: the system gives no further thread."""
        self._workers = Workers(threads, "lane")
        self._limiter = trio.CapacityLimiter(threads)
        self._computing = trio.CapacityLimiter(max(1, threads // 2))
        self._searching = AddressTurns(max(1, threads // 2))

    @property
    def busy(self) -> int:
        """How many threads are working."""
        return int(self._limiter.borrowed_tokens)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """`function(*args)` in a thread; its exceptions come out here.

        Raises trio.ClosedResourceError: behind `close`, also for who waited for a thread then."""
        async with self._limiter:
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

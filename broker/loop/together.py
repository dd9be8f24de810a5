"""Calls that wait for the same lock are made as one: group commit, for what a lane does.

    call a  ->  lock, work([a]) ------------------> outcome of a
    call b  ->  waits for the lock  |  work([b, c, d]) -> outcomes of b, c and d
    call c  ->  waits ...           |
    call d  ->  waits ...           |

The caller that gets the lock does the work of the waiting ones, too, up to a limit.  A caller that
gets the lock and finds its outcome there is done.  One that gives up waiting withdraws its work,
unless that has begun.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import trio

A = TypeVar("A")
R = TypeVar("R")


class _Call(Generic[A, R]):
    """What somebody wants, and what came of it."""

    __slots__ = ("asked", "outcome")

    def __init__(self, asked: A) -> None:
        self.asked = asked
        self.outcome: list[R] = []


class Together(Generic[A, R]):
    """The calls of one kind of work."""

    def __init__(
        self,
        work: Callable[[Sequence[A]], Awaitable[Sequence[R]]],
        lock: trio.Lock,
        limit: int,
    ) -> None:
        """work: does several, of each an outcome; called by who holds `lock`, `limit` at most."""
        self._work = work
        self._lock = lock
        self._limit = limit
        self._waiting: list[_Call[A, R]] = []

    async def call(self, asked: A) -> R:
        """The outcome of the work for this one. Raises what the work raises."""
        mine: _Call[A, R] = _Call(asked)
        self._waiting.append(mine)
        try:
            async with self._lock:
                if not mine.outcome:
                    others = [one for one in self._waiting if one is not mine]
                    some = [mine, *others[: self._limit - 1]]
                    taken = set(some)
                    self._waiting = [one for one in self._waiting if one not in taken]
                    outcomes = await self._work([one.asked for one in some])
                    for one, outcome in zip(some, outcomes, strict=True):
                        one.outcome.append(outcome)
        finally:
            if mine in self._waiting:
                self._waiting.remove(mine)
        return mine.outcome[0]

"""Pace: a long loop over what a peer asked for lets other tasks run when it has had its time.

A request may name a hundred thousand topics.  Answering one takes microseconds; answering all at
once would hold up every other connection for a second.  Each step costs a look at the clock.
"""

import time
from typing import Final

import trio

STEP_S: Final = 0.005


class Pace:
    """`await step()` once per item."""

    __slots__ = ("_over",)

    def __init__(self) -> None:
        self._over = time.perf_counter() + STEP_S

    @property
    def is_over(self) -> bool:
        """Whether this one had the loop for STEP_S."""
        return time.perf_counter() >= self._over

    async def step(self) -> None:
        """Let the other tasks run if this one had the loop for STEP_S."""
        if self.is_over:
            await trio.lowlevel.checkpoint()
            self._over = time.perf_counter() + STEP_S

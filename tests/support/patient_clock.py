"""The time of trio's loop in the tests: real time, without what the machine took away.

    the loop goes round       time goes on, by what passed
    the machine stands still  it goes on by STEP_S

A virtual machine that is paused for three seconds, or a core that others have, would be three
seconds for every limit of a broker inside the test: a session of 600 ms is over, a connection was
idle for too long.  By this clock a limit is only over after so many turns of the loop in which
everybody could have done what is timed.  It is for loops that hold both sides; who times another
process has to wait by conditions.

What waits for a thread has no such turns: the loop sleeps, and its time goes on.  So a limit that a
test lets run out is longer than all that comes before, and by `passes` it is over.
"""

import random
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final, TypeVar

import trio
from trio.abc import Clock, Instrument

T = TypeVar("T")

# What one turn of the loop may take of the time: more than the cushions of wait_all_tasks_blocked,
# which ends when the loop has slept for so long.
STEP_S: Final = 0.06
# Of `passes`: shorter than what a broker takes for a loop that stood still.
_PASSED_S: Final = 0.4


class PatientClock(Clock):
    """See the module."""

    def __init__(self) -> None:
        # As trio's own: who asks another clock by mistake notices.
        self._now_s = random.uniform(10_000, 200_000)
        self._looked_s = perf_counter()

    def start_clock(self) -> None:
        self._looked_s = perf_counter()

    def current_time(self) -> float:
        looked_s = perf_counter()
        self._now_s += min(looked_s - self._looked_s, STEP_S)
        self._looked_s = looked_s
        return self._now_s

    def pass_over(self, seconds: float) -> None:
        """So much is over at once."""
        self._now_s += seconds

    def deadline_to_sleep_time(self, deadline: float) -> float:
        # No longer than what counts: else time would go on more slowly while nothing happens.
        return min(deadline - self.current_time(), STEP_S)


async def passes(seconds: float) -> None:
    """So much time is over at least, in turns of the loop: who sleeps until then has its turn."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, PatientClock), "the test has a clock of its own"
    ends_s = trio.current_time() + seconds
    while trio.current_time() < ends_s:
        clock.pass_over(_PASSED_S)
        for _ in range(2):  # the timer's task, and whom it wakes
            await trio.lowlevel.checkpoint()


def run(
    function: Callable[[], Awaitable[T]],
    *,
    clock: Clock | None = None,
    instruments: list[Instrument] | None = None,
) -> Any:  # noqa: ANN401 - as pytest-trio declares it
    """trio.run by this clock, unless the test has one of its own."""
    return trio.run(function, clock=clock or PatientClock(), instruments=instruments or ())

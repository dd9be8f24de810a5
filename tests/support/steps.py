"""How much is done, in calls or in lines: no clock is asked, and it counts nobody else."""

import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType

import trio


class _Calls(trio.abc.Instrument):
    """Counts the calls of functions in each step of every task but one."""

    def __init__(self, but: trio.lowlevel.Task) -> None:
        self.most = 0
        self._but = but
        self._count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self._but:
            self._count = 0
            sys.setprofile(self._called)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.setprofile(None)
        self.most = max(self.most, self._count)
        self._count = 0

    def _called(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            self._count += 1


async def calls_of_a_step(work: Callable[[], Awaitable[None]]) -> int:
    """The most calls of Python functions in one step of another task than this, while it does
    `work`."""
    calls = _Calls(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(calls)
    try:
        await work()
    finally:
        trio.lowlevel.remove_instrument(calls)
    return calls.most


def calls_of(work: Callable[[], object]) -> int:
    """The calls of Python functions in this thread while it does `work`.

    The collector of cycles stands still meanwhile: it calls functions of its own (Hypothesis has it
    time itself), whenever it looks.
    """
    count = 0

    def called(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


class _Lines:
    """Traces with itself what is called, too."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> "_Lines":
        self.count += event == "line"
        return self


def lines_of(work: Callable[[], object]) -> int:
    """The lines of Python that this thread goes through while it does `work`, each turn of a loop
    on one line among them: also what is within one call is counted."""
    lines = _Lines()
    before = sys.gettrace()
    gc.disable()
    sys.settrace(lines)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines.count

"""What a thread does for a task: its result comes out in the loop.

task: ThreadJob(f) --> somebody's queue --> a thread: compute() --> task: ended, result()
"""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

_AGAIN_S: Final = 0.01


class ThreadJob(Generic[T]):
    """A function for a thread.  Made in the loop."""

    __slots__ = ("_error", "_function", "_token", "_value", "ended", "has_begun")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._token = trio.lowlevel.current_trio_token()
        self._value: T
        self._error: BaseException | None = None
        self.has_begun = False
        self.ended = trio.Event()

    def compute(self) -> None:
        """In a thread.  Never raises."""
        try:
            self._value = self._function()
        except BaseException as exc:
            self._error = exc
        while not self._told():
            time.sleep(_AGAIN_S)

    def _told(self) -> bool:
        """Tell the loop; False: there is no memory for that, and somebody waits for it."""
        try:
            self._token.run_sync_soon(self.ended.set)
        except trio.RunFinishedError:
            return True
        except MemoryError:
            return False
        return True

    def result(self) -> T:
        """Once it has ended.  Raises what the function has raised."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error  # the exception has this frame, and would be freed by the collector alone

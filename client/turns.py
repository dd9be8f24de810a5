"""Whose turn it is to read from a blocking consumer: one thread at a time.

    a call that reads    has the turn for as long as it lasts; another thread gets BusyError
    a loop over records  has it while it fetches more.  Between that it is in its body, where the
    or batches           client does not see it; so it notices when it comes back that another
                         thread has read meanwhile, and ends with BusyError

A loop may go on in another thread than it was begun in, as long as nobody else reads between.

    turns.begin()
    try:
        ...
        what is taken is the caller's        the last thing done before it has it: a signal comes
    finally:                                 at a call, and what it takes away is not the caller's
        turns.thread = None                  not before: another thread would take it, too
    return

Why a loop is no generator: `chain` hands out the records of many lists without a call of ours for
each, and forgets its source when that raises.  Of two threads in one loop the second would get
ValueError, and the generator would be freed in which the first still is: the process dies.  So
whoever has not the turn is told by a list that raises, and the loop of the other goes on.
"""

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, Generic, TypeVar

from .errors import BusyError
from .progress import Progress

T = TypeVar("T")

_ONE = "one thread at a time reads from a consumer: "


class Turns:
    """See the module."""

    def __init__(self) -> None:
        # Whose turn it is; None ends it.
        self.thread: int | None = None
        self._last = 0

    def begin(self, before: int = 0) -> int:
        """The turn of this thread, whose number it gives; `before`: of the loop's last one."""
        thread = get_ident()
        if self.thread == thread:
            raise BusyError(f"{_ONE}this one is reading already, and called a reading method again")
        if self.thread is not None:
            raise BusyError(f"{_ONE}another one is reading at this moment")
        if before and self._last != before and self._last != thread:
            raise BusyError(f"{_ONE}another one has read while this loop was in its body")
        # Another thread or a signal comes at a call, and there is none between the look and this.
        self._last = self.thread = thread
        return thread


class Loop(Generic[T]):
    """A loop's pieces, until there are no more."""

    __slots__ = ("_before", "_more", "_progress", "_turns")

    def __init__(self, turns: Turns, more: Callable[[], T | None], progress: Progress) -> None:
        """`more` gives the next piece; None at the end."""
        self._turns = turns
        self._more = more
        self._progress = progress
        self._before = 0

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self._before = self._turns.begin(self._before)
        try:
            got = self._more()
            self._progress.is_shown = True
        finally:
            self._turns.thread = None
        if got is None:
            raise StopIteration
        return got


class Lists(Loop[Iterator[Any]]):
    """The pieces for `chain`: lists, and what raises for whoever has not the turn."""

    __slots__ = ()

    def __next__(self) -> Iterator[Any]:
        try:
            return super().__next__()
        except BusyError as exc:
            return _Refusal(exc)


class _Refusal:
    """A list without items that raises, once."""

    __slots__ = ("_error",)

    def __init__(self, error: BusyError) -> None:
        self._error: BusyError | None = error

    def __iter__(self) -> "_Refusal":
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - there is none
        error, self._error = self._error, None
        if error is None:
            raise StopIteration
        raise error

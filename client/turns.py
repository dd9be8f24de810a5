"""Whose turn it is to read from a blocking consumer: one thread at a time.

    a call that reads    has the turn for as long as it lasts; another thread gets BusyError
    a loop over records  has it while it fetches more.  Between that it is in its body, where the
    or batches           client does not see it; so it notices when it comes back that another
                         thread has read meanwhile, and ends with BusyError

A loop may go on in another thread than it was begun in, as long as nobody else reads between.

Why a loop is no generator: `chain` hands out the records of many lists without a call of ours for
each, and forgets its source when that raises.  Of two threads in one loop the second would get
ValueError, and the generator would be freed in which the first still is: the process dies.  So
whoever has not the turn is told by a list that raises, and the loop of the other goes on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Generic, TypeVar

from .errors import BusyError
from .progress import Progress

T = TypeVar("T")

_ONE = "one thread at a time reads from a consumer: "


class Turns:
    """See the module."""

    def __init__(self) -> None:
        self._thread: int | None = None
        self._last = 0

    @contextmanager
    def turn(self, before: int = 0) -> Iterator[int]:
        """The turn of this thread, whose number it gives; `before`: of the loop's last one."""
        thread = get_ident()
        if self._thread == thread:
            raise BusyError(f"{_ONE}this one is reading already, and called a reading method again")
        if self._thread is not None:
            raise BusyError(f"{_ONE}another one is reading at this moment")
        if before and self._last != before and self._last != thread:
            raise BusyError(f"{_ONE}another one has read while this loop was in its body")
        # Another thread or a signal comes at a call, and there is none between the look and this.
        self._thread = thread
        try:
            yield thread
        finally:
            self._last = thread
            self._thread = None


class Loop(Generic[T]):
    """A loop's pieces, until there are no more."""

    __slots__ = ("_before", "_more", "_turns")

    def __init__(self, turns: Turns, more: Callable[[], T | None]) -> None:
        """`more` gives the next piece; None at the end."""
        self._turns = turns
        self._more = more
        self._before = 0

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._turns.turn(self._before) as self._before:
            got = self._more()
        if got is None:
            raise StopIteration
        return got


class Batches(Loop[T]):
    """The pieces as they are: each is shown by the last thing done before the caller has it."""

    __slots__ = ("_progress",)

    def __init__(self, turns: Turns, more: Callable[[], T | None], progress: Progress) -> None:
        super().__init__(turns, more)
        self._progress = progress

    def __next__(self) -> T:
        got = super().__next__()
        # Ctrl-C comes at a call, and there is none between this and the caller.
        self._progress.is_shown = True
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

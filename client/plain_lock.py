"""A lock for `with`, which gives it back wherever a signal comes.

Python runs handlers of signals in the main thread, between any two of its instructions.  One that
raises (Ctrl-C) in a `with lock` of `threading` leaves it released; but not in Python 3.14, where
handlers run behind the call of `__enter__`, too: the block has not begun there, and nobody would
ever get the lock again (https://github.com/python/cpython/issues/148874).  So `__enter__` is
Python's here, and takes it back; `__exit__` is in C as ever, where no handler comes in front of the
release.

Nobody waits for itself: who has the lock and comes to it once more, in a handler, or in a finalizer
that the collector of garbage runs at any allocation, gets BusyError.  It is an RLock only because
that knows who has it.
"""

from _thread import RLock
from typing import Final

from .errors import BusyError

WITHIN: Final = (
    "this thread is within the client's own work already: a signal's handler or a finalizer that"
    " comes there cannot wait for it"
)


class PlainLock(RLock):  # type: ignore[misc]  # final in its stubs only
    """See the module.  `with` raises BusyError in the thread that has it."""

    __slots__ = ()

    @property
    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return self._is_owned()  # type: ignore[attr-defined, no-any-return]  # as Condition

    def __enter__(self) -> bool:  # type: ignore[override]  # RLock's is `acquire`
        if self.is_mine:
            raise BusyError(WITHIN)
        try:
            return self.acquire()
        except BaseException:  # whatever a handler raises
            # No handler runs between here and the call; in front of `suppress` one would.
            try:  # noqa: SIM105
                self.release()
            except RuntimeError:
                pass  # the signal came while it waited
            raise

    def forked(self) -> None:
        """This is the child of a fork: whoever has the lock is not here."""
        self._at_fork_reinit()  # type: ignore[attr-defined]  # as threading does

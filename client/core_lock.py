"""The lock of a blocking client's core, inside which no signal's handler runs.

Python runs handlers of signals in the main thread, between any two of its instructions.  One that
raises (Ctrl-C; SIGTERM in many programs; an alarm) ends whatever the main thread is about to do,
and of the core that would be half of a step: records that are in no list any more, a request that
is queued and of which nobody expects the answer.  So the main thread puts handlers off while it has
the lock, and runs them when it has given it back: as if the signal had come there.

    lock           the core is computed by one thread, undisturbed
    undisturbed    no handler runs, without the lock: for what belongs together, and waits for
                   nothing
    plain          the lock alone (plain_lock.py): for what bears a signal at any place, and better
                   there than behind it (a reader that has handed something out), or is to be cheap

A signal is put off by microseconds; before it the main thread waits, undelayed, until nobody has
the lock.  That may be itself: in a handler that interrupted what takes the plain lock.  And any
thread may be brought to it by the collector of garbage, which runs finalizers at any allocation,
and what those write to a log may be sent by this very client.  Nobody waits for itself: BusyError.
One that comes several times meanwhile is handled once, as the system does; of several each is.
A handler of another kind than Python's, or SIG_DFL, raises nothing.  One that was put over Python's
without Python's knowledge (faulthandler.register, where there was a handler) is gone with the first
use, and so is signal.siginterrupt(number, False), as with every change of a handler.  Where
handlers cannot be changed (a subinterpreter) none run.

The lock is not reentrant.  `undisturbed` may hold itself and the lock, and be held by it.
"""

import _signal  # type: ignore[import-not-found]  # see _handler_of
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeAlias

from .errors import BusyError
from .plain_lock import WITHIN, PlainLock

_Handler: TypeAlias = Callable[[int, FrameType | None], Any]

_NAMES: Final = (
    *("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGBREAK", "SIGUSR1", "SIGUSR2"),
    *("SIGALRM", "SIGVTALRM", "SIGPROF"),
)
_NUMBERS: Final = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))
"""Those whose handlers raise in programs; each costs a little with each use of the lock."""

# What the functions of `signal` wrap: they look for the names of handlers, ten times as long.
_handler_of: Final = _signal.getsignal
_set_handler: Final = _signal.signal


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


class Undisturbed:
    """No handler of a signal runs in it; what has come meanwhile is handled at its end.

    A handler that raises may come between any two steps of putting the others on again, and then
    those that are still off are not lost: one that is called outside passes on what it gets, and
    puts on what is off, and so does the next end.
    """

    __slots__ = ("_depth", "_handlers", "_keeps", "_noted_numbers", "_off")

    def __init__(self) -> None:
        # All the main thread's alone: no other runs handlers.
        self._depth = 0
        # Whether what comes is kept for the end.
        self._keeps = False
        # What the program handles them with, and which of them are off.
        self._handlers: dict[int, _Handler] = {}
        self._off: dict[int, None] = {}
        # What has come, each once, in its order.
        self._noted_numbers: dict[int, None] = {}

    def __enter__(self) -> None:
        if _is_main():
            if not self._depth:
                self._put_off()
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        if _is_main():
            self._depth -= 1
            if not self._depth:
                self._keeps = False
                self._put_on()

    def forked(self) -> None:
        """This is the child of a fork, and its only thread the main one."""
        if self._off:
            self._depth = 0
            self._keeps = False
            self._noted_numbers.clear()  # the parent's
            self._put_on()

    def _put_off(self) -> None:
        self._keeps = True
        try:
            self._take_off()
        except BaseException as exc:  # by a signal that had come before
            self._keeps = False
            if _is_of_subinterpreter(exc):
                self._off.clear()
                return
            self._put_on()
            raise

    def _take_off(self) -> None:
        """By itself: of a loop within `try` some jumps are not, and signals come there, too."""
        for number in _NUMBERS:
            handler = _handler_of(number)
            if callable(handler):
                if handler != self._noted:  # else it is off since the last time
                    self._handlers[number] = handler
                self._off[number] = None
                was = _set_handler(number, self._noted)
                if was != self._noted:
                    self._handlers[number] = was  # the program may have put it there since

    def _noted(self, number: int, _: FrameType | None) -> None:
        self._noted_numbers[number] = None
        if not self._keeps:
            self._put_on()

    def _put_on(self) -> None:
        try:
            self._restore()
        finally:
            try:
                self._restore()  # what the first one has not come to
            finally:
                if self._noted_numbers:
                    self._handle(sys._getframe(2))

    def _restore(self) -> None:
        """May be left by what a handler raises, in front of any change: Python looks there."""
        for number in tuple(self._off):
            was = _set_handler(number, self._handlers[number])
            if was != self._noted:
                _set_handler(number, was)  # the program has put it there meanwhile
            self._off.pop(number, None)

    def _handle(self, frame: FrameType) -> None:
        """All that have come, in their order, whatever the first ones raise."""
        if self._noted_numbers:
            number = next(iter(self._noted_numbers))
            handler = self._handlers[number]
            del self._noted_numbers[number]
            try:
                if callable(handler):
                    handler(number, frame)
            finally:
                self._handle(frame)


def _is_of_subinterpreter(failure: BaseException) -> bool:
    """Whether handlers cannot be changed here: it was raised by that, and not within a handler."""
    trace = failure.__traceback__
    inner = None if trace is None else trace.tb_next  # that of _take_off
    return isinstance(failure, ValueError) and inner is not None and inner.tb_next is None


class CoreLock:
    """See the module.  Whatever takes it raises BusyError in the thread that has it."""

    __slots__ = ("plain", "undisturbed")

    def __init__(self) -> None:
        self.plain = PlainLock()
        """The lock alone."""
        self.undisturbed = Undisturbed()

    @property
    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return self.plain.is_mine

    def __enter__(self) -> None:
        self.wait_free()
        self.undisturbed.__enter__()
        self.plain.acquire()

    def wait_free(self) -> None:
        """Wait until nobody has it, where a signal may end that: in front of what is undisturbed
        and takes it at its begin."""
        if self.is_mine:
            raise BusyError(WITHIN)
        if _is_main():
            with self.plain:
                pass

    def __exit__(self, *_: object) -> None:
        self.plain.release()
        self.undisturbed.__exit__()

    def forked(self) -> None:
        """This is the child of a fork: whoever has the lock is not here."""
        self.plain.forked()
        self.undisturbed.forked()

"""The lock of a blocking client's core, inside which no signal's handler runs.

Python runs handlers of signals in the main thread, between any two of its instructions.  One that
raises (Ctrl-C; SIGTERM in many programs; an alarm) ends whatever the main thread is about to do,
and of the core that would be half of a step: records that are in no list any more, a request that
is queued and of which nobody expects the answer.  So the main thread puts handlers off while it has
the lock, and runs them when it has given it back: as if the signal had come there.

    lock           the core is computed by one thread, undisturbed
    undisturbed    no handler runs, without the lock: for what belongs together, and waits for
                   nothing
    plain          the lock alone: for what bears a signal at any place, and better there than
                   behind it (a reader that has handed something out), or is to be cheap

A signal is put off by microseconds; before it the main thread waits, undelayed, until nobody has
the lock.  That may be itself: in a handler that interrupted what takes the plain lock.  Whatever it
asks for there is never done, but Ctrl-C ends it.
One that comes several times meanwhile is handled once, as the system does; of several each is.
A handler of another kind than Python's, or SIG_DFL, raises nothing.  One that was put over Python's
without Python's knowledge (faulthandler.register, where there was a handler) is gone with the first
use.  Where handlers cannot be changed (a subinterpreter) none run.

The lock is not reentrant; `undisturbed` may hold itself and the lock, and be held by it.
"""

import _signal  # type: ignore[import-not-found]  # see _handler_of
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeAlias

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
    """No handler of a signal runs in it; what has come meanwhile is handled at its end."""

    __slots__ = ("_before", "_depth", "_noted_numbers")

    def __init__(self) -> None:
        # All the main thread's alone: no other runs handlers.
        self._depth = 0
        self._before: list[tuple[int, _Handler]] = []
        self._noted_numbers: list[int] = []

    def __enter__(self) -> None:
        if _is_main():
            if not self._depth:
                self._put_off()
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        if _is_main():
            self._depth -= 1
            if not self._depth:
                self._put_on()

    def forked(self) -> None:
        """This is the child of a fork, and its only thread the main one."""
        if self._before:
            self._depth = 0
            self._noted_numbers.clear()  # the parent's
            self._put_on()

    def _put_off(self) -> None:
        try:
            for number in _NUMBERS:
                handler = _handler_of(number)
                if callable(handler):
                    self._before.append((number, handler))
                    _set_handler(number, self._noted)
        except BaseException as exc:  # by a signal that had come before
            if _is_of_subinterpreter(exc):
                self._before.clear()
                return
            self._put_on()
            raise

    def _noted(self, number: int, _: FrameType | None) -> None:
        self._noted_numbers.append(number)

    def _put_on(self) -> None:
        before, self._before = dict(self._before), []
        try:
            _restore(list(before.items()))
        finally:
            noted, self._noted_numbers = self._noted_numbers, []
            if noted:
                _handle([(n, before[n]) for n in dict.fromkeys(noted)], sys._getframe(2))


def _is_of_subinterpreter(failure: BaseException) -> bool:
    """Whether handlers cannot be changed here: it was raised by that, and not within a handler."""
    trace = failure.__traceback__
    return isinstance(failure, ValueError) and trace is not None and trace.tb_next is None


def _handle(noted: list[tuple[int, _Handler]], frame: FrameType) -> None:
    """All of them, in their order, whatever the first ones raise."""
    if noted:
        number, handler = noted.pop(0)
        try:
            handler(number, frame)
        finally:
            _handle(noted, frame)


def _restore(before: list[tuple[int, _Handler]]) -> None:
    """All of them, whatever the first ones raise for a signal that has come since."""
    if before:
        number, handler = before.pop()
        try:
            _set_handler(number, handler)
        finally:
            _restore(before)


class CoreLock:
    """See the module."""

    __slots__ = ("plain", "undisturbed")

    def __init__(self) -> None:
        self.plain = threading.Lock()
        self.undisturbed = Undisturbed()

    def __enter__(self) -> None:
        self.wait_free()
        self.undisturbed.__enter__()
        self.plain.acquire()

    def wait_free(self) -> None:
        """Wait until nobody has it, where a signal may end that: in front of what is undisturbed
        and takes it at its begin."""
        if self.plain.locked() and _is_main():
            with self.plain:
                pass

    def __exit__(self, *_: object) -> None:
        self.plain.release()
        self.undisturbed.__exit__()

    def forked(self) -> None:
        """This is the child of a fork: whoever has the lock is not here."""
        if self.plain.locked():
            self.plain.release()
        self.undisturbed.forked()

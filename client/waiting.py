"""A thread waits for a Completion: on a lock that its waker releases.

A signal interrupts the wait, so Ctrl-C works at once: in a main thread within LOOK_S, in whatever
instant it comes.
"""

import math
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from .clock import now_ms
from .completion import Waitable
from .errors import TimedOut

# How often a main thread that waits looks whether a signal has come.
LOOK_S: Final = 0.04
FOR_EVER_MS: Final = 1 << 62


def wait_done(what: Waitable, timeout_ms: float | None) -> bool:
    """Wait until done; False when `timeout_ms` passed first.  Signals interrupt it."""
    if what.done:
        return True
    # A bare lock: an Event, which is a condition around another lock, costs 10 us more.
    gate = threading.Lock()
    gate.acquire()

    def wake() -> None:
        with suppress(RuntimeError):  # a waker may be called twice
            gate.release()

    what.on_done(wake)
    try:
        left_s = math.inf if timeout_ms is None else max(0.0, timeout_ms / 1000)
        if threading.current_thread() is threading.main_thread():
            # Its signals: one that comes between the interpreter's last look and the wait ends no
            # wait.
            while left_s > LOOK_S:
                if gate.acquire(timeout=LOOK_S):
                    return True
                left_s -= LOOK_S
        return gate.acquire(timeout=min(left_s, threading.TIMEOUT_MAX))
    finally:
        if not what.done:
            what.forget(wake)


def as_ms(timeout: float | None) -> int | None:
    """Seconds of a caller's in milliseconds, none fewer; None: he gives no time.  TypeError for
    what is no number, ValueError for NaN."""
    if timeout is None:
        return None
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout={timeout!r} is not a number of seconds")
    return math.ceil(max(min(timeout * 1000, FOR_EVER_MS), -FOR_EVER_MS))


def wait_all(all_of: Iterable[Waitable], timeout: float | None) -> None:
    """Wait until all are done; TimedOut when `timeout` (seconds) passed first."""
    left_ms = as_ms(timeout)
    ends_ms = None if left_ms is None else now_ms() + left_ms
    for what in all_of:
        if not wait_done(what, None if ends_ms is None else ends_ms - now_ms()):
            raise TimedOut(f"not done within {timeout} s; it goes on in the background")

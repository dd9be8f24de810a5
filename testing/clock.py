"""The time that an embedded broker believes in.

It runs with the real time until a test takes hold of it:

    running   now_ms = wall time + what was advanced
    frozen    now_ms = what was set + what was advanced since; nothing else moves it

The broker reads it for the timestamps that it stamps (LogAppendTime), the age of segments and of
producers, and the time in gaps.  How long a fetch waits for records is real time in either state:
a frozen clock freezes no client.
"""

import operator
import threading
import time
from typing import Final

# The broker reckons with later ones, in 64 bits.
_TIME_MAX_MS: Final = 1 << 62


class Clock:
    """A clock to set, to freeze and to advance, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frozen_ms: int | None = None
        self._advanced_ms = 0

    def now_ms(self) -> int:
        """The time now, in milliseconds since 1970."""
        with self._lock:
            base_ms = time.time_ns() // 1_000_000 if self._frozen_ms is None else self._frozen_ms
            return base_ms + self._advanced_ms

    def freeze(self, at_ms: int | None = None) -> int:
        """Stand still, at a time or at the present one; returns it.

        Args:
            at_ms: milliseconds since 1970. It may lie in the past: brokers meet that as well.

        Raises:
            TypeError, ValueError: it is no whole number, or no time that a record can have.
        """
        now_ms = self.now_ms() if at_ms is None else _whole(at_ms, "freeze at")
        with self._lock:
            self._frozen_ms = now_ms
            self._advanced_ms = 0
        return now_ms

    def advance(self, by_ms: int) -> int:
        """Let `by_ms` milliseconds pass at once; returns the time after them.

        Raises:
            ValueError: `by_ms` is negative; to go back, `freeze` at a time. Or it is too large.
            TypeError: it is no whole number.
        """
        passed_ms = _whole(by_ms, "advance by")
        with self._lock:
            self._advanced_ms += passed_ms
        return self.now_ms()

    def resume(self) -> None:
        """Run with the real time again."""
        with self._lock:
            self._frozen_ms = None
            self._advanced_ms = 0


def _whole(ms: int, what: str) -> int:
    """The milliseconds; anything else would end the broker's thread, not the line of the test."""
    try:
        number = operator.index(ms)
    except TypeError:
        raise TypeError(f"cannot {what} {ms!r}: not a whole number of milliseconds") from None
    if not 0 <= number < _TIME_MAX_MS:
        raise ValueError(f"cannot {what} {ms} ms")
    return number

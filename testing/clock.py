"""The time that an embedded broker believes in.

It runs with the real time until a test takes hold of it:

    running   now_ms = wall time + what was advanced
    frozen    now_ms = what was set + what was advanced since; nothing else moves it

The broker reads it for the timestamps that it stamps (LogAppendTime), the age of segments and of
producers, and the time in gaps.  How long a fetch waits for records is real time in either state:
a frozen clock freezes no client.
"""

import threading
import time


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
        """
        now_ms = self.now_ms() if at_ms is None else at_ms
        with self._lock:
            self._frozen_ms = now_ms
            self._advanced_ms = 0
        return now_ms

    def advance(self, by_ms: int) -> int:
        """Let `by_ms` milliseconds pass at once; returns the time after them.

        Raises:
            ValueError: `by_ms` is negative; to go back, `freeze` at a time.
        """
        if by_ms < 0:
            raise ValueError(f"cannot advance by {by_ms} ms")
        with self._lock:
            self._advanced_ms += by_ms
        return self.now_ms()

    def resume(self) -> None:
        """Run with the real time again."""
        with self._lock:
            self._frozen_ms = None
            self._advanced_ms = 0

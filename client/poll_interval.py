"""Whether the caller of a member is here, and when it has been away for `max_poll_interval_ms`.

    waits     it is here for as long as it waits for records, also where none come for hours
    is_here   it asks for more, or has been given something, or nothing: from now on it is away,
              with records in hand or without, in a callback, too

One that never asks for anything is away since the member's first step (0297).

Threads: everything under the shell's lock but `is_here`, which the blocking consumer says at the
end of each wait without it, so that Ctrl-C cannot come in between.
"""


class PollInterval:
    """See the module."""

    def __init__(self, limit_ms: int | None) -> None:
        """limit_ms: how long it may be away; None: for ever."""
        self._limit_ms = limit_ms
        self._seen_ms: int | None = None
        self._is_waiting = False

    def begin(self, now_ms: int) -> None:
        """The member steps; at the first time the caller's time begins."""
        if self._seen_ms is None:
            self._seen_ms = now_ms

    def waits(self) -> None:
        """The caller waits for something, until it `is_here`."""
        self._is_waiting = True

    def is_here(self, now_ms: int) -> None:
        """The caller asks, or gets something, or nothing: the time until it is back begins."""
        self._seen_ms = now_ms
        self._is_waiting = False

    @property
    def late_ms(self) -> int | None:
        """When the caller is away for too long; None: it waits, or has all the time."""
        # In this order: whoever is seen to wait no more has said by then when that was.
        if self._is_waiting or self._limit_ms is None or self._seen_ms is None:
            return None
        return self._seen_ms + self._limit_ms

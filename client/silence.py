"""How long something is wanted and nobody has answered: what a caller has to hear of.

    wanted --limit_ms later--> too long: told, and counted anew
      ^            |
      +- answered -+

A client that stood still (its process was stopped, or a job kept the event loop to itself) has not
listened: what a broker has said meanwhile lies in its sockets.  Who looks LATE_MS after the time at
which it was to look counts anew, and tells nobody.  Once: who is late again has listened between.
"""

from typing import Final

LATE_MS: Final = 100


class Silence:
    """See the module.  Times are those of the core."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._was_late = False

    def wanted(self, now_ms: int) -> None:
        """Somebody waits for an answer."""
        if self._since_ms is None:
            self._since_ms = now_ms

    def over(self) -> None:
        """A broker has said something, or nobody waits any more."""
        self._since_ms = None
        self._was_late = False

    def due_ms(self, limit_ms: int) -> int | None:
        """When it will have been too long; None: nobody waits."""
        return None if self._since_ms is None else self._since_ms + limit_ms

    def is_too_long(self, now_ms: int, limit_ms: int) -> bool:
        """Whether the caller has to hear of it now."""
        due_ms = self.due_ms(limit_ms)
        if due_ms is None or now_ms < due_ms:
            return False
        self._since_ms = now_ms
        self._was_late = now_ms > due_ms + LATE_MS and not self._was_late
        return not self._was_late

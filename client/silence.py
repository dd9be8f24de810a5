"""How long something is wanted and nobody has answered: what a caller has to hear of.

    wanted --limit_ms of listening later--> too long: told, and counted anew
      ^                     |
      +------ answered -----+

A client that stood still (its process was stopped, or a job kept the event loop to itself) has not
listened: what a broker has said meanwhile lies in its sockets, or its connection is gone and has to
be made again.  So who looks vouches for a quarter of the limit before that, at most: however long
it stood still, and it may do so twice, the rest of the limit it listens before it tells.
"""

from typing import Final

LATE_MS: Final = 100
"""Who has not looked at its sockets for longer looks once more before it gives anything up."""

PARTS: Final = 4


class Silence:
    """See the module.  Times are those of the core."""

    def __init__(self) -> None:
        # When somebody last looked; None: nobody waits.
        self._seen_ms: int | None = None
        self._listened_ms = 0

    def wanted(self, now_ms: int) -> None:
        """Somebody waits for an answer."""
        if self._seen_ms is None:
            self._seen_ms = now_ms
            self._listened_ms = 0

    def over(self) -> None:
        """A broker has said something, or nobody waits any more."""
        self._seen_ms = None

    def due_ms(self, limit_ms: int) -> int | None:
        """When it is to be looked at; None: nobody waits."""
        if self._seen_ms is None:
            return None
        return self._seen_ms + min(limit_ms - self._listened_ms, -(-limit_ms // PARTS))

    def is_too_long(self, now_ms: int, limit_ms: int) -> bool:
        """Whether the caller has to hear of it now."""
        if self._seen_ms is None:
            return False
        self._listened_ms += min(now_ms - self._seen_ms, -(-limit_ms // PARTS))
        self._seen_ms = now_ms
        if self._listened_ms < limit_ms:
            return False
        self._listened_ms = 0
        return True

"""Lines about connections that are closed for a reason: so many of a kind a minute, then a sum.

    the first LINES_MAX of an event in a window    a line each
    more of it                                     counted; at the end of the window one
                                                   connections_omitted with the count of each event

Whoever is refused may come again as fast as it is refused: a flood of wrong passwords, or of bytes
that are no request, must not fill a disk with lines about itself.  Each event has its own share, so
that one of them hides no other.  The end of the broker ends the window.
"""

from collections import Counter
from typing import Final

import structlog

log = structlog.get_logger()

WINDOW_S: Final = 60.0
LINES_MAX: Final = 200


class ClosingLines:
    """What is told of the connections that are closed."""

    __slots__ = ("_began", "_counts")

    def __init__(self) -> None:
        self._began = 0.0
        self._counts: Counter[str] = Counter()

    def tell(self, event: str, /, **facts: object) -> None:
        """One connection is closed."""
        self._counts[event] += 1
        if self._counts[event] <= LINES_MAX:
            log.warning(event, **facts)

    def keep_house(self, now: float) -> None:
        """End the window when it is over. now: trio's clock, in seconds."""
        if now - self._began < WINDOW_S:
            return
        self._began = now
        counts, self._counts = self._counts, Counter()
        omitted = {f"{event}_count": n - LINES_MAX for event, n in counts.items() if n > LINES_MAX}
        if omitted:
            log.warning("connections_omitted", **omitted)

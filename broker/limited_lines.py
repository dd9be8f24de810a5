"""Lines about what clients do to a group or a transactional id, or cannot read: so many a minute,
then a sum.

    the first OF_ONE_MAX of an event about one group    a line each
    the first LINES_MAX of that event about all         ... as long as there are fewer
    more                                                counted; at the end of the window one line
                                                        with the count of each event

A member that joins and leaves in a loop must not fill a disk with lines about itself, nor hide what
happens to other groups: so each group has its share.  So it is with a partition that cannot be read
and is asked for again and again.  The end of the broker ends the window.  Names
come from clients and are told up to NAME_TOLD_MAX characters.
"""

from collections import Counter
from typing import Final

import structlog

from .configuration.logs import told

log = structlog.get_logger()

WINDOW_S: Final = 60.0
LINES_MAX: Final = 200
OF_ONE_MAX: Final = 20


class LimitedLines:
    """Those of one kind of thing."""

    __slots__ = ("_began", "_level", "_of_all", "_of_one", "_omitted", "_omitted_event")

    def __init__(self, omitted_event: str, level: str = "info") -> None:
        """omitted_event: the line at the end of a window in which there were more."""
        self._omitted_event = omitted_event
        self._level = level
        self._began = 0.0
        self._of_all: Counter[str] = Counter()
        self._of_one: Counter[tuple[str, str]] = Counter()  # no more than there are lines
        self._omitted: Counter[str] = Counter()

    def tell(self, event: str, name: str, /, **facts: str | int | None) -> None:
        """Something happened to what is called `name`; empty facts are left out."""
        one = event, told(name)
        if self._of_one[one] >= OF_ONE_MAX or self._of_all[event] >= LINES_MAX:
            self._omitted[f"{event}_count"] += 1
            return
        self._of_one[one] += 1
        self._of_all[event] += 1
        getattr(log, self._level)(
            event,
            **{
                key: told(value) if isinstance(value, str) else value
                for key, value in facts.items()
                if value is not None and value != ""
            },
        )

    def keep_house(self, now: float) -> None:
        """End the window when it is over. now: trio's clock, in seconds."""
        if now - self._began < WINDOW_S:
            return
        self._began = now
        omitted, self._omitted = self._omitted, Counter()
        self._of_all.clear()
        self._of_one.clear()
        if omitted:
            getattr(log, self._level)(self._omitted_event, **omitted)

"""What a group's broker refuses for long, and that it does not any more: a line of the log each.

    wanted --refused--> refused, since then --refused AWAY_MS later--> told: a line
      ^                    |                                             |
      +------ done --------+-------------- done: a line -----------------+

A broker that cannot write its metadata refuses joins and commits for as long as that lasts.  Of a
join the caller hears by an error when it has taken longer than any rebalance, which is minutes; of
commits that are made by themselves it hears nothing, since the next one makes good for them.
The lines go where those of brokers that are away go, see absence.
"""

import logging
from collections.abc import Callable

from .absence import AWAY_MS, Notice
from .errors import SegbrokerError


class Refusals:
    """Those of one thing that is wanted again and again.  Times are those of the core."""

    def __init__(self, refused: str, done: str, say: Callable[[Notice], None]) -> None:
        """refused, done: what a line says of it."""
        self._refused = refused
        self._done = done
        self._say = say
        self._since_ms: int | None = None
        self._is_told = False

    def refused(self, why: SegbrokerError, now_ms: int) -> None:
        """Not now; it is tried again."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if not self._is_told and now_ms >= self._since_ms + AWAY_MS:
            self._is_told = True
            self._say(Notice(logging.WARNING, f"{self._refused}, still trying: {why}"))

    def done(self, now_ms: int) -> None:
        """It was not refused."""
        if self._is_told and self._since_ms is not None:
            after_s = (now_ms - self._since_ms) / 1000
            self._say(Notice(logging.WARNING, f"{self._done} after {after_s:,.0f} s"))
        self.over()

    def over(self) -> None:
        """Nobody wants it any more."""
        self._since_ms, self._is_told = None, False


def of_joining(group_id: str, say: Callable[[Notice], None]) -> Refusals:
    """Those of becoming a member."""
    group = f"group {group_id!r}"
    return Refusals(f"{group} cannot be joined", f"{group} was joined", say)


def of_committing(group_id: str, say: Callable[[Notice], None]) -> Refusals:
    """Those of commits that a member makes by itself."""
    offsets = f"offsets of group {group_id!r}"
    return Refusals(f"{offsets} cannot be committed", f"{offsets} were committed", say)

"""How long its group's broker keeps a member out, and whether that was told: a line in the log.

    wants in --refused--> kept out --refused AWAY_MS later--> told: a line
       ^                     |                                  |
       +------- is in -------+------------ is in: a line -------+

A broker that cannot write its metadata refuses for as long as that lasts.  The caller hears of it
by an error only when the member has been out for longer than any rebalance takes, which is minutes.
The lines go where those of brokers that are away go, see absence.
"""

import logging
from collections.abc import Callable

from .absence import AWAY_MS, Notice
from .errors import SegbrokerError


class KeptOut:
    """See the module.  Times are those of the core."""

    def __init__(self, group_id: str, say: Callable[[Notice], None]) -> None:
        self._group_id = group_id
        self._say = say
        self._since_ms: int | None = None
        self._is_told = False

    def refused(self, why: SegbrokerError, now_ms: int) -> None:
        """The broker has answered that it cannot be a member now."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if not self._is_told and now_ms >= self._since_ms + AWAY_MS:
            self._is_told = True
            text = f"group {self._group_id!r} cannot be joined, still trying: {why}"
            self._say(Notice(logging.WARNING, text))

    def is_in(self, now_ms: int) -> None:
        """It is a member."""
        if self._is_told and self._since_ms is not None:
            out_s = (now_ms - self._since_ms) / 1000
            text = f"group {self._group_id!r} was joined after {out_s:,.0f} s"
            self._say(Notice(logging.WARNING, text))
        self.over()

    def over(self) -> None:
        """It does not want in any more."""
        self._since_ms, self._is_told = None, False

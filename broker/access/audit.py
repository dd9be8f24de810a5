"""The audit log: one line per denied request, and per allowed one where that is asked for.

    first in a window     access_denied or access_allowed: principal, host, operation, resource
    again                 counted; at the end of the window one access_repeated with `count`
    more than lines_max   counted together; at the end one access_omitted with both sums

So a flood of requests writes 2 * lines_max + 1 lines per window at most, and none of it is lost:
the sums say how many there were.  The end of the broker ends the window.
Names are told up to NAME_TOLD_MAX characters: they come from whoever was denied.
"""

import threading
from typing import Final

import structlog

from ..configuration.logs import told

log = structlog.get_logger("segbroker.audit")

WINDOW_S: Final = 60.0

Key = tuple[bool, str, str, str, str, str]


class Audit:
    """What was allowed and denied, told to the log without flooding it."""

    __slots__ = ("_began", "_lock", "_omitted", "_repeated", "allowed_too", "lines_max")

    def __init__(self, *, lines_max: int, allowed_too: bool) -> None:
        """lines_max: different lines per minute. allowed_too: not only what is denied."""
        self.lines_max = lines_max
        self.allowed_too = allowed_too
        self._lock = threading.Lock()  # large requests are checked in a lane
        self._began = 0.0
        self._repeated: dict[Key, int] = {}
        self._omitted = {True: 0, False: 0}

    def note(
        self,
        *,
        allowed: bool,
        principal: str,
        host: str,
        operation: str,
        resource_type: str,
        resource_name: str,
    ) -> None:
        """One decision."""
        key = (allowed, principal, host, operation, resource_type, told(resource_name))
        with self._lock:
            if key in self._repeated:
                self._repeated[key] += 1
                return
            if len(self._repeated) >= self.lines_max:
                self._omitted[allowed] += 1
                return
            self._repeated[key] = 0
        _say("access_allowed" if allowed else "access_denied", key)

    def keep_house(self, now: float) -> None:
        """End the window when it is over. now: trio's clock, in seconds."""
        with self._lock:
            if now - self._began < WINDOW_S:
                return
            self._began = now
            repeated, self._repeated = self._repeated, {}
            omitted, self._omitted = self._omitted, {True: 0, False: 0}
        for key, count in repeated.items():
            if count:
                _say("access_repeated", key, count=count)
        if any(omitted.values()):
            log.warning("access_omitted", denied=omitted[False], allowed=omitted[True])


def _say(event: str, key: Key, **more: object) -> None:
    allowed, principal, host, operation, resource_type, resource_name = key
    (log.info if allowed else log.warning)(
        event,
        principal=principal,
        host=host,
        operation=operation,
        resource_type=resource_type,
        resource=resource_name,
        allowed=allowed,
        **more,
    )

"""Places for groups: `groups_max` of all kinds are in memory, and who is idle makes room for more.

A group that nobody is in is in memory for the numbers that it counts on with, until it is forgotten
(group_upkeep.py).  What is written down of it says the same; where it does not, the group stays.

    who goes    the one that was made first, then the next, only as many as it takes
    when        a new group finds no place: it is refused if nobody goes
    how often   a look goes over all groups, so it comes once per second at most.  Who was idle then
                may be in use by now: then, too, it is time to look again

Limits: DROPS_MAX groups go at a time.
"""

from collections.abc import Callable, Iterable
from typing import Final

from ..loop.loop_clock import monotonic_ms
from .offset_expiry import AnyGroup
from .share_group import ShareGroup

LOOK_INTERVAL_MS: Final = 1_000
"""Between two looks for groups without members where there are `groups_max`: each looks at all."""
DROPS_MAX: Final = 500
"""Groups that leave memory at once: some ms."""


class GroupPlaces:
    """The places of one broker."""

    def __init__(
        self,
        has_place: Callable[[], bool],
        every: Callable[[], Iterable[AnyGroup | ShareGroup]],
        drop_if_idle: Callable[[str], bool],
    ) -> None:
        """has_place: whether there may be one more.  every: the groups in memory, oldest first.

        drop_if_idle: a group that nobody is in leaves memory; whether one went.
        """
        self._has_place = has_place
        self._every = every
        self._drop_if_idle = drop_if_idle
        self._idle: list[str] = []
        """Groups that nobody was in when that was looked at last; the oldest is last."""
        self._next_look_ms = 0

    def make(self) -> bool:
        """Make room for one more group; whether there is."""
        for _ in range(DROPS_MAX):
            if self._has_place():
                return True
            if not self._idle:
                self._look_for_idle()
            if not self._idle:
                return False
            if not self._drop_if_idle(self._idle.pop()):
                self._look_for_idle()  # somebody is in it by now: what was seen is old
        return self._has_place()

    def _look_for_idle(self) -> None:
        now_ms = monotonic_ms()
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_INTERVAL_MS
            self._idle = [one.group_id for one in reversed([*self._every()]) if one.is_idle]

"""One alarm per owner, in the heap of deadlines, at the next thing that it has to do.

An alarm is set anew only if it has to ring earlier than before.  One that rings too early finds
nothing due, and the next is set then.  So an owner whose time moves on with each request leaves one
entry in the heap, not one for each request.

When the loop stood still, alarms wait until it has caught up (deadlines.py): a member whose
heartbeat waits in a socket is not late.
"""

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

from .deadlines import Deadlines
from .loop_clock import NEVER_MS


class _Alarm:
    """What the heap holds."""

    __slots__ = ("_expired", "at_ms", "done")

    def __init__(self, at_ms: int, expired: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.done = False
        self._expired = expired

    def expire(self) -> None:
        self.done = True
        self._expired()


Owner = TypeVar("Owner")


class Alarms(Generic[Owner]):
    """Those of all owners of one kind."""

    def __init__(self, deadlines: Deadlines, rings: Callable[[Owner], None]) -> None:
        """rings: called when the time of an owner has come; its alarm is gone then."""
        self._deadlines = deadlines
        self._rings = rings
        self._alarms: dict[Owner, _Alarm] = {}

    def set(self, owner: Owner, due_ms: int) -> None:
        """Ring at `due_ms` (of monotonic_ms), if no alarm of it rings before."""
        alarm = self._alarms.get(owner)
        if alarm is not None:
            if alarm.at_ms <= due_ms:
                return
            self.silence(owner)
        if due_ms < NEVER_MS:
            alarm = self._alarms[owner] = _Alarm(due_ms, lambda: self._ring(owner))
            self._deadlines.add(due_ms / 1000, alarm)

    def silence(self, owner: Owner) -> None:
        """It has nothing to do any more."""
        alarm = self._alarms.pop(owner, None)
        if alarm is not None:
            alarm.done = True
            self._deadlines.forget()

    def _ring(self, owner: Owner) -> None:
        self._deadlines.forget()
        self._alarms.pop(owner, None)
        if trio.current_time() < self._deadlines.grace_ends:
            self.set(owner, math.ceil(self._deadlines.grace_ends * 1000))
        else:
            self._rings(owner)

"""One alarm per group, in the broker's heap of deadlines, at the next thing that it has to do.

An alarm is set anew only where it has to ring earlier; one that rings too early finds nothing due,
and the next is set then.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ..loop.deadlines import Deadlines
from .group_rounds import NEVER_MS


class Due(Protocol):
    """A group, as far as its alarm goes."""

    group_id: str

    @property
    def due_ms(self) -> int:
        """When the next thing has to be done in it."""


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


AnyGroup = TypeVar("AnyGroup", bound=Due)


class GroupAlarms(Generic[AnyGroup]):
    """Those of all groups."""

    def __init__(self, deadlines: Deadlines, rings: Callable[[AnyGroup], None]) -> None:
        """rings: called when the time of a group has come; its alarm is gone then."""
        self._deadlines = deadlines
        self._rings = rings
        self._alarms: dict[str, _Alarm] = {}

    def set(self, group: AnyGroup) -> None:
        """Ring at `due_ms` of the group, if no alarm of it rings before."""
        alarm = self._alarms.get(group.group_id)
        if alarm is not None:
            if alarm.at_ms <= group.due_ms:
                return
            self.silence(group.group_id)
        if group.due_ms < NEVER_MS:
            alarm = _Alarm(group.due_ms, lambda: self._ring(group))
            self._alarms[group.group_id] = alarm
            self._deadlines.add(group.due_ms / 1000, alarm)

    def silence(self, group_id: str) -> None:
        """The group is another one from here on, or none."""
        alarm = self._alarms.pop(group_id, None)
        if alarm is not None:
            alarm.done = True
            self._deadlines.forget()

    def _ring(self, group: AnyGroup) -> None:
        self._deadlines.forget()
        self._alarms.pop(group.group_id, None)
        self._rings(group)

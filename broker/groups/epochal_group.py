"""What all groups are whose members take single steps by heartbeats: KIP-848's, share, streams.

    epoch              rises with every change
    assignment_epoch   the epoch that the target was made for
    due_ms             never later than the next thing that has to happen: `tick` looks then

Targets of a large group are REST_MS apart, and one that everybody has left is dealt out at once to
who comes next.  What is large, what a heartbeat does, and what is due, is each kind's own.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, TypeVar

from segbroker.protocol.errors import ErrorCode

from ..loop.loop_clock import NEVER_MS
from ..refused import Refused
from . import group_news
from .group_news import News, Tell, Who, untold
from .group_rounds import State
from .member_epochs import MemberEpochs

M = TypeVar("M", bound=MemberEpochs)

REST_MS: Final = 1_000
"""Between two targets of a large group: Kafka's consumer.assignment.interval.ms, by default, and
that of the other kinds."""


@dataclass(slots=True, eq=False)
class EpochalGroup(ABC, Generic[M]):
    """One group."""

    kind: ClassVar[str]
    """Kafka's word for such a group, as members are told of it."""

    group_id: str
    session_timeout_ms: int
    size_max: int
    tell: Tell = untold
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, M] = field(default_factory=dict)
    empty_since_ms: int = 0
    due_ms: int = NEVER_MS
    _rests_until_ms: int = 0
    """Until when no other target is made."""
    _is_settling: bool = False
    """Whether it was told that the epoch rose, and not yet that everybody is at the target."""

    @property
    @abstractmethod
    def state(self) -> str:
        """Kafka's word for where the group stands."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    def due_at(self, at_ms: int) -> None:
        """Something has to be done then."""
        self.due_ms = min(self.due_ms, at_ms)

    def _known(self, member_id: str) -> M:
        """A member.  Raises Refused."""
        member = self.members.get(member_id)
        if member is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def _check_place(self) -> None:
        """Raise Refused where there is none for one more."""
        if len(self.members) >= self.size_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The {self.kind} group has reached its maximum capacity of {self.size_max} "
                "members.",
            )

    def _may_retarget(self, now_ms: int, *, is_large: bool) -> bool:
        """Whether a target is made now; a large group rests after it."""
        if now_ms < self._rests_until_ms:
            return False
        if is_large:
            self._rests_until_ms = now_ms + REST_MS
        return True

    def _have_left(self, now_ms: int, why: str, last: Who, said: str = "") -> bool:
        """Members are gone, and the epoch has risen; whether anybody is left."""
        if self.members:
            self._tell_rise(why, last, said)
            return True
        self._tell(group_news.EMPTY)
        self.empty_since_ms, self._rests_until_ms = now_ms, 0
        return False

    def _tell(self, event: str, why: str = "", who: Who | None = None, said: str = "") -> None:
        self.tell(News(event, self.epoch, len(self.members), why, who, said))

    def _tell_rise(self, why: str, who: Who | None = None, said: str = "") -> None:
        """The epoch has risen."""
        self._is_settling = True
        self._tell(group_news.BEGAN, why, who, said)

    def _tell_settled(self) -> None:
        """A member took a step: whether it was the last one."""
        if self._is_settling and self.state == State.STABLE.value:
            self._is_settling = False
            self._tell(group_news.STABLE)

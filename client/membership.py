"""What it is to be a member of a consumer group, whichever protocol the member speaks.

    a Holder (group_reading) <--> a Membership
                                    classic_membership     JoinGroup, SyncGroup, Heartbeat: the
                                                           members assign
                                    consumer_membership    ConsumerGroupHeartbeat: the broker does

A membership joins, lives and leaves; the holder is the part that reads.  The membership says what
the member is given; the holder says which partitions it has, and gives up what it is not given any
more.  Which of the two protocols is spoken nobody else knows.
"""

from collections.abc import Callable, Sequence, Set
from enum import Enum
from typing import Protocol, TypeAlias

from .coordinator import Coordinator
from .engine import Call
from .errors import SegbrokerError
from .group_offsets import GroupMetadata
from .records import TopicPartition

Goodbye: TypeAlias = Callable[[str], Call[None]]
"""Says it on a lane of the coordinator's."""


class Phase(Enum):
    """Where a membership stands.

    OUT: none is wanted.  DUE: to join, or to join once more.  JOINING: it has asked to.
    RECONCILING: it is in, and goes over to what it was given.  STABLE: it has that.
    """

    OUT = "out"
    DUE = "due"
    JOINING = "joining"
    RECONCILING = "reconciling"
    STABLE = "stable"


class Membership(Protocol):
    """What the reading needs of a membership."""

    member_id: str
    coordinator: Coordinator

    @property
    def phase(self) -> Phase: ...

    @property
    def generation(self) -> int:
        """By which the member commits: a generation, or an epoch; -1: it is none."""

    @property
    def metadata(self) -> GroupMetadata:
        """Who commits."""

    @property
    def asks_as(self) -> GroupMetadata:
        """Who asks where the group stands in what it was given."""

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep what they have while others come and go."""

    @property
    def is_given(self) -> bool:
        """Whether what it was given last is its own: it is not about to join anew."""

    def has_all(self) -> bool:
        """Whether what it was given is all that it gets, as its group is now.  False, too, while
        that is not known: then the group is asked, and the holder told of the answer."""

    @property
    def watched(self) -> Set[str]:
        """Topics that it looks at besides those of this member."""

    def enter(self, *, not_before_ms: int = 0) -> None:
        """Be a member from now on, or from then on."""

    def rejoin(self, reason: str) -> None:
        """Something has changed that the group must know of."""

    def end(self, reason: str) -> Goodbye:
        """Be no member from now on; how that is said to the group, if there is anything to say.
        Static ones keep their place until their session ends."""


class Holder(Protocol):
    """What a membership needs of the reading."""

    def topics(self) -> Sequence[str]:
        """What is subscribed to."""

    def owned(self) -> Sequence[TopicPartition]:
        """What the member has and claims to go on with."""

    def prepare(self, now_ms: int, *, cooperative: bool) -> bool:
        """Give up what must be given up before joining; whether that is done."""

    def take_over(self, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        """The member was given exactly these."""

    def settled(self) -> None:
        """The group knows that the member has what it was given, or has said whether that is
        all."""

    def lost(self, now_ms: int) -> None:
        """The group has gone on without this member: nothing is its own any more."""

    def kept_out(self, error: SegbrokerError) -> None:
        """It has tried to join for as long as that may take, and goes on."""

    def failed(self, error: SegbrokerError) -> None:
        """There is no membership, and trying again at once would not help."""

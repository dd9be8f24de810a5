"""The epoch of a member that takes steps by heartbeats, and those at which it may be instead.

A step moves a member to the epoch of its group's target, and it is told so.  If that answer is
lost, or could not be given because what it says is not durable, the member repeats itself at the
epoch that it knows.  That may happen several times while the group goes on: the member is at what
it was told last, which is what it said last or any epoch since.  What it was given at a later epoch
than it says, it has not heard of.  Who has said an epoch is at no earlier one: that was said before
and came late, by a connection that it has given up.

So may be what comes by an older connection than the newest by which a member was heard of, at
whatever epoch.  It is answered COORDINATOR_NOT_AVAILABLE once: who has given up does not hear
that, and who uses both asks again.

Kafka takes the last epoch before the present one, and no other: whose answer is lost twice is
fenced, and gives up all that it has.
"""

from dataclasses import dataclass
from typing import Final

from segbroker.protocol.errors import ErrorCode

from ..refused import Refused

# What a member may say that is at none.
JOIN: Final = 0
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2
"""A static member, which means to come back."""


@dataclass(slots=True, eq=False, kw_only=True)
class MemberEpochs:
    """Of one member."""

    epoch: int = 0
    """Of the target that it is at; 0: none yet."""
    previous_epoch: int = -1
    """What it said last before it was moved to `epoch`; 0 or less: nothing."""
    said_epoch: int = 0
    """What it said last to this broker; 0: nothing.  Not written down."""
    newest_connection: int = 0
    """By which it was heard of; a later one has a greater number.  Not written down."""
    was_asked_again: bool = False
    """Whether what came by an older one was refused."""

    def check_connection(self, number: int) -> None:
        """A heartbeat comes by this connection.  Raise Refused if it may have come late."""
        if number > self.newest_connection:
            self.newest_connection, self.was_asked_again = number, False
        elif number < self.newest_connection and not self.was_asked_again:
            self.was_asked_again = True
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "it has said something by a newer connection"
            )

    def may_be_at(self, epoch: int) -> bool:
        """Whether this is its epoch, or one that it may have been told last."""
        earliest = max(self.previous_epoch, self.said_epoch)
        return epoch == self.epoch or 0 < earliest <= epoch < self.epoch

    def move_to(self, epoch: int) -> None:
        """It is at this epoch now.

        Who joins may have been in the group before and not have said this, if the request came
        late: it is where it was.
        """
        if epoch == self.epoch:
            return
        if self.said_epoch > 0:
            self.previous_epoch = self.said_epoch
        elif self.previous_epoch <= 0:
            self.previous_epoch = self.epoch
        self.epoch = epoch

"""The epoch of a member that takes steps by heartbeats, and those at which it may be instead.

A step moves a member to the epoch of its group's target, and it is told so.  If that answer is
lost, or could not be given because what it says is not durable, the member repeats itself at the
epoch that it knows.  That may happen several times while the group goes on: the member is at what
it was told last, which is what it said last or any epoch since.  What it was given at a later epoch
than it says, it has not heard of.  Who has said an epoch is at no earlier one: that was said before
and came late, by a connection that it has given up.

Kafka takes the last epoch before the present one, and no other: whose answer is lost twice is
fenced, and gives up all that it has.
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False, kw_only=True)
class MemberEpochs:
    """Of one member."""

    epoch: int = 0
    """Of the target that it is at; 0: none yet."""
    previous_epoch: int = -1
    """What it said last before it was moved to `epoch`; 0 or less: nothing."""
    said_epoch: int = 0
    """What it said last to this broker; 0: nothing.  Not written down."""

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

"""The epoch of a member that takes steps by heartbeats, and those at which it may be instead.

A step moves a member to the epoch of its group's target, and it is told so.  If that answer is
lost, or could not be given because what it says is not durable, the member repeats itself at the
epoch that it knows.  That may happen several times while the group goes on: the member is at what
it was told last, which is what it said last or any epoch since.  What it was given at a later epoch
than it says, it has not heard of.

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

    def may_be_at(self, epoch: int) -> bool:
        """Whether this is its epoch, or one that it may have been told last."""
        return epoch == self.epoch or 0 < self.previous_epoch <= epoch < self.epoch

    def move_to(self, epoch: int, said: int) -> None:
        """It is at this epoch now.

        said: the one of its heartbeat.  Who joins may have been in the group before and not have
        said this, if the request came late: it is where it was.
        """
        if epoch == self.epoch:
            return
        if said > 0:
            self.previous_epoch = said
        elif self.previous_epoch <= 0:
            self.previous_epoch = self.epoch
        self.epoch = epoch

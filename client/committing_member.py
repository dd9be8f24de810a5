"""As which member of the group the caller commits what it was handed.

A commit names a member and its generation, so that the broker refuses it where another member has
the partitions by now, and may have gone further.  The member that the consumer is at that moment is
not always the one:

    in hand, and lost meanwhile      the member that had it: the consumer may have come back, and
                                     another one may have worked at it in between
    handed before, and gone          the same, until the caller comes back and hears that it is
    the consumer is in no group      the member that it was.  Offsets of whoever names no member are
                                     taken at their word (0330)

A member that it was is named by its id alone.  Under its instance id a static one that is back is
another member, by which it would count as fenced: not void once, but for good.

Threads: everything under the shell's lock, but for reading who it is, which may be in the middle of
a loss.
"""

from collections.abc import Collection

from .group_commits import Commits
from .group_offsets import GroupMetadata
from .membership import Membership
from .progress import Progress
from .records import TopicPartition


class CommittingMember:
    """See the module."""

    def __init__(self, membership: Membership, progress: Progress, commits: Commits) -> None:
        self._membership = membership
        self._progress = progress
        self._commits = commits
        # Who the member was when it was last given something, and when it lost what the caller has
        # in hand.
        self._given_as = membership.metadata
        self._lost_as: GroupMetadata | None = None
        # The same of what it was handed and does not have any more, and has not heard so.
        self._unheard_as: GroupMetadata | None = None

    @property
    def of_in_hand(self) -> GroupMetadata:
        """Who commits what the caller has in hand."""
        present = self.present
        return self._lost_as or present

    @property
    def of_all(self) -> GroupMetadata:
        """Who commits all that the caller was handed until now, as in a transaction over several
        turns of a loop."""
        present = self.present
        return self._lost_as or self._unheard_as or present

    @property
    def present(self) -> GroupMetadata:
        """The member that it is; that it was, while it says goodbye.

        Read before what was lost: what a new membership has lost of the old one is noted by the
        time that it is one."""
        present = self._membership.metadata
        return present if present.generation >= 0 else self._given_as

    def is_given(self) -> None:
        """The member is given partitions; what it has lost by that was the one's before."""
        self._given_as = self._membership.metadata._replace(instance_id=None)

    def goes_unheard(self, partitions: Collection[TopicPartition]) -> None:
        """These are to go, and the caller has not heard so.  Said while they are still read."""
        if self._unheard_as is None and self._commits.uncommitted(partitions):
            self._unheard_as = self._given_as

    def drops(self, partitions: Collection[TopicPartition]) -> None:
        """These go now, whatever the caller has in hand of them."""
        if self._lost_as is None and any(map(self._progress.is_busy_with, partitions)):
            self._lost_as = self._given_as

    def came_back(self) -> None:
        """The caller has gone past what it had in hand, and hears what has become of the rest."""
        self._lost_as = self._unheard_as = None

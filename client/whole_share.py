"""Whether a member of a group has all that it is to get: who reads to an end asks that there.

    at the end of what it has --describe the group--> it has its whole share: that is the end
         ^                                           \\
         +---- what it is given, or a while later <---+  there is more to come

A partition that changes hands is nobody's for a moment, and who has just come has nothing as yet.
A member cannot tell that from what it was given.  If those that read to the end went by that, the
ones that have just come would end with nothing; and what one of them was to get would be read by
nobody, if the member that gave it up comes to its end before it hears that it is to have it back.

    KIP-848   the group says what a member has, and what it is to have: both are the same; so it is
              for a member of the classic protocol in such a group
    classic   all partitions of the member's topics are somebody's, and nobody is joining

What cannot be told counts as whole: the member may not describe its group, the broker does not know
the request, or it is a group of a strange strategy, which leaves partitions out, for longer than a
rebalance may take.  While no broker answers, it goes on asking.  So it does where the group is not
there: the member hears that by its heartbeat, and joins again.

Invariant: one question at a time.
Source: KIP-429 (a partition is given up in one generation and given in the next), KIP-848
(`TargetAssignment` of ConsumerGroupDescribe).
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from segbroker.protocol.consumer_protocol import assigned_partitions
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
)
from segbroker.protocol.messages_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
)

from .completion import Completion
from .coordinator import Coordinator
from .engine import Call, Engine
from .errors import SegbrokerError, check_code

# The group is working out who gets what.
ASSIGNING: Final = "Assigning"
STABLE: Final = "Stable"
# It is not there, or of another type.
DEAD: Final = "Dead"


class Standing(NamedTuple):
    """What a member is in its group: what it was told there is of that alone."""

    member_id: str
    generation: int


class WholeShare:
    """See the module."""

    def __init__(
        self,
        engine: Engine,
        ask: Callable[[Standing], Call[bool]],
        *,
        answered: Callable[[bool], object],
    ) -> None:
        """
        ask: whether the member has its whole share.
        answered: called with that, after each question.
        """
        self._engine = engine
        self._ask_group = ask
        self._answered = answered
        self._backoff = engine.backoff()
        self._is_wanted = False
        self._is_asking = False
        self._ask_ms = 0
        # In which it was asked last, since when, and whether it was the whole.
        self._standing: Standing | None = None
        self._since_ms = 0
        self._is_whole = False

    def is_whole(self, standing: Standing) -> bool:
        """Whether the group has nothing more for the member; what is not known is to be asked."""
        self._is_wanted = not (self._is_whole and self._standing == standing)
        return not self._is_wanted

    def forget(self) -> None:
        """The member was given something else."""
        self._standing = None

    def is_due(self, now_ms: int) -> bool:
        """Whether to `ask`."""
        return self._is_wanted and not self._is_asking and now_ms >= self._ask_ms

    def ask(self, standing: Standing, now_ms: int) -> None:
        """For a member that has what it was given, while nothing of it is on its way."""
        if standing != self._standing:
            self._standing, self._since_ms, self._is_whole = standing, now_ms, False
            self._backoff.reset()
        self._is_wanted, self._is_asking = False, True
        self._ask_ms = now_ms + self._backoff.next_delay_ms()
        call = self._engine.call(self._ask_group(standing), now_ms)
        call.on_done(lambda: self._done(standing, call))

    @property
    def next_wake_ms(self) -> int | None:
        return self._ask_ms if self._is_wanted and not self._is_asking else None

    def _done(self, standing: Standing, call: Completion[bool]) -> None:
        self._is_asking = False
        match call.error:
            case None:
                is_whole = call.result()
            case SegbrokerError() as error:
                is_whole = not error.retryable
            case _:
                is_whole = True
        if standing == self._standing:
            self._is_whole = is_whole
        self._answered(is_whole)

    def has_asked_for(self, patience_ms: int) -> bool:
        """Whether the member has asked for so long in its present standing."""
        return self._ask_ms >= self._since_ms + patience_ms


def is_target_reached(
    coordinator: Coordinator, standing: Standing, given: Collection[tuple[object, int]]
) -> Call[bool]:
    """KIP-848: whether what the member is to have is what it has, and what it knows of, by the ids
    of the topics."""
    reply = yield from coordinator.ask(
        ConsumerGroupDescribeRequest(
            group_ids=[coordinator.key], include_authorized_operations=False
        )
    )
    assert isinstance(reply, ConsumerGroupDescribeResponse)
    (group,) = reply.groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return False
    check_code(group.error_code, f"group {group.group_id!r}", group.error_message)
    known = set(given)
    return group.group_state != ASSIGNING and any(
        member.member_id == standing.member_id
        and _partitions(member.target_assignment) == _partitions(member.assignment) == known
        for member in group.members
    )


def is_all_assigned(
    coordinator: Coordinator,
    standing: Standing,
    partitions: Collection[tuple[str, int]],
    given: Collection[tuple[object, int]],
    is_late: Callable[[], bool],
) -> Call[bool]:
    """Classic: whether each of these is somebody's, and the member is one of those.

    given: what it has, by the ids of the topics, for a group of KIP-848.
    is_late: whether a rebalance would be over: what is nobody's then is left out by the strategy.
    """
    reply = yield from coordinator.ask(DescribeGroupsRequest(groups=[coordinator.key]))
    assert isinstance(reply, DescribeGroupsResponse)
    (group,) = reply.groups
    if group.group_state == DEAD:
        return (yield from is_target_reached(coordinator, standing, given))
    check_code(group.error_code, f"group {group.group_id!r}", group.error_message)
    if group.group_state != STABLE:
        return False
    if all(member.member_id != standing.member_id for member in group.members):
        return False
    return assigned_in(group).issuperset(partitions) or is_late()


def assigned_in(group: DescribeGroupsResponseGroup) -> set[tuple[str, int]]:
    """What the members of a classic group have, by its last generation."""
    return {
        pair
        for member in group.members
        for pair in assigned_partitions(member.member_assignment) or ()
    }


def _partitions(
    assignment: DescribedAssignment,
) -> set[tuple[object, int]]:
    return {
        (topic.topic_id, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    }

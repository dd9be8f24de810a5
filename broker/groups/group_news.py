"""What a group tells of itself: the state machines say it, group_lines.py makes log lines of it.

| event | when |
|---|---|
| group_member_joined | somebody has a place who had none, or took that of a static member |
| group_member_removed | a place is gone |
| group_member_away | a static member of KIP-848's protocol has ended and means to come back |
| group_rebalance_began | a classic group prepares a generation; the epoch of another group rose |
| group_stable | everybody has what the last rebalance gives him; share groups do not wait for it |
| group_empty | nobody is left |

A reason is one of the words below.  What a client gives as its own (KIP-800) is told beside it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

JOINED: Final = "group_member_joined"
REMOVED: Final = "group_member_removed"
AWAY: Final = "group_member_away"
BEGAN: Final = "group_rebalance_began"
STABLE: Final = "group_stable"
EMPTY: Final = "group_empty"

# Why a member was removed, and a rebalance began for it.
SESSION_ENDED: Final = "session ended"
LEFT: Final = "left"
NOT_JOINED: Final = "did not join in time"
NOT_SYNCED: Final = "did not sync in time"
NOT_LET_GO: Final = "did not let go of partitions in time"
REPLACED: Final = "replaced by the same static member"
EXPELLED: Final = "removed by an administrator"
# Why else a rebalance began.
CAME: Final = "member joined"
JOINED_AGAIN: Final = "member joined again"
RESUBSCRIBED: Final = "subscription changed"
OTHER_TOPICS: Final = "topics changed"
OTHER_STANDBYS: Final = "number of standbys changed"
TURNED: Final = "protocol of the group changed"
NOT_RECORDED: Final = "generation could not be recorded"


class Who(NamedTuple):
    """A member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


def why_gone(who: Who, named: str, by: str | None) -> str:
    """Why a classic member is gone that a LeaveGroup names: it asked for that itself, or somebody
    else did, who has another client id or knows the instance alone.

    named: the member id of the request.  by: the client id of who asks; None: it is the member.
    """
    return LEFT if named and by in (None, who.client_id) else EXPELLED


class News(NamedTuple):
    """One fact.

    number: the generation or epoch of the group.  members: how many are in it.  said: what the
    client gives as its reason.
    """

    event: str
    number: int
    members: int
    reason: str = ""
    who: Who | None = None
    said: str = ""


Tell: TypeAlias = Callable[[News], None]


def untold(news: News) -> None:
    """For a group that nobody listens to."""

"""When a member has said what it says: now, but for what came late.

| after the loop stood still (loop/deadlines.py), what comes | counts as said |
|---|---|
| by a connection that is open | now |
| by one that the client has ended since | when the loop began to stand still |
| a commit, by whichever connection | when the loop began to stand still |

A heartbeat by which a member joins or lives where the broker assigns is not looked at when its
client has ended the connection (`check_waits`): nobody hears the answer, and who has given up says
more by its next connection.  It says what is read, and so what others may have; a network that was
cut brings it when the member has said something else since, and reads more.  Where no end is known
yet, its epoch or the number of its connection tells that it is late (groups/member_epochs.py).

A client that has had no answer for its session gives up: librdkafka ends its connection and joins
as a new member.  Its old heartbeat, or its first try to join, is still in the socket.  Were they
signs of life, the rebalance of the new members would wait for the old ones for a whole session.
What a member has said since, by another connection, counts for more (`heard_ms` of a member).
A commit that has had no answer it sends again by its next connection, under the id that it has
given up; who lives says so by its heartbeats, too.
Joins and syncs of who has a place are none of this: they count when they are read.
A rebalance begins now, whoever it begins for: the others have their whole time to join again.
"""

from segbroker.protocol.errors import ErrorCode

from ..core import Core
from ..loop.loop_clock import monotonic_ms
from ..peers.peer import Peer
from ..refused import Refused


def said_ms(core: Core, peer: Peer) -> int:
    """The time of a request of a member, on the clock of the loop."""
    now_ms = monotonic_ms()
    if _is_late(core, now_ms) and peer.outbox.has_hung_up:
        return int(core.deadlines.stood_still_since * 1000)
    return now_ms


def committed_ms(core: Core) -> int:
    """The time of a commit of a member, on the clock of the loop."""
    now_ms = monotonic_ms()
    return int(core.deadlines.stood_still_since * 1000) if _is_late(core, now_ms) else now_ms


def _is_late(core: Core, now_ms: int) -> bool:
    """Whether the loop stood still just now, so that what is read may have waited for it."""
    core.deadlines.look_at_clock()
    return now_ms < core.deadlines.grace_ends * 1000


def check_waits(peer: Peer) -> None:
    """Raise Refused if nobody waits for an answer."""
    if peer.outbox.has_hung_up:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the connection was ended")

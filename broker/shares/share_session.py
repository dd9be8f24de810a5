"""Share sessions (KIP-932): which partitions a member fetches from, over requests.

A member opens its session with epoch 0, names what changes with each request after that, and
closes it with epoch -1.  A session also ends with the connection that opened it.  Records that its
member had acquired by then are available again.  A member that opens another session instead has
lost count of its epochs: it keeps the records that it has acquired, as in Kafka.

Of thousands of partitions most have nothing to hand out.  So a session knows which ones to look at
(`ready`): a new one, one in which something happened since the last look, and one in which that
look found records, or an error to report.

Limits: as many sessions as `most` says (SHARE_SESSION_LIMIT_REACHED), PARTITIONS_MAX partitions in
all of them (likewise).
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from segbroker.protocol.errors import ErrorCode

from ..peers.peer import Peer
from ..refused import Refused

PARTITIONS_MAX: Final = 100_000
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
_RECORD_SIZE: Final = 1 << 10
"""A guess, before anything was read."""


class Place(NamedTuple):
    """A partition of a topic, by the topic's id."""

    topic_id: UUID
    partition: int


class ShareWaiter(Protocol):
    """A request that waits for records."""

    def look_again(self) -> None:
        """There may be some, or its session is over."""


class Saying(Protocol):
    """Acknowledgements that are heard piece by piece."""

    def finish(self) -> None:
        """Hear the rest of them now."""


class ShareSession:
    """What one member fetches from."""

    __slots__ = (
        "_ended",
        "_isolation",
        "_rules",
        "epoch",
        "group_id",
        "is_open",
        "member_id",
        "places",
        "ready",
        "record_size",
        "saying",
        "waiters",
    )

    def __init__(
        self, group_id: str, member_id: str, ended: "Callable[[ShareSession], None]"
    ) -> None:
        """ended: told when it is over, but not where another takes its place."""
        self.group_id = group_id
        self.member_id = member_id
        # Of the next request.
        self.epoch = FIRST_EPOCH + 1
        self.places: dict[Place, None] = {}
        # Which of them are to be looked at, in this order; who had its turn goes to the end.
        self.ready: dict[Place, None] = {}
        self.waiters: dict[ShareWaiter, None] = {}
        self.saying: dict[Saying, None] = {}
        self.is_open = True
        # Bytes that a record took in what was read last.
        self.record_size = _RECORD_SIZE
        self._ended = ended
        self._rules: object = None
        self._isolation = 0

    def go_by(self, rules: object, isolation: int) -> None:
        """What its member may read, and which records: where that is new, all are looked at."""
        if rules is not self._rules or isolation != self._isolation:
            self._rules, self._isolation = rules, isolation
            self.ready |= self.places

    def look_again(self, place: Place) -> None:
        """There may be more to acquire in a partition, or something to tell of it."""
        if place in self.places:
            self.ready[place] = None
            self._wake()

    def has_nothing(self, place: Place) -> None:
        """Nothing more of this partition until something happens in it."""
        self.ready.pop(place, None)

    def had_its_turn(self, place: Place) -> None:
        """The others are looked at first the next time."""
        if place in self.ready:
            del self.ready[place]
            self.ready[place] = None

    def close(self) -> None:
        """It is over; a second time does nothing.  What its member has said before holds."""
        if self.is_open:
            for one in tuple(self.saying):
                one.finish()
            self.give_way()
            self._ended(self)

    def give_way(self) -> None:
        """Another takes its place, or none: nobody takes the answers of its requests."""
        self.is_open = False
        self._wake()

    def _wake(self) -> None:
        for waiter in self.waiters:
            waiter.look_again()


class ShareSessions:
    """Those of one broker."""

    def __init__(
        self,
        most: Callable[[], int],
        ended: Callable[[ShareSession], None],
        followed: Callable[[ShareSession, ShareSession], None],
    ) -> None:
        """ended: told of each session that is over; followed: of one whose place another takes."""
        self._most = most
        self._told_end = ended
        self._told_next = followed
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._peers: dict[ShareSession, Peer] = {}
        self._places = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, peer: Peer, group_id: str, member_id: str, places: Iterable[Place]
    ) -> ShareSession:
        """A new session of a member, in place of the one that it had.  Raises Refused."""
        before = self._sessions.get((group_id, member_id))
        if before is None and len(self._sessions) >= self._most():
            raise Refused(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"there are {len(self)} share sessions"
            )
        session = ShareSession(group_id, member_id, self._end)
        self._add(session, places, instead_of=0 if before is None else len(before.places))
        if before is not None:
            before.give_way()
            self._forget(before)
            self._told_next(before, session)
        self._sessions[group_id, member_id] = session
        self._peers[session] = peer
        peer.keep(session)
        return session

    def find(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request that is not its first: at this epoch, and then at the next.

        Raises Refused: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise Refused(
                ErrorCode.SHARE_SESSION_NOT_FOUND, f"{member_id!r} has no share session here"
            )
        if epoch == FINAL_EPOCH:
            return session
        if session.epoch != epoch:
            raise Refused(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the share session is at epoch {session.epoch}, not at {epoch}",
            )
        session.epoch = epoch + 1 if epoch < _EPOCH_MAX else FIRST_EPOCH + 1
        return session

    def change(
        self, session: ShareSession, added: Iterable[Place], forgotten: Iterable[Place]
    ) -> None:
        """A request names others.  Raises Refused; then nothing has changed."""
        self._add(session, added)
        for place in forgotten:
            if place in session.places:
                del session.places[place]
                session.has_nothing(place)
                self._places -= 1

    def _add(self, session: ShareSession, places: Iterable[Place], *, instead_of: int = 0) -> None:
        """instead_of: partitions of the session whose place this one takes."""
        new = dict.fromkeys(place for place in places if place not in session.places)
        total = self._places + len(new) - instead_of
        if total > PARTITIONS_MAX:
            raise Refused(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"all share sessions would have {total} partitions, limit {PARTITIONS_MAX}",
            )
        session.places |= new
        session.ready |= new
        self._places += len(new)

    def _end(self, session: ShareSession) -> None:
        self._forget(session)
        self._told_end(session)

    def _forget(self, session: ShareSession) -> None:
        del self._sessions[session.group_id, session.member_id]
        self._peers.pop(session).drop(session)
        self._places -= len(session.places)

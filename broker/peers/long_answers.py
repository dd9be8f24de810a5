"""Long answers: how much memory those may take that are being made, or that nobody takes.

    how large it will be is known -> its turn (loop/address_turns.py) -> made, encoded
                                                                      -> in the socket

A request of 25 bytes may ask for a hundred thousand rows, and one that names as many is answered
with a row for each.  So an answer that will be long is reckoned before its first row is made, and
the sum of those is limited; one address has half of it, so that a client that takes nothing of what
it asked for keeps only its own address waiting.  From when it is encoded on, an answer takes what
it has bytes.  One that is short takes no room, and waits for nobody.

Who waits holds nothing: no answer, and no room of a large request (loop/large_requests.py).  Nor is
a long answer made behind another of its connection that may take long: that is sent first, as Kafka
answers one request of a connection after the other.

What a group tells its leader, or a member its assignment, is decided when others have come, and
would have to be held while it waits (apis/later_reply.py).  So it begins at once or not at all: its
connection is closed then.  It will come again, so for WAIT_S it counts as one that waits.

At the limit an answer waits for its turn, WAIT_S at most; then its connection is closed.  So is one
that did not take its answer within TAKEN_S while somebody waits.  Whoever is alone is answered,
whatever it asks for.  A connection that waits is not read, so the line is no longer than there are
connections.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final

import trio

from ..loop.address_turns import AddressTurns
from .peer import Peer
from .replies import BYTES_PER_SLOT

BYTES_MAX: Final = 256 << 20
"""Bytes that all long answers may be reckoned at, until they are sent."""
HOST_BYTES_MAX: Final = BYTES_MAX // 2
"""The same of one address."""
LONG_BYTES: Final = 600_000
"""What is reckoned at no more than this takes no room: it is made in one step of the loop."""
WAIT_S: Final = 60.0
"""Longest wait for room."""
TAKEN_S: Final = 20.0
"""How long a client has to take its answer while others wait for the room that it takes."""
_LOOK_S: Final = 1.0


class NoRoom(Exception):
    """An answer waited too long, for its turn or to be taken, or may not wait; its connection is
    closed."""


class _TurnedAway:
    """Addresses of which an answer was turned away that does not wait, and will be asked for again.

    Else who takes nothing would keep its room for ever, as nobody is seen to wait for it.  An
    address counts for WAIT_S, None for all of them: they have too much together.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[str | None, float] = {}  # the latest is last

    def add(self, host: str | None) -> None:
        now = trio.current_time()
        self._until.pop(host, None)
        self._until[host] = now + WAIT_S
        while self._until[first := next(iter(self._until))] <= now:
            del self._until[first]

    def counts(self, host: str) -> bool:
        """Whether it was for want of what this address holds."""
        return trio.current_time() < max(self._until.get(host, 0), self._until.get(None, 0))


class LongAnswer:
    """One answer, and the room that it takes: none at first. To be left as a context."""

    __slots__ = ("_left", "_peer", "_size", "_turned_away", "_turns", "_wanted")

    def __init__(self, turns: AddressTurns, turned_away: "_TurnedAway", peer: Peer) -> None:
        self._turns = turns
        self._turned_away = turned_away
        self._peer = peer
        self._size = 0  # what it is reckoned at while it has room
        self._wanted = 0  # what it waits for
        self._left: trio.Event | None = None  # who waits until it has left

    def __enter__(self) -> "LongAnswer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def may_begin(self, size: int) -> bool:
        """Whether an answer of about `size` bytes may be made now, without a wait; if not, `wait`
        and ask again.  Never False twice."""
        if self._size or size <= LONG_BYTES:
            return True
        self._wanted = size
        if not self._peer.outbox.is_idle or not self._turns.takes_now(self._host, size):
            return False
        self._size = size
        return True

    async def wait(self) -> None:
        """Until there is room for what `may_begin` was asked.

        Raises:
            NoRoom: not within WAIT_S.
            trio.ClosedResourceError: the client has gone meanwhile.
        """
        await self._peer.outbox.wait_empty()
        with trio.move_on_after(WAIT_S) as patience:
            await self._turns.wait(self._host, self._wanted)
            self._size = self._wanted
        if patience.cancelled_caught:
            raise NoRoom(f"no room for an answer of about {self._wanted} bytes within {WAIT_S:g} s")
        if self._peer.outbox.has_hung_up:
            raise trio.ClosedResourceError

    def begins_at_once(self, size: int) -> bool:
        """Whether there is room for an answer of about `size` bytes, which does not wait: for one
        that comes later than its request, behind others or before them."""
        host = self._host
        if not self._turns.has_room(host, size):
            self._turned_away.add(None if self._turns.has_share(host, size) else host)
            return False
        self._change(size)
        return True

    def leave(self) -> None:
        """It is sent, or will not be.  Twice is once."""
        self._change(0)
        if self._left is not None:
            self._left.set()

    async def hold(self, size: int) -> None:
        """As `taken`, until it leaves, for an answer of `size` bytes that its connection does not
        wait for: that is closed where the client did not take it."""
        self._left = trio.Event()
        try:
            await self.taken(size, self._left.wait)
        except NoRoom as exc:
            self._peer.outbox.break_off(exc)

    async def sent(self) -> None:
        """Until all that its connection is owed is taken; nothing of one that took no room.

        Raises NoRoom: see `taken`.
        """
        outbox = self._peer.outbox
        # What an outbox owes is counted in requests, and a reply by its bytes.
        await self.taken(len(outbox) * BYTES_PER_SLOT, outbox.wait_empty)

    async def taken(self, size: int, left: Callable[[], Awaitable[None]]) -> None:
        """Until `left()` is over: the client has taken its `size` bytes, or is gone.

        Raises NoRoom: it did not within TAKEN_S, and others wait.
        """
        if not self._size:
            return
        self._change(size)
        until = trio.current_time() + TAKEN_S
        while self._size and not self._peer.outbox.broken:
            with trio.move_on_at(max(until, trio.current_time() + _LOOK_S)):
                await left()
                return
            if self._turns.is_waited_for(self._host) or self._turned_away.counts(self._host):
                raise NoRoom(f"an answer was not taken within {TAKEN_S:g} s, and others wait")

    @property
    def _host(self) -> str:
        return self._peer.address[0]

    def _change(self, size: int) -> None:
        delta, self._size = size - self._size, size
        if delta:
            self._turns.change(self._host, delta)


class LongAnswers:
    """What is held by answers, and who waits."""

    __slots__ = ("_turned_away", "_turns")

    def __init__(self) -> None:
        self._turns = AddressTurns(BYTES_MAX, HOST_BYTES_MAX)
        self._turned_away = _TurnedAway()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._turns)

    @property
    def held_bytes(self) -> int:
        """What all long answers are reckoned at."""
        return self._turns.in_work

    @property
    def bytes_max(self) -> int:
        """Most of it, but for one that is alone."""
        return self._turns.most

    def answer(self, peer: Peer) -> LongAnswer:
        """One that is about to be made."""
        return LongAnswer(self._turns, self._turned_away, peer)

"""Work of which only so much is done at once, and for which addresses take turns.

    asked for -> line -> its turn: what is in work leaves room for it, of all and of its address
                                                                           -> in work -> given back

A weight is in any unit: bytes that it will take, or one for each.  Whoever is too heavy for the
limit is served when it is alone, and for the share of its address when nothing else of that address
is in work.  An address with a thousand connections in the line has one turn in a round, like every
other (address_line.py); one that has used up its share is passed over.  Whoever gives up leaves the
line: strangers come and go faster than work is done.

Behind one that is next, and for which there is no room yet, everybody waits: it would wait for ever
if lighter ones went on before it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from .address_line import AddressLine


class _Turn:
    """Somebody in the line."""

    __slots__ = ("reached", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.reached = trio.Event()


class AddressTurns:
    """What is in work, and who waits."""

    __slots__ = ("_by_host", "_in_work", "_line", "_share", "most")

    def __init__(self, most: int, share: int | None = None) -> None:
        """most: what may be in work at once, in the unit of the weights.  share: the same of one
        address; None: all of it."""
        self.most = most
        self._share = most if share is None else share
        self._in_work = 0
        # An address that has nothing in work is not remembered.
        self._by_host: dict[str, int] = {}
        self._line: AddressLine[_Turn] = AddressLine()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    @property
    def in_work(self) -> int:
        """The weight of all that is in work."""
        return self._in_work

    @asynccontextmanager
    async def turn(self, host: str, weight: int = 1) -> AsyncIterator[None]:
        """Work for an address, when it is its turn."""
        await self.wait(host, weight)
        try:
            yield
        finally:
            self.change(host, -weight)

    def takes_now(self, host: str, weight: int) -> bool:
        """Begin work without a wait, if nobody waits and there is room; else nothing happens."""
        if self._line or not self.has_room(host, weight):
            return False
        self.change(host, weight)
        return True

    def has_room(self, host: str, weight: int) -> bool:
        """Whether there is room, whoever waits for it."""
        return self.has_share(host, weight) and self._is_room(weight)

    def has_share(self, host: str, weight: int) -> bool:
        """Whether its address has room, whatever all of them have."""
        held = self._by_host.get(host, 0)
        return not held or held + weight <= self._share

    async def wait(self, host: str, weight: int) -> None:
        """Begin work when it is its turn.  Whoever comes back from here gives it back: `change`."""
        turn = _Turn(weight)
        self._line.put(host, turn)
        self._serve()
        try:
            await turn.reached.wait()
        except BaseException:
            if turn.reached.is_set():  # just when it gave up
                self.change(host, -weight)
            else:
                self._line.leave(host, turn)
                self._serve()
            raise

    def change(self, host: str, delta: int) -> None:
        """What an address has in work weighs so much more; less: it gives that back."""
        self._in_work += delta
        if held := self._by_host.get(host, 0) + delta:
            self._by_host[host] = held
        else:
            self._by_host.pop(host, None)
        if delta < 0:
            self._serve()

    def is_waited_for(self, host: str) -> bool:
        """Whether somebody waits for what an address has in work: of that address, or of any, where
        all of them together have too much."""
        return self._line.next_host(lambda waiting, _: waiting == host) is not None or (
            self._line.next_host(self._may_go_on) is not None
        )

    def _is_room(self, weight: int) -> bool:
        return not self._in_work or self._in_work + weight <= self.most

    def _may_go_on(self, host: str, turn: _Turn) -> bool:
        return self.has_share(host, turn.weight)

    def _serve(self) -> None:
        while (host := self._line.next_host(self._may_go_on)) is not None:
            turn = self._line.first_of(host)
            if not self._is_room(turn.weight):
                return
            self._line.take(host)
            self.change(host, turn.weight)
            turn.reached.set()

"""Work of which only so much is done at once, and for which addresses take turns.

    asked for -> line -> its turn: what is in work leaves room for it, or nothing is in work

Whoever is too heavy for the limit is served when it is alone.  An address with a thousand
connections in the line has one turn in a round, like every other (address_line.py).  Whoever gives
up leaves the line: strangers come and go faster than work is done.
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

    __slots__ = ("_in_work", "_line", "_most")

    def __init__(self, most: int) -> None:
        """most: what may be in work at once, in the unit of the weights."""
        self._most = most
        self._in_work = 0
        self._line: AddressLine[_Turn] = AddressLine()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    @asynccontextmanager
    async def turn(self, host: str, weight: int = 1) -> AsyncIterator[None]:
        """Work for an address, when it is its turn."""
        turn = _Turn(weight)
        self._line.put(host, turn)
        self._serve()
        try:
            await turn.reached.wait()
            yield
        finally:
            if turn.reached.is_set():
                self._in_work -= weight
            else:
                self._line.leave(host, turn)
            self._serve()

    def _serve(self) -> None:
        while self._line:
            turn = self._line.first()
            if self._in_work and self._in_work + turn.weight > self._most:
                return
            self._line.take()
            self._in_work += turn.weight
            turn.reached.set()

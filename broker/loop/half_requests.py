"""Memory of requests that are not whole yet, or wait: over all connections, and of each address.

A large request is received piece by piece, into a buffer that it takes until it is done with.
Above the budget every connection in the middle of a large request waits.  An address above its own
share waits alone, so that it cannot take the room of all others.

Whoever has held something for longest, of all and of each address, never waits: a request that is
larger than a budget comes through, and of two that are larger together one after the other.  So the
budget of all may be passed by one request.  Whoever holds something, and from whom nothing comes
while others wait for it, is closed (connections/watchdog.py).

Who waits is woken when there may be room, one at a time, and wakes the next: addresses take turns.
Thousands may wait, and all that others hold changes with every large request.

Limit: addresses are remembered as long as they hold something, or wait, so there are no more of
them than connections.
"""

from collections import Counter

import trio

from .address_line import AddressLine


class _Held:
    """What some connections hold: in all, and who of them, for longest first."""

    __slots__ = ("by_holder", "size")

    def __init__(self) -> None:
        self.by_holder: dict[object, int] = {}
        self.size = 0

    def change(self, holder: object, delta: int) -> None:
        self.size += delta
        if held := self.by_holder.get(holder, 0) + delta:
            self.by_holder[holder] = held
        else:
            self.by_holder.pop(holder, None)

    @property
    def first(self) -> object:
        """Who has held something for longest; None: nobody holds anything."""
        return next(iter(self.by_holder), None)

    def has_room(self, budget: int, holder: object) -> bool:
        """Whether `holder` may go on."""
        return self.size <= budget or self.first is holder


class HalfRequests:
    """What connections hold."""

    __slots__ = ("_all", "_budget", "_by_host", "_host_budget", "_line", "_rooms", "_waiting")

    def __init__(self, budget: int, host_budget: int) -> None:
        """budget, host_budget: bytes over all connections, and of one address."""
        self._budget = budget
        self._host_budget = host_budget
        self._all = _Held()
        self._by_host: dict[str, _Held] = {}
        # Who waits and was not woken yet, in turn; and from where, and by what it is woken.
        self._line: AddressLine[object] = AddressLine()
        self._rooms: dict[object, tuple[str, trio.Event]] = {}
        self._waiting: Counter[str] = Counter()

    def is_waited_for(self, host: str) -> bool:
        """Whether a connection waits for what those of an address hold: one from there, or any,
        where all of them together hold too much."""
        return host in self._waiting or (self._all.size > self._budget and bool(self._waiting))

    @property
    def held_bytes(self) -> int:
        """By all connections."""
        return self._all.size

    def reconfigure(self, budget: int, host_budget: int) -> None:
        """Other budgets from now on; who waits looks again."""
        self._budget, self._host_budget = budget, host_budget
        self._wake()

    def is_full(self, host: str, holder: object) -> bool:
        """Whether a connection from there that would hold something, or more, must wait."""
        of_host = self._by_host.get(host)
        return not self._all.has_room(self._budget, holder) or not (
            of_host is None or of_host.has_room(self._host_budget, holder)
        )

    def is_tight(self, host: str) -> bool:
        """Whether more than half of what there is, for all or for an address, is taken: then none
        holds more than it must."""
        of_host = self._by_host.get(host)
        return self._all.size * 2 > self._budget or (
            of_host is not None and of_host.size * 2 > self._host_budget
        )

    def change(self, host: str, holder: object, delta: int) -> None:
        """A connection from `host` holds `delta` more bytes than before."""
        of_host = self._by_host.setdefault(host, _Held())
        for held in (self._all, of_host):
            held.change(holder, delta)
        if not of_host.size:
            del self._by_host[host]
        if delta < 0:
            self._wake()

    def _wake(self) -> None:
        """Whoever may go on: who has held something for longest of all, else who is next in turn.

        There may be room for more of them: each wakes the next when it goes on.
        """
        holder = self._all.first
        if holder not in self._rooms:
            if self._all.size > self._budget:
                return
            host = self._line.next_host(lambda host, _: not self.is_full(host, self._next_of(host)))
            if host is None:
                return
            holder = self._next_of(host)
        host, room = self._rooms.pop(holder)
        if self._line.first_of(host) is holder:
            self._line.take(host)  # its address goes to the end
        else:
            self._line.leave(host, holder)
        room.set()

    def _next_of(self, host: str) -> object:
        """Of those who wait there: who has held something for longest, if it is one of them."""
        of_host = self._by_host.get(host)
        if of_host is not None and of_host.first in self._rooms:
            return of_host.first
        return self._line.first_of(host)

    async def wait_room(self, host: str, holder: object) -> None:
        """Wait until there is room again for a connection."""
        self._waiting[host] += 1
        wait_in_line = self._line.put
        try:
            while self.is_full(host, holder):
                room = trio.Event()
                self._rooms[holder] = host, room
                wait_in_line(host, holder)
                self._wake()  # if somebody else has taken what it was woken for
                await room.wait()
                wait_in_line = self._line.put_back
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]
            if self._rooms.pop(holder, None) is not None:
                self._line.leave(host, holder)
            self._wake()

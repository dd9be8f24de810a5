"""Memory of requests that are not whole yet, or wait: over all connections, and of each address.

A large request is received piece by piece, into a buffer that it takes until it is done with.
Above the budget every connection in the middle of a large request waits.  An address above its own
share waits alone, so that it cannot take the room of all others.

Whoever has held something for longest, of all and of each address, never waits: a request that is
larger than a budget comes through, and of two that are larger together one after the other.  So the
budget of all may be passed by one request.  Whoever holds something, and from whom nothing comes
while others wait for it, is closed (connections/watchdog.py).

Limit: addresses are remembered as long as they hold something, so there are no more of them than
connections.
"""

from collections import Counter

import trio


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

    def has_room(self, budget: int, holder: object) -> bool:
        """Whether `holder` may go on."""
        return self.size <= budget or next(iter(self.by_holder)) is holder


class HalfRequests:
    """What connections hold."""

    __slots__ = ("_all", "_budget", "_by_host", "_host_budget", "_room", "_waiting")

    def __init__(self, budget: int, host_budget: int) -> None:
        """budget, host_budget: bytes over all connections, and of one address."""
        self._budget = budget
        self._host_budget = host_budget
        self._all = _Held()
        self._by_host: dict[str, _Held] = {}
        self._room: trio.Event | None = None
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
        self._look_again()

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
            self._look_again()

    def _look_again(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    async def wait_room(self, host: str, holder: object) -> None:
        """Wait until there is room again for a connection."""
        self._waiting[host] += 1
        try:
            while self.is_full(host, holder):
                if self._room is None:
                    self._room = trio.Event()
                await self._room.wait()
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]

"""Bytes of requests that are not whole yet: over all connections, and of each address.

A large request is received piece by piece, and each piece takes memory until the last has come.
Above the budget every connection in the middle of a large request waits.  An address above its own
share waits alone, so that it cannot take the room of all others.

Limit: addresses are remembered as long as they hold something, so there are no more of them than
connections.
"""

import trio


class HalfRequests:
    """What connections hold."""

    __slots__ = ("_budget", "_by_host", "_host_budget", "_room", "held_bytes")

    def __init__(self, budget: int, host_budget: int) -> None:
        """budget, host_budget: bytes over all connections, and of one address."""
        self._budget = budget
        self._host_budget = host_budget
        self._by_host: dict[str, int] = {}
        self._room: trio.Event | None = None
        self.held_bytes = 0

    def reconfigure(self, budget: int, host_budget: int) -> None:
        """Other budgets from now on; who waits looks again."""
        self._budget, self._host_budget = budget, host_budget
        self._look_again()

    def is_full(self, host: str) -> bool:
        """Whether who is in the middle of a large request, from there, must wait."""
        return self.held_bytes > self._budget or self._by_host.get(host, 0) > self._host_budget

    def change(self, host: str, delta: int) -> None:
        """A connection from `host` holds `delta` more bytes than before."""
        self.held_bytes += delta
        held = self._by_host.get(host, 0) + delta
        if held:
            self._by_host[host] = held
        else:
            self._by_host.pop(host, None)
        if delta < 0:
            self._look_again()

    def _look_again(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    async def wait_room(self, host: str) -> None:
        """Wait until there is room again."""
        while self.is_full(host):
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

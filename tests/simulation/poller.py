"""What the express way waits with: as select.epoll, over the sockets of network.py.

Sockets are known by their numbers and reported as long as there is something to receive, as the
kernel does; of several, in any order.  The task that waits for the poller itself is woken when one
of its sockets is.
"""

import select
from types import TracebackType

import trio

from .network import Network, SimSocket, Waits
from .threads import Killed


class Poller:
    """One of them."""

    def __init__(self, network: Network) -> None:
        self.closed = False
        self._network = network
        self._random = network.world.stream("poller")
        self._sockets: dict[int, SimSocket] = {}
        self._waits = Waits()
        self._number = network.new_number(self)

    def fileno(self) -> int:
        return self._number

    def register(self, number: int, mask: int) -> None:
        assert mask == select.EPOLLIN, "for nothing else"
        sock = self._network.numbered.get(number)
        if sock is None:
            raise Killed  # its kernel has closed all that the process had
        assert isinstance(sock, SimSocket)
        assert number not in self._sockets, "it is registered once"
        self._sockets[number] = sock
        sock.on_readable = self.wake
        if sock.is_readable:
            self.wake()

    def unregister(self, number: int) -> None:
        self._sockets.pop(number).on_readable = None

    def poll(self, timeout: float, count_max: int) -> list[tuple[int, int]]:
        """Who can be received from now."""
        assert timeout == 0, "the loop waits for nobody here"
        ready = [
            (number, select.EPOLLIN) for number, sock in self._sockets.items() if sock.is_readable
        ]
        self._random.shuffle(ready)
        return ready[:count_max]

    def wake(self) -> None:
        """One of the sockets can be received from."""
        self._waits.wake()

    async def wait_readable(self) -> None:
        """As trio.lowlevel.wait_readable for its number."""
        await trio.lowlevel.checkpoint()
        while not any(sock.is_readable for sock in self._sockets.values()):
            await self._waits.wait()

    def __enter__(self) -> "Poller":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.closed = True
        del self._network.numbered[self._number]

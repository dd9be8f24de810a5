"""Where the connections of the metrics page come in: one listening socket, few connections.

It listens from before the broker recovers its data until after it has synced it, so that a probe
sees a broker that starts or ends, and not one that is gone.

At CONNECTIONS_MAX connections the one that has been idle for longest is closed for a newcomer; if
all are busy the newcomer is answered 503 and closed.  So neither connections that are kept alive
and forgotten, nor slow ones, keep a scrape out for longer than a request may take.

One of them is looked at in a pass of the loop, and addresses take turns: a head of 8 KiB may have
two thousand lines, which take milliseconds.

The descriptors are of those that the process itself uses (configuration/descriptors.py).
"""

import socket
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
import trio

from ..address import join_address, split_address
from ..loop.address_turns import AddressTurns
from ..peers.listener import BACKLOG, CannotListen, accept_all, bind
from .http_connection import HEAD_BYTES_MAX, HttpConnection
from .pages import Pages

log = structlog.get_logger()

CONNECTIONS_MAX: Final = 16
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Open:
    """A gate that is never closed: what is too much is answered so."""

    def is_closed(self) -> bool:
        return False

    async def wait(self) -> None:
        await trio.lowlevel.checkpoint()


class HttpServer:
    """The listening socket, and who has come."""

    __slots__ = ("_connections", "_pages", "_sock", "_turns", "bound")

    def __init__(self, sock: socket.socket, pages: Pages) -> None:
        """Takes `sock` over, which listens."""
        host, port = sock.getsockname()[:2]
        self.bound: tuple[str, int] = (host, port)
        self._sock = sock
        self._pages = pages
        self._connections: dict[HttpConnection, None] = {}
        self._turns = AddressTurns(1)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def run(self) -> None:
        """Serve for ever."""
        log.info("metrics_listening", address=join_address(*self.bound))
        try:
            async with trio.open_nursery() as nursery:

                def accepted(sock: socket.socket, address: tuple[str, int]) -> None:
                    self._accept(nursery, sock, address[0])

                await accept_all(self._sock, accepted, _Open())
        finally:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    def _accept(self, nursery: trio.Nursery, sock: socket.socket, host: str) -> None:
        if len(self._connections) >= CONNECTIONS_MAX and not self._close_idle():
            with sock, suppress(OSError):
                sock.send(_BUSY)
                # Closed over a request that was not read, it is reset, and the answer is lost.
                sock.recv(HEAD_BYTES_MAX, socket.MSG_DONTWAIT)
            return
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        connection = HttpConnection(stream, self._pages.get, partial(self._turns.turn, host))
        self._connections[connection] = None
        nursery.start_soon(self._run, connection)

    def _close_idle(self) -> bool:
        """Close the one that has been idle for longest; False: there is none."""
        idle = (one for one in self._connections if one.is_idle)
        oldest = min(idle, key=lambda one: one.idle_since, default=None)
        if oldest is None:
            return False
        oldest.scope.cancel()
        self._connections.pop(oldest, None)
        return True

    async def _run(self, connection: HttpConnection) -> None:
        try:
            await connection.run()
        finally:
            self._connections.pop(connection, None)


class CannotListenForPages(CannotListen):
    """The address of the pages cannot be listened on."""

    setting = "metrics_listen"


async def listen(address: str, pages: Pages) -> HttpServer:
    """Bind HOST:PORT.  Raises CannotListen."""
    host, port = split_address(address, key="metrics_listen")
    try:
        sock = await bind(host, port)
        try:
            sock.listen(BACKLOG)
        except OSError:  # another one has begun to, behind our bind
            sock.close()
            raise
    except OSError as exc:
        raise CannotListenForPages(exc.errno, exc.strerror, join_address(host, port)) from exc
    return HttpServer(sock, pages)

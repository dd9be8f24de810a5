"""A non-blocking socket under a Connection: what both shells do between two waits.

Nothing here waits.  `connect_next` begins, `is_connected` asks, `send_some` and `receive_some` move
bytes; each says when the shell has to wait for the socket.  Failures become ConnectionLost.

A host name may have several addresses (localhost: ::1 and 127.0.0.1); they are tried in turn.
"""

import os
import socket
from collections.abc import Sequence
from itertools import islice

from .connection import Buffer, Connection
from .errors import BrokerUnreachable, ConnectionLost

# Buffers per sendmsg; the kernel takes up to 1024.
GATHER_COUNT_MAX = 64

# What getaddrinfo gives of an address: family and socket address.
SocketAddress = tuple[int, tuple[str, int] | tuple[str, int, int, int]]


def resolve(host: str, port: int, *, numeric_only: bool) -> list[SocketAddress]:
    """The socket addresses of a host, IPv4 first.

    With `numeric_only` it never asks a name server, so it does not wait, and an empty list means
    that one has to be asked.  Raises BrokerUnreachable for a name that does not exist.
    """
    flags = socket.AI_NUMERICHOST if numeric_only else 0
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except OSError as exc:
        if numeric_only:
            return []
        raise BrokerUnreachable(f"{host}: {exc.strerror or exc}") from exc
    addresses: list[SocketAddress] = [(row[0], row[4]) for row in found]  # type: ignore[misc]
    return sorted(addresses, key=lambda address: address[0] != socket.AF_INET)


class Transport:
    """See the module.  Owns the socket: `close` is due exactly once."""

    def __init__(self, connection: Connection, addresses: Sequence[SocketAddress]) -> None:
        self.connection = connection
        self.socket: socket.socket | None = None
        self.addresses = list(addresses)
        # The shell waits for the socket to take more.
        self.waits_to_send = False
        # A thread is sending (the blocking shell has two).
        self.is_sending = False

    def connect_next(self) -> None:
        """Begin to connect to the next address; raises ConnectionLost when none is left."""
        self.close()
        host, port = self.connection.host, self.connection.port
        problem = f"{host}:{port}: no address"
        while self.addresses:
            family, address = self.addresses.pop(0)
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                sock.connect(address)
            except BlockingIOError:
                pass
            except OSError as exc:
                sock.close()
                problem = f"{host}:{port}: {exc.strerror or exc}"
                continue
            self.socket = sock
            return
        raise ConnectionLost(problem)

    def finish_connect(self) -> bool:
        """The socket became writable: True when connected, False when the next address is tried.

        Raises ConnectionLost when none is left.
        """
        assert self.socket is not None
        error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not error:
            return True
        if not self.addresses:
            host, port = self.connection.host, self.connection.port
            raise ConnectionLost(f"{host}:{port}: {os.strerror(error)}")
        self.connect_next()
        return False

    def buffers(self) -> list[Buffer]:
        """What to give to `send_some` next."""
        return list(islice(self.connection.outgoing, GATHER_COUNT_MAX))

    def send_some(self, buffers: Sequence[Buffer]) -> int:
        """How many bytes the kernel took; 0 when it takes none now.  Raises ConnectionLost."""
        if self.socket is None:
            raise ConnectionLost(f"{self.connection.host}:{self.connection.port}: closed meanwhile")
        try:
            return self.socket.sendmsg(buffers)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise self._lost(exc) from exc

    def receive_some(self) -> int | None:
        """How many bytes came (0: the end); None when there are none now.  ConnectionLost."""
        assert self.socket is not None
        try:
            return self.socket.recv_into(self.connection.get_buffer())
        except BlockingIOError:
            return None
        except OSError as exc:
            raise self._lost(exc) from exc

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _lost(self, exc: OSError) -> ConnectionLost:
        host, port = self.connection.host, self.connection.port
        return ConnectionLost(f"{host}:{port}: {exc.strerror or exc}")

"""A connection's seat on the express way (express.py), and what it keeps there between two passes.

    | answered ... | half a request |  -> carried, up to CARRY_MAX; more goes to the task

Credit: a connection may leave again and again without having been served, because everything that
it sends is for the general path.  After CREDIT_MAX times it may not park any more; being served
once restores its credit.
"""

import socket
from typing import Final

import trio

from segbroker.protocol.limits import REQUEST_HEADER_SIZE_MIN

from ..peers.peer import Peer

CARRY_MAX: Final = 32 << 10
CREDIT_MAX: Final = 16


class Seat:
    """A connection that parks here: what a pass needs of it."""

    __slots__ = (
        "carry",
        "client",
        "credit",
        "error",
        "exchange_fd",
        "fd",
        "peer",
        "reads",
        "received_in",
        "sock",
        "task",
    )

    def __init__(self, sock: socket.socket, peer: Peer) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.exchange_fd = self.fd if type(sock) is socket.socket else -1
        """What C may receive from and send to; -1: it is no socket of the system."""
        self.peer = peer
        self.client: bytes | None = None
        self.carry = b""
        """The beginning of a request whose rest has not come."""
        self.credit = CREDIT_MAX
        self.reads = 0
        self.received_in = 0
        """The pass; or the last one before it came, since its task received until then."""
        self.task: trio.lowlevel.Task | None = None
        self.error: OSError | None = None
        """Why it left, where it is broken."""

    @property
    def is_welcome(self) -> bool:
        """Whether it parks here: it produces, and it was not in vain the last times."""
        return self.peer.produces and self.credit > 0


def is_half(rest: bytes) -> bool:
    """Whether these bytes may be the beginning of a request that is small enough to wait for."""
    if len(rest) < 4:
        return True
    size = int.from_bytes(rest[:4], "big", signed=True)
    return max(REQUEST_HEADER_SIZE_MIN, len(rest) - 3) <= size <= CARRY_MAX

"""The thin client of tests/support on a simulated socket: requests as they are, no cleverness."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..support.wire_client import WireClient
from .network import BROKER, Network, SimSocket


class _Stream:
    """A simulated socket as the thin client uses one."""

    def __init__(self, sock: SimSocket) -> None:
        self._sock = sock

    async def send_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while len(rest):
            try:
                rest = rest[self._sock.sendmsg([rest]) :]
            except BlockingIOError:
                await self._sock.wait_writable()

    async def receive_some(self, size: int) -> bytes:
        buffer = bytearray(size)
        while True:
            try:
                return bytes(buffer[: self._sock.recv_into(memoryview(buffer))])
            except BlockingIOError:
                await self._sock.wait_readable()


@asynccontextmanager
async def connected(network: Network, client_id: str) -> AsyncIterator[WireClient]:
    """A thin client on a simulated connection.  Raises OSError."""
    sock = SimSocket(network)
    try:
        try:
            sock.connect(BROKER)
        except BlockingIOError:
            await sock.wait_writable()
        if sock.error:
            raise ConnectionRefusedError(sock.error, "refused")
        yield WireClient(_Stream(sock), client_id)  # type: ignore[arg-type]
    finally:
        sock.close()

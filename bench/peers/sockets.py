"""Raw load: ready-made requests into sockets, and counts out of what comes back.

Nothing else is decoded, so the figures of a peer are those of its server and not of a slow client
library, which is to the peer's advantage.
"""

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

RECEIVE_SIZE = 1 << 20
QUIET_S = 60.0
IN_FLIGHT_BYTES = 4 << 20


class Writer(Protocol):
    """One connection that publishes."""

    socket: socket.socket

    def request(self, values: Sequence[bytes]) -> bytes:
        """The bytes that publish `values`; every record is acknowledged."""

    def acked(self, data: bytes) -> int:
        """How many more records `data`, just received, acknowledges."""


class Reader(Protocol):
    """One connection that reads a topic from its first record on, and goes on waiting."""

    socket: socket.socket

    def received(self, data: bytes) -> int:
        """How many more records `data`, just received, brings; asks for the next ones."""


class Marker:
    """Counts occurrences of some bytes in a stream, however it is cut."""

    def __init__(self, marker: bytes) -> None:
        self._marker = marker
        self._rest = b""

    def count(self, data: bytes) -> int:
        data = self._rest + data
        keep = len(self._marker) - 1
        self._rest = data[-keep:] if keep else b""
        return data.count(self._marker)


def write(writer: Writer, count: int, size: int) -> None:
    """Publish `count` records of `size` bytes, many in flight, until all are acknowledged."""
    per_request = max(1, min(500, (256 << 10) // size))
    window = max(2 * per_request, min(20_000, IN_FLIGHT_BYTES // size))
    values = [bytes(size)] * per_request
    sock = writer.socket
    sock.setblocking(False)
    sent = acked = 0
    pending = memoryview(b"")
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        while acked < count:
            if not pending and sent < count and sent - acked + per_request <= window:
                number = min(per_request, count - sent)
                pending = memoryview(writer.request(values[:number]))
                sent += number
            if pending:
                try:
                    pending = pending[sock.send(pending) :]
                except BlockingIOError:
                    selector.modify(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
                    assert selector.select(QUIET_S), f"nothing moved after {acked} of {count}"
                    selector.modify(sock, selectors.EVENT_READ)
            waits = sent - acked + per_request > window or sent == count
            if selector.select(QUIET_S if waits and not pending else 0):
                data = sock.recv(RECEIVE_SIZE)
                assert data, f"closed after {acked} of {count}"
                acked += writer.acked(data)
            else:
                assert pending or not waits, f"quiet after {acked} of {count}"
    sock.close()


def read(
    readers: Sequence[Reader], count: int, heard: Callable[[bytes], object] | None = None
) -> None:
    """Until every reader has had `count` records; `heard` gets the bytes as they arrive.

    Raises AssertionError when no record came for QUIET_S: empty answers to long polls count for
    nothing.
    """
    moved = time.monotonic()
    with selectors.DefaultSelector() as selector:
        left = {}
        for n, reader in enumerate(readers):
            selector.register(reader.socket, selectors.EVENT_READ, (n, reader))
            left[n] = count
        while left:
            ready = selector.select(QUIET_S)
            is_quiet = not ready or time.monotonic() - moved > QUIET_S
            assert not is_quiet, f"readers went quiet, records missing: {left}"
            for key, _ in ready:
                n, reader = key.data
                data = reader.socket.recv(RECEIVE_SIZE)
                assert data, f"closed with {left[n]} records missing"
                if heard is not None:
                    heard(data)
                if received := reader.received(data):
                    left[n] -= received
                    moved = time.monotonic()
                if left[n] <= 0:
                    selector.unregister(reader.socket)
                    reader.socket.close()
                    del left[n]

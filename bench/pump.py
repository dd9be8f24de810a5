"""Raw load: bytes into sockets and counts out of them; `python -m bench.pump` is the reading child.

A reader runs in a process of its own, so that it does not share an interpreter with the writer.
For latencies the writer puts MARK and CLOCK_MONOTONIC (one clock for all processes of a Linux
machine) into the value, and the reader looks for them in the bytes as they arrive: the same way
for every protocol, without decoding any.
"""

import contextlib
import json
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from struct import Struct

from .peers import BY_NAME
from .peers.base import RECEIVE_SIZE, Peer, Reader, Writer

MARK = b"\xf5SBMARK\xf5"
STAMP = Struct(">8sQ")
QUIET_S = 60.0
IN_FLIGHT_BYTES = 4 << 20


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
    """Until every reader has had `count` records; `heard` gets the bytes as they arrive."""
    with selectors.DefaultSelector() as selector:
        left = {}
        for n, reader in enumerate(readers):
            selector.register(reader.socket, selectors.EVENT_READ, (n, reader))
            left[n] = count
        while left:
            ready = selector.select(QUIET_S)
            assert ready, f"readers went quiet, records missing: {left}"
            for key, _ in ready:
                n, reader = key.data
                data = reader.socket.recv(RECEIVE_SIZE)
                assert data, f"closed with {left[n]} records missing"
                if heard is not None:
                    heard(data)
                left[n] -= reader.received(data)
                if left[n] <= 0:
                    selector.unregister(reader.socket)
                    reader.socket.close()
                    del left[n]


class Stamps:
    """Finds the marks in a stream of bytes and notes how old each stamp is, in ns."""

    def __init__(self) -> None:
        self.ages: list[int] = []
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        now = time.monotonic_ns()
        data = self._rest + data
        position = 0
        while (found := data.find(MARK, position)) >= 0 and found + STAMP.size <= len(data):
            self.ages.append(now - STAMP.unpack_from(data, found)[1])
            position = found + STAMP.size
        self._rest = data[max(position, len(data) - STAMP.size + 1) :]


class ReadingChild:
    """`readers` connections of one process, each of which reads `count` records."""

    def __init__(self, peer: Peer, topic: str, readers: int, count: int, size: int) -> None:
        command = [sys.executable, "-m", "bench.pump", type(peer).__name__, peer.address, topic]
        command += [str(readers), str(count), str(size)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def result(self) -> tuple[float, list[float]]:
        """When it was done, in seconds of CLOCK_MONOTONIC, and the latencies in seconds."""
        out, _ = self._process.communicate(timeout=10 * QUIET_S)
        assert self._process.returncode == 0, "the reading child failed"
        ended, ages = json.loads(out)
        return ended / 1e9, [age / 1e9 for age in ages]


def write_paced(writer: Writer, rate: float, count: int, size: int) -> None:
    """One record at a time, `rate` a second, each with its stamp, whatever the acks do."""
    sock = writer.socket
    filler = bytes(size - STAMP.size)
    began = time.monotonic()
    for n in range(count):
        due = began + n / rate
        while (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        value = STAMP.pack(MARK, time.monotonic_ns()) + filler
        sock.setblocking(True)
        sock.sendall(writer.request([value]))
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            writer.acked(sock.recv(RECEIVE_SIZE))
    sock.setblocking(True)


def main() -> None:
    kind, address, topic, readers, count, size = sys.argv[1:]
    peer = BY_NAME[kind](address)
    opened = [peer.reader(topic, int(size)) for _ in range(int(readers))]
    stamps = Stamps() if len(opened) == 1 else None
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    read(opened, int(count), stamps)
    sys.stdout.write(json.dumps([time.monotonic_ns(), stamps.ages if stamps else []]))


if __name__ == "__main__":
    main()

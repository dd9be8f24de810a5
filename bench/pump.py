"""Readers in a process of their own (`python -m bench.pump`), and records that carry the time.

Readers run in a process of their own, so that they do not share an interpreter with the writer.
For latencies the writer puts MARK and CLOCK_MONOTONIC (one clock for all processes of a Linux
machine) into the value, and the reader looks for them in the bytes as they arrive: the same way
for every protocol, without decoding any.
"""

import contextlib
import json
import subprocess
import sys
import time
from struct import Struct

from .peers import BY_NAME, Peer
from .peers.sockets import RECEIVE_SIZE, Writer, read

MARK = b"\xf5SBMARK\xf5"
STAMP = Struct(">8sQ")
RESULT_TIMEOUT_S = 600.0


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
        out, _ = self._process.communicate(timeout=RESULT_TIMEOUT_S)
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

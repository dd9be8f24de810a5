"""What a broker must offer to be measured: a start, topics, a `Writer` and a `Reader`.

Writers and readers are raw sockets with ready-made requests: they count what comes back and
decode nothing else.  So the figures of a peer are those of its server and not of a slow client
library, which is to the peer's advantage.  Where librdkafka can be used it is (kafka_wire.py).
"""

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar, Protocol, Self

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
RECEIVE_SIZE = 1 << 20


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


class Peer(ABC):
    """A running broker.  Only `address` is needed to connect: children make their own."""

    name: ClassVar[str]
    stored: ClassVar[str]
    """What an acknowledgement of an ordinary topic promises."""
    synced: ClassVar[str]
    """What a durable acknowledgement promises; empty when the broker has none."""

    def __init__(self, address: str, pid: int = 0, version: str = "") -> None:
        self.address, self.pid, self.version = address, pid, version

    @classmethod
    @abstractmethod
    def start(cls, folder: Path, durable: bool) -> AbstractContextManager[Self]:
        """Run the broker in `folder` on a free loopback port.

        Raises:
            Missing: its program cannot be had here.
        """

    @abstractmethod
    def create_topic(self, durable: bool = False, partitions: int = 4) -> str:
        """A fresh topic; `durable` only if the broker was started so."""

    @abstractmethod
    def writer(self, topic: str, partition: int = 0) -> Writer: ...

    @abstractmethod
    def reader(self, topic: str, size: int) -> Reader:
        """Reads records of `size` bytes from the start of the topic."""

    def produce(self, topic: str, count: int, size: int) -> None:
        """Publish `count` records and wait for every acknowledgement."""
        from ..pump import write

        write(self.writer(topic), count, size)

    def consume(self, topic: str, count: int, size: int) -> None:
        """Read `count` records from the start."""
        from ..pump import read

        read([self.reader(topic, size)], count)

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def connect(self) -> socket.socket:
        sock = socket.create_connection(self.host_and_port)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


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


def free_port() -> int:
    """A port nobody listens on now; the kernel does not give it out again soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(
    command: Sequence[str], folder: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a server until the block ends; yields its pid once `port` accepts connections.

    The server leads a process group of its own, so that helpers it starts end with it.
    """
    log = folder / "server.log"
    with log.open("w") as sink:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                break
        yield child.pid
    finally:
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(child.pid, how)
            except ProcessLookupError:
                break
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                continue

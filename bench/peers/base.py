"""What a broker must offer to be measured: a start, topics, a `Writer` and a `Reader`.

By default a peer is driven over raw sockets (sockets.py); where librdkafka can be used it is
(kafka_wire.py).
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
from typing import ClassVar, Self

from . import sockets
from .sockets import Reader, Writer

START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 30


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

    def produce(self, topic: str, count: int, size: int) -> float:
        """Publish `count` records and wait for every acknowledgement; records per second."""
        writer = self.writer(topic)
        began = time.perf_counter()
        sockets.write(writer, count, size)
        return count / (time.perf_counter() - began)

    def consume(self, topic: str, count: int, size: int) -> float:
        """Read `count` records from the start; records per second."""
        began = time.perf_counter()
        sockets.read([self.reader(topic, size)], count)
        return count / (time.perf_counter() - began)

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def connect(self) -> socket.socket:
        sock = socket.create_connection(self.host_and_port)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


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

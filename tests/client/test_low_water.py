"""The shell hears of a large reply when so much more of it is here that it is worth a turn."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector

import anyio
import pytest

from segbroker.client import AsyncConsumer
from segbroker.client.connection import Connection, State
from segbroker.client.transport import (
    LOW_WATER_BYTES_MAX,
    LOW_WATER_IS_HEEDED,
    Transport,
    heeds_low_water,
    resolve,
)
from segbroker.testing.embedded import EmbeddedBroker

from ..support.ports import keep_port
from .conftest import Run

KIB = 1 << 10
DEADLINE_S = 60

pytestmark = pytest.mark.skipif(
    not LOW_WATER_IS_HEEDED, reason="the mark is heeded on Linux, from 4.18 on"
)


@pytest.mark.parametrize(
    ("system", "release", "heeds"),
    [
        ("Linux", "6.1.0-13-amd64", True),
        ("Linux", "4.18", True),
        ("Linux", "4.4.0-generic", False),
        ("Linux", "3.10.0-1160.el7.x86_64", False),
        ("Linux", "unknown", False),
        ("Darwin", "23.1.0", False),
    ],
)
def test_the_mark_is_set_where_the_system_makes_room_for_it(
    system: str, release: str, heeds: bool
) -> None:
    assert heeds_low_water(system, release) == heeds


class Peer:
    """A connection that was set up, and the socket at its other end."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.connection = Connection("127.0.0.1", port, client_id="test", deadline_ms=1 << 60)
            addresses = resolve("127.0.0.1", port, numeric_only=True)
            self.transport = Transport(self.connection, addresses)
            self.transport.connect_next()
            self.socket, _ = listener.accept()
        assert self.transport.establish() is None
        self.connection.connected()
        self.selector = DefaultSelector()
        assert self.transport.socket is not None
        self.selector.register(self.transport.socket, EVENT_READ)

    def hears(self, timeout_s: float = DEADLINE_S) -> bool:
        return bool(self.selector.select(timeout_s))

    def receive(self) -> int:
        size = self.transport.receive_some()
        assert size is not None
        self.connection.received(size, 0)
        self.awaits_rest = self.transport.await_rest()
        return size

    def close(self) -> None:
        self.selector.close()
        self.transport.close()
        self.socket.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def answer(size: int, correlation_id: int) -> bytes:
    """A frame of at least `size`: "I know other versions of ApiVersions", with many rows."""
    rows = bytes.fromhex("0012 0000 0003") * (size // 6)
    body = correlation_id.to_bytes(4, "big") + bytes.fromhex("0023")
    body += (size // 6).to_bytes(4, "big") + rows
    return len(body).to_bytes(4, "big") + body


def begin(peer: Peer, data: bytes) -> bytes:
    """The first 100 bytes are received; what is left."""
    peer.socket.sendall(data[:100])
    assert peer.hears()
    assert peer.receive() == 100
    return data[100:]


def send(peer: Peer, data: bytes) -> int:
    """Piece by piece, as far as the other end hears of it; in how many turns that was."""
    turns = 0
    for start in range(0, len(data), 16 * KIB):
        peer.socket.sendall(data[start : start + 16 * KIB])
        while peer.hears(0):
            peer.receive()
            turns += 1
    return turns


def receive_answer(peer: Peer) -> None:
    """What may still be on its way, until it was read: asked again with what the peer knows."""
    while peer.connection.ask_version == 4:
        assert peer.hears()
        peer.receive()
    assert peer.connection.ask_version == 3


def test_of_a_large_reply_a_part_is_heard_of_and_not_every_packet(peer: Peer) -> None:
    rest = begin(peer, answer(1 << 20, 1))
    assert peer.awaits_rest
    assert send(peer, rest) <= 2 * len(rest) // LOW_WATER_BYTES_MAX  # of 64 pieces
    receive_answer(peer)
    assert not peer.awaits_rest


@pytest.mark.parametrize("missing", [1, 64 * KIB - 1, 64 * KIB, LOW_WATER_BYTES_MAX + 1])
def test_a_large_reply_is_heard_of_to_its_last_byte_and_so_is_what_follows(
    peer: Peer, missing: int
) -> None:
    whole = answer(1 << 20, 1)
    rest = begin(peer, whole)
    for part in (rest[:-missing], rest[-missing:]):
        send(peer, part)
    receive_answer(peer)
    peer.socket.sendall(b"\0")
    assert peer.hears()
    assert peer.receive() == 1


def test_a_stream_that_ends_in_a_large_reply_is_heard_of_at_once(peer: Peer) -> None:
    begin(peer, answer(8 << 20, 1))
    peer.socket.close()
    assert peer.hears()
    peer.receive()
    assert peer.connection.state is State.CLOSED


def test_a_connection_that_is_reset_in_a_large_reply_is_heard_of_at_once(peer: Peer) -> None:
    begin(peer, answer(8 << 20, 1))
    linger = bytes.fromhex("01000000 00000000")
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    peer.socket.close()
    assert peer.hears()


class Halting:
    """A proxy that halts in the first large piece of a reply, until it is told to go on."""

    def __init__(self, port: int, passes: int, size: int) -> None:
        """passes: so much of it goes through at first; size: how much it is at least."""
        self._port = port
        self._passes = passes
        self._size = size
        self.may_go_on = threading.Event()
        self.has_gone_on = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def close(self) -> None:
        self.may_go_on.set()
        self._listener.close()

    def _start(self, run: Callable[..., None], *args: object) -> None:
        threading.Thread(target=run, args=args, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._port))
                self._start(self._copy, client, broker, False)
                self._start(self._copy, broker, client, True)

    def _copy(self, source: socket.socket, sink: socket.socket, is_reply: bool) -> None:
        with suppress(OSError), source, sink:
            while data := source.recv(1 << 20):
                if is_reply and len(data) > 16 * KIB and not self.may_go_on.is_set():
                    while len(data) < self._size:
                        data += source.recv(1 << 20)
                    sink.sendall(data[: self._passes])
                    self.may_go_on.wait(DEADLINE_S)
                    sink.sendall(data[self._passes :])
                    self.has_gone_on.set()
                else:
                    sink.sendall(data)


def test_what_comes_behind_a_large_reply_that_a_job_has_held_up_is_heard_of(run: Run) -> None:
    """The job keeps the event loop to itself, and behind it the client reads what has come before
    it does anything else."""
    size = 400 * KIB

    async def main(broker: EmbeddedBroker, proxy: Halting) -> None:
        async with AsyncConsumer(
            proxy.address,
            "t",
            request_timeout_ms=600_000,
            api_timeout_ms=600_000,
            metadata_max_age_ms=600_000,
        ) as consumer:

            def awaits_rest() -> bool:
                return any(each._low_water > 1 for each in consumer._driver._transports.values())

            with anyio.fail_after(DEADLINE_S):
                while not awaits_rest():
                    await consumer.poll(1, 20)
            proxy.may_go_on.set()
            assert proxy.has_gone_on.wait(DEADLINE_S)
            time.sleep(0.2)  # noqa: ASYNC251 - the job
            await consumer.partitions_for("t")
            with anyio.fail_after(DEADLINE_S):
                assert await consumer.poll(1, DEADLINE_S * 1000)
                broker.send("t", [b"small"])
                (record,) = await consumer.poll(1, DEADLINE_S * 1000)
            assert record.value == b"small"

    port = keep_port()
    proxy = Halting(port, 100 * KIB, size)
    try:
        with EmbeddedBroker(listen=f"127.0.0.1:{port}", advertised=proxy.address) as broker:
            broker.create_topic("t", partitions=1)
            broker.send("t", [bytes(size)])
            run(main, broker, proxy)
    finally:
        proxy.close()

"""The shell hears of a large reply when so much more of it is here that it is worth a turn."""

import socket
from collections.abc import Iterator
from selectors import EVENT_READ, DefaultSelector

import pytest

from segbroker.client.connection import Connection, State
from segbroker.client.transport import (
    LOW_WATER_BYTES_MAX,
    LOW_WATER_IS_HEEDED,
    Transport,
    heeds_low_water,
    resolve,
)

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

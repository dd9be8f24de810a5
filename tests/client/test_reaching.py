"""Entering a block: nobody is waited for shortly, somebody who has accepted for longer."""

import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest
import trio

from segbroker.client import (
    Admin,
    AsyncAdmin,
    BrokerUnreachable,
    SegbrokerError,
    TlsFailed,
    async_driver,
    network,
    thread_driver,
)
from segbroker.client.completion import Completion
from segbroker.client.connection import Connection
from segbroker.client.engine import Engine
from segbroker.client.errors import ConnectionLost, NoBroker
from segbroker.client.reaching import Reaching
from segbroker.client.settings import ClientSettings
from segbroker.client.transport import SocketAddress, Transport, Wait, resolve

from ..support.certificates import Authority
from ..support.daemon import Daemon
from ..support.ports import keep_port
from ..support.waiting import DEADLINE_S, within_one_of

START_MS = 1_000


class Peer:
    """The other end of what a client opens, in a time that the test moves."""

    def __init__(self, accept_timeout_ms: int | None, connect_timeout_ms: int = 15_000) -> None:
        settings = ClientSettings(
            bootstrap=(("10.0.0.1", 9092),),
            connect_timeout_ms=connect_timeout_ms,
            accept_timeout_ms=accept_timeout_ms,
        )
        self.engine = Engine(settings, Random(1))
        self.now_ms = START_MS
        self.accepts = False
        reaching = Reaching(self.engine)
        self.done: Completion[None] = self.engine.call(
            reaching.connect(),
            self.now_ms,
            timeout_ms=reaching.timeout_ms,
            on_timeout=reaching.give_up,
        )

    def run_to(self, end_ms: int) -> None:
        """Let `end_ms` be the time since the beginning; each connection is accepted or refused."""
        while not self.done.done:
            self.engine.step(self.now_ms)
            for connection in self.engine.network.take_opening():
                if self.accepts:
                    connection.accepted()
                else:
                    connection.lost(ConnectionLost("10.0.0.1: refused"), self.now_ms)
            self.engine.network.take_closed()
            wake_ms = self.engine.next_wake_ms()
            assert wake_ms is not None
            if wake_ms > START_MS + end_ms:
                self.now_ms = START_MS + end_ms
                return
            self.now_ms = max(self.now_ms + 1, wake_ms)

    def given_up(self) -> str:
        assert isinstance(self.done.error, BrokerUnreachable)
        return str(self.done.error)


def test_where_nobody_accepts_the_shorter_time_holds() -> None:
    peer = Peer(accept_timeout_ms=3_000)
    peer.run_to(2_999)
    assert not peer.done.done
    peer.run_to(3_000)
    assert "refused" in peer.given_up()


def test_who_accepted_and_says_nothing_gets_the_whole_time() -> None:
    peer = Peer(accept_timeout_ms=3_000)
    peer.accepts = True
    peer.run_to(14_999)
    assert not peer.done.done
    peer.run_to(15_000)
    assert "10.0.0.1" in peer.given_up()


def test_who_begins_to_listen_in_time_gets_the_whole_time() -> None:
    peer = Peer(accept_timeout_ms=3_000)
    peer.run_to(1_500)
    peer.accepts = True
    peer.run_to(14_999)
    assert not peer.done.done


@pytest.mark.parametrize("accept_timeout_ms", [None, 15_000, 60_000])
def test_without_a_shorter_time_there_is_one_for_both(accept_timeout_ms: int | None) -> None:
    peer = Peer(accept_timeout_ms)
    peer.run_to(14_999)
    assert not peer.done.done
    peer.run_to(15_000)
    peer.given_up()


def test_what_is_accepted_is_known_before_tls_begins() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        connection = Connection(host, port, client_id="test", deadline_ms=60_000)
        addresses = resolve(host, port, numeric_only=True)
        transport = Transport(connection, addresses, ssl.create_default_context())
        try:
            transport.connect_next()
            assert not connection.is_accepted
            assert transport.socket is not None
            with selectors.DefaultSelector() as selector:
                selector.register(transport.socket, selectors.EVENT_WRITE)
                assert selector.select(60)
            assert transport.establish() is Wait.READABLE  # nobody answers the handshake
            assert connection.is_accepted
        finally:
            transport.close()


def test_what_is_sent_by_tls_to_who_has_closed_was_not_closed_in_the_handshake(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(authority.server())

    def serve(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        with plain, server.wrap_socket(plain, server_side=True) as peer:
            linger = struct.pack("ii", 1, 0)  # a reset: no end that is read before
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            assert peer.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        connection = Connection(host, port, client_id="test", deadline_ms=60_000)
        context = ssl.create_default_context(cafile=authority.file)
        transport = Transport(connection, resolve(host, port, numeric_only=True), context)
        try:
            transport.connect_next()
            waits: Wait | None = Wait.WRITABLE
            while waits is not None:
                assert transport.socket is not None
                with selectors.DefaultSelector() as selector:
                    wanted = {Wait.READABLE: selectors.EVENT_READ}
                    selector.register(transport.socket, wanted.get(waits, selectors.EVENT_WRITE))
                    assert selector.select(DEADLINE_S)
                waits = transport.establish()
            assert transport.send_some([b"!"])
            serving.join()
            # Which of both depends on OpenSSL's release.
            lost = rf":{port}( closed the connection|: Connection reset by peer)$"
            with pytest.raises(ConnectionLost, match=lost):
                transport.send_some([b"?"])
        finally:
            transport.close()
            serving.join()


def test_a_blocking_client_gives_up_where_nobody_listens() -> None:
    address = f"127.0.0.1:{keep_port()}"

    def gives_up(within_ms: int) -> None:
        with (
            pytest.raises(BrokerUnreachable, match=r"[Rr]efused"),
            Admin(address, accept_timeout_ms=within_ms, connect_timeout_ms=600_000),
        ):
            pass

    within_one_of((300, 5_000), gives_up)


def test_an_async_client_gives_up_where_nobody_listens() -> None:
    address = f"127.0.0.1:{keep_port()}"

    async def gives_up(within_ms: int) -> None:
        with pytest.raises(BrokerUnreachable, match=r"[Rr]efused"):
            async with AsyncAdmin(address, accept_timeout_ms=within_ms, connect_timeout_ms=600_000):
                pass

    within_one_of((300, 5_000), lambda within_ms: trio.run(gives_up, within_ms))


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """A server that answers whatever it is asked with these bytes, and hangs up."""

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.recv(1)
                peer.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


# What a listener of Apache Kafka answers who speaks to it without TLS.
ALERT = bytes.fromhex("15 0303 0002 0250")


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", NoBroker, "its answer begins like an HTTP answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", NoBroker, "its answer begins like an SSH greeting"),
        (ALERT, TlsFailed, "speaks TLS, but the client does not"),
    ],
)
def test_who_speaks_another_protocol_is_said_at_once(
    data: bytes, error: type[SegbrokerError], says: str
) -> None:
    with (
        answering(data) as address,
        pytest.raises(error, match=f"{address} .*{says}"),
        Admin(address, connect_timeout_ms=600_000),
    ):
        pass


@pytest.fixture
def with_a_deaf_address(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A broker by a name of two addresses, of which the first drops whatever it is sent: a listener
    has room for so many whom nobody takes."""
    monkeypatch.setattr(network, "SETUP_TIMEOUT_MS", 300)
    host, _, port = daemon.address.rpartition(":")

    with socket.socket() as deaf, ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())

        def find(host_or_name: str, port: int, *, numeric_only: bool) -> list[SocketAddress]:
            if host_or_name == "two.example":
                addresses = [deaf.getsockname(), (host, port)]
                return [] if numeric_only else [(socket.AF_INET, one) for one in addresses]
            return resolve(host_or_name, port, numeric_only=numeric_only)

        for shell in (thread_driver, async_driver):
            monkeypatch.setattr(shell, "resolve", find)
        yield f"two.example:{port}"


def test_a_name_is_reached_though_its_first_address_swallows_all(with_a_deaf_address: str) -> None:
    with Admin(with_a_deaf_address) as admin:
        admin.list_topics()


async def test_an_async_client_reaches_it_too(with_a_deaf_address: str) -> None:
    async with AsyncAdmin(with_a_deaf_address) as admin:
        await admin.list_topics()

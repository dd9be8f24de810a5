"""TLS: what it protects, who the other side is, and what a hostile one can cost."""

import fcntl
import os
import resource
import socket
import ssl
import sys
import termios
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, cast
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from segbroker.broker.configuration.config import BrokerConfig, merge
from segbroker.broker.core import wall_ms
from segbroker.broker.peers import tls
from segbroker.broker.peers.tls import (
    RAW_LEAST,
    RAW_MOST,
    RAW_OF_STRANGERS,
    Certificate,
    CertificateUnusable,
    Standing,
)
from segbroker.broker.server import Broker
from segbroker.client import AsyncAdmin, Security, TlsFailed
from segbroker.protocol.certificate_dates import validity_ms
from segbroker.protocol.messages_core import (
    FetchResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from segbroker.segments.disk.storage import Storage

from ..support.certificates import Authority
from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes, until
from ..support.wire_client import Closed, WireClient, connect, fetch_request, values
from .conftest import PATIENT, Events, manager, serving
from .key_updates import CIPHER, key_updates, secret_in
from .logins import log_in

RECORD_OVERHEAD: Final = 22
"""Bytes of a record of TLS 1.3 besides its data."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def protected(
    authority: Authority, **keys: str | int | bool | Storage
) -> AsyncIterator[Broker]:
    settings: dict[str, str | int | bool | Storage] = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl_certificate": str(authority.server()),
        "ssl_reload_interval_ms": 0,
    }
    async with serving(**settings | keys) as broker:  # type: ignore[arg-type]
        yield broker


def certificate_in(path: Path | str, now_ms: Callable[[], int] = wall_ms) -> Certificate:
    """What a listener shows whose certificate and key are in this file."""
    config = BrokerConfig(listeners="SSL://127.0.0.1:0", ssl_certificate=str(path))
    (spec,) = config.listener_specs
    return Certificate(config.tls_of(spec), [spec.name], now_ms)


def trusting(authority: Authority, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if client is not None:
        context.load_cert_chain(str(client))
    return context


@asynccontextmanager
async def connect_tls(broker: Broker, context: ssl.SSLContext) -> AsyncIterator[WireClient]:
    tcp = await trio.open_tcp_stream(*broker.address)
    stream = trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True)
    async with stream:
        yield WireClient(cast(trio.SocketStream, stream))


def hello_of(authority: Authority) -> bytes:
    """The first that a client says."""
    outgoing = ssl.MemoryBIO()
    client = trusting(authority).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def in_memory(
    authority: Authority, tcp: trio.SocketStream, keylog: Path | None = None
) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """A TLS client behind its handshake, what it is to read, and what it has written."""
    context = trusting(authority)
    if keylog is not None:
        context.keylog_filename = str(keylog)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    await shake_hands(client, incoming, outgoing, tcp)
    return client, incoming, outgoing


async def shake_hands(
    client: ssl.SSLObject,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    tcp: trio.SocketStream,
) -> None:
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            await tcp.send_all(outgoing.read())
            incoming.write(await tcp.receive_some())
        else:
            await tcp.send_all(outgoing.read())
            return


async def certificate_of(
    broker: Broker, context: ssl.SSLContext, at: tuple[str, int] | None = None
) -> bytes | None:
    """What a client is shown; at: another listener than the first."""
    async with await trio.open_tcp_stream(*(at or broker.address)) as tcp:
        stream = trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True)
        await stream.do_handshake()
        shown: bytes | None = stream.getpeercert(binary_form=True)
        return shown


async def is_served(client: WireClient) -> bool:
    try:
        await client.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
    except (Closed, trio.BrokenResourceError, ssl.SSLError):
        return False
    return True


async def test_records_come_back_over_tls_as_they_were_sent(authority: Authority) -> None:
    sent = [os.urandom(size) for size in (1, 100, 16_384, 16_385, 300_000)] * 3
    async with (
        protected(authority) as broker,
        connect_tls(broker, trusting(authority)) as client,
    ):
        await client.create("t", max_message_bytes="1048576")
        for value in sent:
            assert (await client.produce("t", value)).error_code == 0
        read: list[bytes | None] = []
        while len(read) < len(sent):
            row = await client.fetch("t", len(read))
            assert row.records
            read += values(row)
        assert read == sent


async def test_a_client_that_reads_slowly_gets_every_byte_of_tls_in_order(
    authority: Authority,
) -> None:
    sent = [os.urandom(100_000) for _ in range(100)]
    async with (
        protected(authority, fetch_buffer_bytes_max=2 << 20) as broker,
        connect_tls(broker, trusting(authority)) as client,
    ):
        await client.create("t", max_message_bytes="1048576")
        for value in sent:
            await client.produce("t", value)
        # Far more than the sockets hold.
        ids = [await client.send(fetch_request("t", 0), 12) for _ in range(8)]
        await trio.sleep(0.3)
        for wanted in ids:
            got, reply = await client.receive(FetchResponse, 12)
            assert got == wanted
            read = values(reply.responses[0].partitions[0])
            assert read == sent[: len(read)]
            assert read


async def test_requests_that_come_in_one_record_are_all_answered(authority: Authority) -> None:
    async with (
        protected(authority) as broker,
        connect_tls(broker, trusting(authority)) as client,
    ):
        frames = [client.encode(MetadataRequest(topics=[]), 5) for _ in range(50)]
        await client.send_bytes(b"".join(frame for _, frame in frames))
        for wanted, _ in frames:
            got, _ = await client.receive(MetadataResponse, 5)
            assert got == wanted


class Taken(trio.abc.Instrument):
    """The most bytes that were taken from the socket of the only connection in one step."""

    def __init__(self, broker: Broker) -> None:
        (connection,) = broker._connections
        self._sock = connection._sock
        self._before = 0
        self.most = 0

    def unread(self) -> int:
        return int.from_bytes(fcntl.ioctl(self._sock, termios.FIONREAD, bytes(4)), sys.byteorder)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = self.unread()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most = max(self.most, self._before - self.unread())


@contextmanager
def looked_at(broker: Broker) -> Iterator[Taken]:
    taken = Taken(broker)
    trio.lowlevel.add_instrument(taken)
    try:
        yield taken
    finally:
        trio.lowlevel.remove_instrument(taken)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_records_of_a_byte_each_give_way_to_the_other_connections(
    authority: Authority, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60,000 of them would be received at once, which takes the third of a second."""
    monkeypatch.setattr(tls, "SLOW_S", 0)  # a quick machine takes more in its time
    count = 10_000
    async with (
        protected(authority, listeners=f"{protocol}://127.0.0.1:0") as broker,
        await trio.open_tcp_stream(*broker.address) as tcp,
    ):
        client, _, outgoing = await in_memory(authority, tcp)
        for byte in (count - 4).to_bytes(4, "big") + bytes(count - 5):  # a frame but its last byte
            client.write(bytes([byte]))
        with looked_at(broker) as taken:
            await tcp.send_all(outgoing.read())
            await becomes(lambda: broker.core.counters.received_bytes == count - 1)
        assert 0 < taken.most <= RAW_LEAST


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_changes_of_keys_give_way_to_the_other_connections(
    authority: Authority, protocol: str, tmp_path: Path
) -> None:
    """OpenSSL would read them for as long as they come, which may be for ever."""
    async with (
        protected(authority, listeners=f"{protocol}://127.0.0.1:0") as broker,
        await trio.open_tcp_stream(*broker.address) as tcp,
    ):
        client, _, _ = await in_memory(authority, tcp, tmp_path / "keys")
        assert (client.cipher() or ("",))[0] == CIPHER
        updates = key_updates(secret_in(tmp_path / "keys"), is_requested=False)
        await becomes(lambda: len(broker._connections) == 1)
        with looked_at(broker) as taken:
            await tcp.send_all(b"".join(islice(updates, 10_000)))
            await becomes(lambda: taken.unread() == 0)
        assert 0 < taken.most <= 2 * RAW_MOST
        assert len(broker._connections) == 1, "each was in order"


async def test_few_changes_of_keys_of_a_stranger_are_taken_at_a_time_behind_whatever_was_quick(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of as many bytes as a record with data may have there are 600."""
    monkeypatch.setattr(tls, "SLOW_S", 60)
    async with (
        protected(authority, listeners="SASL_SSL://127.0.0.1:0") as broker,
        await trio.open_tcp_stream(*broker.address) as tcp,
    ):
        client, _, outgoing = await in_memory(authority, tcp, tmp_path / "keys")
        updates = key_updates(secret_in(tmp_path / "keys"), is_requested=False, sent=1)
        await becomes(lambda: len(broker._connections) == 1)
        client.write((20_000).to_bytes(4, "big") + bytes(16_000))  # a frame but its end
        await tcp.send_all(outgoing.read())
        await becomes(lambda: broker.core.counters.received_bytes == 16_004)
        monkeypatch.setattr(tls, "SLOW_S", 0)
        with looked_at(broker) as taken:
            await tcp.send_all(b"".join(islice(updates, 3_000)))
            await becomes(lambda: taken.unread() == 0)
        assert 0 < taken.most <= RAW_OF_STRANGERS
        assert len(broker._connections) == 1, "each was in order"


async def test_of_who_has_logged_in_as_many_bytes_are_taken_as_of_anybody(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "SLOW_S", 0)
    keys = {"initial_user": "alice", "initial_password": "wonderland"}
    async with (
        protected(authority, listeners="SASL_SSL://127.0.0.1:0", **keys) as broker,
        connect_tls(broker, trusting(authority)) as client,
    ):
        assert (await log_in(client)).error_code == 0
        assert await is_served(client)
        with looked_at(broker) as taken:
            topics = [_named(f"{n:0200}") for n in range(200)]
            await client.ask(MetadataRequest(topics=topics), MetadataResponse, 5)
    assert taken.most == RAW_LEAST


async def test_who_takes_no_answer_to_changes_of_keys_is_closed(
    authority: Authority, tmp_path: Path, events: Events
) -> None:
    async with protected(authority) as broker:
        sock = trio.socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await sock.connect(broker.address)
        async with trio.SocketStream(sock) as tcp:
            await in_memory(authority, tcp, tmp_path / "keys")
            (connection,) = broker._connections
            small = (4_096).to_bytes(4, sys.byteorder)
            connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, small)
            updates = key_updates(secret_in(tmp_path / "keys"), is_requested=True)
            with trio.fail_after(60):
                while not events.named("malformed_request"):
                    with suppress(trio.BrokenResourceError):
                        await tcp.send_all(b"".join(islice(updates, 1_000)))
        await becomes(lambda: not broker._connections)
    (line,) = events.named("malformed_request")
    assert "TLS that it does not take" in str(line["error"])


async def test_a_hello_in_records_of_a_byte_gives_way_to_the_other_connections(
    authority: Authority,
) -> None:
    context = trusting(authority)
    context.set_alpn_protocols([f"{n:0250}" for n in range(200)])
    async with protected(authority) as broker, await trio.open_tcp_stream(*broker.address) as tcp:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        records = outgoing.read()
        hello = b""
        while records:
            end = 5 + int.from_bytes(records[3:5], "big")
            hello, records = hello + records[5:end], records[end:]
        assert len(hello) > 50_000
        await becomes(lambda: len(broker._connections) == 1)
        with looked_at(broker) as taken:
            await tcp.send_all(b"".join(b"\x16\3\1\0\1" + bytes([byte]) for byte in hello))
            await shake_hands(client, incoming, outgoing, tcp)
        assert 0 < taken.most <= 2 * RAW_MOST


@pytest.mark.parametrize("size", [100, RAW_LEAST - 1, RAW_LEAST])
async def test_a_goodbye_that_comes_with_a_request_ends_the_connection(
    authority: Authority, size: int
) -> None:
    """The client keeps its side of TCP open: after its close_notify nothing makes the socket
    readable once more.

    size: of the record of the request, of which the socket gives RAW_LEAST at first.
    """
    async with protected(authority) as broker, await trio.open_tcp_stream(*broker.address) as tcp:
        client, incoming, outgoing = await in_memory(authority, tcp)
        wire = WireClient(tcp)
        _, frame = wire.encode(MetadataRequest(topics=[_named("")]), 5)
        name = "n" * (size - RECORD_OVERHEAD - len(frame))
        _, frame = wire.encode(MetadataRequest(topics=[_named(name)]), 5)
        client.write(frame)
        assert outgoing.pending == size
        with pytest.raises(ssl.SSLWantReadError):
            client.unwrap()
        await tcp.send_all(outgoing.read())
        with trio.fail_after(10):
            while (received := await tcp.receive_some()) != b"":
                incoming.write(received)
        assert client.read(4), "it was answered before"


def _named(name: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(topic_id=UUID(int=0), name=name)


async def test_a_client_that_does_not_trust_the_authority_is_not_talked_to(
    authority: Authority, tmp_path: Path, events: Events
) -> None:
    stranger = Authority(tmp_path, "other")
    async with protected(authority) as broker:
        with pytest.raises(trio.BrokenResourceError) as caught:
            await certificate_of(broker, trusting(stranger))
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        with trio.fail_after(60):
            while not events.named("tls_handshake_failed"):  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_plaintext_on_a_tls_port_is_closed_with_a_line_that_says_so(
    authority: Authority, events: Events
) -> None:
    async with protected(authority) as broker:
        async with connect(broker.address) as client:
            assert not await is_served(client)
        async with connect_tls(broker, trusting(authority)) as client:
            assert await is_served(client)
    (line,) = events.named("tls_handshake_failed")
    assert "does not speak TLS" in str(line["error"])


async def test_old_versions_of_tls_are_refused(authority: Authority, events: Events) -> None:
    context = trusting(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with protected(authority, ssl_version_min="TLSv1.3") as broker:
        with pytest.raises(trio.BrokenResourceError):
            await certificate_of(broker, context)
        assert await certificate_of(broker, trusting(authority))


async def test_a_handshake_that_never_ends_is_not_waited_for(
    authority: Authority, events: Events
) -> None:
    async with protected(authority, handshake_timeout_ms=100) as broker:
        stream = await trio.open_tcp_stream(*broker.address)
        await stream.send_all(bytes.fromhex("16030100fa"))
        with trio.fail_after(60):
            assert await stream.receive_some() == b""
        await stream.aclose()
    assert events.named("handshake_timed_out")


async def test_a_flood_of_slow_handshakes_stays_within_its_limit(
    authority: Authority, events: Events
) -> None:
    async with protected(authority, handshakes_max=10) as broker:
        strangers = [await trio.open_tcp_stream(*broker.address) for _ in range(60)]
        async with connect_tls(broker, trusting(authority)) as client:
            assert await is_served(client)
            assert broker.connections <= 12
        for stranger in strangers:
            await stranger.aclose()
    assert len(events.named("handshake_crowded_out")) >= 50


# Certificates of clients


async def test_the_subject_of_a_certificate_is_the_clients_name(authority: Authority) -> None:
    alice = authority.client("alice", "Wonder, Land")
    keys = {"ssl_client_auth": "required", "ssl_ca": str(authority.file)}
    async with (
        protected(authority, **keys) as broker,
        connect_tls(broker, trusting(authority, alice)) as client,
    ):
        assert await is_served(client)
        (connection,) = broker._connections
        name = str(connection.peer.principal)
        assert connection.peer.authenticated
    assert name.startswith("User:")
    assert "CN=alice" in name
    assert "O=Wonder\\, Land" in name


@pytest.mark.parametrize(("auth", "served"), [("required", False), ("requested", True)])
async def test_who_shows_no_certificate_is_served_only_where_that_is_allowed(
    authority: Authority, auth: str, served: bool
) -> None:
    async with (
        protected(authority, ssl_client_auth=auth, ssl_ca=str(authority.file)) as broker,
        connect_tls(broker, trusting(authority)) as client,
    ):
        assert await is_served(client) == served
        names = {str(one.peer.principal) for one in broker._connections}
        assert names <= {"User:ANONYMOUS"}
        assert not any(one.peer.authenticated for one in broker._connections)


async def test_a_certificate_of_another_authority_is_refused_and_the_line_says_why(
    authority: Authority, tmp_path: Path, events: Events
) -> None:
    stranger = Authority(tmp_path, "other").client("alice")
    async with (
        protected(authority, ssl_client_auth="requested", ssl_ca=str(authority.file)) as broker,
        connect_tls(broker, trusting(authority, stranger)) as client,
    ):
        assert not await is_served(client)
    (line,) = events.named("tls_handshake_failed")
    assert "issuer" in line["error"]


# Reload


async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_live_on(
    authority: Authority, events: Events
) -> None:
    async with protected(authority) as broker:
        context = trusting(authority)
        before = await certificate_of(broker, context)
        async with connect_tls(broker, context) as client:
            assert await is_served(client)
            authority.server()
            await broker.reload_certificate()
            assert await is_served(client)
            after = await certificate_of(broker, context)
    assert before != after
    assert len(events.named("certificate_reloaded")) == 1


async def test_certificates_are_read_again_while_the_broker_starts(
    authority: Authority, events: Events
) -> None:
    disk = GatedStorage()
    disk.held = b"alice"  # the start waits for the sync of its first user
    config = merge(
        {
            "listeners": "SSL://127.0.0.1:0",
            "ssl_certificate": str(authority.server()),
            "ssl_reload_interval_ms": 0,
            "initial_user": "alice",
            "initial_password": "secret",
            **PATIENT,
        }
    )
    broker = Broker(config, manager=manager(disk))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        try:
            await becomes(lambda: not disk.syncs.is_set())
            await broker.reload_certificate()
            assert len(events.named("certificate_reloaded")) == 1
        finally:
            disk.held = None
            disk.syncs.set()
        await becomes(lambda: bool(events.named("broker_started")))
        broker.drain()


async def test_certificates_that_are_to_be_read_again_as_the_broker_ends_keep_nobody_waiting(
    authority: Authority, events: Events
) -> None:
    disk = GatedStorage()
    async with (
        trio.open_nursery() as nursery,
        protected(authority, storage=disk, lanes=1) as broker,
    ):
        core = broker.core
        async with connect(broker.listeners[1].bound) as client:
            await client.create("t")
            await client.produce("t", b"0")
        disk.syncs.clear()
        broker.drain()
        await becomes(lambda: bool(events.named("drain_began")) and core.lanes.busy == 1)
        nursery.start_soon(broker.reload_certificate)  # behind the closing, in the only lane
        await wait_all_tasks_blocked()
        disk.syncs.set()
    assert events.named("broker_stopped")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_is_resumed_only_in_tls_1_2_and_not_after_a_reload(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    context = trusting(authority)
    context.maximum_version = version

    def begin(broker: Broker, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
        tcp = socket.create_connection(broker.address, timeout=60)
        return context.wrap_socket(tcp, server_hostname="127.0.0.1", session=session)

    async with protected(authority) as broker:
        run = trio.to_thread.run_sync
        with await run(begin, broker) as first:
            with await run(begin, broker, first.session) as second:
                assert second.session_reused is (version is ssl.TLSVersion.TLSv1_2)
            await broker.reload_certificate()
            with await run(begin, broker, first.session) as third:
                assert not third.session_reused


async def test_files_that_change_are_noticed(authority: Authority) -> None:
    async with protected(authority, ssl_reload_interval_ms=20) as broker:
        context = trusting(authority)
        before = await certificate_of(broker, context)
        authority.server()
        with trio.fail_after(60):
            while await certificate_of(broker, context) == before:  # noqa: ASYNC110
                await trio.sleep(0.02)


def test_files_that_may_be_read_now_are_noticed(authority: Authority, events: Events) -> None:
    path = authority.server()
    path.chmod(0o640)
    certificate = certificate_in(path)
    certificate.look()
    assert not events.named("certificate_reloaded")
    path.chmod(0o600)
    certificate.look()
    assert events.named("certificate_reloaded"), "copied by somebody else, and handed over then"


def test_files_that_could_not_be_read_for_want_of_descriptors_are_read_later(
    authority: Authority, events: Events
) -> None:
    certificate = certificate_in(authority.server())
    before = certificate.context
    authority.server()
    limit, limit_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit_max))
    try:
        for _ in range(3):
            certificate.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit_max))
    assert certificate.context is before
    assert certificate.why_not_reloaded is not None
    assert "Too many open files" in certificate.why_not_reloaded
    assert len(events.named("certificate_not_reloaded")) == 1, "the same is not told again"
    certificate.look()
    assert certificate.context is not before
    assert certificate.why_not_reloaded is None
    assert len(events.named("certificate_reloaded")) == 1


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(
    authority: Authority, events: Events
) -> None:
    path = authority.server()
    certificate = certificate_in(path)
    before = certificate.context
    path.unlink()
    os.mkfifo(path)
    certificate.look()
    assert not certificate.reload()
    assert certificate.context is before
    assert certificate.why_not_reloaded == f"{path} is a pipe, which cannot be read again"
    assert len(events.named("certificate_not_reloaded")) == 2
    path.unlink()
    authority.server()
    certificate.look()
    assert certificate.why_not_reloaded is None


async def test_files_that_do_not_go_together_leave_the_old_ones_in_force(
    authority: Authority, events: Events
) -> None:
    async with protected(authority) as broker:
        context = trusting(authority)
        before = await certificate_of(broker, context)
        path = authority.server()
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        await broker.reload_certificate()
        assert await certificate_of(broker, context) == before
        assert len(events.named("certificate_not_reloaded")) == 1
        path.write_bytes(whole)
        await broker.reload_certificate()
        assert await certificate_of(broker, context) != before


def test_a_certificate_that_is_not_there_is_said_with_its_name(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(CertificateUnusable, match=r"missing\.pem"):
        certificate_in(missing)


@pytest.mark.parametrize(
    ("days", "event"),
    [(-1, "certificate_expired"), (3, "certificate_expires_soon"), (15, None)],
)
async def test_a_certificate_that_ends_is_told_at_the_start_at_a_reload_and_once_a_day(
    authority: Authority, events: Events, days: int, event: str | None
) -> None:
    until = datetime.now(UTC) + timedelta(days=days)
    path = authority.server("short", until=until)
    assert validity_ms(path.read_bytes())[1] == int(until.timestamp()) * 1000
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    certificate = certificate_in(path, lambda: now_ms)
    told = [one["event"] for one in events if one["event"].startswith("certificate_exp")]
    assert told == [event] * (event is not None)
    certificate.remind()
    assert certificate.reload()
    now_ms += 86_400_000
    certificate.remind()
    told = [one["event"] for one in events if one["event"].startswith("certificate_exp")]
    assert len(told) == {"certificate_expired": 3, "certificate_expires_soon": 3}.get(
        event or "", 1
    )


async def test_that_a_certificate_ends_is_told_every_day_also_where_no_file_is_looked_at(
    authority: Authority, events: Events, mock_clock: MockClock
) -> None:
    now_ms = wall_ms()
    until_s = now_ms / 1000 + 3 * 86_400
    path = authority.server("short", until=datetime.fromtimestamp(until_s, UTC))
    async with serving(
        now_ms=lambda: now_ms,
        listeners="SSL://127.0.0.1:0",
        ssl_certificate=str(path),
        ssl_reload_interval_ms=0,
    ):
        for times in range(1, 4):
            told = partial(events.named, "certificate_expires_soon")
            await trio.to_thread.run_sync(until, lambda: len(told()) == times)  # noqa: B023
            now_ms += 86_400_000
            mock_clock.jump(86_401)
        expired = partial(events.named, "certificate_expired")
        await trio.to_thread.run_sync(until, lambda: len(expired()) == 1)


@pytest.mark.parametrize(
    ("hours_left", "standing"),
    [(7, Standing.VALID), (5, Standing.EXPIRES_SOON), (-1, Standing.EXPIRED)],
)
def test_a_certificate_of_a_day_expires_soon_in_its_last_quarter(
    authority: Authority, hours_left: int, standing: Standing
) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    until = began + timedelta(days=1)
    path = authority.server("short", since=began, until=until)
    now_ms = int((until - timedelta(hours=hours_left)).timestamp() * 1000)
    assert certificate_in(path, lambda: now_ms).standing is standing


@pytest.mark.parametrize(("days", "standing"), [(-1, Standing.EXPIRED), (30, Standing.VALID)])
async def test_of_a_chain_the_first_that_ends_counts_as_it_does_for_clients(
    authority: Authority, days: int, standing: Standing
) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    path = authority.chained(until)
    certificate = certificate_in(path)
    assert certificate.valid_until_ms == int(until.timestamp() * 1000)
    assert certificate.standing is standing
    refused = pytest.raises(TlsFailed, match="expired")
    security = Security(tls=True, ca_file=str(authority.file))
    async with protected(authority, ssl_certificate=str(path)) as broker:
        host, port = broker.address
        with refused if standing is Standing.EXPIRED else nullcontext():
            async with AsyncAdmin(f"{host}:{port}", security=security, connect_timeout_ms=60_000):
                pass


async def test_a_client_says_that_the_certificate_has_expired(authority: Authority) -> None:
    path = authority.server("short", until=datetime.now(UTC) - timedelta(days=1))
    async with protected(authority, ssl_certificate=str(path)) as broker:
        host, port = broker.address
        security = Security(tls=True, ca_file=str(authority.file))
        with pytest.raises(TlsFailed, match="expired"):
            async with AsyncAdmin(f"{host}:{port}", security=security, connect_timeout_ms=60_000):
                pass


@pytest.mark.parametrize(
    "pem", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_has_no_dates(pem: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        validity_ms(pem)

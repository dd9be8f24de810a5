"""Strangers: what they cannot learn from how much work a login is, and that they take turns."""

import hashlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

from segbroker.broker.connections.connection import Connection
from segbroker.broker.connections.handshakes import SWEEP_PART
from segbroker.broker.loop import strangers as strangers_module
from segbroker.broker.loop.strangers import IN_PASS_LEAST, Strangers
from segbroker.broker.metrics.http_server import CONNECTIONS_MAX
from segbroker.broker.server import Broker
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import encode_request
from segbroker.protocol.messages_core import ApiVersionsRequest, ApiVersionsResponse
from segbroker.protocol.scram import ScramMechanism

from ..support.certificates import Authority
from ..support.waiting import becomes
from ..support.wire_client import WireClient, connect
from .conftest import Events, serving
from .logins import SHA_256, guarded, is_served, log_in
from .test_login import delete, set_password
from .test_tls import hello_of, protected

SHA_512 = ScramMechanism.SHA_512
STRANGERS: Final = 60
ASKED: Final = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "stranger"))
PAGE: Final = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_password_costs_the_same_whether_its_user_exists_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work: list[tuple[str, int, int]] = []
    derive = hashlib.pbkdf2_hmac

    def noted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        work.append((name, len(salt), iterations))
        return derive(name, password, salt, iterations)

    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:
        # As kafka-configs makes users that are to log in by SCRAM-SHA-512.
        assert await delete(admin, "alice", SHA_256) == 0
        assert await set_password(admin, "bob", "builder", mechanism=SHA_512) == 0
        assert await set_password(admin, "carol", "singer", mechanism=SHA_512) == 0
        monkeypatch.setattr(hashlib, "pbkdf2_hmac", noted)
        for user in ("bob", "mallory"):
            async with connect(broker.address) as client:
                last = await log_in(client, "PLAIN", user, "guessed")
                assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    of_bob, of_nobody = work
    assert of_nobody == of_bob


@contextmanager
def strangers(
    address: tuple[str, int], count: int, host: str = "127.0.0.1"
) -> Iterator[list[socket.socket]]:
    """So many connections."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(address, source_address=(host, 0)))
            for _ in range(count)
        ]


def send_at_once(socks: Sequence[socket.socket], what: bytes) -> None:
    """From each; the loop is held meanwhile."""
    for one in socks:
        one.sendall(what)


class Answered(trio.abc.Instrument):
    """Which of these are answered, pass by pass."""

    def __init__(self, broker: Broker, socks: Sequence[socket.socket]) -> None:
        self._tally = broker.core.counters.tally
        self._socks = {one.fileno(): one for one in socks}
        self._poll = select.poll()
        for one in self._socks:
            self._poll.register(one, select.POLLIN)
        self._requests = self._tally.all_requests
        self.order: list[socket.socket] = []
        self.most = 0
        self.requests_most = 0

    def before_io_wait(self, timeout: float) -> None:
        found = [one for one, _ in self._poll.poll(0)]
        for one in found:
            self._poll.unregister(one)
            self.order.append(self._socks[one])
        self.most = max(self.most, len(found))
        requests = self._tally.all_requests
        self.requests_most = max(self.requests_most, requests - self._requests)
        self._requests = requests


@contextmanager
def looked_at(broker: Broker, socks: Sequence[socket.socket]) -> Iterator[Answered]:
    answered = Answered(broker, socks)
    trio.lowlevel.add_instrument(answered)
    try:
        yield answered
    finally:
        trio.lowlevel.remove_instrument(answered)


async def test_handshakes_are_made_one_after_the_other_and_not_by_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, at_once, most = threading.get_ident(), 0, 0
    real = ssl.SSLObject.do_handshake

    def noted(handshake: ssl.SSLObject) -> None:
        nonlocal at_once, most
        assert threading.get_ident() != loop
        at_once += 1
        most = max(most, at_once)
        try:
            real(handshake)
        finally:
            at_once -= 1

    authority = Authority(tmp_path)
    hello = hello_of(authority)
    monkeypatch.setattr(ssl.SSLObject, "do_handshake", noted)
    async with protected(authority) as broker:
        with strangers(broker.address, STRANGERS) as socks:
            await becomes(lambda: broker.connections == STRANGERS)
            with looked_at(broker, socks) as answered:
                send_at_once(socks, hello)
                await becomes(lambda: len(answered.order) == STRANGERS)
    assert most == 1


async def test_behind_many_handshakes_of_an_address_another_one_is_next_but_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    order: list[str] = []
    begun, released = threading.Event(), threading.Event()
    real = Strangers.shake_hands

    async def noted(
        lines: Strangers, host: str, step: Callable[[], None], *, has_begun: bool
    ) -> None:
        def told() -> None:
            order.append(host)
            step()

        await real(lines, host, told, has_begun=has_begun)

    def hold() -> None:
        begun.set()
        assert released.wait(60)

    monkeypatch.setattr(Strangers, "shake_hands", noted)
    async with protected(authority) as broker, trio.open_nursery() as nursery:
        lines = broker.core.strangers
        nursery.start_soon(partial(lines.shake_hands, "127.0.0.9", hold, has_begun=False))
        await becomes(begun.is_set)
        with (
            strangers(broker.address, STRANGERS) as many,
            strangers(broker.address, 1, "127.0.0.2") as (other,),
        ):
            await becomes(lambda: broker.connections == STRANGERS + 1)
            send_at_once([*many, other], hello_of(authority))
            await becomes(lambda: len(lines._handshakes) == STRANGERS + 1)
            released.set()
            await becomes(lambda: len(order) == STRANGERS + 2)
    assert order.index("127.0.0.2") <= 2


async def test_handshakes_that_wait_for_the_broker_keep_their_places(
    tmp_path: Path, events: Events
) -> None:
    """A fleet that comes back is larger than the limit: if who comes had the place of who waits,
    nobody would be served as long as they come quicker than they are served."""
    authority, released = Authority(tmp_path), threading.Event()
    limit, beyond = 5, 20

    def hold() -> None:
        assert released.wait(60)

    async with protected(authority, handshakes_max=limit) as broker, trio.open_nursery() as nursery:
        lines = broker.core.strangers
        nursery.start_soon(lines.shake_hands, "127.0.0.9", hold)
        with strangers(broker.address, limit) as first:
            send_at_once(first, hello_of(authority))
            await becomes(lambda: len(lines._handshakes) == limit)
            with strangers(broker.address, beyond) as others:
                send_at_once(others, hello_of(authority))
                await becomes(lambda: len(events.named("handshake_crowded_out")) == beyond)
            released.set()
            for one in first:
                assert await trio.to_thread.run_sync(one.recv, 1)


async def test_of_many_requests_before_a_login_few_are_answered_in_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strangers_module, "CLIENTS_SHARE", 0.0)  # passes are long on a busy machine
    async with guarded() as broker:
        with strangers(broker.address, STRANGERS) as socks:
            await becomes(lambda: broker.connections == STRANGERS)
            with looked_at(broker, socks) as answered:
                send_at_once(socks, ASKED * 3)
                await becomes(lambda: broker.core.counters.requests == 3 * STRANGERS)
            assert len(answered.order) == STRANGERS
            assert 0 < answered.requests_most <= IN_PASS_LEAST


async def test_a_broker_ends_also_while_strangers_wait_for_their_turn(tmp_path: Path) -> None:
    """Those in the line of handshakes as well as those that have asked for something."""
    authority, released = Authority(tmp_path), threading.Event()
    listeners = "SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"

    def hold() -> None:
        assert released.wait(60)

    async with protected(authority, listeners=listeners) as broker, trio.open_nursery() as nursery:
        lines = broker.core.strangers
        nursery.start_soon(lines.shake_hands, "127.0.0.9", hold)
        tls, sasl = (one.bound for one in broker.listeners)
        with strangers(tls, STRANGERS) as many, strangers(sasl, STRANGERS) as others:
            await becomes(lambda: broker.connections == 2 * STRANGERS)
            send_at_once(many, hello_of(authority))
            await becomes(lambda: len(lines._handshakes) == STRANGERS)
            send_at_once(others, ASKED * 20)
            broker.drain()
            await becomes(lambda: not broker.connections)
            assert not len(lines._handshakes)
        released.set()


async def test_of_many_who_ask_for_a_page_one_is_looked_at_in_a_pass() -> None:
    async with serving(metrics_listen="127.0.0.1:0") as broker:
        address = broker.metrics_address
        assert address is not None
        with strangers(address, CONNECTIONS_MAX) as socks:
            for one in socks:  # each is kept
                one.sendall(PAGE)
                await trio.to_thread.run_sync(one.recv, 4_096)
            with looked_at(broker, socks) as answered:
                send_at_once(socks, PAGE)
                await becomes(lambda: len(answered.order) == CONNECTIONS_MAX)
    assert answered.most == 1


async def test_of_an_address_those_go_first_who_have_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If all took turns, a thousand would be through at the same time, as late as the last one:
    when all have given up, and come again."""
    monkeypatch.setattr(strangers_module, "IN_PASS_LEAST", 1)
    monkeypatch.setattr(strangers_module, "CLIENTS_SHARE", 0.0)
    count, requests = 20, 3
    answered: list[int] = []

    async def ask(client: WireClient) -> None:
        for number in range(requests):
            await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            answered.append(number)

    async with guarded() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(ask, client)
    assert answered.index(requests - 1) < count


async def test_at_the_limit_of_logins_a_stranger_costs_no_look_at_all_others(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    limit, beyond = 100, 200
    looks = 0
    real = Connection.is_settled

    def counted(connection: Connection) -> bool:
        nonlocal looks
        looks += 1
        return bool(real.__get__(connection))

    async with guarded(handshakes_max=limit) as broker:
        with strangers(broker.address, limit):
            await becomes(lambda: broker.connections == limit)
            monkeypatch.setattr(Connection, "is_settled", property(counted))
            # The broker's own look at what is overdue comes four times in a second at most.
            began = trio.current_time()
            with strangers(broker.address, beyond):
                await becomes(lambda: len(events.named("handshake_crowded_out")) == beyond)
            looked_often = 4 * (trio.current_time() - began) + 2
    a_sixteenth = limit // SWEEP_PART
    assert looks <= beyond + (2 * looked_often + beyond // a_sixteenth) * (limit + a_sixteenth)


async def test_at_the_limit_of_logins_who_has_just_logged_in_stays(events: Events) -> None:
    """Also where nobody has looked since who is through."""
    async with guarded(handshakes_max=5) as broker, AsyncExitStack() as stack:
        clients = []
        for _ in range(12):
            client = await stack.enter_async_context(connect(broker.address))
            assert (await log_in(client)).error_code == 0
            clients.append(client)
        with strangers(broker.address, 20):
            await becomes(lambda: len(events.named("handshake_crowded_out")) == 15)
        for client in clients:
            assert await is_served(client)

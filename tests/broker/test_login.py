"""Logins: who gets in, what a stranger may ask, and what is not given away."""

import errno
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio
from trio.testing import MockClock

from segbroker.broker.access import authentication
from segbroker.broker.access.authentication import CHECKS_MAX
from segbroker.broker.configuration.config import InvalidConfig, merge
from segbroker.broker.connections import connection as connection_module
from segbroker.broker.loop import large_requests
from segbroker.broker.loop.address_threads import AddressThreads
from segbroker.broker.peers import listener as listener_module
from segbroker.broker.peers.sasl import LOGIN_FRAME_BYTES_MAX
from segbroker.broker.server import Broker
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import decode_response
from segbroker.protocol.messages_admin import DescribeConfigsRequest as DescribeConfigs
from segbroker.protocol.messages_admin import (
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from segbroker.protocol.messages_core import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from segbroker.protocol.messages_security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from segbroker.protocol.sasl import SASL_MESSAGE_SIZE_MAX, encode_plain
from segbroker.protocol.schema import Message
from segbroker.protocol.scram import (
    ScramClient,
    ScramCredential,
    ScramMechanism,
    is_password,
    salted_password,
)
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.metadata.credentials import Content, Credentials, credentials_of

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes, until
from ..support.wire_client import Closed, WireClient, connect
from ..support.wire_settings import alter
from .conftest import Events, manager
from .guarded import connect_from
from .logins import NONCE, SHA_256, choose, guarded, is_served, log_in, prove


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_who_knows_the_password_is_served(mechanism: str) -> None:
    async with guarded() as broker, connect(broker.address) as client:
        assert (await log_in(client, mechanism)).error_code == 0
        assert await is_served(client)
        (connection,) = broker._connections
        assert str(connection.peer.principal) == "User:alice"
        assert connection.peer.authenticated


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "wonderland")])
async def test_a_wrong_login_is_answered_after_a_while_and_closed(
    mechanism: str, user: str, password: str, events: Events
) -> None:
    async with (
        guarded(authentication_failure_delay_ms=100) as broker,
        connect(broker.address) as client,
    ):
        began = trio.current_time()
        reply = await log_in(client, mechanism, user, password)
        assert trio.current_time() - began >= 0.1
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert reply.error_message == "Authentication failed: invalid credentials"
        assert not await is_served(client)
    (line,) = events.named("authentication_failed")
    assert (line["user"], line["mechanism"]) == (user, mechanism)
    assert "wonderland" not in str(events)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["x" * 5_000, "a\nb", "\x1b[31m"])
async def test_a_name_that_no_user_can_have_does_not_reach_the_log(
    mechanism: str, user: str, events: Events
) -> None:
    async with guarded() as broker, connect(broker.address) as client:
        await choose(client, mechanism)
        first = (
            encode_plain(user, "p")
            if mechanism == "PLAIN"
            else ScramClient(SHA_256, user, "p", NONCE).first()
        )
        reply = await prove(client, first)
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await is_served(client)
    (line,) = events.named("authentication_failed")
    assert user not in str(line)


async def test_a_user_that_does_not_exist_gets_a_challenge_like_anybody_always_the_same() -> None:
    storage = MemoryStorage()
    salts: dict[str, set[bytes]] = {"alice": set(), "bob": set(), "carol": set()}
    rest = set()
    for _ in range(2):  # also after a restart
        async with guarded(storage=storage, scram_iterations=5000) as broker:
            for user in [*salts, *salts]:
                async with connect(broker.address) as client:
                    await choose(client, "SCRAM-SHA-256")
                    first = ScramClient(SHA_256, user, "x", NONCE).first()
                    reply = await prove(client, first)
                    _, salt, iterations = reply.auth_bytes.split(b",")
                    salts[user].add(salt)
                    rest.add((len(salt), iterations))
    assert rest == {(26, b"i=5000")}
    assert all(len(one) == 1 for one in salts.values()), salts
    assert len(set.union(*salts.values())) == 3


async def test_of_many_users_only_those_are_counted_that_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[str] = []

    def noted(content: Content, name: str) -> Credentials:
        counted.append(name)
        return credentials_of(content, name)

    async def iterations_of(client: WireClient, user: str) -> int:
        await choose(client, "SCRAM-SHA-256")
        reply = await prove(client, ScramClient(SHA_256, user, "x", NONCE).first())
        return int(reply.auth_bytes.split(b",i=")[1])

    async def asked(user: str) -> int:
        async with connect(broker.address) as client:
            return await iterations_of(client, user)

    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:
        for n in range(5):
            assert await set_password(admin, f"user-{n}", "x", iterations=5000) == 0
        assert await asked("nobody") == 5000
        monkeypatch.setattr(authentication, "credentials_of", noted)
        assert await set_password(admin, "user-3", "y", iterations=6000) == 0
        assert await asked("nobody") == 5000, "as most have"
        assert set(counted) == {"user-3", "nobody"}
        for n in range(4):
            assert await set_password(admin, f"user-{n}", "y", iterations=6000) == 0
        assert await asked("nobody") == 6000


@pytest.mark.parametrize(
    "request_",
    [MetadataRequest(topics=[]), DescribeUserScramCredentialsRequest(users=None)],
)
async def test_before_login_nothing_but_logins_is_served(request_: Message, events: Events) -> None:
    async with guarded() as broker, connect(broker.address) as client:
        version = request_.message_versions[1]
        await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        await client.send(request_, min(version, 9))
        with pytest.raises(Closed):
            await client.receive_frame()
    (line,) = events.named("unserved_request")
    name = type(request_).__name__.removesuffix("Request")
    assert line["error"] == f"{name} before login"


async def test_a_stranger_gets_no_room_for_a_large_request(events: Events) -> None:
    async with guarded() as broker, connect(broker.address) as client:
        await client.send_bytes((1 << 20).to_bytes(4, "big") + bytes(100))
        with pytest.raises(Closed):
            await client.receive_frame()
    assert events.named("malformed_request")


async def test_what_comes_right_behind_a_login_may_be_as_large_as_a_clients() -> None:
    names = [f"topic-{n}" for n in range(2_000)]
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    async with guarded() as broker, connect(broker.address) as client:
        requests = [
            client.encode(SaslHandshakeRequest(mechanism="PLAIN"), 1),
            client.encode(
                SaslAuthenticateRequest(auth_bytes=encode_plain("alice", "wonderland")), 1
            ),
            client.encode(asked, 5),
        ]
        assert len(requests[-1][1]) > LOGIN_FRAME_BYTES_MAX
        await client.send_bytes(b"".join(frame for _, frame in requests))
        with trio.fail_after(20):
            *_, last = [await client.receive_frame() for _ in requests]
        _, answer = decode_response(last, ApiKey.METADATA, 5)
        assert isinstance(answer, MetadataResponse)
        assert {topic.name for topic in answer.topics} == set(names)


@asynccontextmanager
async def checkers_busy(broker: Broker) -> AsyncIterator[AddressThreads]:
    """While nobody's password is checked; whose turn comes then."""
    checks = broker.core.authentication._checks
    begun, is_over = [], threading.Event()

    def hold() -> None:
        begun.append(True)
        assert is_over.wait(60)

    async with trio.open_nursery() as nursery:
        for n in range(CHECKS_MAX):
            nursery.start_soon(checks.run, f"busy {n}", hold)
        await becomes(lambda: len(begun) == CHECKS_MAX)
        try:
            yield checks
        finally:
            is_over.set()


async def test_a_login_that_waits_takes_no_room_of_large_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_requests, "BYTES_MAX", 1)  # for one at a time
    names = [MetadataRequestTopic(name=f"{n}-{'x' * 200}") for n in range(200)]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    async with guarded() as broker, connect(broker.address) as stranger:
        async with checkers_busy(broker) as checks:
            await choose(stranger, "PLAIN")
            message = encode_plain("alice", "x" * (SASL_MESSAGE_SIZE_MAX - len("\0alice\0")))
            await stranger.send(SaslAuthenticateRequest(auth_bytes=message), 2)
            await becomes(lambda: len(checks) == 1)
            async with connect(broker.listeners[1].bound) as client:
                with trio.fail_after(60):
                    assert len((await client.ask(request, MetadataResponse, 9)).topics) == 200
        _, reply = await stranger.receive(SaslAuthenticateResponse, 2)
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@contextmanager
def checks_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The passwords that are checked, in order; one after the other is told when it was."""
    checked: list[str] = []
    real = is_password

    def noted(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
        try:
            return real(mechanism, credential, password)
        finally:
            checked.append(password)

    with monkeypatch.context() as patched:
        patched.setattr(authentication, "is_password", noted)
        yield checked


async def log_in_from(host: str, broker: Broker, password: str) -> None:
    async with connect_from(host, broker) as client:
        await choose(client, "PLAIN")
        reply = await prove(client, encode_plain("alice", password))
        assert bool(reply.error_code) == (password != "wonderland")


def addresses_of(flood: int, network: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where to come from, so that the broker sees one address of IPv4, or as many of one network of
    IPv6; everybody else is of another network."""
    if not network:
        return ["127.0.0.1"] * flood

    def seen(host: str) -> str:
        *_, link, number = host.split(".")
        return f"{network}:{link}::{number}"

    monkeypatch.setattr(listener_module, "plain_host", seen)
    return [f"127.0.1.{n + 1}" for n in range(flood)]


@pytest.mark.parametrize("network", ["", "2001:db8:0"])
async def test_a_flood_of_passwords_from_one_address_locks_nobody_else_out(
    monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    """Whoever waits behind a thousand checks is the oldest in the end, and crowded out."""
    flood = 50
    hosts = addresses_of(flood, network, monkeypatch)
    async with guarded(authentication_failure_delay_ms=0) as broker:
        with checks_noted(monkeypatch) as checked:
            async with trio.open_nursery() as nursery, checkers_busy(broker) as checks:
                for host in hosts:
                    nursery.start_soon(log_in_from, host, broker, "guess")
                await becomes(lambda: len(checks) == flood)
                nursery.start_soon(log_in_from, "127.0.0.2", broker, "wonderland")
                await becomes(lambda: len(checks) == flood + 1)
    assert len(checked) == flood + 1
    assert checked.index("wonderland") < 10


async def test_passwords_are_checked_one_after_the_other_also_while_the_loop_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fleet that comes back waits for processors, not for passes of the loop."""
    fleet = 10 * CHECKS_MAX
    async with guarded() as broker:
        with checks_noted(monkeypatch) as checked:
            async with trio.open_nursery() as nursery:
                async with checkers_busy(broker) as checks:
                    for _ in range(fleet):
                        nursery.start_soon(log_in_from, "127.0.0.1", broker, "wonderland")
                    await becomes(lambda: len(checks) == fleet)
                until(lambda: len(checked) == fleet)  # without a pass of the loop


async def test_a_login_that_does_not_come_is_not_waited_for(events: Events) -> None:
    async with guarded(handshake_timeout_ms=100) as broker, connect(broker.address) as client:
        await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        with trio.fail_after(60), pytest.raises(Closed):
            await client.receive_frame()
    assert events.named("handshake_timed_out")


async def test_a_login_that_waits_for_the_broker_is_not_late(
    mock_clock: MockClock, events: Events
) -> None:
    mock_clock.rate = 1
    async with (
        guarded(handshake_timeout_ms=60_000) as broker,
        trio.open_nursery() as nursery,
        checkers_busy(broker) as checks,
    ):
        nursery.start_soon(log_in_from, "127.0.0.1", broker, "wonderland")
        await becomes(lambda: len(checks) == 1)
        async with connect(broker.address) as later:
            await becomes(lambda: broker.connections == 2)
            mock_clock.jump(60)
            with pytest.raises(Closed):
                await later.receive_frame()
    assert len(events.named("handshake_timed_out")) == 1


async def test_logins_that_wait_for_the_broker_keep_their_places(events: Events) -> None:
    """A fleet that comes back, each from an address of its own; also where the limit is lowered."""
    fleet = [f"127.0.0.{n}" for n in range(1, 6)]
    async with (
        guarded(handshakes_max=len(fleet)) as broker,
        trio.open_nursery() as nursery,
        checkers_busy(broker) as checks,
    ):
        for host in fleet:
            nursery.start_soon(log_in_from, host, broker, "wonderland")
        await becomes(lambda: len(checks) == len(fleet))
        for limit in (len(fleet), 2):
            async with connect(broker.listeners[1].bound) as admin:
                assert await alter(admin, "1", handshakes_max=str(limit)) == (0, None)
            for host in (fleet[0], "127.0.0.6"):
                with pytest.raises((Closed, OSError)):
                    async with connect_from(host, broker) as late:
                        await late.receive_frame()
    assert len(events.named("handshake_crowded_out")) == 4


async def test_who_keeps_the_broker_waiting_for_long_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with guarded(handshakes_max=1) as broker, connect(broker.address) as slow:
        monkeypatch.setattr(connection_module, "PATIENCE_S", 3600.0)
        assert (await choose(slow, "PLAIN")).error_code == 0
        with pytest.raises((Closed, OSError)):
            async with connect(broker.address) as late:
                await late.receive_frame()
        monkeypatch.setattr(connection_module, "PATIENCE_S", 0.0)
        async with connect(broker.address) as late:
            assert (await log_in(late)).error_code == 0
            assert await is_served(late)
        with pytest.raises(Closed):
            await slow.receive_frame()


async def test_a_crowd_of_strangers_crowds_out_itself(events: Events) -> None:
    async with guarded(handshakes_max=5) as broker, connect(broker.address) as known:
        await log_in(known)
        assert await is_served(known)
        async with trio.open_nursery() as nursery:
            strangers = [await trio.open_tcp_stream(*broker.address) for _ in range(50)]
            async with connect(broker.address) as late:
                assert (await log_in(late)).error_code == 0
                assert await is_served(late)
            assert broker.connections <= 8
            for stranger in strangers:
                nursery.start_soon(stranger.aclose)
        assert await is_served(known)
    assert len(events.named("handshake_crowded_out")) >= 45


@pytest.mark.parametrize("network", ["", "2001:db8:0"])
async def test_a_crowd_from_one_address_crowds_out_nobody_of_another(
    events: Events, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    """Who is far away needs a while for the five messages of a login."""
    hosts = addresses_of(50, network, monkeypatch)
    monkeypatch.setattr(connection_module, "PATIENCE_S", 0.0)
    async with guarded(handshakes_max=5) as broker, connect_from("127.0.0.2", broker) as slow:
        assert (await choose(slow, "PLAIN")).error_code == 0
        strangers = [
            await trio.open_tcp_stream(*broker.address, local_address=host) for host in hosts
        ]
        await becomes(lambda: len(events.named("handshake_crowded_out")) == 46)
        assert (await prove(slow, encode_plain("alice", "wonderland"))).error_code == 0
        assert await is_served(slow)
        for stranger in strangers:
            await stranger.aclose()


async def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are() -> None:
    async with (
        guarded(sasl_mechanisms="SCRAM-SHA-512") as broker,
        connect(broker.address) as client,
    ):
        reply = await choose(client, "PLAIN")
        assert reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert reply.mechanisms == ["SCRAM-SHA-512"]
        assert not await is_served(client)


async def test_a_message_without_a_handshake_is_refused() -> None:
    async with guarded() as broker, connect(broker.address) as client:
        reply = await prove(client, encode_plain("alice", "wonderland"))
        assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert not await is_served(client)


async def test_a_listener_without_login_says_so() -> None:
    async with guarded() as broker, connect(broker.listeners[1].bound) as client:
        assert (await choose(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        reply = await prove(client, b"x")
        assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)


async def test_each_listener_tells_its_own_address() -> None:
    advertised = "PLAINTEXT://inside.example.org:19092"
    async with guarded(advertised_listeners=advertised) as broker:
        async with connect(broker.address) as client:
            await log_in(client)
            reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
            assert (reply.brokers[0].host, reply.brokers[0].port) == broker.address
        async with connect(broker.listeners[1].bound) as client:
            reply = await client.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
            assert (reply.brokers[0].host, reply.brokers[0].port) == ("inside.example.org", 19092)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_old_clients_log_in_with_bare_messages(mechanism: str) -> None:
    async with guarded() as broker, connect(broker.address) as client:

        async def bare(message: bytes) -> bytes:
            await client.send_bytes(len(message).to_bytes(4, "big") + message)
            return await client.receive_frame()

        assert (await choose(client, mechanism, version=0)).error_code == 0
        if mechanism == "PLAIN":
            assert await bare(encode_plain("alice", "wonderland")) == b""
        else:
            scram = ScramClient(ScramMechanism.SHA_512, "alice", "wonderland", NONCE)
            assert scram.verify(await bare(scram.answer(await bare(scram.first()))))
        assert await is_served(client)


async def test_a_session_is_renewed_by_the_same_user_or_ends(
    mock_clock: MockClock, events: Events
) -> None:
    """The broker's time goes on only where the test says so, however slow the machine is."""
    async with (
        guarded(connections_max_reauth_ms=600, handshake_timeout_ms=400) as broker,
        connect(broker.address) as renewed,
        connect(broker.address) as forgetful,
    ):
        assert (await log_in(renewed)).session_lifetime_ms == 600
        await log_in(forgetful)
        for _ in range(4):
            mock_clock.jump(0.25)
            assert (await log_in(renewed)).error_code == 0
            assert await is_served(renewed)
        assert not await is_served(forgetful)
        # Who has said nothing since is not closed, and may log in again.
        mock_clock.jump(60)
        assert (await log_in(renewed)).error_code == 0
        assert await is_served(renewed)
        mock_clock.rate = 1  # a wrong login is answered after a while
        reply = await log_in(renewed, password="wrong")
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await is_served(renewed)
    assert len(events.named("session_expired")) == 1


async def test_a_session_that_is_renewed_after_the_limit_is_gone_lasts(
    mock_clock: MockClock,
) -> None:
    async with (
        guarded(connections_max_reauth_ms=600) as broker,
        connect(broker.address) as client,
    ):
        await log_in(client)
        await alter(client, "1", connections_max_reauth_ms="0")
        assert (await log_in(client)).session_lifetime_ms == 0  # do not come again
        mock_clock.jump(60)
        assert await is_served(client)


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_login_that_began_before_the_password_was_changed_is_wrong(
    is_removed: bool,
) -> None:
    """Else who renews its session may begin at once, and end it when it is over: as another."""
    async with (
        guarded() as broker,
        connect(broker.listeners[1].bound) as admin,
        connect(broker.address) as client,
    ):
        assert (await choose(client, "SCRAM-SHA-256")).error_code == 0
        scram = ScramClient(SHA_256, "alice", "wonderland", NONCE)
        challenge = await prove(client, scram.first())
        if is_removed:
            assert await delete(admin, "alice", SHA_256) == 0
        else:
            assert await set_password(admin, "alice", "looking-glass") == 0
        last = await prove(client, scram.answer(challenge.auth_bytes))
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_password_that_was_changed_while_its_check_waited_is_wrong(
    is_removed: bool,
) -> None:
    async with (
        guarded() as broker,
        connect(broker.listeners[1].bound) as admin,
        connect(broker.address) as client,
        trio.open_nursery() as nursery,
    ):
        assert (await choose(client, "PLAIN")).error_code == 0
        async with checkers_busy(broker) as checks:
            nursery.start_soon(refused_plain, client)
            await becomes(lambda: len(checks) == 1)
            if is_removed:
                for mechanism in ScramMechanism:
                    assert await delete(admin, "alice", mechanism) == 0
            else:
                assert await set_password(admin, "alice", "looking-glass") == 0


async def refused_plain(client: WireClient) -> None:
    """Log in by the password that alice had."""
    last = await prove(client, encode_plain("alice", "wonderland"))
    assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_session_does_not_change_hands() -> None:
    async with guarded() as broker, connect(broker.address) as client:
        await log_in(client)
        assert (await set_password(client, "bob", "builder")) == 0
        reply = await log_in(client, user="bob", password="builder")
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await is_served(client)


# Users over the wire


async def set_password(
    client: WireClient,
    user: str,
    password: str,
    iterations: int = 4096,
    mechanism: ScramMechanism = SHA_256,
) -> int:
    salt = b"salt of a test"
    salted = salted_password(mechanism, password, salt, iterations)
    reply = await client.ask(
        AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                AlterUserScramCredentialsRequestUpsertion(
                    name=user,
                    mechanism=mechanism,
                    iterations=iterations,
                    salt=salt,
                    salted_password=salted,
                )
            ],
        ),
        AlterUserScramCredentialsResponse,
        0,
    )
    return reply.results[0].error_code


async def described(
    client: WireClient, *users: str
) -> list[tuple[str, int, list[tuple[int, int]]]]:
    reply = await client.ask(
        DescribeUserScramCredentialsRequest(
            users=[DescribeUserScramCredentialsRequestUser(name=name) for name in users] or None
        ),
        DescribeUserScramCredentialsResponse,
        0,
    )
    return [
        (
            row.user,
            row.error_code,
            [(one.mechanism, one.iterations) for one in row.credential_infos],
        )
        for row in reply.results
    ]


async def delete(client: WireClient, user: str, *mechanisms: int) -> int:
    reply = await client.ask(
        AlterUserScramCredentialsRequest(
            deletions=[
                AlterUserScramCredentialsRequestDeletion(name=user, mechanism=one)
                for one in mechanisms
            ],
            upsertions=[],
        ),
        AlterUserScramCredentialsResponse,
        0,
    )
    return reply.results[0].error_code


async def test_a_user_that_could_not_be_made_is_gone_for_good_once_told_to_be() -> None:
    """The event may be on the disk: who deletes the user to be sure is not told that there is
    none, and finds it behind a kill."""
    disk = GatedStorage()
    async with guarded(storage=disk) as broker, connect(broker.listeners[1].bound) as admin:
        disk.sync_error = OSError(errno.EIO, "planted")
        assert await set_password(admin, "bob", "builder") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await delete(admin, "bob", 1) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error = None
        assert await delete(admin, "bob", 1) == ErrorCode.RESOURCE_NOT_FOUND
        behind = disk.after_kill()
    async with guarded(storage=behind) as broker, connect(broker.listeners[1].bound) as admin:
        assert await described(admin, "bob") == [("bob", ErrorCode.RESOURCE_NOT_FOUND, [])]


async def test_a_user_that_is_made_can_log_in_also_after_a_restart_until_it_is_deleted() -> None:
    storage = MemoryStorage()
    async with guarded(storage=storage) as broker, connect(broker.listeners[1].bound) as admin:
        assert await set_password(admin, "bob", "builder") == 0
        async with connect(broker.address) as client:
            assert (await log_in(client, user="bob", password="builder")).error_code == 0
    async with guarded(storage=storage) as broker, connect(broker.listeners[1].bound) as admin:
        assert await described(admin) == [
            ("alice", 0, [(1, 8192), (2, 8192)]),
            ("bob", 0, [(1, 4096)]),
        ]
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            async with connect(broker.address) as client:
                last = await log_in(client, mechanism, "bob", "builder")
                assert last.error_code == 0
        # Never set for this user: as if the password were wrong.
        async with connect(broker.address) as client:
            last = await log_in(client, "SCRAM-SHA-512", "bob", "builder")
            assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await delete(admin, "bob", 1) == 0
        assert await delete(admin, "bob", 1) == ErrorCode.RESOURCE_NOT_FOUND
        assert await described(admin, "bob") == [("bob", ErrorCode.RESOURCE_NOT_FOUND, [])]
        async with connect(broker.address) as client:
            last = await log_in(client, user="bob", password="builder")
            assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_an_initial_password_that_cannot_be_one_ends_the_start() -> None:
    broker = Broker(
        merge({"listen": "127.0.0.1:0", "initial_user": "a", "initial_password": "x" * 5_000}),
        manager=manager(),
    )
    wrong = "initial_password: a password has 1 to 4096 bytes"
    with pytest.raises(InvalidConfig, match=wrong), trio.fail_after(60):
        await broker.run()


async def test_the_initial_users_password_is_not_set_back_by_a_restart() -> None:
    storage = MemoryStorage()
    async with guarded(storage=storage) as broker, connect(broker.listeners[1].bound) as admin:
        assert await set_password(admin, "alice", "changed") == 0
        assert await delete(admin, "alice", 2) == 0
    async with guarded(storage=storage) as broker, connect(broker.address) as client:
        assert (await log_in(client, password="changed")).error_code == 0


async def test_a_credential_that_cannot_be_one_is_refused_and_changes_nothing() -> None:
    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:
        before = await described(admin)
        assert await set_password(admin, "bob", "x", 4095) == ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert await set_password(admin, "bob", "x", 16385) == ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert await set_password(admin, "b\nb", "x") == ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert await set_password(admin, "", "x") == ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert await delete(admin, "", 1, 1) == ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert await delete(admin, "alice", 3) == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert await delete(admin, "alice", 1, 1) == ErrorCode.DUPLICATE_RESOURCE
        assert await described(admin) == before
        twice = await described(admin, "alice", "alice")
        assert twice == [("alice", ErrorCode.DUPLICATE_RESOURCE, [])]


async def test_a_credential_is_replaced_by_another_as_a_whole_or_not_at_all() -> None:
    """One event has both: there is no moment, and no crash, with none of them or with both."""
    disk = GatedStorage()
    async with guarded(storage=disk) as broker, connect(broker.listeners[1].bound) as admin:
        assert await delete(admin, "alice", 1) == 0
        request = AlterUserScramCredentialsRequest(
            deletions=[AlterUserScramCredentialsRequestDeletion(name="alice", mechanism=2)],
            upsertions=[
                AlterUserScramCredentialsRequestUpsertion(
                    name="alice", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
                )
            ],
        )
        disk.refused = b"user_unset"  # as it was written once, behind what is set
        reply = await admin.ask(request, AlterUserScramCredentialsResponse, 0)
        assert reply.results[0].error_code == 0
        assert await described(admin, "alice") == [("alice", 0, [(1, 4096)])]
    disk.refused = None
    async with (
        guarded(storage=disk.after_kill()) as broker,
        connect(broker.listeners[1].bound) as admin,
    ):
        assert await described(admin, "alice") == [("alice", 0, [(1, 4096)])]


async def test_a_request_about_very_many_users_does_not_stop_the_broker() -> None:
    names = [f"u{n}" for n in range(30_000)]
    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:
        request = AlterUserScramCredentialsRequest(
            deletions=[
                AlterUserScramCredentialsRequestDeletion(name=name, mechanism=1) for name in names
            ],
            upsertions=[],
        )
        with trio.fail_after(60):  # each row with each other: minutes
            reply = await admin.ask(request, AlterUserScramCredentialsResponse, 0)
        assert [row.user for row in reply.results] == names
        assert {row.error_code for row in reply.results} == {ErrorCode.RESOURCE_NOT_FOUND}


def test_a_password_that_is_no_text_is_not_shown() -> None:
    with pytest.raises(InvalidConfig) as refused:
        merge(toml_text='initial_user = "a"\ninitial_password = 12345')
    assert "initial_password" in str(refused.value)
    assert "12345" not in str(refused.value)


async def test_secrets_of_the_configuration_are_told_to_nobody() -> None:
    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:
        reply = await admin.ask(
            DescribeConfigs(
                resources=[
                    DescribeConfigsRequestResource(
                        resource_type=4, resource_name="1", configuration_keys=None
                    )
                ],
                include_synonyms=True,
            ),
            DescribeConfigsResponse,
            4,
        )
        rows = {row.name: row for row in reply.results[0].configs}
        assert rows["initial_password"].is_sensitive
        assert rows["initial_password"].value is None
        assert "wonderland" not in repr(reply) + repr(broker.config)

"""Logins by a token on a connection: who gets in, for how long, and by which keys."""

import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jwt
import pytest
import trio
from trio.testing import MockClock

from segbroker.broker.configuration.config import BrokerConfig, InvalidConfig, merge
from segbroker.broker.server import Broker
from segbroker.cli.broker_status import concerns
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ProduceResponse
from segbroker.protocol.messages_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
    AlterClientQuotasResponse,
    ClientQuotaEntity,
)
from segbroker.protocol.messages_security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from segbroker.protocol.oauthbearer import encode_bearer
from segbroker.protocol.vendor import VendorKey

from ..support.issuer import EXPECTED, ISSUER, Issuer
from ..support.wire_client import Closed, WireClient, batch, connect, produce_request
from .conftest import Events, serving
from .guarded import connect_from
from .logins import is_served, prove


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def configured(**keys: str | int) -> BrokerConfig:
    return merge({"sasl_oauthbearer_jwks_endpoint_url": "file:///keys.json", **EXPECTED, **keys})


async def until_so(true: Callable[[], bool]) -> None:
    """Wait until it is so, also where the broker's clock stands still."""
    ends_at = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends_at, "it has not become so"
        await trio.to_thread.run_sync(time.sleep, 0.01)


# Over the wire


@asynccontextmanager
async def guarded(url: str, **keys: str | int | bool) -> AsyncIterator[Broker]:
    settings: dict[str, str | int | bool] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl_mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "sasl_oauthbearer_jwks_endpoint_url": url,
        "authentication_failure_delay_ms": 10,
        **EXPECTED,
    }
    async with serving(**settings | keys) as broker:  # type: ignore[arg-type]
        yield broker


async def choose(client: WireClient, version: int = 1) -> None:
    reply = await client.ask(
        SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse, version
    )
    assert reply.error_code == 0


async def log_in(client: WireClient, token: str) -> SaslAuthenticateResponse:
    """The last answer of a login; a refusal is acknowledged."""
    await choose(client)
    reply = await prove(client, encode_bearer(token, {}))
    if reply.auth_bytes:
        assert reply.error_code == 0
        reply = await prove(client, b"\x01")
    return reply


async def test_who_has_a_token_is_its_user_until_it_expires(
    issuer: Issuer, tmp_path: Path, mock_clock: MockClock, events: Events
) -> None:
    """The session ends at `exp`, though the connection stays; a new token renews it."""
    async with (
        guarded(issuer.write(tmp_path / "keys"), handshake_timeout_ms=400) as broker,
        connect(broker.address) as renewed,
        connect(broker.address) as forgetful,
    ):
        for client in (renewed, forgetful):
            reply = await log_in(client, issuer.token(exp=int(time.time()) + 600))
            assert reply.error_code == 0
            assert 500_000 < reply.session_lifetime_ms <= 600_000
            assert await is_served(client)
        assert {str(one.peer.principal) for one in broker._connections} == {"User:alice"}
        mock_clock.jump(400)
        assert (await log_in(renewed, issuer.token())).error_code == 0
        assert await is_served(forgetful)
        mock_clock.jump(201)
        assert await is_served(renewed)
        assert not await is_served(forgetful)
    (line,) = events.named("session_expired")
    assert 500_000 < line["token_ms"] <= 600_000


async def test_a_session_is_no_longer_than_the_broker_allows(
    issuer: Issuer, tmp_path: Path
) -> None:
    url = issuer.write(tmp_path / "keys")
    async with (
        guarded(url, connections_max_reauth_ms=5_000) as broker,
        connect(broker.address) as client,
    ):
        assert (await log_in(client, issuer.token())).session_lifetime_ms == 5_000


async def test_a_refused_token_is_answered_as_the_rfc_says_and_closed(
    issuer: Issuer, tmp_path: Path, events: Events
) -> None:
    token = issuer.token(exp=int(time.time()) - 600)
    async with (
        guarded(issuer.write(tmp_path / "keys")) as broker,
        connect(broker.address) as client,
    ):
        await choose(client)
        reply = await prove(client, encode_bearer(token, {}))
        assert (reply.error_code, reply.auth_bytes) == (0, b'{"status":"invalid_token"}')
        reply = await prove(client, b"\x01")
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert reply.error_message == (
            'Authentication failed: {"status":"invalid_token"}: '
            "the token is refused: it has expired"
        )
        assert not await is_served(client)
    (line,) = events.named("authentication_failed")
    assert (line["mechanism"], line["error"]) == ("OAUTHBEARER", "it has expired")
    assert token not in str(events)
    assert token.split(".")[1] not in str(events)


async def test_a_client_that_goes_away_when_refused_is_told_of_in_the_log(
    issuer: Issuer, tmp_path: Path, events: Events
) -> None:
    url = issuer.write(tmp_path / "keys")
    async with guarded(url, sasl_oauthbearer_expected_scope="admin") as broker:
        async with connect(broker.address) as client:
            await choose(client)
            reply = await prove(client, encode_bearer(issuer.token(), {}))
            assert reply.auth_bytes == b'{"status":"insufficient_scope","scope":"admin"}'
        await until_so(lambda: not broker.connections)
    (line,) = events.named("authentication_failed")
    assert (line["user"], line["error"]) == ("alice", "it has not the scope admin")


async def test_after_a_refusal_no_second_token_is_tried(issuer: Issuer, tmp_path: Path) -> None:
    async with (
        guarded(issuer.write(tmp_path / "keys")) as broker,
        connect(broker.address) as client,
    ):
        await choose(client)
        await prove(client, encode_bearer("x", {}))
        reply = await prove(client, encode_bearer(issuer.token(), {}))
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await is_served(client)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Bearer a.b.c\x01x\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer d.e.f\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer a.b.c\x01\x01",
        b"\xff\xfe\xfd",
        b"n,,\x01auth=Bearer " + b"a" * 16_384 + b"\x01\x01",
    ],
    ids=lambda message: f"{len(message)}-{message[:24]!r}",
)
async def test_a_message_that_is_none_is_refused(
    issuer: Issuer, tmp_path: Path, message: bytes, events: Events
) -> None:
    async with (
        guarded(issuer.write(tmp_path / "keys")) as broker,
        connect(broker.address) as client,
    ):
        await choose(client)
        reply = await prove(client, message)
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert reply.error_message == "Authentication failed: invalid credentials"
        assert not await is_served(client)
    assert len(events.named("authentication_failed")) == 1


async def test_extensions_are_taken_and_the_right_authorization_id(
    issuer: Issuer, tmp_path: Path
) -> None:
    token = issuer.token()
    async with guarded(issuer.write(tmp_path / "keys")) as broker:
        async with connect(broker.address) as client:
            await choose(client)
            said = encode_bearer(token, {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"})
            reply = await prove(client, said.replace(b"n,,", b"n,a=alice,", 1))
            assert (reply.error_code, reply.auth_bytes) == (0, b"")
            assert await is_served(client)
        async with connect(broker.address) as client:
            await choose(client)
            said = encode_bearer(token, {}).replace(b"n,,", b"n,a=bob,", 1)
            assert (await prove(client, said)).auth_bytes == b'{"status":"invalid_token"}'
            reply = await prove(client, b"\x01")
            assert reply.error_message is not None
            assert reply.error_message.endswith("it is asked to act for another user")


async def test_a_session_by_token_does_not_change_hands(issuer: Issuer, tmp_path: Path) -> None:
    async with (
        guarded(issuer.write(tmp_path / "keys")) as broker,
        connect(broker.address) as client,
    ):
        assert (await log_in(client, issuer.token())).error_code == 0
        reply = await log_in(client, issuer.token(sub="bob"))
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await is_served(client)


async def test_old_clients_log_in_with_a_bare_message(issuer: Issuer, tmp_path: Path) -> None:
    async with guarded(issuer.write(tmp_path / "keys")) as broker:

        async def bare(client: WireClient, token: str) -> bytes:
            await choose(client, version=0)
            message = encode_bearer(token, {})
            await client.send_bytes(len(message).to_bytes(4, "big") + message)
            return await client.receive_frame()

        async with connect(broker.address) as client:
            assert await bare(client, issuer.token()) == b""
            assert await is_served(client)
        async with connect(broker.address) as client:
            assert await bare(client, "a.b.c") == b'{"status":"invalid_token"}'
            await client.send_bytes(b"\0\0\0\1\1")
            with pytest.raises(Closed):
                await client.receive_frame()


async def test_quotas_are_about_the_user_of_the_token(issuer: Issuer, tmp_path: Path) -> None:
    entity = ClientQuotaEntity(entity_type="user", entity_name="bob")
    limit = AlterClientQuotasRequestOp(key="producer_byte_rate", value=1_000.0, remove=False)
    entry = AlterClientQuotasRequestEntry(entity=[entity], ops=[limit])
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    throttled_ms = {}
    async with guarded(issuer.write(tmp_path / "keys")) as broker:
        for user in ("alice", "bob"):
            async with connect(broker.address) as client:
                await log_in(client, issuer.token(sub=user))
                if user == "alice":
                    await client.create("t")
                    reply = await client.ask(request, AlterClientQuotasResponse, 1)
                    assert reply.entries[0].error_code == 0
                produced = produce_request("t", batch(b"x" * 2_000))
                answer = await client.ask(produced, ProduceResponse, 9)
                throttled_ms[user] = answer.throttle_time_ms
    assert throttled_ms["alice"] == 0
    assert throttled_ms["bob"] > 0


# Keys that change, and that are away


class Waiting:
    """Logins that wait until keys are read."""

    def __init__(self, broker: Broker) -> None:
        keys = broker.core.authentication.keys
        assert keys is not None
        refresh = keys.refresh_for_unknown
        self.count = 0
        self.codes: list[int] = []
        self._broker = broker

        async def counted(*, is_patient: bool = True) -> None:
            self.count += 1
            await refresh(is_patient=is_patient)

        keys.refresh_for_unknown = counted  # type: ignore[method-assign]

    async def log_in(self, token: str) -> None:
        async with connect(self._broker.address) as client:
            try:
                self.codes.append((await log_in(client, token)).error_code)
            except Closed:
                self.codes.append(-1)


async def test_a_new_key_is_read_when_somebody_comes_with_it_but_not_at_each_unknown_one(
    mock_clock: MockClock,
) -> None:
    issuer = Issuer()
    with issuer.serving() as url:
        async with guarded(f"{url}/jwks") as broker, trio.open_nursery() as nursery:
            waiting = Waiting(broker)
            mock_clock.rate = 0
            old = issuer.token()
            await waiting.log_in(old)
            issuer.rotate("second")
            await waiting.log_in(old)  # as long as nobody has asked again
            mock_clock.jump(11)
            await waiting.log_in(issuer.token())
            assert waiting.codes == [0, 0, 0]
            assert issuer.asked == ["/jwks"] * 2
            before = waiting.count
            for token in [old, *[issuer.token({"kid": "nobody's"})] * 5]:
                nursery.start_soon(waiting.log_in, token)
            await until_so(lambda: waiting.count == before + 6)
            assert issuer.asked == ["/jwks"] * 2
            mock_clock.jump(6)
            mock_clock.rate = 1  # a wrong login is answered after a while
            await until_so(lambda: len(waiting.codes) == 9)
            assert waiting.codes[3:] == [ErrorCode.SASL_AUTHENTICATION_FAILED] * 6
            assert issuer.asked == ["/jwks"] * 3


@pytest.mark.parametrize("kid", [None, "first", "second"], ids=["no kid", "the same", "another"])
async def test_a_key_that_is_new_since_the_keys_were_read_just_now_is_waited_for(
    mock_clock: MockClock, kid: str | None
) -> None:
    """Anybody may have them read, and a client takes a refusal as final.  Without a name of its
    own, what it signs looks like a wrong signature by a key that is known."""
    issuer = Issuer()
    with issuer.serving() as url:
        async with guarded(f"{url}/jwks") as broker, trio.open_nursery() as nursery:
            waiting = Waiting(broker)
            mock_clock.rate = 0

            def token() -> str:
                key = next(iter(issuer.keys.values()))
                return jwt.encode(issuer.claims(), key, "RS256", {"kid": kid} if kid else None)

            await waiting.log_in(issuer.token())  # the keys are read now, if they were not
            issuer.rotate(kid or "first")
            before = waiting.count
            nursery.start_soon(waiting.log_in, token())
            await until_so(lambda: waiting.count == before + 1)
            assert issuer.asked == ["/jwks"]
            mock_clock.jump(6)
            await until_so(lambda: len(waiting.codes) == 2)
            assert waiting.codes == [0, 0]
            assert issuer.asked == ["/jwks"] * 2


async def test_a_key_that_is_newer_than_the_reading_under_way_is_waited_for(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may have had that begin, just before the issuer changed its keys."""
    issuer = Issuer()
    began, may_end = threading.Event(), threading.Event()
    with issuer.serving() as url:
        async with guarded(f"{url}/jwks") as broker, trio.open_nursery() as nursery:
            waiting = Waiting(broker)
            mock_clock.rate = 0
            await waiting.log_in(issuer.token())
            keys = broker.core.authentication.keys
            assert keys is not None

            def read() -> bytes:
                found = issuer.jwks()
                began.set()
                assert may_end.wait(60)
                return found

            monkeypatch.setattr(keys, "_read", read)
            mock_clock.jump(6)
            before = waiting.count
            nursery.start_soon(waiting.log_in, issuer.token({"kid": "nobody's"}))
            await until_so(began.is_set)
            issuer.rotate("second")
            nursery.start_soon(waiting.log_in, issuer.token())
            await until_so(lambda: waiting.count == before + 2)
            may_end.set()
            await until_so(lambda: waiting.count == before + 3)
            mock_clock.jump(6)
            await until_so(lambda: 0 in waiting.codes[1:])
            mock_clock.rate = 1  # a wrong login is answered after a while


async def test_a_token_by_a_new_key_is_not_refused_while_the_issuer_is_away(
    mock_clock: MockClock, events: Events
) -> None:
    """Its client comes again, as it does where no keys were read yet."""
    issuer = Issuer()
    with issuer.serving() as url:
        async with guarded(f"{url}/jwks") as broker:
            waiting = Waiting(broker)
            mock_clock.rate = 1
            old = issuer.token()
            await waiting.log_in(old)
            issuer.rotate("second")
            issuer.answer = lambda _: (503, b"")
            mock_clock.jump(11)
            await waiting.log_in(issuer.token())
            await waiting.log_in(old)
            issuer.answer = None
            mock_clock.jump(11)
            await waiting.log_in(issuer.token())
            assert waiting.codes == [0, -1, 0, 0]
    (line,) = events.named("authentication_failed")
    assert line["error"] == "signing keys cannot be read: HTTP status 503"


async def test_keys_read_before_are_good_while_the_issuer_is_away(
    mock_clock: MockClock, events: Events
) -> None:
    issuer = Issuer()
    with issuer.serving() as url:
        async with guarded(f"{url}/jwks", sasl_oauthbearer_jwks_endpoint_refresh_ms=60_000) as one:
            mock_clock.rate = 1
            await until_so(lambda: events.named("signing_keys_read") != [])
            for status, data in ((503, b""), (200, b"<html>"), (200, b'{"keys":[]}')):
                issuer.answer = lambda _, status=status, data=data: (status, data)
                before = len(events.named("signing_keys_not_read"))
                mock_clock.jump(61)
                await until_so(lambda: len(events.named("signing_keys_not_read")) > before)  # noqa: B023
                async with connect(one.address) as client:
                    assert (await log_in(client, issuer.token())).error_code == 0
                    (said,) = concerns(await client.ask_vendor(VendorKey.SERVER_INFO, {}))
                    assert said.startswith("the keys that sign tokens cannot be read, those read")
            assert events.named("signing_keys_not_read")[0]["error"] == "HTTP status 503"
            issuer.answer = None
            mock_clock.jump(61)
            await until_so(lambda: len(events.named("signing_keys_read")) == 2)
            async with connect(one.address) as client:
                assert (await log_in(client, issuer.token())).error_code == 0
                info = await client.ask_vendor(VendorKey.SERVER_INFO, {})
                assert info["signing_keys"] == {"count": 1, "why_not_read": None}
                assert not list(concerns(info))


async def test_a_broker_starts_while_the_issuer_is_away_and_ends_the_connections_of_tokens(
    mock_clock: MockClock, events: Events
) -> None:
    """They come again, as clients do whose connection ends; an answer would be final for them."""
    mock_clock.rate = 1
    issuer = Issuer()
    issuer.answer = lambda _: (503, b"")
    with issuer.serving() as url:
        async with guarded(f"{url}/jwks") as broker:
            async with connect(broker.address) as client:
                with pytest.raises(Closed):
                    await log_in(client, issuer.token())
            (line,) = events.named("authentication_failed")
            assert "HTTP status 503" in line["error"]
            issuer.answer = None
            mock_clock.jump(61)
            await until_so(lambda: events.named("signing_keys_read") != [])
            async with connect(broker.address) as client:
                assert (await log_in(client, issuer.token())).error_code == 0


async def test_an_issuer_that_does_not_answer_holds_up_nobody_else(events: Events) -> None:
    issuer = Issuer()
    gate = threading.Event()

    def slow(_: str) -> tuple[int, bytes]:
        gate.wait(60)
        return 200, issuer.jwks()

    issuer.answer = slow
    try:
        with issuer.serving() as url:
            settings: dict[str, Any] = {
                "initial_user": "bob",
                "initial_password": "builder",
                "sasl_mechanisms": "OAUTHBEARER,PLAIN",
                "sasl_oauthbearer_jwks_endpoint_timeout_ms": 60_000,
            }
            async with (
                guarded(f"{url}/jwks", **settings) as broker,
                connect(broker.address) as waiting,
                connect(broker.address) as other,
                trio.open_nursery() as nursery,
            ):
                done: list[int] = []

                async def wait() -> None:
                    done.append((await log_in(waiting, issuer.token())).error_code)

                nursery.start_soon(wait)
                await until_so(lambda: issuer.asked != [])
                await other.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
                assert (await prove(other, b"\0bob\0builder")).error_code == 0
                assert await is_served(other)
                assert not done
                gate.set()
                await until_so(lambda: done == [0])
    finally:
        gate.set()


async def test_a_reading_goes_on_when_who_wanted_it_is_crowded_out(events: Events) -> None:
    issuer = Issuer()
    gate = threading.Event()
    with issuer.serving() as url:
        async with guarded(f"{url}/jwks", handshakes_max=2) as broker:
            await until_so(lambda: events.named("signing_keys_read") != [])
            assert broker.core.authentication.keys is not None
            broker.core.authentication.keys._tried_at -= 60
            issuer.rotate("second")

            def slow(_: str) -> tuple[int, bytes]:
                gate.wait(60)
                return 200, issuer.jwks()

            issuer.answer = slow
            try:
                async with (
                    connect(broker.address) as elder,
                    connect(broker.address) as stranger,
                    trio.open_nursery() as nursery,
                ):

                    async def wait() -> None:
                        with pytest.raises(Closed):
                            await log_in(stranger, issuer.token({"kid": "nobody's"}))

                    nursery.start_soon(wait)
                    await until_so(lambda: len(issuer.asked) == 2)
                    await choose(elder)
                    # Both wait for the broker: the younger one makes room for who is elsewhere.
                    bearer = encode_bearer(issuer.token({"kid": "nobody's"}), {})
                    await elder.send(SaslAuthenticateRequest(auth_bytes=bearer), 2)
                    both = list(broker._connections)
                    await until_so(lambda: not any(one.is_waiting for one in both))
                    async with connect_from("127.0.0.2", broker) as late:
                        await until_so(lambda: events.named("handshake_crowded_out") != [])
                        gate.set()
                        assert (await log_in(late, issuer.token())).error_code == 0
            finally:
                gate.set()


async def test_a_broker_ends_while_the_issuer_does_not_answer() -> None:
    issuer = Issuer()
    gate = threading.Event()

    def slow(_: str) -> tuple[int, bytes]:
        gate.wait(60)
        return 503, b""

    issuer.answer = slow
    with issuer.serving() as url:
        async with guarded(f"{url}/jwks", sasl_oauthbearer_jwks_endpoint_timeout_ms=60_000):
            await until_so(lambda: issuer.asked != [])
        assert not gate.is_set()
        gate.set()


# Settings


async def test_a_broker_does_not_start_without_its_file_of_keys(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(InvalidConfig, match="No such file")):
        async with guarded((tmp_path / "keys").as_uri()):
            pass
    (tmp_path / "keys").write_text("{}")
    with pytest.RaisesGroup(pytest.RaisesExc(InvalidConfig, match="no JWK set")):
        async with guarded((tmp_path / "keys").as_uri()):
            pass


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"sasl_oauthbearer_jwks_endpoint_url": ""}, "needs sasl_oauthbearer_jwks_endpoint_url"),
        ({"sasl_oauthbearer_expected_issuer": ""}, "needs sasl_oauthbearer_expected_issuer"),
        ({"sasl_oauthbearer_expected_audience": " , "}, "needs sasl_oauthbearer_expected_audience"),
        ({"sasl_oauthbearer_algorithms": "RS256,HS256"}, "'HS256' is none of"),
        ({"sasl_oauthbearer_algorithms": "none"}, "'none' is none of"),
        ({"sasl_oauthbearer_algorithms": ""}, "is empty"),
        ({"sasl_oauthbearer_sub_claim_name": ""}, "is no name of a claim"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "ftp://x/y"}, "neither https://host/path nor"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "/etc/keys"}, "neither https://host/path nor"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file://etc/keys"}, "is not file:///path"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "https://x:y/"}, "sasl_oauthbearer_jwks"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "https://a:b@x/"}, "a login in a URL"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "https://x/a b"}, "characters"),
        (
            {"sasl_oauthbearer_jwks_endpoint_url": "http://10.0.0.1/k"},
            "Use https://, or a file, or say that it is meant: .*allow_http = true",
        ),
        ({"sasl_oauthbearer_clock_skew_seconds": 601}, "outside"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_missing_or_wrong_is_an_error_of_the_start(
    keys: dict[str, str | int], told: str
) -> None:
    offered = {
        "listeners": "SASL_SSL://:9093",
        "ssl_certificate": "x",
        "sasl_mechanisms": "OAUTHBEARER",
    }
    configured(**offered)
    with pytest.raises(InvalidConfig, match=told):
        configured(**offered, **keys)


def test_keys_are_read_in_clear_from_another_machine_if_that_is_said() -> None:
    url = "http://keycloak:8080/realms/prod/protocol/openid-connect/certs"
    assert configured(
        sasl_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=url,
        sasl_oauthbearer_jwks_endpoint_allow_http=True,
    )


@pytest.mark.parametrize(
    "module", ["none", "another", "2.9.0", "2.10.0", "2.10.dev1", "without cryptography"]
)
def test_the_extra_is_asked_for_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    fake: Any = None
    if module != "none":
        fake = ModuleType("jwt")
    if module[0] in "2w":
        fake.PyJWK, fake.algorithms = object, SimpleNamespace(has_crypto=module[0] == "2")
        # 2.10.0 takes a part of the issuer's name for all of it (CVE-2024-53861).
        fake.__version__ = module if module[0] == "2" else "2.10.1"
    monkeypatch.setitem(sys.modules, "jwt", fake)
    assert configured()
    with pytest.raises(InvalidConfig, match=r"pip install '\.\[oauth\]' in a checkout"):
        configured(sasl_mechanisms="OAUTHBEARER")


def test_it_is_offered_while_the_broker_runs_only_with_all_that_it_needs() -> None:
    offered = {"sasl_mechanisms": "OAUTHBEARER"}
    assert configured().changed(offered)
    with pytest.raises(InvalidConfig, match="OAUTHBEARER needs"):
        merge({"sasl_oauthbearer_expected_issuer": ISSUER}).changed(offered)


async def test_a_broker_that_does_not_offer_it_starts_without_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    async with guarded("file:///nowhere", sasl_mechanisms="SCRAM-SHA-256") as broker:
        assert broker.core.authentication.keys is None


def test_one_listener_may_offer_it_alone() -> None:
    keys = {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
        "listener_security_protocol_map": "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT",
        "listener_name_out_sasl_mechanisms": "OAUTHBEARER",
    }
    assert configured(**keys)
    with pytest.raises(InvalidConfig, match="OAUTHBEARER needs"):
        merge(dict(keys))

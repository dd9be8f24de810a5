"""Logins and their renewal at the wrong time, by the wrong means; and users at the limits."""

import time
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from segbroker.broker.apis import user_apis
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ApiVersionsRequest
from segbroker.protocol.messages_security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
    SaslAuthenticateRequest,
)
from segbroker.protocol.oauthbearer import encode_bearer
from segbroker.protocol.sasl import encode_plain
from segbroker.protocol.scram import ScramClient, ScramMechanism

from ..support.certificates import Authority
from ..support.issuer import Issuer
from ..support.wire_client import Closed, WireClient, connect
from . import test_oauth
from .conftest import Events
from .logins import NONCE, SHA_256, choose, guarded, is_served, log_in, prove
from .test_login import delete, described, set_password
from .test_oauth import issuer as issuer  # a fixture
from .test_tls import connect_tls, protected, trusting

WRONG_STATE = ErrorCode.ILLEGAL_SASL_STATE
PROOF = SaslAuthenticateRequest(auth_bytes=encode_plain("alice", "wonderland"))


async def is_closed(client: WireClient) -> bool:
    """Whether nothing further is answered, be it the first step of a right login."""
    try:
        await choose(client, "PLAIN")
    except Closed:
        return True
    return False


async def test_after_a_wrong_choice_of_mechanism_no_other_is_heard() -> None:
    async with guarded(sasl_mechanisms="PLAIN") as broker, connect(broker.address) as client:
        reply = await choose(client, "SCRAM-SHA-512")
        assert reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert await is_closed(client)


@pytest.mark.parametrize("is_renewal", [False, True])
async def test_a_mechanism_is_chosen_once(is_renewal: bool) -> None:
    async with guarded() as broker, connect(broker.address) as client:
        if is_renewal:
            await log_in(client, "PLAIN")
        assert (await choose(client, "PLAIN")).error_code == 0
        assert (await choose(client, "PLAIN")).error_code == WRONG_STATE
        assert await is_closed(client)


async def test_a_session_is_not_renewed_by_bare_messages() -> None:
    """Between requests nobody could tell them from one."""
    async with guarded() as broker, connect(broker.address) as client:
        await log_in(client, "PLAIN")
        assert (await choose(client, "PLAIN", version=0)).error_code == WRONG_STATE
        assert await is_closed(client)


async def test_who_proves_what_was_not_chosen_is_heard_no_more() -> None:
    async with guarded() as broker, connect(broker.address) as client:
        await log_in(client, "PLAIN")
        assert (await prove(client, encode_plain("alice", "wonderland"))).error_code == WRONG_STATE
        assert await is_closed(client)


async def test_a_session_is_renewed_by_the_mechanism_that_it_began_with() -> None:
    """As in Kafka."""
    async with guarded() as broker, connect(broker.address) as client:
        await log_in(client, "SCRAM-SHA-512")
        reply = await log_in(client, "PLAIN")
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await is_closed(client)


async def test_a_session_that_is_over_is_good_for_nothing_but_a_choice(
    mock_clock: MockClock, events: Events
) -> None:
    async with guarded(connections_max_reauth_ms=1_000) as broker:
        for is_proof in (False, True):
            async with connect(broker.address) as client:
                await log_in(client, "PLAIN")
                mock_clock.jump(1.5)
                asked = ApiVersionsRequest() if not is_proof else PROOF
                await client.send(asked, 0)
                with pytest.raises(Closed):
                    await client.receive_frame()
    assert len(events.named("session_expired")) == 2


async def test_a_renewal_by_a_token_that_ends_sooner_ends_the_session_sooner(
    issuer: Issuer, tmp_path: Path, mock_clock: MockClock
) -> None:
    async with (
        test_oauth.guarded(issuer.write(tmp_path / "keys")) as broker,
        connect(broker.address) as client,
    ):
        for seconds in (600, 100):
            reply = await test_oauth.log_in(client, issuer.token(exp=int(time.time()) + seconds))
            assert (seconds - 50) * 1000 < reply.session_lifetime_ms <= seconds * 1000
        mock_clock.jump(101)
        assert not await is_served(client)


async def test_a_refused_token_is_answered_after_a_while(issuer: Issuer, tmp_path: Path) -> None:
    keys = issuer.write(tmp_path / "keys")
    async with (
        test_oauth.guarded(keys, authentication_failure_delay_ms=200) as broker,
        connect(broker.address) as client,
    ):
        await test_oauth.choose(client)
        began = trio.current_time()
        reply = await prove(client, encode_bearer("a.b.c", {}))
        assert reply.auth_bytes == b'{"status":"invalid_token"}'
        assert trio.current_time() - began >= 0.2


async def test_a_certificate_is_no_login_where_one_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    alice = authority.client("alice")
    async with (
        protected(
            authority,
            listeners="SASL_SSL://127.0.0.1:0",
            ssl_client_auth="required",
            ssl_ca=str(authority.file),
            initial_user="bob",
            initial_password="builder",
        ) as broker,
    ):
        async with connect_tls(broker, trusting(authority, alice)) as client:
            assert not await is_served(client)
        async with connect_tls(broker, trusting(authority, alice)) as client:
            assert (await log_in(client, user="bob", password="builder")).error_code == 0
            assert await is_served(client)
            assert {str(one.peer.principal) for one in broker._connections} == {"User:bob"}


async def salt_of(client: WireClient, mechanism: ScramMechanism, user: str) -> tuple[bytes, bytes]:
    """The salt and the iterations that somebody is challenged with."""
    assert (await choose(client, mechanism.label)).error_code == 0
    scram = ScramClient(mechanism, user, "x", NONCE)
    challenge = (await prove(client, scram.first())).auth_bytes
    _, salt, iterations = challenge.split(b",")
    return salt, iterations


async def test_who_does_not_exist_has_a_salt_for_each_mechanism_as_everybody() -> None:
    async with guarded() as broker:
        found = []
        for mechanism in ScramMechanism:
            async with connect(broker.address) as client:
                found.append((await salt_of(client, mechanism, "nobody"))[0])
        sha_256, sha_512 = found
        assert sha_256 != sha_512


async def test_who_does_not_exist_looks_like_those_who_exist_now() -> None:
    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:

        async def iterations() -> bytes:
            async with connect(broker.address) as client:
                return (await salt_of(client, SHA_256, "nobody"))[1]

        for name in ("bob", "carol"):
            assert await set_password(admin, name, "builder", iterations=4_097) == 0
        assert await iterations() == b"i=4097"
        for name in ("bob", "carol"):
            assert await delete(admin, name, SHA_256) == 0
        assert await iterations() == b"i=8192"


async def altered(
    client: WireClient, *gone: str, **made: tuple[int, bytes, bytes]
) -> dict[str, int]:
    """Who is gone has no credentials then; who is made has one: mechanism, salt, password."""
    request = AlterUserScramCredentialsRequest(
        deletions=[
            AlterUserScramCredentialsRequestDeletion(name=name, mechanism=int(mechanism))
            for name in gone
            for mechanism in ScramMechanism
        ],
        upsertions=[
            AlterUserScramCredentialsRequestUpsertion(
                name=name, mechanism=mechanism, iterations=4_096, salt=salt, salted_password=salted
            )
            for name, (mechanism, salt, salted) in made.items()
        ],
    )
    reply = await client.ask(request, AlterUserScramCredentialsResponse, 0)
    return {row.user: row.error_code for row in reply.results}


async def test_a_user_that_goes_leaves_its_place_to_one_of_the_same_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_apis, "USERS_MAX", 1)
    good = (1, b"salt", b"p" * 32)
    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:
        full = {"bob": ErrorCode.POLICY_VIOLATION}
        assert await altered(admin, bob=good) == full
        assert await altered(admin, alice=good) == {"alice": 0}, "who is there takes no other"
        assert await altered(admin, "alice", bob=good) == {"alice": 0, "bob": 0}
        assert await altered(admin, alice=good) == {"alice": ErrorCode.POLICY_VIOLATION}
        assert [name for name, _, _ in await described(admin)] == ["bob"]


async def test_a_salt_and_a_password_have_the_size_that_they_can_have() -> None:
    async with guarded() as broker, connect(broker.listeners[1].bound) as admin:
        for wrong in (
            (1, b"", b"p" * 32),
            (1, b"s" * 257, b"p" * 32),
            (1, b"salt", b"p" * 31),
            (2, b"salt", b"p" * 32),
        ):
            found = await altered(admin, bob=wrong)
            assert found == {"bob": ErrorCode.UNACCEPTABLE_CREDENTIAL}, wrong
        assert await altered(admin, bob=(2, b"s" * 256, b"p" * 64)) == {"bob": 0}

"""A broker that asks for passwords, and logins step by step."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from segbroker.broker.server import Broker
from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse
from segbroker.protocol.messages_security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from segbroker.protocol.sasl import encode_plain
from segbroker.protocol.scram import ScramClient, ScramMechanism
from segbroker.segments.disk.memory import MemoryStorage

from ..support.wire_client import Closed, WireClient
from .conftest import serving

SHA_256 = ScramMechanism.SHA_256
LISTENERS = "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"

NONCE = b"n" * 18


@asynccontextmanager
async def guarded(
    storage: MemoryStorage | None = None, **keys: str | int | bool
) -> AsyncIterator[Broker]:
    """A broker with the user alice, whose password is wonderland."""
    settings: dict[str, str | int | bool] = {
        "listeners": LISTENERS,
        "initial_user": "alice",
        "initial_password": "wonderland",
        "authentication_failure_delay_ms": 20,
    }
    async with serving(storage=storage, **settings | keys) as broker:  # type: ignore[arg-type]
        yield broker


async def choose(client: WireClient, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
    return await client.ask(
        SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version
    )


async def prove(client: WireClient, message: bytes) -> SaslAuthenticateResponse:
    return await client.ask(
        SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, 2
    )


async def log_in(
    client: WireClient,
    mechanism: str = "SCRAM-SHA-256",
    user: str = "alice",
    password: str = "wonderland",
) -> SaslAuthenticateResponse:
    """The last answer of a login."""
    assert (await choose(client, mechanism)).error_code == 0
    if mechanism == "PLAIN":
        return await prove(client, encode_plain(user, password))
    kind = ScramMechanism(int(mechanism[-3:]) // 256)
    scram = ScramClient(kind, user, password, NONCE)
    challenge = await prove(client, scram.first())
    assert challenge.error_code == 0
    last = await prove(client, scram.answer(challenge.auth_bytes))
    assert last.error_code != 0 or scram.verify(last.auth_bytes)
    return last


async def is_served(client: WireClient) -> bool:
    try:
        await client.ask(MetadataRequest(topics=[]), MetadataResponse, 5)
    except Closed:
        return False
    return True

"""The gate of a listener that requires a login: what a client may ask before it has logged in.

| before login                         |                                                        |
|--------------------------------------|--------------------------------------------------------|
| ApiVersions, SaslHandshake and       | handled                                                |
| SaslAuthenticate                     |                                                        |
| a bare message after SaslHandshake 0 | handled: clients before Kafka 1.0 send the mechanism's |
|                                      | messages without header, and are answered so           |
| anything else, or more than          | the connection is closed                               |
| STRANGERS_REQUESTS_MAX requests      |                                                        |

A login takes five requests at most; quotas do not apply before the user is known.  Each is handled
in its turn among all strangers (loop/strangers.py).

When a session has expired (connections_max_reauth_ms), the client renews it by a new login.  If its
next request is anything else, the connection is closed (KIP-368).  A silent connection stays:
clients renew their login when they have something to send again, and are owed the answers to
earlier requests.
"""

from collections.abc import Awaitable
from typing import Final

import trio

from segbroker.protocol.api_keys import ApiKey, api_name
from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.headers import parse_request_header
from segbroker.protocol.limits import REQUEST_HEADER_SIZE_MIN

from ..apis.sasl_apis import prove
from ..core import Core
from ..peers.peer import Peer
from ..peers.sasl import SaslSession, Stage
from ..requests import Reply, Unserved, handle

STRANGERS_REQUESTS_MAX: Final = 20
BEFORE_LOGIN: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)


class SessionExpired(Exception):
    """The session was over, and the peer asked for something else than to renew it."""


def handle_login(core: Core, peer: Peer, frame: memoryview) -> Awaitable[None] | None:
    """As `handle`, for the peers of a listener that asks for a login.

    Raises:
        RemoteProtocolError: the frame is not a request.
        Unserved: not before login, or not at all.
        LoginRefused: a bare message was wrong; there is no answer that could say so.
        SessionExpired: see the module.
    """
    session = peer.sasl
    assert session is not None, "nobody else comes here"
    if peer.authenticated:
        if session.ends_at is not None and trio.current_time() >= session.ends_at:
            _check_renewal(session, frame)
        return handle(core, peer, frame)
    session.requests += 1
    if session.requests > STRANGERS_REQUESTS_MAX:
        raise Unserved(f"more than {STRANGERS_REQUESTS_MAX} requests before login")
    return _handle_stranger(core, peer, session, frame)


async def _handle_stranger(core: Core, peer: Peer, session: SaslSession, frame: memoryview) -> None:
    """Handle a request before login, in its turn."""
    if not session.has_turn:
        await core.strangers.turn(peer.origin, has_begun=True)
    session.has_turn = False
    if session.is_raw and session.stage is Stage.PROVING:
        await _answer_bare(core, peer, bytes(frame))
        return
    if len(frame) < REQUEST_HEADER_SIZE_MIN:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes before login")
    key = parse_request_header(frame).api_key
    if key not in BEFORE_LOGIN:
        raise Unserved(f"{api_name(key)} before login")
    if (pending := handle(core, peer, frame)) is not None:
        await pending


def _check_renewal(session: SaslSession, frame: memoryview) -> None:
    """Raises SessionExpired, RemoteProtocolError."""
    if len(frame) < REQUEST_HEADER_SIZE_MIN:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes")
    key = parse_request_header(frame).api_key
    is_proof = key == ApiKey.SASL_AUTHENTICATE and session.stage is Stage.PROVING
    if key != ApiKey.SASL_HANDSHAKE and not is_proof:
        raise SessionExpired


async def _answer_bare(core: Core, peer: Peer, message: bytes) -> None:
    answer = await prove(core, peer, message)
    Reply(peer.outbox, [len(answer).to_bytes(4, "big"), answer])
    core.turn.flush(peer.flush)

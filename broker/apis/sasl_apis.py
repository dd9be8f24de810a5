"""SaslHandshake and SaslAuthenticate: choose a mechanism, then its messages.

| asked                                         | answered                                   |
|-----------------------------------------------|--------------------------------------------|
| a mechanism that is offered                   | the list                                   |
| another one                                   | 33 and the list; closed                    |
| a message that is in order                    | the mechanism's answer                     |
| a wrong password, no such user, nonsense      | 58, after a delay; closed                  |
| a token that is refused                       | why, as RFC 7628 has it, after a delay;    |
|                                               | then 58; closed                            |
| a token, while there are no keys to check it  | nothing; closed                            |
| either at the wrong time                      | 34; closed                                 |
| either on a listener without login            | 34                                         |

After login the same two renew the session (KIP-368), whose length SaslAuthenticate tells from
version 1 on: `connections_max_reauth_ms`, and not longer than the token is valid.
"""

from typing import Final

import structlog
import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from ..address import join_address
from ..call import Call
from ..core import Core
from ..peers.peer import Peer
from ..peers.sasl import LoginRefused, SaslSession, Stage
from ..principal import USER, Principal

log = structlog.get_logger()

_NOT_NOW: Final = "SaslHandshake and SaslAuthenticate are not expected now"


async def sasl_handshake(core: Core, call: Call[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    """Choose a mechanism."""
    session = call.peer.sasl
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    offered = list(core.config.mechanisms_of(call.peer.listener.spec))
    wanted = call.request.mechanism
    code = ErrorCode.NONE
    if wanted not in offered:
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        session.refusal = LoginRefused(code.description, mechanism=wanted[:64], error="not offered")
    elif not session.choose(wanted, raw=call.version == 0):
        code = ErrorCode.ILLEGAL_SASL_STATE
        session.refusal = LoginRefused(_NOT_NOW, error=_NOT_NOW)
    return SaslHandshakeResponse(error_code=code, mechanisms=offered)


async def sasl_authenticate(
    core: Core, call: Call[SaslAuthenticateRequest]
) -> SaslAuthenticateResponse:
    """One message of the mechanism."""
    session = call.peer.sasl
    if session is None or session.stage is not Stage.PROVING:
        if session is not None:
            session.refusal = LoginRefused(_NOT_NOW, error=_NOT_NOW)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NOT_NOW, auth_bytes=b""
        )
    try:
        answer = await prove(core, call.peer, call.request.auth_bytes)
    except LoginRefused as exc:
        if not exc.message:
            raise
        session.refusal = exc
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message=exc.message,
            auth_bytes=b"",
        )
    lasts_ms = _lifetime_ms(core, session) if session.is_done else 0
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=answer, session_lifetime_ms=lasts_ms
    )


async def prove(core: Core, peer: Peer, message: bytes) -> bytes:
    """One message of the mechanism; the last one makes the peer who it says.

    Raises:
        LoginRefused: it is wrong; the delay is over.
    """
    session = peer.sasl
    assert session is not None, "looked at by the caller"
    try:
        answer = await session.prove(core.authentication, message)
    except LoginRefused:
        await _delay(core)
        raise
    if session.rejected is not None:
        await _delay(core)
    if session.is_done:
        assert session.user is not None, "done by somebody"
        peer.principal = Principal(USER, session.user)
        peer.authenticated = True
        lasts_ms = _lifetime_ms(core, session)
        session.ends_at = trio.current_time() + lasts_ms / 1000 if lasts_ms else None
        log.debug(
            "authenticated",
            principal=str(peer.principal),
            mechanism=session.mechanism,
            peer=join_address(*peer.address),
            software=peer.software_name,
        )
    return answer


def _lifetime_ms(core: Core, session: SaslSession) -> int:
    """How long a login that is done now is in force; 0: for ever."""
    limits = (core.config.connections_max_reauth_ms, session.lifetime_ms)
    return min((limit for limit in limits if limit), default=0)


async def _delay(core: Core) -> None:
    await trio.sleep(core.config.authentication_failure_delay_ms / 1000)

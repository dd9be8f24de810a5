"""A login on one connection, without the connection: requests out, replies in.

    first()        -> SaslHandshake
    after(reply)   -> SaslAuthenticate, until the mechanism has said all: None.  Raises
                      AuthenticationFailed

The salted password of a login is remembered for the next one with the same salt (a client has
several connections, and they come back): computing it takes milliseconds, in which an event loop
stands still.  With SCRAM the broker has to prove that it knows the password, too.

With OAUTHBEARER the token was got before (tokens.py).  A broker that refuses it says so in JSON,
hears that we have read that, and then says why in its error.
"""

import secrets

from segbroker.protocol.errors import ErrorCode, RemoteProtocolError
from segbroker.protocol.messages_security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from segbroker.protocol.oauthbearer import (
    OAUTHBEARER,
    SEPARATOR,
    describe_refusal,
    encode_bearer,
)
from segbroker.protocol.sasl import PLAIN, encode_plain
from segbroker.protocol.schema import Message
from segbroker.protocol.scram import MECHANISMS, NONCE_SIZE, ScramClient

from .errors import AuthenticationFailed
from .security import Security
from .tokens import Tokens

# Salted passwords of one client, by salt and iterations.
Salted = dict[tuple[bytes, int], bytes]


class Login:
    """See the module."""

    def __init__(self, security: Security, salted: Salted, tokens: Tokens | None = None) -> None:
        """`salted` and `tokens` are shared by the logins of one client."""
        assert security.mechanism is not None, "looked at by the caller"
        self.mechanism = security.mechanism
        self._user = security.user or ""
        self._password = security.password or ""
        self._salted = salted
        self._tokens = tokens
        self._token = ""
        self._extensions = security.sasl_extensions
        # What the broker said of a token that it refuses.
        self._refusal = ""
        self._scram: ScramClient | None = None
        self._answers = 0
        # How long the broker takes requests before it wants another login; 0: for ever.
        self.session_lifetime_ms = 0

    def __repr__(self) -> str:
        return f"<Login {self.mechanism} {self._user!r}>"

    def first(self) -> Message:
        """The request to begin with."""
        return SaslHandshakeRequest(mechanism=self.mechanism)

    def after(self, reply: Message) -> Message | None:
        """The next request; None: the login is done.

        Raises AuthenticationFailed: the broker refuses, what it says is not an answer, or it does
        not know the password itself.
        """
        if isinstance(reply, SaslHandshakeResponse):
            if reply.error_code != ErrorCode.NONE:
                if not reply.mechanisms:
                    raise AuthenticationFailed("the broker takes no login at all on this port")
                offered = ", ".join(reply.mechanisms)
                raise AuthenticationFailed(
                    f"the broker does not offer {self.mechanism}; it offers {offered}"
                )
            return SaslAuthenticateRequest(auth_bytes=self._begin())
        assert isinstance(reply, SaslAuthenticateResponse)
        if reply.error_code != ErrorCode.NONE:
            if self._tokens is not None:
                self._tokens.reject(self._token)
            known = ErrorCode.of(reply.error_code)
            raise AuthenticationFailed(reply.error_message or known.description)
        message = self._answer(reply.auth_bytes)
        if message is not None:
            return SaslAuthenticateRequest(auth_bytes=message)
        self.session_lifetime_ms = reply.session_lifetime_ms
        return None

    def _begin(self) -> bytes:
        if self.mechanism == PLAIN:
            return encode_plain(self._user, self._password)
        if self.mechanism == OAUTHBEARER:
            token = None if self._tokens is None else self._tokens.current
            if token is None:  # rejected since the connection was opened
                raise AuthenticationFailed("there is no token that was not refused yet")
            self._token = token.value
            return encode_bearer(token.value, self._extensions)
        nonce = secrets.token_bytes(NONCE_SIZE)
        mechanism = MECHANISMS[self.mechanism]
        self._scram = ScramClient(mechanism, self._user, self._password, nonce, self._salted)
        return self._scram.first()

    def _answer(self, message: bytes) -> bytes | None:
        self._answers += 1
        if self.mechanism == OAUTHBEARER:
            return self._answer_bearer(message)
        if self._scram is None:
            return None
        try:
            if self._answers == 1:
                return self._scram.answer(message)
            is_proven = self._scram.verify(message)
        except RemoteProtocolError as exc:
            raise AuthenticationFailed(f"{self.mechanism}: {exc}") from exc
        if not is_proven:
            raise AuthenticationFailed(
                f"{self.mechanism}: the broker has not proven that it knows the password of"
                f" {self._user!r}; it may not be the real one"
            )
        return None

    def _answer_bearer(self, message: bytes) -> bytes | None:
        if self._refusal:
            # It should have said so itself.
            raise AuthenticationFailed(f"the broker refuses the token: {self._refusal}")
        if not message:
            return None
        assert self._tokens is not None, "it was begun"
        self._tokens.reject(self._token)
        self._refusal = describe_refusal(message)
        return SEPARATOR

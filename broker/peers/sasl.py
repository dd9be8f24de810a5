"""One login: the state machine of SaslHandshake and SaslAuthenticate on a connection.

    CHOOSING --handshake(mechanism)--> PROVING --authenticate...--> DONE
        ^                                 |                           |
        |                                 +--- wrong --> refused      |
        +------------- handshake again: the session is renewed -------+

| mechanism   | messages                                                       |
|-------------|----------------------------------------------------------------|
| PLAIN       | one: user and password                                          |
| SCRAM       | two: name and nonce -> challenge; proof -> the server's proof   |
| OAUTHBEARER | one: a token; refused: a second one, after the reason in JSON   |

A login that is wrong is answered (error 58) and the connection closed: guessing costs a connection
each, and a delay.  What is wrong is not told: no such user, wrong password and no credential for
this mechanism look alike.  Of a token it is told: whoever has one learns nothing that is not in it,
and an operator would search for days.  A token bounds its session.  A renewal must be of the same
user by the same mechanism; the session goes on as it was until then.

Requests come one at a time, since the connection waits for each; so no state changes under one.
"""

from enum import Enum
from typing import Final, Protocol

from segbroker.protocol.errors import RemoteProtocolError
from segbroker.protocol.oauthbearer import OAUTHBEARER, decode_bearer, encode_refusal
from segbroker.protocol.sasl import (
    PLAIN,
    SASL_MESSAGE_SIZE_MAX,
    check_user_name,
    decode_plain,
)
from segbroker.protocol.scram import (
    MECHANISMS,
    NONCE_SIZE,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    parse_client_first,
)

from .bearer import Bearer, TokenRefused, Unverifiable

# A request before login: the largest message of a mechanism, and the header around it.
LOGIN_FRAME_BYTES_MAX: Final = SASL_MESSAGE_SIZE_MAX + (4 << 10)
WRONG: Final = "Authentication failed: invalid credentials"
"""All that whoever is refused is told."""


class LoginRefused(Exception):
    """The login has failed: it was answered, the connection closes."""

    def __init__(self, message: str, **facts: object) -> None:
        """`message` is for the peer, `facts` for the log.

        An empty `message`: the peer is not answered.  It is not its fault, and clients take an
        answer as final, but try again where the connection just ends.
        """
        super().__init__(message)
        self.message = message
        self.facts = facts


class Users(Protocol):
    """Who may log in."""

    async def bearer(self, token: str, host: str) -> Bearer:
        """Whom a token lets in, from an address.  Raises TokenRefused, Unverifiable."""

    async def is_password(self, name: str, password: str, host: str) -> bool:
        """Whether there is such a user with this password; asked from an address."""

    def credential(self, name: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        """What is kept of a user, and whether that is true: there may be no such user."""

    def random(self, size: int) -> bytes:
        """Fresh random bytes."""


class Stage(Enum):
    """Where a login stands."""

    CHOOSING = "choosing"
    PROVING = "proving"
    DONE = "done"


class SaslSession:
    """The login of one connection; see the module."""

    __slots__ = (
        "_credential",
        "_exchange",
        "_host",
        "_name",
        "_wanted",
        "ends_at",
        "has_turn",
        "is_raw",
        "lifetime_ms",
        "mechanism",
        "refusal",
        "rejected",
        "requests",
        "stage",
        "user",
    )

    def __init__(self, host: str) -> None:
        """host: where the peer comes from; its checks take turns with others by that."""
        self.stage = Stage.CHOOSING
        # Of the login that is in force.
        self.user: str | None = None
        self.mechanism = ""
        # How long its token is valid, from the login on; None: it was not by a token.
        self.lifetime_ms: int | None = None
        # When it has to be renewed (trio's clock).
        self.ends_at: float | None = None
        # SaslHandshake 0: what follows are bare messages, not requests.
        self.is_raw = False
        # Set by a login that failed: the connection answers what is queued and ends.
        self.refusal: LoginRefused | None = None
        # A token that was refused, of which the peer has still to say that it has heard.
        self.rejected: LoginRefused | None = None
        # How many came before the first login: counted by login.py.
        self.requests = 0
        # Whether its turn among the strangers (loop/strangers.py) is for the next request as well.
        self.has_turn = False
        self._host = host
        self._wanted = ""
        self._exchange: ScramServer | None = None
        self._name = ""
        self._credential: ScramCredential | None = None

    @property
    def is_done(self) -> bool:
        """Whether the last message was the last of its login."""
        return self.stage is Stage.DONE

    def choose(self, mechanism: str, *, raw: bool) -> bool:
        """A handshake came; whether it is in order now."""
        if self.stage is Stage.PROVING or (raw and self.user is not None):
            return False
        self.stage = Stage.PROVING
        self.is_raw = raw
        self._wanted = mechanism
        return True

    async def prove(self, users: Users, message: bytes) -> bytes:
        """One message of the mechanism; its answer. `stage` is DONE when that was the last.

        Raises:
            LoginRefused: it is wrong, or nonsense.
        """
        try:
            if self._wanted == PLAIN:
                return await self._prove_plain(users, message)
            if self._wanted == OAUTHBEARER:
                return await self._prove_bearer(users, message)
            return self._prove_scram(users, MECHANISMS[self._wanted], message)
        except RemoteProtocolError as exc:
            raise LoginRefused(WRONG, mechanism=self._wanted, error=str(exc)) from exc

    async def _prove_plain(self, users: Users, message: bytes) -> bytes:
        name, password = decode_plain(message)
        _check(name)
        if not await users.is_password(name, password, self._host):
            raise self._wrong(name)
        self._done(name)
        return b""

    async def _prove_bearer(self, users: Users, message: bytes) -> bytes:
        if self.rejected is not None:  # whatever is said now
            rejected, self.rejected = self.rejected, None
            raise rejected
        said = decode_bearer(message)
        try:
            bearer = await users.bearer(said.token, self._host)
            if said.authorization_id not in ("", bearer.user):
                raise TokenRefused("it is asked to act for another user", user=bearer.user)
        except TokenRefused as exc:
            answer = encode_refusal(exc.status, exc.scope)
            self.rejected = LoginRefused(
                f"Authentication failed: {answer.decode()}: the token is refused: {exc}",
                mechanism=OAUTHBEARER,
                **({} if exc.user is None else {"user": exc.user}),
                error=str(exc),
            )
            return answer
        except Unverifiable as exc:
            raise LoginRefused(
                "", mechanism=OAUTHBEARER, error=f"signing keys cannot be read: {exc}"
            ) from exc
        self._done(bearer.user)
        self.lifetime_ms = bearer.lifetime_ms
        return b""

    def _prove_scram(self, users: Users, mechanism: ScramMechanism, message: bytes) -> bytes:
        if self._exchange is None:
            first = parse_client_first(message)
            _check(first.user)
            self._credential, _ = users.credential(first.user, mechanism)
            self._name = first.user
            nonce = users.random(NONCE_SIZE)
            self._exchange = ScramServer(mechanism, first, self._credential, nonce)
            return self._exchange.challenge()
        answer = self._exchange.finish(message)
        # By now: a session that is to be renewed may have begun with it when it began itself.
        present, exists = users.credential(self._name, mechanism)
        if answer is None or not exists or present != self._credential:
            raise self._wrong(self._name)
        self._done(self._name)
        return answer

    def _done(self, name: str) -> None:
        if self.user is not None and (self.user, self.mechanism) != (name, self._wanted):
            raise LoginRefused(
                "Authentication failed: a session must be renewed by the same user and mechanism",
                mechanism=self._wanted,
                user=name,
                error=f"the session is of {self.user!r} by {self.mechanism}",
            )
        self.user, self.mechanism = name, self._wanted
        self.stage = Stage.DONE
        self._exchange = self._credential = None

    def _wrong(self, name: str) -> LoginRefused:
        return LoginRefused(
            WRONG, mechanism=self._wanted, user=name, error="no such user, or a wrong password"
        )


def _check(name: str) -> None:
    """A name that no user can have goes no further: not into the log either."""
    try:
        check_user_name(name)
    except ValueError:
        raise RemoteProtocolError("a user name that no user can have") from None

"""Where the token of a login comes from: asked for with a client's secret, read from a file.

    ClientCredentials("https://id.example.org/token", "orders", "…")     RFC 6749, 4.4
    TokenFile("/var/run/secrets/tokens/kafka")                           what somebody else renews
    any function                                                         of a str or a BearerToken

All three are called without arguments, in a thread of their own unless they are `async`, so they
may block.  A token that is a JWT says itself when it expires; of others a `BearerToken` can.

Invariant: no secret and no token is in a repr or in an error.
"""

import base64
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote_plus, urlencode, urlsplit

from .errors import AuthenticationFailed, SegbrokerError, TokenUnavailable

if TYPE_CHECKING:
    from ssl import SSLContext

ANSWER_BYTES_MAX: Final = 1 << 20
TOKEN_BYTES_MAX: Final = 64 << 10
# Of what an issuer says about a refusal, so much is told.
WORDS_MAX: Final = 200
_REFUSED: Final = frozenset({400, 401, 403})


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token, and when it expires in seconds since 1970; None: it says so itself, or nobody."""

    value: str = field(repr=False)
    expires_at: float | None = None


TokenProvider: TypeAlias = Callable[[], str | BearerToken | Awaitable[str] | Awaitable[BearerToken]]


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Asks an issuer for a token with the id and secret of a client; a token provider.

    Args:
        url: of the token endpoint, https://... (or http://..., which sends the secret in clear).
        client_id: who asks.
        client_secret: the password.
        scope: what the token should be good for, separated by spaces; "": as the issuer thinks.
        ca_file: PEM file with the authorities trusted at `url`; None: those of the system.
        timeout_ms: of all of it, in milliseconds.
        url_encode: whether id and secret are percent-encoded in the login, as RFC 6749, 2.3.1 has
            it; most issuers take them as they are, and Kafka's clients send them so.

    Raises ValueError for what cannot be.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_file: str | None = None
    timeout_ms: int = 10_000
    url_encode: bool = False

    def __post_init__(self) -> None:
        check_url(self.url)
        if not self.client_id or not self.client_secret:
            raise ValueError("client credentials need client_id and client_secret")
        if ":" in self.client_id and not self.url_encode:
            raise ValueError(
                f"client_id={self.client_id!r} has a colon, which HTTP does not allow: an issuer"
                " may take it with url_encode (sasl.oauthbearer.header.urlencode)"
            )
        if self.timeout_ms < 1:
            raise ValueError(f"timeout_ms={self.timeout_ms!r} is not a whole number >= 1")

    def __call__(self) -> BearerToken:
        """A new token.  Blocks.

        Raises AuthenticationFailed: the issuer refuses; TokenUnavailable: it cannot be asked now.
        """
        asked_at = time.time()
        answer = _told(self._ask())
        token, lifetime_s = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str):
            raise TokenUnavailable(f"{self._where}: its answer has no access_token")
        if isinstance(lifetime_s, str) and lifetime_s.isdecimal():
            lifetime_s = int(lifetime_s)
        if not isinstance(lifetime_s, int | float) or not 0 < lifetime_s < 1e12:
            return BearerToken(token)
        return BearerToken(token, asked_at + lifetime_s)

    @property
    def _where(self) -> str:
        return f"the token endpoint {urlsplit(self.url).netloc}"

    def _ask(self) -> bytes:
        from http.client import HTTPException
        from urllib.error import URLError

        from .http_in_time import post

        fields = {"grant_type": "client_credentials"}
        if self.scope:
            fields["scope"] = self.scope
        try:
            status, data = post(
                self.url,
                urlencode(fields).encode(),
                {
                    "Authorization": f"Basic {self._login}",
                    "Accept": "application/json",
                    "Content-Type": "application/x-www-form-urlencoded",
                },
                context=_context(self.ca_file),
                timeout_s=self.timeout_ms / 1000,
                size_max=ANSWER_BYTES_MAX + 1,
            )
        except URLError as exc:
            raise TokenUnavailable(f"{self._where}: {exc.reason}") from exc
        except (OSError, ValueError, HTTPException) as exc:
            raise TokenUnavailable(f"{self._where}: {str(exc) or type(exc).__name__}") from exc
        if not 200 <= status < 300:
            told = f"{self._where} answered {status}{_why(data)}"
            if status in _REFUSED:
                raise AuthenticationFailed(f"{told}, for client {self.client_id!r}")
            raise TokenUnavailable(told)
        if len(data) > ANSWER_BYTES_MAX:
            raise TokenUnavailable(f"{self._where}: its answer is above {ANSWER_BYTES_MAX} bytes")
        return data

    @property
    def _login(self) -> str:
        parts = (self.client_id, self.client_secret)
        if self.url_encode:
            parts = (quote_plus(self.client_id), quote_plus(self.client_secret))
        return base64.b64encode(":".join(parts).encode()).decode()


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Reads the token in a file, anew each time that one is needed; a token provider."""

    path: str

    def __call__(self) -> str:
        """What it holds, without white space around it.  Raises TokenUnavailable."""
        try:
            with open(self.path, "rb") as file:
                data = file.read(TOKEN_BYTES_MAX + 1)
            if len(data) > TOKEN_BYTES_MAX:
                raise TokenUnavailable(f"{self.path}: a token of more than {TOKEN_BYTES_MAX} bytes")
            return data.decode("ascii").strip()
        except OSError as exc:
            raise TokenUnavailable(f"{self.path}: {exc.strerror or exc}") from exc
        except ValueError as exc:
            raise TokenUnavailable(f"{self.path} holds no token") from exc


def check_url(url: str) -> None:
    """Raises ValueError for what is no https://... or http://... ."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no https:// URL")
    if parts.username or parts.password:
        raise ValueError("a token endpoint's URL with a login in it")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"{url!r} has characters that a URL cannot have")


def expiry_of(token: str) -> float | None:
    """When a JWT says that it expires, in seconds since 1970; None: it does not, or is none.

    Not verified: that is for who lets it in.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        found = claims.get("exp") if isinstance(claims, dict) else None
    except (ValueError, RecursionError):
        return None
    return float(found) if isinstance(found, int | float) and 0 < found < 1e12 else None


def _context(ca_file: str | None) -> "SSLContext":
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as exc:
        why = (isinstance(exc, OSError) and exc.strerror) or "not PEM, or without a certificate"
        told = f"the authorities of the token endpoint ({ca_file}): {why}"
        raise AuthenticationFailed(told) from exc


def _told(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise TokenUnavailable(f"the token endpoint answered {len(data)} bytes that are no JSON")
    return answer


def _why(data: bytes) -> str:
    """What an issuer says of a refusal (RFC 6749, 5.2)."""
    try:
        answer = _told(data)
    except SegbrokerError:
        return ""
    words = (answer.get("error"), answer.get("error_description"))
    told = ": ".join(word for word in words if isinstance(word, str) and word.isprintable())
    return f" ({told[:WORDS_MAX]})" if told else ""

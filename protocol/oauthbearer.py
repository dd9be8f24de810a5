"""OAUTHBEARER (RFC 7628) as Kafka carries it (KIP-255): a bearer token, and how it is refused.

    client    n,a=<authorization id>,^Aauth=Bearer <token>^A<key>=<value>^A...^A
    server    nothing: it is let in
              {"status":"invalid_token"}: it is not; then the client says ^A, and is told error 58

^A is the byte 1.  The authorization id may be left out; another than the token's user asks to act
for somebody else, which nobody may here.  Further keys are SASL extensions: names of letters,
values of printable ASCII.

Invariant: no error here holds a part of the message, for it may be the token.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from .errors import RemoteProtocolError
from .sasl import SASL_MESSAGE_SIZE_MAX

OAUTHBEARER: Final = "OAUTHBEARER"
SEPARATOR: Final = b"\x01"
"""Ends each pair; alone it is the client's answer to a refusal."""
INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"

_AUTH: Final = "auth"
_HEADER: Final = re.compile(r"[ny],(?:a=([^,]*))?,")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
# What a token consists of (RFC 6750).
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SCHEME: Final = "bearer"
# A message is the token, the authorization id and the extensions.
_AROUND_TOKEN: Final = len("n,,\x01auth=Bearer \x01\x01")


class BearerMessage(NamedTuple):
    """What a client says in OAUTHBEARER."""

    token: str
    # "": that of the token.
    authorization_id: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"BearerMessage(token=<hidden>, authorization_id={self.authorization_id!r})"


def check_token(token: str) -> None:
    """Raises ValueError for what cannot be a bearer token; its text does not hold it."""
    if not isinstance(token, str):
        raise ValueError(f"a token is a str, not a {type(token).__name__}")
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"the token ({len(token)} characters) has some that no token has")
    if len(token) + _AROUND_TOKEN > SASL_MESSAGE_SIZE_MAX:
        raise ValueError(f"a token of {len(token)} characters, too long for a login")


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raises ValueError for SASL extensions that cannot be said."""
    for name, value in extensions.items():
        if not _KEY.fullmatch(name) or name == _AUTH:
            raise ValueError(f"a SASL extension cannot be called {name!r} (letters; not auth)")
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"the value of SASL extension {name!r} is empty, or no printable ASCII"
            )


def encode_bearer(token: str, extensions: Mapping[str, str]) -> bytes:
    """The client's message."""
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    return f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()


def decode_bearer(message: bytes) -> BearerMessage:
    """The token and what is around it.  Raises RemoteProtocolError."""
    if len(message) > SASL_MESSAGE_SIZE_MAX:
        raise RemoteProtocolError(
            f"a SASL message of {len(message)} bytes, limit {SASL_MESSAGE_SIZE_MAX}"
        )
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("an OAUTHBEARER message is not UTF-8") from None
    head, separator, rest = text.partition("\x01")
    found = _HEADER.fullmatch(head)
    if not separator or found is None:
        raise RemoteProtocolError("an OAUTHBEARER message does not begin with n,,")
    if not rest.endswith("\x01\x01"):
        raise RemoteProtocolError("an OAUTHBEARER message without its end")
    pairs: dict[str, str] = {}
    for item in rest[:-2].split("\x01"):
        name, equals, value = item.partition("=")
        if not equals or not _KEY.fullmatch(name) or not _VALUE.fullmatch(value):
            raise RemoteProtocolError("an OAUTHBEARER message with a pair that is none")
        if name in pairs:
            raise RemoteProtocolError("an OAUTHBEARER message that says a key twice")
        pairs[name] = value
    scheme, _, token = pairs.pop(_AUTH, "").partition(" ")
    token = token.strip(" ")
    if scheme.lower() != _SCHEME or not _TOKEN.fullmatch(token):
        raise RemoteProtocolError("an OAUTHBEARER message without a bearer token")
    wanted = (found[1] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(token, wanted, pairs)


def encode_refusal(status: str, scope: str) -> bytes:
    """What the server says to a token that it refuses.  scope: what it would need."""
    told = {"status": status, **({"scope": scope} if scope else {})}
    return json.dumps(told, separators=(",", ":")).encode()


def describe_refusal(answer: bytes) -> str:
    """A server's refusal in words, for an error; it may be anything."""
    try:
        told = json.loads(answer)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("status"), str):
        return f"a refusal of {len(answer)} bytes that cannot be read"
    scope = told.get("scope")
    wanted = f", it wants the scope {scope[:200]!r}" if isinstance(scope, str) and scope else ""
    return f"{told['status'][:200]}{wanted}"

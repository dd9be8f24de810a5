"""What is said about a bearer token: whom it lets in, or why nobody.

`access/bearer_tokens.py` decides; `sasl.py` answers.
"""

from dataclasses import dataclass

from segbroker.protocol.oauthbearer import INVALID_TOKEN


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whom a token lets in."""

    user: str
    # How long from now on, in ms; more than 0.
    lifetime_ms: int


class TokenRefused(Exception):
    """The token lets nobody in; `str` says why, in words for its owner and the log."""

    def __init__(
        self, why: str, *, status: str = INVALID_TOKEN, scope: str = "", user: str | None = None
    ) -> None:
        """status, scope: for the peer, as RFC 7628 has them.  user: whose it is, if verified."""
        super().__init__(why)
        self.status = status
        self.scope = scope
        self.user = user


class UnknownKey(TokenRefused):
    """No known key has signed it: the issuer may have a new one, maybe by the name of another."""


class Unverifiable(Exception):
    """A token cannot be checked now: no keys, or no newer ones, can be read; the text says why."""

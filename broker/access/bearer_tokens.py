"""A bearer token (JWT, RFC 7519): whom it is of, and until when; or why it is refused.

Checked, with PyJWT: the signature by a key of the issuer, by an algorithm that is allowed;
`exp`, which has to be there; `nbf` and `iat`, if they are; issuer and audience; the scopes that are
expected; the claim with the user's name.  The names of algorithms come from the configuration,
where there are none without two keys: `none`, and HS256 with a public key as the secret, are
refused before a key is looked for.

Invariants: nothing of a token but its `kid`, and of one whose signature is right its user, issuer
and audience, gets into an error; a token that is nonsense in any way is a `TokenRefused`, never
another exception.
"""

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from segbroker.protocol.oauthbearer import INSUFFICIENT_SCOPE
from segbroker.protocol.sasl import check_user_name

from ..configuration.config_oauth import ANY, OAuthKeys, items_of
from ..peers.bearer import Bearer, TokenRefused, UnknownKey
from .signing_keys import SigningKeys

if TYPE_CHECKING:
    from jwt import PyJWK

HEADER_SIZE_MAX: Final = 4_096
KID_SIZE_MAX: Final = 512
# Of a token that does not name its key, so many are tried.
TRIED_MAX: Final = 8
# Of an issuer or audience that is not the expected one, so much is told.
CLAIM_TOLD_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class TokenHead:
    """How a token says that it is signed: not verified."""

    algorithm: str
    kid: str | None


class TokenRules:
    """What a token has to be; of one configuration."""

    def __init__(self, config: OAuthKeys) -> None:
        self.algorithms = frozenset(items_of(config.sasl_oauthbearer_algorithms))
        issuer = config.sasl_oauthbearer_expected_issuer
        self.issuer = None if issuer == ANY else issuer
        audiences = items_of(config.sasl_oauthbearer_expected_audience)
        self.audiences = None if ANY in audiences else list(audiences)
        self.scopes = frozenset(config.sasl_oauthbearer_expected_scope.split())
        self.scope_claim = config.sasl_oauthbearer_scope_claim_name
        self.sub_claim = config.sasl_oauthbearer_sub_claim_name
        self.skew_s = config.sasl_oauthbearer_clock_skew_seconds

    def head_of(self, token: str) -> TokenHead:
        """Raises TokenRefused: it is no token, or signed in a way that is not allowed."""
        from jwt import PyJWTError, get_unverified_header

        if token.count(".") != 2:
            raise TokenRefused("it is no signed JWT")
        if token.index(".") > HEADER_SIZE_MAX:
            raise TokenRefused(f"its header is above {HEADER_SIZE_MAX} bytes")
        try:
            header = get_unverified_header(token)
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenRefused("it is no JWT") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self.algorithms:
            raise TokenRefused("it is signed by an algorithm that is not allowed")
        if not isinstance(kid, str | None) or len(kid or "") > KID_SIZE_MAX:
            raise TokenRefused("its kid is none")
        if "crit" in header or header.get("b64", True) is not True:
            raise TokenRefused("its header demands what is not known here")
        return TokenHead(algorithm, kid)

    def verify(self, token: str, head: TokenHead, keys: SigningKeys) -> Bearer:
        """Whom it lets in.  Computes: for a thread.

        Raises:
            UnknownKey: none of `keys` has signed it.
            TokenRefused: for any other reason.
        """
        candidates = keys.of(head.algorithm, head.kid)[:TRIED_MAX]
        if not candidates:
            raise UnknownKey(
                f"it is signed by a key that is not known (kid {head.kid!r}, {head.algorithm})"
            )
        claims = self._claims(token, candidates)
        user = self._user(claims)
        self._check_scopes(claims, user)
        return Bearer(user, self._lifetime_ms(claims["exp"]))

    def _claims(self, token: str, candidates: "list[PyJWK]") -> dict[str, Any]:
        from jwt import InvalidSignatureError, PyJWTError, decode

        for key in candidates:
            try:
                return decode(
                    token,
                    key,
                    algorithms=[key.algorithm_name],
                    audience=self.audiences,
                    issuer=self.issuer,
                    leeway=self.skew_s,
                    options={
                        "require": ["exp"],
                        "verify_aud": self.audiences is not None,
                        # A claim of another name may stand beside it.
                        "verify_sub": False,
                        "verify_jti": False,
                    },
                )
            except InvalidSignatureError:
                continue
            except PyJWTError as exc:
                raise TokenRefused(_why(exc, token)) from None
            except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError):
                raise TokenRefused("its claims are none") from None
            except RecursionError:
                raise TokenRefused("its claims are nested too deeply") from None
        raise UnknownKey("its signature is wrong")

    def _user(self, claims: dict[str, Any]) -> str:
        user = claims.get(self.sub_claim)
        if not isinstance(user, str):
            raise TokenRefused(f"it has no claim {self.sub_claim} with the name of a user")
        try:
            check_user_name(user)
        except ValueError:
            raise TokenRefused(
                f"its claim {self.sub_claim} is a name that no user can have"
            ) from None
        return user

    def _check_scopes(self, claims: dict[str, Any], user: str) -> None:
        found = claims.get(self.scope_claim)
        if isinstance(found, str):
            found = found.split()
        has = {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()
        if missing := self.scopes - has:
            raise TokenRefused(
                f"it has not the scope {' '.join(sorted(missing))}",
                status=INSUFFICIENT_SCOPE,
                scope=" ".join(sorted(self.scopes)),
                user=user,
            )

    def _lifetime_ms(self, expires_s: Any) -> int:  # noqa: ANN401 - a number, as verified
        """Until `exp`; of one within the skew behind it, until the skew is over."""
        try:
            left_ms = int((int(expires_s) - time.time()) * 1000)
        except (ValueError, TypeError, OverflowError):
            raise TokenRefused("its claims are none") from None
        if left_ms <= 0:
            left_ms += self.skew_s * 1000
        # As the wire carries it; whoever issues longer ones is renewed after 24 days.
        return max(1, min(left_ms, 2**31 - 1))


def _why(exc: Exception, token: str) -> str:
    """What PyJWT found, in our words: its own differ between its releases.

    token: its signature is verified.
    """
    from jwt import exceptions

    words: list[tuple[type[Exception], str]] = [
        (exceptions.ExpiredSignatureError, "it has expired"),
        (exceptions.ImmatureSignatureError, "it is not valid yet (nbf, iat)"),
        (exceptions.InvalidAudienceError, f"it is for somebody else {_claim(token, 'aud')}"),
        (exceptions.InvalidIssuerError, f"it is of another issuer {_claim(token, 'iss')}"),
        (exceptions.InvalidAlgorithmError, "it is signed by an algorithm that is not allowed"),
    ]
    if isinstance(exc, exceptions.MissingRequiredClaimError):
        return f"it has no claim {exc.claim}"
    return next((text for kind, text in words if isinstance(exc, kind)), "its claims are none")


def _claim(token: str, name: str) -> str:
    """A claim as whoever compares it with the settings wants to see it."""
    from jwt import PyJWTError, decode

    try:
        found = decode(token, options={"verify_signature": False}).get(name)
    except (PyJWTError, ValueError, TypeError, RecursionError):
        found = None
    return f"({name} {json.dumps(found)[:CLAIM_TOLD_MAX]})"

"""Logins by a token (OAUTHBEARER): who issues them, with which keys, and for whom they are.

Keys of the configuration; config.py puts them together.

What is missing or wrong is an error of the start, or of whoever offers the mechanism while the
broker runs: a broker that checks less than its operator believes lets in whom it should not.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from segbroker.protocol.oauthbearer import OAUTHBEARER

from ..address import InvalidConfig
from .config_key import DAY_MS, key
from .exposure import is_loopback

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Those that may sign: all with two keys.  With one (HS256) whoever verifies could sign."""
PYJWT_MIN: Final = (2, 10, 1)
"""The one before takes a part of the expected issuer's name for all of it (CVE-2024-53861)."""
ANY: Final = "*"
_CLAIM: Final = re.compile(r"[\x21-\x7e]{1,100}")


@dataclass(frozen=True)
class OAuthKeys:
    """See the module."""

    sasl_oauthbearer_jwks_endpoint_url: str = key(
        "",
        "Address of the public keys of the issuer of tokens (a JWK set, RFC 7517): https://... or "
        "file:///...; http:// on this machine, elsewhere only with "
        "sasl_oauthbearer_jwks_endpoint_allow_http. Needed for OAUTHBEARER.",
        kafka="sasl.oauthbearer.jwks.endpoint.url",
    )
    sasl_oauthbearer_jwks_endpoint_ca: str = key(
        "",
        "PEM file with the authorities that are trusted at that address. Empty: those of the "
        "system.",
    )
    sasl_oauthbearer_jwks_endpoint_allow_http: bool = key(
        False,
        "Read the keys by http:// from another machine, too. Whoever is on the way can put keys of "
        "their own there, and log in as anybody: for a network that nobody else is on.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        3_600_000,
        "How often the signing keys are read again. A token that no known key has signed makes the "
        "broker read them at once, at most every five seconds. A file is checked every ten "
        "seconds.",
        least=1_000,
        most=7 * DAY_MS,
        kafka="sasl.oauthbearer.jwks.endpoint.refresh.ms",
    )
    sasl_oauthbearer_jwks_endpoint_timeout_ms: int = key(
        10_000,
        "Time for one reading of the signing keys.",
        least=100,
        most=60_000,
    )
    sasl_oauthbearer_expected_issuer: str = key(
        "",
        "Issuer that a token must have (its claim iss). Needed for OAUTHBEARER; *: any issuer with "
        "these keys.",
        kafka="sasl.oauthbearer.expected.issuer",
    )
    sasl_oauthbearer_expected_audience: str = key(
        "",
        "Audiences, separated by commas; a token must have one of them (its claim aud). Needed for "
        "OAUTHBEARER; *: any audience, also other services of the issuer.",
        kafka="sasl.oauthbearer.expected.audience",
    )
    sasl_oauthbearer_expected_scope: str = key(
        "",
        "Scopes that a token must have, all of them, separated by spaces. Empty: none.",
    )
    sasl_oauthbearer_scope_claim_name: str = key(
        "scope",
        "Name of the claim with the scopes of a token: text, or a list.",
        kafka="sasl.oauthbearer.scope.claim.name",
    )
    sasl_oauthbearer_sub_claim_name: str = key(
        "sub",
        "Name of the claim with the user of a token: alice is User:alice.",
        kafka="sasl.oauthbearer.sub.claim.name",
    )
    sasl_oauthbearer_clock_skew_seconds: int = key(
        30,
        "By how much the clocks of broker and issuer may differ.",
        most=600,
        kafka="sasl.oauthbearer.clock.skew.seconds",
    )
    sasl_oauthbearer_algorithms: str = key(
        "RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA",
        "Algorithms with which a token may be signed, separated by commas.",
    )


def items_of(text: str) -> tuple[str, ...]:
    """The items of a list with commas, each once."""
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def check_oauth(config: OAuthKeys, offered: Iterable[str]) -> None:
    """What is set is in order, and all there is if OAUTHBEARER is offered.

    offered: mechanisms, of all listeners.

    Raises:
        InvalidConfig: naming the setting, and what to do.
    """
    url = config.sasl_oauthbearer_jwks_endpoint_url
    if url:
        _check_url(url, config.sasl_oauthbearer_jwks_endpoint_allow_http)
    for name in ("sasl_oauthbearer_scope_claim_name", "sasl_oauthbearer_sub_claim_name"):
        if not _CLAIM.fullmatch(getattr(config, name)):
            raise InvalidConfig(f"{name} = {getattr(config, name)!r} is no name of a claim")
    algorithms = items_of(config.sasl_oauthbearer_algorithms)
    for name in algorithms:
        if name not in ALGORITHMS:
            raise InvalidConfig(
                f"sasl_oauthbearer_algorithms: {name!r} is none of {', '.join(ALGORITHMS)}"
            )
    if not algorithms:
        raise InvalidConfig("sasl_oauthbearer_algorithms is empty")
    if OAUTHBEARER not in offered:
        return
    for name, what in (
        ("jwks_endpoint_url", "where the keys are that sign tokens"),
        ("expected_issuer", "who issues them, or * for anybody whom the keys belong to"),
        ("expected_audience", "for whom they are, or * for anybody"),
    ):
        if not items_of(getattr(config, f"sasl_oauthbearer_{name}")):
            raise InvalidConfig(f"OAUTHBEARER needs sasl_oauthbearer_{name}: {what}")
    if (problem := lacking()) is not None:
        raise InvalidConfig(
            f"OAUTHBEARER needs the extra oauth: {problem}. pip install '.[oauth]' in a checkout "
            "of segbroker, or 'segbroker-….whl[oauth]' (it is not on PyPI yet)"
        )


def lacking() -> str | None:
    """What is not installed as OAUTHBEARER needs it; None: nothing."""
    try:
        import jwt
    except ImportError:
        return "PyJWT is not installed"
    # Another package has the same name to import.
    has_crypto = getattr(getattr(jwt, "algorithms", None), "has_crypto", False)
    version = str(getattr(jwt, "__version__", "0"))
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
    if not hasattr(jwt, "PyJWK") or numbers < PYJWT_MIN:
        return f"PyJWT {version}, at least {'.'.join(map(str, PYJWT_MIN))} is needed"
    return None if has_crypto else "cryptography is not installed"


def _check_url(url: str, allow_http: bool) -> None:
    key = "sasl_oauthbearer_jwks_endpoint_url"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as exc:
        raise InvalidConfig(f"{key}: {exc}") from exc
    if parts.username or parts.password:
        raise InvalidConfig(f"{key}: a login in a URL is not used")
    if parts.scheme == "file":
        if host not in ("", "localhost") or not parts.path.startswith("/"):
            raise InvalidConfig(f"{key} = {url!r} is not file:///path")
        return
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidConfig(f"{key} = {url!r} is neither https://host/path nor file:///path")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidConfig(f"{key} = {url!r} has characters that a URL cannot have")
    if parts.scheme == "http" and not allow_http and not is_loopback(host):
        raise InvalidConfig(
            f"{key} = {url!r}: whoever is on the way could put keys of their own there, and log "
            "in as anybody. Use https://, or a file, or say that it is meant: "
            "sasl_oauthbearer_jwks_endpoint_allow_http = true"
        )

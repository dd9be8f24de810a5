"""The public keys that sign tokens: a JWK set (RFC 7517), read with care.

| key of the set                                      |                                         |
|-----------------------------------------------------|-----------------------------------------|
| RSA of 2048 bits or more, EC, Ed25519, Ed448        | used                                    |
| symmetric (`oct`), for encryption (`use: enc`, or   | left out                                |
| `key_ops` without `verify`), shorter, or of a kind  |                                         |
| that is not known                                   |                                         |
| with `alg`                                          | for that algorithm alone                |

Which keys may have signed a token: those of its `kid`, of the kind of its algorithm; of a token
without one, all of that kind.  A set without any usable key is an error, so that one which was
published by mistake does not replace one that works.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jwt import PyJWK

SET_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 16_384

# What of a key is read: the public half.
_PARTS: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_ALGORITHMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}


class UnusableKeys(ValueError):
    """What was read is no JWK set, or has no key that can be used."""


class SigningKeys:
    """The usable keys of one set, by algorithm and `kid`."""

    def __init__(self, data: bytes) -> None:
        """Raises UnusableKeys."""
        self.names: set[str] = set()
        self._count = 0
        self._keys: dict[tuple[str, str | None], list[PyJWK]] = {}
        # Which keys are not used, and why; never what is in them but their names.
        self.left_out: list[str] = []
        for index, row in enumerate(_rows(data)):
            try:
                self._add(row)
            except UnusableKeys as exc:
                self.left_out.append(f"{_called(row, index)}: {exc}")
        if not self._keys:
            raise UnusableKeys("; ".join(["no key that signs tokens", *self.left_out[:3]]))

    def __len__(self) -> int:
        return self._count

    def of(self, algorithm: str, kid: str | None) -> "list[PyJWK]":
        """Those that may have signed a token; for this algorithm, and no other."""
        return self._keys.get((algorithm, kid), [])

    def _add(self, row: object) -> None:
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError

        if not isinstance(row, dict):
            raise UnusableKeys("it is no object")
        kind = row.get("kty")
        if not isinstance(kind, str) or kind not in _PARTS:
            raise UnusableKeys(f"kty {str(kind)[:20]!r} is none of {', '.join(_PARTS)}")
        if row.get("use", "sig") != "sig" or not _may_verify(row.get("key_ops")):
            raise UnusableKeys("it is not for signatures")
        kid = row.get("kid")
        if not isinstance(kid, str | None):
            raise UnusableKeys("its kid is no text")
        curve = "" if kind == "RSA" else str(row.get("crv"))
        algorithms = _ALGORITHMS.get((kind, curve), ())
        if (only := row.get("alg")) is not None:
            algorithms = tuple(name for name in algorithms if name == only)
        if not algorithms:
            raise UnusableKeys("its curve or algorithm is none of those that are known")
        public = {"kty": kind, **{name: row.get(name) for name in _PARTS[kind]}}
        for name in algorithms:
            try:
                key = PyJWK(public, algorithm=name)
            except (PyJWTError, ValueError, TypeError, AttributeError) as exc:
                raise UnusableKeys(f"it cannot be read: {type(exc).__name__}") from exc
            if kind == "RSA" and not RSA_BITS_MIN <= key.key.key_size <= RSA_BITS_MAX:
                raise UnusableKeys(
                    f"RSA of {key.key.key_size} bits, allowed are {RSA_BITS_MIN} to {RSA_BITS_MAX}"
                )
            self._keys.setdefault((name, None), []).append(key)
            if kid is not None:
                self._keys.setdefault((name, kid), []).append(key)
        self._count += 1
        if kid is not None:
            self.names.add(kid)


def _called(row: object, index: int) -> str:
    kid = row.get("kid") if isinstance(row, dict) else None
    return f"key {index}" if not isinstance(kid, str) else f"key {index} (kid {kid[:80]!r})"


def _may_verify(operations: object) -> bool:
    """Whether a key's `key_ops` allow it; without any, `use` has said all."""
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _rows(data: bytes) -> list[Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise UnusableKeys(f"{len(data)} bytes that are no JSON") from None
    rows = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise UnusableKeys('no JWK set: {"keys": [...]}')
    if len(rows) > KEYS_MAX:
        raise UnusableKeys(f"{len(rows)} keys, allowed are {KEYS_MAX}")
    return rows

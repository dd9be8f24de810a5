"""Key updates of a TLS 1.3 client (RFC 8446, 4.6.3): as many as one likes.

Python's ssl sends none.  The secret that the first is encrypted by is in the log of keys
(SSLContext.keylog_filename); each update brings the next one.
"""

import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CIPHER: Final = "TLS_AES_256_GCM_SHA384"
"""The one that is spoken here."""
SIZE: Final = 27
"""Bytes of the record of one update."""
_HASH: Final = "sha384"
_SECRET: Final = "CLIENT_TRAFFIC_SECRET_0 "


def secret_in(keylog: Path) -> bytes:
    """By which a client encrypts behind its handshake, as the log of keys has it."""
    (line,) = (one for one in keylog.read_text().splitlines() if one.startswith(_SECRET))
    return bytes.fromhex(line.split()[-1])


def key_updates(secret: bytes, *, is_requested: bool, sent: int = 0) -> Iterator[bytes]:
    """Records of updates, one behind the other, without an end.

    secret: of who has sent so many records since its handshake.  is_requested: the other side is to
    answer each by one of its own.
    """
    body = b"\x18\x00\x00\x01" + bytes([is_requested]) + b"\x16"
    header = b"\x17\x03\x03" + (len(body) + 16).to_bytes(2, "big")
    while True:
        key, nonce = _expanded(secret, "key", 32), _expanded(secret, "iv", 12)
        nonce = bytes(a ^ b for a, b in zip(nonce, sent.to_bytes(len(nonce), "big"), strict=True))
        yield header + AESGCM(key).encrypt(nonce, body, header)
        sent = 0
        secret = _expanded(secret, "traffic upd", len(secret))


def _expanded(secret: bytes, label: str, size: int) -> bytes:
    """HKDF-Expand-Label, of at most one hash."""
    named = f"tls13 {label}".encode()
    info = size.to_bytes(2, "big") + bytes([len(named)]) + named + b"\x00"
    return hmac.digest(secret, info + b"\x01", _HASH)[:size]

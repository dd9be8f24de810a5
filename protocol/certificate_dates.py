"""From when until when a certificate is valid: the little of X.509 that says so.

    Certificate  SEQUENCE
      tbsCertificate  SEQUENCE
        [0] version, serialNumber, signature, issuer
        validity  SEQUENCE { notBefore, notAfter }      UTCTime 0x17, GeneralizedTime 0x18

Python's ssl checks certificates of others; of our own it tells nothing.  Source: RFC 5280, 4.1.
"""

import binascii
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from .der import element

_PEM: Final = re.compile(b"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_EXPLICIT_0: Final = 0xA0
_FORMATS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_BEFORE_VALIDITY: Final = 3
"""Elements between the version and the validity."""


def validity_ms(pem: bytes) -> tuple[int, int]:
    """When the first certificate of a PEM file begins, and when the first of all in it ends, those
    of its chain too, ms since 1970: from then on clients refuse it.  Raises ValueError."""
    first, *chain = _PEM.findall(pem) or [b""]
    if not first:
        raise ValueError("there is no certificate in it")
    try:
        from_ms, until_ms = _validity_ms(binascii.a2b_base64(first))
    except ValueError as exc:  # binascii.Error is one
        raise ValueError(f"it is no certificate: {exc}") from exc
    for one in chain:
        with suppress(ValueError):  # old authorities have times of other forms: OpenSSL takes them
            until_ms = min(until_ms, _validity_ms(binascii.a2b_base64(one))[1])
    return from_ms, until_ms


def _validity_ms(der: bytes) -> tuple[int, int]:
    _, at, _ = element(der, 0)
    _, at, _ = element(der, at)
    tag, _, end = element(der, at)
    if tag == _EXPLICIT_0:
        at = end
    for _ in range(_BEFORE_VALIDITY):
        _, _, at = element(der, at)
    _, not_before, _ = element(der, at)
    from_ms, not_after = _time_ms(der, not_before)
    until_ms, _ = _time_ms(der, not_after)
    return from_ms, until_ms


def _time_ms(der: bytes, at: int) -> tuple[int, int]:
    """The time at `at`, and where the next element is."""
    tag, begin, end = element(der, at)
    if tag not in _FORMATS:
        raise ValueError(f"tag {tag:#x} is not a time")
    text = der[begin:end].decode("ascii", "replace")
    time = datetime.strptime(text, _FORMATS[tag]).replace(tzinfo=UTC)
    return int(time.timestamp() * 1000), end

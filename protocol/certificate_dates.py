"""Until when a certificate is valid: the little of X.509 that says so.

    Certificate  SEQUENCE
      tbsCertificate  SEQUENCE
        [0] version, serialNumber, signature, issuer
        validity  SEQUENCE { notBefore, notAfter }      UTCTime 0x17, GeneralizedTime 0x18

Python's ssl checks certificates of others; of our own it tells nothing.  Source: RFC 5280, 4.1.
"""

import binascii
from datetime import UTC, datetime
from typing import Final

from .der import element

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"
_EXPLICIT_0: Final = 0xA0
_FORMATS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_BEFORE_VALIDITY: Final = 3
"""Elements between the version and the validity."""


def valid_until_ms(pem: bytes) -> int:
    """When the first certificate of a PEM file ends, ms since 1970.  Raises ValueError."""
    begin = pem.find(_BEGIN)
    end = pem.find(_END, begin)
    if begin < 0 or end < 0:
        raise ValueError("there is no certificate in it")
    try:
        der = binascii.a2b_base64(pem[begin + len(_BEGIN) : end])
        return _not_after_ms(der)
    except ValueError as exc:  # binascii.Error is one
        raise ValueError(f"it is no certificate: {exc}") from exc


def _not_after_ms(der: bytes) -> int:
    _, at, _ = element(der, 0)
    _, at, _ = element(der, at)
    tag, _, end = element(der, at)
    if tag == _EXPLICIT_0:
        at = end
    for _ in range(_BEFORE_VALIDITY):
        _, _, at = element(der, at)
    _, not_before, _ = element(der, at)
    _, _, not_after = element(der, not_before)
    tag, begin, end = element(der, not_after)
    if tag not in _FORMATS:
        raise ValueError(f"tag {tag:#x} is not a time")
    text = der[begin:end].decode("ascii", "replace")
    return int(datetime.strptime(text, _FORMATS[tag]).replace(tzinfo=UTC).timestamp() * 1000)

"""Who a certificate is about: its subject, written as Java writes it, and so Kafka's rules.

    Certificate  SEQUENCE
      tbsCertificate  SEQUENCE
        [0] version, serialNumber, signature, issuer, validity
        subject  SEQUENCE of SET of SEQUENCE { type  OID, value }

    CN=alice,OU=a\\, b+UID=7,O=Example,2.5.4.5=#130135      the last part first (RFC 2253)

| a type, a value | is written |
|---|---|
| CN, C, L, ST, O, OU, STREET, DC, UID | by that name |
| any other (emailAddress, serialNumber) | by its number, and the value as `#` and its DER |
| , = + < > # ; " \\ | with a backslash in front; so are spaces at either end |
| NUL | `\\00` |
| neither UTF-8, Latin nor ASCII text | as `#` and its DER |

Two subjects that differ in more than the kind of their text are never written alike: who has a
certificate with quotes and commas in a name is nobody else for it.
"""

from typing import Final

from .der import element, elements

_EXPLICIT_0: Final = 0xA0
_OID: Final = 0x06
_BEFORE_SUBJECT: Final = 4
"""Elements between the version and the subject."""
_NAMES: Final = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
# UTF8String, PrintableString, T61String, IA5String.
_TEXTS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii"}
_ESCAPED: Final = str.maketrans({char: f"\\{char}" for char in ',=+<>#;"\\'} | {"\0": "\\00"})


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER; may be empty.  Raises ValueError: it is none."""
    outer = element(certificate, 0)
    inner = element(certificate, outer.begin)
    parts = elements(certificate, inner.begin, inner.end)
    if parts and parts[0].tag == _EXPLICIT_0:
        parts = parts[1:]
    if len(parts) <= _BEFORE_SUBJECT:
        raise ValueError("a certificate without a subject")
    subject = parts[_BEFORE_SUBJECT]
    return name_of(certificate[subject.begin : subject.end])


def name_of(parts: bytes) -> str:
    """The content of a subject as text.  Raises ValueError."""
    found = []
    for together in elements(parts, 0, len(parts)):
        some = []
        for one in elements(parts, together.begin, together.end):
            kind, value = elements(parts, one.begin, one.end)
            if kind.tag != _OID:
                raise ValueError(f"a part of a name without a type, tag {kind.tag:#x}")
            name = _NAMES.get(parts[kind.begin : kind.end])
            text = None if name is None else _text(value.tag, parts[value.begin : value.end])
            if name is None:
                name = _number(parts[kind.begin : kind.end])
            if text is None:
                text = f"#{parts[kind.end : value.end].hex()}"
            some.append(f"{name}={text}")
        found.append("+".join(some))
    return ",".join(reversed(found))


def _text(tag: int, value: bytes) -> str | None:
    """A value as it is written; None: it is no text."""
    try:
        plain = value.decode(_TEXTS[tag])
    except (KeyError, UnicodeDecodeError):
        return None
    body = plain.strip(" ")
    before = len(plain) - len(plain.lstrip(" "))
    behind = len(plain) - before - len(body)
    return "\\ " * before + body.translate(_ESCAPED) + "\\ " * behind


def _number(kind: bytes) -> str:
    """An OID as 2.5.4.3."""
    numbers = []
    number = 0
    for byte in kind:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("a type without a number")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))

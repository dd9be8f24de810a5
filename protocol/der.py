"""DER, the encoding of certificates: elements of tag, size and content, one in the other.

    tag  size  content          size below 0x80 in one byte, else 0x80 + count and so many bytes

Only to walk: what is inside is up to whoever walks.  Source: X.690.
"""

from typing import NamedTuple


class Element(NamedTuple):
    """Where an element is in its buffer: its content is [begin, end)."""

    tag: int
    begin: int
    end: int


def element(der: bytes, at: int) -> Element:
    """The element that begins at `at`.  Raises ValueError: it is not whole."""
    if len(der) < at + 2:
        raise ValueError(f"cut off at byte {len(der)}")
    tag, size = der[at], der[at + 1]
    begin = at + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(der[begin : begin + count], "big")
        begin += count
    if begin + size > len(der):
        raise ValueError(f"an element of {size} bytes is cut off at byte {len(der)}")
    return Element(tag, begin, begin + size)


def elements(der: bytes, begin: int, end: int) -> list[Element]:
    """The elements of a content.  Raises ValueError."""
    found = []
    while begin < end:
        found.append(element(der, begin))
        begin = found[-1].end
    return found

"""The smallest pieces of the flexible encoding: unsigned varints and tag sections.

    uvarint      LEB128 of an unsigned 32-bit number: 7 bits a byte, lowest first, at most 5 bytes
    compact x    uvarint(length + 1), then the bytes; 0 is null
    tag section  uvarint count, then count x (uvarint tag, uvarint size, size bytes)

Fixed-width numbers are big-endian and need no function: the compiled codecs unpack whole runs of
them at once (schema.py).

Invariant: nothing here reads at or past the end of the buffer, and a number that does not end
within its 5 bytes is refused.  An IndexError for a buffer that ends inside a number is meant: the
compiled codecs turn it into RemoteProtocolError, once, for all they do.
"""

from typing import Final

from . import limits
from .errors import RemoteProtocolError

__all__ = ["Buffer", "read_uvarint", "repaired_text", "skip_tags", "uvarint"]

Buffer = bytes | bytearray | memoryview

UINT32_MAX: Final = 0xFFFFFFFF


def uvarint(value: int) -> bytes:
    """The LEB128 bytes of `value`, which is in [0, 2^32)."""
    assert 0 <= value <= UINT32_MAX, "a uvarint is a length, a count or a tag"
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at `position` and the position behind it.

    Raises RemoteProtocolError for more than 32 bits, IndexError where the buffer ends.
    """
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise RemoteProtocolError("varint longer than 5 bytes")
    if value > UINT32_MAX:
        raise RemoteProtocolError(f"varint {value} is over 32 bits")
    return value, position


def skip_tags(buffer: Buffer, position: int, count: int, end: int) -> int:
    """The position behind `count` tagged fields that nobody here knows.

    `count` may be the first byte of a longer number, then `position` is one behind that byte.
    """
    if count > 0x7F:
        count, position = read_uvarint(buffer, position - 1)
    if count > limits.TAGS_COUNT_MAX:
        raise RemoteProtocolError(f"{count} tagged fields, limit {limits.TAGS_COUNT_MAX}")
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if size > end - position:
            raise RemoteProtocolError(f"tagged field of {size} bytes, {end - position} left")
        position += size
    return position


def repaired_text(data: Buffer) -> str:
    """The text of a string that is not UTF-8, as Kafka reads it: with U+FFFD for what is none.

    Who has a client id in Latin-1 is served there.  Raises RemoteProtocolError when it becomes
    longer than a string can be: it could not be sent back.
    """
    text = str(data, "utf-8", "replace")
    if len(text.encode()) > limits.STRING_SIZE_MAX:
        raise RemoteProtocolError(f"a string of {len(data)} bytes is not UTF-8")
    return text

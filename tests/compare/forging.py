"""Batches with a field of the header changed, and a checksum that agrees."""

import struct
from typing import Final

from segbroker.protocol.checksums import crc32c

# name -> (position, format)
_FIELDS: Final = {
    "base_offset": (0, "q"),
    "magic": (16, "b"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "base_sequence": (53, "i"),
    "records_count": (57, "i"),
}


def forged(batch: bytes, **changes: int) -> bytes:
    """`batch` with these header fields; length and CRC are made to fit."""
    made = bytearray(batch)
    struct.pack_into(">i", made, 8, len(made) - 12)
    for name, value in changes.items():
        position, form = _FIELDS[name]
        struct.pack_into(f">{form}", made, position, value)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)

"""Keys and where each was written last, in a fixed number of bytes: what a cleaning remembers.

    slot   byte 0                16        24
           +---------------------+---------+
           | digest of the key   | offset  |      SLOT_SIZE = 24, as many as the buffer holds
           | 16 bytes            | u64 + 1 |      digest 0: the slot is free
           +---------------------+---------+

Open addressing: a key lies at the slot that its digest says, or in one behind it.  At most
LOAD_MAX of the slots are used, so a search ends soon.

The digest is BLAKE2b with a salt that is drawn for each map: two keys of one digest would be one
key, and with a digest that everybody can compute somebody could make two such keys and have one
delete the other.

At the limit: `has_room` says so beforehand; what does not fit is cleaned in the next round.
"""

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

SLOT_SIZE: Final = 24
DIGEST_SIZE: Final = 16
LOAD_MAX: Final = 0.7
SLOTS_MIN: Final = 64
_OFFSET: Final = struct.Struct(">Q")
_FREE: Final = bytes(DIGEST_SIZE)
"""The digest of a free slot; no key has it but by a chance of 1 in 2^128."""


class OffsetMap:
    """The last offset of each key."""

    def __init__(self, bytes_max: int, keys_expected: int, salt: bytes) -> None:
        """bytes_max: of memory.  keys_expected: no more is taken than these need.  salt: 16 bytes
        that nobody can guess."""
        wanted = int(keys_expected / LOAD_MAX) + SLOTS_MIN
        self._slots = max(SLOTS_MIN, min(wanted, bytes_max // SLOT_SIZE))
        self._table = bytearray(self._slots * SLOT_SIZE)
        self._salt = salt
        self._keys_max = int(self._slots * LOAD_MAX)
        self.keys_count = 0

    def has_room(self, keys: int) -> bool:
        """Whether so many more keys fit."""
        return self.keys_count + keys <= self._keys_max

    def put_all(self, keys: Iterable[bytes | None], offsets: Iterable[int]) -> None:
        """The keys were written at these offsets, behind everything that was put before."""
        table, salt, digest_of, pack = self._table, self._salt, blake2b, _OFFSET.pack_into
        unpack = _OFFSET.unpack_from
        for key, offset in zip(keys, offsets, strict=True):
            if key is None:
                continue
            digest = digest_of(key, digest_size=DIGEST_SIZE, salt=salt).digest()
            position = self._find(digest)
            if not unpack(table, position + DIGEST_SIZE)[0]:
                assert self.keys_count < self._keys_max, "who puts asks for room first"
                self.keys_count += 1
                table[position : position + DIGEST_SIZE] = digest
            pack(table, position + DIGEST_SIZE, offset + 1)

    def get_all(self, keys: Iterable[bytes | None]) -> list[int]:
        """Where each of the keys was written last; -1 for one that was not put, and for null."""
        table, salt, digest_of, unpack = self._table, self._salt, blake2b, _OFFSET.unpack_from
        found = []
        for key in keys:
            offset = 0
            if key is not None:
                digest = digest_of(key, digest_size=DIGEST_SIZE, salt=salt).digest()
                (offset,) = unpack(table, self._find(digest) + DIGEST_SIZE)
            found.append(offset - 1)
        return found

    def _find(self, digest: bytes) -> int:
        """Position of the slot that has the digest, or of the free one where it belongs."""
        table, end = self._table, len(self._table)
        position = int.from_bytes(digest[:8], "big") % self._slots * SLOT_SIZE
        while True:
            found = table[position : position + DIGEST_SIZE]
            if found in (digest, _FREE):
                return position
            position += SLOT_SIZE
            if position == end:
                position = 0

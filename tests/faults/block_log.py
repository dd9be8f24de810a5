"""What a block device was told to do, and the disks that a power cut may leave of that.

    log     entry*
    entry   u8 kind | u64 position | u32 length | bytes      big endian
            kind 1: a write; kind 2: a flush of the write cache, without bytes

A device with a volatile write cache promises of a flush that all writes told as done before it are
durable, and of those behind the last one nothing: each may be there or not, in any order, of the
last ones some sectors.  This is the model of dm-log-writes and of CrashMonkey (Mohan et al.,
"Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI 2018), with the reorder.
"""

import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

SECTOR: Final = 512
_HEAD: Final = struct.Struct(">BQI")


class Kind(IntEnum):
    """Of an entry."""

    WRITE = 1
    FLUSH = 2


class Entry(NamedTuple):
    """One thing that the device was told; `end` is where it ends in the log."""

    kind: Kind
    position: int
    data: bytes
    end: int


def encode(kind: Kind, position: int = 0, data: bytes = b"") -> bytes:
    """An entry as it is in the log."""
    return _HEAD.pack(kind, position, len(data)) + data


def entries(log: Path) -> Iterator[Entry]:
    """All that are whole."""
    end = 0
    with log.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            kind, position, length = _HEAD.unpack(head)
            data = file.read(length)
            if len(data) < length:
                return
            end += _HEAD.size + length
            yield Entry(Kind(kind), position, data, end)


class Survivor:
    """The disk as later and later power cuts leave it."""

    def __init__(self, log: Path, base: Path) -> None:
        """base: a file with what the device had at first; what is flushed is written into it."""
        self._entries = entries(log)
        self._next: Entry | None = next(self._entries, None)
        self._base = os.open(base, os.O_RDWR)
        self._cached: list[Entry] = []
        self.base = base

    def close(self) -> None:
        os.close(self._base)

    def advance(self, end: int, *, to_flush: int = 0) -> None:
        """The power goes out when the log has `end` bytes; not less than before.

        to_flush: in front of the next flush, if the log has at most so many bytes then: there is
        most in the cache.
        """
        while self._next is not None and self._next.end <= end:
            self._step(self._next)
        while (
            self._next is not None
            and self._next.kind is not Kind.FLUSH
            and self._next.end <= to_flush
        ):
            self._step(self._next)

    def _step(self, entry: Entry) -> None:
        self._next = next(self._entries, None)
        if entry.kind is Kind.WRITE:
            self._cached.append(entry)
            return
        for write in self._cached:
            os.pwrite(self._base, write.data, write.position)
        self._cached.clear()

    @property
    def cached_count(self) -> int:
        """Writes that nobody has promised."""
        return len(self._cached)

    def survivors(self, random: Random) -> list[tuple[int, bytes]]:
        """Of the writes in the cache what has reached the disk: mostly some of them, all, or none;
        (position, bytes), to be written over `base` in that order."""
        share = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        kept = []
        for write in self._cached:
            if random.random() >= share:
                continue
            length = len(write.data)
            if random.random() < 0.1:
                length = SECTOR * random.randint(0, length // SECTOR)
            kept.append((write.position, write.data[:length]))
        if random.random() < 0.3:
            random.shuffle(kept)
        return kept

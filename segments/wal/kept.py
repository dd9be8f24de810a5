"""Frames that outlive the files of the log that they were in, in a file of their own.

    wal-17.log   | header | frame of A | frame of B | frame of A | frame of C | header |   full
    kept-17.log  | header | frame of A | frame of A | header |   A could not be synced
    kept-18.log  | header | END of B | END of C | END of D | header |   what vouches for the rest

    a checkpoint  copies frames of logs that could not be synced out of a full file, so that the
                  file can be used again; before that it writes how far each other log is synced
    a start       writes what it could not put back, and what vouches for the logs, before it begins
                  the log anew

So a log is vouched for at every moment: by its own frames, or by an END that was durable before
these went.

A kept file is written whole, synced and renamed before the file it came from is freed, and is
never written again.  So, unlike in a `wal-` file, bytes in it that are no frame are damage, at its
end, too.  Damage that the full file has is copied as it is, so that a start reports it.

Its frames are older than those of every `wal-` file that exists, or are taken for that: an END
loses nothing by it.

It has a marker (markers.py), so one that is gone is reported as damage, whatever was written or
freed since.  When everything is put back the marker is removed, then the file, then what is newer
than its frames; each durably before the next.  So it goes when a later one says all that it does.
"""

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final, TypeAlias

import structlog

from ..disk.storage import (
    TEMPORARY,
    Buffer,
    Storage,
    is_cut_off,
    make_dirs,
    write_temporary,
)
from .frames import (
    FRAMES_BEGIN,
    HEADER_AT_END,
    HEADER_SIZE,
    Frame,
    Header,
    encode_frame,
    header_blocks,
)
from .markers import KEPT, make_marker, remove_marker, take_back_marker
from .scanning import Hole, Scanned, scan_file

log = structlog.get_logger()

Naming: TypeAlias = AbstractContextManager[object]
ALONE: Final = nullcontext()
"""For who shares the directory with nobody: a start."""
SHARD_OF_STARTS: Final = 0
"""In its directory are the kept files of a start: they have frames of all shards."""


def kept_path(folder: str, number: int) -> str:
    """The name of a kept file."""
    return f"{folder}/kept-{number}.log"


def spent_path(folder: str, number: int) -> str:
    """What an earlier version called a kept file that it had put back, before it removed it."""
    return f"{folder}/spent-{number}.log"


class KeptFile:
    """One that this life has written."""

    __slots__ = ("_is_told", "_path", "_size", "_storage", "number")

    def __init__(self, storage: Storage, path: str, number: int, size: int) -> None:
        self._storage = storage
        self._path = path
        self.number = number
        self._size = size
        self._is_told = False

    def is_away(self) -> bool:
        """Whether somebody has removed it, or cut it off, which is told; not where that cannot be
        seen.  Blocking."""
        is_away = is_cut_off(self._storage, self._path, self._size)
        if is_away and not self._is_told:
            log.error("wal_file_removed", path=self._path)
        self._is_told = is_away  # it may be put back
        return is_away


def copy_out(
    storage: Storage,
    folder: str,
    content: bytearray,
    header: Header,
    end: int,
    keys: Collection[tuple[bytes, int]],
    naming: Naming,
) -> None:
    """Copy the frames of these partitions out of a full file, whose frames end at `end`.

    naming: held while names in the directory change, not while the frames are written.
    Durable when this returns.  What stands behind the end was given up.  Raises OSError.
    """
    found = scan_file(memoryview(content)[:end], header)
    parts: dict[int, list[Buffer]] = {
        hole.position: [content[hole.position : hole.position + hole.size]] for hole in found.holes
    }
    if found.holes:
        log.error("wal_frames_damaged", folder=folder, number=header.sequence)
    in_holes = {
        position
        for position in found.positions
        for hole in found.holes
        if hole.position <= position < hole.position + hole.size
    }
    for position, frame in zip(found.positions, found.frames, strict=True):
        if frame.key in keys and position not in in_holes:
            parts[position] = list(
                encode_frame(frame, frame.lsn, frame.ordinal, header.salt, frame.flags)
            )
    ordered = [part for position in sorted(parts) for part in parts[position]]
    _write(storage, folder, header, ordered, naming)
    log.warning("wal_frames_kept", path=kept_path(folder, header.sequence))


def write_kept(
    storage: Storage,
    folder: str,
    number: int,
    frames: Iterable[Frame],
    naming: Naming = ALONE,
    owner: int = 0,
) -> KeptFile:
    """Keep these frames for the next start.  naming: as for `copy_out`.  owner: whose they are, for
    the header.  Durable when this returns.  Raises OSError: it may be there then, without its
    markers."""
    make_dirs(storage, folder)
    salt = int.from_bytes(storage.random_bytes(8), "big")
    parts: list[Buffer] = []
    for lsn, frame in enumerate(frames):
        parts += encode_frame(frame, lsn, 0, salt)
    header = Header(SHARD_OF_STARTS, 0, number, salt, owner=owner)
    return _write(storage, folder, header, parts, naming)


def remove_kept(storage: Storage, folder: str, number: int, naming: Naming = ALONE) -> None:
    """What this file says stands elsewhere.  naming: as for `copy_out`.  Durable when this returns.
    Raises OSError: it may be tried again."""
    is_there = storage.exists(kept_path(folder, number))
    if is_there:
        remove_marker(storage, folder, KEPT, number)
    else:  # its marker went before it, durably; unless somebody has removed it
        take_back_marker(storage, folder, KEPT, number)
    with naming:
        if is_there:
            storage.unlink(kept_path(folder, number))
        storage.fsync_dir(folder)


def holes_of(scanned: Scanned) -> list[Hole]:
    """Where a kept file is damaged; up to version 3 it did not say how long it is."""
    *before, last = [*scanned.holes, Hole(scanned.size, 0, is_named=False)]
    if scanned.header.version >= HEADER_AT_END and scanned.cut is not None:
        last = scanned.cut
    if before and before[-1].position + before[-1].size == last.position and last.size:
        begin = before.pop().position
        last = Hole(begin, last.position + last.size - begin, is_named=False)
    return [*before, last] if last.size else before


def _write(
    storage: Storage, folder: str, header: Header, parts: list[Buffer], naming: Naming
) -> KeptFile:
    header = header._replace(size=FRAMES_BEGIN + sum(map(len, parts)) + HEADER_SIZE)
    path = kept_path(folder, header.sequence)
    temporary = path + TEMPORARY
    (_, begin), (_, end) = header_blocks(header)
    try:
        write_temporary(storage, temporary, b"".join((begin, *parts, end)))
        with naming:
            storage.rename(temporary, path)
            storage.fsync_dir(folder)
    except OSError:
        with suppress(OSError):  # half a file is in the way of a full disk
            storage.unlink(temporary)
        raise
    make_marker(storage, folder, KEPT, header.sequence)
    return KeptFile(storage, path, header.sequence, header.size)

"""Facts about a directory that it cannot be asked for itself: empty files beside it.

    <root>/witness/snapshot-40      meta/ had a snapshot of this number: it has this or a later one
    <root>/witness/wal-from-18      wal/ had files below this number: the next is not below it
    <root>/witness/shard-00.wal-17  wal/shard-00/wal-17.log is in use (wal/markers.py)
    <root>/witness/shard-00.wal-17.reached-40960    ... and was written up to there (wal/reached.py)

Whoever puts an older copy of `meta/` or of `wal/` over the present one, or removes a file of the
write-ahead log with its marker, leaves a directory that agrees with itself.  That something is
missing can only be said from outside of it.

The name is the fact, so nothing in it can be damaged.  A directory of an earlier version has no
`witness/`: then nobody says anything.

One at a time in each directory: a sync that fails is that of whoever made, or took, what was
waiting for it.

Invariant: a fact is written when it is durable, and taken back before it ends to be true; whatever
a crash leaves, what is said here is true.
"""

import re
from contextlib import suppress
from typing import Final

from .disk.storage import Storage, in_turn, make_dirs

WITNESS: Final = "witness"
SNAPSHOT: Final = "snapshot"
WAL_FROM: Final = "wal-from"
_LEAST: Final = re.compile(r"(snapshot|wal-from)-(0|[1-9][0-9]{0,18})")


def witness_folder(of: str) -> str:
    """Where something is said about the directory `of`: beside it."""
    return f"{of.rpartition('/')[0]}/{WITNESS}"


def names_in(storage: Storage, folder: str) -> list[str]:
    """What is said there, sorted; nothing in a data directory of an earlier version.  Raises
    OSError."""
    return sorted(storage.listdir(folder)) if storage.exists(folder) else []


def is_least(name: str) -> bool:
    """Whether a file of this name says the least of something."""
    return _LEAST.fullmatch(name) is not None


def make_fact(storage: Storage, path: str) -> None:
    """Let this empty file exist, durably.  Raises OSError."""
    folder = path.rpartition("/")[0]
    with in_turn(folder):
        if storage.exists(path):
            storage.unlink(path)  # a sync of its directory failed: another one proves nothing of it
        storage.open(path, create=True).close()
        storage.fsync_dir(folder)


def unmake_fact(storage: Storage, path: str) -> None:
    """Let this empty file be gone, durably.  Raises OSError."""
    folder = path.rpartition("/")[0]
    with in_turn(folder):
        if not storage.exists(path):  # the same: it may still be there after a crash
            storage.open(path, create=True).close()
        storage.unlink(path)
        storage.fsync_dir(folder)


def least(storage: Storage, folder: str, what: str) -> int:
    """The highest number that is said of SNAPSHOT or WAL_FROM; -1: none is.  Raises OSError."""
    return max(_numbers(storage, folder, what), default=-1)


def say_least(storage: Storage, folder: str, what: str, number: int) -> None:
    """Say this number, which is not below what was said before; durable at return.  Raises
    OSError."""
    make_dirs(storage, folder)
    before = _numbers(storage, folder, what)
    if number in before:
        return
    path = f"{folder}/{what}-{number}"
    try:
        make_fact(storage, path)
    except OSError:
        with suppress(OSError):  # nobody takes it for said
            storage.unlink(path)
        raise
    for one in before:
        if one < number:
            storage.unlink(f"{folder}/{what}-{one}")  # not synced: the higher one counts


def _numbers(storage: Storage, folder: str, what: str) -> list[int]:
    matches = (_LEAST.fullmatch(name) for name in names_in(storage, folder))
    return [int(match[2]) for match in matches if match and match[1] == what]

"""Markers: empty files whose names say which files of the write-ahead log must exist.

    wal/shard-00/wal-17.log     in use, from before its first frame on     wal/shard-00.wal-17
    wal/shard-00/kept-17.log    what logs could not be given yet           wal/shard-00.kept-17

A directory without `wal-` files is what an orderly stop leaves, and the oldest and the newest ones
may go without a trace in the others: the oldest are freed, the newest end somewhere.  So that a
file is gone can only be said by something else.  It stands beside the directory of its shard, not
in it: one lost directory does not take both.

    made      the file has its name, durably -> the marker, durably -> the file counts
    removed   everything in the file is durable elsewhere -> the marker goes, durably -> the file

Invariant: whatever a crash leaves, a marker that is there has its file, so a marker without one is
damage.  An earlier version leaves markers of files that it has freed (docs/operations.md).
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from ..disk.storage import Storage

WAL: Final = "wal"
KEPT: Final = "kept"
_MARKER: Final = re.compile(r"shard-([0-9]{2,9})\.(wal|kept)-(0|[1-9][0-9]{0,18})")


class Marked(NamedTuple):
    """A file that has to be there."""

    shard: int
    kind: str
    """WAL or KEPT."""
    number: int


def marked(storage: Storage, root: str) -> dict[Marked, str]:
    """All of them, and their markers.  Raises OSError."""
    matches = (_MARKER.fullmatch(name) for name in sorted(storage.listdir(root)))
    return {
        Marked(int(match[1]), match[2], int(match[3])): f"{root}/{match[0]}"
        for match in matches
        if match
    }


def make_marker(storage: Storage, folder: str, kind: str, number: int) -> None:
    """This file of the shard in `folder` must exist, durably.  Raises OSError."""
    path = _path(folder, kind, number)
    if storage.exists(path):
        storage.unlink(path)  # a sync of its directory failed: another one proves nothing of it
    storage.open(path, create=True).close()
    storage.fsync_dir(_root(folder))


def remove_marker(storage: Storage, folder: str, kind: str, number: int) -> None:
    """This file may go.  Durable when this returns.  Raises OSError."""
    path = _path(folder, kind, number)
    if not storage.exists(path):  # the same: it may still be there after a crash
        storage.open(path, create=True).close()
    storage.unlink(path)
    storage.fsync_dir(_root(folder))


def remove_markers(storage: Storage, root: str, *, but: Collection[Marked] = ()) -> None:
    """All files may go but these.  Durable when this returns.  Raises OSError."""
    old = [path for one, path in marked(storage, root).items() if one not in but]
    for path in old:
        storage.unlink(path)
    if old:
        storage.fsync_dir(root)


def _path(folder: str, kind: str, number: int) -> str:
    return f"{folder}.{kind}-{number}"


def _root(folder: str) -> str:
    return folder.rpartition("/")[0]

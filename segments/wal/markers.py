"""Markers: empty files whose names say which files of the write-ahead log must exist.

    wal/shard-00/wal-17.log     in use, from before its first frame on     wal/shard-00.wal-17
    wal/shard-00/kept-17.log    what vouches, and what has no place yet    wal/shard-00.kept-17

A directory without `wal-` files is what an orderly stop leaves, and the oldest and the newest ones
may go without a trace in the others: the oldest are freed, the newest end somewhere.  So that a
file is gone can only be said by something else.  It stands beside the directory of its shard, not
in it, and once more in `witness/`, outside of the write-ahead log: no lost directory, no older copy
of `wal/`, and nobody who removes a file with its marker takes both.

    made      the file has its name, durably -> both markers, durably -> the file counts
    removed   everything in the file is durable elsewhere -> both go, durably -> the file
    not made  the file, or one of the two -> what is there of both goes, durably -> the file

Invariant: whatever a crash leaves, a marker that is there has its file, so a marker without one is
damage.  An earlier version leaves markers of files that it has freed (docs/operations.md).
"""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from ..disk.storage import Storage, make_dirs
from ..witness import make_fact, unmake_fact, witness_folder

WAL: Final = "wal"
KEPT: Final = "kept"
_MARKER: Final = re.compile(r"shard-([0-9]{2,9})\.(wal|kept)-(0|[1-9][0-9]{0,18})")


class Marked(NamedTuple):
    """A file that has to be there."""

    shard: int
    kind: str
    """WAL or KEPT."""
    number: int


def marked(storage: Storage, root: str) -> frozenset[Marked]:
    """All of them.  Raises OSError."""
    return frozenset(one for place in _places(storage, root) for one in _marked_in(storage, place))


def is_marker(name: str) -> bool:
    """Whether a file of this name is one, whatever it says."""
    return _MARKER.fullmatch(name) is not None


def make_marker(storage: Storage, folder: str, kind: str, number: int) -> None:
    """This file of the shard in `folder` must exist, durably.  Raises OSError."""
    for path in _paths(folder, kind, number):
        make_dirs(storage, path.rpartition("/")[0])
        make_fact(storage, path)


def remove_marker(storage: Storage, folder: str, kind: str, number: int) -> None:
    """This file may go.  Durable when this returns.  Raises OSError."""
    for path in _paths(folder, kind, number):
        unmake_fact(storage, path)


def take_back_marker(storage: Storage, folder: str, kind: str, number: int) -> None:
    """The same of a number that had none before, behind a `make_marker` that failed: what was not
    made needs no room to be made and go.  Raises OSError."""
    for path in _paths(folder, kind, number):
        if storage.exists(path):
            unmake_fact(storage, path)


def remove_markers(storage: Storage, root: str, going: Collection[Marked]) -> None:
    """These files may go, whether they have their markers or not.  Durable when this returns.
    Raises OSError.

    One that has none is made first: who removed it was killed before that was synced, or the sync
    has failed, and then another proves nothing of it.  On a full disk it goes as it is.
    """
    for place in _places(storage, root):
        for one in sorted(going):
            path = f"{place}/{_name(one)}"
            if not storage.exists(path):
                with suppress(OSError):
                    storage.open(path, create=True).close()
            if storage.exists(path):
                storage.unlink(path)
        if going:
            storage.fsync_dir(place)


def _places(storage: Storage, root: str) -> list[str]:
    return [place for place in (root, witness_folder(root)) if storage.exists(place)]


def _marked_in(storage: Storage, place: str) -> Iterator[Marked]:
    """The files that have a marker in one of the two places."""
    for match in map(_MARKER.fullmatch, storage.listdir(place)):
        if match:
            yield Marked(int(match[1]), match[2], int(match[3]))


def _name(one: Marked) -> str:
    return f"shard-{one.shard:02d}.{one.kind}-{one.number}"


def _paths(folder: str, kind: str, number: int) -> tuple[str, str]:
    root, _, shard = folder.rpartition("/")
    name = f"{shard}.{kind}-{number}"
    return f"{root}/{name}", f"{witness_folder(root)}/{name}"

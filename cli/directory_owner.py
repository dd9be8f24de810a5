"""What root makes in a data directory of another user is given to that user.

    segbroker user add alice --data-dir /var/lib/segbroker     # run by root

A broker opens its files as its own user, so one file there that root made keeps it from starting.
Whose directory it is says LOCK, which the first broker on it made; before there is one, the
directory.  Files are given away when all is done: root cannot act as that user meanwhile, for he
may not be able to read this program (an environment below /root).  A command that is killed leaves
files of root, and a start says whose they are.

No link is followed, nor a file given away that has a second name: that may be one outside.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = 0


@contextmanager
def for_owner(directory: Path) -> Iterator[None]:
    """At the end of the block, what root made in `directory` in it belongs to its owner.

    Raises OSError: it cannot be given to him.
    """
    owner = _owner(directory) if os.geteuid() == ROOT else None
    try:
        yield
    finally:
        if owner is not None and owner.st_uid != ROOT:
            _give(directory, owner)


def _give(directory: Path, owner: os.stat_result) -> None:
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            found = os.lstat(path)
            is_ours = stat.S_ISDIR(found.st_mode) or (
                stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            )
            if found.st_uid == ROOT and is_ours:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _owner(directory: Path) -> os.stat_result | None:
    for path in (directory / "LOCK", directory):
        try:
            return path.lstat()
        except OSError:
            continue  # not there: the opening says so
    return None

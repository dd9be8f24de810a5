"""What root makes in a data directory of another user is given to that user.

    segbroker user add alice --data-dir /var/lib/segbroker     # run by root

A broker opens its files as its own user, so one file there that root made keeps it from starting.
Whose directory it is says LOCK, which the first broker on it made; before there is one, the
directory.  Files are given away when all is done: root cannot act as that user meanwhile, for he
may not be able to read this program (an environment below /root).  A command that is killed leaves
files of root, and a start says whose they are.

The owner may change the directory meanwhile: what is given away is what was looked at, through
descriptors.  No link is followed, nor a file given away that has a second name: that may be one
outside.
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
    directory = directory.resolve()
    owner = _owner(directory) if os.geteuid() == ROOT else None
    try:
        yield
    finally:
        if owner is not None and owner.st_uid != ROOT:
            _give(directory, owner)


def _give(directory: Path, owner: os.stat_result) -> None:
    for _, folders, files, within in os.fwalk(directory):
        for name in (*folders, *files):
            try:
                opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=within)
            except OSError:
                continue  # a link, or gone
            try:
                found = os.fstat(opened)
                is_file = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
                if found.st_uid == ROOT and (is_file or stat.S_ISDIR(found.st_mode)):
                    os.fchown(opened, owner.st_uid, owner.st_gid)
            finally:
                os.close(opened)


def _owner(directory: Path) -> os.stat_result | None:
    for path in (directory / "LOCK", directory):
        try:
            return path.lstat()
        except OSError:
            continue  # not there: the opening says so
    return None

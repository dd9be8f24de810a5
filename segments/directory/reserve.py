"""A file without contents that takes room, for a start on a full disk to give back.

    made      at a start, and once a minute where it is missing, while the volume has more than it
    removed   by a start that finds no room, and no WAL file that is not in use

Without it, a volume that was filled to its last block would have no room for the snapshot of the
metadata that every start after a crash writes first.
"""

import errno
from contextlib import closing, suppress
from typing import Final

import structlog

from ..disk.storage import Storage, size_of, write_temporary

log = structlog.get_logger()

RESERVE: Final = "reserve"
"""Its name in the data directory."""
_PAGE: Final = 4_096


class Reserve:
    """The reserve of one data directory.  One thread at a time."""

    def __init__(self, storage: Storage, root: str, size: int) -> None:
        """size: bytes; 0: there is none, and none is made."""
        self._storage = storage
        self._root = root
        self._path = f"{root}/{RESERVE}"
        self._size = size
        self._is_made = False

    def keep(self) -> None:
        """Make it, unless it is there; what fails is logged, and tried at the next call."""
        if self._is_made or not self._size:
            return
        try:
            self._is_made = self._has_size() or self._make()
        except OSError as exc:
            log.warning("reserve_not_made", path=self._path, error=str(exc))

    def give_back(self) -> bool:
        """Remove it; whether it was there.  Raises OSError."""
        self._is_made = False
        if not self._storage.exists(self._path) or not self._is_ours():
            return False
        self._storage.unlink(self._path)
        self._storage.fsync_dir(self._root)
        return True

    def _has_size(self) -> bool:
        is_there = self._storage.exists(self._path)
        return is_there and size_of(self._storage, self._path) == self._size

    def _is_ours(self) -> bool:
        """Whether the file has no contents; one that has some was here before the broker."""
        with closing(self._storage.open(self._path, read_only=True)) as file:
            content = bytearray(min(file.size(), max(self._size, _PAGE)))
            file.pread(memoryview(content), 0)
        return content == bytes(len(content))

    def _make(self) -> bool:
        """Whether it was made: never of the last room, which others need more."""
        space = self._storage.space(self._root)
        if space is not None and space.usable < 2 * self._size:
            return False
        if self._storage.exists(self._path) and not self._is_ours():
            raise FileExistsError(errno.EEXIST, "a file of this name has contents of others")
        try:
            write_temporary(self._storage, self._path, bytes(self._size))
        except OSError:
            with suppress(OSError):  # half of it is in the way of a full disk
                self._storage.unlink(self._path)
            raise
        self._storage.fsync_dir(self._root)
        return True

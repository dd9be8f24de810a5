"""Whether a data directory, or that of a log, is at its path still: else nothing goes by that.

Whoever removes the directory under a running broker, moves it, mounts something over it or puts a
backup in its place leaves the broker with files that are open, and with paths that lead nowhere or
into other files.  What is written by the former no start would find, what is written by the latter
damages the backup.  `LOCK` tells: at its path there is no file, or another than the one that is
held.

It is asked with each path, not in each round of housekeeping alone: a file that was opened in the
place of one of ours would be written to for as long as it is open, also when the directory is back.
"""

import errno

from ..errors import why_gone
from .forwarding import ForwardingStorage
from .storage import Storage, StorageFile, StorageLock


class InPlaceStorage(ForwardingStorage):
    """The disk of a data directory.  Who asks for a path gets OSError while it leads elsewhere;
    files that are open, and looking at what exists, are left alone."""

    def __init__(self, beneath: Storage, root: str) -> None:
        super().__init__(beneath)
        self._root = root
        self.held: StorageLock | None = None
        """Of LOCK, while the directory is open."""
        self._unmarked: dict[str, int] = {}

    @property
    def unmarked(self) -> dict[str, int]:
        """Of this process, not of the disk: the next one knows nothing of it."""
        return self._unmarked

    @property
    def why_gone(self) -> str | None:
        """Why the paths of the directory are refused at present; None: it is in its place, or not
        open.  Blocking."""
        held = self.held
        return None if held is None or held.is_in_place() else why_gone(self._root)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> StorageFile:
        if create:
            self._check(path)
        try:
            file = super().open(path, create=create, read_only=read_only)
        except FileNotFoundError:
            self._check(path)  # of a directory that is away no file is missing
            raise
        try:
            self._check(path)  # behind it: it may have been taken away just before
        except OSError:
            file.close()
            raise
        return file

    def listdir(self, path: str) -> list[str]:
        self._check(path)
        return super().listdir(path)

    def mkdir(self, path: str) -> None:
        self._check(path)
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self._check(path)
        super().rmdir(path)

    def rename(self, source: str, target: str) -> None:
        self._check(source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._check(path)
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        self._check(path)
        super().fsync_dir(path)

    def _check(self, path: str) -> None:
        if (why := self.why_gone) is not None:
            raise OSError(errno.ESTALE, why, path)

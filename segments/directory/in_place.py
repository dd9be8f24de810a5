"""Whether the data directory is still at its path: else nothing goes by that path any more.

Whoever removes the directory under a running broker, moves it, mounts something over it or puts a
backup in its place leaves the broker with files that are open, and with paths that lead nowhere or
into other files.  What is written by the former no start would find, what is written by the latter
damages the backup.  `LOCK` tells: at its path there is no file, or another than the one that is
held.
"""

import errno

from ..disk.forwarding import ForwardingStorage
from ..disk.storage import Storage, StorageFile


class InPlaceStorage(ForwardingStorage):
    """The disk of a data directory.  What asks for a path raises OSError while `why_gone` is set;
    files that are open, and looking at what exists, are left alone."""

    def __init__(self, beneath: Storage) -> None:
        super().__init__(beneath)
        self.why_gone: str | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> StorageFile:
        self._check(path)
        return super().open(path, create=create, read_only=read_only)

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
        if self.why_gone is not None:
            raise OSError(errno.ESTALE, self.why_gone, path)

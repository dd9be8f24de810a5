"""A disk that asks for descriptors to be given back when the process has none left.

    open, listdir, fsync_dir -> EMFILE, ENFILE -> relief() has closed something -> tried again
                                               -> it has nothing to close       -> NoDescriptor

Only opening a file raises NoDescriptor: whoever gets it knows that nothing was read, written or
synced, so nothing is in doubt.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from .storage import NO_DESCRIPTORS, Space, Storage, StorageFile, StorageLock

T = TypeVar("T")

TRIES: Final = 8
"""Other threads may take what was given back."""


class NoDescriptor(OSError):
    """A file could not be opened, for want of a descriptor; nothing was done with it."""


class RelievingStorage:
    """Another disk, with the relief in front of what takes a descriptor."""

    def __init__(self, storage: Storage, relief: Callable[[], bool]) -> None:
        """relief: closes what nobody needs now, and waits for nothing; whether there was any.  It
        is called under whatever lock a file is opened under."""
        self._storage = storage
        self._relief = relief

    def _relieved(self, call: Callable[[], T]) -> T:
        for _ in range(TRIES):
            try:
                return call()
            except OSError as exc:
                if exc.errno not in NO_DESCRIPTORS:
                    raise
                failed = exc
            if not self._relief():
                break
        raise NoDescriptor(failed.errno, failed.strerror, failed.filename) from failed

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> StorageFile:
        return self._relieved(lambda: self._storage.open(path, create=create, read_only=read_only))

    def listdir(self, path: str) -> list[str]:
        return self._relieved(lambda: self._storage.listdir(path))

    def fsync_dir(self, path: str) -> None:
        self._relieved(lambda: self._storage.fsync_dir(path))

    def lock(self, path: str, *, only_looks: bool = False) -> StorageLock:
        return self._storage.lock(path, only_looks=only_looks)

    def space(self, path: str) -> Space | None:
        return self._storage.space(path)

    def exists(self, path: str) -> bool:
        return self._storage.exists(path)

    def mkdir(self, path: str) -> None:
        self._storage.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._storage.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        self._storage.rename(source, target)

    def unlink(self, path: str) -> None:
        self._storage.unlink(path)

    def random_bytes(self, count: int) -> bytes:
        return self._storage.random_bytes(count)

    def boot_id(self) -> str:
        return self._storage.boot_id()

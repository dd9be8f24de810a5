"""A disk that asks for descriptors to be given back when the process has none left.

    open, listdir, fsync_dir -> EMFILE, ENFILE -> relief() has closed something -> tried again
                                               -> it has nothing to close       -> NoDescriptor

Only opening a file raises NoDescriptor: whoever gets it knows that nothing was read, written or
synced, so nothing is in doubt.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from .forwarding import ForwardingStorage
from .storage import NO_DESCRIPTORS, Storage, StorageFile

T = TypeVar("T")

TRIES: Final = 8
"""Other threads may take what was given back."""


class NoDescriptor(OSError):
    """A file could not be opened, for want of a descriptor; nothing was done with it."""


class RelievingStorage(ForwardingStorage):
    """Another disk, with the relief in front of what takes a descriptor."""

    def __init__(self, storage: Storage, relief: Callable[[], bool]) -> None:
        """relief: closes what nobody needs now, and waits for nothing; whether there was any.  It
        is called under whatever lock a file is opened under."""
        super().__init__(storage)
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
        return self._relieved(lambda: self.beneath.open(path, create=create, read_only=read_only))

    def listdir(self, path: str) -> list[str]:
        return self._relieved(lambda: self.beneath.listdir(path))

    def fsync_dir(self, path: str) -> None:
        self._relieved(lambda: self.beneath.fsync_dir(path))

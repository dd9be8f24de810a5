"""The disk port: all that a log asks of a disk, and nothing else.

`PosixStorage` does it with system calls, `MemoryStorage` with dictionaries; a recording or a
failing one can stand in front of either.  Nothing else in this room touches `os`.

What an implementation promises:
- `pwrite` returns only when every byte was taken (short writes are its business), or raises
  OSError; after an error the state of those bytes is unknown.
- `fdatasync` makes the bytes and the size of that file survive a power cut; `fsync_dir` makes
  the names in that directory survive (created, renamed, unlinked).  Nothing else promises that.
- Errors are OSError with an errno; translating them is the caller's business.
- All methods may be called from several threads; two writes to one range at once may not.

Paths are strings with `/`, relative to nothing: what was given to open.
"""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class StorageFile(Protocol):
    """One open file.  Positions and sizes in bytes."""

    @property
    def path(self) -> str: ...

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers one behind the other at `position`; the bytes written."""
        ...

    def pread(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; fewer bytes than asked only at the end of the file."""
        ...

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        """The same from memory alone: None when the disk would have to be waited for."""
        ...

    def fdatasync(self) -> None: ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class StorageLock(Protocol):
    """A held lock on a directory; gone when released or when the process ends."""

    def release(self) -> None: ...


class Storage(Protocol):
    """One disk."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> StorageFile:
        """Open a file.  `create` makes it (FileExistsError if there is one)."""
        ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted; FileNotFoundError if there is none."""
        ...

    def makedirs(self, path: str) -> None:
        """Make the directory and its parents, each one durable in its parent."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing a file of that name."""
        ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> StorageLock:
        """Take the lock file `path`, made if missing; BlockingIOError when it is held."""
        ...


def read_file(storage: Storage, path: str) -> bytes:
    """The whole of a small file."""
    file = storage.open(path, read_only=True)
    try:
        content = bytearray(file.size())
        size = file.pread(memoryview(content), 0)
        return bytes(content[:size])
    finally:
        file.close()


def replace_file(storage: Storage, path: str, content: Buffer) -> None:
    """Put `content` under `path` so that a crash leaves the old whole or the new whole.

    Temp file, sync, rename, directory sync.  What a crash leaves behind is `path` + `.tmp`,
    which whoever opens the directory removes.
    """
    folder = path.rpartition("/")[0]
    temporary = path + ".tmp"
    if storage.exists(temporary):
        storage.unlink(temporary)
    file = storage.open(temporary, create=True)
    try:
        file.pwrite([content], 0)
        file.fdatasync()
    finally:
        file.close()
    storage.rename(temporary, path)
    storage.fsync_dir(folder)

"""The disk port on a POSIX system: the only module of this room that touches `os`.

`pread_nowait` is preadv2 with RWF_NOWAIT: what the page cache holds, without waiting for the disk.
Where the kernel or the file system does not know it, it always answers None and the read happens
in a lane: slower, never wrong.
"""

import errno
import fcntl
import os

from .storage import Buffer

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_NOT_NOW = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class PosixFile:
    """A descriptor and the path it was opened under."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pwrite(self, data: Buffer, position: int) -> int:
        return os.pwrite(self._fd, data, position)

    def pread(self, buffer: memoryview, position: int) -> int:
        size = len(buffer)
        done = os.preadv(self._fd, [buffer], position)
        while 0 < done < size:
            count = os.preadv(self._fd, [buffer[done:]], position + done)
            if count == 0:
                break
            done += count
        return done

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        if _NOWAIT is None:
            return None
        try:
            count = os.preadv(self._fd, [buffer], position, _NOWAIT)
        except OSError as exc:
            if exc.errno in _NOT_NOW:
                return None
            raise
        # The rest is on the disk, or behind the end of the file: the lane finds out which.
        return count if count == len(buffer) else None

    def fdatasync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class PosixLock:
    """flock(2) on a lock file; the kernel drops it with the process, however that ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class PosixStorage:
    """The files of this machine."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> PosixFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT
        return PosixFile(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o755)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> PosixLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return PosixLock(fd)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

"""The disk port on a POSIX system.  The only module of this room that touches `os`.

`pread_nowait` is preadv2 with RWF_NOWAIT: it reads what the page cache holds and does not wait
for the disk.  Where the kernel or the file system has no such thing (EOPNOTSUPP, or no flag at
all) it always answers None and the read happens in a lane.
"""

import errno
import fcntl
import os
from collections.abc import Sequence

from .storage import Buffer

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_WOULD_BLOCK = {errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_IOV_MAX = 1024


class PosixFile:
    """A file descriptor with its path."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        total = sum(map(len, buffers))
        if len(buffers) <= _IOV_MAX:
            written = os.pwritev(self._fd, buffers, position)
            if written == total:
                return total
        else:
            written = 0
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            count = os.pwrite(self._fd, rest, position + total - len(rest))
            if count == 0:
                raise OSError(errno.EIO, "write of 0 bytes", self.path)
            rest = rest[count:]
        return total

    def pread(self, buffer: memoryview, position: int) -> int:
        done = 0
        while done < len(buffer):
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
        except OSError as error:
            if error.errno in _WOULD_BLOCK:
                return None
            raise
        # A short read means that the rest is on disk or beyond the end: let the lane find out.
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
    """An flock on a lock file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class PosixStorage:
    """Files of this machine."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> PosixFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return PosixFile(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        if parent:
            self.makedirs(parent)
        os.mkdir(path, 0o755)
        self.fsync_dir(parent or ".")

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

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

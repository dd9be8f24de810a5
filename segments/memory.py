"""The disk port in memory: for tests, for embedded brokers, and as the model of a disk.

Behaves like `PosixStorage` down to the errno of its errors (one test suite runs over both).  A
file that was unlinked or replaced stays readable through the descriptors that have it open.
Nothing survives the object; `fdatasync` and `fsync_dir` succeed and promise nothing.
"""

import errno
import threading
from collections.abc import Sequence

from .storage import Buffer


def _error(number: int, path: str) -> OSError:
    # OSError picks the subclass by errno: FileNotFoundError, FileExistsError, ...
    return OSError(number, errno.errorcode[number], path)


class _Inode:
    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content = bytearray()


class MemoryFile:
    """One open descriptor on an inode."""

    __slots__ = ("_closed", "_inode", "_lock", "_read_only", "path")

    def __init__(self, path: str, inode: _Inode, lock: threading.Lock, *, read_only: bool) -> None:
        self.path = path
        self._inode = inode
        self._lock = lock
        self._read_only = read_only
        self._closed = False

    def _check(self, *, writing: bool = False) -> None:
        if self._closed or (writing and self._read_only):
            raise _error(errno.EBADF, self.path)

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> int:
        self._check(writing=True)
        data = b"".join(buffers)
        with self._lock:
            content = self._inode.content
            if len(content) < position:
                content.extend(bytes(position - len(content)))
            content[position : position + len(data)] = data
        return len(data)

    def pread(self, buffer: memoryview, position: int) -> int:
        self._check()
        with self._lock:
            data = self._inode.content[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        count = self.pread(buffer, position)
        return count if count == len(buffer) else None

    def fdatasync(self) -> None:
        self._check()

    def truncate(self, size: int) -> None:
        self._check(writing=True)
        with self._lock:
            content = self._inode.content
            del content[size:]
            content.extend(bytes(size - len(content)))

    def size(self) -> int:
        self._check()
        return len(self._inode.content)

    def close(self) -> None:
        self._closed = True


class MemoryLock:
    """A held entry in the storage's set of locks."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryStorage:
    """Files and directories in dictionaries."""

    def __init__(self) -> None:
        self._files: dict[str, _Inode] = {}
        self._folders: set[str] = {"", "/", "."}
        self._locks: set[str] = set()
        self._lock = threading.Lock()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        with self._lock:
            inode = self._files.get(path)
            if create:
                if inode is not None or path in self._folders:
                    raise _error(errno.EEXIST, path)
                if _parent(path) not in self._folders:
                    raise _error(errno.ENOENT, path)
                inode = self._files[path] = _Inode()
            if inode is None:
                raise _error(errno.EISDIR if path in self._folders else errno.ENOENT, path)
        return MemoryFile(path, inode, self._lock, read_only=read_only)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def listdir(self, path: str) -> list[str]:
        with self._lock:
            if path not in self._folders:
                raise _error(errno.ENOENT, path)
            return sorted(
                name.rpartition("/")[2]
                for name in (*self._files, *self._folders)
                if name and name != path and _parent(name) == path
            )

    def makedirs(self, path: str) -> None:
        with self._lock:
            while path and path not in self._folders:
                if path in self._files:
                    raise _error(errno.EEXIST, path)
                self._folders.add(path)
                path = _parent(path)

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            if _parent(target) not in self._folders:
                raise _error(errno.ENOENT, target)
            if source in self._files:
                if target in self._folders:
                    raise _error(errno.EISDIR, target)
                self._files[target] = self._files.pop(source)
            elif source in self._folders:
                if target in self._files or self._children(target):
                    raise _error(errno.ENOTEMPTY, target)
                moved = source + "/"
                for name in [n for n in self._files if n.startswith(moved)]:
                    self._files[target + name[len(source) :]] = self._files.pop(name)
                for name in [n for n in self._folders if n == source or n.startswith(moved)]:
                    self._folders.discard(name)
                    self._folders.add(target + name[len(source) :])
            else:
                raise _error(errno.ENOENT, source)

    def unlink(self, path: str) -> None:
        with self._lock:
            if path not in self._files:
                raise _error(errno.EISDIR if path in self._folders else errno.ENOENT, path)
            del self._files[path]

    def rmdir(self, path: str) -> None:
        with self._lock:
            if path not in self._folders:
                raise _error(errno.ENOENT, path)
            if self._children(path):
                raise _error(errno.ENOTEMPTY, path)
            self._folders.discard(path)

    def fsync_dir(self, path: str) -> None:
        if path not in self._folders:
            raise _error(errno.ENOENT, path)

    def lock(self, path: str) -> MemoryLock:
        with self._lock:
            if path in self._locks:
                raise _error(errno.EAGAIN, path)
            if _parent(path) not in self._folders:
                raise _error(errno.ENOENT, path)
            self._files.setdefault(path, _Inode())
            self._locks.add(path)
        return MemoryLock(self._locks, path)

    def _children(self, path: str) -> bool:
        inside = path + "/"
        return any(name.startswith(inside) for name in (*self._files, *self._folders))


def _parent(path: str) -> str:
    folder, slash, _ = path.rpartition("/")
    return folder if folder or not slash else "/"

"""The disk port in memory, with a power switch.

    names       path -> inode        what processes see
    inode       content, synced      synced: what fdatasync has promised
    directory   names, durable names what fsync_dir has promised

`after_kill()` is the disk another process finds when this one died: everything written is there,
and the boot is the same.  `after_power_cut()` is the harshest disk that the promises of the port
allow: of each file what was synced, in each directory the names that were synced, and another
boot.  Both are copies; the original goes on.

A file stays readable through an open handle after its name is gone, as on POSIX.
"""

import errno
import threading

from segbroker.protocol.checksums import xxh3_64

from .storage import Advice, Buffer, Space


class _Inode:
    __slots__ = ("content", "synced")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = content


class _Directory:
    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}


class MemoryFile:
    """An open file."""

    __slots__ = ("_closed", "_disk", "_inode", "path")

    def __init__(self, path: str, inode: _Inode, disk: "MemoryStorage") -> None:
        self.path = path
        self._inode = inode
        self._disk = disk
        self._closed = False

    def _content(self) -> bytearray:
        if self._closed:
            raise OSError(errno.EBADF, "closed", self.path)
        return self._inode.content

    def pwrite(self, data: Buffer, position: int) -> int:
        with self._disk.mutex:
            content = self._content()
            if position > len(content):
                content += bytes(position - len(content))
            if position == len(content):
                content += data  # a slice would be copied twice
            else:
                content[position : position + len(data)] = data
            return len(data)

    def pread(self, buffer: memoryview, position: int) -> int:
        with self._disk.mutex:
            found = self._content()[position : position + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        count = self.pread(buffer, position)
        return count if count == len(buffer) else None

    def fdatasync(self) -> None:
        if not self._disk.keeps_promises:
            return
        with self._disk.mutex:
            self._inode.synced = bytes(self._content())

    def advise(self, advice: Advice) -> None:
        self._content()

    def truncate(self, size: int) -> None:
        with self._disk.mutex:
            content = self._content()
            del content[size:]
            content += bytes(size - len(content))

    def size(self) -> int:
        return len(self._content())

    def is_in_place(self, size: int = 0) -> bool:
        if self._closed:
            return True
        return self.size() >= size and self._disk.leads_to(self.path, self._inode)

    def close(self) -> None:
        self._closed = True


class MemoryLock:
    """A held lock of a memory disk."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)

    def is_in_place(self) -> bool:
        return True


class MemoryStorage:
    """A disk of its own; `seed` decides its random bytes."""

    def __init__(self, seed: int = 0, *, keeps_promises: bool = True) -> None:
        """keeps_promises: remember what was synced, for the power switch; twice the memory."""
        self.mutex = threading.Lock()
        self.keeps_promises = keeps_promises
        self._found: dict[str, _Directory] = {}
        """Directories by path, as far as they were looked for; empty after one went or moved."""
        self._root = _Directory()
        self._locks: set[str] = set()
        self._seed = seed
        self._boot = 1
        self.unmarked: dict[str, int] = {}

    # The port

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        with self.mutex:
            directory, name = self._parent(path)
            node = directory.names.get(name)
            if isinstance(node, _Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            if create and node is None:
                node = directory.names[name] = _Inode()
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return MemoryFile(path, node, self)

    def exists(self, path: str) -> bool:
        with self.mutex:
            try:
                directory, name = self._parent(path)
            except OSError:
                return False
            return not name or name in directory.names

    def leads_to(self, path: str, inode: _Inode) -> bool:
        """Whether this is the file of that name."""
        with self.mutex:
            try:
                directory, name = self._parent(path)
            except OSError:
                return False
            return directory.names.get(name) is inode

    def listdir(self, path: str) -> list[str]:
        with self.mutex:
            return sorted(self._directory(path).names)

    def mkdir(self, path: str) -> None:
        with self.mutex:
            directory, name = self._parent(path)
            if not name or name in directory.names:
                raise FileExistsError(errno.EEXIST, "exists", path)
            directory.names[name] = _Directory()

    def rmdir(self, path: str) -> None:
        with self.mutex:
            if self._directory(path).names:
                raise OSError(errno.ENOTEMPTY, "not empty", path)
            directory, name = self._parent(path)
            del directory.names[name]
            self._found.clear()

    def rename(self, source: str, target: str) -> None:
        with self.mutex:
            old, old_name = self._parent(source)
            new, new_name = self._parent(target)
            if old_name not in old.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", source)
            occupant = new.names.get(new_name)
            if isinstance(occupant, _Directory) and occupant.names:
                raise OSError(errno.ENOTEMPTY, "not empty", target)
            new.names[new_name] = moved = old.names.pop(old_name)
            if isinstance(moved, _Directory) or isinstance(occupant, _Directory):
                self._found.clear()

    def unlink(self, path: str) -> None:
        with self.mutex:
            directory, name = self._parent(path)
            node = directory.names.get(name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if isinstance(node, _Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            del directory.names[name]

    def fsync_dir(self, path: str) -> None:
        with self.mutex:
            directory = self._directory(path)
            if self.keeps_promises:
                directory.durable = dict(directory.names)

    def lock(self, path: str, *, only_looks: bool = False) -> MemoryLock:
        self.open(path, create=True).close()
        with self.mutex:
            if path in self._locks:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
            self._locks.add(path)
        return MemoryLock(self._locks, path)

    def random_bytes(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            self._seed += 1
            out += xxh3_64(self._seed.to_bytes(8, "big")).to_bytes(8, "big")
        return out[:count]

    def space(self, path: str) -> Space | None:
        return None

    def boot_id(self, path: str) -> str:
        return f"boot-{self._boot}"

    # The power switch

    def after_kill(self) -> "MemoryStorage":
        """The disk as the next process finds it when this one was killed."""
        return self._image(power_cut=False)

    def after_power_cut(self) -> "MemoryStorage":
        """The disk with nothing but what was synced."""
        return self._image(power_cut=True)

    def _image(self, *, power_cut: bool) -> "MemoryStorage":
        image = MemoryStorage(self._seed)
        image._boot = self._boot + power_cut
        with self.mutex:
            image._root = _copy(self._root, power_cut)
        return image

    # Paths

    @property
    def _root(self) -> _Directory:
        return self._top

    @_root.setter
    def _root(self, directory: _Directory) -> None:
        self._top = directory
        self._found.clear()

    def _parent(self, path: str) -> tuple[_Directory, str]:
        head, _, name = path.rpartition("/")
        known = self._found.get(head)
        if known is not None and name:
            return known, name
        if not name:
            head, _, name = path.strip("/").rpartition("/")
        return self._directory(head), name

    def _directory(self, path: str) -> _Directory:
        known = self._found.get(path)
        if known is None:
            known = self._found[path] = self._walk(path)
        return known

    def _walk(self, path: str) -> _Directory:
        node: _Inode | _Directory = self._root
        for part in path.split("/"):
            if not part or part == ".":
                continue
            if not isinstance(node, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            child = node.names.get(part)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            node = child
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node


def _copy(directory: _Directory, power_cut: bool) -> _Directory:
    image = _Directory()
    for name, node in (directory.durable if power_cut else directory.names).items():
        if isinstance(node, _Directory):
            image.names[name] = _copy(node, power_cut)
        else:
            image.names[name] = _Inode(node.synced if power_cut else bytes(node.content))
    image.durable = dict(image.names)
    return image

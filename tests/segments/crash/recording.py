"""A disk that remembers what was not synced, calls somebody after every operation, and fails on
demand.

    pwrite, truncate                  pending of the file, until its fdatasync
    create, mkdir, rename, unlink ..  pending of the directory, until its fsync_dir
    a failed sync                     what was pending stays in doubt for ever: the kernel may have
                                      dropped the pages, and a later success says nothing of them

Rule I12 is checked here, where it cannot be missed: a file whose sync failed is not synced again
by the same process (`violations`).  `restart` begins another process.
"""

import errno
from collections.abc import Callable
from typing import NamedTuple

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage, _Directory, _Inode
from segbroker.segments.disk.storage import Buffer

Node = _Inode | _Directory


class Write:
    """A write (or, without data, a truncation) of one file."""

    __slots__ = ("data", "fixed", "in_doubt", "position")

    def __init__(self, position: int, data: bytes | None) -> None:
        self.position = position
        self.data = data
        self.fixed = False
        """Synced, but behind something that is in doubt."""
        self.in_doubt = False
        """A sync failed while it was pending."""

    def apply(self, content: bytearray, size: int | None = None, *, zeros: bool = False) -> None:
        """Do it; only `size` bytes of it; the rest as zeros, where the file was shorter."""
        position, data = self.position, self.data
        if data is None:
            del content[position:]
            content += bytes(position - len(content))
            return
        if size is not None:
            grows = position + len(data) - len(content)
            data = data[:size]
            if zeros and grows > 0:
                content += bytes(grows)
        if position > len(content):
            content += bytes(position - len(content))
        content[position : position + len(data)] = data


class Pending:
    """The writes of one file since its content was last certain."""

    __slots__ = ("base", "writes")

    def __init__(self, base: bytes) -> None:
        self.base = base
        self.writes: list[Write] = []


class Change(NamedTuple):
    """One atomic change of the names of a directory: name -> what it now is, None for nothing."""

    names: tuple[tuple[str, Node | None], ...]


class Changes:
    """The changes of one directory since its names were last certain."""

    __slots__ = ("base", "fixed", "in_doubt", "list")

    def __init__(self, base: dict[str, Node]) -> None:
        self.base = base
        self.list: list[Change] = []
        self.fixed: set[int] = set()
        self.in_doubt: set[int] = set()


class Fault(NamedTuple):
    """The `nth` call (from 0) of this name, on a path that ends so, fails; a write is cut short
    first when `room` is set, and with errno 0 does not fail then."""

    call: str
    path: str
    nth: int
    errno: int = errno.EIO
    room: int = -1
    lasts: bool = False
    """Every later one fails, too."""


class RecordingFile(MemoryFile):
    """An open file of it."""

    recording: "RecordingStorage"

    def pwrite(self, data: Buffer, position: int) -> int:
        disk = self.recording
        fault = disk.fault_at("pwrite", self.path)
        if fault is not None:
            if fault.errno and (fault.room <= 0 or disk.is_cut_short):
                disk.is_cut_short = False
                raise OSError(fault.errno, "planned", self.path)
            disk.is_cut_short = fault.errno > 0
            data = memoryview(data)[: fault.room]
        pending = disk.pending_of(self._inode)
        count = super().pwrite(data, position)
        pending.writes.append(Write(position, bytes(data)))
        disk.written(self._inode, "pwrite", self.path)
        return count

    def truncate(self, size: int) -> None:
        disk = self.recording
        disk.maybe_fail("truncate", self.path)
        if size == len(self._content()):
            return
        pending = disk.pending_of(self._inode)
        super().truncate(size)
        if not size:
            disk.failed.discard(self._inode)  # nothing of what is in doubt stays
        pending.writes.append(Write(size, None))
        disk.written(self._inode, "truncate", self.path)

    def fdatasync(self) -> None:
        disk = self.recording
        if self._inode in disk.failed:
            disk.violations.append(f"I12: {self.path} is synced again after its sync failed")
        if disk.ignores("fdatasync", self.path):
            return
        pending = disk.pending.get(self._inode)
        try:
            disk.maybe_fail("fdatasync", self.path)
        except OSError:
            disk.failed.add(self._inode)
            if disk.drops:
                self._inode.content[:] = self._inode.synced
                disk.pending.pop(self._inode, None)
                disk.versions[self._inode] = disk.versions.get(self._inode, 0) + 1
            elif pending is not None:
                for write in pending.writes:
                    write.in_doubt = not write.fixed
            raise
        super().fdatasync()
        if pending is not None:
            if any(write.in_doubt for write in pending.writes):
                for write in pending.writes:
                    write.fixed = write.fixed or not write.in_doubt
            else:
                del disk.pending[self._inode]
            disk.versions[self._inode] = disk.versions.get(self._inode, 0) + 1
        disk.synced("fdatasync", self.path)


class RecordingStorage(MemoryStorage):
    """`on_change(call, path)` after what makes new images possible, `on_sync` after a sync."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.pending: dict[_Inode, Pending] = {}
        self.changes: dict[_Directory, Changes] = {}
        self.versions: dict[_Inode, int] = {}
        """Rises with every change of a file and of what is pending of it."""
        self.last_written: _Inode | None = None
        """The file that the last operation wrote to."""
        self.failed: set[_Inode] = set()
        self.drops = False
        """Whether a failed sync takes what it was for from memory as well."""
        self.faults: list[Fault] = []
        self.ignored: list[tuple[str, str]] = []
        """(call, end of the path) of syncs that silently do nothing: to prove the harness."""
        self.counts: dict[int, int] = {}
        self.is_cut_short = False
        self.violations: list[str] = []
        self.operations = 0
        self.on_change: Callable[[str, str], None] = lambda call, path: None
        self.on_sync: Callable[[str, str], None] = lambda call, path: None

    @classmethod
    def over(cls, image: MemoryStorage) -> "RecordingStorage":
        """Go on with this disk, all of which is durable."""
        disk = cls(image._seed)
        disk._root, disk._boot = image._root, image._boot
        return disk

    def restart(self) -> None:
        """The process died and another one begins: locks are free, the disk is as it was."""
        self._locks.clear()
        self.failed.clear()

    def reboot(self, image: MemoryStorage) -> None:
        """Go on with the disk `image` that a power cut left of this one."""
        self.restart()
        self._root, self._boot, self._seed = image._root, image._boot, image._seed
        self._found.clear()
        self.pending.clear()
        self.changes.clear()

    # Faults

    def fault_at(self, call: str, path: str) -> Fault | None:
        for number, fault in enumerate(self.faults):
            if fault.call == call and path.endswith(fault.path):
                count = self.counts.get(number, 0)
                # The rest of a write that was cut short is the same call.
                if not self.is_cut_short:
                    self.counts[number] = count + 1
                else:
                    count -= 1
                if count == fault.nth or (fault.lasts and count > fault.nth):
                    return fault
        return None

    def ignores(self, call: str, path: str) -> bool:
        return any(call == name and path.endswith(end) for name, end in self.ignored)

    def maybe_fail(self, call: str, path: str) -> None:
        fault = self.fault_at(call, path)
        if fault is not None:
            raise OSError(fault.errno, "planned", path)

    # Recording

    def written(self, inode: _Inode, call: str, path: str) -> None:
        self.versions[inode] = self.versions.get(inode, 0) + 1
        self.last_written = inode
        self.operations += 1
        self.on_change(call, path)

    def changed(self, call: str, path: str) -> None:
        self.last_written = None
        self.operations += 1
        self.on_change(call, path)

    def synced(self, call: str, path: str) -> None:
        self.last_written = None
        self.operations += 1
        self.on_sync(call, path)

    def pending_of(self, inode: _Inode) -> Pending:
        """What is pending of this file; call it before the change."""
        pending = self.pending.get(inode)
        if pending is None:
            pending = self.pending[inode] = Pending(bytes(inode.synced))
        return pending

    def _change(self, call: str, path: str, names: tuple[tuple[str, Node | None], ...]) -> None:
        directory, _ = self._parent(path)
        changes = self.changes.get(directory)
        if changes is None:
            changes = self.changes[directory] = Changes(dict(directory.durable))
        changes.list.append(Change(names))
        self.changed(call, path)

    # The port

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RecordingFile:
        is_new = create and not self.exists(path)
        if is_new:
            self.maybe_fail("create", path)
        plain = super().open(path, create=create, read_only=read_only)
        file = RecordingFile(path, plain._inode, self)
        file.recording = self
        if is_new and not path.endswith("/LOCK"):
            self._change("create", path, ((path.rpartition("/")[2], plain._inode),))
        return file

    def mkdir(self, path: str) -> None:
        self.maybe_fail("mkdir", path)
        super().mkdir(path)
        directory, name = self._parent(path)
        self._change("mkdir", path, ((name, directory.names[name]),))

    def rmdir(self, path: str) -> None:
        self.maybe_fail("rmdir", path)
        super().rmdir(path)
        self._change("rmdir", path, ((path.rpartition("/")[2], None),))

    def rename(self, source: str, target: str) -> None:
        self.maybe_fail("rename", target)
        super().rename(source, target)
        directory, name = self._parent(target)
        old, old_name = self._parent(source)
        node = directory.names[name]
        if old is directory:
            self._change("rename", target, ((old_name, None), (name, node)))
        else:  # two directories, each durable by itself
            self._change("rename", target, ((name, node),))
            self._change("rename", source, ((old_name, None),))

    def unlink(self, path: str) -> None:
        self.maybe_fail("unlink", path)
        super().unlink(path)
        self._change("unlink", path, ((path.rpartition("/")[2], None),))

    def fsync_dir(self, path: str) -> None:
        if self.ignores("fsync_dir", path):
            return
        directory = self._directory(path)
        changes = self.changes.get(directory)
        try:
            self.maybe_fail("fsync_dir", path)
        except OSError:
            if changes is not None:
                changes.in_doubt = set(range(len(changes.list))) - changes.fixed
            raise
        super().fsync_dir(path)
        if changes is not None:
            if changes.in_doubt:
                changes.fixed = set(range(len(changes.list))) - changes.in_doubt
            else:
                del self.changes[directory]
        self.synced("fsync_dir", path)

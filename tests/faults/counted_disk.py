"""A disk in memory of which the n-th call fails, and so many behind it.

    fails with   of these calls
    EIO          each
    ENOSPC       what takes room: a file or a directory that is made or renamed, a write, a sync
    EROFS        each change, a sync, and a file that is opened to be written to
    EMFILE       what takes a descriptor: an open, a listing, a sync of a directory

Only calls that may fail with the error are counted.  What a failed sync was to write never reaches
the disk, whoever syncs it again, in another process of the same boot as well: bytes that are not
written again, names that are not given again.  `forgets`: the bytes are gone from memory, too.
"""

import copy
import errno
from typing import Final

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage, _Directory, _Inode
from segbroker.segments.disk.storage import Buffer

from .meddled_disk import Killed

ALWAYS: Final = 1 << 30


READ: Final = 1
CHANGE: Final = 2
ROOM: Final = 4
DESCRIPTOR: Final = 8
SYNC: Final = 16
"""What a call does or takes; a sum of these."""
CALLS: Final = {
    errno.EIO: READ | CHANGE | SYNC,
    errno.ENOSPC: ROOM | SYNC,
    errno.EROFS: CHANGE | SYNC,
    errno.EMFILE: DESCRIPTOR,
}
"""Which of them may fail with an error."""


class CountedFile(MemoryFile):
    """A file of it."""

    _disk: "CountedDisk"

    def pread(self, buffer: memoryview, position: int) -> int:
        self._disk.count(READ, "pread", self.path)
        return super().pread(buffer, position)

    def pwrite(self, data: Buffer, position: int) -> int:
        self._disk.count(CHANGE | ROOM, "pwrite", self.path)
        mask = self._disk.lost.get(self._inode)
        if mask is not None:
            mask[position : position + len(data)] = bytes(
                len(mask[position : position + len(data)])
            )
        return super().pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._disk.count(CHANGE, "truncate", self.path)
        super().truncate(size)
        if (mask := self._disk.lost.get(self._inode)) is not None:
            del mask[size:]

    def fdatasync(self) -> None:
        disk, inode = self._disk, self._inode
        try:
            disk.count(SYNC, "fdatasync", self.path)
        except OSError:
            disk.lose(self.path, inode)
            raise
        before = inode.synced
        super().fdatasync()
        if any(mask := disk.lost.get(inode, b"")):
            places = enumerate(mask)
            synced = bytearray(inode.synced)
            for place in (place for place, is_lost in places if is_lost):
                synced[place] = before[place] if place < len(before) else 0
            inode.synced = bytes(synced)


class CountedDisk(MemoryStorage):
    """See the module."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.number = self.lasts = self.begins = 0
        """The first call that fails, from 1 on, and how many do; 0: none."""
        self.error = errno.EIO
        self.forgets = False
        self.kills = False
        """Whether the process is killed at the next call behind the first that failed."""
        self.calls = 0
        """Counted so far."""
        self.failed: list[str] = []
        """Calls that failed, and their paths."""
        self.syncs_failed: set[str] = set()
        """Paths of those that were syncs, in this boot."""
        self.lost: dict[_Inode, bytearray] = {}
        """By file and byte, whether it is on no disk and counts as written."""
        self.stuck: dict[_Directory, dict[str, _Inode | _Directory | None]] = {}
        """Names that are not durable, whatever is synced, as long as they lead there."""

    def arm(self, error: int, number: int, lasts: int, *, forgets: bool, in_a_sync: bool) -> None:
        """Fail so.  in_a_sync: the first call that fails is the n-th sync; behind it any may."""
        self.error, self.number, self.lasts, self.forgets = error, number, lasts, forgets
        self.begins = SYNC if in_a_sync else CALLS[error]
        self.calls = 0

    def heal(self) -> None:
        """Nothing fails any more; what has failed stays lost."""
        self.number = 0

    def count(self, what: int, name: str, path: str) -> None:
        """A call.  Raises OSError, Killed."""
        if self.kills and self.failed:
            raise Killed
        if not self.number or not what & (CALLS[self.error] if self.failed else self.begins):
            return
        self.calls += 1
        if self.number <= self.calls < self.number + self.lasts:
            self.failed.append(f"{name} {path}")
            raise OSError(self.error, "planted", path)

    def lose(self, path: str, inode: _Inode) -> None:
        """What was not synced of it never will be."""
        self.syncs_failed.add(path)
        size, synced = len(inode.content), inode.synced
        pairs = zip(inode.content, synced, strict=False)
        mask = bytearray(now != then for now, then in pairs).ljust(size, b"\1")
        self.lost[inode] = mask
        if self.forgets:  # the size stays
            inode.content[:] = bytes(synced).ljust(size, bytes(1))[:size]

    # The port

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CountedFile:
        what = READ | DESCRIPTOR
        if not read_only:
            what |= CHANGE
        if create and not self.exists(path):
            what |= ROOM
        self.count(what, "open", path)
        return CountedFile(path, super().open(path, create=create)._inode, self)

    def listdir(self, path: str) -> list[str]:
        self.count(READ | DESCRIPTOR, "listdir", path)
        return super().listdir(path)

    def mkdir(self, path: str) -> None:
        self.count(CHANGE | ROOM, "mkdir", path)
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self.count(CHANGE, "rmdir", path)
        super().rmdir(path)

    def rename(self, source: str, target: str) -> None:
        self.count(CHANGE | ROOM, "rename", source)
        super().rename(source, target)
        for path in (source, target):
            directory, name = self._parent(path)
            self.stuck.get(directory, {}).pop(name, None)

    def unlink(self, path: str) -> None:
        self.count(CHANGE, "unlink", path)
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        directory = self._directory(path)
        names, durable = directory.names, directory.durable
        stuck = self.stuck.setdefault(directory, {})
        try:
            self.count(SYNC | DESCRIPTOR, "fsync_dir", path)
        except OSError:
            if self.error != errno.EMFILE:
                self.syncs_failed.add(path)
                for name in names.keys() | durable.keys():
                    if names.get(name) is not durable.get(name):
                        stuck[name] = names.get(name)
            raise
        before = dict(durable)
        super().fsync_dir(path)
        for name, node in stuck.items():
            if names.get(name) is node:
                directory.durable.pop(name, None)
                if name in before:
                    directory.durable[name] = before[name]

    def image(self, *, power_cut: bool) -> "CountedDisk":
        """The disk as the next process finds it; nothing fails."""
        found = type(self)(self._seed)
        found._boot = self._boot + power_cut
        if power_cut:
            found._root = self.after_power_cut()._root
        else:
            copied = copy.deepcopy((self._root, self.lost, self.stuck))
            found._root, found.lost, found.stuck = copied
            if self.kills:  # between a failed sync of names and its mark: a window that is left
                found.stuck.clear()
            found.syncs_failed = set(self.syncs_failed)
        return found

"""A disk that dies at a chosen operation: the seed of the crash-state enumerator.

Every operation that changes the disk is counted; at number `dies_at` Killed is raised before it
happens, and from then on nothing changes the disk any more.  Killed is no Exception, so that no
handler of ordinary failures takes it for one.
"""

import errno

from segbroker.segments.disk.memory import MemoryFile, MemoryStorage
from segbroker.segments.disk.storage import Buffer


class Killed(BaseException):
    """The process ends here."""


class CrashingFile(MemoryFile):
    """A file of a disk that dies."""

    crashing: "CrashingStorage"

    def pwrite(self, data: Buffer, position: int) -> int:
        disk = self.crashing
        if disk.is_last():
            # A write is torn: half of it is there.
            super().pwrite(bytes(data)[: len(data) // 2], position)
        disk.step("pwrite")
        if disk.room is not None:
            data = memoryview(data)[: disk.room]
            if not len(data):
                raise OSError(errno.ENOSPC, "no space", self.path)
            disk.room -= len(data)
        return super().pwrite(data, position)

    def fdatasync(self) -> None:
        self.crashing.step("fdatasync")
        if self.crashing.sync_fails:
            raise OSError(errno.EIO, "sync failed", self.path)
        super().fdatasync()

    def truncate(self, size: int) -> None:
        self.crashing.step("truncate")
        super().truncate(size)


class CrashingStorage(MemoryStorage):
    """Dies at operation `dies_at`; with `room` set so many bytes are free; `sync_fails` at will."""

    def __init__(self, dies_at: int = -1) -> None:
        super().__init__()
        self.dies_at = dies_at
        self.operations: list[str] = []
        self.room: int | None = None
        self.sync_fails = False

    def is_last(self) -> bool:
        return len(self.operations) == self.dies_at

    def step(self, name: str) -> None:
        if self.dies_at >= 0 and len(self.operations) >= self.dies_at:
            raise Killed(name)
        self.operations.append(name)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashingFile:
        if create and not self.exists(path):
            self.step("create")
        plain = super().open(path, create=create, read_only=read_only)
        file = CrashingFile(path, plain._inode, self)
        file.crashing = self
        return file

    def mkdir(self, path: str) -> None:
        self.step("mkdir")
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self.step("rename")
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.step("unlink")
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        self.step("fsync_dir")
        super().fsync_dir(path)

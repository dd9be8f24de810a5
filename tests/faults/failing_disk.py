"""A disk in memory that fails in every way that a broker has to go on with.

Files are changed, fail, or are full (meddled_disk.py), and a sync that fails is told once: what it
was to write never reaches the disk, whoever syncs the file again (segments/test_failures.py).
"""

import errno

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Buffer

from ..segments.test_failures import TreacherousStorage, _TreacherousFile
from .meddled_disk import MeddledDisk, MeddledFile


class FailingFile(MeddledFile, _TreacherousFile):
    """A file of it."""

    disk: "FailingDisk"

    def pwrite(self, data: Buffer, position: int) -> int:
        is_full = self.disk.full
        if is_full and self.disk.overwrites and position + len(data) <= self.size():
            self.disk.full = False
        try:
            return super().pwrite(data, position)
        finally:
            self.disk.full = is_full

    def fdatasync(self) -> None:
        disk = self.disk
        fails, disk.fails = disk.fails, () if disk.grace else disk.fails
        disk.grace -= disk.grace > 0
        try:
            super().fdatasync()
        except OSError:
            disk.failed.add(self.path)
            raise
        finally:
            disk.fails = fails


class FailingDisk(MeddledDisk, TreacherousStorage):
    """See the module."""

    overwrites = False
    """Whether what files have can be written again when it is full."""
    grace = 0
    """So many syncs succeed yet."""
    names_fail = False
    """Whether no directory can be synced."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.failed: set[str] = set()
        """Files and directories of which a sync has failed."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FailingFile:
        plain = super().open(path, create=create, read_only=read_only)
        file = FailingFile(path, plain._inode, self)
        file.disk = self
        return file

    def heal_all(self) -> None:
        """Nothing fails any more; what has failed stays lost."""
        self.failing.clear()
        self.fails, self.grace, self.full, self.names_fail = (), 0, False, False

    def fsync_dir(self, path: str) -> None:
        if self.names_fail:
            self.failed.add(path)
            raise OSError(errno.EIO, "planted", path)
        super().fsync_dir(path)

    # Who damages, whatever fails

    def size_of(self, path: str) -> int:
        """Of a file; -1: there is none."""
        return MemoryStorage.open(self, path).size() if self.exists(path) else -1

    def cut(self, path: str, size: int) -> None:
        """The file ends there, in what is read; after a power cut it is what was synced."""
        MemoryStorage.open(self, path).truncate(size)

    def flip(self, path: str, place: int) -> None:
        """One bit of a byte is another one; after a power cut it is what was synced."""
        MemoryStorage.open(self, path)._inode.content[place] ^= 1

    def remove(self, path: str) -> None:
        """Its name is gone; a power cut brings it back unless the directory was synced since."""
        MemoryStorage.unlink(self, path)

"""A file that is a disk, and notes what it is told, a program: FOLDER CONTENT LOG.

    FOLDER/disk   by FUSE; a loop device is made of it, a file system on that
    CONTENT       what is read and written; its size is that of the disk
    LOG           what was written and flushed, in that order (block_log.py)

A program of its own, run by a Python that has pyfuse3: who waits for a file system must not be who
serves it.  It prints a line when it is mounted, and ends when somebody unmounts it.
"""

import errno
import os
import stat
import sys

import pyfuse3
import trio

from .block_log import Kind, encode

NAME = b"disk"
INODE = 2


class Recording(pyfuse3.Operations):  # type: ignore[misc]
    """One folder with one file in it."""

    def __init__(self, content: str, log: str) -> None:
        super().__init__()
        self._content = os.open(content, os.O_RDWR)
        self._log = open(log, "wb", buffering=0)  # noqa: SIM115

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        found = pyfuse3.EntryAttributes()
        found.st_ino = inode
        is_root = inode == pyfuse3.ROOT_INODE
        found.st_mode = stat.S_IFDIR | 0o700 if is_root else stat.S_IFREG | 0o600
        found.st_size = 0 if is_root else os.fstat(self._content).st_size
        return found

    async def getattr(self, inode: int, ctx: object = None) -> pyfuse3.EntryAttributes:
        return self._attributes(inode)

    async def setattr(
        self, inode: int, attr: object, fields: object, fh: int | None, ctx: object
    ) -> pyfuse3.EntryAttributes:
        return self._attributes(inode)

    async def lookup(
        self, parent_inode: int, name: bytes, ctx: object = None
    ) -> pyfuse3.EntryAttributes:
        if name != NAME:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._attributes(INODE)

    async def open(self, inode: int, flags: int, ctx: object) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=inode, direct_io=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return os.pread(self._content, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        self._log.write(encode(Kind.WRITE, off, buf))
        return os.pwrite(self._content, buf, off)

    async def fsync(self, fh: int, datasync: bool) -> None:
        self._log.write(encode(Kind.FLUSH))

    async def flush(self, fh: int) -> None:
        pass

    async def release(self, fh: int) -> None:
        pass


def main(folder: str, content: str, log: str) -> None:
    pyfuse3.init(Recording(content, log), folder, set(pyfuse3.default_options))
    print("mounted", flush=True)
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

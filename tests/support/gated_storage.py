"""A disk in memory whose syncs and reads can be held up, or fail, at the test's word."""

import errno
import threading
from typing import Final

from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import Advice, Buffer, StorageFile

LOOKS: Final = 120
"""Of a second each, at a gate."""


class GatedStorage(MemoryStorage):
    """Beyond MemoryStorage: gates that are open until they are closed.

    `syncs` holds fdatasync up, `reads` reads from the disk; while `cached` is false nothing is
    read from memory; `sync_error` is what every sync raises, `read_error` every read from the disk;
    a write that has `refused` in it fails, one that has `held` in it closes `syncs`.
    """

    def __init__(self, image: MemoryStorage | None = None) -> None:
        """image: what is on it; None: nothing."""
        super().__init__()
        if image is not None:
            self._root, self._boot, self._seed = image._root, image._boot, image._seed
        self.syncs = threading.Event()
        self.syncs.set()
        self.reads = threading.Event()
        self.reads.set()
        self.cached = True
        self.sync_error: OSError | None = None
        self.read_error: OSError | None = None
        self.refused: bytes | None = None
        self.held: bytes | None = None
        self._held_below: str | None = None
        self._is_held = threading.Event()

    def hold(self, below: str) -> threading.Event:
        """Hold up the syncs of files below a directory, those alone; set when one is held up."""
        self._held_below = below
        self.syncs.clear()
        return self._is_held

    def release(self) -> None:
        """Let all of them go on."""
        self._held_below = None
        self.syncs.set()

    def wait(self, path: str) -> None:
        """What a sync of this file waits for."""
        if self._held_below is not None:
            if not path.startswith(self._held_below):
                return
            self._is_held.set()
        _pass(self.syncs)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> StorageFile:  # type: ignore[override]
        return _GatedFile(super().open(path, create=create, read_only=read_only), self)


def _pass(gate: threading.Event) -> None:
    """Wait until it is open.  For longer than any limit of a test, in looks: what the machine stood
    still takes one off."""
    assert any(gate.wait(1) for _ in range(LOOKS)), "the test never opened the gate"


class _GatedFile:
    def __init__(self, file: StorageFile, disk: GatedStorage) -> None:
        self._file = file
        self._disk = disk

    @property
    def path(self) -> str:
        return self._file.path

    def pwrite(self, data: Buffer, position: int) -> int:
        if self._disk.refused is not None and self._disk.refused in bytes(data):
            raise OSError(errno.EIO, "the test refuses it")
        if self._disk.held is not None and self._disk.held in bytes(data):
            self._disk.syncs.clear()
        return self._file.pwrite(data, position)

    def pread(self, buffer: memoryview, position: int) -> int:
        _pass(self._disk.reads)
        if self._disk.read_error is not None:
            raise self._disk.read_error
        return self._file.pread(buffer, position)

    def pread_nowait(self, buffer: memoryview, position: int) -> int | None:
        return self._file.pread_nowait(buffer, position) if self._disk.cached else None

    def fdatasync(self) -> None:
        self._disk.wait(self.path)
        if self._disk.sync_error is not None:
            raise self._disk.sync_error
        self._file.fdatasync()

    def advise(self, advice: Advice) -> None:
        self._file.advise(advice)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def is_in_place(self, size: int = 0) -> bool:
        return self._file.is_in_place(size)

    def close(self) -> None:
        self._file.close()

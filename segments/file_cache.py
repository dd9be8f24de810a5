"""Open descriptors of sealed segments, bounded: the one used longest ago is closed first.

A descriptor in use is pinned and not closed, whatever the bound; then more than `limit` are open
until the readers finish.  Closing happens outside the lock.

The lock guards two dictionaries for nanoseconds; it is never held over a system call but open,
which runs in lanes.
"""

import threading
from collections import OrderedDict

from .storage import Storage, StorageFile


class _Entry:
    __slots__ = ("file", "pins", "stale")

    def __init__(self, file: StorageFile) -> None:
        self.file = file
        self.pins = 0
        self.stale = False


class FileCache:
    """An LRU of read-only files, shared by all partitions of a manager."""

    def __init__(self, storage: Storage, limit: int) -> None:
        assert limit > 0
        self._storage = storage
        self._limit = limit
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def pin(self, path: str, *, nowait: bool = False) -> StorageFile | None:
        """The open file, which stays open until `unpin`.

        Args:
            nowait: None instead of opening it.

        Raises:
            OSError: it cannot be opened.
        """
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None:
                entry.pins += 1
                self._entries.move_to_end(path)
                return entry.file
        if nowait:
            return None
        file = self._storage.open(path, read_only=True)
        spare: list[StorageFile] = []
        with self._lock:
            entry = self._entries.get(path)
            if entry is None:
                entry = self._entries[path] = _Entry(file)
            else:  # another thread was faster
                spare.append(file)
            entry.pins += 1
            spare += self._overflow()
            file = entry.file
        for old in spare:
            old.close()
        return file

    def unpin(self, path: str, file: StorageFile) -> None:
        """Give back what `pin` gave."""
        spare: list[StorageFile] = []
        with self._lock:
            entry = self._entries.get(path)
            if entry is None or entry.file is not file:
                return
            entry.pins -= 1
            if entry.stale and entry.pins == 0:
                del self._entries[path]
                spare.append(file)
        for old in spare:
            old.close()

    def drop(self, path: str) -> None:
        """Forget a file that was replaced or removed; closed when nobody reads it any more."""
        spare: list[StorageFile] = []
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None:
                if entry.pins == 0:
                    del self._entries[path]
                    spare.append(entry.file)
                else:
                    entry.stale = True
        for old in spare:
            old.close()

    def close(self) -> None:
        """Close everything; nobody may be reading."""
        with self._lock:
            entries, self._entries = self._entries, OrderedDict()
        for entry in entries.values():
            entry.file.close()

    def _overflow(self) -> list[StorageFile]:
        out: list[StorageFile] = []
        if len(self._entries) > self._limit:
            for path in [p for p, e in self._entries.items() if e.pins == 0]:
                if len(self._entries) <= self._limit:
                    break
                out.append(self._entries.pop(path).file)
        return out

"""Indexes of sealed segments in memory, bounded: the one used longest ago goes first.

An index of a 1 MiB segment is at most 2 KiB, so the default of 4,096 holds 8 MiB.  Safe from any
thread; what was taken out stays usable, for it never changes.
"""

import threading
from collections import OrderedDict

from .index import BlockIndex


class IndexCache:
    """Path of a log file → its index."""

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._indexes: OrderedDict[str, BlockIndex] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._indexes)

    def get(self, path: str) -> BlockIndex | None:
        with self._lock:
            index = self._indexes.get(path)
            if index is not None:
                self._indexes.move_to_end(path)
            return index

    def put(self, path: str, index: BlockIndex) -> None:
        with self._lock:
            self._indexes[path] = index
            self._indexes.move_to_end(path)
            while len(self._indexes) > self._limit:
                self._indexes.popitem(last=False)

    def drop(self, path: str) -> None:
        with self._lock:
            self._indexes.pop(path, None)

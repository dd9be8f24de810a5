"""What is open and what is loaded, each with a limit over all logs: least recently used goes first.

    FileCache   (log folder, segment number) -> open file, read-only; pinned while somebody reads
    IndexCache  (log folder, segment number) -> BlockIndex; immutable, so it needs no pin
    OpenLogs    the logs that hold descriptors of their own: active segment, those made ahead

At the limit the oldest unpinned file is closed, or the oldest index dropped.  When everything is
pinned the limit is exceeded; a reader is not refused.  1 TB of log in 1 MiB segments costs as much
as the columns of the logs, plus these two limits.

Logs beyond their limit park, that is, they close their descriptors.  The choice is by second
chance: a log used since it was last asked is asked again later; one with unsynced bytes or readers
refuses.  So idle partitions hold no descriptor, and only busy ones exceed the limit, up to `most`:
a write that would open one more log is refused.  So is a roll where too many full segments hold
theirs, because they are written faster than the disk syncs them: without one left nothing could be
synced or sealed, and none given back.

Thread-safe: one lock each, never held while a file is opened or closed.
"""

import errno
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from ..disk.relieving import NoDescriptor
from ..disk.storage import StorageFile, close_all
from ..files.index import BlockIndex

Key: TypeAlias = tuple[str, int]

OPEN_LOGS_MAX: Final = 4_096
"""Logs that stay open when nobody uses them; a limit below says that descriptors are few."""
GIVEN_AT_ONCE: Final = 8
"""Files that are closed, or logs that are parked, at least, where descriptors have run out."""
FULL_LEAST: Final = 512
"""Full segments that may wait for their seal, whatever else is open."""
FULL_LEAST_OF_FEW: Final = 16
"""The same where they are few: they use what is left for files that are open for a moment."""
LOOKS_MAX: Final = 256
"""Logs that are asked whether they can park, then: whoever wants one may be the loop."""


class _Open:
    __slots__ = ("dropped", "file", "pins")

    def __init__(self, file: StorageFile) -> None:
        self.file = file
        self.pins = 1
        self.dropped = False


def _keys_of(
    table: Collection[Key], counts: Counter[str], folder: str, numbers: range | None
) -> list[Key]:
    """Which keys of a table belong to a log; of some segments without looking at all others, and
    of a log that has none without looking at any: thousands of logs are closed one by one.

    counts: the keys of each log."""
    if not counts[folder]:
        return []
    if numbers is not None and len(numbers) < len(table):
        return [(folder, number) for number in numbers if (folder, number) in table]
    return [key for key in table if key[0] == folder and (numbers is None or key[1] in numbers)]


def _count_down(counts: Counter[str], folder: str) -> None:
    counts[folder] -= 1
    if not counts[folder]:
        del counts[folder]


class FileCache:
    """Open files of sealed segments."""

    def __init__(self, open_files_max: int) -> None:
        self.open_files_max = open_files_max
        self._lock = threading.Lock()
        self._files: OrderedDict[Key, _Open] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._dropped: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._files)

    def pin_nowait(self, key: Key) -> StorageFile | None:
        """The file if it is open, pinned; None when it would have to be opened."""
        with self._lock:
            entry = self._files.get(key)
            if entry is None:
                return None
            entry.pins += 1
            self._files.move_to_end(key)
            return entry.file

    def pin(
        self,
        key: Key,
        opener: Callable[[], StorageFile],
        is_current: Callable[[], bool] = lambda: True,
    ) -> StorageFile:
        """The file, opened if need be, pinned.

        is_current: asked after the opening, whether the file that was opened may serve others too.
        If not, it is this caller's alone and is closed when given back.
        """
        found = self.pin_nowait(key)
        if found is not None:
            return found
        entry = _Open(opener())
        surplus: list[StorageFile] = []
        with self._lock:
            other = self._files.get(key)
            if not is_current():
                entry.dropped = True
                self._dropped[id(entry.file)] = entry
            elif other is None:
                self._put(key, entry)
                surplus = self._evict()
            else:  # two opened it at once
                other.pins += 1
                surplus = [entry.file]
                entry = other
        close_all(surplus)
        return entry.file

    def adopt(self, key: Key, file: StorageFile) -> None:
        """Keep a file that is open already and that nobody else will close."""
        with self._lock:
            other = self._files.get(key)
            if other is None:
                entry = _Open(file)
                entry.pins = 0
                self._put(key, entry)
                surplus = self._evict()
            else:
                surplus = [file]
        close_all(surplus)

    def unpin(self, key: Key, file: StorageFile) -> None:
        """Give a pinned file back."""
        with self._lock:
            entry = self._files.get(key)
            if entry is None or entry.file is not file:
                entry = self._dropped[id(file)]
            entry.pins -= 1
            close = entry.dropped and not entry.pins
            if close:
                del self._dropped[id(file)]
        if close:
            close_all([file])

    def drop(self, folder: str, numbers: range | None = None) -> None:
        """Forget files of a log, all or some; pinned ones are closed by their last reader."""
        close_all(self.take_out(folder, numbers))

    def take_out(self, folder: str, numbers: range | None = None) -> list[StorageFile]:
        """As `drop`, for who holds a lock that somebody waits for: what is to be closed, which
        takes long where the file has no name any more."""
        closing: list[StorageFile] = []
        with self._lock:
            for key in _keys_of(self._files, self._counts, folder, numbers):
                entry = self._take(key)
                if entry.pins:
                    entry.dropped = True
                    self._dropped[id(entry.file)] = entry
                else:
                    closing.append(entry.file)
        return closing

    def close_some(self) -> int:
        """Close an eighth of those that nobody reads; how many."""
        with self._lock:
            surplus = self._evict(max(GIVEN_AT_ONCE, len(self._files) // 8))
        close_all(surplus)
        return len(surplus)

    def _evict(self, excess: int | None = None) -> list[StorageFile]:
        surplus: list[StorageFile] = []
        if excess is None:
            excess = len(self._files) - self.open_files_max
        if excess > 0:
            idle = (key for key, entry in self._files.items() if not entry.pins)
            surplus = [self._take(key).file for key in list(islice(idle, excess))]
        return surplus

    def _put(self, key: Key, entry: _Open) -> None:
        self._files[key] = entry
        self._counts[key[0]] += 1

    def _take(self, key: Key) -> _Open:
        _count_down(self._counts, key[0])
        return self._files.pop(key)


class Parkable(Protocol):
    """A log that holds descriptors and can do without."""

    recently_used: bool

    def park(self) -> bool:
        """Close them if nobody needs them now; whether it was done."""
        ...


class OpenLogs:
    """Which logs hold descriptors of their own, in the order they opened them."""

    def __init__(self, open_max: int = OPEN_LOGS_MAX) -> None:
        self.open_max = open_max
        """Above it the unused ones park."""
        self.most: int | None = None
        """As many may be open, whatever they do; None: as many as there are."""
        self.relief: Callable[[], bool] = lambda: False
        """Has some of them park, and waits for nothing; whether any did."""
        self._lock = threading.Lock()
        self._logs: OrderedDict[Parkable, None] = OrderedDict()
        self._full_count = 0

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def full_count(self) -> int:
        """Segments that are full and not sealed: each holds a descriptor."""
        return self._full_count

    @property
    def are_few(self) -> bool:
        """Whether there are descriptors for fewer than are useful: they are given back early."""
        return self.most is not None and self.open_max < OPEN_LOGS_MAX

    @property
    def full_max(self) -> int:
        """As many may be."""
        if self.are_few and self.most is not None:
            return max(FULL_LEAST_OF_FEW, self.most - len(self._logs))
        return max(FULL_LEAST, 2 * (self.open_max - len(self._logs)))

    @property
    def has_many_full(self) -> bool:
        """Whether they should be sealed as soon as that can be done."""
        return self.are_few or 2 * self._full_count > self.full_max

    @property
    def has_surplus(self) -> bool:
        """Whether more than the limit are open."""
        return len(self._logs) > self.open_max

    @property
    def is_full(self) -> bool:
        """Whether as many are open as there may be at all."""
        return self.most is not None and len(self._logs) + self._full_count >= self.most

    @property
    def is_crowded(self) -> bool:
        """Whether not every one of them may have a second file open."""
        return self.most is not None and 2 * len(self._logs) > self.most

    def make_way(self, path: str) -> None:
        """One more is going to be opened, for a write.

        Raises NoDescriptor: as many are open as there may be, and all are in use.
        """
        if self.is_full and not self.relief():
            why = f"{len(self._logs)} partitions are being written, and no more have a descriptor"
            raise NoDescriptor(errno.EMFILE, why, path)

    def add(self, log: Parkable) -> None:
        """The log has opened a descriptor."""
        if log not in self._logs:
            self._put(log)
            if self.most is not None and len(self._logs) > self.most:
                self.relief()

    def check_full(self, path: str) -> None:
        """A segment is full, and another is going to be opened in its place.

        Raises NoDescriptor: as many full ones as there may be wait to be synced and sealed.
        """
        if self._full_count < self.full_max:
            return
        if not self.relief() or self._full_count >= self.full_max:
            why = f"{self._full_count} full segments wait to be synced, and no more may"
            raise NoDescriptor(errno.EMFILE, why, path)

    def count_full(self, change: int) -> None:
        """So many more segments are full, or fewer."""
        with self._lock:
            self._full_count += change

    def _put(self, log: Parkable) -> None:
        with self._lock:
            self._logs[log] = None

    def discard(self, log: Parkable) -> None:
        """The log has closed all of them."""
        with self._lock:
            self._logs.pop(log, None)

    def park_surplus(self) -> int:
        """Let unused logs park until the limit holds with an eighth to spare; how many did."""
        return self._park(self.open_max - self.open_max // 8, 2 * len(self._logs))

    def park_some(self) -> int:
        """Let logs park, an eighth of all, as fast as that goes; how many did.

        The unused ones; where so many were used just now that none of those is found in time, a
        few that were: who asks would be refused for want of a descriptor that nobody needs now.
        """
        count = len(self._logs)
        parked = self._park(count - max(GIVEN_AT_ONCE, count // 8), min(2 * count, LOOKS_MAX))
        return parked or self._park(count - GIVEN_AT_ONCE, min(count, LOOKS_MAX), also_used=True)

    def park_one(self, log: Parkable) -> None:
        """Let this one park, however lately it was used."""
        with self._lock:
            if log not in self._logs:
                return
            del self._logs[log]
        self._park_out(log)

    def _park_out(self, log: Parkable) -> bool:
        """Out of the table before it parks: a write right behind it puts it in again."""
        parked = log.park()
        if not parked:
            self._put(log)
        return parked

    def _park(self, target: int, chances: int, *, also_used: bool = False) -> int:
        """Until so many are left, or so many were asked; how many did."""
        parked = 0
        while len(self._logs) > target and chances > 0:
            chances -= 1
            with self._lock:
                if not self._logs:
                    break
                log, _ = self._logs.popitem(last=False)
            used, log.recently_used = log.recently_used, False
            if used and not also_used:
                self._put(log)
            else:
                parked += self._park_out(log)
        return parked


class IndexCache:
    """Loaded indexes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Key, BlockIndex] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._indexes)

    @property
    def memory_size(self) -> int:
        """About what the loaded indexes cost, in bytes."""
        return self._bytes

    def get(self, key: Key) -> BlockIndex | None:
        """The index if it is loaded."""
        with self._lock:
            index = self._indexes.get(key)
            if index is not None:
                self._indexes.move_to_end(key)
            return index

    def put(
        self, key: Key, index: BlockIndex, is_current: Callable[[], bool] = lambda: True
    ) -> None:
        """Keep an index; the least recently used make room.

        is_current: whether what it was read from is still what has the name; else it is not kept.
        """
        with self._lock:
            if not is_current():
                return
            self._remove(key)
            self._indexes[key] = index
            self._counts[key[0]] += 1
            self._bytes += index.memory_size
            while self._bytes > self.bytes_max and len(self._indexes) > 1:
                self._remove(next(iter(self._indexes)))

    def drop(self, folder: str, numbers: range | None = None) -> None:
        """Forget indexes of a log, all or some."""
        with self._lock:
            for key in _keys_of(self._indexes, self._counts, folder, numbers):
                self._remove(key)

    def _remove(self, key: Key) -> None:
        index = self._indexes.pop(key, None)
        if index is not None:
            _count_down(self._counts, key[0])
            self._bytes -= index.memory_size


class Caches(NamedTuple):
    """What all logs of a data directory share, each with a limit."""

    files: FileCache
    indexes: IndexCache
    open_logs: OpenLogs

"""What vouches for the ends of the logs of one shard, and where that stands.

    a log is synced -> END rides with the next group -> in a file of the log -> full -> about to go
                            |                                                          |
                            +--- a checkpoint --> kept-18.log, durable  <--------------+
                                                  then the full files go

An END says how far a log is synced.  Without one, what a disk loses of the end of a log passes for
a write that nobody was told of.  So none may go before it is durable elsewhere: a checkpoint writes
all of them into a file of their own (kept.py), which replaces the one of the checkpoint before.
That costs no room in the files of the log, however small they are, and waits for no writer, who may
be waiting for the checkpoint.

A BARRIER makes void what was said of a partition before it, and kept files count as older than
every other: of a partition that has had one, ENDs ride as well.

Thread-safe: the lock is held over nothing but copies.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import structlog

from .files import ShardFiles
from .frames import Frame

log = structlog.get_logger()

Key: TypeAlias = tuple[bytes, int]


class Vouching:
    """The END frames of one shard."""

    def __init__(self, files: ShardFiles, said: Mapping[Key, int]) -> None:
        """said: end offsets that a kept file of the start vouches for."""
        self._files = files
        self._lock = threading.Lock()
        self._riders: dict[Key, Frame] = {}
        """What is to be written with the next group."""
        self._kept: dict[Key, Frame] = {}
        """What the newest kept file of this life says."""
        self._said = dict(said)
        """Below these offsets kept files vouch for the logs."""
        self._barred: set[Key] = set()
        """Partitions that have had a BARRIER."""
        self._number = -1
        self._old: list[int] = []
        """Kept files that say nothing more, and could not be removed yet."""

    @property
    def has_riders(self) -> bool:
        """Whether anything waits for a group; without the lock."""
        return bool(self._riders)

    def ride(self, frame: Frame) -> None:
        """Have this END written with the next group, unless it is known that far."""
        with self._lock:
            if self._said.get(frame.key, -1) < frame.base_offset or frame.key in self._barred:
                self._riders[frame.key] = frame

    def ride_again(self, frames: Mapping[Key, Frame]) -> None:
        """The same with some that were written, or were to be, unless there are later ones."""
        with self._lock:
            for key, frame in frames.items():
                self._riders.setdefault(key, frame)

    def take(self) -> dict[Key, Frame]:
        """What rides with the group that is being made."""
        with self._lock:
            taken, self._riders = self._riders, {}
        return taken

    def bar(self, key: Key) -> None:
        """A BARRIER is about to be written."""
        with self._lock:
            self._barred.add(key)

    def forget(self, key: Key) -> None:
        """The partition is gone."""
        with self._lock:
            for known in (self._riders, self._kept, self._said):
                known.pop(key, None)

    def keep(self, going: Iterable[Mapping[Key, Frame]], sequence_min: int) -> None:
        """Files of the log with these ENDs are about to go: have them, and what rides, durable in a
        kept file.  Blocking.  Where that cannot be had they ride again.

        going: by file, the oldest first.  sequence_min: the least number of another file.
        """
        ends: dict[Key, Frame] = {}
        for one in going:
            ends.update(one)
        with self._lock:
            riders = dict(self._riders)
            kept = {**self._kept, **ends, **riders}
            if kept == self._kept:
                return
        try:
            number = self._files.keep_ends(kept.values(), sequence_min)
        except OSError as exc:
            log.warning("wal_ends_not_kept", folder=self._files.folder, error=str(exc))
            self.ride_again(ends)
            return
        with self._lock:
            self._kept = kept
            for key, frame in kept.items():
                self._said[key] = max(self._said.get(key, -1), frame.base_offset)
                if riders.get(key) is self._riders.get(key) and key not in self._barred:
                    self._riders.pop(key, None)
            if self._number >= 0:
                self._old.append(self._number)
            self._number = number
        self._remove_old()

    def _remove_old(self) -> None:
        while self._old:
            try:
                self._files.remove_kept(self._old[0])
            except OSError as exc:  # with the next; a start removes it as well
                log.warning("wal_ends_not_removed", folder=self._files.folder, error=str(exc))
                return
            del self._old[0]

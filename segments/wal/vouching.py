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

from ..told_once import ToldOnce
from .files import ShardFiles
from .frames import Frame, FrameType
from .kept import KeptFile

log = structlog.get_logger()

Key: TypeAlias = tuple[bytes, int]


def end_frame(key: Key, segment: int, position: int, end_offset: int) -> Frame:
    """Says that a log is synced up to there."""
    return Frame(FrameType.END, *key, segment, position, end_offset, end_offset=end_offset)


def later_of(first: Mapping[Key, Frame], *others: Mapping[Key, Frame]) -> dict[Key, Frame]:
    """Of each partition the END that says most: no log ends below what was once synced."""
    found = dict(first)
    for frames in others:
        for frame in frames.values():
            say_later(found, frame)
    return found


def say_later(ends: dict[Key, Frame], frame: Frame) -> None:
    """Put this END among the others, unless one of its partition says more."""
    known = ends.get(frame.key)
    if known is None or known.base_offset <= frame.base_offset:
        ends[frame.key] = frame


class Vouching:
    """The END frames of one shard."""

    def __init__(self, files: ShardFiles, said: Mapping[Key, int]) -> None:
        """said: end offsets that a kept file of the start vouches for."""
        self._files = files
        self._lock = threading.Lock()
        self._riders: dict[Key, Frame] = {}
        """What is to be written with the next group."""
        self._riding: dict[Key, Frame] = {}
        """What is being written: not durable, and in no file that is about to go."""
        self._kept: dict[Key, Frame] = {}
        """What a kept file of this life says."""
        self._said = dict(said)
        """Below these offsets kept files vouch for the logs."""
        self._barred: set[Key] = set()
        """Partitions that have had a BARRIER."""
        self._newest: KeptFile | None = None
        """The kept file that says it."""
        self._told = ToldOnce()
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
                say_later(self._riders, frame)

    def take(self) -> dict[Key, Frame]:
        """What rides with the group that is being made, until `rode` is called."""
        with self._lock:
            self._riding, self._riders = self._riders, {}
            return dict(self._riding)

    def rode(self, *, durable: bool) -> None:
        """The group was written, with what rode; if not, that rides again."""
        with self._lock:
            riding, self._riding = self._riding, {}
            if not durable:
                self._riders = later_of(riding, self._riders)

    def bar(self, key: Key) -> None:
        """A BARRIER is about to be written."""
        with self._lock:
            self._barred.add(key)

    def forget(self, key: Key) -> None:
        """The partition is gone."""
        with self._lock:
            for known in (self._riders, self._riding, self._kept, self._said):
                known.pop(key, None)
            self._barred.discard(key)

    def keep(self, going: Iterable[Mapping[Key, Frame]]) -> bool:
        """Files of the log with these ENDs are about to go: have them, and what rides, durable in a
        kept file; whether they are.  Blocking.  Where that cannot be had they ride again.

        going: by file, the oldest first.
        """
        ends = later_of({}, *going)
        with self._lock:
            riders = dict(self._riders)
            # A file that goes may have an earlier END than one that was kept without riding.
            kept = later_of(self._kept, ends, self._riding, riders)
            if kept == self._kept:
                return True
        number = self._files.claim()
        try:
            newest = self._files.keep_ends(number, kept.values())
        except OSError as exc:
            if self._told.is_new(exc):
                log.warning("wal_ends_not_kept", folder=self._files.folder, error=str(exc))
            with self._lock:
                self._riders = later_of(ends, self._riders)
            self._old.append(number)  # it may be there, without its markers
            self._remove_old()
            return False
        if self._told.is_over():
            log.info("wal_ends_kept", folder=self._files.folder)
        with self._lock:
            self._kept = kept
            for key, frame in kept.items():
                self._said[key] = max(self._said.get(key, -1), frame.base_offset)
                if riders.get(key) is self._riders.get(key) and key not in self._barred:
                    self._riders.pop(key, None)
            if self._newest is not None:
                self._old.append(self._newest.number)
            self._newest = newest
        self._remove_old()
        return True

    def keep_anew(self) -> bool:
        """Have what the kept file of the start says of this shard in one of its own; whether it is.
        As `look`."""
        with self._lock:
            said = {key: end_frame(key, 0, 0, end) for key, end in self._said.items()}
        return self.keep([said])

    def remove(self, number: int) -> None:
        """Others say what this kept file said.  As `look`."""
        self._old.append(number)
        self._remove_old()

    def look(self) -> None:
        """Have what the newest kept file says in another, if somebody has removed it.  For who
        calls `keep`; blocking."""
        newest = self._newest
        if newest is None or not newest.is_away():
            return
        with self._lock:
            said, self._kept = self._kept, {}
        if self.keep([said]) and newest is self._newest:
            self._newest = None  # a try before failed, and all that it said has ridden since
            self.remove(newest.number)

    def _remove_old(self) -> None:
        while self._old:
            try:
                self._files.remove_kept(self._old[0])
            except OSError as exc:  # with the next; a start removes it as well
                log.warning("wal_ends_not_removed", folder=self._files.folder, error=str(exc))
                return
            del self._old[0]

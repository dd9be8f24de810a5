"""Segments made ahead of need, so that a roll makes no file and syncs no directory.

    | active k | k+1 | k+2 | ... | k+target |
               ^ empty files under their final names, open, the directory synced

One thread makes them, a group at a time with one directory sync (`make`); the appender takes the
first (`take`).  How many are ahead follows the rate of the rolls: twice as many when one came
less than HURRY_MS after the one before, or found nothing; one again when rolls are CALM_MS apart.

When none is ready the appender makes the file itself: one open, about 70 us, no sync.  Its name is
then synced by the next sync of the log, before anything in it counts as durable; `missed` counts.

`made` is the highest number whose name is durable, also after the files were closed (`park`):
taking such a segment is one open.  Empty files behind the active segment are what a crash leaves;
recovery accepts any number of them, and a log that is closed in order unlinks them.

A file with something in it is nobody's when a roll comes to it: recovery has emptied, or moved,
what it found behind the end, so somebody has copied it there since.  It goes to quarantine/; so it
does where those made ahead are unlinked, and it is among them.

Thread-safe: one lock, never held over I/O except the close of a stale file.  Who closes the log
waits until no segment is being made: its directory may be that of another topic then.
"""

import threading
from typing import Final, NamedTuple

import structlog

from ..disk.storage import Storage, StorageFile, close_all, make_own_dirs, set_aside, size_of
from ..files.copies import name_of_copy
from ..names import LogPaths
from .log_storage import LogStorage

log = structlog.get_logger()

AHEAD_MAX: Final = 16
HURRY_MS: Final = 50
CALM_MS: Final = 1_000


class Taken(NamedTuple):
    """The file of the next segment."""

    file: StorageFile
    name_is_durable: bool


class ReadySegments:
    """The segments of one log that are not in use yet."""

    __slots__ = (
        "_ahead_max",
        "_closed",
        "_files",
        "_is_making",
        "_last_roll_ms",
        "_lock",
        "_paths",
        "_storage",
        "_was_made",
        "has_unsynced",
        "made",
        "missed",
        "target",
    )

    def __init__(self, storage: LogStorage, paths: LogPaths, made: int, *, ahead_max: int) -> None:
        self.made = made
        self.missed = 0
        self.has_unsynced = False
        """Whether files may be there whose names nobody has synced, as they are being made, or that
        has failed.  A roll may find one."""
        self.target = 1
        self._ahead_max = ahead_max
        self._storage = storage
        self._paths = paths
        self._files: list[tuple[int, StorageFile]] = []
        self._last_roll_ms = -CALM_MS
        self._lock = threading.Lock()
        self._is_making = False
        self._was_made: threading.Condition | None = None  # 1 KiB for every log, and hardly used
        self._closed = False

    def __len__(self) -> int:
        return len(self._files)

    @property
    def is_wanted(self) -> bool:
        """Whether a group should be made: less than half of the target is there."""
        return len(self._files) * 2 < self.target

    def take(self, number: int, now_ms: int) -> Taken:
        """The file of segment `number`; made here when none is ready.  Raises OSError."""
        stale: list[StorageFile] = []
        file = None
        with self._lock:
            while self._files and self._files[0][0] <= number:
                found, candidate = self._files.pop(0)
                if found == number:
                    file = candidate
                else:
                    stale.append(candidate)  # a roll that found nothing was faster
            self._aim(now_ms, hit=file is not None)
        close_all(stale)
        taken = Taken(file, True) if file is not None else self._make_here(number)
        if not taken.file.size():
            return taken
        taken.file.close()
        clear_the_way(self._storage, self._paths, number)
        return Taken(self._storage.open(self._paths.log(number), create=True), False)

    def _make_here(self, number: int) -> Taken:
        is_made = number <= self.made
        self.missed += not is_made
        return Taken(self._storage.open(self._paths.log(number), create=True), is_made)

    def _aim(self, now_ms: int, *, hit: bool) -> None:
        since = now_ms - self._last_roll_ms
        self._last_roll_ms = now_ms
        if since < HURRY_MS:
            if not hit or len(self._files) * 2 < self.target:
                self.target = min(2 * self.target, self._ahead_max)
        elif since >= CALM_MS:
            self.target = 1

    def make(self, active_number: int) -> None:
        """Fill up to the target behind the active segment, their names durable.

        One thread at a time.  Raises OSError, and then has made nothing; NamesNotSynced: files are
        there whose names are in doubt, so the log has failed.
        """
        with self._lock:
            first = max([active_number, *(number for number, _ in self._files)]) + 1
            end = active_number + 1 + self.target
            if self._closed or first >= end:
                return
            self._is_making = True
        is_new = end - 1 > self.made
        self.has_unsynced |= is_new
        made: list[tuple[int, StorageFile]] = []
        failures = self._storage.failures
        try:
            for number in range(first, end):
                # A roll may make the same file meanwhile: neither empties it.
                file = self._storage.open(self._paths.log(number), create=True)
                made.append((number, file))
            if is_new:
                self._storage.sync_names(failures)
                self.has_unsynced = False
        except BaseException:
            close_all(file for _, file in made)
            with self._lock:
                self._made()
            raise
        with self._lock:
            self._made()
            self.made = max(self.made, end - 1)
            if not self._closed:
                self._files.extend(made)
                return
        close_all(file for _, file in made)

    def _made(self) -> None:
        """Or not, after a failure.  The caller holds the lock."""
        self._is_making = False
        if self._was_made is not None:
            self._was_made.notify_all()

    def park(self) -> None:
        """Close the files; their names stay."""
        with self._lock:
            files, self._files = self._files, []
            self.target = 1
        close_all(file for _, file in files)

    def close(self, *, unlink_behind: int | None = None) -> None:
        """Close the files for good; unlink those behind segment `unlink_behind`.

        Raises OSError.
        """
        with self._lock:
            self._closed = True
            while self._is_making:
                self._was_made = self._was_made or threading.Condition(self._lock)
                self._was_made.wait()
        self.park()
        if unlink_behind is not None:
            # Unsynced: where the unlink is lost an empty file comes back, which is accepted.
            for number in range(self.made, unlink_behind, -1):
                clear_the_way(self._storage, self._paths, number)


def clear_the_way(storage: Storage, paths: LogPaths, number: int) -> None:
    """Nothing is to be under the name of a segment that was never in use.  An empty file goes; one
    with something in it is somebody's, and goes to quarantine/, durably.  Raises OSError."""
    path = paths.log(number)
    if not storage.exists(path):
        return
    if not size_of(storage, path):
        storage.unlink(path)
        return
    make_own_dirs(storage, paths.quarantine)
    kept = name_of_copy(storage, paths, number)
    set_aside(storage, path, kept)
    log.error("segment_in_the_way", path=path, kept=kept)

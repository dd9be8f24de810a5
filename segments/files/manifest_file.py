"""The manifest of an open log as a file: rows appended, or all of it replaced.

Kept apart from the format (manifest.py): this is who writes it and when it is durable.  One thread
at a time, under the log's seal lock.

After a failed write or sync the file is doubtful: nothing more is appended to it or synced in it.
All that it says is in memory, so it is replaced by a new file, and nothing is lost by the failure.
The rows go at once: a process that comes before that would find them, a checkpoint perhaps, and go
by what no disk has.  Behind a failed sync the log is marked all the same (unsynced.py): rows in
front of them may be on no disk, either, and the next process would append its own behind those.

The manifest of a new log says nothing that is not known without it, so it is written without a
sync (docs/decisions/0143).  It and the names in its directory become durable with the first row
that has to be, or, `settle`, with the first sync of the log: whatever is durable in a log has a
manifest that is.
"""

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import Final

from ..disk.storage import Buffer, Storage, StorageFile, write_all
from ..errors import PASSING_ERRNOS
from ..names import LogPaths
from .manifest import HEADER_SIZE, ROW_SIZE, Row, encode_manifest
from .unsynced import read_unsynced, sync_or_mark

HISTORY_ROWS_MAX: Final = 64
"""Rows that say nothing any more are carried up to this many, or as many as are in force."""


class ManifestFile:
    """Where the next row goes.  `size` is the bytes that are valid."""

    __slots__ = (
        "_paths",
        "_replace",
        "_storage",
        "is_doubtful",
        "is_durable",
        "size",
        "sync_failed",
    )

    def __init__(
        self,
        storage: Storage,
        paths: LogPaths,
        size: int,
        replace: Callable[[str, Buffer], None],
        *,
        is_durable: bool = True,
    ) -> None:
        """replace: puts a file in the place of another, durably.  Raises OSError."""
        self.size = size
        self.is_doubtful = False
        self.is_durable = is_durable
        """Whether what it said in the beginning is synced, and its name."""
        self.sync_failed = False
        """Whether a sync of it, or of its name, failed before it was durable, for whomever; also
        where a later one did not."""
        self._paths = paths
        self._storage = storage
        self._replace = replace

    def append(self, rows: Sequence[Row], *, sync: bool = False) -> None:
        """Add rows in one write; durable when this returns with `sync`.  Raises OSError."""
        assert not self.is_doubtful, "replaced first"
        self.is_doubtful = True
        file = self._storage.open(self._paths.manifest)
        try:
            encoded = b"".join([row.encode() for row in rows])
            self._write(file, encoded)
            if sync:
                self._sync(file)
        except OSError:
            with suppress(OSError):
                file.truncate(self.size)
            raise
        finally:
            file.close()
        self.is_doubtful = False
        self.size += len(encoded)

    def look_again(self) -> None:
        """An opening of the log may have written it that failed for want of room.  Of one that is
        as long nothing is in doubt: it says no less.  Unless a sync failed as well."""
        try:
            with closing(self._storage.open(self._paths.manifest, read_only=True)) as file:
                is_marked = read_unsynced(self._storage, self._paths) is not None
                self.is_doubtful |= is_marked or file.size() != self.size
        except OSError:
            self.is_doubtful = True

    def settle(self) -> None:
        """Make the manifest of a new log durable, with every name there is in its directory.

        In any thread, also beside the others here.  Raises OSError: then the log fails, and what
        comes in its place has a new one (salvaging.py).  So it is where a sync of it has failed
        that nobody else failed for: of a log start that was refused.
        """
        if self.sync_failed:
            raise OSError(errno.EIO, "a sync of it has failed", self._paths.manifest)
        with closing(self._storage.open(self._paths.manifest)) as file:
            file.fdatasync()
        # Whatever another has synced meanwhile: a name may have been given since that began.
        self._storage.fsync_dir(self._paths.folder)
        self.is_durable = True

    def _sync(self, file: StorageFile) -> None:
        try:
            sync_or_mark(self._storage, self._paths, file, 0)  # of the segments nothing is in doubt
        except OSError:
            self.sync_failed |= not self.is_durable
            raise
        if not self.is_durable:
            self._storage.fsync_dir(self._paths.folder)
            self.is_durable = True

    def _write(self, file: StorageFile, encoded: bytes) -> None:
        try:
            write_all(file, encoded, self.size)
        except OSError as exc:
            # For want of space nothing is in doubt: the next rows are written over what is there.
            self.is_doubtful = exc.errno not in PASSING_ERRNOS
            raise

    def replace(self, created_ms: int, rows: Iterable[Row]) -> None:
        """Put these rows in the place of all; durable when this returns.  Raises OSError."""
        encoded = encode_manifest(created_ms, rows, self._paths.owner)
        self.is_doubtful = True
        self._replace(self._paths.manifest, encoded)
        self.is_doubtful = self.sync_failed = False
        self.is_durable = True
        self.size = len(encoded)

    def is_long(self, rows_count: int) -> bool:
        """Whether more than half of it is history, when `rows_count` rows are in force."""
        rows = (self.size - HEADER_SIZE) // ROW_SIZE
        return rows > rows_count + max(rows_count, HISTORY_ROWS_MAX)

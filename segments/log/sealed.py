"""Sealed segments as files: descriptors, indexes, and an index made again when it is wrong.

    index_nowait   the index if it is loaded: for the loop, no I/O
    index          loaded from .index, or rebuilt from the log: for lanes
    rebuild        read the log, check every batch by CRC and offset, write .index again
    make_ready     what a reader comes to next: opened and its index loaded, so that the loop reads
                   it, if it is in the page cache; else the disk reads it ahead

How many are made ready follows the reader, up to AHEAD_MAX: twice as many where the last ones were
read by the loop, one where a lane had to come to them, for they were closed again before.

An index that does not match its log is either wrong itself or the log is: rebuilding decides it.
When every batch of the log is valid the index was wrong and is replaced; otherwise the log is
damaged and CorruptSegment says where.  Nothing that failed its checksum is ever returned.

A segment may be written anew, or its whole log be deleted, between the moment a reader opens the
file and the moment the cache takes it.  Such a file is not kept, nor is such an index: it would
stand under the name of another one, and everybody after this reader would find damage in it.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import structlog

from ..decisions import Epochs, Scan, scan, stamp_of
from ..disk.storage import (
    NO_DESCRIPTORS,
    Advice,
    Storage,
    StorageFile,
    close_all,
    put_file,
    read_file,
)
from ..errors import CorruptSegment, StorageError
from ..files.index import BlockBuilder, BlockIndex, WrongIndex, decode_index, segment_tag
from ..files.manifest import Row
from ..names import LogPaths
from .caches import FileCache, IndexCache

log = structlog.get_logger()

AHEAD_MAX: Final = 8
Behind: TypeAlias = Callable[[int, int], Sequence[Row]]
"""The sealed segments behind the one with a number, at most so many."""


def index_of(data: memoryview, base_offset: int, found: Scan, interval: int) -> BlockIndex:
    """The index of a log whose batches were found whole."""
    builder = BlockBuilder(base_offset, interval)
    sums = [
        builder.add(
            data[position : position + header.size],
            header.base_offset,
            header.records_count,
            stamp_of(header),
        )
        for position, header in found.batches
    ]
    created_ms = stamp_of(found.batches[0].header) if found.batches else 0
    return builder.finish(created_ms, segment_tag(sums))


class SealedFiles:
    """The files of one log's sealed segments."""

    __slots__ = (
        "_ahead",
        "_drops_count",
        "_is_closed",
        "_ready_to",
        "_rebuilding",
        "epochs",
        "files",
        "indexes",
        "interval",
        "paths",
        "storage",
    )

    def __init__(
        self,
        storage: Storage,
        paths: LogPaths,
        files: FileCache,
        indexes: IndexCache,
        interval: int,
        epochs: Epochs,
    ) -> None:
        self.storage = storage
        self.paths = paths
        self.files = files
        self.indexes = indexes
        self.interval = interval
        self.epochs = epochs
        self._rebuilding = threading.Lock()
        self._drops_count = 0
        self._is_closed = False
        # Segments that are made ready next, and the number of the last that was.
        self._ahead = 0
        self._ready_to = -1

    def index_nowait(self, number: int) -> BlockIndex | None:
        """The index of segment `number` if it is loaded."""
        return self.indexes.get((self.paths.folder, number))

    def index(self, row: Row) -> BlockIndex:
        """The index of a segment.  Raises CorruptSegment, OSError.

        row: the segment as the caller knows it.  It may have been cleaned since, or be one of a
        later topic of the same name: then what is under its name is another one.
        """
        try:
            return self._load(row)
        except WrongIndex:
            return self.rebuild(row)
        except OSError as exc:
            if exc.errno in NO_DESCRIPTORS:
                raise
            return self.rebuild(row)  # missing, or the disk has lost it

    def _load(self, row: Row) -> BlockIndex:
        """The index as its file has it.  Raises WrongIndex, OSError."""
        index = self.index_nowait(row.number)
        if index is not None and index.is_of(row.base_offset, row.size, row.tag):
            return index
        is_current = self.is_current()
        content = read_file(self.storage, self.paths.index(row.number))
        index = decode_index(content, row.base_offset, row.size, row.tag)
        self.indexes.put((self.paths.folder, row.number), index, is_current)
        return index

    def rebuild(self, row: Row) -> BlockIndex:
        """The index made from the log.  Raises CorruptSegment when the log is damaged."""
        path, size = self.paths.log(row.number), row.size
        is_current = self.is_current()
        with self._rebuilding:
            try:
                data = memoryview(read_file(self.storage, path))
            except FileNotFoundError as exc:
                raise CorruptSegment(path, 0, "the file is missing") from exc
            if len(data) != size:
                raise CorruptSegment(path, min(len(data), size), f"{len(data)} bytes, not {size}")
            found = scan(data, row.base_offset, epochs=self.epochs)
            if found.valid_size != size:
                raise CorruptSegment(path, found.valid_size, f"no valid batch before byte {size}")
            index = index_of(data, row.base_offset, found, self.interval)
            if row.tag not in (0, index.tag):
                text = f"tag {index.tag}, not {row.tag}: it is of another log"
                raise CorruptSegment(path, 0, text)
            try:
                if is_current():  # else it may be of what the segment was: see `write_index`
                    put_file(self.storage, self.paths.index(row.number), index.encode())
            except OSError as exc:
                # A full disk, or a repair that made the same file at the same time: the reader has
                # its index, and the next one makes it again.
                log.warning("index_not_written", path=path, error=str(exc))
        self.indexes.put((self.paths.folder, row.number), index, is_current)
        return index

    def write_index(self, number: int, index: BlockIndex) -> None:
        """The index file of a segment that was written anew, behind `take_out`: nobody writes one
        of what it was over it.  Raises OSError."""
        with self._rebuilding:
            put_file(self.storage, self.paths.index(number), index.encode())

    def pin_nowait(self, number: int) -> StorageFile | None:
        """The open file of segment `number`, pinned; None when it is not open."""
        return self.files.pin_nowait((self.paths.folder, number))

    def pin(self, number: int) -> StorageFile:
        """The file of segment `number`, opened if need be, pinned.  Raises StorageError."""
        path = self.paths.log(number)
        is_current = self.is_current()

        def opener() -> StorageFile:
            return self.storage.open(path, read_only=True)

        try:
            return self.files.pin((self.paths.folder, number), opener, is_current)
        except FileNotFoundError as exc:
            raise CorruptSegment(path, 0, "the file is missing") from exc
        except OSError as exc:
            raise StorageError(f"cannot open {path}: {exc}") from exc

    def adopt(self, number: int, file: StorageFile) -> None:
        """Keep the file of a segment that was just sealed, open as it is."""
        self.files.adopt((self.paths.folder, number), file)

    def make_ready(self, number: int, behind: Behind) -> None:
        """A lane reads segment `number` to its end: see above.  Hints, so it never fails."""
        self._ahead = min(2 * self._ahead, AHEAD_MAX) if number > self._ready_to else 0
        self._ahead = max(1, self._ahead)
        self._ready_to = number
        with suppress(OSError, WrongIndex):
            for row in behind(number, self._ahead):
                if not self._make_ready(row):
                    break
                self._ready_to = row.number

    def _make_ready(self, row: Row) -> bool:
        """Whether it is; else it is not in the page cache: who reads it, in a lane, has the disk
        read on.  Raises OSError, WrongIndex."""
        key = self.paths.folder, row.number
        is_current = self.is_current()
        file = self.storage.open(self.paths.log(row.number), read_only=True)
        try:
            if file.pread_nowait(memoryview(bytearray(1)), row.size - 1) is None:
                file.advise(Advice.WILL_NEED)
                file.close()
                return False
            self._load(row)
        except BaseException:
            file.close()
            raise
        kept = self.files.pin(key, lambda: file, is_current)
        self.files.unpin(key, kept)
        if kept is not file:  # it was open already
            file.close()
        return True

    def is_current(self) -> Callable[[], bool]:
        """Says, later, whether nothing has been dropped since now."""
        drops_count = self._drops_count
        return lambda: drops_count == self._drops_count and not self._is_closed

    def close(self) -> None:
        """Forget all files and indexes, also those that a late reader opens from now on."""
        self._is_closed = True
        self.drop()

    def drop(self, numbers: range | None = None) -> None:
        """Forget files and indexes of segments, all or some, after the files were replaced."""
        close_all(self.take_out(numbers))

    def take_out(self, numbers: range | None = None) -> list[StorageFile]:
        """As `drop`, under the log's state lock: what the caller closes behind that."""
        self._drops_count += 1  # first: what was opened before is not kept behind this
        closing = self.files.take_out(self.paths.folder, numbers)
        self.indexes.drop(self.paths.folder, numbers)
        return closing

    def unpin(self, number: int, file: StorageFile) -> None:
        """Give a pinned file back."""
        self.files.unpin((self.paths.folder, number), file)

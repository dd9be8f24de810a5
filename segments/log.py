"""The segmented log as a library: no broker, no threads, one caller.

    with SegmentedLog.open(PosixStorage(), "/var/lib/app/log", now_ms=now) as log:
        offset = log.append([b"one", b"two"], now_ms=now)
        for record in log.stream(offset):
            ...

The files are those of a broker's partition, with `name` in the place of `<topic>_partition_<N>`.
Class `fsync` (the default): an append returns when it is durable; class `disk`: when it is
written, and `sync` makes it durable.  Time is a parameter: nothing here looks at a clock.

After a failed write or sync every further append raises PartitionReadOnly; opening again recovers.
Not thread-safe: one thread uses a log, or the caller locks.
"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NoReturn, TypeAlias

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import (
    Record,
    check_batch,
    decode_batch,
    encode_batch,
    read_header,
)

from .caches import FileCache, IndexCache, OpenLogs
from .deleting import drop_segments_before
from .errors import CorruptSegment, LogClosed, OffsetOutOfRange, PartitionReadOnly
from .lookup import offset_for_timestamp
from .manifest import RowKind, encode_manifest
from .names import LogPaths
from .opening import open_log
from .partition_log import PartitionLog
from .planning import batches, read_all
from .recovery import scan
from .sealing import close_log, seal
from .storage import Buffer, Storage, read_file, remove_tree, replace_file
from .topic_config import Durability, TopicConfig

Appendable: TypeAlias = Buffer | Sequence[bytes | None]


class SegmentedLog:
    """One log in a directory of its own."""

    def __init__(self, storage: Storage, opened: PartitionLog) -> None:
        self._storage = storage
        self._log = opened
        self._failure: PartitionReadOnly | None = None

    @classmethod
    def open(
        cls,
        storage: Storage,
        path: str,
        name: str = "log",
        config: TopicConfig | None = None,
        *,
        now_ms: int,
    ) -> "SegmentedLog":
        """Open the log `name` in directory `path`; made if missing, recovered after a crash.

        Raises CorruptSegment, OSError.
        """
        opened = open_log(
            storage,
            LogPaths(path, name),
            config or TopicConfig(),
            FileCache(64),
            IndexCache(16 << 20),
            OpenLogs(),
            now_ms=now_ms,
        )
        return cls(storage, opened)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset to be assigned."""
        return self._log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the log files."""
        return self._log.size_bytes

    @property
    def segments_count(self) -> int:
        """How many segments there are, the active one included."""
        return self._log.segments_count

    def append(self, batch: Appendable, *, now_ms: int, codec: Codec = Codec.NONE) -> int:
        """Append one encoded batch, or values that become one; the offset of its first record.

        now_ms: timestamp of the records when values are given, and the age of the segment.
        Raises InvalidBatch, BatchTooLarge, PartitionReadOnly, LogClosed.
        """
        self._check_writable()
        if isinstance(batch, (bytes, bytearray, memoryview)):
            view = memoryview(bytearray(batch))
        else:
            view = memoryview(bytearray(encode_batch(batch, timestamps_ms=now_ms, codec=codec)))
        header = check_batch(view)
        self._log.check_size(header.size)
        try:
            with self._log.append_lock:
                offset = self._log.write(view, header, now_ms)
            if self._log.rotating:
                seal(self._log)
            if self._log.config.durability is Durability.FSYNC:
                self._log.sync()
        except OSError as exc:
            self._fail(exc)
        return offset

    def sync(self) -> int:
        """Make everything appended so far durable; the offset below which it is."""
        self._check_writable()
        try:
            return self._log.sync()
        except OSError as exc:
            self._fail(exc)

    def read(self, offset: int, max_bytes: int = 1 << 20) -> memoryview:
        """Whole batches from the one that contains `offset` on; empty at the end.

        At most max_bytes, but at least one batch.  Raises OffsetOutOfRange, CorruptSegment.
        """
        self._check_open()
        return read_all(self._log, offset, max_bytes)

    def batches(self, start: int | None = None, end: int | None = None) -> Iterator[memoryview]:
        """The encoded batches with offsets in [start, end), control batches (gaps) included."""
        self._check_open()
        first = self.log_start_offset if start is None else start
        last = self.log_end_offset if end is None else min(end, self.log_end_offset)
        if not self.log_start_offset <= first <= self.log_end_offset:
            raise OffsetOutOfRange(first, self.log_start_offset, self.log_end_offset)
        return batches(self._log, first, last)

    def stream(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """The records with offsets in [start, end); to the end of the log as of now by default."""
        first = self.log_start_offset if start is None else start
        last = self.log_end_offset if end is None else min(end, self.log_end_offset)
        for batch in self.batches(first, last):
            if read_header(batch).is_control:
                continue
            for record in decode_batch(batch):
                if first <= record.offset < last:
                    yield record

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not older than this; None without one."""
        self._check_open()
        return offset_for_timestamp(self._log, timestamp_ms)

    def truncate(self, offset: int, *, now_ms: int) -> int:
        """Cut the end of the log: nothing at or past `offset` stays.  The new end.

        Cuts between batches: a batch that contains `offset` goes as a whole.  Durable when this
        returns.  Raises OffsetOutOfRange.
        """
        self._check_writable()
        log = self._log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
        if offset == log.log_end_offset:
            return offset
        try:
            self._truncate(offset, now_ms)
        except OSError as exc:
            self._fail(exc)
        return self.log_end_offset

    def _truncate(self, offset: int, now_ms: int) -> None:
        """From the end to the front: a crash on the way leaves a log that was cut less far."""
        log, storage, paths = self._log, self._storage, self._log.paths
        sealed = log.sealed
        keep = max(0, sealed.find(offset))
        if keep < len(sealed) and offset < sealed.end_offset:
            number, base = sealed.first_number + keep, sealed.base_offsets[keep]
        else:
            segment = next(s for s in (*log.rotating, log.active) if offset < s.next_offset)
            number, base, keep = segment.number, segment.base_offset, len(sealed)
        path = paths.log(number)
        content = memoryview(read_file(storage, path))
        whole = scan(content, base, epochs=log.epochs)
        size = sum(
            found.header.size for found in whole.batches if found.header.next_offset <= offset
        )
        if whole.next_offset < offset:
            raise CorruptSegment(path, whole.valid_size, f"no valid batch before offset {offset}")
        last = max(log.active.number, log.ready.made)
        close_log(log, clean=False)
        # Without a checkpoint and without rows for what goes: the manifest must not vouch for it.
        rows = [
            row for row in log.manifest_rows() if row.kind != RowKind.SEGMENT or row.number < number
        ]
        replace_file(storage, paths.manifest, encode_manifest(now_ms, rows))
        # First, so that it never speaks of batches that other ones will replace.
        if storage.exists(paths.producers):
            storage.unlink(paths.producers)
            storage.fsync_dir(paths.folder)
        for gone in range(last, number, -1):
            for path in (paths.log(gone), paths.index(gone)):
                if storage.exists(path):
                    storage.unlink(path)
            storage.fsync_dir(paths.folder)
        file = storage.open(paths.log(number))
        try:
            file.truncate(size)
            file.fdatasync()
        finally:
            file.close()
        caches = log.files
        self._log = open_log(
            storage, paths, log.config, caches.files, caches.indexes, log.open_logs, now_ms=now_ms
        )

    def expire(self, before_ms: int, *, now_ms: int) -> int:
        """Delete sealed segments, oldest first, whose newest record is older; how many."""
        self._check_writable()
        log = self._log
        try:
            seal(log)
            sealed = log.sealed
            count = 0
            while count < len(sealed) and sealed.max_timestamps[count] < before_ms:
                count += 1
            if not count:
                return 0
            ends = sealed.ends()
            return drop_segments_before(log, ends[count - 1], now_ms)
        except OSError as exc:
            self._fail(exc)

    def close(self) -> None:
        """Sync and close; opening again is then cheap.  A second time does nothing."""
        try:
            close_log(self._log, clean=self._failure is None)
        except OSError as exc:
            self._fail(exc)

    def remove(self) -> None:
        """Close and delete the directory with everything in it."""
        close_log(self._log, clean=False)
        folder = self._log.paths.folder
        remove_tree(self._storage, folder)
        self._storage.fsync_dir(folder.rpartition("/")[0] or "/")

    def __enter__(self) -> "SegmentedLog":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._log.is_closed:
            raise LogClosed(self._log.paths.folder)

    def _check_writable(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise self._failure

    def _fail(self, exc: OSError) -> NoReturn:
        self._failure = PartitionReadOnly(self._log.paths.prefix, 0, exc)
        raise self._failure from exc

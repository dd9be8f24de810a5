"""The segmented log as a library: no broker, no threads, one caller.

    with SegmentedLog.open(PosixStorage(), "/var/lib/app/log", now_ms=now) as log:
        offset = log.append([b"one", b"two"], now_ms=now)
        for record in log.stream(offset):
            ...

The files are those of a broker's partition, with `name` in the place of `<topic>_partition_<N>`.
Class `fsync` (the default): an append returns when it is durable; class `disk`: when it is
written, and `sync` makes it durable.  Time is a parameter: nothing here looks at a clock.

`reserve` makes one caller the only writer and hides what it appends until it publishes it: the
ground that `streaming` stands on.

    ... visible to readers | appended under a reservation |
    ^ log_start_offset     ^ high_watermark               ^ log_end_offset

After a failed write or sync every further append raises PartitionReadOnly; opening again recovers.
A log is open once at a time, in one process: the file `LOCK` in its directory says so.  Where that
directory was moved, replaced or removed nothing is done to what its path leads to now, and what
would change files there fails.
Not thread-safe: one thread uses a log, or the caller locks.
"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NoReturn, TypeAlias

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import (
    GapReason,
    Record,
    check_batch,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
)

from ..disk.in_place import InPlaceStorage
from ..disk.storage import Buffer, Storage, StorageLock, make_root, remove_tree
from ..errors import (
    PASSING_ERRNOS,
    CorruptSegment,
    DiskFull,
    LogClosed,
    LogInUse,
    LogReserved,
    OffsetOutOfRange,
    PartitionDamaged,
    PartitionReadOnly,
    StorageError,
)
from ..log.caches import Caches, FileCache, IndexCache, OpenLogs
from ..log.deleting import compact_manifest, evict, unlink_doomed
from ..log.lookup import offset_for_timestamp
from ..log.partition_log import PartitionLog
from ..log.planning import read_all
from ..log.sealing import close_log, seal
from ..names import LogPaths
from ..recovery.mending import mend, segment_of
from ..recovery.opening import open_log
from ..recovery.truncating import truncate_log
from ..report import LogReport
from ..settings.timestamp_bounds import check_timestamps
from ..settings.topic_config import Durability, TopicConfig

Appendable: TypeAlias = Buffer | Sequence[bytes | None]

LOCK: Final = "LOCK"
"""The file that says who has the log open."""


class SegmentedLog:
    """One log in a directory of its own."""

    def __init__(self, storage: InPlaceStorage, opened: PartitionLog, lock: StorageLock) -> None:
        self._storage = storage
        self._lock = lock
        self._log = opened
        self._failure: PartitionReadOnly | None = None
        if opened.damage:
            self._failure = PartitionDamaged(opened.paths.prefix, 0, opened.damage)
        self._now_ms = 0
        self.report = LogReport()
        """What recovery and repairs did."""
        opened.on_damage = self._mend
        self._reservation: Reservation | None = None

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

        Raises LogInUse when it is open already, here or elsewhere, CorruptSegment, OSError.
        """
        make_root(storage, path)
        in_place = InPlaceStorage(storage, path)
        try:
            lock = in_place.held = storage.lock(f"{path}/{LOCK}")
        except BlockingIOError as exc:
            raise LogInUse(path) from exc
        try:
            opened = open_log(
                in_place,
                LogPaths(path, name),
                config or TopicConfig(),
                Caches(FileCache(64), IndexCache(16 << 20), OpenLogs()),
                now_ms=now_ms,
                report=(report := LogReport()),
            )
        except BaseException:
            lock.release()
            raise
        log = cls(in_place, opened, lock)
        log.report = report
        log._now_ms = now_ms
        return log

    @property
    def config(self) -> TopicConfig:
        return self._log.config

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset to be assigned."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The first offset that readers may not see yet; the end, unless the log is reserved."""
        held = self._reservation
        return self._log.log_end_offset if held is None else held.visible_end_offset

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
        Raises InvalidBatch, BatchTooLarge, PartitionReadOnly, LogReserved, LogClosed.
        """
        self._check_unreserved()
        offset = self._write(batch, now_ms, codec)
        self._sync_class()
        return offset

    def append_all(
        self, batches: Sequence[Appendable], *, now_ms: int, codec: Codec = Codec.NONE
    ) -> list[int]:
        """Append several batches with one sync for all of them; the first offset of each.

        When it raises, none of them counts as appended; some may be there, as after a crash.
        Raises as `append`.
        """
        self._check_unreserved()
        offsets = [self._write(batch, now_ms, codec) for batch in batches]
        self._sync_class()
        return offsets

    def _write(self, batch: Appendable, now_ms: int, codec: Codec) -> int:
        """Append without the sync that the class asks for."""
        self._check_writable()
        if isinstance(batch, (bytes, bytearray, memoryview)):
            view = memoryview(bytearray(batch))
        else:
            view = memoryview(bytearray(encode_batch(batch, timestamps_ms=now_ms, codec=codec)))
        header = check_batch(view)
        self._log.check_size(header.size)
        if self._log.config.bounds_timestamps:
            check_timestamps(self._log.config, view, header, now_ms)
        try:
            with self._log.append_lock:
                offset = self._log.write(view, header, now_ms)
        except OSError as exc:
            self._fail(exc, is_write=True)
        try:
            if self._log.rotating:
                seal(self._log)
        except OSError as exc:
            self._fail(exc)
        return offset

    def _sync_class(self) -> None:
        if self._log.config.durability is Durability.FSYNC:
            self.sync()

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
        self._check_readable(offset)
        return read_all(self._log, offset, max_bytes, self.high_watermark)

    def batches(self, start: int | None = None, end: int | None = None) -> Iterator[memoryview]:
        """The encoded batches with offsets in [start, end), control batches (gaps) included."""
        self._check_open()
        first = self.log_start_offset if start is None else start
        last = self.high_watermark if end is None else min(end, self.high_watermark)
        self._check_readable(first)
        return self._batches(first, last)

    def _batches(self, start: int, end: int) -> Iterator[memoryview]:
        # `self._log` anew for each read: a rollback meanwhile puts another in its place.
        while start < end:
            found = read_all(self._log, start, 1 << 20, end)
            if not len(found):
                return
            for batch in iter_batches(found):
                yield batch
                start = read_header(batch).next_offset

    def stream(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """The records with offsets in [start, end); to the end of the log as of now by default."""
        first = self.log_start_offset if start is None else start
        last = self.high_watermark if end is None else min(end, self.high_watermark)
        for batch in self.batches(first, last):
            if read_header(batch).is_control:
                continue
            for record in decode_batch(batch):
                if first <= record.offset < last:
                    yield record

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not older than this; None without one."""
        self._check_open()
        found = offset_for_timestamp(self._log, timestamp_ms)
        # The first one is not visible yet, so none is.
        return None if found is None or found[0] >= self.high_watermark else found

    def truncate(self, offset: int, *, now_ms: int) -> int:
        """Cut the end of the log: nothing at or past `offset` stays.  The new end.

        Cuts between batches: a batch that contains `offset` goes as a whole.  Durable when this
        returns.  Raises OffsetOutOfRange, LogReserved.
        """
        self._check_unreserved()
        log = self._log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
        if offset == log.log_end_offset:
            return offset
        try:
            self._log = truncate_log(log, offset, now_ms=now_ms)
        except OSError as exc:
            self._fail(exc)
        return self.log_end_offset

    def expire(self, before_ms: int, *, now_ms: int) -> int:
        """Delete sealed segments, oldest first, whose newest record is older; how many."""
        self._check_unreserved()
        log = self._log
        try:
            seal(log)
            count = log.sealed.count_older(before_ms)
            if count:
                evict(log, count, GapReason.TTL)
                unlink_doomed(log)
                compact_manifest(log, now_ms)
            return count
        except OSError as exc:
            self._fail(exc)

    def reserve(self) -> "Reservation":
        """Be the only writer until the reservation is released.  Raises LogReserved."""
        self._check_unreserved()
        self._reservation = Reservation(self)
        return self._reservation

    def close(self) -> None:
        """Sync and close; opening again is then cheap.  A second time does nothing.

        What a reservation has not published is rolled back first.
        """
        if self._reservation is not None:
            self._reservation.rollback()
        try:
            syncs = isinstance(self._failure, PartitionDamaged)
            close_log(self._log, clean=self._failure is None, syncs=syncs)
        except OSError as exc:
            self._fail(exc)
        finally:
            self._lock.release()

    def remove(self) -> None:
        """Close and delete the directory with everything in it."""
        folder = self._log.paths.folder
        try:
            close_log(self._log, clean=False)
            self._storage.listdir(folder)  # of another in its place nothing goes
            self._storage.held = None  # it goes as well
            remove_tree(self._storage, folder, last=LOCK)  # nobody opens what is half gone
        finally:
            self._lock.release()
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
            raise self._failure.with_traceback(None)  # else it grows each time

    def _check_unreserved(self) -> None:
        self._check_writable()
        if self._reservation is not None:
            raise LogReserved(self._log.paths.folder, self._reservation.base_offset)

    def _check_readable(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)

    def _mend(self, error: CorruptSegment) -> bool:
        """A read met damage: repair it as on.corruption says; whether to read again."""
        number = segment_of(self._log, error)
        if number is None or self._failure is not None:
            return False
        try:
            mended = mend(self._log, number, self._now_ms, self.report)
        except OSError:
            return False
        if mended is not None and mended.damage:
            self._failure = PartitionDamaged(self._log.paths.prefix, 0, mended.damage)
        return mended is None or mended.is_whole

    def _fail(self, exc: OSError, *, is_write: bool = False) -> NoReturn:
        kind = DiskFull if is_write and exc.errno in PASSING_ERRNOS else PartitionReadOnly
        self._failure = kind(self._log.paths.prefix, 0, exc)
        raise self._failure from exc


class Reservation:
    """The one writer of a log, from `SegmentedLog.reserve` until it is released.

    | state of the log | publish | rollback |
    |---|---|---|
    | sound | visible, durable in the class | truncated, durable |
    | a write failed for want of space | refused | truncated and opened again: sound |
    | any other write or sync failed | refused | nothing is written; hidden until it is closed |
    | closed | refused | was done by the close |

    Sealing goes on meanwhile, so a reservation costs no memory that grows with what it appends.
    """

    def __init__(self, log: SegmentedLog) -> None:
        self._owner = log
        self._now_ms = 0
        self.base_offset = log.log_end_offset
        self.visible_end_offset = log.log_end_offset

    @property
    def is_released(self) -> bool:
        return self._owner._reservation is not self

    @property
    def batch_size_max(self) -> int:
        """The largest batch that the log takes, in bytes."""
        return self._owner._log.config.max_message_bytes

    def append(self, batch: Appendable, *, now_ms: int, codec: Codec = Codec.NONE) -> int:
        """Append one batch that nobody sees yet; its first offset.  Raises as the log's does."""
        self._owner._check_open()
        assert not self.is_released, "a released reservation does not write"
        self._now_ms = now_ms
        return self._owner._write(batch, now_ms, codec)

    def publish(self) -> int:
        """Make what was appended durable in the log's class, then visible; up to which offset."""
        self._owner._check_open()
        assert not self.is_released, "a released reservation publishes nothing"
        self._owner._check_writable()
        self._owner._sync_class()
        self.visible_end_offset = self._owner.log_end_offset
        return self.visible_end_offset

    def rollback(self) -> bool:
        """Truncate to what was published, and release; whether nothing else is left."""
        owner = self._owner
        if self.is_released or owner._log.is_closed:
            return self.is_released
        failure = owner._failure
        if failure is not None and not isinstance(failure, DiskFull):
            return False
        if failure is not None or owner.log_end_offset > self.visible_end_offset:
            try:
                owner._log = truncate_log(owner._log, self.visible_end_offset, now_ms=self._now_ms)
            except (OSError, StorageError) as exc:
                owner._failure = PartitionReadOnly(owner._log.paths.prefix, 0, exc)
                return False
        owner._failure = None
        self.release()
        return True

    def release(self) -> None:
        """Let others write.  Everything has been published or rolled back."""
        assert self.visible_end_offset == self._owner.log_end_offset, "nothing is hidden"
        self._owner._reservation = None

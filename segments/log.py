"""SegmentedLog: one append-only log in rotating segment files.  Usable without a broker.

    with SegmentedLog.open(PosixStorage(), "/data/clicks", "clicks", now_ms=now) as log:
        log.append_records([b"one", b"two"], now_ms=now)
        for record in log.stream(0):
            ...

States of a segment and what may be done to its files:

| state | log file | index file |
|---|---|---|
| creating | made ahead under its final name, directory synced | - |
| active | pwrite at the end, pread, fdatasync | in memory |
| rotating | no more writes; fdatasync until one succeeded | in memory |
| sealed | pread only | written once, read; made anew if missing or wrong |
| deleted | unlinked; who has it open reads on | unlinked |

Invariants: offsets rise without a hole (a loss is a gap batch, which has its offsets); only the last
segment is active; a segment rolls before the write that would pass a limit; after the first failed
write or sync nothing is written or synced any more (`failed` says why) until the log is opened
anew, through recovery.

Threads: one thread (the loop) calls everything that changes the log.  Flushers run `sync_now`,
the housekeeper runs `_seal_rolled` and `_make_next`; what they learn comes back through
`call_soon`.  `_lock` guards the pair (unsynced files, active file) while either side takes a
picture of it; it is never held over I/O.  Reads work on copies (reads.py).
"""

import errno
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import (
    BatchHeader,
    GapReason,
    Record,
    check_batch,
    decode_batch,
    encode_batch,
    first_at_or_after,
    gap_batches,
    iter_batches,
    patch_batch,
    read_header,
)

from . import manifest, names, recovery
from .background import Background, InlineBackground
from .errors import (
    BatchTooLarge,
    CorruptSegment,
    DiskFull,
    LogClosed,
    OffsetOutOfRange,
    PartitionReadOnly,
    StorageError,
)
from .file_cache import FileCache
from .index import BadIndex, BlockIndex, IndexBuilder
from .index_cache import IndexCache
from .manifest import SealedSegment, SealedSegments
from .reads import ReadPlan, Source
from .recovery import Decision
from .storage import Storage, StorageFile, read_file, replace_file
from .topic_config import TopicConfig

_SPAN_MAX = 2**31 - 1
_READ_BYTES = 1024 * 1024
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


class _Segment:
    """A segment that is not sealed yet: the active one, or one that waits for its seal."""

    __slots__ = (
        "base_offset",
        "builder",
        "created_ms",
        "file",
        "max_timestamp",
        "next_offset",
        "number",
        "path",
        "records",
        "size",
        "synced",
    )

    def __init__(self, number: int, path: str, file: StorageFile, base_offset: int) -> None:
        self.number = number
        self.path = path
        self.file = file
        self.base_offset = self.next_offset = base_offset
        self.size = self.records = 0
        self.max_timestamp = -1
        self.created_ms = -1
        self.builder = IndexBuilder(base_offset, 0)
        self.synced = False

    def note(self, batch: bytes | bytearray | memoryview, header: BatchHeader, base: int) -> None:
        """Account for a batch that was written at the end."""
        if self.size == 0:
            # Age comes from the data: a restart must not make old records young.
            self.created_ms = self.builder.index.created_ms = header.max_timestamp
        self.builder.add(batch, base, header.records_count, header.max_timestamp)
        self.size += len(batch)
        self.records += header.records_count
        self.next_offset = base + header.last_offset_delta + 1
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp

    def row(self) -> SealedSegment:
        return SealedSegment(
            self.number,
            self.base_offset,
            self.next_offset,
            self.size,
            self.records,
            self.max_timestamp,
        )


class RecoveryReport:
    """What opening found and did, for the log and for people."""

    def __init__(self) -> None:
        self.scanned_segments = 0
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.gaps: list[tuple[int, int]] = []
        self.quarantined: list[str] = []

    @property
    def is_clean(self) -> bool:
        return not (self.cut_bytes or self.gaps or self.quarantined)


class SegmentedLog:
    """An append-only log of record batches; see the head of the module."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        stem: str,
        config: TopicConfig,
        *,
        background: Background,
        files: FileCache,
        indexes: IndexCache,
        leader_epoch: int,
    ) -> None:
        self.storage = storage
        self.folder = folder
        self.prefix = f"{folder}/{stem}"
        self.config = config
        self.leader_epoch = leader_epoch
        self.log_start_offset = 0
        self.synced_offset = 0
        """Everything below it has been synced (the recovery point)."""
        self.failed: PartitionReadOnly | None = None
        self.report = RecoveryReport()
        self.on_synced: Callable[[int], None] | None = None
        self.on_failed: Callable[[PartitionReadOnly], None] | None = None
        self.on_rolled: Callable[[int, int], None] | None = None
        self.on_sealed: Callable[[int], None] | None = None
        self._stem = stem
        self._background = background
        self._files = files
        self._indexes = indexes
        self._sealed = SealedSegments()
        self._rolled: deque[_Segment] = deque()
        self._active: _Segment
        self._next_number: int | None = None
        self._next_asked = False
        self._lock = threading.Lock()
        self._unsynced: deque[_Segment] = deque()
        self._closed = False
        self._manifest: StorageFile | None = None
        self._manifest_size = 0

    # ------------------------------------------------------------------ opening and closing

    @classmethod
    def open(
        cls,
        storage: Storage,
        folder: str,
        stem: str,
        config: TopicConfig | None = None,
        *,
        now_ms: int,
        background: Background | None = None,
        files: FileCache | None = None,
        indexes: IndexCache | None = None,
        leader_epoch: int = 0,
    ) -> "SegmentedLog":
        """Open a log, making it if there is none, and recover what a crash left.

        Args:
            folder: its directory; made when missing.
            stem: what its file names begin with.
            now_ms: the time now, for gaps that recovery has to write.
            background: where syncs and housekeeping run; by default here and now.

        Raises:
            CorruptSegment: segments overlap, which no crash does; nothing was changed.
            OSError: the disk failed.
        """
        log = cls(
            storage,
            folder,
            stem,
            config or TopicConfig(),
            background=background or InlineBackground(),
            files=files or FileCache(storage, 64),
            indexes=indexes or IndexCache(64),
            leader_epoch=leader_epoch,
        )
        log._recover(now_ms)
        return log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sync what is unsynced and let go of the files.  Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.failed is None:
                self.sync_now()
                self._seal_rolled()
        finally:
            for segment in (*self._rolled, self._active):
                segment.file.close()
                self._files.drop(segment.path)
            if self._manifest is not None:
                self._manifest.close()

    def remove(self) -> None:
        """Close and delete the log with all its files."""
        self._closed = True
        for segment in (*self._rolled, self._active):
            segment.file.close()
        if self._manifest is not None:
            self._manifest.close()
        remove_tree(self.storage, self.folder)

    # ------------------------------------------------------------------ what is there

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._active.next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segment files."""
        return self._sealed.total_size + sum(s.size for s in self._rolled) + self._active.size

    @property
    def segments_count(self) -> int:
        return len(self._sealed) + len(self._rolled) + 1

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp in ms; -1 in an empty log."""
        newest = max((s.max_timestamp for s in (*self._rolled, self._active)), default=-1)
        return max(newest, max(self._sealed.max_timestamps, default=-1))

    # ------------------------------------------------------------------ appending

    def append(self, batch: memoryview | bytearray, header: BatchHeader) -> int:
        """Append one checked batch in the caller's thread; its base offset.

        The batch is patched in place (base offset, leader epoch) and written to the page cache;
        `sync_soon` or `sync` makes it durable.  It is wholly there or not at all.

        Args:
            batch: exactly one batch, writable, already checked.
            header: its header.

        Raises:
            BatchTooLarge: before an offset is assigned.
            PartitionReadOnly, DiskFull: a write failed, now or earlier.
            LogClosed.
        """
        if self.failed is not None:
            raise self.failed
        if self._closed:
            raise LogClosed(self.folder)
        size = len(batch)
        if size > self.config.max_message_bytes:
            raise BatchTooLarge(size, self.config.max_message_bytes, "max.message.bytes")
        try:
            active = self._active
            if active.size and self._must_roll(active, size, header):
                active = self._roll()
            base = active.next_offset
            patch_batch(batch, base, self.leader_epoch)
            active.file.pwrite([batch], active.size)
        except OSError as error:
            raise self._fail(error) from error
        active.note(batch, header, base)
        if not self._next_asked and active.size * 2 > self.config.segment_bytes:
            self._next_asked = True
            number = active.number + 1
            self._background.housekeep_soon(lambda: self._make_next(number))
        return base

    def append_records(
        self,
        values: Sequence[bytes | None],
        *,
        now_ms: int,
        keys: Sequence[bytes | None] | None = None,
        timestamps_ms: int | Sequence[int] | None = None,
        codec: Codec = Codec.NONE,
    ) -> int:
        """Append records as one batch and sync it if the log is of class `fsync`.

        Returns:
            The offset of the first.
        """
        batch = bytearray(
            encode_batch(
                values,
                keys=keys,
                timestamps_ms=now_ms if timestamps_ms is None else timestamps_ms,
                codec=codec,
            )
        )
        base = self.append(batch, check_batch(batch))
        if self.config.durability.value == "fsync":
            self.sync()
        return base

    def _must_roll(self, active: _Segment, size: int, header: BatchHeader) -> bool:
        config = self.config
        return (
            active.size + size > config.segment_bytes
            or active.records + header.records_count > config.segment_records
            or active.builder.size + 64 > config.segment_index_bytes
            or active.next_offset + header.last_offset_delta - active.base_offset > _SPAN_MAX
        )

    def roll_if_old(self, now_ms: int) -> bool:
        """Close the active segment if its first record is older than segment.ms."""
        active = self._active
        if self.failed is not None or self._closed or not active.size:
            return False
        if now_ms - active.created_ms <= self.config.segment_ms:
            return False
        try:
            self._roll()
        except OSError as error:
            self._fail(error)
            return False
        return True

    def _roll(self) -> _Segment:
        old = self._active
        old.builder.close_block()
        number = old.number + 1
        path = names.log_path(self.prefix, number)
        if self._next_number == number:
            file = self.storage.open(path)
        else:
            file = self._create(path)
        self._next_number, self._next_asked = None, False
        new = _Segment(number, path, file, old.next_offset)
        with self._lock:
            self._rolled.append(old)
            self._unsynced.append(old)
            self._active = new
        if self.on_rolled is not None:
            self.on_rolled(old.number, old.next_offset)
        self.sync_soon()
        return new

    def _create(self, path: str) -> StorageFile:
        try:
            file = self.storage.open(path, create=True)
        except FileExistsError:
            file = self.storage.open(path)  # made ahead a moment ago, or before a crash
        self.storage.fsync_dir(self.folder)
        return file

    def _make_next(self, number: int) -> None:
        """Housekeeping: segment `number` exists under its final name before it is needed."""
        try:
            self._create(names.log_path(self.prefix, number)).close()
        except OSError:
            return  # the roll tries again and reports
        self._background.call_soon(lambda: self._next_made(number))

    def _next_made(self, number: int) -> None:
        if number == self._active.number + 1:
            self._next_number = number

    def _fail(self, error: OSError) -> PartitionReadOnly:
        """Poison the log: the first error is kept, and it is told once."""
        if self.failed is None:
            kind = DiskFull if error.errno in _NO_SPACE else PartitionReadOnly
            self.failed = kind(self._stem, error)
            if self.on_failed is not None:
                self.on_failed(self.failed)
        return self.failed

    # ------------------------------------------------------------------ syncing

    def sync_soon(self) -> None:
        """Ask for a sync of all that is written; `on_synced` tells when it is done."""
        self._background.sync_soon(self.sync_now)

    def sync(self) -> None:
        """Sync all that is written, here and now.  Raises PartitionReadOnly."""
        self.sync_now()
        if self.failed is not None:
            raise self.failed

    def sync_now(self) -> None:
        """The job of a flusher: old files before the new one, then the news to the loop."""
        if self.failed is not None:
            return
        with self._lock:
            target = self._active.next_offset
            rolled = list(self._unsynced)
            active = self._active if target > self.synced_offset else None
        try:
            for segment in rolled:
                segment.file.fdatasync()
                segment.synced = True
            if active is not None:
                active.file.fdatasync()
        except OSError as error:
            failure = error
            self._background.call_soon(lambda: self._sync_failed(failure))
            return
        with self._lock:
            for segment in rolled:
                self._unsynced.remove(segment)
        if rolled:
            self._background.housekeep_soon(self._seal_rolled)
        self._background.call_soon(lambda: self._synced(target))

    def _synced(self, target: int) -> None:
        if self.failed is None and target > self.synced_offset:
            self.synced_offset = target
            if self.on_synced is not None:
                self.on_synced(target)

    def _sync_failed(self, error: OSError) -> None:
        self._fail(error)

    # ------------------------------------------------------------------ sealing

    def _seal_rolled(self) -> None:
        """Housekeeping: index and manifest row of each segment that has rolled and was synced."""
        for segment in list(self._rolled):
            if not segment.synced or self.failed is not None:
                return
            try:
                self._write_index(segment.number, segment.builder.index)
                self._append_row(segment.row())
            except OSError:
                return  # both can be rebuilt; the segment stays in memory and is tried again
            self._background.call_soon(lambda s=segment: self._sealed_now(s))  # type: ignore[misc]

    def _sealed_now(self, segment: _Segment) -> None:
        if not self._rolled or self._rolled[0] is not segment:
            return  # sealed twice: close() and the housekeeper both found it
        self._indexes.put(segment.path, segment.builder.index)
        self._sealed.add(segment.row())
        self._rolled.popleft()
        segment.file.close()
        if self.on_sealed is not None:
            self.on_sealed(segment.next_offset)

    def _write_index(self, number: int, index: BlockIndex) -> None:
        path = names.index_path(self.prefix, number)
        try:
            file = self.storage.open(path, create=True)
        except FileExistsError:
            file = self.storage.open(path)
            file.truncate(0)
        try:
            file.pwrite([index.to_bytes()], 0)
        finally:
            file.close()

    def _append_row(self, row: SealedSegment) -> None:
        if self._manifest is None:
            self._write_manifest()
            self._manifest = self.storage.open(self._manifest_path)
            self._manifest_size = self._manifest.size()
        raw = manifest.encode_row(row)
        self._manifest.pwrite([raw], self._manifest_size)
        self._manifest_size += len(raw)

    @property
    def _manifest_path(self) -> str:
        return f"{self.prefix}.manifest"

    def _write_manifest(self) -> None:
        """The whole manifest anew, by temp and rename."""
        if self._manifest is not None:
            self._manifest.close()
            self._manifest = None
        sealed = self._sealed
        rows = b"".join(manifest.encode_row(sealed[n]) for n in range(len(sealed)))
        content = manifest.encode_header(self.log_start_offset, self.leader_epoch) + rows
        replace_file(self.storage, self._manifest_path, content)

    # ------------------------------------------------------------------ reading

    def plan_read(self, offset: int, max_bytes: int, up_to: int) -> ReadPlan | None:
        """Plan a read of whole batches from the one that contains `offset`; no I/O.

        Args:
            offset: within [log_start_offset, up_to].
            max_bytes: bound of the result, but the first batch always comes.
            up_to: first offset that must not be read.

        Returns:
            None at the end: there is nothing in [offset, up_to).

        Raises:
            OffsetOutOfRange.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= up_to:
            return None
        sources: list[Source] = []
        size = 0
        end = self.log_end_offset
        for source, next_offset in self._sources_from(offset):
            sources.append(source)
            size += source.size
            # The first may begin with much that is before the offset.
            if (size >= max_bytes and len(sources) > 1) or next_offset >= up_to:
                end = next_offset
                break
        return ReadPlan(self._files, sources, offset, max_bytes, up_to, all_visible=up_to >= end)

    def _sources_from(self, offset: int) -> Iterator[tuple[Source, int]]:
        """Segments from the one that contains `offset`, with the offset behind each."""
        sealed = self._sealed
        if offset < sealed.next_offset and len(sealed):
            first = bisect_right(sealed.base_offsets, offset) - 1
            for number in range(max(0, first), len(sealed)):
                row = sealed[number]
                path = names.log_path(self.prefix, row.segment)
                index = self._indexes.get(path)
                yield (
                    Source(path, row.base_offset, row.size, index, self._loader(row), None),
                    row.next_offset,
                )
        for segment in (*self._rolled, self._active):
            if segment.next_offset > offset:
                builder = segment.builder
                yield (
                    Source(
                        segment.path,
                        segment.base_offset,
                        segment.size,
                        builder.index,
                        None,
                        builder.pending(),
                    ),
                    segment.next_offset,
                )

    def _loader(self, row: SealedSegment) -> Callable[[], BlockIndex]:
        return lambda: self._load_index(row)

    def _load_index(self, row: SealedSegment) -> BlockIndex:
        """The index of a sealed segment: cached, read, or rebuilt from the log (in a lane)."""
        path = names.log_path(self.prefix, row.segment)
        if (index := self._indexes.get(path)) is not None:
            return index
        try:
            content = read_file(self.storage, names.index_path(self.prefix, row.segment))
            index = BlockIndex.from_bytes(content, base_offset=row.base_offset, log_size=row.size)
        except (FileNotFoundError, BadIndex):
            index = self._rebuild_index(row)
        self._indexes.put(path, index)
        return index

    def _rebuild_index(self, row: SealedSegment) -> BlockIndex:
        path = names.log_path(self.prefix, row.segment)
        file = self.storage.open(path, read_only=True)
        try:
            content = bytearray(file.size())
            file.pread(memoryview(content), 0)
            scanned = recovery.scan(file, base_offset=row.base_offset)
        finally:
            file.close()
        if scanned.valid_size != row.size or scanned.size != row.size:
            raise CorruptSegment(path, scanned.valid_size, scanned.fault or "has another size")
        created = scanned.batches[0].header.max_timestamp
        builder = IndexBuilder(row.base_offset, created)
        for found in scanned.batches:
            header = found.header
            raw = memoryview(content)[found.position : found.position + header.size]
            builder.add(raw, header.base_offset, header.records_count, header.max_timestamp)
        builder.close_block()
        try:
            self._write_index(row.segment, builder.index)
        except OSError:
            pass  # it stays rebuilt in memory; the next start tries again
        return builder.index

    def read(
        self, offset: int, max_bytes: int = _READ_BYTES, *, up_to: int | None = None
    ) -> list[bytes]:
        """Whole batches from the one that contains `offset`; empty at the end.  Blocking."""
        plan = self.plan_read(offset, max_bytes, self.log_end_offset if up_to is None else up_to)
        if plan is None:
            return []
        buffer = memoryview(bytearray(plan.size_max))
        size = plan.read(buffer)
        return [bytes(batch) for batch in iter_batches(buffer[:size])]

    def stream_batches(self, start: int, end: int | None = None) -> Iterator[bytes]:
        """Batches that hold offsets in [start, end); to the present end by default."""
        stop = self.log_end_offset if end is None else end
        offset = start
        while offset < stop:
            batches = self.read(offset, up_to=stop)
            if not batches:
                return
            for batch in batches:
                header = read_header(batch)
                if header.base_offset >= stop:
                    return
                yield batch
                offset = header.next_offset

    def stream(self, start: int, end: int | None = None) -> Iterator[Record]:
        """Records with offsets in [start, end); gaps and other control batches have none."""
        stop = self.log_end_offset if end is None else end
        for batch in self.stream_batches(start, end):
            if not read_header(batch).is_control:
                for record in decode_batch(batch).records():
                    if start <= record.offset < stop:
                        yield record

    def offset_for_timestamp(self, timestamp_ms: int, up_to: int) -> tuple[int, int] | None:
        """The first record below `up_to` at or after the time, with its timestamp.  Blocking."""
        for source, next_offset in self._sources_from(self.log_start_offset):
            if source.base_offset >= up_to:
                return None
            if self._newest_of(source) < timestamp_ms:
                continue
            index = source.index
            if index is None:
                assert source.load is not None
                index = source.load()
            number = index.find_time(timestamp_ms)
            if number < len(index):
                relative = index[number].relative_offset
            elif source.pending is not None:
                relative = source.pending.relative_offset
            else:
                continue
            start = max(self.log_start_offset, source.base_offset + relative)
            for batch in self.stream_batches(start, min(next_offset, up_to)):
                if read_header(batch).is_control:
                    continue
                found = first_at_or_after(batch, timestamp_ms)
                if found is not None and self.log_start_offset <= found[0] < up_to:
                    return found
        return None

    def _newest_of(self, source: Source) -> int:
        sealed = self._sealed
        number = bisect_right(sealed.base_offsets, source.base_offset) - 1
        if source.base_offset < sealed.next_offset and 0 <= number < len(sealed):
            return sealed.max_timestamps[number]
        for segment in (*self._rolled, self._active):
            if segment.base_offset == source.base_offset:
                return segment.max_timestamp
        return 2**63 - 1

    # ------------------------------------------------------------------ taking away

    def delete_before(self, offset: int) -> int:
        """Move the log start to `offset`: nothing below it is readable any more; the new start.

        Sealed segments that lie wholly below are removed.  A start that is already higher stays.

        Raises:
            OffsetOutOfRange: past the end.
        """
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return self.log_start_offset
        self._seal_rolled()
        old, kept = self._sealed, SealedSegments()
        gone: list[int] = []
        for number in range(len(old)):
            row = old[number]
            if row.next_offset <= offset and not kept:
                gone.append(row.segment)
            else:
                kept.add(row)
        if not len(kept):
            kept.next_offset = old.next_offset
        self.log_start_offset = offset
        self._sealed = kept
        # The new start is durable before anything is unlinked.
        self._write_manifest()
        for segment in gone:
            self._unlink_segment(segment)
        if gone:
            self.storage.fsync_dir(self.folder)
        return offset

    def truncate(self, offset: int) -> None:
        """Cut the end: `offset` becomes the log end offset.  It must begin a batch.

        Raises:
            OffsetOutOfRange: outside [log_start_offset, log_end_offset], or inside a batch.
        """
        start, end = self.log_start_offset, self.log_end_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        if offset == end:
            return
        first = read_header(self.read(offset, 1)[0])
        if first.base_offset != offset:
            raise OffsetOutOfRange(offset, first.base_offset, first.next_offset)
        self.sync()
        self._seal_rolled()
        sealed = self._sealed
        kept = SealedSegments()
        cut: SealedSegment | None = None
        for number in range(len(sealed)):
            row = sealed[number]
            if row.next_offset <= offset:
                kept.add(row)
            elif cut is None and row.base_offset < offset:
                cut = row
        last = self._active
        active_number = last.number if cut is None and offset > last.base_offset else None
        # Later segments go first, from the end: a crash between leaves a shorter log, not a hole.
        doomed = [last] if active_number is None else []
        for segment in doomed:
            segment.file.close()
            self._unlink_segment(segment.number)
        for number in range(len(sealed) - 1, len(kept) - 1, -1):
            row = sealed[number]
            if cut is None or row.segment != cut.segment:
                self._unlink_segment(row.segment)
        if self._next_number is not None:
            self._unlink_segment(self._next_number)
        self._next_number, self._next_asked = None, False
        self.storage.fsync_dir(self.folder)
        self._sealed = kept
        self._write_manifest()
        if active_number is None:
            number = cut.segment if cut else kept.next_segment if len(kept) else last.number
            path = names.log_path(self.prefix, number)
            file = self.storage.open(path) if cut else self._create(path)
            base = cut.base_offset if cut else offset
        else:
            number, path, file, base = last.number, last.path, last.file, last.base_offset
        self._files.drop(path)
        self._indexes.drop(path)
        scanned = recovery.scan(file, base_offset=base)
        batches = [found for found in scanned.batches if found.header.base_offset < offset]
        size = sum(found.header.size for found in batches)
        file.truncate(size)
        file.fdatasync()
        with self._lock:
            self._active = self._rebuilt(number, path, file, base, batches)
            self._unsynced.clear()
        self.synced_offset = self._active.next_offset

    def _unlink_segment(self, number: int) -> None:
        for path in (names.log_path(self.prefix, number), names.index_path(self.prefix, number)):
            self._files.drop(path)
            self._indexes.drop(path)
            try:
                self.storage.unlink(path)
            except FileNotFoundError:
                pass

    # ------------------------------------------------------------------ recovery

    def _recover(self, now_ms: int) -> None:
        storage = self.storage
        storage.makedirs(self.folder)
        numbers = self._read_manifest()
        next_offset: int | None = self._sealed.next_offset if len(self._sealed) else None
        segments: list[_Segment] = []
        for position, number in enumerate(numbers):
            path = names.log_path(self.prefix, number)
            file = storage.open(path)
            later = self._later_base(numbers[position + 1 :])
            scanned = recovery.scan(file, base_offset=next_offset)
            self.report.scanned_segments += 1
            self.report.scanned_bytes += scanned.size
            if next_offset is None and not scanned.batches and later is None:
                next_offset = 0
            file, batches = self._settle(file, scanned, next_offset, later, now_ms)
            if not batches:
                if number == numbers[-1] or later is None:
                    base = next_offset if next_offset is not None else 0
                    segments.append(_Segment(number, path, file, base))
                    next_offset = base
                    continue
                raise CorruptSegment(path, 0, "is empty, but a later segment is not")
            base = batches[0].header.base_offset
            if next_offset is not None and base != next_offset:
                raise CorruptSegment(path, 0, f"begins at {base}, expected {next_offset}")
            segment = self._rebuilt(number, path, file, base, batches)
            segments.append(segment)
            next_offset = segment.next_offset
        self._settle_active(segments, next_offset or 0)
        self.log_start_offset = min(
            max(self.log_start_offset, self._first_offset()), self.log_end_offset
        )

    def _first_offset(self) -> int:
        if len(self._sealed):
            return self._sealed.base_offsets[0]
        return self._rolled[0].base_offset if self._rolled else self._active.base_offset

    def _settle_active(self, segments: list[_Segment], next_offset: int) -> None:
        """Choose the active segment: the last one with batches, or the first empty one."""
        if not segments:
            number = self._sealed.next_segment
            path = names.log_path(self.prefix, number)
            segments.append(_Segment(number, path, self._create(path), next_offset))
        filled = [s for s in segments if s.size]
        active = filled[-1] if filled else segments[0]
        for segment in segments:
            if segment.number > active.number:
                segment.file.close()
                if segment.number == active.number + 1:
                    self._next_number, self._next_asked = segment.number, True
        for segment in filled[:-1]:
            # Recovery keeps nothing that is not synced before it is served.
            segment.builder.close_block()
            segment.file.fdatasync()
            segment.synced = True
            self._rolled.append(segment)
        active.file.fdatasync()
        self.storage.fsync_dir(self.folder)
        self._active = active
        self.synced_offset = active.next_offset
        self._seal_rolled()

    def _read_manifest(self) -> list[int]:
        """Load the sealed segments; the numbers of the segments behind them, in order."""
        storage = self.storage
        found: manifest.Manifest | None = None
        try:
            content = read_file(storage, self._manifest_path)
        except FileNotFoundError:
            content = b""
        if content:
            found = manifest.decode(content)
        if found is None:
            stem = self._stem
            numbers = [names.segment_number(stem, name) for name in storage.listdir(self.folder)]
            return sorted(n for n in numbers if n is not None)
        self.log_start_offset = found.log_start_offset
        self.leader_epoch = max(self.leader_epoch, found.leader_epoch)
        self._sealed = found.segments
        if found.valid_size != len(content):
            self._write_manifest()
        if not len(self._sealed):
            stem = self._stem
            listed = [names.segment_number(stem, name) for name in storage.listdir(self.folder)]
            return sorted(n for n in listed if n is not None)
        number = self._sealed.next_segment
        numbers_behind: list[int] = []
        while storage.exists(names.log_path(self.prefix, number)):
            numbers_behind.append(number)
            number += 1
        return numbers_behind

    def _later_base(self, numbers: Sequence[int]) -> int | None:
        """Base offset of the first batch in the segments `numbers`, if any holds one."""
        for number in numbers:
            file = self.storage.open(names.log_path(self.prefix, number), read_only=True)
            try:
                scanned = recovery.scan(file, base_offset=None)
            finally:
                file.close()
            found = scanned.batches or scanned.later
            if found:
                return found[0].header.base_offset
        return None

    def _settle(
        self,
        file: StorageFile,
        scanned: recovery.Scan,
        next_offset: int | None,
        later: int | None,
        now_ms: int,
    ) -> tuple[StorageFile, list[recovery.Found]]:
        """Do what recovery.decide says; the file to go on with and its good batches."""
        match recovery.decide(scanned, later_segment=later is not None):
            case Decision.KEEP:
                end = scanned.batches[-1].header.next_offset if scanned.batches else next_offset
                if later is None or end is None or later == end:
                    return file, scanned.batches
                if later < end:
                    raise CorruptSegment(file.path, 0, f"overlaps its successor at {later}")
                return self._repair(file, scanned, next_offset, later, now_ms)
            case Decision.CUT:
                self.report.cut_bytes += scanned.size - scanned.valid_size
                file.truncate(scanned.valid_size)
                file.fdatasync()
                return file, scanned.batches
            case Decision.REPAIR:
                return self._repair(file, scanned, next_offset, later, now_ms)

    def _repair(
        self,
        file: StorageFile,
        scanned: recovery.Scan,
        next_offset: int | None,
        later: int | None,
        now_ms: int,
    ) -> tuple[StorageFile, list[recovery.Found]]:
        """Prefix + gaps + suffix in a new file; the damaged original goes to quarantine/."""
        storage, path = self.storage, file.path
        content = bytearray(scanned.size)
        file.pread(memoryview(content), 0)
        file.close()
        parts: list[bytes] = []
        expected = next_offset

        def add_gap(to_offset: int) -> None:
            nonlocal expected
            start = expected if expected is not None else 0
            if to_offset > start:
                parts.extend(
                    gap_batches(start, to_offset, GapReason.CORRUPTION, now_ms, self.leader_epoch)
                )
                self.report.gaps.append((start, to_offset))
            expected = to_offset

        for found in (*scanned.batches, *scanned.later):
            header = found.header
            if expected is not None or found.position:
                add_gap(header.base_offset)
            parts.append(bytes(content[found.position : found.position + header.size]))
            expected = header.next_offset
        if later is not None and (expected or 0) < later:
            add_gap(later)
        quarantine = f"{self.folder}/{names.QUARANTINE}"
        storage.makedirs(quarantine)
        kept = f"{quarantine}/{path.rpartition('/')[2]}.{now_ms}"
        replace_file(storage, kept, content)
        self.report.quarantined.append(kept)
        replace_file(storage, path, b"".join(parts))
        self._files.drop(path)
        repaired = storage.open(path)
        return repaired, recovery.scan(repaired, base_offset=None).batches

    def _rebuilt(
        self,
        number: int,
        path: str,
        file: StorageFile,
        base: int,
        batches: list[recovery.Found],
    ) -> _Segment:
        """A segment in memory as if its batches had just been appended."""
        segment = _Segment(number, path, file, base)
        size = sum(found.header.size for found in batches)
        content = bytearray(size)
        file.pread(memoryview(content), 0)
        for found in batches:
            raw = memoryview(content)[found.position : found.position + found.header.size]
            segment.note(raw, found.header, found.header.base_offset)
        return segment

    def headers_from(self, offset: int) -> Iterator[BatchHeader]:
        """Headers of the batches at or behind `offset`, to replay producer state.  Blocking."""
        for batch in self.stream_batches(max(offset, self.log_start_offset)):
            header = read_header(batch)
            if header.base_offset >= offset:
                yield header

    def check_open(self) -> None:
        """Raise if the log cannot be written."""
        if self._closed:
            raise LogClosed(self.folder)
        if self.failed is not None:
            raise self.failed


def remove_tree(storage: Storage, folder: str) -> None:
    """Remove a directory of ours with everything in it, leaves first."""
    for name in storage.listdir(folder):
        path = f"{folder}/{name}"
        try:
            storage.unlink(path)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.EPERM):
                raise
            remove_tree(storage, path)
    storage.rmdir(folder)
    storage.fsync_dir(folder.rpartition("/")[0] or "/")


__all__ = ["RecoveryReport", "SegmentedLog", "StorageError", "remove_tree"]

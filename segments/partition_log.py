"""The log of one partition: segments, their order, and the writes; no waiting, no visibility.

    sealed 0 | sealed 1 | sealed 2 | rotating 3 | active 4 | (5, made ahead, empty)
    columns, on disk               | ActiveSegments        | `prepared`
    ^ log_start_offset                        ^ recovery_point   ^ log_end_offset

write      one batch to the active segment, one pwrite; rolls before the write that would not fit
roll       the active segment becomes rotating, the prepared file becomes active: no I/O
           (when none is ready: one file is made, unsynced; the next sync syncs its name)
prepare    make k+1 under its final name and sync the directory          } by whoever
sync       fdatasync what is not synced, older segments before newer     } keeps house
seal       sync, write the index, append the manifest row, save producers }

Who may do what, and which lock protects it:

| lock | protects | held over |
|---|---|---|
| append_lock | the one writer: offset assignment, producers, rolls | a pwrite, never a sync |
| _state_lock | which segment is where, pins, `prepared`, offsets | nothing: a few assignments |
| _sync_lock | syncing, sealing, the manifest: one at a time | syncs; nobody who appends or reads |

Order where nested: _sync_lock, append_lock, _state_lock.

Invariants: offsets rise without a hole over all segments; a manifest row is written after what it
says was synced; after the first failed write or sync nothing more is written or synced here.
"""

import threading
from collections.abc import Iterator
from typing import Final

from segbroker.protocol.batch_pure import HEADER_SIZE, LENGTH_END
from segbroker.protocol.record_batch import (
    BatchHeader,
    first_at_or_after,
    iter_batches,
    patch_batch,
    read_header,
    set_log_append_time,
)

from .errors import BatchTooLarge, CorruptSegment, OffsetOutOfRange, StorageError
from .index import ENTRY_SIZE
from .manifest import Row, RowKind, encode_manifest
from .names import LogPaths
from .producers import ProducerTable
from .reading import ActivePiece, Piece, ReadPlan, SealedPiece
from .sealed import SealedFiles
from .segment import OFFSET_SPAN_MAX, ActiveSegment, SealedSegments
from .storage import Storage, StorageFile, read_file, replace_file, write_all
from .topic_config import TimestampType, TopicConfig

PIECES_MAX: Final = 64
"""Segments that one read may span."""


class PartitionLog:
    """One open log.  Made by `opening.open_log`."""

    def __init__(
        self,
        storage: Storage,
        paths: LogPaths,
        config: TopicConfig,
        files: SealedFiles,
        *,
        sealed: SealedSegments,
        unsealed: list[ActiveSegment],
        log_start_offset: int,
        epochs: list[tuple[int, int]],
        producers: ProducerTable,
        manifest_size: int,
    ) -> None:
        self.storage = storage
        self.paths = paths
        self.config = config
        self.files = files
        self.sealed = sealed
        self.rotating = unsealed[:-1]
        self.active = unsealed[-1]
        self.prepared: tuple[int, StorageFile] | None = None
        self.log_start_offset = log_start_offset
        self.recovery_point = self.active.next_offset
        self.epochs = epochs
        self.producers = producers
        self.append_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._manifest_size = manifest_size
        self._stamps_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        self.is_closed = False

    # What it is

    @property
    def log_end_offset(self) -> int:
        """The next offset to be assigned."""
        return self.active.next_offset

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][0]

    @property
    def size_bytes(self) -> int:
        """Bytes of all log files; without a lock, so it may be a roll behind."""
        unsealed = sum(segment.size for segment in (*self.rotating, self.active))
        return self.sealed.total_size + unsealed

    @property
    def segments_count(self) -> int:
        return len(self.sealed) + len(self.rotating) + 1

    @property
    def has_unsynced(self) -> bool:
        return self.recovery_point < self.active.next_offset

    @property
    def wants_prepare(self) -> bool:
        """Whether the active segment is half full and nothing is ready behind it."""
        return self.prepared is None and self.active.size * 2 >= self.config.segment_bytes

    def reconfigure(self, config: TopicConfig) -> None:
        """Use other settings from the next batch on."""
        with self.append_lock:
            self.config = config
            self._stamps_append_time = (
                config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
            )

    # Writing

    def check_size(self, size: int) -> None:
        """Raises BatchTooLarge; before anything else is done with a batch."""
        config = self.config
        if size > config.max_message_bytes:
            setting = "max.message.bytes"
            if config.max_message_bytes == config.segment_bytes:
                setting = "max.message.bytes (segment.bytes)"
            raise BatchTooLarge(size, config.max_message_bytes, setting)

    def write(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Append one batch (writable, whole, checked); its base offset.

        The caller holds append_lock and has called check_size.  Raises OSError, after which the
        caller writes nothing more to this log.
        """
        segment = self.active
        size = len(batch)
        if segment.size and self._is_full(segment, size, header, now_ms):
            self.roll(now_ms)
            segment = self.active
        base_offset = segment.next_offset
        patch_batch(batch, base_offset, self.epochs[-1][0])
        max_timestamp = header.max_timestamp
        if self._stamps_append_time:
            set_log_append_time(batch, now_ms)
            max_timestamp = now_ms
        write_all(segment.file, batch, segment.size)
        if not segment.size:
            segment.first_ms = now_ms
        segment.add(
            batch,
            base_offset,
            base_offset + header.last_offset_delta + 1,
            header.records_count,
            max_timestamp,
        )
        return base_offset

    def _is_full(self, segment: ActiveSegment, size: int, header: BatchHeader, now_ms: int) -> bool:
        config = self.config
        return (
            segment.size + size > config.segment_bytes
            or segment.records + header.records_count > config.segment_records
            or segment.builder.index_size + ENTRY_SIZE > config.segment_index_bytes
            or now_ms - segment.first_ms >= config.segment_ms
            or segment.next_offset + header.last_offset_delta - segment.base_offset
            > OFFSET_SPAN_MAX
        )

    def roll(self, now_ms: int) -> None:
        """Go on in the next segment.  The caller holds append_lock.  Raises OSError."""
        old = self.active
        number = old.number + 1
        with self._state_lock:
            prepared, self.prepared = self.prepared, None
        if prepared is not None and prepared[0] == number:
            file = prepared[1]
        else:
            file = self.storage.open(self.paths.log(number), create=True)
        active = ActiveSegment(
            number,
            old.next_offset,
            file,
            interval=self.config.index_interval_bytes,
            created_ms=now_ms,
            leader_epoch=self.leader_epoch,
            name_is_durable=prepared is not None,
        )
        old.producers_after = self.producers.copy()
        with self._state_lock:
            self.rotating = [*self.rotating, old]
            self.active = active

    def maybe_roll_by_age(self, now_ms: int) -> bool:
        """Roll an idle segment whose first batch is older than segment.ms."""
        with self.append_lock:
            segment = self.active
            if not segment.size or now_ms - segment.first_ms < self.config.segment_ms:
                return False
            self.roll(now_ms)
            return True

    # Keeping house

    def prepare(self) -> None:
        """Make the next segment's file, its name durable, if none is ready.  Raises OSError."""
        with self._state_lock:
            number = self.active.number + 1
            if self.prepared is not None or self.is_closed:
                return
        # A roll may make the same file meanwhile: neither empties it, and one handle is closed.
        file = self.storage.open(self.paths.log(number), create=True)
        try:
            self.storage.fsync_dir(self.paths.folder)
            with self._state_lock:
                if self.prepared is None and self.active.number + 1 == number:
                    self.prepared = (number, file)
                    return
        except OSError:
            file.close()
            raise
        file.close()

    def sync(self) -> int:
        """Make everything written so far durable; the offset below which it is.

        Raises OSError, after which the caller syncs nothing more of this log.
        """
        with self._sync_lock:
            return self._sync()

    def _sync(self) -> int:
        with self._state_lock:
            if self.is_closed:
                return self.recovery_point
            segments = [*self.rotating, self.active]
            # The offset first: a batch is accounted for after its bytes were written.
            todo = [(segment, segment.next_offset, segment.size) for segment in segments]
        for segment, next_offset, size in todo:
            if segment.synced_size < size:
                if not segment.name_is_durable:
                    self.storage.fsync_dir(self.paths.folder)
                    segment.name_is_durable = True
                segment.file.fdatasync()
                segment.synced_size = size
            self.recovery_point = max(self.recovery_point, next_offset)
        return self.recovery_point

    def seal(self) -> int:
        """Seal every rotating segment; how many.  Raises OSError, as `sync`."""
        count = 0
        with self._sync_lock:
            while self.rotating:
                self._seal(self.rotating[0])
                count += 1
        return count

    def _seal(self, segment: ActiveSegment) -> None:
        self._sync()
        index = segment.builder.finish(segment.created_ms)
        assert index.log_size == segment.size, "the blocks cover the segment"
        file = self.storage.open(self.paths.index(segment.number), create=True)
        try:
            file.truncate(0)
            write_all(file, index.encode(), 0)
            file.fdatasync()
        finally:
            file.close()
        self.files.indexes.put((self.paths.folder, segment.number), index)
        row = segment.row(max((block.length for block in index.blocks), default=0))
        self._append_row(row)
        if segment.producers_after is not None:
            self._save_producers(segment.producers_after, segment.next_offset)
            segment.producers_after = None
        with self._state_lock:
            self.sealed.add(row)
            self.rotating = self.rotating[1:]
            segment.retired = True
            close = not segment.pins
        if close:
            segment.file.close()

    def checkpoint(self) -> None:
        """Sync, save the producers and note how far everything is durable.  Raises OSError."""
        with self._sync_lock:
            with self.append_lock:
                producers, end_offset = self.producers.copy(), self.log_end_offset
                number, size = self.active.number, self.active.size
            self._sync()
            self._save_producers(producers, end_offset)
            self._append_row(
                Row(RowKind.CHECKPOINT, number=number, end_offset=end_offset, size=size),
                sync=True,
            )

    def _save_producers(self, producers: ProducerTable, end_offset: int) -> None:
        replace_file(self.storage, self.paths.producers, producers.encode(end_offset))

    def _append_row(self, row: Row, *, sync: bool = False) -> None:
        file = self.storage.open(self.paths.manifest)
        try:
            encoded = row.encode()
            write_all(file, encoded, self._manifest_size)
            if sync:
                file.fdatasync()
        finally:
            file.close()
        self._manifest_size += len(encoded)

    # Reading

    def plan_read(self, offset: int, max_bytes: int, up_to: int) -> ReadPlan | None:
        """What to read from `offset` on, below `up_to`; None when there is nothing yet.

        No I/O.  Raises OffsetOutOfRange.
        """
        if not self.log_start_offset <= offset <= self.active.next_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.active.next_offset)
        if offset >= up_to:
            return None
        pieces: list[Piece] = []
        pinned: list[ActiveSegment] = []
        room = max(1, max_bytes)
        with self._state_lock:
            if self.is_closed:
                raise StorageError(f"{self.paths.folder} is closed")
            while offset < up_to and room > 0 and len(pieces) < PIECES_MAX:
                if offset < self.sealed.end_offset:
                    following = self._plan_sealed(pieces, offset, room, up_to)
                else:
                    following = self._plan_active(pieces, pinned, offset, room, up_to)
                if following is None:
                    break
                room -= pieces[-1].size_max
                offset = following
            for segment in pinned:
                segment.pins += 1
        if not pieces:
            return None
        return ReadPlan(pieces, lambda: self._unpin(pinned))

    def _plan_sealed(self, pieces: list[Piece], offset: int, room: int, up_to: int) -> int | None:
        """Add a piece of a sealed segment; the offset to go on at, None to stop."""
        sealed = self.sealed
        place = sealed.find(offset)
        last = place + 1 == len(sealed)
        end_offset = sealed.end_offset if last else sealed.base_offsets[place + 1]
        piece = SealedPiece(
            self.files,
            sealed.first_number + place,
            base_offset=sealed.base_offsets[place],
            end_offset=end_offset,
            size=sealed.sizes[place],
            block_size_max=sealed.block_size_maxes[place],
            offset=offset,
            max_bytes=room,
            up_to=up_to,
        )
        if pieces and (not piece.is_loaded or piece.size_max > room):
            return None
        pieces.append(piece)
        return end_offset if piece.is_whole and piece.size_max <= room else None

    def _plan_active(
        self,
        pieces: list[Piece],
        pinned: list[ActiveSegment],
        offset: int,
        room: int,
        up_to: int,
    ) -> int | None:
        """Add a piece of a segment that is not sealed; where to go on, None to stop."""
        for segment in (*self.rotating, self.active):
            if offset < segment.next_offset:
                break
        else:
            return None
        first = segment.find(offset)
        limit = segment.ordinal_before(up_to)
        begin = segment.position_of(first)
        last = limit
        if segment.position_of(limit) - begin > room:
            last = _last_within(segment, first, limit, begin + room)
            if last == first:
                if pieces:
                    return None
                last = first + 1
        if last <= first:
            return None
        piece = ActivePiece(segment, first, last)
        pieces.append(piece)
        pinned.append(segment)
        whole = last == len(segment.offsets) and segment is not self.active
        return segment.next_offset if whole and piece.size_max <= room else None

    def _unpin(self, segments: list[ActiveSegment]) -> None:
        closing = []
        with self._state_lock:
            for segment in segments:
                segment.pins -= 1
                if segment.retired and not segment.pins:
                    closing.append(segment.file)
        for file in closing:
            file.close()

    def read_all(self, offset: int, max_bytes: int, up_to: int | None = None) -> memoryview:
        """Whole batches from `offset` on: plan, read and release.  Blocking; may be empty."""
        end = self.log_end_offset if up_to is None else up_to
        plan = self.plan_read(offset, max_bytes, end)
        if plan is None:
            return memoryview(b"")
        try:
            buffer = memoryview(bytearray(plan.size_max))
            return buffer[: plan.read(buffer)]
        finally:
            plan.release()

    def batches(self, start: int, end: int) -> Iterator[memoryview]:
        """Every batch that has offsets in [start, end), verified; blocking."""
        while start < end:
            found = self.read_all(start, 1 << 20, end)
            if not len(found):
                return
            for batch in iter_batches(found):
                yield batch
                start = read_header(batch).next_offset

    # Looking up

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not older, or None.  Blocking."""
        offset = self._first_offset_by_time(timestamp_ms)
        if offset is None:
            return None
        start = max(offset, self.log_start_offset)
        for batch in self.batches(start, self.log_end_offset):
            if read_header(batch).max_timestamp < timestamp_ms:
                continue
            found = first_at_or_after(batch, timestamp_ms)
            if found is not None and found[0] >= self.log_start_offset:
                return found
        return None

    def _first_offset_by_time(self, timestamp_ms: int) -> int | None:
        """An offset at or before the record looked for, close to it."""
        with self._state_lock:
            place = self.sealed.find_time(timestamp_ms)
            if place < len(self.sealed):
                number = self.sealed.first_number + place
                base_offset, size = self.sealed.base_offsets[place], self.sealed.sizes[place]
            else:
                for segment in (*self.rotating, self.active):
                    if segment.max_timestamp >= timestamp_ms:
                        return segment.base_offset
                return None
        index = self.files.index(number, base_offset, size)
        ordinal = index.block_by_time(timestamp_ms)
        return base_offset + (index.offsets[ordinal] if ordinal < len(index.blocks) else 0)

    def greatest_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the greatest timestamp.  Blocking."""
        with self._state_lock:
            sealed = self.sealed.running_max_timestamps
            greatest = max(
                [segment.max_timestamp for segment in (*self.rotating, self.active)],
                default=-1,
            )
            if sealed:
                greatest = max(greatest, sealed[-1])
        return None if greatest < 0 else self.offset_for_timestamp(greatest)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not above this one, and the offset where it ends.

        (-1, -1) for an epoch that has not begun, as in Kafka.
        """
        if epoch > self.leader_epoch or epoch < 0:
            return -1, -1
        known = -1
        for candidate, start in self.epochs:
            if candidate > epoch:
                return (known, start) if known >= 0 else (epoch, start)
            known = candidate
        return known, self.log_end_offset

    # Deleting

    def delete_records_before(self, offset: int) -> int:
        """Let the log begin at `offset`; durable when this returns.  Blocking.

        Raises OffsetOutOfRange, OSError.
        """
        if offset > self.log_end_offset or offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset > self.log_start_offset:
            with self._sync_lock:
                self._append_row(
                    Row(RowKind.START, number=self.sealed.first_number, base_offset=offset),
                    sync=True,
                )
            self.log_start_offset = offset
        return self.log_start_offset

    def drop_segments_before(self, offset: int, now_ms: int) -> int:
        """Unlink sealed segments that lie wholly below `offset`; how many.

        Readers that pinned one finish their read.  Raises OSError.
        """
        with self._sync_lock:
            sealed = self.sealed
            ends = [*sealed.base_offsets[1:], sealed.end_offset] if len(sealed) else []
            count = sum(end <= offset for end in ends)
            if not count:
                return 0
            first = sealed.first_number
            start = max(self.log_start_offset, ends[count - 1])
            self._append_row(Row(RowKind.START, number=first + count, base_offset=start), sync=True)
            with self._state_lock:
                sealed.drop_front(count)
                self.log_start_offset = start
            self._unlink(range(first, first + count))
            self._rewrite_manifest(now_ms)
        return count

    def _unlink(self, numbers: range) -> None:
        folder = self.paths.folder
        self.files.files.drop(folder, numbers)
        self.files.indexes.drop(folder, numbers)
        for number in numbers:
            for path in (self.paths.log(number), self.paths.index(number)):
                if self.storage.exists(path):
                    self.storage.unlink(path)
        self.storage.fsync_dir(folder)

    def _rewrite_manifest(self, now_ms: int) -> None:
        """Leave the history out; the caller holds _sync_lock."""
        rows = self.manifest_rows()
        encoded = encode_manifest(now_ms, rows)
        replace_file(self.storage, self.paths.manifest, encoded)
        self._manifest_size = len(encoded)

    def manifest_rows(self) -> list[Row]:
        """The manifest without history."""
        rows = [
            Row(RowKind.EPOCH, leader_epoch=epoch, base_offset=start)
            for epoch, start in self.epochs
        ]
        start = Row(
            RowKind.START, number=self.sealed.first_number, base_offset=self.log_start_offset
        )
        return [*rows, start, *self.sealed.rows()]

    # Ending

    def close(self, *, checkpoint: bool = True) -> None:
        """Sync and close; `checkpoint` False when nothing may be written any more."""
        if self.is_closed:
            return
        try:
            if checkpoint:
                self.seal()
                self.checkpoint()
        finally:
            with self._sync_lock, self.append_lock:
                with self._state_lock:
                    self.is_closed = True
                    prepared, self.prepared = self.prepared, None
                    closing = []
                    for segment in (*self.rotating, self.active):
                        segment.retired = True
                        if not segment.pins:
                            closing.append(segment.file)
                if prepared is not None:
                    prepared[1].close()
                for file in closing:
                    file.close()
                self.files.files.drop(self.paths.folder)
                self.files.indexes.drop(self.paths.folder)


def _last_within(segment: ActiveSegment, first: int, limit: int, position: int) -> int:
    """The ordinal up to which batches end at or before `position`."""
    low, high = first, limit
    while low < high:
        middle = (low + high + 1) // 2
        if segment.position_of(middle) <= position:
            low = middle
        else:
            high = middle - 1
    return low


def headers_of(storage: Storage, path: str) -> Iterator[BatchHeader]:
    """The batch headers of a log file, unchecked; for replaying producers."""
    data = read_file(storage, path)
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if header.batch_length < HEADER_SIZE - LENGTH_END:
            raise CorruptSegment(path, position, f"batch length {header.batch_length}")
        yield header
        position += header.size

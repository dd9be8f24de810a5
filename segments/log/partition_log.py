"""The log of one partition: segments, their order, and the writes; no waiting, no visibility.

    sealed 0 | sealed 1 | sealed 2 | rotating 3 | active 4 | (5, 6 made ahead, empty)
    columns, on disk               | ActiveSegments        | ReadySegments
    ^ log_start_offset                        ^ recovery_point   ^ log_end_offset

write      one batch to the active segment, one pwrite; rolls before the write that would not fit
roll       the active segment becomes rotating, the one made ahead becomes active: no I/O
           (if none is ready, see ready.py)
sync       fdatasync of what is not synced, older segments before newer ones
park       close the descriptors of a log that is not in use
the rest   sealing.py, planning.py, lookup.py, deleting.py

Who may do what, and which lock protects it:

| lock | protects | held over |
|---|---|---|
| seal_lock | sealing, deleting, the manifest: one at a time | all their I/O |
| sync_lock | syncing: one at a time | syncs |
| append_lock | the one writer: offset assignment, producers, the WAL, rolls | a pwrite, no sync |
| state_lock | which segment is where, pins, descriptors | nothing: a few assignments |

Nested locks are taken in this order.  Appends and reads wait only for the last two.

Invariants: offsets rise without a hole over all segments; a manifest row is written only after the
file that it describes was synced; after the first failed write or sync nothing more is written or
synced here.
"""

import errno
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain

from segbroker.protocol.record_batch import BatchHeader, patch_batch, set_log_append_time

from ..disk.file_size import file_size_max
from ..disk.relieving import NoDescriptor
from ..disk.storage import Storage, StorageFile, close_all, write_all
from ..errors import BatchTooLarge, CorruptSegment
from ..files.clean_points import CleanPoints
from ..files.index import ENTRY_SIZE, OFFSET_SPAN_MAX
from ..files.manifest import Floor, Row, RowKind, start_row
from ..files.manifest_file import ManifestFile
from ..files.unsynced import mark_unsynced
from ..names import LogPaths
from ..settings.topic_config import TopicConfig
from .caches import OpenLogs
from .columns import SealedSegments
from .log_storage import LogStorage
from .producers import ProducerTable
from .ready import AHEAD_MAX, ReadySegments
from .sealed import SealedFiles
from .segment import ActiveSegment


def _away(segment: ActiveSegment) -> OSError:
    text = "its file was removed, replaced or cut under the broker"
    return OSError(errno.ENOENT, text, segment.path)


def _opened(segment: ActiveSegment) -> StorageFile:
    """The file of one that is written or synced.  Raises OSError."""
    try:
        return segment.opened()
    except CorruptSegment as exc:
        raise _away(segment) from exc


class PartitionLog:
    """One open log.  Made by `opening.open_log`."""

    __slots__ = (
        "_batch_bytes_max",
        "_full_count",
        "active",
        "append_lock",
        "checkpointed",
        "cleaned",
        "config",
        "damage",
        "doomed",
        "epochs",
        "failed",
        "files",
        "floor",
        "is_closed",
        "is_half_known",
        "is_superseded",
        "is_unmarked",
        "log_start_offset",
        "manifest",
        "on_damage",
        "open_logs",
        "paths",
        "producers",
        "producers_saved",
        "ready",
        "recently_used",
        "recovery_point",
        "rotating",
        "seal_lock",
        "sealed",
        "segment_bytes",
        "segments_since_snapshot",
        "state_lock",
        "storage",
        "stuck",
        "swap_failed",
        "sync_failed",
        "sync_lock",
    )

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
        manifest_size: int,
        manifest_is_durable: bool,
        open_logs: OpenLogs,
        made: int,
        floor: Floor,
        cleaned: CleanPoints,
    ) -> None:
        """made: the highest number of an empty segment whose name is durable."""
        self.storage = LogStorage(storage, paths.folder, self._doubt_names)
        self.paths = paths
        self._configure(config)
        self.files = files
        self.sealed = sealed
        self.rotating = unsealed[:-1]
        self.active = unsealed[-1]
        ahead_max = 1 if open_logs.are_few else AHEAD_MAX
        self.ready = ReadySegments(self.storage, paths, made, ahead_max=ahead_max)
        self.manifest = ManifestFile(
            self.storage,
            paths,
            manifest_size,
            self.storage.replace_file,
            is_durable=manifest_is_durable,
        )
        self.open_logs = open_logs
        self._full_count = 0
        self._count_full(len(self.rotating))
        self.log_start_offset = log_start_offset
        self.floor = floor
        """At or below the log start; neither goes back."""
        self.cleaned = cleaned
        """How far it has been cleaned; replaced under seal_lock."""
        self.doomed: list[int] = []
        """Numbers of segments that are out of the log and whose files are still to be unlinked."""
        self.stuck: list[int] = []
        """Those that could not be, when it was tried."""
        self.recovery_point = self.active.next_offset
        self.epochs = epochs
        self.producers = ProducerTable()
        self.segments_since_snapshot = 0
        self.producers_saved = -1
        """The end offset of the newest snapshot of the producers; -1 without one."""
        self.checkpointed = -1
        """The end offset that the last row of the manifest vouches for; -1: there is none."""
        self.recently_used = True
        self.damage = ""
        """Why an operator has to look first (on.corruption); empty: none has to."""
        self.on_damage: Callable[[CorruptSegment], bool] | None = None
        """Called by a read that met damage, in its lane; whether the segment is whole now."""
        self.seal_lock = threading.Lock()
        self.sync_lock = threading.Lock()
        self.append_lock = threading.Lock()
        self.state_lock = threading.Lock()
        self.is_closed = False
        self.failed: OSError | None = None
        """The first failed write or sync.  The kernel may have dropped what it was to write, and
        says so once: a second sync would succeed over it, so there is none."""
        self.sync_failed = False
        self.is_unmarked = False
        """Whether a sync failed, and the disk has not taken the mark that says so."""
        self.is_half_known = False
        """Whether an append ended between its write and what is known of its producer."""
        self.swap_failed = False
        """Whether a cleaned segment has not got its name for certain: an opening gives it, by the
        row of the manifest that decided it, which no other manifest has."""
        self.is_superseded = False
        """Whether another one was opened on the same files: nothing is changed in them from here
        any more.  Changes under seal_lock."""

    # What it is

    @property
    def log_end_offset(self) -> int:
        """The next offset to be assigned."""
        return self.active.next_offset

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][0]

    @property
    def first_base_offset(self) -> int:
        """Where the first segment begins: at or below the log start; without a lock."""
        first = self.sealed.base_offsets[:1]  # at once: retention may drop it meanwhile
        return first[0] if first else (*self.rotating, self.active)[0].base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all log files; without a lock, so it may be a roll behind."""
        unsealed = sum(segment.size for segment in (*self.rotating, self.active))
        return self.sealed.total_size + unsealed

    @property
    def stored_records(self) -> int:
        """Records in all log files, also those below a log start inside the first."""
        unsealed = sum(segment.records for segment in (*self.rotating, self.active))
        return self.sealed.total_records + unsealed

    @property
    def records_count(self) -> int:
        """Records that can be read.

        Of a segment that lacks offsets, and has the log start inside, at most so many: all that it
        has may lie behind the start.
        """
        start = self.log_start_offset
        if start <= self.first_base_offset:
            return self.stored_records
        with self.state_lock:
            count, sealed = self.stored_records, self.sealed
            spans = chain(
                ((sealed.end_of(place), sealed.records[place]) for place in range(len(sealed))),
                ((one.next_offset, one.records) for one in (*self.rotating, self.active)),
            )
            for end_offset, records in spans:
                count -= max(0, records - max(0, end_offset - start))
                if end_offset >= start:
                    break
            return count

    @property
    def segments_count(self) -> int:
        return len(self.sealed) + len(self.rotating) + 1

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written, or told, that a crash may not take."""
        is_empty = not self.active.size and not self.rotating and not len(self.sealed)
        return is_empty and not self.manifest.is_durable

    @property
    def is_over(self) -> bool:
        """Whether it is closed, or another was opened: nothing is changed from here any more."""
        return self.is_closed or self.is_superseded

    @property
    def has_unsynced(self) -> bool:
        return self.recovery_point < self.active.next_offset

    @property
    def wants_ready(self) -> bool:
        """Whether the active segment is half full and too few are ready behind it."""
        return (
            self.active.size * 2 >= self.segment_bytes
            and self.ready.is_wanted
            and not self.open_logs.is_crowded
        )

    def manifest_rows(self) -> list[Row]:
        """The manifest without history."""
        rows = [
            Row(RowKind.EPOCH, leader_epoch=epoch, base_offset=start)
            for epoch, start in self.epochs
        ]
        start = start_row(
            self.log_start_offset, self.sealed.first_number, self.first_base_offset, self.floor
        )
        return [*rows, start, *self.cleaned.rows(), *self.sealed.rows()]

    def note(self, rows: Sequence[Row], *, sync: bool = False) -> None:
        """Write rows to the manifest; durable when this returns with `sync`.

        The caller holds seal_lock.  Raises OSError; the next rows go to a new file then.
        """
        if self.manifest.is_doubtful:
            if self.swap_failed:
                raise OSError(errno.EIO, "a cleaning waits for the next opening", self.paths.folder)
            self.manifest.replace(self.active.created_ms, [*self.manifest_rows(), *rows])
        else:
            self.manifest.append(rows, sync=sync)

    def reconfigure(self, config: TopicConfig) -> None:
        """Use other settings from the next batch on."""
        with self.append_lock:
            self._configure(config)

    def _configure(self, config: TopicConfig) -> None:
        self.config = config
        self.segment_bytes = min(config.segment_bytes, file_size_max())
        """How large a segment becomes."""
        self._batch_bytes_max = min(config.max_message_bytes, self.segment_bytes)

    # Writing

    def check_size(self, size: int) -> None:
        """Raises BatchTooLarge; before anything else is done with a batch."""
        limit = self._batch_bytes_max
        if size > limit:
            config = self.config
            setting = "max.message.bytes"
            if limit < config.max_message_bytes:
                setting = "the largest file of this process (ulimit -f)"
            elif limit == config.segment_bytes:
                setting = "max.message.bytes (segment.bytes)"
            raise BatchTooLarge(size, limit, setting)

    def write(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Append one batch (writable, whole, checked); its base offset.

        The caller holds append_lock and has called check_size.  Raises OSError, after which the
        caller writes nothing more to this log.
        """
        segment = self.active
        size = len(batch)
        last_offset = segment.next_offset + header.last_offset_delta
        if segment.size and self._is_full(
            segment, size, header.records_count, 1, last_offset, now_ms
        ):
            self.roll(now_ms)
            segment = self.active
        base_offset = segment.next_offset
        patch_batch(batch, base_offset, self.epochs[-1][0])
        max_timestamp = header.max_timestamp
        if self.config.stamps_append_time and header.records_count:  # a gap has no time
            set_log_append_time(batch, now_ms)
            max_timestamp = now_ms
        file = self._file_of(segment, now_ms)
        try:
            write_all(file, batch, segment.size)
            segment.add(
                batch,
                base_offset,
                base_offset + header.last_offset_delta + 1,
                header.records_count,
                max_timestamp,
            )
        except BaseException:  # whatever it is, bytes may be there that nobody counts
            segment.is_half_written = True
            raise
        return base_offset

    def write_run(
        self,
        run: memoryview,
        sizes: Sequence[int],
        counts: Sequence[int],
        max_timestamps: Sequence[int],
        now_ms: int,
    ) -> list[int] | None:
        """As `write` and `check_size` of each batch in `run`, with one write to the file: where
        each begins, and where the last ends.

        sizes, counts, max_timestamps: of each batch; it has a record for each of its offsets.

        None: one of them is too large, or does not fit the active segment, or the topic stamps its
        records; nothing was done.
        """
        segment = self.active
        offsets = list(accumulate(counts, initial=segment.next_offset))
        records, last_offset = offsets[-1] - offsets[0], offsets[-1] - 1
        if (
            self.config.stamps_append_time
            or max(sizes) > self._batch_bytes_max
            or self._is_full(segment, len(run), records, len(sizes), last_offset, now_ms)
        ):
            return None
        leader_epoch = self.epochs[-1][0]
        position = 0
        for size, base_offset in zip(sizes, offsets, strict=False):
            patch_batch(run, base_offset, leader_epoch, position)
            position += size
        file = self._file_of(segment, now_ms)
        try:
            write_all(file, run, segment.size)
            if len(sizes) == 1:
                segment.add(run, offsets[0], offsets[1], records, max_timestamps[0])
            else:
                segment.add_run(run, sizes, counts, max_timestamps, offsets)
        except BaseException:  # whatever it is, bytes may be there that nobody counts
            segment.is_half_written = True
            raise
        return offsets

    def _file_of(self, segment: ActiveSegment, now_ms: int) -> StorageFile:
        """The file that is about to be written, behind what the segment counts.  Raises OSError:
        nothing was."""
        self.recently_used = True
        if not segment.size:
            segment.first_ms = now_ms
        file = segment.file
        if file is None:
            self.open_logs.make_way(segment.path)
            file = _opened(segment)
            self.open_logs.add(self)
        return file

    def _is_full(
        self,
        segment: ActiveSegment,
        size: int,
        records: int,
        batches: int,
        last_offset: int,
        now_ms: int,
    ) -> bool:
        """Whether so many bytes, records and batches, the last of them with `last_offset`, have
        no place in the segment any more."""
        config = self.config
        return (
            segment.size + size > self.segment_bytes
            or segment.records + records > config.segment_records
            or segment.builder.index_size + ENTRY_SIZE * batches > config.segment_index_bytes
            or (segment.size > 0 and now_ms - segment.first_ms >= config.roll_ms)
            or last_offset - segment.base_offset > OFFSET_SPAN_MAX
        )

    def know(self, producers: ProducerTable) -> None:
        """Take over what is known of producers while the log is opened."""
        self.producers = producers
        for segment in (*self.rotating, self.active):
            segment.opened_before = producers.transactions.open.copy()

    def roll(self, now_ms: int) -> None:
        """Go on in the next segment.  The caller holds append_lock.  Raises OSError."""
        old = self.active
        number = old.number + 1
        self.open_logs.check_full(old.path)
        failures = self.storage.failures
        taken = self.ready.take(number, now_ms)
        active = ActiveSegment(
            number,
            old.next_offset,
            self.storage,
            self.paths.log(number),
            file=taken.file,
            interval=self.config.index_interval_bytes,
            created_ms=now_ms,
            leader_epoch=self.leader_epoch,
            name_is_durable=taken.name_is_durable,
        )
        active.opened_before = self.producers.transactions.open.copy()
        self.open_logs.add(self)
        with self.state_lock:
            self.rotating = [*self.rotating, old]
            self.active = active
            self._count_full(1)
        if not taken.name_is_durable and self.storage.failures != failures:
            # Who was told of that may have looked before this segment was one of those in use.
            text = "a sync of the names has failed beside a roll"
            self._fail_sync(OSError(errno.EIO, text, self.paths.folder))

    # Syncing

    def sync(self, *, rotating_only: bool = False) -> int:
        """Make everything written so far durable; the offset below which it is.

        Raises OSError, after which nothing more of this log is synced, by whomever: who waited
        for the lock meanwhile fails as well.
        """
        with self.sync_lock:
            failed = self.failed
            if failed is not None:
                raise OSError(failed.errno, failed.strerror, self.paths.folder)
            with self.state_lock:
                if self.is_closed:
                    return self.recovery_point
                segments = self.rotating if rotating_only else [*self.rotating, self.active]
                # The offset first: a batch is accounted for after its bytes were written.
                todo = [(segment, segment.next_offset, segment.size) for segment in segments]
            try:
                self._sync_names(
                    [segment for segment, _, size in todo if segment.synced_size < size]
                )
                for segment, next_offset, size in todo:
                    if segment.synced_size < size:
                        file = _opened(segment)
                        file.fdatasync()
                        # Else no start would find it.
                        if not file.is_in_place(size):
                            raise _away(segment)
                        segment.synced_size = size
                    elif rotating_only and segment.file and not segment.is_in_place():
                        raise _away(segment)  # once sealed nobody copies from what is open
                    self.recovery_point = max(self.recovery_point, next_offset)
            except NoDescriptor:
                raise  # before anything was synced: the next one will tell
            except OSError as exc:
                self._fail_sync(exc)
                self._mark_unsynced()
                raise
            return self.recovery_point

    def look(self, *, waits: bool = True) -> None:
        """Whether what is not sealed yet is where a start looks for it: of an idle log no sync
        would tell.  Blocking.  waits: for a sync that goes on, which looks at what it syncs alone.

        Raises OSError, as a sync that has failed.
        """
        if not self.sync_lock.acquire(blocking=waits):
            return
        try:
            if self.sync_failed or self.is_over:
                return
            if self.is_in_place():
                away = self._overwritten()
            else:
                with self.state_lock:  # what was sealed meanwhile may have been deleted since
                    unsealed = [*self.rotating, self.active]
                away = next((one for one in unsealed if not one.is_in_place()), None)
            if away is None or self.is_over:
                return
            exc = _away(away)
            self._fail_sync(exc)
            self._mark_unsynced()
        finally:
            self.sync_lock.release()
        raise exc

    @property
    def first_unsealed(self) -> int:
        """The number of the first segment that is not sealed.  Without a lock."""
        return (*self.rotating, self.active)[0].number

    def sealed_since(self, number: int) -> list[Row]:
        """The sealed segments from this number on."""
        with self.state_lock:
            first = bisect_left(self.sealed.numbers, number)
            return [self.sealed.row_at(place) for place in range(first, len(self.sealed))]

    def sealed_behind(self, number: int, count_max: int) -> list[Row]:
        """Of the sealed segments behind this one the first, `count_max` at most."""
        with self.state_lock:
            first = bisect_right(self.sealed.numbers, number)
            last = min(first + count_max, len(self.sealed))
            return [self.sealed.row_at(place) for place in range(first, last)]

    def is_in_place(self) -> bool:
        """Whether the files of segments that are not sealed yet are where the next opening looks
        for them, and as long as they were.  Blocking."""
        return all(one.is_in_place() for one in (*self.rotating, self.active))

    def _overwritten(self) -> ActiveSegment | None:
        """The segment that is written to, if its file is longer than what was written: somebody has
        put something else into it.  Where an append goes on the next look tells."""
        if not self.active.is_longer or not self.append_lock.acquire(blocking=False):
            return None
        try:
            return self.active if self.active.is_longer else None
        finally:
            self.append_lock.release()

    def _sync_names(self, segments: Sequence[ActiveSegment]) -> None:
        """Make durable what has to be before the content of these is.  Raises OSError."""
        if segments and not self.manifest.is_durable:
            self.manifest.settle()
        elif not all(segment.name_is_durable for segment in segments):
            self.storage.fsync_dir(self.paths.folder)
        if self.sync_failed:  # another failed since this sync began, in front of that of the names
            assert self.failed is not None, "it says what failed"
            raise OSError(self.failed.errno, self.failed.strerror, self.paths.folder)
        for segment in segments:
            segment.name_is_durable = True

    def _doubt_names(self, cause: OSError) -> None:
        """A sync of the directory failed, whoever asked for it.  If the name of a segment in use,
        or of one made ahead, or of the manifest, was waiting for it, too, the log has failed.
        Called under any lock but state_lock."""
        with self.state_lock:
            segments = (*self.rotating, self.active)
        self.manifest.sync_failed |= not self.manifest.is_durable
        is_doubtful = self.manifest.sync_failed or self.ready.has_unsynced
        if is_doubtful or not all(one.name_is_durable for one in segments):
            self._fail_sync(cause)
        self._mark_unsynced()  # in any case: of segments made ahead the next process may use some

    def doubt(self, cause: OSError) -> None:
        """An opening of the same files failed, with a sync perhaps: of what it was to make durable
        nothing is certain, of this log's own names and bytes that waited for the same neither."""
        self.manifest.is_doubtful = True
        self._fail_sync(cause)

    def _fail_sync(self, cause: OSError) -> None:
        """Nothing is synced any more; the first cause is the one that is told."""
        self.failed = self.failed or cause  # first: who sees sync_failed asks for it
        self.sync_failed = True

    def _mark_unsynced(self) -> None:
        """Tell the next process, should it come before this one has written all of it anew."""
        self.is_unmarked = not mark_unsynced(self.storage, self.paths, self.log_end_offset)

    # Who holds what

    def unpin(self, segments: Sequence[ActiveSegment]) -> None:
        """A read is over: files that were sealed or closed meanwhile are closed by the last."""
        closing: list[StorageFile] = []
        with self.state_lock:
            for segment in segments:
                segment.pins -= 1
                if segment.retired:
                    closing += segment.unused()
        close_all(closing)

    def became_sealed(self, segments: Sequence[ActiveSegment], rows: Sequence[Row]) -> None:
        """The oldest rotating segments are sealed: their rows are written, their files immutable.

        Files that nobody reads stay open for the first reader.
        """
        kept: list[tuple[int, StorageFile]] = []
        with self.state_lock:
            for segment, row in zip(segments, rows, strict=True):
                self.sealed.add(row)
                segment.retired = True
                kept += [(segment.number, file) for file in segment.unused()]
            self.rotating = self.rotating[len(segments) :]
            self._count_full(-len(segments))
        for number, file in kept:
            self.files.adopt(number, file)

    def park(self) -> bool:
        """Close the descriptors of the active segment and of those made ahead, if nobody uses
        them and nothing waits for a sync; whether it was done."""
        if not self.append_lock.acquire(blocking=False):
            return False
        try:
            if not self.sync_lock.acquire(blocking=False):
                return False
            try:
                with self.state_lock:
                    active = self.active
                    if self.rotating or active.pins or active.synced_size < active.size:
                        return False
                    file, active.file = active.file, None
            finally:
                self.sync_lock.release()
            self.ready.park()
        finally:
            self.append_lock.release()
        if file is not None:
            close_all([file])
        return True

    def _count_full(self, change: int) -> None:
        """Under state_lock: one thread rolls while another seals."""
        self._full_count += change
        self.open_logs.count_full(change)

    def give_back(self) -> None:
        """Close the files of full segments that nobody reads, for others who wait for descriptors.

        For a log whose sync failed: nothing of it is synced any more, and who opens it again copies
        them by their checksums (salvaging.py)."""
        closing: list[StorageFile] = []
        with self.seal_lock, self.sync_lock, self.append_lock, self.state_lock:
            self._count_full(-self._full_count)
            for segment in self.rotating:
                closing += segment.unused()
        close_all(closing)

    def release(self) -> None:
        """Close every descriptor; nothing is written or synced any more."""
        with self.seal_lock, self.sync_lock, self.append_lock:
            closing: list[StorageFile] = []
            with self.state_lock:
                self._count_full(-self._full_count)
                self.is_closed = True
                for segment in (*self.rotating, self.active):
                    segment.retired = True
                    closing += segment.unused()
            self.open_logs.discard(self)
            self.ready.close()
            close_all(closing)
            self.files.close()  # who comes next under these names must not find them

"""DiskHandler: one topic-partition - its log, its producers, its high watermark.

    append: producer state → size → offset → write → (disk) high watermark moves at once
                                                   → (fsync) a flusher syncs, then it moves

The high watermark is the first offset that readers may not see: what lies below has met the
topic's durability class.  Replies, long polls and reads all follow it.

Invariants: log_start_offset ≤ high_watermark ≤ log_end_offset; the high watermark never goes back
while the process lives; after a failure `read_only` is set, every waiter has been told through
`on_failure`, and reads of what is below the high watermark go on.

Threads: the loop calls everything but what says "blocking".
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from segbroker.protocol.record_batch import BatchHeader, set_log_append_time

from .background import Background
from .errors import DiskFull, OffsetOutOfRange, PartitionReadOnly
from .file_cache import FileCache
from .index_cache import IndexCache
from .log import RecoveryReport, SegmentedLog
from .producers import ProducerStates
from .reads import ReadPlan
from .storage import Storage, read_file, replace_file
from .topic_config import Durability, TimestampType, TopicConfig

__all__ = ["AppendResult", "DiskHandler", "ReadPlan"]

REOPEN_INTERVAL_MS = 2_000
"""How often a partition that ran out of space looks whether there is some."""

SNAPSHOT_SEGMENTS = 16
"""Producer state is written every so many segments; recovery replays no more than that."""


class AppendResult(NamedTuple):
    """Where a batch went."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic's timestamps are the broker's."""
    log_start_offset: int
    duplicate: bool
    """The batch was there already; these are the offsets it got then."""


class DiskHandler:
    """One topic-partition; made by DiskManager."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        stem: str,
        topic: str,
        partition: int,
        config: TopicConfig,
        *,
        background: Background,
        files: FileCache,
        indexes: IndexCache,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.on_high_watermark: Callable[[DiskHandler], None] | None = None
        self.on_failure: Callable[[DiskHandler, PartitionReadOnly], None] | None = None
        self._storage = storage
        self._folder = folder
        self._stem = stem
        self._background = background
        self._files = files
        self._indexes = indexes
        self._config = config
        self._first_epoch = leader_epoch
        self._snapshots: deque[tuple[int, bytes]] = deque()
        self._reopen_at_ms = 0
        self._log, self._producers = self._open(now_ms)
        self._attach()
        self.high_watermark = self._log.log_end_offset

    def _open(self, now_ms: int) -> tuple[SegmentedLog, ProducerStates]:
        log = SegmentedLog.open(
            self._storage,
            self._folder,
            self._stem,
            self._config,
            now_ms=now_ms,
            background=self._background,
            files=self._files,
            indexes=self._indexes,
            leader_epoch=self._first_epoch,
        )
        return log, self._load_producers(log)

    def _attach(self) -> None:
        self._log.on_synced = self._synced
        self._log.on_failed = self._failed
        self._log.on_rolled = self._rolled
        self._log.on_sealed = self._sealed
        self._snapshots.clear()

    # ------------------------------------------------------------------ what is there

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = self._log.config = config

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """First offset that read_committed readers may not see: no transactions, so the same."""
        return self.high_watermark

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def segments_count(self) -> int:
        return self._log.segments_count

    @property
    def unsynced_offsets(self) -> int:
        """Records written and not yet synced."""
        return self._log.log_end_offset - self._log.synced_offset

    @property
    def read_only(self) -> PartitionReadOnly | None:
        """Why nothing can be written, or None."""
        return self._log.failed

    @property
    def recovery_report(self) -> RecoveryReport:
        return self._log.report

    # ------------------------------------------------------------------ appending

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> AppendResult:
        """Append one checked batch; never blocks on a sync.

        Args:
            batch: exactly one batch, writable; patched in place.
            header: as `check_batch` returned it.
            now_ms: the time now.

        Raises:
            BatchTooLarge, OutOfOrderSequence, InvalidProducerEpoch: nothing was appended.
            PartitionReadOnly, DiskFull: the disk failed, now or earlier.
        """
        log = self._log
        log.check_open()
        idempotent = header.producer_id >= 0
        if idempotent and (known := self._producers.check(header)) is not None:
            return AppendResult(
                known.base_offset, known.last_offset, -1, log.log_start_offset, True
            )
        append_time = -1
        if self._config.timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time = now_ms
            set_log_append_time(batch, now_ms)
            header = header._replace(max_timestamp=now_ms)
        base = log.append(batch, header)
        if idempotent:
            self._producers.note(header, base, now_ms)
        last = base + header.last_offset_delta
        if self._config.durability is Durability.FSYNC:
            log.sync_soon()
        else:
            self._advance(last + 1)
        return AppendResult(base, last, append_time, log.log_start_offset, False)

    def sync(self) -> None:
        """Sync all that is written; blocking.  Raises PartitionReadOnly."""
        self._log.sync()

    def sync_soon(self) -> None:
        """Ask for a sync if anything is unsynced: the tick of the `disk` class."""
        if self.unsynced_offsets and self.read_only is None:
            self._log.sync_soon()

    def _synced(self, target: int) -> None:
        if self._config.durability is Durability.FSYNC:
            self._advance(target)

    def _advance(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.on_high_watermark is not None:
                self.on_high_watermark(self)

    def _failed(self, error: PartitionReadOnly) -> None:
        if self.on_failure is not None:
            self.on_failure(self, error)

    # ------------------------------------------------------------------ reading

    def plan_read(
        self, offset: int, max_bytes: int, *, up_to: int | None = None
    ) -> ReadPlan | None:
        """Plan a read (reads.py); up to the high watermark unless told otherwise.

        Raises:
            OffsetOutOfRange: outside [log_start_offset, high_watermark].
        """
        bound = self.high_watermark
        if not self.log_start_offset <= offset <= self._log.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, bound)
        return self._log.plan_read(offset, max_bytes, bound if up_to is None else up_to)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first visible record at or after the time, and its timestamp; blocking."""
        return self._log.offset_for_timestamp(timestamp_ms, self.high_watermark)

    def greatest_timestamp(self) -> tuple[int, int] | None:
        """The first record with the greatest timestamp, and that timestamp; blocking."""
        newest = self._log.max_timestamp
        return None if newest < 0 else self.offset_for_timestamp(newest)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The epoch and where it ends; None for one that was never."""
        if epoch != self.leader_epoch:
            return None
        return epoch, self.high_watermark

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset; -1 for the high watermark.  Blocking; the new start.

        Raises:
            OffsetOutOfRange: past the high watermark.
        """
        bound = self.high_watermark
        if offset == -1:
            offset = bound
        if not 0 <= offset <= bound:
            raise OffsetOutOfRange(offset, self.log_start_offset, bound)
        return self._log.delete_before(offset)

    # ------------------------------------------------------------------ housekeeping

    def housekeeping(self, now_ms: int) -> None:
        """What time brings: age rolls, sync ticks, forgotten producers.  On the loop."""
        if isinstance(self.read_only, DiskFull) and now_ms >= self._reopen_at_ms:
            self._reopen_at_ms = now_ms + REOPEN_INTERVAL_MS
            self._background.housekeep_soon(lambda: self._try_reopen(now_ms))
            return
        self._log.roll_if_old(now_ms)
        self._producers.expire(now_ms)
        self.sync_soon()

    def _try_reopen(self, now_ms: int) -> None:
        """After a full disk: recover the log anew; if that can sync, writing goes on."""
        old = self._log
        old.close()
        try:
            log, producers = self._open(now_ms)
        except OSError:
            return
        self._background.call_soon(lambda: self._reopened(log, producers))

    def _reopened(self, log: SegmentedLog, producers: ProducerStates) -> None:
        self._log, self._producers = log, producers
        self._attach()
        # What was written but never acked and survived is whole, synced and now visible.
        self._advance(log.log_end_offset)

    def _rolled(self, number: int, offset: int) -> None:
        # Taken at the roll, when it holds for exactly `offset`; written once that is synced.
        if number % SNAPSHOT_SEGMENTS == 0:
            self._snapshots.append((offset, self._producers.to_bytes(offset)))

    def _sealed(self, offset: int) -> None:
        newest: bytes | None = None
        while self._snapshots and self._snapshots[0][0] <= offset:
            newest = self._snapshots.popleft()[1]
        if newest is not None:
            content = newest
            self._background.housekeep_soon(lambda: self._write_producers(content))

    def _write_producers(self, content: bytes) -> None:
        try:
            replace_file(self._storage, self._producers_path, content)
        except OSError:
            return  # recovery replays more; the next one tries again

    @property
    def _producers_path(self) -> str:
        return f"{self._folder}/{self._stem}.producers"

    def _load_producers(self, log: SegmentedLog) -> ProducerStates:
        states, offset = ProducerStates(), 0
        try:
            snapshot = ProducerStates.from_bytes(read_file(self._storage, self._producers_path))
        except FileNotFoundError:
            snapshot = None
        # A snapshot past the end would answer "duplicate" for batches that are gone.
        if snapshot is not None and snapshot[1] <= log.log_end_offset:
            states, offset = snapshot
        for header in log.headers_from(offset):
            if header.producer_id >= 0 and not header.is_control:
                states.note(header, header.base_offset, header.max_timestamp)
        return states

    def close(self) -> None:
        """Sync, write what makes the next open cheap, let go of the files; blocking."""
        self._log.close()
        if self._log.failed is None:
            self._write_producers(self._producers.to_bytes(self._log.log_end_offset))

"""DiskHandler: one open partition, and what an acknowledgement means in its class.

    append    check the sequence -> assign offsets -> pwrite     (the caller's thread)
    visible   class fsync: when the write-ahead log has synced the batch; other classes: at once,
              below the ceiling.  Visible means below the high watermark
    failure   the first failed write or sync: read-only, every waiter is told, nothing is retried

A duplicate of an idempotent producer is answered with the offsets of the original.  If the original
is not durable yet, its last offset is not below the high watermark, and the caller waits as for any
other append.

The bytes and locks are in log/partition_log.py; failures, and the way back, in failing.py;
look-ups, and the damage that they find, in mending_partition.py; what is due by time in by_time.py.

| attribute | changed by | read by |
|---|---|---|
| high_watermark, read_only, the log | see partition_view | |
| flush_state | flushers, under their lock | flushers |

Never: acknowledge a batch before it is visible, give an offset to a second record, sync a
descriptor again after its sync has failed.
"""

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from segbroker.protocol.record_batch import BatchHeader

from ..background import Flushers, FlushState, Housekeeper
from ..compaction.compacting import Compacting
from ..disk.relieving import NoDescriptor
from ..errors import (
    CorruptSegment,
    DiskFull,
    OffsetOutOfRange,
    PartitionReadOnly,
    StorageError,
    as_os_error,
)
from ..log.append_checks import check_wanted, is_choosy
from ..log.deleting import delete_records_before
from ..log.partition_log import PartitionLog
from ..log.reading import ReadPlan
from ..log.salvaging import check_promised
from ..log.sealing import checkpoint, close_log, seal
from ..metadata.ceilings import PartitionCeiling
from ..report import LogReport
from ..settings.topic_config import Durability, OnCorruption, TopicConfig
from ..wal.frames import Frame
from ..wal.group import Acknowledge
from ..wal.journal import Wal
from .by_time import forget_aborted, forget_producers, roll_what_is_old, settle_ceiling
from .evicting import EvictedBytes, Evicting
from .failing import CallSoon
from .journaling import Journaling
from .mending_partition import MendingPartition
from .rolling import Rolling

__all__ = ["AppendResult", "DiskHandler", "ReadPlan"]

log = structlog.get_logger()

PRODUCER_EXPIRATION_MS = 86_400_000


class AppendResult(NamedTuple):
    """Where a batch went.  `log_append_time_ms` is -1 unless the topic stamps its records."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class DiskHandler(MendingPartition):
    """One topic-partition.  Made by DiskManager."""

    __slots__ = (
        "_evicting",
        "_flushers",
        "_is_choosy",
        "_is_plain",
        "_journaling",
        "_left",
        "_on_attention",
        "_rolling",
        "_sealed_since",
        "ceiling",
        "compacting",
        "flush_state",
        "flushes_on_append",
        "last_append_ms",
        "on_failure",
        "on_high_watermark",
        "producer_expiration_ms",
        "scrubbed_ms",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        opened: PartitionLog,
        *,
        ceiling: PartitionCeiling | None,
        reopen: Callable[[int], PartitionLog],
        flushers: Flushers,
        housekeeper: Housekeeper,
        maker: Housekeeper,
        wal: Wal,
        topic_id: bytes,
        call_soon: CallSoon,
        on_attention: Callable[["DiskHandler"], None],
        report: LogReport,
        now_ms: Callable[[], int],
        evicted: EvictedBytes,
    ) -> None:
        """ceiling: below it appends may be acknowledged before they are synced; None for `fsync`.
        report: what repairs do is added to it.  now_ms: the time of a repair.  evicted: what
        retention takes out is added to it.

        on_attention: called when the manager's housekeeping has to look after this partition:
        bytes of class `disk` to be synced on the tick, segments to be sealed, a full disk."""
        super().__init__(topic, partition, opened, reopen, call_soon, report, now_ms)
        self.ceiling = ceiling
        self._left: tuple[PartitionCeiling, int] | None = None
        """What another class had reserved before `fsync`, and the end of what it left unsynced."""
        if ceiling is not None:
            self.high_watermark = min(self.high_watermark, ceiling.durable)
        self.scrubbed_ms = -1
        """When the scrub last found every sealed segment whole; -1: not yet."""
        self.on_high_watermark: Callable[[DiskHandler], None] | None = None
        self.on_failure: Callable[[DiskHandler, StorageError], None] | None = None
        self.flush_state = FlushState.IDLE
        # Who sets this calls `flush_soon` itself, once for all that it appended in one go.
        self.flushes_on_append = True
        self.producer_expiration_ms = PRODUCER_EXPIRATION_MS
        self.last_append_ms = 0
        self._flushers = flushers
        self._on_attention = on_attention
        self._journaling = Journaling(self, lambda: self._log, wal, flushers, topic_id, partition)
        self._rolling = Rolling(self, lambda: self._log, maker, housekeeper)
        self._evicting = Evicting(self, lambda: self._log, housekeeper, now_ms, evicted)
        self._sealed_since = (opened.first_unsealed, opened.first_unsealed)
        """The first segments that were not sealed at the last but one checkpoint, and the last."""
        self.compacting = Compacting(self, lambda: self._log)
        self._look_at(opened.config)
        opened.on_damage = self.mend

    def reconfigure(self, config: TopicConfig, ceiling: PartitionCeiling | None) -> None:
        """Use other settings from the next batch on."""
        self._look_at(config)
        while True:
            opened = self._log
            opened.reconfigure(config)
            if opened is self._log:
                break  # else it was opened again meanwhile, with the settings of before
        with opened.append_lock:  # else one in between would be vouched for before what it follows
            if ceiling is None and self.ceiling is not None:
                self._left = self.ceiling, opened.log_end_offset
                self._journaling.sync_first(opened)
            self.ceiling = ceiling
        if config.durability is Durability.DISK and self.has_unsynced:
            self._ask_attention()  # what another class left unsynced; no append may come to ask
        if ceiling is not None and self.log_end_offset > ceiling.renew_at:
            ceiling.renew(self.log_end_offset, self._ceiling_renewed)
        if config.on_corruption is OnCorruption.GAP:
            self._forgive()

    def _look_at(self, config: TopicConfig) -> None:
        self._is_choosy = is_choosy(config)
        asks = self._is_choosy or config.stamps_append_time or config.recompression
        self._is_plain = not asks
        """Whether nothing is asked of each batch, or done to it."""

    # Writing

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> AppendResult:
        """Append one whole, writable, checked batch; one thread at a time.

        Returns when it is written; it is durable in the topic's class when `high_watermark`
        passes `last_offset`.  Raises BatchTooLarge, OutOfOrderSequence, InvalidProducerEpoch,
        PartitionFull, KeylessRecords, TimestampOutOfBounds, InvalidBatch before an offset is
        assigned; PartitionReadOnly (DiskFull) when it could not be written.  DiskFull for want of
        a descriptor: it was not begun, and the next may succeed.
        """
        if self.read_only is not None:
            raise self.read_only.with_traceback(None)
        opened = self._log
        # A marker is appended whatever the topic says: its transaction would be open for ever.
        if not header.is_control:
            opened.check_size(header.size)
        tracked = header.producer_id >= 0
        number = opened.active.number
        with opened.append_lock:
            if opened is not self._log or opened.is_closed:
                raise self._is_another(opened)
            stamped = opened.config.stamps_append_time
            if tracked:
                known = opened.producers.check(header)
                if known is not None:
                    return AppendResult(
                        known.base_offset,
                        known.last_offset,
                        known.timestamp if stamped else -1,
                        opened.log_start_offset,
                        True,
                    )
            if self._is_choosy and not header.is_control:
                check_wanted(opened, self.topic, self.partition, batch, header, now_ms)
            try:
                base_offset = opened.write(batch, header, now_ms)
                if tracked:
                    if stamped:  # as it stands in the log
                        header = header._replace(max_timestamp=now_ms)
                    opened.producers.apply(header, base_offset, batch)
                self._journal(opened, batch, base_offset, now_ms)
            except NoDescriptor as exc:  # nothing was written: the next may be
                raise DiskFull(self.topic, self.partition, exc) from exc
            except Exception as exc:
                raise self._left_half_done(exc) from exc
        self._appended(opened, number, now_ms)
        return AppendResult(
            base_offset,
            base_offset + header.last_offset_delta,
            now_ms if stamped else -1,
            opened.log_start_offset,
            False,
        )

    def append_run(
        self,
        run: memoryview,
        sizes: Sequence[int],
        counts: Sequence[int],
        max_timestamps: Sequence[int],
        now_ms: int,
    ) -> list[int] | None:
        """Append several batches with one write: whole, writable, checked, plain (no transaction,
        no idempotent producer, as many records as offsets), one behind the other in `run`; where
        each begins, and where the last ends.

        Everything else is as after `append` of each.  None: the log wants them one by one, nothing
        was done.  Raises PartitionReadOnly (DiskFull).
        """
        if self.read_only is not None:
            raise self.read_only.with_traceback(None)
        opened = self._log
        if not self._is_plain or (self.ceiling is None and not self._journaling.takes(len(run))):
            return None
        number = opened.active.number
        with opened.append_lock:
            if opened is not self._log or opened.is_closed:
                raise self._is_another(opened)
            try:
                offsets = opened.write_run(run, sizes, counts, max_timestamps, now_ms)
                if offsets is not None:
                    self._journal(opened, run, offsets[0], now_ms)
            except NoDescriptor as exc:
                raise DiskFull(self.topic, self.partition, exc) from exc
            except Exception as exc:
                raise self._left_half_done(exc) from exc
        if offsets is not None:
            self._appended(opened, number, now_ms)
        return offsets

    @property
    def takes_runs(self) -> bool:
        """Whether `append_run` may be worth it."""
        return self._is_plain and self.read_only is None

    def _journal(
        self, opened: PartitionLog, data: memoryview, base_offset: int, now_ms: int
    ) -> None:
        """Of class `fsync`, what was written goes to the WAL, too.  Under the lock of the write:
        nobody sees the log with the one and without the other."""
        if self.ceiling is None:
            self._journaling.add(data, opened, opened.active, base_offset, now_ms)

    def _appended(self, opened: PartitionLog, number: int, now_ms: int) -> None:
        """What follows an append.  number: the segment that was active before it."""
        self.last_append_ms = now_ms
        ceiling = self.ceiling
        if ceiling is not None:
            end_offset = opened.log_end_offset
            if end_offset > ceiling.renew_at:
                ceiling.renew(end_offset, self._ceiling_renewed)
            visible = min(end_offset, ceiling.durable)
            if visible > self.high_watermark:
                self.high_watermark = visible
        elif self.flushes_on_append:
            self._journaling.flush_soon()
        if not self.wants_attention:
            self._ask_attention()
        if opened.active.number != number or opened.wants_ready:
            self._rolling.rolled(opened)

    def _left_half_done(self, exc: Exception) -> PartitionReadOnly:
        """A write failed; or an append ended between it and the WAL, for want of memory mostly,
        which is the same: behind such a hole the WAL would vouch for what it has not."""
        if not isinstance(exc, OSError):
            log.error("append_failed", topic=self.topic, partition=self.partition, exc_info=exc)
            self._log.is_half_known = True
        return self._poison(as_os_error(exc, "an append was left half done"))

    def sync(self) -> None:
        """Make everything appended so far durable.  Blocking.  Raises PartitionReadOnly after a
        failed write or sync; damage is no reason: what was acknowledged in front of it is due."""
        failure = self.read_only
        if failure is not None and self.is_poisoned:
            raise failure.with_traceback(None)
        opened = self._log
        try:
            end_offset = opened.sync()
        except NoDescriptor as exc:  # nothing is in doubt: the next one may be
            raise DiskFull(self.topic, self.partition, exc) from exc
        except OSError as exc:
            raise self._poison(exc, opened) from exc
        self._vouch(opened, end_offset)
        self._call_soon(lambda: self._advance(end_offset))

    def park(self) -> None:
        """Give the descriptors back until they are needed, unless they are in use."""
        opened = self._log
        opened.open_logs.park_one(opened)

    def flush_soon(self) -> None:
        """Have what was appended in class `fsync` made durable: one sync for all of it.  Other
        classes wait for their ceiling, if for anything."""
        self._journaling.flush_soon()

    def flush_here(
        self, call_soon: CallSoon | None = None, acknowledge: Acknowledge | None = None
    ) -> bool:
        """As `flush_soon`, but done when this returns, by a sync in this thread; its outcome is
        told by `call_soon`, or at once.  For the appender, when nobody else waits for anything.
        acknowledge: called as the first thing behind the sync, if that succeeds.

        False: nothing was done.  The disk is not quick, others are writing, the class is another.
        """
        return self._journaling.flush_here(call_soon, acknowledge)

    def flush(self) -> None:
        """`sync` for a flusher: who waits hears of a failure through `on_failure`."""
        if self.is_poisoned:
            return  # nothing is synced after a failure
        try:
            self.sync()
        except PartitionReadOnly as exc:
            log.debug("log_not_flushed", topic=self.topic, partition=self.partition, error=str(exc))
            if self._log.failed is None:  # it was for want of a descriptor: on the tick
                self._ask_attention()
            return
        if self.ceiling is None:
            self._journaling.say_end()

    def _ceiling_renewed(self, error: OSError | None) -> None:
        """Another block of offsets is reserved, or could not be."""
        ceiling, end_offset = self.ceiling, self.log_end_offset
        if ceiling is None:
            return  # `fsync` meanwhile
        if error is None:
            self._advance(end_offset)
            if end_offset > ceiling.renew_at:
                ceiling.renew(end_offset, self._ceiling_renewed)
        elif end_offset > ceiling.durable:
            self._poison(error)
        else:
            log.warning("ceiling_not_renewed", topic=self.topic, error=str(error))

    def wal_synced(self, end_offset: int) -> None:
        """The WAL has everything that it was given below `end_offset`, synced.  In the loop."""
        if self._wal_failed is None:
            self._advance(end_offset)

    def wal_failed(self, cause: OSError) -> None:
        """The WAL has not what it was given.  In the loop.

        What it is given later may succeed: that says nothing about what lies before it, so nothing
        is visible by the WAL any more until the log is opened again.
        """
        self._wal_failed = cause
        self._poison(cause)

    def wal_checkpoint(self) -> bool:
        """Sync the segments, so that the WAL need not keep what it has of them; False: it must."""
        opened = self._log
        try:
            end_offset = opened.sync()
            opened.look()
        except NoDescriptor:
            return False
        except OSError as exc:
            self._poison(exc, opened)
            return opened is not self._log and self.wal_checkpoint()
        self._vouch(opened, end_offset)
        return self._mend_missing()

    def _mend_missing(self) -> bool:
        """Repair what was sealed and has no whole file any more, as long as the WAL has its frames;
        whether all is whole.

        What was sealed before the last checkpoint may be in the file that was written then, what
        was before the last but one is in none."""
        since, unsealed = self._sealed_since, self._log.first_unsealed
        if self._journaling.is_used and not self.mend_missing(since[0]):
            return False
        self._sealed_since = since[1], unsealed
        return True

    def _save_sealed(self, opened: PartitionLog) -> None:
        if self._journaling.is_used:
            self._put_back_missing(opened, self._sealed_since[0])

    def _vouch(self, opened: PartitionLog, end_offset: int) -> None:
        if self.config.durability is not Durability.EPHEMERAL and not opened.is_closed:
            self._journaling.vouch(opened, end_offset)

    def _advance(self, end_offset: int) -> None:
        ceiling = self.ceiling
        if ceiling is not None and end_offset > ceiling.durable:
            # Reserved now, or on its way, or it could not be when it was appended: then the log was
            # opened again since, and no other append may come to ask.
            ceiling.renew(end_offset, self._ceiling_renewed)
            end_offset = min(end_offset, ceiling.durable)
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset
            if self.on_high_watermark is not None:
                self.on_high_watermark(self)

    @property
    def wal_works(self) -> bool:
        """Whether its shard of the WAL takes what is to be written; False: after a failure."""
        return self._journaling.wal_works

    def _recall(self, number: int) -> Sequence[Frame]:
        return self._journaling.recall(number)

    def _stop(self) -> int:
        return self._journaling.stop()

    def _begin_anew(self, opened: PartitionLog) -> None:
        self._journaling.begin_anew(opened)
        self._trust_end()
        self._left = None
        self.vouch_for_found(opened)  # so that it is known when its file goes
        self.say_end()  # a class without frames has no BARRIER either

    def vouch_for_found(self, opened: PartitionLog | None = None) -> None:
        """An opening has synced all that it found: have the WAL say so with its next group, unless
        the manifest does.  Else what a disk loses of it later would pass for a torn write.

        opened: the log; None: the present one.  `say_end` has that group written.
        """
        found = self._log if opened is None else opened
        end_offset = found.recovery_point
        if end_offset > 0 and found.checkpointed != end_offset and not found.is_new:
            self._vouch(found, end_offset)

    def say_end(self) -> None:
        """Have what is vouched for written now, if the WAL has not said it before: others may be
        told of what an opening has found, and give no group a reason."""
        self._journaling.say_end()

    def _doubt_end(self) -> None:
        if (ceiling := self._reserved) is not None:  # else the WAL has it
            ceiling.doubt()

    def _trust_end(self) -> None:
        if (ceiling := self._reserved) is not None:
            ceiling.trust()

    def find_loss(self) -> int | None:
        """Below which offset something may be gone that was acknowledged before a sync that failed;
        None: nothing is.  Blocking; of a partition that was closed."""
        ceiling = self._reserved
        if ceiling is None or not self._log.sync_failed:
            return None
        try:
            check_promised(self._log, self.high_watermark)
        except CorruptSegment:
            return ceiling.durable
        except OSError:
            pass  # nor can the next process read it
        return None

    @property
    def _reserved(self) -> PartitionCeiling | None:
        """Below which lies what may be acknowledged and not synced; None: nothing is."""
        if self.ceiling is None and self._left is not None:
            ceiling, end_offset = self._left
            return ceiling if self._log.recovery_point < end_offset else None
        return self.ceiling

    @property
    def acks_unsynced(self) -> bool:
        """Whether something is acknowledged before its sync, or was by another class and waits."""
        return self._reserved is not None

    def _tell_failure(self, error: StorageError) -> None:
        if self.on_failure is not None:
            self.on_failure(self, error)

    def _ask_attention(self) -> None:
        self.wants_attention = True
        self._on_attention(self)

    def save_state(self) -> None:
        """Write the producers and a checkpoint anew, whatever is there.  Raises OSError."""
        seal(self._log)
        checkpoint(self._log)

    # Keeping house

    def delete_records_before(self, offset: int) -> int:
        """Let the log begin at `offset`; durable when this returns.  Blocking.

        -1 means the high watermark, as in Kafka.  Also on a full disk, where it makes room.
        Raises OffsetOutOfRange, LogClosed, PartitionReadOnly, StorageError: then it may be done.
        """
        opened = self._log
        if self.read_only is not None and not isinstance(self.read_only, DiskFull):
            raise self.read_only.with_traceback(None)
        high_watermark = self.high_watermark
        if offset == -1:
            offset = high_watermark
        if not 0 <= offset <= high_watermark:
            raise OffsetOutOfRange(offset, opened.log_start_offset, high_watermark)
        try:
            start = delete_records_before(opened, offset)
        except OSError as exc:
            # The records are as good as before: nothing of the log itself was touched.
            raise StorageError(f"cannot delete records of {opened.paths.folder}: {exc}") from exc
        if opened.doomed:
            self._evicting.evict_soon()
        return start

    def segments_sealed(self, recovery_point: int) -> None:
        """Full segments were synced and sealed: their rows are written."""
        self._call_soon(lambda: self._advance(recovery_point))
        if self.read_only is None:  # else an operator is to look at what there is
            self._evicting.retain(None)

    def sealing_put_off(self) -> None:
        """There was no descriptor to seal full segments with: on the tick."""
        self._ask_attention()

    def fail(self, cause: OSError) -> None:
        """Something else that is done to its files has failed; recovery puts it right.  In any
        thread."""
        self._poison(cause)

    def unlink_soon(self) -> None:
        """Have the files of what is out of the log unlinked, off this thread."""
        self._evicting.evict_soon()

    def attend(self, now_ms: int) -> None:
        """What `on_attention` asked for, on the tick.

        Syncs class `disk` and what waits for a flusher, seals what is left of a group, opens a log
        again after a failure.
        """
        self.wants_attention = False  # first: what is appended from here on asks again
        if self.is_poisoned:
            if not self.try_recover(now_ms):
                self._ask_attention()
            return
        if self._log.rotating:
            self._rolling.seal_soon()
        waits = self.config.durability is Durability.DISK or self._journaling.waits_for_flusher
        # Another may have synced it since, a checkpoint of the WAL for one: it tells nobody.
        is_untold = self.high_watermark < self._log.recovery_point
        if is_untold or (waits and self.has_unsynced):
            self._flushers.request(self)

    def keep_house(
        self, now_ms: int, age_ms: int | None = None, *, is_believed: bool = True
    ) -> None:
        """What is due by time alone: age rolls, retention, forgotten producers.

        age_ms: the time to measure ages by (age_clock.py); None: nothing goes by age.
        is_believed: whether `now_ms` is; else no producer is forgotten, who may send again what it
        has no answer to.
        """
        self._notice_failure()
        if self.read_only is not None:
            if isinstance(self.read_only, DiskFull):
                self._evicting.retain(age_ms)
            return
        opened = self._log
        try:
            opened.look(waits=False)
            if roll_what_is_old(opened, now_ms, age_ms):
                self._evicting.look_at_ages(age_ms)
                self._rolling.seal_soon()
        except NoDescriptor:
            return  # rolled in another round
        except OSError as exc:
            self._poison(exc, opened)
            return
        self._evicting.retain(age_ms)
        settle_ceiling(self.ceiling, self._log, now_ms, self.last_append_ms)
        forget_aborted(self._log)
        if is_believed:
            forget_producers(self._log, now_ms, self.last_append_ms, self.producer_expiration_ms)

    def close(self, *, checkpoint: bool = True) -> None:
        """Sync, save and close; without a checkpoint when the files are going away.  Behind damage
        nothing is saved, as an operator is to look first, but what was acknowledged is synced.

        Raises PartitionReadOnly when the last sync failed.
        """
        failure: PartitionReadOnly | None = None
        while not (opened := self._log).is_closed:  # another one, if it is opened again now
            is_told = self.is_poisoned
            try:
                if checkpoint:
                    if not is_told:
                        opened.sync()  # what fails finds the files open yet
                    opened.look()
                    if not self._mend_missing():
                        text = "a sealed segment is not whole, and could not be repaired"
                        raise OSError(errno.ENOENT, text, opened.paths.folder)
            except OSError as exc:
                error = self._poison(exc)
                if is_told:
                    self.is_in_doubt = True
                else:
                    failure = error
            if checkpoint and self.is_poisoned:
                self._write_anew(opened)
            try:
                syncs = checkpoint and not self.is_poisoned
                close_log(opened, clean=syncs and self.read_only is None, syncs=syncs)
            except OSError as exc:
                failure = self._poison(exc)
        if failure is not None:
            raise failure

"""How appends of class `fsync` become durable: by the write-ahead log, or by a sync of the segment.

    append -> add -> flush_soon -+-> WAL shard: frames, one sync for many partitions -> wal_synced
                                 +-> flusher: a sync of the log itself               -> flushed
                     flush_here ---> the same frames and sync, at once, in the appender's thread

Most appends go to the WAL.  A batch that is too large for a WAL file waits for a flusher instead,
and so does everything behind it until it is synced.  So nothing in front of an append that the WAL
vouches for is neither in the WAL nor synced.

| attribute | changed by |
|---|---|
| wal_queued | the appender sets it, the shard's writer clears it |
| `_direct_end` | the appender |
| `_asks_flusher` | the appender |

An append that waits for a flusher is settled by a flusher, even if a checkpoint has synced the log
in between: a checkpoint notifies nobody.

Invariant: `wal_synced(mark)` is called only when everything below the mark is in synced WAL files
or in synced segments.
"""

from collections.abc import Callable
from typing import Protocol

from ..background import Flushable, Flushers
from ..disk.storage import Buffer
from ..log.partition_log import PartitionLog
from ..log.segment import ActiveSegment
from ..wal.frames import Frame
from ..wal.group import Acknowledge, CallSoon
from ..wal.journal import Wal
from ..wal.pending import Pending
from ..wal.vouching import end_frame


class Journaled(Flushable, Protocol):
    """The handler, as its journaling sees it."""

    def wal_synced(self, end_offset: int) -> None: ...

    def wal_failed(self, cause: OSError) -> None: ...

    def wal_checkpoint(self) -> bool: ...


class Journaling:
    """The way of one partition to its WAL shard."""

    __slots__ = (
        "_asks_flusher",
        "_direct_end",
        "_flushers",
        "_gave_up",
        "_limit",
        "_log",
        "_owner",
        "_pending",
        "_recalls_from",
        "_shard",
        "_synced_end",
        "_taken_end",
        "_wal",
        "is_used",
        "wal_key",
        "wal_queued",
    )

    def __init__(
        self,
        owner: Journaled,
        log: Callable[[], PartitionLog],
        wal: Wal,
        flushers: Flushers,
        topic_id: bytes,
        partition: int,
    ) -> None:
        self.wal_key = (topic_id, partition)
        self.wal_queued = False
        self._owner = owner
        self._log = log
        self._wal = wal
        self._flushers = flushers
        self._shard = wal.shard_of(topic_id, partition)
        self._limit = wal.config.batch_bytes_max
        self._pending = Pending(topic_id, partition, self._limit)
        self._direct_end = -1
        self._asks_flusher = False
        self.is_used = False
        """Whether anything was given to the WAL."""
        self._gave_up = False
        # Where what was taken last ends, and what was taken before it; changed by the writer.
        self._taken_end = self._synced_end = -1
        self._recalls_from = 0
        """Of sealed segments below this one the WAL has nothing, nor ever will."""

    def add(
        self,
        batch: Buffer,
        log: PartitionLog,
        segment: ActiveSegment,
        base_offset: int,
        now_ms: int,
    ) -> None:
        """`batch`, the last of `segment` and of `log`, was written.  Copies it."""
        size = len(batch)
        self.is_used = True
        if size > self._limit or -1 < self._direct_end > log.recovery_point:
            self._direct_end = segment.next_offset
            self._asks_flusher = True
            return
        self._pending.add(
            batch, segment.number, segment.size - size, base_offset, segment.next_offset, now_ms
        )

    def takes(self, size: int) -> bool:
        """Whether batches of so many bytes go to the WAL, as one."""
        return size <= self._limit and not self.waits_for_flusher

    @property
    def waits_for_flusher(self) -> bool:
        """Whether something is in front that is for a flusher."""
        return -1 < self._direct_end > self._log().recovery_point

    def flush_soon(self) -> None:
        """Have everything that was added made durable."""
        if self._pending.size:
            self._shard.submit(self)
        if self._asks_flusher or self.waits_for_flusher:
            self._asks_flusher = False
            self._flushers.request(self._owner)

    def flush_here(self, call_soon: CallSoon | None, acknowledge: Acknowledge | None) -> bool:
        """Have it made durable in this thread, now; False: nothing was done, `flush_soon` does it.

        call_soon: how the outcome is told; None: at once.  acknowledge: called before that, when
        it is durable.
        """
        pending = self._pending
        if not pending.size or self.wal_queued or self.waits_for_flusher:
            return False
        return self._shard.commit_here(self, pending.frames_size, call_soon, acknowledge)

    def sync_first(self, log: PartitionLog) -> None:
        """What `log` holds was not journaled (the class was another): it is synced before the WAL
        vouches for anything behind it."""
        self._direct_end = log.log_end_offset
        self._asks_flusher = True  # who appended the last of it may not have asked for its sync

    def vouch(self, log: PartitionLog, end_offset: int) -> None:
        """Everything below `end_offset` is synced: the next group says so, at no cost."""
        segment = log.active
        self._wal.end_soon(*self.wal_key, segment.number, segment.synced_size, end_offset)

    def say_end(self) -> None:
        """Have what `vouch` said written now: the WAL has nothing else of what a flusher, or
        another opening, made durable, and the next group may be long in coming."""
        self._shard.write_riders()

    def recall(self, segment: int) -> list[Frame]:
        """What the WAL still has of a sealed segment.  Blocking.  Raises OSError,
        UnsupportedFormat."""
        if segment < self._recalls_from:
            return []  # a disk that has lost many: the files are not read for each of them
        found = self._wal.recall(self)
        self._recalls_from = min((frame.segment for frame in found), default=segment + 1)
        return [frame for frame in found if frame.segment == segment]

    # As a source of the shard

    def take_frames(self) -> tuple[list[Frame], int]:
        frames, mark = self._pending.take()
        if self._gave_up:
            return [], -1  # frames behind a hole that nobody was told of would be taken for damage
        self._synced_end, self._taken_end = self._taken_end, mark
        return frames, mark

    def wal_gave_up(self) -> None:
        self._gave_up = True
        self._taken_end = self._synced_end

    def wal_synced(self, mark: int) -> None:
        self._owner.wal_synced(mark)

    def wal_failed(self, cause: OSError) -> None:
        self._owner.wal_failed(cause)

    def wal_checkpoint(self) -> bool:
        return self._owner.wal_checkpoint()

    # The way back

    @property
    def wal_works(self) -> bool:
        """Whether the shard of this partition writes: else it failed and goes on later."""
        return self._shard.failure is None

    def stop(self) -> int:
        """Give nothing more to the WAL, until `begin_anew`; below which offset it has everything,
        synced, whoever has heard of that by now; -1: nothing.  Blocking: waits for its writer."""
        if not self.is_used:
            return -1

        def stopped() -> int:
            self._gave_up = True
            return self._taken_end

        return self._shard.between_groups(stopped)

    def begin_anew(self, log: PartitionLog) -> None:
        """`log` was opened again, after `stop`, and is durable: earlier frames of it are void, and
        there is no moment in which nothing says how far it reaches.  Blocking.  Raises OSError."""
        self._recalls_from = 0  # what was sealed may be written to again
        if not self.is_used:
            return
        self._shard.revive()
        self._pending.take()  # never to be written
        self._direct_end = -1
        self._asks_flusher = False
        segment = log.active
        end = end_frame(self.wal_key, segment.number, segment.synced_size, log.recovery_point)
        self._wal.barrier(*self.wal_key, end)
        self._shard.void_kept(self)
        self._gave_up = False  # last: whatever still was in the queue is in front of the BARRIER

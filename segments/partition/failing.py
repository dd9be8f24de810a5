"""A partition whose writes or syncs failed: read-only, everybody told, and back when it can be.

    failure    the first failed write or sync: read-only, every waiter told, nothing retried
    recovery   the log opened again, through recovery, when it is time to: writable
               or, where an operator is to look at damage first, as it was before the failure

After a failed sync the kernel may have dropped the dirty pages, so reading them back proves
nothing.  Therefore bytes in doubt are copied to new files first (salvaging.py), even if a full disk
was noticed before the sync failed.  As long as a write or a sync fails, the partition stays
read-only and tries again, each time after a longer pause.

This is the part of DiskHandler that knows nothing of appends.  When the log is replaced,
`_begin_anew` and `_advance` take care of the write-ahead log and of what is visible.
"""

import errno
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeAlias

import structlog

from ..errors import (
    PASSING_ERRNOS,
    CorruptSegment,
    DiskFull,
    LogClosed,
    PartitionDamaged,
    PartitionReadOnly,
    PartitionRefused,
    StorageError,
)
from ..files.unsynced import Unmarked
from ..log.partition_log import PartitionLog
from ..log.salvaging import Retry, check_promised, salvage
from ..log.sealing import close_log
from ..recovery.producer_replay import replay_behind
from ..settings.topic_config import OnCorruption
from .partition_view import PartitionView

log = structlog.get_logger()

CallSoon: TypeAlias = Callable[[Callable[[], None]], object]

_ONE_AT_A_TIME: Final = threading.Lock()
"""A stop closes several logs at a time, and one written anew takes memory for a whole segment."""


class FailingPartition(PartitionView, ABC):
    """One topic-partition, as far as it fails."""

    __slots__ = (
        "_call_soon",
        "_reopen",
        "_retry",
        "_wal_failed",
        "is_in_doubt",
        "on_recovered",
        "wants_attention",
        "why_still",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        opened: PartitionLog,
        reopen: Callable[[int], PartitionLog],
        call_soon: CallSoon,
    ) -> None:
        super().__init__(topic, partition, opened)
        if opened.damage:
            self.read_only = PartitionDamaged(topic, partition, opened.damage)
        self.on_recovered: Callable[[], None] | None = None
        """Told when the log was opened again after a failure: its end may be another one."""
        self.why_still = ""
        """What the last try to open the log again met, where that does not end by itself."""
        self.wants_attention = False
        self.is_in_doubt = False
        """Of a partition that was closed: whether something that was promised is perhaps in no file
        of its log, so that the WAL has to keep what it has."""
        self._call_soon = call_soon
        self._reopen = reopen
        self._retry = Retry()
        self._wal_failed: OSError | None = None
        """Why the WAL has not what it was given; None: it has."""

    @abstractmethod
    def mend(self, error: CorruptSegment) -> bool:
        """Repair a damaged segment; whether it is whole now."""

    @abstractmethod
    def _save_sealed(self, opened: PartitionLog) -> None:
        """What the WAL alone has of sealed segments is put back into them: `_begin_anew` voids it.
        Raises OSError."""

    @abstractmethod
    def _advance(self, end_offset: int) -> None:
        """Everything below `end_offset` is durable."""

    @abstractmethod
    def _stop(self) -> int:
        """Nothing more is given to the WAL; below which offset it has everything, which the loop
        may not have heard of yet; -1: it has nothing."""

    @abstractmethod
    def _begin_anew(self, opened: PartitionLog) -> None:
        """The log was opened again: what was given to the WAL before is void, and what is in
        `opened` is durable.  Raises OSError."""

    @abstractmethod
    def _doubt_end(self) -> None:
        """Something that was promised is gone: have it written down, as far as nothing else has it,
        for the next process."""

    @abstractmethod
    def _trust_end(self) -> None:
        """All that was promised is there, and in new files: the same is taken back."""

    @abstractmethod
    def _tell_failure(self, error: StorageError) -> None:
        """Nothing is written any more, and this is why: whoever waits hears it."""

    @abstractmethod
    def _ask_attention(self) -> None:
        """Have the housekeeping look after this partition."""

    def _poison(self, cause: OSError, opened: PartitionLog | None = None) -> PartitionReadOnly:
        """Read-only from now on; the first error is kept and told to everybody once.

        opened: the log that failed; nothing happens to another that has taken its place.
        """
        if opened is not None and opened is not self._log:
            return self.read_only or PartitionReadOnly(self.topic, self.partition, cause)
        if self.read_only is None or isinstance(self.read_only, PartitionDamaged):
            # Behind damage nothing makes room for itself: an operator is to see what there is.
            full = cause.errno in PASSING_ERRNOS and self.read_only is None
            full = full and not self._log.sync_failed
            error = (DiskFull if full else PartitionReadOnly)(self.topic, self.partition, cause)
            self._log.failed = self._log.failed or cause  # first: no sync begins any more
            self.read_only = error
            log.error(
                "partition_read_only",
                topic=self.topic,
                partition=self.partition,
                error=str(cause),
            )
            self._call_soon(lambda: self._tell_failure(error))
            self._ask_attention()
        is_refused = isinstance(self.read_only, PartitionRefused)
        if self._log.is_unmarked or (is_refused and self._log.sync_failed):
            # The next process would not know, or nobody looks before an operator has looked.
            self._doubt_end()
        return self.read_only

    def _notice_failure(self) -> None:
        """What failed where nobody was told of it, under a snapshot of the producers or in whatever
        synced the names, counts from here on, behind damage as well."""
        opened = self._log
        cause = self._wal_failed or opened.failed
        may_fail = self.read_only is None or isinstance(self.read_only, PartitionDamaged)
        if cause is not None and may_fail:
            self._poison(cause, opened)

    def _is_another(self, opened: PartitionLog) -> StorageError:
        """Why nothing is appended to a log that was closed, or opened again, just now."""
        if opened is not self._log:
            cause = "its log was opened again meanwhile"
            return self.read_only or PartitionReadOnly(self.topic, self.partition, cause)
        return LogClosed(opened.paths.folder)

    @property
    def recoveries_failed(self) -> int:
        """How often the log could not be opened again."""
        return self._retry.failures_count

    @property
    def is_poisoned(self) -> bool:
        """Whether a failed write or sync is why nothing is written, not an operator's word."""
        return self.read_only is not None and not isinstance(
            self.read_only, PartitionDamaged | PartitionRefused
        )

    @property
    def has_failed(self) -> bool:
        """Whether a write or a sync has failed, also where an operator is to look at damage."""
        return self.is_poisoned or (self.read_only is not None and self._log.failed is not None)

    def try_recover(self, now_ms: int) -> bool:
        """Open the log again after a failure, if it is time to; whether it is writable."""
        if not self.is_poisoned or not self._retry.is_due(now_ms):
            return False
        old = self._log
        passes = False
        try:
            with old.seal_lock:
                old.ready.close()  # else a sync of its names may fail beside the opening, unheard
                with old.sync_lock:  # one that goes on may fail yet, behind a full disk as well
                    passes = isinstance(self.read_only, DiskFull) and not old.sync_failed
                with old.append_lock:
                    # Of a file that is away the opening would find nothing, or another's bytes.
                    in_doubt = not (passes and old.is_in_place())
                    opened = self._open_again(old, now_ms, in_doubt=in_doubt)
                    opened.on_damage = self.mend
                    opened.ready.missed += old.ready.missed
                    self._log = opened  # under the locks: who waits for one goes by this one
        except Exception as exc:  # for want of memory, too: whatever it is, it is tried again
            passes = passes and not isinstance(exc, CorruptSegment)
            self._retry.failed(now_ms, passes=passes)
            why = str(exc) or repr(exc)
            self.why_still = "" if passes else why
            if not passes:
                old.give_back()
            is_a_bug = not isinstance(exc, OSError | StorageError)
            log.warning("still_read_only", path=old.paths.folder, error=why, exc_info=is_a_bug)
            return False
        self._retry.succeeded()
        # Reads go on throughout: plans made before the swap keep the old files pinned.
        close_log(old, clean=False)

        def writable() -> None:
            self._wal_failed = None  # first: who sees no reason to be read-only sees no failure
            self.read_only = None
            self.why_still = ""
            if opened.damage and opened.config.on_corruption is not OnCorruption.GAP:
                self.read_only = PartitionDamaged(self.topic, self.partition, opened.damage)
            else:
                log.info("partition_writable_again", topic=self.topic, partition=self.partition)
            self._advance(opened.log_end_offset)
            if self.on_recovered is not None:
                self.on_recovered()

        self._call_soon(writable)
        return True

    def _write_anew(self, opened: PartitionLog) -> None:
        """Behind a failed sync, where the log will not be opened again: new files for what is in
        doubt, while those that were written are open.  A next try is that of the next process."""
        promised = self._stop()
        try:
            with _ONE_AT_A_TIME, opened.seal_lock, opened.append_lock:
                if opened.sync_failed and not opened.is_closed:
                    salvage(opened, max(promised, self.high_watermark))
                    self._trust_end()
                elif not opened.is_closed:
                    check_promised(opened, max(promised, self.high_watermark))
        except (OSError, CorruptSegment) as exc:
            self.is_in_doubt = True
            if isinstance(exc, CorruptSegment):
                opened.doubt(OSError(errno.EIO, str(exc), exc.path))
            log.warning("not_written_anew", path=opened.paths.folder, error=str(exc))

    def _open_again(self, old: PartitionLog, now_ms: int, *, in_doubt: bool) -> PartitionLog:
        """The log anew, durable; the old one changes nothing any more."""
        if old.is_closed:
            raise LogClosed(old.paths.folder)
        stopped = self._stop()  # also where nothing is in doubt: nothing is told of `old` any more
        promised = max(stopped, self.high_watermark)
        try:
            # An opening would take what was overwritten for a torn write.
            is_all_there = (salvage if in_doubt else check_promised)(old, promised)
        except CorruptSegment as exc:
            old.doubt(OSError(errno.EIO, str(exc), exc.path))
            self._doubt_end()
            raise
        self._save_sealed(old)
        if not in_doubt and old.manifest.is_doubtful and not old.swap_failed:
            # Of a row there that `old` does not go by; an opening would, and may come to nothing.
            old.note([])
        opened = None
        try:
            opened = self._reopen(now_ms)
            _know(opened, old, is_all_there=is_all_there)
            self._begin_anew(opened)
        except Exception as exc:
            # Retention goes on in `old` on a full disk.
            cause = exc.__cause__
            if isinstance(cause, Unmarked):
                self._doubt_end()  # the next process would not know
            if opened is None and isinstance(cause, OSError) and cause.errno not in PASSING_ERRNOS:
                old.doubt(cause)
            else:
                old.manifest.look_again()
            if opened is not None:
                close_log(opened, clean=False)
            raise
        old.is_superseded = True
        return opened


def _know(opened: PartitionLog, old: PartitionLog, *, is_all_there: bool) -> None:
    """Take over what was known in memory of producers and their transactions, all of it or of what
    is sealed: of damage in that the files say less, and a repair, or the disk, may bring that back.

    A copy: who is busy with `old` yet changes its own, under the lock of that.

    is_all_there: what was not sealed is as it was written.  Raises CorruptSegment, OSError.
    """
    if is_all_there and opened.log_end_offset == old.log_end_offset and not old.is_half_known:
        opened.know(old.producers.copy())
    else:
        replay_behind(opened, old)

"""Look-ups in a partition, and repair of damage that is found while it is in use.

    a read, a search or the scrub finds a damaged segment
    -> records that the write-ahead log still has are put back
    -> the rest is repaired as on.corruption says
        gap        it is whole again, with a gap, and everything goes on
        readonly   it is whole again; appends are refused until an operator has looked
        refuse     so are reads

Every method here is blocking, for lanes.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import structlog

from ..disk.storage import NO_DESCRIPTORS, size_now
from ..errors import (
    CorruptSegment,
    OffsetOutOfRange,
    PartitionDamaged,
    PartitionRefused,
    StorageError,
    as_os_error,
)
from ..files.manifest import Row
from ..log.accounting import Account, account
from ..log.lookup import greatest_timestamp, offset_for_timestamp
from ..log.partition_log import PartitionLog
from ..recovery.corruption import drop_mark
from ..recovery.identity import Inspection
from ..recovery.mending import Recalled, mend, put_back, segment_of
from ..replay.restoring import recalled
from ..report import LogReport
from ..settings.topic_config import OnCorruption
from ..wal.frames import Frame
from .failing import CallSoon, FailingPartition

log = structlog.get_logger()

T = TypeVar("T")
PutBack: TypeAlias = Callable[[PartitionLog, Row, Inspection], Recalled | None]

LOOKS_MAX: Final = 4
"""How often a look-up is begun, because of damage, or because the log begins later by then."""


class MendingPartition(FailingPartition):
    """One topic-partition, as far as it is damaged."""

    __slots__ = ("_indexes_count", "_now_ms", "_report", "repairs_count")

    def __init__(
        self,
        topic: str,
        partition: int,
        opened: PartitionLog,
        reopen: Callable[[int], PartitionLog],
        call_soon: CallSoon,
        report: LogReport,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(topic, partition, opened, reopen, call_soon)
        self.repairs_count = 0
        self._indexes_count = 0  # ... of which the index alone was made again
        self._report = report
        self._now_ms = now_ms

    # Looking things up

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not older; None without one.  Blocking."""
        return self._whole(lambda: offset_for_timestamp(self._log, timestamp_ms))

    def greatest_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the greatest timestamp.  Blocking."""
        return self._whole(lambda: greatest_timestamp(self._log))

    def _whole(self, look: Callable[[], T]) -> T:
        """What `look` finds; a damaged segment in its way is repaired first, and what has gone from
        the front of the log since it began is not looked at again."""
        for _ in range(LOOKS_MAX - 1):
            try:
                return look()
            except CorruptSegment as exc:
                if not self.mend(exc):
                    raise
            except OffsetOutOfRange:
                continue
        return look()

    def account(self, begin: int, end: int) -> Account:
        """What of the offsets [begin, end) is no record, and why.  Blocking.

        Raises CorruptSegment, StorageError, OSError.
        """
        return self._whole(lambda: account(self._log, begin, end))

    # Damage

    def mend(self, error: CorruptSegment) -> bool:
        """Repair the segment that a read or the scrub found damaged, as on.corruption says.

        Blocking, for lanes.  Whether it is whole now: then plan again.
        """
        return self._mend(error, self._put_back_if_read)

    def _mend(self, error: CorruptSegment, put_back: PutBack) -> bool:
        opened = self._log
        number = segment_of(opened, error)
        if number is None or opened.is_closed:
            return False
        if self.read_only is not None and not isinstance(self.read_only, PartitionDamaged):
            return False  # after a failed write nothing is written until recovery has run
        try:
            mended = mend(
                opened,
                number,
                self._now_ms(),
                self._report,
                lambda row, inspected: put_back(opened, row, inspected),
            )
        except OSError as exc:
            log.warning("segment_not_repaired", path=error.path, error=str(exc))
            return False
        except Exception as exc:  # also MemoryError: what it left half done would be done again
            self._poison(as_os_error(exc, "a repair was left half done"), opened)
            return False
        if mended is None:
            return True  # deleted meanwhile
        self.repairs_count += mended.is_changed
        self._indexes_count += mended.is_index and mended.is_changed
        if mended.damage:
            kind = PartitionDamaged if mended.is_whole else PartitionRefused
            refusal = kind(self.topic, self.partition, mended.damage)

            def stop() -> None:
                if self.read_only is not None:
                    return
                self.read_only = refusal  # first: who says meanwhile that he has looked sees it
                if self.config.on_corruption is OnCorruption.GAP:
                    self.read_only = None
                else:
                    self._tell_failure(refusal)

            self._call_soon(stop)
        return mended.is_whole

    def mend_missing(self, since: int) -> bool:
        """Repair the sealed segments from number `since` on whose files are away, or of another
        length; whether all are whole now.  Not where the write-ahead log cannot be read.
        Blocking."""
        opened = self._log
        away = [opened.paths.log(row.number) for row in _changed(opened, since)]
        problems = [CorruptSegment(path, 0, "the file is not whole") for path in away]
        mended = [self._mend(problem, self._put_back) for problem in problems]
        return all(mended)

    def _put_back_missing(self, opened: PartitionLog, since: int) -> None:
        """What the write-ahead log has of such segments put back, of a log that is to be opened
        again: nothing is repaired in it any more.  Under its seal_lock.  Raises OSError."""
        for row in _changed(opened, since):
            put_back(opened, row, lambda *seen: self._put_back(opened, *seen), self._report)

    @abstractmethod
    def _recall(self, number: int) -> Sequence[Frame]:
        """What the write-ahead log still has of a segment.  Raises OSError, UnsupportedFormat."""

    def _put_back(self, opened: PartitionLog, row: Row, inspected: Inspection) -> Recalled | None:
        """A damaged segment with what the write-ahead log still has of it; None: nothing better.
        Raises OSError."""
        if row.end_offset <= opened.cleaned.end_offset:
            return None  # a cleaning went over it: what is missing may be gone on purpose
        try:
            frames = self._recall(row.number)
        except StorageError as exc:
            self._say_not_read(exc)
            return None
        return recalled(inspected, row, opened.epochs, frames, whole_only=opened.config.compacts)

    def _put_back_if_read(
        self, opened: PartitionLog, row: Row, inspected: Inspection
    ) -> Recalled | None:
        """The same for a reader, who does not wait for a disk that cannot read the write-ahead
        log.  Raises OSError for want of a descriptor."""
        try:
            return self._put_back(opened, row, inspected)
        except OSError as exc:
            if exc.errno in NO_DESCRIPTORS:
                raise
            self._say_not_read(exc)
            return None

    def _say_not_read(self, error: Exception) -> None:
        """The segment is repaired without."""
        log.warning("wal_not_read", topic=self.topic, partition=self.partition, error=str(error))

    def check_segment(self, problem: CorruptSegment) -> bool:
        """What the scrub found: repaired if it is true; whether it was, and is no index that a
        power cut has torn.  Blocking."""
        repairs, indexes = self.repairs_count, self._indexes_count
        self.mend(problem)
        is_torn = problem.has_no_index and self._indexes_count > indexes
        return self.repairs_count > repairs and not is_torn

    def _forgive(self) -> None:
        """An operator has looked at the damage, and it is as with on.corruption=gap from here."""
        if isinstance(self.read_only, PartitionDamaged | PartitionRefused):
            drop_mark(self._log.storage, self._log.paths)
            self._log.damage = ""
            self._call_soon(self._serve_again)

    def _serve_again(self) -> None:
        if isinstance(self.read_only, PartitionDamaged | PartitionRefused):
            self.read_only = None
            self._notice_failure()
            if self.read_only is None:
                log.info("partition_writable_again", topic=self.topic, partition=self.partition)


def _changed(opened: PartitionLog, since: int) -> list[Row]:
    """The sealed segments from number `since` on whose files are away, or not as long as they
    were."""
    return [
        row
        for row in opened.sealed_since(since)
        if size_now(opened.storage, opened.paths.log(row.number), row.size) != row.size
    ]

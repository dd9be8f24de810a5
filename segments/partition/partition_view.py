"""The read-only side of a partition: offsets, sizes, planned reads; nothing is changed here.

This is the part of DiskHandler that needs no thread and waits for nothing: every method may be
called on the loop, unless it says otherwise.

| attribute | changed by | read by |
|---|---|---|
| high_watermark, read_only | appender, or `call_soon` | anybody, no lock |
| the log | see partition_log | |
"""

from collections.abc import Iterable

from segbroker.protocol.record_batch import GapReason

from ..errors import PartitionReadOnly, PartitionRefused
from ..files.manifest import Row
from ..log.lookup import end_offset_for_epoch, epoch_of
from ..log.partition_log import PartitionLog
from ..log.planning import plan_read
from ..log.producers import Producer
from ..log.reading import ReadPlan
from ..log.transaction_index import TransactionIndex
from ..settings.topic_config import TopicConfig


class PartitionView:
    """One topic-partition, for reading."""

    __slots__ = ("_log", "high_watermark", "partition", "read_only", "topic")

    def __init__(self, topic: str, partition: int, opened: PartitionLog) -> None:
        self.topic = topic
        self.partition = partition
        self.high_watermark = opened.log_end_offset
        self.read_only: PartitionReadOnly | None = None
        """Raised again and again, without its traceback: else that grows each time."""
        self._log = opened

    # What it is

    @property
    def config(self) -> TopicConfig:
        return self._log.config

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def evict_floor(self) -> int:
        """Below it records went against somebody's will; at or below the log start."""
        return self._log.floor.offset

    @property
    def evict_reason(self) -> GapReason | None:
        """Why the last of them went; None as long as none did."""
        reason = self._log.floor.reason
        return GapReason(reason) if reason else None

    @property
    def transactions(self) -> TransactionIndex:
        """The open transactions and the aborted ranges; for reading."""
        return self._log.producers.transactions

    def producers(self) -> Iterable[tuple[int, Producer]]:
        """What is known of producers, by id.  Without the append lock: whoever opens the log again
        holds that over a disk that fails."""
        return self._log.producers.rows()

    @property
    def producers_count(self) -> int:
        """Of how many producers something is known."""
        return len(self._log.producers)

    def producer(self, producer_id: int) -> Producer | None:
        """What is known of one.  Without the append lock, as `producers`."""
        return self._log.producers.get(producer_id)

    @property
    def last_stable_offset(self) -> int:
        """First offset that readers of committed records may not see yet: of an open transaction,
        or the high watermark."""
        opened = self._log
        first_offset = opened.producers.transactions.first_open_offset
        if first_offset >= self.high_watermark:
            return self.high_watermark
        return max(first_offset, opened.log_start_offset)

    @property
    def records_count(self) -> int:
        """Records that can be read, at most (partition_log.py)."""
        return self._log.records_count

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def recovery_point(self) -> int:
        """Below it everything is synced."""
        return self._log.recovery_point

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def segments_count(self) -> int:
        return self._log.segments_count

    @property
    def not_removed_count(self) -> int:
        """Deleted segments whose files could not be removed."""
        return len(self._log.stuck)

    @property
    def rolls_unprepared(self) -> int:
        """Rolls that found no segment made ahead."""
        return self._log.ready.missed

    @property
    def has_unsynced(self) -> bool:
        return self._log.has_unsynced

    # Reading

    def plan_read(
        self, offset: int, max_bytes: int, *, up_to: int | None = None
    ) -> ReadPlan | None:
        """What to read from `offset` on, below `up_to` (default: the high watermark).

        For the loop: no I/O.  None: nothing there yet.  Raises OffsetOutOfRange, PartitionRefused,
        NoDescriptor.
        """
        if self.read_only is not None and isinstance(self.read_only, PartitionRefused):
            raise self.read_only.with_traceback(None)
        opened, end = self._log, self.high_watermark if up_to is None else up_to
        if opened.active.file is None and opened.sealed.end_offset <= offset < end:
            opened.open_logs.make_way(opened.active.path)  # the read will open it
        return plan_read(opened, offset, max_bytes, end)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that an offset is of."""
        return epoch_of(self._log, offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, offset where it ends) for the largest known epoch not above; (-1, -1)."""
        return end_offset_for_epoch(self._log, epoch)

    def sealed_numbers(self) -> list[int]:
        """The segments that are sealed now."""
        with self._log.state_lock:
            return self._log.sealed.numbers.tolist()

    def sealed_row(self, number: int) -> Row | None:
        """What is known of a sealed segment; None when there is none (any more)."""
        with self._log.state_lock:
            return self._log.sealed.row(number)

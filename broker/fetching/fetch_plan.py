"""What one fetch reply contains: which bytes of which partitions; on the loop, without I/O.

A reply always holds the first batch, even above max_bytes; more partitions follow only as far as
they fit.  When more than half of the buffer budget is in use, replies are smaller (pool.py).

Invariant: a plan pins its segments until its owner releases it, exactly once (fetch_reply.py).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchResponse,
    FetchResponseDivergingEpoch,
    FetchResponsePartition,
    FetchResponseTopic,
)
from segbroker.segments.disk.relieving import NoDescriptor
from segbroker.segments.errors import OffsetOutOfRange
from segbroker.segments.log.transaction_index import AbortedRanges
from segbroker.segments.partition.handler import ReadPlan

from ..access.quotas import UNLIMITED
from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..partitions import topic_ids
from ..partitions.isolation import READ_COMMITTED, plan_visible
from ..partitions.partition import Partition
from ..peers.fetch_session import FIRST_EPOCH, FetchSession, SessionRow
from .fetch_target import FetchTarget

# A batch header: nothing is planned for less, and the first batch comes anyway.
_READ_LEAST: Final = 64


class PlannedRead:
    """Planned bytes of one partition of a reply."""

    __slots__ = ("aborted", "fetch_offset", "partition", "plan", "row", "start", "stop")

    def __init__(
        self,
        plan: ReadPlan,
        row: FetchResponsePartition,
        start: int,
        fetch_offset: int,
        aborted: AbortedRanges | None,
        partition: Partition,
    ) -> None:
        """aborted: ranges for a reader of committed records; None for another."""
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.aborted = aborted
        self.plan = plan
        self.row = row
        self.start = start
        self.stop = start + plan.size_max


class FetchPlan:
    """What one fetch asks for, and what of it a reply brings."""

    __slots__ = ("_core", "_header", "_limit", "_request", "_session", "_targets", "_told")

    def __init__(
        self,
        core: Core,
        header: RequestHeader,
        request: FetchRequest,
        targets: Sequence[FetchTarget],
        session: FetchSession | None,
    ) -> None:
        """`session`: that of the request, whose first fetch this may be."""
        self._session = session
        # Its partitions that are in the reply.
        self._told: list[tuple[SessionRow, FetchResponsePartition]] = []
        self._core = core
        self._header = header
        self._request = request
        self._targets = targets
        # Most bytes that the quota of the client leaves it; 0: none, it owes something.
        self._limit = UNLIMITED

    @property
    def bytes_max(self) -> int:
        """Bytes of records that may be in it, but for a first batch that is larger."""
        config = self._core.config
        return max(_READ_LEAST, min(self._request.max_bytes, config.fetch_bytes_max, self._limit))

    def partition_bytes_max(self, target: FetchTarget) -> int:
        """... and of one partition."""
        return max(_READ_LEAST, min(target.asked.partition_max_bytes, self.bytes_max))

    def _plan(self, response: FetchResponse, reads: list[PlannedRead]) -> Iterator[None]:
        """Fill in the reply without its records, and what is to be read into it.

        Yields after each partition, where a caller may let others run.
        """
        room = min(self.bytes_max, self._core.pool.allowance)
        position = 0
        topics: dict[int, FetchResponseTopic] = {}
        is_full = self._session is None or self._request.session_epoch == FIRST_EPOCH
        self._told.clear()
        for target in self._targets:
            if not is_full and self._has_nothing_new(target):
                yield
                continue
            row = self._row(target)
            plan: ReadPlan | None = None
            aborted: AbortedRanges | None = None
            if (
                not row.error_code
                and position < room
                and self._limit
                and target.partition is not None
                and target.diverging is None
                and target.look()
            ):
                size = min(self.partition_bytes_max(target), room - position)
                plan, aborted = self._plan_partition(
                    target.partition, target, row, size, bool(reads)
                )
                if plan is not None and position and plan.size_max > room - position:
                    plan.release()  # it begins the next reply; only the first may pass the limit
                    plan = None
            if plan is not None and target.partition is not None:
                asked_offset = target.asked.fetch_offset
                reads.append(
                    PlannedRead(plan, row, position, asked_offset, aborted, target.partition)
                )
                position += plan.size_max
            kept = target.kept
            if is_full or plan is not None or kept is None or kept.is_news(row):
                topic = topics.get(id(target.topic))
                if topic is None:
                    asked = target.topic
                    topic = topics[id(asked)] = FetchResponseTopic(
                        topic=asked.topic, topic_id=asked.topic_id, partitions=[]
                    )
                    response.responses.append(topic)
                topic.partitions.append(row)
                if kept is not None:
                    self._told.append((kept, row))
            yield

    def _has_nothing_new(self, target: FetchTarget) -> bool:
        """Whether the client of a session knows all that its row could say: most rows, so soon."""
        partition, kept = target.partition, target.kept
        if partition is None or kept is None or target.look():
            return False
        handler = partition.handler
        return kept.said == (
            handler.high_watermark,
            handler.log_start_offset,
        ) and self.is_served(partition)

    def is_served(self, partition: Partition) -> bool:
        """Not so where it was deleted while this request waited."""
        return self._core.topics.served_partition(partition.topic, partition.index) is partition

    def _row(self, target: FetchTarget) -> FetchResponsePartition:
        committed = self._request.isolation_level == READ_COMMITTED
        row = FetchResponsePartition(
            partition_index=target.asked.partition,
            error_code=target.code,
            high_watermark=-1,
            aborted_transactions=[] if committed else None,
            records=b"",
        )
        partition = target.partition
        if partition is None:
            return row
        if not self.is_served(partition):
            row.error_code = topic_ids.unknown_code(self._header.api_version, topic_ids.FETCH_SINCE)
            return row
        handler = partition.handler
        row.high_watermark = handler.high_watermark
        row.last_stable_offset = handler.last_stable_offset
        row.log_start_offset = handler.log_start_offset
        if target.diverging is not None:
            epoch, end = target.diverging
            row.diverging_epoch = FetchResponseDivergingEpoch(epoch=epoch, end_offset=end)
        return row

    def _plan_partition(
        self,
        partition: Partition,
        target: FetchTarget,
        row: FetchResponsePartition,
        size: int,
        brings_others: bool,
    ) -> tuple[ReadPlan | None, AbortedRanges | None]:
        handler, offset = partition.handler, target.asked.fetch_offset
        try:
            return plan_visible(handler, offset, size, target.isolation)
        except OffsetOutOfRange:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        except NoDescriptor as exc:
            # With what others have read it is asked for again at once, when theirs are free.
            row.error_code = ErrorCode.NONE if brings_others else wire_error(exc)[0]
        except STORAGE_FAILURES as exc:
            self._storage_failed(partition, row, exc)
        return None, None

    def _storage_failed(
        self, partition: Partition, row: FetchResponsePartition, exc: Exception
    ) -> None:
        row.error_code, _ = wire_error(exc)
        self._core.tell_read_failed(partition.topic, partition.index, exc)

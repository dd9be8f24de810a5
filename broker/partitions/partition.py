"""One served partition: its handler and everybody who waits for its high watermark.

    log       ... 40 41 42 | 43 44 45 | 46 47 |
                           ^ high watermark = 43
    appends   (43..45, produce 7)  (46..47, produce 8)      in order of their offsets
    fetches   {fetch 3 at 43, fetch 9 at 43}                in order of arrival

When the watermark moves, the appends that it passed are answered and the fetches look again.  A
failed write or sync fails every append that waits; the partition is read-only from then on.

Invariants: `appends` is sorted by the offset they wait for, but for duplicates of the idempotent
producer, which wait a little longer than they must; the ingest budget counts exactly the bytes in
`appends`.
"""

from collections import deque
from contextlib import suppress
from typing import Protocol, TypeAlias
from uuid import UUID

import structlog

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.record_batch import BatchHeader
from segbroker.segments.errors import StorageError
from segbroker.segments.partition.failing import CallSoon
from segbroker.segments.partition.handler import AppendResult, DiskHandler
from segbroker.segments.wal.group import Acknowledge

from ..error_map import wire_error
from ..loop.ingest import Ingest
from ..loop.pace import Pace
from ..loop.turn import Turn
from .refusals import Refusals

log = structlog.get_logger()


class AppendWaiter(Protocol):
    """Who waits for an append to be durable."""

    def settled(self, row: int, code: ErrorCode, message: str | None) -> None:
        """The append of this row of the request is durable (NONE) or has failed."""


class FetchWaiter(Protocol):
    """Who waits for records."""

    @property
    def waiting(self) -> int:
        """How many requests these are now."""
        ...

    def wake(self, partition: "Partition") -> int:
        """There may be more to read in this partition than before.  How many tasks this woke, which
        look when they run; 0: it has looked."""
        ...

    def complete(self) -> None:
        """Answer with what there is."""


# Last offset, size, waiter (None: acks=0, counted but not answered), row of its request.
_Append: TypeAlias = tuple[int, int, AppendWaiter | None, int]


class Partition:
    """A topic-partition, as long as the broker serves it."""

    __slots__ = (
        "_appends",
        "_ingest",
        "_is_held",
        "_looking",
        "_refusals",
        "_turn",
        "fetched_bytes",
        "fetches",
        "handler",
        "index",
        "produced_bytes",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        handler: DiskHandler,
        topic_id: UUID,
        *,
        ingest: Ingest,
        refusals: Refusals,
        turn: Turn,
    ) -> None:
        self.handler = handler
        self.topic = handler.topic
        self.topic_id = topic_id
        self.index = handler.partition
        self.fetches: dict[FetchWaiter, None] = {}
        # Of records appended by clients, and sent to them, since it is served.
        self.produced_bytes = self.fetched_bytes = 0
        self._appends: deque[_Append] = deque()
        self._ingest = ingest
        self._is_held = False
        # Of those who wait for records, who is to look again.
        self._looking: deque[FetchWaiter] = deque()
        self._refusals = refusals
        self._turn = turn
        handler.on_high_watermark = self._high_watermark_moved
        handler.on_failure = self._failed
        handler.flushes_on_append = False  # at the end of the pass, once

    @property
    def appends_waiting(self) -> int:
        """How many appends wait to be durable."""
        return len(self._appends)

    @property
    def fetches_waiting(self) -> int:
        """How many requests wait for records."""
        return sum(one.waiting for one in self.fetches)

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> AppendResult:
        """Append one checked batch. Raises StorageError.

        When the watermark passed it at once the caller calls `advanced`, so that the whole
        turn's readers are woken once, at its end; else `wait_durable`.
        """
        return self.handler.append(batch, header, now_ms)

    def wait_durable(
        self, last_offset: int, size: int, waiter: AppendWaiter | None, row: int
    ) -> None:
        """Have `waiter.settled(row, ...)` called when the high watermark passes `last_offset`."""
        self._turn.sync(self)  # first: where memory runs out in between, nobody waits in vain
        self._appends.append((last_offset, size, waiter, row))
        self._ingest.add(size)

    def advanced(self) -> None:
        """The watermark moved in this turn: whoever waits for records is woken at its end."""
        if self._appends:
            self._settle_durable()
        if self.fetches:
            self._turn.wake(self)

    @property
    def is_lone(self) -> bool:
        """Whether one append waits here."""
        return len(self._appends) == 1

    def sync_here(self, call_soon: CallSoon | None) -> bool:
        """Sync what was appended now, in the loop, if that will be quick; False: it was not done.

        call_soon: how the outcome is told; None: at once.
        """
        return self.handler.flush_here(call_soon)

    def sync_alone(self, acknowledge: Acknowledge) -> None:
        """As `sync_here`, told at once; but whoever waits hears of it from `advanced` only, which
        the caller calls in this very turn.  acknowledge: called when it is durable, before the
        watermark moves."""
        self._is_held = True
        try:
            self.handler.flush_here(acknowledge=acknowledge)
        finally:
            self._is_held = False

    def sync(self) -> None:
        """Have what was appended in this turn synced."""
        self.handler.flush_soon()

    def wake(self) -> bool:
        """The waiting fetches are to look again, those first that were to before; whether none
        was."""
        before = self._looking
        self._looking = deque({**dict.fromkeys(before), **self.fetches} if before else self.fetches)
        return not before

    def look_on(self, pace: Pace) -> bool:
        """Let them look, as long as there is time and room, one at least; whether all have."""
        while self._looking:
            has_room = self._turn.woke(self._looking.popleft().wake(self))
            if pace.is_over or not has_room:
                break
        return not self._looking

    def close(self, code: ErrorCode, message: str) -> None:
        """The partition is no longer served (its topic is deleted): answer all who wait."""
        self.handler.on_high_watermark = None
        self.handler.on_failure = None
        self.handler.on_recovered = None
        self._fail_appends(code, message)
        for fetch in tuple(self.fetches):
            try:
                fetch.complete()
            except Exception:  # for want of memory: it ends at its time, and the others now
                with suppress(MemoryError):
                    log.exception("fetch_not_ended", topic=self.topic, partition=self.index)

    def _settle_durable(self) -> None:
        appends = self._appends
        high_watermark = self.handler.high_watermark
        while appends and appends[0][0] < high_watermark:
            self._settle_first(ErrorCode.NONE, None)

    def _fail_appends(self, code: ErrorCode, message: str) -> None:
        while self._appends:
            self._settle_first(code, message)

    def _settle_first(self, code: ErrorCode, message: str | None) -> None:
        """Never raises: the others are told all the same, and the readers woken."""
        _, size, waiter, row = self._appends.popleft()
        self._ingest.settle(size)
        if waiter is not None:
            try:
                waiter.settled(row, code, message)
            except Exception:  # for want of memory
                with suppress(MemoryError):
                    log.exception("append_not_settled", topic=self.topic, partition=self.index)

    def _high_watermark_moved(self, handler: DiskHandler) -> None:
        if not self._is_held:
            try:
                self.advanced()
            finally:  # who was answered is sent it, whatever fails behind that
                self._turn.end()

    def _failed(self, handler: DiskHandler, error: StorageError) -> None:
        log.error("partition_failed", topic=self.topic, partition=self.index, error=str(error))
        self._settle_durable()
        if self._appends:
            self._refusals.note_not_durable(
                self.topic, self.index, handler.producers(), handler.high_watermark
            )
        self._fail_appends(*wire_error(error))
        self._turn.end()

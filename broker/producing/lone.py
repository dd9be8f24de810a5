"""One plain request of a connection that is alone: appended, synced and answered at once.

    append -> the reply is made -> flush_here -+-> durable: the reply is sent, then everything
                                               |   else that follows from it
                                               +-> not done, or failed: a run like any other
                                                   (produce_run.py)

Nothing is queued in between, so a client waits for little more than the write, the sync and the
reply.  The partition decides what is appended, what is synced and what a failure means, as on every
other path.

The reply is sent first; the log and the watermark learn of the sync after that.  While the loop
waited for the disk the processor's caches went cold, and the client would pay for every step in
front of the reply.

Invariants: an answer is sent only when the batch is durable, and nothing else runs in the loop
before the high watermark has passed it.  A connection that is still owed a reply is not served
here, nor is a partition where an append waits: so replies keep their order.
"""

from collections.abc import Sequence
from typing import Final

from segbroker.protocol.hot import ProducedReply
from segbroker.protocol.produce_scan import Column

from ..core import Core
from ..error_map import STORAGE_FAILURES
from ..partitions.partition import Partition
from ..peers.replies import Outbox
from .exchange import Exchange
from .produce_run import Run
from .seat import Seat

# As plain numbers, as in intake.py.
_CORRELATION: Final = int(Column.CORRELATION)
_RECORDS_BEGIN: Final = int(Column.RECORDS_BEGIN)
_RECORDS_SIZE: Final = int(Column.RECORDS_SIZE)
_OFFSETS_COUNT: Final = int(Column.OFFSETS_COUNT)
_MAX_TIMESTAMP: Final = int(Column.MAX_TIMESTAMP)


class Lone:
    """The way of who is alone."""

    __slots__ = ("_core", "_owed", "_replied", "_reply", "_scan", "_view")

    def __init__(self, core: Core, scan: Exchange) -> None:
        self._core = core
        self._scan = scan
        self._view = memoryview(scan.data)
        self._replied: tuple[int, Partition, int, int] | None = None
        """What `_reply` is for: version, partition, log start, throttle time."""
        self._reply: ProducedReply | None = None
        self._owed: tuple[Outbox, bytes] | None = None
        """To whom a reply is sent as soon as its batch is durable."""

    def produce(
        self, partition: Partition, seat: Seat, row: int, version: int, timeout_ms: int
    ) -> Run | bool:
        """Append the batch of this row, which is plain, and answer it.

        The peer is owed nothing, nobody waits for an append to the partition.

        True: answered.  False: nothing was done.  A run: of the batch, which waits to be durable or
        was refused; it has its place in the order of replies.
        """
        core, handler, peer = self._core, partition.handler, seat.peer
        columns, stride = self._scan.columns, self._scan.rows_max
        correlation_id = columns[_CORRELATION * stride + row]
        size = columns[_RECORDS_SIZE * stride + row]
        begin = columns[_RECORDS_BEGIN * stride + row]
        count = columns[_OFFSETS_COUNT * stride + row]
        latest = columns[_MAX_TIMESTAMP * stride + row]
        offsets: Sequence[int] | None
        try:
            offsets = handler.append_run(
                self._view[begin : begin + size], (size,), (count,), (latest,), core.now_ms()
            )
        except STORAGE_FAILURES as exc:
            run = Run(core, self._scan, partition, timeout_ms)
            run.add_appended(seat, version, correlation_id)
            run.refused(exc)
            return run
        if offsets is None:
            return False
        core.counters.produced_bytes += size
        partition.produced_bytes += size
        base_offset, end_offset = offsets
        reply = self._reply_of(partition, seat, version).encode(correlation_id, base_offset)
        self._owed = peer.outbox, reply
        if handler.high_watermark < end_offset:
            partition.sync_alone(self._answer)
        if self._owed is not None:
            if handler.high_watermark < end_offset:
                self._owed = None
                run = Run(core, self._scan, partition, timeout_ms)
                run.add_appended(seat, version, correlation_id)
                run.appended(offsets, size)
                return run
            self._answer()
        partition.advanced()
        return True

    def _answer(self) -> None:
        """Send what is owed: once, whatever becomes of the watermark."""
        if self._owed is not None:
            outbox, reply = self._owed
            self._owed = None
            outbox.send(reply)

    def _reply_of(self, partition: Partition, seat: Seat, version: int) -> ProducedReply:
        """What is filled in for a reply to this request."""
        core, handler, peer = self._core, partition.handler, seat.peer
        throttle_ms = core.ingest.throttle_time_ms
        if peer.muted_until:
            throttle_ms = max(throttle_ms, peer.throttle_ms())
        replied = version, partition, handler.log_start_offset, throttle_ms
        reply = self._reply
        if reply is None or replied != self._replied:
            reply = self._reply = ProducedReply(
                version,
                partition.topic,
                partition.index,
                log_start_offset=replied[2],
                throttle_time_ms=throttle_ms,
                topic_id=partition.topic_id,
            )
            self._replied = replied
        return reply

"""One plain request of who is alone: appended, synced and answered in one go.

    append -> flush_here -+-> durable: the reply is sent, then whoever waits for records is woken
                          +-> not done, or failed: a run like any other (produce_run.py)

Nothing is queued anywhere in between, so what a request costs while its client waits is little more
than its write, its sync and its reply.  What is appended, what is synced and what a failure means
is the partition's, as on every other way.

Invariants: an answer is sent only when the high watermark has passed the batch; whoever is owed
anything, and a partition where somebody waits, is not served here, so the order of replies holds.
"""

from array import array
from collections.abc import Sequence

from segbroker.protocol.hot import ProducedReply

from ..core import Core
from ..error_map import STORAGE_FAILURES
from ..partitions.partition import Partition
from ..peers.peer import Peer
from .produce_run import Run


class Lone:
    """The way of who is alone."""

    __slots__ = ("_core", "_replied", "_reply")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._replied: tuple[int, Partition, int, int] | None = None
        """What `_reply` is for: version, partition, log start, throttle time."""
        self._reply: ProducedReply | None = None

    def produce(
        self,
        partition: Partition,
        timeout_ms: int,
        peer: Peer,
        version: int,
        correlation_id: int,
        batch: memoryview,
        count: int,
        max_timestamp: int,
    ) -> Run | bool:
        """Append one batch that is checked and plain, and answer it.

        The peer is owed nothing, nobody waits for an append to the partition.

        True: answered.  False: nothing was done.  A run: of the batch, which waits to be durable or
        was refused; it has its place in the order of replies.
        """
        core, handler = self._core, partition.handler
        size = len(batch)
        offsets: Sequence[int] | None
        try:
            offsets = handler.append_run(batch, (size,), (count,), (max_timestamp,), core.now_ms())
        except STORAGE_FAILURES as exc:
            run = self._run(partition, timeout_ms, peer, version, correlation_id, size)
            run.refused(exc)
            return run
        if offsets is None:
            return False
        core.counters.produced_bytes += size
        base_offset, end_offset = offsets
        if handler.high_watermark < end_offset:
            partition.sync_alone()
            if handler.high_watermark < end_offset:
                run = self._run(partition, timeout_ms, peer, version, correlation_id, size)
                run.appended(offsets, size)
                return run
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
            )
            self._replied = replied
        peer.outbox.send(reply.encode(correlation_id, base_offset))
        partition.advanced()
        return True

    def _run(
        self,
        partition: Partition,
        timeout_ms: int,
        peer: Peer,
        version: int,
        correlation_id: int,
        size: int,
    ) -> Run:
        run = Run(self._core, partition, timeout_ms)
        none = array("q")
        run.add(peer, version, array("q", [correlation_id]), [], array("q", [size]), none, none)
        return run

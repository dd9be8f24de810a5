"""Produce requests that are appended together, and the replies that are made together.

    connection 1: produce 7, produce 8 --+                        +--> slot of 1: two replies
    connection 2: produce 3            --+--> run: one append ... +--> slot of 2: one reply

A run is of one partition and one timeout.  A connection has a slot in its order of replies for each
stretch of requests that went into the same run; such a slot counts for as many requests as it
answers.

Invariant: the replies are byte for byte those of single_produce.py, which makes them where there is
an error to explain (tested).
"""

from array import array
from collections.abc import Sequence
from typing import Final

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.hot import encode_single_produce_responses
from segbroker.protocol.record_batch import InvalidBatch, read_header

from ..core import Core
from ..error_map import STORAGE_FAILURES, wire_error
from ..partitions.partition import Partition
from ..peers.peer import Peer
from ..peers.replies import Buffer
from .single_produce import render_error

_PRODUCE: Final = 0
_Refusal = tuple[ErrorCode, str | None, int]
"""Code, message and log start of a batch that was not appended or is not durable."""


class RunSlot:
    """The place of the replies to some requests of one connection."""

    __slots__ = ("_correlations", "_first", "_peer", "_run", "_version", "done")

    restores: Final = False

    def __init__(self, run: "Run", peer: Peer, version: int, correlations: "array[int]") -> None:
        """correlations: of the requests whose batches are added to the run next."""
        self.done = False
        self._first = len(run.sizes)
        self._run = run
        self._peer = peer
        self._version = version
        self._correlations = correlations

    def settle(self) -> None:
        """Every outcome is known."""
        self.done = True
        self._run.core.turn.flush(self._peer.flush)

    def render(self) -> list[Buffer] | None:
        run, peer = self._run, self._peer
        throttle_ms = max(run.core.ingest.throttle_time_ms, peer.throttle_ms())
        if run.refusals:
            return self._render_each(run, throttle_ms)
        correlations = self._correlations
        return [
            encode_single_produce_responses(
                self._version,
                correlations,
                run.partition.topic,
                run.partition.index,
                base_offsets=run.offsets[self._first : self._first + len(correlations)],
                log_start_offset=run.start_offset,
                throttle_time_ms=throttle_ms,
            )
        ]

    def _render_each(self, run: "Run", throttle_ms: int) -> list[Buffer]:
        parts: list[Buffer] = []
        name, index = run.partition.topic, run.partition.index
        for row, correlation_id in enumerate(self._correlations, self._first):
            refusal = run.refusals.get(row)
            if refusal is None:
                part = encode_single_produce_responses(
                    self._version,
                    [correlation_id],
                    name,
                    index,
                    base_offsets=[run.offsets[row]],
                    log_start_offset=run.start_offset,
                    throttle_time_ms=throttle_ms,
                )
                parts.append(part)
                continue
            code, message, start_offset = refusal
            header = RequestHeader(_PRODUCE, self._version, correlation_id, None, 0)
            parts += render_error(
                header,
                name,
                index,
                code,
                message,
                start_offset=start_offset,
                throttle_ms=throttle_ms,
            )
        return [b"".join(parts)]

    def sent(self) -> None:
        if len(self._correlations) > 1:
            self._peer.outbox.weigh(1 - len(self._correlations))

    def stuck(self) -> None:
        pass

    def abandon(self) -> None:
        if not self.done:
            self.done = True
            self._run.abandoned()


class Run:
    """Batches for one partition that are appended with one write."""

    __slots__ = (
        "_batches",
        "_gone",
        "_slots",
        "_timed",
        "core",
        "counts",
        "done",
        "max_timestamps",
        "offsets",
        "partition",
        "refusals",
        "sizes",
        "start_offset",
        "timeout_ms",
    )

    def __init__(self, core: Core, partition: Partition, timeout_ms: int) -> None:
        self.core = core
        self.partition = partition
        self.timeout_ms = timeout_ms
        self.sizes = array("q")
        self.counts = array("q")
        self.max_timestamps = array("q")
        self.offsets: Sequence[int] = ()
        """Where each batch begins."""
        self.start_offset = -1
        self.refusals: dict[int, _Refusal] = {}
        """By the ordinal of the batch."""
        self.done = False
        self._batches: list[memoryview] = []
        self._slots: list[RunSlot] = []
        self._gone = 0
        self._timed = False

    def add(
        self,
        peer: Peer,
        version: int,
        correlations: "array[int]",
        batches: list[memoryview],
        sizes: "array[int]",
        counts: "array[int]",
        max_timestamps: "array[int]",
    ) -> None:
        """Some requests of one connection, in order: batches that are checked and plain, valid
        until `append`."""
        slot = RunSlot(self, peer, version, correlations)
        self._slots.append(slot)
        peer.outbox.push(slot)
        if len(batches) > 1:
            peer.outbox.weigh(len(batches) - 1)
        self._batches += batches
        self.sizes += sizes
        self.counts += counts
        self.max_timestamps += max_timestamps

    def append(self, now_ms: int) -> None:
        """Append all of it; what waits to be durable is settled later."""
        batches, self._batches = self._batches, []
        data = batches[0] if len(batches) == 1 else memoryview(bytearray().join(batches))
        handler = self.partition.handler
        try:
            offsets = handler.append_run(data, self.sizes, self.counts, self.max_timestamps, now_ms)
        except STORAGE_FAILURES as exc:
            self.refused(exc)
            return
        size = len(data)
        if offsets is None:
            size, offsets = self._append_each(batches, now_ms)
        self.core.counters.produced_bytes += size
        self.appended(offsets, size)

    def refused(self, exc: Exception) -> None:
        """Nothing of it was appended."""
        code, message = wire_error(exc)
        self.refusals = dict.fromkeys(range(len(self.sizes)), (code, message, -1))
        self._finish()

    def appended(self, offsets: Sequence[int], size: int) -> None:
        """It was appended, `size` bytes of it, with these offsets: settled now, or later."""
        handler = self.partition.handler
        self.start_offset = handler.log_start_offset
        self.offsets = offsets
        end_offset = offsets[-1]
        if end_offset <= handler.high_watermark:
            self.partition.advanced()
            self._finish()
        else:
            self.partition.wait_durable(end_offset - 1, size, self, 0)

    def _append_each(self, batches: list[memoryview], now_ms: int) -> tuple[int, list[int]]:
        """One by one, for a log that wants that: (bytes that were appended, where each begins and
        the last ends)."""
        size = end_offset = 0
        offsets: list[int] = []
        for row, batch in enumerate(batches):
            try:
                result = self.partition.append(batch, read_header(batch), now_ms)
            except (InvalidBatch, *STORAGE_FAILURES) as exc:
                self.refusals[row] = (*wire_error(exc), -1)
                offsets.append(-1)
            else:
                offsets.append(result.base_offset)
                end_offset = result.last_offset + 1
                size += len(batch)
        return size, [*offsets, end_offset]

    def begin_wait(self) -> None:
        """If it still waits: until its partition settles it, or its timeout passes first."""
        if self.done:
            return
        timeout_ms = min(max(self.timeout_ms, 0), self.core.config.produce_timeout_max_ms)
        self._timed = True
        self.core.deadlines.add(trio.current_time() + timeout_ms / 1000, self)

    def settled(self, row: int, code: ErrorCode, message: str | None) -> None:
        if self.done:
            return  # timed out meanwhile
        if code:
            self._refuse_appended(code, message)
        self._finish()

    def expire(self) -> None:
        self._refuse_appended(ErrorCode.REQUEST_TIMED_OUT, "not yet durable")
        self._finish()

    def abandoned(self) -> None:
        """One of the connections is gone; after the last nobody waits any more."""
        self._gone += 1
        if self._gone == len(self._slots) and not self.done:
            self._finish()

    def _refuse_appended(self, code: ErrorCode, message: str | None) -> None:
        for row in range(len(self.sizes)):
            self.refusals.setdefault(row, (code, message, self.start_offset))

    def _finish(self) -> None:
        self.done = True
        if self._timed:
            self.core.deadlines.forget()
        for slot in self._slots:
            if not slot.done:
                slot.settle()

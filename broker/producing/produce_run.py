"""Produce requests that are appended together, and the replies that are made together.

    connection 1: produce 7, produce 8 --+                        +--> slot of 1: two replies
    connection 2: produce 3            --+--> run: one append ... +--> slot of 2: one reply

A run belongs to one partition and has one timeout.  In its order of replies a connection has one
slot for each stretch of requests that went into the same run; the slot counts for as many requests
as it answers.

When a run of several connections is settled without an error, one call in C fills in and sends the
replies of all connections whose turn it is and that use the version of the first.  The other
replies, and bytes that a socket did not take, go the way of every reply (replies.py).

Invariant: the replies are byte for byte those of single_produce.py, which makes them if there is an
error to explain (tested).
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import trio

from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.headers import RequestHeader
from segbroker.protocol.hot import (
    ProducedReply,
    encode_single_produce_response,
    encode_single_produce_responses,
)
from segbroker.protocol.messages_core import ProduceResponseRecordError
from segbroker.protocol.record_batch import InvalidBatch, read_header

from ..core import Core
from ..error_map import STORAGE_FAILURES, record_errors, wire_error
from ..partitions.partition import Partition
from ..peers.replies import Buffer
from .appending import NOT_YET_DURABLE
from .exchange import Exchange
from .seat import Seat
from .single_produce import render_error

_PRODUCE: Final = 0


class _Refusal(NamedTuple):
    """Of a batch that was not appended, or is not durable."""

    code: ErrorCode
    message: str | None
    start_offset: int
    record_errors: Sequence[ProduceResponseRecordError] = ()


class RunSlot:
    """The place of the replies to some requests of one connection."""

    __slots__ = ("_run", "count", "done", "fd", "first", "peer", "version")

    restores: Final = False

    def __init__(self, run: "Run", seat: Seat, version: int, first: int, count: int) -> None:
        """first, count: of the batches of the run."""
        self.done = False
        self.fd = seat.exchange_fd
        self.peer = seat.peer
        self.version = version
        self.first = first
        self.count = count
        self._run = run

    @property
    def is_next(self) -> bool:
        """Whether its replies may be sent together with those of others."""
        peer = self.peer
        return (
            self.fd >= 0 and not self.done and not peer.muted_until and peer.outbox.holds_only(self)
        )

    def settle(self) -> None:
        """Every outcome is known."""
        self.done = True
        self._run.core.turn.flush(self.peer.flush)

    def render(self) -> list[Buffer] | None:
        run, peer = self._run, self.peer
        throttle_ms = max(run.core.ingest.throttle_time_ms, peer.throttle_ms())
        if run.is_mixed:
            return self._render_each(run, throttle_ms)
        rows = slice(self.first, self.first + self.count)
        return [
            encode_single_produce_responses(
                self.version,
                run.correlations[rows],
                run.partition.topic,
                run.partition.index,
                base_offsets=run.offsets[rows],
                log_start_offset=run.start_offset,
                throttle_time_ms=throttle_ms,
                topic_id=run.partition.topic_id,
            )
        ]

    def _render_each(self, run: "Run", throttle_ms: int) -> list[Buffer]:
        parts: list[Buffer] = []
        name, index = run.partition.topic, run.partition.index
        topic_id = run.partition.topic_id
        for row in range(self.first, self.first + self.count):
            correlation_id = run.correlations[row]
            refusal = run.refusals.get(row)
            if refusal is None:
                part = encode_single_produce_response(
                    self.version,
                    correlation_id,
                    name,
                    index,
                    base_offset=run.offsets[row],
                    log_append_time_ms=run.append_times_ms.get(row, -1),
                    log_start_offset=run.start_offset,
                    throttle_time_ms=throttle_ms,
                    topic_id=topic_id,
                )
                parts.append(part)
                continue
            header = RequestHeader(_PRODUCE, self.version, correlation_id, None, 0)
            parts += render_error(
                header,
                name,
                index,
                refusal.code,
                refusal.message,
                start_offset=refusal.start_offset,
                throttle_ms=throttle_ms,
                record_errors=refusal.record_errors,
                topic_id=topic_id,
            )
        return [b"".join(parts)]

    def sent(self) -> None:
        if self.count > 1:
            self.peer.outbox.weigh(1 - self.count)

    def stuck(self) -> None:
        pass

    def abandon(self) -> None:
        if not self.done:
            self.done = True
            self._run.abandoned()


class Run:
    """Batches for one partition that are appended with one write."""

    __slots__ = (
        "_gone",
        "_rows",
        "_scan",
        "_size",
        "_slots",
        "_timed",
        "append_times_ms",
        "core",
        "correlations",
        "done",
        "offsets",
        "partition",
        "refusals",
        "start_offset",
        "timeout_ms",
    )

    def __init__(self, core: Core, scan: Exchange, partition: Partition, timeout_ms: int) -> None:
        self.core = core
        self._scan = scan
        self.partition = partition
        self.timeout_ms = timeout_ms
        self.correlations = array("q")
        self.offsets: Sequence[int] = ()
        """Where each batch begins."""
        self.start_offset = -1
        self.refusals: dict[int, _Refusal] = {}
        """By the ordinal of the batch."""
        self.append_times_ms: dict[int, int] = {}
        """By the ordinal of the batch, where the topic stamps its records."""
        self.done = False
        self._rows = array("i")
        self._size = 0
        self._slots: list[RunSlot] = []
        self._gone = 0
        self._timed = False

    @property
    def is_mixed(self) -> bool:
        """Whether its replies differ in more than their numbers."""
        return bool(self.refusals or self.append_times_ms)

    def add(self, seat: Seat, version: int, row: int, until: int, size: int) -> None:
        """The requests in [row, until) of the scan, of one connection and in order: their batches
        are checked and plain, `size` bytes in all, and valid until `append`."""
        count = until - row
        slot = RunSlot(self, seat, version, len(self._rows), count)
        self._slots.append(slot)
        outbox = seat.peer.outbox
        outbox.push(slot)
        if count == 1:
            self._rows.append(row)
        else:
            outbox.weigh(count - 1)
            self._rows.extend(range(row, until))
        self._size += size

    def add_appended(self, seat: Seat, version: int, correlation_id: int) -> None:
        """One request, whose batch is not for `append`: it was tried already."""
        self.add(seat, version, 0, 1, 0)
        self.correlations = array("q", [correlation_id])

    def append(self, now_ms: int) -> None:
        """Append all of it; what waits to be durable is settled later."""
        rows, count = self._rows, len(self._rows)
        run, fields = self._scan.gather(rows, self._size)
        self.correlations = fields[:count]
        sizes, counts = fields[count : 2 * count], fields[2 * count : 3 * count]
        max_timestamps = fields[3 * count :]
        handler = self.partition.handler
        try:
            offsets = handler.append_run(run, sizes, counts, max_timestamps, now_ms)
        except STORAGE_FAILURES as exc:
            self.refused(exc)
            return
        size = self._size
        if offsets is None:
            size, offsets = self._append_each(run, sizes, now_ms)
        self.core.counters.produced_bytes += size
        self.partition.produced_bytes += size
        self.appended(offsets, size)

    def refused(self, exc: Exception) -> None:
        """Nothing of it was appended."""
        code, message = wire_error(exc)
        refusal = _Refusal(code, message, -1)
        self.refusals = dict.fromkeys(range(len(self._rows)), refusal)
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

    def _append_each(
        self, run: memoryview, sizes: "array[int]", now_ms: int
    ) -> tuple[int, list[int]]:
        """One by one, for a log that wants that: (bytes that were appended, where each begins and
        the last ends)."""
        begin = size = end_offset = 0
        offsets: list[int] = []
        for row, batch_size in enumerate(sizes):
            batch = run[begin : begin + batch_size]
            begin += batch_size
            try:
                result = self.partition.append(batch, read_header(batch), now_ms)
            except (InvalidBatch, *STORAGE_FAILURES) as exc:
                self.refusals[row] = _Refusal(*wire_error(exc), -1, record_errors(exc))
                offsets.append(-1)
            else:
                offsets.append(result.base_offset)
                if result.log_append_time_ms >= 0:
                    self.append_times_ms[row] = result.log_append_time_ms
                end_offset = result.last_offset + 1
                size += len(batch)
        return size, [*offsets, end_offset]

    def begin_wait(self) -> None:
        """If it still waits: until its partition settles it, or its timeout passes first."""
        if self.done:
            return
        timeout_ms = min(max(self.timeout_ms, 0), self.core.config.produce_timeout_max_ms)
        self.core.deadlines.add(trio.current_time() + timeout_ms / 1000, self)
        self._timed = True

    def settled(self, row: int, code: ErrorCode, message: str | None) -> None:
        if self.done:
            return  # timed out meanwhile
        if code:
            self._refuse_appended(code, message)
        self._finish()

    def expire(self) -> None:
        self._refuse_appended(ErrorCode.REQUEST_TIMED_OUT, NOT_YET_DURABLE)
        self._finish()

    def abandoned(self) -> None:
        """One of the connections is gone; after the last nobody waits any more."""
        self._gone += 1
        if self._gone == len(self._slots) and not self.done:
            self._finish()

    def _refuse_appended(self, code: ErrorCode, message: str | None) -> None:
        refusal = _Refusal(code, message, self.start_offset)
        for row in range(len(self._rows)):
            self.refusals.setdefault(row, refusal)

    def _finish(self) -> None:
        self.done = True
        try:
            self._answer()
        except Exception:  # for want of memory: what was sent of the replies nobody knows
            for slot in self._slots:
                slot.peer.outbox.break_off()
            raise

    def _answer(self) -> None:
        for refusal in self.refusals.values():
            self.core.counters.tally.failed(_PRODUCE, refusal.code)
        if self._timed:
            self.core.deadlines.forget()
        if len(self._slots) > 1 and not self.is_mixed:
            self._reply()
        for slot in self._slots:
            if not slot.done:
                slot.settle()

    def _reply(self) -> None:
        """Send the replies of all whose turn it is, at once."""
        version = self._slots[0].version
        slots = [slot for slot in self._slots if slot.version == version and slot.is_next]
        if not slots:
            return
        partition = self.partition
        reply = ProducedReply(
            version,
            partition.topic,
            partition.index,
            log_start_offset=self.start_offset,
            throttle_time_ms=self.core.ingest.throttle_time_ms,
            topic_id=partition.topic_id,
        )
        frame = reply.encode(0, 0)
        sent = self._scan.reply(
            array("i", [slot.fd for slot in slots]),
            array("i", [slot.first for slot in slots]),
            array("i", [slot.count for slot in slots]),
            frame=frame,
            offset_at=reply.offset_at,
            correlations=self.correlations,
            offsets=self.offsets,
        )
        size = len(frame)
        for slot, count in zip(slots, sent, strict=True):
            slot.done = True
            slot.peer.outbox.took(count, size * slot.count)

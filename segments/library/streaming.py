r"""Appending a byte stream to a log: in batches as it comes, wholly or not at all.

    appended = append_stream(log, open("access.log", "rb"), Lines(), now_ms=now)
    appended = await append_stream_async(log, response.aiter_bytes(), WholeStream(), now_ms=now)

    pieces -> splitter -> values -> a batch, full at batch_bytes or batch_records -> log
    |ab\nc|   (framing)    ab, cd    appended with one write: wholly or not

What readers see, and what a failure leaves (of the stream, of an append, a cancellation too):

| on_failure | visible | the stream failed | the process was killed |
|---|---|---|---|
| ROLLBACK | all at once, at the end | the log is as it was | a prefix of whole batches, or all |
| KEEP | batch by batch | every value that was complete | a prefix of whole batches, or all |

With ROLLBACK there is one sync for all, at the end; with KEEP every batch is an ordinary append
and durable in the log's class before the next piece is asked for.  After a kill nothing remembers
that a stream was under way: what of it reached the disk is in the log, in order, cut between
batches, and the caller goes on from the last record it finds (a stream of one batch is all or
nothing).  A rollback truncates, and goes on over the same offsets, which nobody has seen.

Invariants: one writer; memory is one batch and its encoding, one unfinished value and one piece
(max.message.bytes bounds the first two); no offset is assigned to a value that does not fit; what
may be rolled back is never read.  `async` means may wait, for the stream: no event loop is known
here.  Writes happen in the caller's thread, or in the lane it hands in.
"""

import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, TypeAlias

from segbroker.protocol.batch_layout import HEADER_SIZE
from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import encode_batch

from ..errors import StorageError, StreamFailed, StreamTooLarge
from .framing import FixedSize, Framing, Lines, WholeStream
from .log import Reservation, SegmentedLog

__all__ = [
    "Appended",
    "FixedSize",
    "Framing",
    "Lines",
    "OnFailure",
    "StreamAppend",
    "WholeStream",
    "append_stream",
    "append_stream_async",
]

BATCH_BYTES: Final = 64 << 10
BATCH_RECORDS: Final = 10_000
_RECORD_OVERHEAD_MAX: Final = 24
"""Around a value without key and headers: length 5, attributes 1, timestamp 1, offset 5, key 1,
value length 5, headers 1; rounded up."""

Lane: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a blocking call elsewhere: `trio.to_thread.run_sync`, `asyncio.to_thread`."""


class OnFailure(Enum):
    """What becomes of the records that were appended before a stream failed."""

    ROLLBACK = "rollback"
    KEEP = "keep"


class Appended(NamedTuple):
    """Where a stream went: `[base_offset, end_offset)`, in so many bytes of values."""

    base_offset: int
    end_offset: int
    value_bytes: int


class StreamAppend:
    """One stream on its way into a log: fed piece by piece, ended by leaving the `with`.

    Leaving it without an exception appends the rest and publishes; leaving it with one rolls back
    (or keeps), and an ordinary exception becomes the cause of a StreamFailed.
    """

    def __init__(
        self,
        log: SegmentedLog,
        framing: Framing,
        *,
        now_ms: int,
        codec: Codec = Codec.NONE,
        on_failure: OnFailure = OnFailure.ROLLBACK,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int = BATCH_RECORDS,
        stream_bytes_max: int | None = None,
    ) -> None:
        """Reserve the log.

        now_ms: the timestamp of every record.  batch_bytes: a batch is appended before it would
        pass this size; a single larger value is a batch of its own, up to max.message.bytes.
        stream_bytes_max: a longer stream fails (StreamTooLarge).
        Raises LogReserved, LogClosed, PartitionReadOnly, BatchTooLarge (FixedSize).
        """
        if batch_bytes < 1 or batch_records < 1:
            raise ValueError(f"batch_bytes={batch_bytes}, batch_records={batch_records}: from 1 on")
        self._reservation: Reservation = log.reserve()
        self._size_max = self._reservation.batch_size_max
        try:
            self._splitter = framing.splitter(self._size_max - HEADER_SIZE)
        except StorageError:
            self._reservation.release()
            raise
        self._now_ms = now_ms
        self._codec = codec
        self._on_failure = on_failure
        self._batch_bytes = min(batch_bytes, self._size_max)
        self._batch_records = batch_records
        self._stream_bytes_max = stream_bytes_max
        self._values: list[bytes] = []
        self._encoded_max = HEADER_SIZE
        self._received = 0
        self._value_bytes = 0
        # A cancelled caller may leave while its lane still feeds: the end waits for the lane.
        self._feeding = threading.Lock()
        self.base_offset = self._reservation.base_offset

    @property
    def result(self) -> Appended:
        """What is in the log and visible."""
        return Appended(self.base_offset, self._reservation.visible_end_offset, self._value_bytes)

    def feed(self, piece: bytes) -> None:
        """The next piece of the stream.  Raises BatchTooLarge, StreamTooLarge, PartitionReadOnly.

        After an exception there is nothing more to feed: leave the `with` with it.
        """
        with self._feeding:
            self._received += len(piece)
            limit = self._stream_bytes_max
            if limit is not None and self._received > limit:
                raise StreamTooLarge(self._received, limit)
            self._add(self._splitter.feed(piece))

    def _add(self, values: Iterator[bytes]) -> None:
        for value in values:
            size = len(value) + _RECORD_OVERHEAD_MAX
            full = self._encoded_max + size > self._batch_bytes
            if self._values and (full or len(self._values) >= self._batch_records):
                self._append()
            self._values.append(value)
            self._encoded_max += size
            self._value_bytes += len(value)

    def _append(self) -> None:
        """The batch under way, with one write."""
        if not self._values:
            return
        # Taken out first: what could not be appended is not tried again when the stream is aborted.
        values, self._values = self._values, []
        self._encoded_max = HEADER_SIZE
        encoded = encode_batch(values, timestamps_ms=self._now_ms, codec=self._codec)
        if len(encoded) > self._size_max and self._codec is not Codec.NONE:
            # What does not compress may grow, and fits as it is.
            encoded = encode_batch(values, timestamps_ms=self._now_ms)
        self._reservation.append(encoded, now_ms=self._now_ms)
        if self._on_failure is OnFailure.KEEP:
            self._reservation.publish()

    def finish(self) -> None:
        """The stream has ended: append the rest, make it durable, show it."""
        with self._feeding:
            self._add(self._splitter.finish())
            self._append()
            self._reservation.publish()
            self._reservation.release()

    def abort(self, cause: BaseException) -> StreamFailed:
        """The stream has failed: keep or roll back; the error that says what stays."""
        with self._feeding:
            if self._on_failure is OnFailure.KEEP:
                try:
                    self._append()
                except StorageError as exc:
                    cause.add_note(f"and what was complete could not be appended: {exc}")
            is_clean = self._reservation.rollback()
            end_offset = self._reservation.visible_end_offset
            return StreamFailed(self.base_offset, end_offset, cause, is_clean=is_clean)

    def __enter__(self) -> "StreamAppend":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            try:
                self.finish()
                return
            except BaseException as failed:
                exc = failed
        error = self.abort(exc)
        if isinstance(exc, Exception):
            raise error from exc
        # A cancellation or an interrupt stays what it is.
        raise exc


def append_stream(
    log: SegmentedLog,
    source: Iterable[bytes],
    framing: Framing,
    *,
    now_ms: int,
    codec: Codec = Codec.NONE,
    on_failure: OnFailure = OnFailure.ROLLBACK,
    batch_bytes: int = BATCH_BYTES,
    batch_records: int = BATCH_RECORDS,
    stream_bytes_max: int | None = None,
) -> Appended:
    """Append everything that `source` yields, cut by `framing`; where it went.

    The parameters are those of StreamAppend.  Raises StreamFailed, with what failed as its cause,
    and LogReserved, LogClosed, PartitionReadOnly before anything is taken from the source.
    """
    append = StreamAppend(
        log,
        framing,
        now_ms=now_ms,
        codec=codec,
        on_failure=on_failure,
        batch_bytes=batch_bytes,
        batch_records=batch_records,
        stream_bytes_max=stream_bytes_max,
    )
    with append:
        for piece in source:
            append.feed(piece)
    return append.result


async def append_stream_async(
    log: SegmentedLog,
    source: AsyncIterable[bytes],
    framing: Framing,
    *,
    now_ms: int,
    codec: Codec = Codec.NONE,
    on_failure: OnFailure = OnFailure.ROLLBACK,
    batch_bytes: int = BATCH_BYTES,
    batch_records: int = BATCH_RECORDS,
    stream_bytes_max: int | None = None,
    lane: Lane | None = None,
) -> Appended:
    """`append_stream` for a source that may wait, on whatever event loop it waits.

    lane: where the writes and syncs happen; in the caller's thread by default, which the syncs of
    class fsync and of full segments hold for milliseconds.  A rollback always happens in the
    caller's thread, so that a cancellation cannot interrupt it.
    """
    append = StreamAppend(
        log,
        framing,
        now_ms=now_ms,
        codec=codec,
        on_failure=on_failure,
        batch_bytes=batch_bytes,
        batch_records=batch_records,
        stream_bytes_max=stream_bytes_max,
    )
    try:
        async for piece in source:
            if lane is None:
                append.feed(piece)
            else:
                await lane(partial(append.feed, piece))
        if lane is None:
            append.finish()
        else:
            await lane(append.finish)
    except BaseException as exc:
        error = append.abort(exc)
        if isinstance(exc, Exception):
            raise error from exc
        raise
    return append.result

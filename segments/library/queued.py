"""QueuedLog: appends that return at once; a writer puts them into a SegmentedLog in batches.

    with SegmentedLog.open(...) as log, QueuedLog(log, clock=wall_ms, linger_ms=5) as queue:
        future = queue.append(b"value", key=b"k")      # returns at once
        future.result()                                # the offset, when it is durable

    append -> | queue, bounded | -> batch full, or linger over -> one write per batch,
                                                                 one sync for all that waits

The direct way is `SegmentedLog.append`: it returns the offset.  Here the caller gets a Future, and
many records share a batch and its sync.

| | with a thread (default) | `threaded=False` |
|---|---|---|
| linger is over | the thread writes | `poll(now_ms)` writes |
| the queue is full | append waits, up to `timeout_s`, then QueueFull | append writes first |
| several callers | yes | one |

`linger_ms=0`: the thread writes whatever is there as soon as it is free; under load batches grow by
themselves while it syncs.

Invariants: records are written in the order of their appends; a future is settled exactly once; the
queue holds at most `queue_bytes`, or one record that is larger, what is being written included;
what could not be written is told twice, by its future and by `flush` or `close`, which keep the
first `queue_bytes` of it and count the rest.  The log belongs to the queue until that is closed:
`using` lends it out in between.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import chain
from types import TracebackType
from typing import Final, NamedTuple, TypeAlias

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import encode_batch

from ..errors import BatchTooLarge, LogClosed, NotWritten, QueueFull
from ..settings.topic_config import Durability
from .log import SegmentedLog

BATCH_OVERHEAD: Final = 61
RECORD_OVERHEAD: Final = 40
"""More than the numbers of a record take."""
HEADER_OVERHEAD: Final = 10

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
Clock: TypeAlias = Callable[[], int]


class Queued(NamedTuple):
    """A record that waits."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    now_ms: int
    size: int
    future: "Future[int]"


class QueuedLog:
    """A queue in front of one log."""

    def __init__(
        self,
        log: SegmentedLog,
        *,
        clock: Clock,
        linger_ms: int = 5,
        batch_bytes: int = 64 << 10,
        queue_bytes: int = 4 << 20,
        codec: Codec = Codec.NONE,
        threaded: bool = True,
    ) -> None:
        """clock: ms since 1970, the records' timestamps.  batch_bytes: no batch is larger, unless
        one record is; nothing lingers once there is a batch's worth."""
        self._log = log
        self._clock = clock
        self._linger_ms = linger_ms
        self._batch_bytes = min(batch_bytes, log.config.max_message_bytes)
        self._queue_bytes = queue_bytes
        self._codec = codec
        self._waiting: deque[Queued] = deque()
        self._waiting_bytes = 0
        self._queued = self._settled = self._flush_up_to = 0
        self._lost: list[Queued] = []
        self._lost_bytes = self._lost_count = 0
        self._cause: Exception | None = None
        self._closing = False
        self._owner = threading.Lock()  # of the log
        self._changed = threading.Condition()  # of the rest
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="queued-log", daemon=True)
            self._thread.start()

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timeout_s: float | None = None,
    ) -> "Future[int]":
        """Queue one record; the future has its offset when it is durable in the log's class.

        timeout_s: how long to wait for room in a full queue; None: as long as it takes, 0: not at
        all.  A future cancelled before it is written is not written.  Raises BatchTooLarge,
        QueueFull, LogClosed, and for what is no record TypeError, UnicodeEncodeError: it is not
        queued then.
        """
        record = Queued(value, key, headers, self._clock(), _size(value, key, headers), Future())
        limit = self._log.config.max_message_bytes
        if record.size + BATCH_OVERHEAD > limit:
            raise BatchTooLarge(record.size + BATCH_OVERHEAD, limit, "max.message.bytes")
        if self._thread is None and not self._has_room(record):
            self._write_waiting()
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(record), timeout_s):
                raise QueueFull(self._waiting_bytes, self._queue_bytes)
            if self._closing:
                raise LogClosed("the queue of a log")
            self._waiting.append(record)
            self._waiting_bytes += record.size
            self._queued += 1
            if len(self._waiting) == 1 or self._is_full:
                self._changed.notify_all()  # the writer sleeps through the others
        return record.future

    def poll(self, now_ms: int) -> int:
        """Write what is due by `now_ms`; how many records go on waiting.  Without a thread."""
        assert self._thread is None, "the thread does that"
        if self._is_due(now_ms):
            self._write_waiting()
        return len(self._waiting)

    def flush(self) -> None:
        """Return when everything queued so far is durable in the log's class.

        Raises NotWritten for what has failed since it was raised last.
        """
        if self._thread is None:
            self._write_waiting()
        with self._changed:
            up_to = self._flush_up_to = self._queued
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._settled >= up_to)
        self._raise_lost()

    def close(self) -> None:
        """Write everything and end the thread; the log stays open.  A second time does nothing.

        Raises NotWritten with the records that were not written.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._write_waiting()
        self._raise_lost()

    @contextmanager
    def using(self) -> Iterator[SegmentedLog]:
        """The log itself, to read from it or to expire, while nothing is written to it."""
        with self._owner:
            yield self._log

    def __enter__(self) -> "QueuedLog":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # When

    def _has_room(self, record: Queued) -> bool:
        """Whether to go on: there is room, or no record would ever fit, or it is closed."""
        used = self._waiting_bytes
        return self._closing or not used or used + record.size <= self._queue_bytes

    @property
    def _is_full(self) -> bool:
        """Whether there is a batch's worth."""
        return self._waiting_bytes + BATCH_OVERHEAD >= self._batch_bytes

    def _is_due(self, now_ms: int) -> bool:
        return bool(self._waiting) and self._lingers_ms(now_ms) <= 0

    def _lingers_ms(self, now_ms: int) -> int:
        """How long the first record may wait yet."""
        age_ms = now_ms - self._waiting[0].now_ms
        if self._is_full or self._closing or self._flush_up_to > self._settled:
            return 0
        # A clock that was put back does not hold anything up.
        return self._linger_ms - age_ms if age_ms >= 0 else 0

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_due(self._clock()):
                    if self._closing and not self._waiting:
                        return
                    if not self._waiting:
                        self._changed.wait()
                    elif not self._changed.wait(self._lingers_ms(self._clock()) / 1000):
                        break  # whatever the clock says
            self._write_waiting()

    # Writing

    def _write_waiting(self) -> None:
        with self._owner:
            with self._changed:
                taken = list(self._waiting)
                self._waiting.clear()
            todo = [record for record in taken if record.future.set_running_or_notify_cancel()]
            batches = list(_split(todo, self._batch_bytes))
            if self._log.config.durability is Durability.FSYNC:
                self._write(batches)
            else:
                for batch in batches:
                    self._write([batch])
        with self._changed:
            self._waiting_bytes -= sum(record.size for record in taken)
            self._settled += len(taken)
            self._changed.notify_all()

    def _write(self, batches: list[list[Queued]]) -> None:
        """Write these batches with one sync and settle their futures, all in the same way."""
        try:
            encoded = [self._encode(batch) for batch in batches]
            offsets = self._log.append_all(encoded, now_ms=self._clock())
        except Exception as exc:  # whatever it is: somebody waits for each of them
            self._cause = exc
            for record in chain.from_iterable(batches):
                self._lose(record)
                record.future.set_exception(exc)
        else:
            for base_offset, batch in zip(offsets, batches, strict=True):
                for delta, record in enumerate(batch):
                    record.future.set_result(base_offset + delta)

    def _lose(self, record: Queued) -> None:
        """Keep what was not written for who asks; a log that has failed must not fill memory."""
        self._lost_count += 1
        if not self._lost or self._lost_bytes + record.size <= self._queue_bytes:
            self._lost.append(record)
            self._lost_bytes += record.size

    def _encode(self, batch: list[Queued]) -> bytes:
        encoded = self._encode_with(self._codec, batch)
        if len(encoded) > self._log.config.max_message_bytes and self._codec is not Codec.NONE:
            # What does not compress may grow, and fits as it is.
            encoded = self._encode_with(Codec.NONE, batch)
        return encoded

    def _encode_with(self, codec: Codec, batch: list[Queued]) -> bytes:
        return encode_batch(
            [record.value for record in batch],
            timestamps_ms=[record.now_ms for record in batch],
            keys=[record.key for record in batch],
            headers=[record.headers for record in batch],
            codec=codec,
        )

    def _raise_lost(self) -> None:
        with self._changed:
            lost, self._lost = self._lost, []
            count, self._lost_count, self._lost_bytes = self._lost_count, 0, 0
        if lost:
            assert self._cause is not None, "something failed"
            rows = [(record.key, record.value) for record in lost]
            raise NotWritten(rows, self._cause, count) from self._cause


def _size(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """At least the bytes of a record in a batch.  Raises TypeError, UnicodeEncodeError: it is none,
    and would take those down that are written with it."""
    size = RECORD_OVERHEAD
    for part in (value, key, *(content for _, content in headers)):
        if part is not None:
            if not isinstance(part, bytes):
                raise TypeError(f"{type(part).__name__} where a record has bytes or None")
            size += len(part)
    for name, _ in headers:
        size += HEADER_OVERHEAD + len(name.encode())
    return size


def _split(records: list[Queued], batch_bytes: int) -> Iterator[list[Queued]]:
    batch: list[Queued] = []
    size = BATCH_OVERHEAD
    for record in records:
        if batch and size + record.size > batch_bytes:
            yield batch
            batch, size = [], BATCH_OVERHEAD
        batch.append(record)
        size += record.size
    if batch:
        yield batch

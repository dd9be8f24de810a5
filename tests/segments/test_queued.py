"""The queued front of a log: batches, linger, flush, and what becomes of what cannot be written."""

import random
import threading
from concurrent.futures import CancelledError

import pytest

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import read_header
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import (
    BatchTooLarge,
    LogClosed,
    NotWritten,
    PartitionReadOnly,
    QueueFull,
)
from segbroker.segments.library.log import SegmentedLog
from segbroker.segments.library.queued import BATCH_OVERHEAD, RECORD_OVERHEAD, QueuedLog
from segbroker.segments.settings.topic_config import TopicConfig

from ..support.gated_storage import GatedStorage
from .crashing import CrashingStorage
from .tools import values_of


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


def open_on(disk: MemoryStorage, **settings: str) -> SegmentedLog:
    return SegmentedLog.open(disk, "/log", "t", TopicConfig(settings), now_ms=1_000)


def batch_counts(log: SegmentedLog) -> list[int]:
    return [read_header(batch).records_count for batch in log.batches()]


def test_records_of_one_linger_share_a_batch_and_a_sync() -> None:
    clock, disk = Clock(), CrashingStorage()
    log = open_on(disk)
    queue = QueuedLog(log, clock=clock, linger_ms=5, threaded=False)
    queue.append(b"the first sync of a log is that of its manifest, too")
    queue.flush()
    futures = [queue.append(b"%d" % i, key=b"k", headers=[("h", b"v")]) for i in range(10)]
    assert queue.poll(1_004) == 10
    assert log.log_end_offset == 1
    syncs = disk.operations.count("fdatasync")
    assert queue.poll(1_005) == 0
    assert [future.result(0) for future in futures] == list(range(1, 11))
    assert (batch_counts(log), disk.operations.count("fdatasync") - syncs) == ([1, 10], 1)
    record = list(log.stream())[1]
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"0", 1_000)


def test_a_batchs_worth_does_not_linger_and_a_record_never_splits() -> None:
    log = open_on(MemoryStorage())
    queue = QueuedLog(log, clock=Clock(), linger_ms=1_000, batch_bytes=400, threaded=False)
    for _ in range(9):
        queue.append(b"x" * 60)
    assert queue.poll(1_000) == 0
    assert batch_counts(log) == [3, 3, 3]


def test_a_full_queue_refuses_without_a_timeout_and_waits_with_one() -> None:
    disk = GatedStorage()
    log = open_on(disk)
    queue = QueuedLog(log, clock=Clock(), linger_ms=0, queue_bytes=200)
    disk.syncs.clear()
    first = queue.append(b"x" * 150)
    with pytest.raises(QueueFull, match=r"holds 190 bytes, limit 200"):
        queue.append(b"y", timeout_s=0)
    later: list[int] = []
    waiting = threading.Thread(target=lambda: later.append(queue.append(b"z").result()))
    waiting.start()
    assert not first.done()
    disk.syncs.set()
    waiting.join(10)
    queue.close()
    assert (first.result(0), later) == (0, [1])
    log.close()


def test_flush_returns_when_everything_before_it_is_durable() -> None:
    disk = MemoryStorage()
    with (
        open_on(disk) as log,
        QueuedLog(log, clock=Clock(), linger_ms=60_000) as queue,
    ):
        futures = [queue.append(b"%d" % i) for i in range(100)]
        queue.flush()
        assert all(future.done() for future in futures)
        assert open_on(disk.after_power_cut()).log_end_offset == 100
        with queue.using() as held:
            assert len(values_of(held)) == 100


def test_close_writes_what_is_queued_and_takes_nothing_more() -> None:
    log = open_on(MemoryStorage())
    queue = QueuedLog(log, clock=Clock(), linger_ms=60_000)
    future = queue.append(b"last")
    queue.close()
    assert future.result(0) == 0
    with pytest.raises(LogClosed):
        queue.append(b"late")
    queue.close()
    log.close()


@pytest.mark.parametrize("threaded", [True, False])
def test_close_says_which_records_were_not_written(threaded: bool) -> None:
    disk = CrashingStorage()
    log = open_on(disk)
    queue = QueuedLog(log, clock=Clock(), linger_ms=60_000, threaded=threaded)
    queue.append(b"safe").add_done_callback(lambda future: None)
    queue.flush()
    disk.sync_fails = True
    lost = queue.append(b"a", key=b"k")
    queue.append(b"b")
    with pytest.raises(NotWritten, match="2 queued records were not written") as raised:
        queue.close()
    assert raised.value.records == [(b"k", b"a"), (None, b"b")]
    assert isinstance(lost.exception(0), PartitionReadOnly)


def test_a_failed_write_of_class_disk_costs_only_the_batches_behind_it() -> None:
    disk = CrashingStorage()
    log = open_on(disk, durability="disk")
    queue = QueuedLog(log, clock=Clock(), linger_ms=0, batch_bytes=200, threaded=False)
    futures = [queue.append(b"%d" % i + b"x" * 90) for i in range(3)]
    disk.room = 400
    with pytest.raises(NotWritten) as raised:
        queue.flush()
    assert [value[:1] for _, value in raised.value.records if value] == [b"2"]
    assert [future.exception(0) is None for future in futures] == [True, True, False]


def test_a_record_that_can_never_fit_is_refused_before_it_is_queued() -> None:
    queue = QueuedLog(open_on(MemoryStorage()), clock=Clock(), threaded=False)
    with pytest.raises(BatchTooLarge):
        queue.append(b"x" * (1 << 20))
    assert queue.poll(9_999) == 0


def test_a_cancelled_record_is_not_written() -> None:
    log = open_on(MemoryStorage())
    queue = QueuedLog(log, clock=Clock(), linger_ms=60_000, threaded=False)
    gone = queue.append(b"gone")
    kept = queue.append(b"kept")
    assert gone.cancel()
    queue.flush()
    with pytest.raises(CancelledError):
        gone.result(0)
    assert (kept.result(0), values_of(log)) == (0, [b"kept"])


def test_many_threads_append_and_every_future_has_its_own_offset() -> None:
    log = open_on(MemoryStorage())
    found: list[tuple[int, bytes]] = []

    def work(name: bytes) -> None:
        futures = [(queue.append(name + b"%d" % i), name + b"%d" % i) for i in range(200)]
        found.extend((future.result(10), value) for future, value in futures)

    with QueuedLog(log, clock=Clock(), linger_ms=1) as queue:
        threads = [threading.Thread(target=work, args=(b"%d-" % n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert [value for _, value in sorted(found)] == values_of(log)
    assert len(found) == 800


def test_what_is_no_record_is_refused_and_those_around_it_are_written() -> None:
    log = open_on(MemoryStorage())
    with QueuedLog(log, clock=Clock(), linger_ms=0) as queue:
        before = queue.append(b"before")
        for value, key, headers in (
            ("text", None, []),
            (b"v", 7, []),
            (b"v", None, [("h", "text")]),
            (b"v", None, [("\ud800", b"")]),
        ):
            with pytest.raises((TypeError, UnicodeEncodeError)):
                queue.append(value, key=key, headers=headers)  # type: ignore[arg-type]
        after = queue.append(b"after", headers=[("\u00e9" * 9, None)])
        queue.flush()
        assert (before.result(0), after.result(0)) == (0, 1)
    log.close()


def test_an_exception_that_nobody_thought_of_is_told_to_those_who_wait() -> None:
    class LateClock(Clock):
        def __call__(self) -> int:
            return self.ms

    clock = LateClock()
    log = open_on(MemoryStorage())
    clock.ms = 2**70  # no time of a record
    with QueuedLog(log, clock=clock, linger_ms=0) as queue:
        lost = queue.append(b"lost")
        with pytest.raises(NotWritten, match="1 queued records were not written") as raised:
            queue.flush()
        assert isinstance(lost.exception(0), ValueError)
        assert raised.value.records == [(None, b"lost")]
        clock.ms = 1_000
        assert queue.append(b"kept").result(10) == 0
    log.close()


def test_what_a_failed_log_did_not_take_fills_no_memory() -> None:
    disk = CrashingStorage()
    log = open_on(disk)
    queue = QueuedLog(log, clock=Clock(), linger_ms=0, queue_bytes=1_000, threaded=False)
    disk.sync_fails = True
    for number in range(100):
        queue.append(b"%03d" % number + b"x" * 57)
        queue.poll(1_000)
    with pytest.raises(NotWritten, match="100 queued records were not written") as raised:
        queue.flush()
    assert raised.value.count == 100
    assert [value[:3] for _, value in raised.value.records if value] == [
        b"%03d" % number for number in range(10)
    ]
    queue.close()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_what_does_not_compress_is_written_as_it_is_and_takes_nobody_down(codec: Codec) -> None:
    limit = 1 << 20
    log = open_on(MemoryStorage(), **{"max.message.bytes": str(limit)})
    queue = QueuedLog(log, clock=Clock(), linger_ms=0, codec=codec, threaded=False)
    value = random.Random(1).randbytes(limit - BATCH_OVERHEAD - RECORD_OVERHEAD)
    futures = [queue.append(b"small"), queue.append(value)]
    queue.flush()
    assert [future.result(0) for future in futures] == [0, 1]
    assert values_of(log) == [b"small", value]

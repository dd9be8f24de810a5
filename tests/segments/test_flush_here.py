"""A lone writer on a quick disk syncs for itself; who is not alone, or not quick, waits for the
WAL's thread as before, and what is acknowledged is durable either way."""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.disk.storage import StorageFile
from segbroker.segments.errors import PartitionReadOnly
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.inline_sync import (
    BUDGET_DIVISOR,
    BURST_S,
    FRESH_S,
    MEAN_S,
    ROW,
    SLOW_S,
    InlineSyncBudget,
)
from segbroker.segments.wal.journal import WalConfig

from ..support.gated_storage import GatedStorage
from .wal_writing import until

ROOT = "/data"
WAL = WalConfig(file_bytes=1 << 14, shard_bytes=1 << 16, quick_after=2)


class Disk(GatedStorage):
    """Says which thread synced the WAL."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_by: list[threading.Thread] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> StorageFile:  # type: ignore[override]
        file = super().open(path, create=create, read_only=read_only)
        if "/wal-" in path:
            sync = file.fdatasync

            def fdatasync() -> None:
                self.synced_by.append(threading.current_thread())
                sync()

            file.fdatasync = fdatasync  # type: ignore[method-assign]
        return file


class Writer:
    """Appends one record at a time, as the loop does for a lone producer."""

    def __init__(self, manager: DiskManager, partition: int = 0) -> None:
        self.handler: DiskHandler = manager.get_handler("t", partition)
        self.shard = manager.wal.shard_of(bytes(16), partition)  # there is one
        self.handler.flushes_on_append = False

    def append(self, size: int = 1) -> int:
        batch = memoryview(bytearray(encode_batch([bytes(size)], timestamps_ms=1)))
        return self.handler.append(batch, check_batch(batch), 1).last_offset + 1

    def write(self, size: int = 1) -> bool:
        """Append and have it synced; whether that was done here."""
        end = self.append(size)
        if self.handler.flush_here():
            assert self.handler.high_watermark == end, "told when it returns"
            return True
        self.handler.flush_soon()
        until(lambda: self.handler.high_watermark == end)
        self.shard.between_groups(lambda: None)  # the thread has counted what it settled
        return False


@contextmanager
def opened(disk: MemoryStorage, *, clock: Callable[[], float] | None) -> Iterator[DiskManager]:
    manager = DiskManager(ROOT, storage=disk, wal=WAL, clock=clock)
    with manager:
        manager.create_topic("t", 2, TopicConfig({"durability": "fsync"}))
        yield manager


def end_after_power_cut(disk: MemoryStorage) -> int:
    with DiskManager(ROOT, storage=disk.after_power_cut(), flushers=0) as manager:
        return manager.get_handler("t", 0).log_end_offset


def test_on_a_quick_disk_a_lone_writer_syncs_for_itself() -> None:
    disk = Disk()
    with opened(disk, clock=lambda: 0.0) as manager:
        writer = Writer(manager)
        writer.write()
        disk.synced_by.clear()
        for _ in range(10):
            assert writer.write()
            assert end_after_power_cut(disk) == writer.handler.high_watermark
        assert disk.synced_by == [threading.main_thread()] * 10
        statistics = manager.wal.statistics()
        assert (statistics.syncs_here, statistics.syncs > 10) == (10, True)


def test_without_a_clock_and_without_anything_to_write_nothing_is_done_here() -> None:
    with opened(Disk(), clock=None) as manager:
        writer = Writer(manager)
        assert not any(writer.write() for _ in range(5))
    with opened(Disk(), clock=lambda: 0.0) as manager:
        writer = Writer(manager)
        writer.write()
        assert writer.write()
        assert not writer.handler.flush_here()


def test_what_a_checkpoint_left_to_be_written_is_not_written_by_a_lone_writer() -> None:
    with opened(Disk(), clock=lambda: 0.0) as manager:
        writer = Writer(manager)
        writer.write()
        assert writer.write()
        for partition in range(10):
            manager.wal.end_soon(bytes(16), partition, 1, 100, 5)
        assert not writer.write(), "as many frames as there are partitions"
        assert writer.write()


def test_a_disk_that_was_slow_once_is_left_to_the_thread() -> None:
    now = [0.0]
    disk = Disk()
    real = disk.syncs.wait

    def slow(timeout: float | None = None) -> bool:
        now[0] += 0.5
        return real(timeout)

    with opened(disk, clock=lambda: now[0]) as manager:
        writer = Writer(manager)
        writer.write()
        assert writer.write()
        disk.syncs.wait = slow  # type: ignore[method-assign]
        assert writer.write(), "nobody could know"
        disk.syncs.wait = real  # type: ignore[method-assign]
        for _ in range(20):
            assert not writer.write(), "as long as it may stand still again"
        now[0] += 0.5 * BUDGET_DIVISOR
        assert not writer.write(), "what was known is old"
        assert writer.write()


def test_while_anything_else_is_being_written_a_lone_writer_waits_for_its_turn() -> None:
    disk = Disk()
    with opened(disk, clock=lambda: 0.0) as manager:
        writer, other = Writer(manager), Writer(manager, 1)
        writer.write()
        assert writer.write()
        disk.syncs.clear()
        disk.synced_by.clear()
        ends = other.append(), writer.append()
        other.handler.flush_soon()
        until(lambda: len(disk.synced_by) == 1)  # the thread hangs in its sync
        assert not writer.handler.flush_here()
        writer.handler.flush_soon()
        assert not writer.handler.flush_here(), "it is queued"
        disk.syncs.set()
        until(lambda: (other.handler.high_watermark, writer.handler.high_watermark) == ends)
        assert threading.main_thread() not in disk.synced_by
        writer.shard.between_groups(lambda: None)
        assert writer.write()


def test_what_needs_another_file_or_is_large_is_for_the_thread() -> None:
    disk = Disk()
    with opened(disk, clock=lambda: 0.0) as manager:
        writer = Writer(manager)
        writer.write()
        done = [writer.write(1_500) for _ in range(40)]
        assert {True, False} == set(done)
        until(lambda: manager.wal.statistics().checkpoints > 0)
        assert manager.wal.statistics().syncs_here == done.count(True)
        assert end_after_power_cut(disk) == 41


def test_after_a_failed_sync_of_its_own_nothing_is_acknowledged_and_nothing_synced_again() -> None:
    disk = Disk()
    # What cannot be synced cannot be closed in order.
    with suppress(ExceptionGroup), opened(disk, clock=lambda: 0.0) as manager:
        writer, other = Writer(manager), Writer(manager, 1)
        writer.write()
        assert other.write()
        assert writer.write()
        before = writer.handler.high_watermark
        disk.sync_error = OSError(errno.EIO, "gone")
        writer.append()
        assert writer.handler.flush_here(), "it was tried, and told"
        assert isinstance(writer.handler.read_only, PartitionReadOnly)
        assert writer.handler.high_watermark == before
        with pytest.raises(PartitionReadOnly):
            writer.append()
        synced = len(disk.synced_by)
        other.append()
        assert not other.handler.flush_here(), "the shard has failed"
        other.handler.flush_soon()
        until(lambda: other.handler.read_only is not None)
        assert len(disk.synced_by) == synced, "that descriptor is never synced again"
        assert other.handler.high_watermark == 1


def test_several_threads_that_write_and_a_lone_one_each_find_what_they_were_told() -> None:
    disk = Disk()
    with opened(disk, clock=lambda: 0.0) as manager:
        writer = Writer(manager)
        stop = threading.Event()

        def control() -> None:
            while not stop.is_set():
                manager.allocate_producer_ids(1)

        thread = threading.Thread(target=control)
        thread.start()
        try:
            for _ in range(300):
                writer.write()
        finally:
            stop.set()
            thread.join()
        assert end_after_power_cut(disk) == 300


def test_quick_is_what_was_quick_for_long_enough_and_lately() -> None:
    now = [100.0]
    budget = InlineSyncBudget(lambda: now[0])

    def sync(seconds: float) -> None:
        began = budget.now()
        now[0] += seconds
        budget.took(began)

    def is_quick_after(*each: float) -> bool:
        for seconds in each:
            sync(seconds)
        return budget.is_quick

    assert not is_quick_after(*[0.0001] * (ROW - 1))
    assert is_quick_after(0.0001)
    now[0] += FRESH_S * 0.5
    assert budget.is_quick
    now[0] += FRESH_S * 0.51
    assert not budget.is_quick, "who knows what it does now"
    assert is_quick_after(0.0001)
    assert not is_quick_after(*[MEAN_S * 1.2] * 100), "one by one not slow, but not worth it"
    assert is_quick_after(*[0.0001] * 100)
    assert not InlineSyncBudget(None).is_quick


def test_slow_syncs_are_borne_for_a_part_of_the_time() -> None:
    now = [100.0]
    budget = InlineSyncBudget(lambda: now[0])

    def is_quick_after(seconds: float, times: int = 1) -> bool:
        for _ in range(times):
            began = budget.now()
            now[0] += seconds
            budget.took(began)
        return budget.is_quick

    def rest(seconds: float) -> None:
        """Time passes in quick syncs."""
        is_quick_after(0.0001, round(seconds / 0.0001))

    slow = SLOW_S * 1.01
    is_quick_after(0.0001, ROW)
    assert not is_quick_after(slow), "nothing was spared before it"
    assert not is_quick_after(0.0001, ROW - 1), "not before so many that are quick"
    assert not is_quick_after(0.0001), "nor before the time has come back"
    rest(slow * BUDGET_DIVISOR)
    assert budget.is_quick
    rest(slow * BUDGET_DIVISOR)
    assert is_quick_after(slow), "it was spared meanwhile"
    rest(slow * BUDGET_DIVISOR)
    rest(10 * BURST_S * BUDGET_DIVISOR)
    assert is_quick_after(BURST_S * 0.9)
    assert not is_quick_after(BURST_S * 0.2), "no more than this is ever spare"
    rest(BURST_S * BUDGET_DIVISOR * 1.2)
    assert budget.is_quick
    assert not is_quick_after(1.0), "a disk that hangs"
    rest(BUDGET_DIVISOR * 0.9)
    assert not budget.is_quick
    rest(BUDGET_DIVISOR * 0.1)
    assert budget.is_quick


def test_who_wrote_alone_is_answered_behind_the_sync_and_before_the_watermark_moves() -> None:
    disk = Disk()
    with opened(disk, clock=lambda: 0.0) as manager:
        writer = Writer(manager)
        for _ in range(3):
            writer.write()
        seen: list[tuple[int, int]] = []

        def acknowledge() -> None:
            seen.append((len(disk.synced_by), writer.handler.high_watermark))

        synced, end = len(disk.synced_by), writer.append()
        assert writer.handler.flush_here(acknowledge=acknowledge)
        assert seen == [(synced + 1, end - 1)]
        assert writer.handler.high_watermark == end
        disk.sync_error = OSError(errno.EIO, "the disk is gone")
        writer.append()
        assert writer.handler.flush_here(acknowledge=acknowledge), "it was tried"
        assert len(seen) == 1, "and nobody was told that it is there"
        disk.sync_error = None

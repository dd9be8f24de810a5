"""Damage and failures while a log is in use: the rest of it goes on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from segbroker.segments.errors import CorruptSegment, DiskFull
from segbroker.segments.handler import DiskHandler
from segbroker.segments.manager import DiskManager
from segbroker.segments.memory import MemoryFile, MemoryStorage
from segbroker.segments.posix import PosixStorage
from segbroker.segments.topic_config import TopicConfig

from .crashing import CrashingFile, CrashingStorage
from .tools import SMALL, append, batch_of, flip, offsets_in, read_from

FOLDER = "/data/topics/t/partition_0"
LOG_1 = f"{FOLDER}/t_partition_0_segment_1.log"


class CountingStorage(CrashingStorage):
    """Knows which files are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[MemoryFile] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashingFile:
        file = super().open(path, create=create, read_only=read_only)
        self.opened.append(file)
        return file

    @property
    def open_count(self) -> int:
        return sum(not file._closed for file in self.opened)


def manager_on(disk: MemoryStorage) -> DiskManager:
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=1_000)
    manager.open()
    return manager


def partition_with(
    disk: MemoryStorage, batches: int, config: TopicConfig = SMALL
) -> tuple[DiskManager, DiskHandler]:
    manager = manager_on(disk)
    manager.create_topic("t", 1, config, now_ms=1_000)
    handler = manager.get_handler("t", 0)
    for number in range(batches):
        append(handler, batch_of(b"%03d" % number + b"x" * 57))
    return manager, handler


def readable(handler: DiskHandler) -> list[int]:
    """Base offsets that can be read one by one."""
    found = []
    for offset in range(handler.log_start_offset, handler.high_watermark):
        try:
            found.append(offsets_in(read_from(handler, offset, 1))[0])
        except CorruptSegment:
            continue
    return found


def test_a_damaged_sealed_segment_costs_its_own_batches_only() -> None:
    # | 0 1 2 | 3 ? 5 | 6 7 8 | ...   4 KiB blocks: the damaged block is all of segment 1
    disk = MemoryStorage()
    _, handler = partition_with(disk, 15)
    flip(disk, LOG_1, 200)
    handler._log.files.indexes.drop(FOLDER)
    assert readable(handler) == [0, 1, 2, *range(6, 15)]
    assert append(handler, batch_of(b"more")).base_offset == 15


def test_blocks_in_front_of_a_damaged_one_are_read() -> None:
    # index.interval.bytes 4096, batches of 4 KB: each is a block of its own
    disk = MemoryStorage()
    manager = manager_on(disk)
    config = {"segment.bytes": "40000", "index.interval.bytes": "4096"}
    manager.create_topic("t", 1, TopicConfig(config), now_ms=1_000)
    handler = manager.get_handler("t", 0)
    for _ in range(12):
        append(handler, batch_of(b"x" * 4_200))
    flip(disk, f"{FOLDER}/t_partition_0_segment_0.log", 5 * 4_280)
    assert offsets_in(read_from(handler, 0)) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptSegment):
        read_from(handler, 5)
    assert offsets_in(read_from(handler, 6))[0] == 6


def test_a_missing_sealed_segment_is_damage_and_not_a_missing_file() -> None:
    disk = MemoryStorage()
    manager, _ = partition_with(disk, 15)
    manager.close()
    disk.unlink(LOG_1)
    disk.unlink(LOG_1.replace(".log", ".index"))
    handler = manager_on(disk).get_handler("t", 0)
    with pytest.raises(CorruptSegment, match=r"segment_1.log at byte 0: the file is missing"):
        read_from(handler, 3)
    with pytest.raises(CorruptSegment, match="the file is missing"):
        read_from(handler, 4)
    assert readable(handler) == [0, 1, 2, *range(6, 15)]


def test_a_limit_of_one_byte_gives_one_batch_everywhere() -> None:
    _, handler = partition_with(MemoryStorage(), 15)
    for offset in range(15):
        assert offsets_in(read_from(handler, offset, 1)) == [offset]


def test_a_reopening_that_fails_half_way_leaves_nothing_open_and_is_tried_again() -> None:
    disk = CountingStorage()
    manager, handler = partition_with(disk, 8)
    disk.room = 30
    with pytest.raises(DiskFull):
        append(handler, batch_of(b"z" * 60))
    # A manifest that has to be written anew cannot be: the disk is still full.
    disk.room = None
    flip(disk, f"{FOLDER}/t_partition_0.manifest", 40)
    disk.room = 0
    manager.housekeeping(5_000)
    before = disk.open_count
    for second in range(6, 20):
        manager.housekeeping(1_000 * second)
        assert handler.read_only is not None
    assert disk.open_count == before
    assert readable(handler) == list(range(8))
    disk.room = None
    manager.housekeeping(30_000)
    assert handler.read_only is None
    assert append(handler, batch_of(b"z")).base_offset == 8
    assert readable(handler) == list(range(9))
    manager.close()
    assert disk.open_count == 0


def test_a_log_that_cannot_be_opened_leaves_no_descriptor() -> None:
    disk = CountingStorage()
    partition_with(disk, 8)
    image = CountingStorage()
    image._root = disk.after_kill()._root
    image.sync_fails = True
    manager = manager_on(image)
    for _ in range(3):
        with pytest.raises(Exception, match="sync failed"):
            manager.get_handler("t", 0)
        assert image.open_count == 0


def test_a_roll_takes_a_segment_made_ahead_and_neither_makes_nor_syncs() -> None:
    disk = CrashingStorage()
    config = TopicConfig({**SMALL.overrides, "durability": "disk"})
    _, handler = partition_with(disk, 2, config)
    number = handler._log.active.number
    assert len(handler._log.ready) == 1
    handler._making = handler._sealing = True  # as while their threads are busy
    before = len(disk.operations)
    while handler._log.active.number == number:
        append(handler, batch_of(b"x" * 60))
    assert set(disk.operations[before:]) == {"pwrite"}
    assert handler.rolls_unprepared == 0


def test_more_segments_are_made_ahead_when_rolls_follow_quickly() -> None:
    _, handler = partition_with(MemoryStorage(), 60)
    assert handler._log.ready.target > 1
    missed = handler.rolls_unprepared
    for _ in range(60):
        append(handler, batch_of(b"x" * 60))
    assert handler.rolls_unprepared == missed


def test_segments_made_ahead_are_gone_after_closing_and_accepted_after_a_crash() -> None:
    disk = MemoryStorage()
    manager, handler = partition_with(disk, 60)
    active = handler._log.active.number
    crashed = disk.after_kill()
    assert crashed.exists(f"{FOLDER}/t_partition_0_segment_{active + 1}.log")
    assert readable(manager_on(crashed).get_handler("t", 0)) == list(range(60))
    manager.close()
    assert not disk.exists(f"{FOLDER}/t_partition_0_segment_{active + 1}.log")


def test_idle_partitions_hold_no_descriptor(tmp_path: Path) -> None:
    descriptors: Callable[[], int] = lambda: len(list(Path("/proc/self/fd").iterdir()))  # noqa: E731
    with DiskManager(str(tmp_path), flushers=0, open_logs_max=8, storage=PosixStorage()) as manager:
        manager.create_topic("t", 100, SMALL, now_ms=0)
        before = descriptors()
        for partition in range(100):
            append(manager.get_handler("t", partition), batch_of(b"a" * 300))
            manager.housekeeping(1_000 + partition)
        assert descriptors() - before <= 3 * 8
        for partition in range(100):
            handler = manager.get_handler("t", partition)
            assert append(handler, batch_of(b"b")).base_offset == 1
            assert offsets_in(read_from(handler, 0)) == [0, 1]


def test_the_first_read_of_a_segment_just_sealed_needs_no_lane(tmp_path: Path) -> None:
    with DiskManager(str(tmp_path), flushers=0) as manager:
        manager.create_topic("t", 1, SMALL, now_ms=0)
        handler = manager.get_handler("t", 0)
        for _ in range(10):
            append(handler, batch_of(b"x" * 100))
        plan = handler.plan_read(0, 400)
        assert plan is not None
        buffer = memoryview(bytearray(plan.size_max))
        assert offsets_in(buffer[: plan.read_nowait(buffer) or 0]) == [0, 1]
        plan.release()


def test_a_partition_that_was_only_read_is_closed_without_a_write() -> None:
    disk = CrashingStorage()
    manager, _ = partition_with(disk, 8)
    manager.close()
    manager = manager_on(disk)
    before = len(disk.operations)
    assert readable(manager.get_handler("t", 0)) == list(range(8))
    manager.close()
    assert disk.operations[before:] == []

"""Batches that are appended together lie in the log as if they had come one by one."""

import random

import pytest

from segbroker.protocol.record_batch import encode_batch, read_header
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.memory import MemoryStorage
from segbroker.segments.errors import PartitionReadOnly
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from .test_journaling import SyncCounting
from .tools import read_from

NOW_MS = 1_700_000_000_000


def handler_on(disk: MemoryStorage, **config: str) -> tuple[DiskManager, DiskHandler]:
    manager = DiskManager("/data", storage=disk, flushers=0, now_ms=NOW_MS)
    manager.open()
    manager.create_topic("t", 1, TopicConfig.parse(config))
    return manager, manager.get_handler("t", 0)


def batches(rng: random.Random, count: int) -> list[bytes]:
    return [
        encode_batch(
            [rng.randbytes(rng.randrange(900)) for _ in range(rng.choice((1, 1, 4)))],
            timestamps_ms=NOW_MS + rng.randrange(-5_000, 5_000),
        )
        for _ in range(count)
    ]


def append_run(handler: DiskHandler, run: list[bytes]) -> list[int] | None:
    headers = [read_header(batch) for batch in run]
    return handler.append_run(
        memoryview(bytearray(b"".join(run))),
        [len(batch) for batch in run],
        [header.records_count for header in headers],
        [header.max_timestamp for header in headers],
        NOW_MS,
    )


def append_each(handler: DiskHandler, run: list[bytes]) -> list[int]:
    offsets = []
    for batch in run:
        result = handler.append(memoryview(bytearray(batch)), read_header(batch), NOW_MS)
        offsets.append(result.base_offset)
    return offsets


def files(disk: MemoryStorage, handler: DiskHandler) -> dict[str, bytes]:
    folder = "/data/topics/t/partition_0"
    found = {}
    for name in disk.listdir(folder):
        if name.endswith((".log", ".index")):
            file = disk.open(f"{folder}/{name}", read_only=True)
            buffer = bytearray(file.size())
            file.pread(memoryview(buffer), 0)
            found[name] = bytes(buffer)
            file.close()
    return found


@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("seed", range(6))
def test_a_run_leaves_the_files_that_single_appends_leave(seed: int, durability: str) -> None:
    config = {"durability": durability, "segment.bytes": "20000"}
    disks = [MemoryStorage(), MemoryStorage()]
    (one_manager, one), (other_manager, other) = [handler_on(disk, **config) for disk in disks]
    rng = random.Random(seed)
    together = 0
    for _ in range(40):
        run = batches(rng, rng.choice((1, 2, 9)))
        offsets = append_run(one, run)
        if offsets is None:  # it rolls in between
            append_each(one, run)
        else:
            together += 1
            assert offsets[-1] == one.log_end_offset
            offsets.pop()
        expected = append_each(other, run)
        assert offsets in (None, expected)
        assert one.high_watermark == other.high_watermark == other.log_end_offset
        assert (one.size_bytes, one.records_count) == (other.size_bytes, other.records_count)
    assert together > 10
    for offset in range(0, one.log_end_offset, 7):
        assert read_from(one, offset) == read_from(other, offset)
    one_manager.close()
    other_manager.close()
    assert files(disks[0], one) == files(disks[1], other)


def test_what_a_log_wants_one_by_one_is_not_begun() -> None:
    run = [encode_batch([b"v" * size], timestamps_ms=NOW_MS) for size in (200, 400)]
    for config in (
        {"max.message.bytes": "300"},
        {"segment.bytes": "512", "max.message.bytes": "512"},
        {"segment.records": "1"},
        {"message.timestamp.type": "LogAppendTime"},
        {"retention.bytes": "10000", "retention.full.policy": "reject"},
    ):
        _, handler = handler_on(MemoryStorage(), **config)
        assert append_run(handler, run) is None
        assert handler.log_end_offset == 0


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_run_that_cannot_be_written_makes_the_partition_read_only(durability: str) -> None:
    disk = SyncCounting()
    _, handler = handler_on(disk, durability=durability)
    run = batches(random.Random(1), 3)
    assert append_run(handler, run) is not None
    end_offset = handler.log_end_offset
    disk.full = "segment_0.log"
    for _ in range(2):
        with pytest.raises(PartitionReadOnly):
            append_run(handler, run)
    assert handler.log_end_offset == end_offset
    assert handler.high_watermark == end_offset


def test_a_run_is_acknowledged_only_by_its_sync() -> None:
    disk = SyncCounting()
    _, handler = handler_on(disk)
    handler.flushes_on_append = False
    assert append_run(handler, batches(random.Random(2), 3)) is not None
    assert handler.high_watermark == 0
    disk.failing = "/wal/"
    handler.flush_soon()
    assert handler.high_watermark == 0
    assert handler.read_only is not None


def test_an_acknowledged_run_survives_a_power_cut_though_its_segment_was_never_synced() -> None:
    disk = SyncCounting()
    _, handler = handler_on(disk)
    run = batches(random.Random(3), 5)
    append_run(handler, run)
    end_offset = handler.high_watermark
    assert end_offset == handler.log_end_offset > 0
    image = disk.after_power_cut()
    manager = DiskManager("/data", storage=image, flushers=0, now_ms=NOW_MS)
    manager.open()
    found = manager.get_handler("t", 0)
    assert found.log_end_offset == end_offset
    assert read_from(found, 0) == read_from(handler, 0)

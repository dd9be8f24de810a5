"""The storage engine alone: verified reads of sealed segments, long starts, idle memory."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.manager import DiskManager
from segbroker.segments.topic_config import TopicConfig

from . import librdkafka
from .machine import resident_mib
from .report import Row
from .servers import segbroker

MIB = 1024 * 1024


def _fill(root: Path, topic: str, partitions: int, segments: int, segment_bytes: int) -> None:
    """Whole segments of one batch size, in every partition."""
    size = segment_bytes // 16
    batch = bytearray(encode_batch([bytes(1024)] * (size // 1040), timestamps_ms=1))
    header = check_batch(batch)
    config = TopicConfig.parse({"durability": "disk", "segment.bytes": str(segment_bytes)})
    per_segment = segment_bytes // len(batch)
    with DiskManager(str(root), now_ms=1) as manager:
        manager.create_topic(topic, partitions, config, now_ms=1)
        for partition in range(partitions):
            handler = manager.get_handler(topic, partition)
            for _ in range(segments * per_segment + 1):
                handler.append(memoryview(batch), header, 1)


def sealed_read(quick: bool) -> Row:
    """Read every sealed segment of a 256 MiB log, verified, from the page cache."""
    segments = 32 if quick else 256
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        _fill(Path(folder, "data"), "sealed", 1, segments, MIB)
        rates = []
        with DiskManager(str(Path(folder, "data")), now_ms=1) as manager:
            handler = manager.get_handler("sealed", 0)
            buffer = memoryview(bytearray(4 * MIB))
            for _ in range(5):
                offset, total, began = 0, 0, time.perf_counter()
                while offset < handler.high_watermark:
                    plan = handler.plan_read(offset, MIB)
                    assert plan is not None
                    count = plan.read_nowait(buffer)
                    if count is None:
                        count = plan.read(buffer)
                    total += count
                    offset = _next_offset(buffer[:count])
                rates.append(total / (time.perf_counter() - began) / 2**30)
    return Row(
        f"sealed read in process, verified, {segments} segments of 1 MiB in 1 MiB reads",
        "–",
        f"{statistics.median(rates):.1f} GiB/s",
        goal="≥ 3.9 GiB/s",
    )


def _next_offset(content: memoryview) -> int:
    position = offset = 0
    while position < len(content):
        offset = int.from_bytes(content[position : position + 8], "big")
        offset += int.from_bytes(content[position + 23 : position + 27], "big") + 1
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    return offset


_START = """
import sys, time
began = time.perf_counter()
from segbroker.segments.manager import DiskManager
manager = DiskManager(sys.argv[1], now_ms=1)
imported = time.perf_counter()
manager.open()
for name, topic in manager.topics.items():
    for partition in range(topic.partitions):
        manager.get_handler(name, partition)
print(time.perf_counter() - imported, manager.statistics()["open_partitions"])
manager.close()
"""


def start(partitions: int, segments: int) -> Row:
    """Open every partition of a data directory, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        root = Path(folder, "data")
        _fill(root, "many", partitions, segments, 32 * 1024)
        out = subprocess.run(
            [sys.executable, "-c", _START, str(root)], capture_output=True, text=True, check=True
        ).stdout.split()
    assert int(out[1]) == partitions
    return Row(
        f"open all of {partitions:,} partitions × {segments:,} segments",
        "–",
        f"{float(out[0]):.2f} s",
        goal="< 1 s",
    )


def idle_memory() -> Row:
    """Resident memory of a daemon that was just started, and after a topic was made."""
    with segbroker() as server:
        fresh = resident_mib(server.pid)
        librdkafka.create_topic(server, "disk")
        return Row(
            "idle memory of the daemon",
            "–",
            f"{fresh:.0f} MiB, {resident_mib(server.pid):.0f} MiB with a topic",
            goal="< 60 MB",
        )


def rows(quick: bool = False) -> list[Row]:
    many = (10, 100) if quick else (100, 1_000)
    wide = (100, 10) if quick else (10_000, 10)
    return [sealed_read(quick), start(*many), start(*wide), idle_memory()]

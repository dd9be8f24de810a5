"""The storage engine alone: verified reads of sealed segments, long starts, idle memory."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.files.manifest import Row, RowKind, encode_manifest
from segbroker.segments.log.producers import ProducerTable
from segbroker.segments.names import owner_of
from segbroker.segments.settings.topic_config import TopicConfig

from . import librdkafka
from .machine import resident_mib
from .report import Entry
from .report import Row as Figure
from .servers import segbroker

MIB = 1024 * 1024


def _fill(root: Path, topic: str, segments: int) -> None:
    """Whole segments of 1 MiB, in batches of 64 KiB."""
    batch = bytearray(encode_batch([bytes(1024)] * 62, timestamps_ms=1))
    header = check_batch(batch)
    config = TopicConfig.parse({"durability": "disk", "segment.bytes": str(MIB)})
    with DiskManager(str(root), now_ms=1) as manager:
        manager.create_topic(topic, 1, config)
        handler = manager.get_handler(topic, 0)
        for _ in range(segments * (MIB // len(batch)) + 1):
            handler.append(memoryview(batch), header, 1)


def _fake(root: Path, topic: str, partitions: int, segments: int) -> None:
    """What a clean stop leaves of many segments, without the bytes of the sealed ones.

    A start reads manifests and the active segment only; 100,000 files of 1 MiB would be 100 GB.
    """
    with DiskManager(str(root), now_ms=1) as manager:
        made = manager.create_topic(topic, partitions, TopicConfig())
        for partition in range(partitions):
            manager.get_handler(topic, partition)
    rows = [Row(RowKind.EPOCH)]
    rows += [
        Row(RowKind.SEGMENT, k, k * 1000, (k + 1) * 1000, MIB, 1000, k, 16384)
        for k in range(segments)
    ]
    rows.append(Row(RowKind.CHECKPOINT, number=segments, end_offset=segments * 1000))
    producers = ProducerTable().encode(segments * 1000)
    for partition in range(partitions):
        stem = f"{root}/topics/{topic}/partition_{partition}/{topic}_partition_{partition}"
        # As of no owner it would be written anew, and synced, when it is opened.
        owner = owner_of(made.topic_id, partition)
        Path(f"{stem}.manifest").write_bytes(encode_manifest(1, rows, owner))
        Path(f"{stem}.producers").write_bytes(producers)
        Path(f"{stem}_segment_{segments}.log").touch()


def sealed_read(quick: bool) -> Figure:
    """Read every sealed segment of a 256 MiB log, verified, from the page cache."""
    segments = 32 if quick else 256
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        _fill(Path(folder, "data"), "sealed", segments)
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
    return Figure(
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


START = """
import sys, time
began = time.perf_counter()
from segbroker.segments.directory.manager import DiskManager
manager = DiskManager(sys.argv[1], now_ms=1)
imported = time.perf_counter()
manager.open()
started = time.perf_counter()
for name, topic in manager.topics.items():
    for partition in range(topic.partitions):
        manager.get_handler(name, partition)
opened = time.perf_counter()
print("opened", started - imported, opened - started, manager.statistics().segments_count)
manager.close()
"""


def start(partitions: int, segments: int) -> Figure:
    """Open every partition of a data directory, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        root = Path(folder, "data")
        _fake(root, "many", partitions, segments)
        out = (
            subprocess.run(
                [sys.executable, "-c", START, str(root)],
                capture_output=True,
                text=True,
                check=True,
            )
            .stdout.partition("opened ")[2]
            .split()
        )
    assert int(out[2]) == partitions * (segments + 1), f"{out[2]} segments were found"
    return Figure(
        f"start with {partitions:,} partitions × {segments:,} segments",
        "–",
        f"{float(out[0]):.2f} s, then {float(out[1]):.2f} s to open every partition",
        goal="< 1 s",
    )


def idle_memory() -> Figure:
    """Resident memory of a daemon that was just started, and after a topic was made."""
    with segbroker() as server:
        fresh = resident_mib(server.pid)
        librdkafka.create_topic(server, "disk")
        return Figure(
            "idle memory of the daemon",
            "–",
            f"{fresh:.0f} MiB, {resident_mib(server.pid):.0f} MiB with a topic",
            goal="< 60 MB",
        )


def rows(quick: bool = False) -> list[Entry]:
    many = (10, 100) if quick else (100, 1_000)
    wide = (100, 10) if quick else (10_000, 10)
    return [sealed_read(quick), start(*many), start(*wide), idle_memory()]

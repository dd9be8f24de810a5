"""What a start after a SIGKILL takes, with a million records in the log.

The daemon is killed right after its last acknowledgement.  What it left is copied, so that the same
directory is opened twice: by a daemon, from the start of its process to its first line, and in a
process that looks at its watch after the imports and opens the directory and every partition.

Beside it many partitions with little in each: there a start is made of syncs, which are counted.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import librdkafka, peers
from .report import Entry, Row
from .servers import segbroker
from .storage import START

RECORDS = 1_000_000
SIZE = 100
ROUNDS = 3
PARTITIONS = 200

_WRITE_AND_DIE = """
import os, signal, sys, threading
from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.settings.topic_config import TopicConfig

count = int(sys.argv[2])
manager = DiskManager(sys.argv[1], now_ms=1)
manager.open()
manager.create_topic("t", count, TopicConfig())
acknowledged = threading.Semaphore(0)
for partition in range(count):
    handler = manager.get_handler("t", partition)
    handler.on_high_watermark = lambda _: acknowledged.release()
    batch = bytearray(encode_batch([bytes(100)] * 10, timestamps_ms=1))
    handler.append(memoryview(batch), check_batch(batch), 1)
for _ in range(count):
    acknowledged.acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""

_OPEN_AND_COUNT = """
import itertools, os, signal, sys, time
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.disk.posix import PosixFile, PosixStorage

syncs = itertools.count()  # one step in any thread

def counted(sync):
    def also_counts(*arguments):
        next(syncs)
        sync(*arguments)
    return also_counts

PosixFile.fdatasync = counted(PosixFile.fdatasync)
PosixStorage.fsync_dir = counted(PosixStorage.fsync_dir)
manager = DiskManager(sys.argv[1], now_ms=1)
began = time.perf_counter()
manager.open()
print("opened", time.perf_counter() - began, next(syncs), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(folder: Path, durability: str, records: int) -> None:
    """A data directory with so many acknowledged records, as a SIGKILL leaves it."""
    with segbroker(data=folder) as server:
        ours = peers.Segbroker(server.address, server.pid)
        topic = ours.create_topic(durable=durability == "fsync")
        librdkafka.produce(server.address, topic, records, SIZE)
        os.kill(server.pid, signal.SIGKILL)


def daemon_ready(data: Path) -> float:
    """Seconds from the start of the process to the line with its address."""
    began = time.perf_counter()
    with segbroker(data=data):
        return time.perf_counter() - began


def opened(data: Path) -> tuple[float, float]:
    """(seconds to open the directory, and then every partition), in a process of its own."""
    command = [sys.executable, "-c", START, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = done.stdout.partition("opened ")[2].split()
    return float(words[0]), float(words[1])


def recovery(durability: str, records: int) -> Row:
    """The median of some starts, each on a copy of what one SIGKILL left."""
    ready, directory, partitions = [], [], []
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        left = Path(folder, "left")
        killed(left, durability, records)
        for number in range(ROUNDS):
            for name in ("daemon", "process"):
                shutil.copytree(left, Path(folder, f"{name}-{number}"))
            ready.append(daemon_ready(Path(folder, f"daemon-{number}")))
            first, second = opened(Path(folder, f"process-{number}"))
            directory.append(first)
            partitions.append(second)
    return Row(
        f"start after a SIGKILL with {records:,} × {SIZE} B",
        durability,
        f"{statistics.median(directory) + statistics.median(partitions):.2f} s to recover and open"
        f" every partition, {statistics.median(ready):.2f} s from the start of a daemon to ready",
        goal="< 1 s",
    )


def many_partitions(count: int) -> Row:
    """A start with something of each partition in the write-ahead log: syncs, and how long."""
    took, syncs = [], 0
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        left = Path(folder, "left")
        subprocess.run([sys.executable, "-c", _WRITE_AND_DIE, str(left), str(count)])
        for number in range(ROUNDS):
            data = Path(folder, f"copy-{number}")
            shutil.copytree(left, data)
            os.sync()  # what the copy has written is not the start's
            command = [sys.executable, "-c", _OPEN_AND_COUNT, str(data)]
            done = subprocess.run(command, capture_output=True, text=True)
            seconds, counted = done.stdout.partition("opened ")[2].split()
            took.append(float(seconds))
            syncs = int(counted)
    return Row(
        f"start after a SIGKILL, {count:,} partitions with records in the write-ahead log",
        "fsync",
        f"{syncs:,} syncs, {statistics.median(took):.2f} s to put back and open all of them",
    )


def rows(quick: bool = False) -> list[Entry]:
    """Both classes that survive a kill; many partitions."""
    records = RECORDS // 20 if quick else RECORDS
    big = [recovery(durability, records) for durability in ("fsync", "disk")]
    return [*big, many_partitions(PARTITIONS)]

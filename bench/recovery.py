"""What a start after a SIGKILL takes, with a million records in the log.

The daemon is killed right after its last acknowledgement.  What it left is copied, so that the same
directory is opened twice: by a daemon, from the start of its process to its first line, and in a
process that looks at its watch after the imports and opens the directory and every partition.
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


def rows(quick: bool = False) -> list[Entry]:
    """Both classes that survive a kill."""
    records = RECORDS // 20 if quick else RECORDS
    return [recovery(durability, records) for durability in ("fsync", "disk")]

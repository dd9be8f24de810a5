"""Durable acknowledgements where a sync takes as long as on a disk without a battery.

The disk of a machine that runs benchmarks is often a virtual one, whose fdatasync is over before
anything has reached a medium; what a group commit is worth is not seen there.  Here fdatasync and
fsync of every program take DELAY_MS longer, by a library of six lines that is loaded into it (gcc
makes it): in every thread for itself, so several syncs may be under way at once, as on an SSD.
Brokers that do not call the C library (NATS is Go) cannot be slowed down like that and are left
out.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from . import peers
from .durable import described_load, run
from .report import Entry, Note, Row, latency
from .throughput import described

DELAY_MS: Final = 1.0
# Connections, requests in flight on each, records in each request.
LOADS: Final = ((1, 1, 1), (64, 1, 1), (50, 20, 1), (50, 1, 20), (1, 5, 200))

_LIBRARY: Final = """
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static void wait_a_little(void) { struct timespec at = {0, %d}; nanosleep(&at, 0); }
int fdatasync(int fd) { wait_a_little(); return syscall(SYS_fdatasync, fd); }
int fsync(int fd) { wait_a_little(); return syscall(SYS_fsync, fd); }
"""
_RAW: Final = "from bench.durable import *; print(fdatasync_rate(Path({folder!r}), {seconds}))"


@contextmanager
def _slower_syncs(folder: Path) -> Iterator[None]:
    """Programs that are started inside sync DELAY_MS longer.  Raises OSError without a gcc."""
    library = folder / "slow_disk.so"
    command = ["gcc", "-shared", "-fPIC", "-O", "-x", "c", "-", "-o", str(library)]
    source = _LIBRARY % (DELAY_MS * 1e6)
    subprocess.run(command, input=source, text=True, check=True)
    os.environ["LD_PRELOAD"] = str(library)
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"]


def rows(quick: bool = False) -> list[Entry]:
    """1, 64 and 1,000 records in flight beside the raw rate, one in flight, and Redis."""
    found: list[Entry] = []
    seconds = 1.0 if quick else 4.0
    with (
        TemporaryDirectory(prefix="segbroker-bench-") as folder,
        _slower_syncs(Path(folder)),
        peers.running(durable=True) as (ours, all_others, left_out),
    ):
        others = [peer for peer in all_others if not isinstance(peer, peers.Nats)]
        probe = [sys.executable, "-c", _RAW.format(folder=folder, seconds=seconds / 4)]
        raw = float(subprocess.run(probe, check=True, capture_output=True, text=True).stdout)
        alone = 0.0
        for connections, window, records in LOADS:
            in_flight = connections * window * records
            work = described_load(connections, window, records)
            topic = ours.create_topic(durable=True)
            mine, times = run(ours, topic, connections, window, records, seconds)
            said = f"{mine:,.0f} acks/s, {latency(times)}"
            if in_flight == 1:
                alone = mine
                base, ratio, goal = f"raw fdatasync {raw:,.0f}/s", mine / raw, "≥ 0.5"
            else:
                base, ratio = f"one in flight {alone:,.0f} acks/s", mine / alone
                goal = "≥ 10" if in_flight == 64 else "–"
            found.append(Row(work, "fsync", said, base, f"{ratio:.2f}", goal))
            for peer in others:
                topic = peer.create_topic(durable=True)
                theirs, their_times = run(peer, topic, connections, window, records, seconds)
                ratios = f"{mine / theirs:.2f}, p50 {median(times) / median(their_times):.2f}"
                base = f"{peer.name} {theirs:,.0f} acks/s, {latency(their_times)}"
                found.append(Row(work, "fsync", f"{mine:,.0f} acks/s", base, ratios, "–"))
        found += [described(peer, durable=True) for peer in (ours, *others)]
        found += [Note(reason) for reason in left_out]
    found.append(Note(f"each fdatasync and fsync takes {DELAY_MS} ms longer than the disk's own"))
    return found

"""The write-ahead log, against syncing every partition's segment directly.

Two daemons, the second with its journaling told that every batch is too large for the WAL, so
that each flush syncs the segments themselves: what a broker without a WAL does.  The loads take
turns on both, several times, so that a disk which changes its mind in between does not decide;
medians of the rounds count.

Beside it: class `disk` against class `fsync` with one partition and 1 KiB records, pipelined.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from . import durable
from .peers import Segbroker
from .peers.sockets import write
from .report import Entry, Row
from .servers import segbroker

PARTITIONS = (1, 8, 64)
RECORD_SIZE = 1024

# Every batch is larger than this: a sync of the segment acknowledges it.
WITHOUT_WAL = """
from segbroker.segments.partition.journaling import Journaling
begin = Journaling.__init__
def patched(self, *arguments):
    begin(self, *arguments)
    self._limit = 0
Journaling.__init__ = patched
from segbroker.cli.main import main
main()
"""


def _round(peer: Segbroker, topic: str, partitions: int, seconds: float) -> tuple[float, float]:
    """Acks per second and the median latency (s): one connection per partition, one in flight."""
    rate, times = durable.run(
        peer, topic, partitions, 1, 1, seconds, partitions=partitions, acks_min=10
    )
    return rate, statistics.median(times)


def rows(quick: bool = False) -> list[Entry]:
    """1, 8 and 64 partitions, each with one request in flight; then `disk` beside `fsync`."""
    found: list[Entry] = []
    rounds, seconds = (3, 0.5) if quick else (5, 2.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="segbroker-bench-")))
        with_wal = stack.enter_context(segbroker(data=folder / "wal"))
        without = stack.enter_context(
            segbroker(data=folder / "direct", program=("-c", WITHOUT_WAL))
        )
        peers = [Segbroker(server.address, server.pid, "") for server in (with_wal, without)]
        for partitions in PARTITIONS:
            topics = [peer.create_topic(durable=True, partitions=partitions) for peer in peers]
            got: list[list[tuple[float, float]]] = [[], []]
            for _ in range(rounds):
                for place, peer in enumerate(peers):
                    got[place].append(_round(peer, topics[place], partitions, seconds))
            rates = [statistics.median(rate for rate, _ in one) for one in got]
            times = [statistics.median(p50 for _, p50 in one) for one in got]
            found.append(
                Row(
                    f"{partitions} partitions, one request of 100 B in flight on each",
                    "fsync",
                    f"WAL {rates[0]:,.0f} acks/s, p50 {times[0] * 1e3:.2f} ms",
                    f"segments {rates[1]:,.0f} acks/s, p50 {times[1] * 1e3:.2f} ms",
                    f"{rates[0] / rates[1]:.2f}",
                    "–",
                )
            )
        found.append(_pipelined(peers[0], 20_000 if quick else 200_000, rounds))
    return found


def _pipelined(peer: Segbroker, count: int, rounds: int) -> Row:
    """One producer, 1 KiB records, 4 MiB in flight: `fsync` against `disk`."""
    topics = {
        name: peer.create_topic(durable=name == "fsync", partitions=1) for name in ("fsync", "disk")
    }
    rates: dict[str, list[float]] = {"fsync": [], "disk": []}
    for _ in range(rounds):
        for name, topic in topics.items():
            took = _timed(lambda topic=topic: write(peer.writer(topic, 0), count, RECORD_SIZE))  # type: ignore[misc]
            rates[name].append(count / took)
    fsync, disk = (statistics.median(rates[name]) for name in ("fsync", "disk"))
    return Row(
        f"one partition, {count:,} records of 1 KiB, pipelined",
        "fsync",
        f"{fsync:,.0f} records/s",
        f"class disk {disk:,.0f} records/s",
        f"{fsync / disk:.2f}",
        "≥ 0.5",
    )


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began

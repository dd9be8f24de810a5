"""Spark under kills: `python -m tests.soak.spark --rounds N --queries Q --seed S`.

Four queries (or eight, ...) copy a topic each into another, exactly once, in batches of 40 records.
In each round the driver's JVM is killed with SIGKILL while each query stands at one of the four
points of tests/spark/killing.py, as many at each, in a batch that the seed chooses; the next round
goes on from the checkpoints that it left.  After every kill each target is compared with its
source and its checkpoint (tests/spark/kill_round.py).  At the end a partition is added to each
source, and a last run, on two executors of a local cluster, brings the queries to their ends,
while the broker is killed under them and comes back.  Now every target must be its source: each
record once, in the order of its key, as librdkafka reads it.

Lean, because a JVM is what a round costs: the queries share its end, its Pythons are forks
(tests/spark/warm_python.py), and its classes come from an archive, which a first JVM makes when it
ends (--archive: where it is kept for the next run).  That is 6 s of the JVM's processor time
instead of 15.
"""

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from ..spark.kill_round import SOURCE_PARTITIONS, Copies, Finding
from ..spark.killing import OFFSETS_PER_BATCH, POINTS
from ..spark.topics import Topics
from ..spark.warm_python import warm_python
from ..support.daemon import Daemon, start

# Of a query in a round: what is repeated, and at most two batches more.
RECORDS_PER_ROUND = 2 * OFFSETS_PER_BATCH // SOURCE_PARTITIONS


def restart_once(daemon: Daemon, folder: Path, ended: threading.Event) -> None:
    """Kill the broker when a query has planned one more batch, and start it again."""
    offsets = folder / "0" / "checkpoint" / "offsets"
    before = len(list(offsets.iterdir()))
    while len(list(offsets.iterdir())) <= before and not ended.wait(0.05):
        pass
    daemon.stop(signal.SIGKILL)
    daemon.again()


def last_run(daemon: Daemon, copies: Copies) -> None:
    """Two executors, a partition more, a broker that comes back: to the end.  Raises Finding."""
    for name in copies.names:
        copies.topics.grow(f"{name}-source", SOURCE_PARTITIONS + 1)
        values = [b"%d" % n for n in range(OFFSETS_PER_BATCH)]
        key = b"%d" % SOURCE_PARTITIONS
        copies.topics.produce(f"{name}-source", values, partition=SOURCE_PARTITIONS, key=key)
    ended = threading.Event()
    restarting = threading.Thread(target=restart_once, args=(daemon, copies.folder, ended))
    restarting.start()
    try:
        copies.finish("local-cluster[2,2,1024]")
    finally:
        ended.set()
        restarting.join()
    ends = dict.fromkeys(range(SOURCE_PARTITIONS), copies.produced_count)
    for name in copies.names:
        copies.check(name, {**ends, SOURCE_PARTITIONS: OFFSETS_PER_BATCH})


def archive_classes(topics: Topics, folder: Path, python: Path, archive: Path) -> None:
    """Let a JVM copy one topic, and write the classes that it needed to `archive`."""
    warming = Copies(topics, folder, python, ["warming"])
    warming.create()
    warming.produce(1)
    beside = archive.with_suffix(".new")
    warming.java_options = f"-XX:ArchiveClassesAtExit={beside}"
    warming.finish("local[2]")
    beside.replace(archive)


def soak(rounds: int, queries: int, seed: int, archive: Path | None) -> None:
    """All rounds over one broker and a checkpoint for each query.  Raises Finding."""
    with (
        tempfile.TemporaryDirectory(prefix="segbroker-spark-kills-") as made,
        warm_python(Path(made)) as python,
    ):
        folder = Path(made)
        daemon = start(folder / "data")
        try:
            topics = Topics(daemon.address)
            copies = Copies(topics, folder, python, [str(n) for n in range(queries)])
            kept = archive or folder / "spark.jsa"
            if not kept.exists():
                archive_classes(topics, folder, python, kept)
            copies.java_options = f"-XX:SharedArchiveFile={kept}"
            copies.create()
            copies.produce(RECORDS_PER_ROUND)
            began = time.monotonic()
            for number in range(1, rounds + 1):
                copies.produce(RECORDS_PER_ROUND)
                points = copies.kill(Random(f"{seed}/{number}"))
                met = Counter(points.values())
                said = ", ".join(f"{point} {met[point]} times" for point in POINTS)
                spent = time.monotonic() - began
                print(f"seed {seed} kill {number}: {said}: exact; {spent:.0f} s", flush=True)
            last_run(daemon, copies)
            count = len(copies.names) * (2 * copies.produced_count + OFFSETS_PER_BATCH)
            topics.close()
        finally:
            daemon.stop()
    print(
        f"seed {seed}: {rounds} kills, which met each of the {len(POINTS)} points"
        f" {rounds * queries // len(POINTS)} times; {count} records once each,"
        f" {time.monotonic() - began:.0f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--queries", type=int, default=4, choices=range(4, 33, 4))
    parser.add_argument("--archive", type=Path)
    options = parser.parse_args()
    try:
        soak(options.rounds, options.queries, options.seed, options.archive)
    except Finding as exc:
        print(f"seed {options.seed}: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

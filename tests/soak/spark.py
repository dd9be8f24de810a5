"""Spark under kills: `python -m tests.soak.spark --rounds N --seed S`.

A query copies a topic of 200 records into another, exactly once, in batches of 40.  In each round
its driver's JVM is killed with SIGKILL at the four points of tests/spark/killing.py, in an order
and in batches that the seed chooses, always from the checkpoint that the one before left.  Then a
partition is added, and a last run, on two executors of a local cluster, brings it to its end,
while the broker is killed under it and comes back.  Now the target must be the source: every
record once, in the order of each key, as librdkafka reads it.

A round takes half a minute on a quiet machine.  The long run of RELIABILITY is --rounds 25.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ..spark.killing import BATCH, PID_FILE, POINT, POINTS
from ..spark.topics import Topics
from ..support.daemon import Daemon, start

RECORDS_COUNT = 100
RUN_TIMEOUT_S = 600
# Spark gives a worker ten seconds to start, which a busy machine may not have.
NOT_OURS = "Python worker failed to connect back"
TRIES_COUNT_MAX = 5
ROOT = Path(__file__).parent.parent.parent


class Finding(Exception):
    """The target is not the source."""


def run_query(
    address: str, names: tuple[str, str], folder: Path, *, master: str, kill: tuple[str, int] | None
) -> int:
    """One run of the query; its exit code."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment[PID_FILE] = str(folder / "jvm.pid")
    if kill is not None:
        environment |= {POINT: kill[0], BATCH: str(kill[1])}
    checkpoint = str(folder / "checkpoint")
    command = [sys.executable, "-m", "tests.spark.killing", address, *names, checkpoint, master]
    with (folder / "query.log").open("a") as log:
        return subprocess.run(
            command,
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=RUN_TIMEOUT_S,
            check=False,
        ).returncode


def restart_once(daemon: Daemon, folder: Path, ended: threading.Event) -> None:
    """Kill the broker when the query has planned one more batch, and start it again."""
    offsets = folder / "checkpoint" / "offsets"
    before = len(list(offsets.iterdir()))
    while len(list(offsets.iterdir())) <= before and not ended.wait(0.05):
        pass
    daemon.stop(signal.SIGKILL)
    daemon.again()


def one_round(folder: Path, chance: random.Random) -> str:
    """Four kills, a restart of the broker, and the end.  Raises Finding."""
    daemon = start(folder / "data")
    names = ("source", "target")
    try:
        topics = Topics(daemon.address)
        for name, partitions in zip(names, (2, 3), strict=True):
            topics.create(name, partitions)
        sent = [b"%d" % n for n in range(RECORDS_COUNT)]
        for partition in range(2):
            topics.produce("source", sent, partition=partition, key=b"%d" % partition)
        points = list(POINTS)
        chance.shuffle(points)
        for number, point in enumerate(points):
            # A run begins with the batch that the one before did not finish; the first questions
            # of a run are how far to go, whatever batch it is at.
            batch = int(number < 2) if point == "latest-offset" else number + chance.randrange(2)
            killed = folder / "jvm.killed"
            for _ in range(TRIES_COUNT_MAX):
                run_query(daemon.address, names, folder, master="local[2]", kill=(point, batch))
                if killed.exists() or NOT_OURS not in (folder / "query.log").read_text():
                    break
            if not killed.exists() or killed.read_text() != point:
                raise Finding(f"it did not die at {point}: {(folder / 'query.log').read_text()}")
            killed.unlink()
        topics.grow("source", 3)
        topics.produce("source", sent, partition=2, key=b"2")
        ended = threading.Event()
        restarting = threading.Thread(target=restart_once, args=(daemon, folder, ended))
        restarting.start()
        try:
            master = "local-cluster[2,1,1024]"
            for _ in range(TRIES_COUNT_MAX):
                code = run_query(daemon.address, names, folder, master=master, kill=None)
                if not code or NOT_OURS not in (folder / "query.log").read_text():
                    break
        finally:
            ended.set()
            restarting.join()
        if code:
            raise Finding(f"the last run ended with {code}: {(folder / 'query.log').read_text()}")
        found = topics.read("target", 3 * RECORDS_COUNT)
        for key in (b"0", b"1", b"2"):
            values = [row.value for row in found if row.key == key]
            if values != sent:
                raise Finding(f"key {key!r}: {len(values)} records {values[:50]}")
        del topics
        return f"killed at {', '.join(points)}"
    finally:
        daemon.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for number in range(options.rounds):
        seed = options.seed + number
        with tempfile.TemporaryDirectory(prefix="segbroker-spark-kills-") as folder:
            began = time.monotonic()
            try:
                said = one_round(Path(folder), random.Random(seed))
            except Finding as exc:
                print(f"seed {seed}: {exc}", file=sys.stderr)
                return 1
            print(f"seed {seed}: {said}, target equals source, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

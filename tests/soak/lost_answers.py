"""Answers that are lost where what gathers is too large: `python -m tests.soak.lost_answers`.

Rounds as in `tests/faults/lost_answers.py`, first with a `batch.size` that fits the topic, then
with librdkafka's own, of 1 MB.  What gathered is refused then (MSG_SIZE_TOO_LARGE): librdkafka
gives that up, begins an epoch for all partitions, and sends in it what it had not sent again yet.
No broker can tell those from new records: some are there twice.

`--kafka`: the same against an Apache Kafka.  The exit code says whether a record is there twice
with the `batch.size` that fits, or is not there.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.apache_kafka import ApacheKafka

from ..faults.lost_answers import FITS, LOST, OWN, play
from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import running


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.lost_answers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kafka", action="store_true")
    options = parser.parse_args()
    name = "Apache Kafka" if options.kafka else "segbroker"
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="lost-answers-") as folder,
        CuttingProxy(("127.0.0.1", 0)) as proxy,
        broker(Path(folder), proxy, is_kafka=options.kafka),
    ):
        for batch_bytes in (FITS, OWN):
            rounds = [
                play(proxy, f"t-{batch_bytes}-{number}", batch_bytes)
                for number in range(options.rounds)
            ]
            twice, missing, refused = map(sum, zip(*rounds, strict=True))
            print(
                f"{name}, batch.size={batch_bytes}: {len(rounds)} rounds, "
                f"{LOST * len(rounds)} answers lost, {twice} of their records twice, "
                f"{missing} missing, {refused} of the others refused",
                flush=True,
            )
            failed += missing + (twice if batch_bytes == FITS else 0)
    return 1 if failed else 0


@contextmanager
def broker(folder: Path, proxy: CuttingProxy, *, is_kafka: bool) -> Iterator[None]:
    """A broker that sends its clients to the proxy, and the proxy to it."""
    if is_kafka:
        with ApacheKafka.start(folder, durable=False, advertised=proxy.address) as kafka:
            proxy.target = kafka.host_and_port
            yield
    else:
        with running(folder / "data", "--advertised", proxy.address) as daemon:
            proxy.target = daemon.host_and_port
            yield


if __name__ == "__main__":
    sys.exit(main())

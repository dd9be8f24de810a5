"""Jobs of Apache Flink, unmodified: counts per key, exactly once, though everything is killed.

Flink keeps the places of its source in its own checkpoints and commits a transaction per
checkpoint.  After a failure it commits what an earlier producer left prepared (the same producer id
and epoch, and no InitProducerId before it), and ends what was never prepared by taking its
transactional id: until then that hides from readers what is behind it.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest

from segbroker.client import Admin, Consumer, Producer

from ..support.daemon import Daemon, running
from ..support.kafka_program import program
from ..support.program import Program, eventually
from ..support.waiting import meanwhile
from .java_frameworks import Jar, built

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

# Flink, its connector: of the last series for Java 8 and 11, and the newest.
RELEASES: Final = (("1.20.3", "3.4.0-1.20"), ("2.1.1", "4.0.1-2.0"))
APP: Final = "FlinkApp"
# What Flink's own scripts open to it, as far as this job needs it; the later -Xmx counts.
FLAGS: Final = (
    "-Xmx640m",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
IN: Final = "words"
OUT: Final = "counts"
WORDS: Final = 17


class Job:
    """A job on a broker, what it was sent, and what has to come of it."""

    def __init__(self, broker: Daemon, path: str, folder: Path) -> None:
        self.broker = broker
        self._path, self._folder = path, folder
        self._sent = 0
        with Admin(broker.address) as admin:
            admin.create_topic(IN, partitions=4)
            admin.create_topic(OUT, partitions=3)

    def start(self) -> Program:
        """Start it from its newest checkpoint."""
        arguments = [self.broker.address, IN, OUT, str(self._folder / "checkpoints")]
        return program(self._path, APP, arguments, self._folder / "flink.log", FLAGS)

    def send(self, count: int) -> None:
        """Write so many more words."""
        with Producer(self.broker.address) as producer:
            for n in range(self._sent, self._sent + count):
                word = b"w%d" % (n % WORDS)
                producer.send(IN, word, key=word)
        self._sent += count

    def written(self) -> list[str]:
        """What is committed, in order within a word."""
        with Consumer(self.broker.address, OUT, start="start", stop_at_end=True) as consumer:
            return [(one.value or b"").decode() for one in consumer]

    def has_more(self, rows: int) -> bool:
        """Whether more than so many are committed."""
        return len(self.written()) > rows

    def is_exact(self) -> bool:
        """Whether each word was counted once for each time that it was sent, in order."""
        rows = self.written()
        # More than was sent will not become less.
        assert len(rows) <= self._sent, (len(rows), self._sent)
        seen: Counter[str] = Counter()
        for row in rows:
            word, _, count = row.partition("=")
            seen[word] += 1
            assert int(count) == seen[word], (row, seen[word])
        return len(rows) == self._sent


@pytest.fixture(params=RELEASES, ids=lambda release: release[0])
def job(request: pytest.FixtureRequest, tmp_path: Path, release_cache: Path) -> Iterator[Job]:
    flink, connector = request.param
    jars: tuple[Jar, ...] = (
        ("org.apache.flink", "flink-streaming-java", flink),
        ("org.apache.flink", "flink-clients", flink),
        ("org.apache.flink", "flink-connector-base", flink),
        ("org.apache.flink", "flink-connector-kafka", connector),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    )
    path = built(APP, f"flink-{flink}", jars, release_cache)
    with running(tmp_path / "data") as broker:
        yield Job(broker, path, tmp_path)


def test_counts_are_exact_though_the_job_and_the_broker_are_killed(job: Job) -> None:
    with job.start() as first:
        first.wait_for("from the start")
        with meanwhile(lambda: job.send(10)):
            eventually(partial(job.has_more, 100), first)
            first.kill()  # in the middle of a transaction, which nobody will end for ten minutes
    with job.start() as second:
        second.wait_for("from a checkpoint")
        with meanwhile(lambda: job.send(10)):
            eventually(partial(job.has_more, len(job.written())), second)
            for _ in range(2):
                job.broker.stop(SIGKILL)
                job.broker.again()
                eventually(partial(job.has_more, len(job.written())), second)
        eventually(job.is_exact, second)
        with Admin(job.broker.address) as admin:
            assert admin.committed(OUT), "the places of a checkpoint, for people to see"
        assert second.end() == 0

"""Workers of Kafka Connect, unmodified, with the connectors of files that come with Kafka.

Distributed workers keep all they know in three compacted topics and share their work by a
protocol of their own inside of a consumer group.  Sources are exactly once: a transaction holds
the records and where the file was read to.
"""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pytest

from segbroker.client import Admin, Consumer

from ..support.daemon import Daemon, running
from ..support.kafka_program import jars
from ..support.program import eventually
from .connect_workers import DISTRIBUTED, INTERNAL, Workers

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

TOPIC: Final = "lines"


class Files:
    """The file that is read, the file that is written, and the lines that were put."""

    def __init__(self, folder: Path) -> None:
        self.source, self.sink = folder / "in.txt", folder / "out.txt"
        self.lines: list[str] = []
        self.source.touch()

    def put(self, count: int) -> None:
        """Append so many lines."""
        first = len(self.lines)
        fresh = [f"line {n}" for n in range(first, first + count)]
        self.lines += fresh
        with self.source.open("a") as file:
            file.writelines(f"{line}\n" for line in fresh)

    def written(self) -> list[str]:
        """What the sink has written."""
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def connectors(self) -> dict[str, dict[str, str]]:
        """Settings of the two, by name."""
        kind = "org.apache.kafka.connect.file.FileStream{}Connector".format
        return {
            "source": {
                "connector.class": kind("Source"),
                "file": str(self.source),
                "topic": TOPIC,
                "tasks.max": "1",
            },
            "sink": {
                "connector.class": kind("Sink"),
                "file": str(self.sink),
                "topics": TOPIC,
                "tasks.max": "1",
            },
        }


class Connect(Workers):
    """Workers on one broker, with the connectors of files."""

    def __init__(self, broker: Daemon, cache: Path, folder: Path) -> None:
        super().__init__(broker.address, jars(cache), folder)
        self.broker = broker
        self.address = broker.address

    def members(self, *groups: str) -> list[set[str]]:
        """Ids of the members of groups."""
        with Admin(self.address) as admin:
            return [{one.member_id for one in admin.describe_group(g).members} for g in groups]

    def lines(self) -> list[str]:
        """What the topic holds, of committed transactions."""
        with Admin(self.address) as admin:
            if TOPIC not in admin.list_topics():
                return []
        with Consumer(self.address, TOPIC, stop_at_end=True) as consumer:
            return [(record.value or b"").decode() for record in consumer]


@pytest.fixture
def connect(tmp_path: Path, release_cache: Path) -> Iterator[Connect]:
    with running(tmp_path / "data", "--partitions", "1") as broker:
        yield Connect(broker, release_cache, tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_standalone_worker_goes_on_where_it_was(connect: Connect, files: Files) -> None:
    conf = {"offset.storage.file.filename": str(files.source.with_name("offsets"))}
    for _ in range(2):
        files.put(100)
        with connect.worker("Standalone", conf, files.connectors()) as worker:
            eventually(lambda: files.written() == files.lines, worker.program)
            eventually(lambda: connect.lines() == files.lines, worker.program)
            assert worker.program.terminate() in (0, 143)


def test_distributed_workers_read_each_line_once_though_one_is_killed_and_all_start_again(
    connect: Connect, files: Files
) -> None:
    with connect.worker("Distributed", DISTRIBUTED, {}) as two:
        with connect.worker("Distributed", DISTRIBUTED, {}) as one:
            for name, conf in files.connectors().items():
                one.put(name, conf)
            files.put(200)
            eventually(lambda: set(files.written()) == set(files.lines), one.program, two.program)
            one.program.kill()
        files.put(200)
        eventually(lambda: set(files.written()) == set(files.lines), two.program)
        # The sink reads also what is not committed yet.
        eventually(lambda: connect.lines() == files.lines, two.program)
        assert two.program.terminate() in (0, 143)

    with Admin(connect.address) as admin:
        for name in INTERNAL:
            assert admin.describe_topic(name).config["cleanup.policy"].value == "compact"
    with connect.worker("Distributed", DISTRIBUTED, {}) as again:
        eventually(lambda: again.runs("source") and again.runs("sink"), again.program)
        files.put(100)
        eventually(lambda: set(files.written()) == set(files.lines), again.program)
        # The sink reads also what is not committed yet.
        eventually(lambda: connect.lines() == files.lines, again.program)
        (offset,) = again.ask("/connectors/source/offsets")["offsets"]
        assert offset["offset"] == {"position": files.source.stat().st_size}
        assert again.program.terminate() in (0, 143)


def test_a_worker_keeps_its_connectors_running_though_the_broker_is_killed(
    connect: Connect, files: Files
) -> None:
    # For a heartbeat's time a worker does without its coordinator; then it gives its work up.
    patient = {"session.timeout.ms": "120000", "heartbeat.interval.ms": "60000"}
    with connect.worker("Distributed", DISTRIBUTED | patient, {}) as worker:
        for name, conf in files.connectors().items():
            worker.put(name, conf)
        files.put(100)
        eventually(lambda: set(files.written()) == set(files.lines), worker.program)
        eventually(lambda: worker.runs("source") and worker.runs("sink"), worker.program)
        before = connect.members("connect", "connect-sink")
        connect.broker.stop(SIGKILL)
        connect.broker.again()
        files.put(100)
        eventually(lambda: set(files.written()) == set(files.lines), worker.program)
        # The sink reads also what is not committed yet.
        eventually(lambda: connect.lines() == files.lines, worker.program)
        # A task that had been started again would be another member.
        assert connect.members("connect", "connect-sink") == before
        assert worker.program.terminate() in (0, 143)

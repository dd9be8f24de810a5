"""A broker that is killed and comes back while a task reads, and while a task writes."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructType

from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.jvm import ASK
from segbroker.spark.source import BatchReader

from ..support.daemon import Daemon, start
from .jar import JarReader
from .topics import Topics

CHUNK = 500
CHUNKS = 8


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Daemon]:
    daemon = start(tmp_path / "data")
    yield daemon
    daemon.stop()


def restart(daemon: Daemon) -> None:
    daemon.stop(signal.SIGKILL)
    daemon.again()


def tables(daemon: Daemon, restarts: set[int]) -> Iterator[pyarrow.RecordBatch]:
    """Rows to write; the broker is restarted before the chunks named."""
    for chunk in range(CHUNKS):
        if chunk in restarts:
            restart(daemon)
        values = [b"%d" % n for n in range(chunk * CHUNK, (chunk + 1) * CHUNK)]
        yield pyarrow.RecordBatch.from_pydict({"value": values})


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_write_goes_on_after_a_restart_without_repeating_anything(
    broker: Daemon, guarantee: str
) -> None:
    topics = Topics(broker.address)
    topics.create("target")
    given = {"kafka.bootstrap.servers": broker.address, "topic": "target"}
    given |= {"deliveryGuarantee": guarantee, "kafka.batch.size": "2000"}
    writer = SegbrokerDataSource(given).writer(
        StructType().add("value", BinaryType()), overwrite=False
    )
    written = [writer.write(tables(broker, {2, 5}))]
    restart(broker)
    writer.commit(written)
    found = topics.read("target", CHUNK * CHUNKS)
    assert [int(row.value or b"") for row in found] == list(range(CHUNK * CHUNKS))
    topics.close()


def test_a_read_goes_on_after_a_restart_without_repeating_anything(
    broker: Daemon, reader: JarReader | None
) -> None:
    topics = Topics(broker.address)
    topics.create("source")
    values = [b"%05d" % n + bytes(2000) for n in range(6000)]
    topics.produce("source", values)
    given = {"kafka.bootstrap.servers": broker.address, "subscribe": "source"}
    given["kafka.max.partition.fetch.bytes"] = "1000000"
    given |= {} if reader is None else {ASK: "1"}
    planner = SegbrokerDataSource(given).reader(StructType())
    (task,) = planner.partitions()
    found: list[bytes | None] = []
    restarts = 0
    for some in _values(planner, task, reader):
        found += some
        if restarts < 1:
            restart(broker)
            restarts += 1
    assert found == values
    topics.close()


def _values(
    planner: BatchReader, task: InputPartition, reader: JarReader | None
) -> Iterator[list[bytes | None]]:
    if reader is None:
        yield from (table["value"].to_pylist() for table in planner.read(task))
    else:
        yield from ([row.value for row in rows] for rows in reader.batches(task))


def test_a_connection_that_the_broker_closed_between_two_batches_is_not_a_try(
    broker: Daemon,
) -> None:
    """As after `idle_timeout_ms` without a trigger: the next one has no retries to spend on it."""
    topics = Topics(broker.address)
    topics.create("quiet")
    given = {"kafka.bootstrap.servers": broker.address, "subscribe": "quiet"}
    given["fetchOffset.numRetries"] = "0"
    reader = SegbrokerDataSource(given).streamReader(StructType())
    start_at = reader.initialOffset()
    topics.produce("quiet", [b"one"])
    restart(broker)
    end = reader.latestOffset(start_at, reader.getDefaultReadLimit())
    assert end["quiet"] == {"0": 1}
    reader.stop()
    topics.close()

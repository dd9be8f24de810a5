"""A broker that is killed and comes back while a task writes, and between two batches."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from pyspark.sql.types import BinaryType, StructType

from segbroker.spark.data_source import SegbrokerDataSource

from ..support.daemon import Daemon, start
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

"""A broker that is killed and comes back while a task reads."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.jvm import ASK
from segbroker.spark.source import BatchReader

from ...support.daemon import Daemon, start
from ..jar import JarReader
from ..topics import Topics


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Daemon]:
    daemon = start(tmp_path / "data")
    yield daemon
    daemon.stop()


def restart(daemon: Daemon) -> None:
    daemon.stop(signal.SIGKILL)
    daemon.again()


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

"""What a running pipeline tells of itself."""

import json
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import pytest

from segbroker.spark.progress import Progress, run

from ...support.waiting import until
from ..topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Name = Callable[[], str]
IDLE = "spark.sql.streaming.noDataProgressEventInterval"


def test_a_batch_that_comes_after_a_quiet_time_is_told_and_counted(
    spark: "SparkSession", topics: Topics, name: Name, tmp_path: Path
) -> None:
    """A batch that it waits for Spark reports as well, by its number and without rows."""
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"one"])
    before = spark.conf.get(IDLE)
    spark.conf.set(IDLE, "100")
    rows = spark.readStream.format("segbroker").option("kafka.bootstrap.servers", topics.bootstrap)
    rows = rows.option("subscribe", topic).option("startingOffsets", "earliest")
    writer = rows.load().writeStream.format("noop").trigger(processingTime="100 milliseconds")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    told: list[tuple[int, int]] = []

    def waits() -> bool:
        return any(json.loads(each.json)["batchId"] == 1 for each in query.recentProgress)

    def tell(progress: Progress) -> None:
        told.append((progress.batch, progress.rows))
        if len(told) == 1:
            until(waits)
            topics.produce(topic, [b"two"])
        else:
            query.stop()

    end = Timer(60, query.stop)
    end.start()
    try:
        assert run(query, tell) == 2
    finally:
        end.cancel()
        query.stop()
        spark.conf.set(IDLE, str(before))
    assert told == [(0, 1), (1, 1)]

"""A source and sink that kill the driver's JVM at one point of one batch, for tests.

    before-write     a task, before it writes its first row
    after-write      the driver, when all tasks have written and nothing is committed
    after-commit     the driver, when the broker has committed and Spark has not
    latest-offset    the driver, when it is asked how far the next batch goes

Which, in which batch, and which process comes in the environment, which Spark's workers inherit.

As a program it is the query: `python -m tests.spark.killing BOOTSTRAP FROM TO CHECKPOINT [MASTER]`
copies a topic into another, in small batches, and ends.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from segbroker.spark import session
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.options import parse_options
from segbroker.spark.sink import BATCH_PROPERTY, StreamWriter, Written
from segbroker.spark.sink_options import parse_sink_options
from segbroker.spark.source import StreamReader

POINTS = ("before-write", "after-write", "after-commit", "latest-offset")
POINT = "SEGBROKER_KILL_POINT"
BATCH = "SEGBROKER_KILL_BATCH"
PID_FILE = "SEGBROKER_KILL_PID_FILE"
OFFSETS_PER_BATCH = 40


def kill_at(point: str, batch: int) -> None:
    """End the JVM, if this is where."""
    if os.environ.get(POINT) != point or int(os.environ[BATCH]) != batch:
        return
    pid_file = Path(os.environ[PID_FILE])
    pid_file.with_suffix(".killed").write_text(point)
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    os._exit(1)


class KillingReader(StreamReader):
    calls = 0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        kill_at("latest-offset", self.calls)
        KillingReader.calls += 1
        return super().latestOffset(start, limit)


class KillingWriter(StreamWriter):
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty(BATCH_PROPERTY)
        assert batch is not None
        kill_at("before-write", int(batch))
        return super().write(iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        kill_at("after-write", batchId)
        super().commit(messages, batchId)
        kill_at("after-commit", batchId)


class KillingSource(SegbrokerDataSource):
    @classmethod
    def name(cls) -> str:
        return "segbroker-killing"

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return KillingReader(parse_options(self.options, streaming=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        return KillingWriter(parse_sink_options(self.options, streaming=True))


def copy(bootstrap: str, source: str, target: str, checkpoint: str, master: str) -> None:
    """Copy what is in one topic into another, in batches of OFFSETS_PER_BATCH."""
    spark = session(
        {
            "spark.master": master,
            "spark.log.level": "OFF",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.executor.memory": "512m",
            "spark.sql.streaming.pollingDelay": "10ms",
        }
    )
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pid_file = os.environ.get(PID_FILE)
    if pid_file is not None:
        Path(pid_file).write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    spark.dataSource.register(KillingSource)
    rows = (
        spark.readStream.format(KillingSource.name())
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format(KillingSource.name())
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    from tests.spark import killing  # by its name: workers import it

    began = time.monotonic()
    master = sys.argv[5] if len(sys.argv) > 5 else "local[2]"
    bootstrap, source, target, checkpoint = sys.argv[1:5]
    killing.copy(bootstrap, source, target, checkpoint, master)
    print(f"copied in {time.monotonic() - began:.0f} s")

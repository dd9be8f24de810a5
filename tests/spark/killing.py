"""Queries that stand still at one point of one batch, so that the JVM can be killed there.

    before-write     a task, before it writes its first row
    after-write      the driver, when all tasks have written and nothing is committed
    after-commit     the driver, when the broker has committed and Spark has not
    latest-offset    the driver, when it is asked how far the next batch goes

As a program it runs the queries of a plan in one JVM, each of which copies a topic into another:
`python -m tests.spark.killing PLAN` (see `Plan`).  A query that comes to its point leaves a file
and waits there.  When all have come, the JVM is killed (`kill_round`), and meets each of them at
its own point: a JVM takes ten seconds to start, so that several queries share its end.  The
plan's file is named in the environment, which Spark's workers inherit.  What each query does is in
a file as well, every second, for whoever waits in vain; a query that ends and never came to its
point ends the program with an error.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from segbroker.spark import session
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.options import Subscribe, parse_options
from segbroker.spark.sink import BATCH_PROPERTY, StreamWriter, Written
from segbroker.spark.sink_options import parse_sink_options
from segbroker.spark.source import StreamReader

POINTS = ("before-write", "after-write", "after-commit", "latest-offset")
PLAN = "SEGBROKER_KILL_PLAN"
LOOK_INTERVAL_S = 0.02
STATUS_INTERVAL_S = 1.0
OFFSETS_PER_BATCH = 40
# What Spark puts into the one map that all queries of a format share, as each of them starts and
# without a lock: found here already, it spoils nothing (SegbrokerSource.java, for the jar's).
SHARED_VARIABLES = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# As small as a session can be: it lives for a few batches.
LEAN = {
    "spark.log.level": "OFF",
    "spark.driver.memory": "768m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.streaming.pollingDelay": "10ms",
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Plan:
    """Which queries, and where each stands still.

    folder: what belongs to query NAME lies in folder/NAME: its checkpoint and the file `arrived`.
    It copies the topic NAME-source into NAME-target.
    points: by name; None: the query runs to its end.
    batches: the number of the batch; for latest-offset, of the question in this run.
    master: as many slots as tasks may stand still at a time, and some.
    java_options: of the driver's JVM, beside those of LEAN.
    """

    bootstrap: str
    folder: str
    points: dict[str, str | None]
    batches: dict[str, int] = field(default_factory=dict)
    master: str = "local[32]"
    java_options: str = ""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    def arrived(self, name: str) -> Path:
        return Path(self.folder, name, "arrived")

    def status(self, name: str) -> Path:
        return Path(self.folder, name, "status")

    def jvm_file(self) -> Path:
        return Path(self.folder, "jvm.pid")


@cache
def plan_of(path: str) -> Plan:
    return Plan(**json.loads(Path(path).read_text()))


def stand_still_at(point: str, topic: str, batch: int) -> None:
    """Wait for the end of the JVM, if this is where."""
    plan = plan_of(os.environ[PLAN])
    name = topic.rpartition("-")[0]
    if plan.points[name] != point or plan.batches[name] != batch:
        return
    # Whole as soon as it is there: the JVM may be killed at that moment.
    arriving = plan.arrived(name).with_suffix(".new")
    arriving.write_text(point)
    arriving.rename(plan.arrived(name))
    jvm = int(plan.jvm_file().read_text())
    while is_running(jvm):
        time.sleep(LOOK_INTERVAL_S)
    os._exit(1)


def is_running(process_id: int) -> bool:
    """Whether it has not ended; one that was killed and not waited for is there as a zombie."""
    try:
        return ") Z " not in Path("/proc", str(process_id), "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class KillingReader(StreamReader):
    calls = 0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        assert isinstance(self._options.selection, Subscribe)
        stand_still_at("latest-offset", self._options.selection.topics[0], self.calls)
        self.calls += 1
        return super().latestOffset(start, limit)


class KillingWriter(StreamWriter):
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty(BATCH_PROPERTY)
        assert batch is not None
        self._stand("before-write", int(batch))
        return super().write(iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        self._stand("after-write", batchId)
        super().commit(messages, batchId)
        self._stand("after-commit", batchId)

    def _stand(self, point: str, batch: int) -> None:
        assert self._options.topic is not None
        stand_still_at(point, self._options.topic, batch)


class KillingSource(SegbrokerDataSource):
    @classmethod
    def name(cls) -> str:
        return "segbroker-killing"

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return KillingReader(parse_options(self.options, streaming=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        return KillingWriter(parse_sink_options(self.options, streaming=True))


def start_copy(
    spark: SparkSession, source: str, bootstrap: str, name: str, checkpoint: Path
) -> StreamingQuery:
    """Copy what is there of one topic into another, in batches of OFFSETS_PER_BATCH."""
    rows = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", f"{name}-source")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
        # A broker that was killed may be long in coming back to a busy machine.
        .option("kafka.default.api.timeout.ms", 600_000)
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", f"{name}-target")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def settle_variables(spark: SparkSession, source: str) -> None:
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource(source).dataSourceCls().envVars()
    for variable in SHARED_VARIABLES:
        environment.putIfAbsent(variable, "")


def run(path: str) -> None:
    """The queries of a plan, until all have ended or the JVM is killed."""
    os.environ[PLAN] = path
    plan = plan_of(path)
    options = f"{LEAN[JAVA_OPTIONS]} {plan.java_options}"
    spark = session({**LEAN, "spark.master": plan.master, JAVA_OPTIONS: options})
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    plan.jvm_file().write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    spark.dataSource.register(KillingSource)
    settle_variables(spark, KillingSource.name())
    running = {
        name: start_copy(
            spark, KillingSource.name(), plan.bootstrap, name, Path(plan.folder, name, "checkpoint")
        )
        for name in plan.points
    }
    told = 0.0
    while any(query.isActive for query in running.values()):
        telling = time.monotonic() - told >= STATUS_INTERVAL_S
        for name, query in running.items():
            failed = query.exception()
            if failed is not None:
                raise failed
            if plan.points[name] is not None and not query.isActive:
                raise RuntimeError(f"{name} ended and never came to {plan.points[name]}")
            if telling:
                plan.status(name).write_text(query.status["message"])
        told = time.monotonic() if telling else told
        time.sleep(LOOK_INTERVAL_S)
    for query in running.values():
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    from tests.spark import killing  # by its name: workers import it

    killing.run(sys.argv[1])

"""Spark reads a topic: rows per second into its `noop` sink, which asks for every column.

    batch       the whole topic, planning included: as its user waits for it
    stream      the same by Trigger.AvailableNow, in one micro-batch after another
    jar, Python each of them by either reader, where the jar was built (make jar)
    parquet     the same rows from files that Spark wrote; what Spark itself can do
    connector   the same topic by Spark's own Kafka connector, where its jars can be had
    floor       a micro-batch of four rows, beside one of Spark's rate source, and beside one of a
                source in Python that has its rows at hand: what Spark takes for any such source

Spark, its Python workers and the broker share the machine's cores, so the figure is of all of them.
Each is read several times by a warm session, in turn, and the median and the best are given: the
first query of a session pays for class loading and forks.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segbroker.client import Admin, Producer

from .machine import cpu_seconds
from .peers.programs import Missing
from .peers.spark_kafka import spark_kafka_jars
from .report import Entry, Note, Row
from .servers import Server, segbroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PARTITIONS = 4
ROUNDS = 5
CHUNK = 10_000
# Bytes per value, rows, and the goal in rows per second on two cores.
WORKS = ((100, 6_000_000, 2_000_000), (1024, 1_200_000, 600_000))
# A stream takes the topic in so many micro-batches.
BATCHES = 3
FLOOR_BATCHES = 40
FLOOR_WARM = 10


def fill(server: Server, topic: str, count: int, size: int) -> None:
    """A topic of `count` records of `size` bytes, spread evenly over the partitions."""
    with Admin(server.address) as admin:
        admin.create_topic(topic, partitions=PARTITIONS, config={"durability": "disk"})
    values = [bytes(size)] * CHUNK
    with Producer(server.address) as producer:
        for n in range(count // CHUNK):
            producer.send_many(topic, values, partition=n % PARTITIONS)


def _options(server: Server, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": server.address, "subscribe": topic}


def _seconds(frame: "DataFrame") -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("append").save()
    return time.perf_counter() - began


def _readers() -> dict[str, str]:
    """What a row calls a reader, and what the option `reader` calls it."""
    from segbroker.spark.session import JAR

    return (
        {"by the jar": "jvm", "by Python": "python"} if JAR.is_file() else {"by Python": "python"}
    )


def _stream_seconds(spark: "SparkSession", options: dict[str, str], count: int) -> float:
    """All of the topic by a stream; the time that its batches took."""
    limit = {"maxOffsetsPerTrigger": str(-(-count // BATCHES)), "startingOffsets": "earliest"}
    frame = spark.readStream.format("segbroker").options(**options, **limit).load()
    with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
        query = _started(frame, folder).trigger(availableNow=True).start()
        query.awaitTermination()
        batches = _batches(query)
    seen = sum(batch["numInputRows"] for batch in batches)
    assert seen == count, f"{seen} of {count} rows"
    return float(sum(batch["durationMs"]["triggerExecution"] for batch in batches)) / 1000


def _started(frame: "DataFrame", folder: str) -> "DataStreamWriter":
    return frame.writeStream.format("noop").option("checkpointLocation", folder)


def _batches(query: "StreamingQuery") -> list[dict[str, Any]]:
    return [json.loads(each.json) for each in query.recentProgress if each.numInputRows]


def _rates(count: int, times: list[float], size: int) -> str:
    median, best = statistics.median(times), min(times)
    return (
        f"{count / median / 1e6:.2f} M rows/s ({count * size / median / 1e6:,.0f} MB/s),"
        f" best {count / best / 1e6:.2f} M"
    )


def _floor(spark: "SparkSession", server: Server) -> list[Entry]:
    """A micro-batch of a row a task: what each costs whatever is in it."""
    from .peers.plain_source import NAME, PlainSource

    fill(server, "floor", PARTITIONS * CHUNK, 10)
    ours = {**_options(server, "floor"), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    frames = {
        reader: spark.readStream.format("segbroker").options(**ours, reader=reader).load()
        for reader in _readers().values()
    }
    spark.dataSource.register(PlainSource)
    plain = spark.readStream.format(NAME).option("tasks", str(PARTITIONS))
    rate = spark.readStream.format("rate-micro-batch")
    rate = rate.options(rowsPerBatch="2", numPartitions=str(PARTITIONS))
    frames |= {"plain": plain.load(), "rate": rate.load()}
    medians = {}
    for name, frame in frames.items():
        with tempfile.TemporaryDirectory(prefix="segbroker-bench-") as folder:
            query = _started(frame, folder).start()
            while len(query.recentProgress) < FLOOR_BATCHES:
                assert query.isActive, query.exception()
                time.sleep(0.1)
            query.stop()
            times = [batch["durationMs"]["triggerExecution"] for batch in _batches(query)]
        medians[name] = statistics.median(times[FLOOR_WARM:])
    peers = {"rate": "rate source", "plain": "Python source that reads nothing"}
    return [
        Row(
            f"micro-batch of {PARTITIONS} rows, {PARTITIONS} partitions, {name}",
            "disk",
            f"{medians[reader]:.0f} ms",
            peer=f"{beside} {medians[peer]:.0f} ms",
            ratio=f"{medians[reader] / medians[peer]:.2f}",
            goal="≤ 1.3 × rate source" if peer == "rate" else "–",
        )
        for name, reader in _readers().items()
        for peer, beside in peers.items()
    ]


def _kinds(
    spark: "SparkSession", server: Server, topic: str, count: int, folder: Path, *, connector: bool
) -> "dict[str, Callable[[], float]]":
    """What is timed, by name; each returns seconds for all of the topic."""
    options = _options(server, topic)

    def kafka() -> float:
        return _seconds(spark.read.format("kafka").options(**options).load())

    files = str(folder / topic)
    frame = spark.read.format("segbroker").options(**options).load()
    frame.write.parquet(files)
    seen = spark.read.parquet(files).count()
    assert seen == count, f"{seen} of {count} rows"

    def batch(options: dict[str, str]) -> Callable[[], float]:
        return lambda: _seconds(spark.read.format("segbroker").options(**options).load())

    def stream(options: dict[str, str]) -> Callable[[], float]:
        return lambda: _stream_seconds(spark, options, count)

    kinds: dict[str, Callable[[], float]] = {}
    for name, reader in _readers().items():
        kinds[f"batch {name}"] = batch({**options, "reader": reader})
        kinds[f"stream {name}"] = stream({**options, "reader": reader})
    kinds["batch, segments read directly"] = batch(
        {**options, "readSegmentsFrom": str(server.data)}
    )
    kinds["parquet"] = lambda: _seconds(spark.read.parquet(files))
    return {**kinds, "connector": kafka} if connector else kinds


def rows(quick: bool = False) -> list[Entry]:
    """Batch and stream into noop at 100 B and 1 KiB, and the floor of a micro-batch."""
    from segbroker.spark import session

    found: list[Entry] = []
    conf = {"spark.master": "local[2]", "spark.log.level": "OFF", "spark.driver.memory": "2g"}
    try:
        jars = sorted(spark_kafka_jars().glob("*.jar"))
        conf["spark.jars"] = ",".join(map(str, jars))
    except Missing as exc:
        jars = []
        found.append(Note(f"Spark's Kafka connector is not in: {exc}."))
    spark = session(conf)
    try:
        with segbroker() as server, tempfile.TemporaryDirectory(prefix="segbroker-bench-") as at:
            for size, full, goal in WORKS:
                count = full // 20 if quick else full
                topic = f"spark-{size}"
                fill(server, topic, count, size)
                kinds = _kinds(spark, server, topic, count, Path(at), connector=bool(jars))
                times: dict[str, list[float]] = {name: [] for name in kinds}
                cpu: dict[str, float] = dict.fromkeys(kinds, 0.0)
                for _ in range(1 if quick else ROUNDS):
                    for name, run in kinds.items():
                        before = cpu_seconds(server.pid)
                        times[name].append(run())
                        cpu[name] += cpu_seconds(server.pid) - before
                beside = statistics.median(times.get("connector", times["parquet"]))
                against = "connector" if "connector" in times else "parquet"
                for name in kinds:
                    is_ours = name not in ("parquet", "connector")
                    median = statistics.median(times[name])
                    found.append(
                        Row(
                            f"Spark {name} into noop, {count:,} × {size} B",
                            "disk" if is_ours else "–",
                            _rates(count, times[name], size),
                            peer=f"{against} {count / beside / 1e6:.2f} M" if is_ours else "–",
                            ratio=f"{beside / median:.2f}" if is_ours else "–",
                            goal=f"≥ {goal / 1e6:.1f} M rows/s" if is_ours else "–",
                            server=f"{cpu[name] / len(times[name]) * 1e6 / count:.2f} µs CPU/row"
                            if is_ours
                            else "–",
                        )
                    )
            found += _floor(spark, server)
    finally:
        spark.stop()
    return found

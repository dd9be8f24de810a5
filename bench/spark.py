"""Spark reads a topic: rows per second into its `noop` sink, which asks for every column.

Spark, its Python workers and the broker share the machine's cores, so the figure is of all three.
Each size is read several times by a warm session and the best and the median are given: the
first query of a session pays for class loading and forks.  The time is that of the whole query as
its user waits for it, planning included.
"""

import statistics
import time
from typing import TYPE_CHECKING

from segbroker.client import Admin, Producer

from .machine import cpu_seconds
from .report import Row
from .servers import Server, segbroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
ROUNDS = 5
CHUNK = 10_000
# Bytes per value, rows, and the goal in rows per second on two cores.
WORKS = ((100, 6_000_000, 2_000_000), (1024, 1_200_000, 600_000))


def fill(server: Server, topic: str, count: int, size: int) -> None:
    """A topic of `count` records of `size` bytes, spread evenly over the partitions."""
    with Admin(server.address) as admin:
        admin.create_topic(topic, partitions=PARTITIONS, config={"durability": "disk"})
    values = [bytes(size)] * CHUNK
    with Producer(server.address) as producer:
        for n in range(count // CHUNK):
            producer.send_many(topic, values, partition=n % PARTITIONS)


def _query_seconds(spark: "SparkSession", server: Server, topic: str) -> float:
    rows = (
        spark.read.format("segbroker")
        .option("kafka.bootstrap.servers", server.address)
        .option("subscribe", topic)
        .load()
    )
    began = time.perf_counter()
    rows.write.format("noop").mode("append").save()
    return time.perf_counter() - began


def _count(spark: "SparkSession", server: Server, topic: str) -> int:
    options = {"kafka.bootstrap.servers": server.address, "subscribe": topic}
    return spark.read.format("segbroker").options(**options).load().count()


def rows(quick: bool = False) -> list[Row]:
    """Batch queries into noop at 100 B and 1 KiB."""
    from segbroker.spark import session

    found: list[Row] = []
    spark = session({"spark.master": "local[2]", "spark.log.level": "OFF"})
    try:
        with segbroker() as server:
            for size, full, goal in WORKS:
                count = full // 20 if quick else full
                topic = f"spark-{size}"
                fill(server, topic, count, size)
                seen = _count(spark, server, topic)
                assert seen == count, f"{seen} of {count} rows"
                before = cpu_seconds(server.pid)
                times = [
                    _query_seconds(spark, server, topic) for _ in range(1 if quick else ROUNDS)
                ]
                cpu = (cpu_seconds(server.pid) - before) / len(times)
                median, best = statistics.median(times), min(times)
                found.append(
                    Row(
                        f"Spark batch query into noop, {count:,} × {size} B",
                        "disk",
                        f"{count / median / 1e6:.2f} M rows/s"
                        f" ({count * size / median / 1e6:,.0f} MB/s),"
                        f" best {count / best / 1e6:.2f} M",
                        goal=f"≥ {goal / 1e6:.1f} M rows/s",
                        server=f"{cpu * 1e6 / count:.2f} µs CPU/row",
                    )
                )
    finally:
        spark.stop()
    return found

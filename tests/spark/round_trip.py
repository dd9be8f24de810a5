"""Rows into a topic, out of it, in a stream into another: `python -m tests.spark.round_trip`.

For a release of pyspark that the tests do not run with: install it beside segbroker[spark] and
run this.  It starts a broker, uses each reader that is there, and prints what it found; it ends
with 1 when a row is missing, comes twice or is another one.
"""

import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from segbroker.spark import session
from segbroker.spark.session import JAR

from ..support.daemon import start
from .killing import LEAN

ROWS_COUNT = 1_000


def round_trip(spark: SparkSession, bootstrap: str, reader: str, folder: Path) -> bool:
    """Whether all rows come through a batch, and through a stream in several micro-batches."""
    broker = {"kafka.bootstrap.servers": bootstrap}
    source, target = f"{reader}-source", f"{reader}-target"
    given = spark.range(ROWS_COUNT).selectExpr("CAST(id AS STRING) AS value")
    given.write.format("segbroker").options(**broker, topic=source).mode("append").save()
    options = {**broker, "startingOffsets": "earliest", "reader": reader}
    options["kafka.isolation.level"] = "read_committed"
    rows = spark.readStream.format("segbroker").options(
        **options, subscribe=source, maxOffsetsPerTrigger=str(ROWS_COUNT // 3)
    )
    writer = rows.load().select("value").writeStream.format("segbroker").options(**broker)
    writer = writer.option("checkpointLocation", str(folder / reader)).option("topic", target)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    wanted = sorted(str(n) for n in range(ROWS_COUNT))
    found = []
    for topic in (source, target):
        frame = spark.read.format("segbroker").options(**options, subscribe=topic).load()
        found.append(
            sorted(row.text for row in frame.selectExpr("string(value) AS text").collect())
        )
    return found == [wanted, wanted] and len(query.recentProgress) > 1


def main() -> int:
    readers = ["jvm", "python"] if JAR.is_file() else ["python"]
    with tempfile.TemporaryDirectory(prefix="segbroker-round-trip-") as made:
        daemon = start(Path(made, "data"))
        spark = session({"spark.master": "local[2]", **LEAN})
        try:
            good = {r: round_trip(spark, daemon.address, r, Path(made)) for r in readers}
        finally:
            spark.stop()
            daemon.stop()
    print(f"pyspark {pyspark.__version__}: {good}")
    return 0 if all(good.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The Spark leg of the demo: a structured-streaming query totals the flights' delays per carrier.

    topic flights --> spark.readStream.format("segbroker") --> groupBy(carrier) --> totals
                      4 partitions, a checkpoint, several micro-batches      equal to the input's?

The query runs with Trigger.AvailableNow: it reads what is there, batch after batch, and ends.
Spark and its Java come from `pip install '.[spark]'`; nothing else is needed.

As a program: `python demo/spark_leg.py HOST:PORT TOPIC [EXPECTED.json]`, where the file maps a
carrier to its five totals.  Exit code 0: the query ran and, if there was a file, they are equal.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Flights, departures, minutes of departure delay, arrivals, minutes of arrival delay.
Totals = tuple[int, int, int, int, int]

# Enough for several micro-batches of the 336,776 flights.
OFFSETS_PER_BATCH = 150_000
FIELDS = "carrier STRING, dep_delay INT, arr_delay INT"
TOTALS = """
    SELECT flight.carrier AS carrier,
           count(*) AS flights,
           count(flight.dep_delay) AS departures,
           coalesce(sum(flight.dep_delay), 0) AS departure_delay,
           count(flight.arr_delay) AS arrivals,
           coalesce(sum(flight.arr_delay), 0) AS arrival_delay
    FROM flights GROUP BY flight.carrier
"""


class TotalsDiffer(Exception):
    """Spark's totals are not those of the input."""


def run(
    bootstrap: str, topic: str, expected: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Totals]:
    """The totals per carrier, as Spark found them.

    Raises TotalsDiffer when they are not the expected ones.
    """
    from segbroker.spark import session

    spark = session(
        {
            "spark.app.name": "segbroker-demo",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
        }
    )
    try:
        with tempfile.TemporaryDirectory(prefix="segbroker-spark-") as folder:
            totals = _total(spark, bootstrap, topic, Path(folder))
    finally:
        spark.stop()
    if expected is not None:
        _compare(totals, {carrier: tuple(row) for carrier, row in expected.items()})
    return totals


def _total(spark: "SparkSession", bootstrap: str, topic: str, folder: Path) -> dict[str, Totals]:
    spark.readStream.format("segbroker").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(OFFSETS_PER_BATCH),
        }
    ).load().selectExpr(
        f"from_json(CAST(value AS STRING), '{FIELDS}') AS flight"
    ).createOrReplaceTempView("flights")
    query = (
        spark.sql(TOTALS)
        .writeStream.format("memory")
        .queryName("totals")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {
        row.carrier: (
            row.flights,
            row.departures,
            row.departure_delay,
            row.arrivals,
            row.arrival_delay,
        )
        for row in spark.table("totals").collect()
    }


def _compare(found: Mapping[str, Totals], expected: Mapping[str, tuple[int, ...]]) -> None:
    differing = sorted(
        carrier
        for carrier in found.keys() | expected.keys()
        if found.get(carrier) != expected.get(carrier)
    )
    if differing:
        first = differing[0]
        raise TotalsDiffer(
            f"the totals of {len(differing)} carriers differ; {first}: Spark found"
            f" {found.get(first)}, sent were {expected.get(first)}"
        )


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bootstrap", metavar="HOST:PORT")
    parser.add_argument("topic", nargs="?", default="flights")
    parser.add_argument("expected", nargs="?", type=Path, metavar="EXPECTED.json")
    options = parser.parse_args()
    expected = None if options.expected is None else json.loads(options.expected.read_text())
    try:
        totals = run(options.bootstrap, options.topic, expected)
    except TotalsDiffer as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    for carrier, row in sorted(totals.items()):
        print(carrier, *row)
    return 0


if __name__ == "__main__":
    sys.exit(main())

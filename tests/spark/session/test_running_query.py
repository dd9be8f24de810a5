"""What happens to a topic, and to its broker, under a query that runs.

The query is Spark's own, in a JVM, and writes files, which are read back without Spark.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ...support.daemon import Daemon, start
from ..topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

Name = Callable[[], str]
WAIT_S = 300

Rows = list[tuple[int, int, str]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Daemon]:
    daemon = start(tmp_path / "data")
    yield daemon
    daemon.stop()


@contextmanager
def running(
    spark: "SparkSession", bootstrap: str, topic: str, folder: Path, **options: str
) -> Iterator["StreamingQuery"]:
    """A query from the beginning on, one batch after the other; stopped at the end."""
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        # A broker takes its time to come back on a busy machine.
        "kafka.default.api.timeout.ms": str(WAIT_S * 1000),
        "kafkaConsumer.pollTimeoutMs": str(WAIT_S * 1000),
        **options,
    }
    query = (
        spark.readStream.format("segbroker")
        .options(**given)
        .load()
        .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("json")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


def written(folder: Path) -> Rows:
    """(partition, offset, value) of all rows that batches have committed so far."""
    found: Rows = []
    for log in (folder / "rows" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            file = Path(json.loads(line)["path"].removeprefix("file://"))
            rows = map(json.loads, file.read_text().splitlines())
            found += [(row["partition"], row["offset"], row["value"]) for row in rows]
    return sorted(found)


def wait_for(query: "StreamingQuery", folder: Path, count: int) -> Rows:
    """What is written, when there are so many rows."""
    deadline = time.monotonic() + WAIT_S
    while len(found := written(folder)) < count:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def ended_with(query: "StreamingQuery") -> str:
    """Why a query has ended."""
    deadline = time.monotonic() + WAIT_S
    while (failed := query.exception()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return str(failed)


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


def as_rows(partition: int, *ranges: range) -> Rows:
    return [(partition, n, str(n)) for each in ranges for n in each]


def test_a_query_goes_on_through_restarts_a_new_partition_and_retention_behind_it(
    spark: "SparkSession", broker: Daemon, tmp_path: Path
) -> None:
    topics = Topics(broker.address)
    topics.create("clicks")
    topics.produce("clicks", numbered(0, 10))
    with running(spark, broker.address, "clicks", tmp_path) as query:
        wait_for(query, tmp_path, 10)
        for end, how in ((20, signal.SIGTERM), (30, signal.SIGKILL)):
            topics.close()
            broker.stop(how)
            broker.again()
            topics = Topics(broker.address)
            topics.produce("clicks", numbered(end - 10, end))
            wait_for(query, tmp_path, end)
        topics.delete_records_before("clicks", 0, 25)
        topics.grow("clicks", 2)
        topics.produce("clicks", numbered(0, 5), partition=1)
        topics.produce("clicks", numbered(30, 40))
        found = wait_for(query, tmp_path, 45)
    assert found == as_rows(0, range(40)) + as_rows(1, range(5))
    topics.close()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_retention_that_overtakes_a_query_is_told_or_passed_over(
    spark: "SparkSession", topics: Topics, name: Name, tmp_path: Path, fails: str
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, numbered(0, 10))
    # The second batch waits for 30 records, and so for all that is done to them here.
    waits = {"minOffsetsPerTrigger": "30", "maxTriggerDelay": "1 hour", "failOnDataLoss": fails}
    with running(spark, topics.bootstrap, topic, tmp_path, **waits) as query:
        wait_for(query, tmp_path, 10)
        topics.produce(topic, numbered(10, 30))
        topics.delete_records_before(topic, 0, 25)
        topics.produce(topic, numbered(30, 45))
        if fails == "false":
            found = wait_for(query, tmp_path, 30)
            assert found == as_rows(0, range(10), range(25, 45))
        else:
            lost = f"topic '{topic}' partition 0: offsets [10, 25) are lost, the log now starts"
            assert lost in ended_with(query)
            assert written(tmp_path) == as_rows(0, range(10))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_is_made_again_ends_the_query_or_is_read_from_its_beginning(
    spark: "SparkSession", topics: Topics, name: Name, tmp_path: Path, fails: str
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, numbered(0, 10))
    with running(spark, topics.bootstrap, topic, tmp_path, failOnDataLoss=fails) as query:
        wait_for(query, tmp_path, 10)
        topics.delete(topic)
        topics.create(topic)
        topics.produce(topic, [b"new"] * 20)
        if fails == "false":
            found = wait_for(query, tmp_path, 30)
            assert found == sorted(as_rows(0, range(10)) + [(0, n, "new") for n in range(20)])
        else:
            said = ended_with(query)
            # The query may look while there is none.
            assert f"topic '{topic}' partition 0: offsets [10, ...) are lost, the topic" in said
            assert "was deleted and made again" in said or "does not exist" in said
            assert written(tmp_path) == as_rows(0, range(10))


def test_a_foreach_batch_that_fails_behind_its_writes_has_each_record_once(
    spark: "SparkSession", topics: Topics, name: Name, tmp_path: Path
) -> None:
    """Its function fills a folder by the number of the batch and a topic with `batchId`, then fails
    once: the query that goes on calls it with the same rows.  A new checkpoint counts anew."""
    source, target = name(), name()
    topics.create(source, 2)
    topics.create(target)
    for partition in range(2):
        topics.produce(source, numbered(0, 30), partition=partition)
    called: list[int] = []

    def store(rows: "DataFrame", number: int) -> None:
        called.append(number)
        rows.write.mode("overwrite").json(str(tmp_path / "rows" / str(number)))
        copies = rows.selectExpr("CAST(value AS STRING) AS value", "CAST(partition AS STRING) key")
        options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": target}
        options |= {"transactionalId": target, "batchId": str(number)}
        copies.write.format("segbroker").options(**options).mode("append").save()
        if called == [0, 1]:
            raise RuntimeError("behind its writes")

    def run(checkpoint: str = "checkpoint") -> None:
        options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": source}
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        rows = spark.readStream.format("segbroker").options(**options).load()
        (
            rows.writeStream.foreachBatch(store)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination(WAIT_S)
        )

    with pytest.raises(Exception, match="behind its writes"):
        run()
    run()
    assert called == [0, 1, 1, 2]
    files = (tmp_path / "rows").glob("*/part-*.json")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        (partition, n) for partition in range(2) for n in range(30)
    ]
    copied = topics.read(target, 60)
    assert sorted((row.key, row.value) for row in copied) == sorted(
        (str(partition).encode(), value) for partition in range(2) for value in numbered(0, 30)
    )
    topics.produce(target, [b"last"])
    assert topics.read(target, 61)[-1].value == b"last", "nothing more was written"
    run("another")
    assert len(topics.read(target, 121)) == 121

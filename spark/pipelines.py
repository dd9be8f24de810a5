"""Pipelines that are run, not written: topic to files, files to topic, topic to topic.

    export   topic  --> files by date      incremental: each run takes what is new, then ends
    import   files  --> topic              incremental by file, exactly once
    replay   topic  --> SQL --> topic      exactly once

Each is a streaming query with a checkpoint and Trigger.AvailableNow; with `every` it stays and
takes a batch per interval.  So a run that was killed goes on where it was, and a run with nothing
new does nothing.

Files of an export lie in PATH/date=YYYY-MM-DD/, the date of a record's timestamp in UTC; where the
values have a field `date`, in PATH/record_date=YYYY-MM-DD/.  The first run decides for all of
them, because Spark reads no path with folders of two names; and so it does for the names of the
record's columns, of which a file with others would have the values in another place.

Spark notes in PATH/_spark_metadata which files are whole: who reads PATH with Spark sees each
record once, also after a crash; others should leave out files that are not in it.  It notes them by
the number of the batch alone, so a second query into the same PATH would be taken for the first one
and write nothing: it is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from .checkpoints import of_export, of_import
from .connecting import parse_client
from .decoding import BINARY, TEXT, decode
from .errors import OptionError
from .export_notes import folder, may_stay, note, noted_names, noted_types, refuse_second
from .given import Given
from .import_reading import are_records, stream_of, unread_file
from .progress import Tell, run
from .sampling import sample
from .sink_options import TOPIC_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# What the SQL of a replay selects from.
RECORDS = "records"
# Left alone, Spark takes blanks off what it writes to CSV, ends a record at a line end inside of
# it, and reads an empty value as none.  None is written as nothing, an empty value as "".
CSV_WRITTEN = {
    "header": "true",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
# Of a batch that goes into a topic, as it is in files or in the log; a larger file is one batch.
# The transactions of a batch are open until all of it is there, and the broker ends those that take
# longer than kafka.transaction.timeout.ms: a batch that is too large never gets through, and what
# it has is fixed once it was planned.
BATCH_BYTES = 512 << 20
# Of any time zone that the session has, and of times before 1970.
UTC_DATE = "CAST(date_from_unix_date(CAST(floor(unix_seconds({0}) / 86400) AS INT)) AS STRING)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """Where the topics are: HOST:PORT, and further options of Kafka's clients without `kafka.`."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            **{f"kafka.{name}": value for name, value in self.properties.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a pipeline runs.

    every: a batch per interval ("10 seconds") for ever; None: what is there, then the end.
    offsets_max: the most offsets of one batch.
    skips_lost: what the topic has lost is passed over, where it would end the pipeline.
    """

    every: str | None = None
    offsets_max: int | None = None
    skips_lost: bool = False


def export_topic(
    spark: "SparkSession",
    broker: Broker,
    topic: str,
    path: str,
    *,
    tell: Tell,
    file_format: str = "parquet",
    values: str | None,
    start: str = "earliest",
    checkpoint: str | None = None,
    pace: Pace | None = None,
) -> int:
    """Write what is new in the topic to files in `path`; the records in all.

    values: a form of decoding, default binary for parquet and text for the others.
    checkpoint: default inside `path`.
    Raises OptionError, also where `path` has the files of another export, and what ends a query.
    """
    place = checkpoint or of_export(path, topic)
    refuse_second(spark, path, place)
    form = values or (BINARY if file_format == "parquet" else TEXT)
    pace = pace or Pace()
    # A row of CSV has no place for a list.
    with_headers = "false" if file_format == "csv" else "true"
    frame = _stream(spark, broker, topic, start, pace, includeHeaders=with_headers)
    earlier, names_path = noted_names(spark, place)
    keeps_types = file_format == "parquet" and form.strip().lower() == "json"
    known, types_path = noted_types(spark, place) if keeps_types else (None, "")
    options = {**broker.options, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    looked_at = sample(spark, options)
    decoded = decode(frame, form, looked_at, earlier, known=known, keeps_text=True)
    date = folder(spark, path, {name.lower() for name in decoded.frame.columns})
    if more := {name: decoded.names[name] for name in decoded.names.keys() - earlier}:
        note(spark, names_path, more)
    fields = decoded.fields
    if keeps_types and fields is not None and fields != known and may_stay(fields):
        note(spark, types_path, fields.jsonValue())
    dated = decoded.frame.selectExpr("*", f"{UTC_DATE.format(decoded.time)} AS {date}")
    writer = dated.writeStream.format(file_format).partitionBy(date).option("path", path)
    if file_format == "csv":
        writer = writer.options(**CSV_WRITTEN)
    return _run(writer, place, pace, tell)


def import_files(
    spark: "SparkSession",
    broker: Broker,
    path: str,
    topic: str,
    *,
    tell: Tell,
    file_format: str,
    key: str | None,
    checkpoint: str | None,
    pace: Pace,
) -> int:
    """Send the rows of files in `path` that no earlier run has sent; the rows in all.

    Rows that export wrote (of values in one column), lines of text, and rows of key, value and
    headers alone are records; of others each is one JSON object, also where one of several columns
    happens to be named `value`.
    key: the column that is the record's key.
    checkpoint: default inside `path`, or beside it where it is one file; for each topic its own.
    Raises OptionError, SourceError for a file that cannot be read, and what ends a query.
    """
    frame = stream_of(spark, path, file_format, batch_bytes=BATCH_BYTES)
    if key is not None and key not in frame.columns:
        raise OptionError(f"there is no column {key!r} to be the key; {', '.join(frame.columns)}")
    kept = ["to_json(struct(*)) AS value"]
    if file_format == "text" or are_records(frame.columns):
        kept = [name for name in ("key", "value", "headers") if name in frame.columns]
    if key is not None:
        quoted = key.replace("`", "``")
        kept = [f"CAST(`{quoted}` AS STRING) AS key", *(name for name in kept if name != "key")]
    rows = frame.selectExpr(*kept)
    topic_id = None
    if checkpoint is None:
        client = parse_client(Given(broker.options))
        checkpoint, topic_id = of_import(spark, client, path, topic)
    writer = _into(rows, broker, topic)
    if topic_id is not None:
        writer = writer.option(TOPIC_ID, topic_id)
    try:
        return _run(writer, checkpoint, pace, tell)
    except StreamingQueryException as exc:
        if (unread := unread_file(exc)) is None:
            raise
        raise unread from exc


def replay(
    spark: "SparkSession",
    broker: Broker,
    source: str,
    target: str,
    checkpoint: str,
    *,
    tell: Tell,
    sql: str | None,
    where: str | None,
    values: str | None,
    start: str,
    pace: Pace,
) -> int:
    """Send the topic's records, filtered or changed, to another topic; exactly once.

    sql: a SELECT from `records` that has a column `value`, maybe key, headers, partition.
    where: a condition on `records`, where there is no `sql`.
    target: another topic than `source`, or it would have no end.
    values: `data`, the value as a struct, has these fields (carrier STRING, ...).
    Raises OptionError, and what ends a query.
    """
    limits = {"maxBytesPerTrigger": str(BATCH_BYTES)}
    frame = _stream(spark, broker, source, start, pace, includeHeaders="true", **limits)
    columns = ["*", "CAST(value AS STRING) AS text"]
    if values is not None:
        quoted = values.replace("'", "\\'")
        columns.append(f"from_json(CAST(value AS STRING), '{quoted}') AS data")
    frame.selectExpr(*columns).createOrReplaceTempView(RECORDS)
    if sql is None:
        condition = "" if where is None else f" WHERE {where}"
        sql = f"SELECT key, value, headers FROM {RECORDS}{condition}"
    return _run(_into(spark.sql(sql), broker, target), checkpoint, pace, tell)


def _stream(
    spark: "SparkSession", broker: Broker, topic: str, start: str, pace: Pace, **more: str
) -> "DataFrame":
    options = {**broker.options, "subscribe": topic, "startingOffsets": start, **more}
    options["kafka.isolation.level"] = "read_committed"
    options["failOnDataLoss"] = str(not pace.skips_lost)
    if pace.offsets_max is not None:
        options["maxOffsetsPerTrigger"] = str(pace.offsets_max)
    return spark.readStream.format("segbroker").options(**options).load()


def _into(rows: "DataFrame", broker: Broker, topic: str) -> "DataStreamWriter":
    writer = rows.writeStream.format("segbroker").options(**broker.options)
    return writer.option("topic", topic)


def _run(writer: "DataStreamWriter", checkpoint: str, pace: Pace, tell: Tell) -> int:
    writer = writer.option("checkpointLocation", checkpoint)
    if pace.every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=pace.every)
    return run(writer.start(), tell)

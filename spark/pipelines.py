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

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from .checkpoints import exists, file_system, of_export, of_import
from .decoding import BINARY, TEXT, decode, free_name
from .errors import OptionError, SourceError
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
# It takes the names from one file, and gives the values of all others to them by their places;
# fields beyond those names it drops; what is quoted in another way it takes with its quotes, to the
# next comma.  All are errors with the last three.
NO_VALUE = "\0"
# Where Spark would put what it cannot read: no column of a file has this name.
UNREAD_ROW = "\1"
CSV_READ = {
    "header": "true",
    "multiLine": "true",
    "nullValue": NO_VALUE,
    "enforceSchema": "false",
    "mode": "FAILFAST",
    "columnNameOfCorruptRecord": UNREAD_ROW,
    "unescapedQuoteHandling": "RAISE_ERROR",
}
# To look at the first row of a file, whatever follows.
CSV_LOOK = {"header": "false", "mode": "PERMISSIVE", "unescapedQuoteHandling": "STOP_AT_DELIMITER"}
# What is in front of a quote in a value: another one (RFC 4180), but Spark writes a backslash.
CSV_ESCAPE = '"'
SPARKS_ESCAPE = "\\"
# The name of the job is Spark's own UUID or another one, as of Databricks.
SPARKS_FILE = re.compile(r"part-\d{5,}-.+[.-]c\d{3}\.csv")
# Left alone, Spark takes the columns of one file, and leaves out what only others have.
PARQUET_READ = {"mergeSchema": "true"}
# Left alone, Spark makes nulls of a line that is no JSON, and of what has another type.
JSON_READ = {"mode": "FAILFAST", "columnNameOfCorruptRecord": UNREAD_ROW}
FILES_READ = {"csv": CSV_READ, "parquet": PARQUET_READ, "json": JSON_READ}
# How Spark begins to say that a file cannot be read, and which.
UNREAD = re.compile(r"\[FAILED_READ_FILE\S* Encountered error while reading file (\S+)\. ")
# Of a batch that goes into a topic, as it is in files or in the log; a larger file is one batch.
# The transactions of a batch are open until all of it is there, and the broker ends those that take
# longer than kafka.transaction.timeout.ms: a batch that is too large never gets through, and what
# it has is fixed once it was planned.
BATCH_BYTES = 512 << 20
# Without, a file that is a week older than the newest one of earlier runs is passed over.
FILE_AGE_MAX = "36500d"
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
# Of a row that is a record, and what an export writes beside it: where it was, and its folder.
OF_RECORD = {"key", "value", "headers"}
WHERE_IT_WAS = {"topic", "partition", "offset", "timestamp"}
FOLDER = {"date"}
FOLDER_NAME = re.compile(r"((?:record_)*date)=")
# Of any time zone that the session has, and of times before 1970.
UTC_DATE = "CAST(date_from_unix_date(CAST(floor(unix_seconds({0}) / 86400) AS INT)) AS STRING)"
# The columns of an export, without its folders.
_BESIDE = "(_|(record_)+)"
EXPORTED = re.compile(
    "key,value,topic,partition,offset,timestamp|(.*,)?"
    + ",".join(f"{_BESIDE}{name}" for name in ("key", "topic", "partition", "offset", "timestamp"))
    + f"(,{_BESIDE}value)?",
    re.DOTALL,
)
# In the checkpoint of an export: what the record's columns are called beside fields of the values.
# Of columns that came later (of another version, or form) in `segbroker-names-2` and so on.
NAMES = "segbroker-names"
# And the types that the fields of `json` have in parquet files, in `segbroker-types-1` and so on;
# the last one counts.
TYPES = "segbroker-types"
# No more fields are noted, as of objects whose fields are keys that never come again.
FIELDS_MAX = 5_000
TYPES_NAME = re.compile(rf"{TYPES}-(\d+)")
# Where Spark notes which files of a path are whole.
WHOLE_FILES = "_spark_metadata"


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
    _refuse_second(spark, path, place)
    form = values or (BINARY if file_format == "parquet" else TEXT)
    pace = pace or Pace()
    # A row of CSV has no place for a list.
    with_headers = "false" if file_format == "csv" else "true"
    frame = _stream(spark, broker, topic, start, pace, includeHeaders=with_headers)
    noted, count = f"{place}/{NAMES}", 1
    earlier: dict[str, str] = {}
    while found := _noted(spark, noted):
        earlier |= found
        count += 1
        noted = f"{place}/{NAMES}-{count}"
    keeps_types = file_format == "parquet" and form.strip().lower() == "json"
    known, number = _noted_types(spark, place) if keeps_types else (None, 0)
    looked_at = _sample(spark, broker, topic)
    decoded = decode(frame, form, looked_at, earlier, known=known, keeps_text=True)
    date = _folder(spark, path, {name.lower() for name in decoded.frame.columns})
    if more := {name: decoded.names[name] for name in decoded.names.keys() - earlier}:
        _note(spark, noted, more)
    fields = decoded.fields
    if keeps_types and fields is not None and fields != known and _may_stay(fields):
        _note(spark, f"{place}/{TYPES}-{number + 1}", fields.jsonValue())
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
    pace: Pace | None,
) -> int:
    """Send the rows of files in `path` that no earlier run has sent; the rows in all.

    Rows that export wrote (of values in one column), lines of text, and rows of key, value and
    headers alone are records; of others each is one JSON object, also where one of several columns
    happens to be named `value`.
    key: the column that is the record's key.
    checkpoint: default inside `path`, or beside it where it is one file; for each topic its own.
    Raises OptionError, SourceError for a file that cannot be read, and what ends a query.
    """
    how = FILES_READ.get(file_format, {})
    schema = _schema(spark, path, file_format, how)
    names = schema.names
    if file_format == "csv":
        schema, escape = _csv(spark, path, schema)
        how = {**how, "escape": escape}
    if file_format == "json" and _are_records(names):
        schema = _with_headers(schema)
    stream = spark.readStream.format(file_format).schema(schema).options(**how)
    stream = stream.option("maxBytesPerTrigger", str(BATCH_BYTES))
    frame = stream.option("maxFileAge", FILE_AGE_MAX).load(_watched(spark, path)).toDF(*names)
    if key is not None and key not in frame.columns:
        raise OptionError(f"there is no column {key!r} to be the key; {', '.join(frame.columns)}")
    if file_format == "text" or _are_records(frame.columns):
        kept = [name for name in ("key", "value", "headers") if name in frame.columns]
        rows = frame.selectExpr(*kept)
        if key is not None:
            rest = [name for name in kept if name != "key"]
            rows = frame.selectExpr(_as_key(key), *rest)
    else:
        keys = [] if key is None else [_as_key(key)]
        rows = frame.selectExpr(*keys, "to_json(struct(*)) AS value")
    topic_id = None
    if checkpoint is None:
        checkpoint, topic_id = of_import(spark, broker, path, topic)
    writer = _into(rows, broker, topic)
    if topic_id is not None:
        writer = writer.option(TOPIC_ID, topic_id)
    try:
        return _run(writer, checkpoint, pace or Pace(), tell)
    except StreamingQueryException as exc:
        if (unread := UNREAD.search(str(exc))) is None:
            raise
        raise SourceError(f"{unread[1]} cannot be read: {_reason(exc)}") from exc


def replay(
    spark: "SparkSession",
    broker: Broker,
    source: str,
    target: str,
    checkpoint: str,
    *,
    tell: Tell,
    sql: str | None = None,
    where: str | None = None,
    values: str | None = None,
    start: str = "earliest",
    pace: Pace | None = None,
) -> int:
    """Send the topic's records, filtered or changed, to another topic; exactly once.

    sql: a SELECT from `records` that has a column `value`, maybe key, headers, partition.
    where: a condition on `records`, where there is no `sql`.
    target: another topic than `source`, or it would have no end.
    values: `data`, the value as a struct, has these fields (carrier STRING, ...).
    Raises OptionError, and what ends a query.
    """
    pace = pace or Pace()
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


def _schema(
    spark: "SparkSession", path: str, file_format: str, how: Mapping[str, str]
) -> StructType:
    """The columns of the files.  Raises SourceError where two types of one name do not go
    together."""
    look = {name: value for name, value in how.items() if name != "unescapedQuoteHandling"}
    if file_format == "json":
        look["mode"] = "PERMISSIVE"  # who reads the lines says which file it is
    try:
        found = spark.read.format(file_format).options(**look).load(path).schema
        return StructType([field for field in found if field.name != UNREAD_ROW])
    except Exception as exc:  # PySpark has no class of its own for it
        text = " ".join(str(exc).partition("\n\tat ")[0].split())
        _, code, reason = text.partition("[CANNOT_MERGE_SCHEMAS] ")
        if not code:
            raise
        raise SourceError(
            f"the files in {path} have columns of one name and of different types: {reason}"
        ) from exc


def _csv(spark: "SparkSession", path: str, schema: StructType) -> tuple[StructType, str]:
    """The columns as Spark compares them with headers, and what is in front of a quote in a value.

    A column without a name, as of an index, has one of Spark's making (`_c0`); a header it has to
    be NO_VALUE.  Spark's own files are known by their names, those of an export by their columns.
    Raises SourceError where several columns have no name: Spark has no two of one.
    """
    look = spark.read.format("csv").options(**{**CSV_READ, **CSV_LOOK}).load(path)
    first = look.select("*", functions.input_file_name()).first()
    if first is None:
        return schema, CSV_ESCAPE
    *header, file = first  # and the values of folders
    named = enumerate(zip(header, schema.names, strict=False))  # another file may have had these
    unnamed = [n for n, (each, name) in named if each is None and name == f"_c{n}"]
    if len(unnamed) > 1:
        places = ", ".join(str(n + 1) for n in unnamed)
        raise SourceError(f"{file} cannot be read: its columns {places} have no name")
    fields = list(schema.fields)
    for n in unnamed:
        fields[n] = StructField(NO_VALUE, fields[n].dataType)
    is_sparks = SPARKS_FILE.match(file.rpartition("/")[2]) or _is_exported(schema.names)
    return StructType(fields), SPARKS_ESCAPE if is_sparks else CSV_ESCAPE


def _as_key(column: str) -> str:
    quoted = column.replace("`", "``")
    return f"CAST(`{quoted}` AS STRING) AS key"


def _is_exported(columns: Sequence[str]) -> bool:
    """Whether an export has such columns, in their order; others have some of them, too."""
    *rest, last = columns
    names = rest if FOLDER_NAME.match(f"{last}=") else columns
    return EXPORTED.fullmatch(",".join(names)) is not None


def _reason(error: StreamingQueryException) -> str:
    """What the JVM says of the first of its errors behind this one, in a line."""
    cause = getattr(error, "_origin", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return " ".join(str(error if cause is None else cause.getMessage()).split())


def _are_records(columns: Sequence[str]) -> bool:
    rest = set(columns) - OF_RECORD
    is_whole = not rest or WHERE_IT_WAS <= rest <= WHERE_IT_WAS | FOLDER
    return "value" in columns and is_whole


def _watched(spark: "SparkSession", path: str) -> str:
    """The path as a streaming source takes it; of one file a pattern that only its name fits.

    Spark takes what is no pattern for a folder ("Option 'basePath' must be a directory").
    """
    folder, slash, name = path.rpartition("/")
    last = max((n for n, letter in enumerate(name) if letter.isalnum()), default=None)
    if last is None or not exists(spark, path, is_file=True):
        return path
    return f"{folder}{slash}{name[:last]}[{name[last]}]{name[last + 1 :]}"


def _with_headers(schema: StructType) -> StructType:
    """The schema with headers as an export wrote them: JSON has bytes as text in base64, and of
    what is null or empty says nothing."""
    return StructType(
        [
            StructField(field.name, HEADERS)
            if field.name == "headers" and isinstance(field.dataType, ArrayType)
            else field
            for field in schema.fields
        ]
    )


def _stream(
    spark: "SparkSession", broker: Broker, topic: str, start: str, pace: Pace, **more: str
) -> "DataFrame":
    options = {**broker.options, "subscribe": topic, "startingOffsets": start, **more}
    options["kafka.isolation.level"] = "read_committed"
    options["failOnDataLoss"] = str(not pace.skips_lost)
    if pace.offsets_max is not None:
        options["maxOffsetsPerTrigger"] = str(pace.offsets_max)
    return spark.readStream.format("segbroker").options(**options).load()


def _sample(spark: "SparkSession", broker: Broker, topic: str) -> "Iterator[DataFrame]":
    options = {**broker.options, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    return sample(spark, options)


def _refuse_second(spark: "SparkSession", path: str, checkpoint: str) -> None:
    """Refuse a path into which another query has written, which has its checkpoint elsewhere."""
    if exists(spark, f"{path}/{WHOLE_FILES}") and not exists(spark, f"{checkpoint}/metadata"):
        raise OptionError(
            f"{path} has the files of another export, of another topic or with another checkpoint:"
            " Spark would take the records of this one for written; give a path of its own"
        )


def _noted_types(spark: "SparkSession", place: str) -> tuple[StructType | None, int]:
    """The types that the columns of an export have so far, and the number of the note; None, 0."""
    file, files = file_system(spark, place)
    if not files.exists(file):
        return None, 0
    names = (str(status.getPath().getName()) for status in files.listStatus(file))
    numbers = [int(found[1]) for name in names if (found := TYPES_NAME.fullmatch(name))]
    if not numbers:
        return None, 0
    number = max(numbers)
    return StructType.fromJson(_noted(spark, f"{place}/{TYPES}-{number}")), number


def _may_stay(fields: StructType) -> bool:
    """Whether all later runs may have the fields: not too many, and each told from the others."""
    names = list(_names(fields))
    return len(names) <= FIELDS_MAX and len(names) == len(set(names))


def _names(kind: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where each field is, in lower case, also those of fields."""
    match kind:
        case ArrayType():
            yield from _names(kind.elementType, path)
        case StructType():
            for each in kind:
                at = (*path, each.name.lower())
                yield at
                yield from _names(each.dataType, at)


def _noted(spark: "SparkSession", path: str) -> dict[str, Any]:
    """What `_note` has noted; nothing where that was never done."""
    if not exists(spark, path):
        return {}
    (row,) = spark.read.text(path, wholetext=True).collect()
    found: dict[str, Any] = json.loads(row.value)
    return found


def _note(spark: "SparkSession", path: str, names: Mapping[str, Any]) -> None:
    """Note names or types in a file that is not there yet, whole or not at all."""
    file, files = file_system(spark, path)
    temporary, _ = file_system(spark, f"{path}.new")
    out = files.create(temporary, True)
    out.write(json.dumps(dict(names)).encode())
    out.close()
    if not files.rename(temporary, file):
        raise SourceError(f"{path} cannot be written")


def _folder(spark: "SparkSession", path: str, taken: set[str]) -> str:
    """The name of an export's folders: that of earlier runs, else one that no column has.

    taken: the columns, in lower case.  Raises OptionError: a column has the name of earlier runs.
    """
    name = free_name("date", taken)
    earlier = _folders(spark, path)
    if not earlier or name in earlier:
        return name
    if free := sorted(earlier - taken):
        return free[0]
    used = min(earlier)
    raise OptionError(
        f"the files in {path} are in folders {used}=..., and the values have a field {used!r} now:"
        " Spark could not read both; choose fields without it (--values), or another path"
    )


def _folders(spark: "SparkSession", path: str) -> set[str]:
    """What earlier runs have called the folders in `path`: date, record_date and so on."""
    file, files = file_system(spark, path)
    if not files.exists(file):
        return set()
    names = (str(status.getPath().getName()) for status in files.listStatus(file))
    return {found[1] for name in names if (found := FOLDER_NAME.match(name))}


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

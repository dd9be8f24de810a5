"""The files of an import, as a stream of rows: how Spark is to read them.

    schema of all files -> CSV: how quotes are written, columns without a name
                        -> a stream of the files that are not read yet

Left alone, Spark makes nulls of what it cannot read, takes the columns of one file for those of
all, and shifts values: here each of them is an error, of the file that it is in.  Files that an
export wrote are known by their columns or their names, and read as they were written.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from .checkpoints import exists
from .errors import SourceError
from .export_notes import FOLDER_NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What no value of a file is.
NO_VALUE = "\0"
# Where Spark would put what it cannot read: no column of a file has this name.
UNREAD_ROW = "\1"
# Left alone, Spark takes the names of CSV from one file, and gives the values of all others to them
# by their places; fields beyond those names it drops; what is quoted in another way it takes with
# its quotes, to the next comma.  All are errors with the last three.
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
# Without, a file that is a week older than the newest one of earlier runs is passed over.
FILE_AGE_MAX = "36500d"
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
# The columns of a row that is a record, and what an export writes beside it: where it was, and its
# folder.
OF_RECORD = {"key", "value", "headers"}
WHERE_IT_WAS = {"topic", "partition", "offset", "timestamp"}
FOLDER = {"date"}
# The columns of an export, without its folders.
_BESIDE = "(_|(record_)+)"
EXPORTED = re.compile(
    "key,value,topic,partition,offset,timestamp|(.*,)?"
    + ",".join(f"{_BESIDE}{name}" for name in ("key", "topic", "partition", "offset", "timestamp"))
    + f"(,{_BESIDE}value)?",
    re.DOTALL,
)


def stream_of(
    spark: "SparkSession", path: str, file_format: str, *, batch_bytes: int
) -> "DataFrame":
    """The rows of the files in `path`, as a stream.

    batch_bytes: of files that one batch takes; a larger file is one batch.
    Raises SourceError where they cannot be read together.
    """
    how = FILES_READ.get(file_format, {})
    schema = _schema(spark, path, file_format, how)
    names = schema.names
    if file_format == "csv":
        schema, escape = _csv(spark, path, schema)
        how = {**how, "escape": escape}
    if file_format == "json" and are_records(names):
        schema = _with_headers(schema)
    stream = spark.readStream.format(file_format).schema(schema).options(**how)
    stream = stream.option("maxBytesPerTrigger", str(batch_bytes))
    return stream.option("maxFileAge", FILE_AGE_MAX).load(_watched(spark, path)).toDF(*names)


def unread_file(error: StreamingQueryException) -> SourceError | None:
    """Which file could not be read, and why, if that has ended a query."""
    if (unread := UNREAD.search(str(error))) is None:
        return None
    return SourceError(f"{unread[1]} cannot be read: {_reason(error)}")


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


def are_records(columns: Sequence[str]) -> bool:
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

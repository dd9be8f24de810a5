"""What is inside the values: text, or the fields of JSON objects, as columns.

    decode(frame, "text")                 key, value as strings
    decode(frame, "binary")               as they are
    decode(frame, "json")                 columns of the JSON objects, their types by a sample
    decode(frame, "carrier STRING, ...")  these fields of the JSON objects

Beside the columns of the value stand those of the record: _key, _topic, _partition, _offset,
_timestamp, and _headers where the frame has them; with `text` and `binary` they have their own
names.  Where the value has such a field, as that of an imported export has, the record's column is
record_key and so on: of two columns of one name Spark gives neither.

Limits: a sample is SAMPLE_ROWS records; a field that none of them has is not seen.
"""

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions
from pyspark.sql.types import StructType

from .errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLE_ROWS = 1_000

TEXT = "text"
BINARY = "binary"

_TIME = "_timestamp"
OF_RECORD = {
    "_key": "CAST(key AS STRING)",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    _TIME: "timestamp",
}


class Decoded(NamedTuple):
    """A frame with its values decoded."""

    frame: "DataFrame"
    time: str
    """The column of the record's timestamp."""
    names: Mapping[str, str] = {}
    """What the record's columns beside those of the value are called, by their first choice."""


def free_name(name: str, taken: Container[str]) -> str:
    """The name, or with one record_ or more before it where it is taken.

    taken: in lower case, as Spark tells no case apart.
    """
    while name.lower() in taken:
        name = f"record_{name.lstrip('_')}"
    return name


def decode(
    frame: "DataFrame",
    form: str | StructType,
    sample: "DataFrame | None" = None,
    earlier: Mapping[str, str] | None = None,
) -> Decoded:
    """The frame with its values decoded; `sample`: where a streaming frame's types are looked up.

    form: text, binary, json, or the fields of JSON objects, as SQL declares columns or as types.
    earlier: the names of the record's columns that have to stay.
    Raises OptionError where the form has no columns, or the sample nothing of it, or where a field
    has a name that has to stay.
    """
    if isinstance(form, StructType):
        return _json(frame, form, earlier)
    rest = ["topic", "partition", "offset", "timestamp"]
    rest += ["headers"] * ("headers" in frame.columns)
    match form.strip().lower():
        case "text":
            text = ("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
            return Decoded(frame.selectExpr(*text, *rest), "timestamp")
        case "binary":
            return Decoded(frame.select("key", "value", *rest), "timestamp")
        case "json":
            fields = _json_fields(sample if sample is not None else frame)
            if fields is None:
                raise OptionError("the values are not JSON objects; say text or binary")
        case _:
            return _json(frame, form, earlier)
    return _json(frame, fields, earlier)


def guess(sample: "DataFrame") -> str | StructType:
    """The fields of the JSON objects that the values are, else `text`."""
    return _json_fields(sample) or TEXT


def _json(
    frame: "DataFrame", fields: str | StructType, earlier: Mapping[str, str] | None = None
) -> Decoded:
    if isinstance(fields, StructType):
        value = functions.from_json(functions.col("value").cast("string"), fields)
    else:
        quoted = fields.replace("'", "\\'")
        value = functions.expr(f"from_json(CAST(value AS STRING), '{quoted}')")
    of_record = OF_RECORD | ({"_headers": "headers"} if "headers" in frame.columns else {})
    own = [functions.expr(each).alias(name) for name, each in of_record.items()]
    parsed = frame.select(value.alias("_value"), *own)
    struct = parsed.schema["_value"].dataType
    if not isinstance(struct, StructType):  # from_json takes arrays and maps as well
        raise OptionError(f"{fields} has no columns: say 'carrier STRING, n INT', json or text")
    taken = {name.lower() for name in struct.names}
    names = {**{name: free_name(name, taken) for name in of_record}, **(earlier or {})}
    for name in names.values():
        if name.lower() in taken:
            raise OptionError(
                f"the column {name!r} of the files that are there is the record's, and the values"
                " have a field of that name now: choose fields without it (--values), or another"
                " path"
            )
    columns = [functions.col(name).alias(names[name]) for name in of_record]
    return Decoded(parsed.select("_value.*", *columns), names[_TIME], names)


def _json_fields(sample: "DataFrame") -> StructType | None:
    """The fields; None where the values are no objects.

    As types, not as SQL: their names may be anything, also those of fields in fields.
    """
    texts = [
        row[0]
        for row in sample.selectExpr("CAST(value AS STRING)").limit(SAMPLE_ROWS).collect()
        if row[0] is not None
    ]
    if not texts or not all(text.lstrip().startswith("{") for text in texts):
        return None
    spark = sample.sparkSession
    schema = spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema
    fields = [field for field in schema.fields if field.name != "_corrupt_record"]
    return StructType(fields) if fields else None

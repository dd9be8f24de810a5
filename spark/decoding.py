"""What is inside the values: text, or the fields of JSON objects, as columns.

    decode(frame, "text")                 key, value as strings
    decode(frame, "binary")               as they are
    decode(frame, "json")                 columns of the JSON objects, their types by a sample
    decode(frame, "carrier STRING, ...")  these fields of the JSON objects

Beside the columns of the value stand those of the record: _key, _topic, _partition, _offset,
_timestamp, and _headers where the frame has them; with `text` and `binary` they have their own
names.

Limits: a sample is SAMPLE_ROWS records; a field that none of them has is not seen.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions
from pyspark.sql.types import StructType

from .errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLE_ROWS = 1_000

TEXT = "text"
BINARY = "binary"

OF_RECORD = (
    "CAST(key AS STRING) AS _key",
    "topic AS _topic",
    "partition AS _partition",
    "offset AS _offset",
    "timestamp AS _timestamp",
)


def decode(
    frame: "DataFrame", form: str | StructType, sample: "DataFrame | None" = None
) -> "DataFrame":
    """The frame with its values decoded; `sample`: where a streaming frame's types are looked up.

    form: text, binary, json, or the fields of JSON objects, as SQL declares columns or as types.
    Raises OptionError where the sample has nothing of the form.
    """
    if isinstance(form, StructType):
        return _json(frame, form)
    rest = ["topic", "partition", "offset", "timestamp"]
    rest += ["headers"] * ("headers" in frame.columns)
    match form.strip().lower():
        case "text":
            return frame.selectExpr(
                "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", *rest
            )
        case "binary":
            return frame.select("key", "value", *rest)
        case "json":
            fields = _json_fields(sample if sample is not None else frame)
            if fields is None:
                raise OptionError("the values are not JSON objects; say text or binary")
        case _:
            return _json(frame, form)
    return _json(frame, fields)


def guess(sample: "DataFrame") -> str | StructType:
    """The fields of the JSON objects that the values are, else `text`."""
    return _json_fields(sample) or TEXT


def _json(frame: "DataFrame", fields: str | StructType) -> "DataFrame":
    if isinstance(fields, StructType):
        value = functions.from_json(functions.col("value").cast("string"), fields)
    else:
        quoted = fields.replace("'", "\\'")
        value = functions.expr(f"from_json(CAST(value AS STRING), '{quoted}')")
    of_record = [*OF_RECORD]
    if "headers" in frame.columns:
        of_record.append("headers AS _headers")
    parsed = frame.select(value.alias("_value"), *map(functions.expr, of_record))
    return parsed.select("_value.*", *(each.rpartition(" ")[2] for each in of_record))


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

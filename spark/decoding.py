"""What is inside the values: text, or the fields of JSON objects, as columns.

    decode(frame, "text")                 key, value as strings
    decode(frame, "binary")               as they are
    decode(frame, "json")                 columns of the JSON objects, their types by a sample
    decode(frame, "carrier STRING, ...")  these fields of the JSON objects

Beside the columns of the value stand those of the record: _key, _topic, _partition, _offset,
_timestamp, and _headers where the frame has them; with `text` and `binary` they have their own
names.  Where the value has such a field, as that of an imported export has, the record's column is
record_key and so on: of two columns of one name Spark gives neither.

A value that is not what its columns say (no JSON object, or with other types) has nulls in them.
`keeps_text` has one more column, _value, with the whole text of such a value.

Limits: a field that no record of the sample has is not seen.
"""

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from .errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TEXT = "text"
BINARY = "binary"

_TIME = "_timestamp"
# Not as Spark calls it: its readers of JSON and CSV take no such column out of a file.
UNREAD_TEXT = "_value"
SPARKS_UNREAD_TEXT = "_corrupt_record"
# The same as a field beside those of the values, of which one may have that name.
_UNREAD = "\0"
_NAMED = "columnNameOfCorruptRecord"
_READ = "_read"
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
    fields: StructType | None = None
    """The columns of the value, where it has any."""


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
    sample: "Iterable[DataFrame]" = (),
    earlier: Mapping[str, str] | None = None,
    *,
    known: StructType | None = None,
    keeps_text: bool = False,
) -> Decoded:
    """The frame with its values decoded.

    form: text, binary, json, or the fields of JSON objects, as SQL declares columns or as types.
    sample: where the types of `json` are looked up.
    earlier: the names of the record's columns that have to stay.
    known: fields of `json` that keep their types, whatever the sample has.
    keeps_text: what the columns have no place for is kept as text.
    Raises OptionError where the form has no columns, or the sample nothing of it, or where a field
    has a name that has to stay.
    """
    if isinstance(form, StructType):
        return _json(frame, form, earlier, keeps_text=keeps_text)
    rest = ["topic", "partition", "offset", "timestamp"]
    rest += ["headers"] * ("headers" in frame.columns)
    match form.strip().lower():
        case "text":
            text = ("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
            return Decoded(frame.selectExpr(*text, *rest), "timestamp")
        case "binary":
            return Decoded(frame.select("key", "value", *rest), "timestamp")
        case "json":
            fields = _json_fields(sample, known)
            if known is not None:
                fields = known if fields is None else _grown(known, fields)
            if fields is None:
                raise OptionError("the values are not JSON objects; say text or binary")
        case _:
            return _json(frame, form, earlier, keeps_text=keeps_text)
    return _json(frame, fields, earlier, keeps_text=keeps_text)


def guess(sample: "Iterable[DataFrame]") -> str | StructType:
    """The fields of the JSON objects that all values are, else `text`."""
    return _json_fields(sample, of_all=True) or TEXT


def _json(
    frame: "DataFrame",
    form: str | StructType,
    earlier: Mapping[str, str] | None,
    *,
    keeps_text: bool,
) -> Decoded:
    if isinstance(form, str):
        fields, options = _fields(frame, form), {}
        # Who names it has it among the fields.
        keeps_text = keeps_text and SPARKS_UNREAD_TEXT not in fields.names
    else:
        fields, options = form, {_NAMED: _UNREAD}
    text = functions.col("value").cast("string")
    of_record = OF_RECORD | ({"_headers": "headers"} if "headers" in frame.columns else {})
    own = [functions.expr(each).alias(name) for name, each in of_record.items()]
    columns = {name: functions.col(name) for name in of_record}
    value = functions.from_json(text, fields, options)
    if keeps_text:
        value = _from_json(text, fields)
        own.append(text.alias(UNREAD_TEXT))
        # Of an empty value Spark makes no object, and no unread text either.
        parsed = functions.col(_READ)
        unread = functions.when(parsed.isNull(), functions.col(UNREAD_TEXT))
        columns[UNREAD_TEXT] = functions.coalesce(parsed.getField(_UNREAD), unread)
    decoded = frame.select(value.alias(_READ), *own)
    taken = {name.lower() for name in fields.names}
    names = {**{name: free_name(name, taken) for name in columns}, **(earlier or {})}
    for name in names.values():
        if name.lower() in taken:
            raise OptionError(
                f"the column {name!r} of the files that are there is the record's, and the values"
                " have a field of that name now: choose fields without it (--values), or another"
                " path"
            )
    beside = [column.alias(names[name]) for name, column in columns.items()]
    return Decoded(decoded.select(f"{_READ}.*", *beside).drop(_UNREAD), names[_TIME], names, fields)


def _grown(known: StructType, now: StructType) -> StructType:
    """The known fields with their types, and those that objects have got since, also in them."""
    since = {field.name: field.dataType for field in now}
    fields = {
        field.name: _grown_type(field.dataType, since.get(field.name, field.dataType))
        for field in known
    }
    return StructType([StructField(*each) for each in (since | fields).items()])


def _grown_type(known: DataType, now: DataType) -> DataType:
    if isinstance(known, StructType) and isinstance(now, StructType):
        return _grown(known, now)
    if isinstance(known, ArrayType) and isinstance(now, ArrayType):
        return ArrayType(_grown_type(known.elementType, now.elementType))
    return known


def _fields(frame: "DataFrame", form: str) -> StructType:
    """The fields that SQL declares as columns."""
    quoted = form.replace("'", "\\'")
    parsed = frame.select(functions.expr(f"from_json(CAST(value AS STRING), '{quoted}')"))
    struct = parsed.schema.fields[0].dataType
    if not isinstance(struct, StructType):  # from_json takes arrays and maps as well
        raise OptionError(f"{form} has no columns: say 'carrier STRING, n INT', json or text")
    return struct


def _json_fields(
    sample: "Iterable[DataFrame]", known: StructType | None = None, *, of_all: bool = False
) -> StructType | None:
    """The fields of the values that are objects; None where none is, or with `of_all` not each.

    As types, not as SQL: their names may be anything, also those of fields in fields.
    known: only values that these fields can have are looked at; others are not read by them.
    """
    text = functions.col("value").cast("string")
    unread = functions.lit(None)
    if known is not None:
        unread = _from_json(text, known).getField(_UNREAD)
    texts: list[str] = []
    for frame in sample:
        spark = frame.sparkSession
        rows = frame.select(text.alias("text"), unread.isNull().alias("is_read")).collect()
        texts += [row.text for row in rows if row.text is not None and row.is_read]
    objects = [text for text in texts if text.lstrip().startswith("{")]
    if not objects or (of_all and len(objects) < len(texts)):
        return None
    lines = spark.sparkContext.parallelize(objects, 1)
    schema = spark.read.option(_NAMED, _UNREAD).json(lines).schema
    fields = [field for field in schema.fields if field.name != _UNREAD]
    return StructType(fields) if fields else None


def _from_json(text: "Column", fields: StructType) -> "Column":
    """The object, with one more field: the text, where that is not what the fields say."""
    read = StructType([*fields, StructField(_UNREAD, StringType())])
    return functions.from_json(text, read, {_NAMED: _UNREAD})

"""Rows of a data frame as records: which columns mean what, and Arrow batches cut by destination.

    value       binary or string     required; null is a tombstone
    key         binary or string     chooses the partition (murmur2, as in Java) where none is given
    headers     array<struct<key: string, value: binary>>
    topic       string               where the option `topic` is not given
    partition   int                  instead of the key's

Kafka's names and rules.  Other columns are left out of the record; one of these with another type
is refused before anything is written.

Invariant: the rows of one destination keep their order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.compute
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from .errors import OptionError, SinkError

Headers = list[tuple[str, bytes | None]]

_TEXT = (BinaryType, StringType)
_HEADERS = "array<struct<key: string, value: binary>>"


def check_columns(schema: StructType, topic: str | None) -> None:
    """Refuse a frame that cannot be records.  Raises OptionError that names the column."""
    types = {field.name: field.dataType for field in schema.fields}
    for name in ("key", "value", "topic", "partition", "headers"):
        if schema.names.count(name) > 1:
            raise OptionError(f"there are several columns {name!r}; select one of them")
    if "value" not in types:
        found = ", ".join(types) or "none"
        raise OptionError(
            f"the column 'value' is missing (there are: {found}); for example"
            " SELECT to_json(struct(*)) AS value"
        )
    if topic is None and "topic" not in types:
        raise OptionError("nothing says where to: give the option topic, or a column 'topic'")
    for name, expected in (("key", _TEXT), ("value", _TEXT), ("topic", (StringType,))):
        if name in types and not isinstance(types[name], expected):
            wanted = " or ".join(each().simpleString() for each in expected)
            raise _ill_typed(name, types[name], wanted)
    if "partition" in types and not isinstance(types["partition"], IntegerType):
        raise _ill_typed("partition", types["partition"], "int")
    if "headers" in types and not _are_headers(types["headers"]):
        raise _ill_typed("headers", types["headers"], _HEADERS)


def _ill_typed(name: str, kind: DataType, wanted: str) -> OptionError:
    return OptionError(
        f"the column {name!r} is {kind.simpleString()} and must be {wanted}; cast it in the query"
    )


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return [(field.name, type(field.dataType)) for field in fields] == [
        ("key", StringType),
        ("value", BinaryType),
    ]


@dataclass(frozen=True, slots=True)
class Records:
    """Records for one destination; `partition` None: the key's, or any."""

    topic: str
    partition: int | None
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Headers | None] | None


def records_of(table: pyarrow.RecordBatch, topic: str | None) -> Iterator[Records]:
    """The rows, by destination.  The topic given beats the column.  SinkError for a null topic."""
    names = table.schema.names
    by = [name for name in ("topic", "partition") if name in names]
    if topic is not None:
        by = [name for name in by if name != "topic"]
    for key, part in _groups(table, by):
        place = dict(zip(by, key, strict=True))
        to = topic if topic is not None else place["topic"]
        partition = place.get("partition")
        if not isinstance(to, str):
            raise SinkError("a row has a null topic; give the option topic, or filter such rows")
        assert partition is None or isinstance(partition, int)
        values = _bytes(part.column("value"))
        keys = _bytes(part.column("key")) if "key" in names else None
        headers = _headers(part.column("headers")) if "headers" in names else None
        yield Records(to, partition, values, keys, headers)


def _groups(
    table: pyarrow.RecordBatch, by: list[str]
) -> Iterator[tuple[tuple[object, ...], pyarrow.RecordBatch]]:
    """The rows that agree in the columns `by`, each group in order."""
    if not by:
        yield (), table
        return
    columns = [table.column(name) for name in by]
    keys = list(dict.fromkeys(zip(*(column.to_pylist() for column in columns), strict=True)))
    if len(keys) == 1:
        yield keys[0], table
        return
    for key in keys:
        mask = None
        for column, value in zip(columns, key, strict=True):
            same = (
                pyarrow.compute.is_null(column)
                if value is None
                else pyarrow.compute.fill_null(pyarrow.compute.equal(column, value), False)
            )
            mask = same if mask is None else pyarrow.compute.and_(mask, same)
        yield key, table.filter(mask)


def _bytes(column: pyarrow.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.cast(pyarrow.binary()).to_pylist()
    return found


def _headers(column: pyarrow.Array) -> list[Headers | None]:
    return [None if row is None else [_header(each) for each in row] for row in column.to_pylist()]


def _header(each: Mapping[str, Any] | None) -> tuple[str, bytes | None]:
    if each is None or each["key"] is None:
        raise SinkError("a row has a header without a name; filter such headers")
    return each["key"], each["value"]

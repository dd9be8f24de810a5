"""The rows of a query of Spark on standard output: a table, or a JSON object per row."""

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from .exit_codes import ExitCode
from .failures import Failure
from .tables import table_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

LIMIT_MAX: Final = (1 << 31) - 2
"""One more is asked for, and Spark has 32 bits for that."""


def print_rows(frame: "DataFrame", output: str, limit: int) -> tuple[int, bool]:
    """Print rows of frame, as `table` or `json`; returns how many, and whether there are more.

    limit: at most so many; 0: all, else at most LIMIT_MAX.
    Raises Failure of USAGE for `json` and columns that share a name.
    """
    frame = _with_times_as_text(frame.limit(limit + 1) if limit else frame)
    if output == "json":
        twice = [name for name, count in Counter(frame.columns).items() if count > 1]
        if twice:
            sentence = (
                f"several columns are named {twice[0]!r}, and a JSON object has one of a name"
            )
            raise Failure(sentence, ExitCode.USAGE, f"name them, as SELECT a.{twice[0]} AS other")
        count = 0
        for row in frame.toLocalIterator():
            if limit and count == limit:
                return count, True
            click.echo(json.dumps(_json(row.asDict(recursive=True)), default=_plain))
            count += 1
        return count, False
    found = frame.collect()
    rows = found[:limit] if limit else found
    numbers = {
        column
        for column, (_, kind) in enumerate(frame.dtypes)
        if kind.startswith(("int", "bigint", "double", "float", "decimal", "smallint", "tinyint"))
    }
    cells = [tuple(map(_cell, row)) for row in rows]
    for line in table_lines(frame.columns, cells, numbers=numbers):
        click.echo(line)
    return len(rows), len(rows) < len(found)


def _with_times_as_text(frame: "DataFrame") -> "DataFrame":
    """The frame with times as SQL writes them, also those within a value: in the zone of the
    session.  PySpark makes them those of this machine's zone, and has none after the year 9999."""
    from pyspark.sql import functions

    fields = frame.schema.fields
    places = [str(place) for place in range(len(fields))]  # two columns may have one name
    columns = [
        functions.col(place).cast(_as_text(field.dataType))
        for place, field in zip(places, fields, strict=True)
    ]
    return frame.toDF(*places).select(*columns).toDF(*frame.columns)


def _as_text(kind: "DataType") -> "DataType":
    """The type with text in place of times."""
    from pyspark.sql.types import (
        ArrayType,
        DateType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    match kind:
        case DateType() | TimestampType() | TimestampNTZType():
            return StringType()
        case ArrayType():
            return ArrayType(_as_text(kind.elementType), kind.containsNull)
        case MapType():
            key, value = _as_text(kind.keyType), _as_text(kind.valueType)
            return MapType(key, value, kind.valueContainsNull)
        case StructType():
            return StructType(
                [StructField(each.name, _as_text(each.dataType), each.nullable) for each in kind]
            )
        case _:
            return kind


def _json(value: object) -> object:
    """The same with what JSON has no place for as text: numbers that are none, keys of maps."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str | int | None) else str(_plain(key)): _json(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        # As Spark writes them to JSON.
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return value


def _plain(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


def _cell(value: object) -> str:
    return "-" if value is None else str(_plain(value))

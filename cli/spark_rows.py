"""The rows of a query of Spark on standard output: a table, or a JSON object per row."""

import json
import math
from collections import Counter
from typing import TYPE_CHECKING

import click

from .exit_codes import ExitCode
from .failures import Failure
from .tables import table_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def print_rows(frame: "DataFrame", output: str) -> int:
    """Print all rows of frame, as `table` or `json`; returns how many they were.

    Raises Failure of USAGE for `json` and columns that share a name.
    """
    if output == "json":
        twice = [name for name, count in Counter(frame.columns).items() if count > 1]
        if twice:
            sentence = (
                f"several columns are named {twice[0]!r}, and a JSON object has one of a name"
            )
            raise Failure(sentence, ExitCode.USAGE, f"name them, as SELECT a.{twice[0]} AS other")
        count = 0
        for row in frame.toLocalIterator():
            click.echo(json.dumps(_json(row.asDict(recursive=True)), default=_plain))
            count += 1
        return count
    rows = frame.collect()
    numbers = {
        column
        for column, (_, kind) in enumerate(frame.dtypes)
        if kind.startswith(("int", "bigint", "double", "float", "decimal", "smallint", "tinyint"))
    }
    cells = [tuple(map(_cell, row)) for row in rows]
    for line in table_lines(frame.columns, cells, numbers=numbers):
        click.echo(line)
    return len(rows)


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

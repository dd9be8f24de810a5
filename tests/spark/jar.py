"""The jar's reader, called without a Spark job: one task in, its rows or its error out.

Beside it the rows of the same task by the reader in Python, in the same form.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from segbroker.spark import errors
from segbroker.spark.columns import Shape, record_batches
from segbroker.spark.fetching import RangeFetcher, Task
from segbroker.spark.jvm import JvmPartition
from segbroker.spark.options import SourceOptions, parse_options

from .scripted_broker import TOPIC, ScriptedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Microseconds since then; as a float they would be rounded from the year 2255 on.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What the jar raises, by the names of its classes.
ERRORS = {
    "segbroker.spark.SourceError$DataLoss": errors.DataLoss,
    "segbroker.spark.SourceError$SourceUnavailable": errors.SourceUnavailable,
    "segbroker.spark.SourceError": errors.SourceError,
}


@dataclass(frozen=True)
class Row:
    """A record as the jar hands it to Spark; the time in microseconds."""

    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


def options_of(broker: ScriptedBroker, **more: str) -> SourceOptions:
    """Of a query of a scripted broker, with headers."""
    host, port = broker.address
    given = {"kafka.bootstrap.servers": f"{host}:{port}", "subscribe": TOPIC}
    return parse_options({**given, "includeHeaders": "true", **more}, streaming=True)


def read_in_python(options: SourceOptions, task: Task) -> list[Row]:
    """The rows of a task by the reader that the jar is compared with."""
    batches = RangeFetcher(options, task).batches_and_losses()
    return [
        Row(
            row["partition"],
            row["offset"],
            (row["timestamp"] - EPOCH) // timedelta(microseconds=1),
            row["timestampType"],
            row["key"],
            row["value"],
            None
            if row["headers"] is None
            else tuple((each["key"], each["value"]) for each in row["headers"]),
        )
        for table in record_batches(batches, task.range, Shape(headers=True))
        for row in table.to_pylist()
    ]


class JarReader:
    """See the module."""

    def __init__(self, spark: "SparkSession") -> None:
        self._jvm: Any = spark.sparkContext._jvm

    def read(self, options: SourceOptions, task: Task) -> list[Row]:
        """The rows of a task.  Raises what the reader in Python would."""
        return self.rows([JvmPartition(options, task)])

    def rows(self, tasks: Sequence[InputPartition]) -> list[Row]:
        """The rows of tasks that were planned for the jar."""
        return [row for task in tasks for batch in self.batches(task) for row in batch]

    def batches(self, task: InputPartition) -> Iterator[list[Row]]:
        """The same as Spark is handed them: the next batch is fetched when it is asked for."""
        assert isinstance(task, JvmPartition), task
        probe = self._jvm.segbroker.spark.Probe(task.value)
        try:
            while (lines := _called(probe.next)) is not None:
                yield [_row(line) for line in lines.splitlines()]
        finally:
            probe.close()


def _called(method: Callable[[], str | None]) -> str | None:
    """What a method of the jar returns, or its error as the one in Python."""
    from py4j.protocol import Py4JJavaError

    try:
        return method()
    except Py4JJavaError as exc:
        raised: Any = exc.java_exception
        name = raised.getClass().getName()
        if name not in ERRORS:
            raise
        raise ERRORS[name](raised.getMessage()) from None


def _row(line: str) -> Row:
    partition, offset, timestamp_us, timestamp_type, key, value, *rest = line.split(" ")
    headers = None
    if rest != ["-"]:
        names = [base64.b64decode(name[1:]).decode() for name in rest[::2]]
        headers = tuple(zip(names, map(_bytes, rest[1::2]), strict=True))
    return Row(
        int(partition),
        int(offset),
        int(timestamp_us),
        int(timestamp_type),
        _bytes(key),
        _bytes(value),
        headers,
    )


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text[1:])

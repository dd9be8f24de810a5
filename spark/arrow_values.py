"""Values that are Arrow IPC streams, as the rows inside them: the format `segbroker-arrow`.

Batch only, for SQL over topics.  The columns are those of the first value that there is; later
ones must have the same.  A source of its own and not a function over the frame of the other one:
Spark's functions over Arrow need pandas, its sources do not, and so the rows cross to the JVM once.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from .errors import OptionError, SourceError
from .options import parse_options
from .source import BatchReader

FORMAT = "segbroker-arrow"


class ArrowValues(DataSource):
    """See the module; the options are those of `segbroker`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        reader = BatchReader(parse_options(self.options, streaming=False))
        for task in reader.partitions():
            for table in reader.read(task):
                for value in table.column("value"):
                    if value.is_valid:
                        found: StructType = from_arrow_schema(_open(value).schema)
                        return found
        raise OptionError("there is no value yet from which the Arrow columns could be known")

    def reader(self, schema: StructType) -> "ArrowReader":
        return ArrowReader(BatchReader(parse_options(self.options, streaming=False)), schema)


class ArrowReader(DataSourceReader):
    """The ranges and tasks of the other reader; of its rows the insides of the values."""

    def __init__(self, records: BatchReader, schema: StructType) -> None:
        self._records = records
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return self._records.partitions()

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for table in self._records.read(partition):
            for value, offset in zip(table.column("value"), table.column("offset"), strict=True):
                if value.is_valid:
                    yield from _tables(value, offset.as_py(), wanted)


def _tables(value: Any, offset: int, wanted: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:  # noqa: ANN401
    try:
        for table in _open(value):
            yield table.select(wanted.names).cast(wanted)
    except (pyarrow.ArrowInvalid, KeyError) as exc:
        raise SourceError(f"the value at offset {offset} has not the columns: {exc}") from exc


def _open(value: Any) -> pyarrow.RecordBatchStreamReader:  # noqa: ANN401 - a pyarrow.BinaryScalar
    try:
        return pyarrow.ipc.open_stream(value.as_buffer())
    except pyarrow.ArrowInvalid as exc:
        raise OptionError(f"the values are not Arrow IPC streams: {exc}") from exc

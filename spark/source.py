"""The data source `segbroker`: what Spark asks on the driver, and what it has executors read.

    driver      options -> start, end -> ranges per partition -> tasks
    executors   task -> fetched batches -> Arrow record batches

A stream, as Spark calls it (each in this order, batch after batch):

    new query      initialOffset
    restart        partitions(a, b) of the batch that was not finished, before anything else
    each trigger   latestOffset(start, limit), commit(end of the batch before), partitions, read

So `partitions` works from the two offsets alone, and a checkpoint wins over startingOffsets.
Partitions and topics that appear while the query runs are read from their earliest offset.
Under Trigger.AvailableNow the ends are fixed once, when the query starts.

Spark pickles the reader into its tasks.  Invariant: constructors only parse options; connections
are made by the call that needs them, and `read` depends on nothing but the options and its task.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .columns import SPARK_SCHEMA, SPARK_SCHEMA_WITH_HEADERS, record_batches
from .fetching import RangeFetcher, Task
from .offsets import Offsets, offsets_from_json
from .options import SourceOptions, parse_options, wants_headers
from .planning import Planner

if TYPE_CHECKING:
    import pyarrow

FORMAT = "segbroker"


class TaskPartition(InputPartition):
    """A task on its way to an executor."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class SegbrokerDataSource(DataSource):
    """`spark.read.format("segbroker")` and `spark.readStream.format("segbroker")`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SPARK_SCHEMA_WITH_HEADERS if wants_headers(self.options) else SPARK_SCHEMA

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(parse_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        return StreamReader(parse_options(self.options, streaming=True))


class _Reader:
    """What both readers have: the options, a planner made on first use, and `read`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_planner": None}

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def _close(self) -> None:
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    def _read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        if not isinstance(partition, TaskPartition):
            # Spark makes one empty partition of an empty plan.
            return iter(())
        task = partition.task
        batches = RangeFetcher(self._options, task).batches()
        return record_batches(batches, task.range, headers=self._options.include_headers)


class BatchReader(_Reader, DataSourceReader):
    """Reads [start, end) as both are when the query is planned."""

    def partitions(self) -> list[InputPartition]:
        try:
            return [TaskPartition(task) for task in self._plan().batch_tasks()]
        finally:
            self._close()

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        return self._read(partition)


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from a checkpoint, or from the options' start."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._available: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_available": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._plan().start().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available = self._plan().latest()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the logs as `latestOffset` saw them: lag without another question."""
        planner = self._plan()
        return (planner.ends_seen or planner.latest()).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        planner = self._plan()
        target = self._available or planner.latest()
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return planner.advance(offsets_from_json(start), target, count).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self._plan().tasks(offsets_from_json(start), offsets_from_json(end))
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        return self._read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is Spark's, and no group is kept at the broker."""

    def stop(self) -> None:
        self._close()

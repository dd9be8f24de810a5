"""The readers: what Spark asks on the driver, and what it has executors read.

    driver      options -> start, end -> ranges per partition -> tasks
    executors   task -> fetched batches -> Arrow record batches

A stream, as Spark calls it (each in this order, batch after batch):

    new query      initialOffset, and once more before the partitions of its first batch
    restart        partitions(a, b) of the batch that was not finished, before anything else
                   (of the first batch a is what initialOffset says now)
    each trigger   latestOffset(start, limit), commit(end of the batch before), partitions, read

So `partitions` works from the two offsets alone, and a checkpoint wins over startingOffsets.  The
end of the first batch tells where it began, too: what initialOffset says later is another place.
Partitions and topics that appear while the query runs are read from their earliest offset.
Under Trigger.AvailableNow the ends are fixed once, when the query starts.

Spark pickles the reader into its tasks.  Invariant: constructors only parse options; connections
are made by the call that needs them, and `read` depends on nothing but the options and its task.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from . import lag
from .columns import Shape, record_batches
from .errors import OptionError, plain, plain_rows
from .fetching import RangeFetcher, Task
from .jvm import JvmPartition
from .link import now_ms
from .offsets import START, Offsets, offsets_from_json
from .options import SourceOptions, TriggerLimits
from .planning import Planner

if TYPE_CHECKING:
    import pyarrow


class TaskPartition(InputPartition):
    """A task on its way to an executor."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


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

    def _partitions(self, tasks: Iterable[Task]) -> list[InputPartition]:
        if self._options.in_jvm:
            return [JvmPartition(self._options, task) for task in tasks]
        return [TaskPartition(task) for task in tasks]

    def _read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        if not isinstance(partition, TaskPartition):
            # Spark makes one empty partition of an empty plan.
            return iter(())
        task = partition.task
        batches = RangeFetcher(self._options, task).batches_and_losses()
        shape = Shape(self._options.include_headers, self._options.include_gaps)
        return record_batches(batches, task.range, shape)


class BatchReader(_Reader, DataSourceReader):
    """Reads [start, end) as both are when the query is planned."""

    @plain
    def partitions(self) -> list[InputPartition]:
        try:
            return self._partitions(self._plan().batch_tasks())
        finally:
            self._close()

    @plain_rows
    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        return self._read(partition)


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from a checkpoint, or from the options' start."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._available: Offsets | None = None
        self._last_trigger_ms: int | None = None
        self._initial: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        forgotten = dict.fromkeys(("_available", "_last_trigger_ms", "_initial"))
        return {**super().__getstate__(), **forgotten}

    @plain
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        start = self._plan().start()
        if self._available is not None and self._initial is None:
            # Spark has the ends fixed before it asks for the start, which may be a later end.
            self._available = self._available.at_least(start)
        self._initial = start.to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What Spark hands back to latestOffset: that there are limits, which are the options'."""
        limits = self._options.trigger
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    @plain
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available = self._plan().latest()

    @plain
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the logs as `latestOffset` saw them: lag without another question."""
        planner = self._plan()
        return (planner.ends_seen or planner.latest()).to_json()

    @plain
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself where there is none, or it has to wait.

        minOffsetsPerTrigger has it wait.
        """
        planner = self._plan()
        target = self._available or planner.latest()
        limits = self._limits(limit)
        begin = offsets_from_json(start)
        end = planner.advance(begin, target, limits).to_json()
        if limits is not None and self._waits(limits, planner.backlog(begin, target)):
            return start
        if start == self._initial:
            return {**end, START: start}
        # Spark compares texts: the end of the first batch stays as it is while nothing comes.
        return start if offsets_from_json(end) == begin else end

    def _limits(self, limit: ReadLimit) -> TriggerLimits | None:
        """The options' limits, which Spark's own one limit stands for; None: all there is."""
        match limit:
            case ReadAllAvailable():
                return None
            case ReadMaxRows():
                return replace(self._options.trigger, offsets_max=limit.max_rows)
            case _:
                return self._options.trigger

    def _waits(self, limits: TriggerLimits, backlog: int) -> bool:
        """Whether there are too few records yet, and they have not waited for too long."""
        if limits.offsets_min is None or self._available is not None:
            return False
        last_ms, now = self._last_trigger_ms, now_ms()
        is_late = last_ms is None or now - last_ms >= limits.delay_ms
        if not is_late and backlog < limits.offsets_min:
            return True
        self._last_trigger_ms = now
        return False

    @plain
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        until = offsets_from_json(end)
        begin = offsets_from_json(start if start == end else end.get(START, start))
        return self._partitions(self._plan().tasks(begin, until))

    @plain_rows
    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        return self._read(partition)

    @plain
    def commit(self, end: dict[str, Any]) -> None:
        """Show how far the query is, where it is asked to; the checkpoint is Spark's."""
        group = self._options.commit_group
        if group is not None:
            lag.publish(self._options.client, group, offsets_from_json(end))

    def stop(self) -> None:
        self._close()


class RefusedStream(StreamReader):
    """Of options that are wrong: says so as soon as Spark asks it for something.

    Raised by `streamReader` itself, the sentence would stand amid an error of Spark's own: its
    runner of streams then stops a reader that it has not got (pyspark 4.3).
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error
        self._planner = None

    def _plan(self) -> Planner:
        raise self._error

    @plain
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self._error

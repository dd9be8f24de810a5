"""A streaming source in Python that reads nothing: each task has one row at hand.

So a micro-batch of it takes what Spark takes for any source in Python with so many tasks.
"""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pyarrow
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

NAME = "bench-plain"

# Spark's workers have no module `bench`: the classes travel whole.
_travel_whole: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
_travel_whole(sys.modules[__name__])


class PlainReader(DataSourceStreamReader):
    """One row in each of `tasks` partitions, in every micro-batch."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._batch = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, *_: object) -> dict[str, int]:  # noqa: N802
        self._batch += 1
        return {"batch": self._batch}

    def partitions(self, start: object, end: object) -> list[InputPartition]:
        return [InputPartition(task) for task in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        yield pyarrow.RecordBatch.from_pydict({"value": [b"here"]})

    def commit(self, end: object) -> None:
        """Nothing is kept."""


class PlainSource(DataSource):
    """`format(NAME)`, with the option `tasks`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: object) -> PlainReader:  # noqa: N802
        return PlainReader(int(self.options["tasks"]))

"""The sink: `write.format("segbroker")` and `writeStream.format("segbroker")`.

    executor    rows --> records --> the brokers, in a transaction of the task's own, left open
    driver      commit: COMMIT_BATCH of all of them, with the query and the number of the batch

Exactly once.  The broker decides about all transactions of a batch and about "this was the query's
last batch" at once.  So when Spark repeats a batch, because it died between our commit and its
own, the broker knows it: the tasks find out before they write, and the repeat counts as done.
Of a stream only the last batch can be repeated; an older one is refused (0216).

A transaction is called `prefix/query/task/attempt`.  A query that comes back after a crash writes
under the names that it had: what the dead one left open is aborted then, not when its time is over.
What it left open under other names, as it had more tasks, ends with the first batch of the new one.

    prefix      the option transactionalId, else `segbroker-spark`
    query       of a stream its id, which its checkpoint keeps, as Spark tells it in the task's
                properties; where Spark does not, transactionalId alone is the query
                of a batch write with transactionalId and batchId the former; else a name of its own
    batch       of a stream the micro-batch; of a batch write batchId, else 0

A batch write whose batchId is the micro-batch of a stream that it runs in (foreachBatch) belongs to
that stream: its query is the stream's, and a new checkpoint begins to count anew.

Attempts that came to nothing (of an executor that died, of two that Spark ran at once) may have
left transactions open, which would hold up who reads committed records.  The broker aborts them
with the commit of a batch: until then nobody writes the next one.  The names of a batch write with
a name of its own are forgotten with it.

At least once.  No transaction: records are there as soon as they are written, and a repeated task
or batch writes them again.

Invariant: what `write` needs is in the writer, the rows and the task's properties; a writer is
pickled to executors, and of a stream made anew for each commit.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from segbroker.client.errors import SegbrokerError

from .cluster import Cluster
from .errors import SinkError, SourceUnavailable, plain
from .rows import records_of
from .sink_options import SinkOptions
from .transactions import Committed, Identity, abort, commit_batch, forget, last_batch
from .writing import RecordWriter, made_again

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("segbroker.spark")

PREFIX = "segbroker-spark"
# In the task's properties; Spark writes them for its own use.
BATCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"
# Said once on the driver: a number that was given to other rows is not told from a repetition.
REPEATED = (
    "batch %d of query %s was committed before: it is taken for a repetition, and its rows are not"
    " written again"
)
# How often Spark tries a task, if nobody says otherwise (spark.task.maxFailures).
ATTEMPTS_COUNT = 4
# More than a topic has partitions.
ROTATION_END = 1 << 20


@dataclass(frozen=True)
class Place:
    """Whose transaction a task writes in; `batch` None: known to the driver only.

    is_stream: Spark numbers the batches, and repeats the last one only.
    """

    query: str
    batch: int | None
    task: str
    is_stream: bool

    @property
    def transactional_id(self) -> str:
        return f"{self.query}/{self.task}"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the driver; `identity` None: nothing is to be committed.

    topic_ids: of the topics that it wrote to, where the broker knows ids.
    is_repeated: the batch was committed before, and the rows were not written.
    is_stream: as in Place.
    """

    query: str | None
    identity: Identity | None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    is_repeated: bool = False
    is_stream: bool = False


class _Writer:
    """What both writers have.  `single`: the query of a write whose names nobody comes back to."""

    def __init__(self, options: SinkOptions, *, single: str | None) -> None:
        self._options = options
        self._single = single
        # Rows without a key: each batch begins anywhere, and its tasks next to each other.
        self._rotation = Random().randrange(ROTATION_END)

    def _write(self, tables: "Iterator[pyarrow.RecordBatch]", place: Place | None) -> Written:
        if place is not None and self._is_done(place):
            return Written(place.query, None, is_repeated=True)
        transactional_id = None if place is None else place.transactional_id
        context = TaskContext.get()
        rotation = self._rotation + (context.partitionId() if context else 0)
        writer = RecordWriter(self._options, transactional_id, rotation)
        try:
            for table in tables:
                for records in records_of(table, self._options.topic):
                    writer.write(records)
            identity = writer.prepare()
        except BaseException:
            writer.abandon()
            raise
        finally:
            writer.close()
        if place is None:
            return Written(None, None, writer.topic_ids)
        return Written(place.query, identity, writer.topic_ids, is_stream=place.is_stream)

    def _is_done(self, place: Place) -> bool:
        """Whether the batch is there already: then the rows need not be written at all."""
        if place.batch is None:
            return False
        with closing(Cluster(self._options.client)) as cluster:
            last = last_batch(cluster, place.query)
        if last is None or place.batch > last:
            return False
        if place.is_stream:
            _refuse_older(place.query, place.batch, last)
        return True

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        found = [each for each in messages if isinstance(each, Written)]
        _refuse_two_topics(found)
        identities = [each.identity for each in found if each.identity is not None]
        queries = {each.query for each in found if each.identity is not None}
        if not identities:
            for query in {each.query for each in found if each.is_repeated}:
                log.warning(REPEATED, batch, query)
            return
        (query,) = queries
        assert query is not None
        with closing(Cluster(self._options.client)) as cluster:
            committed = commit_batch(cluster, query, batch, identities)
            self._forget(cluster, messages)
            if committed is not Committed.NOW and any(each.is_stream for each in found):
                last = last_batch(cluster, query)
                _refuse_older(query, batch, batch if last is None else last)
            if committed is Committed.BEFORE:
                log.warning(REPEATED, batch, query)

    def _forget(self, cluster: Cluster, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Have all names of a single write forgotten, of the attempts that failed, too."""
        query = self._single
        if query is None:
            return
        attempts = [
            int(str(each.identity.transactional_id).rpartition("/")[2])
            for each in messages
            if isinstance(each, Written) and each.identity is not None
        ]
        count = max([ATTEMPTS_COUNT, *(1 + attempt for attempt in attempts)])
        names = [
            f"{query}/{partition}/{attempt}"
            for partition in range(len(messages))
            for attempt in range(count)
        ]
        forget(cluster, query, names)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Give up what the tasks that succeeded have written.

        What others of a stream have open, of a task that was killed with the rest, ends with the
        next commit or by its time: under the same names the next run may be at work by now.
        """
        found = [each for each in messages if isinstance(each, Written)]
        with closing(Cluster(self._options.client)) as cluster:
            for each in found:
                if each.identity is not None and not self._is_aborted(cluster, each.identity):
                    return
            self._forget(cluster, messages)

    def _is_aborted(self, cluster: Cluster, identity: Identity) -> bool:
        """Abort one, or say that it is left to its time; False: no broker answers at all."""
        try:
            abort(cluster, identity)
        except SourceUnavailable as exc:
            log.warning("abandoned transactions end by kafka.transaction.timeout.ms: %s", exc)
            return isinstance(exc.__cause__, SegbrokerError) and not exc.__cause__.retryable
        return True


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write`: all rows at once, or none."""

    def __init__(self, options: SinkOptions) -> None:
        # Made on the driver, and pickled: all tasks of one write have one name.
        single = None
        if options.batch_id is None and options.exactly_once:
            single = f"{options.transactional_id or PREFIX}/{uuid4().hex}"
        super().__init__(options, single=single)
        self._query = single or options.transactional_id

    @plain
    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        if not self._options.exactly_once:
            return self._write(iterator, None)
        assert self._query is not None, "batchId needs transactionalId"
        batch, micro_batch = self._options.batch_id, _micro_batch()
        if micro_batch is not None and batch == micro_batch[1]:
            return self._write(iterator, _place_in_stream(self._query, *micro_batch))
        return self._write(iterator, Place(self._query, batch, _task(), is_stream=False))

    @plain
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._options.batch_id or 0)

    @plain
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch once."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options, single=None)

    @plain
    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Written:
        if not self._options.exactly_once:
            return self._write(iterator, None)
        return self._write(iterator, stream_place(self._options))

    @plain
    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        self._commit(messages, batchId)

    @plain
    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        self._abort(messages)


def _refuse_older(query: str, batch: int, last: int) -> None:
    """Raise SinkError for a batch of a stream before the last one.

    Spark repeats no batch but the last one: one before it has the number, not the rows.
    """
    if batch < last:
        raise SinkError(
            f"batch {batch} is before batch {last}, which query {query} has committed: its"
            " checkpoint was put back, cut or copied, and its batches may have other rows now."
            " Begin with a new checkpoint, or write from here on again, what is there"
            " a second time, with another transactionalId"
        )


def _refuse_two_topics(found: Sequence[Written]) -> None:
    """Raise SinkError where tasks wrote to two topics of one name: a part of the rows is gone."""
    ids: dict[str, UUID] = {}
    for each in found:
        for topic, topic_id in each.topic_ids.items():
            if ids.setdefault(topic, topic_id) != topic_id:
                raise SinkError(made_again(topic))


def stream_place(options: SinkOptions) -> Place:
    """Where a task of a stream writes.  SinkError where neither Spark nor the user says."""
    micro_batch = _micro_batch()
    if micro_batch is not None:
        return _place_in_stream(options.transactional_id or PREFIX, *micro_batch)
    if options.transactional_id is None:
        raise SinkError(
            "this Spark does not tell a task which query it belongs to: give the option"
            " transactionalId, a name that no other query has and that goes with the checkpoint"
        )
    return Place(options.transactional_id, None, _task(), is_stream=True)


def _place_in_stream(prefix: str, query: str, batch: int) -> Place:
    return Place(f"{prefix}/{query}", batch, _task(), is_stream=True)


def _micro_batch() -> tuple[str, int] | None:
    """The id of the stream that the task is of, and the number of the batch; None: of none."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty(QUERY_PROPERTY)
    batch = context.getLocalProperty(BATCH_PROPERTY)
    return None if query is None or batch is None else (query, int(batch))


def _task() -> str:
    """The task's partition and attempt: two attempts never share a transaction."""
    context = TaskContext.get()
    return "0/0" if context is None else f"{context.partitionId()}/{context.attemptNumber()}"

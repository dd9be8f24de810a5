"""The writers, called as Spark's workers call them; librdkafka reads what they wrote."""

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructType,
)

from segbroker.client import Admin, TopicPartition
from segbroker.client.errors import ConnectionLost
from segbroker.client.spoken import ById, Request, VendorRequest
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.partitioner import partition_for_key
from segbroker.protocol.record_batch import BatchHeader
from segbroker.protocol.vendor import VendorKey
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import OptionError, SinkError
from segbroker.spark.link import Link
from segbroker.spark.sink import BatchWriter, StreamWriter, Written
from segbroker.spark.sink_options import SinkOptions, parse_sink_options
from segbroker.spark.transactions import Identity
from segbroker.spark.writing import IN_FLIGHT_MAX
from segbroker.testing.embedded import EmbeddedBroker

from ..support.ports import keep_port
from ..support.waiting import until
from .scripted_broker import ScriptedBroker, fetched
from .topics import Row, Topics

Name = Callable[[], str]

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
ARROW_HEADERS = pyarrow.list_(
    pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
)
TYPES: dict[str, tuple[DataType, pyarrow.DataType]] = {
    "key": (BinaryType(), pyarrow.binary()),
    "value": (StringType(), pyarrow.string()),
    "topic": (StringType(), pyarrow.string()),
    "partition": (IntegerType(), pyarrow.int32()),
    "headers": (HEADERS, ARROW_HEADERS),
    "other": (DoubleType(), pyarrow.float64()),
}


# Every broker can do this, so that these tests run against Apache Kafka, too.
ONCE = {"deliveryGuarantee": "at-least-once"}


def schema(*names: str) -> StructType:
    found = StructType()
    for name in names:
        found = found.add(name, TYPES[name][0])
    return found


def table(**columns: Sequence[object]) -> pyarrow.RecordBatch:
    arrays = [pyarrow.array(list(column), TYPES[name][1]) for name, column in columns.items()]
    return pyarrow.RecordBatch.from_arrays(arrays, names=list(columns))


def source(topics: Topics, **options: str) -> SegbrokerDataSource:
    return SegbrokerDataSource({"kafka.bootstrap.servers": topics.bootstrap, **options})


def write(topics: Topics, rows: pyarrow.RecordBatch, **options: str) -> None:
    """As a batch write with one task."""
    writer = source(topics, **options).writer(schema(*rows.schema.names), overwrite=False)
    writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([rows]))])


def values(rows: list[Row]) -> list[bytes | None]:
    return [row.value for row in rows]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_every_column_becomes_what_kafkas_sink_makes_of_it(
    topics: Topics, name: Name, guarantee: str, request: pytest.FixtureRequest
) -> None:
    if guarantee == "exactly-once":
        request.getfixturevalue("segbroker_only")
    topic = name()
    topics.create(topic, 4)
    rows = table(
        key=[b"k", None, b"k"],
        value=["one", None, "three"],
        partition=[None, 3, 2],
        headers=[[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, []],
        other=[1.0, 2.0, 3.0],
    )
    write(topics, rows, topic=topic, deliveryGuarantee=guarantee, includeHeaders="true")
    found = {row.partition: row for row in topics.read(topic, 3)}
    of_key = partition_for_key(b"k", 4)
    assert found.keys() == {of_key, 3, 2}
    assert (found[of_key].key, found[of_key].value) == (b"k", b"one")
    assert found[of_key].headers == [("h", b"1"), ("n", None)]
    assert (found[3].key, found[3].value, found[3].headers) == (None, None, [])
    assert found[2].value == b"three"


def test_the_option_topic_beats_the_column(topics: Topics, name: Name) -> None:
    one, two = name(), name()
    topics.create(one)
    topics.create(two)
    rows = table(value=["a", "b", "c"], topic=[one, two, one])
    write(topics, rows, **ONCE)
    assert values(topics.read(one, 2)) == [b"a", b"c"]
    assert values(topics.read(two, 1)) == [b"b"]
    write(topics, rows, topic=two, **ONCE)
    assert values(topics.read(two, 4)) == [b"b", b"a", b"b", b"c"]


def test_records_of_a_key_keep_their_order_over_many_batches(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic, 3)
    rows = table(key=[b"%d" % (n % 7) for n in range(5000)], value=[str(n) for n in range(5000)])
    options = {"kafka.batch.size": "1000", "kafka.compression.type": "lz4", **ONCE}
    write(topics, rows, topic=topic, **options)
    found = topics.read(topic, 5000)
    for key in range(7):
        of_key = [int(row.value or b"") for row in found if row.key == b"%d" % key]
        assert of_key == list(range(key, 5000, 7))


def test_rows_without_a_key_go_to_all_partitions_in_the_course_of_time(
    topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 4)
    for n in range(30):
        write(topics, table(value=[f"{n}, first", f"{n}, second"]), topic=topic, **ONCE)
    found = Counter(row.partition for row in topics.read(topic, 60))
    assert found.keys() == {0, 1, 2, 3}


def test_headers_count_towards_the_size_of_a_batch(topics: Topics, topic: str) -> None:
    # All of them in one batch are more than a topic takes.
    count = 1200
    rows = table(
        value=[str(n) for n in range(count)],
        headers=[[{"key": "h", "value": b"x" * 1000}, {"key": "n", "value": None}]] * count,
    )
    write(topics, rows, topic=topic, **ONCE)
    found = topics.read(topic, count)
    assert values(found) == [b"%d" % n for n in range(count)]
    assert all(row.headers == [("h", b"x" * 1000), ("n", None)] for row in found)


@pytest.mark.usefixtures("segbroker_only")
def test_what_is_not_committed_is_not_there_and_an_abort_leaves_nothing(
    topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 2)
    writer = source(topics, topic=topic).writer(schema("value"), overwrite=False)
    written = [writer.write(iter([table(value=["given up"])]))]
    writer.abort(written)
    written = [writer.write(iter([table(value=["kept", "too"])]))]
    assert topics.read(topic, 1, timeout_s=0.5) == []
    writer.commit(written)
    assert sorted(row.value or b"" for row in topics.read(topic, 2)) == [b"kept", b"too"]


class Failing:
    """Rows that end in an error, as those of a task that Spark kills do."""

    def __iter__(self) -> "Failing":
        self.count = 0
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        self.count += 1
        if self.count > 3:
            raise RuntimeError("the task was killed")
        return table(value=["half"])


@pytest.mark.usefixtures("segbroker_only")
def test_a_task_that_fails_takes_its_rows_with_it(topics: Topics, topic: str) -> None:
    # What it had sent would hold up who reads what is committed.
    sent = {"topic": topic, "kafka.batch.size": "1"}
    writer = source(topics, **sent).writer(schema("value"), overwrite=False)
    with pytest.raises(RuntimeError, match="the task was killed"):
        writer.write(iter(Failing()))
    write(topics, table(value=["whole"]), topic=topic)
    assert values(topics.read(topic, 1)) == [b"whole"]


def stream_batch(writer: StreamWriter, batch: int, *rows: str) -> list[WriterCommitMessage]:
    messages: list[WriterCommitMessage] = [writer.write(iter([table(value=rows)]))]
    writer.commit(messages, batch)
    return messages


@pytest.mark.usefixtures("segbroker_only")
def test_a_repeated_batch_is_done_already(
    topics: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where Spark does not tell tasks its number, and the commit is what finds out."""

    def writer() -> StreamWriter:
        options = {"topic": topic, "transactionalId": f"{topic}-query"}
        return source(topics, **options).streamWriter(schema("value"), overwrite=False)

    stream_batch(writer(), 0, "a", "b")
    stream_batch(writer(), 1, "c")
    assert not caplog.records
    stream_batch(writer(), 1, "c")
    (said,) = caplog.messages
    assert said.startswith(f"batch 1 of query {topic}-query was committed before: it is taken for")
    stream_batch(writer(), 2, "d")
    assert values(topics.read(topic, 4)) == [b"a", b"b", b"c", b"d"]


@pytest.mark.usefixtures("segbroker_only")
@pytest.mark.parametrize("spark_tells", [True, False])
def test_a_batch_before_the_last_one_is_refused_and_not_taken_for_done(
    topics: Topics, topic: str, *, spark_tells: bool
) -> None:
    """A checkpoint that was put back: what it calls batch 1 now may have other records."""

    def batch(number: int, value: str, transactional_id: str = f"{topic}-query") -> None:
        properties = {**IN_STREAM, "streaming.sql.batchId": str(number)} if spark_tells else {}
        options = {"topic": topic, "transactionalId": transactional_id}
        writer = source(topics, **options).streamWriter(schema("value"), overwrite=False)
        with task(0, 0, **properties):
            written = writer.write(iter([table(value=[value])]))
        try:
            writer.commit([written], number)
        except SinkError:
            writer.abort([written], number)  # as Spark does
            raise

    for number in range(4):
        batch(number, str(number))
    with pytest.raises(SinkError, match=r"batch 1 .*batch 3, .*checkpoint .*transactionalId"):
        batch(1, "not there yet")
    batch(3, "a repetition")
    batch(1, "not there yet", f"{topic}-again")
    assert values(topics.read(topic, 5)) == [b"0", b"1", b"2", b"3", b"not there yet"]


@pytest.mark.usefixtures("segbroker_only")
def test_a_numbered_batch_write_is_done_once_and_what_is_not_written_is_said(
    topics: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = []
    for number in ("7", "7", "3", "8"):
        options = {"transactionalId": f"{topic}-nightly", "batchId": number}
        caplog.clear()
        write(topics, table(value=[f"write {number}"]), topic=topic, **options)
        said.append([each.getMessage() for each in caplog.records if each.levelname == "WARNING"])
    assert values(topics.read(topic, 2)) == [b"write 7", b"write 8"]
    again = "was committed before: it is taken for a repetition, and its rows are not written again"
    assert said == [
        [],
        [f"batch 7 of query {topic}-nightly {again}"],
        [f"batch 3 of query {topic}-nightly {again}"],
        [],
    ]


@pytest.mark.usefixtures("segbroker_only")
def test_a_commit_whose_answer_was_lost_is_not_told_as_a_repetition(
    topics: Topics, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, lost = Link.ask_vendor, 0

    def asked(link: Link, request: VendorRequest) -> Mapping[str, Any]:
        nonlocal lost
        reply = ask(link, request)
        if request.message_key is VendorKey.COMMIT_BATCH and not lost:
            lost += 1
            link.close()
            raise ConnectionLost("the broker went away behind it")
        return reply

    monkeypatch.setattr(Link, "ask_vendor", asked)
    options = {"topic": topic, "transactionalId": topic, "batchId": "7"}
    write(topics, table(value=["once"]), **options)
    assert lost == 1
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
    write(topics, table(value=["again"]), **options)
    assert [each for each in caplog.records if each.levelname == "WARNING"]
    assert values(topics.read(topic, 1)) == [b"once"]


@pytest.mark.usefixtures("segbroker_only")
def test_all_tasks_of_a_batch_are_committed_at_once(topics: Topics, name: Name) -> None:
    one, two = name(), name()
    for topic in (one, two):
        topics.create(topic, 2)
    writers = [
        source(topics, transactionalId=f"{one}-{n}", topic=topic).streamWriter(
            schema("value"), overwrite=False
        )
        for n, topic in enumerate((one, two))
    ]
    first, second = (each.write(iter([table(value=["x"])])) for each in writers)
    same_query = Written(first.query, second.identity)
    writers[0].commit([first, same_query, None], 0)
    assert values(topics.read(one, 1)) == values(topics.read(two, 1)) == [b"x"]


@contextmanager
def task(partition: int, attempt: int, **properties: str) -> Iterator[None]:
    """As an attempt of a Spark task: what a worker process is told of it."""
    context = TaskContext._getOrCreate()
    context._partitionId, context._attemptNumber = partition, attempt
    context._localProperties = properties
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


IN_STREAM = {"sql.streaming.queryId": "one-query", "streaming.sql.batchId": "0"}


@pytest.mark.usefixtures("segbroker_only")
def test_a_numbered_write_inside_of_a_stream_is_that_streams(topics: Topics, topic: str) -> None:
    """As in foreachBatch: a query with a new checkpoint has the same numbers for other rows."""

    def batch(query: str, number: int, value: str, micro_batch: int | None = None) -> bool:
        options = {"transactionalId": topic, "batchId": str(number), "topic": topic}
        writer = source(topics, **options).writer(schema("value"), overwrite=False)
        told = str(number if micro_batch is None else micro_batch)
        with task(0, 0, **{"sql.streaming.queryId": query, "streaming.sql.batchId": told}):
            written = writer.write(iter([table(value=[value])]))
        writer.commit([written])
        assert isinstance(written, Written)
        return written.is_repeated

    for number in range(3):
        assert not batch("first", number, f"first {number}")
    assert batch("first", 2, "a repetition"), "nothing is written that would be aborted"
    batch("second", 0, "second 0")
    with pytest.raises(SinkError, match=r"batch 1 is before batch 2, which query .*/first has"):
        batch("first", 1, "from a checkpoint that was put back")
    # Numbers of the user's own say nothing of the stream.
    batch("second", 20260101, "own", 1)
    batch("third", 20260101, "own again", 0)
    batch("third", 20250101, "before", 1)
    expected = [b"first 0", b"first 1", b"first 2", b"second 0", b"own"]
    assert values(topics.read(topic, 5)) == expected


@pytest.mark.usefixtures("segbroker_only")
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_attempt_that_died_holds_up_no_reader_of_what_another_has_committed(
    topics: Topics, topic: str, is_stream: bool
) -> None:
    made = source(topics, topic=topic, transactionalId=topic)
    properties = IN_STREAM if is_stream else {}
    writer = (made.streamWriter if is_stream else made.writer)(schema("value"), False)
    with task(0, 0, **properties):
        writer.write(iter([table(value=["of an executor that died"])]))
    with task(0, 1, **properties):
        messages: list[WriterCommitMessage] = [writer.write(iter([table(value=["kept"])]))]
    if isinstance(writer, StreamWriter):
        writer.commit(messages, 0)
    else:
        writer.commit(messages)
    assert values(topics.read(topic, 1)) == [b"kept"]


@pytest.mark.usefixtures("segbroker_only")
def test_a_write_that_fails_leaves_nothing_open_of_tasks_that_were_killed(
    topics: Topics, topic: str
) -> None:
    writer = source(topics, topic=topic).writer(schema("value"), overwrite=False)
    with task(0, 1):
        writer.write(iter([table(value=["of a task that is not heard of any more"])]))
    writer.abort([None, None])
    write(topics, table(value=["after it"]), topic=topic, **ONCE)
    assert values(topics.read(topic, 1)) == [b"after it"]


@pytest.mark.usefixtures("segbroker_only")
@pytest.mark.parametrize("taken", [0, 1])
def test_spark_takes_which_it_likes_of_two_attempts_that_run_at_once(
    topics: Topics, topic: str, taken: int
) -> None:
    made = source(topics, topic=topic, transactionalId=topic)
    writer = made.streamWriter(schema("value"), overwrite=False)
    messages: list[WriterCommitMessage] = []
    for attempt in range(2):
        with task(0, attempt, **IN_STREAM):
            messages.append(writer.write(iter([table(value=[str(attempt)])])))
    writer.commit([messages[taken]], 0)
    assert values(topics.read(topic, 1)) == [b"%d" % taken]


@pytest.mark.usefixtures("segbroker_only")
@pytest.mark.parametrize("taken", ["first", "second"])
def test_two_attempts_under_one_name_are_never_both_in_a_batch(
    topics: Topics, topic: str, taken: str
) -> None:
    """A stage that Spark runs again, as behind a lost executor, counts its attempts from 0: one of
    the stage before may still run, and Spark may take its result."""
    made = source(topics, topic=topic, transactionalId=topic)
    writer = made.streamWriter(schema("value"), overwrite=False)
    with task(0, 0, **IN_STREAM):
        messages = {each: writer.write(iter([table(value=[each])])) for each in ("first", "second")}
    if taken == "first":
        with pytest.raises(SinkError, match=r"is not committed: .* or another writer has its name"):
            writer.commit([messages["first"]], 0)
        writer.abort([messages["first"]], 0)
        # The query ends, and when it is started again it repeats the batch.
        with task(0, 0, **IN_STREAM):
            messages["first"] = writer.write(iter([table(value=["first"])]))
    writer.commit([messages[taken]], 0)
    assert values(topics.read(topic, 1)) == [taken.encode()]


def tasks_of(
    topics: Topics, topic: str, batch: int, count: int
) -> tuple[StreamWriter, list[WriterCommitMessage]]:
    """What a run of a query has written of a batch and not committed: of each task a row."""
    made = source(topics, topic=topic, transactionalId=topic)
    writer = made.streamWriter(schema("value", "partition"), overwrite=False)
    messages: list[WriterCommitMessage] = []
    for n in range(count):
        with task(n, 0, **{**IN_STREAM, "streaming.sql.batchId": str(batch)}):
            messages.append(writer.write(iter([table(value=[f"batch {batch}"], partition=[n])])))
    return writer, messages


@pytest.mark.usefixtures("segbroker_only")
def test_a_query_that_comes_back_with_fewer_tasks_leaves_none_of_the_others_open(
    topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 3)
    tasks_of(topics, topic, 0, 3)  # and its driver dies
    writer, messages = tasks_of(topics, topic, 0, 1)
    writer.commit(messages, 0)
    write(topics, table(value=["after"] * 3, partition=[0, 1, 2]), topic=topic, **ONCE)
    found = [(row.partition, row.value) for row in topics.read(topic, 4)]
    assert sorted(found) == [(0, b"after"), (0, b"batch 0"), (1, b"after"), (2, b"after")]


@pytest.mark.usefixtures("segbroker_only")
def test_a_driver_that_was_taken_for_dead_takes_nothing_from_the_next_one(
    topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 3)
    dead, of_the_dead = tasks_of(topics, topic, 0, 2)
    writer, messages = tasks_of(topics, topic, 0, 1)
    writer.commit(messages, 0)
    writer, messages = tasks_of(topics, topic, 1, 3)
    dead.commit(of_the_dead, 0)
    writer.commit(messages, 1)
    found = [(row.partition, row.value) for row in topics.read(topic, 4)]
    expected = [(0, b"batch 0"), (0, b"batch 1"), (1, b"batch 1"), (2, b"batch 1")]
    assert sorted(found) == expected


def test_writes_without_a_number_leave_no_names_at_the_broker() -> None:
    # Each write has names of its own; a broker that kept them would have room for one write.
    with EmbeddedBroker(transactional_ids_max=2) as broker:
        broker.create_topic("t")
        topics = Topics(broker.address)
        for n in range(5):
            writer = source(topics, topic="t").writer(schema("value"), overwrite=False)
            messages: list[WriterCommitMessage] = []
            for partition in range(2):
                with task(partition, 2 + n):  # Spark may be told to try more often than it does
                    messages.append(writer.write(iter([table(value=[str(n)])])))
            if n == 3:
                writer.abort(messages)
            else:
                writer.commit(messages)
        assert Counter(values(topics.read("t", 8))) == dict.fromkeys([b"0", b"1", b"2", b"4"], 2)
        topics.close()


OPEN = Written("q", Identity("q/0/0", 7, 0))


@pytest.mark.parametrize("messages", [[None], [OPEN], [OPEN, OPEN]], ids=["none", "one", "two"])
def test_a_write_that_failed_waits_shortly_for_a_broker_that_is_away(
    messages: list[Written | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has waited for the broker already: what it has open ends by itself."""
    waited_ms = 0.0

    def wait(seconds: float) -> None:
        nonlocal waited_ms
        waited_ms += seconds * 1000

    monkeypatch.setattr("segbroker.spark.cluster.now_ms", lambda: int(waited_ms))
    monkeypatch.setattr("segbroker.spark.cluster.time", SimpleNamespace(sleep=wait))
    away = {"kafka.bootstrap.servers": f"127.0.0.1:{keep_port()}", "topic": "t"}
    hour = {"kafka.default.api.timeout.ms": "3600000"}
    BatchWriter(parse_sink_options(away | hour, streaming=False)).abort(messages)
    assert 0 < waited_ms < 10_000


@pytest.mark.usefixtures("segbroker_only")
def test_one_transaction_that_is_over_already_does_not_keep_others_from_being_aborted(
    topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 2)
    rows = [table(value=["x"], partition=[n]) for n in range(2)]
    columns = schema("value", "partition")
    options = {"topic": topic, "transactionalId": topic, "batchId": "1"}
    writer = source(topics, **options).writer(columns, overwrite=False)
    messages: list[WriterCommitMessage] = []
    for partition in range(2):
        with task(partition, 0):
            messages.append(writer.write(iter([rows[partition]])))
    again = source(topics, **options).writer(columns, overwrite=False)
    with task(0, 0):  # the first is fenced
        again.abort([again.write(iter([rows[0]]))])
    writer.abort(messages)
    write(topics, table(value=["after", "it"], partition=[0, 1]), topic=topic, **ONCE)
    assert set(values(topics.read(topic, 2))) == {b"after", b"it"}


@pytest.mark.usefixtures("segbroker_only")
def test_a_transaction_that_was_over_before_its_commit_is_said_to_be(
    topics: Topics, topic: str
) -> None:
    options = {"topic": topic, "transactionalId": topic, "batchId": "1"}
    late, soon = (source(topics, **options).writer(schema("value"), False) for _ in range(2))
    written = late.write(iter([table(value=["late"])]))
    soon.commit([soon.write(iter([table(value=["soon"])]))])
    options["batchId"] = "2"
    later = source(topics, **options).writer(schema("value"), overwrite=False)
    with pytest.raises(
        SinkError, match=r"open for longer than kafka\.transaction\.timeout\.ms, or"
    ):
        later.commit([written])

    def interrupted() -> Iterator[pyarrow.RecordBatch]:
        yield table(value=["one"])
        later.write(iter([table(value=["of another attempt"])]))
        yield table(value=["two"])

    with pytest.raises(SinkError, match=r"^not written: .* its transaction is over: it was open"):
        later.write(interrupted())


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_that_are_too_large_for_their_topic_are_cut_until_they_fit(
    topics: Topics, name: Name, guarantee: str, codec: str, request: pytest.FixtureRequest
) -> None:
    if guarantee == "exactly-once":
        request.getfixturevalue("segbroker_only")
    topic = name()
    topics.create(topic, 2, **{"max.message.bytes": "3000"})
    count = 6000
    rows = table(
        # Text that no codec makes small.
        value=[f"{n} {hashlib.sha256(str(n).encode()).hexdigest()}" for n in range(count)],
        partition=[n % 2 for n in range(count)],
    )
    options = {"kafka.compression.type": codec, "deliveryGuarantee": guarantee}
    write(topics, rows, topic=topic, **options)
    found = topics.read(topic, count)
    for partition in range(2):
        numbers = [int((r.value or b"").split()[0]) for r in found if r.partition == partition]
        assert numbers == list(range(partition, count, 2))


@contextmanager
def requests_sent() -> Iterator[list[str]]:
    """What the links of this process send meanwhile, by the names of the requests."""
    sent: list[str] = []
    send = Link.send

    def noted(link: Link, message: Request) -> None:
        asked = message.message if isinstance(message, ById) else message
        sent.append(type(asked).__name__)
        send(link, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "send", noted)
        yield sent


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_rows_of_many_partitions_travel_together(
    topics: Topics, name: Name, guarantee: str, request: pytest.FixtureRequest
) -> None:
    if guarantee == "exactly-once":
        request.getfixturevalue("segbroker_only")
    many, one = name(), name()
    topics.create(many, 100)
    topics.create(one)
    # Three tables of a task; each has some rows for each partition, and for the other topic.
    numbers = range(300)
    rows = [
        table(
            value=[str(n) for n in numbers],
            topic=[one if n % 3 == 0 else many for n in numbers],
            partition=[0 if n % 3 == 0 else n % 100 for n in numbers],
        )
        for _ in range(3)
    ]
    writer = source(topics, deliveryGuarantee=guarantee).writer(
        schema("value", "topic", "partition"), overwrite=False
    )
    with requests_sent() as sent:
        writer.commit([writer.write(iter(rows))])
    assert sent.count("ProduceRequest") == 1
    assert sent.count("AddPartitionsToTxnRequest") == (guarantee == "exactly-once")
    assert values(topics.read(one, 300)) == [b"%d" % n for n in numbers if n % 3 == 0] * 3
    found = topics.read(many, 600)
    for partition in range(100):
        wanted = [b"%d" % n for n in numbers if n % 3 != 0 and n % 100 == partition] * 3
        assert values([row for row in found if row.partition == partition]) == wanted


def test_one_record_that_is_too_large_ends_the_write_in_a_sentence(
    topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic, 1, **{"max.message.bytes": "3000"})
    rows = table(value=["small", "x" * 4000, "small"])
    with pytest.raises(SinkError, match=r"not written: .* it is one record"):
        write(topics, rows, topic=topic, **ONCE)


@pytest.mark.parametrize("header", [{"key": None, "value": b"x"}, None])
def test_a_header_without_a_name_is_refused(topics: Topics, topic: str, header: object) -> None:
    with pytest.raises(SinkError, match="a row has a header without a name; filter such headers"):
        write(topics, table(value=["x"], headers=[[header]]), topic=topic, **ONCE)


def test_a_null_topic_and_a_partition_that_is_not_are_refused(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic, 2)
    with pytest.raises(SinkError, match="a row has a null topic"):
        write(topics, table(value=["x"], topic=[None]))
    with pytest.raises(SinkError, match="'partition' says 2, and the topic has partitions 0 to 1"):
        write(topics, table(value=["x"], partition=[2]), topic=topic)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_a_topic_made_again_under_a_writer_ends_it_in_a_sentence(
    topics: Topics,
    name: Name,
    partitions: int | None,
    guarantee: str,
    request: pytest.FixtureRequest,
) -> None:
    """Half of a batch would be committed as all of it.  None: the broker makes it."""
    if guarantee == "exactly-once":
        request.getfixturevalue("segbroker_only")
    topic = name()
    topics.create(topic, 3)

    def tables() -> Iterator[pyarrow.RecordBatch]:
        yield table(value=["x" * 1000] * 3, partition=[0, 1, 2])
        topics.delete(topic)
        if partitions is not None:
            topics.create(topic, partitions)
        yield table(value=["x" * 1000] * 3, partition=[0, 1, 2])

    options = {"topic": topic, "deliveryGuarantee": guarantee, "kafka.batch.size": "1"}
    writer = source(topics, **options).writer(schema("value", "partition"), overwrite=False)
    with pytest.raises(SinkError, match=f"^topic '{topic}' was deleted and made again while rows"):
        writer.write(tables())


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_topic_made_again_takes_no_row_in_a_partition_that_had_none(
    topics: Topics, name: Name, guarantee: str, request: pytest.FixtureRequest
) -> None:
    """By name nothing would tell that it is another: all that was written is acknowledged."""
    if guarantee == "exactly-once":
        request.getfixturevalue("segbroker_only")
    topic = name()
    topics.create(topic, 2)

    def tables() -> Iterator[pyarrow.RecordBatch]:
        yield table(value=["x" * 1000], partition=[0])
        with Admin(topics.bootstrap) as admin:
            until(lambda: admin.offsets(topic)[TopicPartition(topic, 0)].offset == 1)
        topics.delete(topic)
        topics.create(topic, 2)
        yield table(value=["torn"], partition=[1])

    options = {"topic": topic, "deliveryGuarantee": guarantee, "kafka.batch.size": "1"}
    writer = source(topics, **options).writer(schema("value", "partition"), overwrite=False)
    with pytest.raises(SinkError, match=f"^topic '{topic}' was deleted and made again while rows"):
        writer.write(tables())
    assert topics.read(topic, 0) == []


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_tasks_that_met_two_topics_of_one_name_are_no_batch(
    topics: Topics, topic: str, guarantee: str, request: pytest.FixtureRequest
) -> None:
    """Each of them wrote to one topic only: the rows of the first would be missing, unsaid."""
    if guarantee == "exactly-once":
        request.getfixturevalue("segbroker_only")
    options = {"topic": topic, "deliveryGuarantee": guarantee}
    writer = source(topics, **options).writer(schema("value"), overwrite=False)
    with task(0, 0):
        first = writer.write(iter([table(value=["one"])]))
    topics.delete(topic)
    topics.create(topic)
    with task(1, 0):
        second = writer.write(iter([table(value=["two"])]))
    messages = pickle.loads(pickle.dumps([first, second]))
    with pytest.raises(SinkError, match=f"^topic '{topic}' was deleted and made again while rows"):
        writer.commit(messages)
    writer.abort(messages)
    if guarantee == "exactly-once":
        topics.produce(topic, [b"after"])
        assert values(topics.read(topic, 1)) == [b"after"]


def test_a_stream_needs_a_name_where_spark_gives_none(topics: Topics) -> None:
    writer = source(topics, topic="t").streamWriter(schema("value"), overwrite=False)
    with pytest.raises(SinkError, match="does not tell a task which query it belongs to: give the"):
        writer.write(iter([table(value=["x"])]))


def test_another_broker_that_cannot_commit_a_batch_is_told_so() -> None:
    with ScriptedBroker(lambda _: fetched()).running() as broker:
        host, port = broker.address
        options = {"kafka.bootstrap.servers": f"{host}:{port}", "topic": "clicks"}
        options |= {"transactionalId": "nightly", "batchId": "1"}
        writer = SegbrokerDataSource(options).writer(schema("value"), overwrite=False)
        with pytest.raises(
            SinkError, match=r"cannot commit a batch of transactions at once .*at-lea"
        ):
            writer.write(iter([table(value=["x"])]))


def test_the_first_batch_of_a_partition_is_there_before_the_second_one_is_sent() -> None:
    """Of a producer that it does not know Apache Kafka takes any sequence, then no lower one."""
    taken: list[int] = []
    is_new = True

    def produce(_: int, header: BatchHeader) -> ErrorCode:
        nonlocal is_new
        if is_new:  # the leader of a topic that was just made
            is_new = False
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if taken and header.base_sequence != taken[-1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        taken.extend(range(header.base_sequence, header.base_sequence + header.records_count))
        return ErrorCode.NONE

    with ScriptedBroker(lambda _: fetched(), produce=produce).running() as broker:
        host, port = broker.address
        options = {"kafka.bootstrap.servers": f"{host}:{port}", "topic": "clicks", **ONCE}
        options["kafka.batch.size"] = "1000"
        writer = SegbrokerDataSource(options).writer(schema("value"), overwrite=False)
        writer.write(iter([table(value=[str(n) for n in range(1000)])]))
    assert taken == list(range(1000))


def test_a_first_batch_that_a_leader_of_before_has_is_waited_for() -> None:
    """That the leader has moved the writer knows from a batch of another partition."""
    taken: dict[int, list[int]] = {0: [], 1: []}
    has_moved = False

    def before(_: int, header: BatchHeader) -> ErrorCode:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def now(partition: int, header: BatchHeader) -> ErrorCode:
        nonlocal has_moved
        if not has_moved:
            has_moved = True
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        own = taken[partition]
        if own and header.base_sequence != own[-1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        own.extend(range(header.base_sequence, header.base_sequence + header.records_count))
        return ErrorCode.NONE

    def leaders() -> list[tuple[str, int]]:
        return [second.address if has_moved else first.address, second.address]

    first = ScriptedBroker(lambda _: fetched(), produce=before, leaders=leaders)
    second = ScriptedBroker(lambda _: fetched(), produce=now, leaders=leaders)
    with first.running(), second.running():
        host, port = second.address
        options = {"kafka.bootstrap.servers": f"{host}:{port}", "topic": "clicks", **ONCE}
        options["kafka.batch.size"] = "1000"
        given = schema("value", "partition")
        writer = SegbrokerDataSource(options).writer(given, overwrite=False)
        # Each row is a batch.
        order = [0, 1, 1, 0, 0]
        tables = (table(value=["x" * 2000], partition=[n]) for n in order)
        writer.write(tables)
    assert taken == {0: [0, 1, 2], 1: [0, 1]}


def test_a_batch_that_a_leader_of_before_has_is_waited_for() -> None:
    """Of a partition that has moved since, and has earlier batches of ours."""
    taken: dict[int, list[int]] = {0: [], 1: []}
    has_moved = False

    def take(partition: int, header: BatchHeader) -> ErrorCode:
        own = taken[partition]
        if header.base_sequence != len(own):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        own.append(header.base_sequence)
        return ErrorCode.NONE

    def before(partition: int, header: BatchHeader) -> ErrorCode:
        is_first = header.base_sequence == 0
        return take(partition, header) if is_first else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def now(partition: int, header: BatchHeader) -> ErrorCode:
        nonlocal has_moved
        if not has_moved:
            has_moved = True
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return take(partition, header)

    def leaders() -> list[tuple[str, int]]:
        return [second.address if has_moved else first.address, second.address]

    first = ScriptedBroker(lambda _: fetched(), produce=before, leaders=leaders)
    second = ScriptedBroker(lambda _: fetched(), produce=now, leaders=leaders)
    with first.running(), second.running():
        host, port = second.address
        options = {"kafka.bootstrap.servers": f"{host}:{port}", "topic": "clicks", **ONCE}
        options["kafka.batch.size"] = "1000"
        given = schema("value", "partition")
        writer = SegbrokerDataSource(options).writer(given, overwrite=False)
        # Each row is a batch.
        tables = (table(value=["x" * 2000], partition=[n]) for n in [0, 0, 1, 1, 0, 0])
        writer.write(tables)
    assert taken == {0: [0, 1, 2, 3], 1: [0, 1]}


def write_to(broker: ScriptedBroker, count: int) -> None:
    """So many rows to the first partition, each a batch."""
    host, port = broker.address
    options = {"kafka.bootstrap.servers": f"{host}:{port}", "topic": "clicks", **ONCE}
    options["kafka.batch.size"] = "1000"
    writer = SegbrokerDataSource(options).writer(schema("value", "partition"), overwrite=False)
    writer.write(iter([table(value=["x" * 2000] * count, partition=[0] * count)]))


def test_once_it_is_known_that_a_leader_has_moved_nothing_more_is_sent_to_the_one_before() -> None:
    """Also not what waited there for its turn."""
    asked: list[int] = []
    taken: list[int] = []

    def before(_: int, header: BatchHeader) -> ErrorCode:
        asked.append(header.base_sequence)
        if header.base_sequence:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return now(_, header)

    def now(_: int, header: BatchHeader) -> ErrorCode:
        taken.append(header.base_sequence)
        return ErrorCode.NONE

    def leaders() -> list[tuple[str, int]]:
        return [second.address if len(asked) > 1 else first.address]

    first = ScriptedBroker(lambda _: fetched(), produce=before, leaders=leaders)
    second = ScriptedBroker(lambda _: fetched(), produce=now, leaders=leaders)
    with first.running(), second.running():
        write_to(second, 10)
    assert taken == list(range(10))
    assert max(asked) <= IN_FLIGHT_MAX, "what was on its way, behind the first"


def test_a_batch_that_a_broker_has_already_is_there() -> None:
    asked: list[int] = []

    def produce(_: int, header: BatchHeader) -> ErrorCode:
        asked.append(header.base_sequence)
        if asked.count(header.base_sequence) > 1:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        return ErrorCode.REQUEST_TIMED_OUT if header.base_sequence == 1 else ErrorCode.NONE

    with ScriptedBroker(lambda _: fetched(), produce=produce).running() as broker:
        write_to(broker, 2)
    assert asked == [0, 1, 1]


def test_a_sequence_that_is_out_of_order_behind_all_that_came_before_it_is_told() -> None:
    """It is no matter of what is on its way any more: it would be so for ever."""
    asked: list[int] = []

    def produce(_: int, header: BatchHeader) -> ErrorCode:
        asked.append(header.base_sequence)
        is_lost = header.base_sequence > 0
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_lost else ErrorCode.NONE

    with (
        ScriptedBroker(lambda _: fetched(), produce=produce).running() as broker,
        pytest.raises(SinkError, match=r"^not written: .*'clicks' partition 0"),
    ):
        write_to(broker, 2)
    assert asked == [0, 1, 1]


def test_a_topic_cannot_be_overwritten(topics: Topics) -> None:
    with pytest.raises(OptionError, match="a topic cannot be overwritten"):
        source(topics, topic="t").writer(schema("value"), overwrite=True)


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (
            StructType().add("key", BinaryType()),
            {},
            "the column 'value' is missing (there are: key); for example"
            " SELECT to_json(struct(*)) AS value",
        ),
        (
            StructType().add("value", IntegerType()),
            {},
            "the column 'value' is int and must be binary or string; cast it in the query",
        ),
        (
            schema("value").add("partition", StringType()),
            {},
            "the column 'partition' is string and must be int; cast it in the query",
        ),
        (
            schema("value").add("headers", StringType()),
            {},
            "the column 'headers' is string and must be array<struct<key: string, value: binary>>;"
            " cast it in the query",
        ),
        (
            schema("value", "value"),
            {},
            "there are several columns 'value'; select one of them",
        ),
        (
            schema("value"),
            {"topic": None},
            "nothing says where to: give the option topic, or a column 'topic'",
        ),
        (schema("value"), {"topic": " "}, "topic=' ' is empty"),
        (
            schema("value"),
            {"deliveryGuarantee": "at-most-once"},
            "deliveryGuarantee='at-most-once' is not 'exactly-once' or 'at-least-once'",
        ),
        (
            schema("value"),
            {"batchId": "1"},
            "batchId needs transactionalId: it numbers the writes of that name",
        ),
        (
            schema("value"),
            {"kafka.compression.type": "brotli"},
            "kafka.compression.type='brotli' is not one of none, gzip, snappy, lz4, zstd",
        ),
        (
            schema("value"),
            {"kafka.acks": "0"},
            "kafka.acks='0': what is written is always acknowledged, say all",
        ),
        (
            schema("value"),
            {"transactionlId": "x"},
            "there is no option 'transactionlid'; did you mean transactionalId?",
        ),
        (
            schema("value"),
            {"kafka.value.serializer": "x"},
            "kafka.value.serializer cannot be set: values are binary; cast them in the query",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_with_one_sentence(
    columns: StructType, options: dict[str, str | None], sentence: str
) -> None:
    merged = {"kafka.bootstrap.servers": "broker:9092", "topic": "t", **options}
    given = {key: value for key, value in merged.items() if value is not None}
    with pytest.raises(OptionError) as caught:
        SegbrokerDataSource(given).writer(columns, overwrite=False)
    assert str(caught.value) == sentence


def test_options_of_a_write_travel_to_executors() -> None:
    given: dict[str, Any] = {"kafka.bootstrap.servers": "broker:9092", "topic": "t"}
    options = parse_sink_options(given, streaming=True)
    assert pickle.loads(pickle.dumps(options)) == options
    assert isinstance(options, SinkOptions)
    writer = BatchWriter(options)
    assert pickle.loads(pickle.dumps(writer)).__dict__ == writer.__dict__

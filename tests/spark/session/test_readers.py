"""The readers, called as Spark's worker processes call them, against a real broker.

Each test runs for both readers: what is planned for the jar is read by the jar.  What Spark itself
adds (checkpoints, triggers) is in test_spark.
"""

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from segbroker.spark import jvm
from segbroker.spark.cluster import END_TIME, Cluster
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import DataLoss, OptionError, SourceError, SourceUnavailable
from segbroker.spark.offsets import Offsets
from segbroker.spark.options import parse_options
from segbroker.spark.planning import Planner
from segbroker.spark.source import BatchReader, StreamReader

from ...support.ports import keep_port
from ...support.waiting import within_one_of
from ..jar import JarReader
from ..topics import TIMEOUT_S, Topics

Name = Callable[[], str]
ALL = ReadAllAvailable()


class Stream(Protocol):
    def __call__(self, topics: Topics, **options: str) -> StreamReader: ...


class Reads:
    """Who reads in the test that runs: the options that say so, and the jar where it does."""

    jar: JarReader | None = None
    options: Mapping[str, str] = MappingProxyType({})


@pytest.fixture(autouse=True)
def by(reader: JarReader | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if reader is not None:
        monkeypatch.setattr(Reads, "jar", reader)
        monkeypatch.setattr(Reads, "options", {jvm.ASK: "1"})


@pytest.fixture
def stream() -> Iterator[Stream]:
    """A maker of stream readers, which are stopped after the test as Spark stops them."""
    readers: list[StreamReader] = []

    def make(topics: Topics, **options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": topics.bootstrap, **options, **Reads.options}
        readers.append(SegbrokerDataSource(given).streamReader(StructType()))
        return readers[-1]

    yield make
    for reader in readers:
        reader.stop()


def batch(topics: Topics, **options: str) -> BatchReader:
    given = {"kafka.bootstrap.servers": topics.bootstrap, **options, **Reads.options}
    return SegbrokerDataSource(given).reader(StructType())


def rows(reader: BatchReader | StreamReader, tasks: Sequence[InputPartition]) -> list[Any]:
    """(partition, offset, value) of all rows; the reader travels as it does to an executor."""
    copy = pickle.loads(pickle.dumps(reader))
    tasks = pickle.loads(pickle.dumps(tasks))
    if tasks and isinstance(tasks[0], jvm.JvmPartition):
        assert Reads.jar is not None
        return sorted((row.partition, row.offset, row.value) for row in Reads.jar.rows(tasks))
    assert Reads.jar is None or not tasks
    return sorted(
        (row["partition"], row["offset"], row["value"])
        for task in tasks
        for table in copy.read(task)
        for row in table.to_pylist()
    )


def without_ids(offset: dict[str, Any]) -> dict[str, Any]:
    return {topic: at for topic, at in offset.items() if not topic.startswith("$")}


def test_a_batch_reads_every_record_of_every_partition(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic, 3)
    for n in range(3):
        topics.produce(topic, [b"%d %d" % (n, i) for i in range(100)], partition=n)
    reader = batch(topics, subscribe=topic)
    expected = [(n, i, b"%d %d" % (n, i)) for n in range(3) for i in range(100)]
    assert rows(reader, reader.partitions()) == expected


def test_offsets_bound_a_batch_and_assign_chooses_partitions(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic, 3)
    for n in range(3):
        topics.produce(topic, [b"x"] * 100, partition=n)
    reader = batch(
        topics,
        assign=f'{{"{topic}": [0, 2]}}',
        startingOffsets=f'{{"{topic}": {{"0": 40, "2": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 43, "2": 2}}}}',
    )
    found = rows(reader, reader.partitions())
    assert found == [(0, 40, b"x"), (0, 41, b"x"), (0, 42, b"x"), (2, 0, b"x"), (2, 1, b"x")]


def test_a_batch_can_be_bounded_by_time(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic)
    base_ms = 1_700_000_000_000
    times = {n: base_ms + n * 1000 for n in range(100)}
    topics.produce(topic, [b"x"] * 100, timestamps_ms=times)
    reader = batch(
        topics,
        subscribe=topic,
        startingTimestamp=str(base_ms + 20_500),
        endingTimestamp=str(base_ms + 30_000),
    )
    assert [offset for _, offset, _ in rows(reader, reader.partitions())] == list(range(21, 30))


def test_a_time_after_the_last_record_is_an_error_or_the_end(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"] * 5)
    late = {"subscribe": topic, "startingTimestamp": "9000000000000"}
    with pytest.raises(SourceError, match="has no record at or after it; startingOffsetsBy"):
        stream(topics, **late).initialOffset()
    reader = stream(topics, **late, startingOffsetsByTimestampStrategy="latest")
    assert without_ids(reader.initialOffset()) == {topic: {"0": 5}}


def test_min_partitions_splits_a_range_over_more_tasks(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic)
    settings: dict[str, Any] = {"batch.num.messages": 70}
    topics.produce(topic, [b"%d" % n for n in range(1000)], **settings)
    reader = batch(topics, subscribe=topic, minPartitions="7")
    tasks = reader.partitions()
    assert len(tasks) == 7
    assert rows(reader, tasks) == [(0, n, b"%d" % n) for n in range(1000)]


def test_an_empty_topic_gives_no_rows(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic, 2)
    reader = batch(topics, subscribe=topic)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_stream_begins_where_its_options_say(topics: Topics, name: Name, stream: Stream) -> None:
    topic = name()
    topics.create(topic, 2)
    topics.produce(topic, [b"x"] * 9, partition=1)

    def begin(**options: str) -> dict[str, Any]:
        return without_ids(stream(topics, subscribe=topic, **options).initialOffset())

    assert begin() == {topic: {"0": 0, "1": 9}}
    assert begin(startingOffsets="earliest") == {topic: {"0": 0, "1": 0}}
    for second, resolved in ((4, 4), (-1, 9), (-2, 0)):
        exact = json.dumps({topic: {"0": -1, "1": second}})
        assert begin(startingOffsets=exact) == {topic: {"0": 0, "1": resolved}}


def test_starting_offsets_name_every_partition_and_no_other(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic, 2)
    for offsets, sentence in (
        (f'{{"{topic}": {{"0": 1}}}}', f"does not name partition 1 of topic '{topic}'"),
        (f'{{"{topic}": {{"0": 1, "1": 1, "2": 1}}}}', "without its being selected, partition 2"),
    ):
        with pytest.raises(OptionError, match=sentence):
            stream(topics, subscribe=topic, startingOffsets=offsets).initialOffset()


def test_a_topic_that_does_not_exist_is_an_error_and_is_not_made(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    with pytest.raises(SourceError, match=f"topic '{topic}' does not exist"):
        stream(topics, subscribe=topic).initialOffset()
    with pytest.raises(SourceError, match=f"topic '{topic}' does not exist"):
        batch(topics, assign=f'{{"{topic}": [0]}}').partitions()
    topics.create(topic)
    with pytest.raises(SourceError, match=f"topic '{topic}' has no partition 4"):
        batch(topics, assign=f'{{"{topic}": [0, 4]}}').partitions()


def test_a_limit_is_shared_by_backlog(topics: Topics, name: Name, stream: Stream) -> None:
    topic = name()
    topics.create(topic, 3)
    topics.produce(topic, [b"x"] * 300, partition=0)
    topics.produce(topic, [b"x"] * 100, partition=1)
    reader = stream(topics, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert without_ids(end) == {topic: {"0": 30, "1": 10, "2": 0}}
    assert len(rows(reader, reader.partitions(start, end))) == 40
    assert without_ids(reader.reportLatestOffset()) == {topic: {"0": 300, "1": 100, "2": 0}}
    assert without_ids(reader.latestOffset(start, ALL)) == {topic: {"0": 300, "1": 100, "2": 0}}


def test_a_limit_in_bytes_is_shared_by_backlog_too(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic, 2)
    for partition, count in ((0, 300), (1, 100)):
        # One record in each batch: 61 bytes of header and about 1,010 of its own.
        settings: dict[str, Any] = {"batch.num.messages": 1}
        topics.produce(topic, [bytes(1000)] * count, partition=partition, **settings)
    reader = stream(topics, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="43000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(43000)
    start = reader.initialOffset()
    assert without_ids(reader.latestOffset(start, limit)) == {topic: {"0": 30, "1": 10}}
    assert without_ids(reader.latestOffset(start, ALL)) == {topic: {"0": 300, "1": 100}}
    # Of both limits the smaller one.
    for offsets, ends in ((20, {"0": 15, "1": 5}), (100, {"0": 30, "1": 10})):
        both = stream(
            topics, subscribe=topic, maxBytesPerTrigger="43000", maxOffsetsPerTrigger=str(offsets)
        )
        assert without_ids(both.latestOffset(start, both.getDefaultReadLimit())) == {topic: ends}
    roomy = stream(topics, subscribe=topic, maxBytesPerTrigger="1000000")
    assert without_ids(roomy.latestOffset(start, limit)) == {topic: {"0": 300, "1": 100}}


def test_a_limit_counts_what_there_is_and_not_what_retention_took(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    settings: dict[str, Any] = {"batch.num.messages": 1}
    topics.produce(topic, [bytes(1000)] * 300, **settings)
    topics.delete_records_before(topic, 0, 100)
    start = {topic: {"0": 10}}
    for limit in ({"maxOffsetsPerTrigger": "40"}, {"maxBytesPerTrigger": "43000"}):
        reader = stream(topics, subscribe=topic, failOnDataLoss="false", **limit)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert without_ids(end) == {topic: {"0": 140}}
        found = rows(reader, reader.partitions(start, end))
        assert [offset for _, offset, _ in found] == list(range(100, 140))


def test_a_stream_waits_for_enough_records_but_not_for_ever(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"] * 5)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "8"}
    reader = stream(topics, **options)
    limit = reader.getDefaultReadLimit()
    # The first batch of a query waits for nothing.
    start = reader.latestOffset(reader.initialOffset(), limit)
    assert without_ids(start) == {topic: {"0": 5}}
    topics.produce(topic, [b"x"] * 7)
    assert reader.latestOffset(start, limit) == start
    topics.produce(topic, [b"x"])
    assert without_ids(reader.latestOffset(start, limit)) == {topic: {"0": 13}}
    hasty = stream(topics, **options, maxTriggerDelay="0ms")
    for end in (13, 14):
        assert without_ids(hasty.latestOffset(start, limit)) == {topic: {"0": end}}
        topics.produce(topic, [b"x"])
    ending = stream(topics, **options)
    ending.prepareForTriggerAvailableNow()
    for _ in range(2):
        assert without_ids(ending.latestOffset({topic: {"0": 13}}, limit)) == {topic: {"0": 15}}


def test_a_stream_waits_for_records_of_which_idle_partitions_have_none(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic, 3)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "8"}
    reader = stream(topics, subscribe=topic, **options)
    limit = reader.getDefaultReadLimit()
    start = reader.latestOffset(reader.initialOffset(), limit)
    topics.produce(topic, [b"x"] * 7)
    assert reader.latestOffset(start, limit) == start
    topics.grow(topic, 4)
    topics.produce(topic, [b"x"], partition=3)
    end = reader.latestOffset(start, limit)
    assert without_ids(end) == {topic: {"0": 7, "1": 0, "2": 0, "3": 1}}


def test_a_stream_that_waits_tells_once_what_is_lost(
    topics: Topics, name: Name, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark asks a stream that waits a hundred times a second, for minutes."""
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"old"] * 5)
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "8"}
    reader = stream(topics, subscribe=topic, failOnDataLoss="false", **options)
    limit = reader.getDefaultReadLimit()
    start = reader.latestOffset(reader.initialOffset(), limit)
    topics.delete(topic)
    topics.create(topic)
    topics.produce(topic, [b"new"] * 7)
    for _ in range(3):
        assert reader.latestOffset(start, limit) == start
    (said,) = caplog.messages
    assert "the topic was deleted and made again; reading on" in said
    topics.produce(topic, [b"new"])
    end = reader.latestOffset(start, limit)
    assert rows(reader, reader.partitions(start, end)) == [(0, n, b"new") for n in range(8)]


def test_a_time_for_each_partition_bounds_a_batch(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic, 2)
    base_ms = 1_700_000_000_000
    for partition in range(2):
        times = {n: base_ms + n * 1000 for n in range(50)}
        topics.produce(topic, [b"x"] * 50, partition=partition, timestamps_ms=times)
    reader = batch(
        topics,
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": base_ms + 10_000, "1": base_ms}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": base_ms + 12_000, "1": base_ms + 1_000}}),
    )
    found = [(partition, offset) for partition, offset, _ in rows(reader, reader.partitions())]
    assert found == [(0, 10), (0, 11), (1, 0)]
    partial = batch(
        topics, subscribe=topic, startingOffsetsByTimestamp=f'{{"{topic}": {{"0": 1}}}}'
    )
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp does not name partition 1"):
        partial.partitions()


def test_a_task_takes_at_most_so_many_records(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"%d" % n for n in range(1000)])
    reader = batch(topics, subscribe=topic, maxRecordsPerPartition="300")
    tasks = reader.partitions()
    assert [len(rows(reader, [task])) for task in tasks] == [250] * 4


def test_where_nothing_came_nothing_is_lost(topics: Topics, name: Name, stream: Stream) -> None:
    """Whatever became of its topic since: there is a row for the loss of records, or an error."""
    busy, idle = name(), name()
    for topic in (busy, idle):
        topics.create(topic)
        topics.produce(topic, [b"x"])
    options = {"subscribe": f"{busy},{idle}"}
    reader = stream(topics, **options, startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    topics.produce(busy, [b"y"])
    end = reader.latestOffset(start, ALL)
    shown = stream(topics, **options, includeGaps="true")
    (task,) = shown.partitions(start, end)
    if Reads.jar is None:
        (table,) = shown.read(task)
        assert [row["_gap"] for row in table.to_pylist()] == [None]
    topics.delete(idle)
    assert rows(reader, reader.partitions(start, end)) == [(0, 1, b"y")]


def test_a_group_shows_how_far_a_stream_is(topics: Topics, name: Name, stream: Stream) -> None:
    topic, group = name(), name()
    topics.create(topic, 2)
    topics.produce(topic, [b"x"] * 7, partition=1)
    reader = stream(topics, subscribe=topic, startingOffsets="earliest", commitOffsetsToGroup=group)
    reader.commit(reader.latestOffset(reader.initialOffset(), ALL))
    assert topics.committed(group) == {(topic, 0): 0, (topic, 1): 7}


def test_what_is_lost_can_be_read_as_rows(topics: Topics, name: Name, stream: Stream) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"] * 50)
    reader = stream(topics, subscribe=topic, failOnDataLoss="false", includeGaps="true")
    begin = stream(topics, subscribe=topic, startingOffsets="earliest")
    start = begin.initialOffset()
    end = begin.latestOffset(start, ALL)
    topics.delete_records_before(topic, 0, 48)
    found = [
        (row["offset"], row["value"], row["_gap"] and (row["_gap"]["start"], row["_gap"]["end"]))
        for task in reader.partitions(start, end)
        for table in reader.read(task)
        for row in table.to_pylist()
    ]
    assert sorted(found) == [(0, None, (0, 48)), (48, b"x", None), (49, b"x", None)]


def test_a_log_that_was_cut_between_two_batches_is_a_row_too(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"] * 3)
    reader = stream(topics, subscribe=topic, failOnDataLoss="false", includeGaps="true")
    start: dict[str, Any] = {topic: {"0": 8}}
    end = reader.latestOffset(start, ALL)
    assert without_ids(end) == {topic: {"0": 3}}
    (task,) = reader.partitions(start, end)
    (row,) = (row for table in reader.read(task) for row in table.to_pylist())
    assert row["_gap"] == {"start": 3, "end": 8, "reason": "cut"}
    for level in ("read_uncommitted", "read_committed"):
        strict = stream(topics, subscribe=topic, **{"kafka.isolation.level": level})
        with pytest.raises(DataLoss, match=r"offsets \[3, 4\) are lost, the log now ends at 3"):
            strict.latestOffset({topic: {"0": 4}}, ALL)


def test_committed_reading_leaves_out_what_was_aborted(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    for value, commit in ((b"aborted", False), (b"committed", True), (b"aborted again", False)):
        settings: dict[str, Any] = {"transactional.id": topic}
        topics.produce(topic, [value] * 3, commit=commit, **settings)
    found = {}
    for level in ("read_committed", "read_uncommitted"):
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        reader = stream(topics, **options, **{"kafka.isolation.level": level})
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        found[level] = rows(reader, reader.partitions(start, end))
    # Three records and a marker in each transaction.
    assert found["read_committed"] == [(0, n, b"committed") for n in (4, 5, 6)]
    assert [offset for _, offset, _ in found["read_uncommitted"]] == [0, 1, 2, 4, 5, 6, 8, 9, 10]


def test_what_an_open_transaction_holds_up_is_waited_for_and_not_lost(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"] * 2)
    open_one = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    open_one.init_transactions(TIMEOUT_S)
    open_one.begin_transaction()
    open_one.produce(topic, b"open")
    assert open_one.flush(TIMEOUT_S) == 0
    topics.produce(topic, [b"x"] * 2)
    reader = stream(topics, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    # A query that had read what is not committed yet goes on with what is.
    level = {"kafka.isolation.level": "read_committed"}
    committed = stream(topics, subscribe=topic, **level)
    assert without_ids(committed.latestOffset(end, ALL)) == {topic: {"0": 5}}

    def is_waited_for(within_ms: int) -> None:
        limit = {"kafkaConsumer.pollTimeoutMs": str(within_ms)}
        hasty = stream(topics, subscribe=topic, **level, **limit)
        with pytest.raises(SourceUnavailable, match=r"no progress within .*: a transaction is op"):
            rows(hasty, hasty.partitions(start, end))

    within_one_of((1_000, 12_000), is_waited_for)
    open_one.commit_transaction(TIMEOUT_S)
    assert len(rows(committed, committed.partitions(start, end))) == 5
    assert without_ids(committed.latestOffset(end, ALL)) == {topic: {"0": 6}}


def test_a_batch_that_starts_behind_an_open_transaction_is_empty(
    topics: Topics, name: Name
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"] * 2)
    open_one = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    open_one.init_transactions(TIMEOUT_S)
    open_one.begin_transaction()
    open_one.produce(topic, b"open", partition=0)
    assert open_one.flush(TIMEOUT_S) == 0
    topics.produce(topic, [b"x"] * 2)
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    options["startingOffsets"] = f'{{"{topic}": {{"0": 4}}}}'
    assert batch(topics, **options).partitions() == []
    with pytest.raises(OptionError, match=r"would start at offset 4 and end before it, at 3"):
        batch(topics, **options, endingOffsets=f'{{"{topic}": {{"0": 3}}}}').partitions()
    open_one.abort_transaction(TIMEOUT_S)
    reader = batch(topics, **options)
    assert rows(reader, reader.partitions()) == [(0, 4, b"x")]


def test_available_now_ends_where_the_logs_ended_when_it_began(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"] * 10)
    reader = stream(topics, subscribe=topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    topics.produce(topic, [b"late"] * 10)
    start = reader.initialOffset()
    assert without_ids(reader.latestOffset(start, ALL)) == {topic: {"0": 10}}


def test_available_now_may_begin_at_an_end_that_moves(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    reader = stream(topics, subscribe=topic)  # from the end on
    # Spark asks in this order, and here somebody sends and adds a partition in between.
    reader.prepareForTriggerAvailableNow()
    topics.grow(topic, 2)
    topics.produce(topic, [b"x"] * 5)
    start = reader.initialOffset()
    topics.produce(topic, [b"x"] * 2)
    end = reader.latestOffset(start, ALL)
    assert without_ids(start) == without_ids(end) == {topic: {"0": 5, "1": 0}}
    assert reader.latestOffset(end, ALL) == end


def test_the_first_batch_of_a_stream_is_replayed_from_where_it_began(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"before"] * 5)
    reader = stream(topics, subscribe=topic)  # from the end on
    start = reader.initialOffset()
    topics.produce(topic, [b"between"] * 3)
    end = reader.latestOffset(start, ALL)
    topics.produce(topic, [b"behind"] * 2)
    expected = [(0, offset, b"between") for offset in (5, 6, 7)]
    # Spark asks where the query begins for each of the first batch's steps, and after a restart.
    restarted = stream(topics, subscribe=topic)
    for each in (reader, restarted):
        asked_anew = each.initialOffset()
        assert without_ids(asked_anew) == {topic: {"0": 10}}
        assert rows(each, each.partitions(asked_anew, end)) == expected
    with_gaps = stream(topics, subscribe=topic, includeGaps="true")
    if Reads.jar is None:
        assert rows(with_gaps, with_gaps.partitions(asked_anew, end)) == expected
    # From there on it is an offset like any other.
    second = restarted.latestOffset(end, ALL)
    assert [offset for _, offset, _ in rows(restarted, restarted.partitions(end, second))] == [8, 9]
    assert restarted.partitions(end, end) == []


def test_an_offset_stays_what_it_is_while_nothing_comes(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"])
    reader = stream(topics, subscribe=topic, startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(end, ALL) == end


def test_a_restarted_reader_replays_a_batch_from_its_two_offsets_alone(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic, 2)
    topics.produce(topic, [b"x"] * 20, partition=0)
    first = stream(topics, subscribe=topic, startingOffsets="earliest")
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(10))
    expected = rows(first, first.partitions(start, end))
    topics.produce(topic, [b"more"] * 20, partition=0)
    again = stream(topics, subscribe=topic)
    assert rows(again, again.partitions(start, end)) == expected
    assert len(expected) == 10


@pytest.mark.parametrize(
    "offset",
    [
        7,
        ["a"],
        {"logOffset": 0},
        {"clicks": {"zero": 1}},
        {"clicks": {"0": None}},
        {"$topic_ids": {"clicks": "short"}},
        {"clicks": {"0": 1}, "$start": {"clicks": 0}},
    ],
)
def test_an_offset_of_another_source_is_refused_in_a_sentence(
    topics: Topics,
    topic: str,
    stream: Stream,
    offset: Any,  # noqa: ANN401
) -> None:
    """As of a checkpoint that another query has left, or of one that was edited."""
    reader = stream(topics, subscribe=topic, startingOffsets="earliest")
    begin = reader.initialOffset()
    asks: list[Callable[[], object]] = [lambda: reader.partitions(begin, offset)]
    if "$start" not in str(offset):
        asks.append(lambda: reader.latestOffset(offset, ALL))
    for ask in asks:
        with pytest.raises(SourceError, match=r"^the checkpoint has the offset .* another source"):
            ask()


def test_a_partition_that_appears_is_read_from_its_first_record(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    reader = stream(topics, subscribe=topic, startingOffsets="latest")
    start = reader.initialOffset()
    topics.grow(topic, 2)
    topics.produce(topic, [b"%d" % n for n in range(5)], partition=1)
    end = reader.latestOffset(start, ReadMaxRows(3))
    assert without_ids(end) == {topic: {"0": 0, "1": 3}}
    assert rows(reader, reader.partitions(start, end)) == [(1, n, b"%d" % n) for n in range(3)]
    rest = reader.latestOffset(end, ALL)
    assert rows(reader, reader.partitions(end, rest)) == [(1, n, b"%d" % n) for n in (3, 4)]


def test_a_pattern_takes_in_topics_that_appear(topics: Topics, name: Name, stream: Stream) -> None:
    prefix = name()
    topics.create(f"{prefix}-a")
    topics.create(f"other-{prefix}-a")
    reader = stream(topics, subscribePattern=f"{prefix}-.*", startingOffsets="latest")
    start = reader.initialOffset()
    assert without_ids(start) == {f"{prefix}-a": {"0": 0}}
    topics.create(f"{prefix}-b")
    topics.produce(f"{prefix}-b", [b"x", b"y"])
    end = reader.latestOffset(start, ALL)
    assert without_ids(end) == {f"{prefix}-a": {"0": 0}, f"{prefix}-b": {"0": 2}}
    assert rows(reader, reader.partitions(start, end)) == [(0, 0, b"x"), (0, 1, b"y")]


def test_a_topic_that_is_deleted_while_a_batch_is_planned_is_said_to_be(
    topics: Topics, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = name()
    topics.create(topic)
    end = Planner.end

    def deleted_before(planner: Planner) -> Offsets:
        topics.delete(topic)
        return end(planner)

    monkeypatch.setattr(Planner, "end", deleted_before)
    with pytest.raises(SourceError, match=f"^topic '{topic}' partition 0 was deleted while the qu"):
        batch(topics, subscribePattern=topic).partitions()


def test_deleted_records_are_data_loss_with_topic_partition_and_range(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic, 2)
    topics.produce(topic, [b"x"] * 50, partition=1)
    reader = stream(topics, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    topics.delete_records_before(topic, 1, 30)
    with pytest.raises(
        DataLoss,
        match=rf"^topic '{topic}' partition 1: offsets \[0, 30\) are lost, the log now starts at"
        r" 30 \(records .*were deleted\)\. Set failOnDataLoss=false to read what is",
    ):
        reader.partitions(start, end)
    lenient = stream(topics, subscribe=topic, failOnDataLoss="false")
    found = rows(lenient, lenient.partitions(start, end))
    assert [offset for _, offset, _ in found] == list(range(30, 50))


def test_records_deleted_after_their_tasks_were_planned_are_lost_or_passed_over(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"x"] * 50)
    strict = stream(topics, subscribe=topic, startingOffsets="earliest")
    lenient = stream(topics, subscribe=topic, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    strictly, leniently = strict.partitions(start, end), lenient.partitions(start, end)
    topics.delete_records_before(topic, 0, 30)
    with pytest.raises(
        DataLoss,
        match=rf"topic '{topic}' partition 0: offsets \[0, 30\) are lost, the log now starts at 30"
        r" \(records .*were deleted\)\. Set failOnDataLoss=false",
    ):
        rows(strict, strictly)
    assert [offset for _, offset, _ in rows(lenient, leniently)] == list(range(30, 50))


def test_a_topic_that_was_made_again_is_noticed_by_its_id(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"old"] * 10)
    reader = stream(topics, subscribe=topic, startingOffsets="earliest")
    begin = reader.initialOffset()
    start = reader.latestOffset(begin, ALL)
    topics.delete(topic)
    topics.create(topic)
    topics.produce(topic, [b"new"] * 20)
    with pytest.raises(DataLoss, match="the topic was deleted and made again"):
        reader.latestOffset(start, ALL)
    lenient = stream(topics, subscribe=topic, failOnDataLoss="false")
    # Nor is it read for the batch whose end was planned before, as after a restart.
    with pytest.raises(DataLoss, match=r"\[0, 10\) are lost, the topic was deleted and made again"):
        reader.partitions(begin, start)
    assert rows(lenient, lenient.partitions(begin, start)) == []
    end = lenient.latestOffset(start, ALL)
    found = rows(lenient, lenient.partitions(start, end))
    assert found == [(0, n, b"new") for n in range(20)]
    shown = stream(topics, subscribe=topic, failOnDataLoss="false", includeGaps="true")
    tasks = shown.partitions(start, end)
    tables = [table for task in tasks for table in shown.read(task)]
    gaps = [row["_gap"] for table in tables for row in table.to_pylist() if row["_gap"]]
    assert gaps == [{"start": 10, "end": None, "reason": "recreated"}]


def test_a_topic_made_again_after_its_tasks_were_planned_is_not_read_for_the_old_one(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"old"] * 10)
    strict = stream(topics, subscribe=topic, startingOffsets="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    lenient = stream(topics, subscribe=topic, failOnDataLoss="false", includeGaps="true")
    planned = [(reader, reader.partitions(start, end)) for reader in (strict, lenient)]
    topics.delete(topic)
    topics.create(topic)
    topics.produce(topic, [b"new"] * 20)
    with pytest.raises(DataLoss, match=r"\[0, 10\) are lost, the topic was deleted and made again"):
        rows(*planned[0])
    (gap,) = (row for table in lenient.read(planned[1][1][0]) for row in table.to_pylist())
    assert gap["_gap"] == {"start": 0, "end": 10, "reason": "recreated"}


def test_a_topic_that_is_gone_is_data_loss(topics: Topics, name: Name, stream: Stream) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"old"] * 10)
    reader = stream(topics, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    topics.delete(topic)
    for ask in (lambda: reader.latestOffset(start, ALL), lambda: reader.partitions(start, end)):
        with pytest.raises(DataLoss, match=f"topic '{topic}' partition 0: .* does not exist"):
            ask()


def test_a_topic_deleted_after_its_tasks_were_planned_is_lost_or_passed_over(
    topics: Topics, name: Name, stream: Stream
) -> None:
    topic = name()
    topics.create(topic)
    topics.produce(topic, [b"old"] * 10)
    options = {"subscribe": topic, "kafkaConsumer.pollTimeoutMs": "40000"}
    strict = stream(topics, **options, startingOffsets="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    lenient = stream(topics, **options, failOnDataLoss="false")
    planned = [(reader, reader.partitions(start, end)) for reader in (strict, lenient)]
    topics.delete(topic)
    with pytest.raises(DataLoss, match=r"\[0, 10\) are lost, the topic .* does not exist"):
        rows(*planned[0])
    assert rows(*planned[1]) == []


def test_what_is_deleted_while_its_bounds_are_asked_for_is_left_out(
    topics: Topics, name: Name
) -> None:
    topic, other = name(), name()
    for each in (topic, other):
        topics.create(each, 2)
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": f"{topic},{other}"}
    options = parse_options({**given, "kafka.default.api.timeout.ms": "10000"}, streaming=True)
    cluster = Cluster(options.client)
    try:
        layout = cluster.layout(options.selection)
        keys = [(each, partition) for each in (topic, other) for partition in range(2)]
        topics.delete(topic)
        assert cluster.offsets(layout, dict.fromkeys(keys, END_TIME)) == {
            (other, 0): 0,
            (other, 1): 0,
        }
        topics.create(topic)
        topics.delete(other)
        assert cluster.bounds(layout, keys).keys() == {(topic, 0)}
    finally:
        cluster.close()


def test_a_broker_that_is_away_is_waited_for_until_the_deadline() -> None:
    port = keep_port()

    def is_waited_for(within_ms: int) -> None:
        given = {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "subscribe": "clicks",
            "kafka.default.api.timeout.ms": str(within_ms),
        }
        reader = SegbrokerDataSource(given).streamReader(StructType())
        with pytest.raises(
            SourceUnavailable,
            match=rf"^asking for topics: nothing within {within_ms} ms"
            rf" \(kafka\.default\.api\.timeout\.ms\); last: 127\.0\.0\.1:{port} cannot be",
        ):
            reader.initialOffset()

    within_one_of((300, 10_000), is_waited_for)


def test_making_a_reader_opens_nothing_and_it_can_be_pickled(
    topics: Topics, stream: Stream
) -> None:
    reader = stream(topics, subscribe="clicks")
    assert pickle.loads(pickle.dumps(reader)).__dict__ == reader.__dict__

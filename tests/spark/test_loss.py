"""Data loss: what of a range is gone, and how it is said."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import DataLoss
from segbroker.spark.loss import LogBounds, Lost, clip, report
from segbroker.spark.offsets import OffsetRange
from segbroker.spark.source import TaskPartition

from .scripted_broker import TOPIC, ScriptedBroker, fetched


def asked(start: int, end: int) -> OffsetRange:
    return OffsetRange("clicks", 3, start, end)


def test_a_range_inside_the_log_is_whole() -> None:
    assert clip(asked(10, 42), LogBounds.plain(0, 42)) == (asked(10, 42), [])
    assert clip(asked(10, 10), LogBounds.plain(50, 60)) == (asked(10, 10), [])


def test_below_the_log_start_is_lost() -> None:
    left, lost = clip(asked(10, 42), LogBounds.plain(20, 100))
    assert left == asked(20, 42)
    assert [(each.start, each.end) for each in lost] == [(10, 20)]


def test_past_the_log_end_is_lost() -> None:
    left, lost = clip(asked(10, 42), LogBounds.plain(0, 30))
    assert left == asked(10, 30)
    assert [(each.start, each.end) for each in lost] == [(30, 42)]


def test_a_range_outside_the_log_is_lost_as_a_whole() -> None:
    left, lost = clip(asked(10, 42), LogBounds.plain(50, 60))
    assert left.size == 0
    assert [(each.start, each.end) for each in lost] == [(10, 42)]
    left, lost = clip(asked(10, 42), LogBounds.plain(0, 5))
    assert left.size == 0
    assert [(each.start, each.end) for each in lost] == [(10, 42)]


def test_both_ends_can_be_lost() -> None:
    left, lost = clip(asked(10, 42), LogBounds.plain(20, 30))
    assert left == asked(20, 30)
    assert [(each.start, each.end) for each in lost] == [(10, 20), (30, 42)]


def test_the_error_names_topic_partition_range_and_reason() -> None:
    _, lost = clip(asked(10, 42), LogBounds.plain(20, 100))
    with pytest.raises(DataLoss) as caught:
        report(lost, fail=True)
    assert str(caught.value) == (
        "topic 'clicks' partition 3: offsets [10, 20) are lost, the log now starts at 20"
        " (records aged out or were deleted). Set failOnDataLoss=false to read what is left."
    )


def test_what_was_lost_and_what_was_deleted_on_purpose_are_told_apart() -> None:
    left, lost = clip(asked(10, 42), LogBounds(start=30, end=100, floor=20, word="ttl"))
    assert left == asked(30, 42)
    assert [(each.start, each.end, each.word, each.reason) for each in lost] == [
        (10, 20, "ttl", "the log now starts at 30 (records aged out)"),
        (20, 30, "deleted", "the log now starts at 30 (records were deleted)"),
    ]


def test_a_long_list_is_cut_and_counted() -> None:
    lost = [Lost("clicks", n, 0, None, "gone") for n in range(12)]
    with pytest.raises(DataLoss, match=r"partition 9: .* are lost, gone; and 2 more ranges\. Set"):
        report(lost, fail=True)


def test_without_failing_the_loss_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    report([Lost("clicks", 0, 7, None, "the topic is gone")], fail=False)
    report([Lost("clicks", 0, 7, 9, "gone")], fail=False)
    assert caplog.messages == [
        "topic 'clicks' partition 0: offsets [7, ...) are lost, the topic is gone;"
        " reading on because failOnDataLoss is false",
        "topic 'clicks' partition 0: offsets [7, 9) are lost, gone (2 offsets);"
        " reading on because failOnDataLoss is false",
    ]


def test_what_an_open_transaction_holds_up_in_apache_kafka_is_no_cut_log() -> None:
    """Its one request for the end of a log tells of what is committed, if it is asked so."""
    start, end = {TOPIC: {"0": 3}}, {TOPIC: {"0": 5}}
    with ScriptedBroker(lambda _: fetched(), log_end=6, stable_end=2).running() as broker:
        host, port = broker.address
        given = {"kafka.bootstrap.servers": f"{host}:{port}", "subscribe": TOPIC}
        given["kafka.isolation.level"] = "read_committed"
        reader = SegbrokerDataSource(given).streamReader(StructType())
        try:
            assert reader.latestOffset(end, ReadAllAvailable()) == end
            (task,) = reader.partitions(start, end)
        finally:
            reader.stop()
    assert isinstance(task, TaskPartition)
    assert (task.task.range.start, task.task.range.end) == (3, 5)

"""Direct reading of sealed segments: what the files prove, and what is left to the broker."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from segbroker.protocol.checksums import xxh3_64
from segbroker.segments.files.manifest import Row, encode_manifest
from segbroker.spark import fetching
from segbroker.spark.cluster import Cluster
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import DataLoss
from segbroker.spark.fetching import RangeFetcher, Task
from segbroker.spark.link import now_ms
from segbroker.spark.offsets import OffsetRange
from segbroker.spark.options import Subscribe, parse_options
from segbroker.spark.segment_files import SegmentFiles, Unreadable
from segbroker.spark.segment_transactions import decide

from ..support.daemon import Daemon
from ..support.ports import keep_port
from .topics import Topics

Name = Callable[[], str]

COUNT = 3000
VALUES = [b"%06d" % n + bytes(500) for n in range(COUNT)]


@pytest.fixture
def topic(topics: Topics, daemon: Daemon, name: Name) -> str:
    """About 1.5 MB in segments of 128 KiB, nearly all of them sealed."""
    return filled(topics, daemon, name())


def filled(topics: Topics, daemon: Daemon, topic: str) -> str:
    topics.create(topic, 1, **{"segment.bytes": "131072", "max.message.bytes": "131072"})
    settings: dict[str, Any] = {"batch.num.messages": 20}
    topics.produce(topic, VALUES, **settings)
    sealed_to(daemon, topic)
    return topic


@pytest.fixture
def folder(daemon: Daemon, topic: str) -> Path:
    return daemon.data / "topics" / topic / "partition_0"


def sealed_to(daemon: Daemon, topic: str, count: int = COUNT) -> int:
    """Up to which offset segments are sealed; the broker does it in groups, so it is waited for."""
    deadline = time.monotonic() + 60
    files = SegmentFiles(str(daemon.data), topic, 0)
    while True:
        try:
            found = files.sealed(OffsetRange(topic, 0, 0, count))
        except Unreadable:  # the manifest is made with its first row
            found = []
        if found and found[-1].end_offset > count * 0.8:
            return found[-1].end_offset
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def without_broker(daemon: Daemon, topic: str, start: int, end: int, **more: str) -> list[int]:
    """Offsets of [start, end), read where no broker answers."""
    nobody = ("127.0.0.1", keep_port())
    given = {"kafka.bootstrap.servers": f"{nobody[0]}:{nobody[1]}", "subscribe": topic}
    given |= {"readSegmentsFrom": str(daemon.data), "kafkaConsumer.pollTimeoutMs": "100", **more}
    options = parse_options(given, streaming=False)
    fetcher = RangeFetcher(options, Task(OffsetRange(topic, 0, start, end), nobody))
    found = [offset for each in fetcher.batches() for offset in each.offsets()]
    return [offset for offset in found if start <= offset < end]


def copied(folder: Path, to: Path) -> Path:
    """A partition's files in another data directory, as on a disk of an executor's machine."""
    copy = to / folder.relative_to(folder.parents[2])
    copy.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def rows(topics: Topics, data: Path, topic: str, **options: str) -> list[tuple[int, bytes]]:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options}
    given["readSegmentsFrom"] = str(data)
    reader = SegbrokerDataSource(given).reader(StructType())
    tasks: list[InputPartition] = reader.partitions()
    return [
        (row["offset"], row["value"])
        for task in tasks
        for table in reader.read(task)
        for row in table.to_pylist()
    ]


def test_sealed_segments_are_read_without_the_broker(daemon: Daemon, topic: str) -> None:
    end = sealed_to(daemon, topic)
    assert without_broker(daemon, topic, 0, end) == list(range(end))
    assert without_broker(daemon, topic, 1234, 1300) == list(range(1234, 1300))


def test_sealed_segments_of_the_longest_name_are_found(
    topics: Topics, daemon: Daemon, name: Name
) -> None:
    topic = filled(topics, daemon, name().ljust(249, "x"))
    assert without_broker(daemon, topic, 0, 100) == list(range(100))


def test_the_tail_comes_from_the_broker(topics: Topics, daemon: Daemon, topic: str) -> None:
    assert rows(topics, daemon.data, topic) == list(enumerate(VALUES))
    assert rows(topics, daemon.data, topic, minPartitions="5") == list(enumerate(VALUES))


def test_the_time_that_spark_takes_with_the_files_is_not_the_brokers(
    topics: Topics, daemon: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader that was planned is away by then: it is looked up again as at any other time."""
    late_ms = 0
    monkeypatch.setattr(fetching, "now_ms", lambda: now_ms() + late_ms)
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic}
    options = parse_options({**given, "readSegmentsFrom": str(daemon.data)}, streaming=False)
    nobody = ("127.0.0.1", keep_port())
    found: list[int] = []
    for each in RangeFetcher(options, Task(OffsetRange(topic, 0, 0, COUNT), nobody)).batches():
        found += each.offsets()
        late_ms += 1_000_000
    assert found == list(range(COUNT))


def test_a_damaged_block_is_not_handed_out_and_the_broker_is_asked(
    topics: Topics, daemon: Daemon, topic: str, folder: Path, tmp_path: Path
) -> None:
    # The broker's own files stay whole.
    copy = copied(folder, tmp_path)
    (log,) = copy.glob("*_segment_3.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    files = SegmentFiles(str(tmp_path), topic, 0)
    runs = files.runs(OffsetRange(topic, 0, 0, COUNT))
    with pytest.raises(Unreadable, match="segment 3: the block at position"):
        list(runs)
    assert rows(topics, tmp_path, topic) == list(enumerate(VALUES))


@pytest.mark.parametrize("missing", [".manifest", "_segment_2.index", "_segment_2.log"])
def test_a_file_that_is_not_there_is_no_error(
    topics: Topics, daemon: Daemon, topic: str, folder: Path, tmp_path: Path, missing: str
) -> None:
    for file in copied(folder, tmp_path).glob("*" + missing):
        file.unlink()
    assert rows(topics, tmp_path, topic) == list(enumerate(VALUES))


def test_a_segment_that_a_cleaning_made_stands_for_those_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "topics" / "t" / "partition_0"
    folder.mkdir(parents=True)
    sealed = [Row(1, n, 10 * n, 10 * n + 10, size=100) for n in range(6)]
    # Of 1, 2 and 3 one was made, then of that one and 4; 0 was cleaned alone.
    cleaned = [Row(1, 3, 10, 40), Row(1, 4, 10, 50), Row(1, 0, 0, 10, size=50)]
    (folder / "t_partition_0.manifest").write_bytes(encode_manifest(0, [*sealed, *cleaned]))
    files = SegmentFiles(str(tmp_path), "t", 0)
    found = files.sealed(OffsetRange("t", 0, 0, 60))
    assert [(one.number, one.base_offset, one.end_offset, one.size) for one in found] == [
        (0, 0, 10, 50),
        (4, 10, 50, 0),
        (5, 50, 60, 100),
    ]


def test_a_segment_that_is_evicted_while_it_is_read_is_read_to_its_end(
    topics: Topics, daemon: Daemon, topic: str, folder: Path
) -> None:
    end = sealed_to(daemon, topic)
    runs = SegmentFiles(str(daemon.data), topic, 0).runs(OffsetRange(topic, 0, 0, end))
    first = next(runs)
    for file in folder.glob("*_segment_*.log"):
        file.unlink()
    assert len(first) + sum(map(len, runs)) > end * 500


def test_aborted_records_are_left_to_the_broker(topics: Topics, daemon: Daemon, topic: str) -> None:
    settings: dict[str, Any] = {"transactional.id": topic, "batch.num.messages": 20}
    topics.produce(topic, VALUES[:600], commit=False, **settings)
    topics.produce(topic, VALUES[:600], commit=True, **settings)
    committed = {"kafka.isolation.level": "read_committed"}
    found = [value for _, value in rows(topics, daemon.data, topic, **committed)]
    assert found == [*VALUES, *VALUES[:600]]


def test_committed_records_are_read_without_the_broker_up_to_what_no_marker_decides(
    topics: Topics, daemon: Daemon, name: Name, tmp_path: Path
) -> None:
    topic = name()
    topics.create(topic, 1, **{"segment.bytes": "131072", "max.message.bytes": "131072"})
    # Each transaction is of several segments: what it came to stands far behind its beginning.
    ends = [True, False, True, False, True]
    committed: list[int] = []
    offset = 0
    for n, commit in enumerate(ends):
        settings: dict[str, Any] = {"transactional.id": f"{topic}-{n % 2}"}
        settings["batch.num.messages"] = 20
        topics.produce(topic, VALUES[:600], commit=commit, **settings)
        committed += range(offset, offset + 600) if commit else []
        offset += 601  # and the marker
    filler: dict[str, Any] = {"batch.num.messages": 20}
    topics.produce(topic, VALUES[:600], **filler)
    committed += range(offset, offset + 600)
    sealed = sealed_to(daemon, topic, offset + 600)
    wanted = [n for n in committed if n < sealed]
    level = {"kafka.isolation.level": "read_committed"}
    found = without_broker(daemon, topic, 0, sealed, **level)
    assert found == wanted
    # Also from the middle of a transaction, whose beginning is not read.
    part = [n for n in committed if 700 <= n < 1900]
    assert without_broker(daemon, topic, 700, 1900, **level) == part
    # A marker that is not there decides nothing: the last transaction is asked of the broker.
    files = SegmentFiles(str(daemon.data), topic, 0)
    last = sum(601 for _ in ends[:-1])
    for segment in files.sealed(OffsetRange(topic, 0, last + 600, last + 601)):
        gone = copied(daemon.data / "topics" / topic / "partition_0", tmp_path)
        (log,) = gone.glob(f"*_segment_{segment.number}.log")
        log.unlink()
    found_there = decide(SegmentFiles(str(tmp_path), topic, 0), OffsetRange(topic, 0, 0, last + 9))
    assert [first for first, _ in found_there.aborted] == [601, 1803]
    assert found_there.until == last


def recreated(topics: Topics, daemon: Daemon, topic: str) -> list[bytes]:
    """Other records under the same name and at the same offsets, sealed; their values."""
    topics.delete(topic)
    topics.create(topic, 1, **{"segment.bytes": "131072", "max.message.bytes": "131072"})
    values = [b"other" + value for value in VALUES]
    settings: dict[str, Any] = {"batch.num.messages": 20}
    topics.produce(topic, values, **settings)
    sealed_to(daemon, topic)
    return values


def test_a_topic_made_again_under_a_planned_task_is_lost_not_read(
    topics: Topics, daemon: Daemon, topic: str
) -> None:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic}
    given |= {"readSegmentsFrom": str(daemon.data)}
    strict = SegbrokerDataSource(given).reader(StructType())
    lenient = SegbrokerDataSource({**given, "failOnDataLoss": "false"}).reader(StructType())
    tasks: list[InputPartition] = strict.partitions()
    recreated(topics, daemon, topic)
    with pytest.raises(DataLoss, match="deleted and made again"):
        list(strict.read(tasks[0]))
    assert [row for table in lenient.read(tasks[0]) for row in table.to_pylist()] == []


def test_files_of_another_topic_of_the_same_name_are_left_to_the_broker(
    topics: Topics, daemon: Daemon, topic: str, folder: Path, tmp_path: Path
) -> None:
    copied(folder, tmp_path)  # such as a backup, or the data directory of another broker
    values = recreated(topics, daemon, topic)
    assert rows(topics, tmp_path, topic) == list(enumerate(values))
    assert rows(topics, daemon.data, topic) == list(enumerate(values))


def test_a_folder_that_is_open_stays_that_of_its_topic(
    topics: Topics, daemon: Daemon, topic: str
) -> None:
    end = sealed_to(daemon, topic)
    runs = SegmentFiles(str(daemon.data), topic, 0).runs(OffsetRange(topic, 0, 0, end))
    found = [bytes(next(runs))]
    recreated(topics, daemon, topic)
    with suppress(Unreadable):
        found += map(bytes, runs)
    assert b"".join(found).count(b"other") == 0


def test_a_manifest_that_tells_no_topic_is_left_to_the_broker(
    topics: Topics, topic: str, folder: Path, tmp_path: Path
) -> None:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic}
    cluster = Cluster(parse_options(given, streaming=False).client)
    topic_id = cluster.layout(Subscribe((topic,)))[topic].topic_id
    cluster.close()
    assert topic_id is not None
    copy = copied(folder, tmp_path)
    (manifest,) = copy.glob("*.manifest")
    data = bytearray(manifest.read_bytes())
    data[16:24] = bytes(8)
    data[24:32] = xxh3_64(bytes(data[:24])).to_bytes(8, "big")
    manifest.write_bytes(data)
    wanted = OffsetRange(topic, 0, 0, COUNT)
    with pytest.raises(Unreadable, match="of an earlier version"):
        SegmentFiles(str(tmp_path), topic, 0, topic_id).sealed(wanted)
    assert rows(topics, tmp_path, topic) == list(enumerate(VALUES))

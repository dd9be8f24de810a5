"""Options do what the page says; the sentences for malformed ones are in test_options."""

import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pytest
from pyspark.sql.types import BinaryType, StructType

from segbroker.client.settings import parse_bootstrap
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.headers import parse_request_header
from segbroker.protocol.messages_core import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from segbroker.protocol.record_batch import BatchHeader, iter_batches, read_header
from segbroker.protocol.schema import records_view
from segbroker.spark.connecting import ClientOptions
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import SourceUnavailable
from segbroker.spark.fetching import RangeFetcher, Task
from segbroker.spark.link import Link
from segbroker.spark.offsets import OffsetRange
from segbroker.spark.options import parse_options

from ..support.daemon import running
from .scripted_broker import TOPIC, Fault, ScriptedBroker, fetched
from .topics import Topics

Name = Callable[[], str]

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "spark.md"
SCHEMA = StructType().add("value", BinaryType())


def documented() -> set[str]:
    """The names in the first column of the page's tables of options."""
    found: set[str] = set()
    for table in re.findall(
        r"^\| option \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE
    ):
        for row in table.splitlines():
            found.update(re.findall(r"`([\w.]+)`", row.split("|")[1]))
    return found


def test_every_option_of_the_page_is_used_by_a_test() -> None:
    tests = "".join(
        file.read_text() for file in HERE.rglob("test_*.py") if file.name != "test_options.py"
    )
    names = documented()
    assert len(names) > 30
    assert [name for name in sorted(names) if name not in tests] == []


@pytest.fixture
def hanging_up() -> Iterator[tuple[str, list[bytes]]]:
    """An address where every connection is closed after its first bytes, and those bytes."""
    seen: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                seen.append(peer.recv(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        yield f"{host}:{port}", seen
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({}, "segbroker-spark"),
        ({"groupIdPrefix": "etl"}, "etl"),
        ({"groupIdPrefix": "etl", "kafka.group.id": "nightly"}, "nightly"),
        ({"kafka.group.id": "nightly", "kafka.client.id": "report"}, "report"),
    ],
)
def test_the_broker_hears_the_label(
    hanging_up: tuple[str, list[bytes]], options: dict[str, str], label: str
) -> None:
    address, seen = hanging_up
    given = {"segbroker.bootstrap.servers": address, "subscribe": "clicks", **options}
    given["fetchOffset.numRetries"] = "0"
    with pytest.raises(SourceUnavailable, match=r"1 tries \(fetchOffset.numRetries\)"):
        SegbrokerDataSource(given).reader(StructType()).partitions()
    reader = FrameReader()
    reader.get_buffer()[: len(seen[0])] = seen[0]
    reader.buffer_updated(len(seen[0]))
    frame = reader.next_frame()
    assert frame is not None
    assert parse_request_header(frame).client_id == label


def test_the_driver_tries_as_often_and_waits_as_long_as_it_is_told(
    hanging_up: tuple[str, list[bytes]],
) -> None:
    address, seen = hanging_up
    given = {"kafka.bootstrap.servers": address, "subscribe": "clicks"}

    def connections(**options: str) -> int:
        seen.clear()
        with pytest.raises(SourceUnavailable):
            SegbrokerDataSource({**given, **options}).reader(StructType()).partitions()
        return len(seen)

    once = connections(**{"fetchOffset.numRetries": "0"})
    retries = {"fetchOffset.numRetries": "4", "fetchOffset.retryIntervalMs": "1"}
    assert connections(**retries) == 5 * once
    # The first pause would be longer than all the time there is.
    waiting = {"fetchOffset.retryIntervalMs": "900000", "kafka.default.api.timeout.ms": "300000"}
    assert connections(**waiting) == once


@pytest.mark.parametrize("name", ["kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes"])
def test_a_fetch_asks_for_no_more_than_it_is_told(name: str) -> None:
    asked: list[FetchRequest] = []

    def script(request: FetchRequest) -> FetchResponse | Fault:
        asked.append(request)
        return fetched(high_watermark=0)

    with ScriptedBroker(script, log_end=0).running() as broker:
        host, port = broker.address
        given = {"kafka.bootstrap.servers": f"{host}:{port}", "subscribe": TOPIC, name: "20000"}
        options = parse_options({**given, "failOnDataLoss": "false"}, streaming=False)
        task = Task(OffsetRange(TOPIC, 0, 0, 1_000_000), broker.address)
        assert list(RangeFetcher(options, task).batches()) == []
    assert {each.max_bytes for each in asked} == {20_000}
    assert {each.topics[0].partitions[0].partition_max_bytes for each in asked} == {20_000}


def written(topics: Topics, topic: str, values: list[bytes], **options: str) -> list[BatchHeader]:
    """Write them at least once; the headers of the batches that are in the log then."""
    given = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic, **options}
    given["deliveryGuarantee"] = "at-least-once"
    writer = SegbrokerDataSource(given).writer(SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([pyarrow.RecordBatch.from_pydict({"value": values})]))])
    (address,) = parse_bootstrap(topics.bootstrap)
    link = Link(address, ClientOptions(bootstrap=(address,), request_timeout_ms=60_000))
    partition = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchRequestTopic(topic=topic, partitions=[partition])],
    )
    row = link.ask(request, FetchResponse).responses[0].partitions[0]
    found = [read_header(view) for view in iter_batches(records_view(row.records))]
    link.close()
    assert sum(each.records_count for each in found) == len(values)
    return found


def test_batches_are_as_large_and_as_compressed_as_they_are_told(
    topics: Topics, name: Name
) -> None:
    values = [b"%04d" % n * 25 for n in range(100)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = name()
        topics.create(topic)
        (whole,) = written(topics, topic, values, **{"kafka.compression.type": codec})
        assert whole.codec.name.lower() == codec
    topic = name()
    topics.create(topic)
    cut = written(topics, topic, values, **{"kafka.batch.size": "2000"})
    assert len(cut) > 4
    assert all(each.size < 2500 for each in cut)


@pytest.mark.usefixtures("segbroker_only")
def test_what_a_dead_write_left_open_is_aborted_after_its_time(topics: Topics, name: Name) -> None:
    topic = name()
    topics.create(topic)
    given = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
    # Longer than a machine stands still before it has written: then it would be over too early.
    given |= {"transactionalId": topic, "kafka.transaction.timeout.ms": "5000"}
    writer = SegbrokerDataSource(given).writer(SCHEMA, overwrite=False)
    writer.write(iter([pyarrow.RecordBatch.from_pydict({"value": [b"given up"]})]))
    topics.produce(topic, [b"behind it"])
    found = topics.read(topic, 1, timeout_s=120)
    assert [row.value for row in found] == [b"behind it"]


def test_a_record_that_cannot_be_written_ends_the_task_after_its_time(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        topics = Topics(daemon.address)
        topics.create("clicks")
        topics.close()
        given = {"kafka.bootstrap.servers": daemon.address, "topic": "clicks"}
        given |= {"deliveryGuarantee": "at-least-once", "kafka.batch.size": "1"}
        given |= {"kafka.delivery.timeout.ms": "300", "kafka.default.api.timeout.ms": "300000"}
        writer = SegbrokerDataSource(given).writer(SCHEMA, overwrite=False)

        def rows() -> Iterator[pyarrow.RecordBatch]:
            yield pyarrow.RecordBatch.from_pydict({"value": [b"written"]})
            daemon.stop(signal.SIGKILL)
            for _ in range(100):
                yield pyarrow.RecordBatch.from_pydict({"value": [b"never"]})

        with pytest.raises(Exception, match=r"not written within 300 ms \(kafka.delivery.timeout"):
            writer.write(rows())

"""The reader in the jar: the rows of the one in Python whatever the log holds; who is chosen."""

import json
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import lz4.frame
import pytest
from pyspark.sql.types import StructType

from segbroker.protocol.compression import XERIAL_MAGIC, Codec, compress
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.record_batch import set_log_append_time
from segbroker.spark.data_source import SegbrokerDataSource
from segbroker.spark.errors import OptionError, SourceError
from segbroker.spark.fetching import Task
from segbroker.spark.jvm import ASK, JvmPartition, choice
from segbroker.spark.offsets import OffsetRange
from segbroker.spark.options import SourceOptions, parse_options

from ...support.thinned import filter_batch
from ..batches import batch, with_checksum
from ..jar import JarReader, Row, options_of, read_in_python
from ..scripted_broker import TOPIC, ScriptedBroker, fetched
from ..topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = [b"", None, b"v" * 300, *(b"%d" % n * 40 for n in range(2000))]
KEYS = [None, b"", b"k" * 200, *(b"%d" % (n % 7) for n in range(2000))]
HEADERS = [[("h", b"1"), ("none", None), ("ü", b"")], None, [], *([None] * 2000)]
TIMES = [1_700_000_000_000 - 90 * n for n in range(len(VALUES))]


def both(log: list[bytes], end: int, jar_reader: JarReader, start: int = 0) -> list[Row]:
    """The rows of a log, which are the same by either reader."""
    with ScriptedBroker(lambda _: fetched(*log, high_watermark=end)).running() as broker:
        task = Task(OffsetRange(TOPIC, 0, start, end), broker.address)
        expected = read_in_python(options_of(broker), task)
        assert jar_reader.read(options_of(broker), task) == expected
    return expected


def repacked(data: bytes, codec: Codec, records: bytes) -> bytes:
    """The batch with its records as another producer would have packed them."""
    made = bytearray(data[:61] + records)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, (made[22] & ~7) | codec)
    return with_checksum(made)


@pytest.mark.spark
def test_every_codec_gives_every_column_of_every_record(jar_reader: JarReader) -> None:
    log = [
        batch(
            len(VALUES) * codec,
            VALUES,
            keys=KEYS,
            headers=HEADERS,
            timestamps_ms=TIMES,
            codec=codec,
        )
        for codec in Codec
    ]
    end = len(VALUES) * len(Codec)
    found = both(log, end, jar_reader)
    assert [row.offset for row in found] == list(range(end))
    assert [row.value for row in found] == VALUES * len(Codec)
    assert found[0].headers == (("h", b"1"), ("none", None), ("ü", b""))
    assert {row.headers for row in found[1:20]} == {None}
    # A range that begins and ends within batches.
    assert len(both(log, end - 5, jar_reader, start=7)) == end - 12


@pytest.mark.spark
def test_what_other_producers_pack_in_their_own_ways_is_read_too(jar_reader: JarReader) -> None:
    plain = batch(0, VALUES)
    records = plain[61:]
    half = len(records) // 2
    xerial = bytearray(XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for part in (records[:half], records[half:]):
        block = compress(Codec.SNAPPY, part)
        xerial += struct.pack(">i", len(block)) + block
    # Blocks that go back into earlier ones, which Spark's own lz4 refuses.
    linked = lz4.frame.compress(
        records,
        block_linked=True,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        content_checksum=True,
        block_checksum=True,
        store_size=True,
    )
    for codec, packed in (
        (Codec.SNAPPY, bytes(xerial)),
        (Codec.LZ4, linked),
        (Codec.GZIP, compress(Codec.GZIP, records[:half]) + compress(Codec.GZIP, records[half:])),
    ):
        found = both([repacked(plain, codec, packed)], len(VALUES), jar_reader)
        assert [row.value for row in found] == VALUES


@pytest.mark.spark
def test_a_sparse_log_and_the_brokers_time_come_as_they_are(jar_reader: JarReader) -> None:
    whole = batch(100, [b"%d" % n for n in range(10)], codec=Codec.ZSTD)
    sparse = filter_batch(whole, {100, 103, 104, 109}, 0)
    stamped = bytearray(batch(110, [b"x", b"y"]))
    set_log_append_time(stamped, 1_600_000_000_000)
    extreme = batch(112, [b"late"], timestamps_ms=[9_223_372_036_854_775])
    found = both([sparse, bytes(stamped)], 112, jar_reader, start=50)
    assert [row.offset for row in found] == [101, 102, 105, 106, 107, 108, 110, 111]
    assert {(row.timestamp_us, row.timestamp_type) for row in found[-2:]} == {
        (1_600_000_000_000_000, 1)
    }
    with ScriptedBroker(lambda _: fetched(extreme, high_watermark=113)).running() as broker:
        task = Task(OffsetRange(TOPIC, 0, 112, 113), broker.address)
        (row,) = jar_reader.read(options_of(broker), task)
    # The latest time that microseconds have room for, as the reader in Python shows it.
    assert row.timestamp_us == (((1 << 63) // 1000) - 1) * 1000


@pytest.mark.spark
def test_of_nonsense_with_the_right_checksum_the_two_readers_think_alike(
    jar_reader: JarReader,
) -> None:
    random = Random(165)
    whole = batch(0, VALUES[:20], keys=KEYS[:20], headers=HEADERS[:20])
    logs: list[bytes] = []
    for n in range(60):
        codec = list(Codec)[n % len(Codec)]
        data = bytearray(batch(0, VALUES[:20], keys=KEYS[:20], codec=codec) if n % 2 else whole)
        for _ in range(random.randint(1, 3)):
            data[random.randrange(61, len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        # A producer that writes nonsense also writes the right checksum of it.
        logs.append(with_checksum(data))
    served = iter(logs)
    current = b""

    def outcome(
        read: Callable[[SourceOptions, Task], list[Row]], options: SourceOptions, task: Task
    ) -> object:
        try:
            return read(options, task)
        except SourceError:
            return SourceError

    with ScriptedBroker(lambda _: fetched(current, high_watermark=20)).running() as broker:
        task = Task(OffsetRange(TOPIC, 0, 0, 20), broker.address)
        for current in served:
            by_jar = outcome(jar_reader.read, options_of(broker), task)
            by_us = outcome(read_in_python, options_of(broker), task)
            # Inside a compressed batch either may look more closely than the other.
            if current[22] & 7 == Codec.NONE or SourceError not in (by_jar, by_us):
                assert by_jar == by_us, current.hex()


# Records without their length: attributes, timestamp delta, offset delta, key, value, headers.
FIRST, SECOND = b"\0\0\0\1\2a\0", b"\0\0\2\1\2b\0"
NONSENSE = {
    "the same offset twice": [FIRST, FIRST],
    "offsets that fall": [SECOND, FIRST],
    "a time past 64 bits": [FIRST, b"\0" + b"\xfe" + b"\xff" * 8 + b"\1" + SECOND[2:]],
    "an offset of 35 bits": [FIRST, b"\0\0\x82\x80\x80\x80\x10" + SECOND[3:]],
    "a time of 70 bits": [FIRST, b"\0" + b"\x80" * 9 + b"\2" + SECOND[2:]],
    "a byte behind the headers": [FIRST + b"\0", SECOND],
    "no headers, not even none": [FIRST, SECOND[:-1]],
    "more headers than there are": [FIRST, SECOND[:-1] + b"\4\2h\1"],
    "an end in the key": [FIRST, b"\0\0\2"],
    "no records": [],
}


@pytest.mark.spark
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("records", NONSENSE.values(), ids=NONSENSE)
def test_neither_reader_hands_out_a_batch_that_breaks_a_rule(
    jar_reader: JarReader, records: list[bytes], codec: Codec
) -> None:
    packed = compress(codec, b"".join(bytes([2 * len(record)]) + record for record in records))
    log = repacked(batch(0, [b"a", b"b"]), codec, packed)
    with ScriptedBroker(lambda _: fetched(log, high_watermark=2)).running() as broker:
        task = Task(OffsetRange(TOPIC, 0, 0, 2), broker.address)
        for read in (read_in_python, jar_reader.read):
            with pytest.raises(SourceError):
                read(options_of(broker), task)


@pytest.mark.spark
@pytest.mark.usefixtures("jar_reader")
def test_what_all_queries_share_has_its_variables_before_the_first_of_them_runs(
    spark: "SparkSession", topics: Topics, name: Callable[[], str]
) -> None:
    """Two queries that put them at once can leave a map behind that is never serialized again."""
    topic = name()
    topics.create(topic)
    reader = spark.read.format("segbroker").option("kafka.bootstrap.servers", topics.bootstrap)
    reader.option("subscribe", topic).load()
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    shared = sources.lookupDataSource("segbroker").dataSourceCls().envVars()
    variables = ["SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"]
    for variable in variables:
        shared.remove(variable)
    reader.option("subscribe", topic).load()
    assert set(variables) <= {str(key) for key in shared.keySet()}


@pytest.mark.spark
def test_columns_that_nobody_asks_for_are_not_made(
    spark: "SparkSession", topics: Topics, jar_reader: JarReader
) -> None:
    topics.create("pruned", 2)
    for partition in range(2):
        topics.produce("pruned", [b"%d" % n for n in range(500)], partition=partition)
    frame = (
        spark.read.format("segbroker")
        .options(**{"kafka.bootstrap.servers": topics.bootstrap, "subscribe": "pruned"})
        .option("reader", "jvm")
        .load()
    )
    assert frame.count() == 1000
    assert frame.selectExpr("sum(offset)", "max(topic)").first() == (2 * 500 * 499 // 2, "pruned")
    plan = frame.select("offset")._jdf.queryExecution().executedPlan().toString()
    assert "read in the JVM struct<offset:bigint>" in plan


@pytest.mark.spark
def test_a_query_that_the_jar_cannot_do_is_read_by_python(
    spark: "SparkSession", topics: Topics, jar_reader: JarReader
) -> None:
    topics.create("fallback")
    topics.produce("fallback", [b"x"] * 10)
    given = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": "fallback"}
    frame = spark.read.format("segbroker").options(**given, includeGaps="true").load()
    assert "JVM" not in frame._jdf.queryExecution().executedPlan().toString()
    assert frame.where("_gap IS NULL").count() == 10
    refused = spark.read.format("segbroker").options(**given, includeGaps="true", reader="jvm")
    with pytest.raises(Exception, match="reader=jvm cannot be: includeGaps is asked for"):
        refused.load()


GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}
TLS = {"kafka.security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "jvm"),
        ({"reader": "AUTO"}, "jvm"),
        ({"reader": "python"}, "python: the option reader says so"),
        ({"includeGaps": "true"}, "python: includeGaps is asked for"),
        ({"readSegmentsFrom": "/data"}, "python: readSegmentsFrom is asked for"),
        (TLS, "python: the authorities are those of the system"),
        ({**TLS, "kafka.ssl.ca.location": "/ca.pem"}, "jvm"),
        (
            {**TLS, "kafka.enable.ssl.certificate.verification": "false"},
            "python: certificates are not verified",
        ),
        (
            {
                **TLS,
                "kafka.ssl.ca.location": "/ca.pem",
                "kafka.ssl.certificate.location": "/me.pem",
            },
            "python: the client has a certificate",
        ),
        ({"kafka.security.protocol": "SSH"}, "python: its options are wrong"),
    ],
)
def test_the_options_choose_the_reader(more: Mapping[str, str], expected: str) -> None:
    assert choice({**GIVEN, **more}) == expected


def test_a_reader_that_cannot_be_had_is_refused_with_a_sentence() -> None:
    with pytest.raises(OptionError, match="reader='java' is not 'auto', 'python' or 'jvm'"):
        choice({**GIVEN, "reader": "java"})
    source = SegbrokerDataSource({**GIVEN, "reader": "jvm"})
    with pytest.raises(OptionError, match="needs segbroker's jar in the session"):
        source.reader(StructType())


def test_the_schema_says_who_reads_only_where_the_jar_asks() -> None:
    plain = SegbrokerDataSource(GIVEN).schema()
    asked = SegbrokerDataSource({**GIVEN, ASK: "1"}).schema()
    assert asked == plain + ", `$reader` boolean COMMENT 'jvm'"


def test_the_jar_has_the_words_of_the_protocol_for_its_errors() -> None:
    source = Path(__file__).parents[3] / "spark/java/segbroker/spark/LinkError.java"
    rows = re.findall(r"entry\((-?\d+), new Code\((true|false), \"(.*)\"\)\)", source.read_text())
    said = {int(code): (retryable == "true", words) for code, retryable, words in rows}
    assert len(said) > 15
    assert said == {n: (ErrorCode(n).retryable, ErrorCode(n).description) for n in said}


def test_a_task_for_the_jar_says_all_that_it_needs() -> None:
    options = parse_options(
        {
            **GIVEN,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "wonderland",
            "failOnDataLoss": "false",
        },
        streaming=False,
    )
    said = json.loads(JvmPartition(options, Task(OffsetRange("t", 3, 4, 9), ("h", 1))).value)
    assert said["client"].pop("security")["password"] == "wonderland"
    assert said["client"].pop("bootstrap") == [["127.0.0.1", 9]]
    assert said.pop("client")["tries_count_max"] == 0
    assert said == {
        "topic": "t",
        "topic_id": None,
        "partition": 3,
        "start": 4,
        "end": 9,
        "leader": ["h", 1],
        "fail_on_data_loss": False,
        "read_committed": False,
        "fetch_bytes": 3 << 20,
        "poll_timeout_ms": 120_000,
    }

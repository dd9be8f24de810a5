"""Batches as Arrow: types that Spark accepts, every value right, sizes that Spark likes."""

import re
import struct
from datetime import UTC, datetime

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import RecordBatch, decode_batch, set_log_append_time
from segbroker.spark.columns import BATCH_BYTES_MAX, Shape, record_batches
from segbroker.spark.loss import Lost
from segbroker.spark.offsets import OffsetRange

from .batches import batch, with_checksum

EVERYTHING = OffsetRange("clicks", 3, 0, 1 << 40)
# 2023-11-14 22:13:20 UTC.
TIME_MS = 1_700_000_000_000


def rows(
    *batches: bytes, wanted: OffsetRange = EVERYTHING, headers: bool = False
) -> list[dict[str, object]]:
    tables = list(record_batches(map(decode_batch, batches), wanted, Shape(headers)))
    for table in tables:
        table.validate(full=True)
    found: list[dict[str, object]] = [row for table in tables for row in table.to_pylist()]
    return found


def test_a_row_has_what_kafkas_source_gives() -> None:
    data = batch(7, [b"a", None], keys=[None, b"k"], timestamps_ms=[TIME_MS, TIME_MS + 1])
    first, second = rows(data)
    assert first == {
        "key": None,
        "value": b"a",
        "topic": "clicks",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "timestampType": 0,
    }
    assert (second["key"], second["value"], second["offset"]) == (b"k", None, 8)
    assert second["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC)


@pytest.mark.parametrize(
    "shape", [Shape(), Shape(headers=True), Shape(gaps=True), Shape(headers=True, gaps=True)]
)
def test_the_arrow_schema_is_the_one_that_spark_makes_of_ours(shape: Shape) -> None:
    assert to_arrow_schema(spark_types(shape.spark), timezone="UTC").equals(shape.arrow)
    (table,) = record_batches([decode_batch(batch(0, [b"x"]))], EVERYTHING, shape)
    assert table.schema.equals(shape.arrow)


def test_a_loss_is_a_row_between_the_records_where_it_is_asked_for() -> None:
    lost = Lost("clicks", 3, 1, 5, "the log has a gap there", "corruption")
    items: list[RecordBatch | Lost] = [
        decode_batch(batch(0, [b"x"])),
        lost,
        decode_batch(batch(5, [b"y"])),
    ]
    found = [
        row
        for table in record_batches(items, EVERYTHING, Shape(gaps=True))
        for row in table.to_pylist()
    ]
    assert [(row["offset"], row["value"], row["_gap"]) for row in found] == [
        (0, b"x", None),
        (1, None, {"start": 1, "end": 5, "reason": "corruption"}),
        (5, b"y", None),
    ]
    assert (found[1]["topic"], found[1]["partition"], found[1]["timestamp"]) == ("clicks", 3, None)


def spark_types(text: str) -> StructType:
    """What Spark's parser makes of the text, without starting its JVM."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DataType,
        IntegerType,
        LongType,
        StringType,
        TimestampType,
    )

    gap = StructType().add("start", LongType()).add("end", LongType()).add("reason", StringType())
    header = StructType().add("key", StringType()).add("value", BinaryType())
    kinds: dict[str, DataType] = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "long": LongType(),
        "timestamp_ltz": TimestampType(),
        "array<struct<key: string, value: binary>>": ArrayType(header),
        "struct<start: long, end: long, reason: string>": gap,
    }
    found = StructType()
    # A comma inside <> does not end a column.
    for column in re.split(r", (?![^<]*>)", text):
        name, _, kind = column.partition(" ")
        found = found.add(name, kinds[kind])
    return found


def test_headers_come_as_pairs_in_order_and_none_as_null_as_from_kafkas_source() -> None:
    headers: list[list[tuple[str, bytes | None]] | None] = [[("n", b"1"), ("n", None)], None]
    first, second, *others = rows(
        batch(0, [b"a", b"b"], headers=headers), batch(2, [b"c", b"d"]), headers=True
    )
    assert first["headers"] == [{"key": "n", "value": b"1"}, {"key": "n", "value": None}]
    assert [row["headers"] for row in (second, *others)] == [None] * 3


def test_a_header_name_that_is_not_text_comes_with_escapes() -> None:
    data = bytearray(batch(0, [b"a"], headers=[[("n?", b"1")]]))
    data[data.index(b"n?") + 1] = 0xFF
    (row,) = rows(with_checksum(data), headers=True)
    assert row["headers"] == [{"key": "n\\xff", "value": b"1"}]


def test_only_records_of_the_range_come_out() -> None:
    batches = [batch(n, [b"%d" % (n + i) for i in range(10)]) for n in (0, 10, 20)]
    found = rows(*batches, wanted=OffsetRange("clicks", 3, 4, 27))
    assert [row["offset"] for row in found] == list(range(4, 27))
    assert [row["value"] for row in found] == [b"%d" % n for n in range(4, 27)]
    assert rows(*batches, wanted=OffsetRange("clicks", 3, 30, 40)) == []


def test_the_broker_s_time_is_marked_as_such() -> None:
    data = bytearray(batch(0, [b"a", b"b"], timestamps_ms=[1, 2]))
    set_log_append_time(data, TIME_MS)
    found = rows(bytes(data), batch(2, [b"c"], timestamps_ms=5))
    assert [row["timestampType"] for row in found] == [1, 1, 0]
    shown = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert [row["timestamp"] for row in found[:2]] == [shown, shown]


@pytest.mark.parametrize(
    ("sent_ms", "shown_us"),
    [
        (-1, -1000),
        (TIME_MS, TIME_MS * 1000),
        ((1 << 63) - 1, 9_223_372_036_854_774_000),
        (-(1 << 63), -9_223_372_036_854_774_000),
    ],
)
def test_any_timestamp_is_shown_or_the_nearest_that_can_be(sent_ms: int, shown_us: int) -> None:
    data = bytearray(batch(0, [b"a"], timestamps_ms=0))
    struct.pack_into(">qq", data, 27, sent_ms, sent_ms)
    (table,) = record_batches([decode_batch(with_checksum(data))], EVERYTHING, Shape())
    assert table["timestamp"].cast(pyarrow.int64()).to_pylist() == [shown_us]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_opened(codec: Codec) -> None:
    found = rows(batch(0, [b"value %d" % n for n in range(100)], codec=codec))
    assert [row["value"] for row in found] == [b"value %d" % n for n in range(100)]


def test_small_batches_are_put_together() -> None:
    batches = [decode_batch(batch(n * 10, [b"x" * 90] * 10)) for n in range(1000)]
    tables = list(record_batches(batches, EVERYTHING, Shape()))
    assert [table.num_rows for table in tables] == [10_000]


def test_a_large_batch_is_cut() -> None:
    data = batch(0, [bytes(1000)] * 20_000)
    tables = list(record_batches([decode_batch(data)], EVERYTHING, Shape()))
    assert len(tables) >= 4
    assert all(table.nbytes < BATCH_BYTES_MAX for table in tables)
    assert [offset for table in tables for offset in table["offset"].to_pylist()] == list(
        range(20_000)
    )


def test_a_record_larger_than_a_batch_should_be_comes_alone_and_whole() -> None:
    value = bytes(9 << 20)
    tables = list(record_batches([decode_batch(batch(0, [value, b"x"]))], EVERYTHING, Shape()))
    assert [row["value"] for table in tables for row in table.to_pylist()] == [value, b"x"]


pairs = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
record = st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20), pairs)


@given(st.lists(st.lists(record, min_size=1, max_size=8), min_size=1, max_size=5), st.data())
def test_whatever_was_written_is_read_row_by_row(
    written: list[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]],
    data: st.DataObject,
) -> None:
    batches, expected, offset = [], [], 0
    for records in written:
        keys, values, headers = zip(*records, strict=True)
        batches.append(batch(offset, values, keys=keys, headers=headers))
        for key, value, pairs_ in records:
            shown = [{"key": name, "value": content} for name, content in pairs_]
            expected.append((offset, key, value, shown or None))
            offset += 1
    start = data.draw(st.integers(0, offset))
    end = data.draw(st.integers(start, offset))
    found = rows(*batches, wanted=OffsetRange("clicks", 3, start, end), headers=True)
    assert [(row["offset"], row["key"], row["value"], row["headers"]) for row in found] == expected[
        start:end
    ]

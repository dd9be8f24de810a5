"""kafka-python 3's record batches are an independent oracle: what it writes we read, and back."""

from typing import Any

import pytest
from hypothesis import given, settings
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import (
    GapReason,
    check_batch,
    decode_batch,
    encode_batch,
    gap_batches,
    patch_batch,
    set_log_append_time,
)

from ..support.thinned import filter_batch
from .batches import NOW, Columns, columns

CASE = Columns(
    values=[b"a" * 100, None, b"", b"last"],
    keys=[b"key", None, b"", b"key"],
    headers=[[("segbroker.tag", b"t"), ("none", None)], [], [("é", b"")], []],
    timestamps_ms=[NOW, NOW - 5, NOW + 70_000, NOW],
)


def written_by_kafka_python(case: Columns, codec: Codec, **state: Any) -> bytes:  # noqa: ANN401
    none = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, batch_size=1 << 20, **(none | state)
    )
    rows = zip(case["timestamps_ms"], case["keys"], case["values"], case["headers"], strict=True)
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def read_by_kafka_python(batch: bytes | bytearray) -> list[tuple[Any, ...]]:
    decoded = DefaultRecordBatch(bytes(batch))
    assert decoded.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in decoded]


def expected(case: Columns, base_offset: int = 0) -> list[tuple[Any, ...]]:
    return [
        (base_offset + i, timestamp, key, value, tuple(headers))
        for i, (timestamp, key, value, headers) in enumerate(
            zip(case["timestamps_ms"], case["keys"], case["values"], case["headers"], strict=True)
        )
    ]


@pytest.mark.parametrize("codec", Codec)
def test_we_read_what_kafka_python_writes(codec: Codec) -> None:
    batch = written_by_kafka_python(CASE, codec)
    header = check_batch(batch)
    assert (header.codec, header.records_count, header.max_timestamp) == (codec, 4, NOW + 70_000)
    assert decode_batch(batch).records() == expected(CASE)


@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_reads_what_we_write(codec: Codec) -> None:
    batch = bytearray(encode_batch(**CASE, codec=codec))
    patch_batch(batch, 1000, 4)
    assert read_by_kafka_python(batch) == expected(CASE, 1000)


@settings(max_examples=200)
@given(columns())
def test_both_write_the_same_bytes(case: Columns) -> None:
    ours = bytearray(encode_batch(**case))
    # kafka-python leaves leader epoch 0 where we say -1; the CRC does not cover it.
    theirs = bytearray(written_by_kafka_python(case, Codec.NONE))
    patch_batch(ours, 0, 0)
    patch_batch(theirs, 0, 0)
    assert ours == theirs


def test_producer_fields_and_the_transactional_bit_agree() -> None:
    ours = encode_batch(
        **CASE, producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 2, transactional=True
    )
    theirs = written_by_kafka_python(
        CASE,
        Codec.NONE,
        is_transactional=1,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=2**31 - 2,
    )
    assert ours[16:] == theirs[16:]
    decoded = DefaultRecordBatch(ours)
    assert (decoded.producer_id, decoded.producer_epoch) == (2**40, 7)
    assert decoded.last_sequence == check_batch(ours).last_sequence == 1
    assert decoded.is_transactional


@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_shows_the_append_time_for_every_record(codec: Codec) -> None:
    batch = bytearray(encode_batch(**CASE, codec=codec))
    set_log_append_time(batch, NOW + 1)
    assert [row[1] for row in read_by_kafka_python(batch)] == [NOW + 1] * 4
    assert decode_batch(batch).timestamps() == [NOW + 1] * 4


@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_reads_a_filtered_batch(codec: Codec) -> None:
    batch = bytearray(encode_batch(**CASE, codec=codec))
    patch_batch(batch, 1000, 4)
    filtered = filter_batch(batch, {1000, 1002}, NOW)
    assert read_by_kafka_python(filtered) == [expected(CASE, 1000)[1], expected(CASE, 1000)[3]]
    assert DefaultRecordBatch(filtered).next_offset == 1004


def test_kafka_python_sees_a_gap_as_an_empty_control_batch() -> None:
    (gap,) = gap_batches(10, 1_000_010, GapReason.LOST_TAIL, NOW, 3)
    decoded = DefaultRecordBatch(gap)
    assert decoded.validate_crc()
    assert decoded.is_control_batch
    assert (decoded.base_offset, decoded.next_offset, list(decoded)) == (10, 1_000_010, [])

"""RecordBatch v2: the rules of a broker that takes one, and what is done to one afterwards.

Every test runs on the C kernel and on its pure twin.
"""

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segbroker.protocol import batch_pure, kernel
from segbroker.protocol.batch_layout import HEADER_SIZE, BatchFault, Gathered
from segbroker.protocol.compression import Codec
from segbroker.protocol.record_batch import (
    BatchHeader,
    GapReason,
    InvalidBatch,
    Record,
    check_batch,
    columns_of,
    decode_batch,
    encode_batch,
    first_at_or_after,
    gap_batches,
    gap_reason,
    iter_batches,
    patch_batch,
    read_header,
    set_log_append_time,
)

from ..support.thinned import filter_batch
from .batches import NOW, Columns, columns, damaged, with_crc

BACKENDS = [batch_pure]
if kernel.KERNEL_IS_NATIVE:
    from segbroker.protocol import batch_native

    BACKENDS.insert(0, batch_native)


@pytest.fixture(
    params=BACKENDS, ids=lambda module: module.__name__.rpartition("_")[2], autouse=True
)
def backend(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Both implementations in turn."""
    before: ModuleType = kernel.backend
    kernel.use(request.param)
    yield request.param
    kernel.use(before)


# The fixture holds for all examples of one test.
random = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# base offset, length 77 - 12, leader epoch -1, magic 2, crc |
# attributes, last delta 1, base time 0x1000, max time 0x1003, producer -1 -1 -1, count 2 |
# length 7: attributes, time +0, offset +0, key null, value "a", no headers |
# length 7: attributes, time +3, offset +1, key "k", value null, no headers
TWO_RECORDS = bytes.fromhex(
    "0000000000000000 00000041 ffffffff 02 0ed0ce06"
    "0000 00000001 0000000000001000 0000000000001003 ffffffffffffffff ffff ffffffff 00000002"
    "0e 00 00 00 01 02 61 00"
    "0e 00 06 02 02 6b 01 00"
)


def two_records() -> bytes:
    return encode_batch([b"a", None], keys=[None, b"k"], timestamps_ms=[0x1000, 0x1003])


def fault_of(batch: bytes | bytearray, *, stored: bool = False) -> BatchFault:
    with pytest.raises(InvalidBatch) as caught:
        check_batch(bytes(batch), stored=stored)
    return caught.value.fault


def changed(position: int, data: str, batch: bytes = TWO_RECORDS) -> bytes:
    """The batch with other bytes at `position`, and the CRC that goes with them."""
    out = bytearray(batch)
    replacement = bytes.fromhex(data)
    out[position : position + len(replacement)] = replacement
    return with_crc(out)


EMPTIED = changed(57, "00000000", changed(8, "00000031")[:HEADER_SIZE])


def test_a_batch_is_encoded_to_these_bytes() -> None:
    assert two_records() == TWO_RECORDS


def test_the_header_is_read_from_these_bytes() -> None:
    header = check_batch(TWO_RECORDS)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=65,
        leader_epoch=-1,
        magic=2,
        crc=0x0ED0CE06,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=0x1000,
        max_timestamp=0x1003,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=2,
    )
    assert (header.size, header.last_offset, header.next_offset) == (77, 1, 2)
    assert (header.codec, header.last_sequence) == (Codec.NONE, -1)
    flags = (header.is_control, header.is_transactional, header.is_log_append_time)
    assert flags == (False, False, False)


def test_the_records_are_read_from_these_bytes() -> None:
    assert decode_batch(TWO_RECORDS).records() == [
        Record(0, 0x1000, None, b"a", ()),
        Record(1, 0x1003, b"k", None, ()),
    ]


@pytest.mark.parametrize(
    ("fault", "batch"),
    [
        (BatchFault.TRUNCATED, b""),
        (BatchFault.TRUNCATED, TWO_RECORDS[:16]),
        (BatchFault.TRUNCATED, TWO_RECORDS[:60]),
        (BatchFault.TRUNCATED, TWO_RECORDS[:-1]),
        (BatchFault.UNSUPPORTED_MAGIC, changed(16, "01")),
        # Magic is asked before the rest: an old message set is shorter than a header.
        (BatchFault.UNSUPPORTED_MAGIC, changed(16, "00")[:30]),
        (BatchFault.CORRUPT, changed(8, "00000030")),
        (BatchFault.CORRUPT, changed(8, "ffffffff")),
        (BatchFault.TRUNCATED, changed(8, "7fffffff")),
        (BatchFault.CORRUPT, TWO_RECORDS[:20] + b"\0" + TWO_RECORDS[21:]),
        (BatchFault.CORRUPT, TWO_RECORDS[:-1] + b"\x02"),
        (BatchFault.MORE_THAN_ONE_BATCH, TWO_RECORDS + TWO_RECORDS),
        (BatchFault.MORE_THAN_ONE_BATCH, TWO_RECORDS + b"\0"),
        (BatchFault.UNSUPPORTED_CODEC, changed(21, "0005")),
        (BatchFault.UNSUPPORTED_CODEC, changed(21, "0007")),
        (BatchFault.CONTROL_BATCH, changed(21, "0020")),
        (BatchFault.INVALID_COUNT, changed(23, "00000000")),
        (BatchFault.INVALID_COUNT, changed(23, "00000002")),
        (BatchFault.INVALID_COUNT, changed(23, "ffffffff")),
        (BatchFault.INVALID_COUNT, changed(57, "00000000")),
        (BatchFault.INVALID_COUNT, changed(57, "ffffffff")),
        (BatchFault.INVALID_COUNT, changed(23, "7fffffff", changed(57, "80000000"))),
        (BatchFault.INVALID_PRODUCER, changed(43, "0000000000000007")),
        (BatchFault.INVALID_PRODUCER, changed(43, "0000000000000007 0000 ffffffff")),
        (BatchFault.INVALID_PRODUCER, changed(43, "0000000000000007 ffff 00000000")),
        (BatchFault.INVALID_PRODUCER, changed(21, "0010")),
        (BatchFault.INVALID_RECORD, changed(61, "10")),  # one byte too long
        (BatchFault.INVALID_RECORD, changed(61, "0c")),  # one byte too short
        (BatchFault.INVALID_RECORD, changed(61, "00")),
        (BatchFault.INVALID_RECORD, changed(61, "0f")),  # negative
        (BatchFault.INVALID_RECORD, changed(64, "02")),  # offset +1 first
        (BatchFault.INVALID_RECORD, changed(72, "00")),  # offset +0 again
        (BatchFault.INVALID_RECORD, changed(72, "04")),  # offset past the last
        (BatchFault.INVALID_RECORD, changed(65, "03")),  # key of -2 bytes
        (BatchFault.INVALID_RECORD, changed(66, "08")),  # value past its record
        (BatchFault.INVALID_RECORD, changed(68, "02")),  # a header that is not there
        (BatchFault.INVALID_RECORD, changed(68, "01")),  # minus one headers
        (BatchFault.WRONG_MAX_TIMESTAMP, changed(35, "0000000000001002")),
        (BatchFault.WRONG_MAX_TIMESTAMP, changed(35, "0000000000001004")),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_broker_refuses_from_a_producer(fault: BatchFault, batch: bytes) -> None:
    assert fault_of(batch) == fault


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (TWO_RECORDS[:60], "60 bytes, a batch header has 61"),
        (TWO_RECORDS[:-1], "batch of 77 bytes in 76 bytes"),
        (changed(16, "01"), "magic 1, expected 2"),
        (changed(8, "00000030"), "batch of 60 bytes, a batch header has 61"),
        (changed(57, "00000001"), "1 records, last offset delta 1"),
        (TWO_RECORDS[:17] + bytes(4) + TWO_RECORDS[21:], "0x00000000 in the header, 0x0ed0ce06"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_names_both_values(batch: bytes, message: str) -> None:
    with pytest.raises(InvalidBatch, match=message):
        check_batch(batch)


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_of_a_compressed_batch_header_crc_and_count_are_checked(codec: Codec) -> None:
    batch = encode_batch([b"a"] * 3, timestamps_ms=NOW, codec=codec)
    assert check_batch(batch).codec == codec
    assert fault_of(batch[:-1] + bytes([batch[-1] ^ 1])) == BatchFault.CORRUPT
    assert fault_of(changed(57, "00000002", batch)) == BatchFault.INVALID_COUNT
    # The records themselves are the reader's to decompress.
    broken = with_crc(batch[:-1] + bytes([batch[-1] ^ 0xFF]))
    assert check_batch(broken).records_count == 3


def test_a_wrong_max_timestamp_is_put_right_in_writable_bytes() -> None:
    batch = bytearray(changed(35, "0000000000009999"))
    assert check_batch(batch).max_timestamp == 0x1003
    assert batch == TWO_RECORDS
    assert check_batch(memoryview(bytearray(changed(35, "00")))).max_timestamp == 0x1003


@pytest.mark.parametrize(
    "batch",
    [
        TWO_RECORDS,
        changed(72, "06", changed(23, "00000003")),  # offsets 0 and 3
        changed(64, "02", changed(72, "06", changed(23, "00000003"))),  # 1 and 3
        changed(21, "0030"),  # control
        changed(35, "0000000000009999"),  # max timestamp of a record since filtered out
        EMPTIED,
        changed(21, "0004", EMPTIED),  # emptied, compressed as it was before
    ],
    ids=["plain", "hole", "hole_first", "control", "old_max_timestamp", "emptied", "emptied_zstd"],
)
def test_a_log_may_hold_holes_control_batches_and_emptied_ones(batch: bytes) -> None:
    assert check_batch(batch, stored=True).size == len(batch)
    decode_batch(batch)


@pytest.mark.parametrize(
    ("fault", "batch"),
    [
        (BatchFault.INVALID_COUNT, changed(57, "00000003")),
        (BatchFault.INVALID_COUNT, changed(23, "80000000")),
        (BatchFault.INVALID_RECORD, changed(57, "00000001")),  # bytes behind the last record
        (BatchFault.INVALID_RECORD, changed(57, "00000000")),
        (BatchFault.INVALID_RECORD, changed(72, "00")),  # offsets do not rise
        (BatchFault.INVALID_RECORD, changed(72, "04")),  # past the last offset
        (BatchFault.MORE_THAN_ONE_BATCH, TWO_RECORDS * 2),
        (BatchFault.CORRUPT, TWO_RECORDS[:-1] + b"\x02"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_damage_in_a_log_is_found(fault: BatchFault, batch: bytes) -> None:
    assert fault_of(batch, stored=True) == fault
    with pytest.raises(InvalidBatch) as caught:
        decode_batch(batch)
    assert caught.value.fault == fault


def test_every_flipped_bit_that_the_crc_covers_is_found() -> None:
    for position in range(17, len(TWO_RECORDS)):
        for bit in range(8):
            batch = bytearray(TWO_RECORDS)
            batch[position] ^= 1 << bit
            assert fault_of(batch, stored=True) == BatchFault.CORRUPT


def test_patching_changes_offset_and_epoch_and_leaves_the_crc_valid() -> None:
    batch = bytearray(TWO_RECORDS)
    patch_batch(batch, 2**40, 9)
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch, header.next_offset) == (2**40, 9, 2**40 + 2)
    assert batch[16:] == TWO_RECORDS[16:]
    assert decode_batch(batch).offsets() == [2**40, 2**40 + 1]


def test_log_append_time_is_every_records_timestamp() -> None:
    batch = bytearray(TWO_RECORDS)
    set_log_append_time(batch, NOW)
    header = check_batch(batch)
    assert header.is_log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (0x1000, NOW)
    assert [record.timestamp_ms for record in decode_batch(batch)] == [NOW, NOW]
    assert batch[61:] == TWO_RECORDS[61:]


@random
@given(columns(), st.sampled_from(Codec))
def test_what_was_encoded_is_decoded(case: Columns, codec: Codec) -> None:
    batch = encode_batch(**case, codec=codec)
    header = check_batch(batch)
    assert header.max_timestamp == max(case["timestamps_ms"])
    decoded = decode_batch(batch)
    assert len(decoded) == len(case["values"])
    assert decoded.values() == case["values"]
    assert decoded.keys() == case["keys"]
    assert decoded.timestamps() == case["timestamps_ms"]
    assert decoded.headers() == [tuple(headers) for headers in case["headers"]]
    assert [tuple(record) for record in decoded.records()] == list(
        zip(
            decoded.offsets(),
            decoded.timestamps(),
            decoded.keys(),
            decoded.values(),
            decoded.headers(),
            strict=True,
        )
    )


@random
@given(damaged())
def test_damaged_bytes_decode_or_raise_an_invalid_batch(batch: bytes) -> None:
    with contextlib.suppress(InvalidBatch):
        decoded = decode_batch(batch, size_max=10_000)
        assert len(decoded.records()) == len(decoded.values()) == len(decoded)
        assert decoded.columns().records_count == len(decoded)


def column(gathered: Gathered) -> list[bytes | None]:
    """What an Arrow column of these buffers says."""
    return [
        None
        if gathered.validity is not None and not gathered.validity[i >> 3] >> (i & 7) & 1
        else bytes(gathered.data[gathered.offsets[i] : gathered.offsets[i + 1]])
        for i in range(len(gathered.offsets) - 1)
    ]


@random
@given(columns())
def test_columns_hold_what_the_lists_hold(case: Columns) -> None:
    columns = decode_batch(encode_batch(**case)).columns()
    n = len(case["values"])
    assert columns.records_count == n
    assert columns.offsets.tolist() == list(range(n))
    assert columns.timestamps.tolist() == case["timestamps_ms"]
    assert column(columns.values) == case["values"]
    assert column(columns.keys) == case["keys"]
    pairs = [pair for headers in case["headers"] for pair in headers]
    assert column(columns.header_keys) == [key.encode() for key, _ in pairs]
    assert column(columns.header_values) == [value for _, value in pairs]
    starts = columns.header_starts.tolist()
    assert [end - start for start, end in pairwise(starts)] == [
        len(headers) for headers in case["headers"]
    ]


def test_the_columns_of_several_batches_are_one() -> None:
    first = encode_batch([b"a", None], headers=[[("h", b"x")], None], timestamps_ms=5)
    second = encode_batch([b"bc"], keys=[b"k"], timestamps_ms=6)
    third = encode_batch([b""], headers=[[("i", None), ("j", b"")]], timestamps_ms=7)
    (gap,) = gap_batches(3, 9, GapReason.CAP, 0, 0)
    columns = columns_of([decode_batch(batch) for batch in (first, second, gap, third)])
    assert columns.records_count == 4
    assert columns.offsets.tolist() == [0, 1, 0, 0]
    assert columns.timestamps.tolist() == [5, 5, 6, 7]
    assert column(columns.values) == [b"a", None, b"bc", b""]
    assert column(columns.keys) == [None, None, b"k", None]
    assert columns.header_starts.tolist() == [0, 1, 1, 1, 3]
    assert column(columns.header_keys) == [b"h", b"i", b"j"]
    assert column(columns.header_values) == [b"x", None, b""]
    assert columns_of([]).records_count == 0


def test_a_header_name_that_is_not_utf8_does_not_stop_the_reader() -> None:
    batch = encode_batch([b"v"], headers=[[("ab", b"x")]], timestamps_ms=NOW)
    position = batch.index(b"ab")
    batch = changed(position, "ff62", batch)
    assert decode_batch(batch).headers() == [(("\\xffb", b"x"),)]


def test_compressed_records_are_bounded_by_the_caller() -> None:
    batch = encode_batch([bytes(100_000)], timestamps_ms=NOW, codec=Codec.ZSTD)
    assert decode_batch(batch, size_max=100_020).values() == [bytes(100_000)]
    with pytest.raises(InvalidBatch) as caught:
        decode_batch(batch, size_max=100_000)
    assert caught.value.fault == BatchFault.TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_records_that_do_not_decompress_are_refused_on_reading(codec: Codec) -> None:
    batch = encode_batch([b"a" * 50], timestamps_ms=NOW, codec=codec)
    noise = batch[:HEADER_SIZE] + b"\xff" * (len(batch) - HEADER_SIZE)
    with pytest.raises(InvalidBatch) as caught:
        decode_batch(with_crc(noise))
    assert caught.value.fault == BatchFault.INVALID_COMPRESSION


def test_a_count_that_the_compressed_records_do_not_have_is_refused_on_reading() -> None:
    batch = encode_batch([b"a", b"b"], timestamps_ms=NOW, codec=Codec.LZ4)
    batch = changed(23, "00000002", changed(57, "00000003", batch))
    assert check_batch(batch).records_count == 3
    with pytest.raises(InvalidBatch) as caught:
        decode_batch(batch)
    assert caught.value.fault == BatchFault.INVALID_RECORD


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        encode_batch([b"a", b"b"], keys=[b"k"], timestamps_ms=NOW)
    with pytest.raises(ValueError, match="3 timestamps_ms for 2 values"):
        encode_batch([b"a", b"b"], timestamps_ms=[1, 2, 3])
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([], timestamps_ms=NOW)
    with pytest.raises(ValueError, match="64 bits"):
        encode_batch([b"a"], timestamps_ms=2**63)


@pytest.mark.parametrize("codec", Codec)
def test_producer_fields_stand_in_the_header(codec: Codec) -> None:
    batch = encode_batch(
        [b"a"] * 4,
        timestamps_ms=NOW,
        codec=codec,
        producer_id=77,
        producer_epoch=5,
        base_sequence=2**31 - 2,
        transactional=True,
    )
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch) == (77, 5)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 2, 1)
    assert (header.codec, header.is_transactional) == (codec, True)


def test_a_partial_last_batch_is_left_out_wherever_it_is_cut() -> None:
    log = TWO_RECORDS + TWO_RECORDS
    for cut in range(len(log) + 1):
        whole = [bytes(batch) for batch in iter_batches(log[:cut])]
        assert whole == [TWO_RECORDS] * (cut // len(TWO_RECORDS))


def test_a_length_below_a_header_ends_the_iteration_with_an_error() -> None:
    for length in ("00000030", "00000000", "ffffffff", "80000000"):
        batches = iter_batches(TWO_RECORDS + changed(8, length))
        assert next(batches) == TWO_RECORDS
        with pytest.raises(InvalidBatch, match="a batch header has 61"):
            next(batches)


@pytest.mark.parametrize("codec", Codec)
def test_the_first_record_not_older_than_a_time_is_found_exactly(codec: Codec) -> None:
    batch = bytearray(encode_batch([b"a", b"b", b"c"], timestamps_ms=[100, 300, 200], codec=codec))
    patch_batch(batch, 50, 0)
    assert first_at_or_after(batch, 0) == (50, 100)
    assert first_at_or_after(batch, 101) == (51, 300)
    assert first_at_or_after(batch, 300) == (51, 300)
    assert first_at_or_after(batch, 301) is None
    set_log_append_time(batch, 1000)
    assert first_at_or_after(batch, 301) == (50, 1000)
    assert first_at_or_after(batch, 1001) is None


# base offset 7, length 49, leader epoch 3, magic 2, crc |
# attributes: reason 2 and the control bit, last delta 2, base time -1, max time 0x2000,
# producer -1 -1 -1, count 0
GAP = bytes.fromhex(
    "0000000000000007 00000031 00000003 02 db51422a"
    "0220 00000002 ffffffffffffffff 0000000000002000 ffffffffffffffff ffff ffffffff 00000000"
)


def test_a_gap_is_these_61_bytes() -> None:
    assert gap_batches(7, 10, GapReason.CORRUPTION, 0x2000, 3) == [GAP]
    header = check_batch(GAP, stored=True)
    assert (header.base_offset, header.next_offset, header.records_count) == (7, 10, 0)
    assert gap_reason(header) == GapReason.CORRUPTION
    assert decode_batch(GAP).records() == []


def test_a_gap_from_a_producer_is_refused() -> None:
    assert fault_of(GAP) == BatchFault.CONTROL_BATCH


def test_a_gap_past_31_bits_is_a_chain_without_hole_or_overlap() -> None:
    ranges = [
        (header.base_offset, header.next_offset)
        for header in map(read_header, gap_batches(5, 2**33, GapReason.CAP, 0, 0))
    ]
    assert ranges == [
        (5, 5 + 2**31),
        (5 + 2**31, 5 + 2**32),
        (5 + 2**32, 5 + 3 * 2**31),
        (5 + 3 * 2**31, 2**33),
    ]
    assert len(gap_batches(0, 2**31, GapReason.CAP, 0, 0)) == 1
    assert len(gap_batches(0, 2**31 + 1, GapReason.CAP, 0, 0)) == 2


def test_an_empty_gap_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"\[7, 7\) is empty"):
        gap_batches(7, 7, GapReason.TTL, 0, 0)


@pytest.mark.parametrize("reason", GapReason)
def test_every_reason_is_read_back_and_other_batches_have_none(reason: GapReason) -> None:
    (gap,) = gap_batches(0, 1, reason, 0, 0)
    assert gap_reason(read_header(gap)) == reason
    assert gap_reason(read_header(TWO_RECORDS)) is None
    assert gap_reason(read_header(changed(21, "7f20", GAP))) is None


@pytest.mark.parametrize("codec", Codec)
def test_a_filtered_batch_keeps_its_offsets_and_its_producer(codec: Codec) -> None:
    batch = bytearray(
        encode_batch(
            [b"a", b"b", b"c", b"d"],
            timestamps_ms=[NOW, NOW + 9, NOW + 5, NOW + 7],
            codec=codec,
            producer_id=7,
            producer_epoch=1,
            base_sequence=40,
        )
    )
    patch_batch(batch, 100, 6)
    before = read_header(batch)
    filtered = filter_batch(batch, {101, 103}, NOW)
    header = check_batch(filtered, stored=True)
    assert header == before._replace(
        records_count=2,
        max_timestamp=NOW + 5,
        batch_length=header.batch_length,
        crc=header.crc,
    )
    assert [(record.offset, record.value) for record in decode_batch(filtered)] == [
        (100, b"a"),
        (102, b"c"),
    ]
    assert decode_batch(filtered).offsets() == [100, 102]
    again = filter_batch(filtered, {100}, NOW)
    assert [tuple(r)[:2] for r in decode_batch(again)] == [(102, NOW + 5)]
    assert filter_batch(batch, {7}, NOW) == bytes(batch)


def test_filtering_keeps_the_append_time() -> None:
    batch = bytearray(TWO_RECORDS)
    set_log_append_time(batch, NOW)
    assert decode_batch(filter_batch(batch, {0}, 0)).timestamps() == [NOW]

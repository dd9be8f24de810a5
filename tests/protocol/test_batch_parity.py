"""The C kernel and its pure twin are one specification: same verdict, same fault, same bytes."""

import inspect
import re
from array import array
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segbroker.protocol import batch_pure, kernel
from segbroker.protocol.batch_layout import (
    HEADER,
    HEADER_SIZE,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    BatchFault,
    BatchFields,
    CheckMode,
    HeaderTuple,
    IndexFlag,
    RecordIndex,
    Strings,
)
from segbroker.protocol.batch_pure import encode_headers
from segbroker.protocol.markers import Outcome, encode_marker
from segbroker.protocol.record_batch import (
    GapReason,
    Record,
    encode_batch,
    gap_batches,
    patch_batch,
)

from ..support.extent import share
from .batches import NOW, Columns, columns, damaged, with_crc

if not kernel.KERNEL_IS_NATIVE:
    pytest.skip("built without a kernel", allow_module_level=True)

from segbroker.protocol import batch_native

NATIVE = Path(__file__).parents[2] / "protocol" / "native"
KERNEL_C = (NATIVE / "kernel.c").read_text()
PLAIN = BatchFields(0, -1, -1, -1)

many = settings(max_examples=share(150, 400))


class LongRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: HeaderTuple


def c_enum(name: str) -> dict[str, int]:
    (body,) = re.findall(rf"enum {name} {{(.*?)}}", KERNEL_C, re.DOTALL)
    members: dict[str, int] = {}
    for item in re.findall(r"(\w+)(?:\s*=\s*(\d+))?", body):
        members[item[0]] = int(item[1]) if item[1] else len(members)
    return members


def test_the_numbers_in_the_kernel_are_those_of_the_enums() -> None:
    faults = c_enum("fault")
    assert faults == {name: BatchFault[name] for name in faults}
    assert c_enum("mode") == {mode.name: mode for mode in CheckMode}
    assert c_enum("flag") == {flag.name: flag for flag in IndexFlag}


def test_both_twins_offer_the_same_functions_with_the_same_parameters() -> None:
    offered = inspect.getmembers(
        batch_native,
        lambda item: inspect.isfunction(item) and item.__module__ == batch_native.__name__,
    )
    assert {name for name, _ in offered} >= {"check", "index", "encode", "select", "records"}
    for name, function in offered:
        twin = getattr(batch_pure, name)
        assert list(inspect.signature(function).parameters) == list(
            inspect.signature(twin).parameters
        ), name


def index_both(batch: bytes) -> list[RecordIndex | None]:
    header = HEADER.unpack_from(batch)
    return [
        twin.index(batch, HEADER_SIZE, header[12], header[0], header[6], header[7], None)
        for twin in (batch_native, batch_pure)
    ]


@many
@given(columns())
def test_both_encode_the_same_bytes(case: Columns) -> None:
    sections = [encode_headers(h) for h in case["headers"]]
    timestamps = array("q", case["timestamps_ms"])
    fields = BatchFields(16, 7, 3, INT32_MAX)
    for keys, headers, times in (
        (case["keys"], sections, timestamps),
        (None, None, NOW),
        (case["keys"], None, timestamps),
    ):
        native = batch_native.encode(case["values"], keys, headers, times, fields)
        assert native == batch_pure.encode(case["values"], keys, headers, times, fields)


@many
@given(damaged(), st.sampled_from(CheckMode))
def test_both_find_the_same_fault_in_damaged_batches(batch: bytes, mode: CheckMode) -> None:
    fault = batch_native.check(batch, mode)
    assert fault == batch_pure.check(batch, mode)
    assert fault == batch_native.check(memoryview(bytearray(batch)), mode)


@many
@given(damaged())
def test_both_index_and_read_damaged_batches_alike(batch: bytes) -> None:
    if len(batch) < HEADER_SIZE:
        return
    native, pure = index_both(batch)
    assert native == pure
    if native is None:
        return
    n = native.records_count
    headers = batch_native.index_headers(batch, native)
    assert headers == batch_pure.index_headers(batch, native)
    for first, size in ((0, native.values_size), (2 * n, native.keys_size)):
        assert batch_native.slices(batch, native.ints, first, n) == batch_pure.slices(
            batch, native.ints, first, n
        )
        strings = Strings(batch, native.ints, first, n)
        for parts, copies in (([strings], 1), ([strings] * 3, 3), ([], 0)):
            assert batch_native.gather(parts, copies * size) == batch_pure.gather(
                parts, copies * size
            )
    assert batch_native.header_starts([native] * 2) == batch_pure.header_starts([native] * 2)
    whole = range(n)
    all_tuples = batch_pure.header_tuples(batch, native, headers, whole)
    all_records = batch_pure.records(batch, native, Record, all_tuples, (), whole)
    prefix = ("topic", 7)
    for part in (whole, whole[n // 3 : n - n // 4], whole[n:]):
        tuples = batch_native.header_tuples(batch, native, headers, part)
        assert tuples == batch_pure.header_tuples(batch, native, headers, part)
        assert tuples == all_tuples[part.start : part.stop]
        for given_headers in (tuples, None):
            records = batch_native.records(batch, native, Record, given_headers, (), part)
            assert records == batch_pure.records(batch, native, Record, given_headers, (), part)
            assert all(type(record) is Record for record in records)
            if given_headers is not None:
                assert records == all_records[part.start : part.stop]
            longer = batch_native.records(batch, native, LongRecord, given_headers, prefix, part)
            assert longer == batch_pure.records(
                batch, native, LongRecord, given_headers, prefix, part
            )
            assert [record[2:] for record in longer] == records
            assert all(type(record) is LongRecord for record in longer)


@many
@given(damaged(), st.data())
def test_both_select_the_same_records(batch: bytes, data: st.DataObject) -> None:
    if len(batch) < HEADER_SIZE:
        return
    count = HEADER.unpack_from(batch)[12]
    if not 0 <= count <= 1000:
        return
    keep = bytes(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    assert batch_native.select(batch, HEADER_SIZE, count, keep) == batch_pure.select(
        batch, HEADER_SIZE, count, keep
    )


@many
@given(st.binary(max_size=40), st.integers(-1, 6), st.integers(-1, 9), st.integers())
def test_both_refuse_or_read_random_records_alike(
    noise: bytes, count: int, last_delta: int, base: int
) -> None:
    base_timestamp = (base + 2**63) % 2**64 - 2**63
    arguments = (noise, 0, count, 5, last_delta, base_timestamp, None)
    assert batch_native.index(*arguments) == batch_pure.index(*arguments)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches and gaps behind one another, some of them damaged."""
    parts: list[bytes] = []
    offset = draw(st.sampled_from([0, 0, 7, INT32_MAX, INT64_MAX - 5, -3]))
    for _ in range(draw(st.integers(0, 6))):
        delta = draw(st.integers(0, 3))
        match draw(st.sampled_from(["gap", "batch", "damaged"])):
            case "gap":
                (part,) = gap_batches(0, delta + 1, GapReason.DELETED, 0, 0)
            case "batch":
                part = encode_batch([b"v"] * (delta + 1), timestamps_ms=0)
            case _:
                part = draw(damaged())
        parts.append(offset.to_bytes(8, "big", signed=True) + part[8:])
        offset = min(offset + delta + 1, INT64_MAX)
    return b"".join(parts)[: draw(st.sampled_from([None, -1, 70]))]


@many
@given(logs(), st.lists(st.integers(-5, 20) | st.integers(INT64_MIN, INT64_MAX), max_size=5))
def test_both_end_with_the_same_gap(log: bytes, offsets: list[int]) -> None:
    wanted = array("q", sorted(offsets))
    assert batch_native.until_gap(log, wanted) == batch_pure.until_gap(log, wanted)
    view = memoryview(bytearray(log))
    assert batch_native.until_gap(view, wanted) == batch_pure.until_gap(view, wanted)


@pytest.mark.parametrize("twin", [batch_native, batch_pure])
def test_what_covers_an_offset_and_has_no_records_is_the_last(twin: ModuleType) -> None:
    """| 0 1 | 2 3 4 gap | 5 control | 6 gap |"""
    marker = bytearray(encode_marker(Outcome.ABORT, 7, 0, 0))
    patch_batch(marker, 5, 0)
    batches = [encode_batch([b"v"] * 2, timestamps_ms=0)]
    batches += gap_batches(2, 5, GapReason.CORRUPTION, 0, 0)
    batches += [bytes(marker)]
    batches += gap_batches(6, 7, GapReason.DELETED, 0, 0)
    log = b"".join(batches)
    ends = list(accumulate(map(len, batches)))
    for offsets, size, end_offset in (
        ([], ends[3], 7),
        ([0, 1, 5], ends[3], 7),
        ([1, 2], ends[1], 5),
        ([4], ends[1], 5),
        ([-9, 3, 6], ends[1], 5),
        ([5, 6], ends[3], 7),
        ([7], ends[3], 7),
    ):
        assert twin.until_gap(log, array("q", offsets)) == (size, end_offset)
        assert twin.until_gap(log[:-1], array("q", offsets)) == (
            (size, end_offset) if size < len(log) else (ends[2], 6)
        )
    assert twin.until_gap(b"", array("q")) == (0, -1)


@pytest.mark.parametrize(
    ("varint", "is_legal"),
    [
        ("00", True),
        ("80 00", True),  # longer than needed
        ("80 80 80 80 00", True),
        ("80 80 80 80 80 00", False),  # a sixth byte
        ("80 80 80 80 10", False),  # a 33rd bit
        ("ff", False),  # cut short
    ],
)
def test_a_varint_has_at_most_five_bytes_and_32_bits(varint: str, is_legal: bool) -> None:
    offset = bytes.fromhex(varint)
    body = b"\0\0" + offset + b"\x01\x02v\0"
    record = bytes([2 * len(body)]) + body
    for twin in (batch_native, batch_pure):
        index = twin.index(record, 0, 1, 0, 0, 0, None)
        assert (index is not None) == is_legal


@pytest.mark.parametrize(
    ("varlong", "delta"),
    [
        ("fe ff ff ff ff ff ff ff ff 01", 2**63 - 1),
        ("ff ff ff ff ff ff ff ff ff 01", -(2**63)),
        ("fe ff ff ff ff ff ff ff ff 02", None),  # a 65th bit
        ("80 80 80 80 80 80 80 80 80 80 00", None),  # an eleventh byte
    ],
)
def test_a_varlong_has_at_most_ten_bytes_and_64_bits(varlong: str, delta: int | None) -> None:
    body = b"\0" + bytes.fromhex(varlong) + b"\0\x01\x02v\0"
    record = bytes([2 * len(body)]) + body
    for twin in (batch_native, batch_pure):
        index = twin.index(record, 0, 1, 0, 0, 0, None)
        assert (None if index is None else index.longs[1]) == delta


@pytest.mark.parametrize("twin", [batch_native, batch_pure])
def test_records_behind_the_counted_ones_are_refused(twin: ModuleType) -> None:
    batch = encode_batch([b"a", b"b"], timestamps_ms=0)
    assert twin.select(batch, HEADER_SIZE, 2, b"\1\1") == (batch[HEADER_SIZE:], 0)
    assert twin.select(batch, HEADER_SIZE, 1, b"\1") is None
    assert twin.index(batch, HEADER_SIZE, 1, 0, 1, 0, None) is None


@pytest.mark.parametrize("twin", [batch_native, batch_pure])
def test_a_header_name_is_never_null_and_its_value_may_be(twin: ModuleType) -> None:
    # attributes, time, offset, null key, null value, one header: name of 0 bytes, null value
    legal = bytes.fromhex("10 00 00 00 01 01 02 00 01")
    assert twin.index(legal, 0, 1, 0, 0, 0, None) is not None
    null_name = legal[:7] + b"\x01" + legal[8:]
    assert twin.index(null_name, 0, 1, 0, 0, 0, None) is None


@pytest.mark.parametrize("twin", [batch_native, batch_pure])
def test_holes_between_offsets_are_noticed(twin: ModuleType) -> None:
    dense = twin.index(encode_batch([b"a", b"b"], timestamps_ms=0), HEADER_SIZE, 2, 0, 1, 0, None)
    assert not dense.flags & IndexFlag.HOLES
    # The second record's offset delta, byte 72, is 5.
    batch = bytearray(encode_batch([b"a", b"b"], timestamps_ms=0))
    batch[72] = 10
    sparse = twin.index(bytes(batch), HEADER_SIZE, 2, 0, 5, 0, None)
    assert sparse.flags & IndexFlag.HOLES
    assert sparse.longs[:2].tolist() == [0, 5]


def test_timestamps_past_64_bits_are_refused_by_both() -> None:
    batch = bytearray(encode_batch([b"a", b"b"], timestamps_ms=[0, 5]))
    batch[27:35] = (2**63 - 3).to_bytes(8, "big")
    for twin in (batch_native, batch_pure):
        assert twin.check(with_crc(batch), CheckMode.PRODUCE) == BatchFault.INVALID_RECORD


@pytest.mark.parametrize("twin", [batch_native, batch_pure])
def test_offsets_past_64_bits_are_refused(twin: ModuleType) -> None:
    batch = encode_batch([b"a", b"b"], timestamps_ms=0)
    for base, is_legal in ((2**63 - 2, True), (2**63 - 1, False), (-1, False)):
        index = twin.index(batch, HEADER_SIZE, 2, base, 1, 0, None)
        assert (index is not None) == is_legal


@pytest.mark.parametrize("twin", [batch_native, batch_pure])
def test_a_count_that_does_not_fit_the_bytes_takes_no_memory(twin: ModuleType) -> None:
    assert twin.index(bytes(100), 0, INT32_MAX, 0, INT32_MAX, 0, None) is None
    assert twin.index(bytes(100), 0, -1, 0, INT32_MAX, 0, None) is None


@pytest.mark.parametrize("twin", [batch_native, batch_pure])
def test_what_a_batch_cannot_hold_is_refused_before_it_is_encoded(twin: ModuleType) -> None:
    with pytest.raises(TypeError, match="item 1 is str, expected bytes or None"):
        twin.encode([b"a", "b"], None, None, 0, PLAIN)
    with pytest.raises(TypeError, match="item 0 is bytearray"):
        twin.encode([b"a"], [bytearray(b"k")], None, 0, PLAIN)
    with pytest.raises(ValueError, match="apart"):
        twin.encode([b"a", b"b"], None, None, array("q", [-(2**62), 2**63 - 1]), PLAIN)


def test_a_batch_past_31_bits_is_refused_by_the_kernel() -> None:
    megabytes = bytes(64 << 20)
    with pytest.raises(ValueError, match=r"less than 2\^31"):
        batch_native.encode([megabytes] * 32, None, None, 0, PLAIN)

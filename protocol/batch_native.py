"""The record batch by the C kernel: the functions of batch_pure, same names, same results.

Importing this fails where no kernel was built.  One call into C per batch, never per record; a
call costs about 0.3 us.  What a function means is said in batch_pure and nowhere else.

Lists given to C are copied first: the copy is this thread's alone, so the bytes in it stay alive
and in place while C reads them without the interpreter's lock.
"""

import sys
from array import array
from collections.abc import Sequence

from ._kernel import ffi, lib
from .batch_layout import (
    INT32_MAX,
    INT64_MAX,
    RECORD_SIZE_MIN,
    AnyRecord,
    BatchFields,
    Gathered,
    HeaderIndex,
    HeaderTuple,
    RecordIndex,
    Strings,
)
from .batch_pure import BATCH_TOO_LARGE, TIMESTAMPS_APART, check_bytes
from .checksums import Buffer

if sys.implementation.name != "cpython":
    raise ImportError("id() is an address in CPython only")

from_buffer = ffi.from_buffer
_U8, _I32, _I64 = (ffi.typeof(name) for name in ("uint8_t[]", "int32_t[]", "int64_t[]"))
_TOTALS, _I64_ONE = ffi.typeof("int64_t[4]"), ffi.typeof("int64_t[1]")

# The results of objects.c.
_DONE, _NO_MEMORY, _TOO_LARGE, _TIMESTAMPS_APART, _NOT_BYTES = range(5)


def check(batch: Buffer, mode: int) -> int:
    # cffi takes bytes as they are; a buffer object costs a quarter of a microsecond.
    data = batch if isinstance(batch, bytes) else from_buffer(_U8, batch)
    return lib.sb_check(data, len(batch), mode)


def index(
    data: bytes,
    position: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
) -> RecordIndex | None:
    size = len(data)
    if size > INT32_MAX or not 0 <= base_offset <= INT64_MAX - max(last_offset_delta, 0):
        return None
    # A lie about the count takes no memory.
    if not 0 <= count <= (size - position) // RECORD_SIZE_MIN:
        return None
    ints = array("i", bytes(24 * count))
    longs = array("q", bytes(16 * count))
    totals = ffi.new(_TOTALS)
    if not lib.sb_index(
        data,
        position,
        size,
        count,
        base_offset,
        last_offset_delta,
        base_timestamp,
        append_time is not None,
        append_time or 0,
        from_buffer(_I32, ints),
        from_buffer(_I64, longs),
        totals,
    ):
        return None
    flags, keys_size, values_size, headers_count = ffi.unpack(totals, 4)
    return RecordIndex(count, flags, ints, longs, keys_size, values_size, headers_count)


def slices(data: bytes, ints: "array[int]", first: int, count: int) -> list[bytes | None]:
    out: list[bytes | None] = [None] * count
    if count:
        starts = from_buffer(_I32, ints) + first
        code = lib.sb_slices(id(out), data, starts, starts + count, count)
        if code != _DONE:
            raise MemoryError
    return out


def header_tuples(
    data: bytes, records: RecordIndex, headers: HeaderIndex, part: range
) -> list[HeaderTuple]:
    out: list[HeaderTuple] = [()] * len(part)
    code = lib.sb_header_tuples(
        id(out),
        data,
        from_buffer(_I32, records.ints) + 5 * records.records_count,
        part.start,
        len(part),
        from_buffer(_I32, headers.ints),
        headers.headers_count,
    )
    if code != _DONE:
        raise MemoryError
    return out


def records(
    data: bytes,
    records: RecordIndex,
    record_type: type[AnyRecord],
    headers: Sequence[HeaderTuple] | None,
    prefix: tuple[object, ...],
    part: range,
) -> list[AnyRecord]:
    out: list[AnyRecord] = [None] * len(part)  # type: ignore[list-item]  # filled by the kernel
    private = None if headers is None else list(headers)
    code = lib.sb_records(
        id(out),
        id(record_type),
        id(prefix),
        data,
        records.flags,
        from_buffer(_I32, records.ints),
        from_buffer(_I64, records.longs),
        records.records_count,
        part.start,
        len(part),
        0 if private is None else id(private),
    )
    if code != _DONE:
        raise MemoryError
    return out


def index_headers(data: bytes, records: RecordIndex) -> HeaderIndex:
    ints = array("i", bytes(16 * records.headers_count))
    sizes = array("q", bytes(16))
    lib.sb_index_headers(
        data,
        len(data),
        from_buffer(_I32, records.ints),
        records.records_count,
        records.headers_count,
        from_buffer(_I32, ints),
        from_buffer(_I64, sizes),
    )
    return HeaderIndex(records.headers_count, ints, sizes[0], sizes[1])


def gather(parts: Sequence[Strings], size: int) -> Gathered:
    rows = sum(part.items_count for part in parts)
    out = bytearray(size)
    offsets = array("i", bytes(4 * rows + 4))
    validity = bytearray((rows + 7) // 8)
    to_out, to_validity = from_buffer(_U8, out), from_buffer(_U8, validity)
    to_offsets = from_buffer(_I32, offsets)
    row = nulls = 0
    for data, ints, first, count in parts:
        starts = from_buffer(_I32, ints) + first
        nulls |= lib.sb_gather(
            data, starts, starts + count, row, count, to_out, size, to_offsets, to_validity
        )
        row += count
    assert nulls >= 0 and offsets[rows] == size, (  # noqa: PT018 - one thing: the sizes agree
        f"gathered {offsets[rows]} bytes, the indexes say {size}"
    )
    return Gathered(out, offsets, validity if nulls else None)


def header_starts(indexes: Sequence[RecordIndex]) -> "array[int]":
    rows = sum(index.records_count for index in indexes)
    out = array("i", bytes(4 * rows + 4))
    pointer = from_buffer(_I32, out)
    row = 0
    for index in indexes:
        n = index.records_count
        lib.sb_header_starts(from_buffer(_I32, index.ints) + 5 * n, n, pointer + row)
        row += n
    return out


def encode(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[bytes] | None,
    timestamps: "int | array[int]",
    fields: BatchFields,
) -> bytes:
    out: list[bytes] = [b""]
    columns = [None if column is None else list(column) for column in (values, keys, headers)]
    ids = [0 if column is None else id(column) for column in columns]
    one = isinstance(timestamps, int)
    code = lib.sb_encode(
        id(out),
        ids[0],
        ids[1],
        ids[2],
        ffi.NULL if one else from_buffer(_I64, timestamps),
        timestamps if isinstance(timestamps, int) else 0,
        fields.attributes,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
    )
    if code == _DONE:
        return out[0]
    if code == _NOT_BYTES:
        for column in columns:
            check_bytes(column or ())
    if code == _TIMESTAMPS_APART:
        raise ValueError(TIMESTAMPS_APART)
    if code == _TOO_LARGE:
        raise ValueError(BATCH_TOO_LARGE)
    raise MemoryError


def select(data: bytes, position: int, count: int, keep: bytes) -> tuple[bytes, int] | None:
    assert len(keep) == count, f"{len(keep)} flags for {count} records"
    out = bytearray(len(data) - position)
    latest = array("q", [0])
    written = lib.sb_select(
        data,
        position,
        len(data),
        count,
        keep,
        from_buffer(_U8, out),
        from_buffer(_I64, latest),
    )
    return None if written < 0 else (bytes(memoryview(out)[:written]), latest[0])


def until_gap(data: Buffer, offsets: "array[int]") -> tuple[int, int]:
    end = ffi.new(_I64_ONE)
    size = lib.sb_until_gap(
        from_buffer(_U8, data), len(data), from_buffer(_I64, offsets), len(offsets), end
    )
    return size, end[0]

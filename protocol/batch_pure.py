"""The record batch in plain Python: a readable specification of the C kernel.

Every function here has a twin of the same signature in `batch_native`; tests compare the two on
good, mutated and random bytes: same verdict, same fault, same bytes.  If no compiler was found at
installation this module is used, some ten times slower.

    record:  length varint | attributes i8 | timestamp_delta varlong | offset_delta varint
             | key_length varint | key | value_length varint | value
             | header_count varint | headers ...
    header:  key_length varint | key (UTF-8) | value_length varint | value

Varints are zigzag, at most 5 bytes and 32 bits (varlong: 10 bytes, 64 bits); longer than needed
is tolerated, as Kafka does.  A length of -1 means null: allowed for keys, values and header
values, never for header keys.  The attributes byte of a record is unused and ignored.

Invariant: nothing is read outside [position, end), no allocation is larger than a small multiple
of the bytes at hand; a count is believed only after it fits into them.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice, repeat
from typing import NamedTuple

from .batch_layout import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    CODEC_LAST,
    CONTROL_BIT,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    RECORD_SIZE_MIN,
    TRANSACTIONAL_BIT,
    AnyRecord,
    BatchFault,
    BatchFields,
    CheckMode,
    Gathered,
    HeaderIndex,
    HeaderTuple,
    IndexFlag,
    RecordIndex,
    Strings,
)
from .checksums import Buffer, crc32c


class MalformedError(Exception):
    """The bytes are not a sequence of records; never leaves this module."""


class RecordSpan(NamedTuple):
    """One record: its numbers, and where its parts lie."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_start: int
    key_end: int
    value_start: int
    value_end: int
    headers_start: int
    headers_count: int


def read_unsigned(data: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    """An unsigned varint of at most `bits` bits, and the position behind it."""
    result = shift = 0
    while True:
        if position >= end or shift >= bits:
            raise MalformedError
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if result >> bits:
        raise MalformedError
    return result, position


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    result, position = read_unsigned(data, position, end, 32)
    return (result >> 1) ^ -(result & 1), position


def read_varlong(data: bytes, position: int, end: int) -> tuple[int, int]:
    result, position = read_unsigned(data, position, end, 64)
    return (result >> 1) ^ -(result & 1), position


def read_span(data: bytes, position: int, end: int, least: int) -> tuple[int, int, int]:
    """A length and that many bytes: (start, end, position behind); null is (-1, -1, ...)."""
    length, position = read_varint(data, position, end)
    if not least <= length <= end - position:
        raise MalformedError
    if length < 0:
        return -1, -1, position
    return position, position + length, position + length


def read_record(data: bytes, position: int, limit: int) -> RecordSpan:
    start = position
    length, position = read_varint(data, position, limit)
    if not 0 < length <= limit - position:
        raise MalformedError
    end = position + length
    position += 1  # attributes: unused
    timestamp_delta, position = read_varlong(data, position, end)
    offset_delta, position = read_varint(data, position, end)
    key_start, key_end, position = read_span(data, position, end, -1)
    value_start, value_end, position = read_span(data, position, end, -1)
    headers_count, position = read_varint(data, position, end)
    if not 0 <= headers_count <= (end - position) // 2:
        raise MalformedError
    headers_start = position
    for _ in range(headers_count):
        _, _, position = read_span(data, position, end, 0)
        _, _, position = read_span(data, position, end, -1)
    if position != end:
        raise MalformedError
    return RecordSpan(
        start,
        end,
        timestamp_delta,
        offset_delta,
        key_start,
        key_end,
        value_start,
        value_end,
        headers_start,
        headers_count,
    )


def walk(
    data: bytes, position: int, count: int, last_offset_delta: int, base_timestamp: int
) -> Iterator[RecordSpan]:
    """The `count` records from `position` to the end of `data`, which they fill exactly.

    Offset deltas rise from at least 0 to at most `last_offset_delta`; a timestamp fits 64 bits.
    """
    end = len(data)
    if not 0 <= count <= (end - position) // RECORD_SIZE_MIN:
        raise MalformedError
    previous = -1
    for _ in range(count):
        record = read_record(data, position, end)
        if not previous < record.offset_delta <= last_offset_delta:
            raise MalformedError
        if not INT64_MIN <= base_timestamp + record.timestamp_delta <= INT64_MAX:
            raise MalformedError
        previous = record.offset_delta
        position = record.end
        yield record
    if position != end:
        raise MalformedError


def check(batch: Buffer, mode: int) -> int:
    """The first fault of a batch that should fill `batch` exactly, else BatchFault.NONE."""
    if len(batch) <= MAGIC_POSITION:
        return BatchFault.TRUNCATED
    if batch[MAGIC_POSITION] != MAGIC:
        return BatchFault.UNSUPPORTED_MAGIC
    if len(batch) < HEADER_SIZE:
        return BatchFault.TRUNCATED
    (
        _base_offset,
        batch_length,
        _leader_epoch,
        _magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = HEADER.unpack_from(batch)
    if batch_length < HEADER_SIZE - LENGTH_END:
        return BatchFault.CORRUPT
    if batch_length > len(batch) - LENGTH_END:
        return BatchFault.TRUNCATED
    if batch_length < len(batch) - LENGTH_END:
        return BatchFault.MORE_THAN_ONE_BATCH
    if crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]) != crc:
        return BatchFault.CORRUPT
    if attributes & CODEC_BITS > CODEC_LAST:
        return BatchFault.UNSUPPORTED_CODEC
    if last_offset_delta < 0 or not 0 <= count <= last_offset_delta + 1:
        return BatchFault.INVALID_COUNT
    if mode == CheckMode.PRODUCE:
        if attributes & CONTROL_BIT:
            return BatchFault.CONTROL_BATCH
        if count != last_offset_delta + 1:
            return BatchFault.INVALID_COUNT
        if producer_id >= 0 and (producer_epoch < 0 or base_sequence < 0):
            return BatchFault.INVALID_PRODUCER
        if producer_id < 0 and attributes & TRANSACTIONAL_BIT:
            return BatchFault.INVALID_PRODUCER
    if attributes & CODEC_BITS or mode == CheckMode.HEADER:
        return BatchFault.NONE
    latest = INT64_MIN
    try:
        for record in walk(bytes(batch), HEADER_SIZE, count, last_offset_delta, base_timestamp):
            latest = max(latest, base_timestamp + record.timestamp_delta)
    except MalformedError:
        return BatchFault.INVALID_RECORD
    # Rising, at least 0 and at most count - 1: then the deltas are 0, 1, 2 ...
    if (
        mode == CheckMode.PRODUCE
        and latest != max_timestamp
        and not attributes & LOG_APPEND_TIME_BIT
    ):
        return BatchFault.WRONG_MAX_TIMESTAMP
    return BatchFault.NONE


def index(
    data: bytes,
    position: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
) -> RecordIndex | None:
    """Where the records in data[position:] lie; None when they are not `count` whole records.

    `append_time` (ms), when given, is the timestamp of every record (LogAppendTime).
    """
    if len(data) > INT32_MAX or not 0 <= base_offset <= INT64_MAX - max(last_offset_delta, 0):
        return None
    columns: list[array[int]] = [array("i") for _ in range(6)]
    offsets: array[int] = array("q")
    timestamps: array[int] = array("q")
    flags = keys_size = values_size = headers_count = 0
    try:
        for record in walk(data, position, count, last_offset_delta, base_timestamp):
            for column, number in zip(
                columns,
                (
                    record.value_start,
                    record.value_end,
                    record.key_start,
                    record.key_end,
                    record.headers_start,
                    record.headers_count,
                ),
                strict=True,
            ):
                column.append(number)
            if record.offset_delta != len(offsets):
                flags |= IndexFlag.HOLES
            offsets.append(base_offset + record.offset_delta)
            timestamp = base_timestamp + record.timestamp_delta
            timestamps.append(timestamp if append_time is None else append_time)
            if timestamps[-1] != timestamps[0]:
                flags |= IndexFlag.TIMESTAMPS_DIFFER
            flags |= IndexFlag.NULL_KEYS if record.key_start < 0 else IndexFlag.KEYS
            if record.value_start < 0:
                flags |= IndexFlag.NULL_VALUES
            if record.headers_count:
                flags |= IndexFlag.HEADERS
            keys_size += record.key_end - record.key_start
            values_size += record.value_end - record.value_start
            headers_count += record.headers_count
    except MalformedError:
        return None
    ints: array[int] = array("i")
    for column in columns:
        ints.extend(column)
    return RecordIndex(
        count, flags, ints, offsets + timestamps, keys_size, values_size, headers_count
    )


def slices(data: bytes, ints: "array[int]", first: int, count: int) -> list[bytes | None]:
    """`count` byte strings: their starts are ints[first:], their ends the next `count` numbers."""
    return _cut(data, ints, first, first + count, count)


def _cut(
    data: bytes, ints: "array[int]", starts_at: int, ends_at: int, count: int
) -> list[bytes | None]:
    starts, ends = ints[starts_at : starts_at + count], ints[ends_at : ends_at + count]
    return [None if start < 0 else data[start:end] for start, end in zip(starts, ends, strict=True)]


def header_tuples(
    data: bytes, records: RecordIndex, headers: HeaderIndex, part: range
) -> list[HeaderTuple]:
    """The headers of each record of a part; a name that is not UTF-8 comes with backslash escapes.

    `part` goes up by ones, and lies within the records.
    """
    n, total = records.records_count, headers.headers_count
    counts = records.ints[5 * n + part.start : 5 * n + part.stop]
    first = sum(records.ints[5 * n : 5 * n + part.start])
    last = first + sum(counts)
    keys, values = (
        _cut(data, headers.ints, at * total + first, (at + 1) * total + first, last - first)
        for at in (0, 2)
    )
    names = [(key or b"").decode(errors="backslashreplace") for key in keys]
    pairs = iter(zip(names, values, strict=True))
    return [tuple(islice(pairs, count)) for count in counts]


def records(
    data: bytes,
    records: RecordIndex,
    record_type: "type[AnyRecord]",
    headers: Sequence[HeaderTuple] | None,
    prefix: tuple[object, ...],
    part: range,
) -> "list[AnyRecord]":
    """A named tuple per record of a part: (*prefix, offset, timestamp, key, value, headers).

    `headers` are those of the part; None: no record has any.
    """
    n, start, stop = records.records_count, part.start, part.stop
    columns = zip(
        *(repeat(value, len(part)) for value in prefix),
        records.longs[start:stop],
        records.longs[n + start : n + stop],
        _cut(data, records.ints, 2 * n + start, 3 * n + start, len(part)),
        _cut(data, records.ints, start, n + start, len(part)),
        [()] * len(part) if headers is None else headers,
        strict=True,
    )
    make = record_type._make  # type: ignore[attr-defined]  # they are named ones
    return [make(fields) for fields in columns]


def index_headers(data: bytes, records: RecordIndex) -> HeaderIndex:
    """Where the headers of all records lie, record after record; `records` is of `data`."""
    columns: list[array[int]] = [array("i") for _ in range(4)]
    n = records.records_count
    starts, counts = records.ints[4 * n : 5 * n], records.ints[5 * n : 6 * n]
    for position, count in zip(starts, counts, strict=True):
        for _ in range(count):
            key_start, key_end, position = read_span(data, position, len(data), 0)
            value_start, value_end, position = read_span(data, position, len(data), -1)
            for column, number in zip(
                columns, (key_start, key_end, value_start, value_end), strict=True
            ):
                column.append(number)
    ints: array[int] = array("i")
    for column in columns:
        ints.extend(column)
    keys_size, values_size = (sum(columns[i + 1]) - sum(columns[i]) for i in (0, 2))
    return HeaderIndex(records.headers_count, ints, keys_size, values_size)


def gather(parts: Sequence[Strings], size: int) -> Gathered:
    """Copy the byte strings of all parts, together `size` bytes, into one Arrow column."""
    out = bytearray()
    offsets: array[int] = array("i", [0])
    validity = bytearray((sum(part.items_count for part in parts) + 7) // 8)
    nulls = False
    for data, ints, first, count in parts:
        for i in range(first, first + count):
            start, end = ints[i], ints[i + count]
            if start < 0:
                nulls = True
            else:
                out += data[start:end]
                row = len(offsets) - 1
                validity[row >> 3] |= 1 << (row & 7)
            offsets.append(len(out))
    assert len(out) == size, f"gathered {len(out)} bytes, the indexes say {size}"
    return Gathered(out, offsets, validity if nulls else None)


def header_starts(indexes: Sequence[RecordIndex]) -> "array[int]":
    """Which header is each record's first, counted over all indexes; one number more at the end."""
    counts = chain.from_iterable(index.ints[5 * index.records_count :] for index in indexes)
    return array("i", accumulate(counts, initial=0))


def write_varint(out: bytearray, value: int) -> None:
    """A zigzag varint; the same bytes for 32 and 64 bits."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        write_varint(out, len(data))
        out += data


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The header section of one record: its count and its headers."""
    out = bytearray()
    write_varint(out, len(headers))
    for key, value in headers:
        _write_bytes(out, key.encode())
        _write_bytes(out, value)
    return bytes(out)


TIMESTAMPS_APART = "timestamps of one batch lie more than 2^63 ms apart"
BATCH_TOO_LARGE = "a batch holds less than 2^31 bytes"


def check_bytes(column: Sequence[object]) -> None:
    """TypeError at the first item that is neither bytes nor None."""
    for i, item in enumerate(column):
        if item is not None and not isinstance(item, bytes):
            raise TypeError(f"item {i} is {type(item).__name__}, expected bytes or None")


def encode(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[bytes] | None,
    timestamps: "int | array[int]",
    fields: BatchFields,
) -> bytes:
    """A whole uncompressed batch with base offset 0 and leader epoch -1.

    `headers` holds each record's header section (`encode_headers`).  `timestamps` is one number
    for all or an array('q') of one per record.  The caller has checked that the columns are of
    equal length and that there is a record.  Raises ValueError when a batch cannot hold it,
    TypeError for anything that is not bytes.
    """
    count = len(values)
    for column in (values, keys or (), headers or ()):
        check_bytes(column)
    base = max_timestamp = timestamps if isinstance(timestamps, int) else timestamps[0]
    out = bytearray(HEADER_SIZE)
    for i in range(count):
        timestamp = timestamps if isinstance(timestamps, int) else timestamps[i]
        max_timestamp = max(max_timestamp, timestamp)
        if not INT64_MIN <= timestamp - base <= INT64_MAX:
            raise ValueError(TIMESTAMPS_APART)
        body = bytearray(1)
        write_varint(body, timestamp - base)
        write_varint(body, i)
        _write_bytes(body, None if keys is None else keys[i])
        _write_bytes(body, values[i])
        body += b"\0" if headers is None else headers[i]
        write_varint(out, len(body))
        out += body
        if len(out) > INT32_MAX:
            raise ValueError(BATCH_TOO_LARGE)
    write_header(out, count, base, max_timestamp, fields)
    return bytes(out)


def write_header(
    out: bytearray, count: int, base_timestamp: int, max_timestamp: int, fields: BatchFields
) -> None:
    """Fill the first 61 bytes of a dense batch whose records lie behind them."""
    HEADER.pack_into(
        out,
        0,
        0,
        len(out) - LENGTH_END,
        -1,
        MAGIC,
        0,
        fields.attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        count,
    )
    crc = crc32c(memoryview(out)[ATTRIBUTES_POSITION:])
    out[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")


def select(data: bytes, position: int, count: int, keep: bytes) -> tuple[bytes, int] | None:
    """The records of data[position:] whose byte in `keep` is not 0, and their greatest delta.

    The bytes of a record do not change: its deltas stay relative to the same bases.  The delta
    is that of the timestamp, INT64_MIN when nothing is kept.  None: not `count` whole records.
    """
    out = bytearray()
    latest = INT64_MIN
    try:
        for record, kept in zip(walk(data, position, count, INT32_MAX, 0), keep, strict=True):
            if kept:
                out += data[record.start : record.end]
                latest = max(latest, record.timestamp_delta)
    except MalformedError:
        return None
    return bytes(out), latest


def until_gap(data: Buffer, offsets: "array[int]") -> tuple[int, int]:
    """Whole batches, up to and with the first that has no records and covers one of `offsets`.

    Such a one, of the control batches, is a gap.  offsets: in order.  Returns
    how many bytes these are, and the offset behind them, -1 if there are none.  What no batch has,
    a length below that of a header or offsets past 64 bits, ends them, too.
    """
    position, end_offset, wanted = 0, -1, 0
    while (left := len(data) - position) >= HEADER_SIZE:
        base_offset, length, _, _, _, attributes, last_offset_delta, *_, count = HEADER.unpack_from(
            data, position
        )
        end = base_offset + last_offset_delta + 1
        is_one = HEADER_SIZE <= LENGTH_END + length <= left and last_offset_delta >= 0
        if not is_one or end > INT64_MAX:
            break
        position, end_offset = position + LENGTH_END + length, end
        while wanted < len(offsets) and offsets[wanted] < base_offset:
            wanted += 1
        is_gap = attributes & CONTROL_BIT and not count
        if is_gap and wanted < len(offsets) and offsets[wanted] < end:
            break
    return position, end_offset

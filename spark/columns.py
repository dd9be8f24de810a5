"""Decoded batches as Arrow record batches with exactly the columns that Spark expects.

    key            binary        from the kernel's buffers, not copied
    value          binary        from the kernel's buffers, not copied
    topic          string        constant
    partition      int32         constant
    offset         int64         from the kernel's buffers, not copied
    timestamp      timestamp[us, UTC]   the kernel's milliseconds times 1000
    timestampType  int32         0 set by the producer, 1 by the broker
    headers        list<struct<key: string, value: binary>>   only with includeHeaders

Types, names and nullability must equal Spark's own translation of the schema; Spark compares them
and refuses the rest.  A test compares them too.

Small batches are put together and large ones cut: between 1 and 8 MB Spark takes record batches at
full speed, below it pays per batch, far above it loses its caches.

Invariant: no Python loop over records; the cost in Python is per batch.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow
import pyarrow.compute

from segbroker.protocol.record_batch import Gathered, RecordBatch

from .offsets import OffsetRange

BATCH_BYTES = 4 << 20
BATCH_BYTES_MAX = 8 << 20
# What a row takes besides its key and value: offsets, timestamp, topic, bookkeeping.
ROW_BYTES = 48

HEADER = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
HEADERS = pyarrow.list_(pyarrow.field("element", HEADER))
TIMESTAMP = pyarrow.timestamp("us", tz="UTC")

_FIELDS = [
    pyarrow.field("key", pyarrow.binary()),
    pyarrow.field("value", pyarrow.binary()),
    pyarrow.field("topic", pyarrow.string()),
    pyarrow.field("partition", pyarrow.int32()),
    pyarrow.field("offset", pyarrow.int64()),
    pyarrow.field("timestamp", TIMESTAMP),
    pyarrow.field("timestampType", pyarrow.int32()),
]
ARROW_SCHEMA = pyarrow.schema(_FIELDS)
ARROW_SCHEMA_WITH_HEADERS = pyarrow.schema([*_FIELDS, pyarrow.field("headers", HEADERS)])

# The same for Spark.
SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long,"
    " timestamp timestamp, timestampType int"
)
SPARK_SCHEMA_WITH_HEADERS = SPARK_SCHEMA + ", headers array<struct<key: string, value: binary>>"

# A microsecond timestamp has room for these milliseconds; a record may claim others.
_MS_MAX = (1 << 63) // 1000 - 1


@dataclass(slots=True)
class _Part:
    """The columns of one batch that differ from row to row."""

    count: int
    size: int
    timestamp_type: int
    arrays: list[pyarrow.Array]


def record_batches(
    batches: Iterable[RecordBatch], wanted: OffsetRange, *, headers: bool
) -> Iterator[pyarrow.RecordBatch]:
    """The rows of `batches` that lie in the range, as record batches of about BATCH_BYTES."""
    parts: list[_Part] = []
    size = 0
    for batch in batches:
        part = _part(batch, wanted, headers=headers)
        if not part.count:
            continue
        parts.append(part)
        size += part.size
        if size >= BATCH_BYTES:
            yield from _joined(parts, size, wanted)
            parts, size = [], 0
    if parts:
        yield from _joined(parts, size, wanted)


def _part(batch: RecordBatch, wanted: OffsetRange, *, headers: bool) -> _Part:
    columns = batch.columns()
    count = len(batch)
    size = len(columns.keys.data) + len(columns.values.data) + ROW_BYTES * count
    arrays = [
        _binary(columns.keys),
        _binary(columns.values),
        _fixed(count, columns.offsets),
        _fixed(count, columns.timestamps),
    ]
    if headers:
        arrays.append(
            pyarrow.Array.from_buffers(
                HEADERS,
                count,
                [None, pyarrow.py_buffer(columns.header_starts)],
                children=[
                    pyarrow.StructArray.from_arrays(
                        [_text(columns.header_keys), _binary(columns.header_values)],
                        fields=list(HEADER),
                    )
                ],
            )
        )
        size += len(columns.header_keys.data) + len(columns.header_values.data)
    first, last = 0, count
    header = batch.header
    if header.base_offset < wanted.start:
        first = bisect_left(columns.offsets, wanted.start)
    if header.last_offset >= wanted.end:
        last = bisect_left(columns.offsets, wanted.end)
    if last - first < count:
        arrays = [array.slice(first, last - first) for array in arrays]
        size = size * (last - first) // max(1, count)
        count = last - first
    return _Part(count, size, int(header.is_log_append_time), arrays)


def _joined(parts: list[_Part], size: int, wanted: OffsetRange) -> Iterator[pyarrow.RecordBatch]:
    if len(parts) == 1:
        key, value, offset, timestamp, *headers = parts[0].arrays
    else:
        columns = zip(*(part.arrays for part in parts), strict=True)
        key, value, offset, timestamp, *headers = map(pyarrow.concat_arrays, columns)
    count = len(offset)
    table = pyarrow.RecordBatch.from_arrays(
        [
            key,
            value,
            _constant(wanted.topic, pyarrow.string(), count),
            _constant(wanted.partition, pyarrow.int32(), count),
            offset,
            _microseconds(timestamp),
            _timestamp_types(parts),
            *headers,
        ],
        schema=ARROW_SCHEMA_WITH_HEADERS if headers else ARROW_SCHEMA,
    )
    if size <= BATCH_BYTES_MAX:
        yield table
        return
    rows = max(1, count * BATCH_BYTES // size)
    for first in range(0, count, rows):
        yield table.slice(first, rows)


def _timestamp_types(parts: list[_Part]) -> pyarrow.Array:
    kinds = {part.timestamp_type for part in parts}
    if len(kinds) == 1:
        return _constant(kinds.pop(), pyarrow.int32(), sum(part.count for part in parts))
    return pyarrow.concat_arrays(
        [_constant(part.timestamp_type, pyarrow.int32(), part.count) for part in parts]
    )


def _microseconds(milliseconds: pyarrow.Array) -> pyarrow.Array:
    try:
        product = pyarrow.compute.multiply_checked(milliseconds, 1000)
    except pyarrow.ArrowInvalid:
        # A producer may send any 64 bits as a time: the nearest one that can be shown.
        capped = pyarrow.compute.min_element_wise(milliseconds, _MS_MAX)
        product = pyarrow.compute.multiply(pyarrow.compute.max_element_wise(capped, -_MS_MAX), 1000)
    return product.view(TIMESTAMP)


def _constant(value: object, kind: pyarrow.DataType, count: int) -> pyarrow.Array:
    return pyarrow.repeat(pyarrow.scalar(value, kind), count)


def _fixed(count: int, data: "array[int]") -> pyarrow.Array:
    return pyarrow.Array.from_buffers(pyarrow.int64(), count, [None, pyarrow.py_buffer(data)])


def _binary(column: Gathered) -> pyarrow.Array:
    validity = None if column.validity is None else pyarrow.py_buffer(column.validity)
    return pyarrow.Array.from_buffers(
        pyarrow.binary(),
        len(column.offsets) - 1,
        [validity, pyarrow.py_buffer(column.offsets), pyarrow.py_buffer(column.data)],
    )


def _text(column: Gathered) -> pyarrow.Array:
    """Header names as strings; what is not UTF-8 comes with backslash escapes, as in the client."""
    names = _binary(column)
    try:
        return names.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        decoded = [name.decode("utf-8", "backslashreplace") for name in names.to_pylist()]
        return pyarrow.array(decoded, pyarrow.string())

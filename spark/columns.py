"""Decoded batches as Arrow record batches with exactly the columns that Spark expects.

    key            binary        from the kernel's buffers, not copied
    value          binary        from the kernel's buffers, not copied
    topic          string        constant
    partition      int32         constant
    offset         int64         from the kernel's buffers, not copied
    timestamp      timestamp[us, UTC]   the kernel's milliseconds times 1000
    timestampType  int32         0 set by the producer, 1 by the broker
    headers        list<struct<key: string, value: binary>>   only with includeHeaders; null where
                   a record has none, as from Kafka's source
    _gap           struct<start, end: int64, reason: string>   only with includeGaps; null for a
                   record, and of a lost range all but topic, partition, offset and this is null

Types, names and nullability must equal Spark's own translation of the schema; Spark compares them
and refuses the rest.  A test compares them too.

Small batches are put together and large ones cut: between 1 and 8 MB Spark takes record batches at
full speed, below it pays per batch, far above it loses its caches.

Invariant: no Python loop over records; the cost in Python is per batch.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow
import pyarrow.compute

from segbroker.client.arrow import binary, fixed
from segbroker.protocol.batch_layout import Gathered
from segbroker.protocol.record_batch import RecordBatch, RecordColumns, columns_of

from .errors import OptionError
from .loss import Lost
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
GAP = pyarrow.struct(
    [("start", pyarrow.int64()), ("end", pyarrow.int64()), ("reason", pyarrow.string())]
)

# The same for Spark.
_SPARK_FIELDS = (
    "key binary, value binary, topic string, partition int, offset long,"
    " timestamp timestamp_ltz, timestampType int"
)

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "_gap": "struct<start:bigint,end:bigint,reason:string>",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Which of the columns that can be left out there are."""

    headers: bool = False
    gaps: bool = False

    @property
    def spark(self) -> str:
        headers = ", headers array<struct<key: string, value: binary>>" if self.headers else ""
        gap = ", _gap struct<start: long, end: long, reason: string>" if self.gaps else ""
        return _SPARK_FIELDS + headers + gap

    @property
    def arrow(self) -> pyarrow.Schema:
        fields = list(_FIELDS)
        if self.headers:
            fields.append(pyarrow.field("headers", HEADERS))
        if self.gaps:
            fields.append(pyarrow.field("_gap", GAP))
        return pyarrow.schema(fields)


def check_fixed(asked: Sequence[tuple[str, str]], shape: Shape) -> None:
    """Refuse a schema of the user's that is another one, as Kafka's source does.

    asked: name and type of each column, as Spark writes them; none: nobody asked.
    Raises OptionError.
    """
    fixed = [(name, _TYPES[name]) for name in shape.arrow.names]
    if asked and list(asked) != fixed:
        raise OptionError(
            "the columns are fixed, and .schema(...) asks for others: leave it out, then select"
            " and cast, for example .selectExpr('CAST(value AS STRING) AS value')"
        )


# A microsecond timestamp has room for these milliseconds; a record may claim others.
_MS_MAX = (1 << 63) // 1000 - 1


def record_batches(
    batches: Iterable[RecordBatch | Lost], wanted: OffsetRange, shape: Shape
) -> Iterator[pyarrow.RecordBatch]:
    """The rows of `batches` that lie in the range, as record batches of about BATCH_BYTES.

    Records of what is lost are none, though a batch that begins in it still has them.
    """
    held: list[RecordBatch] = []
    size = 0
    schema = shape.arrow
    for batch in batches:
        if not isinstance(batch, Lost):
            held.append(batch)
            size += len(batch._data) + ROW_BYTES * len(batch)
        if held and (size >= BATCH_BYTES or isinstance(batch, Lost)):
            yield from _tables(held, size, wanted, schema)
            held, size = [], 0
        if isinstance(batch, Lost):
            if batch.end is not None:
                wanted = replace(wanted, start=max(wanted.start, batch.end))
            if shape.gaps:
                yield _gap(batch, schema)
    if held:
        yield from _tables(held, size, wanted, schema)


def _gap(lost: Lost, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """One row that says what is not there."""
    row: dict[str, object] = dict.fromkeys(schema.names)
    row |= {
        "topic": lost.topic,
        "partition": lost.partition,
        "offset": lost.start,
        "_gap": {"start": lost.start, "end": lost.end, "reason": lost.word},
    }
    return pyarrow.RecordBatch.from_pylist([row], schema=schema)


def _tables(
    batches: list[RecordBatch], size: int, wanted: OffsetRange, schema: pyarrow.Schema
) -> Iterator[pyarrow.RecordBatch]:
    columns = columns_of(batches)
    count = columns.records_count
    arrays = [
        binary(columns.keys),
        binary(columns.values),
        _constant(wanted.topic, pyarrow.string(), count),
        _constant(wanted.partition, pyarrow.int32(), count),
        fixed(pyarrow.int64(), count, columns.offsets),
        _microseconds(fixed(pyarrow.int64(), count, columns.timestamps)),
        _timestamp_types(batches),
    ]
    if "headers" in schema.names:
        arrays.append(_headers(columns))
    if "_gap" in schema.names:
        arrays.append(pyarrow.nulls(count, GAP))
    table = pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
    # The first batch may begin before the range and the last one end behind it.
    first = bisect_left(columns.offsets, wanted.start)
    last = bisect_left(columns.offsets, wanted.end)
    rows = count if size <= BATCH_BYTES_MAX else max(1, count * BATCH_BYTES // size)
    for begin in range(first, last, rows):
        yield table.slice(begin, min(rows, last - begin))


def _headers(columns: RecordColumns) -> pyarrow.Array:
    pairs = pyarrow.StructArray.from_arrays(
        [_text(columns.header_keys), binary(columns.header_values)], fields=list(HEADER)
    )
    count = columns.records_count
    starts = fixed(pyarrow.int32(), count + 1, columns.header_starts)
    has_some = pyarrow.compute.not_equal(starts[1:], starts[:-1])
    return pyarrow.Array.from_buffers(
        HEADERS, count, [has_some.buffers()[1], starts.buffers()[1]], children=[pairs]
    )


def _timestamp_types(batches: list[RecordBatch]) -> pyarrow.Array:
    """0 set by the producer, 1 by the broker: one value per batch, nearly always one for all."""
    runs = [
        (int(kind), sum(map(len, run)))
        for kind, run in groupby(batches, lambda batch: batch.header.is_log_append_time)
    ]
    parts = [_constant(kind, pyarrow.int32(), count) for kind, count in runs]
    return parts[0] if len(parts) == 1 else pyarrow.concat_arrays(parts)


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


def _text(column: Gathered) -> pyarrow.Array:
    """Header names as strings; what is not UTF-8 comes with backslash escapes, as in the client."""
    names = binary(column)
    try:
        return names.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        decoded = [name.decode("utf-8", "backslashreplace") for name in names.to_pylist()]
        return pyarrow.array(decoded, pyarrow.string())

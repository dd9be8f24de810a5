"""Record batches for Arrow: the decoder's buffers, wrapped, not copied.

    offset     int64
    timestamp  timestamp[ms, UTC]
    key        binary
    value      binary
    headers    list<struct<key: string, value: binary>>

Imported only when `to_arrow` is called: pyarrow is an extra, and its import takes a while.
"""

from typing import Any

import pyarrow

from segbroker.protocol.batch_layout import Gathered
from segbroker.protocol.record_batch import RecordColumns

HEADER_TYPE = pyarrow.struct([("key", pyarrow.binary()), ("value", pyarrow.binary())])

SCHEMA = pyarrow.schema(
    [
        pyarrow.field("offset", pyarrow.int64(), nullable=False),
        pyarrow.field("timestamp", pyarrow.timestamp("ms", tz="UTC"), nullable=False),
        pyarrow.field("key", pyarrow.binary()),
        pyarrow.field("value", pyarrow.binary()),
        pyarrow.field("headers", pyarrow.list_(HEADER_TYPE), nullable=False),
    ]
)


def batch_to_arrow(topic: str, partition: int, columns: RecordColumns) -> pyarrow.RecordBatch:
    """One RecordBatch; topic and partition stand in the schema's metadata."""
    count = columns.records_count
    header_keys = binary(columns.header_keys)
    header_values = binary(columns.header_values)
    headers = pyarrow.ListArray.from_arrays(
        pyarrow.Array.from_buffers(
            pyarrow.int32(), count + 1, [None, pyarrow.py_buffer(columns.header_starts)]
        ),
        pyarrow.StructArray.from_arrays(
            [header_keys, header_values], fields=[HEADER_TYPE.field(0), HEADER_TYPE.field(1)]
        ),
    )
    return pyarrow.RecordBatch.from_arrays(
        [
            fixed(pyarrow.int64(), count, columns.offsets),
            fixed(pyarrow.timestamp("ms", tz="UTC"), count, columns.timestamps),
            binary(columns.keys),
            binary(columns.values),
            headers,
        ],
        schema=SCHEMA.with_metadata({"topic": topic, "partition": str(partition)}),
    )


def fixed(kind: object, count: int, data: object) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """`count` numbers as an array of `kind`."""
    return pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(data)])


def binary(column: Gathered) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """Byte strings as an array."""
    validity = None if column.validity is None else pyarrow.py_buffer(column.validity)
    return pyarrow.Array.from_buffers(
        pyarrow.binary(),
        len(column.offsets) - 1,
        [validity, pyarrow.py_buffer(column.offsets), pyarrow.py_buffer(column.data)],
    )

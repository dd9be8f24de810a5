"""Markers: the control batch that says how a transaction ended in this partition.

    byte 0        61         66           68      70          71             72        74
         +--------+----------+------------+-------+-----------+--------------+---------+----
         | header | prefix   | version    | type  | value     | version      | coordinator
         |        | 5 bytes  | i16 = 0    | i16   | length    | i16 = 0      | epoch i32, 0
         +--------+----------+------------+-------+-----------+--------------+---------+----

One record, uncompressed: key (version, type), value (version, coordinator epoch).  Type 0 is an
abort, 1 a commit; others exist in Kafka's own topics and are to be ignored.  The header has the
transaction's producer id and the epoch that the producer has from here on, and no sequence.

Invariant: only a broker makes one (`check_batch` refuses control batches of producers), so the
record has always this size and its fields this place.
"""

import struct
from enum import IntEnum
from typing import Final

from .batch_header import BatchHeader, write_crc
from .batch_layout import CONTROL_BIT, HEADER, HEADER_SIZE, LENGTH_END, MAGIC, TRANSACTIONAL_BIT
from .checksums import Buffer

__all__ = ["MARKER_SIZE", "Outcome", "encode_marker", "marker_outcome"]

# length, attributes, timestamp delta, offset delta, key length | key | value length | value | no
# headers; the varints are written as the single bytes that they are.
_RECORD: Final = struct.Struct(">5s hh s hi s")
_PREFIX: Final = bytes([2 * 16, 0, 0, 0, 2 * 4])
_VALUE_LENGTH: Final = bytes([2 * 6])
_TYPE: Final = struct.Struct(">hh")
_TYPE_POSITION: Final = HEADER_SIZE + len(_PREFIX)
MARKER_SIZE: Final = HEADER_SIZE + _RECORD.size
"""Bytes of a marker."""
assert MARKER_SIZE == 78, "the box above"


class Outcome(IntEnum):
    """How a transaction ended; the number is that of the control record."""

    ABORT = 0
    COMMIT = 1


def encode_marker(
    outcome: Outcome,
    producer_id: int,
    producer_epoch: int,
    now_ms: int,
) -> bytearray:
    """A marker with base offset 0, for a log to append."""
    record = _RECORD.pack(_PREFIX, 0, outcome, _VALUE_LENGTH, 0, 0, b"\0")
    batch = bytearray(
        HEADER.pack(
            0,
            MARKER_SIZE - LENGTH_END,
            0,
            MAGIC,
            0,
            CONTROL_BIT | TRANSACTIONAL_BIT,
            0,
            now_ms,
            now_ms,
            producer_id,
            producer_epoch,
            -1,
            1,
        )
    )
    batch += record
    write_crc(batch)
    return batch


def marker_outcome(header: BatchHeader, batch: Buffer) -> Outcome | None:
    """How the transaction ended, by the batch that begins at `batch[0]`; None: it is no marker."""
    if not header.is_control or header.records_count != 1 or header.producer_id < 0:
        return None
    if header.size < _TYPE_POSITION + _TYPE.size or len(batch) < header.size:
        return None
    version, number = _TYPE.unpack_from(batch, _TYPE_POSITION)
    if version != 0 or number not in (Outcome.ABORT, Outcome.COMMIT):
        return None
    return Outcome(number)

"""The header of a record batch: 61 bytes, read, checked, and patched by the broker.

    byte 0             8              12             16      17      21           23
         +-------------+--------------+--------------+-------+-------+------------+----
         | base_offset | batch_length | leader_epoch | magic | crc   | attributes |
         | i64         | i32          | i32          | i8 =2 | u32   | i16        |
         +-------------+--------------+--------------+-------+-------+------------+----
    byte 23                  27               35              43            51
         +-------------------+----------------+---------------+-------------+----
         | last_offset_delta | base_timestamp | max_timestamp | producer_id |
         | i32               | i64            | i64           | i64         |
         +-------------------+----------------+---------------+-------------+----
    byte 51               53              57              61
         +----------------+---------------+---------------+------------
         | producer_epoch | base_sequence | records_count | records ...
         | i16            | i32           | i32           |
         +----------------+---------------+---------------+------------

Integers are big-endian, timestamps ms since 1970.  `batch_length` counts the bytes after
itself.  `crc` is CRC-32C of bytes 21 to the end: the broker patches base offset and leader epoch
without touching it.  attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control,
6 delete horizon; segbroker adds the reason of a gap in bits 8-15.  Records: see batch_pure.

Invariant: whoever changes a byte behind the CRC renews it (`write_crc`).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from . import kernel
from .batch_layout import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    CONTROL_BIT,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    INT32_MAX,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchFault,
    CheckMode,
)
from .checksums import Buffer, crc32c
from .compression import Codec

_CODECS = tuple(Codec)
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_POSITION = 12
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_CRC = struct.Struct(">I")


class InvalidBatch(Exception):
    """A batch breaks a rule; `fault` says which."""

    def __init__(self, fault: BatchFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as numbers."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The compression; IndexError for a number that does not exist (the check refuses it)."""
        return _CODECS[self.attributes & CODEC_BITS]

    @property
    def lacks_max_timestamp(self) -> bool:
        """Whether it says a greatest timestamp below that of the first record: then nobody wrote
        one (Sarama before 1.45.1 leaves -1)."""
        return self.max_timestamp < self.base_timestamp

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; -1 without a producer.  Wraps after 2^31-1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX


_FAULT_MESSAGES = {
    BatchFault.UNSUPPORTED_CODEC: "compression that does not exist",
    BatchFault.CONTROL_BATCH: "a producer may not send control batches",
    BatchFault.INVALID_PRODUCER: "producer id, epoch and sequence do not go together",
    BatchFault.INVALID_RECORD: "a record does not decode or its offset is out of order",
}


def invalid(batch: Buffer, fault: BatchFault) -> InvalidBatch:
    """The exception for a fault that the kernel found, with the values that show it."""
    size = len(batch)
    match fault:
        case BatchFault.UNSUPPORTED_MAGIC:
            return InvalidBatch(fault, f"magic {batch[16]}, expected {MAGIC}")
        case BatchFault.TRUNCATED if size < HEADER_SIZE:
            return InvalidBatch(fault, f"{size} bytes, a batch header has {HEADER_SIZE}")
    header = read_header(batch)
    match fault:
        case BatchFault.TRUNCATED | BatchFault.MORE_THAN_ONE_BATCH:
            message = f"batch of {header.size} bytes in {size} bytes"
        case BatchFault.CORRUPT if header.size < HEADER_SIZE:
            message = f"batch of {header.size} bytes, a batch header has {HEADER_SIZE}"
        case BatchFault.CORRUPT:
            computed = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
            message = f"CRC-32C {header.crc:#010x} in the header, {computed:#010x} over the bytes"
        case BatchFault.INVALID_COUNT:
            message = (
                f"{header.records_count} records, last offset delta {header.last_offset_delta}"
            )
        case BatchFault.WRONG_MAX_TIMESTAMP:
            message = f"max timestamp {header.max_timestamp} is not that of the records"
        case _:
            message = _FAULT_MESSAGES[fault]
    return InvalidBatch(fault, message)


def read_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked but for its length (InvalidBatch TRUNCATED)."""
    if len(buf) - position < HEADER_SIZE:
        raise InvalidBatch(
            BatchFault.TRUNCATED,
            f"{len(buf) - position} bytes, a batch header has {HEADER_SIZE}",
        )
    return BatchHeader._make(HEADER.unpack_from(buf, position))


def check_batch(buf: Buffer, *, stored: bool = False) -> BatchHeader:
    """The header of the one batch that `buf` holds, after every check that applies.

    stored=False: rules for a batch from a producer.  A wrong max_timestamp is put right in place
    where `buf` is writable, as Kafka does, and refused where it is not.  Whether the topic
    allows log append time, and its size limit, are the caller's questions.
    stored=True: rules for a batch in a log: holes, emptied and control batches are legal.
    Of a compressed batch only header, CRC and count are checked: record_batch.stamp_greatest looks
    at its timestamps.

    Raises InvalidBatch.
    """
    mode = CheckMode.STORED if stored else CheckMode.PRODUCE
    fault = kernel.backend.check(buf, mode)
    if fault == BatchFault.NONE:
        return BatchHeader._make(HEADER.unpack_from(buf))
    if fault == BatchFault.WRONG_MAX_TIMESTAMP and not memoryview(buf).readonly:
        _repair_max_timestamp(buf)
        return read_header(buf)
    raise invalid(buf, BatchFault(fault))


def _repair_max_timestamp(buf: Buffer) -> None:
    header = read_header(buf)
    index = kernel.backend.index(
        bytes(buf),
        HEADER_SIZE,
        header.records_count,
        0,
        header.last_offset_delta,
        header.base_timestamp,
        None,
    )
    assert index is not None, "the check has walked these records"
    set_max_timestamp(buf, max(index.longs[header.records_count :]))


def set_max_timestamp(buf: Buffer, timestamp_ms: int) -> None:
    """Write the greatest timestamp of a writable batch, and renew the CRC."""
    _MAX_TIMESTAMP.pack_into(buf, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    write_crc(buf)


def write_crc(buf: Buffer) -> None:
    """Renew the CRC of a writable batch, after a change behind it."""
    _CRC.pack_into(buf, CRC_POSITION, crc32c(memoryview(buf)[ATTRIBUTES_POSITION:]))


def patch_batch(buf: Buffer, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Write what the broker decides into a writable batch, the one that begins at `position`; the
    CRC does not cover it."""
    _BASE_OFFSET.pack_into(buf, position, base_offset)
    _LEADER_EPOCH.pack_into(buf, position + _LEADER_EPOCH_POSITION, leader_epoch)


def set_log_append_time(buf: Buffer, now_ms: int) -> None:
    """Make `now_ms` the timestamp of every record of a writable batch, and renew the CRC.

    base_timestamp and the deltas stay, as in Kafka; readers then ignore them.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(buf, ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buf, ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_BIT)
    set_max_timestamp(buf, now_ms)


def iter_batches(buf: Buffer) -> Iterator[memoryview]:
    """Each whole batch in `buf`, unchecked; stops at a partial last one, as fetches may end.

    Raises InvalidBatch (CORRUPT) at a length below that of a header.
    """
    view = memoryview(buf)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        size = LENGTH_END + int.from_bytes(view[position + 8 : position + 12], "big", signed=True)
        if size < HEADER_SIZE:
            raise InvalidBatch(
                BatchFault.CORRUPT, f"batch of {size} bytes, a batch header has {HEADER_SIZE}"
            )
        if size > len(view) - position:
            return
        yield view[position : position + size]
        position += size

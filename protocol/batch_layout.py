"""What both kernels of the record batch share: positions, bits, faults, the shape of their results.

`HEADER` is the 61 bytes before the records; record_batch.py draws them.  What a fault means is said
here, which batch has one is decided by `check` (batch_pure.py and native/kernel.c).

Invariant: the numbers of BatchFault, CheckMode and IndexFlag are those of kernel.c (a test compares
them), and never change.
"""

import struct
from array import array
from enum import IntEnum
from typing import NamedTuple, TypeAlias, TypeVar

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61
MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
# `batch_length` counts what follows itself.
LENGTH_END = 12
RECORD_SIZE_MIN = 7

CODEC_BITS = 0x07
CODEC_LAST = 4
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

INT32_MAX = 2**31 - 1
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class BatchFault(IntEnum):
    """Why a batch is refused.  The numbers are shared with kernel.c."""

    NONE = 0
    TRUNCATED = 1
    """The bytes end before the batch does."""
    CORRUPT = 2
    """The CRC is wrong, or the length is below that of a header."""
    UNSUPPORTED_MAGIC = 3
    """Not magic 2: a message format of before 2017, or noise."""
    MORE_THAN_ONE_BATCH = 4
    """Bytes follow the batch."""
    UNSUPPORTED_CODEC = 5
    """A compression number that does not exist."""
    CONTROL_BATCH = 6
    """A producer may not send control batches."""
    INVALID_COUNT = 7
    """The number of records disagrees with the range of offsets."""
    INVALID_PRODUCER = 8
    """A producer id without epoch or sequence, or a transaction without a producer id."""
    INVALID_RECORD = 9
    """A record does not decode, or its offset is out of order."""
    WRONG_MAX_TIMESTAMP = 10
    """The header's max_timestamp is not that of the records."""
    INVALID_COMPRESSION = 11
    """The records do not decompress (decoding only)."""
    TOO_LARGE = 12
    """The records decompress to more than the caller allows (decoding only)."""


class CheckMode(IntEnum):
    """How much `check` demands.  The numbers are shared with kernel.c."""

    PRODUCE = 0
    """From a client: dense offsets, no control batch, producer fields in order."""
    STORED = 1
    """From a log: holes and emptied batches are legal, and the records are walked."""
    HEADER = 2
    """As STORED without walking the records: for who decodes them anyway."""


class IndexFlag(IntEnum):
    """What is true of all records of a batch, so that whole columns need no loop."""

    KEYS = 1
    """Some key is not null."""
    NULL_KEYS = 2
    NULL_VALUES = 4
    HEADERS = 8
    """Some record has headers."""
    HOLES = 16
    """The offsets are not base_offset, base_offset + 1, ..."""
    TIMESTAMPS_DIFFER = 32


class RecordIndex(NamedTuple):
    """Where everything in a batch lies: columns of `records_count` numbers, one after the other.

    ints:   value start, value end, key start, key end, first header, header count
    longs:  offset, timestamp
    Positions count from the start of the indexed bytes; null is start = end = -1.
    """

    records_count: int
    flags: int
    ints: "array[int]"
    longs: "array[int]"
    keys_size: int
    values_size: int
    headers_count: int


class HeaderIndex(NamedTuple):
    """Columns of `headers_count` numbers: key start, key end, value start, value end."""

    headers_count: int
    ints: "array[int]"
    keys_size: int
    values_size: int


class Strings(NamedTuple):
    """`items_count` byte strings in `data`: starts are ints[first:], as many ends follow."""

    data: bytes
    ints: "array[int]"
    first: int
    items_count: int


class Gathered(NamedTuple):
    """A column of byte strings as Arrow lays it out: data, int32 offsets, validity bits."""

    data: bytearray
    offsets: "array[int]"
    validity: bytearray | None


class BatchFields(NamedTuple):
    """What a producer says about a batch besides its records."""

    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


HeaderTuple: TypeAlias = tuple[tuple[str, bytes | None], ...]
AnyRecord = TypeVar("AnyRecord", bound=tuple[object, ...])

"""RecordBatch v2: the unit that is appended, sent, stored and checksummed.

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

Invariants: `last_offset = base_offset + last_offset_delta` even where records have been filtered
out; the count stands outside the compression.

Why nothing here is re-encoded on the way through a broker: docs/formats.md.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
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
    INT64_MAX,
    INT64_MIN,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
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
from .batch_pure import encode_headers, write_header
from .checksums import Buffer, crc32c
from .compression import (
    Codec,
    DecompressedTooLarge,
    DecompressionError,
    compress,
    decompress,
)
from .limits import RECORDS_SIZE_MAX

__all__ = [
    "HEADER_SIZE",
    "BatchFault",
    "BatchHeader",
    "Codec",
    "GapReason",
    "InvalidBatch",
    "Record",
    "RecordBatch",
    "RecordColumns",
    "check_batch",
    "columns_of",
    "decode_batch",
    "encode_batch",
    "filter_batch",
    "first_at_or_after",
    "gap_batches",
    "gap_reason",
    "iter_batches",
    "patch_batch",
    "read_header",
    "scan_headers",
    "set_log_append_time",
]

_CODECS = tuple(Codec)
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_POSITION = 12
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_CRC = struct.Struct(">I")


class InvalidBatch(Exception):
    """A batch breaks a rule; `fault` says which, `fault.error_code` what the wire calls it."""

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


class Record(NamedTuple):
    """One record as a reader gets it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: HeaderTuple


class RecordColumns(NamedTuple):
    """A batch as Arrow wants it: buffers, no Python object per record.

    `offsets` and `timestamps` are int64.  Of headers: those of record i are numbers
    header_starts[i] to header_starts[i + 1] (int32) of `header_keys` and `header_values`.
    """

    records_count: int
    offsets: "array[int]"
    timestamps: "array[int]"
    keys: Gathered
    values: Gathered
    header_starts: "array[int]"
    header_keys: Gathered
    header_values: Gathered


class GapReason(IntEnum):
    """Why offsets are missing.  Stored in bits 8-15 of a gap's attributes; never renumber."""

    LOST_TAIL = 1
    """Written, not yet synced, and gone after a crash."""
    CORRUPTION = 2
    """The bytes were damaged on disk."""
    CAP = 3
    """Evicted because the log reached its size limit."""
    TTL = 4
    """Expired by age."""
    DELETED = 5
    """Deleted on purpose: nothing was lost."""


_FAULT_MESSAGES = {
    BatchFault.UNSUPPORTED_CODEC: "compression that does not exist",
    BatchFault.CONTROL_BATCH: "a producer may not send control batches",
    BatchFault.INVALID_PRODUCER: "producer id, epoch and sequence do not go together",
    BatchFault.INVALID_RECORD: "a record does not decode or its offset is out of order",
}


def _invalid(batch: Buffer, fault: BatchFault) -> InvalidBatch:
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
    Of a compressed batch only header, CRC and count are checked.

    Raises InvalidBatch.
    """
    mode = CheckMode.STORED if stored else CheckMode.PRODUCE
    fault = kernel.backend.check(buf, mode)
    if fault == BatchFault.NONE:
        return BatchHeader._make(HEADER.unpack_from(buf))
    if fault == BatchFault.WRONG_MAX_TIMESTAMP and not memoryview(buf).readonly:
        _repair_max_timestamp(buf)
        return read_header(buf)
    raise _invalid(buf, BatchFault(fault))


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
    _MAX_TIMESTAMP.pack_into(buf, _MAX_TIMESTAMP_POSITION, max(index.longs[header.records_count :]))
    _write_crc(buf)


def _write_crc(buf: Buffer) -> None:
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
    _MAX_TIMESTAMP.pack_into(buf, _MAX_TIMESTAMP_POSITION, now_ms)
    _write_crc(buf)


def encode_batch(
    values: Sequence[bytes | None],
    *,
    timestamps_ms: int | Sequence[int],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | None = None,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch of the given columns, base offset 0, as a producer sends it.

    values, keys, headers: of equal length; None is null, no headers.  `timestamps_ms` is one
    number for all records, or one per record.  Raises ValueError for columns of different
    length, no records, timestamps past 64 bits or a batch past 2^31-1 bytes, TypeError for
    anything but bytes and None.
    """
    count = len(values)
    if not count:
        raise ValueError("a batch has at least one record")
    times = _timestamps(timestamps_ms)
    for name, column in (("keys", keys), ("headers", headers), ("timestamps_ms", times)):
        if column is not None and not isinstance(column, int) and len(column) != count:
            raise ValueError(f"{len(column)} {name} for {count} values")
    sections = None if headers is None else _header_sections(headers)
    attributes = codec | (TRANSACTIONAL_BIT if transactional else 0)
    fields = BatchFields(attributes, producer_id, producer_epoch, base_sequence)
    batch = kernel.backend.encode(values, keys, sections, times, fields)
    if codec == Codec.NONE:
        return batch
    header = read_header(batch)
    out = bytearray(HEADER_SIZE)
    out += compress(codec, memoryview(batch)[HEADER_SIZE:])
    write_header(out, count, header.base_timestamp, header.max_timestamp, fields)
    return bytes(out)


def _header_sections(
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None],
) -> list[bytes]:
    """Each record's headers, encoded; the same object in a row is encoded once."""
    sections: list[bytes] = []
    previous: Sequence[tuple[str, bytes | None]] | None = None
    section = b"\0"
    for item in headers:
        if item is not previous:
            previous = item
            section = encode_headers(item) if item else b"\0"
        sections.append(section)
    return sections


def _timestamps(timestamps_ms: int | Sequence[int]) -> "int | array[int]":
    if isinstance(timestamps_ms, int) and INT64_MIN <= timestamps_ms <= INT64_MAX:
        return timestamps_ms
    try:
        return array("q", [timestamps_ms] if isinstance(timestamps_ms, int) else timestamps_ms)
    except OverflowError as exc:
        raise ValueError("a timestamp is past 64 bits") from exc


class RecordBatch:
    """A decoded view of one batch; columns are made when asked for.

    Fast to slow: values(), columns() for Arrow, keys(), offsets(); records() builds them all.
    """

    __slots__ = ("_data", "_header_index", "_index", "header")

    def __init__(self, header: BatchHeader, data: bytes, index: RecordIndex) -> None:
        self.header = header
        self._data = data
        self._index = index
        self._header_index: HeaderIndex | None = None

    def __len__(self) -> int:
        """How many records there are; fewer than offsets where some were filtered out."""
        return self._index.records_count

    def offsets(self) -> list[int]:
        n = len(self)
        if not self._index.flags & IndexFlag.HOLES:
            return list(range(self.header.base_offset, self.header.base_offset + n))
        return self._index.longs[:n].tolist()

    def timestamps(self) -> list[int]:
        """Milliseconds; the append time for every record of a log-append-time batch."""
        n = len(self)
        if n and not self._index.flags & IndexFlag.TIMESTAMPS_DIFFER:
            return [self._index.longs[n]] * n
        return self._index.longs[n:].tolist()

    def keyless(self) -> list[int]:
        """The places, from 0, of the records without a key."""
        if not self._index.flags & IndexFlag.KEYS:
            return list(range(len(self)))
        if not self._index.flags & IndexFlag.NULL_KEYS:
            return []
        return [place for place, key in enumerate(self.keys()) if key is None]

    @property
    def has_null_values(self) -> bool:
        """Whether some value is null."""
        return bool(self._index.flags & IndexFlag.NULL_VALUES)

    def values(self) -> list[bytes | None]:
        return kernel.backend.slices(self._data, self._index.ints, 0, len(self))

    def keys(self) -> list[bytes | None]:
        n = len(self)
        if not self._index.flags & IndexFlag.KEYS:
            return [None] * n
        return kernel.backend.slices(self._data, self._index.ints, 2 * n, n)

    def headers(self) -> list[HeaderTuple]:
        """Each record's headers; a name that is not UTF-8 comes with backslash escapes."""
        if not self._index.flags & IndexFlag.HEADERS:
            return [()] * len(self)
        return kernel.backend.header_tuples(self._data, self._index, self._headers())

    def records(self) -> list[Record]:
        """Every record as a named tuple."""
        return self.records_as(Record)

    def records_as(
        self, record_type: type[AnyRecord], prefix: tuple[object, ...] = ()
    ) -> list[AnyRecord]:
        """Every record as another named tuple: the fields of `prefix`, then those of Record.

        `prefix` holds up to 8 plain values, such as the topic and partition of all records.
        """
        fields: tuple[str, ...] = getattr(record_type, "_fields", ())
        assert len(fields) == len(prefix) + len(Record._fields), record_type
        headers = self.headers() if self._index.flags & IndexFlag.HEADERS else None
        return kernel.backend.records(self._data, self._index, record_type, headers, prefix)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def columns(self) -> RecordColumns:
        """Buffers that Arrow can wrap without copying."""
        return columns_of([self])

    def find_header(self, name: str) -> list[tuple[int, bytes | None]]:
        """(offset, value) of every header called `name`, in the order of the records."""
        if not self._index.flags & IndexFlag.HEADERS:
            return []
        headers = self._headers()
        found = kernel.backend.find_header(self._data, headers, name.encode())
        if not found:
            return []
        n = len(self)
        owners = [
            offset
            for offset, count in zip(self._index.longs[:n], self._index.ints[5 * n :], strict=True)
            for _ in range(count)
        ]
        total = headers.headers_count
        values = kernel.backend.slices(self._data, headers.ints, 2 * total, total)
        return [(owners[i], values[i]) for i in found]

    def _headers(self) -> HeaderIndex:
        if self._header_index is None:
            self._header_index = kernel.backend.index_headers(self._data, self._index)
        return self._header_index


def columns_of(batches: Sequence[RecordBatch]) -> RecordColumns:
    """The records of all batches, in order, as one set of columns.

    Raises ValueError when a column would pass the 2^31-1 bytes that int32 offsets can say.
    """
    offsets, timestamps = array("q"), array("q")
    keys, values, header_keys, header_values = [], [], [], []
    keys_size = values_size = header_keys_size = header_values_size = 0
    for batch in batches:
        index, n, data = batch._index, len(batch), batch._data
        offsets += index.longs[:n]
        timestamps += index.longs[n:]
        keys.append(Strings(data, index.ints, 2 * n, n))
        values.append(Strings(data, index.ints, 0, n))
        keys_size += index.keys_size
        values_size += index.values_size
        if index.headers_count:
            headers = batch._headers()
            total = headers.headers_count
            header_keys.append(Strings(data, headers.ints, 0, total))
            header_values.append(Strings(data, headers.ints, 2 * total, total))
            header_keys_size += headers.keys_size
            header_values_size += headers.values_size
    largest = max(keys_size, values_size, header_keys_size, header_values_size)
    if largest > INT32_MAX:
        raise ValueError(f"a column of {largest} bytes, limit {INT32_MAX}")
    backend = kernel.backend
    return RecordColumns(
        len(offsets),
        offsets,
        timestamps,
        backend.gather(keys, keys_size),
        backend.gather(values, values_size),
        backend.header_starts([batch._index for batch in batches])
        if header_keys
        else array("i", bytes(4 * len(offsets) + 4)),
        backend.gather(header_keys, header_keys_size),
        backend.gather(header_values, header_values_size),
    )


def _records_of(buf: Buffer, header: BatchHeader, size_max: int) -> tuple[bytes, int]:
    """The uncompressed records of a batch, as (bytes, position of the first)."""
    if not header.attributes & CODEC_BITS:
        return bytes(buf), HEADER_SIZE
    if not header.records_count:
        return b"", 0
    payload = memoryview(buf)[HEADER_SIZE:]
    try:
        return bytes(decompress(header.codec, payload, size_max)), 0
    except DecompressedTooLarge as exc:
        raise InvalidBatch(BatchFault.TOO_LARGE, str(exc)) from exc
    except DecompressionError as exc:
        raise InvalidBatch(BatchFault.INVALID_COMPRESSION, str(exc)) from exc


def decode_batch(buf: Buffer, *, size_max: int = RECORDS_SIZE_MAX) -> RecordBatch:
    """The batch that `buf` holds exactly, checked, decompressed and indexed.

    `size_max` bounds the decompressed records in bytes.  The result owns its bytes.  Control
    batches decode like others: look at `.header.is_control`.  Raises InvalidBatch.
    """
    fault = kernel.backend.check(buf, CheckMode.HEADER)
    if fault != BatchFault.NONE:
        raise _invalid(buf, BatchFault(fault))
    header = BatchHeader._make(HEADER.unpack_from(buf))
    data, position = _records_of(buf, header, size_max)
    index = kernel.backend.index(
        data,
        position,
        header.records_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )
    if index is None:
        raise _invalid(buf, BatchFault.INVALID_RECORD)
    return RecordBatch(header, data, index)


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


def first_at_or_after(
    buf: Buffer, timestamp_ms: int, *, from_offset: int = 0, size_max: int = RECORDS_SIZE_MAX
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record not older than `timestamp_ms`; None without one.

    Exact to the record, of those from `from_offset` on; decompresses a compressed batch.  Raises
    InvalidBatch.
    """
    header = read_header(buf)
    if header.max_timestamp < timestamp_ms or not header.records_count or header.is_control:
        return None
    batch = decode_batch(buf, size_max=size_max)
    for offset, timestamp in zip(batch.offsets(), batch.timestamps(), strict=True):
        if timestamp >= timestamp_ms and offset >= from_offset:
            return offset, timestamp
    return None


def gap_batches(
    from_offset: int, to_offset: int, reason: GapReason, now_ms: int, leader_epoch: int
) -> list[bytes]:
    """The notice that offsets [from_offset, to_offset) hold nothing: empty control batches.

    One batch of 61 bytes covers up to 2^31 offsets; longer ranges get a chain.  `now_ms` is
    when the loss was noticed.
    """
    if not 0 <= from_offset < to_offset:
        raise ValueError(f"a gap [{from_offset}, {to_offset}) is empty")
    batches = []
    while from_offset < to_offset:
        last_offset_delta = min(to_offset - from_offset - 1, INT32_MAX)
        batch = bytearray(HEADER_SIZE)
        HEADER.pack_into(
            batch,
            0,
            from_offset,
            HEADER_SIZE - LENGTH_END,
            leader_epoch,
            MAGIC,
            0,
            CONTROL_BIT | reason << 8,
            last_offset_delta,
            -1,
            now_ms,
            -1,
            -1,
            -1,
            0,
        )
        _write_crc(batch)
        batches.append(bytes(batch))
        from_offset += last_offset_delta + 1
    return batches


def gap_reason(header: BatchHeader) -> GapReason | None:
    """Why the offsets of a gap batch are missing; None for any other batch."""
    if not header.is_control or header.records_count:
        return None
    try:
        return GapReason(header.attributes >> 8 & 0xFF)
    except ValueError:
        return None


def emptied_batch(header: BatchHeader) -> bytes:
    """A batch without its records that still says what its producer sent last: epoch, sequence.

    Offsets, producer fields and max timestamp stay.  To readers it is a gap with reason `deleted`,
    so that no client takes it for a reply that was cut short; it belongs to no transaction.
    """
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        *header._replace(
            batch_length=HEADER_SIZE - LENGTH_END,
            attributes=CONTROL_BIT | GapReason.DELETED << 8,
            base_timestamp=-1,
            records_count=0,
        ),
    )
    _write_crc(batch)
    return bytes(batch)


def scan_headers(
    buf: Buffer, name: str, *, size_max: int = RECORDS_SIZE_MAX
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record header called `name`, such as `segbroker.tag`."""
    return decode_batch(buf, size_max=size_max).find_header(name)


def filter_batch(
    buf: Buffer,
    drop: frozenset[int] | set[int],
    now_ms: int,
    *,
    size_max: int = RECORDS_SIZE_MAX,
) -> bytes:
    """The batch without the records whose offsets are in `drop`.

    Base offset, last offset delta, leader epoch, producer fields and base sequence stay; count,
    max timestamp and CRC are renewed; a compressed batch is compressed again with its codec.
    When no record is left the range becomes a gap with reason `deleted`.  `buf` itself is
    returned (as bytes) when nothing is dropped.  Raises InvalidBatch.
    """
    batch = decode_batch(buf, size_max=size_max)
    header = batch.header
    offsets = batch.offsets()
    keep = bytes(offset not in drop for offset in offsets)
    if keep.count(1) == len(offsets):
        return bytes(buf)
    if not any(keep):
        (gap,) = gap_batches(
            header.base_offset,
            header.next_offset,
            GapReason.DELETED,
            now_ms,
            header.leader_epoch,
        )
        return gap
    return keep_records(batch, keep)


def keep_records(batch: RecordBatch, keep: bytes) -> bytes:
    """The batch with those records whose byte in `keep` is 1; one at least.

    As `filter_batch`, for who has decoded the batch already.
    """
    header, data = batch.header, batch._data
    position = 0 if header.attributes & CODEC_BITS else HEADER_SIZE
    selected = kernel.backend.select(data, position, header.records_count, keep)
    assert selected is not None, "the records have been indexed"
    records, latest_delta = selected
    max_timestamp = (
        header.max_timestamp if header.is_log_append_time else header.base_timestamp + latest_delta
    )
    out = bytearray(HEADER_SIZE)
    out += compress(header.codec, records)
    HEADER.pack_into(
        out,
        0,
        *header._replace(
            batch_length=len(out) - LENGTH_END,
            max_timestamp=max_timestamp,
            records_count=keep.count(1),
        ),
    )
    _write_crc(out)
    return bytes(out)

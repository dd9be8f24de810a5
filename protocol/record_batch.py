"""RecordBatch v2: the unit that is appended, sent, stored and checksummed.

    batch_header.py   its first 61 bytes: read, checked, patched by the broker
    batch_gaps.py     batches without records, which say that offsets are missing
    here              its records: encoded, decoded, as columns, filtered

Other modules import everything about record batches from here.

Invariant: the count of records is outside of the compressed part, and `last_offset = base_offset +
last_offset_delta` even if records have been filtered out.

Why nothing here is re-encoded on the way through a broker: docs/formats.md.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import kernel
from .batch_gaps import GapReason, emptied_batch, gap_batches, gap_reason
from .batch_header import (
    BatchHeader,
    InvalidBatch,
    check_batch,
    invalid,
    iter_batches,
    patch_batch,
    read_header,
    set_log_append_time,
    set_max_timestamp,
    write_crc,
)
from .batch_layout import (
    CODEC_BITS,
    HEADER,
    HEADER_SIZE,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    LENGTH_END,
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
from .batch_pure import encode_headers, write_header
from .checksums import Buffer
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
    "emptied_batch",
    "encode_batch",
    "first_at_or_after",
    "gap_batches",
    "gap_reason",
    "iter_batches",
    "keep_records",
    "patch_batch",
    "read_header",
    "recompress",
    "set_log_append_time",
    "stamp_greatest",
]


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

    @property
    def records_size(self) -> int:
        """Bytes of the records, decompressed."""
        return len(self._data)

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

    def stamps(self) -> Iterator[tuple[int, int]]:
        """(offset, timestamp) of each record, one at a time: a batch may hold ten million."""
        longs, n = memoryview(self._index.longs), len(self)
        return zip(longs[:n], longs[n:], strict=True)

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
        whole = range(len(self))
        return kernel.backend.header_tuples(self._data, self._index, self._headers(), whole)

    def offset_at(self, place: int) -> int:
        """The offset of the record at a place, from 0."""
        assert 0 <= place < len(self), f"place {place} of {len(self)}"
        return self._index.longs[place]

    def records(self) -> list[Record]:
        """Every record as a named tuple."""
        return self.records_as(Record)

    def records_as(
        self,
        record_type: type[AnyRecord],
        prefix: tuple[object, ...] = (),
        *,
        start: int = 0,
        stop: int | None = None,
    ) -> list[AnyRecord]:
        """Every record as another named tuple: the fields of `prefix`, then those of Record.

        `prefix` holds up to 8 plain values, such as the topic and partition of all records.
        start, stop: only these of the records, counted from 0 as in a slice.
        """
        part = range(len(self))[start:stop]
        fields: tuple[str, ...] = getattr(record_type, "_fields", ())
        assert len(fields) == len(prefix) + len(Record._fields), record_type
        backend, index = kernel.backend, self._index
        headers = None
        if index.flags & IndexFlag.HEADERS:
            headers = backend.header_tuples(self._data, index, self._headers(), part)
        return backend.records(self._data, index, record_type, headers, prefix, part)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def columns(self) -> RecordColumns:
        """Buffers that Arrow can wrap without copying."""
        return columns_of([self])

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


def decode_batch(
    buf: Buffer, *, size_max: int = RECORDS_SIZE_MAX, headers_max: int | None = None
) -> RecordBatch:
    """The batch that `buf` holds exactly, checked, decompressed and indexed.

    `size_max` bounds the decompressed records in bytes, `headers_max` their headers, all together;
    beyond either it is refused as too large.  The result owns its bytes.  Control
    batches decode like others: look at `.header.is_control`.  Raises InvalidBatch.
    """
    fault = kernel.backend.check(buf, CheckMode.HEADER)
    if fault != BatchFault.NONE:
        raise invalid(buf, BatchFault(fault))
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
        raise invalid(buf, BatchFault.INVALID_RECORD)
    if headers_max is not None and index.headers_count > headers_max:
        raise InvalidBatch(
            BatchFault.TOO_LARGE, f"{index.headers_count} headers, limit {headers_max}"
        )
    return RecordBatch(header, data, index)


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
    for offset, timestamp in batch.stamps():
        if timestamp >= timestamp_ms and offset >= from_offset:
            return offset, timestamp
    return None


def recompress(
    buf: Buffer, codec: Codec, level: int | None = None, *, size_max: int = RECORDS_SIZE_MAX
) -> bytearray:
    """The batch that `buf` holds exactly, with its records compressed by another codec.

    It is checked as one from a producer, while its records can be looked at (check_batch).  All
    else stays but length and CRC.  `size_max` bounds the decompressed records in bytes.  level:
    see compress.  Raises InvalidBatch: also where the records are not what their codec says.
    """
    header = check_batch(buf)
    data, position = _records_of(buf, header, size_max)
    out = bytearray(HEADER_SIZE)
    out += compress(codec, memoryview(data)[position:], level)
    changed = header._replace(
        batch_length=len(out) - LENGTH_END, attributes=header.attributes & ~CODEC_BITS | codec
    )
    HEADER.pack_into(out, 0, *changed)
    write_crc(out)
    return out


def stamp_greatest(buf: Buffer, *, size_max: int = RECORDS_SIZE_MAX) -> None:
    """Write the greatest timestamp of its records into the header of the writable batch that `buf`
    holds exactly.  It is checked as one from a producer.  `size_max` bounds the decompressed
    records in bytes.  Raises InvalidBatch."""
    header = check_batch(buf)
    data, position = _records_of(buf, header, size_max)
    count = header.records_count
    selected = None
    if count <= (len(data) - position) // RECORD_SIZE_MIN:
        selected = kernel.backend.select(data, position, count, b"\1" * count)
    if selected is None or not INT64_MIN <= header.base_timestamp + selected[1] <= INT64_MAX:
        raise invalid(buf, BatchFault.INVALID_RECORD)
    set_max_timestamp(buf, header.base_timestamp + selected[1])


def keep_records(batch: RecordBatch, keep: bytes) -> bytes:
    """The batch with those records whose byte in `keep` is 1; one at least.

    Base offset, last offset delta, leader epoch, producer fields and base sequence stay; count,
    max timestamp and CRC are renewed; a compressed batch is compressed again with its codec.
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
    write_crc(out)
    return bytes(out)

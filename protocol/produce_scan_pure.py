"""Plain Produce requests, found in what one receive brought: the specification, and the twin.

    | size | Produce | size | Produce | size | Fetch | ...
      row 0            row 1            stop

A request is *plain* when it is of the shape that `hot.decode_single_produce` takes (one partition,
no transactional id), asks for an acknowledgement (acks 1 or -1), and brings one batch that
`check_batch` accepts as it is, with no attribute but a codec that the version allows, and then
with a greatest timestamp.  The scan describes the plain frames at the beginning of the bytes and
stops at the first that is not: that one, and everything behind it, is for the general way, which
alone says what is legal.

What is found is written as columns of integers, which `Column` names; positions are those of the
bytes that were given.  What the two scans say is the same for all bytes (tested).

Rows that go the same way (client, version, topic, partition, timeout, no idempotent producer) and
follow each other are a *stretch*: its first row says how many, the others 0.
"""

from array import array
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import Final

from .batch_layout import CODEC_BITS, HEADER, CheckMode
from .batch_pure import check
from .compression import Codec

__all__ = ["FIELDS", "Column", "gather", "scan_produce", "way_of"]

_ACKS: Final = (-1, 1)
_VERSIONS: Final = range(3, 14)
_FLEXIBLE: Final = 9
_BY_ID: Final = 13
_ID_SIZE: Final = 16
_ZSTD_SINCE: Final = 7
_ATTRIBUTES: Final = 0xFFFF & ~CODEC_BITS

_SIZE: Final = Struct(">i")
# Api key, version, correlation id, size of the client id.
_HEADER: Final = Struct(">hhih")
# Transactional id (null), acks, timeout, topics (1), size of the name; then: partitions (1), index,
# size of the records.  Compact: no tags of the header first, and the size of the records apart.
_TOPIC: Final = Struct(">hhiih")
_PARTITION: Final = Struct(">iii")
_TOPIC_COMPACT: Final = Struct(">BBhiBB")
_PARTITION_COMPACT: Final = Struct(">Bi")
_NO_TAGS: Final = b"\0\0\0"


class Column(IntEnum):
    """The places of a row."""

    FRAME_BEGIN = 0
    """The frame, with its size field."""
    FRAME_END = 1
    VERSION = 2
    CORRELATION = 3
    CLIENT_BEGIN = 4
    """The client id; -1 where there is none."""
    CLIENT_END = 5
    NAME_BEGIN = 6
    """From version 13 on the topic's id, of 16 bytes."""
    NAME_END = 7
    PARTITION = 8
    TIMEOUT = 9
    RECORDS_BEGIN = 10
    RECORDS_SIZE = 11
    OFFSETS_COUNT = 12
    """Offsets that the batch takes, and records that it has."""
    MAX_TIMESTAMP = 13
    IS_TRACKED = 14
    """Whether it is of an idempotent producer."""
    STRETCH = 15
    """Rows that go the same way, from here on; 0 behind the first of them."""


FIELDS: Final = (
    Column.CORRELATION,
    Column.RECORDS_SIZE,
    Column.OFFSETS_COUNT,
    Column.MAX_TIMESTAMP,
)
"""Of a row, what is needed to append its batch and to answer."""


def scan_produce(
    data: bytearray, begin: int, end: int, columns: "array[int]", stride: int, first: int
) -> tuple[int, int]:
    """(how many plain frames data[begin:end] begins with; where they end).

    columns: array('q') of `stride` rows; written from row `first` on, as far as there is room.
    Column c of row n lies at c * stride + n.
    """
    count = head = 0
    way: tuple[object, ...] = ()
    while count < stride - first and end - begin >= _SIZE.size:
        (size,) = _SIZE.unpack_from(data, begin)
        following = begin + _SIZE.size + size
        if not _HEADER.size <= size <= end - begin - _SIZE.size:
            break
        found = _columns(bytes(data[begin + _SIZE.size : following]), begin + _SIZE.size)
        if found is None:
            break
        row = (begin, following, *found, 0)
        for column, value in enumerate(row):
            columns[column * stride + first + count] = value
        previous, way = way, way_of(data, row)
        if count and (row[Column.IS_TRACKED] or previous != way):
            head = count
        begin = following
        count += 1
        columns[Column.STRETCH * stride + first + head] = count - head
    return count, begin


def gather(
    data: bytearray, columns: "array[int]", stride: int, rows: Sequence[int]
) -> tuple[bytearray, "array[int]"]:
    """(the batches of these rows; the columns FIELDS of them, one behind the other)."""
    out = bytearray()
    for row in rows:
        begin = columns[Column.RECORDS_BEGIN * stride + row]
        out += data[begin : begin + columns[Column.RECORDS_SIZE * stride + row]]
    fields = [columns[column * stride + row] for column in FIELDS for row in rows]
    return out, array("q", fields)


def way_of(data: bytearray, row: tuple[int, ...]) -> tuple[object, ...]:
    """What is the same for the rows of a stretch."""
    has_client = row[Column.CLIENT_BEGIN] >= 0
    return (
        has_client and data[row[Column.CLIENT_BEGIN] : row[Column.CLIENT_END]],
        data[row[Column.NAME_BEGIN] : row[Column.NAME_END]],
        row[Column.VERSION],
        row[Column.PARTITION],
        row[Column.TIMEOUT],
        row[Column.IS_TRACKED],
    )


def _columns(frame: bytes, place: int) -> tuple[int, ...] | None:
    """The row of a frame without its size field, from VERSION on; None when it is not plain.

    place: where the frame stands in the bytes that are scanned.
    """
    try:
        key, version, correlation_id, client_size = _HEADER.unpack_from(frame)
        if key != 0 or version not in _VERSIONS or client_size < -1:
            return None
        client = _HEADER.size
        position = client + max(client_size, 0)
        if version < _FLEXIBLE:
            transactional, acks, timeout_ms, topics, size = _TOPIC.unpack_from(frame, position)
            name = position + _TOPIC.size
            if transactional != -1 or topics != 1 or size < 0:
                return None
            name_end = name + size
            partitions, index, size = _PARTITION.unpack_from(frame, name_end)
            start = name_end + _PARTITION.size
            if partitions != 1 or size < 0 or size > len(frame) - start:
                return None
        else:
            tags, transactional, acks, timeout_ms, topics, size = _TOPIC_COMPACT.unpack_from(
                frame, position
            )
            name = position + _TOPIC_COMPACT.size
            if tags or transactional or topics != 2:
                return None
            if version >= _BY_ID:
                name -= 1  # there is no size
                name_end = name + _ID_SIZE
            elif 1 <= size < 128:
                name_end = name + size - 1
            else:
                return None
            partitions, index = _PARTITION_COMPACT.unpack_from(frame, name_end)
            start = name_end + _PARTITION_COMPACT.size
            size = shift = 0
            while (byte := frame[start]) > 127:
                size |= (byte & 0x7F) << shift
                shift += 7
                start += 1
                if shift > 28:
                    return None
            size |= byte << shift
            start += 1
            size -= 1
            if partitions != 2 or not 0 <= size <= len(frame) - start - len(_NO_TAGS):
                return None
            if size >> 32 or frame[start + size : start + size + 3] != _NO_TAGS:
                return None
    except (struct_error, IndexError):
        return None
    records = frame[start : start + size]
    if acks not in _ACKS or check(records, CheckMode.PRODUCE):
        return None
    header = HEADER.unpack_from(records)
    attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id = header[5:10]
    codec = attributes & CODEC_BITS
    if attributes & _ATTRIBUTES or (codec == Codec.ZSTD and version < _ZSTD_SINCE):
        return None
    if codec and max_timestamp < base_timestamp:
        return None
    has_client = client_size >= 0
    return (
        version,
        correlation_id,
        place + client if has_client else -1,
        place + client + client_size if has_client else -1,
        place + name,
        place + name_end,
        index,
        timeout_ms,
        place + start,
        size,
        last_offset_delta + 1,
        max_timestamp,
        int(producer_id >= 0),
    )

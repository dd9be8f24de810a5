"""Produce and fetch of one partition, without objects: the shape of nearly every such request.

    produce request    ... | 1 topic | name | 1 partition | index | records
    produce response   ... | 1 topic | name | 1 partition | index, error, offsets | ...
    fetch response     ... | 1 topic | name | 1 partition | index, error, offsets | records

From 13 on, of both, the name is the topic's id.

The decoder returns None for every other shape and for everything malformed.  The caller then uses
the compiled codec (schema.py), which accepts or refuses: so one place says what is legal, and
nothing may be accepted here that it refuses.

Why it exists: microseconds per request on CPython 3.11, the compiled codec with its objects
against the function here.  The fetch request would have gained 0.6 to 1.5 of 3.8 and was left out.

    | produce request   | 3.0 to 3.7 | 1.5 to 1.9 |
    | produce response  | 4.3 to 4.6 | 1.0 to 1.2 |
    | fetch response    | 5.4 to 6.9 | 1.6 to 2.7 |

Invariant: what is decoded here is decoded the same by the compiled codec, what is encoded here has
the same bytes (tested with random values in every version).
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple
from uuid import UUID

from .fields import ZERO_UUID, Part
from .headers import RequestHeader
from .primitives import uvarint

__all__ = [
    "ProducedReply",
    "SingleProduce",
    "decode_single_produce",
    "encode_single_fetch_response",
    "encode_single_produce_response",
    "encode_single_produce_responses",
]

PRODUCE_TRANSACTIONAL: Final = 3
PRODUCE_FLEXIBLE: Final = 9
PRODUCE_BY_ID: Final = 13
FETCH_FLEXIBLE: Final = 12
FETCH_BY_ID: Final = 13


class SingleProduce(NamedTuple):
    """A ProduceRequest for one partition, without a transactional id."""

    acks: int
    timeout_ms: int
    topic: str
    partition: int
    records: memoryview
    topic_id: UUID = ZERO_UUID
    """From version 13 on, and no name then."""


# Transactional id (null), acks, timeout, topics (1), size of the name; then: partitions (1), index.
_PRODUCE: Final = Struct(">hhiih")
_PRODUCE_COMPACT: Final = Struct(">BhiBB")
_PARTITION: Final = Struct(">iii")  # and the size of the records
_PARTITION_COMPACT: Final = Struct(">Bi")
_NO_TAGS: Final = memoryview(b"\0\0\0")


def decode_single_produce(frame: memoryview, header: RequestHeader) -> SingleProduce | None:
    """The request if it is of the usual shape, else None.  `records` is a view into `frame`."""
    position = header.body_position
    try:
        if header.api_version < PRODUCE_TRANSACTIONAL:
            return None
        is_by_id = header.api_version >= PRODUCE_BY_ID
        if header.api_version < PRODUCE_FLEXIBLE:
            transactional, acks, timeout_ms, topics, size = _PRODUCE.unpack_from(frame, position)
            begin = position + 14
            position = begin + size
            if transactional != -1 or topics != 1 or size < 0:
                return None
            partitions, index, size = _PARTITION.unpack_from(frame, position)
            start = position + 12
            if partitions != 1 or size < 0 or start + size > len(frame):
                return None
            stop = start + size
        else:
            transactional, acks, timeout_ms, topics, size = _PRODUCE_COMPACT.unpack_from(
                frame, position
            )
            begin = position + 9
            position = begin + size - 1
            if is_by_id:  # it has no size
                begin -= 1
                position = begin + 16
            elif not 1 <= size < 128:
                return None
            if transactional != 0 or topics != 2:
                return None
            partitions, index = _PARTITION_COMPACT.unpack_from(frame, position)
            start = position + 5
            size = shift = 0
            while (byte := frame[start]) > 127:
                size |= (byte & 0x7F) << shift
                shift += 7
                start += 1
                if shift > 28:
                    return None
            size |= byte << shift
            start += 1
            stop = start + size - 1
            # No tagged fields in partition, topic and request.
            if partitions != 2 or size < 1 or frame[stop : stop + 3] != _NO_TAGS:
                return None
        if is_by_id:
            topic, topic_id = "", UUID(bytes=bytes(frame[begin:position]))
        else:
            topic, topic_id = str(frame[begin:position], "utf-8"), ZERO_UUID
    except (struct_error, IndexError, UnicodeDecodeError):
        return None
    return SingleProduce(acks, timeout_ms, topic, index, frame[start:stop], topic_id)


# Size of the frame, correlation id, (tags,) topics (1), size of the name.
_PRODUCED_HEAD: Final = Struct(">iiih")
_PRODUCED_HEAD_COMPACT: Final = Struct(">iixB")
# Partitions (1), index, error, base offset, log append time, (log start offset, (nothing wrong
# with any record, no error message,)) throttle time
_PRODUCED_3: Final = Struct(">iihqqi")
_PRODUCED_5: Final = Struct(">iihqqqi")
_PRODUCED_8: Final = Struct(">iihqqqihi")
_PRODUCED_COMPACT: Final = Struct(">BihqqqBBxxix")


def encode_single_produce_response(
    api_version: int,
    correlation_id: int,
    topic: str,
    partition: int,
    *,
    base_offset: int,
    log_append_time_ms: int = -1,
    log_start_offset: int = -1,
    throttle_time_ms: int = 0,
    topic_id: UUID = ZERO_UUID,
) -> bytes:
    """The whole frame of a ProduceResponse for one partition, without an error; version 3 or later.

    Versions from 13 on name the topic by `topic_id`, earlier ones by `topic`.
    """
    assert api_version >= PRODUCE_TRANSACTIONAL, "no hand-made path for older responses"
    name = topic.encode()
    if api_version >= PRODUCE_FLEXIBLE:
        is_by_id = api_version >= PRODUCE_BY_ID
        body = topic_id.bytes if is_by_id else uvarint(len(name) + 1) + name
        tail = _PRODUCED_COMPACT.pack(
            2,
            partition,
            0,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            1,
            0,
            throttle_time_ms,
        )
        size = _PRODUCED_HEAD_COMPACT.size - 4 + len(body) + len(tail)
        return _PRODUCED_HEAD_COMPACT.pack(size, correlation_id, 2) + body + tail
    start = (1, partition, 0, base_offset, log_append_time_ms)
    if api_version >= 8:
        tail = _PRODUCED_8.pack(*start, log_start_offset, 0, -1, throttle_time_ms)
    elif api_version >= 5:
        tail = _PRODUCED_5.pack(*start, log_start_offset, throttle_time_ms)
    else:
        tail = _PRODUCED_3.pack(*start, throttle_time_ms)
    size = _PRODUCED_HEAD.size - 4 + len(name) + len(tail)
    return _PRODUCED_HEAD.pack(size, correlation_id, 1, len(name)) + name + tail


_CORRELATION: Final = Struct(">i")
_CORRELATION_AT: Final = 4
_OFFSET: Final = Struct(">q")
# What stands between the name and the base offset.
_BEFORE_OFFSET: Final = 10
_BEFORE_OFFSET_COMPACT: Final = 7


def _offset_at(api_version: int, size: int) -> int:
    """Where the base offset stands in a frame of so many bytes."""
    if api_version >= PRODUCE_FLEXIBLE:
        return size - _PRODUCED_COMPACT.size + _BEFORE_OFFSET_COMPACT
    tail = _PRODUCED_8 if api_version >= 8 else _PRODUCED_5 if api_version >= 5 else _PRODUCED_3
    return size - tail.size + _BEFORE_OFFSET


def encode_single_produce_responses(
    api_version: int,
    correlation_ids: Sequence[int],
    topic: str,
    partition: int,
    *,
    base_offsets: Sequence[int],
    log_start_offset: int,
    throttle_time_ms: int,
    topic_id: UUID = ZERO_UUID,
) -> Part:
    """The frames of several ProduceResponses that differ in these two only, without errors."""
    one = encode_single_produce_response(
        api_version,
        correlation_ids[0],
        topic,
        partition,
        base_offset=base_offsets[0],
        log_start_offset=log_start_offset,
        throttle_time_ms=throttle_time_ms,
        topic_id=topic_id,
    )
    count = len(correlation_ids)
    if count == 1:
        return one
    size = len(one)
    offset_at = _offset_at(api_version, size)
    frames = bytearray(one) * count
    put_correlation, put_offset = _CORRELATION.pack_into, _OFFSET.pack_into
    begin = size
    for n in range(1, count):
        put_correlation(frames, begin + _CORRELATION_AT, correlation_ids[n])
        put_offset(frames, begin + offset_at, base_offsets[n])
        begin += size
    return frames


class ProducedReply:
    """ProduceResponses that differ in correlation id and base offset only, one after the other."""

    __slots__ = ("_frame", "offset_at")

    def __init__(
        self,
        api_version: int,
        topic: str,
        partition: int,
        *,
        log_start_offset: int,
        throttle_time_ms: int,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        frame = encode_single_produce_response(
            api_version,
            0,
            topic,
            partition,
            base_offset=0,
            log_start_offset=log_start_offset,
            throttle_time_ms=throttle_time_ms,
            topic_id=topic_id,
        )
        self._frame = bytearray(frame)
        self.offset_at = _offset_at(api_version, len(frame))
        """Where the base offset stands; the correlation id stands behind the size of the frame."""

    def encode(self, correlation_id: int, base_offset: int) -> bytes:
        """One of them, the whole frame."""
        frame = self._frame
        _CORRELATION.pack_into(frame, _CORRELATION_AT, correlation_id)
        _OFFSET.pack_into(frame, self.offset_at, base_offset)
        return bytes(frame)


# Size of the frame, correlation id, (tags,) throttle time, (no error, no session,) topics (1), size
# of the name.
_FETCHED_HEAD_4: Final = Struct(">iiiih")
_FETCHED_HEAD_7: Final = Struct(">iiihiih")
_FETCHED_HEAD_COMPACT: Final = Struct(">iixihiB")
# Partitions (1), index, error, high watermark, last stable offset, (log start offset,) no aborted
# transactions, (no preferred replica,) size of the records (compact: it follows)
_FETCHED_4: Final = Struct(">iihqqii")
_FETCHED_5: Final = Struct(">iihqqqii")
_FETCHED_11: Final = Struct(">iihqqqiii")
_FETCHED_COMPACT: Final = Struct(">BihqqqBi")
_FETCHED_END_COMPACT: Final = b"\0\0\0"  # tags of partition, topic, response


def encode_single_fetch_response(
    api_version: int,
    correlation_id: int,
    topic: str,
    partition: int,
    *,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    records: Sequence[Part] = (),
    throttle_time_ms: int = 0,
    topic_id: UUID = ZERO_UUID,
    session_id: int = 0,
) -> list[Part]:
    """The parts of a whole FetchResponse frame for one partition, without an error.

    Versions from 13 on name the topic by `topic_id`, earlier ones by `topic`.

    `aborted_transactions` is null: right for isolation level 0, and where no transaction was ever
    aborted.
    """
    records_size = sum(map(len, records))
    end: bytes = b""
    offsets = (high_watermark, last_stable_offset)
    if api_version >= FETCH_FLEXIBLE:
        if api_version >= FETCH_BY_ID:
            name = topic_id.bytes
        else:
            name = topic.encode()
            name = uvarint(len(name) + 1) + name
        tail = _FETCHED_COMPACT.pack(2, partition, 0, *offsets, log_start_offset, 0, -1) + uvarint(
            records_size + 1
        )
        end = _FETCHED_END_COMPACT
        size = _FETCHED_HEAD_COMPACT.size - 4 + len(name) + len(tail) + records_size + len(end)
        head = _FETCHED_HEAD_COMPACT.pack(size, correlation_id, throttle_time_ms, 0, session_id, 2)
    else:
        name = topic.encode()
        start = (1, partition, 0, *offsets)
        if api_version >= 11:
            tail = _FETCHED_11.pack(*start, log_start_offset, -1, -1, records_size)
        elif api_version >= 5:
            tail = _FETCHED_5.pack(*start, log_start_offset, -1, records_size)
        else:
            tail = _FETCHED_4.pack(*start, -1, records_size)
        if api_version >= 7:
            size = _FETCHED_HEAD_7.size - 4 + len(name) + len(tail) + records_size
            head = _FETCHED_HEAD_7.pack(
                size, correlation_id, throttle_time_ms, 0, session_id, 1, len(name)
            )
        else:
            size = _FETCHED_HEAD_4.size - 4 + len(name) + len(tail) + records_size
            head = _FETCHED_HEAD_4.pack(size, correlation_id, throttle_time_ms, 1, len(name))
    if not records:
        return [head + name + tail + end]
    if end:
        return [head + name + tail, *records, end]
    return [head + name + tail, *records]

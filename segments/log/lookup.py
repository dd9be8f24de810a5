"""Finding offsets: by time and by leader epoch.  Blocking; for lanes.

A time is looked for in three steps that narrow: the columns (which segment), its index (which
block), its batches (which record).  Timestamps need not rise, so each step compares with the
greatest timestamp so far: the answer is the first record, by offset, that is not older.

A timestamp that the columns know may be no record's: that of a transaction's marker, of a record
below the log start, of one that was lost to damage.  Then the next segment that promises one is
looked at, and so on.  All markers may be younger than all records, where old records are written in
transactions; so behind READ_IN_VAIN_MAX bytes the next marker that is not older is the answer: it
lies at or before the record, and Kafka gives the first.

For the greatest timestamp segments are read, those with the greatest first, until none can hold a
greater one; SEGMENTS_MAX of them, after which the greatest that was found is the answer.

The bytes that are read have a valid checksum.  So if a batch cannot be decompressed, its producer
compressed it wrongly: it is skipped.

A producer can write anything into the header of a compressed batch, and a few bytes may decompress
to very many.  So one look-up decompresses at most OPENED_SIZE_MAX of a batch, OPENED_IN_VAIN_MAX
batches that lack the record promised by their headers, and OPENED_BYTES_MAX for the greatest
timestamp.  Beyond that the header is believed: the answer is where its batch begins, at or before
the record.
"""

from collections.abc import Iterator
from heapq import nlargest
from typing import Final, NamedTuple

from segbroker.protocol.record_batch import (
    BatchFault,
    BatchHeader,
    InvalidBatch,
    decode_batch,
    first_at_or_after,
    read_header,
)

from ..decisions import epoch_at
from .partition_log import PartitionLog
from .planning import batches

SEGMENTS_MAX: Final = 64
"""Segments that are read for the greatest timestamp."""
OPENED_SIZE_MAX: Final = 16 << 20
"""Bytes of records of one batch, opened."""
OPENED_IN_VAIN_MAX: Final = 64
OPENED_BYTES_MAX: Final = 1 << 30
READ_IN_VAIN_MAX: Final = 256 << 20
"""Bytes of batches that are read and have no record that is looked for."""


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record not older, or None.  Blocking."""
    return _first_by_time(log, timestamp_ms, believes_markers=True)


def _first_by_time(
    log: PartitionLog, timestamp_ms: int, *, believes_markers: bool
) -> tuple[int, int] | None:
    start = log.log_start_offset
    in_vain = read_size = 0
    while (span := _promising(log, timestamp_ms, start)) is not None:
        for batch in batches(log, max(span.begin, start), span.end):
            header = read_header(batch)
            read_size += len(batch)
            if header.max_timestamp < timestamp_ms or not header.records_count:
                continue
            if header.is_control:
                if believes_markers and read_size > READ_IN_VAIN_MAX:
                    return _as_promised(log, header)
                continue
            if in_vain == OPENED_IN_VAIN_MAX:
                return _as_promised(log, header)
            try:
                found = first_at_or_after(
                    batch, timestamp_ms, from_offset=log.log_start_offset, size_max=OPENED_SIZE_MAX
                )
            except InvalidBatch as exc:
                if exc.fault is BatchFault.TOO_LARGE:
                    return _as_promised(log, header)
                found = None  # its producer compressed something else: there is no record to find
            if found is not None:
                return found
            in_vain += 1
        start = span.end
    return None


def _as_promised(log: PartitionLog, header: BatchHeader) -> tuple[int, int]:
    """What a batch that is not opened says of itself."""
    return max(header.base_offset, log.log_start_offset), header.max_timestamp


class _Span(NamedTuple):
    """A segment, or the end of one: its offsets, and a timestamp that no record of it is above."""

    begin: int
    end: int
    newest_ms: int


def _promising(log: PartitionLog, timestamp_ms: int, offset: int) -> _Span | None:
    """What may hold the first record from `offset` on that is not older, and ends behind it."""
    with log.state_lock:
        place = log.sealed.find_time(timestamp_ms, offset)
        if place == len(log.sealed):
            for segment in (*log.rotating, log.active):
                if segment.max_timestamp >= timestamp_ms and segment.next_offset > offset:
                    return _Span(segment.base_offset, segment.next_offset, segment.max_timestamp)
            return None
        row = log.sealed.row_at(place)
    index = log.files.index(row)
    ordinal = index.block_by_time(timestamp_ms)
    first = index.offsets[ordinal] if ordinal < len(index.blocks) else 0
    return _Span(row.base_offset + first, row.end_offset, row.max_timestamp)


def greatest_timestamp(log: PartitionLog) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record with the greatest timestamp.  Blocking."""
    with log.state_lock:
        sealed = log.sealed.running_max_timestamps
        greatest = max(
            [segment.max_timestamp for segment in (*log.rotating, log.active)],
            default=-1,
        )
        if sealed:
            greatest = max(greatest, sealed[-1])
    if greatest < 0:
        return None
    found = _first_by_time(log, greatest, believes_markers=False)
    return found or _greatest_of_records(log)


class _Room:
    """Bytes of records that one look may open yet."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = OPENED_BYTES_MAX


def _greatest_of_records(log: PartitionLog) -> tuple[int, int] | None:
    found: tuple[int, int] | None = None
    room = _Room()
    for span in _newest(log):
        if found is not None and span.newest_ms < found[1]:
            break
        one = _greatest_within(log, span, room)
        if one is not None and (found is None or (-one[1], one[0]) < (-found[1], found[0])):
            found = one
    return found


def _newest(log: PartitionLog) -> list[_Span]:
    """The segments with the greatest timestamps that they may hold, greatest first.

    The lock is held for a copy of two columns, and no object is made of the other segments.
    """
    with log.state_lock:
        sealed = log.sealed
        stamps, begins = sealed.max_timestamps[:], sealed.base_offsets[:]
        begins.append(sealed.end_offset)
        spans = [
            _Span(segment.base_offset, segment.next_offset, segment.max_timestamp)
            for segment in (*log.rotating, log.active)
        ]
    places = nlargest(SEGMENTS_MAX, range(len(stamps)), key=stamps.__getitem__)
    spans += [_Span(begins[place], begins[place + 1], stamps[place]) for place in places]
    spans.sort(key=lambda span: (-span.newest_ms, span.begin))
    return [span for span in spans[:SEGMENTS_MAX] if span.newest_ms >= 0]


def _greatest_within(log: PartitionLog, span: _Span, room: _Room) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record there with the greatest timestamp."""
    found: tuple[int, int] | None = None
    for offset, timestamp in _stamps(log, span, room):
        if timestamp > (-1 if found is None else found[1]):
            found = offset, timestamp
    return found


def _stamps(log: PartitionLog, span: _Span, room: _Room) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of the records there that can be read."""
    start = log.log_start_offset
    for batch in batches(log, max(span.begin, start), span.end):
        header = read_header(batch)
        if header.is_control or not header.records_count:
            continue
        if room.bytes <= 0:
            yield _as_promised(log, header)
            continue
        try:
            opened = decode_batch(batch, size_max=OPENED_SIZE_MAX)
        except InvalidBatch as exc:
            if exc.fault is BatchFault.TOO_LARGE:
                yield _as_promised(log, header)
            continue
        room.bytes -= opened.records_size
        for offset, timestamp in opened.stamps():
            if offset >= start:
                yield offset, timestamp


def epoch_of(log: PartitionLog, offset: int) -> int:
    """The leader epoch that an offset is of; below all that are known it is the first."""
    return max(log.epochs[0][0], epoch_at(log.epochs, offset))


def end_offset_for_epoch(log: PartitionLog, epoch: int) -> tuple[int, int]:
    """The largest known epoch not above this one, and the offset where it ends.

    (-1, -1) for an epoch that has not begun, as in Kafka.
    """
    if epoch > log.leader_epoch or epoch < 0:
        return -1, -1
    known = -1
    for candidate, start in log.epochs:
        if candidate > epoch:
            return (known, start) if known >= 0 else (epoch, start)
        known = candidate
    return known, log.log_end_offset

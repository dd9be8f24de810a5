"""Finding offsets: by time and by leader epoch.  Blocking; for lanes.

A time is looked for in three steps that narrow: the columns (which segment), its index (which
block), its batches (which record).  Timestamps need not rise, so each step compares with the
greatest timestamp so far: the answer is the first record, by offset, that is not older.
"""

from segbroker.protocol.record_batch import first_at_or_after, read_header

from .partition_log import PartitionLog
from .planning import batches


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record not older, or None.  Blocking."""
    offset = _first_offset_by_time(log, timestamp_ms)
    if offset is None:
        return None
    start = max(offset, log.log_start_offset)
    for batch in batches(log, start, log.log_end_offset):
        if read_header(batch).max_timestamp < timestamp_ms:
            continue
        found = first_at_or_after(batch, timestamp_ms, from_offset=log.log_start_offset)
        if found is not None:
            return found
    return None


def _first_offset_by_time(log: PartitionLog, timestamp_ms: int) -> int | None:
    """An offset at or before the record looked for, close to it."""
    with log.state_lock:
        place = log.sealed.find_time(timestamp_ms)
        if place < len(log.sealed):
            number = log.sealed.numbers[place]
            base_offset, size = log.sealed.base_offsets[place], log.sealed.sizes[place]
            tag = log.sealed.tags[place]
        else:
            for segment in (*log.rotating, log.active):
                if segment.max_timestamp >= timestamp_ms:
                    return segment.base_offset
            return None
    index = log.files.index(number, base_offset, size, tag)
    ordinal = index.block_by_time(timestamp_ms)
    return base_offset + (index.offsets[ordinal] if ordinal < len(index.blocks) else 0)


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
    return None if greatest < 0 else offset_for_timestamp(log, greatest)


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

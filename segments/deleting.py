"""Letting a log begin later: its start moves first, durably, then files go.

    START row, synced  ->  nobody reads below it any more  ->  unlink  ->  manifest rewritten

A crash in between leaves files in front of the start, which the next opening removes.  A start that
lies inside a segment is known to the manifest alone: without it, records of that segment come back
(docs/storage.md says so).  Readers that pinned a file finish their read.
"""

from .errors import OffsetOutOfRange
from .partition_log import PartitionLog, start_row


def delete_records_before(log: PartitionLog, offset: int) -> int:
    """Let the log begin at `offset`; durable when this returns.  Blocking.

    Raises OffsetOutOfRange, OSError.
    """
    if offset > log.log_end_offset or offset < 0:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
    with log.seal_lock:
        if offset > log.log_start_offset:
            row = start_row(offset, log.sealed.first_number, log.first_base_offset)
            log.manifest.append([row], sync=True)
            log.log_start_offset = offset
    return log.log_start_offset


def drop_segments_before(log: PartitionLog, offset: int, now_ms: int) -> int:
    """Unlink sealed segments that lie wholly below `offset`; how many.

    Readers that pinned one finish their read.  Raises OSError.
    """
    with log.seal_lock:
        sealed = log.sealed
        ends = sealed.ends()
        count = sum(end <= offset for end in ends)
        if not count:
            return 0
        first = sealed.first_number
        start = max(log.log_start_offset, ends[count - 1])
        row = start_row(start, first + count, ends[count - 1])
        log.manifest.append([row], sync=True)
        with log.state_lock:
            sealed.drop_front(count)
            log.log_start_offset = start
        _unlink(log, range(first, first + count))
        log.manifest.replace(now_ms, log.manifest_rows())
        log.checkpointed = -1
    return count


def _unlink(log: PartitionLog, numbers: range) -> None:
    log.files.drop(numbers)
    for number in numbers:
        for path in (log.paths.log(number), log.paths.index(number)):
            if log.storage.exists(path):
                log.storage.unlink(path)
    log.storage.fsync_dir(log.paths.folder)

"""The producers' state as of the end of a log: the snapshot, then the batches behind it.

A snapshot that is missing or damaged costs reading the headers of every segment; one that covers
more than the log has is of another log and is not used.  A damaged sealed segment costs its own
headers: producers whose last batches lay there begin as unknown ones.

Offsets of gaps are counted: an epoch that begins behind what was lost may be sent from its
beginning again (producers.py).  Not where batches were there that nobody knows any more: without
a snapshot of a log that does not begin with 0, and behind a segment that cannot be read or a gap of
what went on purpose.
"""

from collections.abc import Iterator

import structlog

from segbroker.protocol.batch_layout import HEADER_SIZE, LENGTH_END
from segbroker.protocol.record_batch import BatchHeader, GapReason, gap_reason, read_header

from .errors import CorruptSegment
from .partition_log import PartitionLog
from .producers import ProducerTable, decode_producers
from .storage import Storage, read_file

log = structlog.get_logger()


def replay_producers(opened: PartitionLog) -> None:
    """Set `opened.producers`.  Raises OSError."""
    end = -1
    table = ProducerTable()
    try:
        decoded = decode_producers(read_file(opened.storage, opened.paths.producers))
    except FileNotFoundError:
        decoded = None
    # A snapshot of more than the log has is of another log.
    if decoded is not None and decoded[1] <= opened.log_end_offset:
        table, end = decoded
        opened.producers_saved = end
    opened.producers = table
    table.transactions.forget_before(opened.log_start_offset)
    if end == opened.log_end_offset:
        return
    sealed = opened.sealed
    lost = 0
    is_all_known = end >= 0 or opened.log_start_offset == 0
    numbers = [one for one, upto in zip(sealed.numbers, sealed.ends(), strict=True) if upto > end]
    numbers += [segment.number for segment in (*opened.rotating, opened.active) if segment.size]
    for number in numbers:
        path = opened.paths.log(number)
        try:
            for header, batch in batches_of(opened.storage, path):
                if header.base_offset < end:
                    continue
                if header.producer_id >= 0:
                    table.apply(header, header.base_offset, batch, lost if is_all_known else 0)
                    continue
                reason = gap_reason(header)
                if reason is GapReason.LOST_TAIL:
                    table.lose_tail()
                if reason in (GapReason.LOST_TAIL, GapReason.CORRUPTION):
                    lost += header.next_offset - header.base_offset
                elif reason is not None:
                    is_all_known = False
        except (FileNotFoundError, CorruptSegment) as exc:
            log.warning("producers_not_replayed", path=path, error=str(exc))
            is_all_known = False


def batches_of(storage: Storage, path: str) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a log file and their headers, unchecked; for replaying producers."""
    data = memoryview(read_file(storage, path))
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if header.batch_length < HEADER_SIZE - LENGTH_END:
            raise CorruptSegment(path, position, f"batch length {header.batch_length}")
        yield header, data[position : position + header.size]
        position += header.size

"""Batches without some of their records, as compaction leaves them."""

from collections.abc import Set

from segbroker.protocol.batch_gaps import GapReason, gap_batches
from segbroker.protocol.checksums import Buffer
from segbroker.protocol.record_batch import decode_batch, keep_records


def filter_batch(buf: Buffer, drop: Set[int], now_ms: int) -> bytes:
    """The batch without the records at the offsets in `drop`; without any left, a gap of the range.

    Raises InvalidBatch.
    """
    batch = decode_batch(buf)
    keep = bytes(offset not in drop for offset in batch.offsets())
    if any(keep):
        return keep_records(batch, keep)
    header = batch.header
    (gap,) = gap_batches(
        header.base_offset, header.next_offset, GapReason.DELETED, now_ms, header.leader_epoch
    )
    return gap

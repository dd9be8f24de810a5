"""The batches of one partition's fetch reply, each with what it means for the reader.

    records      to hand out                        (header, bytes, None)
    gap          offsets were lost                  (header, None, reason)
    the rest     only the position moves            (header, None, None)

The rest: control batches, empty ones, what was deleted on purpose, and with read_committed the
batches of aborted transactions.  The first batch may begin before the offset that was asked for; a
last one that was cut off is left out.

Nothing is skipped on the word of a header alone: a batch that holds nothing for the reader has its
checksum compared here (one with records when it is decoded), so that a flipped bit cannot turn
records into something to pass over.
"""

from collections.abc import Iterator

from segbroker.protocol.messages_core import FetchResponsePartition
from segbroker.protocol.record_batch import (
    BatchHeader,
    GapReason,
    decode_batch,
    gap_reason,
    iter_batches,
    read_header,
)
from segbroker.protocol.schema import records_view

from .records import LossReason

REASONS: dict[GapReason, LossReason | None] = {
    GapReason.LOST_TAIL: "lost_tail",
    GapReason.CORRUPTION: "corruption",
    GapReason.CAP: "cap",
    GapReason.TTL: "ttl",
    GapReason.DELETED: None,
}

Piece = tuple[BatchHeader, bytes | None, LossReason | None]


def walk(row: FetchResponsePartition, from_offset: int) -> Iterator[Piece]:
    """What lies at `from_offset` and behind it, never a step back.

    Raises InvalidBatch for a damaged batch.
    """
    aborted = sorted(
        (entry.first_offset, entry.producer_id) for entry in row.aborted_transactions or ()
    )
    aborted_producers: set[int] = set()
    for view in iter_batches(records_view(row.records)):
        header = read_header(view)
        if header.next_offset <= from_offset:
            continue
        from_offset = header.next_offset
        while aborted and aborted[0][0] <= header.last_offset:
            aborted_producers.add(aborted.pop(0)[1])
        is_skipped = header.is_control or not header.records_count
        if header.is_transactional and header.producer_id in aborted_producers:
            # The marker that ends an aborted transaction is a control batch of it.
            if header.is_control:
                aborted_producers.discard(header.producer_id)
            is_skipped = True
        if not is_skipped:
            yield header, bytes(view), None
            continue
        decode_batch(view)
        yield header, None, loss_of(header)


def loss_of(header: BatchHeader) -> LossReason | None:
    """Why the offsets of a batch without records are missing; None when nothing was lost."""
    reason = gap_reason(header)
    if reason is not None:
        return REASONS[reason]
    is_newer = header.is_control and not header.records_count and header.attributes >> 8 & 0xFF
    return "unknown" if is_newer else None

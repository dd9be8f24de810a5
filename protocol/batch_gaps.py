"""Batches without records: what says that offsets are missing, and why.

A gap is an empty control batch over the range, which every Kafka client steps over; ours reads the
reason in bits 8-15 of its attributes.  Bytes: docs/formats.md.
"""

from enum import IntEnum

from .batch_header import BatchHeader, write_crc
from .batch_layout import CONTROL_BIT, HEADER, HEADER_SIZE, INT32_MAX, LENGTH_END, MAGIC


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
        write_crc(batch)
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
    write_crc(batch)
    return bytes(batch)

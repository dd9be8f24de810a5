"""What a reader of committed records makes of what the broker sends it.

The broker's part are batches and the aborted ranges that touch them (broker/partitions/isolation);
the reader's is to leave out the batches of an aborted producer up to its marker, as Kafka's do.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from segbroker.broker.partitions.isolation import READ_COMMITTED, committed_part, plan_visible
from segbroker.protocol.batch_layout import TRANSACTIONAL_BIT
from segbroker.protocol.markers import Outcome, marker_outcome
from segbroker.protocol.messages_core import FetchResponseAbortedTransaction
from segbroker.protocol.record_batch import decode_batch, gap_reason, iter_batches, read_header
from segbroker.segments.errors import SegmentReplaced, StorageError
from segbroker.segments.partition.handler import DiskHandler

from .damage_ledger import REPAIRS_MAX

SIZES: Final = (1, 300, 1 << 20)
"""Of one read, in bytes."""


@dataclass
class Seen:
    """See the module."""

    rows: list[tuple[int, bytes]] = field(default_factory=list)
    """(offset, value)."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    refused_from: int = 1 << 62
    """What lies from here on could not be read just now."""
    problem: str = ""


def read_committed(handler: DiskHandler, random: Random) -> Seen:
    """Everything from the log start to the last stable offset, in reads of drawn sizes."""
    seen = Seen()
    offset = handler.log_start_offset
    repairs = 0
    while offset < handler.last_stable_offset:
        try:
            sent = _fetch(handler, offset, random)
        except SegmentReplaced:
            repairs += 1
            if repairs > REPAIRS_MAX:
                seen.problem = f"repaired again and again at {offset}"
                break
            continue
        except (StorageError, OSError):
            seen.refused_from = offset
            break
        if sent is None:
            break
        repairs = 0
        before, offset = offset, take_committed(seen, *sent, offset)
        if offset == before:
            stable = handler.last_stable_offset
            seen.problem = f"nothing is sent from {offset} on, below {stable}"
            break
    return seen


def _fetch(
    handler: DiskHandler, offset: int, random: Random
) -> tuple[bytes, list[FetchResponseAbortedTransaction]] | None:
    """Batches, and what of them was aborted; None: the log begins later by now, or ends."""
    plan, ranges = plan_visible(handler, offset, random.choice(SIZES), READ_COMMITTED)
    if plan is None or ranges is None:
        return None
    try:
        buffer = memoryview(bytearray(plan.size_max))
        size = plan.read_nowait(buffer) if random.random() < 0.5 else None
        if size is None:
            size = plan.read(buffer)
    finally:
        plan.release()
    part, rows = committed_part(ranges, offset, buffer[:size])
    return bytes(part), rows


def take_committed(
    seen: Seen, data: bytes, rows: list[FetchResponseAbortedTransaction], offset: int
) -> int:
    """What the reader does with an answer; where it goes on."""
    begin = offset
    pending = sorted(rows, key=lambda row: row.first_offset)
    aborted: set[int] = set()
    for batch in iter_batches(data):
        header = read_header(batch)
        offset = header.next_offset
        while pending and pending[0].first_offset <= header.base_offset:
            aborted.add(pending.pop(0).producer_id)
        if header.is_control:
            if gap_reason(header) is not None:
                seen.gaps.append((header.base_offset, header.next_offset))
            elif marker_outcome(header, batch) is Outcome.ABORT:
                aborted.discard(header.producer_id)
        elif header.records_count and not (
            header.attributes & TRANSACTIONAL_BIT and header.producer_id in aborted
        ):
            decoded = decode_batch(bytearray(batch))
            pairs = zip(decoded.offsets(), decoded.values(), strict=True)
            seen.rows += [(at, value or b"") for at, value in pairs if at >= begin]
    return offset

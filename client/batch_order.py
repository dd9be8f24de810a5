"""The order of a partition's batches: by sequence, which wraps round at 2^31.

    returned, by sequence | fresh, as they were sealed        what waits to be sent

A batch that comes back goes before all that was never sent; a part of a batch keeps its sequences.
"""

from .batches import SEQUENCES
from .producer_batch import PartitionQueue, ProducerBatch


def put_back(*batches: ProducerBatch) -> None:
    """Back among the sealed, in order of sequence."""
    queue = batches[0].queue
    # Those that come back are older than all that was never sent; among themselves the first may
    # come back behind the others: it was sent alone, while they waited.
    returned = [batch for batch in queue.sealed if batch.is_sent]
    fresh = [batch for batch in queue.sealed if not batch.is_sent]
    for batch in batches:
        batch.is_sent = True
    queue.sealed.clear()
    queue.sealed.extend(_in_order([*returned, *batches]))
    queue.sealed.extend(fresh)


def unanswered(queue: PartitionQueue) -> list[ProducerBatch]:
    """What was sent and is not acknowledged: in flight, or back to be sent again."""
    return [*queue.in_flight, *(batch for batch in queue.sealed if batch.is_sent)]


def precedes(one: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether `one` has the earlier sequence; they wrap round at 2^31."""
    return 0 < (other.sequence - one.sequence) % SEQUENCES < SEQUENCES // 2


def _in_order(batches: list[ProducerBatch]) -> list[ProducerBatch]:
    origin = batches[0].sequence
    half = SEQUENCES // 2
    return sorted(batches, key=lambda batch: (batch.sequence - origin + half) % SEQUENCES)


def part_of(batch: ProducerBatch, start: int, stop: int) -> ProducerBatch:
    part = ProducerBatch(batch.queue, batch.opened_ms, batch.timestamp_ms)
    part.values = batch.values[start:stop]
    part.keys = None if batch.keys is None else batch.keys[start:stop]
    part.headers = None if batch.headers is None else batch.headers[start:stop]
    part.timestamps = None if batch.timestamps is None else batch.timestamps[start:stop]
    part.count = stop - start
    part.size = part.reserved = batch.reserved * part.count // batch.count
    if start:
        # What rounding left over stays reserved with the second half.
        part.size = part.reserved = batch.reserved - batch.reserved * start // batch.count
    part.deadline_ms = batch.deadline_ms
    part.attempts = batch.attempts
    part.doubt = batch.doubt
    part.sequence = (batch.sequence + start) % SEQUENCES
    return part

"""Batches refused for a reason that passes: remembered, so that no later one overtakes them.

    producer, new to the partition, 5 in flight     the broker
      batch, sequence 0    ------------------->     refused: the disk is full
      batch, sequence 10   ------------------->     there is space again: unknown producer, any
                                                    sequence is accepted   <- unless we remember
      batch, sequence 0, again  -------------->     would land behind sequence 10

A partition that knows the producer answers the second batch OUT_OF_ORDER_SEQUENCE_NUMBER by itself,
and every client then sends both again in order.  For a partition that does not know the producer
yet, the lowest refused sequence is kept here until it comes again.  So it is with what was appended
and could not be made durable: opened again, the log may be without it, and without its producer.

Bounded: the oldest is forgotten first.  The list is lost with the process, but so are the
connections that had batches in flight.
"""

from collections.abc import Iterable
from typing import Final

from segbroker.protocol.record_batch import BatchHeader
from segbroker.segments.errors import OutOfOrderSequence
from segbroker.segments.log.producers import Producer

REFUSALS_MAX: Final = 10_000
_HALF: Final = 1 << 30
_MASK: Final = (1 << 31) - 1


class Refusals:
    """Lowest refused sequence by topic, partition, producer id and epoch."""

    __slots__ = ("lowest",)

    def __init__(self) -> None:
        self.lowest: dict[tuple[str, int, int, int], int] = {}

    def note(self, topic: str, partition: int, header: BatchHeader) -> None:
        """This batch was refused, and may come again."""
        if header.producer_id >= 0:
            key = (topic, partition, header.producer_id, header.producer_epoch)
            self._note(key, header.base_sequence)

    def note_not_durable(
        self,
        topic: str,
        partition: int,
        producers: Iterable[tuple[int, Producer]],
        high_watermark: int,
    ) -> None:
        """What these have from there on was refused, and may come again."""
        for producer_id, known in producers:
            for batch in known.batches:
                if batch.base_offset >= high_watermark:
                    self._note((topic, partition, producer_id, known.epoch), batch.first_sequence)

    def _note(self, key: tuple[str, int, int, int], sequence: int) -> None:
        known = self.lowest.get(key)
        if known is None or _is_before(sequence, known):
            self.lowest[key] = sequence
        if len(self.lowest) > REFUSALS_MAX:
            del self.lowest[next(iter(self.lowest))]

    def check(self, topic: str, partition: int, header: BatchHeader) -> None:
        """Raises OutOfOrderSequence for a batch that has overtaken a refused one."""
        key = (topic, partition, header.producer_id, header.producer_epoch)
        known = self.lowest.get(key)
        if known is None:
            return
        if _is_before(known, header.base_sequence):
            raise OutOfOrderSequence(header.producer_id, header.base_sequence, known)
        del self.lowest[key]  # refused again, it is noted again


def _is_before(one: int, other: int) -> bool:
    """Whether `one` comes first; sequences begin at 0 again after 2^31-1."""
    return 0 < (other - one) & _MASK < _HALF

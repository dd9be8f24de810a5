"""Producer state of a partition: what makes a repeated batch harmless.

Per producer id: its epoch and its last five batches (first and last sequence, offsets).  A
batch that comes again is recognised by its sequences and answered with the offset it got then.

| the batch | what happens |
|---|---|
| sequences equal one of the five | duplicate: nothing is appended, its first offset is answered |
| epoch below the known one | InvalidProducerEpoch |
| epoch above the known one | sequence must be 0, else OutOfOrderSequence |
| same epoch | sequence must follow the last (after 2^31-1 comes 0), else OutOfOrderSequence |
| unknown producer | any sequence: retention may have taken what came before |

The state is a function of the batch headers in the log, so recovery replays them; the snapshot
`.producers` only bounds how many.  It is written after the log was synced up to its offset:
a snapshot that knew more than the disk would answer "duplicate" for a lost batch.

    .producers: xxh3-64 of the rest, u64 | msgpack map {"v": 1, "offset": i, "producers":
                {id: [epoch, last_ms, [[first_sequence, last_sequence, base_offset, last_offset]]]}}

Rules after Apache Kafka's ProducerAppendInfo and ProducerStateEntry.
"""

from typing import NamedTuple

import xxhash

from segbroker.protocol import vendor
from segbroker.protocol.errors import ProtocolError
from segbroker.protocol.record_batch import BatchHeader

from .errors import InvalidProducerEpoch, OutOfOrderSequence

WINDOW = 5
"""Batches remembered per producer: as many as a client may have in flight."""

PRODUCERS_MAX = 100_000
"""Producers remembered per partition; past it the one that wrote longest ago is forgotten."""

EXPIRATION_MS = 24 * 60 * 60 * 1000

VERSION = 1
_SEQUENCE_MAX = 2**31 - 1
_DIGEST_SIZE = 8


class ProducedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class _Producer:
    __slots__ = ("batches", "epoch", "last_ms")

    def __init__(self, epoch: int, last_ms: int) -> None:
        self.epoch = epoch
        self.last_ms = last_ms
        self.batches: list[ProducedBatch] = []


class ProducerStates:
    """The producers of one partition, in the order in which they last wrote."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Judge a batch before it is appended.

        Returns:
            The earlier batch that this one repeats, or None when it is to be appended.

        Raises:
            InvalidProducerEpoch, OutOfOrderSequence.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        first, epoch = header.base_sequence, header.producer_epoch
        if epoch == producer.epoch:
            for batch in producer.batches:
                if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                    return batch
            expected = _following(producer.batches[-1].last_sequence)
        elif epoch < producer.epoch:
            raise InvalidProducerEpoch(header.producer_id, epoch, producer.epoch)
        else:
            expected = 0
        if first != expected:
            raise OutOfOrderSequence(header.producer_id, first, expected)
        return None

    def note(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch that was appended at `base_offset`."""
        # Taken out and put back behind: the dictionary stays in the order of last writes.
        producer = self._producers.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = _Producer(header.producer_epoch, now_ms)
        self._producers[header.producer_id] = producer
        producer.last_ms = now_ms
        last_offset = base_offset + header.last_offset_delta
        producer.batches.append(
            ProducedBatch(header.base_sequence, header.last_sequence, base_offset, last_offset)
        )
        del producer.batches[:-WINDOW]
        if len(self._producers) > PRODUCERS_MAX:
            del self._producers[next(iter(self._producers))]

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> int:
        """Forget who has not written for so long; how many."""
        gone = []
        for producer_id, producer in self._producers.items():
            if now_ms - producer.last_ms < expiration_ms:
                break
            gone.append(producer_id)
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def clear(self) -> None:
        self._producers.clear()

    def cut(self, offset: int) -> None:
        """Forget batches at or past `offset`, after a truncation."""
        for producer_id, producer in list(self._producers.items()):
            producer.batches = [b for b in producer.batches if b.last_offset < offset]
            if not producer.batches:
                del self._producers[producer_id]

    def to_bytes(self, offset: int) -> bytes:
        """A snapshot that holds for the log up to `offset`."""
        producers = {
            str(producer_id): [p.epoch, p.last_ms, [list(batch) for batch in p.batches]]
            for producer_id, p in list(self._producers.items())
        }
        body = vendor.pack({"v": VERSION, "offset": offset, "producers": producers})
        return xxhash.xxh3_64_digest(body) + body

    @classmethod
    def from_bytes(cls, content: bytes) -> "tuple[ProducerStates, int] | None":
        """A snapshot and its offset; None when the bytes are not a whole one."""
        digest, body = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        if xxhash.xxh3_64_digest(body) != digest:
            return None
        try:
            snapshot = vendor.unpack(body)
            if snapshot["v"] != VERSION:
                return None
            states = cls()
            for producer_id, (epoch, last_ms, batches) in snapshot["producers"].items():
                producer = states._producers[int(producer_id)] = _Producer(epoch, last_ms)
                producer.batches = [ProducedBatch(*batch) for batch in batches]
            return states, int(snapshot["offset"])
        except (ProtocolError, KeyError, ValueError, TypeError):
            return None


def _following(sequence: int) -> int:
    return 0 if sequence == _SEQUENCE_MAX else sequence + 1

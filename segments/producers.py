"""What a partition remembers of its idempotent producers, so that a retry is not a second record.

Per producer id: its epoch and the last five batches (first sequence, last offset delta, base
offset, timestamp).  A batch is judged before an offset is assigned:

| epoch | sequence | verdict |
|---|---|---|
| producer unknown | any | append |
| lower than known | any | InvalidProducerEpoch |
| higher | 0 | append |
| higher | other | OutOfOrderSequence |
| same | first and last equal one of the five | duplicate: the stored offset is the answer |
| same | last + 1 (0 after 2^31-1) | append |
| same | other | OutOfOrderSequence |

.producers, the snapshot, big-endian; behind it the batch headers of the log are replayed:

    header    byte 0       4         6       8            16      20      24
                   +-------+---------+-------+------------+-------+-------+
                   | magic | version | 0     | end_offset | count | 0     |
                   | SBPS  | u16 =1  | u16   | i64        | u32   | u32   |
                   +-------+---------+-------+------------+-------+-------+
    rows      byte 0             8                16       18         20     24
                   +-------------+----------------+--------+----------+------+-------------------
                   | producer_id | open_txn_first | epoch  | batches  | 0    | 5 x {first_sequence
                   | i64         | i64 = -1       | i16    | u16      | u32  | i32, last_delta i32,
                   +-------------+----------------+--------+----------+------+ base_offset i64,
                                                                               timestamp i64}
    then xxh3-64 of all before, u64.  A row has 144 bytes.

Invariants: a snapshot holds exactly what the batches below `end_offset` say, all of which were
synced before it was written.  Entries are tuples that are replaced, never changed: a shallow copy
of the table is a consistent copy.  Not thread-safe: the log's append lock protects it.
"""

import struct
from typing import Final, NamedTuple

from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.record_batch import BatchHeader

from .errors import InvalidProducerEpoch, OutOfOrderSequence
from .storage import Buffer

WINDOW: Final = 5
MAGIC: Final = b"SBPS"
VERSION: Final = 1
HEADER: Final = struct.Struct(">4sHHqII")
ROW: Final = struct.Struct(">qqhHI" + WINDOW * "iiqq")
HEADER_SIZE: Final = HEADER.size
ROW_SIZE: Final = ROW.size
assert (HEADER_SIZE, ROW_SIZE) == (24, 144), "the boxes above"
_SEQUENCE_MASK: Final = 0x7FFF_FFFF


class KnownBatch(NamedTuple):
    """A batch of the window."""

    first_sequence: int
    last_delta: int
    base_offset: int
    timestamp: int

    @property
    def last_sequence(self) -> int:
        return (self.first_sequence + self.last_delta) & _SEQUENCE_MASK

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_delta


class Producer(NamedTuple):
    """One producer: its epoch and its last batches, newest last."""

    epoch: int
    batches: tuple[KnownBatch, ...]


class ProducerTable:
    """All producers of one partition."""

    __slots__ = ("_producers",)

    def __init__(self, producers: dict[int, Producer] | None = None) -> None:
        self._producers = producers if producers is not None else {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """The stored batch that this one repeats; None when it is to be appended.

        Raises OutOfOrderSequence, InvalidProducerEpoch.
        """
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch < known.epoch:
            raise InvalidProducerEpoch(header.producer_id, epoch, known.epoch)
        if epoch > known.epoch:
            if sequence != 0:
                raise OutOfOrderSequence(header.producer_id, sequence, 0)
            return None
        for batch in reversed(known.batches):
            if batch.first_sequence == sequence and batch.last_delta == header.last_offset_delta:
                return batch
        expected = (known.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
        if sequence != expected:
            raise OutOfOrderSequence(header.producer_id, sequence, expected)
        return None

    def apply(self, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that was appended at `base_offset`."""
        batch = KnownBatch(
            header.base_sequence, header.last_offset_delta, base_offset, header.max_timestamp
        )
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            self._producers[header.producer_id] = Producer(header.producer_epoch, (batch,))
        else:
            window = (*known.batches[1 - WINDOW :], batch)
            self._producers[header.producer_id] = Producer(known.epoch, window)

    def expire(self, before_ms: int) -> int:
        """Forget producers whose last batch is older; how many."""
        old = [p for p, known in self._producers.items() if known.batches[-1].timestamp < before_ms]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old)

    def copy(self) -> "ProducerTable":
        """The table as it is now."""
        return ProducerTable(self._producers.copy())

    def encode(self, end_offset: int) -> bytes:
        """The snapshot of everything below `end_offset`."""
        parts = [HEADER.pack(MAGIC, VERSION, 0, end_offset, len(self._producers), 0)]
        for producer_id, known in self._producers.items():
            fields: list[int] = []
            for batch in known.batches:
                fields += batch
            fields += [0] * (4 * WINDOW - len(fields))
            parts.append(ROW.pack(producer_id, -1, known.epoch, len(known.batches), 0, *fields))
        content = b"".join(parts)
        return content + xxh3_64(content).to_bytes(8, "big")


def decode_producers(data: Buffer) -> tuple[ProducerTable, int] | None:
    """The table and its end offset; None when the bytes are not a whole snapshot."""
    content = bytes(data)
    if len(content) < HEADER_SIZE + 8 or content[-8:] != xxh3_64(content[:-8]).to_bytes(8, "big"):
        return None
    magic, version, _, end_offset, count, _ = HEADER.unpack_from(content)
    if magic != MAGIC or version != VERSION or len(content) != HEADER_SIZE + count * ROW_SIZE + 8:
        return None
    producers: dict[int, Producer] = {}
    for row in ROW.iter_unpack(content[HEADER_SIZE:-8]):
        producer_id, _, epoch, batches = row[:4]
        window = tuple(KnownBatch(*row[5 + 4 * i : 9 + 4 * i]) for i in range(batches))
        producers[producer_id] = Producer(epoch, window)
    return ProducerTable(producers), end_offset

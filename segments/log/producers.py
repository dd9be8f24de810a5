"""What a partition remembers of its idempotent producers, so that a retry is not a second record.

Per producer id: its epoch and the last five batches (first sequence, last offset delta, base
offset, timestamp).  A batch is judged before an offset is assigned; a marker (protocol.markers) is
always appended, and its epoch is the producer's from then on:

| epoch | sequence | verdict |
|---|---|---|
| producer unknown | any | append |
| lower than known | any | InvalidProducerEpoch |
| higher | 0 | append |
| higher | other | OutOfOrderSequence |
| same | first and last equal one of the five | duplicate: the stored offset is the answer |
| same | last + 1 (0 after 2^31-1; 0 after a marker with a new epoch) | append |
| same | the first that is missing between two of the five | append |
| same | 0, in front of all of them, fewer than five, where the epoch begins behind a gap | append |
| same or higher | other, the first since a lost tail | append |
| same | other | OutOfOrderSequence |
| any | without a transaction, while one of this producer is open | TransactionOpen |

A lost tail (lost_tail.py) may have held batches that a producer was told of, or that it sends
again: what is known of it stays, so that what survived is no second record and a fenced epoch
stays fenced, and its next batch that is no duplicate is taken at its word.  When that one lay
between batches that survived, those count as sent: "last" is the end of the run they make.  So it
is where something is missing between two of the five, or in front of the first of an epoch: a power
cut tore a write that nobody was told of, and the producer sends all of it again.

The five are those with the last sequences, which a client may not have heard of; they stand as they
do in the log.

An epoch begins behind a gap where a start reads its first batch with a sequence that is not 0, has
read everything in front of it, and as many offsets are lost there as sequences.  So no batch with 0
is in the log, as long as the five are all that the log has of the epoch.

.producers, the snapshot, big-endian; behind it the batch headers of the log are replayed:

    header    byte 0       4         6       8            16      20      24
                   +-------+---------+-------+------------+-------+-------+
                   | magic | version | owner | end_offset | count | 0     |
                   | SBPS  | u16     | u16   | i64        | u32   | u32   |
                   +-------+---------+-------+------------+-------+-------+
    rows      byte 0             8                16       18         20      24
                   +-------------+----------------+--------+----------+-------+------------------
                   | producer_id | open_txn_first | epoch  | batches  | flags | 5 x {first_sequence
                   | i64         | i64 = -1       | i16    | u16      | u32   | i32, last_delta i32,
                   +-------------+----------------+--------+----------+-------+ base_offset i64,
                                                                                timestamp i64}
    aborted   from version 2 on, as many as the second count (the last u32) of the header says:
                   {producer_id i64, first_offset i64, last_offset i64}
    then xxh3-64 of all before, u64.  A row has 144 bytes, an aborted range 24.

The owner is `owner_tag` of the log, 0 in files of earlier builds: the table of another partition
would take repeated batches for new ones, and new ones for repeated.

Version 1 is written as long as there is nothing that it cannot say: open_txn_first is -1 in it,
every row has a batch, flags are 0.  From version 2 on a row without batches has the time of its
marker in the place of the first batch's timestamp.  Version 3 has a flag, 1: nothing was appended
since a lost tail; and a flag, 2: its epoch begins behind a gap, and the row has all of it.

Invariants: a snapshot holds exactly what the batches below `end_offset` say, all of which were
synced before it was written.  Entries are tuples that are replaced, never changed: a shallow copy
of the table is a consistent copy.  Not thread-safe: the log's append lock protects it.
"""

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from segbroker.protocol.batch_layout import TRANSACTIONAL_BIT
from segbroker.protocol.checksums import xxh3_64
from segbroker.protocol.record_batch import BatchHeader

from ..disk.storage import Buffer
from ..errors import InvalidProducerEpoch, OutOfOrderSequence, TransactionOpen
from ..names import owner_tag
from .transaction_index import Aborted, TransactionIndex

WINDOW: Final = 5
AFTER_START_MS: Final = 3_600_000
"""How long a producer whose records are old is known after a start; see `stale`."""
MAGIC: Final = b"SBPS"
VERSION_PLAIN: Final = 1
VERSION_TRANSACTIONS: Final = 2
VERSION: Final = 3
RESUMES: Final = 1
LACKS_FIRST: Final = 2
HEADER: Final = struct.Struct(">4sHHqII")
ROW: Final = struct.Struct(">qqhHI" + WINDOW * "iiqq")
ABORTED: Final = struct.Struct(">qqq")
HEADER_SIZE: Final = HEADER.size
ROW_SIZE: Final = ROW.size
assert (HEADER_SIZE, ROW_SIZE) == (24, 144), "the boxes above"
_SEQUENCE_MASK: Final = 0x7FFF_FFFF
_HALF: Final = 0x4000_0000


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
    """One producer: its epoch and its last batches, newest last; none after a marker with a new
    epoch."""

    epoch: int
    batches: tuple[KnownBatch, ...]
    marked_ms: int = -1
    """Time of its last marker; -1: none, or none since the log was opened."""
    resumes: bool = False
    """Nothing of it was appended since a lost tail: what comes next is taken at its word."""
    lacks_first: bool = False
    """Its epoch begins behind a gap, and `batches` are all that the log has of it."""

    @property
    def last_ms(self) -> int:
        """When it last did something."""
        return max(self.marked_ms, self.batches[-1].timestamp if self.batches else -1)

    @property
    def next_sequence(self) -> int:
        """What its next batch begins with.

        An older batch of the window that begins there survived a lost tail which took the one in
        front of it, and that one was sent again.
        """
        if not self.batches:
            return 0
        ends = {older.first_sequence: older.last_sequence for older in self.batches[:-1]}
        last = self.batches[-1].last_sequence
        while (expected := (last + 1) & _SEQUENCE_MASK) in ends:
            last = ends.pop(expected)
        return expected

    def lacks(self, sequence: int, last_delta: int) -> bool:
        """Whether this batch is the first that is missing between two of the window, or in front of
        all that there is of its epoch."""
        if self.lacks_first and sequence == 0:
            # With five behind it a sixth would push one of those out, which may be sent again.
            is_room = len(self.batches) < WINDOW
            return is_room and last_delta < self.batches[0].first_sequence
        return any(
            sequence == (older.last_sequence + 1) & _SEQUENCE_MASK != newer.first_sequence
            for older, newer in pairwise(self.batches)
        )


def _window(batches: tuple[KnownBatch, ...], batch: KnownBatch) -> tuple[KnownBatch, ...]:
    """With one more batch: of five the first in sequence goes, which was not always the first to
    be appended."""
    if len(batches) < WINDOW:
        return (*batches, batch)
    first, second, third, fourth, last = batches
    if first[0] < second[0] < third[0] < fourth[0] < last[0] < batch[0]:
        return second, third, fourth, last, batch
    goes = max(batches, key=lambda one: _steps(one.first_sequence, batch.first_sequence))
    return (*(one for one in batches if one is not goes), batch)


def _steps(begin: int, end: int) -> int:
    """From one sequence to another, below 0 for one that comes before it; they begin again at 0."""
    return ((end - begin + _HALF) & _SEQUENCE_MASK) - _HALF


class ProducerTable:
    """All producers of one partition."""

    __slots__ = ("_loaded", "_looked_ms", "_producers", "_stale_since", "transactions")

    def __init__(
        self,
        producers: dict[int, Producer] | None = None,
        transactions: TransactionIndex | None = None,
    ) -> None:
        self._producers = producers if producers is not None else {}
        self.transactions = transactions if transactions is not None else TransactionIndex()
        # Producers whose records look too old, as they were then, and since when; see `stale`.
        self._stale_since: dict[int, tuple[Producer, int]] = {}
        self._loaded: dict[int, Producer] = {}
        self._looked_ms = -1

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """The stored batch that this one repeats; None when it is to be appended.

        Raises OutOfOrderSequence, InvalidProducerEpoch, TransactionOpen.
        """
        known = self._producers.get(header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if known is None or sequence < 0:
            return None
        opened = self.transactions.open
        if header.producer_id in opened and not header.attributes & TRANSACTIONAL_BIT:
            raise TransactionOpen(header.producer_id, opened[header.producer_id])
        if epoch < known.epoch:
            raise InvalidProducerEpoch(header.producer_id, epoch, known.epoch)
        if epoch > known.epoch:
            if sequence != 0 and not known.resumes:
                raise OutOfOrderSequence(header.producer_id, sequence, 0)
            return None
        for batch in reversed(known.batches):
            if batch.first_sequence == sequence and batch.last_delta == header.last_offset_delta:
                return batch
        expected = (known.batches[-1].last_sequence + 1) & _SEQUENCE_MASK if known.batches else 0
        if sequence != expected and not known.resumes:
            expected = known.next_sequence  # the whole window is looked at for the odd one only
            if sequence != expected and not known.lacks(sequence, header.last_offset_delta):
                raise OutOfOrderSequence(header.producer_id, sequence, expected)
        return None

    def apply(self, header: BatchHeader, base_offset: int, content: Buffer, lost: int = 0) -> None:
        """Remember a batch with these bytes that was appended at `base_offset`.

        lost: offsets in front of it that are gaps, where everything else of the log is known.
        """
        if header.attributes & TRANSACTIONAL_BIT and self.transactions.apply(
            header, base_offset, content
        ):
            self._mark(header)
            return
        batch = KnownBatch(
            header.base_sequence, header.last_offset_delta, base_offset, header.max_timestamp
        )
        known = self._producers.get(header.producer_id)
        lacks_first = 0 < header.base_sequence <= lost
        if known is None:
            self._producers[header.producer_id] = Producer(
                header.producer_epoch, (batch,), lacks_first=lacks_first
            )
            return
        window: tuple[KnownBatch, ...] = (batch,)
        if known.epoch == header.producer_epoch and known.batches:
            window = _window(known.batches, batch)
            is_all = len(known.batches) < WINDOW
            lacks_first = known.lacks_first and is_all and header.base_sequence != 0
        self._producers[header.producer_id] = Producer(
            header.producer_epoch, window, known.marked_ms, lacks_first=lacks_first
        )

    def _mark(self, header: BatchHeader) -> None:
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            resumes = known is not None and known.resumes
            known = Producer(header.producer_epoch, (), resumes=resumes)
        self._producers[header.producer_id] = known._replace(marked_ms=header.max_timestamp)

    def stale(self, now_ms: int, after_ms: int, *, is_idle: bool) -> list[tuple[int, Producer]]:
        """The producers that did nothing for so long, unless a transaction is open, for `forget`.
        One thread at a time, without the append lock: there may be very many, so they are looked at
        one for each millisecond: a hundred thousand every 100 s, though this is asked each second.

        is_idle: nothing was appended for as long.  Otherwise what is known of a producer is the
        time of its records, which somebody who copies old ones takes from there: he is forgotten
        only when nothing came of him for so long after that was seen, or for AFTER_START_MS where
        it was so when the log was opened: who was cut off by a restart has come back by then, and
        restarts may come more often than `after_ms`.
        """
        if 0 <= now_ms - self._looked_ms < len(self._producers):
            return []
        self._looked_ms = now_ms
        opened, seen = self.transactions.open, self._stale_since
        loaded, self._loaded = self._loaded, {}
        stale: dict[int, tuple[Producer, int]] = {}
        old: list[tuple[int, Producer]] = []
        for producer_id, known in self._producers.copy().items():
            if known.last_ms >= now_ms - after_ms or producer_id in opened:
                continue
            before, since_ms = seen.get(producer_id, (None, now_ms))
            if before is not known:  # another tuple: something came of it meanwhile
                since_ms = now_ms
                if loaded.get(producer_id) is known:
                    since_ms -= max(0, after_ms - AFTER_START_MS)
            if is_idle or now_ms - since_ms >= after_ms:
                old.append((producer_id, known))
            else:
                stale[producer_id] = known, since_ms
        self._stale_since = stale
        return old

    def forget(self, old: Iterable[tuple[int, Producer]]) -> None:
        """Forget those of whom nothing came meanwhile."""
        for producer_id, known in old:
            if self._producers.get(producer_id) is known:  # else another tuple
                del self._producers[producer_id]

    def loaded(self) -> None:
        """What is known now was known before the log was opened; see `stale`."""
        self._loaded = self._producers.copy()

    def lose_tail(self) -> None:
        """What they did last may be lost: their next batches are taken at their word."""
        self._producers = {
            producer_id: known._replace(resumes=True)
            for producer_id, known in self._producers.items()
        }

    def lose_front(self) -> None:
        """Of whom only a marker is left had batches in front of it, perhaps: the same for those."""
        self._producers = {
            producer_id: known if known.batches else known._replace(resumes=True)
            for producer_id, known in self._producers.items()
        }

    def below(self, begin: int, found: "ProducerTable") -> dict[int, Producer]:
        """Those that had batches below `begin`, as of these.

        found: what a log that was opened again says.  Whose last batches are none of these is taken
        at its word, as there, or where it is not known there.
        """
        producers: dict[int, Producer] = {}
        for producer_id, known in self._producers.copy().items():
            batches = tuple(one for one in known.batches if one.base_offset < begin)
            resumes = known.resumes
            if len(batches) < len(known.batches):
                said = found.get(producer_id)
                resumes |= said is None or said.resumes
            if batches:
                producers[producer_id] = known._replace(batches=batches, resumes=resumes)
        return producers

    def fenced(self, begin: int, found: "ProducerTable") -> dict[int, Producer]:
        """The others whose epoch `found` has not seen: of the marker that began it, or of batches
        that are lost.  An epoch does not go back."""
        producers: dict[int, Producer] = {}
        for producer_id, known in self._producers.copy().items():
            said = found.get(producer_id)
            is_new = said is None or said.epoch < known.epoch
            if is_new and not any(one.base_offset < begin for one in known.batches):
                resumes = known.resumes or len(known.batches) > 0
                producers[producer_id] = known._replace(
                    batches=(), marked_ms=known.last_ms, resumes=resumes
                )
        return producers

    def rows(self) -> Iterable[tuple[int, Producer]]:
        """What is known, by producer id; copied at once, so also beside who changes it."""
        copied = self._producers.copy()
        return ((producer_id, copied[producer_id]) for producer_id in sorted(copied))

    def copy(self) -> "ProducerTable":
        """The table as it is now."""
        return ProducerTable(self._producers.copy(), self.transactions.copy())

    def encode(self, end_offset: int, owner: int = 0) -> bytes:
        """The snapshot of everything below `end_offset`.  owner: see LogPaths."""
        opened, aborted = self.transactions.open, self.transactions.aborted
        rows: list[bytes] = []
        version = VERSION_TRANSACTIONS if aborted or opened else VERSION_PLAIN
        for producer_id, known in self._producers.items():
            fields: list[int] = []
            for batch in known.batches:
                fields += batch
            if not fields:
                version = max(version, VERSION_TRANSACTIONS)
                fields = [0, 0, 0, known.marked_ms]
            flags = RESUMES * known.resumes | LACKS_FIRST * known.lacks_first
            if flags:
                version = VERSION
            fields += [0] * (4 * WINDOW - len(fields))
            first_offset = opened.get(producer_id, -1)
            rows.append(
                ROW.pack(producer_id, first_offset, known.epoch, len(known.batches), flags, *fields)
            )
        # An open transaction whose producer is not known: its batches were in a damaged segment.
        rows += [
            ROW.pack(producer_id, first_offset, -1, 0, 0, *([0] * 4 * WINDOW))
            for producer_id, first_offset in opened.items()
            if producer_id not in self._producers
        ]
        parts = [
            HEADER.pack(MAGIC, version, owner_tag(owner), end_offset, len(rows), len(aborted)),
            *rows,
            *(ABORTED.pack(*row) for row in aborted),
        ]
        content = b"".join(parts)
        return content + xxh3_64(content).to_bytes(8, "big")


def decode_producers(data: Buffer, owner: int = 0) -> tuple[ProducerTable, int] | None:
    """The table and its end offset; None when the bytes are not a whole snapshot, or another
    log's.  owner: see LogPaths."""
    content = bytes(data)
    if len(content) < HEADER_SIZE + 8 or content[-8:] != xxh3_64(content[:-8]).to_bytes(8, "big"):
        return None
    magic, version, tag, end_offset, count, aborted_count = HEADER.unpack_from(content)
    rows_end = HEADER_SIZE + count * ROW_SIZE
    if magic != MAGIC or not VERSION_PLAIN <= version <= VERSION:
        return None
    if owner and tag not in (0, owner_tag(owner)):
        return None
    if len(content) != rows_end + aborted_count * ABORTED.size + 8:
        return None
    producers: dict[int, Producer] = {}
    opened: dict[int, int] = {}
    for row in ROW.iter_unpack(content[HEADER_SIZE:rows_end]):
        producer_id, first_offset, epoch, batches, flags = row[:5]
        if version >= VERSION_TRANSACTIONS and first_offset >= 0:
            opened[producer_id] = first_offset
        if epoch >= 0:
            window = tuple(KnownBatch(*row[5 + 4 * i : 9 + 4 * i]) for i in range(batches))
            marked_ms = -1 if batches else row[8]
            if version < VERSION:
                flags = 0
            producers[producer_id] = Producer(
                epoch, window, marked_ms, bool(flags & RESUMES), bool(flags & LACKS_FIRST)
            )
    opened = dict(sorted(opened.items(), key=lambda one: one[1]))
    aborted = map(Aborted._make, ABORTED.iter_unpack(content[rows_end:-8]))
    return ProducerTable(producers, TransactionIndex(opened, aborted)), end_offset

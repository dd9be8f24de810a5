"""Transactions in a partition whose disk fails: all of one is seen, or nothing.

    life    four producers of transactions and one without, in small segments; markers as the
            coordinator writes them, of the old epoch or a new one; batches are sent again, also of
            an epoch that is over; syncs fail, of segments or of the write-ahead log, and forget
            what they were to write; the disk is full; sealed segments cannot be read, are cut,
            removed, or have a bit flipped; records are deleted, or compacted; logs are
            parked, and read
    end     a kill, at any change of the disk as well, a power cut, an orderly stop
    start   the disk works; producers send again what has no answer, and go on with what is open, or
            the coordinator aborts it; what is open and known to nobody is aborted

A case comes of its seed.  transaction_ledger.py judges each class: in `fsync` all of it; in `disk`
and `memory` what is aborted or open, and what was committed, for which everything was synced.  In
the end nothing is open that has ended, and readers of committed records come to the end.

Excused: where a gap is told, its transactions' markers may have been in it, and producers are taken
at their word.  Not drawn: damage while nobody runs, and a start on a disk that fails, behind which
less may be known (running_damage.py).
"""

import errno
import traceback
from contextlib import suppress
from random import Random
from typing import Final

from segbroker.protocol.markers import Outcome, encode_marker, marker_outcome
from segbroker.protocol.record_batch import check_batch, encode_batch, read_header
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import (
    InvalidProducerEpoch,
    OutOfOrderSequence,
    SegmentReplaced,
    StorageError,
    TransactionOpen,
)
from segbroker.segments.log.producers import WINDOW
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig

from ..segments.tools import read_once
from .committed_view import read_committed
from .damage_ledger import REPAIRS_MAX
from .failing_disk import FailingDisk
from .listening import listening
from .meddled_disk import Killed
from .transaction_ledger import Batch, Ledger, Producer, Transaction

CLASSES: Final = ("fsync", "fsync", "fsync", "disk", "memory")
SETTINGS: Final = {"index.interval.bytes": "4096", "on.corruption": "gap"}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
KEYS: Final = 4
SEGMENT_BYTES: Final = ("700", "700", "2500")
TRANSACTIONAL: Final = 4
"""So many producers write transactions; one more does not."""
PAUSES_MS: Final = (500, 3_000, 70_000)
SETTLE_TICKS: Final = 8
WEIGHTS: Final = {
    "append": 12,
    "plain": 3,
    "end": 5,
    "init": 2,
    "again": 2,
    "late": 1,
    "tick": 4,
    "full": 1,
    "sync_fails": 2,
    "lose_end": 3,
    "wal_fails": 1,
    "hide": 2,
    "cut": 1,
    "flip": 1,
    "heal": 2,
    "forget": 1,
    "park": 1,
    "checkpoint": 2,
    "delete": 1,
    "look": 2,
    "kill": 1,
    "power_cut": 1,
    "stop": 1,
}
WHERE_COMPACTED: Final = {"clean": 8, "end": 10}
"""Nothing is cleaned behind what is open."""


class Case:
    """One seed.  `problems`: what must not be; `trace`: what was done."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"failing transactions {seed}")
        self.problems: list[str] = []
        self.trace: list[str] = []
        self.now_ms = 1_000_000
        self.durability = self.random.choice(CLASSES)
        self.compacts = self.random.random() < 0.2
        self.disk = FailingDisk(seed)
        self.ledger = Ledger()
        self.producers = [Producer(number) for number in range(1, TRANSACTIONAL + 2)]
        self.values = 0
        self.flipped: dict[str, int] = {}
        self.is_uncertain = False
        """Whether what is known of producers may be less than what they did."""
        self.is_cut = False
        """Whether something sealed is damaged: the next start knows less, unless it is repaired."""

    @property
    def outcome(self) -> str:
        """What came of it."""
        return "with a gap" if self.ledger.gaps else "lossy" if self.ledger.is_lossy else "whole"

    def run(self) -> "Case":
        """All of it."""
        with listening(self.problems, lambda event: None):
            try:
                self._run()
            except Exception:
                self._problem("raised " + traceback.format_exc(limit=-6))
        return self

    def _run(self) -> None:
        random = self.random
        self._open()
        settings = {"segment.bytes": random.choice(SEGMENT_BYTES), "durability": self.durability}
        if self.compacts:
            settings |= COMPACTED
        self.manager.create_topic("t", 1, TopicConfig({**SETTINGS, **settings}))
        self.handler = self.manager.get_handler("t", 0)
        weights = WEIGHTS | WHERE_COMPACTED if self.compacts else WEIGHTS
        count = random.randint(20, 70) + 30 * self.compacts
        for _ in range(random.choice((0, 1, 4))):  # so that something is sealed
            for _ in range(3):
                self._append()
            self._end()
        acts = random.choices(list(weights), list(weights.values()), k=count)
        for act in acts:
            if random.random() < 0.02:
                self.disk.dies_in = random.randint(0, 30)
            self.trace.append(act)
            try:
                getattr(self, f"_{act}")()
            except (StorageError, OSError, ExceptionGroup) as exc:
                self.trace.append(f"  {type(exc).__name__}: {exc}")
            except Killed:
                self.trace.append("  in which it is killed")
                self._restart(power_cut=False)
            self._listen()
        self.disk.dies_in = None
        self._settle()
        if self.handler.read_only is not None:  # what memory lost waits for a start
            self._kill()
            self._settle()
        self._judge("in the end")
        if self.handler.read_only is not None:
            self._problem(f"read-only in the end: {self.handler.read_only}")
        elif self.handler.last_stable_offset != self.handler.high_watermark:
            opened = self.handler.transactions.open
            self._problem(f"readers stop at {self.handler.last_stable_offset}: {opened}")

    # Lives

    def _open(self) -> None:
        self.now_ms += 1_000
        self.disk.forgets = self.random.random() < 0.5
        self.flipped.clear()
        self.manager = DiskManager("/data", storage=self.disk, flushers=0, now_ms=self.now_ms)
        self.manager.open()
        self.cleaner = Cleaner(self.manager, 1 << 30, 1 << 20, 0)

    def _restart(self, *, power_cut: bool) -> None:
        """Another process finds the disk; it works."""
        self._listen()
        self._heal()
        self.is_uncertain |= self.is_cut
        has_forgotten = bool(self.disk.lost)
        self.disk = self.disk.image(power_cut=power_cut)
        if self.durability != "fsync" and (power_cut or has_forgotten):
            self.ledger.is_lossy = self.is_uncertain = True
        self._open()
        self.handler = self.manager.get_handler("t", 0)
        self._listen()
        for producer in self.producers:
            one = producer.transaction
            # As the coordinator: of what may have lost records nothing is committed.
            is_torn = self.durability != "fsync" and (power_cut or has_forgotten)
            if one is not None and one.outcome is None and (is_torn or self.random.random() < 0.5):
                self._decide(producer, one, Outcome.ABORT)
        self._abort_unknown()
        self._end_decided()
        self._judge("behind a start")

    def _abort_unknown(self) -> None:
        """As the coordinator, when a partition is opened."""
        known = {one.number for one in self.producers if one.transaction is not None}
        for number in [one for one in self.handler.transactions.open if one not in known]:
            self.trace.append(f"  {number} hangs")
            producer = self.producers[number - 1]
            self._mark(number, producer.epoch, Outcome.ABORT)

    def _kill(self) -> None:
        self._restart(power_cut=False)

    def _power_cut(self) -> None:
        self._restart(power_cut=True)

    def _stop(self) -> None:
        with suppress(StorageError, OSError, ExceptionGroup):
            self.manager.close()
        self._restart(power_cut=False)

    def _settle(self) -> None:
        """Nothing fails any more, and everybody has the time to see that."""
        self._heal()
        for _ in range(SETTLE_TICKS):
            self.now_ms += max(PAUSES_MS)
            with suppress(StorageError, OSError):
                self.manager.housekeeping(self.now_ms)
        for producer in self.producers:
            if (one := producer.transaction) is not None and one.outcome is None:
                self._decide(producer, one, Outcome.ABORT)
        self._end_decided()
        if self.handler.read_only is None:
            self._abort_unknown()
        self._listen()

    def _listen(self) -> None:
        """What was told of gaps."""
        for row in self.manager.report.rows:
            if row.what == "gap" and (row.from_offset, row.to_offset) not in self.ledger.gaps:
                self.ledger.gaps.append((row.from_offset, row.to_offset))
                self.is_uncertain = True

    # Producers

    def _append(self, *, flushes: bool = True) -> None:
        producer = self.random.choice(self.producers[:TRANSACTIONAL])
        if producer.unanswered is not None and not self._send(producer, producer.unanswered):
            return
        if producer.transaction is None:
            producer.transaction = self.ledger.begin()
        if producer.transaction.outcome is None:
            self._send(producer, self._batch(producer), flushes=flushes)

    def _plain(self) -> None:
        producer = self.producers[TRANSACTIONAL]
        if producer.unanswered is None or self._send(producer, producer.unanswered):
            self._send(producer, self._batch(producer))

    def _batch(self, producer: Producer) -> Batch:
        values, keys = [], []
        for _ in range(self.random.choice((1, 1, 2))):
            self.values += 1
            keys.append(b"%d" % self.random.randrange(KEYS))
            values.append(b"v%05d" % self.values + bytes(self.random.randint(20, 120)))
        data = encode_batch(
            values,
            keys=keys,
            timestamps_ms=self.now_ms,
            producer_id=producer.number,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=producer.transaction is not None,
        )
        self.ledger.keys |= zip(values, keys, strict=True)
        batch = Batch(values, bytes(data), producer.epoch, producer.transaction)
        self.ledger.sent |= dict.fromkeys(values, batch)
        producer.sequence += len(values)
        return batch

    def _send(self, producer: Producer, batch: Batch, *, flushes: bool = True) -> bool:
        """Whether it is acknowledged."""
        producer.unanswered = batch
        # Who acknowledges later syncs for several at once.
        self.handler.flushes_on_append = flushes and self.random.random() < 0.8
        data = memoryview(bytearray(batch.data))
        try:
            result = self.handler.append(data, check_batch(data), self.now_ms)
        except (OutOfOrderSequence, InvalidProducerEpoch, TransactionOpen) as exc:
            self.trace.append(f"  {producer.number}: {exc}")
            if not self.is_uncertain:
                self._problem(f"producer {producer.number} may not go on: {exc}")
            self._begin_anew(producer)
            return False
        finally:
            self.handler.flushes_on_append = True
        where = f"{result.base_offset}{' again' if result.duplicate else ''}"
        self.trace.append(f"  {producer.number}.{batch.epoch}: {batch.values[0][:6]!r} at {where}")
        if self.handler.high_watermark <= result.last_offset:
            return False
        producer.unanswered = None
        batch.offset = result.base_offset
        producer.sent.append(batch)
        producer.known_epoch = batch.epoch
        return True

    def _begin_anew(self, producer: Producer) -> None:
        """With the next epoch; what it has open is aborted."""
        producer.unanswered = None
        if (one := producer.transaction) is not None:
            one.is_new_epoch = True
            if one.outcome is None:
                self._decide(producer, one, Outcome.ABORT)
        else:
            producer.epoch, producer.sequence = producer.epoch + 1, 0

    def _init(self) -> None:
        """Another instance takes over, with the next epoch, where nothing is open."""
        producer = self.random.choice(self.producers)
        if producer.transaction is None and producer.unanswered is None:
            producer.epoch, producer.sequence = producer.epoch + 1, 0

    def _again(self) -> None:
        """Somebody sends what was acknowledged once more: it is no second record."""
        found = [
            (one, batch)
            for one in self.producers
            if one.unanswered is None
            and (one.transaction is None or one.transaction.outcome is None)
            for batch in one.again(WINDOW)
        ]
        if not found or self.is_uncertain:
            return
        producer, batch = self.random.choice(found)
        data = memoryview(bytearray(batch.data))
        self.trace.append(f"  {producer.number}: {batch.values[0][:6]!r}")
        try:
            result = self.handler.append(data, check_batch(data), self.now_ms)
        except OutOfOrderSequence as exc:
            self._problem(f"what was acknowledged is refused when it comes again: {exc}")
            return
        if not result.duplicate or result.base_offset != batch.offset:
            self._problem(f"{batch.values[0][:6]!r} at {batch.offset} is a second record")

    def _late(self) -> None:
        self._stale(self.random.choice(self.producers))

    def _stale(self, producer: Producer) -> None:
        """A batch of an epoch that has ended here comes late: it is refused."""
        late = [one for one in producer.sent if one.epoch < producer.known_epoch]
        if not late or self.is_uncertain:
            return
        data = memoryview(bytearray(self.random.choice(late).data))
        try:
            result = self.handler.append(data, check_batch(data), self.now_ms)
        except InvalidProducerEpoch:
            return
        self._problem(f"a fenced producer is heard: {producer.number}, {result}")

    # The coordinator

    def _end(self) -> None:
        for producer in self.producers:
            one = producer.transaction
            if one is None or (one.outcome is None and self.random.random() < 0.5):
                continue
            if one.outcome is None:
                outcome = self.random.choice((Outcome.COMMIT, Outcome.ABORT))
                is_whole = producer.unanswered is None or self._send(producer, producer.unanswered)
                if producer.transaction is not one or one.outcome is not None:
                    continue  # it could not go on
                if not is_whole:
                    outcome = Outcome.ABORT
                if outcome is Outcome.COMMIT and self.durability != "fsync":
                    self.handler.sync()
                self._decide(producer, one, outcome)
            self._end_one(producer, one)

    def _decide(self, producer: Producer, one: Transaction, outcome: Outcome) -> None:
        self.trace.append(f"  {producer.number} {outcome.name}")
        one.outcome = outcome
        # Who may have sent more than it knows of is fenced.
        one.is_new_epoch |= producer.unanswered is not None or self.random.random() < 0.3
        producer.unanswered = None

    def _end_decided(self) -> None:
        for producer in self.producers:
            if (one := producer.transaction) is not None and one.outcome is not None:
                try:
                    self._end_one(producer, one)
                except (StorageError, OSError) as exc:
                    self.trace.append(f"  {type(exc).__name__}: {exc}")

    def _end_one(self, producer: Producer, one: Transaction) -> None:
        """Have its marker durable, and the producer begin the next one."""
        if self.handler.read_only is not None:
            return
        assert one.outcome is not None, "it is decided"
        epoch = producer.epoch + one.is_new_epoch
        is_open = producer.number in self.handler.transactions.open
        if is_open:
            one.markers.append(self.handler.log_end_offset)
            self._mark(producer.number, epoch, one.outcome)
        self.handler.sync()
        if self.handler.high_watermark < self.handler.log_end_offset or self.handler.read_only:
            return
        one.is_marked = True
        if is_open:
            producer.known_epoch = epoch
        producer.transaction = None
        if one.is_new_epoch:
            producer.epoch, producer.sequence = epoch, 0

    def _mark(self, number: int, epoch: int, outcome: Outcome) -> None:
        marker = memoryview(encode_marker(outcome, number, epoch, self.now_ms))
        result = self.handler.append(marker, read_header(marker), self.now_ms)
        self.trace.append(f"  {number} {outcome.name} at {result.base_offset}")

    # What else happens

    def _tick(self) -> None:
        self.now_ms += self.random.choice(PAUSES_MS)
        self.manager.housekeeping(self.now_ms)

    def _full(self) -> None:
        self.disk.full = not self.disk.full

    def _sync_fails(self) -> None:
        self._fail("segment_", errno.EIO, errno.EIO, errno.ENOSPC)
        with suppress(StorageError):
            self.handler.sync()
        if self.random.random() < 0.7:
            self.disk.fails = ()

    def _lose_end(self) -> None:
        """A sync forgets what nobody was told of, while something sealed cannot be read; the log is
        opened again, and producers go on, before that can be read."""
        if self.random.random() < 0.7:
            self._hide()
        self.disk.forgets = True
        for _ in range(self.random.choice((1, 2, 4))):
            self._append(flushes=False)
        self._fail("segment_", errno.EIO)
        with suppress(StorageError):
            self.handler.sync()
        self.disk.fails = ()
        for _ in range(2):
            self.now_ms += max(PAUSES_MS)
            self.manager.housekeeping(self.now_ms)
        for _ in range(self.random.choice((0, 2, 4))):
            self._append()
        if self.random.random() < 0.5:
            self._heal()
            for producer in self.producers:
                self._stale(producer)
            self._again()
            self._judge("behind a lost end")

    def _wal_fails(self) -> None:
        self._fail("/wal-", errno.EIO, errno.ENOSPC)
        with suppress(StorageError):
            self._append()
        if self.random.random() < 0.7:
            self.disk.fails = ()

    def _fail(self, paths: str, *errors: int) -> None:
        self.disk.fails, self.disk.error = (paths,), self.random.choice(errors)

    def _sealed(self) -> str:
        """The path of one of the last sealed segments, of which nothing is open any more."""
        self._forget()
        numbers = self.handler.sealed_numbers()[-3:]
        if not numbers:
            return ""
        path = self.handler._log.paths.log(self.random.choice(numbers))
        self.trace.append(f"  {path}")
        return path if self.disk.size_of(path) > 0 else ""

    def _hide(self) -> None:
        """A segment cannot be read until that is over."""
        if path := self._sealed():
            self.disk.failing.append(path)

    def _cut(self) -> None:
        if path := self._sealed():
            self.is_cut = True
            if self.random.random() < 0.5:
                self.disk.remove(path)
            else:
                self.disk.cut(path, self.random.randint(0, min(200, self.disk.size_of(path))))

    def _flip(self) -> None:
        """A bit is another one until that is over, or the segment is repaired."""
        path = self._sealed()
        if path and path not in self.flipped:
            self.flipped[path] = self.random.randrange(self.disk.size_of(path))
            self.disk.flip(path, self.flipped[path])

    def _heal(self) -> None:
        repaired = {one.path for one in self.manager.report.rows}
        for path, place in self.flipped.items():
            if path not in repaired and self.disk.size_of(path) > place:
                self.disk.flip(path, place)
        self.flipped.clear()
        self.disk.heal_all()
        self.disk.dies_in = None

    def _forget(self) -> None:
        """No file is open any more that need not be."""
        files, folder = self.handler._log.files, self.handler._log.paths.folder
        files.files.drop(folder)
        files.indexes.drop(folder)

    def _park(self) -> None:
        self.handler.park()

    def _checkpoint(self) -> None:
        if self.random.random() < 0.5:
            self.handler.wal_checkpoint()
        else:
            self.manager.wal.checkpoint()

    def _clean(self) -> None:
        self.cleaner.clean_now(self.handler, self.now_ms)
        self.trace.append(f"  {self.handler.compacting.last}")

    def _delete(self) -> None:
        begin, end = self.handler.log_start_offset, self.handler.high_watermark
        if begin < end and self.random.random() < 0.4:
            self.handler.delete_records_before(self.random.randint(begin, (begin + end) // 2))

    # What is seen

    def _look(self) -> None:
        self._judge("meanwhile")

    def _judge(self, when: str) -> None:
        handler: DiskHandler = self.handler
        seen = read_committed(handler, self.random)
        self._listen()
        offsets = handler.log_start_offset, handler.last_stable_offset, handler.log_end_offset
        if self.compacts:
            self.ledger.compacted(seen)
        for problem in self.ledger.judge(seen, *offsets, self._is_lost):
            self._problem(f"{when}: {problem}")

    def _is_lost(self, one: Transaction) -> bool:
        """Whether a marker is in damage that no reader has come to, so that nobody has told of it;
        not where it cannot be read just now, nor where it was cleaned away."""
        if self.compacts and not (self.is_cut or self.ledger.gaps):
            return False
        failing, self.disk.failing = self.disk.failing, []
        try:
            return not all(self._is_there(one, marker) for marker in one.markers)
        finally:
            self.disk.failing = failing

    def _is_there(self, one: Transaction, marker: int) -> bool:
        for _ in range(REPAIRS_MAX):
            try:
                data = read_once(self.handler, marker)
            except SegmentReplaced:
                continue
            except (StorageError, OSError):
                break
            return bool(data) and marker_outcome(read_header(data), data) is one.outcome
        return False

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self.durability}: {text}")
        self.trace.append("!! " + text)

"""A broker of whose files somebody changes some, as those see it who work with it; and the judge.

Of each acknowledged record: it is there as it was written, or its offset is in a gap, or what is
asked says that it is not served.  No offset of one is given to another.  Nothing is there that was
not sent to that partition, and nothing twice that a producer may send again; transactions ended as
they were told to.  Nothing raises what callers do not expect, and a start is refused only for what
was changed outside of the partitions.

Excused, as docs/reliability.md says it of what is damaged while nobody runs: behind a change to the
write-ahead log that no look of a running broker has come to, what segments have lost as well; so
where a full disk had no room for what the log says of the ends.
"""

import time
from contextlib import suppress
from random import Random
from typing import Final

from segbroker.protocol.markers import Outcome, encode_marker
from segbroker.protocol.record_batch import (
    check_batch,
    encode_batch,
    iter_batches,
    read_header,
)
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.scrubbing import Scrubber
from segbroker.segments.errors import (
    InvalidProducerEpoch,
    OutOfOrderSequence,
    StorageError,
    TransactionOpen,
)
from segbroker.segments.partition.handler import ReadPlan
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.journal import WalConfig

from .damage_ledger import (
    Found,
    Ledger,
    Request,
    Transaction,
    read_out,
    stored_twice,
    wrong_look_up,
    wrong_transactions,
)
from .history import Partition
from .meddled_disk import Killed, MeddledDisk

TOPICS: Final = {"f": "fsync", "d": "disk", "m": "memory", "c": "fsync", "r": "fsync"}
COMPACTED: Final = "c"
RETAINED: Final = "r"
RETENTION_BYTES: Final = 4_096
SEGMENT_BYTES: Final = 1_024
PARTITIONS: Final = 2
OF_THE_WAL: Final = ("/data/wal", "/data/meta", "/data/witness")
NOTICED: Final = ("remove", "away", "cut in place", "beginning", "other", "other in place")
HIDEABLE: Final = ("cut in place", "other in place")
"""What an append may hide that comes before a look, if it is done to a file that is open."""
UNSEEN: Final = ("stale in place", "foreign in place", "flip in place")
ANSWER_LIMIT_S: Final = 20
UNSEALED_MAX: Final = 3
"""Files: the one that is written, one in front of it, and one that was made ahead."""


class DamagedLife:
    """See the module.  `problems`: what must not be; `trace`: what was done."""

    def __init__(self, seed: int, *, flushers: int = 0) -> None:
        """flushers: threads, in an order that no seed has; it is killed between two calls alone."""
        self.flushers = flushers
        self.random = Random(f"running damage {seed}")
        self.disk = MeddledDisk(seed)
        self.now_ms = 1_000_000
        self.ledgers: dict[Partition, Ledger] = {}
        self.problems: list[str] = []
        self.trace: list[str] = []
        self.manager: DiskManager | None = None
        self.values = 0
        self.lost = 0
        self.refused = ""
        self.lax = ""
        """Why frames of the write-ahead log may be missing without a word; empty: they may not."""
        self.unlooked = 0
        """So many ticks with nothing wrong until a running broker has come to that."""
        self.unseen: dict[Partition, bool] = {}
        """Partitions of classes that acknowledge without the write-ahead log, of which nothing may
        vouch for what a file had: it was changed, and no look has come to it; True: none will."""
        self.foreign: dict[Partition, DiskManager | None] = {}
        """Whose last file has the content of another partition's; who has it open notices."""
        self.overwritten: set[Partition] = set()
        """In place, in this life: no look of an orderly stop comes to that."""
        self.copied: set[Partition] = set()
        """The same of any file: a power cut takes the word of what is sealed."""
        self.changed: set[str] = set()
        """All paths."""
        self.touched: set[Partition] = set()
        """Of which something was changed before."""
        self.is_gone = False
        """Whether the directory went away, and may be another one."""
        self.told: dict[Partition, list[tuple[int, int]]] = {}
        self.hidden: set[Partition] = set()
        """Of which something could not be read at a start, or is another's: its producers are not
        known for certain."""
        self.missed: set[str] = set()
        """What was away at a start."""
        self.unsettled: set[str] = set()
        """Topics that were being made or deleted when the process was killed."""
        self.producers = 0
        self.held: tuple[Ledger, int, ReadPlan] | None = None
        """A read of the focus that is planned, and from where on."""
        self.shards = self.random.choice((1, 1, 3))
        self.focus = (self.random.choice("ffddmmcr"), self.random.randrange(PARTITIONS))
        """The partition to which most happens."""
        self.few = self.random.random() < 0.3

    # Lives

    def _open(self) -> bool:
        """Start one; whether there is one."""
        self.now_ms += 1_000
        if self.random.random() < 0.1:
            self.shards = self.random.choice((1, 2, 3))
        if self.ledgers and self.random.random() < 0.1:
            self._dies_in(self.random.randint(0, 60))
        for _ in range(3):
            manager = self._new()
            try:
                manager.open()
            except Killed:
                self.trace.append("killed in the start")
                self._note(manager)
                self.disk = self.disk.image(power_cut=False)
            except (StorageError, OSError) as exc:
                self.trace.append(f"start refused: {exc}")
                if not isinstance(exc, StorageError) and not self.disk.failing:
                    self._problem(f"start raised {exc!r}")
                if not self.disk.failing:
                    self.refused = str(exc)
                    if not self._is_changed_outside():
                        self._problem(f"start refused: {exc}")
                    return False
                self.hidden |= set(self.ledgers)
                self.disk.failing.clear()
            else:
                break
        else:
            self.refused = "again and again"
            return False
        self.disk.dies_in = None
        self.manager = manager
        if self.disk.failing:
            self.hidden |= set(self.ledgers)
        self.missed.update(self.disk.away())
        self.unseen = dict.fromkeys(self.unseen, True)  # what no look came to is as it is
        self.unlooked = 1 << 60
        self.scrubber = Scrubber(manager, 1 << 30, 0)
        self.cleaner = Cleaner(manager, 1 << 30, 1 << 20, 0)
        self._listen()
        return self._has_topics()

    def _dies_in(self, changes: int) -> None:
        """It is killed behind so many changes of the disk."""
        if not self.flushers:
            self.disk.dies_in = changes

    def _new(self) -> DiskManager:
        few = self.few
        return DiskManager(
            "/data",
            storage=self.disk,
            flushers=self.flushers,
            wal=WalConfig(shards=self.shards, file_bytes=1 << 13, shard_bytes=1 << 15),
            open_files_max=1 if few else 64,
            open_logs_max=1 if few else 64,
            now_ms=self.now_ms,
        )

    def _is_changed_outside(self) -> bool:
        """Whether something was changed that is in no directory of a partition."""
        return any("/partition_" not in path for path in self.changed)

    def _has_topics(self) -> bool:
        """Whether it is the same broker; what was being made or deleted is as it came out."""
        assert self.manager is not None
        topics = self.manager.topics
        if topics.keys() >= {key[0] for key in self.ledgers} - self.unsettled:
            for name in sorted(self.unsettled - topics.keys()):
                for key in [key for key in self.ledgers if key[0] == name]:
                    del self.ledgers[key]
                with suppress(StorageError, OSError):
                    self._create(name)
            self.unsettled.clear()
            return True
        if not self.lax and not self.is_gone:
            self._problem("topics are gone")
        self.refused = "another one"
        return False

    def _end(self, how: str) -> None:
        manager = self.manager
        if manager is None:
            return
        self.trace.append(how)
        if how == "failing stop":
            self.disk.failing.append(
                self.random.choice(("/data/topics/f", "/data/wal", "/data/meta"))
            )
        if how == "kill in the stop":
            self._dies_in(self.random.randint(0, 40))
        if how.endswith("stop"):
            works = not self.disk.full and not self.disk.failing
            opened = list(manager.handlers)
            try:
                manager.close()
                if works:  # a look as well
                    self._looked()
                    self.unseen = {k: v for k, v in self.unseen.items() if v or k not in opened}
            except* (StorageError, OSError) as exc:
                self.trace.append(f"stop failed: {exc.exceptions[0]}")
            except* Killed:
                pass
        self.held = None
        self._note(manager)
        if self.random.random() < 0.5:
            self._bring_back()
        self.manager = None
        for key, ledger in self.ledgers.items():
            is_kept = not manager.wal.checkpoints and not self.lax and key not in self.overwritten
            ledger.due, ledger.kept = (ledger.kept if is_kept else set()), set()
            ledger.open, ledger.written = set(), set()
            ledger.is_hideable = False
        self.overwritten.clear()
        if how == "power cut":
            self.foreign |= dict.fromkeys(self.copied)
        failing = self.disk.failing if self.random.random() < 0.2 and how != "failing stop" else []
        left = self.disk
        self.disk = left.image(power_cut=how == "power cut")
        left.full, left.failing = False, []
        self._end_threads(manager)
        self.disk.failing = failing

    def _end_threads(self, manager: DiskManager | None) -> None:
        """Of one that is killed: what they do yet is done to a disk that nobody has."""
        if self.flushers and manager is not None:
            with suppress(BaseExceptionGroup, StorageError, OSError):
                manager.close()

    def _hear(self, event: str) -> None:
        """What is logged."""
        if event == "wal_ends_not_kept":  # a full disk: the next group says them
            self.lax, self.unlooked = event, 2

    def _listen(self) -> None:
        """What the running one has said counts as told, whatever comes of it."""
        if self.manager is not None:
            self._note(self.manager)

    def _note(self, manager: DiskManager) -> None:
        for row in manager.report.rows:
            if row.what == "gap":
                told = self.told.setdefault((row.topic, row.partition), [])
                told.append((row.from_offset, row.to_offset))
            elif row.what in ("wal_damaged", "wal_torn", "unknown_topic"):
                self.lax, self.unlooked = row.what, 1 << 60

    # What a life does

    def _create(self, name: str) -> None:
        assert self.manager is not None
        settings = {
            "durability": TOPICS[name],
            "segment.bytes": str(SEGMENT_BYTES),
            "index.interval.bytes": "4096",
        }
        if name == COMPACTED:
            settings |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        if name == RETAINED:
            settings |= {"retention.bytes": str(RETENTION_BYTES)}
        self.manager.create_topic(name, PARTITIONS, TopicConfig(settings))
        for partition in range(PARTITIONS):
            self.ledgers[name, partition] = Ledger()

    def _delete(self, name: str) -> None:
        """A topic, and make another one of its name."""
        assert self.manager is not None
        self.trace.append(f"delete {name}")
        self.unsettled.add(name)  # if it is killed
        self.manager.delete_topic(name)
        for partition in range(PARTITIONS):
            self.told.pop((name, partition), None)
            self.ledgers.pop((name, partition), None)
        self._create(name)
        self.unsettled.discard(name)

    def _forget_deleted(self) -> None:
        """Of a topic whose deletion or creation failed nothing is expected."""
        assert self.manager is not None
        for name in sorted(self.unsettled):
            for key in [key for key in self.ledgers if key[0] == name]:
                del self.ledgers[key]
                self.told.pop(key, None)

    def _meddle(self, *, is_aimed: bool = False) -> None:
        folder = f"/data/topics/{self.focus[0]}/partition_{self.focus[1]}"
        self._changed(*self.disk.meddle(self.random, folder, is_aimed=is_aimed))

    def _bring_back(self) -> None:
        if path := self.disk.bring_back(self.random):
            self._changed("back", path)

    def _changed(self, how: str, path: str) -> None:
        self.trace.append(f"{how}: {path}")
        self.changed.add(path)
        self.is_gone |= path in ("/data", "/data/LOCK")
        if path == "/data" or path.startswith(OF_THE_WAL):
            self.lax = f"{how} {path}"
            # The content of what is as long as before is looked at by nobody.
            self.unlooked = 1 << 60 if how in UNSEEN else 2
        for key, ledger in self.ledgers.items():
            ledger.due.clear()  # in the files alone by now
            if self.lax:
                ledger.recalled.clear()
            folder = f"/data/topics/{key[0]}/partition_{key[1]}"
            ours = [one for one in self.changed if one.startswith(f"{folder}/")]
            if f"{folder}/".startswith(f"{path}/") or path in ours:
                self._doubt(key, how, path, ours)
                is_noticed = how in NOTICED and key not in self.touched
                ledger.is_hideable = how in HIDEABLE and self._is_written(key, path)
                ledger.recalled = self._recalled(key) if is_noticed else set()
                is_elsewhere = is_noticed and not how.endswith("in place")
                ledger.open = self._open_at(key, path) if is_elsewhere else set()
                self.touched.add(key)

    def _doubt(self, key: Partition, how: str, path: str, changed: list[str]) -> None:
        """What is excused of a partition of which something was changed."""
        if TOPICS[key[0]] != "fsync":
            self.unseen[key] = how in UNSEEN or self.unseen.get(key, False)
        if how not in ("remove", "away", "fail", "cut in place", "beginning", "grow in place"):
            self.overwritten.add(key)
        kinds = {one.rpartition(".")[2] for one in changed}
        if {"log", "manifest"} <= kinds:  # nothing says any more whose the files are
            self.unseen[key] = True
            self.foreign.setdefault(key, None)
        if how.startswith(("foreign", "stale")) or (how == "back" and path in self.missed):
            self.hidden.add(key)
        if how.startswith("foreign") and path.endswith(".log"):
            self.copied.add(key)
        if how.startswith("foreign") and self._is_unsealed(key, path):
            is_open = self.manager is not None and key in self.manager.handlers
            self.foreign[key] = self.manager if is_open else None

    def _recalled(self, key: Partition) -> set[int]:
        """What the write-ahead log has of a partition whose file was changed so that it is noticed
        before the log lets that go."""
        if self.manager is None or key not in self.manager.handlers or self.lax:
            return set()
        if TOPICS[key[0]] != "fsync" or key[0] == COMPACTED or self.disk.failing:
            return set()
        try:
            frames = self.manager.wal.recall(self.manager.handlers[key]._journaling)
        except (StorageError, OSError):
            return set()
        headers = [read_header(one) for frame in frames for one in iter_batches(frame.payload)]
        found = {at for one in headers for at in range(one.base_offset, one.next_offset)}
        return found & self.ledgers[key].acked.keys()

    def _is_written(self, key: Partition, path: str) -> bool:
        """Whether a file is not sealed and open, as the running broker knows it."""
        handler = self.manager.handlers.get(key) if self.manager is not None else None
        if handler is None:
            return True
        unsealed = (*handler._log.rotating, handler._log.active)
        return path in [one.path for one in unsealed if one.file is not None]

    def _open_at(self, key: Partition, path: str) -> set[int]:
        """What is in a file that is open: a look writes it anew from there."""
        handler = self.manager.handlers.get(key) if self.manager is not None else None
        if handler is None or key[0] in (COMPACTED, RETAINED) or self.disk.failing:
            return set()
        active = handler._log.active
        if active.path != path or active.file is None:
            return set()
        return {at for at in self.ledgers[key].written if at >= active.base_offset}

    def _looked(self) -> None:
        """Whoever has a file open knows by now whether it is at its path."""
        for ledger in self.ledgers.values():
            ledger.recalled |= ledger.open
            ledger.open = set()
            ledger.is_hideable = False

    def _is_unsealed(self, key: Partition, path: str) -> bool:
        """Whether a start may take what is there for its own: of what is sealed a tag is known."""
        folder = f"/data/topics/{key[0]}/partition_{key[1]}"
        names = [name for name in self.disk.names(folder) if name.endswith(".log")]
        names.sort(key=lambda name: int(name[:-4].rpartition("_")[2]))
        return path.rpartition("/")[2] in names[-UNSEALED_MAX:]

    def _tick(self) -> None:
        assert self.manager is not None
        self.trace.append("tick")
        self.now_ms += 6_000
        if self.random.random() < 0.3:
            self.now_ms += 60_000
        manager = self.manager
        (manager.keep_house_now if self.flushers else manager.housekeeping)(self.now_ms)
        self._listen()
        # Else it may not even be marked, or nobody looks.
        if not (self.disk.full or self.disk.failing or manager.look_for_directory()):
            for key in [key for key in manager.handlers if not self.unseen.get(key, True)]:
                del self.unseen[key]
        works = not manager.wal.statistics().shards_failed and manager.why_unsettled is None
        works = works and manager.why_not_saved is None and not self.disk.full
        works = works and all(one.read_only is None for one in manager.handlers.values())
        if works and not self.disk.failing:
            self._looked()
        if self.lax and works and not self.disk.failing:
            self.unlooked -= 1
            self.lax = self.lax if self.unlooked > 0 else ""

    def _append(self, key: Partition) -> None:
        """A batch of a partition; behind what it has no answer to, which is sent again."""
        assert self.manager is not None
        if key not in self.ledgers:
            return
        random, ledger = self.random, self.ledgers[key]
        if ledger.unanswered is not None and not self._send(key, ledger.unanswered):
            return
        if key[1] == 0 and ledger.producer < 0:
            self._begin_producer(ledger)
        transaction = None
        if key[1] == 1 and key[0] != COMPACTED and (ledger.transaction or random.random() < 0.3):
            if ledger.producer < 0:
                self._begin_producer(ledger)
            transaction = ledger.transaction
            if transaction is None:
                transaction = Transaction(ledger.producer)
                ledger.transactions.append(transaction)
        values, keys = [], []
        for _ in range(random.randint(1, 3)):
            self.values += 1
            keys.append(b"%d" % random.randint(0, 4))
            values.append(b"%s-%d.%d." % (key[0].encode(), key[1], self.values))
            values[-1] += b"x" * random.randint(0, 200)
            ledger.sent[values[-1]] = keys[-1]
            ledger.times_ms[values[-1]] = self.now_ms
        is_tracked = key[1] == 0 or transaction is not None
        batch = encode_batch(
            values,
            keys=keys,
            timestamps_ms=self.now_ms,
            producer_id=ledger.producer if is_tracked else -1,
            producer_epoch=0 if is_tracked else -1,
            base_sequence=ledger.sequence if is_tracked else -1,
            transactional=transaction is not None,
        )
        if is_tracked:
            ledger.sequence += len(values)
        producer = ledger.producer if is_tracked else -1
        self._send(key, Request(batch, values, producer, transaction))

    def _begin_producer(self, ledger: Ledger) -> None:
        self.producers += 1
        ledger.begin_producer(self.producers)

    def _send_again(self, key: Partition) -> None:
        """The last batch that was acknowledged, as a producer does who has lost the answer."""
        ledger = self.ledgers.get(key)
        if ledger is not None and ledger.last is not None and ledger.unanswered is None:
            self.trace.append("again:")
            self._send(key, ledger.last)

    def _end_transaction(self, key: Partition) -> None:
        ledger = self.ledgers.get(key)
        if ledger is None or ledger.transaction is None:
            return
        if ledger.unanswered is not None and not self._send(key, ledger.unanswered):
            return
        if (transaction := ledger.transaction) is None:
            return  # nobody knows it any more
        outcome = transaction.outcome = self.random.choice((Outcome.ABORT, Outcome.COMMIT))
        value = transaction.marked
        ledger.sent[value] = b""
        batch = bytes(encode_marker(outcome, transaction.producer, 0, self.now_ms))
        self._send(key, Request(batch, [value], transaction.producer, transaction))

    def _send(self, key: Partition, request: Request) -> bool:
        """Whether it is acknowledged."""
        assert self.manager is not None
        ledger, values = self.ledgers[key], request.values
        if ledger.is_hideable:
            # What is cut and written to is long enough again, with a hole in it.
            self.overwritten.add(key)
            ledger.recalled.clear()
        is_tracked = request.producer >= 0
        ledger.unanswered = request if is_tracked else None
        self.trace.append(f"append {key} {len(values)}")
        batch = memoryview(bytearray(request.batch))
        try:
            handler = self.manager.get_handler(*key)
            header = read_header(batch) if request.is_marker else check_batch(batch)
            result = handler.append(batch, header, self.now_ms)
        except (OutOfOrderSequence, InvalidProducerEpoch, TransactionOpen) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")
            self._read(key, "behind a refusal")
            if ledger.is_intact and not self.lax and key not in self.hidden | self.unseen.keys():
                self._problem(f"{key}: a producer may not go on: {exc}")
            self._forget_producer(ledger)
            return False
        except (StorageError, OSError) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")
            return False
        self.trace[-1] += f" at {result.base_offset}{' again' if result.duplicate else ''}"
        offsets = range(result.base_offset, result.last_offset + 1)
        if not result.duplicate:
            again = [at for at in offsets if at in ledger.acked and at not in ledger.said]
            if again and (self.lax or key in self.unseen):
                ledger.said |= set(again)
            elif again:
                self._problem(f"{key}: given again: {again}")
        if self.flushers:
            limit_s = time.monotonic() + ANSWER_LIMIT_S
            while handler.high_watermark <= result.last_offset and handler.read_only is None:
                if time.monotonic() > limit_s:
                    self._problem(f"{key}: no answer")
                    break
                time.sleep(0.0002)
        if handler.high_watermark <= result.last_offset:
            self.trace[-1] += " not acknowledged"
            return False
        if not result.duplicate:
            ledger.written |= set(offsets)
            if TOPICS[key[0]] == "fsync":
                ledger.kept |= set(offsets)
        self._acknowledged(key, request, offsets)
        return True

    def _acknowledged(self, key: Partition, request: Request, offsets: range) -> None:
        ledger, transaction = self.ledgers[key], request.transaction
        ledger.unanswered = None
        ledger.acked |= dict(zip(offsets, request.values, strict=True))
        if request.producer >= 0 and not request.is_marker:
            ledger.last = request
        if transaction is not None and request.is_marker:
            transaction.marker = offsets[0]
            ledger.last = None  # nobody sends what has ended again
        elif transaction is not None:
            transaction.rows |= dict(zip(offsets, request.values, strict=True))

    def _forget_producer(self, ledger: Ledger) -> None:
        """Another one goes on; the coordinator ends what the one before has begun."""
        if (transaction := ledger.transaction) is not None:
            transaction.outcome, transaction.marker = Outcome.ABORT, -1
            transaction.rows.clear()  # nobody says when it ends
        ledger.begin_producer(-1)

    def _delete_records(self, key: Partition) -> None:
        assert self.manager is not None
        handler = self.manager.get_handler(*key)
        before = self.random.randint(handler.log_start_offset, handler.high_watermark)
        self.trace.append(f"delete {key} before {before}")
        self.ledgers[key].floor = max(self.ledgers[key].floor, before)
        handler.delete_records_before(before)

    # What is there

    def _check(self, when: str) -> None:
        self.trace.append(f"read {when}")
        for key in sorted(self.ledgers):
            self._read(key, when)
        self._listen()

    def _read(self, key: Partition, when: str) -> None:
        assert self.manager is not None
        ledger = self.ledgers[key]
        try:
            handler = self.manager.get_handler(*key)
        except (StorageError, OSError) as exc:
            self.refused = self.refused or str(exc)
            return
        found = read_out(handler, ledger)
        there = dict(found.rows)
        self._listen()
        self._judge_rows(key, when, found)
        if (twice := stored_twice(found)) and key not in self.hidden:
            self._problem(f"{when}, {key}: there twice: {twice}")
        wrong = wrong_transactions(handler, ledger, there)
        if not wrong and not ledger.transactions and not found.refused and ledger.times_ms:
            time_ms = self.random.choice(sorted(ledger.times_ms.values()))
            wrong = wrong_look_up(handler, ledger, found, time_ms)
        if wrong and key not in self.hidden:
            self._problem(f"{when}, {key}: {wrong}")
        told = [*found.excused, *self.told.get(key, ())]
        if handler.read_only is not None:
            told.append((handler.high_watermark, 1 << 60))
        if key[0] == RETAINED and handler.size_bytes + 2 * SEGMENT_BYTES > RETENTION_BYTES:
            ledger.floor = max(ledger.floor, handler.log_start_offset)
        last = {ledger.sent[value]: offset for offset, value in sorted(ledger.acked.items())}
        last |= {ledger.sent[there[at]]: at for at in sorted(there) if there[at] in ledger.sent}
        silent, missing = [], False
        for offset, value in sorted(ledger.acked.items()):
            if offset in there:
                continue
            missing = True
            if offset < ledger.floor or offset in ledger.said:
                continue
            if key[0] == COMPACTED and last[ledger.sent[value]] > offset:
                continue
            self.lost += 1
            if not any(begin <= offset < end for begin, end in told):
                silent.append(offset)
        ledger.is_intact &= not missing
        due = {at for at in (ledger.due | ledger.recalled) - there.keys() if at >= ledger.floor}
        due = {at for at in due if any(begin <= at < end for begin, end in found.gaps)}
        if due and key[0] != COMPACTED and not self.lax:
            self._problem(f"{when}, {key}: was still to be had, and is lost: {sorted(due)}")
        if silent:
            lax = self.lax or ("not seen" if key in self.unseen else "")
            text = f"{when}, {key}: lost without a word: {silent} {lax}"
            if lax:
                self.trace.append(text)
            else:
                self._problem(text)
            ledger.said |= set(silent)

    def _judge_rows(self, key: Partition, when: str, found: Found) -> None:
        """Nothing is there that was not sent to that partition, nor under another offset."""
        ledger = self.ledgers[key]
        for offset, value in found.rows:
            if value not in ledger.sent:
                if self.foreign.get(key, self.manager) is not self.manager:
                    self.unseen[key] = True
                    self.hidden.add(key)
                    continue
                self._problem(f"{when}, {key}: {offset} was never sent: {value[:20]!r}")
            elif offset not in ledger.said and ledger.acked.get(offset, value) != value:
                self._problem(f"{when}, {key}: {offset} is another one")

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.trace.append("!! " + text)

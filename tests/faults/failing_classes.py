"""A topic whose class of durability and settings change, on a disk that fails.

    life    records in one to three partitions; the class, sizes, retention, its policy and
            on.corruption of the topic change, and the defaults of all topics; partitions are added,
            records deleted, the topic deleted and made again under its name, with any class; syncs
            fail, of segments, the write-ahead log, the metadata, marks, names of files, and forget
            what they were to write; the disk is full; logs are synced, parked, checkpointed
    end     a kill, at any change of the disk as well, a power cut, an orderly stop and either
    start   with another number of shards of the write-ahead log; may be killed in turn

A case comes of its seed.  class_ledger.py judges what is acknowledged by the class that an
administrator was told of: the weaker one, while a change was refused and may yet come true.  Behind
a start the topic is one of those that it may be, and of a class that was asked for.  In the end
nothing fails: every partition follows its topic's settings, and takes and keeps a record.

Not drawn: files that are changed or cannot be read (running_damage.py, failing_transactions.py), a
start on a disk that fails, producers with ids, compaction.
"""

import errno
import traceback
from contextlib import suppress
from random import Random
from typing import Final
from uuid import UUID

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import (
    PartitionDamaged,
    PartitionFull,
    StorageError,
    UnknownTopic,
)
from segbroker.segments.metadata.ceilings import IDLE_MS
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import Durability, TopicConfig
from segbroker.segments.wal.journal import WalConfig

from .class_ledger import PartitionLedger
from .committed_view import read_committed
from .failing_disk import FailingDisk
from .listening import listening
from .meddled_disk import Killed

TOPIC: Final = "t"
STORED: Final = ("fsync", "disk", "memory")
PARTITIONS_MAX: Final = 3
SHARDS: Final = (1, 1, 2, 3)
PAUSES_MS: Final = (500, 3_000, 70_000)
SETTLE_TICKS: Final = 8
ERRORS: Final = (errno.EIO, errno.ENOSPC)
FAILING: Final[tuple[tuple[str, ...], ...]] = (
    ("segment_",),
    ("segment_",),
    ("segment_", "unsynced"),
    ("/wal-",),
    ("/wal-",),
    ("/meta/",),
    ("/wal-", "/meta/"),
)
"""Parts of the paths whose syncs fail."""
SETTINGS: Final = {
    "segment.bytes": ("700", "700", "2500"),
    "retention.records": ("-1", "-1", "-1", "3", "20"),
    "retention.bytes": ("-1", "-1", "-1", "1500"),
    "retention.full.policy": ("drop-old", "drop-old", "reject"),
    "on.corruption": ("gap", "gap", "gap", "readonly", "refuse"),
}
FAILING_EVENTS: Final = (("/wal-",), ("/wal-", "/meta/"))
"""The same, where they are of what is changed."""
NOT_MARKED: Final = {"failed_sync_not_marked", "wal_failed"}
"""Events: of what is lost nothing on the disk says so."""
DEFAULTS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"retention.ms": "-1"},
    {"retention.records": "10"},
    {"segment.bytes": "900"},
)
WEIGHTS: Final = {
    "append": 14,
    "alter": 6,
    "defaults": 1,
    "grow": 1,
    "again": 1,
    "delete": 1,
    "fail": 4,
    "amid": 6,
    "settle": 2,
    "turn": 2,
    "squeeze": 1,
    "names": 1,
    "full": 1,
    "tick": 6,
    "round": 1,
    "heal": 4,
    "sync": 1,
    "flush": 1,
    "checkpoint": 1,
    "park": 1,
    "look": 1,
    "kill": 2,
    "power_cut": 2,
    "stop": 2,
}


class Case:
    """One seed.  `problems`: what must not be; `trace`: what was done."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"failing classes {seed}")
        self.problems: list[str] = []
        self.trace: list[str] = []
        self.now_ms = 1_000_000
        self.disk = FailingDisk(seed)
        self.disk.overwrites = self.random.random() < 0.5
        self.values = 0
        self.was_torn = False
        self.heard: set[str] = set()
        """What the broker has logged in this life."""
        self.has_failed_last = False
        """Whether a sync has failed in the step that killed it."""
        self.topics: dict[UUID | None, list[PartitionLedger]] = {}
        """Of each topic that may be there, by its id, what is known; None: one that was refused."""
        self.may_be_gone = True
        """Whether it may be that there is no topic."""
        self.classes: set[str] = set()
        """One of them is the topic's."""
        self.overrides: dict[str, str] = {}
        self.epoch = self.epoch_before = -1
        """The highest that a partition was in; and that one of an earlier topic was in."""
        self.asked: list[dict[str, str]] = []
        """Settings of this topic that may have been in force."""
        self.defaults: list[dict[str, str]] = [{}]
        """The same of all topics."""

    @property
    def outcome(self) -> str:
        """What came of it."""
        gaps = any(one.gaps for rows in self.topics.values() for one in rows)
        return "with a gap" if gaps else "torn" if self.was_torn else "whole"

    def run(self) -> "Case":
        """All of it."""
        with listening(self.problems, self.heard.add):
            try:
                self._run()
            except Exception:
                self._problem("raised " + traceback.format_exc(limit=-6))
        return self

    def _run(self) -> None:
        random = self.random
        self._open(power_cut=False)
        self._create()
        for act in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=random.randint(15, 60)):
            if random.random() < 0.03:
                self.disk.dies_in = random.randint(0, 25)
            self.trace.append(act)
            failed = set(self.disk.failed)
            try:
                getattr(self, f"_{act}")()
            except (StorageError, OSError, ExceptionGroup) as exc:
                self.trace.append(f"  {type(exc).__name__}: {exc}")
            except Killed:
                self.trace.append("  in which it is killed")
                self.has_failed_last = self.disk.failed != failed
                self._restart(power_cut=False)
        self._finish()

    def _finish(self) -> None:
        """Nothing fails any more, and an operator has looked."""
        self._settle()
        if TOPIC not in self.manager.topics:
            self._create()
        overrides = {"on.corruption": "gap", "retention.full.policy": "drop-old"}
        with suppress(StorageError):  # stored, and followed when that is over
            self._alter_to({**self.overrides, **overrides})
        self._settle()
        if any(handler.read_only is not None for handler in self._handlers()):
            self._restart(power_cut=False)  # what memory lost waits for a start
            self._settle()
        self._judge("in the end")
        for handler in self._handlers():
            if handler.read_only is not None:
                self._problem(f"read-only in the end: {handler.read_only}")
            elif not self._send(handler):
                self._problem("the last record is not acknowledged")
        self._restart(power_cut=self.random.random() < 0.5)

    def _check_settled(self) -> None:
        """Where nothing fails any more settings that are stored are in force, and what memory has
        all of is written to again."""
        for handler in self._handlers():
            config = self.manager.topics[TOPIC].config
            is_followed = (handler.ceiling is None) == (config.durability is Durability.FSYNC)
            why = handler.read_only
            if why is None and not (is_followed and handler.config == config):
                self._problem(f"settings are not followed: {handler.config}, not {config}")
            is_lost = self.disk.forgets and bool(self.disk.lost)
            if why is not None and not (is_lost or isinstance(why, PartitionDamaged)):
                self._problem(f"still read-only: {why}")

    # The topic

    def _is(self, *classes: str) -> bool:
        """Whether the topic is of one of these for certain."""
        return self.classes <= set(classes)

    @property
    def _kept_min(self) -> int | None:
        """The least number of records that a retention keeps; None: nothing is ever deleted."""
        found = []
        for asked in [defaults | own for own in self.asked for defaults in self.defaults]:
            if asked.get("retention.full.policy") != "reject":
                if int(asked.get("retention.bytes", "-1")) >= 0:
                    return 0
                if (records := int(asked.get("retention.records", "-1"))) >= 0:
                    found.append(records)
        return min(found, default=None)

    def _create(self) -> None:
        """Of any class."""
        random = self.random
        durability = random.choice((*STORED, *STORED, "ephemeral"))
        overrides = {"index.interval.bytes": "4096", "durability": durability}
        overrides["segment.bytes"] = random.choice(SETTINGS["segment.bytes"])
        if random.random() < 0.2:
            overrides["retention.records"] = "3"
        if durability == "ephemeral":
            overrides["retention.bytes"] = "100000"
        count = random.choice((1, 1, 2))
        rows = [PartitionLedger() for _ in range(count)]
        if not self.topics:
            self.classes, self.asked = set(), []
        self.classes.add(durability)
        self.asked.append(overrides)
        self.topics[None] = rows
        self.trace.append(f"  {durability}, {count} partitions")
        meta = self.manager.create_topic(TOPIC, count, TopicConfig(overrides))
        self.topics, self.may_be_gone = {meta.topic_id: rows}, False
        self.classes, self.overrides = {durability}, overrides
        self.epoch_before = self.epoch

    def _again(self) -> None:
        """The topic is deleted, and mostly another of its name made."""
        self.may_be_gone = True
        with suppress(UnknownTopic):  # which is as good
            self.manager.delete_topic(TOPIC)
        self.topics.clear()
        self.trace.append("  deleted")
        if self.random.random() < 0.6:
            self._create()

    def _grow(self) -> None:
        rows = self._ledgers()
        if TOPIC in self.manager.topics and len(rows) < PARTITIONS_MAX:
            rows.append(PartitionLedger())
            self.manager.create_partitions(TOPIC, len(rows))

    def _alter(self) -> None:
        if TOPIC not in self.manager.topics:
            return
        random = self.random
        overrides = dict(self.overrides)
        if random.random() < 0.7 and not self._is("ephemeral"):
            overrides["durability"] = random.choice(STORED)
        if random.random() < 0.5:
            key = random.choice(list(SETTINGS))
            overrides[key] = random.choice(SETTINGS[key])
        self._alter_to(overrides)

    def _turn(self) -> None:
        """To another class, and the next tick comes before a power cut."""
        if TOPIC in self.manager.topics and not self._is("ephemeral"):
            self._tick()
            self._alter_to({**self.overrides, "durability": self.random.choice(STORED)})
            self._tick()
            self._power_cut()

    def _alter_to(self, overrides: dict[str, str]) -> None:
        self.trace.append(f"  {overrides}")
        self.asked.append(overrides)
        new = overrides["durability"]
        self.classes.add(new)
        try:
            self.manager.alter_topic(TOPIC, overrides)
        finally:
            for ledger in self._ledgers():  # by one that cannot say what of it is synced
                ledger.is_reserved |= new != "fsync" and not self._is_writable
        self.overrides, self.classes = overrides, {new}
        if new == "fsync":
            self._synced(is_settled=True)

    @property
    def _is_writable(self) -> bool:
        return all(one.read_only is None for one in self.manager.handlers.values())

    def _defaults(self) -> None:
        values = self.random.choice(DEFAULTS)
        self.defaults.append(values)
        self.manager.set_topic_defaults(values)

    # Lives

    def _open(self, *, power_cut: bool) -> None:
        """A start; one that is killed is followed by another."""
        random = self.random
        if random.random() < 0.1 and self.topics:
            self.disk.dies_in = random.randint(0, 60)
        is_new_boot: bool | None = power_cut
        while True:
            self.now_ms += 1_000
            self.disk.forgets = random.random() < 0.5
            file_bytes = random.choice((1 << 13, 1 << 14))
            wal = WalConfig(random.choice(SHARDS), file_bytes, 3 * file_bytes)
            self.manager = DiskManager(
                "/data", storage=self.disk, flushers=0, wal=wal, now_ms=self.now_ms
            )
            try:
                self.manager.open()
                break
            except Killed:  # whether this boot is noted is known to nobody
                self.trace.append("  in which it is killed")
                is_new_boot = None
                self.disk = self.disk.image(power_cut=power_cut and random.random() < 0.5)
        self.disk.dies_in = None
        if is_new_boot is not None and self.manager.is_new_boot is not is_new_boot:
            self._problem(f"a boot is mistaken: {power_cut=}")

    def _restart(self, *, power_cut: bool, is_clean: bool = False) -> None:
        """Another process finds the disk; it works."""
        self._heal()
        was, self.disk = self.disk, self.disk.image(power_cut=power_cut)
        self.disk.overwrites = was.overwrites
        has_failed = bool(was.failed) and not is_clean
        self.trace.append(f"  {power_cut=} {is_clean=} {sorted(was.failed)}")
        self.was_torn |= (power_cut and not is_clean) or has_failed
        # The disk takes no word of it; or the kill came before that.
        is_silent = self.has_failed_last or self.heard >= NOT_MARKED
        self.has_failed_last = False
        self.heard.clear()
        self._open(power_cut=power_cut)
        for row in self.manager.report.rows:
            if row.what == "gap" and row.reason == "corruption" and not has_failed:
                self._problem(f"said to be damaged: {row}")
        self._find_topic()
        for number, ledger in enumerate(self._ledgers()):
            ledger.pending.clear()
            if self._is("ephemeral"):
                ledger.forgotten()
            elif power_cut or any(f"_{number}_segment_" in one for one in was.failed):
                ledger.torn()
            ledger.is_silent |= is_silent
        self._judge("behind a start", power_cut=power_cut, has_failed=has_failed)

    def _find_topic(self) -> None:
        """Which it is; one of those that there may be."""
        meta = self.manager.topics.get(TOPIC)
        if meta is None:
            if not self.may_be_gone:
                self._problem("the topic is gone")
            self.topics, self.may_be_gone = {}, True
            return
        rows = self.topics.get(meta.topic_id, self.topics.get(None))
        if meta.topic_id not in self.topics:
            self.epoch_before = self.epoch
        if rows is None:
            self._problem("a topic is there that was deleted")
            rows = [PartitionLedger() for _ in range(meta.partitions)]
        self.topics, self.may_be_gone = {meta.topic_id: rows}, False
        rows += [PartitionLedger() for _ in range(meta.partitions)]
        del rows[meta.partitions :]
        found = meta.config.durability.value
        if found not in self.classes:
            self._problem(f"the class is {found}, none of {self.classes}")
        self.classes, self.overrides = {found}, dict(meta.config.overrides)

    def _kill(self) -> None:
        self._restart(power_cut=False)

    def _power_cut(self) -> None:
        self._restart(power_cut=True)

    def _stop(self) -> None:
        """Behind one that has succeeded a power cut takes nothing."""
        is_clean = False
        self.disk.full |= self.random.random() < 0.2
        try:
            works = self._is_writable
            self.manager.close()
            if is_clean := works:
                self._synced(is_settled=True)
        except (StorageError, OSError, ExceptionGroup) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")
        self._restart(power_cut=self.random.random() < 0.5, is_clean=is_clean)

    def _settle(self) -> None:
        """Nothing fails any more, and everybody has the time to see that."""
        self._heal()
        for _ in range(SETTLE_TICKS):
            self.now_ms += max(PAUSES_MS)
            with suppress(StorageError, OSError):
                self.manager.housekeeping(self.now_ms)
        if TOPIC in self.manager.topics:
            self._find_topic()
            self._check_settled()
            if self._is("fsync") and self._is_writable:
                self._synced(is_settled=True)

    # Records

    def _ledgers(self) -> list[PartitionLedger]:
        return next(iter(self.topics.values()), [])

    def _handler(self, partition: int) -> DiskHandler:
        """Raises StorageError."""
        handler = self.manager.get_handler(TOPIC, partition)
        self.may_be_gone = False  # whoever gives it out knows
        ledger = self._ledgers()[partition]

        def advanced(one: DiskHandler) -> None:
            ledger.advanced(one.high_watermark, is_durable=self._is("fsync"))

        handler.on_high_watermark = advanced
        handler.on_failure = lambda one, error: ledger.pending.clear()
        return handler

    def _handlers(self) -> list[DiskHandler]:
        meta = self.manager.topics.get(TOPIC)
        return [self._handler(number) for number in range(meta.partitions if meta else 0)]

    def _any(self) -> DiskHandler:
        """Raises StorageError where there is none."""
        handlers = self._handlers()
        if not handlers:
            raise StorageError("there is no topic")
        return self.random.choice(handlers)

    def _append(self) -> None:
        if TOPIC not in self.manager.topics:
            self._create()
        handler = self._any()
        flushes = handler.flushes_on_append = self.random.random() < 0.8
        try:
            for _ in range(self.random.choice((1, 1, 3))):
                self._send(handler)
        finally:
            handler.flushes_on_append = True
        if not flushes and self.random.random() < 0.5:
            self._round()  # before anybody has asked for its sync

    def _send(self, handler: DiskHandler) -> bool:
        """Whether it is acknowledged at once."""
        ledger = self._ledgers()[handler.partition]
        self.values += 1
        value = b"v%05d" % self.values + bytes(self.random.randint(20, 150))
        ledger.sent.add(value)
        data = memoryview(bytearray(encode_batch([value], timestamps_ms=self.now_ms)))
        ledger.is_reserved |= not self._is("fsync")
        ledger.pauses = 0
        try:
            result = handler.append(data, check_batch(data), self.now_ms)
        except PartitionFull:
            if all(one.get("retention.full.policy") != "reject" for one in self.asked):
                self._problem("refused for a policy that nobody has asked for")
            raise
        offset = result.base_offset
        is_acknowledged = handler.high_watermark > offset
        self.trace.append(f"  {value[:6]!r} at {handler.partition}:{offset} {is_acknowledged}")
        if not is_acknowledged and handler.read_only is not None:
            return False  # its producer was told so
        for problem in ledger.appended(offset, value):
            self._problem(problem)
        ledger.advanced(handler.high_watermark, is_durable=self._is("fsync"))
        return is_acknowledged

    def _delete(self) -> None:
        handler = self._any()
        begin, end = handler.log_start_offset, handler.high_watermark
        ledger = self._ledgers()[handler.partition]
        until = self.random.randint(begin, (begin + end) // 2)
        ledger.deleted_to = max(ledger.deleted_to, until)
        handler.delete_records_before(until)

    def _sync(self) -> None:
        handler = self._any()
        handler.sync()
        self._ledgers()[handler.partition].synced()

    def _flush(self) -> None:
        self._any().flush_soon()

    def _park(self) -> None:
        self._any().park()

    def _checkpoint(self) -> None:
        self.manager.wal.checkpoint()

    def _synced(self, *, is_settled: bool = False) -> None:
        """All that was acknowledged is on the disk.  is_settled: and no offset is reserved."""
        if not self._is("ephemeral"):
            for ledger in self._ledgers():
                ledger.synced()
                ledger.is_reserved &= not is_settled

    # The disk, and time

    def _fail(self, failing: tuple[tuple[str, ...], ...] = FAILING) -> None:
        disk, random = self.disk, self.random
        disk.fails, disk.error = random.choice(failing), random.choice(ERRORS)
        disk.grace = random.choice((0, 0, 1, 1, 2, 4))
        disk.full |= random.random() < 0.15
        self.trace.append(f"  {disk.fails} behind {disk.grace}")

    def _amid(self) -> None:
        """Something is changed while the disk begins to fail; a kill follows, or better times."""
        random = self.random
        changes = (self._alter, self._alter, self._again, self._again, self._defaults, self._grow)
        change = random.choice(changes)
        acts = [change] * random.choice((1, 1, 2))
        if random.random() < 0.4:
            acts.append(self._append)
        if random.random() < 0.5 and TOPIC in self.manager.topics:
            self._append()
        self._fail(FAILING_EVENTS if change == self._again else FAILING)
        for act in acts:
            try:
                act()
            except (StorageError, OSError) as exc:
                self.trace.append(f"  {type(exc).__name__}: {exc}")
        draw = random.random()
        if draw < 0.3:
            self._kill()
        elif draw < 0.6:
            self._settle()

    def _squeeze(self) -> None:
        """A full disk that takes what overwrites fails a sync as well; then there is room."""
        self._append()
        self.disk.full = True
        for act in (self._append, self._tick):
            with suppress(StorageError, OSError):
                act()
            self.disk.fails, self.disk.error = ("segment_",), errno.ENOSPC
        self._settle()
        if self.random.random() < 0.7:
            self._turn()

    def _names(self) -> None:
        self.disk.names_fail = True

    def _full(self) -> None:
        self.disk.full = not self.disk.full

    def _heal(self) -> None:
        self.disk.heal_all()
        self.disk.dies_in = None

    @property
    def _works(self) -> bool:
        """Whether nothing fails, and nothing is left of what did."""
        disk = self.disk
        return not (disk.fails or disk.full or disk.names_fail or disk.failed or self.may_be_gone)

    def _tick(self) -> None:
        self.now_ms += (pause_ms := self.random.choice(PAUSES_MS))
        self.manager.housekeeping(self.now_ms)
        works = not (self.disk.fails or self.disk.full or self.disk.names_fail)
        if works and pause_ms > 1_000 and self._is("fsync", "disk"):
            for handler in self._handlers():
                ledger = self._ledgers()[handler.partition]
                if handler.read_only is None:
                    ledger.synced()
                    ledger.pauses += pause_ms >= IDLE_MS
                    ledger.is_reserved &= ledger.pauses < 2

    def _round(self) -> None:
        self.manager.keep_house_now(self.now_ms)

    # What is seen

    def _look(self) -> None:
        self._judge("meanwhile")

    def _judge(self, when: str, *, power_cut: bool = False, has_failed: bool = False) -> None:
        has_failed |= bool(self.disk.failed)
        try:
            handlers = self._handlers()
        except StorageError as exc:
            if self._works:
                self._problem(f"{when}: {exc}")
            return
        for handler in handlers:
            seen = read_committed(handler, self.random)
            ledger = self._ledgers()[handler.partition]
            found = ledger.judge(
                seen,
                handler.log_start_offset,
                handler.high_watermark,
                max(handler.high_watermark, handler.recovery_point),
                self._kept_min,
                is_writable=handler.read_only is None,
                may_gap=has_failed or (power_cut and ledger.is_reserved),
            )
            ledger.is_reserved &= not power_cut
            self.epoch = max(self.epoch, handler.leader_epoch)
            if handler.leader_epoch <= self.epoch_before:
                self._problem(f"{when}: {handler.partition}: in an epoch of an earlier topic")
            for problem in found:
                self._problem(f"{when}: {handler.partition}: {problem}")

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.trace.append("!! " + text)

"""The n-th call of a disk fails in a life that begins with a start, for every n; then a restart.

    before   topics of all classes, rolled and sealed; an index that is cut off, a topic half
             deleted, a quarantine; a kill, a power cut or a stop
    life     a start, everything opened, written to, rolled, sealed, checkpointed, parked,
             compacted; records deleted, a topic deleted and made
    fails    counted_disk.py: with EIO, ENOSPC, EROFS or EMFILE, once, some times, or to the end
    then     the same process tries again, or a kill, at once as well, or a power cut, or a stop
             and a power cut

What a start or a step raises says what failed.  class_ledger.py judges what is there behind each
start.  When nothing fails any more everything comes back.
"""

import errno
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from random import Random
from typing import Final, NamedTuple

from segbroker.protocol.record_batch import check_batch, encode_batch
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import StorageError, UnknownTopic
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.journal import WalConfig

from .class_ledger import PartitionLedger
from .committed_view import read_committed
from .counted_disk import ALWAYS, CountedDisk
from .listening import listening
from .meddled_disk import Killed

FAILURES: Final = (StorageError, OSError, ExceptionGroup)
CLASSES: Final = {"f": "fsync", "d": "disk", "m": "memory", "c": "disk", "q": "fsync"}
"""By topic; c is compacted, of q something was damaged."""
SETTINGS: Final = {"segment.bytes": "700", "index.interval.bytes": "4096"}
COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
FILE_BYTES: Final = 1 << 13
STEP: Final = 379
"""A prime: calls are taken in an order that has some of every part of a life soon."""
TICK_MS: Final = 3_000
IDLE_TICK_MS: Final = 70_000
SETTLE_TICKS: Final = 8
ENDS: Final = ("kill", "power cut", "stop")
THENS: Final = ("again", "kill", "at once", "power cut", "stop")


class Failing(NamedTuple):
    """How calls fail: with which error, how many, whether memory forgets what they lose, and
    whether the first is a sync."""

    error: int
    lasts: int
    forgets: bool = False
    in_a_sync: bool = False


FAILINGS: Final = (
    Failing(errno.EIO, 1),
    Failing(errno.EIO, ALWAYS, forgets=True),
    Failing(errno.ENOSPC, 1),
    Failing(errno.ENOSPC, ALWAYS),
    Failing(errno.EROFS, ALWAYS),
    Failing(errno.EMFILE, 1),
    Failing(errno.EMFILE, 12),
    Failing(errno.EMFILE, ALWAYS),
    *(
        Failing(error, lasts, forgets, in_a_sync=True)
        for error, lasts in product((errno.EIO, errno.ENOSPC), (1, 2, 3))
        for forgets in (False, True)
    ),
)
"""Behind a sync that fails, the second call is that which makes its mark."""
COMBINATIONS: Final = tuple(product(ENDS, FAILINGS, THENS))


@dataclass
class Known:
    """What clients know."""

    ledgers: dict[str, PartitionLedger] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    may_be_gone: set[str] = field(default_factory=set)
    """Topics whose deletion, or making, was not answered."""
    gone: set[str] = field(default_factory=set)
    values: int = 0


class Life:
    """One process after the other on a disk."""

    def __init__(self, disk: CountedDisk, known: Known, now_ms: int) -> None:
        self.disk, self.known, self.now_ms = disk, known, now_ms
        self.random = Random(f"{disk._seed} {now_ms}")
        self.problems: list[str] = []
        self.trace: list[str] = []
        self.heard: set[str] = set()
        self.was_cut = False
        """Whether it begins behind a power cut."""
        self.is_started = False
        self._make()

    def _make(self) -> None:
        wal = WalConfig(1, FILE_BYTES, 3 * FILE_BYTES)
        self.manager = DiskManager(
            "/data", storage=self.disk, flushers=0, wal=wal, now_ms=self.now_ms
        )

    def start(self) -> None:
        """Raises StorageError, OSError."""
        self.manager.open()
        self.is_started = True

    def restart(self, *, power_cut: bool, is_clean: bool = False) -> None:
        """Another process finds the disk; it works."""
        was, self.disk = self.disk, self.disk.image(power_cut=power_cut)
        silent = was.kills or ("failed_sync_not_marked" in self.heard and was.lasts > 1)
        self.heard.clear()
        self.now_ms += 1_000
        self._make()
        self.start()
        self.trace.append(f"restart {power_cut=} {is_clean=} {sorted(was.syncs_failed)}")
        has_failed = bool(was.syncs_failed) and not is_clean
        for topic, ledger in self.known.ledgers.items():
            ledger.pending.clear()
            ledger.is_silent |= silent
            if self.known.classes[topic] == "ephemeral":
                ledger.forgotten()
            elif (power_cut and not is_clean) or self._failed(was, topic):
                ledger.torn()
        self.judge("behind a start", may_gap=has_failed or power_cut)

    def _failed(self, disk: CountedDisk, topic: str) -> bool:
        return any(path.startswith(f"/data/topics/{topic}/") for path in disk.syncs_failed)

    def judge(self, when: str, *, may_gap: bool) -> None:
        """Everything that is there."""
        for topic in self.known.gone:
            if topic in self.manager.topics:
                self.problem(f"{when}: {topic} is there and was deleted")
        for topic, ledger in self.known.ledgers.items():
            if topic not in self.manager.topics:
                if topic not in self.known.may_be_gone:
                    self.problem(f"{when}: {topic} is gone")
                continue
            try:
                handler = self.manager.get_handler(topic, 0)
            except StorageError as exc:
                if not self.disk.syncs_failed:
                    self.problem(f"{when}: {topic}: {exc}")
                continue
            seen = read_committed(handler, self.random)
            found = ledger.judge(
                seen,
                handler.log_start_offset,
                handler.high_watermark,
                max(handler.high_watermark, handler.recovery_point),
                None,
                is_writable=handler.read_only is None,
                may_gap=may_gap or self.was_cut or topic == "c",  # a cleaned place looks alike
            )
            for one in found:
                self.problem(f"{when}: {topic}: {one}")

    def problem(self, text: str) -> None:
        self.problems.append(text)
        self.trace.append("!! " + text)

    # Steps

    def create(self, topic: str, durability: str, **more: str) -> None:
        config = TopicConfig({**SETTINGS, "durability": durability, **more})
        self.known.ledgers[topic] = PartitionLedger()
        self.known.classes[topic] = durability
        self.known.may_be_gone.add(topic)
        self.manager.create_topic(topic, 1, config)
        self.known.may_be_gone.discard(topic)
        self.known.gone.discard(topic)

    def delete(self, topic: str) -> None:
        self.known.may_be_gone.add(topic)
        with suppress(UnknownTopic):
            self.manager.delete_topic(topic)
        self.known.may_be_gone.discard(topic)
        self.known.ledgers.pop(topic, None)
        self.known.gone.add(topic)

    def send(self, topic: str, count: int = 1, size: int = 90) -> None:
        """Raises StorageError."""
        known = self.known
        ledger = known.ledgers[topic]
        handler = self.handler(topic)
        for _ in range(count):
            known.values += 1
            value = b"v%05d" % known.values + bytes(size)
            ledger.sent.add(value)
            is_junk = topic == "c" and known.values % 3 == 0
            key = b"junk" if is_junk else b"%d" % known.values
            encoded = encode_batch([value], keys=[key], timestamps_ms=self.now_ms)
            data = memoryview(bytearray(encoded))
            offset = handler.append(data, check_batch(data), self.now_ms).base_offset
            is_acknowledged = handler.high_watermark > offset
            self.trace.append(f"  {value[:6]!r} at {topic}:{offset} {is_acknowledged}")
            if not is_acknowledged and handler.read_only is not None:
                return  # its producer was told so
            for one in ledger.appended(offset, value):
                self.problem(one)
            if is_junk:  # the next one of its key takes its place
                del ledger.pending[offset]
            self._advanced(handler)

    def _advanced(self, handler: DiskHandler) -> None:
        topic = handler.topic
        is_durable = self.known.classes[topic] == "fsync"
        self.known.ledgers[topic].advanced(handler.high_watermark, is_durable=is_durable)

    def handler(self, topic: str) -> DiskHandler:
        """Raises StorageError."""
        handler = self.manager.get_handler(topic, 0)
        handler.on_high_watermark = self._advanced
        handler.on_failure = lambda one, error: self.known.ledgers[topic].pending.clear()
        return handler

    def tick(self, ms: int = TICK_MS) -> None:
        self.now_ms += ms
        failed = len(self.disk.failed)
        self.manager.housekeeping(self.now_ms)
        if len(self.disk.failed) == failed:
            for topic, ledger in self.known.ledgers.items():
                handler = self.manager.handlers.get((topic, 0))
                works = handler is not None and handler.read_only is None
                if works and self.known.classes[topic] in ("fsync", "disk"):
                    ledger.synced()

    def sync(self, topic: str) -> None:
        """Raises StorageError."""
        self.handler(topic).sync()
        if self.known.classes[topic] != "ephemeral":
            self.known.ledgers[topic].synced()

    def trim(self, topic: str) -> None:
        handler = self.handler(topic)
        ledger = self.known.ledgers[topic]
        until = (handler.log_start_offset + handler.high_watermark) // 2
        ledger.deleted_to = max(ledger.deleted_to, until)
        handler.delete_records_before(until)

    def park(self, topic: str) -> None:
        self.handler(topic).park()

    def clean(self, topic: str) -> None:
        cleaner = Cleaner(self.manager, 1 << 30, 1 << 20, 0)
        cleaner.clean_now(self.handler(topic), self.now_ms)

    def stop(self) -> bool:
        """Whether all of it is durable."""
        works = all(one.read_only is None for one in self.manager.handlers.values())
        try:
            self.manager.close()
        except FAILURES as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")
            return False
        if works:
            for topic, ledger in self.known.ledgers.items():
                if self.known.classes[topic] != "ephemeral":
                    ledger.synced()
        return works

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """What is done in a life, behind its start."""
        topics = [one for one in self.known.ledgers if one in self.manager.topics]
        for topic in topics:
            yield f"open {topic}", partial(self.handler, topic)
        for topic in topics:
            yield f"send {topic}", partial(self.send, topic, 2)
        yield "tick", self.tick
        for topic in topics:
            yield f"roll {topic}", partial(self.send, topic, 6)
        yield "tick", self.tick
        yield "checkpoint", self.manager.wal.checkpoint
        for topic in topics:
            yield f"send {topic}", partial(self.send, topic)
        for topic in ("f", "d", "m"):
            yield f"trim {topic}", partial(self.trim, topic)
        yield "clean c", lambda: self.clean("c")
        for topic in topics:
            yield f"park {topic}", partial(self.park, topic)
            yield f"send {topic}", partial(self.send, topic)
        yield "sync m", lambda: self.sync("m")
        yield "delete g", lambda: self.delete("g")
        yield "create h", lambda: self.create("h", "fsync")
        yield "send h", lambda: self.send("h")
        yield "tick", lambda: self.tick(IDLE_TICK_MS)


@lru_cache
def _before(end: str) -> tuple[CountedDisk, Known, int]:
    """What a life finds, and how its clients know that."""
    life = Life(CountedDisk(), Known(), 1_000_000)
    life.start()
    for topic, durability in {**CLASSES, "g": "fsync", "half": "fsync", "e": "ephemeral"}.items():
        more = COMPACTED if topic == "c" else {}
        more |= {"retention.bytes": "100000"} if durability == "ephemeral" else {}
        life.create(topic, durability, **more)
        life.send(topic, 9)
    for _ in range(2):
        life.tick()
    paths = life.handler("q")._log.paths
    # Of q a record is damaged, and found so by the next process: a gap, and a quarantine.
    damaged = life.disk.open(paths.log(0))._inode
    damaged.content[80] ^= 1
    damaged.synced = bytes(damaged.content)
    life.known.ledgers["q"].acknowledged.clear()
    life.known.ledgers["e"].forgotten()
    life.disk._locks.clear()
    life.disk = life.disk.image(power_cut=False)
    life._make()
    life.start()
    life.judge("behind damage", may_gap=True)
    life.known.ledgers["q"].gone.clear()
    # Of f an index is cut off.
    index = life.handler("f")._log.paths.index(0)
    file = life.disk.open(index)
    file.truncate(file.size() // 2)
    file.fdatasync()
    # One topic is half deleted: its event is durable, its files are there.
    folder = deepcopy(life.disk._directory("/data/topics").names["half"])
    life.delete("half")
    life.disk._directory("/data/topics").names["half"] = folder
    life.disk.fsync_dir("/data/topics")
    for topic in CLASSES:
        life.send(topic, 2)
    life.tick()
    for topic in life.known.ledgers:
        life.send(topic, 3)
    if end == "stop":
        assert life.stop()
    disk = life.disk.image(power_cut=end == "power cut")
    for topic, ledger in life.known.ledgers.items():
        if life.known.classes[topic] == "ephemeral":
            ledger.forgotten()
        elif end == "power cut":
            ledger.torn()
    assert not life.problems, life.problems
    return disk, life.known, life.now_ms


@lru_cache
def _calls(end: str, error: int, *, in_a_sync: bool) -> int:
    """How many calls of a life may fail so."""
    disk, known, now_ms = _before(end)
    life = Life(disk.image(power_cut=False), deepcopy(known), now_ms + 1_000)
    life.disk.arm(error, ALWAYS, 1, forgets=False, in_a_sync=in_a_sync)
    life.start()
    for _, step in life.steps():
        step()
    assert not life.problems, life.problems
    return life.disk.calls


class Case:
    """One number: of a combination, and of the call that fails."""

    def __init__(self, seed: int) -> None:
        turn, rest = divmod(seed - 1, len(COMBINATIONS))
        place = rest * STEP % len(COMBINATIONS)
        self.end, self.failing, self.then = COMBINATIONS[place]
        heard: set[str] = set()
        with listening([], heard.add):
            count = _calls(self.end, self.failing.error, in_a_sync=self.failing.in_a_sync)
        self.number = 1 + (turn + rest) * STEP % count if turn < count else count + 1
        self.problems: list[str] = []
        self.trace: list[str] = []
        self.outcome = "none failed"

    def run(self) -> "Case":
        """All of it."""
        heard: set[str] = set()
        with listening(self.problems, heard.add):
            disk, known, now_ms = _before(self.end)
            life = Life(disk.image(power_cut=False), deepcopy(known), now_ms + 1_000)
            life.problems, life.trace, life.heard = self.problems, self.trace, heard
            life.was_cut = self.end == "power cut"
            try:
                self._run(life)
            except Exception:
                life.problem("raised " + traceback.format_exc(limit=-8))
        return self

    def _live(self, life: Life) -> None:
        """Raises Killed."""
        ends_soon = self.then in ("kill", "power cut") and self.number % 2
        try:
            life.start()
        except FAILURES as exc:
            self.trace.append(f"  start: {type(exc).__name__}: {exc}")
            return
        for what, step in life.steps():
            if ends_soon and life.disk.failed:
                break
            self.trace.append(what)
            try:
                step()
            except FAILURES as exc:
                self.trace.append(f"  {type(exc).__name__}: {exc}")

    def _run(self, life: Life) -> None:
        failing = self.failing
        name = errno.errorcode[failing.error]
        self.trace.append(f"behind a {self.end} call {self.number} {name} {failing} {self.then}")
        life.disk.arm(
            failing.error,
            self.number,
            failing.lasts,
            forgets=failing.forgets,
            in_a_sync=failing.in_a_sync,
        )
        life.disk.kills = self.then == "at once"
        with suppress(Killed):
            self._live(life)
        failed = life.disk.failed
        self.trace += failed[:20]
        if failed:
            self.outcome = "a life" if life.is_started else "a start"
        else:
            return
        then = self.then
        if then == "again":
            life.disk.heal()
            if not life.is_started:
                life.start()
            for _ in range(SETTLE_TICKS):
                with suppress(*FAILURES):
                    life.tick(IDLE_TICK_MS)
            life.judge("when it works again", may_gap=bool(life.disk.syncs_failed))
            for topic in list(life.known.ledgers):
                if topic in life.manager.topics:
                    with suppress(StorageError):
                        life.sync(topic)
            life.restart(power_cut=True)
        elif then == "stop":
            life.disk.heal()
            is_clean = life.is_started and life.stop()
            life.restart(power_cut=True, is_clean=is_clean)
        else:
            life.restart(power_cut=then == "power cut")
        for topic in list(life.known.ledgers):
            if topic in life.manager.topics:
                with suppress(StorageError):
                    life.send(topic)
        for _ in range(3):
            with suppress(*FAILURES):
                life.tick(IDLE_TICK_MS)
        for topic in list(life.known.ledgers):
            if topic in life.manager.topics:
                try:
                    life.send(topic)
                    life.sync(topic)
                except StorageError as exc:
                    if not life.disk.syncs_failed:
                        life.problem(f"{topic} does not come back: {exc}")
        life.restart(power_cut=True)

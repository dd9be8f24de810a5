"""Somebody changes files of a data directory while a broker has it open: no record is lost unsaid.

    life    what a broker does: appends, reads, syncs, checkpoints, upkeep, scrubs, cleans, parks,
            deletes records and topics; at some moments a file is changed (meddled_disk.py)
    end     a kill, a power cut, an orderly stop, one in which something fails, or that is killed
    start   the next one opens what is left; everything is read, and appended to; and once more

A case comes of its seed.  Of each acknowledged record: it is there as it was written, or its offset
is in a gap, or what is asked says that it is not served.  No offset of one is given to another.
Nothing is there that was not sent to that partition.  Nothing raises what callers do not expect.

Excused, as docs/reliability.md says it of what is damaged while nobody runs: behind a change to the
write-ahead log that no look of a running broker has come to, what segments have lost as well.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

import structlog

from segbroker.protocol.record_batch import (
    check_batch,
    decode_batch,
    encode_batch,
    gap_reason,
    iter_batches,
    read_header,
)
from segbroker.segments.directory.cleaner import Cleaner
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.directory.scrubbing import Scrubber
from segbroker.segments.errors import SegmentReplaced, StorageError
from segbroker.segments.partition.handler import DiskHandler
from segbroker.segments.settings.topic_config import TopicConfig
from segbroker.segments.wal.journal import WalConfig

from ..segments.tools import read_once
from .history import Partition
from .meddled_disk import Killed, MeddledDisk

TOPICS: Final = {"f": "fsync", "d": "disk", "m": "memory", "c": "fsync"}
COMPACTED: Final = "c"
PARTITIONS: Final = 2
REPAIRS_MAX: Final = 16
OF_THE_WAL: Final = ("/data/wal", "/data/meta", "/data/witness")
UNSEEN: Final = ("stale in place", "foreign in place")
UNSEALED_MAX: Final = 3
"""Files: the one that is written, one in front of it, and one that was made ahead."""
ENDS: Final = ("kill", "kill", "power cut", "stop", "stop", "failing stop", "kill in the stop")


@dataclass
class _Ledger:
    """One partition, as those know it who have written to it."""

    sent: dict[bytes, bytes] = field(default_factory=dict)
    """Value -> key."""
    acked: dict[int, bytes] = field(default_factory=dict)
    floor: int = 0
    """Records below it were deleted, or that was asked for."""
    kept: set[int] = field(default_factory=set)
    """What the write-ahead log has of this life; what it had at the end of the last one."""
    due: set[int] = field(default_factory=set)
    said: set[int] = field(default_factory=set)
    """What was found to be lost already."""
    producer: int = 0
    sequence: int = 0


@dataclass
class _Found:
    """A partition, as a reader sees it."""

    rows: list[tuple[int, bytes]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    excused: list[tuple[int, int]] = field(default_factory=list)
    """Offsets in gaps, and those that are refused."""


class Case:
    """One seed.  `problems`: what must not be; `trace`: what was done."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"running damage {seed}")
        self.disk = MeddledDisk(seed)
        self.now_ms = 1_000_000
        self.ledgers: dict[Partition, _Ledger] = {}
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
        self.is_gone = False
        """Whether the directory went away, and may be another one."""
        self.told: dict[Partition, list[tuple[int, int]]] = {}
        self.focus = (self.random.choice("ffdcm"), self.random.randrange(PARTITIONS))
        """The partition to which most happens."""
        self.few = self.random.random() < 0.3

    def run(self) -> "Case":
        """All of it."""
        with _listening(self.problems):
            try:
                self._run()
            except Exception:
                self.problems.append("raised " + traceback.format_exc(limit=-6))
        return self

    def _run(self) -> None:
        random = self.random
        if not self._open():
            return
        for name, durability in TOPICS.items():
            self._create(name, durability)
        for _ in range(random.randint(5, 25)):
            self._step()
        if random.random() < 0.5:
            self._end(random.choice(("kill", "stop", "power cut")))
            self._open()
        for _ in range(random.choice((1, 1, 2))):
            for _ in range(random.randint(0, 12)):
                self._step()
            self._prepare()
            for _ in range(random.choice((1, 1, 1, 2))):
                self._meddle()
            if random.random() < 0.5:
                self._append(self.focus)
            for _ in range(random.choice((0, 1, 3, 12))):
                self._step()
            for _ in range(random.choice((0, 0, 2))):
                self._tick()
            if random.random() < 0.5:
                self._check("while it runs")
            for _ in range(random.choice((1, 1, 2))):
                self._end(random.choice(ENDS))
                if not self._open():
                    return
                if random.random() < 0.5:
                    self._check("behind a start")
        self._check("in the end")
        for key in self.ledgers:
            self._append(key)
        self._tick()
        self._check("behind appends")
        self._end(random.choice(("kill", "stop")))
        if self._open():
            self._check("behind the last start")

    def _prepare(self) -> None:
        """The state in which it is met."""
        assert self.manager is not None
        random, key = self.random, self.focus
        try:
            handler = self.manager.get_handler(*key)
            parks = random.random() < 0.5
            if parks or random.random() < 0.3:
                handler.sync()
            if random.random() < 0.3:
                self.manager.wal.checkpoint()
            if parks:
                self.trace.append(f"park {key}")
                handler.park()
        except (StorageError, OSError) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")

    # Lives

    def _open(self) -> bool:
        """Start one; whether there is one."""
        self.now_ms += 1_000
        few = self.few
        manager = DiskManager(
            "/data",
            storage=self.disk,
            flushers=0,
            wal=WalConfig(file_bytes=1 << 13, shard_bytes=1 << 15),
            open_files_max=1 if few else 64,
            open_logs_max=1 if few else 64,
            now_ms=self.now_ms,
        )
        for _ in range(2):
            try:
                manager.open()
            except (StorageError, OSError) as exc:
                self.trace.append(f"start refused: {exc}")
                if not isinstance(exc, StorageError) and not self.disk.failing:
                    self._problem(f"start raised {exc!r}")
                if not self.disk.failing:
                    self.refused = str(exc)
                    return False
                self.disk.failing.clear()
            else:
                break
        else:
            self.refused = "twice"
            return False
        self.manager = manager
        self.unseen = dict.fromkeys(self.unseen, True)  # what no look came to is as it is
        self.unlooked = 1 << 60
        self.scrubber = Scrubber(manager, 1 << 30, 0)
        self.cleaner = Cleaner(manager, 1 << 30, 1 << 20, 0)
        self._listen()
        if self.ledgers and not manager.topics.keys() >= {key[0] for key in self.ledgers}:
            if not self.lax and not self.is_gone:
                self._problem("topics are gone")
            self.refused = "another one"
            return False
        return True

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
            self.disk.dies_in = self.random.randint(0, 40)
        if how.endswith("stop"):
            works = not self.disk.full and not self.disk.failing
            opened = list(manager.handlers)
            try:
                manager.close()
                if works:  # a look as well
                    self.unseen = {k: v for k, v in self.unseen.items() if v or k not in opened}
            except* (StorageError, OSError) as exc:
                self.trace.append(f"stop failed: {exc.exceptions[0]}")
            except* Killed:
                pass
        self._note(manager)
        if self.random.random() < 0.5:
            self._bring_back()
        self.manager = None
        for key, ledger in self.ledgers.items():
            is_kept = not manager.wal.checkpoints and not self.lax and key not in self.overwritten
            ledger.due, ledger.kept = (ledger.kept if is_kept else set()), set()
        self.overwritten.clear()
        if how == "power cut":
            self.foreign |= dict.fromkeys(self.copied)
        failing = self.disk.failing if self.random.random() < 0.2 and how != "failing stop" else []
        self.disk = self.disk.image(power_cut=how == "power cut")
        self.disk.failing = failing

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

    def _create(self, name: str, durability: str) -> None:
        assert self.manager is not None
        settings = {
            "durability": durability,
            "segment.bytes": "1024",
            "index.interval.bytes": "4096",
        }
        if name == COMPACTED:
            settings |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        self.manager.create_topic(name, PARTITIONS, TopicConfig(settings))
        for partition in range(PARTITIONS):
            self.ledgers[name, partition] = _Ledger()

    def _step(self) -> None:
        random, manager = self.random, self.manager
        assert manager is not None
        draw = random.random()
        key = self.focus if random.random() < 0.6 else random.choice(sorted(self.ledgers))
        key = key if key in self.ledgers else random.choice(sorted(self.ledgers))
        self.now_ms += random.choice((1, 100, 2_000))
        try:
            if draw < 0.55:
                for _ in range(random.choice((1, 1, 3, 8))):
                    self._append(key)
            elif draw < 0.63:
                self._tick()
            elif draw < 0.69:
                manager.get_handler(*key).sync()
            elif draw < 0.74:
                self.trace.append("checkpoint")
                manager.wal.checkpoint()
            elif draw < 0.79:
                self.trace.append(f"park {key}")
                manager.get_handler(*key).park()
            elif draw < 0.84:
                self._read(key, "while it runs")
            elif draw < 0.88:
                self.trace.append("scrub")
                self.scrubber.step(self.now_ms)
            elif draw < 0.91:
                self.trace.append("clean")
                self.cleaner.clean_now(manager.get_handler(COMPACTED, key[1]), self.now_ms)
            elif draw < 0.93:
                self._delete_records(key)
            elif draw < 0.94:
                self.trace.append("delete m")
                manager.delete_topic("m")
                self.disk.keep_away("/data/topics/m")
                for partition in range(PARTITIONS):
                    self.told.pop(("m", partition), None)
                self._create("m", TOPICS["m"])
            elif draw < 0.945 or (self.disk.full and draw < 0.97):
                self.disk.full = not self.disk.full
                self.trace.append(f"full: {self.disk.full}")
            elif draw < 0.98:
                self.disk.heal(random)
            else:
                self._bring_back()
        except (StorageError, OSError) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")
            self._forget_m()

    def _forget_m(self) -> None:
        """Of a topic whose deletion or creation failed nothing is expected."""
        assert self.manager is not None
        for key in [key for key in self.ledgers if key[0] not in self.manager.topics]:
            del self.ledgers[key]

    def _meddle(self) -> None:
        assert self.manager is not None
        folder = f"/data/topics/{self.focus[0]}/partition_{self.focus[1]}"
        self._changed(*self.disk.meddle(self.random, folder))

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
            folder = f"/data/topics/{key[0]}/partition_{key[1]}"
            ours = [one for one in self.changed if one.startswith(f"{folder}/")]
            if f"{folder}/".startswith(f"{path}/") or path in ours:
                self._doubt(key, how, path, ours)

    def _doubt(self, key: Partition, how: str, path: str, changed: list[str]) -> None:
        """What is excused of a partition of which something was changed."""
        assert self.manager is not None
        if TOPICS[key[0]] != "fsync":
            self.unseen[key] = how in UNSEEN or self.unseen.get(key, False)
        if how not in ("remove", "away", "fail", "cut in place", "beginning", "grow in place"):
            self.overwritten.add(key)
        kinds = {one.rpartition(".")[2] for one in changed}
        if {"log", "manifest"} <= kinds:  # nothing says any more whose the files are
            self.unseen[key] = True
            self.foreign.setdefault(key, None)
        if how.startswith("foreign") and path.endswith(".log"):
            self.copied.add(key)
        if how.startswith("foreign") and self._is_unsealed(key, path):
            self.foreign[key] = self.manager if key in self.manager.handlers else None

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
        manager.housekeeping(self.now_ms)
        self._listen()
        # Else it may not even be marked, or nobody looks.
        if not (self.disk.full or self.disk.failing or manager.look_for_directory()):
            for key in [key for key in manager.handlers if not self.unseen.get(key, True)]:
                del self.unseen[key]
        works = not manager.wal.statistics().shards_failed and manager.why_unsettled is None
        works = works and manager.why_not_saved is None and not self.disk.full
        works = works and all(one.read_only is None for one in manager.handlers.values())
        if self.lax and works and not self.disk.failing:
            self.unlooked -= 1
            self.lax = self.lax if self.unlooked > 0 else ""

    def _append(self, key: Partition) -> None:
        assert self.manager is not None
        if key not in self.ledgers:
            return
        random, ledger = self.random, self.ledgers[key]
        values, keys = [], []
        for _ in range(random.randint(1, 3)):
            self.values += 1
            keys.append(b"%d" % random.randint(0, 4))
            values.append(b"%s-%d.%d." % (key[0].encode(), key[1], self.values))
            values[-1] += b"x" * random.randint(0, 200)
            ledger.sent[values[-1]] = keys[-1]
        is_tracked = key[1] == 0
        if is_tracked and not ledger.producer:
            ledger.producer, ledger.sequence = self.values, 0
        batch = memoryview(
            bytearray(
                encode_batch(
                    values,
                    keys=keys,
                    timestamps_ms=self.now_ms,
                    producer_id=ledger.producer if is_tracked else -1,
                    producer_epoch=0 if is_tracked else -1,
                    base_sequence=ledger.sequence if is_tracked else -1,
                )
            )
        )
        self.trace.append(f"append {key} {len(values)}")
        try:
            handler = self.manager.get_handler(*key)
            result = handler.append(batch, check_batch(batch), self.now_ms)
        except (StorageError, OSError) as exc:
            self.trace.append(f"  {type(exc).__name__}: {exc}")
            ledger.producer = 0
            return
        self.trace[-1] += f" at {result.base_offset}"
        ledger.sequence += len(values)
        offsets = range(result.base_offset, result.last_offset + 1)
        again = [at for at in offsets if at in ledger.acked and at not in ledger.said]
        if again and (self.lax or key in self.unseen):
            ledger.said |= set(again)
        elif again:
            self._problem(f"{key}: given again: {again}")
        if handler.high_watermark > result.last_offset:
            ledger.acked |= dict(zip(offsets, values, strict=True))
            if TOPICS[key[0]] == "fsync":
                ledger.kept |= set(offsets)
        else:
            self.trace[-1] += " not acknowledged"
            ledger.producer = 0

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
        found = _read_out(handler, ledger)
        there = dict(found.rows)
        self._listen()
        for offset, value in there.items():
            if value not in ledger.sent:
                if self.foreign.get(key, self.manager) is not self.manager:
                    self.unseen[key] = True
                    continue
                self._problem(f"{when}, {key}: {offset} was never sent: {value[:20]!r}")
            elif offset not in ledger.said and ledger.acked.get(offset, value) != value:
                self._problem(f"{when}, {key}: {offset} is another one")
        told = [*found.excused, *self.told.get(key, ())]
        if handler.read_only is not None:
            told.append((handler.high_watermark, 1 << 60))
        last = {ledger.sent[value]: offset for offset, value in sorted(ledger.acked.items())}
        last |= {ledger.sent[there[at]]: at for at in sorted(there) if there[at] in ledger.sent}
        silent = []
        for offset, value in sorted(ledger.acked.items()):
            if offset < ledger.floor or offset in there or offset in ledger.said:
                continue
            if key[0] == COMPACTED and last[ledger.sent[value]] > offset:
                continue
            self.lost += 1
            if not any(begin <= offset < end for begin, end in told):
                silent.append(offset)
        due = {at for at in ledger.due - there.keys() if at >= ledger.floor}
        due = {at for at in due if any(begin <= at < end for begin, end in found.gaps)}
        if due and key[0] != COMPACTED and not self.lax:
            self._problem(f"{when}, {key}: the write-ahead log had what is lost: {sorted(due)}")
        if silent:
            lax = self.lax or ("not seen" if key in self.unseen else "")
            text = f"{when}, {key}: lost without a word: {silent} {lax}"
            if lax:
                self.trace.append(text)
            else:
                self._problem(text)
            ledger.said |= set(silent)

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.trace.append("!! " + text)


def _read_out(handler: DiskHandler, ledger: _Ledger) -> _Found:
    """Everything from the log start on; over a refusal to the next record that was acknowledged."""
    found = _Found()
    offset, end = handler.log_start_offset, handler.high_watermark
    repairs = 0
    while offset < end:
        try:
            data = read_once(handler, offset)
        except SegmentReplaced:
            repairs += 1
            if repairs > REPAIRS_MAX:
                raise AssertionError(f"repaired again and again at {offset}") from None
            continue
        except (StorageError, OSError):
            following = min((one for one in ledger.acked if one > offset), default=end)
            found.excused.append((offset, following))
            offset = following
            continue
        before = offset
        for batch in iter_batches(data):
            header = read_header(batch)
            if header.is_control:
                assert gap_reason(header) is not None, "a control batch that is no gap"
                found.excused.append((header.base_offset, header.next_offset))
                found.gaps.append((header.base_offset, header.next_offset))
            else:
                decoded = decode_batch(batch)
                rows = zip(decoded.offsets(), decoded.values(), strict=True)
                found.rows += [(at, value or b"") for at, value in rows if at >= before]
            offset = header.next_offset
        if offset == before:
            break
    return found


@contextmanager
def _listening(problems: list[str]) -> Iterator[None]:
    """What is logged with an exception that is none of a disk's is a bug."""

    def listen(logger: object, name: str, event: structlog.typing.EventDict) -> str:
        cause = event.get("exc_info")
        if isinstance(cause, BaseException) and not isinstance(cause, StorageError | OSError):
            problems.append("".join(traceback.format_exception(cause, limit=-6)))
        elif cause is True:
            problems.append(f"{event.get('event')}: " + traceback.format_exc(limit=-6))
        raise structlog.DropEvent

    structlog.configure(processors=[listen])
    try:
        yield
    finally:
        structlog.reset_defaults()

"""Power cuts of a real machine's disk: the daemon on ext4, xfs or btrfs, over a recorded device.

    producers, an administrator  --->  daemon  --->  file system  --->  device, recorded

While they work it is noted again and again what was acknowledged, and then how long the log of the
device is.  A disk that the device may have, when the power goes out at that length or later
(block_log.py), is mounted; the kernel replays its journal, a daemon is started on it, and:

    class fsync         what was acknowledged is there, each record once, and there is no gap
    the others          what was acknowledged is there or in a gap that is told
    transactions        whole or not at all, as they were told to end (cut_trades.py)
    what is replaced    as after so many turns as were acknowledged, or asked for (cut_turns.py)
    topics, offsets     those that were acknowledged are there, deleted ones are not
    afterwards          appends go on, at offsets that nobody was told before; a kill costs nothing
    in the end          `segbroker verify` finds nothing

Which writes are when is the machine's; what is drawn of them is in the seed.
"""

import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from segbroker.client import Admin, SegbrokerError

from ..support import daemon as daemons
from . import cut_trades, cut_turns
from .block_log import Survivor
from .cut_trades import ConfluentTrading, OurTrading, Trades, Trading
from .cut_turns import Turned, Turning
from .devices import blank, copy_sparse, mounted, reboot, recorded
from .history import UNKNOWN, Anomaly, Kind, Partition, Reads, Sends, check
from .load import ConfluentWriting, OurWriting, Worker, Writing, bounds_of, read_all

TOPICS: Final = {
    # Large, so that a checkpoint finds something that no roll has synced.
    "synced": {"durability": "fsync", "segment.bytes": "1048576"},
    "written": {"durability": "disk", "segment.bytes": "32768"},
    "remembered": {"durability": "memory", "segment.bytes": "32768"},
}
PARTITIONS: Final[list[Partition]] = [(topic, number) for topic in TOPICS for number in range(2)]
LOSES_NOTHING: Final = "synced"
LOSES_A_SECOND: Final = "written"
GROUP: Final = "readers"
KEPT_TOPICS: Final = 3
# Small, so that files of the write-ahead log fill, are checkpointed and used again.
FLAGS: Final = (*cut_turns.FLAGS, "--wal-file-bytes", "262144", "--wal-bytes-max", "4194304")
SHARDS_MAX: Final = 3
"""Of the write-ahead log; each start has a number of its own."""
PRODUCERS_COUNT: Final = 4
PAUSE_S: Final = 0.02
LOOK_S: Final = 0.05
PATIENCE_S: Final = 60
AFTERWARDS_COUNT: Final = 200
VERIFY_TIMEOUT_S: Final = 120


class Deeds(Worker):
    """Makes and deletes topics, and commits offsets of a group; notes what was asked and done."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("administrator", bootstrap, 0)
        self.made = self.making = self.deleted = self.deleting = 0
        self.committed = self.committing = 0

    def work(self) -> None:
        with Admin(self.bootstrap) as admin:
            while not self.finishing.is_set():
                self.committing += 1
                admin.commit(GROUP, {(LOSES_NOTHING, 0): self.committing})
                self.committed = self.committing
                if self.committing % 5:
                    continue
                self.making += 1
                admin.create_topic(_made(self.making))
                self.made = self.making
                if self.made - self.deleted > KEPT_TOPICS:
                    self.deleting += 1
                    admin.delete_topic(_made(self.deleting))
                    self.deleted = self.deleting

    def done(self) -> "Done":
        return Done(self.made, self.deleted, self.committed)

    def asked(self) -> "Done":
        return Done(self.making, self.deleting, self.committing)


class Done(NamedTuple):
    """How far an administrator is: topics made and deleted, the offset of the group."""

    made: int
    deleted: int
    committed: int


class Look(NamedTuple):
    """What was acknowledged when the log of the device had not yet `end` bytes, and what had been
    asked for when it had them."""

    time_s: float
    acks: Sequence["array[int]"]
    done: Done
    end: int
    asked: Done
    ended: Sequence[int] = ()
    """Of each producer of transactions, how many have ended."""
    turned: Turned = Turned()
    turning: Turned = Turned()


@dataclass
class Outcome:
    """What came of some power cuts."""

    cuts: int = 0
    within_starts: int = 0
    """Power cuts of a start behind a power cut (cut_starts.py)."""
    with_gaps: int = 0
    acked: int = 0
    traded: int = 0
    """Transactions that had ended."""
    writes_lost: int = 0
    """By the device, of those in its cache."""
    lost_s_max: float = 0.0
    """Since when the oldest record of class disk that was lost had been acknowledged."""
    problems: list[str] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.anomalies and not self.problems

    def add(self, other: "Outcome") -> None:
        lost_s_max = max(self.lost_s_max, other.lost_s_max)
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lost_s_max = lost_s_max


@dataclass
class Life:
    """What was done on a recorded device.

    Attributes:
        kind: its file system.
        folder: with the record, and the disks that are made of it.
        sends: of each producer, also of those of lives before this one.
        looks: in their order.
        trades: of each producer of transactions.
        start_s: how long its daemon took to start.
        image: what the device had at first; None: nothing.
        reads: what a reader had seen when it was noted where the record ended then.
    """

    kind: str
    folder: Path
    sends: list[Sends]
    looks: list[Look]
    trades: list[Trades]
    start_s: float
    image: Path | None = None
    reads: list[tuple[int, Reads]] = field(default_factory=list)
    started: int = 0
    """The number of the look at which all starts were over; half of the cuts lie behind it."""

    @property
    def next_producer(self) -> int:
        """A number that none of the producers had."""
        return 1 + max(one.producer for one in self.sends)


class Disk(NamedTuple):
    """What a power cut left: when it was, what had been acknowledged and asked for, the disk."""

    name: str
    look: Look
    reads: list[Reads]
    image: Path


def live(
    folder: Path, kind: str, python: Path, *, seconds: float, under: Sequence[str] = ()
) -> Life:
    """Work of so many seconds on a fresh file system, in order to the end but for that."""
    folder.mkdir()
    with recorded(folder, kind, python) as mount:
        data = mount / "data"
        begun_s = time.monotonic()
        with killed_at_the_end(data, 2, under) as listen:
            start_s = time.monotonic() - begun_s
            with Admin(listen) as admin:
                for topic, config in TOPICS.items():
                    admin.create_topic(topic, partitions=2, config=config)
                for topic, config in cut_turns.SETTINGS.items():
                    admin.create_topic(topic, partitions=1, config=config)
                for topic, config in cut_trades.TOPICS.items():
                    admin.create_topic(topic, partitions=1, config=config)
            writers: list[Writing] = [
                (OurWriting if number % 2 else ConfluentWriting)(
                    number, listen, PARTITIONS, pause_s=PAUSE_S, patience_s=PATIENCE_S
                )
                for number in range(PRODUCERS_COUNT)
            ]
            deeds = Deeds(listen)
            traders: list[Trading] = [OurTrading(0, listen), ConfluentTrading(1, listen)]
            turning = Turning(listen)
            workers = [*writers, deeds, *traders, turning]
            for worker in workers:
                worker.start()
            actors = Actors(writers, deeds, traders, turning)
            looks = list(_looks(folder / "log", actors, seconds))
            for worker in workers:
                worker.finish(PATIENCE_S)
            problems = [problem for worker in workers for problem in worker.problems]
            assert not problems, problems
    trades = [trader.trades for trader in traders]
    return Life(kind, folder, [writer.sends for writer in writers], looks, trades, start_s)


class Actors(NamedTuple):
    """Those who work in a life."""

    writers: Sequence[Writing]
    deeds: Deeds
    traders: Sequence[Trading]
    turning: Turning


def _looks(log: Path, actors: Actors, seconds: float) -> Iterator[Look]:
    writers, deeds, traders, turning = actors
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time_s = time.monotonic()
        acks = [writer.sends.acks() for writer in writers]
        ended = [trader.trades.ended for trader in traders]
        done, turned = deeds.done(), turning.done
        end = log.stat().st_size
        time.sleep(LOOK_S)
        yield Look(time_s, acks, done, end, deeds.asked(), ended, turned, turning.asked)


@contextmanager
def killed_at_the_end(data: Path, shards: int, under: Sequence[str] = ()) -> Iterator[str]:
    daemon = daemons.start(data, *flags(shards), under=under)
    try:
        yield daemon.address
    finally:
        daemon.stop(signal.SIGKILL)


def cut(life: Life, seed: int, count: int) -> Outcome:
    """So many power cuts within that life, each with its own disk, mounted, started on, judged."""
    outcome = Outcome()
    random = Random(seed)
    with closing(disks(life, random, count, outcome)) as drawn:
        for disk in drawn:
            outcome.cuts += 1
            try:
                # The disk that is taken away and given back is another way to lose its cache.
                boots = random.random() < 0.7
                shards = [random.randint(1, SHARDS_MAX) for _ in range(2)]
                _judge(life, disk, shards, reboot(life.folder) if boots else (), outcome)
            except (OSError, AssertionError, SegbrokerError, subprocess.SubprocessError) as exc:
                outcome.problems.append(f"cut {disk.name} of seed {seed}: {exc!r}")
            if not outcome.is_clean:
                disk.image.rename(life.folder / f"found-{seed}-{disk.name}")
                break
    return outcome


def disks(life: Life, random: Random, count: int, outcome: Outcome) -> Generator[Disk]:
    """So many disks that the power may leave of a life; each is there until the next is asked."""
    base, image = life.folder / "base", life.folder / "image"
    if life.image is None:
        blank(base, (life.folder / "content").stat().st_size)
    else:
        copy_sparse(life.image, base)
    survivor = Survivor(life.folder / "log", base)
    try:
        begins = [0, life.started]
        places = [random.randrange(begins[i % 2], len(life.looks)) for i in range(count)]
        for place in sorted(places):
            look = life.looks[place]
            # The next look has asked for what is in the log until then.
            following = life.looks[min(place + 1, len(life.looks) - 1)]
            at = random.randint(look.end, following.end)
            survivor.advance(at, to_flush=following.end if random.random() < 0.8 else 0)
            _make(image, survivor, random, outcome)
            reads = [one for end, one in life.reads if end <= look.end]
            now = look._replace(asked=following.asked, turning=following.turning)
            yield Disk(str(place), now, reads, image)
            image.unlink(missing_ok=True)
    finally:
        survivor.close()
        base.unlink()


def _make(image: Path, survivor: Survivor, random: Random, outcome: Outcome) -> None:
    """A disk that the device may have now."""
    copy_sparse(survivor.base, image)
    written = survivor.survivors(random)
    outcome.writes_lost += survivor.cached_count - len(written)
    with image.open("r+b") as file:
        for position, data in written:
            os.pwrite(file.fileno(), data, position)


def flags(shards: int) -> Sequence[str]:
    """Of a daemon with so many shards."""
    return (*FLAGS, "--wal-shards", str(shards))


def _judge(
    life: Life, disk: Disk, shards: Sequence[int], under: Sequence[str], outcome: Outcome
) -> None:
    mount, look = life.folder / "after", disk.look
    with mounted(disk.image, life.kind, mount):
        data = mount / "data"
        sends = [one.as_of(acks) for one, acks in zip(life.sends, look.acks, strict=True)]
        outcome.acked += sum(one.acked_count for one in sends)
        with killed_at_the_end(data, shards[0], under) as listen:
            before = _read(listen, sends, disk.reads, outcome)
            outcome.with_gaps += any(_has_gap(before, each) for each in PARTITIONS)
            outcome.lost_s_max = max(outcome.lost_s_max, _lost_s(life, look, before))
            outcome.problems += _deeds_missing(listen, look)
            outcome.problems += cut_turns.judge(listen, look.turned, look.turning)
            trades = [one.as_of(to) for one, to in zip(life.trades, look.ended, strict=True)]
            outcome.traded += sum(one.ended for one in trades)
            trader = _trade_on(listen, trades)
            outcome.problems += [*cut_trades.judge(listen, trades), *trader.problems]
            more = OurWriting(life.next_producer, listen, PARTITIONS, limit=AFTERWARDS_COUNT)
            more.run()
            outcome.problems += more.problems
        daemon = daemons.start(data, *flags(shards[1]), under=under)
        try:
            _read(daemon.address, [*sends, more.sends], disk.reads, outcome)
            outcome.problems += cut_trades.judge(daemon.address, [*trades, trader.trades])
            outcome.problems += cut_turns.judge(daemon.address, look.turned, look.turning)
        finally:
            code = daemon.stop()
        if code:
            outcome.problems.append(f"exit code {code} of an orderly stop")
        outcome.problems += _verify(data)


def _read(listen: str, sends: list[Sends], earlier: list[Reads], outcome: Outcome) -> Reads:
    """Read all of it and check it."""
    bounds = bounds_of(listen, PARTITIONS)
    reads = read_all(listen, PARTITIONS)
    outcome.anomalies += check(sends, earlier, reads, bounds, gaps_allowed=True)
    outcome.anomalies += [
        Anomaly(Kind.GAP, partition, 0, "of class fsync")
        for partition in PARTITIONS
        if partition[0] == LOSES_NOTHING and _has_gap(reads, partition)
    ]
    return reads


def _trade_on(listen: str, trades: list[Trades]) -> Trading:
    """One more producer of transactions, in the place of one of these; what the others left open
    waits for its time-out."""
    number = 1 + max(one.number for one in trades)
    trader = OurTrading(number, listen, takes_over=trades[0].number, limit=5)
    trader.run()
    return trader


def _has_gap(reads: Reads, partition: Partition) -> bool:
    lane = reads.lanes.get(partition)
    return lane is not None and any(value < 0 for value in lane.values)


def _lost_s(life: Life, look: Look, reads: Reads) -> float:
    """For how long the oldest lost record of class disk had been acknowledged."""
    found = {
        (partition, offset)
        for partition, lane in reads.lanes.items()
        for offset, value in zip(lane.offsets, lane.values, strict=True)
        if value >= 0
    }
    lost_s = 0.0
    for before in reversed([one for one in life.looks if one.time_s <= look.time_s]):
        sends = [one.as_of(acks) for one, acks in zip(life.sends, before.acks, strict=True)]
        if all(
            (one.partition_of(number), one.offset_of(number)) in found
            for one in sends
            for number in range(len(one))
            if one.offset_of(number) != UNKNOWN and one.partition_of(number)[0] == LOSES_A_SECOND
        ):
            break
        lost_s = look.time_s - before.time_s
    return lost_s


def _deeds_missing(listen: str, look: Look) -> list[str]:
    """What was acknowledged of topics and offsets, and is not so."""
    with Admin(listen) as admin:
        names = set(admin.list_topics())
        committed = admin.committed(GROUP)
    problems = [
        f"topic {_made(number)} is not there"
        for number in range(look.asked.deleted + 1, look.done.made + 1)
        if _made(number) not in names
    ]
    problems += [
        f"topic {_made(number)} is there again"
        for number in range(1, look.done.deleted + 1)
        if _made(number) in names
    ]
    found = [int(place.offset) for place in committed.values()]
    offset = found[0] if found else 0
    if not look.done.committed <= offset <= look.asked.committed:
        problems.append(f"the group is at {offset}, not in {look.done[2]}..{look.asked[2]}")
    return problems


def _verify(data: Path) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-m", "segbroker.cli", "verify", str(data)],
        capture_output=True,
        text=True,
        check=False,
        timeout=VERIFY_TIMEOUT_S,
    )
    if run.returncode:
        return [f"verify: exit code {run.returncode}: {run.stdout}{run.stderr}"]
    return []


def _made(number: int) -> str:
    return f"made-{number}"

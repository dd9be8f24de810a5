"""SIGKILL at one system call after another, on one data directory, under clients that live on.

    point    a call and a number N: the daemon dies on entering the N-th such call of a thread
    chain    fork a daemon, attach strace with the next point, let it work until it dies; again

    producers, consumers --->                     made, filled, trimmed, grown, deleted
                              daemon of the point <--- chores: topics

Where injection.py asks one life everything, a chain asks many lives one thing: whether all of them
together look, to those who worked meanwhile, like one daemon that was never killed.  A small N hits
recovery itself, or the start; a large one the middle of the work.  A point costs a fork and an
strace, no start and no clients, so that thousands are affordable.

Verdict: the history of the producers and consumers has no anomaly, and each topic of the chores is
as it was asked to be.
"""

import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from ..support import daemon as daemons
from . import traced
from .chores import Chores
from .kill_loop import Load, Outcome

# Calls of the daemon's threads, and numbers of them that a second of work reaches.
CALLS: Final = {
    "pwrite64": 80,
    "fdatasync": 40,
    "fsync": 12,
    "rename": 6,
    "unlink": 4,
    "mkdir": 3,
    "rmdir": 1,
    "ftruncate": 4,
}
# In this share of the points the number is small: the start, and recovery.
EARLY_SHARE: Final = 0.25
EARLY_MAX: Final = 8
# A point that is not met by then ends by a plain kill.
POINT_TIMEOUT_S: Final = 60


class Point(NamedTuple):
    """Where a daemon dies."""

    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call} {self.number}"


@dataclass
class ChainOutcome(Outcome):
    """What came of a chain."""

    hit: Counter[str] = field(default_factory=Counter)
    """Kills by the call and by what kind of file it was on."""
    missed: list[Point] = field(default_factory=list)

    @property
    def points(self) -> int:
        return self.hit.total()


def draw_points(seed: int, count: int) -> list[Point]:
    """So many points, each call in its turn."""
    random = Random(f"points {seed}")
    points = []
    for index in range(count):
        call = list(CALLS)[index % len(CALLS)]
        most = CALLS[call]
        if random.random() < EARLY_SHARE:
            most = min(most, EARLY_MAX)
        points.append(Point(call, random.randint(1, most)))
    random.shuffle(points)
    return points


def run_chain(
    data: Path, points: Sequence[Point], *, producers: int = 2, consumers: int = 2
) -> ChainOutcome:
    """All the points, one after the other, then the check."""
    outcome = ChainOutcome()
    listen = daemons.address_of(data)
    with daemons.running(data):
        load = Load(listen, producers=producers, consumers=consumers, pause_s=0.05)
        chores = Chores(listen)
        chores.start()
    for point in points:
        _one(data, point, outcome)
    with daemons.running(data):
        load.finish(outcome)
        outcome.problems += chores.finish_and_check()
    return outcome


def _one(data: Path, point: Point, outcome: ChainOutcome) -> None:
    """A daemon that dies at this point."""
    log = data.with_name(data.name + ".strace")
    process = daemons.fork(data, held=True)
    inject = f"{point.call}:signal=KILL:when={point.number}"
    with traced.attached(process, log, inject, calls=(point.call,)):
        try:
            code = process.wait(POINT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            outcome.missed.append(point)
            code = -signal.SIGKILL
    if process.stdout is not None:
        process.stdout.close()
    if code != -signal.SIGKILL:
        outcome.problems.append(f"exit code {code} before {point}: {log_end(data)}")
    elif not outcome.missed or outcome.missed[-1] is not point:
        calls = traced.calls_in(log, process.pid)
        outcome.kills += 1
        outcome.hit[f"{point.call} {kind_of(calls[-1].path, data) if calls else ''}".strip()] += 1


def kind_of(path: str, data: Path) -> str:
    """What a file is to the broker: `wal`, `segment`, `index`, ..."""
    name = path.removeprefix(str(data)).rstrip("~")
    for part in ("/wal", ".index", "_segment_", "snapshot", "manifest", "partition", "topics"):
        if part in name:
            return part.strip("./_")
    return name.rpartition("/")[2] or "/"


def log_end(data: Path) -> str:
    return daemons.log_of(data).read_text()[-2_000:]

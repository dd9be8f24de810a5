"""Power cuts within the start behind a power cut.

    a disk that a power cut left    is mounted from a device that is recorded: the replay of its
                                    journal, starts that are killed on their way, one that is not,
                                    a reading of all, appends for a second
    a disk that the second cut      is judged as the first one is (power_cuts.py), by what was
    left of that                    acknowledged in both lives, and what the reading has seen of
                                    class fsync

A start that is killed may listen already: then what it acknowledged counts.
"""

import signal
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

from ..support import daemon as daemons
from .cut_trades import OurTrading, Trading
from .devices import reboot, recorded
from .history import Reads
from .load import ConfluentWriting, OurWriting, Writing, read_all
from .power_cuts import (
    LOSES_NOTHING,
    PARTITIONS,
    PATIENCE_S,
    PAUSE_S,
    SHARDS_MAX,
    Disk,
    Life,
    Look,
    Outcome,
    cut,
    disks,
    flags,
)

KILLED_WITHIN: Final = (0.3, 1.2)
"""Of the time that the first start took; it begins with the import of everything."""
APPENDING_S: Final = 1.0
WATCH_S: Final = 0.02


class Watch(threading.Thread):
    """Looks at what is acknowledged, and how long the record of the device is, until it is ended.

    looks: the first is that of the disk, with which the record begins.
    """

    def __init__(self, log: Path, disk: Disk, writers: Sequence[Writing], trader: Trading) -> None:
        super().__init__(name="watch", daemon=True)
        self._log, self._disk, self._writers, self._trader = log, disk, writers, trader
        self.looks = [self._look()]
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(WATCH_S):
            # What is in the record when it is this long was acknowledged later, if at all.
            seen = self._look()
            self.looks.append(seen._replace(end=self._log.stat().st_size))

    def end(self) -> None:
        self._ending.set()
        self.join()

    def _look(self) -> Look:
        look = self._disk.look
        ended = [*look.ended, self._trader.trades.ended]
        acks = [*look.acks, *(writer.sends.acks() for writer in self._writers)]
        return look._replace(time_s=time.monotonic(), acks=acks, ended=ended, end=0)


def start_over(
    life: Life,
    disk: Disk,
    folder: Path,
    python: Path,
    random: Random,
    planted: Sequence[str] = (),
) -> Life:
    """The life behind a power cut; takes the disk away.

    folder: a new one.  python: of devices.require.  planted: what runs the daemons, if anything.
    """
    folder.mkdir()
    image = folder / "before"
    disk.image.rename(image)
    under = [*(reboot(folder) if random.random() < 0.7 else ()), *planted]
    reads = []
    with recorded(folder, life.kind, python, image=image) as mount:
        data = mount / "data"
        listen = daemons.address_of(data)
        number = life.next_producer
        # It waits for a daemon that is not there yet.
        early = ConfluentWriting(number, listen, PARTITIONS, pause_s=PAUSE_S, patience_s=PATIENCE_S)
        late = OurWriting(number + 1, listen, PARTITIONS, pause_s=PAUSE_S, patience_s=PATIENCE_S)
        trader = OurTrading(1 + max(one.number for one in life.trades), listen)
        watch = Watch(folder / "log", disk, [early, late], trader)
        watch.start()
        early.start()
        for _ in range(random.choice((0, 1, 1, 2))):
            shards = random.randint(1, SHARDS_MAX)
            _start_and_kill(data, shards, under, life.start_s * random.uniform(*KILLED_WITHIN))
        daemon = daemons.start(data, *flags(random.randint(1, SHARDS_MAX)), under=under)
        try:
            seen = _of_class_fsync(read_all(listen, PARTITIONS))
            reads.append(((folder / "log").stat().st_size, seen))
            started = len(watch.looks) - 1
            late.start()
            trader.start()
            time.sleep(APPENDING_S)
            for worker in (early, late, trader):
                worker.finish(PATIENCE_S)
        finally:
            daemon.stop(signal.SIGKILL)
            watch.end()
    problems = early.problems + late.problems + trader.problems
    assert not problems, problems
    sends = [one.as_of(acks) for one, acks in zip(life.sends, disk.look.acks, strict=True)]
    sends += [early.sends, late.sends]
    trades = [one.as_of(to) for one, to in zip(life.trades, disk.look.ended, strict=True)]
    trades.append(trader.trades)
    return Life(life.kind, folder, sends, watch.looks, trades, life.start_s, image, reads, started)


def _start_and_kill(data: Path, shards: int, under: Sequence[str], after_s: float) -> None:
    process = daemons.launch(data, *flags(shards), under=under)
    time.sleep(after_s)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _of_class_fsync(reads: Reads) -> Reads:
    """What a reader has seen and nothing may take away again."""
    kept = Reads("a reader behind the first power cut")
    kept.lanes = {place: lane for place, lane in reads.lanes.items() if place[0] == LOSES_NOTHING}
    return kept


def cut_starts(
    life: Life,
    seed: int,
    count: int,
    python: Path,
    *,
    within: int,
    planted: Sequence[str] = (),
) -> Outcome:
    """So many power cuts within a life, and so many `within` what follows each of them.

    python, planted: as of `start_over`.
    """
    random = Random(f"starts {seed}")
    outcome = Outcome()
    with closing(disks(life, random, count, Outcome())) as drawn:
        for number, disk in enumerate(drawn):
            folder = life.folder / f"again-{seed}-{number}"
            try:
                second = start_over(life, disk, folder, python, random, planted)
            except (OSError, AssertionError) as exc:
                outcome.problems.append(f"start behind cut {disk.name} of seed {seed}: {exc!r}")
                break
            found = cut(second, random.getrandbits(32), within)
            found.within_starts = found.cuts
            found.lost_s_max = 0.0  # what the first cut took was lost before
            outcome.add(found)
            if not outcome.is_clean:
                break
            for name in ("before", "content", "log"):
                (folder / name).unlink()
    return outcome

"""kill -9 under load, again and again, on one data directory.

    8 producers  --->            ---> 4 consumers
                      daemon
    SIGKILL, start again on the same port; now and then SIGTERM, now and then killed while it
    is still recovering

A round is a number of kills on one data directory with the same clients throughout: their
idempotent retries, their connections and their positions have to survive every kill.  At the end
of a round everything is delivered, read again from the start, and the history is checked: nothing
lost, nothing twice, nothing out of order, in class `fsync` and in class `disk` alike, and no gap,
because a process death on the same boot costs neither class anything.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from segbroker.client import Admin

from ..support import daemon as daemons
from ..support.daemon import Daemon
from .history import Anomaly, Partition, check
from .load import (
    PATIENCE_S,
    ConfluentReading,
    ConfluentWriting,
    OurReading,
    OurWriting,
    Reading,
    Writing,
    bounds_of,
    read_all,
)

TOPICS: Final = {
    # Small segments: rolls, seals and snapshots happen between two kills.
    "synced": {"durability": "fsync", "segment.bytes": "65536"},
    "written": {"durability": "disk", "segment.bytes": "65536"},
}
PARTITIONS_COUNT: Final = 2
PARTITIONS: Final[list[Partition]] = [
    (topic, number) for topic in TOPICS for number in range(PARTITIONS_COUNT)
]
LOAD_TIMEOUT_S: Final = 60
GRACE_S: Final = 15


@dataclass
class Outcome:
    """One round."""

    kills: int = 0
    terminations: int = 0
    kills_in_recovery: int = 0
    sent: int = 0
    acked: int = 0
    polled: int = 0
    start_s_max: float = 0.0
    anomalies: list[Anomaly] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.anomalies and not self.problems and self.acked == self.sent

    def add(self, other: "Outcome") -> None:
        """Count another round to this one."""
        for name in ("kills", "terminations", "kills_in_recovery", "sent", "acked", "polled"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.start_s_max = max(self.start_s_max, other.start_s_max)
        self.anomalies += other.anomalies
        self.problems += other.problems


class Undying:
    """A daemon that is started again after each kill, on the same port and directory."""

    def __init__(self, data: Path, *, under: Sequence[str] = ()) -> None:
        self.data = data
        self.under = under
        self.listen = daemons.address_of(data)
        self.start_s_max = 0.0
        self._daemon: Daemon | None = None

    def start(self) -> None:
        begun_s = time.monotonic()
        self._daemon = daemons.start(self.data, under=self.under)
        self.start_s_max = max(self.start_s_max, time.monotonic() - begun_s)

    def stop(self, how: signal.Signals) -> int:
        """End it, and wait for that."""
        assert self._daemon is not None
        daemon, self._daemon = self._daemon, None
        return daemon.stop(how)

    def start_and_kill(self, after_s: float) -> None:
        """Begin a start, and kill it after `after_s`: in the middle of recovery, with luck."""
        process = daemons.fork(self.data)
        time.sleep(after_s)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    @contextmanager
    def alive(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            if self._daemon is not None:
                with suppress(Exception):
                    self.stop(signal.SIGKILL)


def run_round(
    data: Path,
    seed: int,
    *,
    kills: int,
    producers: int = 8,
    consumers: int = 4,
    between_s: tuple[float, float] = (0.05, 0.8),
    pause_s: float = 0.01,
    under: Sequence[str] = (),
    patience_s: float = PATIENCE_S,
) -> Outcome:
    """So many kills under load, then the check.  The clients' timing is not in the seed.

    under: a command that runs the daemon.
    """
    random = Random(seed)
    outcome = Outcome()
    broker = Undying(data, under=under)
    with broker.alive():
        load = Load(
            broker.listen,
            producers=producers,
            consumers=consumers,
            pause_s=pause_s,
            patience_s=patience_s,
        )
        for _ in range(kills):
            if random.random() < 0.7:
                _wait_load(load.writers)
            time.sleep(random.uniform(*between_s))
            _end_once(broker, random, outcome)
        load.finish(outcome)
        broker.stop(signal.SIGTERM)
    outcome.start_s_max = broker.start_s_max
    return outcome


class Load:
    """Producers and consumers of both makes, from the making of the topics to the verdict."""

    def __init__(
        self,
        listen: str,
        *,
        producers: int,
        consumers: int,
        pause_s: float,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Make the topics and begin; `listen` is where the daemon is, and comes back to."""
        self.listen = listen
        self._patience_s = patience_s
        with Admin(listen) as admin:
            for topic, config in TOPICS.items():
                admin.create_topic(topic, partitions=PARTITIONS_COUNT, config=config)
        self.writers: list[Writing] = [
            (OurWriting if number % 2 else ConfluentWriting)(
                number, listen, PARTITIONS, pause_s=pause_s, patience_s=patience_s
            )
            for number in range(producers)
        ]
        self.readers: list[Reading] = [
            (OurReading if number % 2 else ConfluentReading)(number, listen, PARTITIONS)
            for number in range(consumers)
        ]
        for worker in (*self.writers, *self.readers):
            worker.start()

    def finish(self, outcome: Outcome) -> None:
        """Have everything delivered and read to the end; then read it once more and compare."""
        for writer in self.writers:
            writer.finishing.set()
        for writer in self.writers:
            writer.finish(self._patience_s + GRACE_S)
        bounds = bounds_of(self.listen, PARTITIONS)
        for reader in self.readers:
            reader.bounds = bounds
            reader.finishing.set()
        for reader in self.readers:
            reader.finish(self._patience_s + GRACE_S)
        final = read_all(self.listen, PARTITIONS)
        for writer in self.writers:
            outcome.sent += len(writer.sends)
            outcome.acked += writer.sends.acked_count
            outcome.problems += writer.problems
            if writer.failed:
                outcome.problems.append(
                    f"{writer.name}: {writer.failed} not acknowledged: {writer.last_error}"
                )
        for reader in self.readers:
            outcome.polled += reader.reads.records_count
            outcome.problems += reader.problems
        outcome.anomalies += check(
            [writer.sends for writer in self.writers],
            [reader.reads for reader in self.readers],
            final,
            bounds,
        )


def _wait_load(writers: list[Writing]) -> None:
    """Until all clients are back and have something acknowledged, on a slow machine too.

    Nobody waits for one that has given up, as librdkafka does when a broker has lost records.
    """
    before = [writer.sends.acked_count for writer in writers]
    deadline_s = time.monotonic() + LOAD_TIMEOUT_S
    while time.monotonic() < deadline_s and any(
        writer.is_alive() and writer.sends.acked_count == count
        for writer, count in zip(writers, before, strict=True)
    ):
        time.sleep(0.02)


def _end_once(broker: Undying, random: Random, outcome: Outcome) -> None:
    if random.random() < 0.1:
        outcome.terminations += 1
        code = broker.stop(signal.SIGTERM)
        if code != 0:
            outcome.problems.append(f"exit code {code} after SIGTERM")
    else:
        outcome.kills += 1
        broker.stop(signal.SIGKILL)
    while random.random() < 0.2:
        outcome.kills_in_recovery += 1
        broker.start_and_kill(random.uniform(0.0, 0.2))
    broker.start()

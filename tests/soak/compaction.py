"""Kills while compacted topics are written and cleaned: `python -m tests.soak.compaction`.

    a daemon with small segments that cleans all the time, killed and started again on its address
    two writers (librdkafka): keys at random, values that count, tombstones, transactions that end
    either way; every answer is kept
    then everything is read (read_committed), from the beginning and from offsets at random

| checked | |
|---|---|
| the last value of each key | is the last acknowledged one, or a later one that was sent |
| a key whose last acknowledged record is a tombstone | is gone, or has a later one that was sent |
| every record | was sent, once, by a transaction that was not aborted |
| offsets | rise; from wherever one begins the same records follow |

One line per round, the sums at the end; the data directory of a finding stays.
"""

import argparse
import logging
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from segbroker.client import Consumer as OurConsumer

from ..support.daemon import Daemon, start
from .folders import put_away

QUIET = logging.getLogger(f"{__name__}.librdkafka")
"""librdkafka tells of every connection that a kill ended."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
TOPIC = "compacted"
KEYS = 12
FLAGS = ("--cleaner-backoff-ms", "20", "--log-format", "json")
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "4096",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3000",
    "max.compaction.lag.ms": "1000",
}


@dataclass
class Fate:
    """What is known of the records of one key: numbers, as they were sent."""

    sent: int = 0
    acked: int = 0
    tombstones: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)


class Writer(threading.Thread):
    """One producer with keys of its own; it goes on until it is told to stop."""

    def __init__(self, address: str, name: str, seed: int, stopped: threading.Event) -> None:
        super().__init__(name=name)
        self.fates = {f"{name}-{n}": Fate() for n in range(KEYS)}
        self.transactions = 0
        self.problem = ""
        self._address = address
        self._random = Random(seed)
        self._stopped = stopped

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._life()
            except KafkaException as exc:
                self.problem = str(exc)  # another producer takes over: the fate is unsure

    def _life(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "transactional.id": self.name,
                "linger.ms": 2,
                "transaction.timeout.ms": 60_000,
                "compression.type": self._random.choice(["none", "lz4", "gzip"]),
            },
            logger=QUIET,
        )
        pending: list[tuple[Fate, int]] = []
        try:
            producer.init_transactions(60)
            while not self._stopped.is_set():
                pending = []
                producer.begin_transaction()
                for _ in range(self._random.randint(1, 20)):
                    pending.append(self._send(producer))
                if self._random.random() < 0.3:
                    producer.abort_transaction(60)
                    for fate, number in pending:
                        fate.aborted.add(number)
                else:
                    producer.commit_transaction(60)
                    for fate, number in pending:
                        fate.acked = max(fate.acked, number)
                pending = []
                self.transactions += 1
        finally:
            for fate, number in pending:
                fate.unsure.add(number)

    def _send(self, producer: Producer) -> tuple[Fate, int]:
        key = self._random.choice(list(self.fates))
        fate = self.fates[key]
        fate.sent += 1
        value: bytes | None = b"%d " % fate.sent + bytes(self._random.randrange(200))
        if self._random.random() < 0.2:
            fate.tombstones.add(fate.sent)
            value = None
        number = b"%d" % fate.sent
        producer.produce(TOPIC, key=key, value=value, partition=0, headers=[("n", number)])
        return fate, fate.sent


def read_all(address: str, offset: int) -> list[tuple[int, str, int, bool]]:
    """(offset, key, number, whether it is a tombstone) of every committed record from there on."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        },
        logger=QUIET,
    )
    found: list[tuple[int, str, int, bool]] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        deadline_s = time.monotonic() + 120
        while True:
            message = consumer.poll(1)
            assert time.monotonic() < deadline_s, f"no end of the topic, {len(found)} records"
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                continue
            at, key, headers = message.offset(), message.key(), message.headers()
            assert at is not None
            assert isinstance(key, bytes)
            assert isinstance(headers, list)
            number = headers[0][1]
            assert number is not None
            found.append((at, key.decode(), int(number), message.value() is None))
    finally:
        consumer.close()


def judge(fates: dict[str, Fate], found: list[tuple[int, str, int, bool]]) -> list[str]:
    """What is wrong with what was read."""
    problems = []
    last: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    before = -1
    for offset, key, number, is_tombstone in found:
        fate = fates[key]
        if offset <= before:
            problems.append(f"offset {offset} behind {before}")
        before = offset
        if (key, number) in seen:
            problems.append(f"{key} {number} is there twice")
        seen.add((key, number))
        if number > fate.sent or is_tombstone != (number in fate.tombstones):
            problems.append(f"{key} {number} at {offset} was never sent so")
        if number in fate.aborted:
            problems.append(f"{key} {number} at {offset} was aborted")
        last[key] = number
    for key, fate in fates.items():
        have = last.get(key, 0)
        if have < fate.acked and fate.acked not in fate.tombstones:
            problems.append(f"{key}: {have} is the last, {fate.acked} was acknowledged")
        if have < fate.acked and have:
            problems.append(f"{key}: {have} is back, {fate.acked} deleted it")
    return problems


@dataclass
class Round:
    """One daemon's life."""

    kills: int = 0
    transactions: int = 0
    cleanings: int = 0
    sent: int = 0
    records: int = 0
    problems: list[str] = field(default_factory=list)


def one_round(folder: Path, seed: int, kills: int) -> Round:
    """Write, kill and clean; then read and judge."""
    random = Random(seed)
    daemon: Daemon = start(folder / "data", *FLAGS)
    done = Round(kills=kills)
    stopped = threading.Event()
    try:
        admin = AdminClient({"bootstrap.servers": daemon.address}, logger=QUIET)
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1, config=SETTINGS)]).values():
            future.result(60)
        writers = [Writer(daemon.address, f"w{n}", seed + n, stopped) for n in range(2)]
        for writer in writers:
            writer.start()
        for _ in range(kills):
            time.sleep(random.uniform(0.3, 2.5))
            daemon.stop(signal.SIGKILL)
            daemon.again()
        time.sleep(2)  # of writing, behind the last kill
        stopped.set()
        for writer in writers:
            writer.join(300)
            assert not writer.is_alive(), f"{writer.name} hangs: {writer.problem}"
        fates = {key: fate for writer in writers for key, fate in writer.fates.items()}
        found = settled(daemon.address)
        done.problems += judge(fates, found)
        for _ in range(5):
            begin = random.randint(0, found[-1][0] + 1 if found else 0)
            again = read_all(daemon.address, begin)
            offsets = {row[0] for row in again}
            lost = [row for row in found if row[0] >= begin and row[0] not in offsets]
            done.problems += judge(
                {k: Fate(f.sent, 0, f.tombstones, f.aborted) for k, f in fates.items()}, again
            )
            for row in lost:
                later = [r for r in again if r[1] == row[1] and r[0] > row[0]]
                if not later and not row[3]:
                    done.problems.append(f"from {begin} on {row} is not there")
        done.transactions = sum(writer.transactions for writer in writers)
        done.sent = sum(fate.sent for fate in fates.values())
        done.records = len(found)
        done.cleanings = daemon.log.read_text().count('"log_cleaned"')
    finally:
        stopped.set()
        daemon.stop()
    return done


def settled(address: str) -> list[tuple[int, str, int, bool]]:
    """What is there when every transaction that a kill left open has ended, at its timeout."""
    place, deadline_s = (TOPIC, 0), time.monotonic() + 180
    with (
        OurConsumer(address) as committed,
        OurConsumer(address, isolation="read_uncommitted") as all_there,
    ):
        while committed.end_offsets(place) != all_there.end_offsets(place):
            assert time.monotonic() < deadline_s, "a transaction stays open beyond its timeout"
            time.sleep(1)
    return read_all(address, 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.compaction", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    deadline_s = time.monotonic() + options.seconds
    sums = Round()
    rounds = found = 0
    while time.monotonic() < deadline_s:
        seed = options.seed + 1000 * rounds
        folder = Path(tempfile.mkdtemp(prefix="compaction-"))
        done = one_round(folder, seed, kills=8)
        rounds += 1
        print(
            f"seed {seed}: {done.kills} kills, {done.transactions} transactions, {done.sent} "
            f"records sent, {done.cleanings} cleanings, {done.records} records left",
            flush=True,
        )
        put_away(folder, done.problems, is_clean=not done.problems)
        found += bool(done.problems)
        sums.kills += done.kills
        sums.transactions += done.transactions
        sums.sent += done.sent
        sums.cleanings += done.cleanings
    print(
        f"compaction: {rounds} rounds, {sums.kills} kills, {sums.transactions} transactions, "
        f"{sums.sent} records sent, {sums.cleanings} cleanings; {found} with findings"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

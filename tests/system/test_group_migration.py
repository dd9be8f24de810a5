"""Groups of clients that we did not write move to the consumer protocol and back, one at a time.

Records flow all the while.  Each is read once: what a member has read is committed as it lets go of
the partition, so a record that is read twice had two readers, or its commit was refused.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from segbroker.client import Admin

from ..support.daemon import Daemon, running
from ..support.java import JavaMember
from ..support.waiting import DEADLINE_S, until
from .test_groups import PARTITIONS, Member

FLAGS = ("--group-consumer-heartbeat-interval-ms", "100")
CONSUMER = {"group.protocol": "consumer"}
STRATEGY = "partition.assignment.strategy"
MEMBERS = 3


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("quick") / "data", *FLAGS) as daemon:
        yield daemon


class Flow:
    """The numbers from 0 on, a few at a time."""

    def __init__(self, address: str, topic: str) -> None:
        self.sent = 0
        self._address = address
        self._topic = topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._address, "linger.ms": 1})
        while not self._end.wait(0.01):
            producer.produce(self._topic, b"%d" % self.sent, partition=self.sent % PARTITIONS)
            self.sent += 1
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0

    def stop(self) -> None:
        """No more; all that was sent is there."""
        self._end.set()
        self._thread.join()


@contextmanager
def flowing(address: str, topic: str) -> Iterator[Flow]:
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    flow = Flow(address, topic)
    try:
        yield flow
    finally:
        flow.stop()


def shared(*members: Member | JavaMember) -> Callable[[], bool]:
    """Whether they have every partition, each has one, and none is with two."""

    def is_so() -> bool:
        owned = [one for member in members for one in member.owned]
        return sorted(owned) == list(range(PARTITIONS)) and all(one.owned for one in members)

    return is_so


def read_on(flow: Flow, *members: Member | JavaMember) -> Callable[[], bool]:
    """Whether each has read something that was sent from now on."""
    from_here = flow.sent
    return lambda: all(any(int(one) >= from_here for one in each.values) for each in members)


def kind(address: str, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    return str(admin.describe_consumer_groups([group])[group].result(DEADLINE_S).type.name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_librdkafka_rolls_to_the_consumer_protocol_and_back(
    strategy: str, quick: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    classic = {STRATEGY: strategy}
    with flowing(quick.address, name) as flow:
        members = [Member(quick.address, name, name, **classic) for _ in range(MEMBERS)]
        everybody = list(members)
        until(shared(*members), *members)
        for conf, mixed_kind, last_kind in (
            (CONSUMER, "CONSUMER", "CONSUMER"),
            (classic, "CONSUMER", "CLASSIC"),
        ):
            for n in range(MEMBERS):
                members.pop(0).stop()
                members.append(Member(quick.address, name, name, **conf))
                everybody.append(members[-1])
                until(shared(*members), *members, group=(quick.address, name))
                until(read_on(flow, *members), *members)
                is_last = n == MEMBERS - 1
                assert kind(quick.address, name) == (last_kind if is_last else mixed_kind)
        flow.stop()
        until(lambda: sum(len(one.values) for one in everybody) >= flow.sent, *members)
        for member in members:
            member.stop()
    values = sorted(int(value) for member in everybody for value in member.values)
    assert values == list(range(flow.sent))


@pytest.mark.timeout(900)
def test_java_and_librdkafka_roll_to_the_consumer_protocol_and_back(
    quick: Daemon, topic: Callable[[], str], release_cache: Path
) -> None:
    name = topic()
    classic = {STRATEGY: "range"}
    own = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "300"}
    with flowing(quick.address, name) as flow, ExitStack() as stack:

        def java(conf: dict[str, str]) -> JavaMember:
            member = JavaMember(quick.address, name, name, release_cache, conf)
            return stack.enter_context(member)

        theirs: list[JavaMember] = [java(own)]
        ours = [Member(quick.address, name, name, **classic)]

        def is_shared(expected: str) -> None:
            now = (theirs[-1], ours[-1])
            until(shared(*now), *now, group=(quick.address, name))
            until(read_on(flow, *now), *now)
            assert kind(quick.address, name) == expected

        is_shared("CLASSIC")
        for conf, java_conf, expected in (
            (CONSUMER, CONSUMER, ("CONSUMER", "CONSUMER")),
            (classic, own, ("CONSUMER", "CLASSIC")),
        ):
            ours[-1].stop()
            ours.append(Member(quick.address, name, name, **conf))
            is_shared(expected[0])
            theirs[-1].leave()
            theirs.append(java(java_conf))
            is_shared(expected[1])
        flow.stop()
        everybody: list[Member | JavaMember] = [*theirs, *ours]
        now = (theirs[-1], ours[-1])
        until(lambda: sum(len(one.values) for one in everybody) >= flow.sent, *now)
        ours[-1].stop()
        theirs[-1].leave()
    values = sorted(int(value) for member in everybody for value in member.values)
    assert values == list(range(flow.sent))

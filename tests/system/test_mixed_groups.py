"""Our member in one group with members of other makes, cooperative and eager, either leading."""

import gc
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer as Theirs
from kafka import KafkaConsumer

from segbroker.client import Admin, Consumer, Producer

from ..support.daemon import Daemon, running
from ..support.java import JavaMember
from ..support.waiting import DEADLINE_S, until

PARTITIONS = 6
COUNT = 300
# Everybody leaves: nobody waits for the end of one.
SESSION_MS = int(DEADLINE_S * 1000)


@pytest.fixture
def name(daemon: Daemon, topic: Callable[[], str]) -> str:
    made = topic()
    with Admin(daemon.address) as admin:
        admin.create_topic(made, partitions=PARTITIONS)
    fill(daemon, made, 0)
    return made


def fill(daemon: Daemon, name: str, first: int) -> None:
    with Producer(daemon.address) as producer:
        for n in range(first, first + COUNT):
            producer.send(name, b"%d" % n, partition=n % PARTITIONS)


class Member:
    """One that polls in a thread of its own: what it has, and what it has read."""

    def __init__(
        self,
        make: str,
        poll: Callable[[], list[bytes | None]],
        owned: Callable[[], set[int]],
        tell: Callable[[], object] = str,
    ) -> None:
        """Begin to poll.

        Args:
            make: of which library it is.
            poll: what came within a moment.
            owned: the partitions that it has.
            tell: what it thinks of its membership; another text in each generation.
        """
        self.make = make
        self.values: list[int] = []
        self.owned: set[int] = set()
        self._poll = poll
        self._look = owned
        self._tell = tell
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.values += [int(value or b"") for value in self._poll()]
                self.owned = self._look()
        except BaseException as exc:
            self._failure = exc

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def state(self) -> str:
        has = f"{self.make}: has {sorted(self.owned)}, read {len(self.values)} values"
        return f"{has} {self._tell()}".rstrip()

    def membership(self) -> str:
        """What it thinks of its membership."""
        return str(self._tell())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def ours(daemon: Daemon, name: str) -> Iterator[Member]:
    with Consumer(daemon.address, name, group=name, heartbeat_interval_ms=200) as consumer:
        member = Member(
            "ours",
            lambda: [record.value for record in consumer.poll(timeout_ms=50)],
            lambda: {tp.partition for tp in consumer.assignment},
            lambda: consumer.group_metadata,
        )
        try:
            yield member
        finally:
            member.stop()


@contextmanager
def librdkafka(daemon: Daemon, name: str, strategy: str) -> Iterator[Member]:
    changes: list[str] = []
    consumer = Theirs(
        {
            "bootstrap.servers": daemon.address,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "reconnect.backoff.max.ms": 200,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": strategy,
        }
    )
    consumer.subscribe(
        [name],
        on_assign=lambda *_: changes.append("assigned"),
        on_revoke=lambda *_: changes.append("revoked"),
        on_lost=lambda *_: changes.append("lost"),
    )
    member = Member(
        "librdkafka",
        lambda: [m.value() for m in consumer.consume(100, 0.05) if m.error() is None],
        lambda: {tp.partition for tp in consumer.assignment()},
        lambda: changes,
    )
    try:
        yield member
    finally:
        member.stop()
        consumer.close()


@contextmanager
def kafka_python(daemon: Daemon, name: str) -> Iterator[Member]:
    consumer = KafkaConsumer(
        bootstrap_servers=daemon.address,
        group_id=name,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=SESSION_MS,
    )
    # Else it may join twice, and overlook the second answer for good: kafka_python_together.py.
    consumer.partitions_for_topic(name)
    consumer.subscribe([name])
    member = Member(
        "kafka-python",
        lambda: [r.value for rows in consumer.poll(50).values() for r in rows],
        lambda: {tp.partition for tp in consumer.assignment()},
        consumer.group_metadata,
    )
    try:
        yield member
    finally:
        member.stop()
        consumer.close()


@contextmanager
def java(daemon: Daemon, name: str, strategy: str, cache: Path) -> Iterator[JavaMember]:
    conf = {
        "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{strategy}",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 200,
    }
    with JavaMember(daemon.address, name, name, cache, conf) as member:
        yield member
        member.leave()


def shared(*members: Member | JavaMember) -> bool:
    """Each has its part, and together they have all, once."""
    parts = [member.owned for member in members]
    sizes = [len(part) for part in parts]
    return sum(sizes) == len(set().union(*parts)) == PARTITIONS and max(sizes) - min(sizes) <= 1


def have_read(count: int, *members: Member | JavaMember) -> bool:
    return set().union(*(member.values for member in members)) == set(range(count))


def protocol(daemon: Daemon, name: str) -> str:
    with Admin(daemon.address) as admin:
        return admin.describe_group(name).protocol


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range", "roundrobin"])
@pytest.mark.parametrize("leads", ["ours", "theirs"])
def test_our_member_shares_with_librdkafka(
    daemon: Daemon, name: str, strategy: str, leads: str
) -> None:
    makers = [lambda: ours(daemon, name), lambda: librdkafka(daemon, name, strategy)]
    if leads == "theirs":
        makers.reverse()
    group = (daemon.address, name)
    with makers[0]() as first:
        until(lambda: len(first.values) == COUNT, first, group=group)
        with makers[1]() as second:
            until(lambda: shared(first, second), first, second, group=group)
            assert protocol(daemon, name) == strategy
            fill(daemon, name, COUNT)
            until(lambda: have_read(2 * COUNT, first, second), first, second, group=group)
        until(lambda: first.owned == set(range(PARTITIONS)), first, group=group)


def test_our_member_shares_with_kafka_python(daemon: Daemon, name: str) -> None:
    group = (daemon.address, name)
    with ours(daemon, name) as mine:
        until(lambda: len(mine.values) == COUNT, mine, group=group)
        with kafka_python(daemon, name) as theirs:
            until(lambda: shared(mine, theirs), mine, theirs, group=group)
            fill(daemon, name, COUNT)
            until(lambda: have_read(2 * COUNT, mine, theirs), mine, theirs, group=group)
        until(lambda: mine.owned == set(range(PARTITIONS)), mine, group=group)


def test_members_of_three_makes_share_a_topic(daemon: Daemon, name: str) -> None:
    group = (daemon.address, name)
    with (
        librdkafka(daemon, name, "range") as one,
        ours(daemon, name) as two,
        kafka_python(daemon, name) as three,
    ):
        until(lambda: shared(one, two, three), one, two, three, group=group)
        assert protocol(daemon, name) == "range"
        fill(daemon, name, COUNT)
        until(lambda: have_read(2 * COUNT, one, two, three), one, two, three, group=group)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("strategy", "assignor", "leads"),
    [
        ("cooperative-sticky", "CooperativeStickyAssignor", "theirs"),
        ("range", "RangeAssignor", "ours"),
    ],
)
def test_our_member_shares_with_java(
    daemon: Daemon, name: str, strategy: str, assignor: str, leads: str, release_cache: Path
) -> None:
    group = (daemon.address, name)
    makers: list[Callable[[], AbstractContextManager[Member | JavaMember]]]
    makers = [lambda: ours(daemon, name), lambda: java(daemon, name, assignor, release_cache)]
    if leads == "theirs":
        makers.reverse()
    with makers[0]() as first:
        until(lambda: have_read(COUNT, first), first, group=group)
        with makers[1]() as second:
            until(lambda: shared(first, second), first, second, group=group)
            assert protocol(daemon, name) == strategy
            fill(daemon, name, COUNT)
            until(lambda: have_read(2 * COUNT, first, second), first, second, group=group)
        until(lambda: first.owned == set(range(PARTITIONS)), first, group=group)


def open_sockets() -> list[socket.socket]:
    return [one for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() >= 0]


@pytest.fixture
def sockets_left_open() -> Iterator[None]:
    """Close those of connections that kafka-python was making while the broker was away: it keeps
    them to the end of the process."""
    before = set(map(id, open_sockets()))
    yield
    for one in open_sockets():
        if id(one) not in before:
            one.close()


@pytest.mark.usefixtures("sockets_left_open")
def test_no_member_of_any_make_notices_that_the_broker_was_killed(tmp_path: Path) -> None:
    """The generation goes on: nothing is taken away, nothing is given anew."""
    name = "kept"
    with running(tmp_path / "data") as daemon:
        group = (daemon.address, name)
        with Admin(daemon.address) as admin:
            admin.create_topic(name, partitions=PARTITIONS)
        fill(daemon, name, 0)
        with (
            ours(daemon, name) as mine,
            librdkafka(daemon, name, "range") as second,
            kafka_python(daemon, name) as third,
        ):
            members = mine, second, third
            until(lambda: shared(*members) and have_read(COUNT, *members), *members, group=group)
            before = [member.membership() for member in members]
            with Admin(daemon.address) as admin:
                described = admin.describe_group(name)
            daemon.stop(signal.SIGKILL)
            daemon.again()
            fill(daemon, name, COUNT)
            until(lambda: have_read(2 * COUNT, *members), *members, group=group)
            with Admin(daemon.address) as admin:
                assert admin.describe_group(name) == described
            assert [member.membership() for member in members] == before

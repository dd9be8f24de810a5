"""Consumer groups of clients that we did not write: hand-over, death, restart, tools."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from segbroker.client import Admin

from ..support.daemon import Daemon, running, start
from ..support.tools import require
from ..support.waiting import DEADLINE_S, until

PARTITIONS = 4
COUNT = 200
# Of the consumer protocol the broker sets both.  Nobody waits for the end of a session here.
CLASSIC = {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 500}


def filled(address: str, name: str) -> None:
    with Admin(address) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    fill(address, name, 0)


def fill(address: str, name: str, first: int) -> None:
    """COUNT records, the numbers from `first` on."""
    producer = Producer({"bootstrap.servers": address})
    for n in range(first, first + COUNT):
        producer.produce(name, b"%d" % n, partition=n % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


class Member:
    """A librdkafka consumer in a thread of its own, until told to stop."""

    def __init__(self, address: str, group: str, topic: str, **conf: object) -> None:
        self.values: list[bytes] = []
        self.owned: set[int] = set()
        self.changes: list[str] = []
        """What it was told of its assignment, in the order in which it was."""
        self._failure: BaseException | None = None
        self._end = threading.Event()
        self._commits: SimpleQueue[tuple[list[TopicPartition], threading.Event]] = SimpleQueue()
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                **({} if conf.get("group.protocol") == "consumer" else CLASSIC),
                **conf,
            }
        )
        self.consumer.subscribe(
            [topic],
            on_assign=lambda *_: self.changes.append("assigned"),
            on_revoke=lambda *_: self.changes.append("revoked"),
            on_lost=lambda *_: self.changes.append("lost"),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def commit(self, offsets: list[TopicPartition]) -> None:
        """Commit these, in the thread that polls: librdkafka's own sync commit wants it so."""
        done = threading.Event()
        self._commits.put((offsets, done))
        assert done.wait(DEADLINE_S)

    def check(self) -> None:
        """Raise what ended its thread."""
        if self._failure is not None:
            raise self._failure

    def state(self) -> str:
        """What it has, in a line."""
        return f"librdkafka: has {sorted(self.owned)}, read {len(self.values)} values"

    def _run(self) -> None:
        try:
            self._poll()
        except BaseException as exc:
            self._failure = exc

    def _poll(self) -> None:
        while not self._end.is_set():
            while not self._commits.empty():
                offsets, done = self._commits.get()
                self.consumer.commit(offsets=offsets, asynchronous=False)
                done.set()
            message = self.consumer.poll(0.05)
            self.owned = {one.partition for one in self.consumer.assignment()}
            if message is not None and message.error() is None:
                self.values.append(message.value() or b"")

    def stop(self) -> None:
        """Stop polling and leave the group; what was read is committed."""
        self._end.set()
        self._thread.join()
        self.consumer.close()


def test_two_members_share_and_the_one_that_stays_takes_over(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    filled(daemon.address, name)
    one = Member(daemon.address, name, name)
    until(lambda: len(one.values) == COUNT and len(one.owned) == PARTITIONS, one)
    two = Member(daemon.address, name, name)
    until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, one, two)
    assert one.owned | two.owned == set(range(PARTITIONS))
    one.stop()
    until(lambda: two.owned == set(range(PARTITIONS)), two)
    two.stop()
    # What one had read was committed when it left: two began behind it.
    assert two.values == []

    def told(event: str) -> list[Any]:
        return [line for line in daemon.events(event) if line["group"] == name]

    until(lambda: bool(told("group_empty")))
    first, *later = told("group_rebalance_began")
    assert (first["reason"], first["client_id"]) == ("member joined", "rdkafka")
    assert "left" in [line["reason"] for line in later]
    assert 2 in [line["members"] for line in told("group_stable")]
    assert [line["reason"] for line in told("group_member_removed")] == ["left", "left"]


def test_members_hand_partitions_over_one_by_one(daemon: Daemon, topic: Callable[[], str]) -> None:
    name = topic()
    filled(daemon.address, name)
    conf = {"partition.assignment.strategy": "cooperative-sticky"}
    one = Member(daemon.address, name, name, **conf)
    until(lambda: len(one.values) == COUNT, one)
    two = Member(daemon.address, name, name, **conf)
    until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, one, two)
    two.stop()
    until(lambda: one.owned == set(range(PARTITIONS)), one)
    one.stop()


def test_kcat_in_a_group_goes_on_where_it_stopped(daemon: Daemon, topic: Callable[[], str]) -> None:
    name = topic()
    filled(daemon.address, name)
    kcat = [require("kcat"), "-b", daemon.address, "-G", name, "-q", "-c", "50"]
    kcat += ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", name]
    seen: list[bytes] = []
    for _ in range(4):
        run = subprocess.run(kcat, capture_output=True, timeout=DEADLINE_S)
        assert run.returncode == 0, run.stderr.decode()
        seen += run.stdout.split()
    assert sorted(map(int, seen)) == list(range(COUNT))


def test_kafka_python_subscribes_commits_and_resumes(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    filled(daemon.address, name)

    def read(count: int) -> list[int]:
        consumer = KafkaConsumer(
            name,
            bootstrap_servers=daemon.address,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=60_000,
        )
        found = []
        for record in consumer:
            found.append(int(record.value))
            if len(found) == count:
                break
        consumer.commit()
        consumer.close()
        return found

    half = read(COUNT // 2)
    # kafka-python commits what it handed out; the rest comes to the next consumer.
    assert sorted(half + read(COUNT - COUNT // 2)) == list(range(COUNT))


def test_committed_offsets_survive_a_kill(tmp_path: Path) -> None:
    daemon = start(tmp_path / "data")
    filled(daemon.address, "kept")
    conf = {"enable.auto.commit": False, "reconnect.backoff.max.ms": 200}
    member = Member(daemon.address, "g", "kept", **conf)
    until(lambda: len(member.values) == COUNT, member)
    stands = [
        TopicPartition("kept", partition, 10 + partition, metadata=f"m{partition}")
        for partition in sorted(member.owned)
    ]
    member.commit(stands)
    daemon.process.kill()
    daemon.stop()
    with running(tmp_path / "data") as again:
        asked = [TopicPartition("kept", partition) for partition in range(PARTITIONS)]
        other = Consumer({"bootstrap.servers": again.address, "group.id": "g"})
        found = other.committed(asked, timeout=DEADLINE_S)
        other.close()
        assert [one.offset for one in found] == [10, 11, 12, 13]
        assert [one.metadata for one in found] == ["m0", "m1", "m2", "m3"]
        admin = AdminClient({"bootstrap.servers": again.address})
        until(lambda: bool(admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S).members))
        member.stop()


def test_an_administrator_lists_describes_resets_and_deletes_groups(
    daemon: Daemon, topic: Callable[[], str]
) -> None:
    name = topic()
    filled(daemon.address, name)
    member = Member(daemon.address, name, name)
    until(lambda: len(member.values) == COUNT, member)
    admin = AdminClient({"bootstrap.servers": daemon.address})
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert name in {group.group_id for group in listed.valid}
    described = admin.describe_consumer_groups([name])[name].result(DEADLINE_S)
    (one,) = described.members
    assert {p.partition for p in one.assignment.topic_partitions} == set(range(PARTITIONS))
    refused = admin.delete_consumer_groups([name])[name]
    assert "NON_EMPTY_GROUP" in str(refused.exception(DEADLINE_S))
    member.stop()
    admin.delete_consumer_groups([name])[name].result(DEADLINE_S)
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert name not in {group.group_id for group in listed.valid}

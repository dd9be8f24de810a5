"""Members of a group by the protocol of KIP-848, against a real daemon: what differs."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from segbroker.client import Admin, Consumer, Producer, Record
from segbroker.client.errors import (
    UnreleasedInstanceId,
    UnsupportedByBroker,
)

from ..support.daemon import Daemon, running
from ..support.waiting import DEADLINE_S, until
from .test_groups import BY_BROKER, COUNT, PARTITIONS, Member, Options, fill, filled, more

__all__ = ["filled"]


def type_of(address: str, group: str) -> str:
    with Admin(address) as admin:
        return admin.describe_group(group).group_type


def test_a_group_goes_over_member_by_member_and_back(daemon: Daemon, filled: str) -> None:
    """Each is replaced by one of the other protocol while the others go on."""
    members = [Member(daemon.address, filled) for _ in range(2)]
    until(lambda: all(len(one.owned) == 2 for one in members), *members)
    kinds = []
    turns: list[Options] = [BY_BROKER, BY_BROKER, {}, {}]
    count = COUNT
    for options in turns:
        new = Member(daemon.address, filled, **options)
        until(lambda new=new: bool(new.owned), new)  # type: ignore[misc]
        kinds.append(type_of(daemon.address, filled))
        old = members.pop(0)
        old.stop()
        members.append(new)
        until(lambda: sum(len(one.owned) for one in members) == PARTITIONS, *members)
        more(daemon.address, filled, count, count + 40)
        count += 40
    assert kinds == ["consumer"] * 4
    until(lambda: type_of(daemon.address, filled) == "classic")
    with Admin(daemon.address) as admin:
        until(lambda: sum(s.offset for s in admin.committed(filled).values()) == count, *members)
    for one in members:
        assert "lost" not in [what for what, _ in one.told]
        one.stop()


def test_a_job_in_hand_costs_no_partition_and_what_goes_with_it_waits(
    daemon: Daemon, topic: str
) -> None:
    """For longer than a session, and the broker's default of a rebalance timeout says nothing."""
    at_work, done = threading.Event(), threading.Event()
    ranged: Options = {**BY_BROKER, "group_remote_assignor": "range"}
    with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
        admin.create_topic(topic, partitions=4)
        admin.alter_group_config(topic, {"consumer.session.timeout.ms": "1000"})
        producer.send_many(topic, [b"%d" % n for n in range(20)], partition=0)
    seen: list[Record] = []

    def work() -> None:
        with Consumer(
            daemon.address, topic, group=topic, instance_id="b", commit_interval_ms=10**6, **ranged
        ) as consumer:
            for record in consumer:
                seen.append(record)
                if len(seen) == 5:
                    at_work.set()
                    assert done.wait(DEADLINE_S)
                    assert (topic, 0) in consumer.assignment
                    break
            consumer.commit()
            until(lambda: not consumer.poll(timeout_ms=50) and len(consumer.assignment) == 2)

    thread = threading.Thread(target=work)
    thread.start()
    assert at_work.wait(DEADLINE_S)
    # By its instance it is the first, so that 0 and 1 are to be its own.
    with Consumer(daemon.address, topic, group=topic, instance_id="a", **ranged) as other:
        membership = other._reading.group.membership
        until(lambda: not other.poll(timeout_ms=50) and membership.generation > 0)
        ends = time.monotonic() + 2
        while time.monotonic() < ends:
            assert other.poll(timeout_ms=50) == []
        assert other.assignment == []
        done.set()
        rest: list[Record] = []
        while len(rest) < 15:
            rest += other.poll(timeout_ms=60_000)
        thread.join()
    assert [record.offset for record in rest] == list(range(5, 20))


def test_who_was_killed_is_replaced_when_its_session_ends_and_an_instance_is_free_then(
    daemon: Daemon, filled: str
) -> None:
    with Admin(daemon.address) as admin:
        admin.alter_group_config(filled, {"consumer.session.timeout.ms": "3000"})
    code = (
        "import sys\n"
        "from segbroker.client import Consumer\n"
        "address, topic = sys.argv[1:]\n"
        "with Consumer(address, topic, group=topic, group_protocol='consumer', instance_id='one')"
        " as consumer:\n"
        "    consumer.poll(); print(len(consumer.assignment), flush=True)\n"
        "    while True: consumer.poll()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, daemon.address, filled], stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"4\n"
    with (
        pytest.raises(UnreleasedInstanceId, match="held by member"),
        Consumer(daemon.address, filled, group=filled, instance_id="one", **BY_BROKER) as late,
    ):
        late.poll(timeout_ms=60_000)
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    with Consumer(daemon.address, filled, group=filled, instance_id="one", **BY_BROKER) as again:

        def is_in() -> bool:
            try:
                again.poll(timeout_ms=100)
            except UnreleasedInstanceId:
                return False
            return len(again.assignment) == PARTITIONS

        until(is_in)


def test_a_broker_that_does_not_serve_it_says_so(tmp_path: Path) -> None:
    flags = ("--durability", "disk", "--group-protocols", "classic")
    with running(tmp_path / "data", *flags) as daemon:
        fill(daemon.address, "t")
        with (
            pytest.raises(UnsupportedByBroker, match='no groups of group_protocol="consumer"'),
            Consumer(daemon.address, "t", group="g", **BY_BROKER) as consumer,
        ):
            consumer.poll(timeout_ms=60_000)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"group_protocol": "consumer", "session_timeout_ms": 6_000}, "consumer.session.timeout"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 100}, "consumer.heartbeat"),
        ({"group_protocol": "consumer", "assignors": ["range"]}, "group_remote_assignor="),
        ({"group_remote_assignor": "range"}, "the members assign"),
        ({"group_protocol": "new"}, "is not 'classic' or 'consumer'"),
        ({"group_protocol": "consumer", "group_remote_assignor": 1}, "not a str"),
    ],
)
def test_what_a_protocol_has_no_use_for_is_refused_in_words(
    options: dict[str, object], says: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        Consumer("127.0.0.1:1", "t", group="g", **options)  # type: ignore[call-overload]

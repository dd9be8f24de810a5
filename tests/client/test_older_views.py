"""A partition that the client's view of the topic lacks: made a moment ago, or not there at all.

A member is given partitions by who has a newer view, or an older one.  Neither ends its program, or
keeps it from what is there.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from segbroker.client import Admin, Consumer, Producer, Record, TopicPartition
from segbroker.client.errors import UnknownTopicOrPartition
from segbroker.protocol.consumer_protocol import encode_assignment
from segbroker.protocol.messages_groups import SyncGroupRequest
from segbroker.protocol.schema import Message

from ..support.daemon import Daemon
from ..support.waiting import until
from .simulated_consumer_groups import ConsumerGroupWorld
from .simulated_groups import TOPIC, GroupWorld

QUICK: Any = {"heartbeat_interval_ms": 50}
# Longer than any test: nobody looks again because of its age.
OLD: Any = {"metadata_max_age_ms": 3_600_000}

WRONG = r"partitions \[0, 3\), not 7"


def one_of_each(address: str, topic: str, count: int) -> None:
    with Admin(address) as admin:
        admin.create_partitions(topic, count)
    with Producer(address) as producer:
        for partition in range(count):
            producer.send(topic, b"%d" % partition, partition=partition)


@pytest.fixture
def made(daemon: Daemon, topic: str) -> str:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=2)
    return topic


def test_a_member_reads_new_partitions_that_another_one_has_seen_first(
    daemon: Daemon, made: str
) -> None:
    # The first leads the group: it deals out what there is.
    with Consumer(daemon.address, made, group=made, metadata_max_age_ms=100, **QUICK) as first:
        until(lambda: first.poll(timeout_ms=10) == [] and len(first.assignment) == 2)
        with Consumer(daemon.address, made, group=made, **QUICK, **OLD) as second:
            seen: list[Record] = []

            def work() -> list[int]:
                for member in (first, second):
                    seen.extend(member.poll(timeout_ms=10))
                return [len(member.assignment) for member in (first, second)]

            until(lambda: work() == [1, 1])
            one_of_each(daemon.address, made, 4)
            until(lambda: work() == [2, 2] and len(seen) == 4)
            assert sorted(record.partition for record in seen) == [0, 1, 2, 3]


class OldLeaderWorld(GroupWorld):
    """One member, which is given what its leader takes to be there."""

    given: tuple[int, ...] = ()

    def _answer_group(
        self, request: Message, reply: Callable[[Message], None], client_id: str
    ) -> bool:
        if isinstance(request, SyncGroupRequest):
            for row in request.assignments:
                row.assignment = encode_assignment([(TOPIC, number) for number in self.given])
        return super()._answer_group(request, reply, client_id)


def test_a_partition_that_is_not_there_holds_up_no_other_one() -> None:
    world = OldLeaderWorld(1, partitions=2, records=20)
    world.given = 0, 1, 9
    member = world.start()
    world.run(lambda: len(set(world.processed)) == 40, within_ms=10_000)
    assert member.owned == {0, 1, 9}
    # Nor does it later, each time it is looked for; and when it comes it is read.
    end_ms = world.now_ms + 120_000
    world.run(lambda: world.now_ms >= end_ms)
    world.cluster.topics[TOPIC] += world.cluster.create("other", 8)
    world.store(9, 10)
    world.run(lambda: (9, 9) in world.processed, within_ms=70_000)


@pytest.mark.parametrize("kind", [OldLeaderWorld, ConsumerGroupWorld])
def test_what_a_member_is_given_first_was_there_also_where_its_view_lacks_it(
    kind: type[GroupWorld],
) -> None:
    """With start="end": what was written there long ago is not what came while it was there."""
    world = kind(1, partitions=2, records=20)
    if isinstance(world, OldLeaderWorld):
        world.given = 0, 1
    lacking = world.cluster.topics[TOPIC].pop()
    member = world.start(start="end")
    cluster = member.reading.engine.cluster
    world.run(lambda: TOPIC in cluster.topics and cluster.topics[TOPIC].partition_count == 1)
    world.cluster.topics[TOPIC].append(lacking)
    states = member.reading.fetching.states
    world.run(lambda: [state.fetch_offset for state in states.values()] == [20, 20])
    world.store(1, 1, 20)
    world.run(lambda: (1, 20) in world.processed)
    assert world.processed == [(1, 20)]


def test_a_member_that_is_given_nothing_else_hears_why_it_waits() -> None:
    world = OldLeaderWorld(1, partitions=2, records=20)
    world.given = (9,)
    world.start()
    with pytest.raises(UnknownTopicOrPartition, match=r"partitions \[0, 2\), not 9"):
        world.run(lambda: False, within_ms=120_000)
    assert world.now_ms > 30_000


def test_a_partition_that_was_made_a_moment_ago_can_be_assigned(daemon: Daemon, made: str) -> None:
    with Consumer(daemon.address, **OLD) as consumer:
        consumer.assign([(made, 0)])
        assert consumer.end_offsets() == {TopicPartition(made, 0): 0}
        one_of_each(daemon.address, made, 3)
        consumer.assign([(made, 2)])
        assert [record.value for record in consumer.poll(1, timeout_ms=60_000)] == [b"2"]


@pytest.mark.parametrize("start", ["start", "end"])
def test_what_is_made_a_moment_ago_can_be_asked_for(daemon: Daemon, made: str, start: str) -> None:
    with Consumer(daemon.address, **OLD) as consumer:
        assert consumer.partitions_for(made) == 2
        consumer.assign([(made, 0)])
        one_of_each(daemon.address, made, 3)
        ask = consumer.end_offsets if start == "end" else consumer.beginning_offsets
        assert ask((made, 2)) == {TopicPartition(made, 2): 1 if start == "end" else 0}


def test_a_wrong_partition_is_said_and_the_others_are_read(daemon: Daemon, made: str) -> None:
    one_of_each(daemon.address, made, 3)
    seen: list[Record] = []
    said: list[str] = []
    with Consumer(daemon.address) as consumer:
        consumer.assign([(made, 0), (made, 7)])

        def work() -> bool:
            try:
                seen.extend(consumer.poll(timeout_ms=100))
            except UnknownTopicOrPartition as exc:
                said.append(str(exc))
            return bool(seen and said)

        until(work)
        with pytest.raises(UnknownTopicOrPartition, match=WRONG):
            consumer.end_offsets((made, 0), (made, 7))
    assert [record.partition for record in seen] == [0]
    assert all(re.search(WRONG, text) for text in said)

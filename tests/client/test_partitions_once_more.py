"""A topic that is made again without a partition, and once more with it, under a member's hands.

What the member has of the first one, in hand or fetched ahead, says nothing of where the last one
is read; and that is read, though the partition may have been the member's all along.
"""

import pytest

from segbroker.client.errors import TopicRecreated, UnknownTopicOrPartition
from segbroker.client.records import TopicPartition

from .simulated_groups import TOPIC, GroupWorld, SimulatedMember

P1 = TopicPartition(TOPIC, 1)


def made_again(world: GroupWorld, partitions: int, count: int) -> None:
    """With so many records in each partition."""
    world.cluster.create(TOPIC, partitions)
    world.committed.clear()
    for partition in range(partitions if count else 0):
        world.store(partition, count)


def setting() -> tuple[GroupWorld, SimulatedMember]:
    """A member that sees soon that a topic is another, and commits all the time; both batches of
    partition 1 are there, and nothing else."""
    world = GroupWorld(1, partitions=2, records=0)
    world.store(1, 10)
    world.store(1, 10, 10)
    member = world.start(metadata_max_age_ms=100, commit_interval_ms=100)
    member.expected = (TopicRecreated, UnknownTopicOrPartition)
    return world, member


def has_in_hand(member: SimulatedMember, offset: int) -> bool:
    record = member.in_hand
    return record is not None and (record.partition, record.offset) == (1, offset)


def test_what_is_in_hand_of_a_topic_that_is_gone_is_no_place_in_the_next_one() -> None:
    """It was fetched ahead, and is handed out behind the end of its partition."""
    world, member = setting()
    group = member.reading.group
    world.run(lambda: has_in_hand(member, 3))
    member.busy_until_ms = world.now_ms + 2_000
    made_again(world, 1, 0)
    world.run(lambda: P1 not in member.reading.fetching.states)
    member.busy_until_ms = world.now_ms
    world.run(lambda: has_in_hand(member, 10) and P1 not in group._owned)
    member.busy_until_ms = world.now_ms + 10_000
    made_again(world, 2, 20)
    world.run(lambda: member.owned == {0, 1})
    world.passes(2_000)
    assert member.in_hand is not None
    for named in (member.in_hand, {P1: 11}):
        done = member.reading.engine.call(member.reading.commit(named), world.now_ms)
        world.run(lambda: done.done)  # noqa: B023 - at once
        done.result()
    assert world.committed.get(P1, 0) == 0
    world.kill(member)
    world.processed.clear()
    world.start()
    world.run(lambda: len(set(world.processed)) == 40)


@pytest.mark.parametrize("pause_ms", [0, 200, 1_000, 5_000])
def test_a_partition_that_comes_back_with_the_next_topic_is_read(pause_ms: int) -> None:
    """Though it has not been anybody else's meanwhile: the caller has a record of it in hand."""
    world, member = setting()
    world.run(lambda: has_in_hand(member, 3))
    member.busy_until_ms = world.now_ms + 20_000
    made_again(world, 1, 0)
    world.run(lambda: P1 not in member.reading.fetching.states)
    member.heard.discard(P1)  # that it went it hears by an error, as a topic's end is told
    world.passes(pause_ms)
    made_again(world, 2, 20)
    world.passes(2_000)
    assert world.committed.get(P1, 0) == 0
    world.processed.clear()
    world.run(lambda: len(set(world.processed)) == 40)


def test_what_was_fetched_ahead_of_a_partition_that_is_gone_is_handed_out_all_the_same() -> None:
    """It was not yet told to be the caller's, and fills the buffer."""
    world = GroupWorld(1, partitions=2, records=0)
    for first in range(0, 100, 10):
        world.store(1, 10, first)
    member = world.start(metadata_max_age_ms=100, prefetch_bytes=300, fetch_partition_bytes=300)
    member.expected = (TopicRecreated, UnknownTopicOrPartition)
    member.busy_until_ms = world.now_ms + 10_000
    prefetched = member.reading.fetching.prefetched
    world.run(lambda: prefetched.is_full)
    made_again(world, 1, 20)
    world.run(lambda: P1 not in member.reading.fetching.states)
    world.run(lambda: {(0, n) for n in range(20)} <= set(world.processed))
    assert not prefetched.ready
    assert not prefetched.buffered_bytes
    assert (1, 0) in world.processed

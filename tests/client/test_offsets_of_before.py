"""Offsets that were looked up in a topic, and come when another one has its name.

A broker answers, the topic is deleted and made again, the client looks at the cluster, and then the
answer is there: it says nothing of the new topic.
"""

from collections.abc import Callable
from typing import Any

import pytest

from segbroker.client.connection import Connection
from segbroker.client.errors import OffsetOutOfRange, UnknownTopicOrPartition
from segbroker.client.lookups import END_TIME, look_up
from segbroker.client.records import Gap, Record, TopicPartition
from segbroker.client.starting import Start
from segbroker.protocol.api_keys import ApiKey
from segbroker.protocol.headers import parse_request_header

from .simulated import World
from .test_fetching import Reader, store

# Of broker 2 of two.
B = TopicPartition("a", 1)
BOTH = [TopicPartition("a", 0), B]


class Late(World):
    """Broker 2's answers to ListOffsets are held back; what they say is as old as the question."""

    def __init__(self) -> None:
        super().__init__(brokers=2, create_topics=False)
        self.held: list[Callable[[], None]] = []
        self.is_late = True
        broker = self.cluster.brokers[2]
        answer = broker.answer

        def late(frame: memoryview) -> bytes | None:
            reply = answer(frame)
            if not self.is_late or parse_request_header(frame).api_key != ApiKey.LIST_OFFSETS:
                return reply
            assert reply is not None
            link = self._asking
            self.held.append(lambda: self.deliver(link, reply))
            return b""

        broker.answer = late  # type: ignore[method-assign]

    def _exchange(self, connection: Connection, broker: Any, reader: Any) -> bool:  # noqa: ANN401
        self._asking = connection
        return super()._exchange(connection, broker, reader)

    def fill(self, partitions: int, count: int) -> None:
        """The topic, again if it is there, with so many records in each of its partitions."""
        for partition in self.cluster.create("a", partitions):
            store(partition, [b"x"] * count)

    def refresh(self) -> None:
        done = self.engine.cluster.refreshed()
        self.run(lambda: done.done)

    def made_again(self, partitions: int, count: int) -> None:
        """After the question, and seen before the answer comes."""
        self.run(lambda: bool(self.held))
        self.fill(partitions, count)
        self.refresh()
        self.is_late = False
        for answer in self.held:
            answer()


def items(reader: Reader, count: int) -> list[int | Gap]:
    """The offsets and gaps of so many batches and gaps; fewer at the end."""
    found: list[int | Gap] = []
    for _ in range(count):
        reader.world.run(reader.has_news)
        fetched = reader.fetching.prefetched.take()
        if fetched is None:
            break
        if fetched.gap is not None:
            found.append(fetched.gap)
            continue
        records: list[Record] = reader.fetching.open(fetched).records()
        found += [record.offset for record in records]
    return found


@pytest.mark.parametrize("is_in_view", [True, False])
@pytest.mark.parametrize(("start", "first"), [("end", 300), (-100, 200), ("start", 0)])
def test_a_reading_begins_where_the_new_topic_says(
    start: Start, first: int, *, is_in_view: bool
) -> None:
    world = Late()
    world.fill(2, 100)
    reader = Reader(world, on_gap="yield")
    if is_in_view:
        world.engine.cluster.want(["a"])
        world.refresh()
    reader.fetching.assign([B], start)
    world.made_again(2, 300)
    state = reader.fetching.state(B)
    world.run(lambda: state.position is not None)
    assert state.position == first
    assert state.topic_id == world.cluster.topic_ids["a"]
    store(world.cluster.topics["a"][1], [b"y"])
    assert items(reader, 2 if first < 300 else 1) == list(range(first, 301))
    world.refresh()
    assert not reader.fetching.prefetched.ready


def test_the_end_of_the_old_topic_bounds_no_reading_of_the_new_one() -> None:
    """It has fewer records: that end never comes."""
    world = Late()
    world.fill(2, 100)
    reader = Reader(world, stop_at_end=True, on_gap="yield")
    reader.fetching.assign([B], 5)
    reader.fetching.seek(B, 5)
    world.made_again(2, 20)
    assert items(reader, 9) == [Gap(*B, 5, 5, "recreated"), *range(20)]
    assert reader.fetching.is_ended


def test_a_partition_that_the_new_topic_does_not_have_holds_up_no_other() -> None:
    world = Late()
    world.fill(2, 100)
    reader = Reader(world)
    reader.fetching.subscribe(["a"], "start")
    world.made_again(1, 20)
    assert items(reader, 1) == list(range(20))
    assert list(reader.fetching.states) == [BOTH[0]]
    assert not reader.fetching.prefetched.errors


def test_a_named_partition_that_the_new_topic_does_not_have_is_gone() -> None:
    world = Late()
    world.fill(2, 100)
    reader = Reader(world)
    reader.fetching.assign(BOTH, "start")
    world.made_again(1, 20)
    with pytest.raises(UnknownTopicOrPartition, match="a-1 is gone"):
        items(reader, 1)
    assert items(reader, 1) == list(range(20))


def test_offsets_that_are_asked_for_are_all_of_one_topic() -> None:
    world = Late()
    world.fill(2, 100)
    wanted = dict.fromkeys(BOTH, END_TIME)
    call = world.engine.call(look_up(world.engine, wanted, isolation_level=0), world.now_ms)
    world.made_again(2, 20)
    world.run(lambda: call.done)
    assert [found.offset for found in call.result().values()] == [20, 20]


@pytest.mark.parametrize("is_told", [True, False])
def test_who_was_beyond_the_end_goes_on_in_the_next_topic(*, is_told: bool) -> None:
    """It need not seek: what it asked for was not in the old one."""
    world = World(create_topics=False)
    (partition,) = world.cluster.create("a")
    store(partition, [b"x"] * 10)
    tp = TopicPartition("a", 0)
    reader = Reader(world, on_gap="yield")
    reader.fetching.assign([tp], 50)
    world.run(lambda: reader.fetching.state(tp).is_stuck)
    if is_told:
        with pytest.raises(OffsetOutOfRange):
            reader.fetching.prefetched.take()
    (partition,) = world.cluster.create("a")
    store(partition, [b"y"] * 20)
    done = world.engine.cluster.refreshed()
    world.run(lambda: done.done)
    assert items(reader, 2) == [Gap("a", 0, 50, 50, "recreated"), *range(20)]

"""Who reads a thousand partitions holds what it is at, not a batch of each that it was at; and
looks at those of which something has changed."""

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from segbroker.client import Admin, AsyncConsumer, Consumer, Producer
from segbroker.client.assigned import PartitionState
from segbroker.client.membership import Phase
from segbroker.client.progress import Handing
from segbroker.client.records import TopicPartition

from ..support.daemon import Daemon
from .conftest import Run
from .simulated_consumer_groups import ConsumerGroupWorld
from .simulated_groups import TOPIC

COUNT = 20


@pytest.fixture
def filled(daemon: Daemon, topic: str) -> str:
    """A record in each of many partitions."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=COUNT)
    with Producer(daemon.address) as producer:
        for partition in range(COUNT):
            producer.send(topic, b"v", partition=partition)
    return topic


def held() -> list[Handing]:
    """Batches whose records are being handed out, or were and are kept.

    Who compares two of these keeps the first one: what another test left for the collector
    would otherwise go away in between, and be missing in the difference.
    """
    return [one for one in gc.get_objects() if isinstance(one, Handing)]


@pytest.mark.parametrize("group", [None, "many-partitions"])
def test_a_loop_holds_the_batch_that_it_is_at(
    daemon: Daemon, filled: str, group: str | None
) -> None:
    before = held()
    with Consumer(daemon.address, filled, start="start", group=group) as consumer:
        most = 0
        for count, _ in enumerate(consumer, 1):
            most = max(most, len(held()) - len(before))
            if count == COUNT:
                break
    assert most == 1


@pytest.mark.parametrize("group", [None, "many-partitions-polled"])
def test_a_poll_holds_the_batch_that_it_is_at(
    daemon: Daemon, filled: str, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = held()
    most = 0
    more = Handing.more

    def looked_at(handing: Handing) -> object:
        nonlocal most
        most = max(most, len(held()) - len(before))
        return more(handing)

    monkeypatch.setattr(Handing, "more", looked_at)
    with Consumer(daemon.address, filled, start="start", group=group) as consumer:
        got = 0
        while got < COUNT:
            got += len(consumer.poll(COUNT, 10_000))
    assert got == COUNT
    assert most <= 2, "the one that was read to its end, and the next"


def test_an_async_loop_holds_the_batch_that_it_is_at(run: Run, daemon: Daemon, filled: str) -> None:
    async def main() -> int:
        before = held()
        most = count = 0
        async with AsyncConsumer(daemon.address, filled, start="start") as consumer:
            async for _ in consumer:
                most = max(most, len(held()) - len(before))
                count += 1
                if count == COUNT:
                    break
        return most

    assert run(main) == 1


def calls_in(do: Callable[[], object]) -> int:
    """How many functions the client calls, of Python's own, too."""
    count = 0

    def called(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += frame.f_globals.get("__name__", "").startswith("segbroker.client.")

    sys.setprofile(called)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("is_asked", [False, True])
def test_partitions_that_come_and_go_while_their_broker_is_silent_are_not_kept(
    is_asked: bool,
) -> None:
    world = ConsumerGroupWorld(1, partitions=1, records=0)
    member = world.start()
    ends_ms = world.now_ms + (10_000 if is_asked else 0)
    world.run(lambda: len(member.owned) == 1 and world.now_ms >= ends_ms)
    fetching, engine = member.reading.fetching, member.reading.engine
    tp = TopicPartition(TOPIC, 0)
    kept = []
    for _ in range(5):
        fetching.drop([tp])
        fetching.add(tp, 0)
        engine.step(world.now_ms)
        gc.collect()
        kept.append(sum(isinstance(one, PartitionState) for one in gc.get_objects()))
    assert kept[-1] == kept[1]


def test_what_one_call_costs_does_not_grow_with_the_partitions_that_are_read() -> None:
    """Nor does an answer: of all but those that were touched nothing is looked at."""
    costs = []
    for partitions in (60, 600):
        world = ConsumerGroupWorld(1, partitions=partitions, records=0)
        member = world.start(commit_interval_ms=10**9)
        membership = member.reading.group.membership
        world.run(lambda: membership.phase is Phase.STABLE)  # noqa: B023
        world.passes(20_000)
        engine, fetching = member.reading.engine, member.reading.fetching
        assert len(fetching.states) == partitions

        def steps() -> None:
            engine.step(world.now_ms)  # noqa: B023
            engine.next_wake_ms()  # noqa: B023

        def seeks() -> None:
            fetching.seek(TopicPartition(TOPIC, 0), 0)  # noqa: B023
            steps()

        def commits() -> None:
            engine.call(member.reading.commit({(TOPIC, 1): 0}), world.now_ms)  # noqa: B023
            steps()

        def reads() -> None:
            world.store(1, 1)  # noqa: B023
            count = len(world.processed) + 1  # noqa: B023
            world.run(lambda: len(world.processed) == count)  # noqa: B023

        costs.append([calls_in(do) for do in (steps, seeks, commits, reads)])
    for few, many in zip(*costs, strict=True):
        assert many < few + 60, costs

"""A caller that does not come back within max_poll_interval_ms: its member leaves the group.

Whatever it is at: with records in hand (test_groups, test_simulated_groups), with none, in a
callback, or before it asked for the first time.  The others get its partitions.
"""

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from segbroker.client import Admin, AsyncConsumer, Consumer, Producer, TopicPartition

from ..support.daemon import Daemon
from ..support.waiting import until

OTHER: Any = {"heartbeat_interval_ms": 50, "session_timeout_ms": 60_000}
LIMITED: Any = {**OTHER, "max_poll_interval_ms": 1_000}


@pytest.fixture
def made(daemon: Daemon, topic: str) -> str:
    """A topic of two partitions without records."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=2)
    return topic


def is_empty(address: str, group: str) -> bool:
    with Admin(address) as admin:
        return not admin.describe_group(group).members


def send_one(address: str, topic: str) -> None:
    """What ends a poll that waits; by somebody else: who sends is away meanwhile."""

    def send() -> None:
        with Producer(address) as producer:
            producer.send(topic, b"x", partition=0)

    threading.Thread(target=send).start()


class Told:
    """What a caller was told, in order; at each assignment it does something."""

    def __init__(self) -> None:
        self.all: list[tuple[str, int]] = []
        self.at_assigned: Callable[[int], object] = lambda count: None

    def assigned(self, partitions: list[TopicPartition]) -> None:
        self.all.append(("assigned", len(partitions)))
        self.at_assigned(self.all.count(("assigned", 2)))

    def lost(self, partitions: list[TopicPartition]) -> None:
        self.all.append(("lost", len(partitions)))


def test_a_member_that_nothing_was_handed_to_leaves(daemon: Daemon, made: str) -> None:
    told = Told()
    with Consumer(
        daemon.address, made, group=made, on_assigned=told.assigned, on_lost=told.lost, **LIMITED
    ) as consumer:
        # Longer than it may be away: who waits here is not.
        assert consumer.poll(timeout_ms=4_000) == []
        assert told.all == [("assigned", 2)]
        until(lambda: is_empty(daemon.address, made))
        # It is a member again when it asks again.
        until(lambda: consumer.poll(timeout_ms=100) == [] and len(told.all) == 3)
        assert told.all == [("assigned", 2), ("lost", 2), ("assigned", 2)]


def test_a_member_that_never_asks_leaves(daemon: Daemon, made: str) -> None:
    told = Told()
    options = {**LIMITED, "max_poll_interval_ms": 3_000}
    with Consumer(
        daemon.address, made, group=made, on_assigned=told.assigned, on_lost=told.lost, **options
    ) as consumer:
        # It may have been one for a moment only, as far as this thread can see.
        until(lambda: made in [event["group"] for event in daemon.events("group_stable")])
        until(lambda: is_empty(daemon.address, made))
        until(lambda: consumer.poll(timeout_ms=100) == [] and bool(told.all))
        assert told.all == [("assigned", 2)]


def hang_once(address: str, topic: str, count: int) -> None:
    """In the first assignment for too long; the second one gives the poll its end."""
    if count == 1:
        until(lambda: is_empty(address, topic))
    else:
        send_one(address, topic)


def test_a_member_that_hangs_in_on_assigned_leaves_and_is_one_again_when_it_is_back(
    daemon: Daemon, made: str
) -> None:
    """Within one call: nobody comes back in a loop that waits for records."""
    told = Told()
    told.at_assigned = lambda count: hang_once(daemon.address, made, count)
    with Consumer(
        daemon.address, made, group=made, on_assigned=told.assigned, on_lost=told.lost, **LIMITED
    ) as consumer:
        assert len(consumer.poll(timeout_ms=60_000)) == 1
        assert told.all == [("assigned", 2), ("lost", 2), ("assigned", 2)]


def test_a_member_that_hangs_in_on_revoked_leaves_all_to_the_others(
    daemon: Daemon, made: str
) -> None:
    told = Told()
    is_back, is_over = threading.Event(), threading.Event()

    def revoked(partitions: list[TopicPartition]) -> None:
        told.all.append(("revoked", len(partitions)))
        is_back.wait(120)

    def work() -> None:
        while not is_over.is_set():
            slow.poll(timeout_ms=100)

    slow: Consumer = Consumer(
        daemon.address, made, group=made, on_revoked=revoked, on_lost=told.lost, **LIMITED
    )
    with slow:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            until(lambda: len(slow.assignment) == 2)
            with Consumer(daemon.address, made, group=made, **OTHER) as other:
                until(lambda: other.poll(timeout_ms=50) == [] and len(other.assignment) == 2)
                is_back.set()
                until(lambda: len(told.all) > 1)
        finally:
            is_back.set()
            is_over.set()
            thread.join()
    # Of what it was told at that moment to be going it does not hear once more.
    assert told.all[:2] == [("revoked", 1), ("lost", 1)]


def test_an_async_member_that_nothing_was_handed_to_leaves(
    daemon: Daemon, made: str, run: Callable[..., object]
) -> None:
    async def main() -> None:
        told = Told()
        async with AsyncConsumer(
            daemon.address, made, group=made, on_assigned=told.assigned, **LIMITED
        ) as consumer:
            assert await consumer.poll(timeout_ms=4_000) == []
            assert told.all == [("assigned", 2)]
            await anyio.to_thread.run_sync(until, lambda: is_empty(daemon.address, made))
            while len(told.all) == 1:
                assert await consumer.poll(timeout_ms=100) == []
            assert told.all == [("assigned", 2), ("assigned", 2)]

    run(main)


def test_an_async_member_that_hangs_in_on_assigned_leaves(
    daemon: Daemon, made: str, run: Callable[..., object]
) -> None:
    async def main() -> None:
        told = Told()

        async def assigned(partitions: list[TopicPartition]) -> None:
            told.assigned(partitions)
            count = len(told.all)
            await anyio.to_thread.run_sync(hang_once, daemon.address, made, count)

        async with AsyncConsumer(
            daemon.address, made, group=made, on_assigned=assigned, **LIMITED
        ) as consumer:
            assert len(await consumer.poll(timeout_ms=60_000)) == 1
            assert told.all == [("assigned", 2), ("assigned", 2)]

    run(main)

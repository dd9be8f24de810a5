"""A generator that is left half way, and sys.exit(), end a block as its end does.

Neither is an error, and nobody would see a note on it: what was sent is delivered, or that it was
not is raised.
"""

import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import aclosing

import pytest

from segbroker.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeliveryFailed,
    Producer,
    TopicPartition,
)
from segbroker.client.errors import MessageTooLarge

from ..support.daemon import Daemon
from .conftest import Run

COUNT = 50


def pipeline(address: str, topic: str) -> Iterator[int]:
    """Passes on what it has sent."""
    with Producer(address, linger_ms=60_000) as producer:
        for number in range(1_000):
            producer.send(topic, b"%d" % number, partition=0)
            yield number


def values(daemon: Daemon, topic: str) -> list[bytes | None]:
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        return [record.value for record in consumer]


def sent() -> list[bytes | None]:
    return [b"%d" % number for number in range(COUNT)]


def test_what_a_generator_has_sent_is_delivered_when_it_is_left(daemon: Daemon, topic: str) -> None:
    for number in pipeline(daemon.address, topic):
        if number == COUNT - 1:
            break
    assert values(daemon, topic) == sent()


def test_what_it_could_not_deliver_is_raised(daemon: Daemon, topic: str) -> None:
    def sending() -> Generator[None, None, None]:
        with Producer(daemon.address) as producer:
            producer.send(topic, bytes(2 << 20))
            yield

    half_way = sending()
    next(half_way)
    with pytest.raises(DeliveryFailed) as caught:
        half_way.close()
    (record,) = caught.value.undelivered
    assert isinstance(record.error, MessageTooLarge)


def test_what_was_sent_is_delivered_before_a_program_exits(daemon: Daemon, topic: str) -> None:
    with (  # noqa: PT012
        pytest.raises(SystemExit) as caught,
        Producer(daemon.address, linger_ms=60_000) as producer,
    ):
        for value in sent():
            producer.send(topic, value, partition=0)
        sys.exit(3)
    assert caught.value.code == 3
    assert values(daemon, topic) == sent()


LEFT_OPEN = """
import sys
from segbroker.client import Admin, Consumer, Producer

address, topic = sys.argv[1:]


def half_way(kind, *more):
    with kind(address, *more) as client:
        yield client


kept = [half_way(Producer), half_way(Consumer, topic), half_way(Admin)]
clients = [next(each) for each in kept]
clients[0].send(topic, b"last words")
"""


def test_a_generator_that_nobody_ended_does_not_hold_up_the_end_of_a_program(
    daemon: Daemon, topic: str
) -> None:
    """The interpreter ends it when no other thread runs any more."""
    command = [sys.executable, "-c", LEFT_OPEN, daemon.address, topic]
    subprocess.run(command, check=True, timeout=120)
    assert values(daemon, topic) == [b"last words"]


def test_what_was_sent_is_delivered_before_an_event_loop_exits(
    daemon: Daemon, topic: str, run: Run
) -> None:
    async def main() -> None:
        async with AsyncProducer(daemon.address, linger_ms=60_000) as producer:
            for value in sent():
                await producer.send(topic, value, partition=0)
            sys.exit(3)

    with pytest.raises(SystemExit):
        run(main)
    assert values(daemon, topic) == sent()


def test_what_an_async_generator_has_sent_is_delivered_when_it_is_left(
    daemon: Daemon, topic: str, run: Run
) -> None:
    async def sending() -> AsyncGenerator[int, None]:
        async with AsyncProducer(daemon.address, linger_ms=60_000) as producer:
            for number in range(1_000):
                await producer.send(topic, b"%d" % number, partition=0)
                yield number

    async def main() -> None:
        async with aclosing(sending()) as half_way:
            async for number in half_way:
                if number == COUNT - 1:
                    break

    run(main)
    assert values(daemon, topic) == sent()


def committed(daemon: Daemon, topic: str) -> int:
    with Admin(daemon.address) as admin:
        return admin.committed(topic)[TopicPartition(topic, 0)].offset


def test_a_consumer_says_what_it_gives_up_before_a_program_exits(
    daemon: Daemon, topic: str
) -> None:
    told: list[TopicPartition] = []
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(daemon.address) as producer:
        producer.send_many(topic, sent())
    with (  # noqa: PT012
        pytest.raises(SystemExit),
        Consumer(daemon.address, topic, group=topic, on_revoked=told.extend) as consumer,
    ):
        for record in consumer:
            if record.offset == 7:
                sys.exit()
    assert told == [TopicPartition(topic, 0)]
    assert committed(daemon, topic) == 7


def test_an_async_consumer_says_it_too(daemon: Daemon, topic: str, run: Run) -> None:
    told: list[TopicPartition] = []
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(daemon.address) as producer:
        producer.send_many(topic, sent())

    async def main() -> None:
        async with AsyncConsumer(
            daemon.address, topic, group=topic, on_revoked=told.extend
        ) as consumer:
            async for record in consumer:
                if record.offset == 7:
                    sys.exit()

    with pytest.raises(SystemExit):
        run(main)
    assert told == [TopicPartition(topic, 0)]
    assert committed(daemon, topic) == 7

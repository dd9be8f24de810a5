"""One thread at a time reads from a blocking consumer; what a second one gets is said in a word."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from segbroker.client import BusyError, Consumer, Producer, Record, TopicPartition

from ..support.daemon import Daemon

COUNT = 2_000


def fill(daemon: Daemon, topic: str) -> None:
    """Several batches."""
    values = [b"%d" % n for n in range(COUNT)]
    with Producer(daemon.address) as producer:
        for partition in range(4):
            producer.send_many(topic, values[partition::4], partition=partition)


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    """Another thread."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_of_two_threads_in_one_loop_the_second_is_busy_and_the_first_gets_each_record(
    daemon: Daemon, topic: str, other: ThreadPoolExecutor
) -> None:
    fill(daemon, topic)
    is_in, may_go_on = threading.Event(), threading.Event()

    def assigned(partitions: list[TopicPartition]) -> None:
        is_in.set()
        assert may_go_on.wait(60)

    with Consumer(
        daemon.address, topic, group=topic, stop_at_end=True, on_assigned=assigned
    ) as consumer:
        loop = iter(consumer)
        first: Future[list[Record]] = other.submit(list, loop)
        assert is_in.wait(60)
        for read in (lambda: next(loop), consumer.poll, lambda: next(consumer.batches())):
            for _ in range(3):
                with pytest.raises(BusyError, match=r"one thread at a time.* at this moment"):
                    read()
        may_go_on.set()
        assert sorted(int(record.value or b"") for record in first.result(60)) == list(range(COUNT))


READS: dict[str, Callable[[Consumer], object]] = {
    "a loop": lambda consumer: next(iter(consumer)),
    "batches": lambda consumer: next(consumer.batches()),
    "a poll": lambda consumer: consumer.poll(1),
}


@pytest.mark.parametrize("how", READS)
def test_a_loop_whose_consumer_another_thread_has_read_from_says_so(
    daemon: Daemon, topic: str, other: ThreadPoolExecutor, how: str
) -> None:
    fill(daemon, topic)
    with Consumer(daemon.address, topic) as consumer:
        loop = consumer.batches()
        next(loop)
        other.submit(READS[how], consumer).result(60)
        with pytest.raises(BusyError, match=r"one thread at a time.* while this loop was in its"):
            next(loop)
        # It is nobody's turn now: a new loop goes on.
        assert next(iter(consumer)).topic == topic


def test_a_loop_may_go_on_in_another_thread(
    daemon: Daemon, topic: str, other: ThreadPoolExecutor
) -> None:
    fill(daemon, topic)
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        loop = consumer.batches()
        count = len(next(loop))
        count += len(other.submit(next, loop).result(60))
        count += sum(map(len, loop))
    assert count == COUNT


def test_who_is_told_of_partitions_cannot_read_meanwhile(daemon: Daemon, topic: str) -> None:
    fill(daemon, topic)
    refused: list[BusyError] = []

    def assigned(partitions: list[TopicPartition]) -> None:
        try:
            consumer.poll()
        except BusyError as exc:
            refused.append(exc)

    with Consumer(daemon.address, topic, group=topic, on_assigned=assigned) as consumer:
        assert consumer.poll(timeout_ms=60_000)
    assert "this one is reading already" in str(refused[0])

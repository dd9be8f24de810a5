"""One thread at a time reads from a blocking consumer; what a second one gets is said in a word."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from segbroker.client import (
    Admin,
    BusyError,
    Consumer,
    Producer,
    Record,
    ShareConsumer,
    TopicPartition,
)
from segbroker.client.acknowledging import ShareRecord
from segbroker.client.turns import Turns

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


@pytest.fixture
def at_end_of_turn(
    other: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> list[Callable[[], object]]:
    """What another thread does when a turn of this one is just over, and the call is not."""
    work: list[Callable[[], object]] = []
    main = threading.get_ident()

    class Free(Turns):
        of: int | None = None

        @property
        def thread(self) -> int | None:
            return self.of

        @thread.setter
        def thread(self, thread: int | None) -> None:
            was, self.of = self.of, thread
            if was == main and thread is None:
                for each in work:
                    other.submit(each).result(60)

    for name in ("consumer", "share_consumer"):
        monkeypatch.setattr(f"segbroker.client.{name}.Turns", Free)
    return work


def test_what_a_thread_has_read_comes_to_no_other_that_reads_as_its_turn_ends(
    daemon: Daemon, topic: str, at_end_of_turn: list[Callable[[], object]]
) -> None:
    fill(daemon, topic)
    seen: list[Record] = []
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        consumer.assign([(topic, 0)], start="start")
        at_end_of_turn.append(lambda: seen.extend(consumer.poll(10, 60_000)))
        seen.extend(consumer.poll(10, 60_000))
        seen.extend(next(consumer.batches()))
        while records := consumer.poll(100, 60_000):
            seen.extend(records)
    assert sorted(record.offset for record in seen) == list(range(COUNT // 4))


def test_nor_does_what_a_member_of_a_share_group_was_given(
    daemon: Daemon, topic: str, at_end_of_turn: list[Callable[[], object]]
) -> None:
    fill(daemon, topic)
    with Admin(daemon.address) as admin:
        admin.alter_share_offsets(topic, {(topic, 0): 0})
    seen: list[Record | ShareRecord] = []
    with ShareConsumer(daemon.address, topic, group=topic) as consumer:
        at_end_of_turn.append(lambda: seen.extend(consumer.poll(10, 60_000)))
        seen.extend(consumer.poll(10, 60_000))
        seen.append(next(iter(consumer)))
    places = [(record.partition, record.offset) for record in seen]
    assert len(places) == len(set(places)) > 11

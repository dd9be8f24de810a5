"""What is paused in the middle of what is being handed out waits there, whole and once."""

import threading
from collections.abc import Callable
from itertools import islice

import pytest

from segbroker.client import AsyncConsumer, Consumer, Producer, Record, TopicPartition

from ..support.daemon import Daemon
from ..support.waiting import until
from .conftest import Run
from .test_async import numbers

COUNT = 1_000


@pytest.fixture
def filled(daemon: Daemon, topic: str) -> str:
    """Two partitions, each of one large batch."""
    with Producer(daemon.address) as producer:
        for partition in (0, 1):
            producer.send_many(topic, numbers(COUNT), partition=partition)
            producer.flush()
    return topic


def offsets_of(records: list[Record], partition: int) -> list[int]:
    return [record.offset for record in records if record.partition == partition]


def read_with_a_pause(consumer: Consumer, filled: str, pause_at: int) -> tuple[int, list[Record]]:
    """Pauses a partition in the loop, resumes when the other one is read; all that came."""
    seen: list[Record] = []
    paused = -1
    for record in consumer:
        seen.append(record)
        if paused < 0 and record.offset == pause_at:
            paused = record.partition
            consumer.pause((filled, paused))
        if paused >= 0 and len(offsets_of(seen, 1 - paused)) == COUNT:
            consumer.resume()
        if len(seen) == 2 * COUNT:
            break
    return paused, seen


def test_a_pause_that_is_refused_pauses_nothing(daemon: Daemon, filled: str) -> None:
    with Consumer(daemon.address) as consumer:
        consumer.assign([(filled, 0), (filled, 1)])
        with pytest.raises(ValueError, match="-2 is not assigned to this consumer"):
            consumer.pause((filled, 0), (filled, 1), (filled, 2))
        seen: list[Record] = []

        def all_came() -> bool:
            seen.extend(consumer.poll(timeout_ms=1_000))
            return len(seen) == 2 * COUNT

        until(all_came)


def test_a_partition_paused_in_a_loop_hands_out_nothing_more_until_it_is_resumed(
    daemon: Daemon, filled: str
) -> None:
    with Consumer(daemon.address) as consumer:
        consumer.assign([(filled, 0), (filled, 1)])
        paused, seen = read_with_a_pause(consumer, filled, pause_at=30)
    first = [record.partition for record in seen[:31]]
    assert first == [paused] * 31
    assert {record.partition for record in seen[31 : 31 + COUNT]} == {1 - paused}
    assert offsets_of(seen, 0) == offsets_of(seen, 1) == list(range(COUNT))


def test_an_async_loop_that_pauses_waits_for_whoever_resumes(
    run: Run, daemon: Daemon, filled: str
) -> None:
    async def main() -> None:
        offsets = []
        async with AsyncConsumer(daemon.address, stop_at_end=True) as consumer:
            consumer.assign([(filled, 0)])
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 700:
                    consumer.pause()
                    assert await consumer.poll(timeout_ms=100) == []
                    assert await consumer.position(filled, 0) == 701
                    consumer.resume()
        assert offsets == list(range(COUNT))

    run(main)


@pytest.mark.parametrize("wait", [Consumer.__iter__, lambda c: iter(c.poll(COUNT, 60_000))])
def test_what_is_resumed_at_the_end_of_the_log_needs_no_further_record(
    daemon: Daemon, filled: str, wait: Callable[[Consumer], object]
) -> None:
    with Consumer(daemon.address) as consumer:
        consumer.assign([(filled, 0)])
        (first,) = islice(consumer, 1)
        assert first.offset == 0
        consumer.pause()
        resume = threading.Timer(0.3, consumer.resume)
        resume.start()
        got = list(islice(wait(consumer), COUNT - 1))  # type: ignore[call-overload]
        assert [record.offset for record in got] == list(range(1, len(got) + 1))
        assert got
        resume.join()


def test_positions_commits_and_lag_know_what_is_paused(daemon: Daemon, filled: str) -> None:
    paused = -1
    with Consumer(daemon.address, filled, group=filled) as member:
        for record in member:
            if paused < 0 and record.offset == 10:
                paused = record.partition
                member.pause((filled, paused))
                assert member.position(filled, paused) == 11
                assert member.lag()[TopicPartition(filled, paused)] == COUNT - 11
            if paused >= 0 and record.partition != paused and record.offset == COUNT - 1:
                break
        assert member.poll(timeout_ms=50) == []
    with Consumer(daemon.address, filled, group=filled) as member:
        found = member.committed((filled, paused), (filled, 1 - paused))
        assert {tp.partition: at.offset for tp, at in found.items()} == {
            paused: 11,
            1 - paused: COUNT,
        }


def test_what_is_sought_while_it_is_paused_goes_on_there(daemon: Daemon, filled: str) -> None:
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        consumer.assign([(filled, 0)])
        for record in consumer:
            if record.offset == 30:
                consumer.pause()
                consumer.seek(filled, 0, COUNT - 2)
                consumer.resume()
            elif record.offset > 30:
                assert record.offset >= COUNT - 2
        assert consumer.position(filled, 0) == COUNT


def test_the_rest_of_what_a_loop_has_begun_comes_as_a_batch(daemon: Daemon, filled: str) -> None:
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        consumer.assign([(filled, 0)])
        assert len(list(islice(consumer, 300))) == 300
        offsets = [offset for batch in consumer.batches() for offset in batch.offsets()]
        assert offsets == list(range(300, COUNT))


def test_what_is_read_already_goes_on_where_it_is_beside_what_is_assigned_anew(
    daemon: Daemon, filled: str
) -> None:
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        consumer.assign([(filled, 0)])
        seen = list(islice(consumer, 300))
        consumer.assign([(filled, 0), (filled, 1)])
        seen += consumer
        assert offsets_of(seen, 0) == offsets_of(seen, 1) == list(range(COUNT))


def test_what_is_paused_leaves_room_for_the_others_and_comes_when_it_is_resumed(
    daemon: Daemon, filled: str
) -> None:
    """Though it fills the buffer, and nobody takes it."""
    with Producer(daemon.address) as producer:
        producer.send_many(filled, numbers(COUNT), partition=0).result()
    with Consumer(daemon.address, prefetch_bytes=5_000, stop_at_end=True) as consumer:
        consumer.assign([(filled, 0)])
        seen = list(islice(consumer, 1))
        until(lambda: consumer._reading.fetching.prefetched.is_full)
        consumer.pause()
        consumer.assign([(filled, 0), (filled, 1)])
        for record in consumer:
            seen.append(record)
            if len(seen) == COUNT + 1:
                assert len(offsets_of(seen, 1)) == COUNT
                consumer.resume()
        assert offsets_of(seen, 0) == list(range(2 * COUNT))

"""Lost offsets and recreated topics, through every shell, against a real daemon."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import anyio
import pytest

from segbroker.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Gap,
    GapError,
    Producer,
    Record,
    TopicPartition,
    TopicRecreated,
)

from ..support.daemon import Daemon
from ..support.damage import TOPIC, with_a_lost_batch

Runner: TypeAlias = Callable[..., object]

GAP = Gap(TOPIC, 0, 10, 20, "corruption")
BEFORE, BEHIND = list(range(10)), list(range(20, 30))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with with_a_lost_batch(tmp_path_factory.mktemp("damaged") / "data") as daemon:
        yield daemon


def seen(items: list[Record | Gap]) -> list[int | Gap]:
    return [item if isinstance(item, Gap) else item.offset for item in items]


async def read_offsets(consumer: AsyncConsumer, into: list[int]) -> None:
    async for record in consumer:
        into.append(record.offset)  # noqa: PERF401 - the loop may end with an error


def test_iterating_yields_the_gap_between_the_records(damaged: Daemon) -> None:
    with Consumer(damaged.address, TOPIC, stop_at_end=True, on_gap="yield") as consumer:
        assert seen(list(consumer)) == [*BEFORE, GAP, *BEHIND]
        assert consumer.lost_counts == {TopicPartition(TOPIC, 0): 10}


def test_batches_yield_the_gap_between_them(damaged: Daemon) -> None:
    with Consumer(damaged.address, TOPIC, stop_at_end=True, on_gap="yield") as consumer:
        found = [b if isinstance(b, Gap) else b.values()[0] for b in consumer.batches()]
        assert found == [b"0", GAP, b"20"]
    with Consumer(damaged.address, TOPIC, stop_at_end=True, on_gap="yield") as consumer:
        rows = [b if isinstance(b, Gap) else b.to_arrow().num_rows for b in consumer.batches()]
        assert rows == [10, GAP, 10]


def test_polling_yields_the_gap_between_the_records(damaged: Daemon) -> None:
    with Consumer(damaged.address, TOPIC, on_gap="yield") as consumer:
        items: list[Record | Gap] = []
        while len(items) < 21:
            items += consumer.poll(7, 60_000)
        assert seen(items) == [*BEFORE, GAP, *BEHIND]


def test_a_gap_is_raised_once_and_the_next_loop_goes_on_behind_it(damaged: Daemon) -> None:
    with Consumer(damaged.address, TOPIC, stop_at_end=True) as consumer:
        records: list[int] = []
        with pytest.raises(GapError) as caught:
            records.extend(record.offset for record in consumer)
        assert caught.value.gap == GAP
        assert records == BEFORE
        assert consumer.position(TOPIC, 0) == 20
        assert [record.offset for record in consumer] == BEHIND


def test_what_is_wrong_behind_some_records_does_not_cost_a_poll_its_records(
    damaged: Daemon,
) -> None:
    with Consumer(damaged.address, TOPIC) as consumer:
        records: list[Record] = []
        gaps = []
        while len(records) < 20:
            try:
                records += consumer.poll(100, 60_000)
            except GapError as exc:
                gaps.append(exc.gap)
        assert seen([*records]) == [*BEFORE, *BEHIND]
        assert gaps == [GAP]


def test_a_gap_can_be_skipped_and_is_counted(damaged: Daemon) -> None:
    with Consumer(damaged.address, TOPIC, stop_at_end=True, on_gap="skip") as consumer:
        assert [record.offset for record in consumer] == [*BEFORE, *BEHIND]
        assert consumer.lost_counts == {TopicPartition(TOPIC, 0): 10}


def test_async_reading_is_told_the_same(damaged: Daemon, run: Runner) -> None:
    async def main() -> None:
        address = damaged.address
        async with AsyncConsumer(address, TOPIC, stop_at_end=True, on_gap="yield") as consumer:
            assert seen([item async for item in consumer]) == [*BEFORE, GAP, *BEHIND]
            assert consumer.lost_counts == {TopicPartition(TOPIC, 0): 10}
        async with AsyncConsumer(address, TOPIC, stop_at_end=True, on_gap="yield") as consumer:
            found = [b if isinstance(b, Gap) else len(b) async for b in consumer.batches()]
            assert found == [10, GAP, 10]
        async with AsyncConsumer(address, TOPIC, on_gap="yield") as consumer:
            items: list[Record | Gap] = []
            while len(items) < 21:
                items += await consumer.poll(7, 60_000)
            assert seen(items) == [*BEFORE, GAP, *BEHIND]
        async with AsyncConsumer(address, TOPIC, stop_at_end=True, on_gap="skip") as skipping:
            assert [r.offset async for r in skipping] == [*BEFORE, *BEHIND]

    run(main)


def test_async_reading_raises_a_gap_once(damaged: Daemon, run: Runner) -> None:
    async def main() -> None:
        async with AsyncConsumer(damaged.address, TOPIC, stop_at_end=True) as consumer:
            records: list[int] = []
            with pytest.raises(GapError) as caught:
                await read_offsets(consumer, records)
            assert caught.value.gap == GAP
            assert records == BEFORE
            assert [record.offset async for record in consumer] == BEHIND
        async with AsyncConsumer(damaged.address, TOPIC) as consumer:
            polled: list[Record] = []
            while len(polled) < 10:
                polled += await consumer.poll(100, 60_000)
            assert seen([*polled]) == BEFORE
            with pytest.raises(GapError):
                await consumer.poll(100, 60_000)

    run(main)


def test_a_gap_behind_what_a_loop_has_paused_comes_behind_it(damaged: Daemon) -> None:
    with Consumer(damaged.address, TOPIC, stop_at_end=True, on_gap="yield") as consumer:
        resume = threading.Timer(0.3, consumer.resume)
        items: list[Record | Gap] = []
        for item in consumer:
            items.append(item)
            if len(items) == 4:
                consumer.pause()
                resume.start()
        resume.join()
    assert seen(items) == [*BEFORE, GAP, *BEHIND]


def test_a_gap_is_not_raised_before_what_was_paused_in_front_of_it(damaged: Daemon) -> None:
    with Consumer(damaged.address, TOPIC, stop_at_end=True) as consumer:
        resume = threading.Timer(0.3, consumer.resume)
        offsets: list[int] = []
        with pytest.raises(GapError):  # noqa: PT012
            for record in consumer:
                offsets.append(record.offset)
                if len(offsets) == 4:
                    consumer.pause()
                    resume.start()
        assert offsets == BEFORE
        assert [record.offset for record in consumer] == BEHIND
        resume.join()


def test_a_gap_behind_what_an_async_loop_has_paused_comes_behind_it(
    damaged: Daemon, run: Runner
) -> None:
    async def main() -> None:
        async with (
            AsyncConsumer(damaged.address, TOPIC, stop_at_end=True, on_gap="yield") as consumer,
            anyio.create_task_group() as tasks,
        ):

            async def resume() -> None:
                await anyio.sleep(0.3)  # the loop comes to the end of what is not paused
                consumer.resume()

            items: list[Record | Gap] = []
            async for item in consumer:
                items.append(item)
                if len(items) == 4:
                    consumer.pause()
                    tasks.start_soon(resume)
        assert seen(items) == [*BEFORE, GAP, *BEHIND]

    run(main)


# A topic that was deleted and made anew.


def recreate(daemon: Daemon, topic: str, values: list[bytes]) -> None:
    with Admin(daemon.address) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, partitions=1)
    with Producer(daemon.address) as producer:
        producer.send_many(topic, values, partition=0).result(60)


def filled(daemon: Daemon, topic: str) -> None:
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(daemon.address) as producer:
        producer.send_many(topic, [b"old"] * 10, partition=0).result(60)


def test_a_recreated_topic_is_never_read_on_at_old_offsets(daemon: Daemon, topic: str) -> None:
    filled(daemon, topic)
    with Consumer(daemon.address, topic) as consumer:
        records = iter(consumer)
        assert [next(records).value for _ in range(10)] == [b"old"] * 10
        recreate(daemon, topic, [b"new%d" % i for i in range(15)])
        with pytest.raises(TopicRecreated, match="another one of this name") as caught:
            next(records)
        assert caught.value.gap.from_offset == 10
        assert [r.value for r in consumer.poll(15, 60_000)] == [b"new%d" % i for i in range(15)]


def test_a_recreated_topic_is_told_to_async_readers_too(
    daemon: Daemon, topic: str, run: Runner
) -> None:
    filled(daemon, topic)

    async def main() -> None:
        async with AsyncConsumer(daemon.address, topic, on_gap="yield") as consumer:
            items: list[Record | Gap] = []
            while len(items) < 10:
                items += await consumer.poll(100, 60_000)
            recreate(daemon, topic, [b"new"] * 15)
            while len(items) < 26:
                items += await consumer.poll(100, 60_000)
        assert items[10] == Gap(topic, 0, 10, 10, "recreated")
        assert seen(items[11:]) == list(range(15))

    run(main)


def filled_twice(daemon: Daemon, topic: str) -> None:
    """Two partitions, each of two batches of more than is made at a time."""
    with Admin(daemon.address) as admin:
        admin.create_topic(topic, partitions=2)
    with Producer(daemon.address) as producer:
        for partition in (0, 1, 0, 1):
            producer.send_many(topic, [b"old"] * 1_000, partition=partition).result(60)


SMALLER = Gap("", 1, 2_000, 2_000, "recreated")


def check_first_partition(items: list[Record | Gap]) -> None:
    """What was fetched of the old topic, what was lost of it, and what the new one had when its end
    was looked at: its records may have come later."""
    found = of_partition(items, 0)
    (gap,) = (item for item in found if isinstance(item, Gap))
    assert gap == Gap("", 0, gap.from_offset, 2_000, "recreated")
    old = [*range(gap.from_offset), gap]
    assert found in (old, [*old, *range(5)])


def of_partition(items: list[Record | Gap], partition: int) -> list[int | Gap]:
    found = seen([item for item in items if item.partition == partition])
    return [item._replace(topic="") if isinstance(item, Gap) else item for item in found]


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_bounded_reading_ends_when_a_partition_it_has_begun_is_gone(
    daemon: Daemon, topic: str, is_paused: bool
) -> None:
    filled_twice(daemon, topic)
    items: list[Record | Gap] = []
    with Consumer(
        daemon.address, topic, stop_at_end=True, on_gap="yield", metadata_max_age_ms=100
    ) as consumer:
        for item in consumer:
            items.append(item)
            if (item.partition, len(of_partition(items, 1))) == (1, 30):
                if is_paused:
                    consumer.pause((topic, 1))
                recreate(daemon, topic, [b"new"] * 5)
                deadline = time.monotonic() + 60
                while len(consumer.assignment) > 1:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
    assert of_partition(items, 1) == [*range(2_000), SMALLER]
    check_first_partition(items)


def test_a_bounded_async_reading_ends_when_a_partition_it_has_begun_is_gone(
    daemon: Daemon, topic: str, run: Runner
) -> None:
    filled_twice(daemon, topic)
    items: list[Record | Gap] = []

    async def main() -> None:
        async with AsyncConsumer(
            daemon.address, topic, stop_at_end=True, on_gap="yield", metadata_max_age_ms=100
        ) as consumer:
            with anyio.fail_after(60):
                async for item in consumer:
                    items.append(item)
                    if (item.partition, len(of_partition(items, 1))) == (1, 30):
                        await anyio.to_thread.run_sync(recreate, daemon, topic, [b"new"] * 5)
                        while len(consumer.assignment) > 1:  # noqa: ASYNC110
                            await anyio.sleep(0.01)
        assert of_partition(items, 1) == [*range(2_000), SMALLER]
        check_first_partition(items)

    run(main)


def test_a_producer_goes_on_in_the_recreated_topic(daemon: Daemon, topic: str) -> None:
    filled(daemon, topic)
    with Producer(daemon.address, batch_bytes=500) as producer:
        for i in range(100):
            producer.send(topic, b"old%d" % i, partition=0)
        producer.flush(30)
        recreate(daemon, topic, [b"other"])
        deliveries = [producer.send(topic, b"new%d" % i, partition=0) for i in range(100)]
        producer.flush(30)
        assert [d.result().offset for d in deliveries] == list(range(1, 101))
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        assert [r.value for r in consumer] == [b"other", *(b"new%d" % i for i in range(100))]


def test_an_async_producer_goes_on_in_the_recreated_topic(
    daemon: Daemon, topic: str, run: Runner
) -> None:
    filled(daemon, topic)

    async def main() -> None:
        async with AsyncProducer(daemon.address) as producer:
            await (await producer.send(topic, b"old", partition=0))
            recreate(daemon, topic, [b"other"])
            assert (await (await producer.send(topic, b"new", partition=0))).offset == 1

    run(main)


# Below the log start.


def evicted(daemon: Daemon, topic: str) -> int:
    """Fill a topic until its limit has evicted something; the log start."""
    tp = TopicPartition(topic, 0)
    with Admin(daemon.address) as admin, Producer(daemon.address) as producer:
        limits = {"segment.bytes": "16384", "retention.records": "20"}
        admin.create_topic(topic, partitions=1, config=limits)
        for _ in range(300):
            producer.send_many(topic, [bytes(1_000)] * 10, partition=0).result(60)
            start = admin.offsets(topic, "start")[tp].offset
            if start:
                return start
            time.sleep(0.1)
    raise AssertionError("nothing was evicted")


def test_a_reader_behind_the_log_start_is_told_what_was_evicted(daemon: Daemon, topic: str) -> None:
    start = evicted(daemon, topic)
    with Consumer(daemon.address, on_gap="yield") as consumer:
        consumer.assign([(topic, 0)], start=0)
        gaps: list[Gap] = []
        while isinstance(item := consumer.poll(1, 60_000)[0], Gap):
            gaps.append(item)  # and another one where more is evicted meanwhile
        ends = [gap.to_offset for gap in gaps]
        assert [gap.from_offset for gap in gaps] == [0, *ends[:-1]]
        assert {gap.reason for gap in gaps} == {"cap"}
        assert start <= ends[-1] == item.offset
        assert consumer.lost_counts == {TopicPartition(topic, 0): ends[-1]}


def test_what_was_deleted_on_purpose_is_passed_over_in_silence(daemon: Daemon, topic: str) -> None:
    filled(daemon, topic)
    with Admin(daemon.address) as admin:
        admin.delete_records({(topic, 0): 4})
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        consumer.assign([(topic, 0)], start=1)
        assert [record.offset for record in consumer] == list(range(4, 10))
        assert consumer.lost_counts == {}

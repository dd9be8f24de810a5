"""Records of a large batch are made a part at a time: nobody who reads them can tell."""

import threading
import time

import anyio
import anyio.lowlevel
import pytest

from segbroker.client import AsyncConsumer, Consumer, Producer, Record

from ..support.daemon import Daemon
from .conftest import Run
from .test_async import numbers

COUNT = 1_000


@pytest.fixture
def filled(daemon: Daemon, topic: str) -> str:
    with Producer(daemon.address) as producer:
        producer.send_many(topic, numbers(COUNT), partition=0)
        for n in range(COUNT):
            headers = [("n", b"%d" % n)] * (n % 3)
            producer.send(topic, b"", partition=1, key=b"%d" % n, headers=headers)
        producer.flush()
    with Consumer(daemon.address, topic, stop_at_end=True) as consumer:
        assert max(map(len, consumer.batches())) > COUNT // 2, "larger than a part"
    return topic


def taken(count: int, consumer: Consumer) -> list[int]:
    offsets = []
    for record in consumer:
        offsets.append(record.offset)
        if len(offsets) == count:
            break
    return offsets


def test_loops_polls_and_seeks_take_turns_in_one_batch(daemon: Daemon, filled: str) -> None:
    with Consumer(daemon.address, stop_at_end=True) as consumer:
        consumer.assign([(filled, 0)])
        assert taken(300, consumer) == list(range(300))
        assert consumer.position(filled, 0) == 300
        assert [r.offset for r in consumer.poll(400, 60_000)] == list(range(300, 700))
        assert consumer.position(filled, 0) == 700
        consumer.seek(filled, 0, 10)
        assert taken(600, consumer) == list(range(10, 610))
        assert taken(COUNT, consumer) == list(range(610, COUNT))
        assert consumer.position(filled, 0) == COUNT


def test_keys_and_headers_stay_with_their_records(run: Run, daemon: Daemon, filled: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(daemon.address, stop_at_end=True) as consumer:
            consumer.assign([(filled, 1)])
            records = [record async for record in consumer]
        assert [
            Record(r.topic, r.partition, r.offset, 0, r.key, r.value, r.headers) for r in records
        ] == [
            Record(filled, 1, n, 0, b"%d" % n, b"", (("n", b"%d" % n),) * (n % 3))
            for n in range(COUNT)
        ]

    run(main)


def test_a_member_that_ends_within_a_batch_commits_what_it_went_past(
    daemon: Daemon, filled: str
) -> None:
    with Consumer(daemon.address, filled, group=filled) as member:
        seen: dict[int, int] = {}
        for record in member:
            seen[record.partition] = record.offset
            if record.offset == 600:
                break
    with Consumer(daemon.address, filled, group=filled) as member:
        # The record in hand was not gone past; of the other one, which was read before it, all was.
        expected = {p: 600 if offset == 600 else COUNT for p, offset in seen.items()}
        found = member.committed(*((filled, p) for p in seen))
        assert {tp.partition: committed.offset for tp, committed in found.items()} == expected


def work() -> None:
    """Of whoever reads: it does not give way either."""
    time.sleep(0.001)


def test_an_async_loop_gives_way_within_a_batch(run: Run, daemon: Daemon, filled: str) -> None:
    async def main() -> None:
        seen = 0
        async with AsyncConsumer(daemon.address) as consumer:
            consumer.assign([(filled, 0)])
            with anyio.CancelScope() as scope:
                async for _ in consumer:
                    seen += 1
                    scope.cancel()
                    work()
            assert scope.cancelled_caught
            assert seen < COUNT
            assert await consumer.position(filled, 0) == seen

    run(main)


def test_a_poll_that_does_not_wait_returns_what_is_there(
    run: Run, daemon: Daemon, filled: str
) -> None:
    async def main() -> None:
        async with AsyncConsumer(daemon.address, filled) as consumer:
            await consumer.position(filled, 0)
            records: list[Record] = []
            with anyio.fail_after(60):
                while not records:
                    await anyio.lowlevel.checkpoint()
                    records = await consumer.poll(timeout_ms=0)
            assert records[0].offset == 0

    run(main)


def test_what_is_resumed_while_somebody_waits_goes_on_where_it_was(
    daemon: Daemon, topic: str
) -> None:
    with Producer(daemon.address) as producer:
        for first in range(0, COUNT, COUNT // 4):  # batches
            producer.send_many(topic, numbers(COUNT)[first : first + COUNT // 4], partition=0)
            producer.flush()
    with Consumer(daemon.address, topic) as consumer:
        offsets = [record.offset for record in consumer.poll(10, 60_000)]
        consumer.pause()
        resume = threading.Timer(0.3, consumer.resume)
        resume.start()
        while len(offsets) < COUNT:
            offsets += [record.offset for record in consumer.poll(COUNT, 60_000)]
            assert offsets == list(range(len(offsets)))
        resume.join()

"""What producers promise of their records, whatever cuts their calls short."""

from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from itertools import pairwise
from random import Random
from typing import Final

import anyio

from segbroker.client import (
    AsyncProducer,
    BusyError,
    Consumer,
    Record,
    RecordMetadata,
)
from segbroker.client.async_producer import AsyncDelivery

from .cut_short import Cut, Cutter, Faults, World, close, nothing_left

STEPS: Final = 25


class Sent:
    """What became of the records, by their values."""

    def __init__(self) -> None:
        self.never: set[bytes] = set()
        self.perhaps: set[bytes] = set()
        self.taken: dict[bytes, AsyncDelivery] = {}
        self.acknowledged: dict[bytes, RecordMetadata] = {}
        self.delivered: set[bytes] = set()
        # In the order of their sending, of each task and partition that was chosen.
        self.in_order: dict[tuple[int, int], list[bytes]] = defaultdict(list)

    def check(self, records: list[Record]) -> None:
        found = Counter(record.value for record in records)
        twice = [value for value, count in found.items() if count > 1]
        assert not twice, f"there twice: {twice}"
        there = {record.value: record for record in records}
        assert not self.never & there.keys(), "sent by who was cancelled in send"
        assert there.keys() <= self.perhaps | self.taken.keys(), "sent by nobody"
        for value, where in self.acknowledged.items():
            assert value in there, f"acknowledged, and not there: {value!r}"
            record = there[value]
            assert (record.partition, record.offset) == (where.partition, where.offset)
        missing = self.delivered - there.keys()
        assert not missing, f"flushed, and not there: {missing}"
        for values in self.in_order.values():
            offsets = [there[value].offset for value in values if value in there]
            assert all(one < other for one, other in pairwise(offsets)), "out of order"


async def _work(
    number: int, producer: AsyncProducer, topic: str, cutter: Cutter, sent: Sent
) -> None:
    random = cutter.random
    for step in range(STEPS):
        value = b"%d-%d" % (number, step)
        partition = random.choice([None, 0, 1])
        deed = random.choice(["send", "send", "send", "nowait", "many", "flush", "wait", "ask"])
        if deed == "send":
            headers = random.choice([None, None, [("h", b"v")]])
            key = random.choice([None, None, b"k"])
            got = await cutter.run(
                f"send {value!r}",
                partial(producer.send, topic, value, key=key, headers=headers, partition=partition),
            )
            if isinstance(got, AsyncDelivery):
                sent.taken[value] = got
                if partition is not None:
                    sent.in_order[number, partition].append(value)
            else:
                sent.never.add(value)
        elif deed == "nowait":
            with suppress(BusyError):
                sent.taken[value] = producer.send_nowait(topic, value, partition=partition)
                if partition is not None:
                    sent.in_order[number, partition].append(value)
        elif deed == "many":
            values = [value + b"-%d" % each for each in range(random.randrange(1, 200))]
            many = await cutter.run(
                f"send_many {value!r}",
                partial(producer.send_many, topic, values, partition=partition),
            )
            if isinstance(many, type):
                sent.perhaps |= set(values)
            else:
                sent.taken |= dict(zip(values, many, strict=True))
            if partition is not None:
                sent.in_order[number, partition] += values
        elif deed == "flush":
            before = dict(sent.taken)
            if await cutter.run("flush", producer.flush) is not Cut:
                for value, delivery in before.items():
                    assert delivery.done, "flushed, and still under way"
                    sent.acknowledged[value] = delivery.metadata()
        elif deed == "wait" and sent.taken:
            value = random.choice(list(sent.taken))
            delivery = sent.taken[value]

            async def wait(delivery: AsyncDelivery = delivery) -> RecordMetadata:
                return await delivery

            where = await cutter.run(f"await {value!r}", wait)
            if isinstance(where, RecordMetadata):
                sent.acknowledged[value] = where
        else:
            count = await cutter.run("partitions_for", lambda: producer.partitions_for(topic))
            assert count in (2, Cut)


async def producer_story(world: World, topic: str, seed: int, faults: Faults) -> Cutter:
    """Some tasks that share a producer, over several lives of it."""
    random = Random(seed)
    cutter = Cutter(random)
    sent = Sent()
    async with faults.happen():
        for life in range(2):
            producer = AsyncProducer(
                world.address,
                linger_ms=random.choice([0, 5, 100]),
                batch_bytes=random.choice([500, 4_000]),
                buffer_bytes=random.choice([4_000, 32 << 20]),
                request_timeout_ms=10_000,
            )
            async with nothing_left(world):
                if await cutter.run("open", producer.__aenter__) is Cut:
                    await producer.aclose()
                    continue
                before = set(sent.taken)
                async with anyio.create_task_group() as tasks:
                    for number in range(3):
                        tasks.start_soon(_work, 3 * life + number, producer, topic, cutter, sent)
                if await close(cutter, producer):
                    sent.delivered |= sent.taken.keys() - before
    with Consumer(world.address, topic, stop_at_end=True) as consumer:
        sent.check(list(consumer))
    return cutter


class Transacted:
    """What became of transactions, each by its values."""

    def __init__(self) -> None:
        self.number = 0
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.perhaps: list[set[bytes]] = []

    async def one_more(self, producer: AsyncProducer, topic: str, cutter: Cutter) -> None:
        random = cutter.random
        self.number += 1
        values = [b"%d-%d" % (self.number, each) for each in range(random.randrange(1, 40))]
        fails = random.random() < 0.2
        is_at_end = False

        async def work() -> None:
            nonlocal is_at_end
            async with producer.transaction():
                await producer.send_many(topic, values[1:])
                await producer.send(topic, values[0])
                if random.random() < 0.3:
                    await producer.flush()
                if fails:
                    raise ZeroDivisionError
                is_at_end = True

        try:
            is_cut = await cutter.run("transaction", work) is Cut
        except ZeroDivisionError:
            is_cut = True
        if not is_cut:
            self.committed |= set(values)
        elif is_at_end:
            self.perhaps.append(set(values))
        else:
            self.aborted |= set(values)

    def check(self, records: list[Record]) -> None:
        found = Counter(record.value for record in records)
        assert all(count == 1 for count in found.values()), "there twice"
        assert not self.committed - found.keys(), "committed, and not there"
        assert not self.aborted & found.keys(), "aborted, and there"
        for values in self.perhaps:
            assert values <= found.keys() or not values & found.keys(), "there by half"


async def transaction_story(world: World, topic: str, seed: int, faults: Faults) -> Cutter:
    """One transaction after another: each is there as a whole, or nothing of it."""
    random = Random(seed)
    cutter = Cutter(random)
    transacted = Transacted()
    async with faults.happen():
        for _ in range(2):
            producer = AsyncProducer(
                world.address,
                transactional_id=topic,
                linger_ms=random.choice([0, 5]),
                batch_bytes=500,
                request_timeout_ms=10_000,
            )
            async with nothing_left(world):
                if await cutter.run("open", producer.__aenter__) is Cut:
                    await producer.aclose()
                    continue
                for _ in range(8):
                    await transacted.one_more(producer, topic, cutter)
                await close(cutter, producer)
    # What is open is of nobody any more: the next one of the name ends it.
    async with AsyncProducer(world.address, transactional_id=topic) as producer:
        await producer.init_transactions()
    with Consumer(world.address, topic, stop_at_end=True) as consumer:
        transacted.check(list(consumer))
    return cutter

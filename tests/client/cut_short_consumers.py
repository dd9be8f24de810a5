"""What consumers promise of the records that they hand out, whatever cuts their calls short."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Final, TypeVar

import anyio

from segbroker.client import (
    AcknowledgeFailed,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncShareConsumer,
    ConsumedBatch,
    Producer,
    Record,
    ShareRecord,
    TopicPartition,
)

from .cut_short import END_S, Cut, Cutter, Faults, World, close, nothing_left

T = TypeVar("T")
Place = tuple[int, int]
"""A record: its partition and offset."""

COUNT: Final = 300
"""Records of each of the two partitions."""
STEPS: Final = 25


def fill(world: World, topic: str, random: Random) -> None:
    """In batches of many sizes."""
    with Producer(world.address, linger_ms=60_000) as producer:
        for partition in (0, 1):
            number = 0
            while number < COUNT:
                size = min(random.choice([1, 3, 50]), COUNT - number)
                values = [b"%d" % each for each in range(number, number + size)]
                producer.send_many(topic, values, partition=partition)
                producer.flush()
                number += size


class Reader:
    """What a reader was handed: of each partition one record after another."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.next: dict[int, int] = {0: 0, 1: 0}
        # Of a member: below this it does not begin again.
        self.committed: dict[int, int] = {0: 0, 1: 0}
        # ... and what it has in hand, which is not committed unless it says so.
        self.in_hand: dict[int, int] = {}
        # Partitions that it was given anew, and has no record of yet.
        self.given: set[int] = {0, 1}

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self.given |= {tp.partition for tp in partitions}

    def shown(self, records: Iterable[Record]) -> None:
        self.in_hand = {}
        for record in records:
            where, offset = record.partition, record.offset
            if offset != self.next[where]:
                assert where in self.given, f"{where}: {offset} behind {self.next[where] - 1}"
                assert self.committed[where] <= offset <= self.next[where], (
                    f"{where}: begins at {offset}, committed was {self.committed[where]}, handed"
                    f" out before {self.next[where]}"
                )
            self.given.discard(where)
            assert record.value == b"%d" % offset
            self.in_hand.setdefault(where, offset)
            self.next[where] = offset + 1

    def gone_past(self, partition: int) -> int:
        return self.in_hand.get(partition, self.next[partition])

    @property
    def is_at_end(self) -> bool:
        return all(position >= COUNT for position in self.next.values())

    async def step(self, consumer: AsyncConsumer, topic: str, cutter: Cutter) -> None:
        """Do something with it."""
        random = self.random
        is_member = bool(consumer.assignment) and self.is_member
        deeds = ["poll", "poll", "next", "batch", "position", "ask", "pause", "resume"]
        deed = random.choice([*deeds, *["commit", "committed"] * is_member])
        if deed == "poll":
            count, wait_ms = random.choice([1, 7, 500]), random.choice([0, 5, 200])
            got = await cutter.run("poll", lambda: consumer.poll(count, wait_ms))
            self.shown([] if isinstance(got, type) else got)
        elif deed in ("next", "batch"):
            consumer.resume()
            if self.is_at_end:
                return
            await self._next(consumer, cutter, in_batches=deed == "batch")
        elif deed == "position":
            if (topic, 0) in consumer.assignment:
                await cutter.run("positions", consumer.positions)
        elif deed == "ask":
            ends = await cutter.run("end_offsets", lambda: consumer.end_offsets((topic, 1)))
            assert isinstance(ends, type) or ends == {(topic, 1): COUNT}
        elif deed == "pause":
            consumer.pause()
        elif deed == "resume":
            consumer.resume()
        elif deed == "commit":
            before = dict(self.next)
            owned = {tp.partition for tp in consumer.assignment} - self.given
            if await cutter.run("commit", consumer.commit) is not Cut:
                for partition in owned - self.given:
                    self.committed[partition] = before[partition]
            self.in_hand = {}  # perhaps
        else:
            await cutter.run("committed", lambda: consumer.committed((topic, 0)))

    is_member = False

    async def _next(self, consumer: AsyncConsumer, cutter: Cutter, *, in_batches: bool) -> None:
        if in_batches:
            batch = await cutter.run("next batch", lambda: anext(consumer.batches()))
            self.shown(batch.records() if isinstance(batch, ConsumedBatch) else [])
        else:
            record = await cutter.run("next", lambda: anext(aiter(consumer)))
            self.shown([record] if isinstance(record, Record) else [])


async def reader_story(world: World, topic: str, seed: int, faults: Faults) -> Cutter:
    """One that reads without a group: each record once."""
    random = Random(seed)
    cutter, reader = Cutter(random), Reader(random)
    fill(world, topic, random)
    async with faults.happen(), nothing_left(world):
        consumer = AsyncConsumer(
            world.address,
            topic,
            prefetch_bytes=random.choice([100, 16 << 20]),
            request_timeout_ms=10_000,
        )
        if await cutter.run("open", consumer.__aenter__) is Cut:
            await consumer.aclose()
            return cutter
        for _ in range(STEPS):
            await reader.step(consumer, topic, cutter)
        consumer.resume()
        while not reader.is_at_end:
            reader.shown(await consumer.poll())
        await close(cutter, consumer)
    return cutter


async def member_story(world: World, topic: str, seed: int, faults: Faults) -> Cutter:
    """A member of a group, over several lives: no record is left out, and none in hand is committed
    without its saying so."""
    random = Random(seed)
    cutter, reader = Cutter(random), Reader(random)
    reader.is_member = True
    fill(world, topic, random)
    async with faults.happen():
        for life in range(3):
            consumer = AsyncConsumer(
                world.address,
                topic,
                group=topic,
                on_assigned=reader.assigned,
                prefetch_bytes=random.choice([100, 16 << 20]),
                commit_interval_ms=random.choice([10, 5_000]),
                session_timeout_ms=6_000,
                heartbeat_interval_ms=random.choice([50, 1_000]),
                request_timeout_ms=10_000,
            )
            async with nothing_left(world):
                if await cutter.run("open", consumer.__aenter__) is Cut:
                    await consumer.aclose()
                    continue
                for _ in range(STEPS):
                    await reader.step(consumer, topic, cutter)
                consumer.resume()
                while life == 2 and not reader.is_at_end:
                    reader.shown(await consumer.poll())
                await close(cutter, consumer)
            async with AsyncAdmin(world.address) as admin:
                committed = await admin.committed(topic)
            for tp, where in committed.items():
                low, high = reader.committed[tp.partition], reader.gone_past(tp.partition)
                assert low <= where.offset <= high, (tp, low, where.offset, high)
                reader.committed[tp.partition] = where.offset
            reader.in_hand = {}
            reader.given = {0, 1}
    return cutter


class Sharer:
    """What a member of a share group was handed, and what it said of that."""

    def __init__(self, cutter: Cutter) -> None:
        self.cutter = cutter
        self.seen: set[Place] = set()
        # What it has said the broker has taken: it does not come again.
        self.over: set[Place] = set()
        self.begin(explicit=False)

    def begin(self, *, explicit: bool) -> None:
        """A new life of it."""
        self._is_explicit = explicit
        self._in_hand: list[ShareRecord] = []
        self._said: set[Place] = set()

    def shown(self, records: Iterable[ShareRecord]) -> None:
        for record in records:
            place = _place(record)
            assert place not in self.over, f"committed, and there again: {place}"
            assert record.value == b"%d" % record.offset
            self.seen.add(place)
            self._said.discard(place)
            self._in_hand.append(record)

    async def step(self, consumer: AsyncShareConsumer) -> None:
        """Do something with it."""
        random = self.cutter.random
        deed = random.choice(["poll", "poll", "next", "say", "say", "commit"])
        if deed == "poll":
            count, wait_ms = random.choice([1, 7, 500]), random.choice([0, 5, 200])
            self._go_past()
            got = await self._run("poll", lambda: consumer.poll(count, wait_ms))
            self.shown([] if got is None else got)
        elif deed == "next" and len(self.seen) < 2 * COUNT:
            self._go_past()
            with anyio.move_on_after(1):
                record = await self._run("next", lambda: anext(aiter(consumer)))
                self.shown([] if record is None else [record])
        elif deed == "say":
            random.shuffle(self._in_hand)
            for _ in range(random.randrange(len(self._in_hand) + 1)):
                self._say(consumer, self._in_hand.pop())
        elif deed == "commit":
            self._go_past()
            said = set(self._said)
            if await self._run("commit", lambda: _committed(consumer)):
                self.over |= said & self._said
            self._said.clear()

    def _go_past(self) -> None:
        if not self._is_explicit:
            self._said |= set(map(_place, self._in_hand))
            self._in_hand = []

    def _say(self, consumer: AsyncShareConsumer, record: ShareRecord) -> None:
        random = self.cutter.random
        say = random.choice([consumer.accept, consumer.release, consumer.reject])
        with suppress(AcknowledgeFailed):
            say(record)
            if say != consumer.release:
                self._said.add(_place(record))

    async def _run(self, name: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """None: it was cancelled, or heard that something does not hold."""
        try:
            got = await self.cutter.run(name, work)
        except AcknowledgeFailed as exc:
            self._said -= {(each.partition, at) for each in exc.failed for at in each.offsets}
            return None
        return None if isinstance(got, type) else got


def _place(record: ShareRecord) -> Place:
    return record.partition, record.offset


async def _committed(consumer: AsyncShareConsumer) -> bool:
    await consumer.commit()
    return True


async def share_story(world: World, topic: str, seed: int, faults: Faults) -> Cutter:
    """A member of a share group, over several lives: what was said of a record, and taken, holds;
    and each is handed out."""
    random = Random(seed)
    cutter = Cutter(random)
    sharer = Sharer(cutter)
    fill(world, topic, random)
    with Admin(world.address) as admin:
        admin.alter_share_offsets(topic, {(topic, 0): 0, (topic, 1): 0})
    async with faults.happen():
        for _ in range(3):
            explicit = random.random() < 0.5
            sharer.begin(explicit=explicit)
            consumer = AsyncShareConsumer(
                world.address,
                topic,
                group=topic,
                explicit=explicit,
                acquire=random.choice(["records", "batches"]),
                acquire_count=random.choice([3, 500]),
                acknowledge_interval_ms=random.choice([10, 5_000]),
                request_timeout_ms=10_000,
            )
            async with nothing_left(world):
                if await cutter.run("open", consumer.__aenter__) is Cut:
                    await consumer.aclose()
                    continue
                for _ in range(STEPS):
                    await sharer.step(consumer)
                with suppress(AcknowledgeFailed):
                    await close(cutter, consumer)
    sharer.begin(explicit=False)
    # Nobody who is gone keeps a record.
    with anyio.fail_after(END_S):
        async with AsyncShareConsumer(world.address, topic, group=topic) as consumer:
            while len(sharer.seen) < 2 * COUNT:
                sharer.shown(await consumer.poll())
    return cutter

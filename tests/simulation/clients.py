"""Clients that work and write down what they did: the real ones, on simulated sockets.

A producer may be broken off in the middle and begin again under another name; a consumer goes on
where it was under the same one.  What a client is told in errors is not the matter here: it goes
on, and the history says what it got.

Values: `<producer>/<partition>/<number>/` and filling made from that, so that a wrong byte is a
foreign record.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import trio

from segbroker.client import AsyncAdmin, AsyncConsumer, AsyncProducer
from segbroker.client.async_producer import AsyncDelivery
from segbroker.client.errors import SegbrokerError
from segbroker.client.producer_batch import PartitionQueue
from segbroker.client.producing import Producing

from .history import History, Key
from .network import BROKER
from .plan import Consumer, Plan, Producer, Topic
from .removed import Removed
from .world import World

BOOTSTRAP = f"{BROKER[0]}:{BROKER[1]}"
# Every call of a client has a deadline of its own; this is far beyond all of them.
CALL_LIMIT_S = 200.0
_FILLING = b"0123456789abcdef" * 64


def value_of(producer: str, partition: int, number: int, size: int) -> bytes:
    head = f"{producer}/{partition}/{number}/".encode()
    return head + _FILLING[number % 16 : number % 16 + max(0, size - len(head))]


def raise_others(group: BaseExceptionGroup[BaseException]) -> None:
    """Of what a block of a client's raised, whatever is no error that clients tell of."""
    others = group.split(SegbrokerError)[1]
    if others is not None:
        raise others from None


def hasty() -> AbstractContextManager[object]:
    """Idempotent producers are as others': what is behind the first batch does not wait for it."""
    careful = Producing._in_flight_max

    def most(self: Producing, queue: PartitionQueue) -> int:
        if queue.known_as is None and self.settings.idempotent and not queue.failures:
            return self.settings.in_flight_count
        return careful(self, queue)

    return patch.object(Producing, "_in_flight_max", most)


class Clients:
    """All clients of a run."""

    def __init__(self, world: World, plan: Plan, history: History, removed: Removed) -> None:
        self.world = world
        self.plan = plan
        self.history = history
        self.removed = removed
        self.random = world.stream("workload")
        self.positions: dict[tuple[str, Key], int] = {}
        self.acked = 0
        self.reads = 0
        # Partitions that topics have been given so far.
        self.partitions = {topic.name: topic.partitions for topic in plan.topics}
        self.may_grow = any(kind == "grow" for _, kind in plan.admin.steps)

    async def limited(self, what: str, call: Callable[[], Awaitable[object]]) -> object:
        """Make a call that has a deadline of its own; not to come back is a violation."""
        with trio.move_on_after(CALL_LIMIT_S):
            return await call()
        self.world.violation(f"{what} has not come back after {CALL_LIMIT_S} s")
        return None

    # Producers

    async def produce(self, spec: Producer) -> None:
        """All lives of one producer."""
        left = spec.records
        for life in range(spec.lives):
            name = f"{spec.name}.{life}"
            share = left if life + 1 == spec.lives else self.random.randint(0, left)
            left -= share
            try:
                with trio.CancelScope() as scope:
                    if life + 1 < spec.lives:
                        scope.deadline = trio.current_time() + self.random.uniform(0.05, 2.0)
                    await self.limited(name, lambda n=name, s=share: self._life(spec, n, s))  # type: ignore[misc]
            except SegbrokerError as exc:
                self.world.trace("producer_ended", name, type(exc).__name__)
            except BaseExceptionGroup as group:
                raise_others(group)
                self.world.trace("producer_ended", name, "group")

    async def _life(self, spec: Producer, name: str, count: int) -> None:
        async with (
            AsyncProducer(
                BOOTSTRAP,
                client_id=name,
                idempotent=spec.idempotent,
                linger_ms=spec.linger_ms,
                batch_bytes=spec.topic.segment_bytes // 2,
                delivery_timeout_ms=spec.delivery_timeout_ms,
                request_timeout_ms=spec.request_timeout_ms,
            ) as producer,
            trio.open_nursery() as waiting,
        ):
            number = 0
            while number < count:
                partition = self.random.randrange(spec.topic.partitions)
                key = (spec.topic.name, partition)
                size = min(count - number, self.random.randint(2, 12) if spec.many else 1)
                values = [
                    value_of(name, partition, number + n, spec.value_bytes) for n in range(size)
                ]
                number += size
                for value in values:
                    self.history.sent(name, key, value, idempotent=spec.idempotent)
                    self.world.trace("sent", name, partition, number)
                chosen = partition if spec.topic.partitions > 1 or self.may_grow else None
                if spec.many:
                    many = await producer.send_many(key[0], values, partition=chosen)
                    deliveries = list(many)
                else:
                    deliveries = [await producer.send(key[0], values[0], partition=chosen)]
                for value, delivery in zip(values, deliveries, strict=True):
                    waiting.start_soon(self._delivered, key, value, delivery)
                if spec.pause_s:
                    await trio.sleep(self.random.uniform(0, spec.pause_s * 2))

    async def _delivered(self, key: Key, value: bytes, delivery: AsyncDelivery) -> None:
        try:
            metadata = await delivery
        except SegbrokerError as exc:
            self.world.trace("undelivered", value[:20], type(exc).__name__)
        else:
            self.acked += 1
            self.history.acked(key, value, metadata.offset)
            self.world.trace("acked", value[:20], metadata.offset)
        batch, _ = delivery.place()
        if batch.halves is None:
            self.history.sent_by_key[key][value].batch = batch

    # Consumers

    async def consume(self, spec: Consumer, until: Callable[[], bool]) -> None:
        """All lives of one consumer; the last one goes on until `until`."""
        for life in range(spec.lives):
            last = life + 1 == spec.lives
            deadline = trio.current_time() + self.random.uniform(0.1, 2.0)
            while not until():
                try:
                    with trio.CancelScope() as scope:
                        if not last:
                            scope.deadline = deadline
                        await self._reads(spec, until)
                except SegbrokerError as exc:
                    self.world.trace("consumer_failed", spec.name, type(exc).__name__)
                    await trio.sleep(0.05)
                except BaseExceptionGroup as group:
                    raise_others(group)
                if not last and trio.current_time() >= deadline:
                    break

    async def _reads(self, spec: Consumer, until: Callable[[], bool]) -> None:
        async with AsyncConsumer(
            BOOTSTRAP,
            client_id=spec.name,
            fetch_wait_ms=spec.fetch_wait_ms,
            prefetch_bytes=spec.prefetch_bytes,
            fetch_partition_bytes=spec.prefetch_bytes,
            # Beyond the longest poll: a client cuts off what takes longer.
            request_timeout_ms=spec.request_timeout_ms + 2 * spec.fetch_wait_ms,
            api_timeout_ms=20_000,
            metadata_max_age_ms=3_000,
        ) as consumer:
            topic = spec.topic.name
            for partition in range(spec.topic.partitions):
                tp = (topic, partition)
                position = self.positions.get((spec.name, tp))
                consumer.assign(
                    [*consumer.assignment, tp], start="start" if position is None else position
                )
            while not until():
                try:
                    for record in await consumer.poll(max_records=20, timeout_ms=1_000):
                        self._read(spec, (topic, record.partition), record.offset, record.value)
                except SegbrokerError as exc:
                    self.world.trace("poll_failed", spec.name, type(exc).__name__, str(exc)[:80])
                    if type(exc).__name__ == "OffsetOutOfRange":
                        # Below the start, or the topic is another one: begin again.
                        for partition in range(spec.topic.partitions):
                            await self._restart(spec, consumer, (topic, partition))
                    await trio.sleep(0.02)
                if spec.pause_s:
                    await trio.sleep(self.random.uniform(0, spec.pause_s * 2))

    async def _restart(self, spec: Consumer, consumer: AsyncConsumer, tp: Key) -> None:
        start = (await consumer.beginning_offsets(tp))[tp]  # type: ignore[index]
        position = self.positions.get((spec.name, tp), 0)
        if start > position or spec.topic.churned:
            self.world.trace("moved", spec.name, tp[1], position, start)
            consumer.seek(*tp, start)

    def _read(self, spec: Consumer, key: Key, offset: int, value: bytes | None) -> None:
        assert value is not None, "no tombstones are sent"
        self.reads += 1
        self.world.trace("read", spec.name, key[1], offset, value[:20])
        self.history.read(spec.name, key, offset, value)
        self.positions[spec.name, key] = offset + 1

    # Administration

    async def administrate(self) -> None:
        """What the plan says, at its times."""
        plain = [topic for topic in self.plan.topics if topic.use == "plain"]
        for time, kind in self.plan.admin.steps:
            await trio.sleep_until(time)
            topic = self.random.choice(plain)
            try:
                async with AsyncAdmin(BOOTSTRAP, api_timeout_ms=20_000) as admin:
                    await self.limited(kind, lambda k=kind, a=admin, t=topic: self._admin(k, a, t))  # type: ignore[misc]
            except SegbrokerError as exc:
                self.world.trace("admin_failed", kind, type(exc).__name__, str(exc)[:60])
            except BaseExceptionGroup as group:
                raise_others(group)

    async def change_classes(self) -> None:
        """Have topics become of other classes, as the plan says."""
        for time, name, durability in self.plan.class_changes:
            await trio.sleep_until(time)
            self.world.trace("class", name, durability)
            try:
                async with AsyncAdmin(BOOTSTRAP, api_timeout_ms=20_000) as admin:
                    change = admin.alter_topic_config
                    await self.limited(
                        "change of a class",
                        lambda n=name, d=durability, c=change: c(n, {"durability": d}),  # type: ignore[misc]
                    )
            except SegbrokerError as exc:
                self.world.trace("class_not_changed", name, type(exc).__name__, str(exc)[:60])
            except BaseExceptionGroup as group:
                raise_others(group)

    async def _admin(self, kind: str, admin: AsyncAdmin, topic: Topic) -> None:
        self.world.trace("admin", kind, topic.name)
        match kind:
            case "create":
                name = f"x{self.random.randint(0, 3)}"
                await admin.create_topic(name, partitions=self.random.randint(1, 3))
            case "describe":
                await admin.describe_topic(topic.name)
            case "alter":
                value = str(self.random.choice((1024, 4096, 16384)))
                if int(value) >= topic.segment_bytes:
                    await admin.alter_topic_config(topic.name, {"segment.bytes": value})
            case "grow":
                count = self.partitions[topic.name] + 1
                await admin.create_partitions(topic.name, count)
                self.partitions[topic.name] = count
            case "offsets":
                for tp, found in (await admin.offsets(topic.name, "start")).items():
                    if not topic.churned:
                        self.history.saw_start((tp.topic, tp.partition), found.offset)
            case "delete_records":
                for partition in range(topic.partitions):
                    key = (topic.name, partition)
                    ends = (await admin.offsets(topic.name, "end"))[key]  # type: ignore[index]
                    before = self.random.randint(0, max(0, ends.offset))
                    self.history.asked_delete(key, before)
                    starts = await admin.delete_records({key: before})
                    self.history.saw_start(key, starts[key])  # type: ignore[index]
            case "churn":
                for churned in self.plan.topics:
                    if churned.churned:
                        await admin.delete_topic(churned.name)
                        self.removed.deleted(churned.name)
                        await admin.create_topic(
                            churned.name, partitions=churned.partitions, config=churned.config
                        )

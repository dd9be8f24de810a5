"""Who writes, and what becomes of the topics meanwhile."""

from collections.abc import Callable
from random import Random
from typing import Final
from uuid import UUID

import trio

from segbroker.client import AsyncAdmin, AsyncProducer
from segbroker.client.errors import SegbrokerError

from ..simulation.clients import BOOTSTRAP, raise_others
from ..simulation.world import World
from .plan import Plan
from .written import State, Topic, Written

QUICK_COUNT: Final = 150
"""Behind so many records the writer takes its time."""


class Aborted(Exception):
    """The writer changes its mind."""


class Topics:
    """All topics of a run."""

    def __init__(
        self, world: World, plan: Plan, written: Written, id_of: Callable[[str], UUID | None]
    ) -> None:
        """id_of: which topic the broker has by a name."""
        self._world = world
        self._plan = plan
        self._written = written
        self._id_of = id_of
        self._random: Random = world.stream("topics")
        self._locks = {name: trio.Lock() for name in plan.partitions}
        self._partitions = dict(plan.partitions)
        self._count = 0
        self.is_over = False

    async def make(self) -> None:
        """All, at the beginning."""
        for name in self._partitions:
            await self._make(name)

    async def _make(self, name: str) -> None:
        async with AsyncAdmin(BOOTSTRAP, api_timeout_ms=20_000) as admin:
            await admin.create_topic(name, partitions=self._partitions[name])
        topic_id = self._id_of(name)
        assert topic_id is not None
        self._written.made(name, topic_id)
        self._world.trace("made", name, self._partitions[name])

    # Records

    async def write(self) -> None:
        """Until it is over."""
        while not self.is_over:
            try:
                await self._write()
            except SegbrokerError as exc:
                self._world.trace("writer_ended", type(exc).__name__)
            except BaseExceptionGroup as group:
                raise_others(group)
            await trio.sleep(0.05)

    async def _write(self) -> None:
        async with (
            AsyncProducer(BOOTSTRAP, linger_ms=0, delivery_timeout_ms=8_000) as plain,
            AsyncProducer(
                BOOTSTRAP, linger_ms=0, delivery_timeout_ms=8_000, transactional_id="writer"
            ) as careful,
        ):
            while not self.is_over:
                name = self._random.choice(list(self._locks))
                async with self._locks[name]:
                    topic = self._written.present(name)
                    if topic is not None and not topic.is_deleted:
                        if self._random.random() < self._plan.aborts:
                            await self._transact(careful, topic)
                        else:
                            await self._send(plain, topic, State.COMMITTED)
                pause_s = self._plan.pause_s * (1 if self._count < QUICK_COUNT else 10)
                await trio.sleep(self._random.uniform(0, 2 * pause_s))

    async def _transact(self, producer: AsyncProducer, topic: Topic) -> None:
        sent: list[tuple[int, int, bytes]] = []
        state = self._random.choice(list(State))
        try:
            async with producer.transaction():
                sent = await self._send(producer, topic, None)
                if state is State.ABORTED:
                    raise Aborted
        except Aborted:
            pass
        for partition, offset, value in sent:
            self._written.states[value] = state
            topic.add(partition, offset, value, state)

    async def _send(
        self, producer: AsyncProducer, topic: Topic, state: State | None
    ) -> list[tuple[int, int, bytes]]:
        partition = self._random.randrange(self._partitions[topic.name])
        values = []
        for _ in range(self._random.choice((1, 2, 5))):
            self._count += 1
            values.append(b"%s.%d/%d" % (topic.name.encode(), topic.ordinal, self._count))
            self._written.sends(topic, values[-1])
        deliveries = [await producer.send(topic.name, v, partition=partition) for v in values]
        sent = []
        for value, delivery in zip(values, deliveries, strict=True):
            offset = (await delivery).offset
            sent.append((partition, offset, value))
            if state is not None:
                self._written.states[value] = state
                topic.add(partition, offset, value, state)
        self._world.trace("wrote", topic.name, partition, sent[0][1], len(sent), state)
        return sent

    # Changes

    async def change(self) -> None:
        """What the plan says, at its times."""
        for time, kind in self._plan.changes:
            await trio.sleep_until(time)
            name = self._random.choice(list(self._locks))
            async with self._locks[name]:
                self._world.trace("change", kind, name)
                await self._until_done(kind, name)

    async def _until_done(self, kind: str, name: str) -> None:
        while True:
            try:
                await self._change(kind, name)
            except SegbrokerError as exc:
                self._world.trace("change_failed", kind, type(exc).__name__, str(exc)[:60])
                await trio.sleep(0.1)
            except BaseExceptionGroup as group:
                raise_others(group)
                await trio.sleep(0.1)
            else:
                return

    async def _change(self, kind: str, name: str) -> None:
        topic = self._written.present(name)
        assert topic is not None
        if kind == "recreate" or topic.is_deleted:
            if not topic.is_deleted:
                await self._delete(topic)
                await trio.sleep(self._random.choice((0.0, 0.3)))
            if self._id_of(name) is None:
                await self._make(name)
        elif kind == "delete":
            await self._delete(topic)
        else:
            async with AsyncAdmin(BOOTSTRAP, api_timeout_ms=20_000) as admin:
                if kind == "grow":
                    self._partitions[name] += 1
                    await admin.create_partitions(name, self._partitions[name])
                else:
                    partition = self._random.randrange(self._partitions[name])
                    highest = max(topic.rows.get(partition, {0: None}))
                    before = self._random.randint(0, highest)
                    topic.trimmed[partition] = max(before, topic.trimmed.get(partition, 0))
                    await admin.delete_records({(name, partition): before})

    async def _delete(self, topic: Topic) -> None:
        topic.is_deleted = True
        async with AsyncAdmin(BOOTSTRAP, api_timeout_ms=20_000) as admin:
            if self._id_of(topic.name) == topic.topic_id:
                await admin.delete_topic(topic.name)

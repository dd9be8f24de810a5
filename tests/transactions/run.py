"""One seed, from start to verdict.

instances, readers, who deletes, and the faults  ->  nothing fails any more, all that is open ends
    ->  everything is read and judged  ->  the broker ends and starts  ->  the same is there
"""

from collections.abc import Iterable
from typing import Final

import trio

from segbroker.protocol import messages_admin as admin
from segbroker.protocol.messages_transactions import InitProducerIdRequest, InitProducerIdResponse

from ..administration.belief import Difference
from ..administration.subject import Lives, answered
from ..simulation.disk import Disk
from ..simulation.history import History
from ..simulation.meddler import Meddler
from ..simulation.nemesis import Nemesis
from ..simulation.network import Network
from ..simulation.process import Process
from ..simulation.run_world import run_world
from ..simulation.strikes import Strikes
from ..simulation.world import World
from ..support.wire_client import WireClient
from ..support.wire_transactions import stands
from .attempts import Key, Ledger
from .instances import Instance, delete_group, group_of, member_of
from .plan import draw
from .readers import Readers

CALM_S: Final = 30.0
"""Within so long all that was open has ended: time-outs, and the broker's own patience."""
TRIES_MAX: Final = 100


def is_decided(process: Process) -> bool:
    """Whether a transaction is decided, and does not count as marked in every partition yet."""
    entries = process.broker.core.transactions.table.entries.values()
    return any(one.known is not None and one.known.state.is_ending for one in entries)


class Case:
    """See the module.  `problems`: what must not be; `trace`: what was done."""

    def __init__(self, seed: int, *, keeps_trace: bool = True) -> None:
        self.plan = plan = draw(seed)
        self.world = world = World(seed, keep_trace=keeps_trace)
        self.disk = Disk(world)
        self.disk.sync_s = plan.broker.sync_s
        self.network = Network(
            world, latency_s=plan.broker.latency_s, window=plan.broker.window, short=0.0
        )
        meddler = Meddler(world, self.disk, History(), spared=())
        self.nemesis = Nemesis(world, plan.broker, self.disk, self.network, meddler)
        self.strikes = Strikes(self.nemesis, self.network, {"decided": is_decided})
        self.lives = Lives(world, lambda: self.nemesis.process)
        self.ledger = Ledger()
        self.readers = Readers(self.lives, plan, self.ledger)
        self.instances = [
            Instance(self.lives, plan, self.ledger, name, number)
            for name in plan.names
            for number in range(plan.instances)
        ]
        self.random = world.stream("case")

    @property
    def problems(self) -> list[str]:
        return self.world.violations

    @property
    def trace(self) -> list[str]:
        return [str(self.plan), *(self.world.lines or [])]

    @property
    def outcome(self) -> str:
        """What came of it."""
        return "with an end" if self.strikes.ends[1:] else "calm"

    def run(self) -> "Case":
        """All of it."""
        run_world(self.world, self.network, self.nemesis, self._work)
        return self

    async def _work(self) -> None:
        plan = self.plan
        await self.nemesis.start()
        await self._create()
        is_over = False
        async with trio.open_nursery() as reading:
            reading.start_soon(self.readers.read, lambda: is_over)
            async with trio.open_nursery() as working:
                working.start_soon(self.strikes.run, plan.faults)
                working.start_soon(self._trim)
                for topic in plan.topics:
                    if topic.is_doomed:
                        working.start_soon(self._delete, topic.name)
                for name in plan.names:
                    working.start_soon(self._group, name)
                for instance in self.instances:
                    working.start_soon(instance.live)
            is_over = True
        self.nemesis.heal()
        await self.strikes.end(plan.broker.last_crash)
        self.nemesis.heal()
        await self.nemesis.start()
        await trio.sleep(CALM_S)
        await self._judge("in calm")
        await self.strikes.end(self.random.choice(("kill", "power_cut")))
        await self.nemesis.start()
        await trio.sleep(CALM_S)
        await self._judge("behind one more start")

    # What else is asked

    async def _create(self) -> None:
        topics = [
            admin.CreateTopicsRequestTopic(
                name=one.name,
                num_partitions=one.partitions,
                replication_factor=1,
                assignments=[],
                configs=[
                    admin.CreateTopicsRequestConfig(name=name, value=value)
                    for name, value in one.settings.items()
                ],
            )
            for one in self.plan.topics
        ]
        process = await self.lives.serving()
        async with self.lives.client(process, "admin") as client:
            request = admin.CreateTopicsRequest(topics=topics)
            reply = await client.ask(request, admin.CreateTopicsResponse, 7)
            assert not any(row.error_code for row in reply.topics), reply

    async def _trim(self) -> None:
        """Somebody deletes records."""
        for _ in range(self.plan.trims):
            await trio.sleep(self.random.uniform(0, self.plan.duration_s))
            key = self.random.choice(self.readers.keys)
            offset = self.random.randint(1, 12)
            self.ledger.trimmed[key] = max(offset, self.ledger.trimmed.get(key, 0))
            row = admin.DeleteRecordsRequestPartition(partition_index=key[1], offset=offset)
            topic = admin.DeleteRecordsRequestTopic(name=key[0], partitions=[row])
            request = admin.DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)
            process = await self.lives.serving()
            async with self.lives.within(process), self.lives.client(process, "admin") as client:
                await client.ask(request, admin.DeleteRecordsResponse, 2)

    async def _delete(self, name: str) -> None:
        """A topic goes, whatever is open in it."""
        await trio.sleep(self.random.uniform(0, self.plan.duration_s))
        self.ledger.deleted.add(name)
        request = admin.DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000)
        process = await self.lives.serving()
        async with self.lives.within(process), self.lives.client(process, "admin") as client:
            await client.ask(request, admin.DeleteTopicsResponse, 5)

    async def _group(self, name: str) -> None:
        """Others join the group of a transactional id, and leave it or not; or it is deleted."""
        random = self.world.stream(f"group of {name}")
        for _ in range(self.plan.group_acts):
            await trio.sleep(random.uniform(0, self.plan.duration_s / 2))
            process = await self.lives.serving()
            async with self.lives.within(process), self.lives.client(process, "other") as client:
                if random.random() < 0.5:
                    await delete_group(self.world, self.ledger, client, name)
                    continue
                member = member_of(client, name)
                if (await member.join()).error_code == 0:
                    await member.deal()
                    await trio.sleep(random.uniform(0, 2 * self.plan.pause_s))
                    if random.random() < 0.7:
                        await member.leave()

    # Judging

    async def _judge(self, when: str) -> None:
        self.world.trace("judged", when)
        process = await self.lives.serving()
        async with self.lives.client(process, "judge") as client:
            found: dict[Key, dict[bytes, int]] = {}
            for key in self.readers.keys:
                if key[0] not in self.ledger.deleted:
                    found[key] = await self.readers.all(client, key)
            self._told(f"{when}: {one}" for one in self.ledger.judge(found))
            self.readers.judge(found)
            for name in self.plan.names:
                await self._judge_group(client, name)
        for name in self.plan.names:
            await answered(self._goes_on(process, name), f"init of {name}")

    def _told(self, problems: Iterable[str]) -> None:
        for one in problems:
            self.world.violation(one)

    async def _judge_group(self, client: WireClient, name: str) -> None:
        group, topic = group_of(name), self.plan.topics[0].name
        code, offset = await stands(client, group, topic, stable=True)
        may = self.ledger.may_stand(name)
        if code or offset not in may:
            raise Difference(f"{group} stands at {offset} (error {code}), it may at {may}")

    async def _goes_on(self, process: Process, name: str) -> None:
        """Whoever comes next has an epoch that nobody had."""
        async with self.lives.client(process, name) as client:
            for _ in range(TRIES_MAX):
                request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
                reply = await client.ask(request, InitProducerIdResponse, 5)
                if not reply.error_code:
                    break
                await trio.sleep(0.5)
        newest = self.ledger.newest.get(name, (-1, -1))
        given = (reply.producer_id, reply.producer_epoch)
        if reply.error_code or given <= newest:
            raise Difference(f"{name} cannot go on behind {newest}: {reply}")
        self.ledger.told(name, given)

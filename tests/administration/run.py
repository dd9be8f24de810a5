"""One seed, from start to verdict.

rounds of changes, records, ids, and the faults  ->  the last end of the broker  ->  a start
    ->  everything is looked at, every topic is read  ->  the same again after a kill
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import trio

from ..simulation.disk import Disk
from ..simulation.history import History
from ..simulation.meddler import Meddler
from ..simulation.nemesis import Nemesis
from ..simulation.network import Network
from ..simulation.run_world import Outcome, run_world
from ..simulation.strikes import Strikes
from ..simulation.world import World
from .plan import Plan, draw
from .producers import Producers
from .records import Records
from .registers import registers
from .subject import Lives, Subject
from .topics import Topic

WRITERS: Final = 2
"""Of each topic."""
CALM_S: Final = 15.0
"""Within so long a broker on a disk that is whole again has done all that it could not."""


class Run:
    """See the module."""

    def __init__(self, seed: int, plan: Plan, *, keep_trace: bool) -> None:
        self.world = world = World(seed, keep_trace=keep_trace)
        self.plan = plan
        self.disk = Disk(world)
        self.disk.sync_s = plan.broker.sync_s
        self.network = Network(
            world, latency_s=plan.broker.latency_s, window=plan.broker.window, short=0.0
        )
        meddler = Meddler(world, self.disk, History(), spared=())
        self.nemesis = Nemesis(world, plan.broker, self.disk, self.network, meddler)
        self.strikes = Strikes(self.nemesis, self.network)
        lives = self.lives = Lives(world, lambda: self.nemesis.process)
        self.records = Records(lives)
        self.records.ends = self.strikes.ends
        self.producers = Producers(lives)
        self.topics = [Topic(name, lives, plan.clients, keeps=keeps) for name, keeps in plan.topics]
        self.subjects: list[Subject] = [*self.topics, *registers(lives, plan.clients)]  # type: ignore[type-arg]
        for topic in self.topics:
            topic.hardened = self.records.hardened

    async def work(self) -> None:
        """All of it."""
        plan = self.plan
        await self.nemesis.start()
        async with trio.open_nursery() as writing:
            for topic in self.topics:
                for _ in range(WRITERS):
                    writing.start_soon(self.records.write, topic, plan.pause_s / 4)
            async with trio.open_nursery() as working:
                working.start_soon(self.strikes.run, plan.faults)
                working.start_soon(self.producers.ask, plan.rounds, plan.pause_s)
                for subject in self.subjects:
                    working.start_soon(subject.live, plan.rounds, plan.pause_s)
            self.records.is_over = True
        await self._calm()
        for kind in (plan.broker.last_crash, "kill"):
            self.nemesis.heal()
            await self.strikes.end(kind)
            self.nemesis.heal()
            await self.nemesis.start()
            await self._judge()
        await self.strikes.end("drain")

    async def _calm(self) -> None:
        """Nothing fails any more: soon all that is described is in force."""
        self.nemesis.heal()
        process = await self.lives.serving()
        await trio.sleep(CALM_S)
        self.lives.lagging, self.lives.is_calm = None, True
        for subject in self.subjects:
            await subject.see(process)

    async def _judge(self) -> None:
        process = self.nemesis.process
        assert process is not None
        for subject in self.subjects:
            await subject.see(process)
        for topic in self.topics:
            await self.records.judge(topic, process)


def run_seed(
    seed: int,
    *,
    plan: Plan | None = None,
    keep_trace: bool = False,
    planted: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Outcome:
    """Run a seed.  planted: puts a bug into the product for the time of the run."""
    run = Run(seed, plan or draw(seed), keep_trace=keep_trace)
    world = run.world
    run_world(world, run.network, run.nemesis, run.work, planted)
    return Outcome.of(seed, world)

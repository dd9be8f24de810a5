"""One seed, from start to verdict.

rounds of changes, records, ids, and the faults  ->  the last end of the broker  ->  a start
    ->  everything is looked at, every topic is read  ->  the same again after a kill
"""

import gc
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Final

import trio

from ..simulation import threads
from ..simulation.disk import Disk
from ..simulation.history import History
from ..simulation.meddler import Meddler
from ..simulation.nemesis import Nemesis
from ..simulation.network import Network
from ..simulation.patches import simulated
from ..simulation.process import Process
from ..simulation.run import Steps
from ..simulation.threads import Threads
from ..simulation.world import World
from .plan import Plan, draw
from .producers import Producers
from .records import Records
from .registers import registers
from .subject import Lives, Subject, is_there
from .topics import Topic

WRITERS: Final = 2
"""Of each topic."""
RUN_LIMIT_S: Final = 3_000.0
OPERATIONS_MAX: Final = 60
CALM_S: Final = 15.0
"""Within so long a broker on a disk that is whole again has done all that it could not."""
ARMED_S: Final = 2.0
"""Who waits so long for the operation at which the broker ends has it end now."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    violations: list[str]
    digest: str
    counts: dict[str, int]
    lines: list[str] | None


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
        self.random: Random = world.stream("ends")
        lives = self.lives = Lives(world, lambda: self.nemesis.process)
        self.records = Records(lives)
        self.producers = Producers(lives)
        self.topics = [Topic(name, lives, plan.clients, keeps=keeps) for name, keeps in plan.topics]
        self.subjects: list[Subject] = [*self.topics, *registers(lives, plan.clients)]  # type: ignore[type-arg]
        for topic in self.topics:
            topic.hardened = self.records.hardened

    async def main(self) -> None:
        """The whole run."""
        async with trio.open_nursery() as nursery:
            self.nemesis.nursery = nursery
            nursery.start_soon(self.network.run)
            try:
                with trio.fail_after(RUN_LIMIT_S):
                    await self._work()
            finally:
                if (process := self.nemesis.process) is not None:
                    with trio.CancelScope(shield=True):
                        await process.kill(power=False)
                nursery.cancel_scope.cancel()

    async def _work(self) -> None:
        plan = self.plan
        await self.nemesis.start()
        async with trio.open_nursery() as writing:
            for topic in self.topics:
                for _ in range(WRITERS):
                    writing.start_soon(self.records.write, topic, plan.pause_s / 4)
            async with trio.open_nursery() as working:
                working.start_soon(self._strike)
                working.start_soon(self.producers.ask, plan.rounds, plan.pause_s)
                for subject in self.subjects:
                    working.start_soon(subject.live, plan.rounds, plan.pause_s)
            self.records.is_over = True
        await self._calm()
        for kind in (plan.broker.last_crash, "kill"):
            self.nemesis.heal()
            await self._end(kind)
            self.nemesis.heal()
            await self.nemesis.start()
            await self._judge()
        await self._end("drain")

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

    # Faults

    async def _strike(self) -> None:
        self.disk.name_errors = self.plan.broker.name_errors
        for time, kind in self.plan.faults:
            await trio.sleep_until(time)
            self.world.trace("fault", kind)
            if kind.endswith("_at"):
                await self._operation()
                kind = kind.removesuffix("_at")
            if kind in ("kill", "power_cut", "drain"):
                await self._end(kind)
                await trio.sleep(self.random.choice((0.0, 0.1)))
                await self.nemesis.start()
            else:
                await self.nemesis.strike(kind)

    async def _end(self, kind: str) -> None:
        await self.nemesis.end(kind)
        self.records.ends.append((self.world.now(), kind == "power_cut"))

    async def _operation(self) -> None:
        """Have one of the next operations of the disk be the last of this process."""
        process = self.nemesis.process
        if process is None or process.ended.is_set():
            return
        left = self.random.randint(0, OPERATIONS_MAX)
        mount = process.mount

        def count() -> None:
            nonlocal left
            left -= 1
            # Of the loop's own operations none is the last: trio tells of what dies in it.
            if left < 0 and mount.alive and process.threads.current() is not None:
                self.world.trace("last_operation")
                self._stop(process)
                raise threads.Killed

        act, sync_time = mount.act, mount.sync_time

        def counted(name: str, path: str, *facts: object, quiet: bool = False) -> None:
            if not quiet:
                count()
            act(name, path, *facts, quiet=quiet)

        def counted_sync(name: str, path: str) -> None:
            count()
            sync_time(name, path)

        mount.act, mount.sync_time = counted, counted_sync  # type: ignore[method-assign]
        with trio.move_on_after(ARMED_S):
            while is_there(process):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.001)

    def _stop(self, process: Process) -> None:
        """Nothing leaves it any more, neither to the disk nor to a client."""
        process.mount.die()
        process.threads.alive = False
        self.network.die()


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
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        with simulated(world, run.network, Threads(world, 0.0)), planted():
            try:
                trio.run(run.main, clock=world.clock, instruments=[Steps(world)])
            except BaseException as exc:
                if isinstance(exc, KeyboardInterrupt):
                    raise
                for leaf in _leaves(exc):
                    said = "".join(traceback.format_exception(leaf, limit=-4))
                    world.violation(said)
    finally:
        if gc_was_on:
            gc.enable()
    return Outcome(seed, world.violations, world.digest(), world.counts, world.lines)


def _leaves(exc: BaseException) -> list[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        return [leaf for one in exc.exceptions for leaf in _leaves(one)]
    return [exc]

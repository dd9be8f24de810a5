"""One seed, from start to verdict.

members, writers, changes and faults  ->  nothing fails any more  ->  the rest is read by one more
    ->  what was written was processed, or passed over on purpose
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final
from uuid import UUID

import trio

from segbroker.client.errors import SegbrokerError

from ..simulation.disk import Disk
from ..simulation.history import History
from ..simulation.meddler import Meddler
from ..simulation.nemesis import Nemesis
from ..simulation.run_world import Outcome, run_world
from ..simulation.world import World
from .judge import Group
from .member import MemberLife
from .plan import TOPICS, Life, Member, Plan, draw
from .topics import Topics
from .wires import Wires
from .written import Written

SESSIONS_END_S: Final = 8.0
"""Behind so long the members of before are none."""
REST_LIMIT_S: Final = 60.0


class Run:
    """See the module."""

    def __init__(self, seed: int, plan: Plan, *, keep_trace: bool) -> None:
        self.world = world = World(seed, keep_trace=keep_trace)
        self.plan = plan
        disk = Disk(world)
        disk.sync_s = plan.broker.sync_s
        self.network = Wires(
            world, latency_s=plan.broker.latency_s, window=(65_536, 65_536), short=0.0
        )
        meddler = Meddler(world, disk, History(), spared=())
        self.nemesis = Nemesis(world, plan.broker, disk, self.network, meddler)
        self.written = Written()
        self.group = Group(world, self.written, is_calm=plan.is_calm)
        self.network.watch(self.group, self.written)
        self.topics = Topics(world, plan, self.written, self._id_of)

    def _id_of(self, name: str) -> UUID | None:
        process = self.nemesis.process
        assert process is not None
        meta = process.manager.topics.get(name)
        return None if meta is None else meta.topic_id

    async def work(self) -> None:
        """All of it."""
        await self.nemesis.start()
        await self.topics.make()
        async with trio.open_nursery() as writing:
            writing.start_soon(self.topics.write)
            async with trio.open_nursery() as working:
                working.start_soon(self.topics.change)
                working.start_soon(self._strike)
                for member in self.plan.members:
                    working.start_soon(self._member, member)
            self.topics.is_over = True
        self.nemesis.heal()
        self.network.heal()
        await trio.sleep(SESSIONS_END_S)
        await self._rest()
        self._judge()
        await self.nemesis.end("drain")

    async def _member(self, member: Member) -> None:
        for number, life in enumerate(member.lives):
            await trio.sleep(life.pause_s)
            await MemberLife(self.group, f"{member.name}.{number}", life).run()

    async def _strike(self) -> None:
        random = self.world.stream("strikes")
        for time, kind in self.plan.faults:
            await trio.sleep_until(time)
            self.world.trace("fault", kind)
            if kind in ("silence", "cut_at", "refuse"):
                self.network.strike(kind, random)
            else:
                await self.nemesis.strike(kind)

    async def _rest(self) -> None:
        """One more member reads what is left."""
        life = MemberLife(self.group, "last", _last(self.plan))
        with trio.move_on_after(REST_LIMIT_S) as patience:
            async with life.consumer as consumer:
                while any(self._behind()):
                    life.view.processes()
                    try:
                        for record in await consumer.poll(500, 300):
                            life._gets(record)
                    except SegbrokerError as exc:
                        life._stumbles("rest", exc)
                life.view.processes()
                await consumer.commit()
        if patience.cancelled_caught:
            self.world.trace("late")
        for text in self._behind():
            self.world.violation(f"in the end {text}")

    def _behind(self) -> Iterator[str]:
        committed = next(iter(self.group.views.values())).committed
        for of_name in self.written.topics.values():
            topic = of_name[-1]
            if topic.is_deleted:
                continue
            for partition in topic.rows:
                missing = self.group.missing(topic, partition, 1 << 62, committed=committed)
                if missing is not None:
                    yield f"nobody has processed {topic.name}.{topic.ordinal}-{partition} {missing}"

    def _judge(self) -> None:
        for sock in self.network.ours:
            if not sock.closed:
                self.world.violation(f"a connection is left: {sock.local}")


def _last(plan: Plan) -> Life:
    first = plan.members[0].lives[0]
    options = first.options | {
        "instance_id": None, "auto_commit": True, "max_poll_interval_ms": None,
        "on_reset": "start", "on_gap": "skip", "start": "start", "prefetch_bytes": 1 << 20,
        "fetch_partition_bytes": 1 << 20,
    }  # fmt: skip
    return Life(0.0, TOPICS, None, options, ("nothing",), (), "leave")


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

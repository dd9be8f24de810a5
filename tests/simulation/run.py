"""One seed, from start to verdict.

    the workload and its faults  ->  everything heals  ->  the last crash  ->  calm:
        each partition takes a record, each consumer reaches the end, every request is answered
    ->  every log is read  ->  the history is asked for anomalies

Deadlines are the clients' and the broker's own; what is longer than all of them is a violation.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import trio

from segbroker.client import AsyncProducer
from segbroker.client.errors import SegbrokerError

from . import threads
from .clients import BOOTSTRAP, Clients, hasty, value_of
from .disk import Disk
from .groups import Groups
from .history import History
from .meddler import Meddler
from .nemesis import Nemesis
from .network import Network
from .pipelines import Pipelines
from .plan import Plan, draw
from .process import Process
from .removed import Removed
from .run_world import run_in
from .shares import Shares
from .streams_kept import check_kept
from .tap import Tap
from .transactions import Transactions
from .verdict import check_recovery, read_log
from .world import World

# A request on an open connection is answered after so long: send_timeout and the longest wait.
ANSWER_LIMIT_S = 60.0
# In calm: a record is acknowledged, and read by everybody, within so long, and as long as the disk
# of the plan takes for the syncs of a close or of repairs: of a hundred tiny segments, three each.
CALM_LIMIT_S = 10.0
CALM_SYNCS = 300
# A group needs a session, a rebalance, and the longest reconnection more.
GROUP_LIMIT_S = 40.0
RUN_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    violations: list[str]
    digest: str
    events: int
    acked: int
    reads: int
    virtual_s: float
    lines: list[str] | None
    counts: dict[str, int]


class UntilOne(trio.abc.Instrument):
    """Gives a simulation up, once, when it has a violation."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation

    def after_io_wait(self, timeout: float) -> None:
        nursery = self._simulation.nemesis.nursery
        if self._simulation.world.violations and nursery is not None:
            trio.lowlevel.remove_instrument(self)
            nursery.start_soon(self._simulation.give_up)


class Simulation:
    """One seed."""

    def __init__(self, seed: int, plan: Plan, *, keep_trace: bool) -> None:
        self.world = world = World(seed, keep_trace=keep_trace)
        self.plan = plan
        self.history = History()
        self.disk = Disk(world)
        self.disk.sync_s = plan.sync_s
        self.network = Network(
            world, latency_s=plan.latency_s, window=plan.window, short=plan.short
        )
        self.tap = Tap(world, self.network, ANSWER_LIMIT_S)
        for group in plan.groups:
            if group.protocol == "consumer":
                self.tap.ledger.holders.session_s = group.session_timeout_ms / 1000
            elif group.protocol == "streams":
                self.tap.ledger.tasks.session_s = group.session_timeout_ms / 1000
        spared = frozenset(topic.name for topic in plan.topics if topic.use == "transactions")
        meddler = Meddler(world, self.disk, self.history, spared=spared)
        self.nemesis = Nemesis(world, plan, self.disk, self.network, meddler)
        self.nemesis.on_start = self._restarted
        self.nemesis.on_started = self._look_behind_a_start
        self.removed = Removed(world, self.history)
        self.nemesis.on_end = lambda process: self.removed.look(process.broker.core)
        self.clients = Clients(world, plan, self.history, self.removed)
        self.groups = Groups(world, plan, self.history, self.tap.ledger, self.network)
        self.shares = Shares(world, plan, self.history, self.tap.shares)
        self.transactions = Transactions(world, plan, self.history)
        self.pipelines = Pipelines(world, self.history, self.network)
        self.is_over = False
        self._everything = trio.CancelScope()
        for topic in plan.topics:
            promise = self.history.promises[topic.name]
            promise.churned = topic.churned
            if plan.classes(topic) & {"disk", "memory"} and "power_cut" in plan.has:
                # What was not synced may go with the power, never without a word.
                promise.permitted_gaps.add("lost_tail")
            if topic.retention:
                promise.permitted_gaps |= {"cap", "ttl"}

    async def main(self) -> None:
        """The whole run."""
        async with trio.open_nursery() as nursery:
            self.nemesis.nursery = nursery
            self._everything = nursery.cancel_scope
            nursery.start_soon(self._limit)
            nursery.start_soon(self.network.run)
            await self.nemesis.start()
            await self._make_topics()
            await self._begin_groups()
            nursery.start_soon(self._look)
            async with trio.open_nursery() as consuming:
                for consumer in self.plan.consumers:
                    consuming.start_soon(self.clients.consume, consumer, lambda: self.is_over)
                consuming.start_soon(self.groups.run, lambda: self.is_over)
                consuming.start_soon(self.shares.run, lambda: self.is_over)
                consuming.start_soon(self.transactions.read, lambda: self.is_over)
                async with trio.open_nursery() as working:
                    working.start_soon(self.nemesis.run)
                    working.start_soon(self.clients.administrate)
                    if self.plan.class_changes:  # a task more is another order of all of them
                        working.start_soon(self.clients.change_classes)
                    for producer in self.plan.producers:
                        working.start_soon(self.clients.produce, producer)
                    for pipeline in self.plan.pipelines:
                        working.start_soon(self.pipelines.produce, pipeline)
                    for transactor in self.plan.transactors:
                        working.start_soon(self.transactions.transact, transactor)
                await self._heal()
                self.shares.is_calm = True
                await self._calm()
                self.is_over = True
                consuming.cancel_scope.deadline = trio.current_time() + 30
            await self._read_everything()
            assert self.nemesis.process is not None
            self.shares.judge(self.nemesis.process.broker.core, self.transactions.final)
            await self._end()
            nursery.cancel_scope.cancel()
        for topic in self.plan.topics:
            if topic.durability == "ephemeral" and self.nemesis.starts > 1:
                # What a process held is gone with it: the log begins behind it.
                self.history.promises[topic.name].permitted_gaps.add("cap")
        for anomaly in self.history.anomalies():
            self.world.lapse(str(anomaly))

    async def _limit(self) -> None:
        await trio.sleep(RUN_LIMIT_S)
        self.world.violation(f"the run has not ended after {RUN_LIMIT_S} s")
        if self.nemesis.process is not None:
            self.world.violation(self.nemesis.process.threads.stacks())
        await self.give_up()

    async def give_up(self) -> None:
        """End here, with the broker."""
        if self.nemesis.process is not None:
            await self.nemesis.process.kill(power=False)
        self._everything.cancel()

    async def _make_topics(self) -> None:
        process = self.nemesis.process
        assert process is not None
        from segbroker.segments.settings.topic_config import TopicConfig

        for topic in self.plan.topics:
            await process.broker.core.topics.create(
                topic.name, topic.partitions, TopicConfig.parse(topic.config)
            )

    async def _begin_groups(self) -> None:
        """Each group of the classic protocol has an offset from the first: one without any is
        forgotten when nobody is in it, and counts its generations anew."""
        process = self.nemesis.process
        assert process is not None
        from segbroker.broker.recording import recorded
        from segbroker.segments.metadata.committed import CommitRow

        core = process.broker.core
        for group in self.plan.groups:
            if group.protocol == "classic":
                topic_id = core.topics.all[group.topic].topic_id
                row = CommitRow(group.topic, topic_id, 0, 0, -1, "")
                commit = partial(core.groups.commit, group.name, [row], core.now_ms())
                failure = await recorded(partial(commit, expire_ms=None))
                assert failure is None, "nothing fails yet"
        settings = {one.name: partial(_replaced, one.settings) for one in self.plan.share_groups}
        outcomes = await core.group_settings.change_all(settings)
        assert not any(outcomes.values()), "nothing fails yet"

    def _restarted(self) -> None:
        self.tap.ledger.restarted()
        self.tap.shares.restarted()

    def _look_behind_a_start(self, process: Process) -> None:
        self.removed.look(process.broker.core)
        self._look_at_offsets(process)

    def _look_at_offsets(self, process: Process) -> None:
        """Every commit that was answered stands when the broker is there again; members that go on
        do not ask where they are."""
        core = process.broker.core
        for (group, topic, partition), least in self.tap.ledger.stands.items():
            meta = core.topics.get(topic)
            offset = -1
            if meta is not None:
                offset = core.groups.offsets(group, topic, meta.topic_id).at(partition).offset
            if offset < least:
                self.world.lapse(
                    f"forgotten: {group} stands at {offset} in {topic}-{partition} after a start, "
                    f"it stood at {least}"
                )

    async def _look(self) -> None:
        """What must hold at every moment."""
        marks: dict[object, tuple[int, int]] = {}
        while True:
            await trio.sleep(0.3)
            self.tap.look()
            process = self.nemesis.process
            if process is None or not process.started.is_set() or process.ended.is_set():
                continue
            streams = [group.name for group in self.plan.groups if group.protocol == "streams"]
            check_kept(self.world, process.broker.core, streams)
            self.removed.look(process.broker.core)
            for row in process.manager.report.rows:
                if row.what == "gap":
                    self.history.saw_gap((row.topic, row.partition), row.from_offset)
            for key, partition in process.broker.core.topics.served.items():
                handler = partition.handler
                now = (handler.high_watermark, handler.log_start_offset)
                before = marks.get(handler, (0, 0))
                if now[0] < before[0] or now[1] < before[1] or now[0] > handler.log_end_offset:
                    self.world.violation(
                        f"{key[0]}-{key[1]}: (high watermark, start) went from {before} to {now}, "
                        f"the end is {handler.log_end_offset}"
                    )
                marks[handler] = now

    async def _heal(self) -> None:
        """The last crash, and a broker on a good disk behind it."""
        plan, nemesis = self.plan, self.nemesis
        self.world.trace("healing")
        nemesis.heal()
        kind = plan.last_crash
        if kind == "none" and self.disk.faults:
            kind = "kill"  # what failed stays read-only until it is opened again
        await nemesis.end(kind)
        nemesis.heal()
        if kind == "none":
            return
        self.removed.recovered(check_recovery(self.world, self.disk))
        await nemesis.start()

    @property
    def _calm_limit_s(self) -> float:
        return CALM_LIMIT_S + CALM_SYNCS * self.plan.sync_s[1]

    async def _calm(self) -> None:
        """Nothing fails any more: everything has to work, and soon."""
        for topic in self.plan.topics:
            began = trio.current_time()
            try:
                with trio.fail_after(self._calm_limit_s):
                    await self._probe(topic.name, topic.partitions, 0)
            except (SegbrokerError, BaseExceptionGroup, trio.TooSlowError) as exc:
                self.world.violation(
                    f"in calm {topic.name} takes no record: {exc!r} "
                    f"after {trio.current_time() - began:.1f} s"
                )
        await self.transactions.judge(6 * self._calm_limit_s)
        limit_s = self._calm_limit_s
        if self.plan.groups or self.plan.share_groups:
            # Sessions of the dead have to end, and those who are there to meet.
            limit_s += GROUP_LIMIT_S
        if "power_cut" in self.plan.has:
            # Who waited for a reply when the power went has nothing but its clock to tell it.
            limit_s += (
                max(c.request_timeout_ms + 2 * c.fetch_wait_ms for c in self.plan.consumers) / 1000
            )
        with trio.move_on_after(limit_s) as patience:
            while any(self._behind()):  # noqa: ASYNC110 - nobody tells when a consumer is there
                await trio.sleep(0.1)
        if patience.cancelled_caught:
            for text in self._behind():
                self.world.violation(f"in calm {text}")

    async def _probe(self, topic: str, partitions: int, number: int) -> None:
        async with AsyncProducer(BOOTSTRAP, client_id="probe", linger_ms=0) as producer:
            for partition in range(partitions):
                key = (topic, partition)
                value = value_of("probe", partition, number, 30)
                self.history.sent("probe", key, value)
                metadata = await (await producer.send(topic, value, partition=partition))
                self.history.acked(key, value, metadata.offset)

    def _behind(self) -> Iterator[str]:
        process = self.nemesis.process
        assert process is not None
        for consumer in self.plan.consumers:
            if consumer.topic.churned:
                continue
            for partition in range(consumer.topic.partitions):
                key = (consumer.topic.name, partition)
                handler = process.manager.handler_if_open(*key)
                position = self.clients.positions.get((consumer.name, key), 0)
                if handler is None or position < handler.high_watermark:
                    end = None if handler is None else handler.high_watermark
                    yield f"{consumer.name} is at {position} of {key[0]}-{partition}, not at {end}"

        yield from self.groups.behind(self._end_of)
        yield from self.shares.behind(process.broker.core)

    def _end_of(self, topic: str, partition: int) -> int | None:
        assert self.nemesis.process is not None
        handler = self.nemesis.process.manager.handler_if_open(topic, partition)
        return None if handler is None else handler.high_watermark

    async def _read_everything(self) -> None:
        process = self.nemesis.process
        assert process is not None
        for topic in self.plan.topics:
            for partition in range(topic.partitions):
                handler = await threads.run_in_thread(
                    process.manager.get_handler, topic.name, partition
                )
                final = await threads.run_in_thread(read_log, handler)
                self.history.final((topic.name, partition), final)
                self.world.trace(
                    "final", topic.name, partition, final.start, final.end, len(final.rows)
                )

    async def _end(self) -> None:
        """The broker ends in order, in its time."""
        process = self.nemesis.process
        assert process is not None
        limit_s = int(self.plan.settings["drain_timeout_ms"]) / 1000 + self._calm_limit_s
        process.drain()
        with trio.move_on_after(limit_s) as patience:
            await process.ended.wait()
        if patience.cancelled_caught:
            self.world.violation(f"the broker has not drained after {limit_s} s")
            await process.kill(power=False)


def _replaced(by: Mapping[str, str], _: Mapping[str, str]) -> Mapping[str, str]:
    """What is set on a group afterwards."""
    return by


def run_seed(
    seed: int,
    *,
    plan: Plan | None = None,
    keep_trace: bool = False,
    until_one: bool = False,
    planted: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Outcome:
    """Run a seed.

    until_one: no further than to the first violation.
    planted: puts a bug into the product for the time of the run.
    """
    plan = plan or draw(seed)
    simulation = Simulation(seed, plan, keep_trace=keep_trace)
    world = simulation.world

    @contextmanager
    def changed() -> Iterator[None]:
        with hasty() if plan.hasty else nullcontext(), planted():
            yield

    instruments = [UntilOne(simulation)] if until_one else []
    run_in(world, simulation.network, simulation.main, changed, instruments)
    return Outcome(
        seed=seed,
        violations=world.violations,
        digest=world.digest(),
        events=world.events,
        acked=simulation.clients.acked + simulation.pipelines.acked,
        reads=simulation.clients.reads,
        virtual_s=math.floor(world.now() * 1000) / 1000,
        lines=world.lines,
        counts=world.counts,
    )

"""The faults, at the times of the plan, while clients work; and who starts the broker again.

| fault | what happens |
|---|---|
| cut, cut_all | a connection is reset, or all are |
| slow_network | latencies of up to half a second for a while |
| kill, power_cut, drain | the process ends so; it is started again a little later |
| young_cut | the power goes when the first batches of a producer are written and nobody is told |
| ... | of them; of what each file has unsynced the first write is lost, and the rest is there |
| slow_disk | syncs take up to two seconds for a while |
| cold | nothing is in the page cache for a while |
| full_disk | so many bytes are left, for a while |
| sync_error, write_error | the next one fails with EIO |
| wal_error | the next write of the WAL does |
| clock_jump | the wall clock jumps, forwards or back |
| remove_file, replace_file, cut_file | somebody does that, and the broker has the time to see it |
| take_file | one of these, and a crash before it had |

In some seeds syncs of directories fail with EIO by chance, any of them, alone and in streaks.
"""

from collections.abc import Callable

import trio

from segbroker.segments.log.producers import WINDOW
from segbroker.segments.wal.journal import WalConfig

from .disk import Disk
from .meddler import Meddler
from .network import Network
from .plan import Plan
from .process import Process
from .world import World

YOUNG_LIMIT_S = 3.0
# Within so long the broker has looked for its files, and made safe what they had.
LOOKS_S = 2.5
SAFE_LIMIT_S = 60.0


class Nemesis:
    """See the module.  Owns the broker's process."""

    def __init__(
        self, world: World, plan: Plan, disk: Disk, network: Network, meddler: Meddler
    ) -> None:
        self.world = world
        self.plan = plan
        self.disk = disk
        self.network = network
        self.meddler = meddler
        self.random = world.stream("nemesis")
        self.process: Process | None = None
        self.nursery: trio.Nursery | None = None
        self.on_start: Callable[[], object] = lambda: None
        self.on_started: Callable[[Process], object] = lambda process: None
        self.on_end: Callable[[Process], object] = lambda process: None
        self.starts = 0
        self.calm = {
            "latency_s": plan.latency_s,
            "sync_s": plan.sync_s,
            "cold": disk.cold,
            "room": None,
        }

    async def start(self) -> None:
        """Have a broker that serves; on a disk that fails, try until it does not."""
        while True:
            self.starts += 1
            self.on_start()
            process = self.process = Process(
                self.world,
                self.disk,
                self.network,
                settings=self.plan.broker_settings,
                preempts=self.plan.preempts,
                short_writes=self.plan.short_writes,
                wal=WalConfig(self.random.choice(self.plan.shards), *self.plan.wal),
                express=self.plan.express,
            )
            assert self.nursery is not None
            self.nursery.start_soon(process.run)
            await process.decided.wait()
            if process.started.is_set():
                limit = process.manager.open_logs
                limit.open_max = min(limit.open_max, self.plan.open_logs)
                self.meddler.listen(process.manager)
                self.on_started(process)
                self.world.trace("serving", self.starts)
                return
            assert self.starts < 200, "the broker does not start"
            await trio.sleep(0.2)

    async def run(self) -> None:
        """Everything that the plan says."""
        self.disk.name_errors = self.plan.name_errors
        for time, kind in self.plan.faults:
            await trio.sleep_until(time)
            self.world.trace("fault", kind)
            await self.strike(kind)

    async def strike(self, kind: str) -> None:
        """One fault."""
        match kind:
            case "cut":
                if self.network.sockets:
                    self.network.cut(self.random.choice(list(self.network.sockets)))
            case "cut_all":
                for sock in list(self.network.sockets):
                    self.network.cut(sock)
            case "slow_network":
                await self._for_a_while("latency_s", self.network, 0.5)
            case "kill" | "power_cut" | "drain":
                await self.end(kind)
                await trio.sleep(self.random.choice((0.0, 0.05, 1.0, 3.0)))
                await self.start()
            case "young_cut":
                with trio.move_on_after(YOUNG_LIMIT_S):
                    while not self._somebody_is_young():  # noqa: ASYNC110 - nobody tells
                        await trio.sleep(0.001)
                self.disk.first_is_lost = True
                await self.end("power_cut")
                self.disk.first_is_lost = False
                await self.start()
            case "slow_disk":
                await self._for_a_while("sync_s", self.disk, (0.05, 2.0))
            case "cold":
                await self._for_a_while("cold", self.disk, 1.0)
            case "full_disk":
                await self._for_a_while("room", self.disk, self.random.choice((0, 10, 100, 1_000)))
            case "sync_error":
                self.disk.sync_errors += 1
            case "write_error":
                self.disk.write_errors += 1
            case "wal_error":
                self.disk.wal_errors += 1
            case "clock_jump":
                self.world.wall_offset_ms += self.random.choice((-3_600_000, 2_000, 7_200_000))
            case "remove_file" | "replace_file" | "cut_file":
                await self._meddle(kind)
            case "take_file":
                await self._take_file()

    async def _take_file(self) -> None:
        """Do something to a file, and have a crash before the broker has looked for it."""
        process, random = self.process, self.meddler.random
        if process is None or process.ended.is_set():
            return
        kind = random.choice(("remove_file", "replace_file", "cut_file"))
        self.meddler.strike(kind, process.manager, is_seen=False)
        await trio.sleep(random.choice((0.0, random.uniform(0.0, 1.0))))
        await self.end(random.choice(("kill", "power_cut")))
        await self.start()

    async def _meddle(self, kind: str) -> None:
        """Do something to a file, and wait until nothing hangs on it any more."""
        process = self.process
        if process is None or process.ended.is_set():
            return
        self.meddler.strike(kind, process.manager)
        await trio.sleep(LOOKS_S)
        self.disk.name_errors = 0.0
        with trio.move_on_after(SAFE_LIMIT_S) as patience:
            while not self.meddler.is_safe(process.manager):
                if self.meddler.wants_restart(process.manager):
                    await self.end(self.random.choice(("kill", "power_cut", "drain")))
                    await self.start()
                    break
                await trio.sleep(0.1)
        self.disk.name_errors = self.plan.name_errors
        if patience.cancelled_caught:
            self.world.violation(f"{SAFE_LIMIT_S} s after {kind} the broker is not safe")
        self.world.trace("safe_again")

    def _somebody_is_young(self) -> bool:
        """Whether there are some batches of an epoch, and its producer has no answer to any."""
        process = self.process
        if process is None or not process.started.is_set() or process.ended.is_set():
            return False
        return any(
            1 < len(known.batches) < WINDOW
            and known.batches[0].first_sequence == 0
            and known.batches[0].base_offset >= partition.handler.high_watermark
            for partition in process.broker.core.topics.served.values()
            for _, known in partition.handler._log.producers.rows()
        )

    async def end(self, kind: str) -> None:
        """End the process as `kind` says."""
        process = self.process
        assert process is not None
        if process.started.is_set() and not process.ended.is_set():
            self.on_end(process)
        if kind == "drain":
            process.drain()
            await process.ended.wait()
        elif kind != "none" and not process.ended.is_set():
            await process.kill(power=kind == "power_cut")
        elif kind == "power_cut":
            self.disk.cut_power()

    async def _for_a_while(self, what: str, where: object, value: object) -> None:
        assert self.nursery is not None
        setattr(where, what, value)
        wait_s = self.random.uniform(0.05, 1.0)

        async def heal() -> None:
            await trio.sleep(wait_s)
            setattr(where, what, self.calm[what])

        self.nursery.start_soon(heal)

    def heal(self) -> None:
        """No more faults."""
        for what, value in self.calm.items():
            setattr(self.network if what == "latency_s" else self.disk, what, value)
        self.disk.sync_errors = self.disk.write_errors = self.disk.wal_errors = 0
        self.disk.name_errors = 0.0

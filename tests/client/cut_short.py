"""What cuts the calls of an async client short, and what has to be so behind it.

    world        a broker, and in front of it a proxy that cuts connections
    Cutter       runs one call after another, each cancelled at a place that is drawn, or not at all
    Faults       what happens to the connections, and to the broker, meanwhile

A call is cancelled by a scope, or, on asyncio, as a task: then the cancellation comes once, and who
swallows it is seen to.
"""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel
import trio

from segbroker.client import Admin

from ..support.cutting_proxy import CuttingProxy
from ..support.daemon import Daemon, running

T = TypeVar("T")

END_S: Final = 60
"""What a call may take at most, whatever happens to it, also on a machine that stands still."""
TURNS_MAX: Final = 40
"""Of the event loop, in front of a cancellation."""
AWAY_S: Final = 0.05
FAULTS: Final = 15
"""Of connections and broker in one story; then all is well."""


@dataclass
class World:
    """Attributes:
    daemon: advertises the proxy's address.
    proxy: to it.
    """

    daemon: Daemon
    proxy: CuttingProxy

    @property
    def address(self) -> str:
        return self.proxy.address

    def in_order(self) -> None:
        """No connection is cut any more."""
        self.proxy.cut_no_more()
        self.proxy.release()
        self.proxy.go_away()  # that ends what it swallows
        self.proxy.come_back()

    def make_topic(self, topic: str) -> None:
        with Admin(self.address) as admin:
            admin.create_topic(topic, partitions=2)

    def sockets(self) -> int:
        """How many of this process are connected to the proxy, by its clients."""
        mine = {inode for path in Path("/proc/self/fd").iterdir() if (inode := _inode(path))}
        port = f":{int(self.address.rpartition(':')[2]):04X}"
        lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
        return sum(row[2].endswith(port) and row[9] in mine for row in map(str.split, lines))


def _inode(descriptor: Path) -> str | None:
    try:
        kind, _, rest = os.readlink(descriptor).partition(":[")
    except OSError:
        return None
    return rest[:-1] if kind == "socket" else None


@contextmanager
def world(folder: Path) -> Iterator[World]:
    with (
        CuttingProxy(("127.0.0.1", 0)) as proxy,
        running(folder / "data", "--advertised", proxy.address, "--durability", "disk") as daemon,
    ):
        proxy.target = daemon.host_and_port
        with Admin(proxy.address) as admin:
            admin.alter_broker_config(
                {
                    # More than are made here, of a record.
                    "group_share_delivery_count_limit": "25",
                    # Who could not say that it leaves is waited for no longer: it has partitions.
                    "group_share_session_timeout_ms": "3000",
                    "group_share_heartbeat_interval_ms": "500",
                    # ... and for no lock at all: it ends with its connection, or is a fault.
                    "group_share_record_lock_duration_ms": "3600000",
                }
            )
        yield World(daemon, proxy)


class Cut:
    """The result of a call that was cancelled."""


@dataclass
class Cutter:
    """Runs calls; each `AssertionError` of it is a fault of the client.

    Attributes:
        random: draws where they are cancelled.
        told: what was done, for who looks for the cause of a fault.
    """

    random: Random
    told: list[str] = field(default_factory=list)

    async def run(self, name: str, work: Callable[[], Awaitable[T]]) -> T | type[Cut]:
        """The result, or that it was cancelled.  Raises what it raises."""
        turns = self.random.choice([None, 0, 1, 2, 3, self.random.randrange(TURNS_MAX)])
        wait_s = self.random.choice([0, 0, self.random.random() * AWAY_S])
        self.told.append(f"{name} (cancelled behind {turns} turns and {wait_s:.3f} s)")
        if turns is None:
            with anyio.fail_after(END_S):
                return await work()
        if _is_asyncio() and self.random.random() < 0.5:
            return await self._as_task(work, turns, wait_s)
        return await self._in_scope(work, turns, wait_s)

    async def _in_scope(
        self, work: Callable[[], Awaitable[T]], turns: int, wait_s: float
    ) -> T | type[Cut]:
        results: list[T] = []
        failures: list[Exception] = []
        with anyio.fail_after(END_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel, tasks.cancel_scope, turns, wait_s)
                try:
                    results.append(await work())
                except Exception as exc:
                    failures.append(exc)
                tasks.cancel_scope.cancel()
        if failures:
            raise failures[0]
        return results[0] if results else Cut

    async def _as_task(
        self, work: Callable[[], Awaitable[T]], turns: int, wait_s: float
    ) -> T | type[Cut]:
        task = asyncio.ensure_future(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        if wait_s:
            await asyncio.wait({task}, timeout=wait_s)
        is_cancelled = task.cancel()
        done, _ = await asyncio.wait({task}, timeout=END_S)
        assert done, "it does not end when it is cancelled"
        if not is_cancelled:
            return task.result()
        assert task.cancelled(), f"a cancellation was swallowed: {task!r}"
        return Cut


async def _cancel(scope: anyio.CancelScope, turns: int, wait_s: float) -> None:
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    if wait_s:
        await anyio.sleep(wait_s)
    scope.cancel()


def _is_asyncio() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def living() -> int:
    """How many tasks the event loop has."""
    if _is_asyncio():
        return len(asyncio.all_tasks())
    return trio.lowlevel.current_statistics().tasks_living


@dataclass
class Faults:
    """Attributes:
    random: draws them.
    dies: the broker, too, is killed and begun again.
    """

    world: World
    random: Random
    dies: bool = False
    told: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def happen(self) -> AsyncIterator[None]:
        """For the length of the block."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run)
                yield
                tasks.cancel_scope.cancel()
        finally:
            self.world.in_order()

    async def _run(self) -> None:
        proxy = self.world.proxy
        for _ in range(FAULTS):
            await anyio.sleep(self.random.random() * 0.3)
            kinds = ["cut", "cut", "reply", "hold", "away", "swallow", "stop"]
            kind = self.random.choice([*kinds, *["die"] * self.dies])
            self.told.append(kind)
            if kind == "cut":
                proxy.cut_all()
            elif kind == "reply":
                proxy.cut_replies(self.random.randrange(5))
                proxy.cut_all()
            elif kind == "hold":
                proxy.hold()
                await self._a_moment()
                proxy.release()
            elif kind == "away":
                proxy.go_away()
                await self._a_moment()
                proxy.come_back()
            elif kind == "swallow":
                proxy.swallow()
                await self._a_moment()
                proxy.go_away()
                proxy.come_back()
            elif kind == "stop":
                await self._stopped()
            else:
                # Beside the loop, and to its end: the broker is there again behind it.
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._die)
        await anyio.sleep_forever()  # it is counted among the tasks

    async def _a_moment(self) -> None:
        await anyio.sleep(self.random.random() * AWAY_S * 2)

    async def _stopped(self) -> None:
        process = self.world.daemon.process.pid
        os.kill(process, signal.SIGSTOP)
        try:
            await self._a_moment()
        finally:
            os.kill(process, signal.SIGCONT)

    def _die(self) -> None:
        self.world.daemon.stop(signal.SIGKILL)
        self.world.daemon.again()


@asynccontextmanager
async def nothing_left(world: World) -> AsyncIterator[None]:
    """Behind the block no task and no socket of a client is there that was not before."""
    tasks, sockets = living(), world.sockets()
    yield
    assert living() == tasks, f"{living() - tasks} tasks are left"
    gc.collect()
    assert world.sockets() == sockets, f"{world.sockets() - sockets} sockets are left"


async def close(cutter: Cutter, client: Any) -> bool:  # noqa: ANN401 - any that has an aclose
    """Close a client: whether nothing cut that short."""
    is_whole = await cutter.run("aclose", client.aclose) is not Cut
    await client.aclose()
    assert repr(client).endswith(", closed>"), repr(client)
    return is_whole

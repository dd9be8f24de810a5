"""A broker process: started, drained, killed, cut off from power, started again.

start()            manager opened, address bound, clients served
drain()            as SIGTERM: in flight is answered, everything synced and closed
kill()             as SIGKILL: tasks and threads are gone, the kernel closes the sockets
cut_power()        as kill, and of what was not synced chance leaves what it likes
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import trio

from segbroker.broker.configuration.config import BrokerConfig
from segbroker.broker.loop.callbacks import Callbacks
from segbroker.broker.server import Broker
from segbroker.segments.directory.manager import DiskManager
from segbroker.segments.errors import StorageError
from segbroker.segments.wal.journal import WalConfig

from . import threads
from .disk import Disk, Mount
from .network import BROKER, Network
from .threads import Killed, Threads
from .world import World

ROOT = "/data"


class Process:
    """One life of the broker."""

    def __init__(
        self,
        world: World,
        disk: Disk,
        network: Network,
        *,
        settings: dict[str, str | int | bool],
        preempts: float,
        short_writes: float,
        wal: WalConfig,
        express: bool,
    ) -> None:
        self.world = world
        self.disk = disk
        self.network = network
        self.started = trio.Event()
        self.ended = trio.Event()
        self.decided = trio.Event()  # it has started, or will not
        self.threads = Threads(world, preempts)
        self.mount = Mount(disk, self.threads, short_writes=short_writes)
        self.mount.serves = True
        # As on a disk that is quick: the loop syncs for a lone writer, and never in the others.
        self.mount.is_quick = world.stream("quickness").random() < 0.5
        threads.use(self.threads)
        self._called = trio.Event()
        self._callbacks = _Callbacks(lambda: self._called.set())
        host, port = BROKER
        self._config = BrokerConfig(
            listen=f"{host}:{port}",
            allow_anonymous_network=True,
            data=ROOT,
            **settings,  # type: ignore[arg-type]
        )
        self.manager = DiskManager(
            ROOT,
            storage=self.mount,
            call_soon=self._callbacks,
            flushers=self._config.flushers,
            wal=replace(wal, quick_after=3),
            clock=(lambda: 0.0) if self.mount.is_quick else None,
            open_files_max=self._config.open_files_max,
            now_ms=world.wall_ms(),
        )
        self.broker = Broker(
            self._config, manager=self.manager, now_ms=world.wall_ms, express=express
        )
        self._scope = trio.CancelScope()
        self._tasks: trio.Nursery | None = None

    async def run(self) -> None:
        """Live until the end, whatever it is."""
        try:
            async with trio.open_nursery() as nursery:
                self.threads.nursery = self._tasks = nursery
                nursery.start_soon(self._run_callbacks)
                try:
                    with self._scope:
                        await self._serve()
                finally:
                    self.threads.kill()
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # A dead process says nothing more; a living one must not die.
            rest = group.split(Killed)[1]
            if self.threads.alive and rest is not None:
                raise
            if rest is not None and rest.split(trio.Cancelled)[1] is not None:
                raise
        except Killed:
            pass
        finally:
            self.threads.alive = False
            self.mount.die()
            self.ended.set()
            self.decided.set()

    async def _serve(self) -> None:
        try:
            await self.broker.run(task_status=_Started(self.started, self.decided))
        except* (StorageError, OSError) as group:
            # A disk that is full or fails may refuse to be opened, or to be closed in order.
            self.world.trace("broker_gave_up", group.exceptions[0])
            if not self.disk.faults:
                self.world.violation(f"the broker gave up on a good disk: {group.exceptions[0]!r}")

    def drain(self) -> None:
        """End in order."""
        self.world.trace("drain")
        self.broker.drain()

    async def kill(self, *, power: bool) -> None:
        """End at once."""
        self.world.trace("power_cut" if power else "kill")
        self.mount.die()
        if power:
            self.network.vanish()
        else:
            self.network.die()
        self.threads.kill()
        self._scope.cancel()
        while not self.ended.is_set():
            # Who waits behind a shield for what the dead threads would have told waits no more.
            for task in _below(self._tasks):
                _unshield(task)
            with trio.move_on_after(0.01):
                await self.ended.wait()
        if power:
            self.disk.cut_power()

    async def _run_callbacks(self) -> None:
        while True:
            await self._called.wait()
            self._called = trio.Event()
            self._callbacks.run()


class _Callbacks(Callbacks):
    """How threads reach the loop; nothing is sent to wake it."""

    __slots__ = ()

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self._run_sync_soon = lambda *_, **__: wake()


def _below(nursery: trio.Nursery | None) -> Iterator[trio.lowlevel.Task]:
    """Whose nursery this is, and every task below."""
    if nursery is None:
        return
    yield nursery.parent_task
    waiting = list(nursery.parent_task.child_nurseries)
    while waiting:
        for task in waiting.pop().child_tasks:
            yield task
            waiting += task.child_nurseries


def _unshield(task: trio.lowlevel.Task) -> None:
    status: Any = task._cancel_status
    while status is not None:
        if status._scope.shield:
            status._scope.shield = False
        status = status._parent


class _Started:
    """What a nursery would give to `Broker.run`."""

    def __init__(self, *events: trio.Event) -> None:
        self._events = events

    def started(self, value: object = None) -> None:
        for event in self._events:
            event.set()

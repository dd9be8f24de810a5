"""Faults at times that a plan gives, also at one of the next operations of the broker's disk.

What there is beside those of the nemesis: a kind that ends with `_at` ends the broker so at an
operation that is drawn; nothing leaves it behind that, to the disk or to a client.  One that ends
with `@` and the name of a moment ends it at that.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Final

import trio

from . import threads
from .nemesis import Nemesis
from .network import Network
from .process import Process

OPERATIONS_MAX: Final = 60
MOMENT_S: Final = 0.0005
ARMED_S: Final = 2.0
"""Who waits so long for the operation at which the broker ends has it end now."""


class Strikes:
    """See the module."""

    def __init__(
        self,
        nemesis: Nemesis,
        network: Network,
        moments: Mapping[str, Callable[[Process], bool]] = MappingProxyType({}),
    ) -> None:
        """moments: by name, whether it is that of a process that serves."""
        self._moments = moments
        self.nemesis = nemesis
        self._network = network
        self._world = nemesis.world
        self._random: Random = self._world.stream("ends")
        self.ends: list[tuple[float, bool]] = []
        """When the broker has ended, and whether the power was cut."""

    async def run(self, faults: Iterable[tuple[float, str]]) -> None:
        """All of them."""
        nemesis = self.nemesis
        nemesis.disk.name_errors = nemesis.plan.name_errors
        for time, kind in faults:
            await trio.sleep_until(time)
            self._world.trace("fault", kind)
            if kind.endswith("_at"):
                await self._operation()
                kind = kind.removesuffix("_at")
            kind, _, moment = kind.partition("@")
            if moment:
                await self._wait(self._moments[moment])
            if kind in ("kill", "power_cut", "drain"):
                await self.end(kind)
                await trio.sleep(self._random.choice((0.0, 0.1)))
                await nemesis.start()
            else:
                await nemesis.strike(kind)

    async def end(self, kind: str) -> None:
        """The broker ends so."""
        await self.nemesis.end(kind)
        self.ends.append((self._world.now(), kind == "power_cut"))

    async def _wait(self, is_moment: Callable[[Process], bool]) -> None:
        with trio.move_on_after(ARMED_S):
            while True:
                process = self.nemesis.process
                is_up = process is not None and process.started.is_set() and is_there(process)
                if is_up and process is not None and is_moment(process):
                    return
                await trio.sleep(MOMENT_S)

    async def _operation(self) -> None:
        """Have one of the next operations of the disk be the last of this process."""
        process = self.nemesis.process
        if process is None or process.ended.is_set():
            return
        left = self._random.randint(0, OPERATIONS_MAX)
        mount = process.mount

        def count() -> None:
            nonlocal left
            left -= 1
            # Of the loop's own operations none is the last: trio tells of what dies in it.
            if left < 0 and mount.alive and process.threads.current() is not None:
                self._world.trace("last_operation")
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
        self._network.die()


def is_there(process: Process) -> bool:
    """Whether a process serves."""
    return process.mount.alive and not process.ended.is_set()

"""A run in the time of a world, from its first task to the last; what it raises is a violation."""

import gc
import traceback
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

import trio

from .nemesis import Nemesis
from .network import Network
from .patches import simulated
from .threads import Threads, current_threads
from .world import World

RUN_LIMIT_S: Final = 3_000.0
"""In the time of the world."""
STEP_S: Final = 0.00002
"""What one pass of the event loop takes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    violations: list[str]
    digest: str
    counts: dict[str, int]
    lines: list[str] | None

    @classmethod
    def of(cls, seed: int, world: World) -> "Outcome":
        """As the world has it in the end."""
        return cls(seed, world.violations, world.digest(), world.counts, world.lines)


class Steps(trio.abc.Instrument):
    """Work takes time: without it, two who answer each other at once would stop the clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def after_io_wait(self, timeout: float) -> None:
        self._world.clock.jump(STEP_S)


def run_world(
    world: World,
    network: Network,
    nemesis: Nemesis,
    work: Callable[[], Awaitable[None]],
    planted: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Run it.  work: all that is done; behind it the broker ends.  planted: puts a bug into the
    product for the time of the run."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nemesis.nursery = nursery
            nursery.start_soon(network.run)
            try:
                with trio.fail_after(RUN_LIMIT_S):
                    await work()
            finally:
                if (process := nemesis.process) is not None:
                    with trio.CancelScope(shield=True):
                        await process.kill(power=False)
                nursery.cancel_scope.cancel()

    run_in(world, network, main, planted)


def run_in(
    world: World,
    network: Network,
    main: Callable[[], Awaitable[None]],
    planted: Callable[[], AbstractContextManager[object]],
    instruments: Iterable[trio.abc.Instrument] = (),
) -> None:
    """Run `main` alone; what it raises is a violation."""
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        with simulated(world, network, Threads(world, 0.0)), planted():
            try:
                trio.run(main, clock=world.clock, instruments=[Steps(world), *instruments])
            except BaseException as exc:
                if isinstance(exc, KeyboardInterrupt):
                    raise
                for leaf in _leaves(exc):
                    said = "".join(traceback.format_exception(leaf, limit=-8))
                    world.violation(f"the run died: {said}")
                    if isinstance(leaf, trio.TrioInternalError):
                        world.violation(current_threads().stacks())
    finally:
        if gc_was_on:
            gc.enable()


def _leaves(exc: BaseException) -> list[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        return [leaf for one in exc.exceptions for leaf in _leaves(one)]
    return [exc]

"""A run in the time of a world, from its first task to the last; what it raises is a violation."""

import gc
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import trio

from .nemesis import Nemesis
from .network import Network
from .patches import simulated
from .run import Steps
from .threads import Threads
from .world import World

RUN_LIMIT_S: Final = 3_000.0
"""In the time of the world."""


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

    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        with simulated(world, network, Threads(world, 0.0)), planted():
            try:
                trio.run(main, clock=world.clock, instruments=[Steps(world)])
            except BaseException as exc:
                if isinstance(exc, KeyboardInterrupt):
                    raise
                for leaf in _leaves(exc):
                    said = "".join(traceback.format_exception(leaf, limit=-4))
                    world.violation(said)
    finally:
        if gc_was_on:
            gc.enable()


def _leaves(exc: BaseException) -> list[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        return [leaf for one in exc.exceptions for leaf in _leaves(one)]
    return [exc]

"""A run in the time of a world, from its first task to the last; what it raises is a violation."""

import gc
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import trio

from .network import Network
from .patches import simulated
from .run import Steps
from .threads import Threads
from .world import World


def run_world(
    world: World,
    network: Network,
    main: Callable[[], Awaitable[None]],
    planted: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Run it.  planted: puts a bug into the product for the time of the run."""
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

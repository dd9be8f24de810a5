"""The lives of one member of a group: each is begun, ends or is cut off, then comes the next.

Times are those of the simulated clock.
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeAlias

import trio

from segbroker.client.errors import SegbrokerError

from .clients import raise_others
from .world import World

Live: TypeAlias = Callable[[int, trio.CancelScope, bool], Awaitable[None]]
"""Its number, what cuts it off, and whether it dies without a word."""


async def live_again(
    world: World,
    random: Random,
    duration_s: float,
    name: str,
    count: int,
    until: Callable[[], bool],
    live: Live,
    *,
    word: str,
) -> None:
    """All lives of one member; the last of `count` goes on until `until`.

    word: what the trace calls it.
    """
    await trio.sleep(random.uniform(0, duration_s / 2))
    life = 0
    while not until():
        life += 1
        last = life >= count
        dies = not last and random.random() < 0.5
        try:
            with trio.CancelScope() as scope:
                if not last:
                    scope.deadline = trio.current_time() + random.uniform(0.2, 3.0)
                await live(life, scope, dies)
        except SegbrokerError as exc:
            world.trace(f"{word}_failed", name, type(exc).__name__, str(exc)[:60])
        except BaseExceptionGroup as found:
            raise_others(found)
        world.trace(f"{word}_ended", name, life, dies)
        await trio.sleep(0.05)

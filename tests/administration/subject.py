"""One thing that is changed: rounds of changes at once, and looks at it in between.

Every client has a connection of its own.  A round, and a look, is cut off when the broker ends; the
next one waits for a broker that serves.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Final, Generic, TypeVar

import trio

from ..simulation.process import Process
from ..simulation.strikes import is_there
from ..simulation.wire import connected
from ..simulation.world import World
from ..support.wire_client import Closed, WireClient
from .belief import Belief, Change, Difference

S = TypeVar("S")

ANSWER_LIMIT_S: Final = 200.0
"""A request on an open connection is answered within so long: syncs that take two seconds each."""
END_LIMIT_S: Final = 30.0
"""Who closes a connection ends within so long, or had no reason to."""
POLL_S: Final = 0.01


class Lives:
    """The broker's processes, one after the other, as their clients see them."""

    def __init__(self, world: World, current: Callable[[], Process | None]) -> None:
        self.world = world
        self._current = current
        self.lagging: Process | None = None
        """One in which partitions may go by settings of before: somebody was told so."""
        self.is_calm = False
        """Whether nobody changes anything, and what failed has had the time to be done."""

    def lag(self) -> None:
        """A change of settings has failed behind being stored."""
        self.lagging = self._current()

    async def serving(self) -> Process:
        """The process that serves; waits for one."""
        while (process := self._serving()) is None:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(POLL_S)
        return process

    def _serving(self) -> Process | None:
        process = self._current()
        if process is None or not process.started.is_set() or process.ended.is_set():
            return None
        return process

    @asynccontextmanager
    async def within(self, process: Process) -> AsyncIterator[None]:
        """What is inside ends with the process, or when it closes a connection of ours: as it does
        when it ends."""
        try:
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    while is_there(process):  # noqa: ASYNC110 - nobody tells
                        await trio.sleep(POLL_S)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                yield
                nursery.cancel_scope.cancel()
        except* (Closed, OSError, trio.ClosedResourceError) as group:
            with trio.move_on_after(END_LIMIT_S):
                await process.ended.wait()
            if not process.ended.is_set():
                why = f"a broker that goes on closes a connection: {group.exceptions}"
                raise Difference(why) from group

    @asynccontextmanager
    async def client(self, process: Process, name: str) -> AsyncIterator[WireClient]:
        """A connection to it."""
        async with connected(process.network, name) as client:
            yield client


class Subject(ABC, Generic[S]):
    """See the module."""

    def __init__(self, name: str, state: S, lives: Lives, clients: int) -> None:
        """clients: so many changes at once, at most."""
        self.name = name
        self.belief = Belief(state)
        self.lives = lives
        self.world = lives.world
        self.random: Random = self.world.stream(f"subject {name}")
        self.rounds = 0
        self._clients = clients
        self._life: Process | None = None

    @abstractmethod
    def draw(self, random: Random) -> Change[S]:
        """A change that somebody might want."""

    @abstractmethod
    async def look(self, process: Process, client: WireClient) -> None:
        """Compare with what the broker says.  Raises Difference."""

    def begins(self, changes: list[Change[S]]) -> None:
        """Told of a round before it is asked for."""

    def heard(self, changes: list[Change[S]]) -> None:
        """Told of the answers of a round."""

    def restarted(self) -> None:
        """Told that the broker is another process."""

    def ended(self) -> None:
        """Told when the belief is that after a round."""

    async def live(self, rounds: int, pause_s: float) -> None:
        """Rounds and looks, over the lives of the broker."""
        while self.rounds < rounds:
            process = await self.lives.serving()
            await self.see(process)
            while self.rounds < rounds and is_there(process):
                await trio.sleep(self.random.uniform(0, 2 * pause_s))
                await self._round(process)
                if self.random.random() < 0.5:
                    await self.see(process)

    async def see(self, process: Process) -> None:
        """Look, unless the broker ends meanwhile."""
        if self._life is not process:
            if self._life is not None:
                self.belief.crashed()
            self.restarted()
            self._life = process
            self.ended()
        async with self.lives.within(process), self.lives.client(process, self.name) as client:
            await self.look(process, client)
            self.world.trace("looked", self.name, self.belief.states[0])

    async def _round(self, process: Process) -> None:
        if self._life is not process or process.ended.is_set():
            return
        count = self.random.choice((1, 1, 1, 2, self._clients))
        changes = [self.draw(self.random) for _ in range(count)]
        self.begins(changes)
        async with self.lives.within(process), trio.open_nursery() as nursery:
            for change in changes:
                nursery.start_soon(self._ask, process, change)
        for change in changes:
            self.world.trace("changed", self.name, change, change.code)
        self.rounds += 1
        self.belief.after(changes)
        self.heard(changes)
        self.ended()

    async def _ask(self, process: Process, change: Change[S]) -> None:
        await answered(self._asked(process, change), str(change))

    async def _asked(self, process: Process, change: Change[S]) -> None:
        async with self.lives.client(process, self.name) as client:
            await trio.sleep(self.random.choice((0.0, self.random.uniform(0, 0.01))))
            change.code = await change.ask(client)


async def answered(call: Awaitable[None], what: str) -> None:
    """Wait for an answer.  Raises Difference: there is none."""
    with trio.move_on_after(ANSWER_LIMIT_S) as patience:
        await call
    if patience.cancelled_caught:
        raise Difference(f"{what} has no answer after {ANSWER_LIMIT_S} s")

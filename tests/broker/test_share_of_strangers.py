"""The share of the loop that strangers have, by a clock of the test: what is done takes as long as
it says."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import trio

from segbroker.broker.loop.strangers import CLIENTS_SHARE, IN_PASS_LEAST, SHARE_MAX_S, Strangers

LITTLE_S: Final = 0.0001
MUCH_S: Final = 0.005
CLIENTS_S: Final = 0.030
TURNS: Final = 4


class Loop(trio.abc.Instrument):
    """Passes, in which clients and strangers take their time."""

    def __init__(self, clients_s: float) -> None:
        self.now = 0.0
        self.strangers = Strangers(lambda: self.now)
        self.passes = 0
        self.turns = 0
        self.served: Counter[int] = Counter()  # strangers, by pass
        self.strangers_s: dict[int, float] = {}  # and what they took
        self._clients_s = clients_s

    def before_io_wait(self, timeout: float) -> None:
        self.passes += 1

    async def clients(self) -> None:
        """For ever."""
        while True:
            self.now += self._clients_s
            await trio.lowlevel.checkpoint()

    async def stranger(self, cost: Callable[[], float], host: str = "a") -> None:
        for _ in range(TURNS):
            await self.strangers.turn(host)
            self.turns += 1
            self.served[self.passes] += 1
            took_s = cost()
            self.now += took_s
            self.strangers_s[self.passes] = self.strangers_s.get(self.passes, 0) + took_s

    async def serve(self, count: int, cost: Callable[[], float]) -> None:
        """All that so many strangers want."""
        trio.lowlevel.add_instrument(self)
        try:
            async with trio.open_nursery() as clients:
                clients.start_soon(self.clients)
                async with trio.open_nursery() as strangers:
                    for _ in range(count):
                        strangers.start_soon(self.stranger, cost)
                clients.cancel_scope.cancel()
        finally:
            trio.lowlevel.remove_instrument(self)
        assert self.turns == TURNS * count


async def test_in_short_passes_few_strangers_have_their_turn() -> None:
    loop = Loop(clients_s=0.0)
    await loop.serve(300, lambda: LITTLE_S)
    assert max(loop.served.values()) == IN_PASS_LEAST


async def test_in_long_passes_strangers_have_a_share_in_proportion() -> None:
    """A thousand clients that come back want four thousand turns, which were 250 passes, or eight
    seconds, by sixteen in each."""
    loop = Loop(CLIENTS_S)
    await loop.serve(1_000, lambda: LITTLE_S)
    assert loop.passes < 100
    assert max(loop.strangers_s.values()) < CLIENTS_SHARE * CLIENTS_S + 2 * LITTLE_S


async def test_who_costs_much_behind_many_who_cost_little_is_stopped_in_the_same_pass() -> None:
    loop = Loop(CLIENTS_S)
    little = 3_000
    await loop.serve(1_000, lambda: LITTLE_S if loop.turns < little else MUCH_S)
    assert max(loop.served.values()) > 3 * IN_PASS_LEAST, "many are called"
    assert max(loop.strangers_s.values()) < CLIENTS_SHARE * CLIENTS_S + IN_PASS_LEAST * MUCH_S


async def test_a_pass_in_which_the_machine_stood_still_is_no_measure() -> None:
    loop = Loop(clients_s=20.0)
    await loop.serve(1_000, lambda: LITTLE_S)
    assert max(loop.strangers_s.values()) < SHARE_MAX_S + 2 * LITTLE_S


async def test_the_time_without_strangers_is_no_measure() -> None:
    loop = Loop(clients_s=0.0)
    for _ in range(20):
        with trio.CancelScope() as scope:  # one that gives up
            scope.cancel()
            await loop.strangers.turn("a")
        await trio.lowlevel.checkpoint()
        loop.now += 60
        await trio.lowlevel.checkpoint()
    await loop.serve(300, lambda: LITTLE_S)
    assert max(loop.served.values()) == IN_PASS_LEAST


async def test_behind_many_who_wait_whoever_comes_from_elsewhere_is_next() -> None:
    loop, order = Loop(CLIENTS_S), []

    async def stranger(host: str) -> None:
        await loop.strangers.turn(host)
        order.append(host)
        loop.now += MUCH_S

    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(stranger, "many")
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        nursery.start_soon(stranger, "other")
    assert order.index("other") < 6 * IN_PASS_LEAST


async def test_who_gives_up_holds_up_nobody() -> None:
    loop = Loop(CLIENTS_S)
    scopes: list[trio.CancelScope] = []

    async def fickle() -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            while True:
                await loop.strangers.turn("fickle")

    async def cancel() -> None:
        for scope in scopes:
            scope.cancel()
            await trio.lowlevel.checkpoint()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(fickle)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(cancel)
            for _ in range(100):
                nursery.start_soon(loop.stranger, lambda: LITTLE_S)
        assert loop.turns == 100 * TURNS
        with trio.CancelScope() as scope:
            scope.cancel()
            await loop.strangers.turn("cancelled")
        await loop.strangers.turn("last")

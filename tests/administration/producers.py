"""Ids of producers: none is given twice, and the epochs of a transactional id only rise."""

from typing import Final

import trio

from segbroker.protocol.messages_transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from ..simulation.process import Process
from .belief import Difference
from .subject import Lives, answered

NAMES: Final = (None, None, "tx-a", "tx-b")


class Producers:
    """See the module."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.random = lives.world.stream("producer ids")
        self.given: set[tuple[int, int]] = set()
        self.last: dict[str, tuple[int, int]] = {}

    async def ask(self, count: int, pause_s: float) -> None:
        """Ask for so many, over the lives of the broker."""
        for _ in range(count):
            process = await self.lives.serving()
            await trio.sleep(self.random.uniform(0, 2 * pause_s))
            async with self.lives.within(process):
                await answered(self._ask(process), "InitProducerId")

    async def _ask(self, process: Process) -> None:
        name = self.random.choice(NAMES)
        async with self.lives.client(process, "producers") as client:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            reply = await client.ask(request, InitProducerIdResponse, 5)
        if reply.error_code:
            return
        got = reply.producer_id, reply.producer_epoch
        self.lives.world.trace("given", name, *got)
        if got in self.given:
            raise Difference(f"{got} is given a second time, to {name}")
        if name is None and any(one == got[0] for one, _ in self.given):
            raise Difference(f"producer id {got[0]} is given a second time")
        if name is not None:
            before = self.last.get(name, (-1, -1))
            if got[0] == before[0] and got[1] <= before[1]:
                raise Difference(f"{name} gets {got} behind {before}")
            self.last[name] = got
        self.given.add(got)

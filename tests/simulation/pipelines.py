"""Producers of requests that do not wait for each other, as librdkafka sends them.

Our own client has one request in flight, or a producer id.  These have neither: many plain requests
in one send, over several partitions, now and then one of another kind between them.  Every value is
sent once: what is not answered is left at that, and a connection that is lost is made again.
"""

from random import Random
from typing import Final

import trio

from segbroker.protocol.messages_core import MetadataRequest, MetadataResponse, ProduceResponse

from ..support.wire_client import Closed, WireClient, batch, produce_request
from .clients import value_of
from .history import History, Key
from .network import Network
from .plan import Pipeline
from .wire import connected
from .world import World

ANSWER_S: Final = 8.0
"""A connection whose answer takes longer is given up."""
ASKS: Final = 0.1
"""The share of the rounds with a request of another kind in the middle."""
_PRODUCE_VERSION: Final = 9
_METADATA_VERSION: Final = 9


class Pipelines:
    """All of a run."""

    def __init__(self, world: World, history: History, network: Network) -> None:
        self.acked = 0
        self._world = world
        self._history = history
        self._network = network

    async def produce(self, spec: Pipeline) -> None:
        """All rounds of one of them."""
        random = self._world.stream(f"pipeline {spec.name}")
        number = 0
        while number < spec.rounds:
            try:
                async with connected(self._network, spec.name) as client:
                    while number < spec.rounds:
                        number += 1
                        with trio.fail_after(ANSWER_S):
                            await self._round(spec, number, client, random)
                        await trio.sleep(random.uniform(0, spec.pause_s * 2))
            except (OSError, Closed, trio.ClosedResourceError, trio.TooSlowError) as exc:
                self._world.trace("pipeline_lost", spec.name, type(exc).__name__)
                await trio.sleep(0.1)

    async def _round(self, spec: Pipeline, number: int, client: WireClient, random: Random) -> None:
        """Send some requests at once, then take their replies."""
        frames: list[bytes] = []
        asked: list[tuple[int, Key, list[bytes]] | None] = []
        count = random.choice((1, 2, 10))
        for place in range(count):
            if random.random() < ASKS / count:
                frames.append(client.encode(MetadataRequest(topics=[]), _METADATA_VERSION)[1])
                asked.append(None)
            partition = random.randrange(spec.topic.partitions)
            key = (spec.topic.name, partition)
            first = (number * 10 + place) * 2
            values = [
                value_of(spec.name, partition, first + n, 40) for n in range(random.choice((1, 2)))
            ]
            for value in values:
                self._history.sent(spec.name, key, value, idempotent=False, batch=values[0])
            request = produce_request(key[0], batch(*values), partition=partition)
            correlation_id, frame = client.encode(request, _PRODUCE_VERSION)
            frames.append(frame)
            asked.append((correlation_id, key, values))
        await client.send_bytes(b"".join(frames))
        for one in asked:
            if one is None:
                await client.receive(MetadataResponse, _METADATA_VERSION)
                continue
            expected, key, values = one
            correlation_id, reply = await client.receive(ProduceResponse, _PRODUCE_VERSION)
            assert correlation_id == expected, "a reply to something else"
            row = reply.responses[0].partition_responses[0]
            if row.error_code:
                self._world.trace("pipeline_refused", spec.name, row.error_code)
                continue
            self._world.trace("pipeline_acked", spec.name, key[1], row.base_offset)
            self.acked += len(values)
            for offset, value in enumerate(values, row.base_offset):
                self._history.acked(key, value, offset)

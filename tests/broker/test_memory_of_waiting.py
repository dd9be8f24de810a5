"""What a connection holds while its request waits: its request, and no room to receive into."""

import gc
import threading
from contextlib import AsyncExitStack

import trio

from segbroker.broker.connections.connection import TURN_S
from segbroker.broker.server import Broker
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.limits import REQUEST_HEADER_SIZE_MIN
from segbroker.protocol.messages_core import ProduceResponse

from ..support.waiting import becomes
from ..support.wire_client import batch, connect, produce_request
from .conftest import serving

CONNECTIONS = 100
FEW = 3


def readers() -> int:
    """Of connections of the broker; the test's own take any size."""
    return sum(
        isinstance(one, FrameReader) and one._size_min == REQUEST_HEADER_SIZE_MIN
        for one in gc.get_objects()
    )


def held_opening(broker: Broker) -> threading.Event:
    """Partitions are opened when it is set."""
    may_open = threading.Event()
    partitions = broker.core.topics.manager.partitions
    get_handlers = partitions.get_handlers

    def held(places: list[tuple[str, int]]) -> object:
        may_open.wait()
        return get_handlers(places)

    partitions.get_handlers = held  # type: ignore[method-assign,assignment]  # it waits
    return may_open


async def test_a_small_request_that_waits_holds_no_buffer() -> None:
    """64 KiB for each of ten thousand that wait for the same would be 640 MB."""
    gc.collect()
    before = readers()
    async with serving() as broker, AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connect(broker.address)) for _ in range(CONNECTIONS)
        ]
        await clients[0].create("t")
        may_open = held_opening(broker)
        stack.callback(may_open.set)
        for client in clients:
            await client.send(produce_request("t", batch(b"v")), 9)
        await becomes(lambda: sum(one.greeted for one in broker._connections) == CONNECTIONS)
        assert readers() - before <= FEW, "one that all use, one after the other"
        await trio.sleep(TURN_S)  # all have had their time when they go on
        most = 0

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, readers() - before)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            may_open.set()
            offsets = []
            for client in clients:
                _, reply = await client.receive(ProduceResponse, 9)
                offsets.append(reply.responses[0].partition_responses[0].base_offset)
            nursery.cancel_scope.cancel()
        assert most <= FEW, "nor do all of them, when they go on"
        assert sorted(offsets) == [*range(CONNECTIONS)]
        for client in clients[:3]:
            assert (await client.produce("t", b"v")).error_code == 0


async def test_what_comes_behind_a_small_request_that_waits_is_answered() -> None:
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        may_open = held_opening(broker)
        frames = [client.encode(produce_request("t", batch(b"v%d" % n)), 9) for n in range(6)]
        try:
            await client.send_bytes(frames[0][1])
            await becomes(lambda: any(one.greeted and one.reads > 1 for one in broker._connections))
            await client.send_bytes(b"".join(frame for _, frame in frames[1:5]))
            await client.send_bytes(frames[5][1][:7])  # half of one
        finally:
            may_open.set()
        await client.send_bytes(frames[5][1][7:])
        for correlation_id, _ in frames:
            received, reply = await client.receive(ProduceResponse, 9)
            assert received == correlation_id
            assert reply.responses[0].partition_responses[0].error_code == 0

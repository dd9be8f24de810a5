"""What a connection holds while its request waits: its request, and no room to receive into."""

import gc
import socket
import threading
import tracemalloc
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from segbroker.broker.connections import connection, inbox
from segbroker.broker.connections.connection import TURN_S
from segbroker.broker.server import Broker
from segbroker.protocol.frames import FrameReader
from segbroker.protocol.limits import (
    RECEIVE_KEEP_MAX,
    RECEIVE_SIZE,
    REQUEST_HEADER_SIZE_MIN,
)
from segbroker.protocol.messages_core import ProduceResponse

from ..support.gated_storage import GatedStorage
from ..support.waiting import becomes
from ..support.wire_client import batch, connect, fetch_request, produce_request
from .conftest import serving
from .traced_memory import comes_below, traced_bytes

CONNECTIONS = 100
FEW = 3


def readers() -> list[FrameReader]:
    """Of connections of the broker; the test's own take any size."""
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, FrameReader) and one._size_min == REQUEST_HEADER_SIZE_MIN
    ]


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
    gc.freeze()  # it looks at all others at every turn
    before = len(readers())
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
        assert len(readers()) - before <= FEW, "one that all use, one after the other"
        await trio.sleep(TURN_S)  # all have had their time when they go on
        most = 0

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, len(readers()) - before)
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


async def test_a_connection_that_has_ended_holds_no_buffer_whoever_still_knows_it() -> None:
    """The watchdog does, while it looks at the others."""
    gc.collect()
    gc.freeze()
    before = len(readers())
    async with serving() as broker:
        async with AsyncExitStack() as stack:
            for _ in range(CONNECTIONS):
                await stack.enter_async_context(connect(broker.address))
            await becomes(lambda: len(broker._connections) == CONNECTIONS)
            known = list(broker._connections)
        await becomes(lambda: not broker._connections)
        assert len(known) == CONNECTIONS
        assert len(readers()) - before <= FEW


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


@pytest.mark.parametrize("size", [RECEIVE_KEEP_MAX // 2, 2 * RECEIVE_KEEP_MAX])
async def test_what_large_requests_were_received_into_is_not_kept_for_ever(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers go back to where the next connection takes one, however far they have grown."""
    count, most = 8, 8 << 20
    monkeypatch.setattr(inbox, "SHELF_BYTES_MAX", most)
    frame = produce_request("none", bytes(size))
    before = sum(one.capacity for one in readers())
    async with serving() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        for client in clients:  # all of them have some of it at the same time
            _, data = client.encode(frame, 9)
            await client.send_bytes(data[:-1])
        await becomes(lambda: broker.half_request_bytes > count * size * 9 // 10)
        for client in clients:
            await client.send_bytes(b"\0")
            await client.receive(ProduceResponse, 9)
        await becomes(lambda: not broker.half_request_bytes)
        await trio.testing.wait_all_tasks_blocked()
        assert sum(one.capacity for one in readers()) - before <= most
        await clients[0].create("t")
        assert (await clients[0].produce("t", b"v")).error_code == 0


@pytest.mark.parametrize("begun", [0, 2 * inbox.ASIDE_BYTES_MAX], ids=["idle", "begun"])
@pytest.mark.parametrize("size", [RECEIVE_KEEP_MAX // 2, 2 * RECEIVE_KEEP_MAX])
async def test_a_connection_that_waits_holds_nothing_of_its_last_request(
    size: int, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large that was: a client may send one by each of a thousand connections, and the
    beginning of another."""
    count = 8
    monkeypatch.setattr(inbox, "SHELF_BYTES_MAX", size)
    async with serving() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        gc.collect()
        tracemalloc.start()
        try:
            _, frame = clients[0].encode(produce_request("none", bytes(size)), 9)
            for client in clients:
                await client.send_bytes(frame + frame[:begun])
                await client.receive(ProduceResponse, 9)
            await comes_below(4 * size)  # the test's own frames, and the shelf
        finally:
            tracemalloc.stop()


async def test_an_idle_connection_holds_no_reader_that_nobody_wants() -> None:
    """More had something to say at the same time than readers are kept."""
    count = 2 * inbox.SHELF_MAX
    before = len(readers())
    async with serving() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        await clients[0].create("t")
        may_open = held_opening(broker)
        stack.callback(may_open.set)
        large = batch(bytes(2 * inbox.ASIDE_BYTES_MAX))
        for client in clients:
            await client.send(produce_request("t", large), 9)
        await becomes(lambda: sum(one.greeted for one in broker._connections) == count)
        assert len(readers()) - before == count
        may_open.set()
        for client in clients:
            await client.receive(ProduceResponse, 9)
        await trio.testing.wait_all_tasks_blocked()
        assert len(readers()) - before <= inbox.SHELF_MAX


async def test_who_waits_for_the_disk_holds_no_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of producers do, where it is slow."""
    size, count = 1 << 20, 8
    monkeypatch.setattr(inbox, "SHELF_MAX", 1)
    disk = GatedStorage()
    async with serving(storage=disk, ingest_bytes_max=1 << 16) as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        await clients[0].create("t")
        before = len(readers())
        disk.syncs.clear()
        stack.callback(disk.syncs.set)
        for client in clients:
            await client.send(produce_request("t", batch(bytes(size - 1_000))), 9)
        await becomes(lambda: broker.core.ingest.stalls == count)
        assert len(readers()) - before <= 1
        disk.syncs.set()
        for client in clients:
            await client.receive(ProduceResponse, 9)


@pytest.mark.parametrize("waits_for", ["disk", "quota"])
async def test_who_has_begun_with_the_next_request_and_waits_holds_no_large_buffer(
    waits_for: str,
) -> None:
    """The beginning of it is behind the request that was received last, in the same buffer."""
    size, count = 900_000, 8
    disk = GatedStorage()
    async with (
        serving(
            storage=disk,
            ingest_bytes_max=1 << (20 if waits_for == "disk" else 30),
            quota_produce_bytes_per_second=100_000 if waits_for == "quota" else 0,
        ) as broker,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        for n, client in enumerate(clients):
            await client.create(f"t{n}")
        if waits_for == "disk":
            disk.syncs.clear()
            stack.callback(disk.syncs.set)
        before = sum(one.capacity for one in readers())
        pauses = broker.core.counters.quota_pauses
        for n, client in enumerate(clients):
            _, data = client.encode(produce_request(f"t{n}", batch(bytes(size))), 9)
            await client.send_bytes(data + data[: 2 * inbox.ASIDE_BYTES_MAX])

        def waiting() -> int:
            if waits_for == "quota":
                return broker.core.counters.quota_pauses - pauses
            return broker.core.ingest.stalls

        await becomes(lambda: waiting() >= count - 1)
        await trio.testing.wait_all_tasks_blocked()
        assert sum(one.capacity for one in readers()) - before < 4 * size


async def test_who_owes_something_keeps_no_room_from_others() -> None:
    """What it has sent is done with; it is not read for up to half a minute."""
    size = 700_000
    async with (
        serving(request_bytes_max=1 << 20, quota_produce_bytes_per_second=30_000) as broker,
        connect(broker.address) as muted,
        connect(broker.address, source="127.0.0.2") as other,
    ):
        await muted.create("t")
        assert (await muted.produce("t", b"v" * size)).error_code == 0
        assert not broker.half_request_bytes
        with trio.fail_after(20):
            assert (await other.produce("t", b"v" * size)).error_code == 0


async def test_a_large_request_that_waits_is_counted_whole() -> None:
    """Not only what of it had come before the last bytes: it may come at once."""
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        may_open = held_opening(broker)
        frame = client.encode(produce_request("t", batch(bytes(900_000))), 9)[1]
        try:
            await client.send_bytes(frame)
            await becomes(lambda: bool(broker.core.topics._opening))
            assert 0 <= broker.half_request_bytes - len(frame) <= 2 * RECEIVE_SIZE
        finally:
            may_open.set()
        await client.receive(ProduceResponse, 9)
        await trio.testing.wait_all_tasks_blocked()
        assert not broker.half_request_bytes


async def test_a_buffer_that_has_grown_for_bytes_that_did_not_come_is_counted() -> None:
    """Its client has sent just as much as there was room for, and stops."""
    async with serving() as broker, connect(broker.address) as client:
        await client.create("t")
        frame = client.encode(produce_request("t", batch(bytes(3 << 20))), 9)[1]
        sent = 200_000
        await client.send_bytes(frame[:sent])
        (one,) = broker._connections
        await becomes(lambda: one._inbox.unread == sent and one.is_waiting)
        reader = one._inbox._reader
        assert reader is not None
        held = reader.capacity
        assert broker.half_request_bytes == held
        await client.send_bytes(frame[sent:held])
        await becomes(lambda: one._inbox.unread == held and one.is_waiting)
        assert broker.half_request_bytes == reader.capacity > held
        await client.send_bytes(frame[held:])
        await client.receive(ProduceResponse, 9)


async def until_all_wait(broker: Broker, count: int) -> None:
    """So many have received what they were sent, and wait for something."""
    await becomes(
        lambda: (
            sum(bool(len(one.outbox) or one.outbox.unsent) for one in broker._connections) == count
        )
    )
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("waits_for", ["slots", "its client"])
async def test_who_waits_with_what_came_behind_a_large_request_holds_no_large_buffer(
    waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests come at once, and the second is not answered soon: the first one is done with,
    and so is the room that it was received into."""
    size, count = 900_000, 8
    monkeypatch.setattr(inbox, "SHELF_BYTES_MAX", size)
    monkeypatch.setattr(connection, "TURN_S", 0.0)  # others have their turn behind each request
    async with (
        serving(slots_max=2 if waits_for == "slots" else 100) as broker,
        connect(broker.address) as writer,
        AsyncExitStack() as stack,
    ):
        await writer.create("t")
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        if waits_for == "slots":
            await writer.fetch("t", 0)  # nobody has to wait for it to be opened
            asked = [fetch_request("t", 0, wait_ms=60_000)] * 2
        else:
            for _ in range(8):
                await writer.produce("t", bytes(size))
            asked = [fetch_request("t", 0, max_bytes=1 << 24, partition_max_bytes=1 << 24)] * 2
        large = writer.encode(produce_request("none", bytes(size)), 9)[1]
        behind = b"".join(writer.encode(one, 12)[1] for one in asked)
        gc.collect()
        tracemalloc.start()
        try:
            for client in clients:
                client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
                await client.send_bytes(large[:-100])
            await becomes(lambda: broker.half_request_bytes > count * (size - 100_000))
            for client in clients:
                await client.send_bytes(large[-100:] + behind)  # one receive of the broker
            await until_all_wait(broker, count)
            # The test's own, and the shelf; a checkpoint of what was written has some for a moment.
            await becomes(lambda: traced_bytes() < 3 * size + broker.core.pool.lent_bytes)
        finally:
            tracemalloc.stop()
        assert not broker.half_request_bytes


async def test_what_a_large_request_was_received_into_does_not_stay_for_a_part_of_the_next() -> (
    None
):
    """That part counts, and not the buffer: a hundred MiB of it would be held for nothing."""
    size, begun, count = 8 << 20, 100_000, 8
    async with serving() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        before = sum(one.capacity for one in readers())
        for client in clients:
            _, data = client.encode(produce_request("none", bytes(size)), 9)
            await client.send_bytes(data + data[:begun])
            await client.receive(ProduceResponse, 9)
        await becomes(lambda: broker.half_request_bytes >= count * begun)
        await trio.testing.wait_all_tasks_blocked()
        held = sum(one.capacity for one in readers()) - before
        assert held <= broker.half_request_bytes + inbox.SHELF_BYTES_MAX // 8


@pytest.mark.parametrize("begun", [70_000, 1_000_000])
async def test_the_beginnings_of_large_requests_take_no_more_memory_than_there_is_for_them(
    begun: int,
) -> None:
    """However little has come: a buffer grows ahead of what comes, and much may come at once."""
    most, count = 4 << 20, 40
    async with serving(request_bytes_max=most) as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        before = sum(one.capacity for one in readers())
        async with trio.open_nursery() as nursery:
            for client in clients:
                data = (50 << 20).to_bytes(4, "big") + bytes(begun)
                nursery.start_soon(client.send_bytes, data)
            await becomes(lambda: sum(one.reads > 0 for one in broker._connections) == count)
            await trio.testing.wait_all_tasks_blocked()
            held = sum(one.capacity for one in readers()) - before
            nursery.cancel_scope.cancel()
        assert held < most + (1 << 20) + count * 2 * RECEIVE_SIZE


async def test_a_request_that_waits_counts_with_the_buffer_that_it_is_in() -> None:
    """That of a large one that came before it, in the same receive."""
    size, count = 900_000, 8
    async with serving() as broker, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(broker.address)) for _ in range(count)]
        await clients[0].create("t")
        before = sum(one.capacity for one in readers())
        may_open = held_opening(broker)
        stack.callback(may_open.set)
        large = clients[0].encode(produce_request("none", bytes(size)), 9)[1]
        small = clients[0].encode(produce_request("t", batch(bytes(5_000))), 9)[1]
        for client in clients:
            await client.send_bytes(large[:-100])
        await becomes(lambda: broker.half_request_bytes > count * (size - 100_000))
        for client in clients:
            await client.send_bytes(large[-100:] + small)
            await client.receive(ProduceResponse, 9)
        await becomes(lambda: sum(one.reads > 1 for one in broker._connections) == count)
        await trio.testing.wait_all_tasks_blocked()
        held = sum(one.capacity for one in readers()) - before
        assert held > count * size
        assert held <= broker.half_request_bytes + count * 2 * RECEIVE_SIZE
        may_open.set()
        for client in clients:
            _, reply = await client.receive(ProduceResponse, 9)
            assert not reply.responses[0].partition_responses[0].error_code
        await trio.testing.wait_all_tasks_blocked()
        assert not broker.half_request_bytes

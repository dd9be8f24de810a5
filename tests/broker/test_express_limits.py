"""The limits of the express way, each at its border: whoever meets one is answered all the same."""

import errno
import socket
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from segbroker.broker.producing.express import Express
from segbroker.protocol.errors import ErrorCode
from segbroker.protocol.messages_core import ProduceResponse

from ..support.gated_storage import GatedStorage
from ..support.wire_client import batch, connect, produce_request
from .conftest import Events, serving
from .test_express_bounds import parked, send_at_once
from .test_express_ways import Producers, taken


async def test_nobody_is_read_while_too_much_waits_for_the_disk() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, ingest_bytes_max=1 << 16) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        others = await parked(broker, client, stack, 3, "fsync")
        disk.syncs.clear()
        large = produce_request("t", batch(bytes(30_000)))
        for one in others:
            send_at_once(one, one.encode(large, 9)[1])
        with trio.fail_after(60):
            while broker.core.ingest.unsynced_bytes < 3 * 30_000:
                await trio.lowlevel.checkpoint()
        waiting = broker.core.ingest.unsynced_bytes
        send_at_once(client, client.encode(produce_request("t", batch(b"late")), 9)[1])
        with trio.fail_after(60):
            await trio.testing.wait_all_tasks_blocked()  # it does not look again and again
        assert broker.core.ingest.unsynced_bytes == waiting
        disk.syncs.set()
        with trio.fail_after(60):
            for one in (*others, client):
                _, reply = await one.receive(ProduceResponse, 9)
                assert not reply.responses[0].partition_responses[0].error_code


async def test_what_is_appended_one_by_one_stops_as_soon_as_too_much_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, ingest_bytes_max=1 << 16) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        monkeypatch.setattr("segbroker.broker.producing.intake.TOGETHER_MAX", 1)
        others = await parked(broker, client, stack, 3, "fsync")
        disk.syncs.clear()
        size = 0
        for n, one in enumerate((*others, client)):
            records = batch(bytes(40_000), producer=(n, 0, 0))
            size = len(records)
            send_at_once(one, one.encode(produce_request("t", records), 9)[1])
        with trio.fail_after(60):
            await trio.testing.wait_all_tasks_blocked()
        assert broker.core.ingest.unsynced_bytes == 2 * size
        disk.syncs.set()
        with trio.fail_after(60):
            for one in (*others, client):
                _, reply = await one.receive(ProduceResponse, 9)
                assert not reply.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("before", [0, 2], ids=["at first", "alone"])
async def test_the_longest_wait_of_the_broker_holds_for_a_run(before: int) -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, produce_timeout_max_ms=1_000) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        await parked(broker, client, stack, 0, "fsync")
        for _ in range(before):
            await Producers([client]).say("t", b"v")
        disk.syncs.clear()
        request = produce_request("t", batch(b"v"), timeout_ms=3_600_000)
        with trio.fail_after(60):
            reply = await client.ask(request, ProduceResponse, 9)
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert taken(broker) == before + 1
        disk.syncs.set()


async def test_who_waits_for_less_long_is_not_made_to_wait_with_others() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        (other,) = await parked(broker, client, stack, 1, "fsync")
        disk.syncs.clear()
        for one, timeout_ms in ((client, 600_000), (other, 30)):
            request = produce_request("t", batch(b"v"), timeout_ms=timeout_ms)
            send_at_once(one, one.encode(request, 9)[1])
        codes = []
        with trio.fail_after(60):
            for one in (other, client):
                _, reply = await one.receive(ProduceResponse, 9)
                codes.append(reply.responses[0].partition_responses[0].error_code)
                disk.syncs.set()
        assert codes == [ErrorCode.REQUEST_TIMED_OUT, 0]
        assert taken(broker) == 2


async def test_names_of_topics_are_forgotten_where_they_would_be_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segbroker.broker.producing.intake.NAMES_MAX", 3)
    async with serving() as broker, connect(broker.address) as client, AsyncExitStack() as stack:
        await parked(broker, client, stack, 0)
        producer = Producers([client])
        assert broker.express is not None
        for n in range(8):
            await producer.say(f"unknown{n}", b"v")
            await producer.say("t", b"v")
            assert 1 <= len(broker.express._intake._names) <= 3
        codes = [row.error_code for _, row in producer.rows]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0] * 8


class _Full:
    """An epoll that the system has no room in."""

    closed = False

    def __init__(self, real: object) -> None:
        self.asked = 0
        self._real = real

    def register(self, *_: object) -> None:
        self.asked += 1
        raise OSError(errno.ENOSPC, "no room")


async def test_where_the_system_has_no_room_it_is_said_once_and_served_the_general_way(
    monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    async with serving() as broker, connect(broker.address) as client:
        assert isinstance(broker.express, Express)
        full = _Full(broker.express._epoll)
        with monkeypatch.context() as patch:
            patch.setattr(broker.express, "_epoll", full)
            await client.create("t")
            for n in range(5):
                assert (await client.produce("t", b"v")).base_offset == n
            await trio.testing.wait_all_tasks_blocked()
        assert full.asked == 1
        (line,) = events.named("express_refused")
        assert line["peer"].startswith("127.0.0.1:")
        assert broker.express.requests == 0


async def test_who_does_not_read_its_replies_is_not_read_any_more() -> None:
    async with serving() as broker, connect(broker.address) as client, AsyncExitStack() as stack:
        await parked(broker, client, stack, 0)
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        assert broker.express is not None
        (its,) = broker.express._seats.values()
        its.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        sent: list[int] = []

        async def send(count: int) -> None:
            asked = [client.encode(produce_request("t", batch(b"v")), 9) for _ in range(count)]
            send_at_once(client, b"".join(frame for _, frame in asked))
            sent.extend(correlation_id for correlation_id, _ in asked)
            await trio.testing.wait_all_tasks_blocked()

        while not its.peer.outbox.unsent:
            await send(100)
        before = taken(broker)
        for _ in range(10):
            await send(1)
        assert taken(broker) == before
        with trio.fail_after(60):
            assert [(await client.receive(ProduceResponse, 9))[0] for _ in sent] == sent
        assert (await client.fetch("t", 0)).high_watermark == len(sent) + 1


async def test_other_tasks_have_their_turn_while_there_is_always_somebody_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as broker, connect(broker.address) as client, AsyncExitStack() as stack:
        await parked(broker, client, stack, 0)
        passes = turns = 0

        def never_ends(_: Express) -> bool:
            nonlocal passes
            passes += 1
            return turns < 3 and passes < 1_000_000

        monkeypatch.setattr(Express, "_pass", never_ends)
        send_at_once(client, client.encode(produce_request("t", batch(b"v")), 9)[1])
        while not passes:
            await trio.lowlevel.checkpoint()
        while turns < 3:
            turns += 1
            await trio.lowlevel.checkpoint()
        assert passes < 1_000_000
        monkeypatch.undo()
        with trio.fail_after(60):
            await client.receive(ProduceResponse, 9)


async def test_no_more_requests_are_unanswered_than_may_be_however_they_come() -> None:
    disk = GatedStorage()
    async with (
        serving(storage=disk, slots_max=4) as broker,
        connect(broker.address) as client,
        AsyncExitStack() as stack,
    ):
        others = await parked(broker, client, stack, 8, "fsync")
        assert broker.express is not None
        name = client.stream.socket.getsockname()
        seats = broker.express._seats.values()
        (its,) = [one for one in seats if one.sock.getpeername() == name]
        disk.syncs.clear()
        for other in others:  # a pass receives both, and they go the same way
            for one in (other, client):
                send_at_once(one, one.encode(produce_request("t", batch(b"v")), 9)[1])
            await trio.testing.wait_all_tasks_blocked()
        # What makes it too many is handed to the task, which handles it and reads no further.
        assert len(its.peer.outbox) == 5
        disk.syncs.set()
        with trio.fail_after(60):
            for other in others:
                await other.receive(ProduceResponse, 9)
                await client.receive(ProduceResponse, 9)
